//! What is known of the cluster at one moment: who is there, where, in which session, and which fences are up. An open decides by one such view and
//! the names, and by no lock.
//!
//! **A stale view costs a redirect, never correctness.** A capability names the session that a store's server had in the view. A server in another
//! session refuses it and sends the client back.

use std::sync::Arc;
use std::time::Duration;

use cluster::{Fences, Presence, Sessions, Standing, Time};
use types::{InSyncReplica, LocationRanges, NodeId, StoreId};

use crate::coordinator::servers::Servers;

/// The cluster at one moment. Its parts are shared with the views before and after it in which they are the same.
#[derive(Clone)]
pub(crate) struct ClusterView {
    /// Raised with each view that is published.
    pub(crate) version: u64,
    /// How long a writer that nobody leads is waited for.
    pub(crate) grace: Duration,
    /// Where clients reach the manager, `host:port`.
    pub(crate) clients_at: Option<(String, u16)>,
    /// Where clients stand that do not say so themselves.
    pub(crate) client_locations: Arc<LocationRanges>,
    /// Disk servers and stores.
    pub(crate) servers: Arc<Servers>,
    /// Whose lease runs.
    pub(crate) sessions: Arc<Sessions>,
    /// Who is about to be stopped. Together with the sessions: see [`Manager::open_read`](crate::Manager::open_read).
    pub(crate) fences: Arc<Fences>,
}

impl ClusterView {
    pub(crate) fn node_of(&self, store: StoreId) -> Option<NodeId> {
        self.servers.node_of(store)
    }

    /// `None`: it is not known, or will not come back.
    pub(crate) fn standing(&self, now: Time, store: StoreId) -> Option<Standing> {
        let node = self.node_of(store)?;
        let presence = match self.sessions.presence(now, node) {
            // A node may be there without one of its disks.
            Presence::Online | Presence::Suspect if !self.servers.is_served(node, store) => Presence::Away,
            // Its lease runs, but it cannot be told anything.
            Presence::Online if !self.servers.is_connected(node) => Presence::Suspect,
            presence => presence,
        };
        // Nobody waits for one that was given up, whatever it would know.
        let is_removed_as_lost = self.servers.is_removed_as_lost(store);
        if presence == Presence::Away && is_removed_as_lost {
            return None;
        }
        Some(Standing { presence, boot_generation: self.sessions.boot_generation(node)?, is_removed_as_lost })
    }

    pub(crate) fn is_online(&self, now: Time, store: StoreId) -> bool {
        self.standing(now, store).is_some_and(|standing| standing.presence == Presence::Online)
    }

    /// Those of `stores` that were not given up; if all were, all of them.
    pub(crate) fn lasting(&self, stores: &[StoreId]) -> Vec<StoreId> {
        let stay: Vec<StoreId> =
            stores.iter().copied().filter(|store| !self.servers.is_removed_as_lost(*store)).collect();
        if stay.is_empty() { stores.to_vec() } else { stay }
    }

    /// Those of `stores` that are there, `most` of them, in their order.
    pub(crate) fn in_sync(&self, now: Time, stores: &[StoreId], most: usize) -> Vec<InSyncReplica> {
        let online = stores.iter().filter(|store| self.is_online(now, **store));
        let in_sync_replica = |store: &StoreId| {
            Some(InSyncReplica {
                store: *store,
                boot_generation: self.sessions.boot_generation(self.node_of(*store)?)?,
            })
        };
        online.filter_map(in_sync_replica).take(most).collect()
    }
}
