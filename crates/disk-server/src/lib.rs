//! A disk server: its session with the manager, its stores with their state machines, and the work on their disks. It knows no namespace and no
//! client protocol.
//!
//! A machine is stepped under the lock of its store. Its messages are passed to the connections under the same lock, so they leave in the order of
//! the decisions. Answers and disk work follow after the lock is released.

mod activity;
mod addresses;
mod attributes;
mod blocking;
mod client_writes;
mod completing;
mod damage;
mod delegated;
mod disk_node;
mod fullness;
#[cfg(any(test, feature = "planted"))]
mod inspect;
mod inventory;
mod looks;
mod manager_choice;
mod open_writes;
mod questions;
mod replica;
mod replicated_writer;
mod store_shell;
mod terms;
mod verified;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use cluster::message::{BetweenStores, FromStore, REPLICAS_MAX, ToManager, ToServer, ToStore};
use cluster::server::{Input, Member, View};
use cluster::{ProcessEpoch, Time};
use node::{
    BulkBytes, BulkPool, EndWriter, FoundProxy, FromDisk, FromManager, Hello, MANAGERS_MAX, ManagerAddress,
    PeerMessage, StoreAddressPage, StoreReport,
};
use parking_lot::{Mutex, RwLock};
use store::Store;
use types::capability::{CapabilityKey, CapabilityKeys};
use types::{BootId, Incarnation, NodeId, NsPath, ObjectId, ReplicaId, SessionId, StoreId, WriterToken};

pub use activity::{DiskFigures, FrontEndFigures, FrontEndProbe, StoreFigures, Summer};
use addresses::StoreAddresses;
pub use attributes::{MANAGER_ANSWERS_WITHIN, Unanswered};
pub use blocking::PendingWrite;
pub use client_writes::ClientWrites;
pub use cluster::message::ClosedBy;
pub use damage::{DAMAGED_MAX, TooManyDamaged};
pub use disk_node::{DiskNode, OnManagers};
pub use manager_choice::{Heard, ManagerChoice};
pub use open_writes::NotAgreed;
use questions::Questions;
use replica::Change;
pub use replicated_writer::{DiskServerError, Permit, ReplicatedWriter};
pub use store_shell::StoreAt;
use store_shell::StoreShell;
pub use terms::DiskTerms;
#[cfg(any(test, feature = "planted"))]
pub use terms::PlantedBug;
pub use verified::{ReadGrant, StripedGrant, VerifiedCapability, WriteGrant};

/// What a disk server is handed from outside: a clock, connections to other nodes, and threads to do disk work in.
///
/// The shell has no clock, thread or connection of its own. Nothing in it waits for another job or for a message: later answers come as completions. Only
/// the calls of `blocking.rs` and `attributes.rs` wait, for front ends that give each request a thread. No call of this trait may wait.
pub trait DiskWorld: Send + Sync {
    /// The server's own clock.
    fn now(&self) -> Time;
    /// Sends a message to the manager. Nobody reports whether it arrives.
    fn to_manager(&self, message: FromDisk);
    /// Sends a message to another disk server, with bytes behind it. Nobody reports whether it arrives.
    fn to_node(&self, node: NodeId, message: PeerMessage, bulk: Option<Arc<BulkBytes>>);
    /// Keeps a connection with this disk server.
    fn keep(&self, node: NodeId, address: &str);
    /// Closes any connection with this node and keeps none: it is no longer a disk server of this cluster.
    fn forget(&self, node: NodeId);
    /// Keeps connections with the managers at these addresses. The last call counts.
    fn keep_managers(&self, _managers: Vec<ManagerAddress>) {}
    /// Closes all connections with other disk servers. Messages in transit on them must not arrive any more.
    fn cut_others(&self);
    /// Runs `job` later, in a thread that may wait for disks. Jobs may run side by side and in any order.
    fn run(&self, job: Box<dyn FnOnce() + Send>);
    /// Whether a job that works on a replica leaves the rest to another job. The server asks after each piece of work. A simulation answers yes at
    /// times. Then messages arrive between two pieces of work, as they do when jobs run side by side.
    fn pauses(&self) -> bool {
        false
    }
    /// Reports an event on a replica that monitoring or a test counts.
    fn notice(&self, _store: StoreId, _replica: ReplicaId, _notice: Notice) {}
}

