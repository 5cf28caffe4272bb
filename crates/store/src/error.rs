//! Errors of the store, with advice.

use disk::DiskError;
use journal::JournalError;
use kv::KvError;
use types::{ErrorCode, Incarnation, ObjectId, ReplicaId};

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The store has no such replica.
    #[error("this store has no replica {replica}")]
    NotFound {
        /// The requested replica.
        replica: ReplicaId,
    },
    /// The object's number was used on this store before. Numbers are never used twice.
    #[error(
        "object {object} has been used on this store before and cannot be created again; was an old backup of the \
         namespace restored without raising its incarnation and its numbers?"
    )]
    ObjectUsed {
        /// The number.
        object: ObjectId,
    },
    /// A file with the number of a new replica exists, and that replica was once finished. It is not touched.
    #[error(
        "replica {replica} cannot be created: {path} exists already and holds a file that was completed; was an old \
         backup of the namespace or of the store's index restored? Put the newer one back, or raise the numbers of \
         the namespace"
    )]
    FileThere {
        /// The new replica.
        replica: ReplicaId,
        /// The file.
        path: String,
    },
    /// The caller of a verification stopped it.
    #[error("reading replica {replica} was stopped")]
    Stopped {
        /// The replica.
        replica: ReplicaId,
    },
    /// The request comes from an older incarnation of the namespace than one that this store has served.
    #[error("this store has served incarnation {seen} of the namespace and refuses incarnation {given}")]
    StaleIncarnation {
        /// The incarnation of the request.
        given: Incarnation,
        /// The highest incarnation seen.
        seen: Incarnation,
    },
    /// The writer was completed or interrupted, or its replica was removed.
    #[error("replica {replica} is not open for writing any more: {why}")]
    Closed {
        /// The replica.
        replica: ReplicaId,
        /// Why it is closed.
        why: &'static str,
    },
    /// A sync of this replica's file failed: the state of the disk is unknown. Data that was durable before is kept.
    #[error("replica {replica} takes no more data, because {reason}; what was durable before is kept")]
    Failed {
        /// The replica.
        replica: ReplicaId,
        /// The first failure.
        reason: String,
    },
    /// Bytes on the disk do not match their checksum. They are not returned.
    #[error("page {page} of replica {replica} does not match its checksum; read another replica, or write it again")]
    Checksum {
        /// The replica.
        replica: ReplicaId,
        /// The page's number, in units of 4096 bytes.
        page: u64,
    },
    /// The replica has too many separate written ranges.
    #[error(
        "replica {replica} has {limit} separate written parts already; fill the gaps before writing at more offsets"
    )]
    TooManyRanges {
        /// The replica.
        replica: ReplicaId,
        /// The limit of ranges.
        limit: usize,
    },
    /// A checkpoint is already open.
    #[error("replica {replica} has an open checkpoint already; commit it or roll it back first")]
    CheckpointOpen {
        /// The replica.
        replica: ReplicaId,
    },
    /// No checkpoint is open.
    #[error("replica {replica} has no open checkpoint; begin one first")]
    NoCheckpoint {
        /// The replica.
        replica: ReplicaId,
    },
    /// The change would make an open checkpoint too large.
    #[error(
        "the checkpoint of replica {replica} may keep at most {limit} bytes of the older data; commit it or roll it back"
    )]
    CheckpointFull {
        /// The replica.
        replica: ReplicaId,
        /// The limit in bytes.
        limit: u64,
    },
    /// An offset or length beyond the longest replica.
    #[error("offset {offset} and {len} bytes reach past the longest object of {max} bytes")]
    TooLarge {
        /// The offset.
        offset: u64,
        /// The length in bytes.
        len: u64,
        /// The limit in bytes.
        max: u64,
    },
    /// The file system is full, or its free-space floor is reached.
    #[error("no space: {free} bytes are free and the last {floor} are kept back; remove files or add space")]
    NoSpace {
        /// Free bytes.
        free: u64,
        /// Bytes kept back.
        floor: u64,
    },
    /// Files of replicas exist, but the index does not know of a store.
    #[error("the store's index is empty, but there are files of objects")]
    IndexLost,
    /// Something that weir wrote is not readable as such.
    #[error("damaged: {what}")]
    Damaged {
        /// What is damaged, and where.
        what: String,
    },
    /// A newer weir wrote it.
    #[error("{what} was written by a newer version of weir; use that version")]
    Unsupported {
        /// What it wrote.
        what: String,
    },
    /// An error of the disk.
    #[error(transparent)]
    Disk(DiskError),
    /// An error of the journal.
    #[error(transparent)]
    Journal(JournalError),
    /// An error of the index.
    #[error(transparent)]
    Index(#[from] KvError),
}

