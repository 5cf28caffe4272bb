//! A disk server: its session with the manager, its stores with their machines, and what is done on their disks. It knows no names and no users' protocol.
//!
//! A machine is stepped under the lock of its store; what it wants to be told to others is handed to the connections under that lock, so that it goes
//! out in the order in which it was decided; answers and disk work come after it.

mod activity;
mod addresses;
mod blocking;
mod completing;
mod disk_node;
#[cfg(any(test, feature = "planted"))]
mod inspect;
mod placed;
mod replica;
mod store_shell;
mod terms;
mod verified;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use cluster::message::{BetweenStores, FromStore, REPLICAS_MAX, ToManager, ToServer, ToStore};
use cluster::server::{Input, Member, View};
use cluster::{ProcessEpoch, Time};
use node::{BulkBytes, BulkPool, EndWriter, FromDisk, FromManager, Hello, PeerMessage, StoreAddressPage, StoreReport};
use parking_lot::{Mutex, RwLock};
use store::Store;
use types::capability::{CapabilityKey, CapabilityKeys};
use types::{BootId, Incarnation, NodeId, NsPath, ObjectId, ReplicaId, SessionId, StoreId, WriterToken};

pub use activity::{DiskFigures, FrontEndFigures, FrontEndProbe, StoreFigures, Summer};
use addresses::StoreAddresses;
pub use blocking::PendingWrite;
pub use disk_node::DiskNode;
pub use placed::{Permit, Placed, PlacedError};
use replica::Change;
pub use store_shell::StoreAt;
use store_shell::StoreShell;
pub use terms::DiskTerms;
#[cfg(any(test, feature = "planted"))]
pub use terms::Planted;
pub use verified::{ReadGrant, StripedGrant, VerifiedCapability, WriteGrant};

/// What a disk server is handed from outside: a clock, connections to other nodes, and threads to do disk work in.
///
/// The shell has no clock, thread or connection of its own. Nothing in it waits for another job or for a message: later answers come as completions. Only
/// the calls of `blocking.rs` wait, for front ends that give each request a thread. No call of this trait may wait.
pub trait DiskWorld: Send + Sync {
    /// The server's own clock.
    fn now(&self) -> Time;
    /// Tells the manager something; whether it arrives is not told.
    fn to_manager(&self, message: FromDisk);
    /// Tells another disk server something, with bytes behind it; whether it arrives is not told.
    fn to_node(&self, node: NodeId, message: PeerMessage, bulk: Option<Arc<BulkBytes>>);
    /// From now on there is to be a connection with this disk server.
    fn keep(&self, node: NodeId, address: &str);
    /// From now on there is to be none with it, whoever dialed it: it is no disk server of this cluster any more.
    fn forget(&self, node: NodeId);
    /// Ends all connections with other disk servers: what is on its way on them must not arrive any more.
    fn cut_others(&self);
    /// Has `job` done later, in a thread that may wait for disks. Jobs may run side by side and in any order.
    fn run(&self, job: Box<dyn FnOnce() + Send>);
    /// Whether a job that does the works of a replica hands the rest to another job. The shell asks after each work. A simulation answers yes now and then,
    /// so that messages arrive between two works, as they do where jobs run side by side.
    fn pauses(&self) -> bool {
        false
    }
    /// Something happened to a replica on a store of this server that monitoring or a test counts.
    fn notice(&self, _store: StoreId, _replica: ReplicaId, _notice: Notice) {}
}

/// See [`DiskWorld::notice`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notice {
    /// The store is about to delete the replica, or to write it again from the beginning.
    Emptied,
    /// This many stores did not answer, and no longer take part in the write.
    LeftOut(usize),
    /// The copy on this store differs from its primary's, and does not count.
    Differs(StoreId),
    /// The writer went away, and the server ended the write because the manager asked for it.
    Ended,
}

