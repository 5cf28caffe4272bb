//! Disk servers and their stores, as the manager knows them: who serves which store, where clients reach it, what it reported last.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use cluster::message::ToServer;
use cluster::placement::{Load, Map, StoreInfo, StoreState};
use cluster::{Presence, Register, Time};
use namespace::{Durability, Namespace, NsError, PutGroup, PutNode, StoreEntry, WantedState, count_to_pass_over};
use store::Space;
use types::capability::CapabilityKey;
use types::{Group, GroupId, Location, Member, NodeId, ObjectId, StoreId};

use super::activity::{ActivityView, Heard};
use super::writers_room::WritersRoom;
use super::{Manager, State};
use crate::message::{
    Activity, FromManager, Hello, Keys, STORE_ADDRESSES_MAX, StoreAddress, StoreAddressPage, StoreReport,
};

/// Groups that are read at a time.
const PAGE: usize = 1024;
/// The first group that placement makes; lower ones are those of a single node.
const FIRST_GROUP: u64 = 2;

/// How often it is looked which nodes and stores there are.
const LOOK: Duration = Duration::from_secs(1);

/// A disk server.
#[derive(Default)]
struct Server {
    /// Where clients reach it.
    address: Option<(String, u16)>,
    /// Where other nodes reach it.
    nodes_at: Option<String>,
    /// Where its last connection came from. Clients may be sent to it by a name, which says nothing of where that is.
    seen_at: Option<IpAddr>,
    is_connected: bool,
    /// Its stores that are there, as it said last; `None`: it has not said so to this manager.
    serves: Option<BTreeSet<StoreId>>,
    /// It was told who serves which store, as that is now.
    is_told: bool,
    key: Option<CapabilityKey>,
    heard: Heard,
    writers: WritersRoom,
}

pub(super) struct Servers {
    /// The members of the cluster.
    nodes: BTreeMap<NodeId, Server>,
    /// Those of them that are just being removed.
    member_states: BTreeSet<NodeId>,
    stores: BTreeMap<StoreId, StoreInfo>,
    /// Where the hosts of disk servers stand.
    locations: BTreeMap<IpAddr, Location>,
    map: Arc<Map>,
    /// Who is there, since the map was made.
    is_changed: bool,
    /// How much space or load there is, since then: every store says so every second, and the map is not made anew for each.
    has_new_figures: bool,
    /// Somebody has not been told yet who serves which store, as that is now.
    is_news: bool,
    /// Counts how often somebody was told.
    tellings: u64,
    next_look: Time,
    groups: BTreeMap<GroupId, Group>,
    /// Those that nobody leaves, by their stores, in order. Of several with the same stores, one.
    by_stores: BTreeMap<Vec<StoreId>, GroupId>,
    next_group: u64,
    /// In how many of them a store is.
    counts: BTreeMap<StoreId, usize>,
    /// Those in which somebody takes another one's place.
    unsettled: BTreeSet<GroupId>,
    /// Who has left them since this manager began.
    left: BTreeMap<GroupId, BTreeSet<StoreId>>,
    /// A disk server has contents that these names never had a number for.
    pub(super) is_older: bool,
    /// Stores that were being emptied, or had been given up, when this manager began: any group may have been left by them before. `None`: not looked yet.
    may_have_left: Option<BTreeSet<StoreId>>,
}

impl Servers {
    /// What the namespace knows.
    pub(super) fn read(namespace: &Namespace) -> Result<Self, NsError> {
        let (mut groups, mut last) = (Vec::new(), None);
        loop {
            let page = namespace.read(|read| namespace::groups(read, last, PAGE))?;
            last = page.last().map(|group| group.group);
            let is_last = page.len() < PAGE;
            groups.extend(page);
            if is_last {
                break;
            }
        }
        let mut servers = Self {
            nodes: BTreeMap::new(),
            member_states: BTreeSet::new(),
            stores: BTreeMap::new(),
            locations: BTreeMap::new(),
            map: Arc::default(),
            is_changed: false,
            has_new_figures: false,
            is_news: false,
            tellings: 0,
            next_look: Time::default(),
            left: BTreeMap::new(),
            may_have_left: None,
            is_older: false,
            counts: BTreeMap::new(),
            unsettled: BTreeSet::new(),
            groups: BTreeMap::new(),
            by_stores: BTreeMap::new(),
            next_group: FIRST_GROUP,
        };
        groups.iter().for_each(|group| servers.group_is_made(group));
        servers.next_group = groups.last().map_or(0, |group| group.group.0.saturating_add(1)).max(FIRST_GROUP);
        servers.look(namespace)?;
        Ok(servers)
    }

