//! Uploads that are kept, and the memory of ended writers.

use kv::{Read, Txn};
use types::{BodyId, Timestamp, UploadId};

use crate::{Context, NsError, OpTag, Operation, UploadRecord};

/// All uploads after `after`, at most `limit`: those in the making, interrupted, refused.
pub fn uploads(read: &dyn Read, after: Option<UploadId>, limit: usize) -> Result<Vec<UploadRecord>, NsError> {
    todo!("{after:?} {limit} {}", read.get(b"")?.is_some())
}

/// Of the next `limit` uploads after `after` those whose deadline has passed, and where to go on (`None`: at the end).
pub fn due_uploads(
    read: &dyn Read,
    now: Timestamp,
    after: Option<UploadId>,
    limit: usize,
) -> Result<(Vec<UploadRecord>, Option<UploadId>), NsError> {
    todo!("{now} {after:?} {limit} {}", read.get(b"")?.is_some())
}

/// Throws an upload away; its writer, if it has one, is fenced.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ForgetUpload {
    /// Which.
    pub upload: UploadId,
}

/// See [`ForgetUpload`].
pub fn forget_upload(txn: &mut dyn Txn, ctx: &Context, request: &ForgetUpload) -> Result<BodyId, NsError> {
    todo!("{request:?} {ctx:?} {}", txn.get(b"")?.is_some())
}

impl Operation for ForgetUpload {
    const TAG: OpTag = OpTag::ForgetUpload;
    type Reply = BodyId;
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<BodyId, NsError> {
        forget_upload(txn, ctx, self)
    }
}

/// Forgets ended writers whose time has passed: looks at `limit` of them after `after`. Answers where to go on, or `None` at the end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DropTombstones {
    /// Where to go on.
    pub after: Option<u64>,
    /// How many to look at.
    pub limit: u32,
}

/// See [`DropTombstones`].
pub fn drop_tombstones(txn: &mut dyn Txn, ctx: &Context, request: &DropTombstones) -> Result<Option<u64>, NsError> {
    todo!("{request:?} {ctx:?} {}", txn.get(b"")?.is_some())
}

impl Operation for DropTombstones {
    const TAG: OpTag = OpTag::DropTombstones;
    type Reply = Option<u64>;
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<Option<u64>, NsError> {
        drop_tombstones(txn, ctx, self)
    }
}
