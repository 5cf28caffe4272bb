//! Disk servers come and go: connections, greetings, sessions, store reports, and the addresses that servers are told.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use cluster::message::ToServer;
use cluster::placement::{Map, StoreInfo, StoreState};
use cluster::{Presence, Register, Time};
use namespace::{Durability, MemberEntry, NsError, PutNode, StoreEntry, count_to_pass_over};
use node::{FromManager, Hello, StoreReport};
use types::{NodeId, ObjectId, SessionId, StoreId};

use super::{ClusterView, Coordinator, CoordinatorState};

/// How often the manager reads the lists of nodes and stores.
const LOOK: Duration = Duration::from_secs(1);

impl CoordinatorState {
    /// Assigns a number to a read of the lists that is about to start.
    fn begin_look(&mut self) -> u64 {
        self.looks.0 += 1;
        self.looks.0
    }

    /// Takes over the result of a read of the lists. Reads run without the lock, so two of them may end in the opposite order. The result of an
    /// overtaken read is dropped: the newer read started later, so it saw everything that existed then. That is enough for a caller that waits for
    /// the older read.
    fn end_look(&mut self, number: u64, members: Vec<MemberEntry>, stores: Vec<StoreEntry>) {
        if number < self.looks.1 {
            return;
        }
        self.looks.1 = number;
        let is_changed = self.servers_mut().take(members, stores);
        self.is_changed |= is_changed;
        self.wants_telling |= is_changed;
        if is_changed {
            self.told.clear();
        }
        let Self { told, view, .. } = self;
        told.retain(|node| view.servers.has_node(*node));
    }

    /// Whether a node is a member of the cluster and is not just being removed.
    fn is_member(&self, node: NodeId) -> bool {
        self.servers.has_node(node) && !self.being_removed.contains(&node) && !self.cut_off.contains(&node)
    }

    pub(super) fn make_map(&mut self, now: Time) {
        let state_of = |info: &StoreInfo| StoreInfo { state: state_of(self, now, info), ..info.clone() };
        match Map::new(self.servers.stores().map(state_of).collect()) {
            Ok(map) => self.servers_mut().map = Arc::new(map),
            Err(error) => tracing::error!(%error, "the stores of the cluster cannot be used"),
        }
        (self.is_changed, self.has_new_figures) = (false, false);
    }

    /// Records that a member's connection is up or has ended.
    fn set_connected(&mut self, node: NodeId, is_connected: bool) {
        if self.servers.has_node(node) && self.servers.is_connected(node) != is_connected {
            self.servers_mut().set_connected(node, is_connected);
            self.is_changed = true;
        }
    }
}

impl Coordinator {
    /// A node at this address has connected.
    pub(crate) fn connected(&self, node: NodeId, address: IpAddr) {
        if self.has_member(node) {
            let mut state = self.lock();
            state.servers_mut().set_seen_at(node, address);
            state.set_connected(node, true);
        }
    }

    /// A node's connection has ended. The manager sends no clients there any more. The node's session goes on until its lease ends.
    pub(crate) fn disconnected(&self, node: NodeId) {
        let now = self.world.now();
        let mut state = self.lock();
        state.set_connected(node, false);
        state.make_map(now);
    }

    /// A disk server has connected. It gets the key that signs its clients' capabilities.
    pub(crate) fn hello(&self, node: NodeId, hello: Hello) {
        let Some(secret) = self.world.secret() else {
            tracing::error!(%node, "the system has no random bytes for the key of a disk server");
            return;
        };
        let now = self.world.now();
        let seconds = u32::try_from(self.world.wall().secs()).unwrap_or(0);
        let id = {
            let mut state = self.lock();
            let Some(server) = state.servers_mut().nodes.get_mut(&node) else { return };
            let id = server.keys.begin(now, &secret, hello.key, seconds);
            // The server does not know the addresses of the others.
            state.told.remove(&node);
            id
        };
        self.look_at_newest(node, hello.newest);
        self.send_key(node, id, secret);
        self.report(node, hello.stores);
        self.tell_ways();
    }