    /// Looks which nodes and stores there are.
    fn look(&mut self, namespace: &Namespace) -> Result<(), NsError> {
        let (members, stores) = namespace.read(|read| Ok((namespace::members(read)?, namespace::stores(read)?)))?;
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
        if self.may_have_left.is_none() {
            self.may_have_left = Some(self.stores.keys().copied().filter(|store| self.is_to_leave(*store)).collect());
        }
        self.is_changed |= is_changed;
        self.is_news |= is_changed;
        if is_changed {
            self.nodes.values_mut().for_each(|server| server.is_told = false);
        }
        Ok(())
    }

    /// Whether a node is a member of the cluster, and not just being removed.
    pub(super) fn has(&mut self, namespace: &Namespace, node: NodeId) -> Result<bool, NsError> {
        // It may have just joined.
        if !self.nodes.contains_key(&node) {
            self.look(namespace)?;
        }
        Ok(self.nodes.contains_key(&node) && !self.member_states.contains(&node))
    }

    /// A node is being removed.
    pub(super) fn goes(&mut self, node: NodeId) {
        self.member_states.insert(node);
    }

    /// That has come to its end.
    pub(super) fn goes_no_more(&mut self, node: NodeId) {
        self.member_states.remove(&node);
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

    pub(super) fn node_of(&self, store: StoreId) -> Option<NodeId> {
        self.stores.get(&store).map(|info| info.node)
    }

    pub(super) fn is_connected(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|server| server.is_connected)
    }

    /// Whether a store is there when its node is; as long as nobody has said so, that is believed.
    pub(super) fn is_served(&self, node: NodeId, store: StoreId) -> bool {
        let serves = self.nodes.get(&node).and_then(|server| server.serves.as_ref());
        serves.is_none_or(|serves| serves.contains(&store))
    }

    /// A node says which stores it has; whether that is news.
    fn set_served(&mut self, node: NodeId, stores: BTreeSet<StoreId>) -> bool {
        let Some(server) = self.nodes.get_mut(&node) else { return false };
        let is_news = server.serves.as_ref() != Some(&stores);
        server.serves = Some(stores);
        is_news
    }

    /// A node says what it does. One that nobody knows is not remembered.
    pub(super) fn hear(&mut self, now: Time, node: NodeId, said: Activity) {
        if let Some(server) = self.nodes.get_mut(&node) {
            server.heard.hear(now, said);
            server.writers.hear(&said);
        }
    }

    /// The memory that a node has for files that are written there.
    pub(super) fn writers_room(&mut self, node: NodeId) -> Option<&mut WritersRoom> {
        self.nodes.get_mut(&node).map(|server| &mut server.writers)
    }

    /// What a node has said last of what it does.
    pub(super) fn heard(&self, now: Time, node: NodeId) -> Option<ActivityView> {
        self.nodes.get(&node)?.heard.view(now)
    }

    pub(super) fn map(&self) -> &Arc<Map> {
        &self.map
    }

    /// Where clients reach the server of a store, and the key of its permissions.
    pub(super) fn way_to(&self, node: NodeId) -> Option<(&str, u16, &CapabilityKey)> {
        let server = self.nodes.get(&node)?;
        let (host, port) = server.address.as_ref()?;
        Some((host, *port, server.key.as_ref()?))
    }

