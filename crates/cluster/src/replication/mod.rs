//! Writes to several stores. The primary orders all changes of an object, and the secondaries apply them.
//!
//! Promises:
//! - The primary answers a change when every in-sync replica has applied it. Only an in-sync replica can become the
//!   primary.
//! - A primary answers only under a lease that is valid after the I/O, and only if the manager has confirmed it in
//!   its present session.
//! - The primary leaves out a store that does not answer, but only after the manager has recorded that. Then the write
//!   continues without it.
//! - A replica applies changes in the primary's order, without gaps, even if messages are repeated or late. It
//!   refuses lower epochs.
//! - A close names only stores whose replicas are durable and equal.
//! - A primary whose own store fails, because it is full for example, asks the manager to let another in-sync replica
//!   take over. It answers nothing until it is fenced. If nobody can take over, its clients get the store's error.

mod primary;
mod replica;
#[cfg(test)]
mod tests;

use types::{Adler32, BootGeneration, Crc32c, ErrorCode, SessionId};

use crate::ProcessEpoch;

pub(crate) use primary::may_work_elsewhere;
pub use primary::{Ask, Effect as PrimaryEffect, Input as PrimaryInput, Primary, Promotion, ReplicaTimeouts};
pub use replica::{Effect as ReplicaEffect, Input as ReplicaInput, Replica};

/// The number of a change within one epoch of the writer, from 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Seq(pub u64);

impl Seq {
    /// Returns the number after it.
    #[must_use]
    pub fn next(self) -> Seq {
        Seq(self.0 + 1)
    }
}

/// The epoch of a writer. It rises when a client reopens the file, and when another store becomes primary. Messages
/// with a lower epoch are refused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Epoch(pub u32);

impl Epoch {
    /// Returns the epoch after it, unless this is the last.
    #[must_use]
    pub fn next(self) -> Epoch {
        Epoch(self.0.saturating_add(1))
    }
}

/// A stream of changes from a primary to a secondary. A secondary follows the highest stream that it has seen.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub struct Stream {
    /// The writer's epoch.
    pub epoch: Epoch,
    /// The process epoch of the primary's node.
    pub process_epoch: ProcessEpoch,
    /// The number of the primary's attempt.
    pub number: u64,
}

/// A message from a primary to a secondary. The bytes of a change are sent with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub enum ToReplica {
    /// Apply the changes that follow, from `from` on.
    Begin {
        /// The stream.
        stream: Stream,
        /// The secondary's boot generation, as the manager has recorded it.
        boot_generation: BootGeneration,
        /// The first change that will come.
        from: Seq,
        /// The replica may be new: even an empty one lacks no acknowledged change.
        may_make: bool,
    },
    /// Apply a change.
    Change {
        /// The stream.
        stream: Stream,
        /// Its number.
        seq: Seq,
    },
    /// Make all changes up to this one durable.
    Sync {
        /// The stream.
        stream: Stream,
        /// The last change.
        upto: Seq,
    },
    /// The same as [`Self::Sync`], and no change follows. The replica becomes complete.
    Complete {
        /// The stream.
        stream: Stream,
        /// The last change.
        upto: Seq,
    },
    /// The same as [`Self::Complete`], but the file stays incomplete: the replica keeps its bytes up to the first gap.
    Interrupt {
        /// The stream.
        stream: Stream,
        /// The last change.
        upto: Seq,
    },
}

impl ToReplica {
    /// Returns the stream that the message belongs to.
    #[must_use]
    pub fn stream(&self) -> Stream {
        match *self {
            Self::Begin { stream, .. }
            | Self::Change { stream, .. }
            | Self::Sync { stream, .. }
            | Self::Complete { stream, .. }
            | Self::Interrupt { stream, .. } => stream,
        }
    }
}

/// A message from a secondary to its primary.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub enum FromReplica {
    /// The secondary is ready.
    Began {
        /// The stream.
        stream: Stream,
    },
    /// All changes up to this one are applied.
    Applied {
        /// The stream.
        stream: Stream,
        /// The last change.
        upto: Seq,
    },
    /// The changes have a gap, or the secondary does not know the stream. The primary must begin again.
    Missing {
        /// The stream.
        stream: Stream,
    },
    /// All changes up to this one are durable.
    Synced {
        /// The stream.
        stream: Stream,
        /// The last change.
        upto: Seq,
    },
    /// The replica is complete and durable, or what it keeps of an interrupted file is.
    Completed {
        /// The stream.
        stream: Stream,
        /// The digest of its bytes.
        whole: ObjectDigest,
    },
    /// The secondary has failed.
    Failed {
        /// The stream.
        stream: Stream,
        /// The reason.
        why: ErrorCode,
    },
    /// The secondary follows a higher epoch, or was told to wait for one.
    Fenced {
        /// The stream.
        stream: Stream,
        /// The higher epoch.
        epoch: Epoch,
    },
}

/// The digest of all bytes of an object that is complete, or of those that are kept of an interrupted one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct ObjectDigest {
    /// The length in bytes.
    pub len: u64,
    /// The CRC32C of all bytes.
    pub crc32c: Crc32c,
    /// The Adler-32 of all bytes.
    pub adler32: Adler32,
}

/// A server's lease at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaseView {
    /// The session, if there is one.
    pub session: Option<SessionId>,
    /// Whether the lease is valid now.
    pub is_valid: bool,
}

/// Deliberate bugs, which the simulator must find.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlantedBug {
    /// Answer changes when only the primary has applied them.
    AnswerBeforeReplicas,
    /// Answer a close although the replicas are not durable.
    AnswerBeforeSync,
    /// Let a replica follow any primary.
    EpochNotChecked,
    /// Let a primary answer without a lease.
    LeaseNotChecked,
    /// Leave out a silent store without telling the manager.
    LeftOutSilently,
    /// Keep a file on the primary alone when the client that writes it vanishes.
    EndedOnPrimaryAlone,
    /// End the replicas of an open write before the manager has recorded that it ends.
    EndNotAnnounced,
}
