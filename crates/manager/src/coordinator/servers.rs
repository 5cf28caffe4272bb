//! Disk servers and their stores, as the manager knows them: which node serves a store, its address, and its last report.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use cluster::placement::{Load, Map, StoreInfo, StoreState};
use link::{Role, Roles};
use namespace::{MemberEntry, StoreEntry, WantedState};
use node::{
    ClusterState, MANAGERS_MAX, ManagerAddress, NodeState, STORE_ADDRESSES_MAX, SigningKey, StoreAddress,
    StoreAddressPage, StoreReport,
};
use store::Space;
use types::capability::CapabilityKey;
use types::{ClientAddress, Location, NodeId, StoreId};

use super::capability_keys::ServerKeys;
use super::hosts::{Host, places_of};

/// Whether this member is a manager.
#[must_use]
pub fn is_manager(member: &MemberEntry) -> bool {
    has(member, Role::Manager)
}

fn has(member: &MemberEntry, role: Role) -> bool {
    Roles::from_bits(member.roles).is_some_and(|roles| roles.contain(role))
}

/// The address of this member, if it is a manager and has said it.
fn manager_of(member: &MemberEntry) -> Option<ManagerAddress> {
    let nodes_at = member.for_nodes.first().filter(|_| is_manager(member))?;
    let of_clients = |address: &String| ClientAddress::parse(address).filter(|address| address.protocol == "root");
    let clients_at = member.for_clients.iter().find_map(of_clients).map(|address| (address.host, address.port));
    Some(ManagerAddress { node: member.node, nodes_at: nodes_at.clone(), clients_at })
}

/// A disk server.
#[derive(Clone, Default)]
pub(super) struct Server {
    /// Its addresses for clients, in the order in which it prefers them.
    addresses: Vec<ClientAddress>,
    /// Its address for other nodes.
    nodes_at: Option<String>,
    /// The source address of its last connection. Clients may be sent to it by name, and a name does not show the address.
    seen_at: Option<IpAddr>,
    pub(super) is_connected: bool,
    /// Its online stores, as it reported last. `None` if it has not reported to this manager yet.
    serves: Option<BTreeSet<StoreId>>,
    pub(super) keys: ServerKeys,
}

/// All disk servers and their stores.
#[derive(Clone, Default)]
pub(crate) struct Servers {
    /// The members of the cluster.
    pub(super) nodes: BTreeMap<NodeId, Server>,
    stores: BTreeMap<StoreId, StoreInfo>,
    /// The addresses of the managers that have said theirs.
    managers: Vec<ManagerAddress>,
    /// The locations of disk servers' hosts.
    locations: BTreeMap<IpAddr, Location>,
    pub(super) map: Arc<Map>,
}

