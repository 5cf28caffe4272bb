//! Fences: before a replica gets another primary, or a store is left out that could show an old content, that one has surely stopped: it has said so, or
//! its session has ended. Until what the fence was for is written down, nobody is confirmed as that replica's primary: one whose session has ended may have
//! another by then. Nor does anybody get a new permission to read it.

use std::collections::BTreeMap;
use std::time::Duration;

use types::{NodeId, ReplicaId, SessionId, StoreId};

use crate::replication::Epoch;
use crate::{Sessions, Time};

/// One fence.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub struct FenceId(pub u64);

/// What a node is told: nobody with a lower epoch may answer for this replica. It answers with the same when that is so, and stays so for the session that
/// the manager has in mind: one that does not know yet that it has that session would forget the fence with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Fence {
    /// Its number.
    pub fence: FenceId,
    /// Whom it is told.
    pub node: NodeId,
    /// Which of its stores.
    pub store: StoreId,
    /// The session that the manager has given it; `None`: none in this run.
    pub session: Option<SessionId>,
    /// Of what.
    pub replica: ReplicaId,
    /// The lowest epoch that is left.
    pub epoch: Epoch,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    fence: Fence,
    told: Time,
    is_there: bool,
}

/// Fences that are needed now.
#[derive(Clone, Debug, Default)]
pub struct Fences {
    given: u64,
    pending: BTreeMap<FenceId, Pending>,
}

/// How often a node is told again.
const AGAIN: Duration = Duration::from_millis(500);

impl Fences {
    /// Begins one; what is to be told goes to `tell`.
    pub fn begin(
        &mut self,
        now: Time,
        sessions: &Sessions,
        (node, store): (NodeId, StoreId),
        replica: ReplicaId,
        epoch: Epoch,
        tell: &mut Vec<Fence>,
    ) -> FenceId {
        self.given += 1;
        // Of one whose session has just run out this tells that at once.
        let session = sessions.session(now, node);
        let fence = Fence { fence: FenceId(self.given), node, store, session, replica, epoch };
        self.pending.insert(fence.fence, Pending { fence, told: now, is_there: false });
        tell.push(fence);
        fence.fence
    }

    /// A node has said that it is so; whether that is news. Of a manager that was here before there may have been another fence with this number.
    pub fn answered(&mut self, fence: &Fence) -> bool {
        let pending = self.pending.get_mut(&fence.fence);
        let Some(pending) = pending.filter(|pending| pending.fence == *fence && !pending.is_there) else {
            return false;
        };
        pending.is_there = true;
        true
    }

    /// What it was for is written down, or given up.
    pub fn end(&mut self, fence: FenceId) {
        self.pending.remove(&fence);
    }

    /// Whether somebody is about to become this replica's primary, or to be left out. Meanwhile nobody is confirmed, and nobody gets a new permission to
    /// read it: one whose session has ended may have another, in which it would show what is old by then.
    #[must_use]
    pub fn guards(&self, replica: ReplicaId) -> bool {
        self.pending.values().any(|pending| pending.fence.replica == replica)
    }

    /// Those that are there by now because the node's session has ended; and whom to tell again.
    pub fn look(&mut self, now: Time, sessions: &Sessions, tell: &mut Vec<Fence>) -> Vec<FenceId> {
        let mut done = Vec::new();
        for (fence, pending) in self.pending.iter_mut().filter(|(_, pending)| !pending.is_there) {
            if sessions.has_ended(now, pending.fence.node, pending.fence.session) {
                pending.is_there = true;
                done.push(*fence);
            } else if now.since(pending.told) >= AGAIN {
                pending.told = now;
                tell.push(pending.fence);
            }
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use types::{BootId, ObjectId};

    use super::*;
    use crate::{LeaseTerms, ProcessEpoch, Register};

    const NODE: NodeId = NodeId(3);

    fn at(ms: u64) -> Time {
        Time(Duration::from_millis(ms))
    }

    #[test]
    fn a_fence_is_there_when_the_node_says_so_or_its_session_has_ended() {
        let terms = LeaseTerms { term: Duration::from_secs(4), drift_ppm: 0, renew_every: Duration::from_secs(1) };
        let mut sessions = Sessions::new(terms, SessionId(1), at(0), []);
        let register = |process_epoch| Register {
            node: NODE,
            process_epoch: ProcessEpoch(process_epoch),
            boot: BootId(1),
            number: 1,
        };
        sessions.to_keep(&register(1)).into_iter().for_each(|record| sessions.kept(record));
        sessions.register(at(0), &register(1)).unwrap();
        let (mut fences, mut tell) = (Fences::default(), Vec::new());
        let replica = ReplicaId::first(ObjectId(1));
        let at_store = (NODE, StoreId(5));
        let said = fences.begin(at(10), &sessions, at_store, replica, Epoch(2), &mut tell);
        let ended = fences.begin(at(10), &sessions, at_store, replica, Epoch(3), &mut tell);
        assert!(tell.len() == 2 && fences.look(at(20), &sessions, &mut tell).is_empty() && tell.len() == 2);
        let answer = tell[0];
        assert!(!fences.answered(&Fence { node: NodeId(4), ..answer }), "somebody else says so");
        assert!(!fences.answered(&Fence { epoch: Epoch(1), ..answer }), "another fence, of the manager before");
        assert!(fences.answered(&answer) && !fences.answered(&answer) && answer.fence == said);
        assert!(fences.look(at(600), &sessions, &mut tell).is_empty() && tell.len() == 3, "it is told again");
        assert_eq!(fences.look(at(4001), &sessions, &mut tell), [ended]);
        sessions.register(at(5000), &register(1)).unwrap();
        let killed = fences.begin(at(5001), &sessions, at_store, replica, Epoch(4), &mut tell);
        sessions.register(at(5002), &register(2)).unwrap();
        assert_eq!(fences.look(at(5003), &sessions, &mut tell), [killed], "another run of its process");
        assert!(fences.look(at(5004), &sessions, &mut tell).is_empty() && fences.guards(replica));
        [said, ended, killed].into_iter().for_each(|fence| fences.end(fence));
        assert!(!fences.guards(replica));
    }

    #[test]
    fn a_new_manager_waits_for_the_sessions_of_the_one_before() {
        let sessions = Sessions::new(LeaseTerms::default(), SessionId(1), at(0), []);
        let (mut fences, mut tell) = (Fences::default(), Vec::new());
        let fence =
            fences.begin(at(1), &sessions, (NODE, StoreId(5)), ReplicaId::first(ObjectId(1)), Epoch(2), &mut tell);
        assert!(fences.look(at(5000), &sessions, &mut tell).is_empty());
        assert_eq!(fences.look(at(5051), &sessions, &mut tell), [fence]);
    }
}
