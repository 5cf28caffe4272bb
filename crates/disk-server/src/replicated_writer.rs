//! An object that a client writes at this disk server, where its primary is. Also the permit to show a reader what it has read.

use std::sync::Arc;

use cluster::message::ClosedBy;
use cluster::replication::Epoch;
use cluster::server::{Grant, Input, ReadView};
use store::{PageSum, Reader, ReplicaState, StoreError, Writer};
use types::absent_replicas::AbsentReplica;
use types::capability::CapabilityError;
use types::{ErrorCode, Ino, ReplicaId, StoreId, Timestamp, WriterToken};

use super::DiskServer;
#[cfg(any(test, feature = "planted"))]
use super::PlantedBug;
use super::replica::{Change, ChangeData, Replica};
use super::store_shell::{StoreShell, Waiter};
use node::BulkBytes;
use node::ChangeHead;

/// Why a disk server did not carry out a request.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DiskServerError {
    /// The store failed.
    #[error("{1}")]
    Store(ErrorCode, String),
    /// Another server is responsible. The client must ask the manager.
    #[error("ask the manager, at {host}:{port}, which server has it")]
    Moved {
        /// The manager's host.
        host: String,
        /// The manager's port.
        port: u16,
    },
    /// The store does not have the replica that the capability is for. The client must ask the manager for a capability for another store.
    #[error("store {:016x} does not have the object any more for which the manager sends readers to it", .absent.store.0)]
    AbsentReplica {
        /// The manager's host.
        host: String,
        /// The manager's port.
        port: u16,
        /// The stale replica that the client must report.
        absent: AbsentReplica,
    },
    /// The capability is invalid.
    #[error(transparent)]
    Capability(CapabilityError),
    /// The request may succeed later.
    #[error("{why}")]
    Wait {
        /// At least 1.
        seconds: u32,
        /// The reason.
        why: &'static str,
    },
    /// Checkpoints are not available in a cluster.
    #[error("checkpoints are not kept of files in a cluster")]
    NoCheckpoints,
    /// An in-sync replica or the manager refused.
    #[error("the in-sync stores, or the manager, refuse it: {}", in_words(*.0))]
    Refused(ErrorCode),
}

fn in_words(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::NoSpace => "no space is left",
        ErrorCode::Io => "a disk has failed",
        ErrorCode::Busy => "it is being ended already",
        ErrorCode::NotFound => "it is not there any more",
        ErrorCode::Exists => "another object is in its place",
        _ => "see the log",
    }
}

impl DiskServerError {
    /// The error code for protocols.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Store(code, _) | Self::Refused(code) => *code,
            Self::Moved { .. } => ErrorCode::Stale,
            Self::AbsentReplica { .. } => ErrorCode::NotFound,
            Self::Capability(_) => ErrorCode::Denied,
            Self::Wait { .. } => ErrorCode::Overloaded,
            Self::NoCheckpoints => ErrorCode::Unsupported,
        }
    }
}

impl From<StoreError> for DiskServerError {
    fn from(error: StoreError) -> Self {
        Self::Store(error.code(), error.to_string())
    }
}

impl DiskServer {
    /// The error that sends the client to the manager.
    #[must_use]
    pub fn moved(&self) -> DiskServerError {
        match self.manager_for_clients() {
            Some((host, port)) => DiskServerError::Moved { host, port },
            None => DiskServerError::Wait { seconds: 1, why: "this server has not heard of its manager yet" },
        }
    }

    /// The error that sends the client to the manager with an absent replica to report.
    pub(super) fn lacks(&self, absent: AbsentReplica) -> DiskServerError {
        match self.moved() {
            DiskServerError::Moved { host, port } => DiskServerError::AbsentReplica { host, port, absent },
            wait => wait,
        }
    }

    pub(super) fn refused(&self, code: ErrorCode) -> DiskServerError {
        match code {
            ErrorCode::Stale => self.moved(),
            ErrorCode::Overloaded => DiskServerError::Wait {
                seconds: 1,
                why: "its writer must (re)connect first, or this server cannot be sure at the moment that it may still answer",
            },
            code => DiskServerError::Refused(code),
        }
    }
}

/// The right to show an object to a reader.
pub struct Permit {
    server: Arc<DiskServer>,
    shell: Arc<StoreShell>,
    replica: ReplicaId,
    grant: Grant,
    /// Reads the object, once it is open.
    reader: Option<Arc<Reader>>,
}

impl Permit {
    pub(super) fn new(server: Arc<DiskServer>, shell: Arc<StoreShell>, replica: ReplicaId, grant: Grant) -> Self {
        Self { server, shell, replica, grant, reader: None }
    }