    /// Stores on one of these hosts.
    pub(super) fn stores_at(&self, hosts: &[String]) -> Vec<StoreId> {
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
    pub(super) fn location_of(&self, address: IpAddr) -> Option<Location> {
        self.locations.get(&address).cloned()
    }

    /// How a store is called to people.
    pub(super) fn shown(&self, store: StoreId) -> String {
        match self.stores.get(&store) {
            Some(info) => format!("store {store} at {} (node {})", info.location, info.node),
            None => format!("store {store}, which is not known here"),
        }
    }

    pub(super) fn space(&self) -> Space {
        let mut space = Space::default();
        for info in self.map.stores().iter().filter(|info| info.state == StoreState::Online) {
            space.total = space.total.saturating_add(info.capacity);
            space.free = space.free.saturating_add(info.free);
            space.floor = space.floor.saturating_add(info.reserve);
        }
        // Whether there is room for a file is for its placement to say.
        space
    }

    pub(super) fn group(&self, stores: &[StoreId]) -> Option<GroupId> {
        self.by_stores.get(stores).copied()
    }

    /// Takes a number for a group that is to be made.
    pub(super) fn new_group(&mut self, stores: &[StoreId]) -> Group {
        let group = GroupId(self.next_group);
        self.next_group += 1;
        let member = |store: &StoreId| Member { store: *store, since: ObjectId(1), through: ObjectId(0) };
        Group { group, epoch: 1, members: stores.iter().map(member).collect() }
    }

    pub(super) fn group_is_made(&mut self, group: &Group) {
        let stores = stores_of(group);
        for store in &stores {
            *self.counts.entry(*store).or_default() += 1;
        }
        if group.members.iter().all(|member| member.is_current() && !member.is_leaving()) {
            self.unsettled.remove(&group.group);
        } else {
            self.unsettled.insert(group.group);
        }
        if let Some(before) = self.groups.insert(group.group, group.clone()) {
            let before = stores_of(&before);
            for store in &before {
                if let Some(count) = self.counts.get_mut(store) {
                    *count = count.saturating_sub(1);
                }
            }
            let left = self.left.entry(group.group).or_default();
            left.extend(before.iter().copied());
            left.retain(|store| !stores.contains(store));
            if left.is_empty() {
                self.left.remove(&group.group);
            }
            if before != stores && self.by_stores.get(&before) == Some(&group.group) {
                self.by_stores.remove(&before);
            }
        }
        if group.members.iter().any(Member::is_leaving) {
            // What is written anew there would have a copy less when that one has left.
            if self.by_stores.get(&stores) == Some(&group.group) {
                self.by_stores.remove(&stores);
            }
        } else {
            self.by_stores.entry(stores).or_insert(group.group);
        }
    }

    /// Stores that have left a group, as far as this manager can know: who has opened a file there before may read it there still.
    pub(super) fn have_left(&self, group: GroupId) -> Vec<StoreId> {
        let left = self.left.get(&group).into_iter().flatten().chain(self.may_have_left.iter().flatten());
        left.copied().filter(|store| self.stores.contains_key(store)).collect()
    }

    /// All groups, by number.
    pub(super) fn groups(&self) -> &BTreeMap<GroupId, Group> {
        &self.groups
    }

    /// Whether its administrator has given it up for good.
    pub(super) fn is_removed_as_lost(&self, store: StoreId) -> bool {
        self.stores.get(&store).is_none_or(|info| info.state == StoreState::Lost)
    }

    fn member(&self, group: GroupId, store: StoreId) -> Option<&Member> {
        self.groups.get(&group)?.members.iter().find(|member| member.store == store)
    }

    /// Whether a group counts on it.
    pub(super) fn is_member(&self, group: GroupId, store: StoreId) -> bool {
        self.member(group, store).is_some()
    }

    /// Whether it is to get what it is said to be owed in a group: it stays there.
    pub(super) fn is_missing(&self, group: GroupId, store: StoreId) -> bool {
        self.member(group, store).is_some_and(|member| !member.is_leaving()) && !self.is_removed_as_lost(store)
    }

    /// Whether others take its place: it was given up, or is being emptied.
    pub(super) fn is_to_leave(&self, store: StoreId) -> bool {
        self.is_removed_as_lost(store) || self.is_draining(store)
    }

    /// Whether it is being emptied, or is empty by now.
    pub(super) fn is_draining(&self, store: StoreId) -> bool {
        self.stores.get(&store).is_some_and(|info| info.state == StoreState::Draining)
    }

    /// Stores that have been given up for good.
    pub(super) fn removed_as_lost(&self) -> Vec<StoreId> {
        self.wanted(StoreState::Lost)
    }

    /// Stores that are being emptied, or are empty by now.
    pub(super) fn draining(&self) -> Vec<StoreId> {
        self.wanted(StoreState::Draining)
    }

    fn wanted(&self, state: StoreState) -> Vec<StoreId> {
        self.stores.values().filter(|info| info.state == state).map(|info| info.store).collect()
    }

    /// In how many groups it is.
    pub(super) fn groups_of(&self, store: StoreId) -> usize {
        self.counts.get(&store).copied().unwrap_or(0)
    }

    /// Whether a group is as it is not to stay.
    pub(super) fn is_unsettled(&self) -> bool {
        let leaves = |info: &StoreInfo| self.is_to_leave(info.store) && self.groups_of(info.store) > 0;
        !self.unsettled.is_empty() || self.stores.values().any(leaves)
    }

    fn is_seen_at(&mut self, node: NodeId, address: IpAddr) {
        let server = self.nodes.entry(node).or_default();
        let before = server.seen_at.replace(address.to_canonical());
        if before != server.seen_at {
            self.locations = self.find_places();
        }
    }

    /// Who serves which store, as it is told.
    fn pages_of_ways(&self) -> Vec<StoreAddressPage> {
        let way = |info: &StoreInfo| {
            let nodes_at = self.nodes.get(&info.node)?.nodes_at.clone()?;
            Some(StoreAddress { store: info.store, node: info.node, nodes_at })
        };
        let addresses: Vec<StoreAddress> = self.stores.values().filter_map(way).collect();
        let count = addresses.len().div_ceil(STORE_ADDRESSES_MAX).max(1);
        let mut pages = addresses.chunks(STORE_ADDRESSES_MAX).map(<[StoreAddress]>::to_vec);
        let page = |page: usize| StoreAddressPage {
            number: self.tellings,
            page: u32::try_from(page).unwrap_or(u32::MAX),
            is_last: page + 1 == count,
            addresses: pages.next().unwrap_or_default(),
        };
        (0..count).map(page).collect()
    }

    fn set_connected(&mut self, node: NodeId, is_connected: bool) {
        let Some(server) = self.nodes.get_mut(&node) else { return };
        if server.is_connected != is_connected {
            server.is_connected = is_connected;
            self.is_changed = true;
        }
    }
}

impl Manager {
    /// A connection to a node is up, which is at this address.
    pub fn connected(&self, node: NodeId, address: IpAddr) {
        if self.has_member(node) {
            let mut state = self.state();
            state.servers.is_seen_at(node, address);
            state.servers.set_connected(node, true);
        }
    }

