//! The namespace of a cluster's manager: in the data directory, or in a database.

use std::sync::Arc;
use std::time::Duration;

use database::{DatabaseAddress, Postgres, PostgresConfig, PostgresReader, Schema, Vacancy};
use disk::Disk;
use kv::{BatchDone, Embedded, JournaledIndex, Kv as _, Recovery};
use namespace::Namespace;
use types::{ClusterId, Timestamp};

use crate::database_mark::DatabaseMark;
use crate::datadir::DataDir;
use crate::error::OpenError;
use crate::layout::NAMESPACE_DIR;
use crate::open::Part;
use crate::settings::Settings;
use crate::storage_base::{disk_of, holds_directory, namespace_on};

/// The committer's name in the database. One manager at a time works there.
pub const COMMITTER: &str = "manager";

/// A database for a namespace, and how to use it.
#[derive(Clone, Debug)]
pub struct DatabaseSettings {
    /// Where it is.
    pub address: DatabaseAddress,
    /// Connections for readers at most.
    pub connections: usize,
    /// How long changes wait for a database that is away, before they fail.
    pub patience: Duration,
}

impl DatabaseSettings {
    fn engine(&self) -> PostgresConfig {
        PostgresConfig { connections: self.connections, patience: self.patience, ..PostgresConfig::default() }
    }

    /// The entries in the database, for a manager that is not active. It connects when somebody reads.
    #[must_use]
    pub fn reader(&self) -> Arc<PostgresReader> {
        Arc::new(PostgresReader::new(&self.address, COMMITTER, &self.engine()))
    }
}

/// How a manager takes its place in the database.
#[derive(Clone, Copy, Debug)]
pub enum Claim<'a> {
    /// When no manager has a lease there. A manager that gives signs of life keeps it.
    IfSilent,
    /// Only if it is still as it was found free. A manager that has the place keeps it.
    IfFree(&'a Vacancy),
}

/// The namespace of a manager, and what holds its keys.
pub struct ManagerNames {
    /// The tree.
    pub namespace: Arc<Namespace>,
    /// What holds its keys.
    pub engine: NamesEngine,
}

/// What holds the keys of a manager's namespace.
pub enum NamesEngine {
    /// The data directory.
    Directory {
        /// The keys.
        index: Arc<JournaledIndex>,
        /// The committer.
        embedded: Arc<Embedded>,
        /// What opening found in the index.
        recovery: Recovery,
    },
    /// A database.
    Database(Arc<Postgres>),
}

impl NamesEngine {
    /// The index in the data directory; `None` if the keys are in a database.
    #[must_use]
    pub fn index(&self) -> Option<&Arc<JournaledIndex>> {
        match self {
            Self::Directory { index, .. } => Some(index),
            Self::Database(_) => None,
        }
    }

    /// The committer of the data directory; `None` if the keys are in a database.
    #[must_use]
    pub fn embedded(&self) -> Option<&Arc<Embedded>> {
        match self {
            Self::Directory { embedded, .. } => Some(embedded),
            Self::Database(_) => None,
        }
    }

    /// The database, if the keys are in one.
    #[must_use]
    pub fn database(&self) -> Option<&Arc<Postgres>> {
        match self {
            Self::Directory { .. } => None,
            Self::Database(postgres) => Some(postgres),
        }
    }

    /// Whether this process may act as the one that has the namespace, for those who ask often. Always, if that is in the data directory; only one
    /// process can have it open.
    #[must_use]
    pub fn has_lease(&self) -> Box<dyn Fn() -> bool + Send + Sync> {
        match self.database().cloned() {
            None => Box::new(|| true),
            Some(postgres) => Box::new(move || postgres.lease().is_held()),
        }
    }

    /// Whether this process has lost its place for good: another one has taken it, or the database has lost changes. Never, if the namespace is in the
    /// data directory.
    #[must_use]
    pub fn has_lost_place(&self) -> Box<dyn Fn() -> bool + Send + Sync> {
        match self.database().cloned() {
            None => Box::new(|| false),
            Some(postgres) => Box::new(move || postgres.end().is_some()),
        }
    }

    /// Makes `hook` run after the completions of each batch.
    pub fn on_batch_done(&self, hook: BatchDone) {
        match self {
            Self::Directory { embedded, .. } => embedded.on_batch_done(hook),
            Self::Database(postgres) => postgres.on_batch_done(hook),
        }
    }

    /// Why no change is committed any more, if that is so.
    #[must_use]
    pub fn broken(&self) -> Option<String> {
        match self {
            Self::Directory { embedded, .. } => embedded.broken(),
            Self::Database(postgres) => postgres.broken(),
        }
    }
}

impl Part for ManagerNames {
    fn stop(&self) {
        match &self.engine {
            NamesEngine::Directory { embedded, .. } => embedded.stop(),
            NamesEngine::Database(postgres) => postgres.stop(),
        }
    }

