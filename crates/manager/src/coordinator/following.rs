//! The view of the cluster in a standby manager: it comes from the active one, with the lists of nodes and stores that the namespace has.

use std::collections::BTreeSet;
use std::sync::Arc;

use cluster::{Fences, Sessions, Time};
use namespace::{MemberEntry, StoreEntry};
use node::{ClusterState, Committed, NodeState, STATE_LENGTHS_MAX, SpaceState};
use store::Space;
use types::ObjectId;

use super::servers::Servers;
use super::{ClusterView, Coordinator};
use crate::capability_clock::CapabilityClock;

impl ClusterView {
    /// What a standby manager needs beside the namespace. `committed` was read before this view. `lengths` are those of files that are being written.
    pub(crate) fn to_state(&self, now: Time, committed: Committed, lengths: Vec<(ObjectId, u64)>) -> ClusterState {
        let Space { total, free, floor, .. } = self.servers.space();
        let node = |state: NodeState| NodeState {
            boot_generation: self.sessions.boot_generation(state.node),
            session: self.sessions.session(now, state.node).map(|id| (id, self.sessions.lease_left(now, state.node))),
            ..state
        };
        let fenced: BTreeSet<_> = self.fences.replicas().collect();
        debug_assert!(lengths.len() <= STATE_LENGTHS_MAX);
        ClusterState {
            committed,
            clock: self.clock.time(now),
            nodes: self.servers.states().map(node).collect(),
            absent: self.servers.absent(),
            loads: self.servers.loads(),
            fenced: fenced.into_iter().collect(),
            lengths,
            space: SpaceState { total, free, floor },
        }
    }
}

impl Coordinator {
    /// Takes over the view of the active manager, which was asked for at `asked`. `members` and `stores` are the lists in the namespace.
    pub(crate) fn follow(
        &self,
        state: &ClusterState,
        (members, stores): (Vec<MemberEntry>, Vec<StoreEntry>),
        asked: Time,
    ) {
        let (now, wall) = (self.world.now(), state.clock);
        let mut servers = Servers::default();
        servers.take(members, stores);
        servers.follow(state);
        let session = |node: &NodeState| Some((node.node, node.boot_generation?, node.session));
        let sessions = Sessions::followed(self.terms, asked, state.nodes.iter().filter_map(session));
        let mut own = self.lock();
        own.is_news = true;
        own.view.clock = CapabilityClock::start(now, wall);
        own.view.servers = Arc::new(servers);
        own.view.sessions = Arc::new(sessions);
        own.view.fences = Arc::new(Fences::followed(state.fenced.iter().copied()));
        own.make_map(now);
    }
}
