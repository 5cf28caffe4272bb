//! Writing to several stores: a primary that orders all changes of a replica and lets others repeat them, and those others.
//!
//! Promises:
//! - A change is answered when every store that the manager counts as taking part has applied it: only these can take the primary's place.
//! - Nothing is answered without a lease that is valid after the I/O, nor by a primary that the manager has not confirmed in its present session.
//! - A store that does not answer is left out only when the manager has written that down; then the writing goes on without it.
//! - A replica applies changes in the primary's order, without gaps, whatever is repeated or comes late; it refuses lower epochs.
//! - A close names those stores whose copies are durable and equal, and no others.

mod primary;
mod replica;
#[cfg(test)]
mod tests;

use types::{Adler32, BootGeneration, Crc32c, ErrorCode, SessionId};

use crate::ProcessEpoch;

pub use primary::{Ask, Effect as PrimaryEffect, Input as PrimaryInput, Patience, Primary, Takes};
pub use replica::{Effect as ReplicaEffect, Input as ReplicaInput, Replica};

/// The number of a change of a replica within one epoch of its writer, from 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Seq(pub u64);

impl Seq {
    /// The one after it.
    #[must_use]
    pub fn next(self) -> Seq {
        Seq(self.0 + 1)
    }
}

/// The epoch of a writer: raised by each opening anew and by each move to another primary. What comes with a lower one is refused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Epoch(pub u32);

impl Epoch {
    /// The one after it, unless it is the last.
    #[must_use]
    pub fn next(self) -> Epoch {
        Epoch(self.0.saturating_add(1))
    }
}

/// One way of changes from a primary to a replica. Later ones are greater: a replica follows the greatest that it has heard of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub struct Stream {
    /// The writer's epoch.
    pub epoch: Epoch,
    /// The run of the primary's process.
    pub process_epoch: ProcessEpoch,
    /// Which of its attempts.
    pub number: u64,
}

/// What a primary tells a replica. The bytes of a change go beside it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub enum ToReplica {
    /// From now on repeat changes from `from` on.
    Begin {
        /// The way.
        stream: Stream,
        /// The replica's era, as the manager has it.
        boot_generation: BootGeneration,
        /// The first change that will come.
        from: Seq,
        /// There need be no replica yet: nothing was answered that it would have to hold.
        may_make: bool,
    },
    /// A change.
    Change {
        /// The way.
        stream: Stream,
        /// Which.
        seq: Seq,
    },
    /// Make durable what was changed up to here.
    Sync {
        /// The way.
        stream: Stream,
        /// Up to which change.
        upto: Seq,
    },
    /// The same, and no more is to come: the replica is whole.
    Complete {
        /// The way.
        stream: Stream,
        /// Up to which change.
        upto: Seq,
    },
}

impl ToReplica {
    /// The way that it is about.
    #[must_use]
    pub fn stream(&self) -> Stream {
        match *self {
            Self::Begin { stream, .. }
            | Self::Change { stream, .. }
            | Self::Sync { stream, .. }
            | Self::Complete { stream, .. } => stream,
        }
    }
}

/// What a replica tells its primary.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub enum FromReplica {
    /// Ready.
    Began {
        /// The way.
        stream: Stream,
    },
    /// All changes up to here are applied.
    Applied {
        /// The way.
        stream: Stream,
        /// The last.
        upto: Seq,
    },
    /// What came left a gap, or the way is not known (any more): begin anew.
    Missing {
        /// The way.
        stream: Stream,
    },
    /// Durable up to here.
    Synced {
        /// The way.
        stream: Stream,
        /// The last.
        upto: Seq,
    },
    /// Whole and durable.
    Completed {
        /// The way.
        stream: Stream,
        /// What it has.
        whole: ObjectDigest,
    },
    /// It cannot.
    Failed {
        /// The way.
        stream: Stream,
        /// Why.
        why: ErrorCode,
    },
    /// It follows somebody with a higher epoch, or was told to wait for one.
    Fenced {
        /// The way.
        stream: Stream,
        /// That epoch.
        epoch: Epoch,
    },
}

/// A replica that is whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct ObjectDigest {
    /// Length in bytes.
    pub len: u64,
    /// Its checksums.
    pub crc32c: Crc32c,
    /// The same in another way.
    pub adler32: Adler32,
}

/// What a server's lease says at this moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaseView {
    /// The session; `None`: there is none.
    pub session: Option<SessionId>,
    /// Whether the lease is valid now.
    pub is_valid: bool,
}

/// Bugs on purpose, which the simulator has to find.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Planted {
    /// Changes are answered when the primary alone has them.
    AnswerBeforeReplicas,
    /// A close is answered although copies are not durable.
    AnswerBeforeSync,
    /// A replica follows whoever speaks.
    EpochNotChecked,
    /// A primary answers without a lease.
    LeaseNotChecked,
    /// A store that does not answer is left out without telling the manager.
    LeftOutSilently,
}
