//! The service of one node: its parts, and how they start and stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use disk_server::DiskServer;
use manager::Manager;
use namespace::{Namespace, NsError};
use store::Store;
use types::{DigestKind, Timestamp};

use crate::buffers::Buffers;
use crate::checksums::Checksums;
use crate::complaints::Complaints;
use crate::config::{Config, Limits, Times};
use crate::endings::Endings;
use crate::figures::Counters;
use crate::growth::Growth;
use crate::keeper::{self, Keeper};
use crate::names::{Names, wall_clock};
use crate::numbers::Numbers;
use crate::open_writes::OpenWrites;
use crate::principals::KeptNames;
use crate::read_ahead::ReadAhead;
use crate::sessions::Sessions;
use crate::settings::Settings;
use crate::shares::Shares;
use crate::standby::Standby;
use crate::stores::Stores;
use crate::striped::StripedOpens;
use crate::third_party::ThirdParty;
use crate::transfers::Transfers;
use crate::waiting_reads::WaitingReads;
use crate::workers::Workers;
use crate::writer_memory::WriterMemory;

/// The role of a node, with the parts below it.
#[derive(Clone)]
pub enum Role {
    /// A single node: it has the namespace and one store.
    Alone {
        /// The namespace.
        namespace: Arc<Namespace>,
        /// The store.
        store: Arc<Store>,
    },
    /// The manager of a cluster: it has the namespace, and redirects clients to disk servers.
    Manager(Arc<Manager>),
    /// A disk server of a cluster: it has stores, and redirects requests about names to the manager.
    Disk(Arc<DiskServer>),
    /// A standby manager of a cluster: it answers readers, and redirects all other requests to the active manager.
    Standby(Standby),
}

