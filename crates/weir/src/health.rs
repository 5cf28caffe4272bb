//! Gathers what is judged of a running node ([`monitor::health`]), and keeps the history of its space. `weir status`, the metrics and the
//! check all get their judgement here.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, UNIX_EPOCH};

use audit::Log;
use cluster::Presence;
use cluster::placement::StoreState;
use database::Postgres;
use disk::Directory;
use disk_server::DiskServer;
use kv::JournaledIndex;
use link::{Authority, Credentials};
use maintenance::backup;
use maintenance::scrub::Scrub;
use manager::{Counted, Manager, ManagerState, StatusView, StoreView};
use monitor::health::{
    Backup, ClusterSnapshot, Count, DatabaseOutage, DiskSnapshot, DiskState, Health, ManagersSnapshot, Snapshot,
    SpaceSnapshot, SpaceTrend, judge,
};
use namespace::{Namespace, NsError};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use store::{Space, Store};
use types::Timestamp;

use crate::metrics::damaged_of_scrub;
use crate::other_managers::OtherManagersHealth;
use crate::serve::now;
use crate::standby::Known;
use crate::store_scrubs::StoreScrubs;

/// How old a judgement for the metrics may be: several programs may read them, and a large cluster takes a moment.
const RECENT: Duration = Duration::from_secs(5);
/// How often the space is looked at for its history.
const NOTE: Duration = Duration::from_secs(60);
/// Tombstones of writers that are examined for interrupted files.
const ENDED_MAX: usize = 10_000;

/// The answer to `weir status`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "kebab-case")]
pub(crate) enum StatusAnswer {
    /// A manager shows its cluster.
    Manager {
        /// The judgement.
        health: Health,
        /// The cluster. `None`: its names are in a database that is away.
        #[serde(flatten)]
        status: Option<Box<StatusView>>,
    },
    /// A single node.
    Single {
        /// The judgement.
        health: Health,
        /// The node.
        #[serde(flatten)]
        node: NodeStatus,
    },
    /// A standby manager.
    Standby {
        /// The judgement.
        health: Health,
        /// What it knows.
        #[serde(flatten)]
        standby: StandbyStatus,
    },
    /// A disk server, which knows only about itself.
    Disk {
        /// The judgement.
        health: Health,
        /// The node.
        #[serde(flatten)]
        node: NodeStatus,
        /// Its manager's address for clients, if it has heard from one.
        manager: Option<String>,
    },
}

/// What a standby manager knows.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct StandbyStatus {
    /// Its node.
    pub(crate) node: u64,
    /// For how long it has been a standby, in seconds.
    pub(crate) standby_seconds: u64,
    /// The active manager, if it is known.
    pub(crate) active: Option<ActiveStatus>,
    /// Why the database does not answer; `None`: it does.
    pub(crate) database_trouble: Option<String>,
    /// Whether it answers readers, or sends them to the active manager, too.
    pub(crate) answers_readers: bool,
}

/// The active manager, as a standby knows it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct ActiveStatus {
    /// Its node.
    pub(crate) node: u64,
    /// Its address for other nodes.
    pub(crate) nodes: String,
    /// Its address for clients.
    pub(crate) clients: String,
    /// Whether there is a connection with it.
    pub(crate) is_connected: bool,
}

/// A node that is no manager.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct NodeStatus {
    /// Its disks.
    pub(crate) disks: Vec<DiskView>,
    /// Logged-in clients.
    pub(crate) sessions: u64,
    /// Files that they have open.
    pub(crate) open_files: u64,
    /// Files that are being written.
    pub(crate) writers: u64,
}

/// A disk of a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct DiskView {
    /// Its name for people.
    pub(crate) name: String,
    /// Size in bytes. This and the next are 0 if they cannot be determined.
    pub(crate) capacity: u64,
    /// Bytes that files can still use.
    pub(crate) available: u64,
}

impl StatusAnswer {
    pub(crate) fn health(&self) -> &Health {
        match self {
            Self::Manager { health, .. }
            | Self::Single { health, .. }
            | Self::Standby { health, .. }
            | Self::Disk { health, .. } => health,
        }
    }
}

