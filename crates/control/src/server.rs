//! The node's side of the control socket.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use audit::Log;
use disk::Directory;

use super::caller::user_at;
use super::{Answers, Reply, SOCKET, gate};

/// Simultaneous connections; a further one is told to try again.
const CONNECTIONS_MAX: usize = 8;
/// Short, because a program writes a request as one line at once.
const REQUEST_PATIENCE: Duration = Duration::from_secs(5);
/// How long a client may read nothing of its answer.
const ANSWER_PATIENCE: Duration = Duration::from_secs(60);

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
    /// At this path.
    Path(PathBuf),
}

impl SocketAt {
    fn path(&self) -> PathBuf {
        match self {
            Self::Data(data) => data.held().join(SOCKET),
            Self::Path(path) => path.clone(),
        }
    }
}

struct Shared {
    answers: Answers,
    log: Log,
    stopping: AtomicBool,
    connections: AtomicUsize,
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
        let made =
            within(&folder, SOCKET, |short| UnixListener::bind(short)).map_err(failed("make")).and_then(|made| {
                fs::set_permissions(folder.join(SOCKET), Permissions::from_mode(0o600)).map_err(failed("protect"))?;
                fs::rename(folder.join(SOCKET), &path).map_err(failed("name"))?;
                Ok(made)
            });
        forget(&folder);
        Self::serve(made?, SocketAt::Data(Arc::clone(data)), answers, log).map_err(failed("serve"))
    }

    /// Listens at `path` for all users of this machine. Replaces the socket of an earlier run. Nobody else may be able to change its folder: they could
    /// put another socket there.
    ///
    /// # Errors
    /// It cannot be made there, or somebody else listens.
    pub fn start_for_users(path: &Path, answers: Answers, log: Log) -> Result<Self, ControlError> {
        let failed = |what| move |source| ControlError { what, path: path.to_owned(), source };
        check_folder(path).map_err(failed("make"))?;
        forget_unused(path).map_err(failed("replace"))?;
        let listener = within_path(path, |short| UnixListener::bind(short)).map_err(failed("make"))?;
        fs::set_permissions(path, Permissions::from_mode(0o666)).map_err(failed("open"))?;
        Self::serve(listener, SocketAt::Path(path.to_owned()), answers, log).map_err(failed("serve"))
    }

    fn serve(listener: UnixListener, at: SocketAt, answers: Answers, log: Log) -> io::Result<Self> {
        let shared =
            Arc::new(Shared { answers, log, stopping: AtomicBool::new(false), connections: AtomicUsize::new(0) });
        let inner = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("control".into()).stack_size(256 << 10);
        let thread = thread.spawn(move || listen(&listener, &inner))?;
        Ok(Self { at, shared, thread: Some(thread) })
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
        while self.shared.connections.load(Ordering::SeqCst) > 0 && left > Duration::ZERO {
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
    within(data, SOCKET, |short| UnixStream::connect(short))
}

/// Connects to the socket at `path`.
pub(super) fn connect_at(path: &Path) -> io::Result<UnixStream> {
    within_path(path, |short| UnixStream::connect(short))
}

/// Like [`within`], for the name at the end of `path`.
fn within_path<T>(path: &Path, what: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    let no_name = || io::Error::new(io::ErrorKind::InvalidInput, "the path does not end in a name");
    let (folder, name) = (path.parent().ok_or_else(no_name)?, path.file_name().ok_or_else(no_name)?);
    let folder = File::open(folder)?;
    what(&Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name))
}

/// Refuses a folder in which somebody else could replace the socket.
fn check_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().map(fs::metadata).transpose()?;
    let folder = folder.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "it is in no folder"))?;
    let is_ours = folder.uid() == 0 || folder.uid() == rustix::process::geteuid().as_raw();
    match is_ours && folder.mode() & 0o022 == 0 {
        true => Ok(()),
        false => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "others than root and the user that weir runs as may write into its folder",
        )),
    }
}

/// Removes a socket at which nobody listens. Anything else at the path stays.
fn forget_unused(path: &Path) -> io::Result<()> {
    let there = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    if !there.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "something that is no socket has this name"));
    }
    if connect_at(path).is_ok() {
        return Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens there"));
    }
    fs::remove_file(path)
}

/// Calls `what` with a short path to `name` in the folder `data`: the path of a socket has at most 107 bytes (unix(7)).
fn within<T>(data: &Path, name: &str, what: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    let folder = File::open(data)?;
    what(&Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name))
}

fn listen(listener: &UnixListener, shared: &Arc<Shared>) {
    loop {
        let accepted = listener.accept();
        if shared.stopping.load(Ordering::SeqCst) {
            return;
        }
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!("the control socket cannot take a connection: {error}");
                std::thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        let busy = shared.connections.fetch_add(1, Ordering::SeqCst) >= CONNECTIONS_MAX;
        let taken = ConnectionGuard(Arc::clone(shared));
        if busy {
            let _ = gate::say(&mut &stream, &Reply::Refused(gate::TOO_MANY.into()));
            continue;
        }
        let spawned = std::thread::Builder::new().name("command".into()).stack_size(512 << 10).spawn(move || {
            if let Err(error) = serve(stream, &taken.0) {
                tracing::debug!("a command's connection ended: {error}");
            }
        });
        if let Err(error) = spawned {
            tracing::warn!("no thread for a command: {error}");
        }
    }
}

/// Counts as a connection while it lives.
struct ConnectionGuard(Arc<Shared>);

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::SeqCst);
    }
}

fn serve(stream: UnixStream, shared: &Shared) -> io::Result<()> {
    stream.set_read_timeout(Some(REQUEST_PATIENCE))?;
    stream.set_write_timeout(Some(ANSWER_PATIENCE))?;
    let uid = user_at(&stream)?;
    let line = gate::read(&stream)?;
    gate::serve(&line, &stream, || shared.answers.user(uid), &shared.answers, &shared.log)
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
