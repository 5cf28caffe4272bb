//! What a node stands on, opened in order and closed in the reverse: disk, log, the two indexes, the committer, the
//! namespace, the store. `serve` puts the server on top; `fsck` looks at it.

use std::sync::Arc;

use disk::{Disk, DiskError, RealDisk};
use journal::{Ballast, BallastConfig, Journal, JournalConfig, JournalError, Opened, StreamId};
use kv::{Embedded, EmbeddedConfig, IndexConfig, KvError, LoggedIndex, Recovery};
use namespace::{Namespace, NamespaceConfig, NsError};
use store::{Store, StoreConfig, StoreError, StoreRecovery};
use types::{ErrorCode, Timestamp};

use crate::backup::restore;
use crate::config::Config;
use crate::datadir::DataDir;
use crate::exit::Exit;
use crate::new_log::NewLog;
use crate::rebuild;
use crate::runs::Runs;

pub(crate) const JOURNAL_DIR: &str = "journal";
pub(crate) const NAMESPACE_DIR: &str = "namespace";
pub(crate) const NAMESPACE_INDEX_DIR: &str = "namespace/index";
pub(crate) const NAMESPACE_CHECKPOINT_DIR: &str = "namespace/checkpoint";
pub(crate) const STORE_DIR: &str = "store";
/// Where the store keeps large contents, one file each.
pub(crate) const OBJECTS_DIR: &str = "store/objects";
pub(crate) const STORE_INDEX_DIR: &str = "store/index";
pub(crate) const STORE_CHECKPOINT_DIR: &str = "store/checkpoint";
/// The two indexes: whose, and where.
pub(crate) const INDEXES: [(&str, &str); 2] = [("namespace", NAMESPACE_INDEX_DIR), ("store", STORE_INDEX_DIR)];
const BALLAST_FILE: &str = "ballast";

/// Why it could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The disk refused.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The log refused.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// An index refused.
    #[error("the index of the {which}: {source}")]
    Index {
        /// Whose.
        which: &'static str,
        /// Why.
        source: KvError,
    },
    /// The namespace refused.
    #[error("the namespace: {0}")]
    Namespace(#[from] NsError),
    /// The store refused.
    #[error("the store: {0}")]
    Store(#[from] StoreError),
    /// The namespace comes from an older backup than the contents.
    #[error(
        "the namespace is older than the objects beside it: it knows {namespace} sessions, and session {contents} \
         has run on these objects. Journal, namespace and store belong together; nothing was changed"
    )]
    OlderNamespace {
        /// The last session that the namespace knows.
        namespace: u64,
        /// The last one that ran on the contents.
        contents: u64,
    },
    /// `weir fsck --rebuild-store` was interrupted.
    #[error("a rebuild of the store's index was started and not finished")]
    RebuildInterrupted,
    /// `weir restore` was interrupted.
    #[error("a restore of the namespace was started and not finished")]
    RestoreInterrupted,
    /// A new log was begun in the place of a lost one, and not all has followed it.
    #[error("a new journal was started in place of a lost one, and that was not finished")]
    NewLogUnfinished,
    /// The mark of a new log does not read back.
    #[error("{file} does not read as it was written: `{text}`", file = crate::new_log::MARK)]
    NewLogMark {
        /// What is in it.
        text: String,
    },
    /// A new log was asked for where there is one.
    #[error(
        "the journal is there, and goes as far as the indexes: nothing was changed. If it is another node's, move journal away first"
    )]
    LogIsThere,
    /// A new log was asked for where a part of the old one is left.
    #[error(
        "a part of the journal is there, records {oldest} to {last}: put the missing segments back. If they are lost \
         for good, rename journal to journal-lost-by-hand and run this again: what it holds is then lost. Nothing \
         was changed"
    )]
    PartOfLog {
        /// Its first record.
        oldest: u64,
        /// Its last.
        last: u64,
    },
    /// Neither the index nor its checkpoints hold anything that a new log could go on with.
    #[error(
        "there is no journal, and neither the index of the {which} nor its checkpoints hold anything: with a new \
         journal there would be nothing left. Put {which}/index and {which}/checkpoint back; nothing was changed"
    )]
    NothingToGoOnWith {
        /// Whose.
        which: &'static str,
    },
}

