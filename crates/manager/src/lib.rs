//! The manager: it owns the namespace, knows the disk servers, and decides who does what. No file data passes through it.
//!
//! It has three parts. Each is a type that owns its state and its lock:
//! - The **coordinator** (`coordinator`) owns the sessions of disk servers, the fences, the groups of stores and the capability keys. It publishes the
//!   view by which the other parts decide.
//! - The **open service** (`open`) keeps no state. It reads an immutable, versioned view of the cluster and a snapshot of the namespace, decides, and
//!   signs a capability. A disk server whose session differs from the view refuses the capability, and sends the client back.
//! - The **maintenance jobs** (`jobs`) repair files, replace and drain stores, and delete objects. They also end open writes without a primary and
//!   have checksums computed. Each job can restore its state from the namespace.
//!
//! [`Manager`] makes the parts, and passes messages, ticks and calls on. A part gets what it needs handed in. It calls only parts above it:
//!
//! ```text
//!               names (the namespace), World (clocks, randomness, connections)
//!                                     |
//!                                coordinator
//!                    |                |                |
//!              open service    copies, deletions    draining
//!               |        |            |
//!            graces   summing      backfill                   views read all of them
//! ```
//!
//! After a restore from a backup, `hold` keeps the jobs from the disk servers' replicas, and `comparison` shows what disagrees with the names.
//!
//! **No lock is held while the namespace is read or changed.** All access goes through `names`, where debug builds check this rule. So the data may
//! have changed by the time of the decision. Each change of the namespace therefore checks its assumptions in its own transaction. `open/reading.rs`
//! explains why a reader's redirect is correct all the same.

pub mod administrators;
mod attributes;
mod audit;
mod capability_clock;
mod comparison;
mod coordinator;
mod delegated;
mod hold;
mod inventories;
mod jobs;
mod known_damage;
mod manager;
mod manager_node;
mod names;
mod open;
mod open_lengths;
mod other_managers;
pub mod registration;
mod standby;
mod stored_files;
pub mod tokens;
mod tracked;
mod views;
mod widening;
mod without_primary;

use cluster::message::{ToServer, ToStore};
use cluster::{CopyRate, LeaseTerms, Time};
use node::FromManager;
use types::{NodeId, StoreId, Timestamp};

pub use audit::{AuditFinding, AuditView, ProblemKind, UncheckedStore};
pub use comparison::{CompareOptions, ComparisonError, ComparisonView, DisagreeingFile, ExtraReplica, FileElsewhere};
pub use coordinator::{MemberError, RemoveLost, RepairError, is_manager};
pub use jobs::{DamageCounts, DamageState, DrainError, SumError, Unsummed};
pub use manager::Manager;
pub use manager_node::{HasLease, ManagerError, ManagerNode, PlaceChecks};
pub use open::{OpenRequest, OpeningError, Redirect, Unfinished};
pub use other_managers::OtherManagers;
pub use standby::{StandbyManager, StandbyWorld};
pub use stored_files::{StoredFiles, other_managers};
pub use views::{
    ActivityView, CopyProgress, Counted, DamageView, DamagedReplicaView, FailedCopyView, FileSum, FileView, LeaverView,
    LossView, ManagerState, MissingAfter, MissingPage, NodeView, ObjectState, ObjectView, RepairView, ReplicaState,
    ReplicaView, ReplicationState, StatusView, StoreView, StuckView, TopView, UnderReplicatedFile, WriterView,
};
pub use widening::{ApplyError, ApplyOptions, ApplyView};

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
    /// Whether this manager may act as the one that has the database: no other one can have taken over yet. Always true if the namespace is in its own
    /// directory.
    fn has_lease(&self) -> bool;
    /// Whether this manager has lost its place for good: another one has taken it, or the database has lost changes.
    fn has_lost_place(&self) -> bool;
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
    /// The manager's own node.
    pub node: NodeId,
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
            node: namespace::FIRST_NODE,
            terms: LeaseTerms::default(),
            capability_lifetime: std::time::Duration::from_secs(60),
            grace: std::time::Duration::from_secs(60),
            copies: CopyRate::default(),
        }
    }
}

/// Messages of the cluster to a disk server.
impl dyn World {
    fn tell(&self, to: NodeId, message: ToServer) {
        self.send(to, FromManager::Cluster(message));
    }

    fn tell_store(&self, node: NodeId, store: StoreId, message: ToStore) {
        self.tell(node, ToServer::ToStore { store, message });
    }
}
