//! The file of an open write, wherever it has moved meanwhile.

use types::Ino;

use crate::ahead::{tell, writer_ahead};
use crate::tree::node::{self, Dentry, Located, get_dentry, locate};
use crate::{Content, NsError, Read, UploadRecord, WriterKind, WriterRecord, WriterToken};

/// The file of an open write to a visible object. `None` if it was removed or got another object meanwhile.
pub(crate) fn located_writing(read: &dyn Read, writer: &WriterRecord) -> Result<Option<(Located, Content)>, NsError> {
    let Some(located) = locate_writing(read, writer)? else {
        return Ok(None);
    };
    Ok(located
        .inode
        .content()
        .copied()
        .filter(|content| content.object == writer.object)
        .map(|content| (located, content)))
}

/// Whether bytes of the object existed before this open write: it changes a complete file, or goes on with an interrupted file or upload.
pub fn has_kept_bytes(read: &dyn Read, token: &WriterToken) -> Result<bool, NsError> {
    tell(read, &|| writer_ahead(token, None))?;
    let Some(writer) = WriterRecord::get(read, token.key, token.object)? else { return Ok(false) };
    Ok(match writer.kind {
        WriterKind::Update => true,
        WriterKind::New => located_writing(read, &writer)?.is_some_and(|(_, content)| content.len > 0),
        WriterKind::Upload(upload) => UploadRecord::get(read, upload)?.is_some_and(|upload| upload.kept_len > 0),
    })
}

/// Whether the file of an open write was removed or got another object, so that its end changes no file. False for an upload.
pub fn is_unlinked(read: &dyn Read, writer: &WriterRecord) -> Result<bool, NsError> {
    Ok(!matches!(writer.kind, WriterKind::Upload(_)) && located_writing(read, writer)?.is_none())
}

/// Usually the file is still where it was opened: one get. Otherwise the inode number finds it.
fn locate_writing(read: &dyn Read, writer: &WriterRecord) -> Result<Option<Located>, NsError> {
    let name = writer.path.rsplit(|&byte| byte == b'/').next().unwrap_or(b"");
    if writer.parent != Ino(0)
        && !name.is_empty()
        && let Some(Dentry::Record(inode)) = get_dentry(read, writer.parent, name)?
        && inode.ino == writer.ino
    {
        return Ok(Some(Located { inode, place: node::RecordLocation::Entry(writer.parent, name.to_vec()) }));
    }
    locate(read, writer.ino)
}
