//! Where a content is: groups of stores, and who takes part in writing.

use crate::{GroupId, NodeId, ObjectId, StoreId};

/// One run of a node's kernel. In a cluster there are never two of the same number, whatever node they are of: what a node has in its kernel and not on
/// its disk does not survive a change, and neither does it go with a disk to another node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct BootGeneration(pub u32);

/// A store that takes part in the writing of a content.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub struct InSyncReplica {
    /// Which.
    pub store: StoreId,
    /// The era of its node when it was made one: in a later one it may have lost what it had not synced.
    pub boot_generation: BootGeneration,
}

/// Where a content that is written goes.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Placement {
    /// The group that is to hold it.
    pub group: GroupId,
    /// Those that take part in the writing, its primary first. None: a single node, which has one store.
    pub in_sync: Vec<InSyncReplica>,
}

impl Placement {
    /// Participants of one writing.
    pub const IN_SYNC_MAX: usize = 32;

    /// On a single node.
    #[must_use]
    pub fn single_node() -> Self {
        Self { group: GroupId::DEFAULT, in_sync: Vec::new() }
    }
}

/// A store that holds contents of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Member {
    /// Which.
    pub store: StoreId,
    /// It takes part in the writing of all contents from this one on.
    pub since: ObjectId,
    /// Of those before, it has been given all up to this one, but for what is owed; [`Member::LEAVES`]: all, and it is to leave.
    pub through: ObjectId,
}

impl Member {
    /// [`Member::through`] of one whose place another store takes, the next one in order: it has all, and leaves when the others have all that it has.
    pub const LEAVES: ObjectId = ObjectId(u64::MAX);

    /// Whether another store takes its place.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.through == Self::LEAVES
    }

    /// Whether it was given this content, as far as is not owed.
    #[must_use]
    pub fn has(&self, object: ObjectId) -> bool {
        object >= self.since || object <= self.through
    }

    /// Whether it was given all.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.through.0.saturating_add(1) >= self.since.0
    }
}

/// An ordered set of stores that together hold the replicas of many contents.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Group {
    /// Its number.
    pub group: GroupId,
    /// Raised by each change of its members.
    pub epoch: u32,
    /// The first is the primary of what is written anew.
    pub members: Vec<Member>,
}

/// What is kept of a node of a cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct NodeRecord {
    /// Its number.
    pub node: NodeId,
    /// Its kernel's boot when it was heard of last.
    pub boot: crate::BootId,
    /// The number of that boot.
    pub boot_generation: BootGeneration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_came_later_has_what_is_written_since_and_what_it_was_given() {
        let member = Member { store: StoreId(1), since: ObjectId(100), through: ObjectId(40) };
        assert!(
            member.has(ObjectId(100)) && member.has(ObjectId(40)) && !member.has(ObjectId(41)) && !member.is_current()
        );
        assert!(Member { through: ObjectId(99), ..member }.is_current());
    }
}
