//! Reads whole files to compute unknown checksums. One thread reads one file after the other, so that no close,
//! reopen or end of a grace period waits for it. The manager of a cluster has a disk server read the file.
//!
//! Equal requests share one read. A read stops when nobody waits for it any more. The result is kept with the file.

mod permission;
mod reading_through;
mod verified;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use disk_server::{DiskServer, DiskServerError, VerifiedCapability};
use manager::{SumError, Unsummed};
use namespace::{
    Content, DAMAGED_MARK, Durability, FileState, Inode, KeepDigest, KeepSums, NsError, OBJECT_SEPARATOR, Sums,
};
use node::{ChecksumFailure, ObjectDigest, SumRequest, Summed};
use parking_lot::{Condvar, Mutex};
use types::{Adler32, Crc32c, DigestKind, ErrorCode, Ino, NsPath, ObjectId, ReplicaId};

use self::permission::permit_handle;
use self::reading_through::read_through;
use self::verified::{not_summed, read_granted};
use crate::answer::{Answer, AnyAnswer};
use crate::caller::Caller;
use crate::copying::put_off;
use crate::error::Error;
use crate::names::{By, Names};
use crate::open_file::OpenFile;
use crate::opening::Hints;
use crate::service::{Role, Service};
use crate::settings::Settings;
use crate::stores::Stores;

/// Maximum number of files that wait to be read.
const WAITING_MAX: usize = 64;
/// The manager repeats a request that it still wants. After this time without a repetition, the request has lapsed.
const MANAGER_WAITS: Duration = Duration::from_secs(10);

/// The object to read. Its data is the same as long as its generation is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Question {
    pub(crate) ino: Ino,
    pub(crate) object: ObjectId,
    pub(crate) generation: u32,
    /// The checksum that is wanted; `None`: those that are always kept.
    pub(crate) digest: Option<DigestKind>,
}

/// A caller that waits for checksums.
enum Requester {
    /// For those that are always kept.
    Sums(Box<dyn AnyAnswer<FileSums>>),
    /// For another one.
    Digest(Box<dyn AnyAnswer<Vec<u8>>>),
}

impl Requester {
    fn give(self, found: Result<Found, Error>) {
        match self {
            Self::Sums(requester) => requester.give_boxed(found.map(|found| found.sums)),
            Self::Digest(requester) => requester.give_boxed(found.map(|found| found.digest)),
        }
    }

    fn is_unwanted(&self) -> bool {
        match self {
            Self::Sums(requester) => requester.is_unwanted(),
            Self::Digest(requester) => requester.is_unwanted(),
        }
    }
}

/// The checksums of a file that was read. Without a wish for it, `digest` is empty.
#[derive(Clone)]
struct Found {
    sums: FileSums,
    digest: Vec<u8>,
}

/// The parts that are needed to read files.
struct Readers {
    settings: Arc<Settings>,
    role: Role,
    names: Names,
    stores: Stores,
}

/// The queue and its thread.
pub(crate) struct Checksums {
    shared: Arc<Shared>,
    node: Arc<Readers>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Default)]
struct State {
    order: VecDeque<Work>,
    /// The waiting callers, including those for the file that is being read.
    requesters: HashMap<Question, Vec<Requester>>,
    /// Requests of the manager, by number, with the time when it last repeated each.
    for_manager: HashMap<u64, Instant>,
    stopping: bool,
}

/// A file to read.
enum Work {
    /// A file of this node's namespace.
    Named(Question, Unsummed),
    /// A file that the manager has requested.
    ForManager { number: u64, path: NsPath, verified: VerifiedCapability, digest: Option<DigestKind> },
}

impl Checksums {
    /// A queue whose thread is not yet running.
    pub(crate) fn new(settings: &Arc<Settings>, role: &Role, names: Names, stores: Stores) -> Self {
        let node = Arc::new(Readers { settings: Arc::clone(settings), role: role.clone(), names, stores });
        Self { shared: Arc::default(), node, thread: Mutex::new(None) }
    }