/// Why a service did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A thread could not be started.
    #[error("cannot start: {0}")]
    Thread(#[from] std::io::Error),
    /// The open writes of the last run could not be read.
    #[error("cannot read the open writes of the last run: {0}")]
    Writers(#[from] NsError),
}

/// The entry point for front ends. Each part has its own state and its own lock, and knows only the parts that it was
/// created with.
pub struct Service {
    pub(crate) settings: Arc<Settings>,
    pub(crate) role: Role,
    pub(crate) names: Names,
    /// Names of users and groups.
    pub(crate) kept_names: KeptNames,
    pub(crate) stores: Stores,
    pub(crate) sessions: Arc<Sessions>,
    /// Open files, counted per client machine.
    pub(crate) handle_shares: Arc<Shares>,
    pub(crate) writes: Arc<OpenWrites>,
    pub(crate) writer_memory: Arc<WriterMemory>,
    pub(crate) endings: Arc<Endings>,
    /// Reserves what open writes need from quotas.
    pub(crate) growth: Growth,
    /// Numbered requests that are under way.
    pub(crate) numbers: Arc<Numbers>,
    pub(crate) workers: Arc<Workers>,
    /// Threads that store received data while its connection receives more.
    pub(crate) storers: Arc<Workers>,
    pub(crate) transfers: Arc<Transfers>,
    pub(crate) waiting_reads: WaitingReads,
    pub(crate) buffers: Arc<Buffers>,
    /// Reads ahead of readers whose requests follow a pattern.
    pub(crate) read_ahead: Arc<ReadAhead>,
    pub(crate) checksums: Checksums,
    /// Third-party copies, as their source and as their target.
    pub(crate) third_party: Arc<ThirdParty>,
    pub(crate) striped_opens: StripedOpens,
    pub(crate) counters: Arc<Counters>,
    /// Limits log lines about the node's own errors. Clients have a separate limit, so that they cannot crowd these
    /// out.
    pub(crate) alarms: Arc<Complaints>,
    pub(crate) started: Timestamp,
    stopping: Arc<AtomicBool>,
    keeper: Keeper,
}

impl Service {
    /// The checksums that clients may ask for, beside the two that every complete file has.
    #[must_use]
    pub fn digests(&self) -> &[DigestKind] {
        &self.settings.config.digests
    }

    /// Starts the service. The writers of the last run get a full grace period from now on.
    ///
    /// # Errors
    /// A thread cannot be started, or the open writes of the last run cannot be read.
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
            disk: match &role {
                Role::Disk(disk) => Some(Arc::clone(disk)),
                Role::Alone { .. } | Role::Manager(_) | Role::Standby(_) => None,
            },
        });
        let transfers = Arc::new(Transfers::new(limits.transfers_max));
        let counters = Arc::new(Counters::default());
        let third_party = ThirdParty::new(&settings, Arc::clone(&transfers), Arc::clone(&counters));
        let growth = Growth::new(names.clone(), endings.disk.clone());
        let service = Arc::new(Self {
            growth,
            sessions: Arc::new(Sessions::new()),
            handle_shares: Arc::new(Shares::new(limits.handles_max)),
            writer_memory: WriterMemory::new(limits.writers_memory_max),
            buffers: Buffers::new(limits.transfer_buffers_max),
            waiting_reads: WaitingReads::start(&workers)?,
            read_ahead: Arc::new(ReadAhead::start(limits.read_ahead)?),
            checksums: Checksums::new(&settings, &role, names.clone(), stores.clone()),
            striped_opens: StripedOpens::default(),
            numbers: Arc::default(),
            alarms: Arc::new(Complaints::new(Instant::now())),
            started: wall_clock(),
            stopping: Arc::default(),
            keeper: Keeper::new(),
            settings,
            role,
            names,
            kept_names: KeptNames::default(),
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
        service.answer_claims();
        let found = keeper::find_writers(&service)?;
        if found > 0 {
            tracing::info!(found, grace = ?service.settings.times().grace, "open writes wait for their writers");
        }
        service.keeper.start(&service)?;
        Ok(service)
    }

    /// The role of this node.
    #[must_use]
    pub fn role(&self) -> &Role {
        &self.role
    }

    /// The configuration at the start.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.settings.config
    }

    /// Applies the settings that can change at run time. The limits of open files, writers' memory, transfers and
    /// reading ahead apply to later requests. The grace period applies to writers that disconnect later.
    pub fn adjust(&self, limits: &Limits, times: Times) {
        self.handle_shares.set_most(limits.handles_max);
        self.writer_memory.set_most(limits.writers_memory_max);
        self.transfers.set_most(limits.transfers_max);
        self.read_ahead.set_most(limits.read_ahead);
        self.writes.lock().set_grace(times.grace);
        self.settings.set_times(times);
    }

    /// The transfer slots.
    #[must_use]
    pub fn transfers(&self) -> &Transfers {
        &self.transfers
    }

    /// The transfer buffers.
    #[must_use]
    pub fn buffers(&self) -> &Arc<Buffers> {
        &self.buffers
    }

    /// The counters of transferred bytes.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Limits log lines about the node's own errors.
    #[must_use]
    pub fn alarms(&self) -> &Complaints {
        &self.alarms
    }

    /// The time of the start.
    #[must_use]
    pub fn started(&self) -> Timestamp {
        self.started
    }

    /// Whether the service is stopping.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Begins the stop: from now on the service starts no long work. Call it before the front ends stop.
    pub fn begin_stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.third_party.pulls.stop();
        self.waiting_reads.let_go();
    }

    /// Stops the service, after all front ends have stopped. Open writes are synced and wait for the next start.
    /// Returns their number. Afterwards no thread uses the namespace or the store.
    pub fn stop(&self) -> usize {
        let broken = self.broken().is_some();
        self.begin_stop();
        self.checksums.stop();
        self.keeper.stop();
        // A worker may wait for another store's answer, which no longer comes.
        if let Role::Disk(disk) = &self.role {
            disk.set_summer(None);
            disk.set_client_writes(None);
            disk.let_go();
        }
        self.waiting_reads.stop();
        self.workers.stop();
        self.storers.stop();
        self.read_ahead.stop();
        // A thread that has died never finishes its work, so do not wait for that.
        for store in self.stores.all().iter().filter(|_| !broken) {
            if let Err(error) = store.tick() {
                tracing::error!(%error, "the last sync failed");
            }
        }
        self.writes.lock().len()
    }

    /// The name of a thread that has died. The node then does only part of its work and must be stopped.
    #[must_use]
    pub fn broken(&self) -> Option<&'static str> {
        let threads = [
            ("keeper", self.keeper.ended()),
            ("checksums' thread", self.checksums.ended()),
            ("worker", self.workers.ended()),
            ("storer", self.storers.ended()),
            ("waiting reads' thread", self.waiting_reads.ended()),
            ("read-ahead thread", self.read_ahead.ended()),
        ];
        threads.into_iter().find(|(_, ended)| *ended).map(|(name, _)| name)
    }
}
