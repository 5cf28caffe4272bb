//! What all connections share.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use namespace::{Context, Namespace};
use parking_lot::{Mutex, RwLock};
use store::{Space, Store};
use types::Timestamp;

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
use crate::third_party::{Pulls, Rendezvous};
use crate::transfers::Transfers;
use crate::workers::Workers;
use crate::writer_memory::WriterMemory;
use crate::writers::Writers;

/// One node: the namespace, the store, and everything that belongs to no single connection.
pub(crate) struct Node {
    pub(crate) config: ServerConfig,
    /// Where it really listens.
    pub(crate) address: std::net::SocketAddr,
    pub(crate) namespace: Arc<Namespace>,
    pub(crate) store: Arc<Store>,
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
    pub(crate) fn new(
        config: ServerConfig,
        address: std::net::SocketAddr,
        namespace: Arc<Namespace>,
        store: Arc<Store>,
    ) -> std::io::Result<Arc<Self>> {
        let limits = config.limits.clone();
        let workers = Workers::start("worker", limits.workers, limits.worker_queue_max)?;
        let storers = Workers::start("storer", limits.storers, 0)?;
        let drainer = Drainer::start(config.times.send)?;
        Ok(Arc::new(Self {
            writers: Mutex::new(Writers::new(config.times.grace)),
            address,
            namespace,
            store,
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
    /// What operations are handed, at this moment.
    pub(crate) fn context(&self) -> Context {
        self.namespace.context(wall_clock(), &self.config.actor, None)
    }

    /// Sizes of the file system.
    pub(crate) fn space(&self, doing: &dyn std::fmt::Display) -> Result<Space, Refusal> {
        self.store.space().map_err(|error| Refusal::of_store(doing, &error))
    }

    /// Hands `work` to the workers with the duty to answer, however much waits there: for what follows from a change
    /// that the namespace has made already.
    pub(crate) fn must_do(&self, reply: Reply, work: impl FnOnce(Reply) + Send + 'static) {
        self.workers.submit_duty(Box::new(move || work(reply)));
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
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}
