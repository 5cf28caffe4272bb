//! What all connections share.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Instant, SystemTime};

use disk_server::DiskServer;
use manager::Manager;
use namespace::{Context, Durability, Namespace, NsError, Operation};
use parking_lot::{Mutex, RwLock};
use store::{Space, Store, StoreError};
use types::{Incarnation, ReplicaId, Timestamp};

use crate::answer::Reply;
use crate::buffers::Buffers;
use crate::checksums::Checksums;
use crate::complaints::Complaints;
use crate::config::{Limits, ServerConfig, Times};
use crate::drainer::Drainer;
use crate::meter::Meter;
use crate::open_file::Lease;
use crate::refusal::Refusal;
use crate::session::Session;
use crate::shares::Shares;
use crate::striped::StripedOpens;
use crate::third_party::{Pulls, Rendezvous};
use crate::transfers::Transfers;
use crate::workers::Workers;
use crate::writer_memory::WriterMemory;
use crate::writers::Writers;

/// What a node is for, with what it stands on.
#[derive(Clone)]
pub enum Role {
    /// Everything: the names and one store.
    Alone {
        /// The names.
        namespace: Arc<Namespace>,
        /// The bytes.
        store: Arc<Store>,
    },
    /// The manager of a cluster: it has the names, and sends clients to where the bytes are.
    Manager(Arc<Manager>),
    /// A disk server of a cluster: it has stores. Whoever asks for names is sent to the manager.
    Disk(Arc<DiskServer>),
}

/// One node: what it stands on, and everything that belongs to no single connection.
pub(crate) struct Node {
    pub(crate) config: ServerConfig,
    /// Where it really listens.
    pub(crate) address: std::net::SocketAddr,
    pub(crate) role: Role,
    stores: Vec<Arc<Store>>,
    pub(crate) writers: Mutex<Writers<Arc<Lease>>>,
    pub(crate) workers: Workers,
    /// For storing what a connection has received while it receives more.
    pub(crate) storers: Workers,
    pub(crate) checksums: Checksums,
    pub(crate) buffers: Arc<Buffers>,
    pub(crate) drainer: Arc<Drainer>,
    pub(crate) transfers: Transfers,
    pub(crate) handle_shares: Arc<Shares>,
    /// Connections, by who has them.
    pub(crate) connection_shares: Shares,
    pub(crate) writer_memory: Arc<WriterMemory>,
    /// By the number in the session's id.
    pub(crate) sessions: Mutex<HashMap<u64, Arc<Session>>>,
    /// Lines about what clients send.
    pub(crate) complaints: Complaints,
    /// Lines about the node's own troubles: bad input must not crowd them out.
    pub(crate) alarms: Complaints,
    /// Third-party copies: who may come for what, and what is being fetched.
    pub(crate) rendezvous: Arc<Rendezvous>,
    pub(crate) pulls: Pulls,
    pub(crate) striped_opens: StripedOpens,
    pub(crate) counters: Counters,
    pub(crate) meter: Arc<Meter>,
    pub(crate) started: Timestamp,
    /// Some writer of an earlier boot is still waited for.
    pub(crate) old_boots: AtomicBool,
    /// The store takes no new data at the moment.
    pub(crate) floor_reached: AtomicBool,
    /// Those of `config` at first.
    times: RwLock<Times>,
    stopping: AtomicBool,
    next_session: AtomicU64,
}

/// What has been done since the start.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) connections: AtomicU64,
    pub(crate) bytes_read: AtomicU64,
    pub(crate) bytes_written: AtomicU64,
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Ordering::Relaxed);
    }
}

