//! Takes back an open for writing: the upload of a new file leaves nothing, and a file that was to be replaced stays.

use kv::Txn;
use types::{GroupId, ObjectId};

use crate::groups::stripe::stripe_of;
use crate::tree::node::{Located, RecordLocation, locate};
use crate::tree::remove::unlink;
use crate::writers::interrupt::interrupt;
use crate::writers::located::located_writing;
use crate::writers::record::{WriterRecord, current_writer};
use crate::writers::session::forget_answer;
use crate::{
    Context, FileState, Interrupt, InterruptReply, Kind, NsError, OpTag, RequestNumber, WriterKind, WriterToken,
};

/// Takes back an open, with what was written since. Removes the name that the open created, unless another session or name refers to the file
/// meanwhile. Then the file stays, marked as [`Interrupt`] marks it. A file that existed before stays too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Abandon {
    /// The writer of the open.
    pub writer: WriterToken,
    /// The number of the open, if it had one. Its answer is forgotten, so that the same request can open the file later.
    pub request: Option<RequestNumber>,
}

/// See [`Abandon`]. [`NsError::Stale`] if the writer was fenced or has ended. [`NsError::Invalid`] for a change in place: nobody has its old bytes.
pub fn abandon(txn: &mut dyn Txn, ctx: &Context, request: &Abandon) -> Result<InterruptReply, NsError> {
    let writer = current_writer(txn, &request.writer)?;
    let name = match writer.kind {
        WriterKind::Update => {
            let why = "it is changed in place, and that cannot be taken back";
            return Err(NsError::Invalid { what: writer.path.escape_ascii().to_string(), why });
        }
        WriterKind::Upload(_) => None,
        WriterKind::New => located_writing(txn, &writer)?,
    };
    let name = name.map(|(located, _)| match located.place {
        RecordLocation::Entry(dir, name) if located.inode.holders == 0 => Some((dir, name)),
        _ => None,
    });
    // Others see the file by another name, or hold it.
    let stays = name == Some(None);
    if writer.placement.group == GroupId::STRIPED && !stays {
        end_units(txn, ctx, &writer)?;
    }
    let reply = interrupt(txn, ctx, &Interrupt { writer: request.writer, kept_len: 0 })?;
    if let Some(number) = request.request {
        forget_answer(txn, number, OpTag::OpenWrite)?;
    }
    let Some(Some((dir, name))) = name else { return Ok(reply) };
    unlink(txn, ctx, dir, &name)?;
    Ok(InterruptReply::Unlinked)
}

/// Ends the open writes of all units and empties them, so that they go together with their file.
fn end_units(txn: &mut dyn Txn, ctx: &Context, writer: &WriterRecord) -> Result<(), NsError> {
    let Some(record) = stripe_of(txn, writer.object)? else { return Ok(()) };
    for ino in record.units {
        let Some(Located { mut inode, place }) = locate(txn, ino)? else { continue };
        let Kind::File(content) = &mut inode.kind else { continue };
        if let FileState::Open(by) | FileState::Updating(by) = content.state {
            end_unit(txn, by, content.object)?;
            content.state = FileState::Interrupted(by);
        }
        (content.len, content.sums) = (0, None);
        Located { inode, place }.store(txn, ctx);
    }
    Ok(())
}

fn end_unit(txn: &mut dyn Txn, by: crate::WriterKey, object: ObjectId) -> Result<(), NsError> {
    if let Some(unit) = WriterRecord::get(txn, by, object)? {
        unit.delete(txn)?;
    }
    Ok(())
}

crate::context::operations! {
    Abandon, abandon -> InterruptReply;
}
