//! Whole-file checksums that a complete read has found.

use kv::Txn;
use types::{Ino, ObjectId};

use crate::tree::inode::{FileState, Kind};
use crate::tree::node::locate;
use crate::{Context, NsError, OpTag, Operation, Sums};

/// Sets the checksums of a complete file that has none, because an in-place update ended without a close. They come from a read of all its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeepSums {
    /// The inode.
    pub ino: Ino,
    /// The object that was read.
    pub object: ObjectId,
    /// Its generation before the read.
    pub generation: u32,
    /// The checksums.
    pub sums: Sums,
}

/// See [`KeepSums`]. Changes nothing if the file is gone or its bytes have changed since.
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