    /// Starts the thread.
    pub(crate) fn start(&self) -> std::io::Result<()> {
        let (shared, node) = (Arc::clone(&self.shared), Arc::clone(&self.node));
        let builder = std::thread::Builder::new().name("checksums".into()).stack_size(512 << 10);
        if let Role::Disk(disk) = &node.role {
            let (shared, disk_server) = (Arc::clone(&shared), Arc::downgrade(disk));
            disk.set_summer(Some(Box::new(move |request| {
                if let Some(disk) = disk_server.upgrade() {
                    shared.ask_for_manager(&disk, request);
                }
            })));
        }
        *self.thread.lock() = Some(builder.spawn(move || run(&node, &shared))?);
        Ok(())
    }

    /// Queues a request, together with equal ones.
    fn ask(&self, question: Question, file: Unsummed, requester: Requester) {
        let mut state = self.shared.state.lock();
        let is_asked = state.requesters.contains_key(&question);
        if state.stopping || (state.requesters.len() >= WAITING_MAX && !is_asked) {
            drop(state);
            return requester.give(Err(Error::busy()));
        }
        if !is_asked {
            state.order.push_back(Work::Named(question, file));
        }
        state.requesters.entry(question).or_default().push(requester);
        drop(state);
        self.shared.work.notify_one();
    }

    /// Whether the thread has ended without a stop.
    pub(crate) fn ended(&self) -> bool {
        self.thread.lock().as_ref().is_some_and(JoinHandle::is_finished)
    }

    /// Ends the thread. The node must already be stopping, so that a read stops too.
    pub(crate) fn stop(&self) {
        self.shared.state.lock().stopping = true;
        self.shared.work.notify_all();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the checksums' thread had panicked");
        }
    }
}

impl Shared {
    fn ask_for_manager(&self, disk: &Arc<DiskServer>, request: SumRequest) {
        let SumRequest { number, capability, path, digest } = request;
        let mut state = self.state.lock();
        if let Some(told) = state.for_manager.get_mut(&number) {
            *told = Instant::now();
            return;
        }
        let has_room = !state.stopping && state.for_manager.len() < WAITING_MAX;
        let verified = match NsPath::parse(&path) {
            Ok(path) if has_room => {
                let verified = disk.verify(capability.as_bytes(), &path, None);
                verified.map(|verified| (path, verified))
            }
            Ok(_) => Err(DiskServerError::Wait { seconds: 1, why: "it reads too many files at the moment" }),
            Err(_) => Err(DiskServerError::Store(ErrorCode::Invalid, "its name is none".to_owned())),
        };
        match verified {
            Ok((path, verified)) => {
                state.for_manager.insert(number, Instant::now());
                state.order.push_back(Work::ForManager { number, path, verified, digest });
                drop(state);
                self.work.notify_one();
            }
            Err(error) => disk.summed(number, Err(not_summed(&error))),
        }
    }

    /// Whether a caller still waits for the result.
    fn is_wanted(&self, question: &Question) -> bool {
        let state = self.state.lock();
        let wanted = state
            .requesters
            .get(question)
            .is_some_and(|requesters| requesters.iter().any(|requester| !requester.is_unwanted()));
        wanted && !state.stopping
    }

    fn is_wanted_by_manager(&self, number: u64) -> bool {
        let state = self.state.lock();
        !state.stopping && state.for_manager.get(&number).is_some_and(|told| told.elapsed() < MANAGER_WAITS)
    }
}

