//! The end of an update in place that changed nothing.

use kv::Txn;

use crate::groups::deletion::queue;
use crate::groups::objects::object_of;
use crate::tree::inode::{Content, FileState, Kind};
use crate::writers::located::located_writing;
use crate::writers::record::current_writer;
use crate::{Completion, Context, NsError, OpTag, Operation, Sums, WriterEnd, WriterKind, WriterToken};

/// Ends an update in place, if the file has the same bytes as before: it keeps its checksums, its generation and its modification time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EndUnchanged {
    /// Which.
    pub writer: WriterToken,
    /// The length that the store has now, in bytes.
    pub len: u64,
    /// The checksums of what the store has now.
    pub sums: Sums,
    /// The server has seen all of the update and knows that it changed nothing. Otherwise the checksums must tell.
    pub certain: bool,
    /// Who ends it.
    pub completion: Completion,
}

/// See [`EndUnchanged`]. `false`: it is no such update, nothing was done, and [`crate::Commit`] or [`crate::Interrupt`] is to end it.
/// [`NsError::Stale`] if the writer was fenced or has ended.
pub fn end_unchanged(txn: &mut dyn Txn, ctx: &Context, request: &EndUnchanged) -> Result<bool, NsError> {
    let writer = current_writer(txn, &request.writer)?;
    if writer.kind != WriterKind::Update {
        return Ok(false);
    }
    match located_writing(txn, &writer)? {
        Some((mut located, old)) => {
            let same = writer.sums_before.map_or(request.certain, |before| before == request.sums);
            if old.len != request.len || !same {
                return Ok(false);
            }
            let content = Content { state: FileState::Complete, sums: Some(request.sums), ..old };
            located.inode.kind = Kind::File(content);
            located.store(txn, ctx);
            object_of(located.inode.ino, &content, writer.epoch).put(txn);
        }
        None => queue(txn, ctx, writer.placement.group, writer.object)?,
    }
    writer.delete(txn);
    if request.completion == Completion::AtGraceEnd {
        writer.entomb(txn, WriterEnd::Completed, ctx.now.plus(ctx.limits.tombstone_keep));
    }
    Ok(true)
}

impl Operation for EndUnchanged {
    const TAG: OpTag = OpTag::EndUnchanged;
    type Reply = bool;
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<bool, NsError> {
        end_unchanged(txn, ctx, self)
    }
}
