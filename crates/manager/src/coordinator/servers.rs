//! Disk servers and their stores, as the manager knows them: who serves which store, where clients reach it, what it reported last.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use cluster::placement::{Load, Map, StoreInfo, StoreState};
use namespace::{MemberEntry, StoreEntry, WantedState};
use node::{STORE_ADDRESSES_MAX, StoreAddress, StoreAddressPage, StoreReport};
use store::Space;
use types::capability::CapabilityKey;
use types::{Location, NodeId, StoreId};

use super::hosts::{Host, places_of, split};

/// A disk server.
#[derive(Clone, Default)]
pub(super) struct Server {
    /// Where clients reach it.
    address: Option<(String, u16)>,
    /// Where other nodes reach it.
    nodes_at: Option<String>,
    /// Where its last connection came from. Clients may be sent to it by a name, which says nothing of where that is.
    seen_at: Option<IpAddr>,
    is_connected: bool,
    /// Its stores that are there, as it said last; `None`: it has not said so to this manager.
    serves: Option<BTreeSet<StoreId>>,
    pub(super) key: Option<CapabilityKey>,
}

/// All of them.
#[derive(Clone, Default)]
pub(crate) struct Servers {
    /// The members of the cluster.
    pub(super) nodes: BTreeMap<NodeId, Server>,
    stores: BTreeMap<StoreId, StoreInfo>,
    /// Where the hosts of disk servers stand.
    locations: BTreeMap<IpAddr, Location>,
    pub(super) map: Arc<Map>,
}

impl Servers {
    /// Takes over which nodes and stores there are; whether that is news.
    pub(super) fn take(&mut self, members: Vec<MemberEntry>, stores: Vec<StoreEntry>) -> bool {
        let members_there: BTreeSet<NodeId> = members.iter().map(|member| member.node).collect();
        let nodes_before = self.nodes.len();
        self.nodes.retain(|node, _| members_there.contains(node));
        let mut is_changed = self.nodes.len() != nodes_before;
        for member in members {
            let server = self.nodes.entry(member.node).or_default();
            let address = member.for_clients.first().and_then(|address| split(address));
            let nodes_at = member.for_nodes.first().cloned();
            if (&server.address, &server.nodes_at) != (&address, &nodes_at) {
                (server.address, server.nodes_at) = (address, nodes_at);
                is_changed = true;
            }
        }
        let there: BTreeSet<StoreId> = stores.iter().map(|entry| entry.store).collect();
        let before = self.stores.len();
        self.stores.retain(|store, _| there.contains(store));
        is_changed |= self.stores.len() != before;
        for StoreEntry { store, node, location, class, state } in stores {
            let state = match state {
                WantedState::Online => StoreState::Online,
                WantedState::ReadOnly => StoreState::ReadOnly,
                WantedState::Draining => StoreState::Draining,
                WantedState::Lost => StoreState::Lost,
            };
            let info = match self.stores.get(&store) {
                Some(known) => StoreInfo { node, location, class, state, ..known.clone() },
                // Nothing is put there before it has said how much space it has.
                None => StoreInfo {
                    store,
                    node,
                    location,
                    class,
                    state,
                    capacity: 0,
                    reserve: 0,
                    free: 0,
                    load: Load::default(),
                },
            };
            is_changed |= self.stores.get(&store) != Some(&info);
            self.stores.insert(store, info);
        }
        if is_changed {
            self.locations = self.find_places();
        }
        is_changed
    }

    /// Whether a node is a member of the cluster, as far as was looked.
    pub(super) fn has_node(&self, node: NodeId) -> bool {
        self.nodes.contains_key(&node)
    }

    /// Whether there is such a store.
    pub(super) fn has_store(&self, store: StoreId) -> bool {
        self.stores.contains_key(&store)
    }

    /// The stores as they were reported last, each in the state that its administrator wants it to be in.
    pub(super) fn stores(&self) -> impl Iterator<Item = &StoreInfo> {
        self.stores.values()
    }

    /// Where the hosts of disk servers stand; of a host with several, that of the first.
    fn find_places(&self) -> BTreeMap<IpAddr, Location> {
        let mut of_nodes = BTreeMap::new();
        for info in self.stores.values() {
            of_nodes.entry(info.node).or_insert(&info.location);
        }
        let hosts = self.nodes.iter().filter_map(|(node, server)| {
            let said = server.address.as_ref().and_then(|(host, _)| host.parse().ok());
            Some(Host { said, seen: server.seen_at, location: of_nodes.get(node)? })
        });
        places_of(&hosts.collect::<Vec<Host<'_>>>())
    }

    pub(crate) fn node_of(&self, store: StoreId) -> Option<NodeId> {
        self.stores.get(&store).map(|info| info.node)
    }

    pub(crate) fn is_connected(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|server| server.is_connected)
    }

    /// Whether a store is there when its node is; as long as nobody has said so, that is believed.
    pub(crate) fn is_served(&self, node: NodeId, store: StoreId) -> bool {
        let serves = self.nodes.get(&node).and_then(|server| server.serves.as_ref());
        serves.is_none_or(|serves| serves.contains(&store))
    }

    /// Whether it is news that a node has these stores.
    pub(super) fn would_serve(&self, node: NodeId, stores: &BTreeSet<StoreId>) -> bool {
        self.nodes.get(&node).is_some_and(|server| server.serves.as_ref() != Some(stores))
    }

    /// A node says which stores it has.
    pub(super) fn set_served(&mut self, node: NodeId, stores: BTreeSet<StoreId>) {
        if let Some(server) = self.nodes.get_mut(&node) {
            server.serves = Some(stores);
        }
    }

