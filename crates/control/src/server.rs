//! The node's side of the control socket.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::net::Shutdown;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use audit::{Event, Log, Outcome, Record};
use disk::Directory;
use parking_lot::Mutex;

use super::caller::user_at;
use super::socket_folder::{SocketFolder, forget_unused, within};
use super::{Answers, Reply, SOCKET, gate};

/// Short, because a program writes a request as one line at once.
const REQUEST_PATIENCE: Duration = Duration::from_secs(5);
/// How long a client may read nothing of its answer.
const ANSWER_PATIENCE: Duration = Duration::from_secs(60);

/// Simultaneous connections at a socket; a further one is told to try again.
#[derive(Clone, Copy, Debug)]
struct Places {
    all: usize,
    /// Those of one user.
    of_one: usize,
}

/// The socket in the data directory: only the owner of the node reaches it.
const FOR_OWNER: Places = Places { all: 8, of_one: 8 };
/// The socket for all users: a few of them cannot keep the others out.
const FOR_USERS: Places = Places { all: 32, of_one: 2 };

/// Why the socket could not be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what} the control socket {path}: {source}")]
pub struct ControlError {
    what: &'static str,
    path: PathBuf,
    source: io::Error,
}

/// The socket; it closes when this is dropped.
pub struct Control {
    at: SocketAt,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// Where a socket is.
enum SocketAt {
    /// In the data directory. A disk that is mounted over it later does not get the socket.
    Data(Arc<Directory>),
    /// With this name in a folder.
    Folder(SocketFolder, OsString),
}

impl SocketAt {
    fn path(&self) -> PathBuf {
        match self {
            Self::Data(data) => data.held().join(SOCKET),
            Self::Folder(folder, name) => folder.at(name),
        }
    }
}

struct Shared {
    answers: Answers,
    log: Log,
    stopping: AtomicBool,
    places: Places,
    open: Mutex<OpenConnections>,
}

#[derive(Default)]
struct OpenConnections {
    counted: u64,
    connections: Vec<OpenConnection>,
}

struct OpenConnection {
    number: u64,
    uid: u32,
    /// To end it.
    stream: UnixStream,
}

impl Control {
    /// Listens in the data directory `data`, whose lock the caller holds. Replaces the socket of an earlier run.
    /// `log`: takes the lines about changes.
    pub fn start(data: &Arc<Directory>, answers: Answers, log: Log) -> Result<Self, ControlError> {
        let (held, path) = (data.held(), data.held().join(SOCKET));
        let failed = |what| {
            let path = data.shown().join(SOCKET);
            move |source| ControlError { what, path, source }
        };
        // Anybody can connect to a socket as soon as it exists, and stays connected. So it is made in a private folder, and moved once only
        // the owner may open it.
        let folder = held.join(format!("{SOCKET}.new"));
        forget(&folder);
        DirBuilder::new().mode(0o700).create(&folder).map_err(failed("make a folder for"))?;
        let bound = within(&folder, OsStr::new(SOCKET), |short| UnixListener::bind(short));
        let made = bound.map_err(failed("make")).and_then(|made| {
            fs::set_permissions(folder.join(SOCKET), Permissions::from_mode(0o600)).map_err(failed("protect"))?;
            fs::rename(folder.join(SOCKET), &path).map_err(failed("name"))?;
            Ok(made)
        });
        forget(&folder);
        Self::serve(made?, SocketAt::Data(Arc::clone(data)), FOR_OWNER, answers, log).map_err(failed("serve"))
    }

