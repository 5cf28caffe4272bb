//! The state of the cluster at one moment: servers, locations, sessions and fences. An open is decided by one such view and the namespace, without a
//! lock.
//!
//! **A stale view costs a redirect, never correctness.** A capability names the session that a store's server had in the view. A server in another
//! session refuses it and sends the client back.

use std::sync::Arc;
use std::time::Duration;

use cluster::{Fences, Presence, Sessions, StoreStatus, Time};
use types::{InSyncReplica, LocationRanges, NodeId, StoreId};

use crate::World;
use crate::capability_clock::CapabilityClock;
use crate::coordinator::servers::Servers;

/// The cluster at one moment. Views share the parts that do not differ between them.
#[derive(Clone)]
pub(crate) struct ClusterView {
    /// Rises with each view that is published.
    pub(crate) version: u64,
    /// The clock by which capabilities expire.
    pub(crate) clock: CapabilityClock,
    /// How long the manager waits for a writer without a primary.
    pub(crate) grace: Duration,
    /// The manager's address for clients, `host:port`.
    pub(crate) clients_at: Option<(String, u16)>,
    /// The locations of clients that do not state their own.
    pub(crate) client_locations: Arc<LocationRanges>,
    /// Disk servers and stores.
    pub(crate) servers: Arc<Servers>,
    /// The sessions whose lease runs.
    pub(crate) sessions: Arc<Sessions>,
    /// The fences that are not confirmed yet. They must come from the same moment as the sessions: see
    /// [`OpenService::open_read`](crate::open::OpenService::open_read).
    pub(crate) fences: Arc<Fences>,
}

impl ClusterView {
    pub(crate) fn node_of(&self, store: StoreId) -> Option<NodeId> {
        self.servers.node_of(store)
    }

    /// A store's state. `None` if the store is unknown or will not come back.
    pub(crate) fn standing(&self, now: Time, store: StoreId) -> Option<StoreStatus> {
        let node = self.node_of(store)?;
        let presence = match self.sessions.presence(now, node) {
            // A node may be online without one of its disks.
            Presence::Online | Presence::Suspect if !self.servers.is_served(node, store) => Presence::Away,
            // Its lease runs, but the manager cannot reach it.
            Presence::Online if !self.servers.is_connected(node) => Presence::Suspect,
            presence => presence,
        };
        // Nobody waits for a store that is removed as lost, whatever data it may have.
        let is_removed_as_lost = self.servers.is_removed_as_lost(store);
        if presence == Presence::Away && is_removed_as_lost {
            return None;
        }
        Some(StoreStatus { presence, boot_generation: self.sessions.boot_generation(node)?, is_removed_as_lost })
    }

    pub(crate) fn is_online(&self, now: Time, store: StoreId) -> bool {
        self.standing(now, store).is_some_and(|standing| standing.presence == Presence::Online)
    }

    /// Whether the server of a store is connected at this moment. See [`World::is_up`].
    pub(crate) fn is_up(&self, world: &dyn World, store: StoreId) -> bool {
        self.node_of(store).is_some_and(|node| world.is_up(node))
    }

    /// Whether a client can be sent to the server of a store. The server must have a lease, and a connection that shows at once if it dies.
    pub(crate) fn can_show(&self, world: &dyn World, now: Time, store: StoreId) -> bool {
        let presence = self.standing(now, store).map(|standing| standing.presence);
        matches!(presence, Some(Presence::Online | Presence::Suspect)) && self.is_up(world, store)
    }

    /// Stores, by their names for people.
    pub(crate) fn shown(&self, stores: &[StoreId]) -> String {
        let shown: Vec<String> = stores.iter().map(|store| self.servers.shown(*store)).collect();
        if shown.is_empty() { "none".to_owned() } else { shown.join(", ") }
    }

    /// The members of `stores` that are not removed as lost. If all are, all of them.
    pub(crate) fn lasting(&self, stores: &[StoreId]) -> Vec<StoreId> {
        let stay: Vec<StoreId> =
            stores.iter().copied().filter(|store| !self.servers.is_removed_as_lost(*store)).collect();
        if stay.is_empty() { stores.to_vec() } else { stay }
    }

    /// The first `most` members of `stores` that are online, in their order.
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
