//! The manager: it has the names, knows the disk servers, and decides who does what. Data never passes through it.
//!
//! What it decides it decides under one lock, with the namespace's present state before its eyes; a change of the namespace is waited for
//! without the lock, and each change checks by itself, in its transaction, what it was decided on.

mod activity;
mod backfill;
mod copies;
mod deletions;
mod draining;
mod fencing;
mod graces;
mod manager_node;
mod members;
mod missing;
mod open_request;
mod opening;
mod overview;
mod reading;
pub mod registration;
mod servers;
mod striping;
mod summing;
pub mod tokens;
mod views;
mod writers_room;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use cluster::message::{ClosedBy, FromStore, ToManager, ToServer, ToStore};
use cluster::replication::{Epoch, ObjectDigest};
use cluster::{CopyId, CopyRate, Copying, Fences, LeaseTerms, Presence, Sessions, Standing, Time};
use namespace::{
    Actor, Commit, CommitPlaced, Committed, Completion, Durability, Interrupt, InterruptPlaced, Namespace, NsError,
    Operation, Sums, WriterToken,
};
use node::{FromDisk, FromManager};
use parking_lot::{Mutex, MutexGuard, RwLock};
use store::Space;
use types::{ErrorCode, GroupId, InSyncReplica, LocationRanges, NodeId, ObjectId, ReplicaId, StoreId, Timestamp};

use backfill::Backfill;
use copies::{Copied, CopyUnderWay};
use deletions::Deleting;
use draining::Draining;
use fencing::{Placing, Waiting};
use graces::Graces;
use servers::Servers;
use summing::Summing;

pub use activity::ActivityView;
pub use backfill::{FailedCopyView, LeaverView, RepairError, RepairView, StuckView};
pub use draining::DrainError;
pub use manager_node::{ManagerError, ManagerNode};
pub use members::MemberError;
pub use missing::{MissingAfter, MissingFile, MissingPage, Shortage};
pub use open_request::{OpenRequest, OpeningError, Redirect};
pub use overview::{Counted, NodeView, StatusView, TopView};
pub use summing::{SumError, Unsummed};
pub use views::{ContentState, ContentView, CopyState, CopyView, FileView, StoreView, WriterView};

/// What a manager is handed from outside: clocks, randomness, the way to its servers. None of it may wait.
pub trait World: Send + Sync {
    /// The manager's own clock.
    fn now(&self) -> Time;
    /// The time of day.
    fn wall(&self) -> Timestamp;
    /// Any number.
    fn random(&self) -> u64;
    /// Bytes that nobody can guess; `None`: there are none to be had.
    fn secret(&self) -> Option<[u8; 32]>;
    /// Whether the connection with a disk server is up at this moment. When a server dies, its clients notice it as soon as this manager does, and
    /// come here at once; whoever is sent to a dead server again waits there for minutes, as stock clients do.
    fn is_up(&self, node: NodeId) -> bool;
    /// Tells a disk server something: whether it is on its way. Whether it arrives is not told.
    fn send(&self, to: NodeId, message: FromManager) -> bool;
    /// Ends the connection with a disk server at once, if there is one.
    fn cut(&self, node: NodeId, why: &str);
}

/// How a manager works.
#[derive(Clone, Copy, Debug)]
pub struct ManagerSettings {
    /// Of leases.
    pub terms: LeaseTerms,
    /// How long a redirect may be used, at most 60 s.
    pub capability_lifetime: std::time::Duration,
    /// How long a writer that nobody leads is waited for.
    pub grace: std::time::Duration,
    /// Of copies that are owed.
    pub copies: CopyRate,
}

impl Default for ManagerSettings {
    fn default() -> Self {
        Self {
            terms: LeaseTerms::default(),
            capability_lifetime: std::time::Duration::from_secs(60),
            grace: std::time::Duration::from_secs(60),
            copies: CopyRate::default(),
        }
    }
}

/// A manager.
pub struct Manager {
    namespace: Arc<Namespace>,
    settings: ManagerSettings,
    world: Box<dyn World>,
    state: Mutex<State>,
    /// Taken before `state`: what is told last has to be what was looked at last.
    telling_addresses: Mutex<()>,
    /// Where clients reach it, `host:port`.
    clients_at: RwLock<Option<(String, u16)>>,
    client_locations: RwLock<LocationRanges>,
    /// When it began, and what the time of day was then.
    began: (Time, Timestamp),
}

/// Told of a group when it is made.
type GroupMade = Box<dyn FnOnce(Result<GroupId, NsError>) + Send>;

struct State {
    sessions: Sessions,
    fences: Fences,
    waiting: Vec<Waiting>,
    servers: Servers,
    /// Groups that are just being written down, and who waits for them.
    making: BTreeMap<Vec<StoreId>, Vec<GroupMade>>,
    copying: Copying,
    copies: BTreeMap<CopyId, CopyUnderWay>,
    /// Copies that are there, and are just being written down.
    counting: BTreeSet<(ObjectId, StoreId)>,
    copied: Copied,
    deleting: Deleting,
    draining: Draining,
    backfill: Backfill,
    graces: Graces,
    summing: Summing,
}

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Manager")
    }
}

