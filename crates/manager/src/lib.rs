//! The manager: it owns the namespace, knows the disk servers, and decides who does what. No file data passes through it.
//!
//! It has three parts:
//! - The **open service** (`open`) keeps no state. It reads an immutable, versioned view of the cluster and a snapshot of the namespace, decides, and
//!   signs a capability. A disk server whose session differs from the view refuses the capability, and sends the client back.
//! - The **coordinator** (`coordinator`) owns the sessions of disk servers, the fences, the groups being made and the capability keys. It publishes
//!   the view by which the other parts decide.
//! - The **maintenance jobs** (`jobs`) repair files, replace and drain stores, and delete objects. They also end open writes without a primary and
//!   have checksums computed. Each job has its own state and lock, and can restore its state from the namespace.
//!
//! **No lock is held while the namespace is read or changed.** All access goes through `names`, where debug builds check this rule. So the data may
//! have changed by the time of the decision. Each change of the namespace therefore checks its assumptions in its own transaction. `open/reading.rs`
//! explains why a reader's redirect is correct all the same.

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

pub use coordinator::{MemberError, RemoveLost};
pub use jobs::{DrainError, FailedCopyView, LeaverView, RepairError, RepairView, StuckView, SumError, Unsummed};
pub use manager_node::{ManagerError, ManagerNode};
pub use open::{OpenRequest, OpeningError, Redirect};
pub use views::{
    ActivityView, ContentState, ContentView, CopyState, CopyView, Counted, FileSum, FileView, LossView, MissingAfter,
    MissingFile, MissingPage, NodeView, Shortage, StatusView, StoreView, TopView, WriterView,
};

/// What a manager needs from outside: clocks, randomness, and connections to its servers. No method may wait.
pub trait World: Send + Sync {
    /// The manager's own clock.
    fn now(&self) -> Time;
    /// The time of day.
    fn wall(&self) -> Timestamp;
    /// A random number.
    fn random(&self) -> u64;
    /// Bytes that nobody can guess. `None` if the system has none.
    fn secret(&self) -> Option<[u8; 32]>;
    /// Whether the connection with a disk server is up at this moment. When a server dies, its clients notice as soon as this manager does, and come
    /// here at once. A stock client that is sent to a dead server again waits there for minutes.
    fn is_up(&self, node: NodeId) -> bool;
    /// Sends a message to a disk server. Returns whether it was sent; nobody reports whether it arrives.
    fn send(&self, to: NodeId, message: FromManager) -> bool;
    /// Closes the connection with a disk server at once, if there is one.
    fn cut(&self, node: NodeId, why: &str);
}

/// The settings of a manager.
#[derive(Clone, Copy, Debug)]
pub struct ManagerSettings {
    /// The terms of leases.
    pub terms: LeaseTerms,
    /// How long a redirect is valid, at most 60 s.
    pub capability_lifetime: std::time::Duration,
    /// How long the manager waits for a writer without a primary.
    pub grace: std::time::Duration,
    /// The rate at which missing replicas are copied.
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
    /// An estimate, used to tell clients in time that they must wait. Nothing depends on its accuracy.
    rooms: WritersRooms,
    /// When the manager started, by both clocks.
    began: (Time, Timestamp),
}

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Manager")
    }
}

impl Manager {
    /// Starts a manager on a namespace, which an earlier manager may have used.
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
        let random = world.random();
        let sessions = Sessions::new(settings.terms, names.session(), now, names.read(namespace::nodes)?);
        let sessions = sessions.at_random_distance(random);
        let (servers, groups) = names.read(coordinator::read)?;
        let this = Self {
            coordinator: Coordinator::new(now, (sessions, servers, groups), settings.grace),
            copies: Tracked::new(Copies::new(now, settings.copies)),
            deleting: Tracked::default(),
            draining: Tracked::default(),
            backfill: Tracked::default(),
            graces: Tracked::default(),
            summing: Tracked::new(Summing::new(random)),
            activities: Activities::default(),
            rooms: WritersRooms::default(),
            names,
            settings,
            began: (now, world.wall()),
            world,
        };
        Ok(Arc::new(this))
    }

    /// The present view of the cluster. Does not wait.
    fn view(&self) -> Arc<ClusterView> {
        self.coordinator.view()
    }

    /// The clock by which capabilities expire. Disk servers get it with their sessions. It is the time of day when this manager started plus the time
    /// since then. If the system clock were set back, expired capabilities would become valid again.
    fn capabilities_time(&self, now: Time) -> Timestamp {
        let (began, wall) = self.began;
        wall.plus(now.since(began))
    }

    /// The namespace.
    #[must_use]
    pub fn namespace(&self) -> &Arc<Namespace> {
        self.names.namespace()
    }

    /// Sets the manager's address for clients, `host:port`. Disk servers send clients there.
    pub fn set_clients_at(&self, address: &str) {
        self.coordinator.set_clients_at(coordinator::split(address));
    }

    /// Sets the locations of clients that do not state their own.
    pub fn set_client_locations(&self, ranges: LocationRanges) {
        self.coordinator.set_client_locations(ranges);
    }

    /// Applies settings that may change at run time: the grace period of writers without a primary, and the rate of repair.
    pub fn adjust(&self, grace: std::time::Duration, copied_bytes_per_second: u64) {
        self.coordinator.set_grace(grace);
        self.copies.lock().set_bytes_per_second(copied_bytes_per_second);
    }

    /// The space of all stores together.
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

    /// Runs the periodic work. Call it several times a second.
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

    /// Handles a message of a disk server. `node` is its proven identity.
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
            // The node speaks for another one.
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

    /// Records the end of an open write in the namespace. This decision does not depend on the manager's state.
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
            // A server that may not end the write has ended nothing.
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

/// The answer to a server's change. `None` if the outcome is unknown; the server asks again.
fn told<T>(result: Result<T, NsError>) -> Option<Result<T, ErrorCode>> {
    match result {
        Ok(done) => Some(Ok(done)),
        Err(NsError::Kv(_)) => None,
        Err(error) => Some(Err(error.code())),
    }
}
