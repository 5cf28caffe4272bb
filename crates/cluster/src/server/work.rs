//! What a replica's disk is given to do, and what came of it.

use types::{ErrorCode, StoreId};

use crate::CopyId;
use crate::message::Original;
use crate::replication::{Epoch, ObjectDigest, Seq, Stream};

/// For what something is done: given with a work, and handed back with what came of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum WorkPurpose {
    /// For the writer of this epoch, whose primary this store is.
    Lead(Epoch),
    /// For another store that is the primary.
    Follow(Stream),
    /// To make a copy that this store is owed.
    Copy(CopyId),
    /// To give another store a part of one that it is owed.
    Fetch {
        /// Who wants it.
        to: StoreId,
        /// For which copy.
        copy: CopyId,
        /// From where on, in bytes.
        offset: u64,
    },
    /// To delete it.
    Delete,
}

/// A work on a replica. Those of one replica are done one after the other in the order in which they were given; those of different replicas may go on side
/// by side. Each is answered by one [`WorkResult`], also when it fails.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Work<B> {
    /// Have it ready for writing. A new one if there is none and `may_make`, otherwise that is [`ErrorCode::NotFound`].
    Open {
        /// See above.
        may_make: bool,
    },
    /// Have it ready for writing, and empty, whatever is there.
    Renew,
    /// Make this change. It is answered when a kill of the process cannot undo it.
    Apply {
        /// Its number.
        seq: Seq,
        /// What is changed.
        change: B,
    },
    /// Make it durable.
    Sync,
    /// Make it whole and durable. One that is whole already is told as it is.
    Complete,
    /// End it without making it whole; what has no gap from the beginning is kept, durably. One that has ended already is told as it is.
    Interrupt,
    /// Say whether it is whole and is this.
    Look {
        /// What it has to be.
        whole: ObjectDigest,
    },
    /// Read a part of it, if it is this; otherwise that is [`ErrorCode::NotFound`]. Given back as a change that writes it.
    Read {
        /// What it has to be.
        original: Original,
        /// From where on, in bytes.
        offset: u64,
        /// How many bytes, unless it ends before.
        len: u32,
    },
    /// Take it away, durably, whatever it is; if it is not there, that is done.
    Delete,
}

/// What came of a [`Work`].
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
    /// Of [`Work::Interrupt`]: how much is kept, in bytes.
    Interrupted(Result<u64, ErrorCode>),
    /// Of [`Work::Look`].
    Looked(Result<bool, ErrorCode>),
    /// Of [`Work::Read`].
    Read(Result<B, ErrorCode>),
    /// Of [`Work::Delete`].
    Deleted(Result<(), ErrorCode>),
}
