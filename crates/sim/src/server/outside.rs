//! What the real disk server gets from the simulation.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cluster::Time;
use disk_server::{DiskWorld, ManagerChoice, Notice, ReplicatedWriter};
use node::{BulkBytes, FromDisk, PeerMessage};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use types::{ErrorCode, NodeId, ReplicaId, StoreId};

use super::Due;
use super::front::Reserved;
use crate::manager::{manager_of_node, server_of_node};
use crate::message::{Addr, Message};

type Job = Box<dyn FnOnce() + Send>;

/// The counted notices.
#[derive(Default)]
pub(super) struct Counted {
    pub(super) left_out: u64,
    pub(super) differing: u64,
    pub(super) ended: u64,
}

/// The output of the disk server, until it is collected.
pub(super) struct Outside {
    pub(super) now: Time,
    servers: usize,
    /// Which of several managers the server follows. `None`: there is one, and nothing to choose.
    pub(super) choice: Option<ManagerChoice>,
    rng: SmallRng,
    given: u64,
    pub(super) out: Vec<(Addr, Message)>,
    pub(super) jobs: BTreeMap<u64, Job>,
    pub(super) due: Vec<Due>,
    /// Writing clients that have attached.
    pub(super) attached: Vec<Arc<ReplicatedWriter>>,
    /// The manager's answers to wishes for more space.
    pub(super) reserved: Vec<Reserved>,
    /// The outcome of ending open writes of vanished clients.
    pub(super) graces: Vec<(ReplicaId, Result<(), ErrorCode>)>,
    pub(super) drained: Vec<ReplicaId>,
    /// Replicas of which a secondary's differed from the primary's.
    pub(super) differing: BTreeSet<(ReplicaId, StoreId)>,
    pub(super) counted: Counted,
}

impl Outside {
    pub(super) fn new(now: Time, seed: u64, (servers, managers): (usize, usize)) -> Self {
        Self {
            now,
            servers,
            choice: (managers > 1).then(ManagerChoice::default),
            rng: SmallRng::seed_from_u64(seed),
            given: 0,
            out: Vec::new(),
            jobs: BTreeMap::new(),
            due: Vec::new(),
            attached: Vec::new(),
            reserved: Vec::new(),
            graces: Vec::new(),
            drained: Vec::new(),
            differing: BTreeSet::new(),
            counted: Counted::default(),
        }
    }

    /// The manager that the server follows.
    pub(super) fn follows(&self) -> Option<usize> {
        match &self.choice {
            None => Some(0),
            Some(choice) => choice.present().map(manager_of_node),
        }
    }

    /// Adds a job and returns its number.
    pub(super) fn due(&mut self, client: Option<usize>) -> u64 {
        self.given += 1;
        self.due.push(Due { job: self.given, client });
        self.given
    }
}

pub(super) fn lock(outside: &Mutex<Outside>) -> MutexGuard<'_, Outside> {
    // After a panic of the server the run is over.
    outside.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) struct World {
    pub(super) index: usize,
    pub(super) outside: Arc<Mutex<Outside>>,
}

impl DiskWorld for World {
    fn now(&self) -> Time {
        lock(&self.outside).now
    }

    fn to_manager(&self, message: FromDisk) {
        let mut outside = lock(&self.outside);
        if let Some(manager) = outside.follows() {
            outside.out.push((Addr::Manager(manager), Message::FromDisk(message)));
        }
    }

    fn to_node(&self, node: NodeId, message: PeerMessage, bulk: Option<Arc<BulkBytes>>) {
        lock(&self.outside).out.push((server_of_node(node), Message::Peer(message, bulk)));
    }

    /// Servers that know each other are always dialed here.
    fn keep(&self, _node: NodeId, _address: &str) {}

    fn forget(&self, node: NodeId) {
        lock(&self.outside).out.push((server_of_node(node), Message::HangUp));
    }

    fn cut_others(&self) {
        let mut outside = lock(&self.outside);
        let others = (0..outside.servers).filter(|other| *other != self.index);
        outside.out.extend(others.map(|other| (Addr::Server(other), Message::HangUp)));
    }

    fn run(&self, job: Job) {
        let mut outside = lock(&self.outside);
        let number = outside.due(None);
        outside.jobs.insert(number, job);
    }

    fn pauses(&self) -> bool {
        lock(&self.outside).rng.random_ratio(1, 2)
    }

    fn notice(&self, _store: StoreId, replica: ReplicaId, notice: Notice) {
        let mut outside = lock(&self.outside);
        match notice {
            Notice::Erased => outside.drained.push(replica),
            Notice::LeftOut(_) => outside.counted.left_out += 1,
            Notice::Differs(store) => {
                outside.counted.differing += 1;
                outside.differing.insert((replica, store));
            }
            Notice::Ended => outside.counted.ended += 1,
        }
    }
}
