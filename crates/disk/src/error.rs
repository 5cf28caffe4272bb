//! Errors of the disk, with the failed operation.

use std::io;

use types::ErrorCode;

/// The operation that failed.
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

/// A failed call, with its path.
#[derive(Debug, thiserror::Error)]
#[error("cannot {op:?} {path}: {source}")]
pub struct DiskError {
    /// The operation.
    pub op: DiskOp,
    /// The path, relative to the disk's root.
    pub path: String,
    /// The error of the system.
    pub source: io::Error,
}

impl DiskError {
    /// Whether the call failed for lack of something that the process or the machine has too little of (descriptors,
    /// memory), so that it says nothing about the file.
    #[must_use]
    pub fn is_shortage(&self) -> bool {
        use rustix::io::Errno;
        let errno = self.source.raw_os_error().map(Errno::from_raw_os_error);
        matches!(errno, Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS | Errno::AGAIN | Errno::INTR))
    }

    /// The error code that the rest of weir uses.
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