    /// It has ended: nobody is sent there any more. Its session goes on until its lease ends.
    pub fn disconnected(&self, node: NodeId) {
        let mut state = self.state();
        state.servers.set_connected(node, false);
        self.make_map(&mut state);
    }

    /// A disk server is there, and gets the key for the permissions of its clients.
    pub(super) fn hello(&self, node: NodeId, hello: Hello) {
        let Some(secret) = self.world.secret() else {
            tracing::error!(%node, "the system has no random bytes for the key of a disk server");
            return;
        };
        // No number may come twice, also if both have forgotten what was before: a permission made with a key that is gone has to be told from a
        // forged one.
        let seconds = u32::try_from(self.world.wall().secs()).unwrap_or(0);
        let id = {
            let mut state = self.state();
            let Some(server) = state.servers.nodes.get_mut(&node) else { return };
            server.heard.connects();
            let before = server.key.as_ref().map_or(0, |key| key.id).max(hello.key);
            let id = before.saturating_add(1).max(seconds);
            server.key = Some(CapabilityKey::new(id, &secret));
            // It does not know who the others are.
            server.is_told = false;
            id
        };
        self.look_at_newest(node, hello.newest);
        let (manager, incarnation) = (self.clients_at.read().clone(), self.namespace.incarnation());
        self.world.send(node, FromManager::Keys(Keys { id, secret, incarnation, manager }));
        self.report(node, hello.stores);
        self.tell_ways();
    }

