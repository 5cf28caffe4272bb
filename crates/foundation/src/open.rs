//! What a node stands on, opened in order and closed in the reverse: disk, log, indexes, the committer, the namespace, the store.

use std::sync::Arc;

use disk::Disk;
use journal::{Ballast, Journal, JournalConfig, Opened, StreamId};
use kv::{Embedded, LoggedIndex, Recovery};
use namespace::Namespace;
use store::{Store, StoreRecovery};
use types::{ClusterId, StoreId, Timestamp};

use crate::datadir::{DataDir, DirRole, IfNew};
use crate::error::{OpenError, StoreOpenError};
use crate::ground::{Ground, disk_of, open_namespace};
use crate::runs::Runs;
use crate::settings::Settings;
use crate::startup_report::{StartupReport, of_parts};

/// The streams of a store's log.
const STORE_STREAMS: [StreamId; 2] = [StreamId::STORE_INDEX, StreamId::STORE_DATA];

/// What it is opened for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// To serve.
    Serve,
    /// To look: the recovery of a start, and nothing in the background.
    Check,
    /// As `Check`, but a namespace older than its contents is opened all the same, to be repaired.
    Repair,
}

/// An open namespace, with the keys that it lies in.
pub struct Names {
    /// The namespace's keys.
    pub index: Arc<LoggedIndex>,
    /// The committer.
    pub embedded: Arc<Embedded>,
    /// The tree.
    pub namespace: Arc<Namespace>,
    /// What opening found in the index.
    pub recovery: Recovery,
}

/// An open store, with the index of its objects.
pub struct Objects {
    /// Which store it is.
    pub id: StoreId,
    /// The store's records.
    pub index: Arc<LoggedIndex>,
    /// The bytes.
    pub store: Arc<Store>,
    /// What opening found in the index.
    pub recovery: Recovery,
    /// What opening found in the store.
    pub found: StoreRecovery,
}

/// A part of a [`Foundation`]; `()` where a directory has none.
pub trait Part {
    /// Ends what runs in the background for it. Before anything is closed.
    fn stop(&self) {}
    /// Closes its index.
    ///
    /// # Errors
    /// What the index says.
    fn close(&self) -> Result<(), OpenError> {
        Ok(())
    }
    /// Whose index it has, and what opening found there.
    fn recovery(&self) -> Option<(&'static str, &Recovery)> {
        None
    }
    /// What opening found in the store, if this is one.
    fn found(&self) -> Option<&StoreRecovery> {
        None
    }
}

impl Part for () {}

impl Part for Names {
    fn stop(&self) {
        self.embedded.stop();
    }

    fn close(&self) -> Result<(), OpenError> {
        self.index.close().map_err(|source| OpenError::Index { which: "namespace", source })
    }

    fn recovery(&self) -> Option<(&'static str, &Recovery)> {
        Some(("namespace", &self.recovery))
    }
}

impl Part for Objects {
    fn close(&self) -> Result<(), OpenError> {
        self.index.close().map_err(|source| OpenError::Index { which: "store", source })
    }

    fn recovery(&self) -> Option<(&'static str, &Recovery)> {
        Some(("store", &self.recovery))
    }

    fn found(&self) -> Option<&StoreRecovery> {
        Some(&self.found)
    }
}

/// An open data directory: everything below the server. A single node's has names and objects, a manager's names alone, a store's objects
/// alone; the types say which, so that nobody asks a store for names.
pub struct Foundation<N = Names, O = Objects> {
    /// The data directory.
    pub disk: Arc<dyn Disk>,
    /// The log.
    pub journal: Arc<Journal>,
    /// Space held back.
    pub ballast: Ballast,
    /// What opening found in the log.
    pub opened: Opened,
    /// Whether a damaged log was cut once, a new one begun in the place of a lost one, or a namespace older than the contents accepted: the
    /// store then clears nothing away by itself.
    pub was_repaired: bool,
    /// With [`Purpose::Repair`]: the namespace is older than the contents. [`Foundation::accept_older`] ends that.
    pub is_older: bool,
    /// When the data directory was made.
    pub made: Timestamp,
    /// The namespace, where there is one.
    pub names: N,
    /// The store, where there is one.
    pub objects: O,
}

/// What is below a manager.
pub type ManagerFoundation = Foundation<Names, ()>;
/// What one store of a disk server stands on: its directory has a log, an index and objects of its own.
pub type StoreFoundation = Foundation<(), Objects>;

impl Foundation {
    /// Opens everything in `data`, recovering what an unclean stop left. `now` is the time of the start.
    ///
    /// # Errors
    /// Of any part. What was opened until then is closed as after a crash.
    pub fn open(data: &DataDir, settings: &Settings, purpose: Purpose, now: Timestamp) -> Result<Self, OpenError> {
        Self::open_on(disk_of(data)?, data, settings, purpose, now)
    }