    /// The right to show what this reader reads.
    pub(super) fn of(self, reader: &Arc<Reader>) -> Self {
        Self { reader: Some(Arc::clone(reader)), ..self }
    }

    pub(super) fn shows(&self) -> Result<ReadView, DiskServerError> {
        let now = self.server.world.now();
        let view = self.server.view(now);
        let shows = self.shell.machine.lock().may_read(view, self.replica, &self.grant);
        shows.map_err(|code| self.server.refused(code))
    }

    /// Checks whether the bytes just read may still be shown.
    ///
    /// # Errors
    /// If they may not; the client must ask elsewhere.
    pub fn check(&self) -> Result<(), DiskServerError> {
        self.shows()?;
        #[cfg(any(test, feature = "planted"))]
        if self.server.has(PlantedBug::CopyShown) {
            return Ok(());
        }
        // The replica was damaged, and is being replaced: the bytes just read may be those of an unfinished copy.
        let is_started_over = self.reader.as_ref().is_some_and(|reader| reader.is_started_over());
        if is_started_over { Err(self.server.moved()) } else { Ok(()) }
    }

    /// A page could not be read: the scrub looks at the replica soon.
    pub fn suspect_damage(&self) {
        self.shell.damage.suspect(self.replica);
    }
}

/// An open write of an object. See the module.
pub struct ReplicatedWriter {
    pub(super) server: Arc<DiskServer>,
    pub(super) shell: Arc<StoreShell>,
    state: Arc<Replica>,
    writer: WriterToken,
    ino: Ino,
    is_new: bool,
    /// Other stores have in-sync replicas.
    pub(super) is_shared: bool,
}

impl ReplicatedWriter {
    pub(super) fn new(
        server: Arc<DiskServer>,
        shell: Arc<StoreShell>,
        state: Arc<Replica>,
        (writer, ino): (WriterToken, Ino),
        is_new: bool,
        is_shared: bool,
    ) -> Self {
        Self { server, shell, state, writer, ino, is_new, is_shared }
    }

    /// The replica.
    #[must_use]
    pub fn replica(&self) -> ReplicaId {
        self.state.replica
    }

    /// Its store.
    #[must_use]
    pub fn store(&self) -> StoreId {
        self.shell.at.store_id
    }

    /// The inode of the file.
    #[must_use]
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// The open write, as the namespace names it.
    #[must_use]
    pub fn writer(&self) -> WriterToken {
        self.writer
    }

