//! A content that a client writes at this disk server, which orders its changes for all stores that take part; and what allows a reader to be shown one.

use std::sync::Arc;

use cluster::message::ClosedBy;
use cluster::replication::Epoch;
use cluster::server::{Grant, Input, ReadView};
use store::{PageSum, ReplicaState, StoreError, Writer};
use types::capability::CapabilityError;
use types::stale_replicas::StaleReplica;
use types::{ErrorCode, Ino, ReplicaId, StoreId, Timestamp, WriterToken};

use super::DiskServer;
use super::replica::{AtHand, Change, Replica};
use super::store_shell::{StoreShell, Waiter};
use node::BulkBytes;
use node::ChangeHead;

/// Why a disk server of a cluster did not do something.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PlacedError {
    /// The store says no.
    #[error("{1}")]
    Store(ErrorCode, String),
    /// Another server has to be asked for: the manager says whom.
    #[error("ask the manager, at {host}:{port}, which server has it")]
    Moved {
        /// Where the manager is.
        host: String,
        /// The same.
        port: u16,
    },
    /// The store has not what the client's permission is for. The manager is to be asked for another one that has.
    #[error("store {:016x} does not have the object any more for which the manager sends readers to it", .stale_replicas.store.0)]
    StaleReplica {
        /// Where the manager is.
        host: String,
        /// The same.
        port: u16,
        /// What it is to be told.
        stale_replicas: StaleReplica,
    },
    /// The client's permission is none.
    #[error(transparent)]
    Permission(CapabilityError),
    /// It may work in a while.
    #[error("{why}")]
    Wait {
        /// At least 1.
        seconds: u32,
        /// What is waited for.
        why: &'static str,
    },
    /// Not in a cluster.
    #[error("checkpoints are not kept of files in a cluster")]
    NoCheckpoints,
    /// One of those who take part, or the manager, says no.
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

impl PlacedError {
    /// For protocols.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Store(code, _) | Self::Refused(code) => *code,
            Self::Moved { .. } => ErrorCode::Stale,
            Self::StaleReplica { .. } => ErrorCode::NotFound,
            Self::Permission(_) => ErrorCode::Denied,
            Self::Wait { .. } => ErrorCode::Overloaded,
            Self::NoCheckpoints => ErrorCode::Unsupported,
        }
    }
}

impl From<StoreError> for PlacedError {
    fn from(error: StoreError) -> Self {
        Self::Store(error.code(), error.to_string())
    }
}

impl DiskServer {
    /// The client is to ask the manager.
    pub(super) fn moved(&self) -> PlacedError {
        match self.manager() {
            Some((host, port)) => PlacedError::Moved { host, port },
            None => PlacedError::Wait { seconds: 1, why: "this server has not heard of its manager yet" },
        }
    }

    /// The client is to ask the manager, and to tell it what is not here.
    pub(super) fn lacks(&self, stale_replicas: StaleReplica) -> PlacedError {
        match self.moved() {
            PlacedError::Moved { host, port } => PlacedError::StaleReplica { host, port, stale_replicas },
            wait => wait,
        }
    }

    pub(super) fn refused(&self, code: ErrorCode) -> PlacedError {
        match code {
            ErrorCode::Stale => self.moved(),
            ErrorCode::Overloaded => PlacedError::Wait {
                seconds: 1,
                why: "its writer must (re)connect first, or this server cannot be sure at the moment that it may still answer",
            },
            code => PlacedError::Refused(code),
        }
    }
}

/// That a reader may be shown a content.
pub struct Permit {
    server: Arc<DiskServer>,
    shell: Arc<StoreShell>,
    replica: ReplicaId,
    grant: Grant,
}

impl Permit {
    pub(super) fn new(server: Arc<DiskServer>, shell: Arc<StoreShell>, replica: ReplicaId, grant: Grant) -> Self {
        Self { server, shell, replica, grant }
    }

    pub(super) fn shows(&self) -> Result<ReadView, PlacedError> {
        let now = self.server.world.now();
        let view = self.server.view(now);
        let shows = self.shell.machine.lock().may_read(view, self.replica, &self.grant);
        shows.map_err(|code| self.server.refused(code))
    }

    /// Whether what was read may be shown now.
    ///
    /// # Errors
    /// It may not: somebody else has to be asked.
    pub fn check(&self) -> Result<(), PlacedError> {
        self.shows().map(drop)
    }
}

/// A content in the making. See the module.
pub struct Placed {
    pub(super) server: Arc<DiskServer>,
    pub(super) shell: Arc<StoreShell>,
    state: Arc<Replica>,
    writer: WriterToken,
    ino: Ino,
    is_new: bool,
    /// Others take part.
    pub(super) is_shared: bool,
}

impl Placed {
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

    /// Which replica it is.
    #[must_use]
    pub fn replica(&self) -> ReplicaId {
        self.state.replica
    }

    /// Which store it is on.
    #[must_use]
    pub fn store(&self) -> StoreId {
        self.shell.at.store_id
    }