    /// A store cannot have a content whose number was never handed out: these names are older than it, as those that were brought back from a copy are.
    /// What was made since has no name any more; but its numbers are not handed out again, so that nothing takes its place on the disks.
    fn look_at_newest(&self, node: NodeId, newest: ObjectId) {
        if !self.namespace.ids().is_plausible(newest) {
            return tracing::error!(
                %node, %newest,
                "this disk server reports an object with a number that was never given out: its stores are damaged, \
                 or it is an impostor; the report is ignored"
            );
        }
        if !self.namespace.is_older_than(newest, || count_to_pass_over(self.world.random())) {
            return;
        }
        tracing::error!(
            %node, %newest,
            "the namespace is older than the objects on this disk server's stores, as after a restore from a backup: \
             files that were created since have no names. Their objects stay on the disks, and their numbers are not \
             used again"
        );
        self.state().servers.is_older = true;
    }

    /// Tells those servers who serves which store that have not been told, or not as it is now.
    fn tell_ways(&self) {
        let _one_after_the_other = self.telling_addresses.lock();
        let (pages, nodes) = {
            let mut state = self.state();
            let servers = &mut state.servers;
            let untold = servers.nodes.iter_mut().filter(|(_, server)| server.is_connected && !server.is_told);
            let nodes: Vec<NodeId> = untold
                .map(|(node, server)| {
                    server.is_told = true;
                    *node
                })
                .collect();
            if nodes.is_empty() {
                return;
            }
            servers.tellings += 1;
            (servers.pages_of_ways(), nodes)
        };
        for node in nodes {
            let are_sent = pages.iter().all(|page| self.world.send(node, FromManager::StoreAddresses(page.clone())));
            if !are_sent && let Some(server) = self.state().servers.nodes.get_mut(&node) {
                server.is_told = false;
            }
        }
    }

    /// How a node's stores are; all that are there.
    pub(super) fn report(&self, node: NodeId, reports: Vec<StoreReport>) {
        let mut state = self.state();
        let is_news = state.servers.set_served(node, reports.iter().map(|report| report.store).collect());
        state.servers.is_changed |= is_news;
        if reports.iter().any(|report| !state.servers.stores.contains_key(&report.store)) {
            // It has just registered.
            if let Err(error) = state.servers.look(&self.namespace) {
                tracing::error!(%error, "cannot read which nodes and stores there are");
            }
        }
        for StoreReport { store, capacity, reserve, free, load_permille } in reports {
            // One that is not its own, or has not registered yet.
            let Some(known) = state.servers.stores.get_mut(&store).filter(|known| known.node == node) else { continue };
            let load = Load::from_permille(load_permille);
            if (known.capacity, known.reserve, known.free, known.load) != (capacity, reserve, free, load) {
                let is_first = known.capacity == 0;
                (known.capacity, known.reserve, known.free, known.load) = (capacity, reserve, free, load);
                state.servers.is_changed |= is_first;
                state.servers.has_new_figures = true;
            }
        }
        if state.servers.is_changed {
            self.make_map(&mut state);
        }
    }

