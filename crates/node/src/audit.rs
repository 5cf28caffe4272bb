//! Messages about what stores really hold: damaged replicas, and inventories.

use serde::{Deserialize, Serialize};
use types::{Incarnation, ReplicaId, StoreId};

use cluster::replication::ObjectDigest;

/// Damaged replicas of a store. The server repeats the whole list every few seconds, in several reports if it is long. So a lost report does no harm.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DamageReport {
    /// The store.
    pub store: StoreId,
    /// Replicas whose bytes on the disk do not match their checksums. At most [`REPLICAS_MAX`](cluster::message::REPLICAS_MAX).
    pub damaged: Vec<ReplicaId>,
    /// Replicas that were reported as damaged, and that were read and match since. At most as many.
    pub whole: Vec<ReplicaId>,
}

/// The most replicas of one [`Inventory`].
pub const INVENTORY_MAX: usize = 512;
/// The most replicas of one [`InventoryRequest::Origins`].
pub const ORIGINS_MAX: usize = 128;
/// The most bytes of a path in [`Inventory::Origins`]. A longer one is cut.
pub const ORIGIN_BYTES_MAX: usize = 1024;

/// What the manager asks about the replicas of a store.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum InventoryRequest {
    /// The next replicas after this one; `None`: the first.
    After(Option<ReplicaId>),
    /// Under which paths these were made. At most [`ORIGINS_MAX`].
    Origins(Vec<ReplicaId>),
}

/// What a store says about its replicas.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Inventory {
    /// The answer to [`InventoryRequest::After`]: replicas in order, at most [`INVENTORY_MAX`].
    Replicas {
        /// The replicas.
        replicas: Vec<StoredReplica>,
        /// Whether the last of them is the last one of the store.
        is_last: bool,
    },
    /// The answer to [`InventoryRequest::Origins`], in the same order. Empty: unknown. Bytes as clients gave them.
    Origins(Vec<Vec<u8>>),
}

/// A replica in an inventory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StoredReplica {
    /// The replica.
    pub replica: ReplicaId,
    /// Its state.
    pub state: StoredState,
    /// A scrub or a read has found it damaged.
    pub is_damaged: bool,
    /// The incarnation of the namespace that gave the object its number.
    pub incarnation: Incarnation,
}

/// The state of a replica in an inventory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum StoredState {
    /// It is complete.
    Whole(ObjectDigest),
    /// Its writer went away, and this many bytes are kept.
    Kept(u64),
    /// It is being written, and has this many bytes so far.
    Written(u64),
}

impl StoredState {
    /// Returns the replica's length in bytes.
    #[must_use]
    pub fn bytes(self) -> u64 {
        match self {
            Self::Whole(whole) => whole.len,
            Self::Kept(len) | Self::Written(len) => len,
        }
    }
}
