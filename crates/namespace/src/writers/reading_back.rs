//! Whether the client of an open write may also read through its handle. A right to write includes none to read: a mode or an ACL may give `w` alone, and
//! a token may have `storage.modify` without `storage.read` (WLCG Common JWT Profiles 1.3).

use types::{NsPath, WriterToken};

use crate::ahead::{inode_ahead, tell};
use crate::tree::node::{Dentry, Located, locate};
use crate::tree::walk::{Last, resolve};
use crate::writers::returning::{permit_upload, place_of};
use crate::{
    AccessKind, Actor, NsError, OpenKind, OpenedWrite, PathOperation, Read, UploadRecord, WriterKind, WriterRecord,
    permit,
};

const READ: &[PathOperation] = &[PathOperation::Read];

/// Denies reading through the handle of an open write, unless its client may read the file. A client that has just made a new object reads what it has
/// written itself, as with open(2). For a stripe unit, `unit_of` is the open write of its file: the permissions of the file count.
///
/// Call it after [`crate::open_write`], outside of the transaction: what it looks at may change while the handle is open, as for any open file.
pub fn permit_reading_back(
    read: &dyn Read,
    actor: &Actor,
    path: &NsPath,
    opened: &OpenedWrite,
    unit_of: Option<WriterToken>,
) -> Result<(), NsError> {
    // The units of a file are made with it: their opens never say that they are new.
    let file = unit_of.map(|of| WriterRecord::get(read, of.key, of.object)).transpose()?.flatten();
    let upload = match (opened.kind, &file) {
        (_, Some(WriterRecord { kind: WriterKind::Upload(upload), .. })) => Some(*upload),
        (OpenKind::Resumed(upload), None) => upload,
        _ => None,
    };
    if let Some(upload) = upload {
        // The open has checked that the upload is the client's own.
        return UploadRecord::get(read, upload)?.map_or(Ok(()), |upload| permit_upload(read, actor, &upload, READ));
    }
    if unit_of.is_none() && matches!(opened.kind, OpenKind::New | OpenKind::Upload(_)) {
        return Ok(());
    }
    let ino = if unit_of.is_some() { file.as_ref().map(|file| file.ino) } else { Some(opened.ino) };
    // If it was removed meanwhile, nobody is left to say that the client may read it.
    tell(read, &|| ino.map_or_else(Vec::new, inode_ahead))?;
    let gone = || NsError::Stale { what: path.to_string(), why: "it was removed while it was opened" };
    let Located { inode, .. } = ino.map_or(Ok(None), |ino| locate(read, ino))?.ok_or_else(gone)?;
    if file.is_some_and(|file| file.kind == WriterKind::New) && actor.principal == inode.owner() {
        return Ok(());
    }
    permit(actor, &inode.access, AccessKind::Read, &|| path.to_string())?;
    if actor.limits.is_none() {
        return Ok(());
    }
    // Of a file with several names, the one that the path leads to counts.
    let at_path = match resolve(read, actor, path, Last::Follow, READ) {
        Err(error @ NsError::Denied { .. }) => return Err(error),
        found => found.ok().filter(|found| found.entry.as_ref().map(Dentry::ino) == Some(inode.ino)),
    };
    let place = match at_path {
        Some(found) => found.place,
        None => place_of(read, inode.ino, b"")?.ok_or_else(gone)?,
    };
    place.permit(actor, READ, path)
}
