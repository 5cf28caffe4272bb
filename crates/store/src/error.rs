//! Why the store refused, with what would help.

use disk::DiskError;
use journal::JournalError;
use kv::KvError;
use types::{ErrorCode, Incarnation, ObjectId, ReplicaId};

/// Why the store refused.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The store has no such replica.
    #[error("this store has no replica {replica}")]
    NotFound {
        /// What was asked for.
        replica: ReplicaId,
    },
    /// The object's number has been used on this store before. Numbers are never used twice.
    #[error(
        "object {object} has been used on this store before and cannot be created again; was an old backup of the \
         namespace restored without raising its incarnation and its numbers?"
    )]
    ObjectUsed {
        /// The number.
        object: ObjectId,
    },
    /// There is a file with the number of a new replica, which came to an end once. It is not touched.
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
    /// Whoever had it read through wants to know nothing more.
    #[error("reading replica {replica} was stopped")]
    Stopped {
        /// The replica.
        replica: ReplicaId,
    },
    /// The namespace that asks is an older life of the one that this store has served.
    #[error("this store has served incarnation {seen} of the namespace and refuses incarnation {given}")]
    StaleIncarnation {
        /// The one that asked.
        given: Incarnation,
        /// The highest seen.
        seen: Incarnation,
    },
    /// The writer was completed, interrupted, or its replica removed.
    #[error("replica {replica} is not open for writing any more: {why}")]
    Closed {
        /// The replica.
        replica: ReplicaId,
        /// What ended it.
        why: &'static str,
    },
    /// A sync of this replica's file failed: what lies on the disk is not known. What was durable before stays.
    #[error("replica {replica} takes no more data, because {reason}; what was durable before is kept")]
    Failed {
        /// The replica.
        replica: ReplicaId,
        /// The first failure.
        reason: String,
    },
    /// Bytes on the disk do not match their checksum. They are not handed out.
    #[error("page {page} of replica {replica} does not match its checksum; read another replica, or write it again")]
    Checksum {
        /// The replica.
        replica: ReplicaId,
        /// The page's number, in units of 4096 bytes.
        page: u64,
    },
    /// The written parts of one replica are too scattered.
    #[error(
        "replica {replica} has {limit} separate written parts already; fill the gaps before writing at more offsets"
    )]
    TooManyRanges {
        /// The replica.
        replica: ReplicaId,
        /// How many are kept track of.
        limit: usize,
    },
    /// A checkpoint was to begin where one is open.
    #[error("replica {replica} has an open checkpoint already; commit it or roll it back first")]
    CheckpointOpen {
        /// The replica.
        replica: ReplicaId,
    },
    /// A checkpoint was to be ended where none is open.
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
        /// In bytes.
        limit: u64,
    },
    /// An offset or length past what a replica can hold.
    #[error("offset {offset} and {len} bytes reach past the longest object of {max} bytes")]
    TooLarge {
        /// Where it begins.
        offset: u64,
        /// How long it is.
        len: u64,
        /// The limit.
        max: u64,
    },
    /// The file system is full, or its free-space floor is reached.
    #[error("no space: {free} bytes are free and the last {floor} are kept back; remove files or add space")]
    NoSpace {
        /// Bytes free.
        free: u64,
        /// Bytes kept back.
        floor: u64,
    },
    /// There are files of replicas, and the index knows of no store.
    #[error("the store's index is empty, but there are files of objects")]
    IndexLost,
    /// Something that weir wrote does not read back as it should.
    #[error("damaged: {what}")]
    Damaged {
        /// What and where.
        what: String,
    },
    /// Written by a newer weir.
    #[error("{what} was written by a newer version of weir; use that version")]
    Unsupported {
        /// What it is.
        what: String,
    },
    /// The disk refused.
    #[error(transparent)]
    Disk(DiskError),
    /// The log refused.
    #[error(transparent)]
    Journal(JournalError),
    /// The index refused.
    #[error(transparent)]
    Index(#[from] KvError),
}

impl StoreError {
    /// The reason as the rest of weir tells them apart.
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

    /// Whether it is for want of space.
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