    /// Sees who came and went.
    pub(super) fn look_at_servers(&self, now: Time) {
        let mut state = self.state();
        let mut is_news = std::mem::take(&mut state.servers.is_news);
        if now >= state.servers.next_look {
            // Who could not be told is tried again now and then.
            is_news = true;
            state.servers.next_look = now + LOOK;
            state.servers.is_changed |= state.servers.has_new_figures;
            if let Err(error) = state.servers.look(&self.namespace) {
                tracing::error!(%error, "cannot read which nodes and stores there are");
            }
        }
        let shown: BTreeMap<StoreId, StoreState> =
            state.servers.map.stores().iter().map(|info| (info.store, info.state)).collect();
        let changed = state.servers.stores.values().any(|info| {
            let present = state_of(&state, now, info);
            shown.get(&info.store).is_none_or(|shown| *shown != present)
        });
        if changed || state.servers.is_changed {
            self.make_map(&mut state);
        }
        drop(state);
        if is_news {
            self.tell_ways();
        }
    }

    /// Sees at once what was changed in the namespace.
    pub(super) fn look_again(&self) -> Result<(), NsError> {
        {
            let mut state = self.state();
            state.servers.look(&self.namespace)?;
            self.make_map(&mut state);
        }
        self.tell_ways();
        Ok(())
    }

    pub(super) fn make_map(&self, state: &mut State) {
        let now = self.world.now();
        let stores =
            state.servers.stores.values().map(|info| StoreInfo { state: state_of(state, now, info), ..info.clone() });
        match Map::new(stores.collect()) {
            Ok(map) => state.servers.map = Arc::new(map),
            Err(error) => tracing::error!(%error, "the stores of the cluster cannot be used"),
        }
        (state.servers.is_changed, state.servers.has_new_figures) = (false, false);
    }

    /// A node wants a session. What has to be kept of it is durable before it gets one.
    pub(super) fn register(self: &Arc<Self>, request: Register) {
        let keep = self.state().sessions.to_keep(&request);
        let Some(record) = keep else { return self.give_session(&request) };
        let this = Arc::clone(self);
        self.change(Durability::Synced, PutNode { record }, move |result| match result {
            Ok(()) => {
                // Of one that was removed meanwhile as well: it stands in the namespace.
                this.state().sessions.kept(record);
                this.give_session(&request);
            }
            Err(error) => tracing::error!(node = %request.node, %error, "a node gets no session"),
        });
    }

    fn give_session(&self, request: &Register) {
        let now = self.world.now();
        let registered = {
            let mut state = self.state();
            // It may have been removed since it asked.
            let is_member = state.servers.has(&self.namespace, request.node).unwrap_or(false);
            if is_member { state.sessions.register(now, request) } else { None }
        };
        if let Some(registered) = registered {
            tracing::info!(node = %request.node, session = %registered.session, boot_generation = registered.boot_generation.0, "a disk server is there");
            let (terms, wall) = (self.settings.terms, self.capabilities_time(now));
            self.tell(request.node, ToServer::Registered { registered, terms, wall });
        }
    }

    /// Has the group of `stores` made, if there is none.
    pub(super) fn with_group(
        self: &Arc<Self>,
        stores: Vec<StoreId>,
        then: impl FnOnce(Result<GroupId, NsError>) + Send + 'static,
    ) {
        let group = {
            let mut state = self.state();
            if let Some(group) = state.servers.group(&stores) {
                drop(state);
                return then(Ok(group));
            }
            // A batch of new files asks for the same one hundreds of times.
            if let Some(waiting) = state.making.get_mut(&stores) {
                return waiting.push(Box::new(then));
            }
            state.making.insert(stores.clone(), vec![Box::new(then)]);
            state.servers.new_group(&stores)
        };
        let this = Arc::clone(self);
        self.change(Durability::Synced, PutGroup { group: group.clone() }, move |result| {
            let waiting = {
                let mut state = this.state();
                if result.is_ok() {
                    state.servers.group_is_made(&group);
                }
                state.making.remove(&stores)
            };
            for then in waiting.unwrap_or_default() {
                then(result.clone().map(|()| group.group));
            }
        });
    }
}

fn state_of(state: &State, now: Time, info: &StoreInfo) -> StoreState {
    match state.standing(now, info.store).map(|standing| standing.presence) {
        Some(Presence::Online) if info.state == StoreState::Online && info.room() == 0 => StoreState::Full,
        Some(Presence::Online) => info.state,
        Some(Presence::Suspect) => StoreState::Suspect,
        Some(Presence::Away) | None => StoreState::Lost,
    }
}

/// A disk server's host.
struct Host<'a> {
    /// The address that clients are sent to, where that is no name.
    said: Option<IpAddr>,
    /// Where its connection comes from.
    seen: Option<IpAddr>,
    location: &'a Location,
}

