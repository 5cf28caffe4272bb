//! What the active manager knows of the cluster and the namespace does not have, for standby managers that answer readers.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use types::{BootGeneration, NodeId, ObjectId, ReplicaId, SessionId, StoreId, Timestamp};

/// The most lengths of files that are being written in a [`ClusterState`]. A standby manager does not know the others.
pub const STATE_LENGTHS_MAX: usize = 20_000;

/// The state of the cluster at one moment. All of it must be of one moment: see the open service of the manager.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClusterState {
    /// What is committed in the database, at least. Its state is at least as new as all that follows here.
    pub committed: Committed,
    /// The time by which capabilities expire.
    pub clock: Timestamp,
    /// The disk servers.
    pub nodes: Vec<NodeState>,
    /// Stores that are away although their disk server is there.
    pub absent: Vec<StoreId>,
    /// How busy stores are, in thousandths; a store that is not listed is idle.
    pub loads: Vec<(StoreId, u16)>,
    /// The replicas for which nobody gets a capability now.
    pub fenced: Vec<ReplicaId>,
    /// The lengths of files that are being written, at most [`STATE_LENGTHS_MAX`].
    pub lengths: Vec<(ObjectId, u64)>,
    /// The space of all stores together.
    pub space: SpaceState,
}

/// How far the changes of a namespace in a database have come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Committed {
    /// Rises with each manager that becomes active.
    pub fence: i64,
    /// The last acknowledged batch.
    pub batch: i64,
}

/// The space of all stores together, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SpaceState {
    /// All of it.
    pub total: u64,
    /// What is free.
    pub free: u64,
    /// What is kept free.
    pub floor: u64,
}

/// A disk server in a [`ClusterState`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeState {
    /// Its number.
    pub node: NodeId,
    /// Its boot generation, if it has one.
    pub boot_generation: Option<BootGeneration>,
    /// Its session, and for how long its lease runs if it is not renewed.
    pub session: Option<(SessionId, Duration)>,
    /// Whether the active manager has a connection with it.
    pub is_connected: bool,
    /// The source address of its last connection.
    pub seen_at: Option<IpAddr>,
    /// The key that signs capabilities for it.
    pub key: Option<SigningKey>,
}

/// A key that signs capabilities.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SigningKey {
    /// Its number.
    pub id: u32,
    /// The bytes of [`types::capability::CapabilityKey::to_secret`].
    pub secret: [u8; 32],
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({}, ..)", self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_never_shown() {
        let key = SigningKey { id: 7, secret: [0xab; 32] };
        assert_eq!(format!("{key:?}"), "SigningKey(7, ..)");
    }
}
