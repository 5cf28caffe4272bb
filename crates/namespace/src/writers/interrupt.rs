//! The interrupted mark: the writer went away, and its bytes are kept.

use kv::{Prefetch, Txn};

use crate::ahead::{end_ahead, tell, writer_ahead};
use crate::groups::deletion::queue;
use crate::groups::objects::object_of;
use crate::quota::charge::{Delta, charge_of, settle};
use crate::tree::inode::{Content, FileState, Kind};
use crate::trees::totals::{adjust_bytes, difference};
use crate::writers::located::located_writing;
use crate::writers::record::current_writer;
use crate::{
    Context, NsError, OpTag, Operation, UploadRecord, UploadState, WriterEnd, WriterKind, WriterRecord, WriterToken,
    keys,
};

/// Ends a writer that went away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interrupt {
    /// The writer.
    pub writer: WriterToken,
    /// Kept bytes. For an in-place update, the file's present length.
    pub kept_len: u64,
}

/// The result of an interruption.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InterruptReply {
    /// A new file: marked interrupted. An in-place update: complete, without whole-file checksums until they are verified.
    Marked,
    /// An upload: kept, hidden, and listed.
    UploadKept,
    /// The file was removed meanwhile, or it is an upload without kept bytes. The deletion of its object is queued.
    Unlinked,
}

/// See [`Interrupt`]. [`NsError::Stale`] if the writer was fenced or has ended.
pub fn interrupt(txn: &mut dyn Txn, ctx: &Context, request: &Interrupt) -> Result<InterruptReply, NsError> {
    let writer = current_writer(txn, &request.writer)?;
    interrupt_writer(txn, ctx, &writer, request.kept_len)
}

/// The same, for the present record of the writer.
pub(crate) fn interrupt_writer(
    txn: &mut dyn Txn,
    ctx: &Context,
    writer: &WriterRecord,
    kept_len: u64,
) -> Result<InterruptReply, NsError> {
    tell(txn, &|| end_ahead(txn, ctx, writer))?;
    let kept_len = crate::groups::stripe::kept(txn, writer, kept_len)?;
    // What it has reserved goes to what stays of it.
    WriterRecord { reservation: None, ..writer.clone() }.delete(txn)?;
    writer.entomb(txn, WriterEnd::Interrupted, ctx.now.plus(ctx.limits.tombstone_keep));
    if let WriterKind::Upload(upload) = writer.kind {
        let missing = || NsError::Damaged {
            key: keys::upload(upload).escape_ascii().to_string(),
            why: "a writer says that it writes this upload, but there is none",
        };
        let mut upload = UploadRecord::get(txn, upload)?.ok_or_else(missing)?;
        // An empty upload cannot be resumed. And on a full disk, each failed overwrite would leave a record.
        if kept_len == 0 {
            settle(txn, ctx, None, writer.reservation)?;
            upload.delete(txn)?;
            queue(txn, ctx, writer.placement.group, writer.object)?;
            return Ok(InterruptReply::Unlinked);
        }
        upload.state = UploadState::Interrupted;
        upload.deadline = Some(ctx.now.plus(ctx.limits.upload_keep));
        upload.epoch = writer.epoch;
        upload.kept_len = kept_len;
        upload.take_reservation(txn, writer.reservation.as_ref())?;
        upload.put(txn);
        return Ok(InterruptReply::UploadKept);
    }
    let Some((mut located, old)) = located_writing(txn, writer)? else {
        settle(txn, ctx, None, writer.reservation)?;
        queue(txn, ctx, writer.placement.group, writer.object)?;
        return Ok(InterruptReply::Unlinked);
    };
    let state = match writer.kind {
        WriterKind::New => FileState::Interrupted(writer.key),
        _ => FileState::Complete, // a file that was complete before stays readable
    };
    let generation = old.generation.wrapping_add(1); // its bytes differ from before
    let content = Content { len: kept_len, state, sums: None, generation, ..old };
    located.inode.kind = Kind::File(content);
    located.inode.access.drop_set_id_for(writer.client.principal);
    located.inode.ctime = ctx.now;
    located.store(txn, ctx);
    object_of(located.inode.ino, &content, writer.epoch).put(txn);
    let bytes = difference(content.len, old.len);
    adjust_bytes(txn, ctx, &located, bytes)?;
    let delta = Delta { bytes, ..Delta::default() };
    let charge = charge_of(txn, &located)?;
    settle(txn, ctx, charge.map(|charge| (charge, delta)), writer.reservation)?;
    Ok(InterruptReply::Marked)
}

impl Operation for Interrupt {
    const TAG: OpTag = OpTag::Interrupt;
    type Reply = InterruptReply;
    fn ahead(&self, ctx: &Context) -> Vec<Prefetch> {
        writer_ahead(&self.writer, Some(ctx))
    }
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<InterruptReply, NsError> {
        interrupt(txn, ctx, self)
    }
}
