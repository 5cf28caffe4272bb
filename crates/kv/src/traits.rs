//! The seam between the file system's rules and whatever keeps the keys.

use std::ops::ControlFlow;
use std::sync::Arc;

use types::ErrorCode;

/// Why the engine or its journal could not do it. The operation's own refusals are not here: they are the result that
/// the operation itself computes.
#[derive(Clone, Debug, thiserror::Error)]
pub enum KvError {
    /// The log is poisoned (a failed fsync), or the engine is closed. Nothing more will be accepted until a restart.
    #[error("the namespace's journal has stopped: {reason}; restart weir after mending the disk")]
    Stopped {
        /// What happened.
        reason: String,
    },
    /// There is no room for the record.
    #[error("no space left for the namespace's journal; remove files or add space")]
    NoSpace,
    /// Somebody else changed what this transaction read. [`Kv::submit`] runs the operation again by itself; this
    /// comes out only after its bound of retries.
    #[error("the operation conflicted with others {retries} times")]
    Conflict {
        /// How often it was tried.
        retries: u32,
    },
    /// The connection was lost while committing: it may have happened. A request number tells on a retry.
    #[error("it is not known whether the change was made; ask again with the same request number")]
    MaybeCommitted,
    /// What was read is not what was written.
    #[error("damaged: {0}")]
    Damaged(String),
    /// Neither the index nor its checkpoint and the log together hold everything. Only what is outside of them can bring it back.
    #[error("lost: {0}")]
    Lost(String),
    /// Intact, and written by a newer weir; nothing of it was touched.
    #[error("{0}; it was written by a newer weir: use that one")]
    Unsupported(String),
    /// The engine or the disk failed while reading.
    #[error("cannot read the index: {0}")]
    Io(String),
    /// One operation changed more than one record of the log can hold, or a key or value is too long.
    #[error("{what} of {len} bytes is over the limit of {limit} bytes; do it in smaller steps")]
    TooLarge {
        /// Which length.
        what: &'static str,
        /// How long it was.
        len: usize,
        /// How long it may be.
        limit: usize,
    },
    /// An empty key, or one that begins with the byte kept for the engine.
    #[error("a key is empty or begins with 0xff, which is reserved")]
    BadKey,
    /// The operation itself panicked; nothing of it was kept.
    #[error("the operation failed from a bug and was undone: {0}")]
    Panicked(String),
}

impl KvError {
    /// The reason as the rest of weir tells them apart.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            KvError::Stopped { .. } => ErrorCode::Unavailable,
            KvError::NoSpace => ErrorCode::NoSpace,
            KvError::Conflict { .. } | KvError::MaybeCommitted => ErrorCode::Overloaded,
            KvError::Damaged(_) | KvError::Lost(_) => ErrorCode::Damaged,
            KvError::Unsupported(_) => ErrorCode::Unsupported,
            KvError::Io(_) | KvError::Panicked(_) => ErrorCode::Io,
            KvError::TooLarge { .. } => ErrorCode::TooLarge,
            KvError::BadKey => ErrorCode::Invalid,
        }
    }
}

/// Which way a scan goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScanOrder {
    /// From the lowest key upwards.
    Ascending,
    /// From the highest key downwards.
    Descending,
}

/// Called for each entry of a scan; `Break` ends it.
pub type Visit<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>;

/// Consistent reading: all calls on one value see the same state.
pub trait Read {
    /// The value of `key`.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError>;
    /// Visits the entries with `start <= key < end` in order until `visit` breaks. Bounded by the visitor.
    fn scan(&self, start: &[u8], end: &[u8], order: ScanOrder, visit: Visit<'_>) -> Result<(), KvError>;
}

/// A mark inside a transaction to go back to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Savepoint(pub usize);

/// A transaction in the making: reads see its own writes.
pub trait Txn: Read {
    /// Sets `key`.
    fn put(&mut self, key: &[u8], value: &[u8]);
    /// Takes `key` away; no error if it is not there.
    fn delete(&mut self, key: &[u8]);
    /// Marks this point.
    fn savepoint(&mut self) -> Savepoint;
    /// Undoes all puts and deletes since `savepoint`.
    fn rollback_to(&mut self, savepoint: Savepoint);
}

/// What an operation decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpOutcome {
    /// Keep its puts and deletes.
    Commit,
    /// Drop them (a refusal). The engine may skip the log.
    Abort,
}

/// How far a commit must have gone before it is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// In the kernel: survives SIGKILL, not a power failure. For marks that an fsynced record follows later.
    Written,
    /// On the disk.
    Synced,
}

/// An operation. May be called several times (conflicts); each call starts from a clean transaction and must decide
/// by what it reads there alone.
pub type Op = Box<dyn FnMut(&mut dyn Txn) -> OpOutcome + Send>;

/// Called once, after the commit is as durable as asked, or failed. Runs on an engine thread: must not block. Never
/// called before the changes are visible to [`Kv::snapshot`].
pub type OpDone = Box<dyn FnOnce(Result<(), KvError>) + Send>;

/// An engine, ready to use from any thread.
pub trait Kv: Send + Sync {
    /// A consistent view of committed state, for reading on any thread.
    fn snapshot(&self) -> Box<dyn Read + Send + '_>;
    /// Queues an operation. Those of one thread run in the order in which they were submitted. Blocks when the
    /// (bounded) queue is full.
    fn submit(&self, durability: Durability, op: Op, done: OpDone);
    /// The same for operations that free space (deletes): where the log has kept a reserve, they may use it.
    fn submit_urgent(&self, durability: Durability, op: Op, done: OpDone) {
        self.submit(durability, op, done);
    }
}

/// Runs `op` and waits for it: the result of its last run, once that is as durable as asked.
pub fn transact<T, F>(kv: &dyn Kv, durability: Durability, mut op: F) -> Result<T, KvError>
where
    T: Send + 'static,
    F: FnMut(&mut dyn Txn) -> (OpOutcome, T) + Send + 'static,
{
    let slot = Arc::new(parking_lot::Mutex::new(None));
    let (sender, receiver) = std::sync::mpsc::sync_channel(1);
    let inner = Arc::clone(&slot);
    kv.submit(
        durability,
        Box::new(move |txn| {
            let (outcome, value) = op(txn);
            *inner.lock() = Some(value);
            outcome
        }),
        Box::new(move |result| {
            // The receiver waits below; it is gone only if its thread panicked.
            let _ = sender.send(result);
        }),
    );
    let stopped = || KvError::Stopped { reason: "the committer is gone".into() };
    receiver.recv().map_err(|_| stopped())??;
    slot.lock().take().ok_or_else(stopped)
}