impl StoreError {
    /// The error code that the rest of weir uses.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            StoreError::NotFound { .. } => ErrorCode::NotFound,
            StoreError::ObjectUsed { .. } | StoreError::FileThere { .. } => ErrorCode::Exists,
            StoreError::StaleIncarnation { .. } | StoreError::Closed { .. } => ErrorCode::Stale,
            StoreError::Failed { .. } => ErrorCode::Io,
            StoreError::Checksum { .. } => ErrorCode::Checksum,
            StoreError::Stopped { .. } => ErrorCode::Overloaded,
            StoreError::CheckpointOpen { .. } => ErrorCode::Exists,
            StoreError::NoCheckpoint { .. } => ErrorCode::NotFound,
            StoreError::CheckpointFull { .. } => ErrorCode::Quota,
            StoreError::TooManyRanges { .. } => ErrorCode::TooMany,
            StoreError::TooLarge { .. } => ErrorCode::TooLarge,
            StoreError::NoSpace { .. } => ErrorCode::NoSpace,
            StoreError::Damaged { .. } | StoreError::IndexLost => ErrorCode::Damaged,
            StoreError::Unsupported { .. } => ErrorCode::Unsupported,
            StoreError::Disk(e) => e.code(),
            StoreError::Journal(e) => e.code(),
            StoreError::Index(e) => e.code(),
        }
    }

    /// Whether the disk does not have a replica as it was written. With other errors the replica could not be examined.
    #[must_use]
    pub fn is_about_replica(&self) -> bool {
        match self {
            StoreError::Index(_) => false,
            StoreError::Disk(error) | StoreError::Journal(JournalError::Disk(error)) if error.is_shortage() => false,
            error => {
                matches!(error.code(), ErrorCode::Checksum | ErrorCode::Damaged | ErrorCode::Io | ErrorCode::NotFound)
            }
        }
    }

    /// Whether the cause is lack of space.
    pub(crate) fn is_no_space(&self) -> bool {
        self.code() == ErrorCode::NoSpace
    }

    pub(crate) fn damaged(what: impl Into<String>) -> Self {
        StoreError::Damaged { what: what.into() }
    }
}

impl From<DiskError> for StoreError {
    fn from(e: DiskError) -> Self {
        if e.code() == ErrorCode::NoSpace { StoreError::NoSpace { free: 0, floor: 0 } } else { StoreError::Disk(e) }
    }
}

impl From<JournalError> for StoreError {
    fn from(e: JournalError) -> Self {
        match e {
            JournalError::NoSpace { .. } => StoreError::NoSpace { free: 0, floor: 0 },
            e => StoreError::Journal(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use disk::DiskOp;

    use super::*;

    #[test]
    fn a_shortage_says_nothing_about_a_replica() {
        let of = |errno| {
            let error =
                || DiskError { op: DiskOp::Open, path: "1".into(), source: io::Error::from_raw_os_error(errno) };
            let of_journal = StoreError::Journal(JournalError::Disk(error())).is_about_replica();
            assert_eq!(StoreError::Disk(error()).is_about_replica(), of_journal, "{errno}");
            of_journal
        };
        // EMFILE, ENFILE, ENOMEM; EIO, ENOENT.
        assert!([24, 23, 12].into_iter().all(|errno| !of(errno)) && [5, 2].into_iter().all(of));
    }
}
