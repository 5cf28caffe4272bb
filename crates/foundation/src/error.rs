//! Why what a data directory holds could not be opened, and with which code a command then ends.

use std::path::PathBuf;

use console::Exit;
use disk::DiskError;
use journal::JournalError;
use kv::KvError;
use namespace::NsError;
use store::StoreError;
use types::ErrorCode;

use crate::datadir::DataDirError;

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
    #[error("{file} does not read as it was written: `{text}`", file = crate::marks::NEW_LOG)]
    NewLogMark {
        /// What is in it.
        text: String,
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
            | Self::NewLogMark { .. } => return Exit::Damaged,
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