impl OpenError {
    /// The code that the run ends with.
    #[must_use]
    pub fn exit(&self) -> Exit {
        let code = match self {
            Self::Disk(error) => error.code(),
            Self::Journal(JournalError::Missing { .. })
            | Self::OlderNamespace { .. }
            | Self::RebuildInterrupted
            | Self::RestoreInterrupted
            | Self::NewLogUnfinished
            | Self::NewLogMark { .. }
            | Self::NothingToGoOnWith { .. } => return Exit::Damaged,
            Self::LogIsThere | Self::PartOfLog { .. } => return Exit::Failed,
            Self::Journal(error) => error.code(),
            Self::Index { source, .. } => source.code(),
            Self::Namespace(error) => error.code(),
            Self::Store(error) => error.code(),
        };
        match code {
            ErrorCode::Damaged | ErrorCode::Checksum => Exit::Damaged,
            ErrorCode::Unsupported => Exit::DataDirectory,
            ErrorCode::Io | ErrorCode::Unavailable => Exit::DiskFailed,
            _ => Exit::Failed,
        }
    }

    /// Whether the store's index is lost, or was being rebuilt, so that `--rebuild-store` is the way on.
    #[must_use]
    pub fn is_lost_store(&self) -> bool {
        matches!(
            self,
            Self::Index { which: "store", source: KvError::Lost(_) }
                | Self::RebuildInterrupted
                | Self::Store(StoreError::IndexLost)
        )
    }

    /// Whether the log itself is damaged, so that `--repair-journal` is the way on.
    #[must_use]
    pub fn is_journal_damage(&self) -> bool {
        matches!(self, Self::Journal(JournalError::Damaged(_)))
    }
}

/// What opening found.
#[derive(Debug)]
pub struct Found {
    /// In the log.
    pub journal: Opened,
    /// In the namespace's index.
    pub namespace: Recovery,
    /// In the store's index.
    pub index: Recovery,
    /// In the store.
    pub store: StoreRecovery,
}

/// Everything below the server.
pub struct Foundation {
    /// The data directory.
    pub disk: Arc<dyn Disk>,
    /// The log.
    pub journal: Arc<Journal>,
    /// The namespace's keys.
    pub namespace_index: Arc<LoggedIndex>,
    /// The store's records.
    pub store_index: Arc<LoggedIndex>,
    /// The committer.
    pub embedded: Arc<Embedded>,
    /// The tree.
    pub namespace: Arc<Namespace>,
    /// The bytes.
    pub store: Arc<Store>,
    /// Space held back.
    pub ballast: Ballast,
    /// What opening found.
    pub found: Found,
    /// Whether a damaged log was cut once ([`repair_journal`]), a new one begun in the place of a lost one, or a namespace
    /// older than the contents accepted: the store then clears nothing away by itself.
    pub was_repaired: bool,
    /// With [`Purpose::Repair`]: the namespace is older than the contents. [`Foundation::accept_older`] ends that.
    pub is_older: bool,
    /// When the data directory was made.
    pub made: Timestamp,
}

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

/// The journal as `config` wants it.
#[must_use]
pub fn journal_config(config: &Config) -> JournalConfig {
    // Less than a segment would be no help to the log.
    let ballast = BallastConfig { path: BALLAST_FILE.to_owned(), bytes: ballast_bytes(config) };
    JournalConfig { segment_bytes: config.segment_size, ballast: Some(ballast), ..JournalConfig::default() }
}

/// How much is held back: what is set, and at least a segment of the log.
#[must_use]
pub fn ballast_bytes(config: &Config) -> u64 {
    config.ballast.max(config.segment_size)
}

/// The disk of a data directory.
pub fn disk_of(data: &DataDir) -> Result<Arc<dyn Disk>, DiskError> {
    Ok(Arc::new(RealDisk::open(&data.path)?))
}

/// Cuts a damaged log where the damage begins, saving all from there on aside, and has the indexes follow the cut log.
/// `None`: it is not damaged.
pub fn repair_journal(data: &DataDir, config: &Config) -> Result<Option<journal::Repaired>, OpenError> {
    let repaired = Journal::repair(&*disk_of(data)?, JOURNAL_DIR, &journal_config(config))?;
    if let Some(repaired) = &repaired {
        crate::repair_index::repair_index(data, config, repaired)?;
    }
    Ok(repaired)
}

impl Foundation {
    /// Opens everything in `data`, recovering what an unclean stop left. `now` is the time of the start.
    pub fn open(data: &DataDir, config: &Config, purpose: Purpose, now: Timestamp) -> Result<Self, OpenError> {
        Self::open_on(disk_of(data)?, data, config, purpose, now)
    }

