//! The base of the indexes: the disk, the journal and the ballast of one directory. Indexes, namespace and store open on them.

use std::sync::Arc;

use disk::{Disk, DiskError, RealDisk};
use journal::{Ballast, Journal, JournalConfig, Opened, StreamId};
use kv::{Embedded, EmbeddedConfig, IndexConfig, JournaledIndex, KvError, Recovery};
use namespace::{Namespace, NamespaceConfig};
use store::{RecentPages, Store, StoreConfig, StoreRecovery};
use types::Timestamp;

use crate::datadir::DataDir;
use crate::error::OpenError;
use crate::layout::{
    BALLAST_FILE, JOURNAL_DIR, NAMESPACE_CHECKPOINT_DIR, NAMESPACE_DIR, NAMESPACE_INDEX_DIR, STORE_CHECKPOINT_DIR,
    STORE_DIR, STORE_INDEX_DIR,
};
use crate::marks::{self, JournalReset};
use crate::open::Purpose;
use crate::own_journal::OwnJournal;
use crate::settings::Settings;

/// The disk in a data directory.
#[must_use]
pub fn disk_of(data: &DataDir) -> Arc<dyn Disk> {
    Arc::new(RealDisk::on(Arc::clone(data.directory())))
}

/// The base of the indexes: the disk, the journal and the ballast of one directory.
pub(crate) struct StorageBase {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) opened: Opened,
    pub(crate) ballast: Ballast,
    /// Whether a damaged journal was cut once, or a new one replaced a lost one.
    pub(crate) was_repaired: bool,
    own_journal: OwnJournal,
    pub(crate) purpose: Purpose,
    index_config: IndexConfig,
}

impl StorageBase {
    /// Opens the journal of `streams` on `disk`, and recovers it after an unclean stop.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        settings: &Settings,
        purpose: Purpose,
        streams: &[StreamId],
    ) -> Result<Self, OpenError> {
        if purpose != Purpose::Repair && marks::is_rebuilding(&*disk)? {
            return Err(OpenError::RebuildInterrupted);
        }
        if purpose != Purpose::Repair && marks::is_restoring(&*disk)? {
            return Err(OpenError::RestoreInterrupted);
        }
        let journal_reset = JournalReset::read(&*disk)?;
        if purpose != Purpose::Repair && journal_reset.is_some_and(|mark| !mark.finished) {
            return Err(OpenError::JournalResetUnfinished);
        }
        let ballast = Ballast::new(Arc::clone(&disk), BALLAST_FILE);
        // Recovery writes to the journal and to the indexes. On a full disk it needs the space of the ballast.
        if disk.space()?.free < settings.segment_bytes.saturating_mul(2) && ballast.release()? {
            tracing::warn!("the disk is full: the ballast was given back, so that the node can start");
        }
        // If indexes or objects exist, a missing journal is a lost one, not a first start.
        let must_exist = holds_anything(&*disk)?;
        let journal_config = JournalConfig { must_exist, streams: streams.to_vec(), ..settings.journal() };
        let (journal, opened) = Journal::open(Arc::clone(&disk), JOURNAL_DIR, journal_config)?;
        let own_journal = OwnJournal::of(&*disk, &journal, &opened, journal_reset)?;
        let index_config = IndexConfig {
            overlay_bytes_max: usize::try_from(settings.overlay).unwrap_or(usize::MAX),
            background: purpose == Purpose::Serve,
            journal_ended_at: Some(opened.last),
            journal_owner: own_journal.owner,
            ..IndexConfig::default()
        };
        let was_repaired = was_repaired(&*disk)? || journal_reset.is_some();
        Ok(Self { disk, journal: Arc::new(journal), opened, ballast, was_repaired, own_journal, purpose, index_config })
    }

    /// Records that the journal and the opened indexes belong to this directory.
    pub(crate) fn keep_journal(&self) {
        self.own_journal.keep(&*self.disk);
    }

    pub(crate) fn namespace_index(
        &self,
        data: &DataDir,
        settings: &Settings,
    ) -> Result<(Arc<JournaledIndex>, Recovery), OpenError> {
        self.index("namespace", StreamId::NAMESPACE, data, NAMESPACE_INDEX_DIR, NAMESPACE_CHECKPOINT_DIR, settings)
    }

    pub(crate) fn store_index(
        &self,
        data: &DataDir,
        settings: &Settings,
    ) -> Result<(Arc<JournaledIndex>, Recovery), OpenError> {
        self.index("store", StreamId::STORE_INDEX, data, STORE_INDEX_DIR, STORE_CHECKPOINT_DIR, settings)
    }

    fn index(
        &self,
        which: &'static str,
        stream: StreamId,
        data: &DataDir,
        dir: &str,
        checkpoint: &str,
        settings: &Settings,
    ) -> Result<(Arc<JournaledIndex>, Recovery), OpenError> {
        let failed = |source| OpenError::Index { which, source };
        let engine = engine(data, dir, settings).map_err(failed)?;
        let (journal, disk) = (Arc::clone(&self.journal), Arc::clone(&self.disk));
        JournaledIndex::open(journal, stream, engine, disk, checkpoint, self.index_config.clone()).map_err(failed)
    }

    /// Opens the store over its index. With `was_repaired`, the store may have forgotten objects whose files are the only replicas.
    pub(crate) fn store(
        &self,
        index: &Arc<JournaledIndex>,
        floor: Option<u64>,
        recent: Option<Arc<RecentPages>>,
        was_repaired: bool,
    ) -> Result<(Arc<Store>, StoreRecovery), OpenError> {
        let store_config = StoreConfig {
            floor,
            recent,
            // After a clean stop there are no orphans. After a repair of the journal the store may have forgotten objects. Their files may be the
            // only replicas, so it deletes none. A command that only looks deletes none either.
            find_orphans: (self.purpose != Purpose::Serve || !self.opened.clean) && !was_repaired,
            clear_away: self.purpose == Purpose::Serve && !was_repaired,
            ..StoreConfig::default()
        };
        let (journal, index) = (Arc::clone(&self.journal), Arc::clone(index) as Arc<dyn store::RecordIndex>);
        Ok(Store::open(Arc::clone(&self.disk), STORE_DIR, journal, index, store_config)?)
    }
}