    /// Listens at `path` for all users of this machine. Replaces the socket of an earlier run. Nobody else may be able to change its folder, or those
    /// above it: they could put another socket there.
    ///
    /// # Errors
    /// It cannot be made there, or somebody else listens.
    pub fn start_for_users(path: &Path, answers: Answers, log: Log) -> Result<Self, ControlError> {
        let failed = |what| move |source| ControlError { what, path: path.to_owned(), source };
        let (folder, name) = SocketFolder::of_all_users(path).map_err(failed("make"))?;
        let short = folder.at(&name);
        forget_unused(&short).map_err(failed("replace"))?;
        let listener = UnixListener::bind(&short).map_err(failed("make"))?;
        // Nobody else can have put a link there meanwhile.
        fs::set_permissions(&short, Permissions::from_mode(0o666)).map_err(failed("open"))?;
        Self::serve(listener, SocketAt::Folder(folder, name), FOR_USERS, answers, log).map_err(failed("serve"))
    }

    fn serve(listener: UnixListener, at: SocketAt, places: Places, answers: Answers, log: Log) -> io::Result<Self> {
        let stopping = AtomicBool::new(false);
        let shared = Arc::new(Shared { answers, log, stopping, places, open: Mutex::default() });
        let inner = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("control".into()).stack_size(256 << 10);
        let thread = thread.spawn(move || listen(&listener, &inner))?;
        Ok(Self { at, shared, thread: Some(thread) })
    }

    /// Ends the connections that are open, because what their users may do has changed. Whoever may still act can ask again.
    pub fn cut(&self) {
        for one in &self.shared.open.lock().connections {
            // It has ended by itself otherwise.
            let _ = one.stream.shutdown(Shutdown::Both);
        }
    }

    /// Takes no more requests; waits up to `patience` for unfinished answers.
    pub fn stop(&mut self, patience: Duration) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        let Some(thread) = self.thread.take() else { return };
        // Wakes the thread. Without the socket's name it would notice the stop only at the next request.
        let woken = connect_at(&self.at.path()).is_ok();
        let _ = fs::remove_file(self.at.path());
        if woken && thread.join().is_err() {
            tracing::error!("the control socket's thread had panicked");
        }
        let step = Duration::from_millis(10);
        let mut left = patience;
        while !self.shared.open.lock().connections.is_empty() && left > Duration::ZERO {
            std::thread::sleep(step);
            left = left.saturating_sub(step);
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.stop(Duration::ZERO);
    }
}

/// Removes the files of this or an earlier start.
fn forget(folder: &Path) {
    let _ = fs::remove_file(folder.join(SOCKET));
    // An older version made the socket itself at this path.
    let _ = fs::remove_dir(folder).or_else(|_| fs::remove_file(folder));
}

/// Connects to the node that serves `data`.
pub(super) fn connect(data: &Path) -> io::Result<UnixStream> {
    connect_at(&data.join(SOCKET))
}

/// Connects to the socket at `path`.
pub(super) fn connect_at(path: &Path) -> io::Result<UnixStream> {
    let no_name = || io::Error::new(io::ErrorKind::InvalidInput, "the path does not end in a name");
    let (folder, name) = (path.parent().ok_or_else(no_name)?, path.file_name().ok_or_else(no_name)?);
    within(folder, name, |short| UnixStream::connect(short))
}

fn listen(listener: &UnixListener, shared: &Arc<Shared>) {
    loop {
        let accepted = listener.accept();
        if shared.stopping.load(Ordering::SeqCst) {
            return;
        }
        let entered = accepted.and_then(|(stream, _)| {
            let uid = user_at(&stream)?;
            Ok((enter(shared, &stream, uid)?, stream, uid))
        });
        let (taken, stream, uid) = match entered {
            Ok((Some(taken), stream, uid)) => (taken, stream, uid),
            Ok((None, stream, _)) => {
                let _ = gate::say(&mut &stream, &Reply::Refused(gate::TOO_MANY.into()));
                continue;
            }
            Err(error) => {
                tracing::warn!("the control socket cannot take a connection: {error}");
                std::thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        let spawned = std::thread::Builder::new().name("command".into()).stack_size(512 << 10).spawn(move || {
            if let Err(error) = serve(&stream, uid, &taken.shared) {
                tracing::debug!("a command's connection ended: {error}");
            }
        });
        if let Err(error) = spawned {
            tracing::warn!("no thread for a command: {error}");
        }
    }
}

/// Counts a connection of this user until the guard is dropped; `None`: there is no place for it.
fn enter(shared: &Arc<Shared>, stream: &UnixStream, uid: u32) -> io::Result<Option<ConnectionGuard>> {
    let mut open = shared.open.lock();
    let of_one = open.connections.iter().filter(|one| one.uid == uid).count();
    if open.connections.len() >= shared.places.all || of_one >= shared.places.of_one {
        return Ok(None);
    }
    let stream = stream.try_clone()?;
    open.counted += 1;
    let number = open.counted;
    open.connections.push(OpenConnection { number, uid, stream });
    Ok(Some(ConnectionGuard { shared: Arc::clone(shared), number }))
}

/// Counts as a connection while it lives.
struct ConnectionGuard {
    shared: Arc<Shared>,
    number: u64,
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.shared.open.lock().connections.retain(|one| one.number != self.number);
    }
}

/// Reads a request, which must be here in time, in however many pieces it comes.
struct Request<'a> {
    stream: &'a UnixStream,
    ends: Instant,
}

impl io::Read for Request<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.ends.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        let mut stream = self.stream;
        stream.read(into)
    }
}

