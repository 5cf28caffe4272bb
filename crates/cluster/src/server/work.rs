//! The work of a replica's disk, and its results.

use types::{ErrorCode, StoreId};

use crate::CopyId;
use crate::message::Original;
use crate::replication::{Epoch, ObjectDigest, Seq, Stream};

/// The purpose of a work. The shell returns it with the result.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum WorkPurpose {
    /// For the writer with this epoch, of which this store is the primary.
    Lead(Epoch),
    /// For a primary on another store.
    Follow(Stream),
    /// For a copy that this store makes.
    Copy(CopyId),
    /// For another store that copies a part of the replica.
    Fetch {
        /// That store.
        to: StoreId,
        /// Its copy.
        copy: CopyId,
        /// The start of the part, in bytes.
        offset: u64,
    },
    /// Deletion.
    Delete,
}

/// A work on a replica. The shell does the works of one replica one after the other, in the order in which they
/// were given. Works of different replicas may run at the same time. Each gets one [`WorkResult`], even if it
/// fails.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Work<B> {
    /// Open the replica for writing. If it does not exist, create it with `may_make`, or else return
    /// [`ErrorCode::NotFound`].
    Open {
        /// Whether to create a replica that does not exist.
        may_make: bool,
    },
    /// Open the replica for writing, empty, even if it exists.
    Renew,
    /// Apply this change, so that killing the process cannot undo it.
    Apply {
        /// Its number.
        seq: Seq,
        /// The change.
        change: B,
    },
    /// Make it durable.
    Sync,
    /// Make the replica complete and durable. If it is complete already, return its digest.
    Complete,
    /// End the replica without making it complete. Keep durably the bytes up to the first gap. If it has ended
    /// already, return what was kept.
    Interrupt {
        /// No other store can end the open write. After a failed sync, keep what is durable. Otherwise that is an error:
        /// another store may have all that was acknowledged.
        is_alone: bool,
    },
    /// Report whether the replica is this version, and whether its bytes on the disk match their checksums. All its bytes
    /// are read.
    Look {
        /// The version that the replica should have.
        original: Original,
    },
    /// Read a part of the replica, and return it as a change that writes it. If the replica is not the expected
    /// one, return [`ErrorCode::NotFound`].
    Read {
        /// The version that the replica must have.
        original: Original,
        /// The start of the part, in bytes.
        offset: u64,
        /// The length of the part in bytes. It is shorter at the end of the object.
        len: u32,
    },
    /// Delete the replica durably, whatever its state. If it does not exist, that is a success.
    Delete,
}

/// What [`Work::Look`] has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// The replica is complete and equals the original, and its bytes match their checksums.
    Same,
    /// By its record the replica is the original, but its bytes are damaged.
    Damaged,
    /// The replica may be the original: the original's checksum is not known.
    Unproved,
    /// There is no replica, or it has another version.
    Other,
}

/// The result of a [`Work`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WorkResult<B> {
    /// Of [`Work::Open`] and [`Work::Renew`].
    Opened(Result<(), ErrorCode>),
    /// Of [`Work::Apply`].
    Applied(Seq, Result<(), ErrorCode>),
    /// Of [`Work::Sync`].
    Synced(Result<(), ErrorCode>),
    /// Of [`Work::Complete`].
    Completed(Result<ObjectDigest, ErrorCode>),
    /// Of [`Work::Interrupt`]: the bytes kept.
    Interrupted(Result<ObjectDigest, ErrorCode>),
    /// Of [`Work::Look`].
    Looked(Result<Found, ErrorCode>),
    /// Of [`Work::Read`].
    Read(Result<B, ErrorCode>),
    /// Of [`Work::Delete`].
    Deleted(Result<(), ErrorCode>),
}

impl<B> WorkResult<B> {
    /// Returns why the work failed, if it did.
    #[must_use]
    pub fn failure(&self) -> Option<ErrorCode> {
        match self {
            Self::Opened(result) | Self::Applied(_, result) | Self::Synced(result) | Self::Deleted(result) => {
                result.err()
            }
            Self::Completed(result) | Self::Interrupted(result) => result.err(),
            Self::Looked(result) => result.err(),
            Self::Read(result) => result.as_ref().err().copied(),
        }
    }
}