/// The parts of a role that are looked at.
pub(crate) enum Judged {
    /// A single node.
    Single { store: Arc<Store>, namespace: Arc<Namespace>, scrub: Arc<Scrub>, front: xrootd::Watch },
    /// A manager.
    Manager {
        manager: Arc<Manager>,
        credentials: Arc<Credentials>,
        /// The cluster's authority.
        authority: Arc<Authority>,
        /// The file system of its data directory.
        space: Box<dyn Fn() -> Option<Space> + Send + Sync>,
        /// When its data directory was created.
        made: Timestamp,
        /// The database that has the namespace, if one has it.
        database: Option<Arc<Postgres>>,
        /// The other managers.
        others: OtherManagersHealth,
    },
    /// A standby manager.
    Standby { known: Arc<Known>, readers: service::Standby, credentials: Arc<Credentials> },
    /// A disk server.
    Disk { server: Arc<DiskServer>, scrubs: Arc<StoreScrubs>, credentials: Arc<Credentials>, front: xrootd::Watch },
}

/// Whose space a history is about.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum TrendOf {
    Disk(String),
    AllStores,
}

/// Judges a running node.
pub(crate) struct NodeHealth {
    judged: Judged,
    directory: Arc<Directory>,
    indexes: Vec<Arc<JournaledIndex>>,
    audit: Log,
    trends: Mutex<BTreeMap<TrendOf, SpaceTrend>>,
    noted: Mutex<Option<Instant>>,
    recent: Mutex<Option<(Instant, Health)>>,
    /// Since when there have been under-replicated files.
    short_since: Mutex<Option<Instant>>,
}

impl NodeHealth {
    /// `directory`: the node's data directory. `indexes`: those whose troubles are told, as those of `audit` are.
    pub(crate) fn new(
        judged: Judged,
        directory: Arc<Directory>,
        indexes: Vec<Arc<JournaledIndex>>,
        audit: Log,
    ) -> Self {
        let (trends, noted, recent, short_since) =
            (Mutex::default(), Mutex::default(), Mutex::default(), Mutex::default());
        Self { judged, directory, indexes, audit, trends, noted, recent, short_since }
    }

    /// Notes the space for its history, once a minute. Call it about every second.
    pub(crate) fn look(&self) {
        // Without its names, a manager does not know its stores.
        let is_due = self.outage().is_none() && {
            let mut noted = self.noted.lock();
            let is_due = noted.is_none_or(|noted| noted.elapsed() >= NOTE);
            if is_due {
                *noted = Some(Instant::now());
            }
            is_due
        };
        if is_due {
            let stores = match &self.judged {
                Judged::Manager { manager, .. } => manager.stores_view().unwrap_or_default(),
                _ => Vec::new(),
            };
            self.disks(&stores, seconds_now());
        }
    }

    /// The state now.
    pub(crate) fn status(&self) -> Result<StatusAnswer, NsError> {
        match self.judge_now() {
            // The database went away meanwhile: the next answer needs no names.
            Err(_) if self.outage().is_some() => self.judge_now(),
            judged => judged,
        }
    }