    fn close(&self) -> Result<(), OpenError> {
        let Some(index) = self.engine.index() else { return Ok(()) };
        index.close().map_err(|source| OpenError::Index { which: "namespace", source })
    }

    fn recovery(&self) -> Option<(&'static str, &Recovery)> {
        match &self.engine {
            NamesEngine::Directory { recovery, .. } => Some(("namespace", recovery)),
            NamesEngine::Database(_) => None,
        }
    }
}

/// Refuses a directory whose namespace is in a database.
pub(crate) fn in_directory_only(disk: &dyn Disk) -> Result<(), OpenError> {
    match DatabaseMark::read(disk)? {
        Some(DatabaseMark { address, .. }) => Err(OpenError::InDatabase { address }),
        None => Ok(()),
    }
}

/// A database that belongs to a manager's directory, and the mark of the directory.
pub(crate) struct Connected {
    postgres: Arc<Postgres>,
    mark: DatabaseMark,
}

/// Whether the database and the manager's directory on `disk`, which belongs to `cluster`, belong together, as far as that can be seen without the
/// committer's place. Returns the mark of the directory.
fn check(disk: &dyn Disk, cluster: ClusterId, settings: &DatabaseSettings) -> Result<Option<DatabaseMark>, OpenError> {
    let address = settings.address.to_string();
    let mark = DatabaseMark::read(disk)?;
    if mark.is_none() && holds_directory(disk, NAMESPACE_DIR)? {
        return Err(OpenError::NotInDatabase { address });
    }
    // Before anything is written there.
    let found = Schema::connect(&settings.address)?.check()?;
    match (found, &mark) {
        (Some(found), _) if found != cluster => {
            return Err(OpenError::OtherDatabase { address, found: Box::new(found), ours: Box::new(cluster) });
        }
        (None, Some(mark)) => return Err(OpenError::EmptyDatabase { address, before: mark.address.clone() }),
        _ => {}
    }
    Ok(mark)
}

/// Refuses a database that does not belong to the manager's directory `data`. Changes nothing, and disturbs no manager that works there.
///
/// # Errors
///
/// As [`crate::ManagerFoundation::open_names_in`].
pub fn check_database(data: &DataDir, settings: &DatabaseSettings) -> Result<(), OpenError> {
    check(&*disk_of(data), ClusterId(data.format.cluster), settings).map(drop)
}

/// Connects to the database of the manager's directory on `disk`, which belongs to `cluster`. The namespace and the directory are not changed if they do
/// not belong together.
pub(crate) fn connect(
    disk: &dyn Disk,
    cluster: ClusterId,
    settings: &DatabaseSettings,
    claim: Claim<'_>,
) -> Result<Connected, OpenError> {
    let address = settings.address.to_string();
    let mark = check(disk, cluster, settings)?;
    let config = settings.engine();
    let postgres = match claim {
        Claim::IfSilent => Postgres::open(&settings.address, COMMITTER, config)?,
        Claim::IfFree(vacancy) => match Postgres::open_if_free(&settings.address, COMMITTER, config, vacancy)? {
            Some(postgres) => postgres,
            None => return Err(OpenError::PlaceTaken { address }),
        },
    };
    let found = postgres.claim(cluster)?;
    if found != cluster {
        return Err(OpenError::OtherDatabase { address, found: Box::new(found), ours: Box::new(cluster) });
    }
    let expected = mark.as_ref().map(|mark| mark.progress).unwrap_or_default();
    // Before the namespace is opened: each opening begins a session, and after enough attempts an older namespace would pass for the right one.
    let found = namespace::progress(&*postgres.snapshot())?.unwrap_or_default();
    if found < expected {
        return Err(OpenError::OlderDatabase { address, found: Box::new(found), expected: Box::new(expected) });
    }
    let mark_now = DatabaseMark { cluster, address, progress: expected };
    if mark.as_ref() != Some(&mark_now) {
        // Before anything is acknowledged that is in the database alone.
        mark_now.write(disk)?;
    }
    Ok(Connected { postgres: Arc::new(postgres), mark: mark_now })
}

/// Opens the namespace in the database, and notes its progress in the directory on `disk`. The database has committed the new session before that, so the
/// mark is never ahead of it. Nothing is served before the mark is durable.
pub(crate) fn open(
    connected: Connected,
    disk: &dyn Disk,
    settings: &Settings,
    objects_passed_over: u64,
    now: Timestamp,
) -> Result<ManagerNames, OpenError> {
    let Connected { postgres, mark } = connected;
    let namespace = namespace_on(Arc::clone(&postgres) as Arc<dyn kv::Kv>, settings, objects_passed_over, now)?;
    DatabaseMark { progress: namespace.progress(), ..mark }.write(disk)?;
    Ok(ManagerNames { namespace, engine: NamesEngine::Database(postgres) })
}