impl Node {
    pub(crate) fn new(config: ServerConfig, address: std::net::SocketAddr, role: Role) -> std::io::Result<Arc<Self>> {
        let limits = config.limits.clone();
        let workers = Workers::start("worker", limits.workers, limits.worker_queue_max)?;
        let storers = Workers::start("storer", limits.storers, 0)?;
        let drainer = Drainer::start(config.times.send)?;
        Ok(Arc::new(Self {
            writers: Mutex::new(Writers::new(config.times.grace)),
            address,
            stores: match &role {
                Role::Alone { store, .. } => vec![Arc::clone(store)],
                Role::Manager(_) => Vec::new(),
                Role::Disk(disk) => disk.stores(),
            },
            role,
            workers,
            storers,
            checksums: Checksums::new(),
            buffers: Buffers::new(limits.transfer_buffers_max),
            drainer,
            transfers: Transfers::new(limits.transfers_max),
            handle_shares: Arc::new(Shares::new(limits.handles_max)),
            connection_shares: Shares::new(limits.connections_max),
            writer_memory: WriterMemory::new(limits.writers_memory_max),
            sessions: Mutex::new(HashMap::new()),
            complaints: Complaints::new(Instant::now()),
            alarms: Complaints::new(Instant::now()),
            rendezvous: Arc::default(),
            pulls: Pulls::new(config.pull.as_ref().map(|fetcher| Arc::clone(&fetcher.0)), limits.pulls_max),
            striped_opens: StripedOpens::default(),
            counters: Counters::default(),
            meter: Arc::new(Meter::new()),
            started: wall_clock(),
            old_boots: AtomicBool::new(false),
            floor_reached: AtomicBool::new(false),
            times: RwLock::new(config.times),
            stopping: AtomicBool::new(false),
            next_session: AtomicU64::new(1),
            config,
        }))
    }

    pub(crate) fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    pub(crate) fn begin_stop(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    /// The times that hold now.
    pub(crate) fn times(&self) -> Times {
        *self.times.read()
    }

    /// See [`crate::Server::adjust`].
    pub(crate) fn adjust(&self, limits: &Limits, times: Times) {
        self.connection_shares.set_most(limits.connections_max);
        self.handle_shares.set_most(limits.handles_max);
        self.writer_memory.set_most(limits.writers_memory_max);
        self.transfers.set_most(limits.transfers_max);
        self.drainer.set_patience(times.send);
        self.writers.lock().set_grace(times.grace);
        *self.times.write() = times;
    }

    pub(crate) fn next_session(&self) -> u64 {
        self.next_session.fetch_add(1, Ordering::Relaxed)
    }
}

impl Node {
    /// The names, where this node keeps them.
    fn namespace(&self) -> Result<&Arc<Namespace>, NsError> {
        match &self.role {
            Role::Alone { namespace, .. } => Ok(namespace),
            Role::Manager(manager) => Ok(manager.namespace()),
            Role::Disk(_) => Err(NsError::Elsewhere),
        }
    }

    /// What operations are handed, at this moment.
    fn context(&self, namespace: &Namespace) -> Context {
        namespace.context(wall_clock(), &self.config.actor, None)
    }

    /// See [`Namespace::read`].
    pub(crate) fn read_names<T>(
        &self,
        reading: impl FnOnce(&dyn namespace::Read) -> Result<T, NsError>,
    ) -> Result<T, NsError> {
        self.namespace()?.read(reading)
    }

    /// See [`Namespace::change`].
    pub(crate) fn change<O: Operation + Send + 'static>(
        &self,
        durability: Durability,
        op: O,
        done: impl FnOnce(Result<O::Reply, NsError>) + Send + 'static,
    ) {
        match self.namespace() {
            Ok(namespace) => namespace.change(durability, self.context(namespace), op, done),
            Err(error) => done(Err(error)),
        }
    }

