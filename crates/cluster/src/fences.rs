//! Fences. Before a replica gets another primary, the old primary must have stopped. The same holds for a store
//! that is left out and could show old bytes. Such a store has stopped when it says so, or when its session has
//! ended.
//!
//! Until the manager has recorded the change that the fence protects, it confirms no primary of that replica, and
//! gives no new capability to read it. The reason is that a node whose session has ended may have a new one by then.

use std::collections::BTreeMap;
use std::time::Duration;

use types::{NodeId, ReplicaId, SessionId, StoreId};

use crate::replication::Epoch;
use crate::{Sessions, Time};

/// The number of a fence.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub struct FenceId(pub u64);

/// The message to a node: no lower epoch may answer for this replica. The node answers with the same message when
/// the fence holds. The fence then holds for the session that the manager named. A node that does not know that
/// session yet would forget the fence when it learns of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Fence {
    /// The number of the fence.
    pub fence: FenceId,
    /// The node that gets the message.
    pub node: NodeId,
    /// The store on that node.
    pub store: StoreId,
    /// The session that the manager has given to the node; `None`: none since the manager started.
    pub session: Option<SessionId>,
    /// The replica.
    pub replica: ReplicaId,
    /// The lowest epoch that may still answer.
    pub epoch: Epoch,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    fence: Fence,
    told: Time,
    is_there: bool,
}

/// The fences that are needed now.
#[derive(Clone, Debug, Default)]
pub struct Fences {
    given: u64,
    pending: BTreeMap<FenceId, Pending>,
}

/// How often an unanswered message is repeated.
const AGAIN: Duration = Duration::from_millis(500);

impl Fences {
    /// Starts a fence. Adds the messages that must be sent to `tell`.
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
        // This also ends the session at once if its lease has just run out.
        let session = sessions.session(now, node);
        let fence = Fence { fence: FenceId(self.given), node, store, session, replica, epoch };
        self.pending.insert(fence.fence, Pending { fence, told: now, is_there: false });
        tell.push(fence);
        fence.fence
    }

    /// Fences around these replicas, as another manager has them. They stay.
    #[must_use]
    pub fn followed(replicas: impl IntoIterator<Item = ReplicaId>) -> Self {
        let pending = replicas.into_iter().zip(1..).map(|(replica, number)| {
            let fence = FenceId(number);
            let of = Fence { fence, node: NodeId(0), store: StoreId(0), session: None, replica, epoch: Epoch(0) };
            (fence, Pending { fence: of, told: Time::default(), is_there: true })
        });
        Self { given: 0, pending: pending.collect() }
    }

    /// The replicas that fences protect.
    pub fn replicas(&self) -> impl Iterator<Item = ReplicaId> {
        self.pending.values().map(|pending| pending.fence.replica)
    }

    /// A node has answered. Returns whether the answer is new. An earlier manager may have used the same number for
    /// another fence.
    pub fn answered(&mut self, fence: &Fence) -> bool {
        let pending = self.pending.get_mut(&fence.fence);
        let Some(pending) = pending.filter(|pending| pending.fence == *fence && !pending.is_there) else {
            return false;
        };
        pending.is_there = true;
        true
    }

    /// Ends a fence: the manager has recorded the change, or abandoned it.
    pub fn end(&mut self, fence: FenceId) {
        self.pending.remove(&fence);
    }

    /// Whether a fence protects this replica, because a store is about to become its primary or to be left out.
    /// Meanwhile the manager confirms no primary and gives no new capability to read. A store whose session has
    /// ended may have another one, in which it would show old bytes.
    #[must_use]
    pub fn guards(&self, replica: ReplicaId) -> bool {
        self.pending.values().any(|pending| pending.fence.replica == replica)
    }

    /// Returns the fences that hold now because the node's session has ended. Adds the messages that must be
    /// repeated to `tell`.
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
    fn a_fence_holds_when_the_node_confirms_it_or_its_session_has_ended() {
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
    fn a_new_manager_waits_for_the_sessions_of_its_predecessor() {
        let sessions = Sessions::new(LeaseTerms::default(), SessionId(1), at(0), []);
        let (mut fences, mut tell) = (Fences::default(), Vec::new());
        let fence =
            fences.begin(at(1), &sessions, (NODE, StoreId(5)), ReplicaId::first(ObjectId(1)), Epoch(2), &mut tell);
        assert!(fences.look(at(5000), &sessions, &mut tell).is_empty());
        assert_eq!(fences.look(at(5051), &sessions, &mut tell), [fence]);
    }
}
