//! The interface between the file system's rules and the engine that keeps the keys.

use std::ops::ControlFlow;
use std::sync::Arc;

use types::ErrorCode;

/// Why the engine or its journal failed. An operation's own errors are not here: the operation computes them as its
/// result.
#[derive(Clone, Debug, thiserror::Error)]
pub enum KvError {
    /// The journal is poisoned (a failed fsync), another process has taken over, or the engine is closed. Nothing is
    /// accepted until a restart.
    #[error("the namespace takes no more changes: {reason}; restart weir when the cause is mended")]
    Stopped {
        /// What happened.
        reason: String,
    },
    /// There is no space for the record.
    #[error("no space left for the namespace's journal; remove files or add space")]
    NoSpace,
    /// Another transaction changed what this one read. [`Kv::submit`] repeats the operation by itself; this error
    /// appears only after its limit of retries.
    #[error("the operation conflicted with others {retries} times")]
    Conflict {
        /// Number of attempts.
        retries: u32,
    },
    /// The connection was lost during the commit: it may have happened. The request number shows on a retry whether it
    /// did.
    #[error("it is not known whether the change was made; ask again with the same request number")]
    MaybeCommitted,
    /// The bytes read differ from those written.
    #[error("damaged: {0}")]
    Damaged(String),
    /// Neither the index nor its checkpoint and journal together hold everything. Only a copy elsewhere can restore it.
    #[error("lost: {0}")]
    Lost(String),
    /// Intact, but written by a newer weir; nothing was changed.
    #[error("{0}; it was written by a newer weir: use that one")]
    Unsupported(String),
    /// The engine or the disk failed while reading.
    #[error("cannot read the index: {0}")]
    Io(String),
    /// One operation changed more than one journal record can hold, or a key or value is too long.
    #[error("{what} of {len} bytes is over the limit of {limit} bytes; do it in smaller steps")]
    TooLarge {
        /// The kind of length.
        what: &'static str,
        /// Its value in bytes.
        len: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// An empty key, or one that begins with the engine's reserved byte.
    #[error("a key is empty or begins with 0xff, which is reserved")]
    BadKey,
    /// The database cannot be reached, or does not accept changes now. Nothing was changed; it may work again later.
    #[error("the database is not available: {0}")]
    Unavailable(String),
    /// An engine over a network does not have this entry yet, and runs the operation again when it has. It never leaves
    /// the engine.
    #[error("an entry was not fetched yet")]
    NotFetched,
    /// The operation panicked; its changes were undone.
    #[error("the operation failed from a bug and was undone: {0}")]
    Panicked(String),
}

impl KvError {
    /// The error code that the rest of weir uses.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            KvError::Stopped { .. } => ErrorCode::Unavailable,
            KvError::NoSpace => ErrorCode::NoSpace,
            KvError::Conflict { .. } | KvError::MaybeCommitted | KvError::Unavailable(_) | KvError::NotFetched => {
                ErrorCode::Overloaded
            }
            KvError::Damaged(_) | KvError::Lost(_) => ErrorCode::Damaged,
            KvError::Unsupported(_) => ErrorCode::Unsupported,
            KvError::Io(_) | KvError::Panicked(_) => ErrorCode::Io,
            KvError::TooLarge { .. } => ErrorCode::TooLarge,
            KvError::BadKey => ErrorCode::Invalid,
        }
    }
}

/// The direction of a scan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScanOrder {
    /// From the lowest key upwards.
    Ascending,
    /// From the highest key downwards.
    Descending,
}

/// Called for each entry of a scan; `Break` ends it.
pub type Visit<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>;

/// What a reader will probably need next. It only saves round trips: what is asked for needlessly costs a little, and
/// what is left out is fetched when it is read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Prefetch {
    /// One entry.
    Key(Vec<u8>),
    /// The first entries with `start <= key < end`.
    Range {
        /// The lowest key.
        start: Vec<u8>,
        /// The first key behind the range.
        end: Vec<u8>,
        /// At most so many entries.
        most: u32,
    },
    /// Entries that lead to each other.
    Chain(Chain),
}

/// Entries that lead to each other, as the names of a path do: each key is `prefix`, an id, and a name. The first id is
/// given, and each value has the next one at `id_at`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chain {
    /// How all keys of the chain begin.
    pub prefix: Vec<u8>,
    /// The id in the first key.
    pub first: [u8; ID_LEN],
    /// How the keys end.
    pub names: Vec<Vec<u8>>,
    /// Where in a value the next id begins, in bytes.
    pub id_at: u32,
    /// Further entries, of ids that the chain leads to.
    pub follow: Vec<Follow>,
}

