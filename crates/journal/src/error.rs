//! What can go wrong with the log, with what was attempted and what would help.

use disk::DiskError;
use types::ErrorCode;

use crate::Seq;

/// Where and how the log is damaged: bytes that were durable once do not check any more.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "the journal is damaged in {segment} at byte {offset}: {what}. Records from {first_lost} on (up to {last_known}, \
     as far as can be seen) were acknowledged and cannot be read in order. {remedy}"
)]
pub struct Damage {
    /// The segment file, relative to the disk's root.
    pub segment: String,
    /// The byte in it from which on it does not check.
    pub offset: u64,
    /// What was found there.
    pub what: String,
    /// The first record that cannot be read.
    pub first_lost: Seq,
    /// The highest record that is known to have been durable.
    pub last_known: Seq,
    /// What the operator can do.
    pub remedy: String,
}

/// Why the journal refused.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The disk refused; the log is as it was.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A write or sync failed earlier. What is on the disk is known again only after the log is opened anew.
    #[error("the journal has stopped, because {reason}; nothing more is taken until it is opened again")]
    Poisoned {
        /// The first failure.
        reason: String,
    },
    /// No space for another segment. Nothing was appended; it works again when there is space.
    #[error("no space for another journal segment of {wanted} bytes; free some, deleting stays possible meanwhile")]
    NoSpace {
        /// Bytes that were needed.
        wanted: u64,
    },
    /// Another segment could not be made, for another reason than space. Nothing was appended.
    #[error("no further journal segment could be made: {reason}")]
    NoSegment {
        /// What failed.
        reason: String,
    },
    /// The payload is longer than a record may be.
    #[error("a record of {len} bytes was to be logged; at most {max} fit")]
    TooLarge {
        /// Bytes given.
        len: u64,
        /// Bytes possible.
        max: u64,
    },
    /// Bytes that were durable do not check.
    #[error(transparent)]
    Damaged(Box<Damage>),
    /// Written by a newer weir, or with features that this one does not know.
    #[error("{file} cannot be read by this version of weir: {what}; use the version that wrote it, or a newer one")]
    Unsupported {
        /// The file.
        file: String,
        /// What is unknown.
        what: String,
    },
    /// The records asked for have been trimmed away, or their segments are missing.
    #[error("records after {after} were asked for, but the journal begins with {oldest}")]
    Trimmed {
        /// Replay was asked for records after this.
        after: Seq,
        /// The first record that is there.
        oldest: Seq,
    },
    /// No such place in the log (any more).
    #[error("segment {segment:016x} of the journal has no record at byte {offset}: {what}")]
    NotThere {
        /// The segment's number.
        segment: u64,
        /// The payload's place in it.
        offset: u64,
        /// What was wrong with it.
        what: &'static str,
    },
    /// Waited for a record that was never appended.
    #[error("record {asked} was waited for, but only {appended} have been appended")]
    NotAppended {
        /// What was asked.
        asked: Seq,
        /// What there is.
        appended: Seq,
    },
    /// There is no log, and none was to be made.
    #[error("there is no journal in {dir:?}, but there should be one: is the disk mounted?")]
    Missing {
        /// The folder that was looked in.
        dir: String,
    },
    /// A configuration that cannot work.
    #[error("the journal's configuration is not usable: {0}")]
    Config(&'static str),
}

impl JournalError {
    /// The reason as the rest of weir tells them apart.
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