    fn judge_now(&self) -> Result<StatusAnswer, NsError> {
        let now = seconds_now();
        let snapshot = |disks, backup| Snapshot {
            now,
            disks,
            backup,
            has_index_trouble: self.has_index_trouble(),
            loses_audit_lines: self.audit.counts().is_some_and(|counts| counts.has_lost_lately),
            ..Snapshot::default()
        };
        let last = self.last_backup();
        let answer = match &self.judged {
            // Whoever reads the names now would wait.
            Judged::Manager { credentials, .. } if self.outage().is_some() => {
                let health = judge(&Snapshot {
                    database_outage: self.outage(),
                    certificate_ends: Some(seconds(credentials.expires())),
                    ..snapshot(Vec::new(), Backup::NotExpected)
                });
                StatusAnswer::Manager { health, status: None }
            }
            Judged::Manager { manager, credentials, authority, made, database, others, .. } => {
                let (status, stores) = (manager.status_view()?, manager.stores_view()?);
                let (disks, all) = self.disks(&stores, now);
                // A database has backups of its own. If somebody notes them here, they are judged.
                let never = if database.is_some() { Backup::NotExpected } else { Backup::NeverSince(seconds(*made)) };
                let backup = last.map_or(never, Backup::At);
                let health = judge(&Snapshot {
                    cluster: Some(self.of_cluster(&status, &stores, all)),
                    certificate_ends: Some(seconds(credentials.expires())),
                    authority_change: crate::authority::change(others.own, authority, manager.namespace())?,
                    managers: of_managers(others, &status),
                    interrupted: count(status.interrupted),
                    // The others are missing replicas, and repair is at work.
                    damaged: status.damaged.no_other + status.damaged.waiting,
                    ..snapshot(disks, backup)
                });
                StatusAnswer::Manager { health, status: Some(Box::new(status)) }
            }
            Judged::Standby { known, readers, credentials } => {
                let (standby, trouble) = of_standby(known, readers.reads().is_some());
                let health = judge(&Snapshot {
                    certificate_ends: Some(seconds(credentials.expires())),
                    managers: ManagersSnapshot { trouble, ..ManagersSnapshot::default() },
                    ..snapshot(Vec::new(), Backup::NotExpected)
                });
                StatusAnswer::Standby { health, standby }
            }
            Judged::Single { namespace, scrub, front, .. } => {
                let (disks, _) = self.disks(&[], now);
                let node = of_node(&disks, front);
                let (interrupted, and_more) = namespace.read(|read| namespace::interrupted_lately(read, ENDED_MAX))?;
                let scrubbed = scrub.status();
                let health = judge(&Snapshot {
                    damaged: damaged_of_scrub(&scrubbed),
                    scrub_trouble: scrubbed.trouble,
                    interrupted: Count { count: interrupted, and_more },
                    ..snapshot(disks, last.map_or(Backup::NotExpected, Backup::At))
                });
                StatusAnswer::Single { health, node }
            }
            Judged::Disk { server, scrubs, credentials, front } => {
                let (disks, _) = self.disks(&[], now);
                let node = of_node(&disks, front);
                let scrubbed = scrubs.views();
                let health = judge(&Snapshot {
                    damaged: scrubbed.iter().map(|one| one.damaged_now).sum(),
                    scrub_trouble: scrubbed.into_iter().find_map(|one| one.status.trouble),
                    has_lease: Some(server.figures().is_in_session),
                    certificate_ends: Some(seconds(credentials.expires())),
                    ..snapshot(disks, Backup::NotExpected)
                });
                let manager = server.manager().map(|(host, port)| format!("{host}:{port}"));
                StatusAnswer::Disk { health, node, manager }
            }
        };
        *self.recent.lock() = Some((Instant::now(), answer.health().clone()));
        Ok(answer)
    }

    /// The judgement of the last seconds, or a new one.
    pub(crate) fn recent(&self) -> Option<Health> {
        if let Some((when, health)) = &*self.recent.lock()
            && when.elapsed() < RECENT
        {
            return Some(health.clone());
        }
        match self.status() {
            Ok(answer) => Some(answer.health().clone()),
            Err(error) => {
                tracing::warn!("the state of the node cannot be judged: {error}");
                None
            }
        }
    }