/// What a disk server begins with.
#[derive(Clone, Debug)]
pub struct DiskSettings {
    /// Which node it is.
    pub node: NodeId,
    /// This run of its process.
    pub process_epoch: ProcessEpoch,
    /// What stands for its kernel's boot: another one as soon as any of its stores may have lost what was written and not synced.
    pub boot: BootId,
}

/// What is known of the cluster beside one's own stores.
#[derive(Default)]
struct ClusterKnowledge {
    addresses: StoreAddresses,
    incarnation: Incarnation,
}

/// A disk server. See the module.
pub struct DiskServer {
    settings: DiskSettings,
    #[cfg(any(test, feature = "planted"))]
    planted: Option<Planted>,
    /// When it began.
    began: Time,
    world: Arc<dyn DiskWorld>,
    member: Mutex<Member>,
    stores: BTreeMap<StoreId, Arc<StoreShell>>,
    keys: RwLock<Option<CapabilityKeys>>,
    others: RwLock<ClusterKnowledge>,
    /// Where clients find the names, once the manager has said so.
    manager: RwLock<Option<(String, u16)>>,
    arrivals: RwLock<Arrivals>,
    busy: activity::Busy,
    /// For bytes that come from other servers and go to them.
    bulk: BulkPool,
}

/// Which connections of other disk servers count: those that have come up in this server's present session.
#[derive(Default)]
struct Arrivals {
    /// Raised with each session.
    generation: u64,
    /// That in which a node has connected.
    of: BTreeMap<NodeId, u64>,
}

impl fmt::Debug for DiskServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DiskServer({})", self.settings.node)
    }
}

impl DiskServer {
    /// With these stores.
    #[must_use]
    pub fn new(settings: DiskSettings, stores: Vec<StoreAt>, world: Arc<dyn DiskWorld>) -> Arc<Self> {
        Self::with_terms(settings, DiskTerms::default(), stores, world)
    }

    /// The same, with other than the usual terms.
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
            arrivals: RwLock::default(),
            busy: activity::Busy::default(),
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

    /// Where clients find the names; `None`: the manager was not heard of yet.
    #[must_use]
    pub fn manager(&self) -> Option<(String, u16)> {
        self.manager.read().clone()
    }

    fn view(&self, now: Time) -> View {
        self.member.lock().view(now)
    }

    fn session(&self) -> Option<SessionId> {
        self.member.lock().session()
    }

    /// A connection with the manager is up: it is told who this is.
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

    /// Tells the manager how the stores are, and what is done for clients. To be called about once a second.
    pub fn report(&self) {
        self.world.to_manager(FromDisk::Report(self.reports()));
        if let Some(activity) = self.activity(self.world.now()) {
            self.world.to_manager(FromDisk::Activity(activity));
        }
    }

    /// To be called some times a second.
    pub fn tick(self: &Arc<Self>) {
        let now = self.world.now();
        let message = self.member.lock().tick(now);
        if let Some(message) = message {
            self.world.to_manager(FromDisk::Cluster(message));
        }
        self.look_how_busy();
        self.tick_stores();
    }

    fn tick_stores(self: &Arc<Self>) {
        for shell in self.stores.values() {
            self.step(shell, Input::Tick, None);
            shell.forget_idle();
        }
    }

