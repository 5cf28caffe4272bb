//! A complete node in memory, which tests start, kill and restart, and a client for it.

#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test may fail this way

pub mod client;

use std::sync::Arc;
use std::time::{Duration, Instant};

use disk::{Disk, SimDisk};
use journal::{Journal, JournalConfig, StreamId};
use kv::{Embedded, EmbeddedConfig, IndexConfig, JournaledIndex, MemoryEngine};
use namespace::{Namespace, NamespaceConfig};
use store::{Store, StoreConfig};
use types::{BootId, Timestamp};
use xrootd::{Server, ServerConfig};

use client::Client;

/// A grace period short enough for tests.
pub const GRACE: Duration = Duration::from_millis(700);

/// A node on a simulated disk.
pub struct World {
    pub disk: SimDisk,
    pub config: ServerConfig,
    running: Option<Running>,
}

struct Running {
    server: Server,
    embedded: Arc<Embedded>,
    journal: Arc<Journal>,
    store: Arc<Store>,
    namespace: Arc<Namespace>,
    indexes: Vec<Arc<JournaledIndex>>,
}

impl World {
    pub fn new() -> Self {
        Self::with(|_| ())
    }

    pub fn with(set: impl FnOnce(&mut ServerConfig)) -> Self {
        let mut config = ServerConfig::new("127.0.0.1:0".parse().unwrap(), BootId(1));
        config.service.times.grace = GRACE;
        config.service.times.keeper = Duration::from_millis(50);
        set(&mut config);
        let mut world = Self { disk: SimDisk::new(7), config, running: None };
        world.start();
        world
    }

    pub fn start(&mut self) {
        assert!(self.running.is_none());
        let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
        let journal_config = JournalConfig { segment_bytes: 32 << 20, ..JournalConfig::default() };
        let (journal, _) = Journal::open(Arc::clone(&disk), "journal", journal_config).unwrap();
        let journal = Arc::new(journal);
        let index = |stream, dir: &str| {
            let engine = Box::new(MemoryEngine::new());
            JournaledIndex::open(Arc::clone(&journal), stream, engine, Arc::clone(&disk), dir, IndexConfig::default())
                .unwrap()
                .0
        };
        let names = index(StreamId::NAMESPACE, "namespace/checkpoint");
        let records = index(StreamId::STORE_INDEX, "store/checkpoint");
        let embedded = Arc::new(Embedded::new(Arc::clone(&names), EmbeddedConfig::default()).unwrap());
        embedded.on_batch_done(Arc::new(xrootd::batch_done));
        let kv = Arc::clone(&embedded) as Arc<dyn kv::Kv>;
        let namespace = Namespace::open(kv, Timestamp::from_secs(1_700_000_000), NamespaceConfig::default()).unwrap();
        let (store, _) = Store::open(
            Arc::clone(&disk),
            "store",
            Arc::clone(&journal),
            Arc::clone(&records) as Arc<dyn store::RecordIndex>,
            StoreConfig { floor: Some(0), ..StoreConfig::default() },
        )
        .unwrap();
        let server = Server::start(
            self.config.clone(),
            service::Role::Alone { namespace: Arc::clone(&namespace), store: Arc::clone(&store) },
        )
        .unwrap();
        let indexes = vec![names, records];
        self.running = Some(Running { server, embedded, journal, store, namespace, indexes });
    }

    fn running(&self) -> &Running {
        self.running.as_ref().expect("the node runs")
    }

    pub fn server(&self) -> &Server {
        &self.running().server
    }

    pub fn store(&self) -> &Arc<Store> {
        &self.running().store
    }

    pub fn namespace(&self) -> &Arc<Namespace> {
        &self.running().namespace
    }

    /// Kills the node, as SIGKILL does: from this moment on nothing reaches the disk. Then restarts it.
    pub fn kill_and_restart(&mut self) {
        self.disk = self.disk.kill();
        self.bury();
        self.start();
    }

    /// A power failure that loses all unsynced data, and a new boot.
    pub fn crash_and_restart(&mut self, seed: u64) {
        use rand::SeedableRng;
        let mut rng = rand::rngs::StdRng::seed_from_u64(seed);
        self.disk = self.disk.crash(&mut rng, disk::CrashFaults::all_lost()).0;
        self.bury();
        self.config.service.boot.0 += 1;
        self.start();
    }

    /// Stops the node in order.
    pub fn stop(&mut self) -> xrootd::StopReport {
        let running = self.running.take().expect("the node runs");
        let report = running.server.stop(Instant::now() + Duration::from_secs(3));
        running.embedded.stop();
        for index in &running.indexes {
            index.close().unwrap();
        }
        running.journal.close().unwrap();
        report
    }

    /// The old node continues with the old disk, which is no longer used.
    fn bury(&mut self) {
        let running = self.running.take().expect("the node runs");
        running.server.stop(Instant::now());
        running.embedded.stop();
    }

    pub fn connect(&self) -> Client {
        self.connect_as("tester", 100)
    }

    pub fn connect_as(&self, user: &str, pid: u32) -> Client {
        let mut client = Client::connect(self.server().address());
        client.login(user, pid);
        client
    }

    /// Waits until `what` holds.
    pub fn until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let end = Instant::now() + Duration::from_secs(20);
        while !holds() {
            assert!(Instant::now() < end, "waited in vain: {what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if self.running.is_some() && !std::thread::panicking() {
            self.stop();
        }
    }
}

/// Bytes that depend on the seed and the position.
pub fn content(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_be_bytes()[3]
        })
        .collect()
}