/// See [`DiskWorld::notice`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notice {
    /// The store is about to delete the replica or to start it again as empty.
    Erased,
    /// This many stores did not answer, and are no longer in-sync replicas of the open write.
    LeftOut(usize),
    /// The copy on this store differs from its primary's, and does not count.
    Differs(StoreId),
    /// The writer went away, and the server ended the write because the manager asked for it.
    Ended,
}

/// The settings of a disk server.
#[derive(Clone, Debug)]
pub struct DiskSettings {
    /// Its node number.
    pub node: NodeId,
    /// This run of its process.
    pub process_epoch: ProcessEpoch,
    /// Its boot generation. It changes as soon as any of its stores may have lost unsynced bytes.
    pub boot: BootId,
}

/// What the server knows of the cluster beyond its own stores.
#[derive(Default)]
struct ClusterKnowledge {
    addresses: StoreAddresses,
    incarnation: Incarnation,
}

/// A disk server. See the module.
pub struct DiskServer {
    settings: DiskSettings,
    #[cfg(any(test, feature = "planted"))]
    planted: Option<PlantedBug>,
    /// When it started.
    began: Time,
    world: Arc<dyn DiskWorld>,
    member: Mutex<Member>,
    stores: BTreeMap<StoreId, Arc<StoreShell>>,
    keys: RwLock<Option<CapabilityKeys>>,
    others: RwLock<ClusterKnowledge>,
    /// The manager's address for clients, once the manager has sent it.
    manager: RwLock<Option<(String, u16)>>,
    /// The addresses of all managers for clients, as a manager has told them last.
    managers: RwLock<Vec<(String, u16)>>,
    arrivals: RwLock<Arrivals>,
    busy: activity::Busy,
    looks: looks::Looks,
    client_writes: client_writes::ClientWritesOfService,
    questions: attributes::AttributeQuestions,
    proxy_questions: Questions<Option<FoundProxy>>,
    open_write_requests: Questions<open_writes::Agreed>,
    /// Buffers for bytes from and to other servers.
    bulk: BulkPool,
}

/// Tells which connections of other disk servers are valid: those made in this server's present session.
#[derive(Default)]
struct Arrivals {
    /// Rises with each session.
    generation: u64,
    /// The session number in which each node connected.
    of: BTreeMap<NodeId, u64>,
}

impl fmt::Debug for DiskServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DiskServer({})", self.settings.node)
    }
}

impl DiskServer {
    /// Makes a disk server with these stores.
    #[must_use]
    pub fn new(settings: DiskSettings, stores: Vec<StoreAt>, world: Arc<dyn DiskWorld>) -> Arc<Self> {
        Self::with_terms(settings, DiskTerms::default(), stores, world)
    }

    /// The same, with other terms than the default.
    #[must_use]
    pub fn with_terms(
        settings: DiskSettings,
        terms: DiskTerms,
        stores: Vec<StoreAt>,
        world: Arc<dyn DiskWorld>,
    ) -> Arc<Self> {
        let member = Member::new(settings.node, settings.process_epoch, settings.boot, terms.leases);
        let shell = |at: StoreAt| (at.store_id, Arc::new(StoreShell::new(at, terms.part)));
        let stores = stores.into_iter().map(shell).collect();
        Arc::new(Self {
            #[cfg(any(test, feature = "planted"))]
            planted: terms.planted,
            member: Mutex::new(member),
            stores,
            keys: RwLock::new(None),
            others: RwLock::default(),
            manager: RwLock::new(None),
            managers: RwLock::default(),
            arrivals: RwLock::default(),
            busy: activity::Busy::default(),
            looks: looks::Looks::default(),
            client_writes: client_writes::ClientWritesOfService::default(),
            questions: attributes::AttributeQuestions::new(settings.process_epoch.0),
            proxy_questions: Questions::new(settings.process_epoch.0, delegated::WAITING_MAX),
            open_write_requests: Questions::new(settings.process_epoch.0, open_writes::WAITING_MAX),
            bulk: BulkPool::default(),
            began: world.now(),
            settings,
            world,
        })
    }

    /// Its stores.
    #[must_use]
    pub fn stores(&self) -> Vec<Arc<Store>> {
        self.stores.values().map(|shell| Arc::clone(&shell.at.store)).collect()
    }

    /// The manager's address for clients. `None` until the manager has sent it.
    #[must_use]
    pub fn manager(&self) -> Option<(String, u16)> {
        self.manager.read().clone()
    }