impl State {
    fn node_of(&self, store: StoreId) -> Option<NodeId> {
        self.servers.node_of(store)
    }

    /// `None`: it is not known, or will not come back.
    fn standing(&self, now: Time, store: StoreId) -> Option<Standing> {
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

    fn is_online(&self, now: Time, store: StoreId) -> bool {
        self.standing(now, store).is_some_and(|standing| standing.presence == Presence::Online)
    }

    /// Those of `stores` that were not given up; if all were, all of them.
    fn lasting(&self, stores: &[StoreId]) -> Vec<StoreId> {
        let stay: Vec<StoreId> =
            stores.iter().copied().filter(|store| !self.servers.is_removed_as_lost(*store)).collect();
        if stay.is_empty() { stores.to_vec() } else { stay }
    }

    /// Those of `stores` that are there, `most` of them, in their order.
    fn in_sync(&self, now: Time, stores: &[StoreId], most: usize) -> Vec<InSyncReplica> {
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

impl Manager {
    /// Begins, on a namespace that a manager may have had before.
    ///
    /// # Errors
    /// When the namespace cannot be read.
    pub fn start(
        namespace: Arc<Namespace>,
        settings: ManagerSettings,
        world: Box<dyn World>,
    ) -> Result<Arc<Self>, NsError> {
        let now = world.now();
        let nodes = namespace.read(namespace::nodes)?;
        let sessions = Sessions::new(settings.terms, namespace.session(), now, nodes);
        let servers = Servers::read(&namespace)?;
        let state = State {
            sessions,
            fences: Fences::default(),
            waiting: Vec::new(),
            servers,
            copying: Copying::new(now, settings.copies),
            copies: BTreeMap::new(),
            counting: BTreeSet::new(),
            copied: Copied::default(),
            deleting: Deleting::default(),
            draining: Draining::default(),
            backfill: Backfill::default(),
            making: BTreeMap::new(),
            graces: Graces::new(settings.grace),
            summing: Summing::new(world.random()),
        };
        let (state, clients_at, client_locations) = (Mutex::new(state), RwLock::default(), RwLock::default());
        let this = Self {
            namespace,
            settings,
            began: (now, world.wall()),
            world,
            state,
            telling_addresses: Mutex::default(),
            clients_at,
            client_locations,
        };
        // Of stores that nothing was heard of yet it is known that they are.
        this.make_map(&mut this.state());
        Ok(Arc::new(this))
    }

    /// The time by which permissions end, which disk servers are told with their sessions: what the time of day was when this manager began, and what has
    /// passed since. Were its clock set back meanwhile, what had ended would be good again.
    fn capabilities_time(&self, now: Time) -> Timestamp {
        let (began, wall) = self.began;
        wall.plus(now.since(began))
    }

    /// The names.
    #[must_use]
    pub fn namespace(&self) -> &Arc<Namespace> {
        &self.namespace
    }

    /// Clients reach it there, `host:port`: disk servers send them to it.
    pub fn set_clients_at(&self, address: &str) {
        *self.clients_at.write() = servers::split(address);
    }

    /// Where clients stand that do not say so themselves, from now on.
    pub fn set_client_locations(&self, ranges: LocationRanges) {
        *self.client_locations.write() = ranges;
    }

    /// Takes over what can be while it runs: how long a writer that nobody leads is waited for, and how fast copies that are owed are made.
    pub fn adjust(&self, grace: std::time::Duration, copied_bytes_per_second: u64) {
        let mut state = self.state();
        state.graces.grace = grace;
        state.copying.set_bytes_per_second(copied_bytes_per_second);
    }

    /// Sizes of all stores together.
    #[must_use]
    pub fn space(&self) -> Space {
        self.state().servers.space()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn change<O: Operation + Send + 'static>(
        &self,
        durability: Durability,
        op: O,
        done: impl FnOnce(Result<O::Reply, NsError>) + Send + 'static,
    ) {
        self.change_as(&Actor::admin(), durability, op, done);
    }

    fn change_as<O: Operation + Send + 'static>(
        &self,
        actor: &Actor,
        durability: Durability,
        op: O,
        done: impl FnOnce(Result<O::Reply, NsError>) + Send + 'static,
    ) {
        let ctx = self.namespace.context(self.world.wall(), actor, None);
        self.namespace.change(durability, ctx, op, done);
    }

    fn tell(&self, to: NodeId, message: ToServer) {
        self.world.send(to, FromManager::Cluster(message));
    }

    fn tell_store(&self, node: NodeId, store: StoreId, message: ToStore) {
        self.tell(node, ToServer::ToStore { store, message });
    }

    /// To be called some times a second.
    pub fn tick(self: &Arc<Self>) {
        let now = self.world.now();
        self.look_at_fences(now);
        self.look_at_servers(now);
        self.backfill_groups(now);
        self.copy_missing_replicas(now);
        self.delete_what_is_due(now);
        self.empty_stores(now);
        self.look_at_writers(now);
        self.look_at_sums(now);
    }

    /// A disk server has said something. `node`: who it has proved to be.
    pub fn receive(self: &Arc<Self>, node: NodeId, message: FromDisk) {
        if !self.has_member(node) {
            return;
        }
        match message {
            FromDisk::Hello(hello) => self.hello(node, hello),
            FromDisk::Report(reports) => self.report(node, reports),
            FromDisk::Leads { asked, led } => self.led(node, &asked, &led),
            FromDisk::Has { store, after, replicas } => self.has(node, store, after, replicas),
            FromDisk::Cluster(message) => self.receive_of_cluster(node, message),
            FromDisk::Activity(said) => self.active(node, said),
            FromDisk::Summed { number, found } => self.summed(node, number, found),
        }
    }

    fn receive_of_cluster(self: &Arc<Self>, node: NodeId, message: ToManager) {
        let now = self.world.now();
        match message {
            ToManager::Register(request) if request.node == node => self.register(request),
            ToManager::Renew { node: of, session, number } if of == node => {
                let is_good = self.state().sessions.renew(now, node, session);
                let wall = self.capabilities_time(now);
                self.tell(
                    node,
                    match is_good {
                        true => ToServer::Renewed { session, number, wall },
                        false => ToServer::NoSession { session },
                    },
                );
            }
            ToManager::OfStore { store, message } if self.state().node_of(store) == Some(node) => {
                self.receive_of_store(node, store, message);
            }
            // Said in the name of somebody else.
            ToManager::Register(_) | ToManager::Renew { .. } | ToManager::OfStore { .. } => {}
        }
    }

    fn receive_of_store(self: &Arc<Self>, node: NodeId, store: StoreId, message: FromStore) {
        match message {
            FromStore::Place { session, replica, writer, in_sync, request } => {
                let now = self.world.now();
                if self.state().sessions.session(now, node) == Some(session) {
                    self.location(Placing { node, store, replica, writer, in_sync, request });
                }
            }
            FromStore::Commit { replica, group, writer, whole, holders, mtime, by, request } => {
                let content = Committed { len: whole.len, sums: Some(sums_of(whole)), mtime };
                let completion = match by {
                    ClosedBy::Client => Completion::ByClient,
                    ClosedBy::GraceEnd => Completion::AtGraceEnd,
                };
                let commit = Commit { writer, content, completion };
                let op = CommitPlaced { commit, group, by: store, holders: holders.clone() };
                self.end(node, store, (replica, writer, request), holders, op);
            }
            FromStore::Interrupt { replica, writer, kept_len, holders, request } => {
                let interrupt = Interrupt { writer, kept_len };
                let op = InterruptPlaced { interrupt, by: Some(store), holders: holders.clone() };
                self.end(node, store, (replica, writer, request), holders, op);
            }
            FromStore::Fenced(fence) => {
                let is_news = (fence.node, fence.store) == (node, store) && self.state().fences.answered(&fence);
                if is_news {
                    self.is_there(fence.fence);
                }
            }
            FromStore::Copied { session, copy, is_there } => self.copied((node, store), session, copy, is_there),
            FromStore::Deleted { replicas } => self.deleted(store, &replicas),
        }
    }

    /// A writing has come to its end, and the namespace is to say so. Nothing of what is decided here hangs on the manager's state.
    fn end<O>(
        self: &Arc<Self>,
        node: NodeId,
        store: StoreId,
        what: (ReplicaId, WriterToken, u64),
        holders: Vec<StoreId>,
        op: O,
    ) where
        O: Operation + Send + 'static,
    {
        let (replica, writer, request) = what;
        let this = Arc::clone(self);
        self.change(Durability::Synced, op, move |result| {
            // Who may not end it has ended nothing.
            if result.is_ok() {
                this.end_writing(&holders);
            }
            if let Some(result) = told(result.map(drop)) {
                let epoch = Epoch(writer.epoch);
                this.tell_store(node, store, ToStore::Ended { replica, epoch, request, result });
            }
        });
    }
}

fn sums_of(whole: ObjectDigest) -> Sums {
    Sums { adler32: whole.adler32, crc32c: whole.crc32c }
}

/// What a server is told of a change; `None`: nobody knows what became of it, and it asks again.
fn told<T>(result: Result<T, NsError>) -> Option<Result<T, ErrorCode>> {
    match result {
        Ok(done) => Some(Ok(done)),
        Err(NsError::Kv(_)) => None,
        Err(error) => Some(Err(error.code())),
    }
}