/// Where addresses stand: those that clients are sent to, and those that connections come from. Of these a loopback address counts for nothing (it is that
/// of every node on the manager's own machine), nor one that nodes of several hosts come from: behind it is somebody who translates addresses.
fn places_of(hosts: &[Host<'_>]) -> BTreeMap<IpAddr, Location> {
    let mut locations = BTreeMap::new();
    for host in hosts {
        if let Some(address) = host.said {
            locations.entry(address).or_insert_with(|| host.location.clone());
        }
    }
    let mut seen: BTreeMap<IpAddr, Option<&Location>> = BTreeMap::new();
    for host in hosts {
        if let Some(address) = host.seen.filter(|address| !address.is_loopback()) {
            let location = seen.entry(address).or_insert(Some(host.location));
            *location = location.filter(|location| *location == host.location);
        }
    }
    for (address, location) in seen {
        if let Some(location) = location {
            locations.entry(address).or_insert_with(|| location.clone());
        }
    }
    locations
}

fn stores_of(group: &Group) -> Vec<StoreId> {
    group.members.iter().map(|member| member.store).collect()
}

/// `host:port`, the host perhaps in brackets.
pub(super) fn split(address: &str) -> Option<(String, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    Some((host.to_owned(), port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(host: &str) -> Location {
        Location::new("site", "rack", host).unwrap()
    }

    fn at(address: &str) -> IpAddr {
        address.parse().unwrap()
    }

    #[test]
    fn a_client_stands_where_its_hosts_disk_server_does_also_where_that_has_a_name() {
        let (named, numbered, both) = (location("named"), location("numbered"), location("both"));
        let locations = places_of(&[
            Host { said: None, seen: Some(at("10.0.0.7")), location: &named },
            Host { said: Some(at("10.0.0.8")), seen: None, location: &numbered },
            // Clients and nodes come to it by two networks.
            Host { said: Some(at("10.0.0.9")), seen: Some(at("10.1.0.9")), location: &both },
        ]);
        let expected = [("10.0.0.7", &named), ("10.0.0.8", &numbered), ("10.0.0.9", &both), ("10.1.0.9", &both)];
        assert_eq!(locations, expected.map(|(address, location)| (at(address), location.clone())).into());
    }

    #[test]
    fn an_address_that_says_nothing_of_the_host_counts_for_nothing() {
        let (first, second) = (location("first"), location("second"));
        let locations = places_of(&[
            // On the manager's machine.
            Host { said: None, seen: Some(at("127.0.0.1")), location: &first },
            Host { said: None, seen: Some(at("::1")), location: &first },
            // Behind one router.
            Host { said: None, seen: Some(at("192.0.2.1")), location: &first },
            Host { said: None, seen: Some(at("192.0.2.1")), location: &second },
            Host { said: None, seen: Some(at("192.0.2.1")), location: &first },
            // Two of one host agree; and where clients are sent to comes first.
            Host { said: None, seen: Some(at("192.0.2.2")), location: &second },
            Host { said: None, seen: Some(at("192.0.2.2")), location: &second },
            Host { said: Some(at("192.0.2.3")), seen: None, location: &first },
            Host { said: None, seen: Some(at("192.0.2.3")), location: &second },
        ]);
        assert_eq!(locations, [(at("192.0.2.2"), second), (at("192.0.2.3"), first)].into());
    }
}