fn run(node: &Arc<Readers>, shared: &Arc<Shared>) {
    loop {
        let work = {
            let mut state = shared.state.lock();
            loop {
                if state.stopping {
                    state
                        .requesters
                        .drain()
                        .flat_map(|(_, requesters)| requesters)
                        .for_each(|requester| requester.give(Err(Error::busy())));
                    return;
                }
                if let Some(work) = state.order.pop_front() {
                    break work;
                }
                shared.work.wait(&mut state);
            }
        };
        match work {
            Work::Named(question, file) => read_named(node, shared, question, file),
            Work::ForManager { number, path, verified, digest } => {
                let progress = || shared.is_wanted_by_manager(number);
                let found =
                    guarded(&path, || read_granted(node, &path, verified, digest, &progress)).unwrap_or_else(|| {
                        Err(ChecksumFailure { code: ErrorCode::Unavailable, text: "an error of the server".to_owned() })
                    });
                shared.state.lock().for_manager.remove(&number);
                if let Role::Disk(disk) = &node.role {
                    disk.summed(number, found);
                }
            }
        }
    }
}

/// Runs `work`; `None`: it has panicked.
fn guarded<T>(path: &NsPath, work: impl FnOnce() -> T) -> Option<T> {
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).ok();
    if result.is_none() {
        tracing::error!(%path, "reading a file for its checksum panicked");
    }
    result
}

fn read_named(node: &Arc<Readers>, shared: &Arc<Shared>, question: Question, file: Unsummed) {
    if !shared.is_wanted(&question) {
        return answer(node, shared, question, Err(Error::busy()));
    }
    if let Role::Manager(manager) = &node.role {
        let (waiting, told) = (Arc::clone(shared), (Arc::clone(node), Arc::clone(shared)));
        let path = file.path.clone();
        let then = move |found: Result<Summed, SumError>| {
            let found = found.map_err(|error| Error::of_sum(&path, &error));
            answer(&told.0, &told.1, question, found);
        };
        return manager.sum(file, move || waiting.is_wanted(&question), then);
    }
    let replica = ReplicaId::first(question.object);
    let is_wanted = || shared.is_wanted(&question);
    let read = || {
        let store = node.stores.of_replica(replica)?;
        if question.digest.is_some() {
            let reader = store.open_read(replica)?;
            return read_through(question.digest, &is_wanted, |offset, into| reader.read(offset, into));
        }
        let found = store.verify(replica, &mut |_| is_wanted())?;
        let whole = ObjectDigest { len: found.len, crc32c: found.crc32c, adler32: found.adler32 };
        Ok(Some(Summed { whole, digest: None }))
    };
    let found = match guarded(&file.path, read) {
        Some(Ok(Some(found))) => Ok(found),
        Some(Ok(None)) => Err(Error::busy()),
        // A file that changed during the read may look damaged.
        Some(Err(_)) if !is_as_asked(node, question).unwrap_or(true) => Err(changed()),
        Some(Err(error)) => Err(Error::of_store(&"compute the checksum", &error)),
        None => Err(Error::new(ErrorCode::Internal, "Cannot compute the checksum: an error of the server")),
    };
    answer(node, shared, question, found);
}

fn changed() -> Error {
    let text = "Cannot give a checksum: the file was changed while it was read for it; ask again when it is closed";
    Error::new(ErrorCode::InProgress, text)
}

/// Whether the file is still as it was requested.
fn is_as_asked(node: &Readers, question: Question) -> Result<bool, Error> {
    Ok(content_of(node, question)?.is_some())
}

/// The length of the file, if it is still as it was requested.
fn content_of(node: &Readers, question: Question) -> Result<Option<u64>, Error> {
    let Question { ino, object, generation, .. } = question;
    let inode = match node.names.read(|read| namespace::stat_ino(read, ino)) {
        Ok(inode) => inode,
        Err(error) if error.code() == ErrorCode::NotFound => return Ok(None),
        Err(error) => return Err(Error::of_namespace(&"checksum", &error)),
    };
    let content = inode.content().filter(|content| {
        (content.object, content.generation, content.state) == (object, generation, FileState::Complete)
    });
    Ok(content.map(|content| content.len))
}

