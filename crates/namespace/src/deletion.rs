//! The deletion queue (`Z`).

use kv::{Read, Txn};
use types::{BodyId, Timestamp};

use crate::{Context, NsError, OpTag, Operation};

/// A body whose pieces are to be deleted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DueDeletion {
    /// Its place in the queue: when it was queued.
    pub seq: Timestamp,
    /// The body.
    pub body: BodyId,
}

/// The oldest `limit` entries after `after`.
pub fn due_deletions(read: &dyn Read, after: Option<DueDeletion>, limit: usize) -> Result<Vec<DueDeletion>, NsError> {
    todo!("{after:?} {limit} {}", read.get(b"")?.is_some())
}

/// The stores have deleted these; at most 1,024 at a time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeletionDone {
    /// Which.
    pub done: Vec<DueDeletion>,
}

/// See [`DeletionDone`].
pub fn deletion_done(txn: &mut dyn Txn, ctx: &Context, request: &DeletionDone) -> Result<(), NsError> {
    todo!("{request:?} {ctx:?} {}", txn.get(b"")?.is_some())
}

impl Operation for DeletionDone {
    const TAG: OpTag = OpTag::DeletionDone;
    type Reply = ();
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<(), NsError> {
        deletion_done(txn, ctx, self)
    }
}
