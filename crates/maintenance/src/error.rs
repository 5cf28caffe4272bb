//! Why maintenance did not come to its end.

use std::io;
use std::path::PathBuf;

use console::Exit;
use disk::DiskError;
use foundation::{DataDirError, OpenError, Refused};
use journal::JournalError;
use kv::KvError;
use namespace::NsError;
use store::StoreError;

use crate::backup::target::TargetError;
use crate::fsck::check::CheckError;
use crate::index_repair::new_log::NewLogError;

/// Why a command did not come to its end. The text says what was attempted, the source why it did not work.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The data directory was refused.
    #[error(transparent)]
    Directory(#[from] DataDirError),
    /// What is in the data directory does not open.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The parts of the data directory could not be closed.
    #[error("cannot close the data directory")]
    Close(#[source] OpenError),
    /// The result could not be printed.
    #[error(transparent)]
    Print(io::Error),

    /// The log could not be cut.
    #[error("the journal could not be repaired")]
    RepairJournal(#[source] OpenError),
    /// The store's index could not be made again.
    #[error("the store's index could not be rebuilt; run this again")]
    RebuildStore(#[source] OpenError),
    /// A new log was not called for.
    #[error("no new journal was started")]
    NoNewLog(#[source] NewLogError),
    /// A new log could not begin.
    #[error("cannot open {data}")]
    NewLog {
        /// The data directory.
        data: PathBuf,
        /// Why.
        source: NewLogError,
    },
    /// The check broke off.
    #[error("the check could not be finished")]
    Check(#[source] CheckError),
    /// What the check found could not be repaired for good.
    #[error("repairs could not be made durable")]
    NotDurable(#[source] JournalError),
    /// The namespace could not begin a new life.
    #[error("the namespace's numbers could not be raised after the repair")]
    RaiseNumbers(#[source] NsError),
    /// The store does not tell what it has.
    #[error(transparent)]
    ListObjects(StoreError),
    /// The store does not tell of an object.
    #[error("the objects of the store could not be read")]
    AskStore(#[source] StoreError),
    /// The folders of objects cannot be listed.
    #[error(transparent)]
    ListFolders(DiskError),

    /// The folder of backups was refused.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The namespace's index does not give a backup.
    #[error("the backup cannot be made; `weir fsck` says more")]
    MakeBackup(#[source] KvError),
    /// The folder did not take the backup.
    #[error("the backup was not taken; earlier ones are unchanged; run it again")]
    TakeBackup(#[source] TargetError),
    /// The running node did not answer as it should.
    #[error(transparent)]
    Node(Box<dyn std::error::Error + Send + Sync>),

    /// The state to restore is no time and no record.
    #[error("--until: {0}")]
    Until(String),
    /// Nothing was named that could be restored to.
    #[error("no data directory given; say --data DIR, or --list to see the backups")]
    NoDirectory,
    /// A restore was begun.
    #[error("the restore was not finished; run it again. The backup is as it was")]
    Restore(#[source] Box<Error>),

    /// The target of an export would be taken for a part of the data directory.
    #[error("{target} lies in the data directory; export to another place")]
    WithinData {
        /// The target.
        target: PathBuf,
    },
    /// The target of an export was refused.
    #[error("cannot export to {target}")]
    ExportTarget {
        /// The target.
        target: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The namespace is not to be had for an export.
    #[error(
        "the namespace cannot be opened: `weir restore` puts a backup back. To export the objects without it, under the paths at which they were created, use --without-namespace"
    )]
    ExportNames(#[source] Refused),
    /// The store is not to be had for an export.
    #[error("the objects cannot be exported")]
    ExportObjects(#[source] OpenError),
    /// The store failed during an export.
    #[error("the store cannot be read; run the export again to continue")]
    ReadStore(#[source] StoreError),
    /// The namespace failed during an export.
    #[error("the namespace cannot be read; `weir fsck` says more")]
    ReadNames(#[source] NsError),
    /// The target does not take what is exported.
    #[error("cannot write {what}; run the export again to continue")]
    WriteTarget {
        /// What was being written.
        what: String,
        /// What the system said.
        source: io::Error,
    },
    /// What an export needed for itself is still in the target.
    #[error("the temporary files of the export cannot be removed")]
    ClearTarget(#[source] io::Error),
}

impl Error {
    /// The code that the run ends with.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self {
            Self::Directory(error) => error.exit(),
            Self::Refused(error) | Self::ExportNames(error) => error.exit(),
            Self::Close(error)
            | Self::RepairJournal(error)
            | Self::RebuildStore(error)
            | Self::ExportObjects(error) => error.exit(),
            Self::NoNewLog(error) | Self::NewLog { source: error, .. } => error.exit(),
            Self::Target(error) | Self::TakeBackup(error) => error.exit(),
            Self::Restore(error) => error.exit(),
            Self::Until(_) | Self::NoDirectory | Self::WithinData { .. } => Exit::Usage,
            Self::MakeBackup(_) | Self::ReadNames(_) => Exit::Damaged,
            Self::NotDurable(_) | Self::ListFolders(_) => Exit::DiskFailed,
            Self::Print(_)
            | Self::Check(_)
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