/// Gives the result to the waiting callers. The file could change during the read; the result counts only if it did
/// not.
fn answer(node: &Readers, shared: &Shared, question: Question, found: Result<Summed, Error>) {
    let found = found.and_then(|Summed { whole, digest }| match content_of(node, question)? {
        Some(_) if question.digest.is_some() && digest.is_none() => {
            Err(Error::new(ErrorCode::Internal, "Cannot compute the checksum: its reader has not computed it"))
        }
        Some(len) if len == whole.len => {
            let sums = FileSums { adler32: whole.adler32, crc32c: whole.crc32c };
            Ok(Found { sums, digest: digest.unwrap_or_default() })
        }
        Some(len) => {
            let text = format!("Cannot compute the checksum: {} of {len} bytes are there", whole.len);
            tracing::error!(object = %question.object, text);
            Err(Error::new(ErrorCode::Internal, text))
        }
        None => Err(changed()),
    });
    if let Ok(found) = &found {
        let Question { ino, object, generation, digest } = question;
        let kept = |result: Result<(), NsError>| {
            if let Err(error) = result {
                tracing::warn!(%error, "cannot keep a checksum");
            }
        };
        match digest {
            Some(kind) => {
                let op = KeepDigest { ino, object, generation, kind, value: found.digest.clone() };
                node.names.change(By::service(), Durability::Written, op, kept);
            }
            None => {
                let sums = Sums { adler32: found.sums.adler32, crc32c: found.sums.crc32c };
                node.names.change(By::service(), Durability::Written, KeepSums { ino, object, generation, sums }, kept);
            }
        }
    }
    let requesters = shared.state.lock().requesters.remove(&question).unwrap_or_default();
    for requester in requesters {
        requester.give(found.clone());
    }
}

/// The checksums of a complete file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileSums {
    /// The Adler-32 checksum, as in zlib.
    pub adler32: Adler32,
    /// The CRC-32C checksum.
    pub crc32c: Crc32c,
}

impl From<Sums> for FileSums {
    fn from(Sums { adler32, crc32c }: Sums) -> Self {
        Self { adler32, crc32c }
    }
}

impl Service {
    /// The checksums of the file at `path`. If they are unknown, the file is read, which takes time.
    pub fn checksums(&self, caller: &Caller, path: &NsPath, answer: impl Answer<FileSums>) {
        if let Role::Standby(standby) = &self.role {
            let kept = self.content_to_sum_at(caller, path).map(|(_, content)| content.sums.map(FileSums::from));
            return answer.give(self.unless_active_knows_more(kept).and_then(|kept| standby.known(kept)));
        }
        match self.inode_to_sum(caller, path) {
            Ok(inode) => self.checksums_of(caller, path, &inode, answer),
            Err(error) => answer.give(Err(error)),
        }
    }

    /// The same as [`Service::checksums`], for an open file. A disk server of a cluster refuses it: the manager keeps the
    /// checksums, and is asked by the path.
    pub fn checksums_of_file(&self, caller: &Caller, file: &OpenFile, answer: impl Answer<FileSums>) {
        if !self.has_names() {
            let text = format!(
                "Cannot give a checksum of the open file {}: the cluster's manager keeps checksums; ask there, by the path",
                file.path
            );
            return answer.give(Err(Error::new(ErrorCode::Unsupported, text)));
        }
        match self.names.read(|read| permit_handle(caller, file, namespace::stat_ino(read, file.ino)?)) {
            Ok(inode) => self.checksums_of(caller, &file.path, &inode, answer),
            Err(error) => {
                let denied = Err(Error::of_namespace(&"checksum", &error));
                self.audit_read(caller, &"checksum", &file.path, &denied);
                answer.give(denied);
            }
        }
    }

    fn checksums_of(&self, caller: &Caller, path: &NsPath, inode: &Inode, mut answer: impl Answer<FileSums>) {
        let content = match self.content_to_sum(inode) {
            Ok(content) => content,
            Err(error) => return answer.give(Err(error)),
        };
        if let Some(sums) = content.sums {
            return answer.give(Ok(sums.into()));
        }
        // An interrupted update in place has lost the checksums, so the file must be read.
        put_off(&mut answer, content.len);
        self.read_for(caller, path, inode, content, None, Requester::Sums(Box::new(answer)));
    }

