//! Messages about what stores really hold: damaged replicas, and inventories.

use serde::{Deserialize, Serialize};
use types::{ReplicaId, StoreId};

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

/// Asks for a page of a store's inventory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct InventoryRequest {
    /// The manager's number of this request.
    pub number: u64,
    /// The store.
    pub store: StoreId,
    /// The replica after which the page starts; `None` for the beginning.
    pub after: Option<ReplicaId>,
}

/// The answer to an [`InventoryRequest`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct InventoryPage {
    /// The number of the request.
    pub number: u64,
    /// The replicas in order, at most [`REPLICAS_MAX`](cluster::message::REPLICAS_MAX). Fewer are the last page. `None`: the store's index cannot be
    /// read.
    pub replicas: Option<Vec<StoredReplica>>,
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
}

/// The state of a replica in an inventory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum StoredState {
    /// It is complete.
    Whole(ObjectDigest),
    /// Its writer went away, and this many bytes are kept.
    Kept(u64),
    /// It is being written.
    Written,
}
