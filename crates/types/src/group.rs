//! Where an object's replicas are: groups of stores, and in-sync replicas.

use crate::{GroupId, NodeId, ObjectId, StoreId};

/// One run of a node's kernel. No two runs in a cluster have the same number, on whatever node. Bytes in the kernel
/// that are not on the disk are lost when it changes. They do not move with a disk to another node either.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct BootGeneration(pub u32);

/// A store that must acknowledge the writes to an object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub struct InSyncReplica {
    /// The store.
    pub store: StoreId,
    /// The boot generation of its node when it became in-sync. In a later one it may have lost unsynced bytes.
    pub boot_generation: BootGeneration,
}

/// Where the writes to an object go.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Placement {
    /// The group that holds it.
    pub group: GroupId,
    /// The in-sync replicas, the primary first. Empty on a single node, which has one store.
    pub in_sync: Vec<InSyncReplica>,
}

impl Placement {
    /// Most in-sync replicas of one open write.
    pub const IN_SYNC_MAX: usize = 32;

    /// The placement on a single node.
    #[must_use]
    pub fn single_node() -> Self {
        Self { group: GroupId::DEFAULT, in_sync: Vec::new() }
    }
}

/// A store that holds objects of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Member {
    /// The store.
    pub store: StoreId,
    /// It takes part in the writes of all objects from this one on.
    pub since: ObjectId,
    /// Of the earlier objects, it has all up to this one, except for missing replicas. [`Member::LEAVES`]: it has all,
    /// and is leaving.
    pub through: ObjectId,
}

impl Member {
    /// [`Member::through`] of a member that is being replaced by the next one in order. It has all objects, and leaves
    /// when the others have them too.
    pub const LEAVES: ObjectId = ObjectId(u64::MAX);

    /// Whether another store replaces it.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.through == Self::LEAVES
    }

    /// Whether it should have this object; its replica may still be missing.
    #[must_use]
    pub fn has(&self, object: ObjectId) -> bool {
        object >= self.since || object <= self.through
    }

    /// Whether its backfill is complete.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.through.0.saturating_add(1) >= self.since.0
    }
}

/// An ordered set of stores that together hold the replicas of many objects.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Group {
    /// Its number.
    pub group: GroupId,
    /// Rises with each change of its members.
    pub epoch: u32,
    /// The first one is the primary of new objects.
    pub members: Vec<Member>,
}

/// The record of a cluster's node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct NodeRecord {
    /// Its number.
    pub node: NodeId,
    /// Its kernel's boot at its last message.
    pub boot: crate::BootId,
    /// The number of that boot.
    pub boot_generation: BootGeneration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_member_has_later_objects_and_its_backfilled_ones() {
        let member = Member { store: StoreId(1), since: ObjectId(100), through: ObjectId(40) };
        assert!(
            member.has(ObjectId(100)) && member.has(ObjectId(40)) && !member.has(ObjectId(41)) && !member.is_current()
        );
        assert!(Member { through: ObjectId(99), ..member }.is_current());
    }
}