    /// The manager has said something.
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
            FromManager::StoreAddresses(page) => self.hear_ways(page),
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
            FromManager::Cluster(ToServer::Registered { registered, terms, wall }) => {
                if self.session() == Some(registered.session) {
                    self.member.lock().registered(&registered, terms, wall);
                } else {
                    #[cfg(any(test, feature = "planted"))]
                    if self.has(Planted::OldSessionHeard) {
                        self.member.lock().registered(&registered, terms, wall);
                        self.report();
                        return self.tick_stores();
                    }
                    // What is on its way from others in the session before must not arrive in this one.
                    let mut arrivals = self.arrivals.write();
                    arrivals.generation += 1;
                    self.world.cut_others();
                    self.member.lock().registered(&registered, terms, wall);
                    drop(arrivals);
                    tracing::info!(session = %registered.session, boot_generation = registered.boot_generation.0, "in session with the manager");
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
                    // Its disk was taken out: nobody answers for it here.
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

    /// The manager says who serves which store.
    fn hear_ways(&self, page: StoreAddressPage) {
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

    /// Whether the manager has said that this is a disk server of the cluster.
    #[must_use]
    pub fn knows(&self, node: NodeId) -> bool {
        self.others.read().addresses.knows(node)
    }

    /// A connection with another disk server is up.
    pub fn node_connected(&self, node: NodeId) {
        {
            let mut arrivals = self.arrivals.write();
            // The manager may have said otherwise since it was let in.
            if self.knows(node) {
                let generation = arrivals.generation;
                arrivals.of.insert(node, generation);
                return;
            }
        }
        self.world.forget(node);
    }

    /// In which session of this server something is said, for [`DiskServer::receive_own`].
    pub fn generation(&self) -> u64 {
        self.arrivals.read_recursive().generation
    }

    /// A store of this server has said something to another one of it, in the session of this number.
    pub fn receive_own(self: &Arc<Self>, generation: u64, between: PeerMessage, bulk: Option<Arc<BulkBytes>>) {
        let arrivals = self.arrivals.read();
        if arrivals.generation == generation {
            self.receive_between(self.settings.node, between, bulk);
        }
    }

    /// Room for `len` bytes that another disk server sends.
    #[must_use]
    pub fn room_for(&self, len: usize) -> BulkBytes {
        self.bulk.take(len)
    }

    /// Another disk server has said something; `bulk`: the bytes behind it.
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
        // Who speaks for a store has to serve it.
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

    /// Ends a writing whose client does not come back. It may wait for the disk.
    fn end_writer(self: &Arc<Self>, end: &EndWriter) {
        let Ok(path) = NsPath::parse(&end.path) else { return };
        match self.verified(end.capability.as_bytes(), &path, None) {
            Ok(VerifiedCapability::Write(grant)) => {
                let (this, expected_len) = (Arc::clone(self), end.expected_len);
                grant.attach_to_end(&end.path, expected_len, move |placed| match placed {
                    Ok(placed) => this.end_placed(&path, expected_len, &placed),
                    Err(error) => not_ended(&path, &error),
                });
            }
            Ok(VerifiedCapability::Read(_) | VerifiedCapability::Striped(_)) => {}
            Err(error) => not_ended(&path, &error),
        }
    }

    /// As a whole content, if all is there that was announced.
    fn end_placed(self: &Arc<Self>, path: &NsPath, expected_len: Option<u64>, placed: &Placed) {
        let is_whole = placed.is_new() && !placed.gaps() && expected_len == Some(placed.len());
        let (this, store, replica, path) = (Arc::clone(self), placed.store(), placed.replica(), path.clone());
        let told = move |how: &'static str, result: Result<(), PlacedError>| match result {
            Ok(()) => {
                tracing::info!(%path, "{how}: its writer went away");
                this.world.notice(store, replica, Notice::Ended);
            }
            Err(error) => not_ended(&path, &error),
        };
        if is_whole {
            placed.close(None, true, move |result| told("completed, as all announced bytes are here", result));
        } else {
            placed.interrupt(move |result| told("interrupted", result.map(drop)));
        }
    }

    fn to_manager(&self, store: StoreId, message: FromStore) {
        self.world.to_manager(FromDisk::Cluster(ToManager::OfStore { store, message }));
    }

    fn to_store(&self, to: StoreId, between: PeerMessage, bulk: Option<Arc<BulkBytes>>) {
        let node = self.others.read().addresses.node_of(to);
        match node {
            // Two stores of one server speak through it as well.
            Some(node) => self.world.to_node(node, between, bulk),
            None => tracing::debug!(store = %to, "it is not known which node serves a store"),
        }
    }

    fn incarnation(&self) -> Incarnation {
        self.others.read().incarnation
    }
}

/// The manager tries again.
fn not_ended(path: &NsPath, error: &PlacedError) {
    tracing::info!(%path, %error, "an open write cannot be ended here");
}
