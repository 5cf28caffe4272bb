//! Why the parts of a data directory could not be opened, and the exit code of the command.

use std::path::PathBuf;

use console::Exit;
use database::DatabaseError;
use disk::DiskError;
use journal::JournalError;
use kv::KvError;
use namespace::{NsError, Progress};
use store::StoreError;
use types::{ClusterId, ErrorCode};

use crate::datadir::DataDirError;

/// Why a part could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The disk returned an error.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The journal returned an error.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// An index returned an error.
    #[error("the index of the {which}: {source}")]
    Index {
        /// The owner of the index.
        which: &'static str,
        /// The cause.
        source: KvError,
    },
    /// The namespace returned an error.
    #[error("the namespace: {0}")]
    Namespace(#[from] NsError),
    /// The store returned an error.
    #[error("the store: {0}")]
    Store(#[from] StoreError),
    /// The namespace comes from an older backup than the objects.
    #[error(
        "the namespace is older than the objects beside it: it knows {namespace} sessions, and session {contents} \
         has run on these objects. Journal, namespace and store belong together; nothing was changed"
    )]
    OlderNamespace {
        /// The last session in the namespace.
        namespace: u64,
        /// The last session that ran on the objects.
        contents: u64,
    },
    /// `weir fsck --rebuild-store` was interrupted.
    #[error("a rebuild of the store's index was started and not finished")]
    RebuildInterrupted,
    /// `weir restore` was interrupted.
    #[error("a restore of the namespace was started and not finished")]
    RestoreInterrupted,
    /// A new journal was begun in place of a lost one, and not every part follows it yet.
    #[error("a new journal was started in place of a lost one, and that was not finished")]
    JournalResetUnfinished,
    /// The mark of a new journal cannot be decoded.
    #[error("{file} does not read as it was written: `{text}`", file = crate::marks::JOURNAL_RESET)]
    JournalResetMark {
        /// The text of the mark.
        text: String,
    },
    /// The database returned an error.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The mark of a namespace in a database cannot be decoded.
    #[error("{file} does not read as it was written: `{text}`", file = crate::database_mark::FILE)]
    DatabaseMark {
        /// The text of the mark.
        text: String,
    },
    /// The namespace is in a database, and was looked for in the directory.
    #[error("the namespace of this manager is in the database {address}")]
    InDatabase {
        /// The database, as of the last start.
        address: String,
    },
    /// The namespace is in the directory, and was looked for in a database.
    #[error("the namespace of this manager is in its data directory, and not in the database {address}")]
    NotInDatabase {
        /// The database.
        address: String,
    },
    /// The database belongs to another cluster.
    #[error(
        "the database {address} has the namespace of the cluster {found}, and this data directory belongs to the cluster {ours}; \
         nothing was changed in either"
    )]
    OtherDatabase {
        /// The database.
        address: String,
        /// The cluster of the database.
        found: Box<ClusterId>,
        /// The cluster of the directory.
        ours: Box<ClusterId>,
    },
    /// Another manager has the place in the database, or was faster.
    #[error("another manager works on the database {address}, or has just taken over there")]
    PlaceTaken {
        /// The database.
        address: String,
    },
    /// The directory's namespace is in a database, and this one is empty.
    #[error(
        "the database {address} has no namespace yet, and that of this manager was in the database {before}; nothing was changed"
    )]
    EmptyDatabase {
        /// The database.
        address: String,
        /// The database at the last start.
        before: String,
    },
    /// The namespace in the database is older than at the manager's last start.
    #[error(
        "the database {address} is older than this manager's directory: it ends with {found}, and the directory has seen {expected}; it was \
         restored, or is a replica that was behind, or another copy. Its namespace was not changed"
    )]
    OlderDatabase {
        /// The database.
        address: String,
        /// How far its namespace has come.
        found: Box<Progress>,
        /// How far it had come at the manager's last start.
        expected: Box<Progress>,
    },
}

impl OpenError {
    /// The exit code of the command.
    #[must_use]
    pub fn exit(&self) -> Exit {
        let code = match self {
            Self::Disk(error) => error.code(),
            Self::Journal(JournalError::Missing { .. })
            | Self::OlderNamespace { .. }
            | Self::OlderDatabase { .. }
            | Self::RebuildInterrupted
            | Self::RestoreInterrupted
            | Self::JournalResetUnfinished
            | Self::JournalResetMark { .. } => return Exit::Damaged,
            Self::Database(error) => return exit_of_database(error),
            Self::PlaceTaken { .. } => return Exit::InUse,
            Self::InDatabase { .. }
            | Self::NotInDatabase { .. }
            | Self::OtherDatabase { .. }
            | Self::EmptyDatabase { .. }
            | Self::DatabaseMark { .. } => return Exit::DataDirectory,
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

    /// Whether the store's index is lost or half rebuilt, so that `--rebuild-store` helps.
    #[must_use]
    pub fn is_lost_store(&self) -> bool {
        matches!(
            self,
            Self::Index { which: "store", source: KvError::Lost(_) }
                | Self::RebuildInterrupted
                | Self::Store(StoreError::IndexLost)
        )
    }

    /// Whether directory and database do not belong together.
    #[must_use]
    pub fn is_about_database(&self) -> bool {
        matches!(
            self,
            Self::InDatabase { .. }
                | Self::NotInDatabase { .. }
                | Self::OtherDatabase { .. }
                | Self::EmptyDatabase { .. }
                | Self::OlderDatabase { .. }
                | Self::DatabaseMark { .. }
        )
    }

    /// Whether the journal itself is damaged, so that `--repair-journal` helps.
    #[must_use]
    pub fn is_journal_damage(&self) -> bool {
        matches!(self, Self::Journal(JournalError::Damaged(_)))
    }
}

/// The exit code of a command that a database has refused.
#[must_use]
pub fn exit_of_database(error: &DatabaseError) -> Exit {
    match error {
        DatabaseError::Unavailable { .. } | DatabaseError::Full { .. } | DatabaseError::Timeout(_) => Exit::Unreachable,
        DatabaseError::Refused { .. } => Exit::Denied,
        DatabaseError::NoSpace(_) => Exit::NoSpace,
        DatabaseError::LostTransactions(_) => Exit::Damaged,
        DatabaseError::InUse(_) | DatabaseError::TakenOver(_) => Exit::InUse,
        DatabaseError::Conflict(_) | DatabaseError::Schema(_) | DatabaseError::Copy(_) | DatabaseError::Failed(_) => {
            Exit::Failed
        }
    }
}

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum StoreOpenError {
    /// Its directory was refused.
    #[error(transparent)]
    Directory(#[from] DataDirError),
    /// A part of it could not be opened.
    #[error("cannot open the store in {path}: {source}")]
    Open {
        /// Its directory.
        path: PathBuf,
        /// The cause.
        source: OpenError,
    },
}

impl StoreOpenError {
    /// The exit code of the command.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self {
            Self::Directory(error) => error.exit(),
            Self::Open { source, .. } => source.exit(),
        }
    }
}
