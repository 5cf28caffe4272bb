//! What the store says of its replicas.

use journal::Seq;
use types::{Adler32, Crc32c, Incarnation, ReplicaId};

/// What is known when a replica is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewReplica<'a> {
    /// Where the file is in the namespace, as far as the store needs to know: for an export without the namespace. May be stale
    /// later. At most 4096 bytes; more are cut off.
    pub path_hint: &'a [u8],
    /// How long it will be, if that was announced.
    pub expected_len: Option<u64>,
    /// The namespace's life that the object's number comes from.
    pub incarnation: Incarnation,
}

/// What state a replica is in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReplicaState {
    /// Being written for the first time, or resumed.
    InMaking {
        /// The written ranges as (start, end), in order, disjoint.
        written: Vec<(u64, u64)>,
        /// Bytes written without a gap from the beginning.
        prefix: u64,
        /// Bytes without a gap from the beginning that a power failure cannot undo.
        durable_prefix: u64,
    },
    /// Whole.
    Complete {
        /// Of the whole content.
        adler32: Adler32,
        /// Of the whole content.
        crc32c: Crc32c,
    },
    /// The writer went away; what is left is the durable prefix. Can be resumed.
    Interrupted,
    /// Was complete and is being updated in place (or was, when the machine stopped). Readable.
    Dirty,
}

/// A replica, as the store sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplicaStatus {
    /// In bytes; of a replica in the making: the end of its highest written byte.
    pub len: u64,
    /// The state.
    pub state: ReplicaState,
    /// How often it has been begun: 1 when made, one more for each time it was resumed or updated.
    pub generation: u64,
    /// The namespace's life that its object comes from.
    pub incarnation: Incarnation,
}

/// A completed replica. The record is in the log's order at `seq`, and durable when the log is synced that far.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completed {
    /// Bytes.
    pub len: u64,
    /// Of the whole content.
    pub adler32: Adler32,
    /// Of the whole content.
    pub crc32c: Crc32c,
    /// The record's place in the log.
    pub seq: Seq,
}

/// A replica that was read through and found whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verified {
    /// Bytes.
    pub len: u64,
    /// Of what was read.
    pub adler32: Adler32,
    /// Of what was read.
    pub crc32c: Crc32c,
}

/// Sizes, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Space {
    /// The file system's.
    pub total: u64,
    /// Free for us.
    pub free: u64,
    /// Kept back.
    pub floor: u64,
    /// New data is refused now.
    pub floor_reached: bool,
}

/// What opening a store found.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct StoreRecovery {
    /// Pieces that were being written or updated and go on.
    pub in_making: Vec<ReplicaId>,
    /// Small complete replicas that still lie in the log.
    pub unsettled: u64,
    /// Bytes of written ranges that were not durable and did not come back (after a power failure).
    pub bytes_dropped: u64,
    /// Files that belonged to nothing and were removed.
    pub orphans_removed: u64,
    /// The same, where nothing is to be removed: the next ordinary opening does it.
    pub orphans_left: u64,
    /// Files (and ends of segments) with complete or interrupted replicas that no record speaks of. They are left alone.
    pub unexplained: Vec<String>,
}