    /// A checksum that is not always kept, of the file at `path`. If nobody has asked for it since the file has this
    /// content, the file is read, which takes time. Then it is kept.
    pub fn digest(&self, caller: &Caller, path: &NsPath, kind: DigestKind, mut answer: impl Answer<Vec<u8>>) {
        let (inode, content) = match self.content_to_sum_at(caller, path) {
            Ok(found) => found,
            Err(error) => return answer.give(self.unless_active_knows_more(Err(error))),
        };
        let kept = self.names.read(|read| namespace::kept_digest(read, &inode, kind));
        if let Role::Standby(standby) = &self.role {
            return answer.give(standby.known(kept.ok().flatten()));
        }
        match kept {
            Ok(Some(kept)) => answer.give(Ok(kept)),
            Ok(None) => {
                put_off(&mut answer, content.len);
                self.read_for(caller, path, &inode, &content, Some(kind), Requester::Digest(Box::new(answer)));
            }
            Err(error) => answer.give(Err(Error::of_namespace(&"checksum", &error))),
        }
    }

    fn read_for(
        &self,
        caller: &Caller,
        path: &NsPath,
        inode: &Inode,
        content: &Content,
        digest: Option<DigestKind>,
        requester: Requester,
    ) {
        let (object, generation) = (content.object, content.generation);
        let question = Question { ino: inode.ino, object, generation, digest };
        let open_request = Hints::default().open_request(caller, path);
        self.checksums.ask(question, Unsummed { open_request, path: path.clone(), object, digest }, requester);
    }

    /// The file at `path`, whose checksum the caller may have, and its content.
    fn content_to_sum_at(&self, caller: &Caller, path: &NsPath) -> Result<(Inode, Content), Error> {
        let inode = self.inode_to_sum(caller, path)?;
        let content = *self.content_to_sum(&inode)?;
        Ok((inode, content))
    }

    /// The content of a file whose checksum may be given.
    fn content_to_sum<'a>(&self, inode: &'a Inode) -> Result<&'a Content, Error> {
        let refused = |code, text: &str| Err(Error::new(code, text));
        let Some(content) = inode.content() else {
            return refused(ErrorCode::IsDirectory, "Cannot give a checksum: it is not a file");
        };
        if let Some(error) = self.damaged(inode, content.object) {
            return Err(error);
        }
        match content.state {
            FileState::Complete => Ok(content),
            FileState::Interrupted(_) => {
                let text = "Cannot give a checksum: the file's writer went away, so the file may be incomplete";
                refused(ErrorCode::InProgress, text)
            }
            FileState::Open(_) | FileState::Updating(_) => {
                let text = "Cannot give a checksum: the file is being written; ask again when it is closed";
                refused(ErrorCode::InProgress, text)
            }
        }
    }

    /// The error for a file that is marked as damaged: its checksum is of bytes that no longer exist. The mark
    /// applies only to the object that it names, not to a later one.
    fn damaged(&self, inode: &Inode, object: ObjectId) -> Option<Error> {
        if inode.xattrs == 0 {
            return None;
        }
        let mark = match self.names.read(|read| namespace::xattr_of(read, inode.ino, DAMAGED_MARK)) {
            Ok(mark) => String::from_utf8_lossy(&mark?).into_owned(),
            Err(error) => return Some(Error::of_namespace(&"checksum", &error)),
        };
        let (what, of) = mark.rsplit_once(OBJECT_SEPARATOR).unwrap_or((&mark, ""));
        if !of.is_empty() && of != object.to_string() {
            return None;
        }
        let text = format!(
            "Cannot give a checksum: this file is marked as damaged (weir.damaged: {what}); write it again from its source"
        );
        Some(Error::new(ErrorCode::Checksum, text))
    }
}