    /// As [`Foundation::open`], on a disk of the caller's: tests put one there that counts.
    pub fn open_on(
        disk: Arc<dyn Disk>,
        data: &DataDir,
        config: &Config,
        purpose: Purpose,
        now: Timestamp,
    ) -> Result<Self, OpenError> {
        let ground = Ground::open(disk, config, purpose, &JournalConfig::default().streams)?;
        let (namespace_index, namespace_found) = ground.namespace_index(data, config)?;
        let (store_index, index_found) = ground.store_index(data, config)?;
        let disk = &ground.disk;
        let runs = Runs::read(&**disk)?;
        let known = namespace::last_session(&*namespace_index.snapshot())?.map_or(0, |session| session.0);
        let is_older = known < runs.last;
        if is_older && purpose != Purpose::Repair {
            return Err(OpenError::OlderNamespace { namespace: known, contents: runs.last });
        }
        let (embedded, namespace) = open_namespace(&namespace_index, config, 0, now)?;
        if !is_older {
            Runs { last: namespace.session().0, ..runs }.write(&**disk)?;
        }
        let was_repaired = ground.was_repaired || runs.older_accepted || is_older;
        let (store, store_found) = ground.store(&store_index, config.floor, was_repaired)?;
        let Ground { disk, journal, opened, ballast, .. } = ground;
        let found = Found { journal: opened, namespace: namespace_found, index: index_found, store: store_found };
        Ok(Self {
            disk,
            journal,
            namespace_index,
            store_index,
            embedded,
            namespace,
            store,
            ballast,
            found,
            was_repaired,
            is_older,
            made: data.format.created,
        })
    }

    /// After [`Foundation::is_older`], once the namespace's numbers are above all that the contents have: it may serve.
    pub fn accept_older(&self) -> Result<(), OpenError> {
        Ok(Runs { last: self.namespace.session().0, older_accepted: true }.write(&*self.disk)?)
    }

    /// Closes everything so that the next start is quick. Nobody may use it any more.
    pub fn close(&self) -> Result<(), OpenError> {
        self.embedded.stop();
        // All are closed, whatever the first ones say; the first error is what counts.
        let namespace = self.namespace_index.close().map_err(|source| OpenError::Index { which: "namespace", source });
        let store = self.store_index.close().map_err(|source| OpenError::Index { which: "store", source });
        let journal = self.journal.close().map_err(OpenError::from);
        namespace.and(store).and(journal)
    }
}

/// What indexes stand on: disk, log and ballast of one directory.
pub(crate) struct Ground {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) opened: Opened,
    pub(crate) ballast: Ballast,
    /// Whether a damaged log was cut once, or a new one begun in the place of a lost one.
    pub(crate) was_repaired: bool,
    purpose: Purpose,
    index_config: IndexConfig,
}