/// Opens the namespace over its index, with the committing thread. `objects_passed_over`: see [`NamespaceConfig`].
pub(crate) fn open_namespace(
    index: &Arc<JournaledIndex>,
    settings: &Settings,
    objects_passed_over: u64,
    now: Timestamp,
) -> Result<(Arc<Embedded>, Arc<Namespace>), OpenError> {
    let failed = |source| OpenError::Index { which: "namespace", source };
    let embedded = Arc::new(Embedded::new(Arc::clone(index), EmbeddedConfig::default()).map_err(failed)?);
    let namespace = namespace_on(Arc::clone(&embedded) as Arc<dyn kv::Kv>, settings, objects_passed_over, now)?;
    Ok((embedded, namespace))
}

/// Opens the namespace over an engine.
pub(crate) fn namespace_on(
    engine: Arc<dyn kv::Kv>,
    settings: &Settings,
    objects_passed_over: u64,
    now: Timestamp,
) -> Result<Arc<Namespace>, OpenError> {
    let limits = namespace::Limits { upload_keep: settings.uploads_kept, ..namespace::Limits::default() };
    let namespace_config = NamespaceConfig { limits, objects_passed_over, ..NamespaceConfig::default() };
    let namespace = Namespace::open(engine, now, namespace_config)?;
    if !namespace.is_usage_counted() {
        tracing::warn!(
            "cannot count what directory trees use, because some records of the namespace cannot be read; quotas cannot be set; stop the node, run `weir fsck`, and start it again"
        );
    }
    Ok(namespace)
}

/// Whether the disk has anything that needs a journal.
///
/// # Errors
///
/// Errors of the disk.
pub fn holds_anything(disk: &dyn Disk) -> Result<bool, DiskError> {
    Ok(holds_directory(disk, NAMESPACE_DIR)? || holds_directory(disk, STORE_DIR)?)
}

/// Whether the data directory has this directory.
pub(crate) fn holds_directory(disk: &dyn Disk, name: &str) -> Result<bool, DiskError> {
    Ok(disk.list("")?.iter().any(|entry| entry.is_dir && entry.name == name))
}

/// Whether a damaged journal was cut once: the removed part is still beside it.
fn was_repaired(disk: &dyn Disk) -> Result<bool, DiskError> {
    Ok(disk.list(JOURNAL_DIR)?.iter().any(|entry| entry.is_dir && entry.name.starts_with("damaged-")))
}

/// The tables of the index in `dir` of the data directory.
///
/// # Errors
///
/// Errors of the tables or of the operating system.
pub fn engine(data: &DataDir, dir: &str, settings: &Settings) -> Result<Box<dyn kv::Engine>, KvError> {
    let lsm = kv::LsmConfig { cache_bytes: settings.cache, ..kv::LsmConfig::default() };
    let home = data.directory().make_below(dir).map_err(|error| KvError::Io(error.to_string()))?;
    Ok(Box::new(kv::LsmEngine::open_in(home, lsm)?))
}
