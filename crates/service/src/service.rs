//! The service of one node: its parts, and how they start and stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use disk_server::DiskServer;
use manager::Manager;
use namespace::{Namespace, NsError};
use store::Store;
use types::Timestamp;

use crate::buffers::Buffers;
use crate::checksums::Checksums;
use crate::complaints::Complaints;
use crate::config::{Config, Limits, Times};
use crate::endings::Endings;
use crate::figures::Counters;
use crate::keeper::{self, Keeper};
use crate::names::{Names, wall_clock};
use crate::open_writes::OpenWrites;
use crate::sessions::Sessions;
use crate::settings::Settings;
use crate::shares::Shares;
use crate::stores::Stores;
use crate::striped::StripedOpens;
use crate::third_party::ThirdParty;
use crate::transfers::Transfers;
use crate::workers::Workers;
use crate::writer_memory::WriterMemory;

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

/// Why a service did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A thread could not be had.
    #[error("cannot start: {0}")]
    Thread(#[from] std::io::Error),
    /// The writers of the last run could not be read.
    #[error("cannot read the open writes of the last run: {0}")]
    Writers(#[from] NsError),
}

/// What front ends ask. Each part has its own state and its own lock, and knows only the parts that it was made with.
pub struct Service {
    pub(crate) settings: Arc<Settings>,
    pub(crate) role: Role,
    pub(crate) names: Names,
    pub(crate) stores: Stores,
    pub(crate) sessions: Arc<Sessions>,
    /// Open files, by who has them.
    pub(crate) handle_shares: Arc<Shares>,
    pub(crate) writes: Arc<OpenWrites>,
    pub(crate) writer_memory: Arc<WriterMemory>,
    pub(crate) endings: Arc<Endings>,
    pub(crate) workers: Arc<Workers>,
    /// For storing what a connection has received while it receives more.
    pub(crate) storers: Arc<Workers>,
    pub(crate) transfers: Arc<Transfers>,
    pub(crate) buffers: Arc<Buffers>,
    pub(crate) checksums: Checksums,
    /// Third-party copies: who may come for what, and what is being fetched.
    pub(crate) third_party: Arc<ThirdParty>,
    pub(crate) striped_opens: StripedOpens,
    pub(crate) counters: Arc<Counters>,
    /// Lines about the node's own troubles: what clients send must not crowd them out.
    pub(crate) alarms: Arc<Complaints>,
    pub(crate) started: Timestamp,
    stopping: Arc<AtomicBool>,
    keeper: Keeper,
}

impl Service {
    /// Starts it. The writers of the last run get a full grace period from now on.
    ///
    /// # Errors
    /// A thread could not be had, or the writers of the last run could not be read.
    pub fn start(config: Config, role: Role) -> Result<Arc<Self>, StartError> {
        let limits = config.limits.clone();
        let settings = Arc::new(Settings::new(config));
        let (names, stores) = (Names::of(&role), Stores::of(&role));
        let workers = Arc::new(Workers::start("worker", limits.workers, limits.worker_queue_max)?);
        let storers = Arc::new(Workers::start("storer", limits.storers, 0)?);
        let writes = Arc::new(OpenWrites::new(settings.config.times.grace));
        let endings = Arc::new(Endings {
            settings: Arc::clone(&settings),
            names: names.clone(),
            stores: stores.clone(),
            writes: Arc::clone(&writes),
            workers: Arc::clone(&workers),
        });
        let transfers = Arc::new(Transfers::new(limits.transfers_max));
        let counters = Arc::new(Counters::default());
        let third_party = ThirdParty::new(&settings, Arc::clone(&transfers), Arc::clone(&counters));
        let service = Arc::new(Self {
            sessions: Arc::new(Sessions::new()),
            handle_shares: Arc::new(Shares::new(limits.handles_max)),
            writer_memory: WriterMemory::new(limits.writers_memory_max),
            buffers: Buffers::new(limits.transfer_buffers_max),
            checksums: Checksums::new(&settings, &role, names.clone(), stores.clone()),
            striped_opens: StripedOpens::default(),
            alarms: Arc::new(Complaints::new(Instant::now())),
            started: wall_clock(),
            stopping: Arc::default(),
            keeper: Keeper::new(),
            settings,
            role,
            names,
            stores,
            writes,
            endings,
            workers,
            storers,
            transfers,
            third_party,
            counters,
        });
        service.checksums.start()?;
        let found = keeper::find_writers(&service)?;
        if found > 0 {
            tracing::info!(found, grace = ?service.settings.times().grace, "open writes wait for their writers");
        }
        service.keeper.start(&service)?;
        Ok(service)
    }

    /// What this node is for.
    #[must_use]
    pub fn role(&self) -> &Role {
        &self.role
    }

    /// What it was told at the start.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.settings.config
    }

    /// Takes over what can be while it runs: the bounds of open files, writers' memory and transfers for what is asked for from
    /// now on, the grace period for writers that go from now on.
    pub fn adjust(&self, limits: &Limits, times: Times) {
        self.handle_shares.set_most(limits.handles_max);
        self.writer_memory.set_most(limits.writers_memory_max);
        self.transfers.set_most(limits.transfers_max);
        self.writes.lock().set_grace(times.grace);
        self.settings.set_times(times);
    }

    /// Where the slots for moving data are had.
    #[must_use]
    pub fn transfers(&self) -> &Transfers {
        &self.transfers
    }

    /// Where buffers for moving data are had.
    #[must_use]
    pub fn buffers(&self) -> &Arc<Buffers> {
        &self.buffers
    }

    /// Where bytes are counted.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Lines about the node's own troubles.
    #[must_use]
    pub fn alarms(&self) -> &Complaints {
        &self.alarms
    }

    /// When it was started.
    #[must_use]
    pub fn started(&self) -> Timestamp {
        self.started
    }

    /// Whether it is to stop.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// From here on nothing long is begun. To be called before the front ends stop.
    pub fn begin_stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.third_party.pulls.stop();
    }

    /// Ends it: open writers are synced and wait for the next start; says how many there are. All front ends must have stopped. No thread that uses
    /// the namespace or the store is left.
    pub fn stop(&self) -> usize {
        let broken = self.broken().is_some();
        self.begin_stop();
        self.checksums.stop();
        self.keeper.stop();
        // A worker may wait for a store elsewhere, whose answer does not come any more.
        if let Role::Disk(disk) = &self.role {
            disk.set_summer(None);
            disk.let_go();
        }
        self.workers.stop();
        self.storers.stop();
        // What a thread had under way when it died is under way for ever: nobody may wait for that.
        for store in self.stores.all().iter().filter(|_| !broken) {
            if let Err(error) = store.tick() {
                tracing::error!(%error, "the last sync failed");
            }
        }
        self.writes.lock().len()
    }

    /// The thread that has died, if one has: the node does only half of its work since, and has to be stopped.
    #[must_use]
    pub fn broken(&self) -> Option<&'static str> {
        let threads = [
            ("keeper", self.keeper.ended()),
            ("checksums' thread", self.checksums.ended()),
            ("worker", self.workers.ended()),
            ("storer", self.storers.ended()),
        ];
        threads.into_iter().find(|(_, ended)| *ended).map(|(name, _)| name)
    }
}