impl Ground {
    /// Opens the log of `streams` on `disk`, recovering what an unclean stop left.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        config: &Config,
        purpose: Purpose,
        streams: &[StreamId],
    ) -> Result<Self, OpenError> {
        if purpose != Purpose::Repair && rebuild::is_under_way(&*disk)? {
            return Err(OpenError::RebuildInterrupted);
        }
        if purpose != Purpose::Repair && restore::is_under_way(&*disk)? {
            return Err(OpenError::RestoreInterrupted);
        }
        let new_log = NewLog::read(&*disk)?;
        if purpose != Purpose::Repair && new_log.is_some_and(|mark| !mark.finished) {
            return Err(OpenError::NewLogUnfinished);
        }
        let ballast = Ballast::new(Arc::clone(&disk), BALLAST_FILE);
        // Recovery writes to the log and to the indexes. On a full disk this is what the ballast is for.
        if disk.space()?.free < config.segment_size.saturating_mul(2) && ballast.release()? {
            tracing::warn!("the disk is full: the ballast was given back, so that the node can start");
        }
        // Where indexes or contents are, a missing log is a lost one, not a first start.
        let must_exist = holds_anything(&*disk)?;
        let journal_config = JournalConfig { must_exist, streams: streams.to_vec(), ..journal_config(config) };
        let (journal, opened) = Journal::open(Arc::clone(&disk), JOURNAL_DIR, journal_config)?;
        let index_config = IndexConfig {
            overlay_bytes_max: usize::try_from(config.overlay).unwrap_or(usize::MAX),
            background: purpose == Purpose::Serve,
            log_ended_at: Some(opened.last),
            ..IndexConfig::default()
        };
        let was_repaired = was_repaired(&*disk)? || new_log.is_some();
        Ok(Self { disk, journal: Arc::new(journal), opened, ballast, was_repaired, purpose, index_config })
    }

    pub(crate) fn namespace_index(
        &self,
        data: &DataDir,
        config: &Config,
    ) -> Result<(Arc<LoggedIndex>, Recovery), OpenError> {
        self.index("namespace", StreamId::NAMESPACE, data, NAMESPACE_INDEX_DIR, NAMESPACE_CHECKPOINT_DIR, config)
    }

    pub(crate) fn store_index(
        &self,
        data: &DataDir,
        config: &Config,
    ) -> Result<(Arc<LoggedIndex>, Recovery), OpenError> {
        self.index("store", StreamId::STORE_INDEX, data, STORE_INDEX_DIR, STORE_CHECKPOINT_DIR, config)
    }

    fn index(
        &self,
        which: &'static str,
        stream: StreamId,
        data: &DataDir,
        dir: &str,
        checkpoint: &str,
        config: &Config,
    ) -> Result<(Arc<LoggedIndex>, Recovery), OpenError> {
        let failed = |source| OpenError::Index { which, source };
        let engine = engine(data, dir, config).map_err(failed)?;
        let (journal, disk) = (Arc::clone(&self.journal), Arc::clone(&self.disk));
        LoggedIndex::open(journal, stream, engine, disk, checkpoint, self.index_config.clone()).map_err(failed)
    }

    /// The store over its index. `was_repaired`: it may have forgotten contents whose files are the only copy.
    pub(crate) fn store(
        &self,
        index: &Arc<LoggedIndex>,
        floor: Option<u64>,
        was_repaired: bool,
    ) -> Result<(Arc<Store>, StoreRecovery), OpenError> {
        let store_config = StoreConfig {
            floor,
            // After a clean stop there is nothing to look for. After a repaired log the store may have forgotten contents
            // whose files are the only copy: then nothing is cleared away. Nor is it by who only looks.
            find_orphans: (self.purpose != Purpose::Serve || !self.opened.clean) && !was_repaired,
            clear_away: self.purpose == Purpose::Serve && !was_repaired,
            ..StoreConfig::default()
        };
        let (journal, index) = (Arc::clone(&self.journal), Arc::clone(index) as Arc<dyn store::RecordIndex>);
        Ok(Store::open(Arc::clone(&self.disk), STORE_DIR, journal, index, store_config)?)
    }
}

/// The namespace over its index, with the thread that commits. `objects_passed_over`: see [`NamespaceConfig`].
pub(crate) fn open_namespace(
    index: &Arc<LoggedIndex>,
    config: &Config,
    objects_passed_over: u64,
    now: Timestamp,
) -> Result<(Arc<Embedded>, Arc<Namespace>), OpenError> {
    let failed = |source| OpenError::Index { which: "namespace", source };
    let embedded = Arc::new(Embedded::new(Arc::clone(index), EmbeddedConfig::default()).map_err(failed)?);
    let limits = namespace::Limits { upload_keep: config.uploads_kept, ..namespace::Limits::default() };
    let namespace_config = NamespaceConfig { limits, objects_passed_over, ..NamespaceConfig::default() };
    let namespace = Namespace::open(Arc::clone(&embedded) as Arc<dyn kv::Kv>, now, namespace_config)?;
    Ok((embedded, namespace))
}

/// Whether there is anything that only a log can have brought here.
pub(crate) fn holds_anything(disk: &dyn Disk) -> Result<bool, DiskError> {
    let root = disk.list("")?;
    let is_there = |name: &str| root.iter().any(|entry| entry.is_dir && entry.name == name);
    Ok(is_there("namespace") || is_there("store"))
}

/// Whether the log was cut once because it was damaged: what was cut lies beside it.
fn was_repaired(disk: &dyn Disk) -> Result<bool, DiskError> {
    Ok(disk.list(JOURNAL_DIR)?.iter().any(|entry| entry.is_dir && entry.name.starts_with("damaged-")))
}

pub(crate) fn engine(data: &DataDir, dir: &str, config: &Config) -> Result<Box<dyn kv::Engine>, KvError> {
    let lsm = kv::LsmConfig { cache_bytes: config.cache, ..kv::LsmConfig::default() };
    Ok(Box::new(kv::LsmEngine::open(&data.path.join(dir), lsm)?))
}
