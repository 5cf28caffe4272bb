//! Errors of the journal: what was attempted, what went wrong, and what would help.

use disk::DiskError;
use types::ErrorCode;

use crate::Seq;

/// Where and how the journal is damaged: bytes that were once durable do not match their checksums.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "the journal is damaged in {segment} at byte {offset}: {what}. Records from {first_lost} on (up to {last_known}, \
     as far as can be seen) were acknowledged and cannot be read in order. {remedy}"
)]
pub struct Damage {
    /// The segment file, relative to the disk's root.
    pub segment: String,
    /// Offset in the file of the first bad byte.
    pub offset: u64,
    /// What is there instead.
    pub what: String,
    /// The first record that cannot be read.
    pub first_lost: Seq,
    /// The highest record that is known to have been durable.
    pub last_known: Seq,
    /// What the operator can do.
    pub remedy: String,
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The disk reported an error; the journal is unchanged.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A write or sync failed earlier. Only the next opening can find out what is on the disk.
    #[error("the journal has stopped, because {reason}; nothing more is taken until it is opened again")]
    Poisoned {
        /// The first failure.
        reason: String,
    },
    /// No space for another segment. Nothing was appended; appends work again when there is space.
    #[error("no space for another journal segment of {wanted} bytes; free some, deleting stays possible meanwhile")]
    NoSpace {
        /// Bytes needed.
        wanted: u64,
    },
    /// Another segment could not be made, for another reason than space. Nothing was appended.
    #[error("no further journal segment could be made: {reason}")]
    NoSegment {
        /// What failed.
        reason: String,
    },
    /// The payload is too long for a record.
    #[error("a record of {len} bytes was to be logged; at most {max} fit")]
    TooLarge {
        /// Bytes given.
        len: u64,
        /// Bytes allowed.
        max: u64,
    },
    /// Bytes that were once durable do not match their checksums.
    #[error(transparent)]
    Damaged(Box<Damage>),
    /// A newer weir wrote the file, or it uses features that this version does not know.
    #[error("{file} cannot be read by this version of weir: {what}; use the version that wrote it, or a newer one")]
    Unsupported {
        /// The file.
        file: String,
        /// What is unknown.
        what: String,
    },
    /// The requested records have been trimmed, or their segments are missing.
    #[error("records after {after} were asked for, but the journal begins with {oldest}")]
    Trimmed {
        /// The replay was to start after this record.
        after: Seq,
        /// The first record that exists.
        oldest: Seq,
    },
    /// The journal has no such location, or no longer has it.
    #[error("segment {segment:016x} of the journal has no record at byte {offset}: {what}")]
    NotThere {
        /// The segment's number.
        segment: u64,
        /// Offset of the payload in the segment.
        offset: u64,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The caller waits for a record that was never appended.
    #[error("record {asked} was waited for, but only {appended} have been appended")]
    NotAppended {
        /// The record that the caller waits for.
        asked: Seq,
        /// The last record appended.
        appended: Seq,
    },
    /// There is no journal, and the configuration forbids making one.
    #[error("there is no journal in {dir:?}, but there should be one: is the disk mounted?")]
    Missing {
        /// The directory that was searched.
        dir: String,
    },
    /// The configuration cannot work.
    #[error("the journal's configuration is not usable: {0}")]
    Config(&'static str),
}

impl JournalError {
    /// The error code that the rest of weir uses.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            JournalError::Disk(e) => e.code(),
            JournalError::Poisoned { .. } => ErrorCode::Unavailable,
            JournalError::NoSpace { .. } => ErrorCode::NoSpace,
            JournalError::TooLarge { .. } => ErrorCode::TooLarge,
            JournalError::Damaged(_) | JournalError::Trimmed { .. } | JournalError::NotThere { .. } => {
                ErrorCode::Damaged
            }
            JournalError::NoSegment { .. } => ErrorCode::Io,
            JournalError::Missing { .. } => ErrorCode::NotFound,
            JournalError::Unsupported { .. } => ErrorCode::Unsupported,
            JournalError::NotAppended { .. } | JournalError::Config(_) => ErrorCode::Invalid,
        }
    }
}