    /// Compares a server's highest object number with the namespace. A store cannot have an object whose number was never assigned. If it has one,
    /// the namespace is older than the store, as after a restore from a backup. Objects made since the backup have no name any more. The manager does
    /// not assign their numbers again, so nothing overwrites them on the disks.
    fn look_at_newest(&self, node: NodeId, newest: ObjectId) {
        if !self.names.is_plausible(newest) {
            return tracing::error!(
                %node, %newest,
                "this disk server reports an object with a number that was never given out: its stores are damaged, \
                 or it is an impostor; the report is ignored"
            );
        }
        if !self.names.is_older_than(newest, || count_to_pass_over(self.world.random())) {
            return;
        }
        tracing::error!(
            %node, %newest,
            "the namespace is older than the objects on this disk server's stores, as after a restore from a backup: \
             files that were created since have no names. Their objects stay on the disks, and their numbers are not \
             used again"
        );
        self.lock().is_older = true;
    }

    /// Sends the addresses of managers and stores to servers that do not have the present ones.
    fn tell_ways(&self) {
        let _one_after_the_other = self.telling_addresses.lock();
        let (managers, pages, nodes) = {
            let mut state = self.lock();
            let untold = |node: &NodeId| state.servers.is_connected(*node) && !state.told.contains(node);
            let nodes: Vec<NodeId> = state.servers.nodes.keys().copied().filter(untold).collect();
            if nodes.is_empty() {
                return;
            }
            state.told.extend(nodes.iter().copied());
            state.tellings += 1;
            let managers = state.servers.managers().to_vec();
            (managers, state.servers.pages_of_ways(state.tellings), nodes)
        };
        for node in nodes {
            // A manager that does not know its own address yet has nothing to say.
            let are_sent = (managers.is_empty() || self.world.send(node, FromManager::Managers(managers.clone())))
                && pages.iter().all(|page| self.world.send(node, FromManager::StoreAddresses(page.clone())));
            if !are_sent {
                self.lock().told.remove(&node);
            }
        }
    }

    /// A node reports on all its stores that are online.
    pub(crate) fn report(&self, node: NodeId, reports: Vec<StoreReport>) {
        let view = self.view();
        if reports.iter().any(|report| !view.servers.has_store(report.store)) {
            // The node may have just registered.
            self.look_or_say();
        }
        let (now, served) = (self.world.now(), reports.iter().map(|report| report.store).collect::<BTreeSet<_>>());
        let mut state = self.lock();
        if state.servers.would_serve(node, &served) {
            state.servers_mut().set_served(node, served);
            state.is_changed = true;
        }
        for report in reports {
            let Some((is_new, is_urgent)) = state.figures_mut().set_figures(node, &report) else { continue };
            state.is_changed |= is_urgent;
            state.has_new_figures |= is_new;
        }
        if state.is_changed {
            state.make_map(now);
        }
    }

    /// Reads which nodes and stores exist.
    fn look(&self) -> Result<(), NsError> {
        let (number, look) = (self.lock().begin_look(), self.others.begin_look());
        let (members, stores) = self.names.read(|read| Ok((namespace::members(read)?, namespace::stores(read)?)))?;
        self.others.end_look(look, self.own, &members);
        self.lock().end_look(number, members, stores);
        Ok(())
    }

    fn look_or_say(&self) {
        if let Err(error) = self.look() {
            tracing::error!(%error, "cannot read which nodes and stores there are");
        }
    }

