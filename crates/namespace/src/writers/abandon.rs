//! Takes back an open that failed, because the store could not begin.

use kv::Txn;

use crate::tree::node::RecordLocation;
use crate::tree::remove::unlink;
use crate::writers::interrupt::interrupt;
use crate::writers::located::located_writing;
use crate::writers::record::current_writer;
use crate::{Context, Interrupt, InterruptReply, NsError, WriterKind, WriterToken};

/// Takes back an open with no written bytes. Removes the name that the open created, unless another session or name refers to the file meanwhile.
/// Then the file stays, marked as [`Interrupt`] marks it. A file that existed before stays too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Abandon {
    /// The writer of the open.
    pub writer: WriterToken,
}

/// See [`Abandon`]. [`NsError::Stale`] if the writer was fenced or has ended.
pub fn abandon(txn: &mut dyn Txn, ctx: &Context, request: &Abandon) -> Result<InterruptReply, NsError> {
    let writer = current_writer(txn, &request.writer)?;
    let reply = interrupt(txn, ctx, &Interrupt { writer: request.writer, kept_len: 0 })?;
    if reply != InterruptReply::Marked || writer.kind != WriterKind::New {
        return Ok(reply);
    }
    let Some((located, _)) = located_writing(txn, &writer)? else { return Ok(reply) };
    let RecordLocation::Entry(dir, name) = located.place else { return Ok(reply) };
    if located.inode.holders > 0 {
        return Ok(reply);
    }
    unlink(txn, ctx, dir, &name)?;
    Ok(InterruptReply::Unlinked)
}

crate::context::operations! {
    Abandon, abandon -> InterruptReply;
}
