//! Opens the parts of a node in order, and closes them in reverse: disk, journal, indexes, the committer, the namespace, the store.

use std::sync::Arc;

use disk::{Directory, Disk};
use journal::{Ballast, Journal, JournalConfig, Opened, StreamId};
use kv::{Embedded, JournaledIndex, Recovery};
use namespace::Namespace;
use store::{Store, StoreRecovery};
use types::{ClusterId, StoreId, Timestamp};

use crate::datadir::{DataDir, DirRole, DirWatch, IfNew, KEPT_PARTS};
use crate::error::{OpenError, StoreOpenError};
use crate::manager_names::{self, Claim, DatabaseSettings, ManagerNames, NamesEngine};
use crate::runs::Runs;
use crate::settings::Settings;
use crate::startup_report::{StartupReport, of_parts};
use crate::storage_base::{StorageBase, disk_of, open_namespace};

/// The streams of a store's journal.
const STORE_STREAMS: [StreamId; 2] = [StreamId::STORE_INDEX, StreamId::STORE_DATA];

/// Why a directory is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// To serve.
    Serve,
    /// To look: recovers like a start, and runs nothing in the background.
    Check,
    /// Like `Check`, but also opens a namespace that is older than its objects, for a repair.
    Repair,
}

/// An open namespace in the data directory, and the keys that hold it.
pub struct Names {
    /// The namespace's keys.
    pub index: Arc<JournaledIndex>,
    /// The committer.
    pub embedded: Arc<Embedded>,
    /// The tree.
    pub namespace: Arc<Namespace>,
    /// What opening found in the namespace's index.
    pub recovery: Recovery,
}

/// The index of a namespace that is not opened itself: opening one changes it.
pub struct NamesIndex {
    /// The namespace's keys.
    pub index: Arc<JournaledIndex>,
    /// What opening found in the index.
    pub recovery: Recovery,
}

/// An open store, with the index of its objects.
pub struct Objects {
    /// The number of the store.
    pub id: StoreId,
    /// The store's records.
    pub index: Arc<JournaledIndex>,
    /// The objects.
    pub store: Arc<Store>,
    /// What opening found in the store's index.
    pub recovery: Recovery,
    /// What opening found in the store.
    pub found: StoreRecovery,
}

/// A part of a [`Foundation`]; `()` if a directory does not have the part.
pub trait Part {
    /// Stops its background work. Called before anything is closed.
    fn stop(&self) {}
    /// Closes its index.
    ///
    /// # Errors
    ///
    /// Errors of the index.
    fn close(&self) -> Result<(), OpenError> {
        Ok(())
    }
    /// The name of its index, and what opening found in it.
    fn recovery(&self) -> Option<(&'static str, &Recovery)> {
        None
    }
    /// What opening found in the store, if this part is one.
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

impl Part for NamesIndex {
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

/// An open data directory: everything below the server. A single node's has names and objects, a manager's only names, a store's only objects. The
/// types say which, so that no code asks a store for names.
pub struct Foundation<N = Names, O = Objects> {
    /// The data directory.
    pub disk: Arc<dyn Disk>,
    /// The open directory, for what is not in a part.
    pub directory: Arc<Directory>,
    /// Watches whether the directory's path still names it. Look once a second, and stop if it does not.
    pub watch: DirWatch,
    /// The journal.
    pub journal: Arc<Journal>,
    /// The space held back.
    pub ballast: Ballast,
    /// What opening found in the journal.
    pub opened: Opened,
    /// Whether a damaged journal was cut once, a new one replaced a lost one, or a namespace older than the objects was accepted. Then the store
    /// deletes no unknown files by itself.
    pub was_repaired: bool,
    /// With [`Purpose::Repair`]: the namespace is older than the objects. [`Foundation::accept_older`] ends this state.
    pub is_older: bool,
    /// When the data directory was created.
    pub made: Timestamp,
    /// The namespace, or `()`.
    pub names: N,
    /// The store, or `()`.
    pub objects: O,
}

/// The parts of a manager.
pub type ManagerFoundation = Foundation<ManagerNames, ()>;
/// A manager's directory, for a copy of its namespace.
pub type IndexFoundation = Foundation<NamesIndex, ()>;
/// The parts of one store of a disk server. Its directory has its own journal, index and objects.
pub type StoreFoundation = Foundation<(), Objects>;

impl Foundation {
    /// Opens everything in `data`, and recovers it after an unclean stop. `now` is the time of the start.
    ///
    /// # Errors
    ///
    /// Errors of any part. The parts opened so far are closed as after a crash.
    pub fn open(data: &DataDir, settings: &Settings, purpose: Purpose, now: Timestamp) -> Result<Self, OpenError> {
        Self::open_on(disk_of(data), data, settings, purpose, now)
    }