    /// As [`Foundation::open`], on a disk of the caller's: tests put one there that counts.
    ///
    /// # Errors
    /// As [`Foundation::open`].
    pub fn open_on(
        disk: Arc<dyn Disk>,
        data: &DataDir,
        settings: &Settings,
        purpose: Purpose,
        now: Timestamp,
    ) -> Result<Self, OpenError> {
        let ground = Ground::open(disk, settings, purpose, &JournalConfig::default().streams)?;
        let (namespace_index, namespace_recovery) = ground.namespace_index(data, settings)?;
        let (store_index, store_recovery) = ground.store_index(data, settings)?;
        let disk = &ground.disk;
        let runs = Runs::read(&**disk)?;
        let known = namespace::last_session(&*namespace_index.snapshot())?.map_or(0, |session| session.0);
        let is_older = known < runs.last;
        if is_older && purpose != Purpose::Repair {
            return Err(OpenError::OlderNamespace { namespace: known, contents: runs.last });
        }
        let (embedded, namespace) = open_namespace(&namespace_index, settings, 0, now)?;
        if !is_older {
            Runs { last: namespace.session().0, ..runs }.write(&**disk)?;
        }
        let was_repaired = ground.was_repaired || runs.older_accepted || is_older;
        let (store, found) = ground.store(&store_index, settings.floor, was_repaired)?;
        let names = Names { index: namespace_index, embedded, namespace, recovery: namespace_recovery };
        let id = data.format.store;
        let objects = Objects { id, index: store_index, store, recovery: store_recovery, found };
        Ok(Self { was_repaired, is_older, ..Foundation::of(ground, data, names, objects) })
    }

    /// After [`Foundation::is_older`], once the namespace's numbers are above all that the contents have: it may serve.
    ///
    /// # Errors
    /// Of the disk.
    pub fn accept_older(&self) -> Result<(), OpenError> {
        Ok(Runs { last: self.names.namespace.session().0, older_accepted: true }.write(&*self.disk)?)
    }
}

impl ManagerFoundation {
    /// Opens the names in `data`, recovering what an unclean stop left. `random` says how many numbers are passed over, `now` is the time of
    /// the start.
    ///
    /// # Errors
    /// As [`Foundation::open`].
    pub fn open_names(data: &DataDir, settings: &Settings, random: u64, now: Timestamp) -> Result<Self, OpenError> {
        let ground = Ground::open(disk_of(data)?, settings, Purpose::Serve, &[StreamId::NAMESPACE])?;
        let (index, recovery) = ground.namespace_index(data, settings)?;
        let (embedded, namespace) = open_namespace(&index, settings, namespace::count_to_pass_over(random), now)?;
        Ok(Foundation::of(ground, data, Names { index, embedded, namespace, recovery }, ()))
    }
}

impl StoreFoundation {
    /// Opens the store in `path` of the cluster `cluster`, recovering what an unclean stop left; makes it, if that is wanted and nothing is there.
    /// `reserve`: bytes kept free on its disk; `None`: what the settings say for all. The directory is locked as long as the [`DataDir`] lives.
    ///
    /// # Errors
    /// The directory was refused, or a part of it does not open.
    pub fn open_store(
        path: &std::path::Path,
        cluster: ClusterId,
        reserve: Option<u64>,
        settings: &Settings,
        if_new: IfNew,
        now: Timestamp,
    ) -> Result<(DataDir, Self), StoreOpenError> {
        let data = DataDir::open_as(path, DirRole::Store, Some(cluster), if_new, now)?;
        let open = || -> Result<_, OpenError> {
            let ground = Ground::open(disk_of(&data)?, settings, Purpose::Serve, &STORE_STREAMS)?;
            let (index, recovery) = ground.store_index(&data, settings)?;
            let (store, found) = ground.store(&index, reserve.or(settings.floor), ground.was_repaired)?;
            Ok(Foundation::of(ground, &data, (), Objects { id: data.format.store, index, store, recovery, found }))
        };
        match open() {
            Ok(foundation) => Ok((data, foundation)),
            Err(source) => Err(StoreOpenError::Open { path: path.to_owned(), source }),
        }
    }
}

impl<N: Part, O: Part> Foundation<N, O> {
    fn of(ground: Ground, data: &DataDir, names: N, objects: O) -> Self {
        let Ground { disk, journal, opened, ballast, was_repaired, .. } = ground;
        let made = data.format.created;
        Self { disk, journal, ballast, opened, was_repaired, is_older: false, made, names, objects }
    }

    /// What opening found, for the log. `grace_secs`: how long writers have to come back.
    #[must_use]
    pub fn startup_report(&self, grace_secs: u64) -> Vec<StartupReport> {
        let indexes: Vec<_> = [self.names.recovery(), self.objects.recovery()].into_iter().flatten().collect();
        of_parts(&self.opened, &indexes, self.objects.found(), grace_secs)
    }

    /// Closes everything so that the next start is quick. Nobody may use it any more.
    ///
    /// # Errors
    /// The first error of a part; all are closed all the same.
    pub fn close(&self) -> Result<(), OpenError> {
        self.names.stop();
        self.objects.stop();
        let names = self.names.close();
        let objects = self.objects.close();
        let journal = self.journal.close().map_err(OpenError::from);
        names.and(objects).and(journal)
    }
}