    /// The object that it is, or will be, the content of.
    #[must_use]
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// What the namespace calls the writer.
    #[must_use]
    pub fn writer(&self) -> WriterToken {
        self.writer
    }

    /// Whether it is a new content, and no file that is changed in place.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    pub(super) fn epoch(&self) -> Epoch {
        Epoch(self.writer.epoch)
    }

    /// Asks the machine for something; `waiter` is told the answer.
    pub(super) fn then(&self, input: impl FnOnce(u64) -> Input<u64, Change>, waiter: Waiter) {
        let number = self.shell.number();
        self.shell.wait_for(number, waiter);
        // Whatever there is to be done for it is done here.
        self.server.step(&self.shell, input(number), Some(&self.state));
        self.server.work_off(&self.shell, &self.state);
    }

    /// Hands an answer on in the words of front ends.
    fn waiter(&self, then: impl FnOnce(Result<(), PlacedError>) + Send + 'static) -> Waiter {
        let server = Arc::clone(&self.server);
        Box::new(move |result| then(result.map_err(|code| server.refused(code))))
    }

    /// Writes on all stores that take part; `sums`: of each page, if they are known. This call writes on this server's own store; `then` is called once,
    /// perhaps in another thread, when all stores have it, or with why not. After an error nobody knows whether it is written.
    pub fn write_then(
        &self,
        offset: u64,
        data: &[u8],
        sums: Option<&[PageSum]>,
        then: impl FnOnce(Result<(), PlacedError>) + Send + 'static,
    ) {
        if data.is_empty() {
            return then(Ok(()));
        }
        self.begin_write(self.at_hand(data, sums, false), offset, self.waiter(then));
    }

    pub(super) fn at_hand<'a>(&self, bytes: &'a [u8], sums: Option<&'a [PageSum]>, is_ahead: bool) -> AtHand<'a> {
        AtHand { number: self.shell.number(), bytes, sums, is_ahead }
    }

    pub(super) fn begin_write(&self, at_hand: AtHand<'_>, offset: u64, waiter: Waiter) {
        let Ok(len) = u32::try_from(at_hand.bytes.len()) else { return waiter(Err(ErrorCode::TooLarge)) };
        let bytes = self.is_shared.then(|| Arc::new(self.server.bulk.copy(at_hand.bytes)));
        self.change(ChangeHead::Write { offset, len }, bytes, at_hand, waiter);
    }

    /// Cuts or extends on all stores that take part.
    pub(super) fn begin_truncate(&self, len: u64, waiter: Waiter) {
        self.change(ChangeHead::Truncate { len }, None, self.at_hand(&[], None, false), waiter);
    }

    fn change(&self, head: ChangeHead, bytes: Option<Arc<BulkBytes>>, at_hand: AtHand<'_>, waiter: Waiter) {
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

    /// Reads what was written here.
    ///
    /// # Errors
    /// As the store says.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<usize, PlacedError> {
        match self.state.writer() {
            Some(writer) => Ok(writer.read(offset, into)?),
            None => Ok(self.shell.at.store.open_read(self.replica())?.read(offset, into)?),
        }
    }

    /// All that was acknowledged is durable, on all stores that take part, when `then` is called with success. After an error it may be lost.
    pub fn sync_then(&self, then: impl FnOnce(Result<(), PlacedError>) + Send + 'static) {
        self.begin_sync(self.waiter(then));
    }

    pub(super) fn begin_sync(&self, waiter: Waiter) {
        self.then(|by| Input::Sync { by, replica: self.replica(), epoch: self.epoch() }, waiter);
    }

    /// The client has written all; `then` is called once, perhaps in another thread, when the file is what was written, or why not.
    pub fn close(
        &self,
        mtime: Option<Timestamp>,
        at_grace_end: bool,
        then: impl FnOnce(Result<(), PlacedError>) + Send + 'static,
    ) {
        let closed = if at_grace_end { ClosedBy::GraceEnd } else { ClosedBy::Client };
        self.then(
            |by| Input::Close { by, replica: self.replica(), epoch: self.epoch(), mtime, closed },
            self.waiter(then),
        );
    }

    /// What there is is kept, and marked; `then` is called once, with how much that is.
    pub fn interrupt(&self, then: impl FnOnce(Result<u64, PlacedError>) + Send + 'static) {
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

    /// Whether there are gaps below that.
    #[must_use]
    pub fn gaps(&self) -> bool {
        let in_status = |status: &store::ReplicaStatus| match status.state {
            ReplicaState::InMaking { prefix, .. } => prefix < status.len,
            ReplicaState::Complete { .. } => false,
            _ => true,
        };
        self.of_writer(|writer| writer.gaps(), in_status, true)
    }

    /// What a power failure cannot undo.
    #[must_use]
    pub fn durable_prefix(&self) -> u64 {
        let in_status = |status: &store::ReplicaStatus| match status.state {
            ReplicaState::InMaking { durable_prefix, .. } => durable_prefix,
            _ => status.len,
        };
        self.of_writer(|writer| writer.durable_prefix(), in_status, 0)
    }
}
