//! What the store reports about its replicas.

use journal::Seq;
use types::{Adler32, Crc32c, Incarnation, ReplicaId};

/// What a caller knows when it creates a replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewReplica<'a> {
    /// The file's path in the namespace, for an export without the namespace. It may become stale. Only the first 4096
    /// bytes are kept.
    pub path_hint: &'a [u8],
    /// The announced length in bytes, if any.
    pub expected_len: Option<u64>,
    /// The incarnation of the namespace that gave the object its number.
    pub incarnation: Incarnation,
}

/// The state of a replica.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReplicaState {
    /// It has an open write: new, or resumed after an interruption.
    BeingWritten {
        /// The written ranges as (start, end), in order, disjoint.
        written: Vec<(u64, u64)>,
        /// Bytes written without a gap from the beginning.
        prefix: u64,
        /// Bytes without a gap from the beginning that survive a power failure.
        durable_prefix: u64,
    },
    /// Complete.
    Complete {
        /// Adler32 of all bytes.
        adler32: Adler32,
        /// CRC32C of all bytes.
        crc32c: Crc32c,
    },
    /// The writer left; the durable prefix is kept. Can be resumed.
    Interrupted,
    /// It was complete and is being updated in place (or was, when the machine stopped). Readable.
    Dirty,
}

/// A replica, as the store sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplicaStatus {
    /// Length in bytes. Of an unfinished replica: the end of its highest written byte.
    pub len: u64,
    /// The state.
    pub state: ReplicaState,
    /// How often it was opened for writing: 1 at its creation, one more for each resumption or update.
    pub generation: u64,
    /// The incarnation of the namespace that gave the object its number.
    pub incarnation: Incarnation,
}

/// A completed replica. Its record is in the journal at `seq`, and durable when the journal is synced that far.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completed {
    /// Length in bytes.
    pub len: u64,
    /// Adler32 of all bytes.
    pub adler32: Adler32,
    /// CRC32C of all bytes.
    pub crc32c: Crc32c,
    /// The record's number in the journal.
    pub seq: Seq,
}

/// What is kept of a replica that was interrupted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kept {
    /// Length in bytes.
    pub len: u64,
    /// Adler32 of all bytes.
    pub adler32: Adler32,
    /// CRC32C of all bytes.
    pub crc32c: Crc32c,
}

/// A replica that was read completely and matches its checksums.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verified {
    /// Length in bytes.
    pub len: u64,
    /// Adler32 of the bytes read.
    pub adler32: Adler32,
    /// CRC32C of the bytes read.
    pub crc32c: Crc32c,
}

/// Sizes in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Space {
    /// Total of the file system.
    pub total: u64,
    /// Free bytes that weir can use.
    pub free: u64,
    /// Bytes kept back.
    pub floor: u64,
    /// Whether new data is refused now.
    pub floor_reached: bool,
}

/// What opening a store found.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct StoreRecovery {
    /// Replicas with an open write or update, which continues.
    pub being_written: Vec<ReplicaId>,
    /// Small complete replicas that still lie in the journal.
    pub unsettled: u64,
    /// Bytes of written ranges that were not durable and are lost (after a power failure).
    pub bytes_dropped: u64,
    /// Files that belonged to nothing and were removed.
    pub orphans_removed: u64,
    /// Such files that were kept because nothing may be removed; the next ordinary opening removes them.
    pub orphans_left: u64,
    /// Files (and ends of segments) with complete or interrupted replicas that have no record. They are left alone.
    pub unexplained: Vec<String>,
}
