//! The limits of a client's credential where its path says too little: the file of an open write may have moved since it was opened, or a link may lead
//! elsewhere, and the client may come back with another credential of the same principal. So an actor with limits returns only to a file that is now where
//! they permit it. Actors without limits cost nothing.

use crate::planted::{self, Bug};
use crate::tree::node::Dentry;
use crate::tree::path_of::path_of;
use crate::tree::trail::Place;
use crate::tree::walk::Resolved;
use crate::writers::request::MAKES;
use crate::{Actor, Context, NsError, OpenWrite, PathOperation, Read, UploadRecord, WriterKind, WriterRecord};
use types::{Ino, NsPath};

/// What the end of this upload does: it makes a file, or it replaces one.
pub(crate) fn makes(upload: &UploadRecord) -> &'static [PathOperation] {
    if upload.replaces.is_none() { MAKES } else { &[PathOperation::ModifyFile] }
}

/// Denies the return to an open write unless the limits of the actor permit it where its file is. `found` is where the path in the request leads.
pub(crate) fn permit_return(
    read: &dyn Read,
    ctx: &Context,
    request: &OpenWrite,
    found: Option<&Resolved>,
    writer: &WriterRecord,
) -> Result<(), NsError> {
    // A stripe unit has no name. Its writer has shown that it has opened the file.
    let is_limited = ctx.actor.limits.is_some() && request.unit_of.is_none();
    if !is_limited || planted::is(Bug::LimitsForgetWhereTheFileIs) {
        return Ok(());
    }
    let operations = match writer.kind {
        WriterKind::New => MAKES,
        WriterKind::Update => &[PathOperation::ModifyFile],
        WriterKind::Upload(upload) => {
            let Some(upload) = UploadRecord::get(read, upload)? else { return Ok(()) };
            return permit_upload(read, &ctx.actor, &upload, makes(&upload));
        }
    };
    // Of a file with several names, the one that the path leads to counts.
    let leads_there = found.filter(|found| found.entry.as_ref().map(Dentry::ino) == Some(writer.ino));
    let place = match leads_there {
        Some(found) => found.place.clone(),
        None => place_of(read, writer.ino, b"")?.ok_or_else(|| {
            let why = "it was removed or replaced while it was being written";
            NsError::Stale { what: request.path.to_string(), why }
        })?,
    };
    place.permit(&ctx.actor, operations, &request.path)
}

/// Denies what an actor wants to do with an upload unless its limits permit one of `operations` on the path of its open, and where it will appear.
pub(crate) fn permit_upload(
    read: &dyn Read,
    actor: &Actor,
    upload: &UploadRecord,
    operations: &[PathOperation],
) -> Result<(), NsError> {
    if actor.limits.is_none() || planted::is(Bug::LimitsForgetWhereTheFileIs) {
        return Ok(());
    }
    // Without its directory it appears nowhere.
    let place = place_of(read, upload.parent, &upload.name)?.unwrap_or_default();
    place.permit(actor, operations, &NsPath::parse(&upload.path)?)
}

/// The place of an inode, or of a name in it. `None`: it has no name any more.
pub(crate) fn place_of(read: &dyn Read, ino: Ino, name: &[u8]) -> Result<Option<Place>, NsError> {
    let mut path = match path_of(read, ino) {
        Err(NsError::NotFound(..)) => return Ok(None),
        path => path?,
    };
    if !name.is_empty() {
        path.push(b'/');
        path.extend_from_slice(name);
    }
    Ok(Some(Place::at(&path)?))
}