fn serve(stream: &UnixStream, uid: u32, shared: &Shared) -> io::Result<()> {
    stream.set_write_timeout(Some(ANSWER_PATIENCE))?;
    let line = gate::read(Request { stream, ends: Instant::now() + REQUEST_PATIENCE })?;
    let caller = || {
        shared.answers.user(uid).map_err(|why| {
            refused(uid, &why, shared);
            Reply::Denied(why)
        })
    };
    gate::serve(&line, stream, caller, &shared.answers, &shared.log)
}

/// Notes that a user of this machine is nobody here.
fn refused(uid: u32, why: &str, shared: &Shared) {
    let at = format!("control socket, uid {uid}");
    if let Some(held_back) = shared.answers.denials.may_be_logged(&at, Instant::now()) {
        tracing::warn!(uid, reason = why, held_back, "a user of this machine was refused at the control socket");
    }
    shared.log.write(Record {
        event: Event::Login,
        operation: "login".into(),
        result: Outcome::Denied,
        reason: Some(why.to_owned().into()),
        mechanism: Some("control socket".into()),
        address: Some(at.into()),
        ..Record::default()
    });
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::super::{ControlRequest, client};
    use super::*;

    fn answering() -> Answers {
        Answers::new(|_, ask| match ask {
            ControlRequest::ScrubStatus => Reply::Done(serde_json::json!({ "rate": 7 })),
            ControlRequest::ScrubStop => Reply::Refused("not now".into()),
            _ => Reply::Stream(serde_json::json!(null), Box::new(|out| out.write_all(b"and more"))),
        })
    }

    fn start(data: &Path) -> Control {
        Control::start(&Arc::new(Directory::open(data).unwrap()), answering(), Log::off()).unwrap()
    }

    /// Another user tries to connect all the time.
    #[test]
    fn no_other_user_can_connect_to_the_socket() {
        let temp = tempfile::tempdir().unwrap();
        let (seen, done) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::SeqCst) {
                    // Other users reach a folder's files only if the folder's mode allows it.
                    let at = |path: PathBuf| fs::metadata(path).map(|found| found.permissions().mode());
                    let socket = [SOCKET.to_owned(), format!("{SOCKET}.new")].map(|name| at(temp.path().join(name)));
                    let is_open = socket.into_iter().flatten().any(|mode| mode & 0o077 != 0);
                    seen.fetch_or(is_open, Ordering::SeqCst);
                }
            });
            for _ in 0..300 {
                drop(start(temp.path()));
            }
            done.store(true, Ordering::SeqCst);
        });
        assert!(!seen.load(Ordering::SeqCst));
    }

    #[test]
    fn the_socket_for_users_is_open_for_all_and_replaces_only_a_dead_one() {
        let temp = tempfile::tempdir().unwrap();
        fs::set_permissions(temp.path(), Permissions::from_mode(0o755)).unwrap();
        let path = temp.path().join("people");
        let start = || Control::start_for_users(&path, answering(), Log::off());
        let mut control = start().unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o666);
        assert_eq!(client::ask_at(&path, &ControlRequest::ScrubStatus).unwrap().0["rate"], 7);
        assert!(start().err().unwrap().to_string().contains("another process listens"));
        control.stop(Duration::from_secs(1));
        assert!(!path.exists());
        // Left by a process that was killed.
        drop(UnixListener::bind(&path).unwrap());
        drop(start().unwrap());
        fs::write(&path, "mine").unwrap();
        assert!(start().err().unwrap().to_string().contains("no socket"));
        assert_eq!(fs::read(&path).unwrap(), b"mine");
        fs::remove_file(&path).unwrap();
        fs::set_permissions(temp.path(), Permissions::from_mode(0o777)).unwrap();
        assert!(start().err().unwrap().to_string().contains("may write into its folder"));
    }

    #[test]
    fn a_user_who_does_not_own_the_node_is_who_the_settings_say() {
        let stranger = rustix::process::geteuid().as_raw() ^ 0x7000;
        let answers = Answers::new(|_, _| Reply::Refused("answered".into()));
        assert!(answers.user(stranger).unwrap_err().contains("only root"));
        let answers = answers.with_users(|uid| Err(format!("user {uid} is nobody")));
        assert_eq!(answers.user(stranger).unwrap_err(), format!("user {stranger} is nobody"));
        assert!(matches!(answers.user(0), Ok(crate::Caller::Local { uid: 0, .. })), "root is not asked for");
    }

    /// Waits up to 10 s.
    fn becomes(what: impl Fn() -> bool) -> bool {
        (0..1000).any(|_| {
            what() || {
                std::thread::sleep(Duration::from_millis(10));
                false
            }
        })
    }

    fn said(stream: &mut UnixStream) -> String {
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    }

    #[test]
    fn a_user_has_two_places_at_the_socket_for_all_and_a_request_is_here_in_time_or_its_place_is_free() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("people");
        let control = Control::start_for_users(&path, answering(), Log::off()).unwrap();
        let open = || control.shared.open.lock().connections.len();
        // A byte now and then keeps no connection longer than one that sends nothing.
        let (began, mut slow) = (Instant::now(), connect_at(&path).unwrap());
        let mut idle = connect_at(&path).unwrap();
        assert!(becomes(|| open() == 2));
        let ended = std::thread::scope(|scope| {
            let mut writes = slow.try_clone().unwrap();
            scope.spawn(move || {
                while writes.write_all(b" ").is_ok() {
                    std::thread::sleep(Duration::from_millis(500));
                }
            });
            let third = client::ask_at(&path, &ControlRequest::ScrubStatus).err().unwrap();
            assert!(third.to_string().contains(gate::TOO_MANY), "{third}");
            assert_eq!((said(&mut slow), said(&mut idle)), (String::new(), String::new()));
            began.elapsed()
        });
        assert!(ended >= Duration::from_secs(4) && ended < REQUEST_PATIENCE * 2, "{ended:?}");
        assert!(becomes(|| open() == 0));
        assert_eq!(client::ask_at(&path, &ControlRequest::ScrubStatus).unwrap().0["rate"], 7);
    }

    #[test]
    fn a_cut_ends_the_answers_that_are_being_read() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("people");
        let endless = Answers::new(|_, _| {
            Reply::Stream(
                serde_json::Value::Null,
                Box::new(|out| {
                    loop {
                        out.write_all(&[b'x'; 4096])?
                    }
                }),
            )
        });
        let control = Control::start_for_users(&path, endless, Log::off()).unwrap();
        let (_, mut answer) = client::ask_at(&path, &ControlRequest::Tokens).unwrap();
        answer.read_exact(&mut [0; 100_000]).unwrap();
        control.cut();
        std::io::copy(&mut answer, &mut std::io::sink()).unwrap();
        assert!(becomes(|| control.shared.open.lock().connections.is_empty()));
    }

    #[test]
    fn a_user_who_is_nobody_here_is_in_the_logs() {
        let temp = tempfile::tempdir().unwrap();
        let files = audit::FileSettings { directory: temp.path().to_owned(), file_bytes: 1 << 20, files_max: 2 };
        let log = Log::start(&audit::Settings { to: audit::Destination::Files(files), reads: false }).unwrap();
        let stopping = AtomicBool::new(false);
        let answers = answering().with_users(|uid| Err(format!("user {uid} is nobody")));
        let shared = Shared { answers, log: log.clone(), stopping, places: FOR_USERS, open: Mutex::default() };
        let stranger = rustix::process::geteuid().as_raw() ^ 0x7000;
        for _ in 0..300 {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            theirs.write_all(b"{\"ask\":\"scrub-status\"}\n").unwrap();
            serve(&ours, stranger, &shared).unwrap();
            drop(ours);
            assert!(said(&mut theirs).contains("is nobody"));
        }
        log.stop();
        let mut found = Vec::new();
        let mut each = |record: Record, _: &[u8]| {
            found.push(record);
            true
        };
        audit::Reader::open(temp.path()).unwrap().read(&audit::Filter::default(), &mut each).unwrap();
        let (more, lines): (Vec<_>, Vec<_>) = found.into_iter().partition(|record| record.operation == "more");
        assert!((100..=105).contains(&lines.len()) && more.len() == 1, "{} {}", lines.len(), more.len());
        let line = &lines[0];
        assert_eq!((line.event, line.result), (Event::Login, Outcome::Denied));
        assert_eq!(line.address.as_deref(), Some(&*format!("control socket, uid {stranger}")));
        assert_eq!(line.reason.as_deref(), Some(&*format!("user {stranger} is nobody")));
    }

    #[test]
    fn requests_are_answered_and_unknown_ones_refused() {
        let temp = tempfile::tempdir().unwrap();
        // Longer than the path of a socket may be.
        let data = temp.path().join("d".repeat(200));
        fs::create_dir(&data).unwrap();
        assert!(matches!(client::ask(&data, &ControlRequest::ScrubStatus), Err(client::AskError::NotRunning { .. })));
        let mut control = start(&data);
        assert_eq!(fs::metadata(data.join(SOCKET)).unwrap().permissions().mode() & 0o777, 0o600);
        let (value, _) = client::ask(&data, &ControlRequest::ScrubStatus).unwrap();
        assert_eq!(value["rate"], 7);
        let refused = client::ask(&data, &ControlRequest::ScrubStop).err().unwrap();
        assert!(refused.to_string().contains("not now"), "{refused}");
        let (_, mut rest) = client::ask(&data, &ControlRequest::Backup { since: None }).unwrap();
        let mut more = String::new();
        rest.read_to_string(&mut more).unwrap();
        assert_eq!(more, "and more");
        for wrong in [&b"{\"ask\":\"dance\"}\n"[..], b"\n", b"\xff\xff\n", &[b'x'; 70_000]] {
            let mut stream = connect(&data).unwrap();
            let _ = stream.write_all(wrong);
            let mut answer = String::new();
            let _ = stream.read_to_string(&mut answer);
            assert!(answer.contains("does not understand"), "{answer}");
        }
        // The socket of an earlier run is no obstacle.
        control.stop(Duration::from_secs(1));
        assert!(!data.join(SOCKET).exists());
        fs::write(data.join(SOCKET), "").unwrap();
        let left = data.join(format!("{SOCKET}.new"));
        fs::create_dir(&left).unwrap();
        fs::write(left.join(SOCKET), "").unwrap();
        let again = start(&data);
        assert!(!left.exists());
        drop(again);
        fs::write(&left, "of a version before").unwrap();
        let _again = start(&data);
        client::ask(&data, &ControlRequest::ScrubStatus).unwrap();
    }
}
