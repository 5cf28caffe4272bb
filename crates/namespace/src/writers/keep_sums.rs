//! Whole-file checksums that were found by reading a file through.

use kv::Txn;
use types::{Ino, ObjectId};

use crate::tree::inode::{FileState, Kind};
use crate::tree::node::locate;
use crate::{Context, NsError, OpTag, Operation, Sums};

/// Gives a complete file that has no checksums (an update in place had ended without a close) those that a reading of
/// all its bytes has brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeepSums {
    /// The inode.
    pub ino: Ino,
    /// The content that was read.
    pub object: ObjectId,
    /// Its generation before the reading began.
    pub generation: u32,
    /// What was found.
    pub sums: Sums,
}

/// See [`KeepSums`]. Nothing is changed if the file has gone or has other bytes since.
pub fn keep_sums(txn: &mut dyn Txn, ctx: &Context, request: &KeepSums) -> Result<(), NsError> {
    let Some(mut located) = locate(txn, request.ino)? else { return Ok(()) };
    if let Kind::File(content) = &mut located.inode.kind
        && content.object == request.object
        && content.generation == request.generation
        && content.state == FileState::Complete
        && content.sums.is_none()
    {
        content.sums = Some(request.sums);
        located.store(txn, ctx);
    }
    Ok(())
}

impl Operation for KeepSums {
    const TAG: OpTag = OpTag::KeepSums;
    type Reply = ();
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<(), NsError> {
        keep_sums(txn, ctx, self)
    }
}