    /// Like [`Foundation::open`], on the caller's disk: tests use one that counts.
    ///
    /// # Errors
    ///
    /// As [`Foundation::open`].
    pub fn open_on(
        disk: Arc<dyn Disk>,
        data: &DataDir,
        settings: &Settings,
        purpose: Purpose,
        now: Timestamp,
    ) -> Result<Self, OpenError> {
        let storage_base = StorageBase::open(disk, settings, purpose, &JournalConfig::default().streams)?;
        let (namespace_index, namespace_recovery) = storage_base.namespace_index(data, settings)?;
        let (store_index, store_recovery) = storage_base.store_index(data, settings)?;
        let disk = &storage_base.disk;
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
        let was_repaired = storage_base.was_repaired || runs.older_accepted || is_older;
        let (store, found) = storage_base.store(&store_index, settings.floor, settings.recent.clone(), was_repaired)?;
        let names = Names { index: namespace_index, embedded, namespace, recovery: namespace_recovery };
        storage_base.keep_journal();
        let id = data.format.store;
        let objects = Objects { id, index: store_index, store, recovery: store_recovery, found };
        Ok(Self { was_repaired, is_older, ..Foundation::of(storage_base, data, names, objects) })
    }

    /// Ends the state [`Foundation::is_older`]. The caller has raised the namespace's numbers above those of all objects, so it may serve.
    ///
    /// # Errors
    ///
    /// Errors of the disk.
    pub fn accept_older(&self) -> Result<(), OpenError> {
        Ok(Runs { last: self.names.namespace.session().0, older_accepted: true }.write(&*self.disk)?)
    }
}

impl ManagerFoundation {
    /// Opens the names in `data`, and recovers them after an unclean stop. `random` decides how many numbers are skipped. `now` is the time of the
    /// start.
    ///
    /// # Errors
    ///
    /// As [`Foundation::open`], and [`OpenError::InDatabase`].
    pub fn open_names(
        data: &DataDir,
        settings: &Settings,
        purpose: Purpose,
        random: u64,
        now: Timestamp,
    ) -> Result<Self, OpenError> {
        let disk = disk_of(data);
        manager_names::in_directory_only(&*disk)?;
        let storage_base = StorageBase::open(disk, settings, purpose, &[StreamId::NAMESPACE])?;
        let (index, recovery) = storage_base.namespace_index(data, settings)?;
        let (embedded, namespace) = open_namespace(&index, settings, namespace::count_to_pass_over(random), now)?;
        storage_base.keep_journal();
        let engine = NamesEngine::Directory { index, embedded, recovery };
        Ok(Foundation::of(storage_base, data, ManagerNames { namespace, engine }, ()))
    }