    /// Whether the object is new. False for a change in place.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    pub(super) fn epoch(&self) -> Epoch {
        Epoch(self.writer.epoch)
    }

    /// Whether this store still leads the open write.
    ///
    /// # Errors
    /// It has ended, or goes on elsewhere or in a later epoch. The error sends the client to the manager.
    pub fn check_led(&self) -> Result<(), DiskServerError> {
        let epoch = self.shell.machine.lock().leads(self.replica());
        if epoch == Some(self.epoch()) { Ok(()) } else { Err(self.server.moved()) }
    }

    /// Passes an input to the machine; `waiter` gets the answer.
    pub(super) fn then(&self, input: impl FnOnce(u64) -> Input<u64, Change>, waiter: Waiter) {
        let number = self.shell.number();
        self.shell.wait_for(number, waiter);
        // This call does the resulting work itself.
        self.server.step(&self.shell, input(number), Some(&self.state));
        self.server.work_off(&self.shell, &self.state);
    }

    /// Passes an answer on, with the errors of front ends.
    fn waiter(&self, then: impl FnOnce(Result<(), DiskServerError>) + Send + 'static) -> Waiter {
        let server = Arc::clone(&self.server);
        Box::new(move |result| then(result.map_err(|code| server.refused(code))))
    }

    /// Writes to all in-sync replicas. `sums` are the checksums of the pages, if known. This call writes to this server's own store. It calls `then`
    /// once, perhaps in another thread, when all stores have the bytes, or with an error. After an error it is unknown whether the bytes are written.
    pub fn write_then(
        &self,
        offset: u64,
        data: &[u8],
        sums: Option<&[PageSum]>,
        then: impl FnOnce(Result<(), DiskServerError>) + Send + 'static,
    ) {
        if data.is_empty() {
            return then(Ok(()));
        }
        self.begin_write(self.at_hand(data, sums, false), offset, self.waiter(then));
    }

    pub(super) fn at_hand<'a>(&self, bytes: &'a [u8], sums: Option<&'a [PageSum]>, is_ahead: bool) -> ChangeData<'a> {
        ChangeData { number: self.shell.number(), bytes, sums, is_ahead }
    }

    pub(super) fn begin_write(&self, at_hand: ChangeData<'_>, offset: u64, waiter: Waiter) {
        let Ok(len) = u32::try_from(at_hand.bytes.len()) else { return waiter(Err(ErrorCode::TooLarge)) };
        let bytes = self.is_shared.then(|| Arc::new(self.server.bulk.copy(at_hand.bytes)));
        self.change(ChangeHead::Write { offset, len }, bytes, at_hand, waiter);
    }

    /// Shortens or extends all in-sync replicas.
    pub(super) fn begin_truncate(&self, len: u64, waiter: Waiter) {
        self.change(ChangeHead::Truncate { len }, None, self.at_hand(&[], None, false), waiter);
    }

    fn change(&self, head: ChangeHead, bytes: Option<Arc<BulkBytes>>, at_hand: ChangeData<'_>, waiter: Waiter) {
        let number = at_hand.number;
        self.shell.wait_for(number, waiter);
        {
            let turn = self.state.turn();
            self.server.work_in_turn(&self.shell, &self.state, &turn, None);
            let change = Change { head, bytes, number };
            let input = Input::Change { by: number, replica: self.replica(), epoch: self.epoch(), change };
            self.server.step(&self.shell, input, Some(&self.state));
            self.server.work_in_turn(&self.shell, &self.state, &turn, Some(at_hand));
        }
        self.server.work_off(&self.shell, &self.state);
    }

    /// Reads from the replica on this server.
    ///
    /// # Errors
    /// Those of the store.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<usize, DiskServerError> {
        match self.state.writer() {
            Some(writer) => Ok(writer.read(offset, into)?),
            None => Ok(self.shell.at.store.open_read(self.replica())?.read(offset, into)?),
        }
    }

    /// Calls `then` with success when all acknowledged bytes are durable on all in-sync replicas. After an error they may be lost.
    pub fn sync_then(&self, then: impl FnOnce(Result<(), DiskServerError>) + Send + 'static) {
        self.begin_sync(self.waiter(then));
    }

    pub(super) fn begin_sync(&self, waiter: Waiter) {
        self.then(|by| Input::Sync { by, replica: self.replica(), epoch: self.epoch() }, waiter);
    }

    /// Closes a file that the client has written completely. Calls `then` once, perhaps in another thread, when the file is complete, or with an
    /// error.
    pub fn close(
        &self,
        mtime: Option<Timestamp>,
        closed: ClosedBy,
        then: impl FnOnce(Result<(), DiskServerError>) + Send + 'static,
    ) {
        self.then(
            |by| Input::Close { by, replica: self.replica(), epoch: self.epoch(), mtime, closed },
            self.waiter(then),
        );
    }

    /// Keeps the bytes written so far and marks the file as interrupted. Calls `then` once with their number.
    pub fn interrupt(&self, then: impl FnOnce(Result<u64, DiskServerError>) + Send + 'static) {
        let (server, shell, replica) = (Arc::clone(&self.server), Arc::clone(&self.shell), self.replica());
        self.then(
            |by| Input::Interrupt { by, replica, epoch: self.epoch() },
            Box::new(move |result| {
                let kept = || shell.at.store.status(replica).ok().flatten().map_or(0, |status| status.len);
                then(result.map(|()| kept()).map_err(|code| server.refused(code)));
            }),
        );
    }

    fn of_writer<T>(
        &self,
        with: impl FnOnce(&Writer) -> T,
        without: impl FnOnce(&store::ReplicaStatus) -> T,
        none: T,
    ) -> T {
        match self.state.writer() {
            Some(writer) => with(&writer),
            None => match self.shell.at.store.status(self.replica()) {
                Ok(Some(status)) => without(&status),
                _ => none,
            },
        }
    }

    /// The end of the highest written byte.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // a file's length, not a collection's
    pub fn len(&self) -> u64 {
        self.of_writer(|writer| writer.len(), |status| status.len, 0)
    }

    /// Whether there are unwritten ranges below its length.
    #[must_use]
    pub fn gaps(&self) -> bool {
        let in_status = |status: &store::ReplicaStatus| match status.state {
            ReplicaState::BeingWritten { prefix, .. } => prefix < status.len,
            ReplicaState::Complete { .. } => false,
            _ => true,
        };
        self.of_writer(|writer| writer.gaps(), in_status, true)
    }

    /// The number of bytes that a power failure cannot undo.
    #[must_use]
    pub fn durable_prefix(&self) -> u64 {
        let in_status = |status: &store::ReplicaStatus| match status.state {
            ReplicaState::BeingWritten { durable_prefix, .. } => durable_prefix,
            _ => status.len,
        };
        self.of_writer(|writer| writer.durable_prefix(), in_status, 0)
    }
}
