//! What one store of a disk server stands on: its directory, with a log, an index and contents of its own. The same parts as a single node's
//! ([`crate::foundation`]), without names.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use disk::Disk;
use journal::{Ballast, Journal, Opened, StreamId};
use kv::{LoggedIndex, Recovery};
use store::{Store, StoreRecovery};
use types::{ClusterId, StoreId, Timestamp};

use crate::config::Config;
use crate::datadir::{DataDir, DataDirError, DirRole, IfNew};
use crate::exit::Exit;
use crate::foundation::{Ground, OpenError, Purpose, disk_of};
use crate::startup_report::{StartupReport, of_parts};

/// The streams of a store's log.
const STREAMS: [StreamId; 2] = [StreamId::STORE_INDEX, StreamId::STORE_DATA];

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum StoreOpenError {
    /// Its directory was refused.
    #[error(transparent)]
    Directory(#[from] DataDirError),
    /// What is in it does not open.
    #[error("cannot open the store in {path}: {source}")]
    Open {
        /// Its directory.
        path: PathBuf,
        /// Why.
        source: OpenError,
    },
}

impl StoreOpenError {
    /// The code that the run ends with.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self {
            Self::Directory(error) => error.exit(),
            Self::Open { source, .. } => source.exit(),
        }
    }
}

/// What opening found.
#[derive(Debug)]
pub struct StoreFound {
    /// In the log.
    pub journal: Opened,
    /// In the index.
    pub index: Recovery,
    /// In the store.
    pub store: StoreRecovery,
}

/// A store of a disk server, open.
pub struct StoreFoundation {
    /// Its directory, which is locked as long as this lives.
    pub data: DataDir,
    /// The directory.
    pub disk: Arc<dyn Disk>,
    /// The log.
    pub journal: Arc<Journal>,
    /// The records.
    pub index: Arc<LoggedIndex>,
    /// The contents.
    pub store: Arc<Store>,
    /// Space held back.
    pub ballast: Ballast,
    /// What opening found.
    pub found: StoreFound,
}

impl StoreFoundation {
    /// Opens the store in `path` of the cluster `cluster`, recovering what an unclean stop left; makes it, if that is wanted and nothing is there.
    /// `reserve`: bytes kept free on its disk; `None`: what the configuration says for all.
    pub fn open(
        path: &Path,
        cluster: ClusterId,
        reserve: Option<u64>,
        config: &Config,
        if_new: IfNew,
        now: Timestamp,
    ) -> Result<Self, StoreOpenError> {
        let data = DataDir::open_as(path, DirRole::Store, Some(cluster), if_new, now)?;
        let open = || -> Result<_, OpenError> {
            let ground = Ground::open(disk_of(&data)?, config, Purpose::Serve, &STREAMS)?;
            let (index, index_found) = ground.store_index(&data, config)?;
            let (store, store_found) = ground.store(&index, reserve.or(config.floor), ground.was_repaired)?;
            Ok((ground, index, index_found, store, store_found))
        };
        let (ground, index, index_found, store, store_found) =
            open().map_err(|source| StoreOpenError::Open { path: path.to_owned(), source })?;
        let Ground { disk, journal, opened, ballast, .. } = ground;
        let found = StoreFound { journal: opened, index: index_found, store: store_found };
        Ok(Self { data, disk, journal, index, store, ballast, found })
    }

    /// Which store it is.
    #[must_use]
    pub fn id(&self) -> StoreId {
        self.data.format.store
    }

    /// What opening found, for the log.
    #[must_use]
    pub fn in_words(&self, grace_secs: u64) -> Vec<StartupReport> {
        of_parts(&self.found.journal, &[("store", &self.found.index)], Some(&self.found.store), grace_secs)
    }

    /// Closes everything so that the next start is quick. Nobody may use it any more.
    pub fn close(&self) -> Result<(), OpenError> {
        // Both are closed; the first error is what counts.
        let index = self.index.close().map_err(|source| OpenError::Index { which: "store", source });
        let journal = self.journal.close().map_err(OpenError::from);
        index.and(journal)
    }
}