/// Entries that a [`Chain`] leads to: their keys are `prefix`, ids, and `suffix`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Follow {
    /// After so many names: 0 is the first id.
    pub after: u32,
    /// Where in the value of the last of these names the ids of the key begin, in bytes: at most two. None at all: the id
    /// is the one that leads on. A value that is too short leads to nothing, and so does any place after 0 names,
    /// where no value is.
    pub ids_at: Vec<u32>,
    /// How the key begins.
    pub prefix: Vec<u8>,
    /// How it ends.
    pub suffix: Vec<u8>,
    /// What ends it, behind `suffix`: that value from this byte on.
    pub rest_at: Option<u32>,
    /// Not one entry, but the first entries whose keys begin so: at most so many.
    pub most: Option<u32>,
}

/// The length of an id in a [`Chain`], in bytes.
pub const ID_LEN: usize = 8;

/// Consistent reading: all calls on one value see the same state.
pub trait Read {
    /// Tells what will probably be read next. Engines over a network call `wanted` and fetch that in one round trip;
    /// others ignore it. `wanted` may read here itself, and does without what is not known yet.
    fn prefetch(&self, wanted: &dyn Fn() -> Vec<Prefetch>) -> Result<(), KvError> {
        let _ = wanted;
        Ok(())
    }
    /// The value of `key`; `None` if it does not exist.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError>;
    /// Visits the entries with `start <= key < end` in order until `visit` breaks. The visitor decides how much is
    /// read.
    fn scan(&self, start: &[u8], end: &[u8], order: ScanOrder, visit: Visit<'_>) -> Result<(), KvError>;
    /// Whether what was read here does not belong together ([`Kv::cached_snapshot`]). Nothing that came of it counts.
    fn is_mixed(&self) -> bool {
        false
    }
}

/// A point inside a transaction to which it can roll back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Savepoint(pub usize);

/// A running transaction: reads see its own writes.
pub trait Txn: Read {
    /// Sets `key`.
    fn put(&mut self, key: &[u8], value: &[u8]);
    /// Deletes `key`; no error if it does not exist.
    fn delete(&mut self, key: &[u8]);
    /// Returns a savepoint for the present state.
    fn savepoint(&mut self) -> Savepoint;
    /// Undoes all puts and deletions since `savepoint`.
    fn rollback_to(&mut self, savepoint: Savepoint);
}

/// The decision of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpOutcome {
    /// Keep its puts and deletions.
    Commit,
    /// Drop them, because the operation failed. The engine may skip the journal.
    Abort,
}

/// How durable a commit must be before it is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// In the kernel: survives SIGKILL, but not a power failure. For marks that a synced record follows later.
    Written,
    /// On the disk.
    Synced,
}

/// An operation. It may run several times (after conflicts). Each run starts from a clean transaction and must depend
/// only on what it reads there.
pub type Op = Box<dyn FnMut(&mut dyn Txn) -> OpOutcome + Send>;

/// Called once, after the commit is as durable as requested, or failed. Runs on an engine thread and must not block.
/// [`Kv::snapshot`] shows the changes before this call.
pub type OpDone = Box<dyn FnOnce(Result<(), KvError>) + Send>;

/// An engine, usable from any thread.
pub trait Kv: Send + Sync {
    /// A consistent view of committed state, for reading on any thread.
    fn snapshot(&self) -> Box<dyn Read + Send + '_>;

    /// Like [`Kv::snapshot`], and may take what the engine knows already, without asking the database behind it. A read on it may fail with
    /// [`KvError::Conflict`], if what it has read before is not of the state in which the rest can be read: see [`Read::is_mixed`]. Whoever reads
    /// begins anew on a [`Kv::snapshot`].
    fn cached_snapshot(&self) -> Box<dyn Read + Send + '_> {
        self.snapshot()
    }
    /// Queues an operation. Operations of one thread run in the order of submission. Blocks while the (bounded) queue
    /// is full.
    fn submit(&self, durability: Durability, op: Op, done: OpDone);
    /// [`Kv::submit`] for operations that free space (deletions): they may use the journal's reserve.
    fn submit_urgent(&self, durability: Durability, op: Op, done: OpDone) {
        self.submit(durability, op, done);
    }
}

/// Runs `op` and waits for it. Returns the result of its last run, once that is as durable as requested.
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