    /// The manager that clients are sent to: the active one. While this server has no lease, that one may be gone, and a client would try
    /// it for minutes: another manager, if one is known, asks clients to wait until one is active, and then sends them there. Each second it is another one
    /// of them: nobody knows here which of them are there.
    #[must_use]
    pub fn manager_for_clients(&self) -> Option<(String, u16)> {
        let managers = self.managers();
        let (now, others) = (self.world.now(), managers.len().saturating_sub(1) as u64);
        if others == 0 || self.view(now).lease.is_valid {
            return managers.into_iter().next();
        }
        let turn = usize::try_from(now.0.as_secs() % others).unwrap_or_default();
        managers.into_iter().nth(1 + turn)
    }

    /// The addresses of managers for clients: that of the active one first, and each once.
    #[must_use]
    pub fn managers(&self) -> Vec<(String, u16)> {
        let mut managers: Vec<(String, u16)> = self.manager().into_iter().collect();
        for other in &*self.managers.read() {
            if !managers.contains(other) {
                managers.push(other.clone());
            }
        }
        managers
    }

    fn view(&self, now: Time) -> View {
        self.member.lock().view(now)
    }

    fn session(&self) -> Option<SessionId> {
        self.member.lock().session()
    }

    /// A connection with the manager is up. Sends the greeting.
    pub fn manager_connected(&self) {
        let key = self.keys.read().as_ref().map_or(0, |keys| keys.newest().id);
        let hello = Hello { key, stores: self.reports(), newest: self.newest() };
        self.world.to_manager(FromDisk::Hello(hello));
    }

    fn newest(&self) -> ObjectId {
        let newest = self.stores.values().filter_map(|shell| {
            let found = shell.at.store.replicas_before(None, 1);
            let found = found.inspect_err(|error| tracing::error!(%error, "cannot read the objects of a store"));
            found.ok()?.first().map(|replica| replica.object)
        });
        newest.max().unwrap_or(ObjectId(0))
    }

    fn reports(&self) -> Vec<StoreReport> {
        let load = self.mean_load();
        self.stores.values().map(|shell| shell.report(load)).collect()
    }

    /// Reports the state of the stores and the activity to the manager. Call it about once a second.
    pub fn report(&self) {
        self.world.to_manager(FromDisk::Report(self.reports()));
        if let Some(activity) = self.activity(self.world.now()) {
            self.world.to_manager(FromDisk::Activity(activity));
        }
        self.report_lengths();
    }

    /// Ends the reading of whole replicas, before the server stops.
    pub(crate) fn stop_looks(&self) {
        self.looks.stop();
    }

    /// Runs the periodic work. Call it several times a second.
    pub fn tick(self: &Arc<Self>) {
        let now = self.world.now();
        let message = self.member.lock().tick(now);
        if let Some(message) = message {
            self.world.to_manager(FromDisk::Cluster(message));
        }
        self.give_up_open_write_requests(now);
        self.give_up_proxy_questions(now);
        self.look_how_busy();
        self.report_damage(now);
        self.tick_stores();
    }

    fn tick_stores(self: &Arc<Self>) {
        for shell in self.stores.values() {
            self.step(shell, Input::Tick, None);
            shell.forget_idle();
        }
    }

