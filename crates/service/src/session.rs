//! A client's session: its caller and its open files.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use namespace::{Durability, NoteSharer};
use parking_lot::Mutex;
use types::{ClientIdentity, NsPath};

use crate::caller::Caller;
use crate::config::PlantedBug;
use crate::error::Error;
use crate::handles::{Handle, Handles};
use crate::lease::{Lease, WriteAccess};
use crate::names::By;
use crate::open_file::{Access, OpenFile};
use crate::service::{Role, Service};
use crate::shares::network;
use crate::transfers::{Sharer, UserKey};
use crate::writers::Owner;

/// A client process, as it describes itself. The process number alone is ambiguous: containers use the same ones.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Process {
    /// The process number on its machine.
    pub pid: u32,
    /// The name of the machine.
    pub host: Vec<u8>,
    /// The name of the program.
    pub program: Vec<u8>,
}

/// A session. A front end with connections has one for each client that has logged in. A front end without
/// connections may use one for a single request.
pub struct Session {
    /// Unique while the service runs.
    number: u64,
    caller: Mutex<Arc<Caller>>,
    /// The client process, if the client has described it.
    process: Mutex<Option<Process>>,
    /// The open files of this session.
    pub(crate) handles: Handles,
}

impl Session {
    pub(crate) fn new(number: u64, caller: Caller, handles: Handles) -> Arc<Self> {
        let caller = Caller { session: Some(number), ..caller };
        Arc::new(Self { number, caller: Mutex::new(Arc::new(caller)), process: Mutex::new(None), handles })
    }

    /// The number of the session, unique while the service runs.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn owner(&self) -> Owner {
        Owner(self.number)
    }

    /// The caller on whose behalf the session acts.
    #[must_use]
    pub fn caller(&self) -> Arc<Caller> {
        Arc::clone(&self.caller.lock())
    }

    /// Whether the session has an open file.
    #[must_use]
    pub fn has_open_files(&self) -> bool {
        !self.handles.is_empty()
    }

    /// Whether the client has delegated a proxy at its login, or has a file open here whose data comes from a source that is read with one.
    fn copies_by_proxy(&self) -> bool {
        self.caller().delegated().is_some() || self.handles.any(OpenFile::is_fetched_by_proxy)
    }

    /// Sets the caller for later requests. Files that are already open are not affected.
    pub fn set_caller(&self, caller: Caller) {
        *self.caller.lock() = Arc::new(Caller { session: Some(self.number), ..caller });
    }

    /// Sets the client process, as the client describes it.
    pub fn set_process(&self, process: Option<Process>) {
        *self.process.lock() = process;
    }

    /// Whether both sessions belong to the same process, as far as both clients have described it. A client such as
    /// xrootdfs may have several sessions under several names.
    pub(crate) fn is_of_process_of(&self, other: &Session) -> bool {
        let mine = self.process.lock().clone();
        let (caller, others) = (self.caller(), other.caller());
        mine.is_some()
            && caller.principal == others.principal
            && caller.peer.ip() == others.peer.ip()
            && mine == *other.process.lock()
    }
}

impl Sharer for Session {
    /// The principal, the client's user name and the client's machine.
    fn key(&self) -> UserKey {
        let caller = self.caller();
        (caller.principal, (caller.client.user.clone(), network(caller.peer.ip())))
    }
}

impl Service {
    /// Whether third-party copies of this session's client read their sources with a proxy that it has delegated. At a disk server this shows
    /// in an open file, which may be one of another session: stock clients have a session of their own for each target.
    #[must_use]
    pub fn copies_by_proxy(&self, session: &Session) -> bool {
        let is_same = |other: &Arc<Session>| other.is_of_process_of(session) && other.copies_by_proxy();
        session.copies_by_proxy() || matches!(self.role, Role::Disk(_)) && self.sessions.all().iter().any(is_same)
    }

    /// Creates a session that acts on behalf of `caller`.
    #[must_use]
    pub fn session(&self, caller: Caller) -> Arc<Session> {
        let handles = Handles::new(
            self.settings.config.limits.handles_per_session_max,
            caller.peer.ip(),
            Arc::clone(&self.handle_shares),
        );
        Session::new(self.sessions.next_number(), caller, handles)
    }

    /// Registers the session of a client that has logged in, until [`Service::end_session`].
    pub fn enrol(&self, session: &Arc<Session>) {
        self.sessions.add(session);
    }

    /// Ends the session: it can open no more files.
    pub fn end_session(&self, session: &Session) {
        session.handles.end();
        self.let_go(session);
        self.sessions.remove(session.number);
    }

    /// Closes all files that are open for reading. Detaches the writers, which then wait for their client to return.
    pub fn let_go(&self, session: &Session) {
        let now = Instant::now();
        for file in session.handles.drain() {
            file.stop_copying();
            if let Access::Write(write) = &file.access {
                self.detach(&file, write, now);
            }
        }
    }

    /// Detaches a writer whose handle is gone without a close. Other clients that write the file go on.
    pub(crate) fn detach(&self, file: &OpenFile, write: &WriteAccess, now: Instant) {
        write.abandon_checkpoint();
        // A client that takes the file over in the meantime may need the lock on the writers.
        let waits = write.lease.waits_for_its_client();
        if let Some(client) = self.writes.lose(write, waits, now) {
            self.note_sharer(&write.lease, client, file.path.clone(), true);
        }
    }

    /// Notes in the namespace that a client that writes a file with others has lost it or closed it (`namespace::NoteSharer`). In a cluster the client
    /// itself knows the object.
    pub(crate) fn note_sharer(&self, lease: &Lease, client: ClientIdentity, path: NsPath, is_away: bool) {
        if matches!(self.role, Role::Alone { .. }) && lease.has_noted_sharers() {
            let op = NoteSharer { client, path, object: lease.object, is_away, boot: lease.boot };
            self.names.change(By::service().urgently(), Durability::Written, op, |result| {
                if let Err(error) = result {
                    tracing::warn!(%error, "cannot note who writes a file");
                }
            });
        }
    }

    /// The open file behind `handle`.
    ///
    /// # Errors
    /// The session has no such handle.
    pub fn file(&self, session: &Session, handle: Handle) -> Result<Arc<OpenFile>, Error> {
        let file = session.handles.get(handle);
        if file.is_none() && self.settings.has(PlantedBug::TrustHandles) {
            let found = self.sessions.all().iter().find_map(|other| other.handles.get(handle));
            return found.ok_or_else(Error::not_open);
        }
        file.ok_or_else(Error::not_open)
    }
}

impl fmt::Display for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.caller().fmt(f)
    }
}