impl Servers {
    /// Takes over the lists of nodes and stores. Returns whether they have changed.
    pub(super) fn take(&mut self, members: Vec<MemberEntry>, stores: Vec<StoreEntry>) -> bool {
        let members_there: BTreeSet<NodeId> = members.iter().map(|member| member.node).collect();
        let nodes_before = self.nodes.len();
        self.nodes.retain(|node, _| members_there.contains(node));
        let managers: Vec<ManagerAddress> = members.iter().filter_map(manager_of).take(MANAGERS_MAX).collect();
        let mut is_changed = self.nodes.len() != nodes_before || self.managers != managers;
        self.managers = managers;
        for member in members {
            let server = self.nodes.entry(member.node).or_default();
            // A manager has no stores, so no client is sent there for a file.
            let for_clients = if has(&member, Role::Disk) { member.for_clients.as_slice() } else { &[] };
            let addresses = for_clients.iter().filter_map(|address| ClientAddress::parse(address)).collect();
            let nodes_at = member.for_nodes.first().cloned();
            if (&server.addresses, &server.nodes_at) != (&addresses, &nodes_at) {
                (server.addresses, server.nodes_at) = (addresses, nodes_at);
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
                WantedState::Lost => StoreState::Removed,
            };
            let info = match self.stores.get(&store) {
                Some(known) => StoreInfo { node, location, class, state, ..known.clone() },
                // Nothing is placed there before the store has reported its space.
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

    /// Whether a node is a member of the cluster, according to the last read.
    pub(crate) fn has_node(&self, node: NodeId) -> bool {
        self.nodes.contains_key(&node)
    }

    /// Whether the store exists.
    pub(crate) fn has_store(&self, store: StoreId) -> bool {
        self.stores.contains_key(&store)
    }

    /// The stores with their last reports. Each is in the state that its administrator has set.
    pub(super) fn stores(&self) -> impl Iterator<Item = &StoreInfo> {
        self.stores.values()
    }

    /// The addresses for other nodes and the locations of all stores that are not removed as lost.
    pub(super) fn hosts_of_stores(&self) -> impl Iterator<Item = (Option<&str>, String)> {
        let used = self.stores.values().filter(|info| info.state != StoreState::Removed);
        used.map(|info| {
            let address = self.nodes.get(&info.node).and_then(|server| server.nodes_at.as_deref());
            (address, info.location.prefix(3).as_str().to_owned())
        })
    }

    /// The location of each disk server's host. If a host has several servers, the location of the first.
    fn find_places(&self) -> BTreeMap<IpAddr, Location> {
        let mut of_nodes = BTreeMap::new();
        for info in self.stores.values() {
            of_nodes.entry(info.node).or_insert(&info.location);
        }
        let hosts = self.nodes.iter().filter_map(|(node, server)| {
            let said = server.addresses.iter().find_map(|address| address.host.parse().ok());
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

    /// Whether the node serves this store. True until the node has reported.
    pub(crate) fn is_served(&self, node: NodeId, store: StoreId) -> bool {
        let serves = self.nodes.get(&node).and_then(|server| server.serves.as_ref());
        serves.is_none_or(|serves| serves.contains(&store))
    }

    /// Whether these stores differ from the last report.
    pub(super) fn would_serve(&self, node: NodeId, stores: &BTreeSet<StoreId>) -> bool {
        self.nodes.get(&node).is_some_and(|server| server.serves.as_ref() != Some(stores))
    }

    /// Records which stores a node serves.
    pub(super) fn set_served(&mut self, node: NodeId, stores: BTreeSet<StoreId>) {
        if let Some(server) = self.nodes.get_mut(&node) {
            server.serves = Some(stores);
        }
    }

    /// Takes over a node's report on one of its stores. Returns whether the figures changed and whether placement must learn of it at once: from the
    /// first report, and when a store has become full. `None` if the store does not belong to the node or has not registered yet.
    pub(super) fn set_figures(&mut self, node: NodeId, report: &StoreReport) -> Option<(bool, bool)> {
        let StoreReport { store, capacity, reserve, free, load_permille } = *report;
        let known = self.stores.get_mut(&store).filter(|known| known.node == node)?;
        let load = Load::from_permille(load_permille);
        let (is_first, had_room) = (known.capacity == 0, known.room() > 0);
        let is_new = (known.capacity, known.reserve, known.free, known.load) != (capacity, reserve, free, load);
        if is_new {
            (known.capacity, known.reserve, known.free, known.load) = (capacity, reserve, free, load);
        }
        Some((is_new, is_new && (is_first || had_room && known.room() == 0)))
    }

    pub(crate) fn map(&self) -> &Arc<Map> {
        &self.map
    }

    /// The client addresses of a store's server, and the key of its capabilities. `None` if clients cannot be sent there.
    pub(crate) fn way_to(&self, node: NodeId) -> Option<(&[ClientAddress], &CapabilityKey)> {
        let server = self.nodes.get(&node).filter(|server| !server.addresses.is_empty())?;
        Some((&server.addresses, server.keys.signing()?))
    }

    /// Whether any server has an address for clients of `protocol`. If there are other addresses only, the error has some of them.
    pub(crate) fn serve(&self, protocol: &str) -> Result<(), Vec<ClientAddress>> {
        let mut addresses = self.nodes.values().flat_map(|server| &server.addresses);
        let others: Vec<ClientAddress> = addresses.clone().take(3).cloned().collect();
        match others.is_empty() || addresses.any(|address| address.protocol == protocol) {
            true => Ok(()),
            false => Err(others),
        }
    }

    /// The stores on these hosts.
    pub(crate) fn stores_at(&self, hosts: &[String]) -> Vec<StoreId> {
        if hosts.is_empty() {
            return Vec::new();
        }
        let is_at = |node: &NodeId| {
            let server = self.nodes.get(node);
            server.is_some_and(|server| server.addresses.iter().any(|address| hosts.contains(&address.host)))
        };
        self.stores.values().filter(|info| is_at(&info.node)).map(|info| info.store).collect()
    }

    /// The location of a client at `address`, if it is on the host of a disk server.
    pub(crate) fn location_of(&self, address: IpAddr) -> Option<Location> {
        self.locations.get(&address).cloned()
    }

    /// A store's name for people.
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
        // Placement decides whether a file fits.
        space
    }

    /// Whether the store is removed as lost.
    pub(crate) fn is_removed_as_lost(&self, store: StoreId) -> bool {
        self.stores.get(&store).is_none_or(|info| info.state == StoreState::Removed)
    }

    /// Whether other stores replace it: it is draining or removed as lost.
    pub(crate) fn is_to_leave(&self, store: StoreId) -> bool {
        self.is_removed_as_lost(store) || self.is_draining(store)
    }

    /// Whether it is draining or drained.
    pub(crate) fn is_draining(&self, store: StoreId) -> bool {
        self.stores.get(&store).is_some_and(|info| info.state == StoreState::Draining)
    }

    /// All stores that others replace.
    pub(super) fn to_leave(&self) -> BTreeSet<StoreId> {
        self.stores.keys().copied().filter(|store| self.is_to_leave(*store)).collect()
    }

    /// Stores that are removed as lost.
    pub(crate) fn removed_as_lost(&self) -> Vec<StoreId> {
        self.wanted(StoreState::Removed)
    }

    /// Stores that are draining or drained.
    pub(crate) fn draining(&self) -> Vec<StoreId> {
        self.wanted(StoreState::Draining)
    }

    fn wanted(&self, state: StoreState) -> Vec<StoreId> {
        self.stores.values().filter(|info| info.state == state).map(|info| info.store).collect()
    }

    /// Records the source address of a node's connection.
    pub(super) fn set_seen_at(&mut self, node: NodeId, address: IpAddr) {
        let server = self.nodes.entry(node).or_default();
        let before = server.seen_at.replace(address.to_canonical());
        if before != server.seen_at {
            self.locations = self.find_places();
        }
    }

    /// The addresses of the managers, by node number.
    pub(crate) fn managers(&self) -> &[ManagerAddress] {
        &self.managers
    }

    /// The store addresses, in pages. `number` identifies this list.
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

    /// The disk servers, for a standby manager. Their sessions are not here.
    pub(super) fn states(&self) -> impl Iterator<Item = NodeState> {
        self.nodes.iter().filter(|(_, server)| !server.addresses.is_empty()).map(|(node, server)| NodeState {
            node: *node,
            boot_generation: None,
            session: None,
            is_connected: server.is_connected,
            seen_at: server.seen_at,
            key: server.keys.signing().map(|key| SigningKey { id: key.id, secret: key.to_secret() }),
        })
    }

    /// The stores that are away although their node is there.
    pub(super) fn absent(&self) -> Vec<StoreId> {
        self.stores.values().filter(|info| !self.is_served(info.node, info.store)).map(|info| info.store).collect()
    }

    /// How busy the stores are that are not idle, in thousandths.
    pub(super) fn loads(&self) -> Vec<(StoreId, u16)> {
        let loads = self.stores.values().map(|info| (info.store, info.load.permille()));
        loads.filter(|(_, load)| *load > 0).collect()
    }

    /// Takes over what the active manager knows of the nodes and stores in the lists.
    pub(super) fn follow(&mut self, state: &ClusterState) {
        for NodeState { node, is_connected, seen_at, key, .. } in &state.nodes {
            let Some(server) = self.nodes.get_mut(node) else { continue };
            (server.is_connected, server.seen_at) = (*is_connected, *seen_at);
            server.keys = key.as_ref().map(ServerKeys::followed).unwrap_or_default();
        }
        let (absent, loads): (BTreeSet<_>, BTreeMap<_, _>) =
            (state.absent.iter().collect(), state.loads.iter().copied().collect());
        let mut served: BTreeMap<NodeId, BTreeSet<StoreId>> = BTreeMap::new();
        for info in self.stores.values_mut() {
            info.load = Load::from_permille(loads.get(&info.store).copied().unwrap_or_default());
            let of_node = served.entry(info.node).or_default();
            if !absent.contains(&info.store) {
                of_node.insert(info.store);
            }
        }
        for (node, served) in served {
            self.set_served(node, served);
        }
        self.locations = self.find_places();
    }

    /// Records whether a node is connected.
    pub(super) fn set_connected(&mut self, node: NodeId, is_connected: bool) {
        if let Some(server) = self.nodes.get_mut(&node) {
            server.is_connected = is_connected;
        }
    }
}
