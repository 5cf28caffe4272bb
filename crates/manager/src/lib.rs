//! The manager: it has the names, knows the disk servers, and decides who does what. Data never passes through it.
//!
//! It is three things:
//! - The **open service** (`open`) keeps no state. It reads an immutable, versioned view of the cluster and a snapshot of the namespace, decides, and signs a
//!   capability. A disk server that has another session than the view says refuses that, and sends the client back.
//! - The **coordinator** (`coordinator`) has the disk servers' sessions, the fences, the groups in the making and the keys of capabilities, and publishes
//!   what others decide by as a view.
//! - The **maintenance jobs** (`jobs`) make missing copies, bring others in the place of stores that leave, empty stores, delete, end open writes that
//!   nobody leads, and have checksums computed. Each has its own state and lock, and nothing that the namespace does not have.
//!
//! **No lock is held while the namespace is read or changed**: all reads go through `names`, where debug builds check it. So whatever was read may have
//! changed when it is decided on; each change of the namespace checks in its own transaction what it was decided on, and `open/reading.rs` says why a
//! reader's redirect is right all the same.

mod coordinator;
mod jobs;
mod manager_node;
mod names;
mod open;
pub mod registration;
pub mod tokens;
mod tracked;
mod views;

use std::fmt;
use std::sync::Arc;

use cluster::message::{ClosedBy, FromStore, ToManager, ToServer, ToStore};
use cluster::replication::{Epoch, ObjectDigest};
use cluster::{CopyRate, LeaseTerms, Sessions, Time};
use namespace::{
    Actor, Commit, CommitPlaced, Committed, Completion, Durability, Interrupt, InterruptPlaced, Namespace, NsError,
    Operation, Sums, WriterToken,
};
use node::{FromDisk, FromManager};
use store::Space;
use types::{ErrorCode, LocationRanges, NodeId, ReplicaId, StoreId, Timestamp};

use coordinator::{ClusterView, Coordinator, Placing};
use jobs::{Backfill, Copies, Deleting, Draining, Graces, Summing};
use names::Names;
use open::WritersRooms;
use tracked::Tracked;
use views::Activities;

pub use coordinator::MemberError;
pub use jobs::{DrainError, FailedCopyView, LeaverView, RepairError, RepairView, StuckView, SumError, Unsummed};
pub use manager_node::{ManagerError, ManagerNode};
pub use open::{OpenRequest, OpeningError, Redirect};
pub use views::{
    ActivityView, ContentState, ContentView, CopyState, CopyView, Counted, FileView, MissingAfter, MissingFile,
    MissingPage, NodeView, Shortage, StatusView, StoreView, TopView, WriterView,
};

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
    names: Names,
    settings: ManagerSettings,
    world: Box<dyn World>,
    coordinator: Coordinator,
    copies: Tracked<Copies>,
    deleting: Tracked<Deleting>,
    draining: Tracked<Draining>,
    backfill: Tracked<Backfill>,
    graces: Tracked<Graces>,
    summing: Tracked<Summing>,
    activities: Activities,
    /// An estimate, by which clients are told to wait in time: nothing hangs on it that has to be right.
    rooms: WritersRooms,
    /// When it began, and what the time of day was then.
    began: (Time, Timestamp),
}

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Manager")
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
        let names = Names::new(namespace);
        let sessions = Sessions::new(settings.terms, names.session(), now, names.read(namespace::nodes)?);
        let (servers, groups) = names.read(coordinator::read)?;
        let this = Self {
            coordinator: Coordinator::new(now, (sessions, servers, groups), settings.grace),
            copies: Tracked::new(Copies::new(now, settings.copies)),
            deleting: Tracked::default(),
            draining: Tracked::default(),
            backfill: Tracked::default(),
            graces: Tracked::default(),
            summing: Tracked::new(Summing::new(world.random())),
            activities: Activities::default(),
            rooms: WritersRooms::default(),
            names,
            settings,
            began: (now, world.wall()),
            world,
        };
        Ok(Arc::new(this))
    }

    /// The cluster as it is known now: nothing is waited for.
    fn view(&self) -> Arc<ClusterView> {
        self.coordinator.view()
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
        self.names.namespace()
    }

    /// Clients reach it there, `host:port`: disk servers send them to it.
    pub fn set_clients_at(&self, address: &str) {
        self.coordinator.set_clients_at(coordinator::split(address));
    }

    /// Where clients stand that do not say so themselves, from now on.
    pub fn set_client_locations(&self, ranges: LocationRanges) {
        self.coordinator.set_client_locations(ranges);
    }

    /// Takes over what can be while it runs: how long a writer that nobody leads is waited for, and how fast copies that are owed are made.
    pub fn adjust(&self, grace: std::time::Duration, copied_bytes_per_second: u64) {
        self.coordinator.set_grace(grace);
        self.copies.lock().set_bytes_per_second(copied_bytes_per_second);
    }

    /// Sizes of all stores together.
    #[must_use]
    pub fn space(&self) -> Space {
        self.view().servers.space()
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
        self.names.change((self.world.wall(), actor), durability, op, done);
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
        self.coordinator.publish_what_is_left();
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
                self.renew(now, node, session, number);
            }
            ToManager::OfStore { store, message } if self.view().node_of(store) == Some(node) => {
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
                if self.view().sessions.session(now, node) == Some(session) {
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
                if (fence.node, fence.store) == (node, store) {
                    self.fenced(&fence);
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