    /// Handles a message of the manager.
    pub fn receive(self: &Arc<Self>, message: FromManager) {
        match message {
            FromManager::Keys(keys) => {
                let key = CapabilityKey::new(keys.id, &keys.secret);
                match &mut *self.keys.write() {
                    Some(known) => known.rotate(key),
                    none => *none = Some(CapabilityKeys::new(key)),
                }
                self.others.write().incarnation = keys.incarnation;
                *self.manager.write() = keys.manager;
            }
            FromManager::StoreAddresses(page) => self.take_addresses(page),
            FromManager::Managers(mut managers) => {
                managers.truncate(MANAGERS_MAX);
                // The manager that says this is one of them.
                if !managers.is_empty() {
                    *self.managers.write() = managers.iter().filter_map(|one| one.clients_at.clone()).collect();
                    self.world.keep_managers(managers);
                }
            }
            FromManager::WhoLeads { store, writers } => {
                let Some(shell) = self.stores.get(&store) else { return };
                let led = {
                    let machine = shell.machine.lock();
                    let leads = |writer: &WriterToken| {
                        machine.leads(ReplicaId::first(writer.object)).is_some_and(|epoch| epoch.0 == writer.epoch)
                    };
                    writers.iter().copied().filter(leads).collect()
                };
                self.world.to_manager(FromDisk::Leads { asked: writers, led });
            }
            FromManager::WhatHas { store, after } => {
                let Some(shell) = self.stores.get(&store).cloned() else { return };
                let this = Arc::clone(self);
                self.world.run(Box::new(move || match shell.at.store.replicas(after, REPLICAS_MAX) {
                    Ok(found) => {
                        let replicas = found.into_iter().map(|(replica, _)| replica).collect();
                        this.world.to_manager(FromDisk::Has { store, after, replicas });
                    }
                    Err(error) => tracing::warn!(store = %store, %error, "cannot say what is on it"),
                }));
            }
            FromManager::End(end) => {
                let this = Arc::clone(self);
                self.world.run(Box::new(move || this.end_writer(&end)));
            }
            FromManager::Sum(request) => self.sum(request),
            FromManager::Attribute(answer) => self.attribute_answered(answer),
            FromManager::OpenWrite(answer) => self.open_write_answered(answer),
            FromManager::Proxy(answer) => self.proxy_answered(answer),
            FromManager::Claim(claim) => self.claim(claim),
            FromManager::AskClient { number, writer } => self.ask_client(number, writer),
            FromManager::Inventory { number, store, request } => self.inventory(number, store, request),
            FromManager::Cluster(ToServer::Registered { registered, terms, wall }) => {
                if self.session() == Some(registered.session) {
                    self.member.lock().registered(&registered, terms, wall);
                } else {
                    #[cfg(any(test, feature = "planted"))]
                    if self.has(PlantedBug::OldSessionHeard) {
                        self.member.lock().registered(&registered, terms, wall);
                        self.report();
                        return self.tick_stores();
                    }
                    // Messages of other servers from the previous session must not arrive in this one.
                    let mut arrivals = self.arrivals.write();
                    arrivals.generation += 1;
                    self.world.cut_others();
                    self.member.lock().registered(&registered, terms, wall);
                    drop(arrivals);
                    tracing::info!(session = %registered.session, boot_generation = registered.boot_generation.0, "in session with the manager");
                    // At once: a damaged replica must not be the only one of a change.
                    self.stores.values().for_each(|shell| shell.damage.report_soon());
                    self.report_damage(self.world.now());
                    self.report();
                    self.tick_stores();
                }
            }
            FromManager::Cluster(ToServer::Renewed { session, number, wall }) => {
                self.member.lock().renewed(session, number, wall);
            }
            FromManager::Cluster(ToServer::NoSession { session }) => {
                self.member.lock().no_session(session);
                self.tick_stores();
            }
            FromManager::Cluster(ToServer::ToStore { store, message }) => {
                match (self.stores.get(&store), message) {
                    (Some(shell), message) => self.step(shell, Input::OfManager(message), None),
                    // The disk was taken out, so no store answers for it here.
                    (None, ToStore::Fence(fence))
                        if fence.session.is_none_or(|session| self.session() == Some(session)) =>
                    {
                        self.to_manager(store, FromStore::Fenced(fence));
                    }
                    (None, _) => {}
                }
            }
        }
    }

    /// Takes over a page of store addresses.
    fn take_addresses(&self, page: StoreAddressPage) {
        let Some(gone) = self.others.write().addresses.take(page) else { return };
        for node in gone {
            self.arrivals.write().of.remove(&node);
            self.world.forget(node);
        }
        let others = self.others.read();
        for (node, nodes_at) in others.addresses.nodes().filter(|(node, _)| **node != self.settings.node) {
            self.world.keep(*node, nodes_at);
        }
    }

    /// Whether the manager has named this node as a disk server of the cluster.
    #[must_use]
    pub fn knows(&self, node: NodeId) -> bool {
        self.others.read().addresses.knows(node)
    }

    /// A connection with another disk server is up.
    pub fn node_connected(&self, node: NodeId) {
        {
            let mut arrivals = self.arrivals.write();
            // The manager may have removed the node since it was admitted.
            if self.knows(node) {
                let generation = arrivals.generation;
                arrivals.of.insert(node, generation);
                return;
            }
        }
        self.world.forget(node);
    }

    /// The number of this server's session, for [`DiskServer::receive_own`].
    pub fn generation(&self) -> u64 {
        self.arrivals.read_recursive().generation
    }

