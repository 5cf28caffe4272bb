//! One client's session: on whose behalf it acts, and its open files.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use crate::caller::Caller;
use crate::config::Planted;
use crate::error::Error;
use crate::handles::{Handle, Handles};
use crate::open_file::{Access, OpenFile};
use crate::service::Service;
use crate::shares::network;
use crate::transfers::{Sharer, UserKey};
use crate::writers::Owner;

/// A process, as it describes itself. Its number alone does not do: containers have the same ones.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Process {
    /// Its number on its machine.
    pub pid: u32,
    /// The name of its machine.
    pub host: Vec<u8>,
    /// What program it is.
    pub program: Vec<u8>,
}

/// A session. Front ends with connections have one for each client that has logged in; a front end without them may use one for a single request.
pub struct Session {
    /// Unique for as long as the service runs.
    number: u64,
    caller: Mutex<Arc<Caller>>,
    /// Of which process it says it is, if it says so.
    process: Mutex<Option<Process>>,
    /// Its open files.
    pub(crate) handles: Handles,
}

impl Session {
    pub(crate) fn new(number: u64, caller: Caller, handles: Handles) -> Arc<Self> {
        Arc::new(Self { number, caller: Mutex::new(Arc::new(caller)), process: Mutex::new(None), handles })
    }

    /// Unique for as long as the service runs.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn owner(&self) -> Owner {
        Owner(self.number)
    }

    /// On whose behalf it acts.
    #[must_use]
    pub fn caller(&self) -> Arc<Caller> {
        Arc::clone(&self.caller.lock())
    }

    /// Whether it has a file open.
    #[must_use]
    pub fn has_open_files(&self) -> bool {
        !self.handles.is_empty()
    }

    /// From now on it acts on behalf of `caller`. What it has open stays as it is.
    pub fn set_caller(&self, caller: Caller) {
        *self.caller.lock() = Arc::new(caller);
    }

    /// Of which process it says it is.
    pub fn set_process(&self, process: Option<Process>) {
        *self.process.lock() = process;
    }

    /// Whether `other` is of the same process, as far as both have said: a client may have several sessions, under several names
    /// (xrootdfs has).
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
    /// Its principal, what it calls itself, and its machine.
    fn key(&self) -> UserKey {
        let caller = self.caller();
        (caller.principal, caller.client.user.clone(), network(caller.peer.ip()))
    }
}

impl Service {
    /// A session that acts on behalf of `caller`.
    #[must_use]
    pub fn session(&self, caller: Caller) -> Arc<Session> {
        let handles = Handles::new(
            self.settings.config.limits.handles_per_session_max,
            caller.peer.ip(),
            Arc::clone(&self.handle_shares),
        );
        Session::new(self.sessions.next_number(), caller, handles)
    }

    /// The session counts from now on, until it is ended: its client has logged in.
    pub fn enrol(&self, session: &Arc<Session>) {
        self.sessions.add(session);
    }

    /// Ends the session: no file can be opened in it any more.
    pub fn end_session(&self, session: &Session) {
        session.handles.end();
        self.let_go(session);
        self.sessions.remove(session.number);
    }

    /// Readers close, writers are detached and wait for their client to come back.
    pub fn let_go(&self, session: &Session) {
        let now = Instant::now();
        for file in session.handles.drain() {
            file.stop_copying();
            if let Access::Write(write) = &file.access {
                write.abandon_checkpoint();
                // Whoever takes the file up meanwhile may need the writers.
                if write.lease.waits_for_its_client() {
                    self.writes.lock().detach(file.object, write.key, false, now);
                } else {
                    self.writes.lock().detach_for_good(file.object, write.key, now);
                }
            }
        }
    }

    /// The open file behind `handle`.
    ///
    /// # Errors
    /// It is none of this session's.
    pub fn file(&self, session: &Session, handle: Handle) -> Result<Arc<OpenFile>, Error> {
        let file = session.handles.get(handle);
        if file.is_none() && self.settings.has(Planted::TrustHandles) {
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
