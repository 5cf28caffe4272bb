//! The end of an in-place update that changed nothing.

use kv::{Prefetch, Read, Txn};

use crate::ahead::{end_ahead, tell, writer_ahead};
use crate::groups::deletion::queue;
use crate::groups::objects::object_of;
use crate::tree::inode::{Content, FileState, Kind};
use crate::writers::located::located_writing;
use crate::writers::record::{current_writer, is_being_written};
use crate::{Completion, Context, NsError, OpTag, Operation, Sums, WriterEnd, WriterKind, WriterToken};

/// Ends an in-place update if the file has the same bytes as before. The file keeps its checksums, its generation and its modification time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EndUnchanged {
    /// The writer.
    pub writer: WriterToken,
    /// The store's present length of the object, in bytes.
    pub len: u64,
    /// The checksums of the object on the store.
    pub sums: Sums,
    /// The server has seen the whole update and knows that it changed nothing. Otherwise the checksums must prove it.
    pub certain: bool,
    /// The party that ends it.
    pub completion: Completion,
}

/// See [`EndUnchanged`]. `false`: the update changed something or is no such update. Nothing was done; end it with [`crate::Commit`] or
/// [`crate::Interrupt`]. [`NsError::Stale`] if the writer was fenced or has ended.
pub fn end_unchanged(txn: &mut dyn Txn, ctx: &Context, request: &EndUnchanged) -> Result<bool, NsError> {
    let writer = current_writer(txn, &request.writer)?;
    tell(txn, &|| end_ahead(txn, ctx, &writer))?;
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
    writer.delete(txn)?;
    if request.completion == Completion::AtGraceEnd {
        writer.entomb(txn, WriterEnd::Completed, ctx.now.plus(ctx.limits.tombstone_keep));
    }
    Ok(true)
}

impl Operation for EndUnchanged {
    const TAG: OpTag = OpTag::EndUnchanged;
    type Reply = bool;
    fn ahead(&self, ctx: &Context) -> Vec<Prefetch> {
        writer_ahead(&self.writer, Some(ctx))
    }
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<bool, NsError> {
        end_unchanged(txn, ctx, self)
    }
    /// Otherwise a commit follows, for the same request.
    fn is_remembered(result: &Result<bool, NsError>) -> bool {
        matches!(result, Ok(true))
    }
    /// The end of an open write deletes its record.
    fn is_undone(&self, read: &dyn Read) -> Result<bool, NsError> {
        is_being_written(read, &self.writer)
    }
}