    /// Handles a message between two stores of this server. `generation` is the session in which it was sent.
    pub fn receive_own(self: &Arc<Self>, generation: u64, between: PeerMessage, bulk: Option<Arc<BulkBytes>>) {
        let arrivals = self.arrivals.read();
        if arrivals.generation == generation {
            self.receive_between(self.settings.node, between, bulk);
        }
    }

    /// A buffer for `len` bytes from another disk server.
    #[must_use]
    pub fn room_for(&self, len: usize) -> BulkBytes {
        self.bulk.take(len)
    }

    /// Handles a message of another disk server. `bulk` is the bytes behind it.
    pub fn receive_of_node(self: &Arc<Self>, node: NodeId, between: PeerMessage, bulk: Option<Arc<BulkBytes>>) {
        let arrivals = self.arrivals.read();
        if arrivals.of.get(&node) == Some(&arrivals.generation) {
            self.receive_between(node, between, bulk);
        }
    }

    fn receive_between(self: &Arc<Self>, node: NodeId, between: PeerMessage, bulk: Option<Arc<BulkBytes>>) {
        let PeerMessage { to, message, change, about } = between;
        let Some(shell) = self.stores.get(&to) else { return };
        let from = match &message {
            BetweenStores::ToReplica { from, .. } | BetweenStores::FromReplica { from, .. } => Some(*from),
            BetweenStores::Fetch { to, .. } => Some(*to),
            BetweenStores::Fetched { .. } => None,
        };
        // A node may speak only for stores that it serves.
        if from.is_some_and(|from| self.others.read().addresses.node_of(from) != Some(node)) {
            tracing::debug!(%node, ?from, "a node reports about a store that it does not serve, as far as this node knows");
            return;
        }
        if let (Some(about), BetweenStores::ToReplica { replica, .. }) = (about, &message) {
            shell.replica(*replica).set_about(about);
        }
        let change = change.and_then(|head| Change::received(head, bulk));
        self.step(shell, Input::OfStore(message, change), None);
    }

    /// Ends an open write whose client does not return. May wait for the disk.
    fn end_writer(self: &Arc<Self>, end: &EndWriter) {
        let Ok(path) = NsPath::parse(&end.path) else { return };
        match self.verify(end.capability.as_bytes(), &path, None) {
            Ok(VerifiedCapability::Write(grant)) => {
                let (this, expected_len) = (Arc::clone(self), end.expected_len);
                grant.attach_to_end(&end.path, expected_len, move |replicated| match replicated {
                    Ok(replicated) => this.end_replicated(&path, expected_len, &replicated),
                    Err(error) => not_ended(&path, &error),
                });
            }
            Ok(VerifiedCapability::Read(_) | VerifiedCapability::Striped(_)) => {}
            Err(error) => not_ended(&path, &error),
        }
    }

    /// Closes the object as complete if all announced bytes are there.
    fn end_replicated(self: &Arc<Self>, path: &NsPath, expected_len: Option<u64>, replicated: &ReplicatedWriter) {
        let is_whole = replicated.is_new() && !replicated.gaps() && expected_len == Some(replicated.len());
        let (this, store, replica, path) = (Arc::clone(self), replicated.store(), replicated.replica(), path.clone());
        let told = move |how: &'static str, result: Result<(), DiskServerError>| match result {
            Ok(()) => {
                tracing::info!(%path, "{how}: its writer went away");
                this.world.notice(store, replica, Notice::Ended);
            }
            Err(error) => not_ended(&path, &error),
        };
        if is_whole {
            replicated.close(None, ClosedBy::GraceEnd, move |result| {
                told("completed, as all announced bytes are here", result)
            });
        } else {
            replicated.interrupt(move |result| told("interrupted", result.map(drop)));
        }
    }

    fn to_manager(&self, store: StoreId, message: FromStore) {
        self.world.to_manager(FromDisk::Cluster(ToManager::OfStore { store, message }));
    }

    fn to_store(&self, to: StoreId, between: PeerMessage, bulk: Option<Arc<BulkBytes>>) {
        let node = self.others.read().addresses.node_of(to);
        match node {
            // Two stores of one server also exchange messages this way.
            Some(node) => self.world.to_node(node, between, bulk),
            None => tracing::debug!(store = %to, "it is not known which node serves a store"),
        }
    }

    fn incarnation(&self) -> Incarnation {
        self.others.read().incarnation
    }
}

/// The manager tries again.
fn not_ended(path: &NsPath, error: &DiskServerError) {
    tracing::info!(%path, %error, "an open write cannot be ended here");
}
