//! Whether the cluster has managers beside this one. It must be known exactly, also while the namespace cannot be read: a manager without another one
//! goes on while its database is away, and a manager with another one must not, because that one may have taken over.

use std::sync::Arc;

use link::Roles;
use namespace::MemberEntry;
use types::NodeId;

use crate::tracked::Tracked;

/// Knows whether the cluster has other managers. Only this manager adds nodes to the cluster, so it is told before each one.
#[derive(Clone, Debug, Default)]
pub struct OtherManagers(Arc<Tracked<State>>);

#[derive(Default)]
struct State {
    /// As the list of nodes has it.
    are_listed: bool,
    /// Managers that are just joining.
    joining: u32,
    /// How often one has begun or ended to join. The list may be older than that.
    changes: u64,
    /// Nobody knows whether one has joined.
    is_unknown: bool,
}

impl OtherManagers {
    /// Whether there are some. Also true while one joins, and after a join that may have failed.
    #[must_use]
    pub fn exist(&self) -> bool {
        let state = self.0.lock();
        state.are_listed || state.joining > 0 || state.is_unknown
    }

    /// A node is about to join with these roles. Call it before that is recorded.
    pub(crate) fn joins(&self, roles: Roles) -> Option<Joining> {
        roles.contain(link::Role::Manager).then(|| {
            let mut state = self.0.lock();
            state.joining += 1;
            state.changes += 1;
            Joining { others: self.clone(), outcome: Outcome::Unknown }
        })
    }

    /// The list of nodes is about to be read.
    pub(crate) fn begin_look(&self) -> Look {
        Look(self.0.lock().changes)
    }

    /// The list that was read since then. `own` is this manager's node.
    pub(crate) fn end_look(&self, Look(changes): Look, own: NodeId, members: &[MemberEntry]) {
        let is_other = |member: &MemberEntry| {
            // A role that this version does not know may be a manager's, too.
            member.node != own && Roles::from_bits(member.roles).is_none_or(|roles| roles.contain(link::Role::Manager))
        };
        let are_listed = members.iter().any(is_other);
        let mut state = self.0.lock();
        if are_listed {
            state.are_listed = true;
        } else if state.changes == changes && state.joining == 0 {
            state.are_listed = false;
        }
    }
}

/// See [`OtherManagers::begin_look`].
#[derive(Clone, Copy)]
pub(crate) struct Look(u64);

enum Outcome {
    Joined,
    DidNot,
    Unknown,
}

/// A manager is joining. Without a known outcome it counts as one that has joined, for as long as this process runs.
pub(crate) struct Joining {
    others: OtherManagers,
    outcome: Outcome,
}

impl Joining {
    pub(crate) fn has_joined(mut self) {
        self.outcome = Outcome::Joined;
    }

    pub(crate) fn has_not_joined(mut self) {
        self.outcome = Outcome::DidNot;
    }
}

impl Drop for Joining {
    fn drop(&mut self) {
        let mut state = self.others.0.lock();
        state.joining -= 1;
        state.changes += 1;
        match self.outcome {
            Outcome::Joined => state.are_listed = true,
            Outcome::DidNot => {}
            Outcome::Unknown => state.is_unknown = true,
        }
    }
}

#[cfg(test)]
mod tests {
    use types::Timestamp;

    use super::*;

    const OWN: NodeId = NodeId(1);

    fn member(node: u64, roles: Roles) -> MemberEntry {
        MemberEntry {
            node: NodeId(node),
            roles: roles.bits(),
            name: String::new(),
            key: [0; 32],
            joined: Timestamp(0),
            for_nodes: Vec::new(),
            for_clients: Vec::new(),
        }
    }

    fn look(others: &OtherManagers, members: &[MemberEntry]) -> bool {
        others.end_look(others.begin_look(), OWN, members);
        others.exist()
    }

    #[test]
    fn the_list_says_whether_there_are_others() {
        let others = OtherManagers::default();
        let alone = [member(1, Roles::MANAGER), member(2, Roles::DISK)];
        assert!(!others.exist() && !look(&others, &alone));
        let two = [member(1, Roles::MANAGER), member(3, Roles::MANAGER)];
        assert!(look(&others, &two));
        assert!(!look(&others, &alone), "it was removed");
        let unknown = MemberEntry { roles: 0x80, ..member(3, Roles::DISK) };
        assert!(look(&others, &[member(1, Roles::MANAGER), unknown]));
    }

    #[test]
    fn one_that_joins_counts_before_it_is_recorded_and_a_list_of_before_does_not_hide_it() {
        let (others, alone) = (OtherManagers::default(), [member(1, Roles::MANAGER)]);
        assert!(others.joins(Roles::DISK).is_none());
        let earlier = others.begin_look();
        let joining = others.joins(Roles::MANAGER).unwrap();
        assert!(others.exist());
        let meanwhile = others.begin_look();
        others.end_look(earlier, OWN, &alone);
        assert!(others.exist());
        joining.has_joined();
        others.end_look(meanwhile, OWN, &alone);
        assert!(others.exist(), "the list may have been read before it was recorded");
        assert!(!look(&others, &alone), "it was removed");
        others.joins(Roles::MANAGER).unwrap().has_not_joined();
        assert!(!others.exist());
    }

    #[test]
    fn a_join_whose_outcome_is_unknown_counts_for_good() {
        let (others, alone) = (OtherManagers::default(), [member(1, Roles::MANAGER)]);
        drop(others.joins(Roles::MANAGER));
        assert!(look(&others, &alone), "the database may still record it");
    }
}