    /// Whether clients are served; otherwise why not.
    pub(crate) fn is_serving(&self) -> Result<(), &'static str> {
        match &self.judged {
            Judged::Disk { server, .. } if !server.figures().is_in_session => {
                Err("this disk server has no lease from its manager, and answers nobody without one")
            }
            _ => Ok(()),
        }
    }

    /// Whether the database under the namespace is away.
    pub(crate) fn outage(&self) -> Option<DatabaseOutage> {
        let Judged::Manager { database: Some(database), .. } = &self.judged else { return None };
        let outage = database.outage()?;
        Some(DatabaseOutage { seconds: outage.lasted.as_secs(), reason: outage.reason })
    }

    fn of_cluster(&self, status: &StatusView, stores: &[StoreView], space: SpaceSnapshot) -> ClusterSnapshot {
        let away = status.nodes.iter().filter(|node| node.presence == Some(Presence::Away));
        let is_short = status.under_replicated.count > 0 || status.under_replicated.and_more;
        let short_seconds = {
            let mut since = self.short_since.lock();
            *since = is_short.then(|| since.unwrap_or_else(Instant::now));
            since.map_or(0, |since| since.elapsed().as_secs())
        };
        ClusterSnapshot {
            space,
            has_stores: !stores.is_empty(),
            // After its own start the manager waits for all disk servers to report.
            is_starting: stores.iter().any(|store| store.state == StoreState::Suspect)
                && !stores.iter().any(|store| matches!(store.state, StoreState::Online | StoreState::Full)),
            under_replicated: count(status.under_replicated),
            single_copy: count(status.single_copy),
            unreadable: count(status.unreadable),
            short_seconds,
            away: away.map(|node| node.name.clone()).collect(),
            failed_repairs: status.repair.failed,
            is_older_than_stores: status.is_older_than_stores,
            is_held: status.is_held,
        }
    }

    fn has_index_trouble(&self) -> bool {
        self.indexes
            .iter()
            .map(|index| index.stats())
            .any(|stats| stats.trouble.is_some() || stats.checkpoint_trouble.is_some())
    }

    fn last_backup(&self) -> Option<u64> {
        Some(backup::last(&self.directory.held())?.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
    }

    /// The disks, and the sum of the stores that take new files. Notes their space.
    fn disks(&self, stores: &[StoreView], now: u64) -> (Vec<DiskSnapshot>, SpaceSnapshot) {
        let mut seen = Seen { now, trends: self.trends.lock(), met: Vec::new() };
        let data = format!("the disk of {}", self.directory.shown().display());
        let disks = match &self.judged {
            Judged::Single { store, .. } => vec![DiskSnapshot {
                space: store.space().ok().map(|space| seen.space(TrendOf::Disk(data.clone()), of_store(space))),
                name: data,
                is_vital: true,
                ..DiskSnapshot::default()
            }],
            Judged::Disk { server, .. } => {
                let figures = server.figures();
                figures.stores.iter().map(|store| seen.disk(format!("store {}", store.store), store.space)).collect()
            }
            Judged::Standby { .. } => Vec::new(),
            Judged::Manager { space, .. } => {
                // The namespace takes names as long as there is any room.
                let own = space().map(|space| (space.total, space.free));
                let own = DiskSnapshot {
                    space: own.map(|own| seen.space(TrendOf::Disk(data.clone()), own)),
                    name: data,
                    is_vital: true,
                    ..DiskSnapshot::default()
                };
                std::iter::once(own).chain(stores.iter().map(|store| seen.store(store, stores))).collect()
            }
        };
        let is_used = |state| matches!(state, StoreState::Online | StoreState::Suspect | StoreState::Full);
        let usable = stores.iter().filter(|store| is_used(store.state));
        let sum = usable.fold((0_u64, 0_u64), |(capacity, available), store| {
            (capacity.saturating_add(store.capacity), available.saturating_add(room(store)))
        });
        let all = seen.space(TrendOf::AllStores, sum);
        let Seen { mut trends, met, .. } = seen;
        trends.retain(|of, _| met.contains(of));
        (disks, all)
    }
}

/// A look at all disks.
struct Seen<'a> {
    now: u64,
    trends: parking_lot::MutexGuard<'a, BTreeMap<TrendOf, SpaceTrend>>,
    met: Vec<TrendOf>,
}