    /// See [`Namespace::change_urgent`].
    pub(crate) fn change_urgent<O: Operation + Send + 'static>(
        &self,
        durability: Durability,
        op: O,
        done: impl FnOnce(Result<O::Reply, NsError>) + Send + 'static,
    ) {
        match self.namespace() {
            Ok(namespace) => namespace.change_urgent(durability, self.context(namespace), op, done),
            Err(error) => done(Err(error)),
        }
    }

    /// See [`Namespace::change_wait`].
    pub(crate) fn change_wait<O: Operation + Send + 'static>(
        &self,
        durability: Durability,
        op: O,
    ) -> Result<O::Reply, NsError> {
        let namespace = self.namespace()?;
        namespace.change_wait(durability, self.context(namespace), op)
    }

    /// See [`Namespace::change_urgent_wait`].
    pub(crate) fn change_urgent_wait<O: Operation + Send + 'static>(
        &self,
        durability: Durability,
        op: O,
    ) -> Result<O::Reply, NsError> {
        let namespace = self.namespace()?;
        namespace.change_urgent_wait(durability, self.context(namespace), op)
    }

    /// This life of the namespace.
    pub(crate) fn incarnation(&self) -> Incarnation {
        self.namespace().map_or(Incarnation(0), |namespace| namespace.incarnation())
    }

    /// The stores of this node.
    pub(crate) fn stores(&self) -> &[Arc<Store>] {
        &self.stores
    }

    /// The store that has `replica`, where it is asked for by the namespace of the same node.
    pub(crate) fn store_of(&self, replica: ReplicaId) -> Result<&Arc<Store>, StoreError> {
        match &self.role {
            Role::Alone { store, .. } => Ok(store),
            Role::Manager(_) | Role::Disk(_) => Err(StoreError::NotFound { replica }),
        }
    }

    /// Sizes of the file systems of all stores, on a manager of those of the cluster.
    pub(crate) fn space_of_all(&self) -> Result<Space, StoreError> {
        if let Role::Manager(manager) = &self.role {
            return Ok(manager.space());
        }
        let mut all = Space { floor_reached: true, ..Space::default() };
        for store in &self.stores {
            let Space { total, free, floor, floor_reached } = store.space()?;
            all.total = all.total.saturating_add(total);
            all.free = all.free.saturating_add(free);
            all.floor = all.floor.saturating_add(floor);
            all.floor_reached &= floor_reached;
        }
        Ok(all)
    }

    /// The same, for an answer.
    pub(crate) fn space(&self, doing: &dyn std::fmt::Display) -> Result<Space, Refusal> {
        self.space_of_all().map_err(|error| Refusal::of_store(doing, &error))
    }

    /// Hands `work` to the workers with the duty to answer, however much waits there: for what follows from a change
    /// that the namespace has made already.
    pub(crate) fn must_do(&self, reply: Reply, work: impl FnOnce(Reply) + Send + 'static) {
        self.workers.submit_duty(Box::new(move || work(reply)));
    }

    /// Does `work` in a thread of its own, with the duty `then`: for what waits for other servers, and so must not keep the workers from those who
    /// wait for this one. Without a thread it is done by the caller.
    pub(crate) fn apart<T: Send + 'static>(&self, then: T, work: impl FnOnce(T) + Send + 'static) {
        // The work lies where both outcomes find it.
        let slot = Arc::new(Mutex::new(Some((then, work))));
        let inner = Arc::clone(&slot);
        let run = |slot: &Mutex<Option<_>>| {
            let taken = slot.lock().take();
            if let Some((then, work)) = taken {
                let work: Box<dyn FnOnce(T)> = Box::new(work);
                work(then);
            }
        };
        let spawned = std::thread::Builder::new().name("striped".to_owned()).spawn(move || run(&inner));
        if spawned.is_err() {
            run(&slot);
        }
    }

    /// Hands `work` to the workers with the duty to answer; too much work is answered with a wait. Only for work that
    /// nothing was done for yet.
    pub(crate) fn on_worker(&self, reply: Reply, work: impl FnOnce(Reply) + Send + 'static) {
        // The duty lies where both outcomes find it.
        let slot = Arc::new(Mutex::new(Some(reply)));
        let inner = Arc::clone(&slot);
        let queued = self.workers.submit(Box::new(move || {
            let reply = inner.lock().take();
            if let Some(reply) = reply {
                work(reply);
            }
        }));
        if queued.is_err()
            && let Some(reply) = slot.lock().take()
        {
            reply.refuse(&Refusal::busy());
        }
    }
}

/// The time of day, read here and handed down.
pub(crate) fn wall_clock() -> Timestamp {
    SystemTime::now().into()
}