    /// Notices which servers came and went.
    pub(crate) fn look_at_servers(self: &Arc<Self>, now: Time) {
        let (wants_telling, is_due) = {
            let mut state = self.lock();
            let is_due = now >= state.next_look;
            if is_due {
                state.next_look = now + LOOK;
                state.is_changed |= state.has_new_figures;
            }
            (std::mem::take(&mut state.wants_telling), is_due)
        };
        if is_due {
            self.look_or_say();
            self.decide_default_policy();
            self.rotate_keys(now);
            self.remove_cut_off(now);
        }
        {
            let mut state = self.lock();
            let shown: BTreeMap<StoreId, StoreState> =
                state.servers.map().stores().iter().map(|info| (info.store, info.state)).collect();
            let changed = state.servers.stores().any(|info| {
                let present = state_of(&state, now, info);
                shown.get(&info.store).is_none_or(|shown| *shown != present)
            });
            if changed || state.is_changed {
                state.make_map(now);
            }
        }
        // Servers that could not be reached are tried again from time to time.
        if wants_telling || is_due {
            self.tell_ways();
        }
    }

    /// Applies changes of the namespace at once.
    pub(super) fn look_again(&self) -> Result<(), NsError> {
        self.look()?;
        let now = self.world.now();
        self.lock().make_map(now);
        self.tell_ways();
        Ok(())
    }

    /// Whether a node is a member of the cluster and is not just being removed.
    pub(super) fn is_member(&self, node: NodeId) -> Result<bool, NsError> {
        // The node may have just joined.
        if !self.view().servers.has_node(node) {
            self.look()?;
        }
        Ok(self.lock().is_member(node))
    }

    /// A node asks for a session. The record of the session is durable before the node gets it. Without a lease of its own the manager says nothing: the
    /// node asks again, here or at the manager that has taken over.
    pub(crate) fn register(self: &Arc<Self>, request: Register) {
        if !self.may_grant() {
            return;
        }
        let keep = self.lock().sessions_mut().to_keep(&request);
        let Some(record) = keep else { return self.give_session(&request) };
        let this = Arc::clone(self);
        self.names.change_as_manager(self.world.wall(), Durability::Synced, PutNode { record }, move |result| {
            match result {
                Ok(()) => {
                    // The namespace has the record, so it is kept even if the node was removed meanwhile.
                    this.lock().sessions_mut().kept(record);
                    this.give_session(&request);
                }
                Err(error) => tracing::error!(node = %request.node, %error, "a node gets no session"),
            }
        });
    }

    fn give_session(&self, request: &Register) {
        let now = self.world.now();
        // The node may have just joined, or been removed since it asked. The lock under which it gets its session also covers this check.
        if !self.is_member(request.node).unwrap_or(false) {
            return;
        }
        let registered = {
            let mut state = self.lock();
            // The record may have taken long.
            if self.may_grant() && state.is_member(request.node) {
                state.sessions_mut().register(now, request)
            } else {
                None
            }
        };
        if let Some(registered) = registered {
            tracing::info!(node = %request.node, session = %registered.session, boot_generation = registered.boot_generation.0, "a disk server is there");
            let (terms, wall) = (self.terms, self.view().clock.time(now));
            self.world.tell(request.node, ToServer::Registered { registered, terms, wall });
        }
    }

    /// A node extends its session. Without a lease of its own the manager says nothing: the node's session may go on when the lease is back.
    pub(crate) fn renew(&self, now: Time, node: NodeId, session: SessionId, number: u64) {
        if !self.may_grant() {
            return;
        }
        let is_good = self.lock().renew(now, node, session);
        let wall = self.view().clock.time(now);
        self.world.tell(
            node,
            match is_good {
                true => ToServer::Renewed { session, number, wall },
                false => ToServer::NoSession { session },
            },
        );
    }
}

fn state_of(view: &ClusterView, now: Time, info: &StoreInfo) -> StoreState {
    let presence = view.standing(now, info.store).map(|standing| standing.presence);
    if info.state == StoreState::Removed {
        let is_back = matches!(presence, Some(Presence::Online | Presence::Suspect));
        return if is_back { StoreState::Returned } else { StoreState::Removed };
    }
    match presence {
        Some(Presence::Online) if info.state == StoreState::Online && info.room() == 0 => StoreState::Full,
        Some(Presence::Online) => info.state,
        Some(Presence::Suspect) => StoreState::Suspect,
        Some(Presence::Away) | None => StoreState::Offline,
    }
}