    /// What a node says of a store of its own: whether it is new, and whether this is the first time. `None`: it is not its own, or has not registered yet.
    pub(super) fn set_figures(&mut self, node: NodeId, report: &StoreReport) -> Option<(bool, bool)> {
        let StoreReport { store, capacity, reserve, free, load_permille } = *report;
        let known = self.stores.get_mut(&store).filter(|known| known.node == node)?;
        let load = Load::from_permille(load_permille);
        let is_first = known.capacity == 0;
        let is_new = (known.capacity, known.reserve, known.free, known.load) != (capacity, reserve, free, load);
        if is_new {
            (known.capacity, known.reserve, known.free, known.load) = (capacity, reserve, free, load);
        }
        Some((is_new, is_first && is_new))
    }

    pub(crate) fn map(&self) -> &Arc<Map> {
        &self.map
    }

    /// Where clients reach the server of a store, and the key of its permissions.
    pub(crate) fn way_to(&self, node: NodeId) -> Option<(&str, u16, &CapabilityKey)> {
        let server = self.nodes.get(&node)?;
        let (host, port) = server.address.as_ref()?;
        Some((host, *port, server.key.as_ref()?))
    }

    /// Stores on one of these hosts.
    pub(crate) fn stores_at(&self, hosts: &[String]) -> Vec<StoreId> {
        if hosts.is_empty() {
            return Vec::new();
        }
        let is_at = |node: &NodeId| {
            let address = self.nodes.get(node).and_then(|server| server.address.as_ref());
            address.is_some_and(|(host, _)| hosts.contains(host))
        };
        self.stores.values().filter(|info| is_at(&info.node)).map(|info| info.store).collect()
    }

    /// Where a client at `address` stands, if it is on the host of a disk server.
    pub(crate) fn location_of(&self, address: IpAddr) -> Option<Location> {
        self.locations.get(&address).cloned()
    }

    /// How a store is called to people.
    pub(crate) fn shown(&self, store: StoreId) -> String {
        match self.stores.get(&store) {
            Some(info) => format!("store {store} at {} (node {})", info.location, info.node),
            None => format!("store {store}, which is not known here"),
        }
    }

    pub(crate) fn space(&self) -> Space {
        let mut space = Space::default();
        for info in self.map.stores().iter().filter(|info| info.state == StoreState::Online) {
            space.total = space.total.saturating_add(info.capacity);
            space.free = space.free.saturating_add(info.free);
            space.floor = space.floor.saturating_add(info.reserve);
        }
        // Whether there is room for a file is for its placement to say.
        space
    }

    /// Whether its administrator has given it up for good.
    pub(crate) fn is_removed_as_lost(&self, store: StoreId) -> bool {
        self.stores.get(&store).is_none_or(|info| info.state == StoreState::Lost)
    }

    /// Whether others take its place: it was given up, or is being emptied.
    pub(crate) fn is_to_leave(&self, store: StoreId) -> bool {
        self.is_removed_as_lost(store) || self.is_draining(store)
    }

    /// Whether it is being emptied, or is empty by now.
    pub(crate) fn is_draining(&self, store: StoreId) -> bool {
        self.stores.get(&store).is_some_and(|info| info.state == StoreState::Draining)
    }

    /// All stores whose place others take.
    pub(super) fn to_leave(&self) -> BTreeSet<StoreId> {
        self.stores.keys().copied().filter(|store| self.is_to_leave(*store)).collect()
    }

    /// Stores that have been given up for good.
    pub(crate) fn removed_as_lost(&self) -> Vec<StoreId> {
        self.wanted(StoreState::Lost)
    }

    /// Stores that are being emptied, or are empty by now.
    pub(crate) fn draining(&self) -> Vec<StoreId> {
        self.wanted(StoreState::Draining)
    }

    fn wanted(&self, state: StoreState) -> Vec<StoreId> {
        self.stores.values().filter(|info| info.state == state).map(|info| info.store).collect()
    }

    /// A connection of a node comes from there.
    pub(super) fn set_seen_at(&mut self, node: NodeId, address: IpAddr) {
        let server = self.nodes.entry(node).or_default();
        let before = server.seen_at.replace(address.to_canonical());
        if before != server.seen_at {
            self.locations = self.find_places();
        }
    }

    /// Who serves which store, as it is told; `number`: which telling it is.
    pub(super) fn pages_of_ways(&self, number: u64) -> Vec<StoreAddressPage> {
        let way = |info: &StoreInfo| {
            let nodes_at = self.nodes.get(&info.node)?.nodes_at.clone()?;
            Some(StoreAddress { store: info.store, node: info.node, nodes_at })
        };
        let addresses: Vec<StoreAddress> = self.stores.values().filter_map(way).collect();
        let count = addresses.len().div_ceil(STORE_ADDRESSES_MAX).max(1);
        let mut pages = addresses.chunks(STORE_ADDRESSES_MAX).map(<[StoreAddress]>::to_vec);
        let page = |page: usize| StoreAddressPage {
            number,
            page: u32::try_from(page).unwrap_or(u32::MAX),
            is_last: page + 1 == count,
            addresses: pages.next().unwrap_or_default(),
        };
        (0..count).map(page).collect()
    }

    /// Whether it is connected.
    pub(super) fn set_connected(&mut self, node: NodeId, is_connected: bool) {
        if let Some(server) = self.nodes.get_mut(&node) {
            server.is_connected = is_connected;
        }
    }
}