impl Seen<'_> {
    fn space(&mut self, of: TrendOf, (capacity, available): (u64, u64)) -> SpaceSnapshot {
        let trend = self.trends.entry(of.clone()).or_default();
        trend.note(self.now, capacity, available);
        self.met.push(of);
        SpaceSnapshot { capacity, available, ends: trend.end(self.now, available) }
    }

    fn disk(&mut self, name: String, space: Option<Space>) -> DiskSnapshot {
        let space = space.map(|space| self.space(TrendOf::Disk(name.clone()), of_store(space)));
        DiskSnapshot { name, space, ..DiskSnapshot::default() }
    }

    fn store(&mut self, store: &StoreView, all: &[StoreView]) -> DiskSnapshot {
        let is_alone = all.iter().filter(|other| other.location == store.location).count() == 1;
        let name = match is_alone {
            true => store.location.clone(),
            false => format!("{} (store {})", store.location, store.store),
        };
        let state = match store.state {
            StoreState::Online | StoreState::Suspect | StoreState::Full => DiskState::Used,
            StoreState::Offline => DiskState::Offline,
            StoreState::Returned => DiskState::Returned,
            StoreState::Draining | StoreState::ReadOnly | StoreState::Removed | StoreState::Replaced => {
                DiskState::SetAside
            }
        };
        // Its sizes are unknown until its node has reported.
        let space = (store.capacity > 0 && state == DiskState::Used)
            .then(|| self.space(TrendOf::Disk(format!("store {}", store.store)), (store.capacity, room(store))));
        DiskSnapshot { name, state, space, is_vital: false }
    }
}

/// Which managers could not take over from this one, which is active.
fn of_managers(others: &OtherManagersHealth, status: &StatusView) -> ManagersSnapshot {
    let in_state = |state| status.nodes.iter().filter(move |node| node.manager == Some(state));
    let offline = in_state(ManagerState::Offline).map(|node| format!("{} (node {})", node.name, node.node)).collect();
    let mut standbys = in_state(ManagerState::Standby).map(|node| (node.node, &*node.name)).peekable();
    // Without a standby, nobody reads the files for nothing.
    let behind = if standbys.peek().is_some() { others.lacking(standbys, |_| true) } else { Vec::new() };
    ManagersSnapshot { offline, behind, trouble: None }
}

/// What a standby manager knows, and why it could not take over or would be needed.
fn of_standby(known: &Known, answers_readers: bool) -> (StandbyStatus, Option<String>) {
    let (holder, is_connected, outage) = (known.holder(), known.is_connected(), known.outage());
    let active = holder.map(|holder| ActiveStatus {
        node: holder.node,
        nodes: holder.for_nodes,
        clients: holder.for_clients,
        is_connected,
    });
    let trouble = match (&outage, &active) {
        (Some((_, why)), _) => Some(format!("{why}; this standby cannot take over until the database answers")),
        (None, None) => Some("this standby does not know the active manager".to_owned()),
        (None, Some(active)) if !active.is_connected => {
            Some(format!("this standby has no connection with the active manager at {}", active.nodes))
        }
        (None, Some(_)) => known.trouble(),
    };
    let standby = StandbyStatus {
        node: known.own.0,
        standby_seconds: known.lasted().as_secs(),
        active,
        database_trouble: outage.map(|(_, why)| why),
        answers_readers,
    };
    (standby, trouble)
}

fn room(store: &StoreView) -> u64 {
    store.free.min(store.capacity).saturating_sub(store.reserve)
}

/// Size and available bytes of a store's disk.
fn of_store(space: Space) -> (u64, u64) {
    (space.total, if space.floor_reached { 0 } else { space.free.saturating_sub(space.floor) })
}

fn of_node(disks: &[DiskSnapshot], front: &xrootd::Watch) -> NodeStatus {
    let disk = |disk: &DiskSnapshot| {
        let space = disk.space.unwrap_or_default();
        DiskView { name: disk.name.clone(), capacity: space.capacity, available: space.available }
    };
    let figures = front.figures();
    NodeStatus {
        disks: disks.iter().map(disk).collect(),
        sessions: figures.sessions as u64,
        open_files: figures.open_files.now as u64,
        writers: figures.writers as u64,
    }
}

fn count(counted: Counted) -> Count {
    Count { count: counted.count, and_more: counted.and_more }
}

fn seconds(time: Timestamp) -> u64 {
    u64::try_from(time.secs()).unwrap_or(0)
}

fn seconds_now() -> u64 {
    seconds(now())
}