    /// Opens the names in a database, to serve. The directory `data` keeps the rest: its journal takes no records, and tells by its incarnation whether
    /// the node may have forgotten something.
    ///
    /// # Errors
    ///
    /// As [`Foundation::open`], and those of the database. [`OpenError::PlaceTaken`]: the place was not free any more. The database must belong to the directory: either both are new, or both have the same cluster, and the
    /// database has at least what it had at the last start.
    pub fn open_names_in(
        (database, claim): (&DatabaseSettings, Claim<'_>),
        data: &DataDir,
        settings: &Settings,
        random: u64,
        now: Timestamp,
    ) -> Result<Self, OpenError> {
        let disk = disk_of(data);
        let connected = manager_names::connect(&*disk, ClusterId(data.format.cluster), database, claim)?;
        let storage_base = StorageBase::open(disk, settings, Purpose::Serve, &[StreamId::NAMESPACE])?;
        let passed_over = namespace::count_to_pass_over(random);
        let names = manager_names::open(connected, &*storage_base.disk, settings, passed_over, now)?;
        storage_base.keep_journal();
        Ok(Foundation::of(storage_base, data, names, ()))
    }
}

impl IndexFoundation {
    /// Opens the index of the names in `data`, and recovers it after an unclean stop. Does not open the namespace, so that all entries stay as they are.
    /// Opens an index that is being copied out of a database, too.
    ///
    /// # Errors
    ///
    /// As [`Foundation::open`].
    pub fn open_index(data: &DataDir, settings: &Settings) -> Result<Self, OpenError> {
        let storage_base = StorageBase::open(disk_of(data), settings, Purpose::Check, &[StreamId::NAMESPACE])?;
        let (index, recovery) = storage_base.namespace_index(data, settings)?;
        storage_base.keep_journal();
        Ok(Foundation::of(storage_base, data, NamesIndex { index, recovery }, ()))
    }
}

impl StoreFoundation {
    /// Opens the store at `path` of the cluster `cluster`, and recovers it after an unclean stop. Creates it, if requested and if the directory is
    /// empty. `reserve`: bytes kept free on its disk; `None`: the value in the settings. The directory stays locked while the [`DataDir`] lives.
    ///
    /// # Errors
    ///
    /// The directory was refused, or a part of it cannot be opened.
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
            let storage_base = StorageBase::open(disk_of(&data), settings, Purpose::Serve, &STORE_STREAMS)?;
            let (index, recovery) = storage_base.store_index(&data, settings)?;
            let (store, found) = storage_base.store(
                &index,
                reserve.or(settings.floor),
                settings.recent.clone(),
                storage_base.was_repaired,
            )?;
            storage_base.keep_journal();
            Ok(Foundation::of(
                storage_base,
                &data,
                (),
                Objects { id: data.format.store, index, store, recovery, found },
            ))
        };
        match open() {
            Ok(foundation) => Ok((data, foundation)),
            Err(source) => Err(StoreOpenError::Open { path: path.to_owned(), source }),
        }
    }
}

impl<N: Part, O: Part> Foundation<N, O> {
    fn of(storage_base: StorageBase, data: &DataDir, names: N, objects: O) -> Self {
        if storage_base.purpose == Purpose::Serve {
            // A repair may still move them.
            data.directory().keep(&KEPT_PARTS);
        }
        let StorageBase { disk, journal, opened, ballast, was_repaired, .. } = storage_base;
        let made = data.format.created;
        let (directory, watch) = (Arc::clone(data.directory()), data.watch());
        Self { disk, directory, watch, journal, ballast, opened, was_repaired, is_older: false, made, names, objects }
    }

    /// What opening found, for the log. `grace_secs`: the grace period of writers.
    #[must_use]
    pub fn startup_report(&self, grace_secs: u64) -> Vec<StartupReport> {
        let indexes: Vec<_> = [self.names.recovery(), self.objects.recovery()].into_iter().flatten().collect();
        of_parts(&self.opened, &indexes, self.objects.found(), grace_secs)
    }

    /// Closes everything, so that the next start is quick. Nothing may use it afterwards.
    ///
    /// # Errors
    ///
    /// The first error of a part. All parts are closed all the same.
    pub fn close(&self) -> Result<(), OpenError> {
        self.names.stop();
        self.objects.stop();
        let names = self.names.close();
        let objects = self.objects.close();
        let journal = self.journal.close().map_err(OpenError::from);
        names.and(objects).and(journal)
    }
}
