//! Passes ticks and messages of disk servers on to the parts of the manager.

use cluster::message::{FromStore, ToManager};
use node::{FromDisk, FromManager, ProxyAnswer, ProxyRequest, SentProxy};
use types::{NodeId, ObjectId, PrincipalId, StoreId};

use super::Manager;
use crate::coordinator::Placing;
use crate::open::{Complete, End};

impl Manager {
    /// Runs the periodic work. Call it several times a second.
    pub fn tick(&self) {
        let now = self.world.now();
        self.coordinator.publish_what_is_left();
        self.coordinator.look_at_fences(now);
        self.coordinator.look_at_servers(now);
        self.forget_removed_nodes();
        self.delegated.tick(now);
        // They replace and remove what a restored namespace may not know to be needed. The others look at the hold for each object.
        if !self.hold.is_held() {
            self.backfill.tick(now);
            self.copies.tick(now);
            self.damages.tick(now);
            self.draining.tick(now);
        }
        self.deletions.tick(now);
        self.graces.tick(now);
        self.summing.tick(now);
        self.open.tick(now);
    }

    fn forget_removed_nodes(&self) {
        let view = self.view.get();
        self.activities.retain(|node| view.servers.has_node(node));
        self.open.forget_removed_nodes();
        self.open_lengths.retain(|node| view.servers.has_node(node));
    }

    /// Handles a message of a disk server. `node` is its proven identity.
    pub fn receive(&self, node: NodeId, message: FromDisk) {
        if !self.coordinator.has_member(node) {
            return;
        }
        match message {
            FromDisk::Hello(hello) => {
                self.activities.connects(node);
                self.coordinator.hello(node, hello);
            }
            FromDisk::Report(reports) => self.coordinator.report(node, reports),
            FromDisk::Leads { asked, led } => self.graces.led(node, &asked, &led),
            FromDisk::Has { store, after, replicas } => self.draining.has(node, store, after, replicas),
            FromDisk::Cluster(message) => self.receive_of_cluster(node, message),
            FromDisk::Activity(said) => {
                self.activities.hear(self.world.now(), node, said);
                self.open.take_activity(node, &said);
            }
            FromDisk::Summed { number, found } => self.summing.summed(node, number, found),
            FromDisk::Attribute(request) => self.attributes.answer(node, request),
            FromDisk::OpenWrite(request) => self.open.answer_about(node, request),
            FromDisk::Claimed { number, found } => self.open.claimed(node, number, found),
            FromDisk::Lengths(lengths) => self.open_lengths.hear(node, &lengths),
            FromDisk::Damage(report) => self.damages.report(node, report),
            FromDisk::Client { number, writer, found } => self.open.client_found(node, number, writer, found),
            FromDisk::Inventory { number, found } => self.inventories.answered(node, number, found),
            FromDisk::TakeProxy(request) => self.tell_delegated(node, request),
        }
    }

    /// Whether a proxy that this principal has delegated could be held now.
    pub fn has_room_for_delegated(&self, principal: PrincipalId) -> bool {
        self.delegated.has_room(principal)
    }

    /// Holds the proxy that a client has delegated, for the disk server `node`, to which this manager sends it with its new object. Returns whether
    /// there was room.
    pub fn hold_delegated(&self, node: NodeId, object: ObjectId, principal: PrincipalId, proxy: SentProxy) -> bool {
        let is_held = self.delegated.hold(self.world.now(), (node, object), principal, proxy);
        if !is_held {
            tracing::warn!(%object, %principal, "too many delegated proxies wait for disk servers, so a client has to wait");
        }
        is_held
    }

    fn tell_delegated(&self, node: NodeId, request: ProxyRequest) {
        let ProxyRequest { number, object } = request;
        let found = self.delegated.take(self.world.now(), node, object);
        self.world.send(node, FromManager::Proxy(ProxyAnswer { number, found }));
    }

    fn receive_of_cluster(&self, node: NodeId, message: ToManager) {
        let now = self.world.now();
        match message {
            ToManager::Register(request) if request.node == node => self.coordinator.register(request),
            ToManager::Renew { node: of, session, number } if of == node => {
                self.coordinator.renew(now, node, session, number);
            }
            ToManager::OfStore { store, message } if self.view.get().node_of(store) == Some(node) => {
                self.receive_of_store(node, store, message);
            }
            // The node speaks for another one.
            ToManager::Register(_) | ToManager::Renew { .. } | ToManager::OfStore { .. } => {}
        }
    }

    fn receive_of_store(&self, node: NodeId, store: StoreId, message: FromStore) {
        match message {
            FromStore::Place { session, replica, writer, in_sync, is_ending, request } => {
                let now = self.world.now();
                if self.view.get().sessions.session(now, node) == Some(session) {
                    let hands_over = in_sync.iter().all(|one| one.store != store);
                    let placing = Placing { node, store, replica, writer, in_sync, is_ending, request };
                    if hands_over { self.open.hand_over(&placing) } else { self.coordinator.place(placing) }
                }
            }
            FromStore::Commit { replica, group, writer, whole, holders, mtime, by, request } => {
                let end = End { node, store, replica, writer, holders, request };
                self.open.commit(end, Complete { group, whole, mtime, by });
            }
            FromStore::Interrupt { replica, writer, kept_len, holders, request } => {
                self.open.interrupt(End { node, store, replica, writer, holders, request }, kept_len);
            }
            FromStore::Fenced(fence) => {
                if (fence.node, fence.store) == (node, store) {
                    self.coordinator.fenced(&fence);
                }
            }
            FromStore::Copied { session, copy, result } => self.copies.ended((node, store), session, copy, result),
            FromStore::Deleted { replicas } => self.deletions.deleted(store, &replicas),
        }
    }
}
