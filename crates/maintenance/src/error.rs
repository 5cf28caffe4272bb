//! Why a maintenance command failed.

use std::io;
use std::path::PathBuf;

use console::Exit;
use database::DatabaseError;
use disk::DiskError;
use foundation::{DataDirError, DirRole, OpenError, Refused, exit_of_database};
use journal::JournalError;
use kv::KvError;
use namespace::NsError;
use store::StoreError;

use crate::backup::target::TargetError;
use crate::fsck::check::CheckError;
use crate::index_repair::journal_reset::JournalResetError;

/// Why a command failed. The text names the attempted operation, the source gives the cause.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The data directory was refused.
    #[error(transparent)]
    Directory(#[from] DataDirError),
    /// A part of the data directory could not be opened.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The parts of the data directory could not be closed.
    #[error("cannot close the data directory")]
    Close(#[source] OpenError),
    /// The result could not be printed.
    #[error(transparent)]
    Print(io::Error),

    /// The damaged journal could not be cut.
    #[error("the journal could not be repaired")]
    RepairJournal(#[source] OpenError),
    /// The store's index could not be rebuilt.
    #[error("the store's index could not be rebuilt; run this again")]
    RebuildStore(#[source] OpenError),
    /// A new journal is not needed, or cannot be made.
    #[error("no new journal was started")]
    NoNewJournal(#[source] JournalResetError),
    /// A new journal could not be started.
    #[error("cannot open {data}")]
    JournalReset {
        /// The data directory.
        data: PathBuf,
        /// The cause.
        source: JournalResetError,
    },
    /// The check was interrupted.
    #[error("the check could not be finished")]
    Check(#[source] CheckError),
    /// The repairs could not be made durable.
    #[error("repairs could not be made durable")]
    NotDurable(#[source] JournalError),
    /// The restored names could not be checked.
    #[error("the restored names could not be checked")]
    CheckNames(#[source] NsError),
    /// The namespace could not start a new incarnation.
    #[error("the namespace's numbers could not be raised after the repair")]
    RaiseNumbers(#[source] NsError),
    /// The store could not list its objects.
    #[error(transparent)]
    ListObjects(StoreError),
    /// The store could not report on an object.
    #[error("the objects of the store could not be read")]
    AskStore(#[source] StoreError),
    /// The folders of objects could not be listed.
    #[error(transparent)]
    ListFolders(DiskError),

    /// The directory has no namespace.
    #[error(
        "{data} is {is}, which has no names and needs no backup: back up the cluster's manager, `weir backup` on its machine"
    )]
    NoNames {
        /// The directory.
        data: PathBuf,
        /// What it is.
        is: DirRole,
    },
    /// The namespace is in a database, which has tools of its own.
    #[error("the namespace of the manager in {data} is in the database {address}; {advice} (docs/how-to/database.md)")]
    InDatabase {
        /// The directory.
        data: PathBuf,
        /// The database.
        address: String,
        /// What to do instead.
        advice: &'static str,
    },
    /// The folder of backups was refused.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The namespace's index could not produce a backup.
    #[error("the backup cannot be made; `weir fsck` says more")]
    MakeBackup(#[source] KvError),
    /// The backup could not be written to the folder.
    #[error("the backup was not taken; earlier ones are unchanged; run it again")]
    TakeBackup(#[source] TargetError),
    /// The running node returned an error.
    #[error(transparent)]
    Node(Box<dyn std::error::Error + Send + Sync>),

    /// The requested state is neither a time nor a record.
    #[error("--until: {0}")]
    RestorePoint(String),
    /// No data directory was named for the restore.
    #[error("no data directory given; say --data DIR, or --list to see the backups")]
    NoDirectory,
    /// A restore was begun and failed.
    #[error("the restore was not finished; run it again. The backup is as it was")]
    Restore(#[source] Box<Error>),

    /// The database refused or failed.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The mark of a namespace in a database cannot be read. Nothing was touched.
    #[error(transparent)]
    Mark(OpenError),
    /// A namespace could not be copied or compared.
    #[error("the namespace could not be copied; run this again to continue")]
    Copy(#[source] KvError),
    /// A copied namespace differs from its source.
    #[error(
        "the copy is not what was copied: at the key {key} {what}. Neither is used; run this with --cancel, and then again, and please report it"
    )]
    CopyDiffers {
        /// The first key that differs.
        key: String,
        /// The difference.
        what: &'static str,
    },
    /// The directory has no namespace to import.
    #[error("{data} has no namespace: no manager has started on it yet. Start it with a new database instead")]
    NothingToImport {
        /// The directory.
        data: PathBuf,
    },
    /// The directory has a namespace of its own.
    #[error(
        "{data} has a namespace of its own, which is not in a database; nothing was touched. After a finished export, start the manager without a database. If you need the namespace of the database nevertheless, `weir db dump` it, and `weir restore` the dump into a new directory"
    )]
    HasNamespace {
        /// The directory.
        data: PathBuf,
    },
    /// The backup is not one of a manager.
    #[error(
        "{path} has the backups of a single node, and only a cluster's manager can use a database; nothing was touched"
    )]
    BackupOfSingleNode {
        /// The folder of backups.
        path: PathBuf,
    },
    /// The database has no namespace.
    #[error("the database {database} has no namespace: no manager has started on it, and none was imported")]
    EmptyDatabase {
        /// The database.
        database: String,
    },
    /// The time of a restored database cannot be read.
    #[error("--as-of: {0}")]
    AsOf(String),

    /// The target of an export would be inside the data directory.
    #[error("{target} lies in the data directory; export to another place")]
    WithinData {
        /// The target.
        target: PathBuf,
    },
    /// The target of an export was refused.
    #[error("cannot export to {target}")]
    ExportTarget {
        /// The operating system's error.
        target: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The namespace could not be opened for an export.
    #[error(
        "the namespace cannot be opened: `weir restore` puts a backup back. To export the objects without it, under the paths at which they were created, use --without-namespace"
    )]
    ExportNames(#[source] Refused),
    /// The store could not be opened for an export.
    #[error("the objects cannot be exported")]
    ExportObjects(#[source] OpenError),
    /// The store failed during an export.
    #[error("the store cannot be read; run the export again to continue")]
    ReadStore(#[source] StoreError),
    /// The namespace failed during an export.
    #[error("the namespace cannot be read; `weir fsck` says more")]
    ReadNames(#[source] NsError),
    /// A file could not be written to the target.
    #[error("cannot write {what}; run the export again to continue")]
    WriteTarget {
        /// The file.
        what: String,
        /// The operating system's error.
        source: io::Error,
    },
    /// The temporary files of an export could not be removed from the target.
    #[error("the temporary files of the export cannot be removed")]
    ClearTarget(#[source] io::Error),
}

impl Error {
    /// The exit code of the command.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self {
            Self::Directory(error) => error.exit(),
            Self::NoNames { .. }
            | Self::InDatabase { .. }
            | Self::NothingToImport { .. }
            | Self::HasNamespace { .. } => Exit::DataDirectory,
            Self::Database(error) => exit_of_database(error),
            Self::CopyDiffers { .. } => Exit::Checksum,
            Self::Refused(error) | Self::ExportNames(error) => error.exit(),
            Self::Close(error)
            | Self::Mark(error)
            | Self::RepairJournal(error)
            | Self::RebuildStore(error)
            | Self::ExportObjects(error) => error.exit(),
            Self::NoNewJournal(error) | Self::JournalReset { source: error, .. } => error.exit(),
            Self::Target(error) | Self::TakeBackup(error) => error.exit(),
            Self::Restore(error) => error.exit(),
            Self::RestorePoint(_) | Self::AsOf(_) | Self::NoDirectory | Self::WithinData { .. } => Exit::Usage,
            Self::MakeBackup(_) | Self::ReadNames(_) => Exit::Damaged,
            Self::NotDurable(_) | Self::ListFolders(_) => Exit::DiskFailed,
            Self::Copy(KvError::NoSpace) => Exit::NoSpace,
            Self::Copy(KvError::Unavailable(_)) => Exit::Unreachable,
            Self::Copy(KvError::Damaged(_) | KvError::Lost(_)) => Exit::Damaged,
            Self::Copy(_)
            | Self::BackupOfSingleNode { .. }
            | Self::EmptyDatabase { .. }
            | Self::Print(_)
            | Self::Check(_)
            | Self::CheckNames(_)
            | Self::RaiseNumbers(_)
            | Self::ListObjects(_)
            | Self::AskStore(_)
            | Self::Node(_)
            | Self::ExportTarget { .. }
            | Self::ReadStore(_)
            | Self::WriteTarget { .. }
            | Self::ClearTarget(_) => Exit::Failed,
        }
    }
}
