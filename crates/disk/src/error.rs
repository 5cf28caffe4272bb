//! What can go wrong at the disk, with what was attempted.

use std::io;

use types::ErrorCode;

/// What was attempted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum DiskOp {
    Open,
    Create,
    Read,
    Write,
    Sync,
    SetLen,
    Allocate,
    Remove,
    Rename,
    CreateDir,
    SyncDir,
    List,
    Space,
}

/// A failed call, with the path it was for.
#[derive(Debug, thiserror::Error)]
#[error("cannot {op:?} {path}: {source}")]
pub struct DiskError {
    /// What was attempted.
    pub op: DiskOp,
    /// On what; relative to the disk's root.
    pub path: String,
    /// What the system said.
    pub source: io::Error,
}

impl DiskError {
    /// The reason as the rest of weir tells them apart.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self.source.kind() {
            io::ErrorKind::NotFound => ErrorCode::NotFound,
            io::ErrorKind::AlreadyExists => ErrorCode::Exists,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorCode::NoSpace,
            _ => ErrorCode::Io,
        }
    }
}
