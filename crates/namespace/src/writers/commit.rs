//! Commit: the written object becomes the object of the file.

use kv::{Prefetch, Txn};
use types::{ErrorCode, Ino, ObjectId, UploadId};

use crate::ahead::{end_ahead, tell, writer_ahead};
use crate::groups::deletion::{queue, release_object};
use crate::groups::objects::object_of;
use crate::planted::{self, Bug};
use crate::quota::charge::{Delta, charge_in, charge_of, settle};
use crate::quota::record::QuotaRecord;
use crate::tree::node::{Dentry, InodeValue, Located, get_dentry, get_inode_value, locate_entry, new_inode, put_new};
use crate::tree::permission::may_create;
use crate::trees::totals::{Touch, adjust, adjust_bytes, difference};
use crate::writers::keep_digest::forget_digests;
use crate::writers::located::located_writing;
use crate::writers::record::{current_writer, is_being_written};
use crate::writers::returning::permit_upload;
use crate::{
    Committed, Content, Context, FileState, Kind, NsError, OpTag, Operation, PathOperation, Read, UploadRecord,
    UploadState, WriterEnd, WriterKind, WriterRecord, WriterToken, keys,
};

/// The party that completes the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Completion {
    /// The client closed the file.
    ByClient,
    /// The server, at the end of the grace period ([`crate::at_grace_end`]). The client may come back without knowing. Nobody decides at that moment,
    /// so the commit must not undo anything acknowledged since the upload began. The name must have exactly its object of that time, or still be
    /// free. Otherwise the upload is kept.
    AtGraceEnd,
}

/// Makes the object of `writer` the object of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Commit {
    /// The writer, from the open.
    pub writer: WriterToken,
    /// The object, as the store reports it.
    pub content: Committed,
    /// The party that completes the file.
    pub completion: Completion,
}

/// The result of a commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CommitReply {
    /// The file is complete.
    Complete {
        /// The inode.
        ino: Ino,
        /// The previous object, if nothing needs it any more. Its deletion is queued.
        replaced: Option<ObjectId>,
        /// The upload, if this was one.
        upload: Option<UploadId>,
    },
    /// The file was removed, or another object replaced this one, during the write. The deletion of this object is queued.
    Unlinked,
}

/// See [`Commit`]. [`NsError::Stale`] if the writer was fenced or has ended; [`NsError::UploadKept`] if an upload
/// cannot take effect.
pub fn commit(txn: &mut dyn Txn, ctx: &Context, request: &Commit) -> Result<CommitReply, NsError> {
    let mut writer = current_writer(txn, &request.writer)?;
    tell(txn, &|| end_ahead(txn, ctx, &writer))?;
    let request = &Commit { content: crate::groups::stripe::committed(txn, &writer, request.content)?, ..*request };
    let reply = match writer.kind {
        WriterKind::New | WriterKind::Update => match located_writing(txn, &writer)? {
            Some((located, content)) => commit_visible(txn, ctx, request, &mut writer, located, content)?,
            None => {
                settle(txn, ctx, None, writer.reservation.take())?;
                queue(txn, ctx, writer.placement.group, writer.object)?;
                CommitReply::Unlinked
            }
        },
        WriterKind::Upload(upload) => commit_upload(txn, ctx, request, &mut writer, upload)?,
    };
    writer.delete(txn)?;
    if request.completion == Completion::AtGraceEnd {
        writer.entomb(txn, WriterEnd::Completed, ctx.now.plus(ctx.limits.tombstone_keep));
    }
    Ok(reply)
}

fn commit_visible(
    txn: &mut dyn Txn,
    ctx: &Context,
    request: &Commit,
    writer: &mut WriterRecord,
    mut located: Located,
    old: Content,
) -> Result<CommitReply, NsError> {
    let content = Content {
        len: request.content.len,
        state: FileState::Complete,
        sums: request.content.sums,
        generation: old.generation.wrapping_add(1),
        ..old
    };
    set_content(txn, ctx, request, &mut located, content, writer)?;
    has_grown(txn, ctx, writer, &located, difference(content.len, old.len))?;
    Ok(CommitReply::Complete { ino: writer.ino, replaced: None, upload: None })
}

/// Counts the new length of a file, in place of what its open write has reserved.
fn has_grown(
    txn: &mut dyn Txn,
    ctx: &Context,
    writer: &mut WriterRecord,
    located: &Located,
    bytes: i64,
) -> Result<(), NsError> {
    if bytes == 0 && writer.reservation.is_none() {
        return Ok(());
    }
    adjust_bytes(txn, ctx, located, bytes)?;
    let delta = Delta { bytes, ..Delta::default() };
    let charge = charge_of(txn, located)?;
    settle(txn, ctx, charge.map(|charge| (charge, delta)), writer.reservation.take())
}

fn set_content(
    txn: &mut dyn Txn,
    ctx: &Context,
    request: &Commit,
    located: &mut Located,
    content: Content,
    writer: &WriterRecord,
) -> Result<(), NsError> {
    forget_digests(txn, &mut located.inode)?;
    located.inode.access.drop_set_id_for(writer.client.principal);
    located.inode.kind = Kind::File(content);
    located.inode.mtime = request.content.mtime.unwrap_or(ctx.now);
    located.inode.ctime = ctx.now;
    located.store(txn, ctx);
    object_of(located.inode.ino, &content, writer.epoch).put(txn);
    Ok(())
}

fn commit_upload(
    txn: &mut dyn Txn,
    ctx: &Context,
    request: &Commit,
    writer: &mut WriterRecord,
    id: UploadId,
) -> Result<CommitReply, NsError> {
    let missing = || NsError::Damaged {
        key: keys::upload(id).escape_ascii().to_string(),
        why: "a writer says that it writes this upload, but there is none",
    };
    let upload = UploadRecord::get(txn, id)?.ok_or_else(missing)?;
    let content = Content {
        object: upload.object,
        group: upload.placed,
        len: request.content.len,
        state: FileState::Complete,
        sums: request.content.sums,
        generation: 1,
        shared: false,
    };
    let place = match find_place(txn, ctx, &upload, request.completion)? {
        Ok(place) => place,
        Err(refusal) => return Err(keep(txn, ctx, request, writer, upload, &refusal)?),
    };
    if let Some(refusal) = find_quota(txn, ctx, &upload, writer, &place, content.len)? {
        return Err(keep(txn, ctx, request, writer, upload, &refusal)?);
    }
    // Deletes only the record: its attributes now belong to the file.
    txn.delete(&keys::upload(id));
    let (ino, replaced) = match place {
        NamePosition::Taken(mut located, old) => {
            let replaced = release_object(txn, ctx, &old)?;
            let content = Content { generation: old.generation.wrapping_add(1), ..content };
            set_content(txn, ctx, request, &mut located, content, writer)?;
            has_grown(txn, ctx, writer, &located, difference(content.len, old.len))?;
            (located.inode.ino, replaced)
        }
        NamePosition::Free => {
            let ino = if upload.replaces.is_some() { ctx.ids.next_ino()? } else { writer.ino };
            let mut inode = new_inode(ctx, ino, upload.access(), Kind::File(content));
            inode.access.drop_set_id_for(writer.client.principal);
            inode.mtime = request.content.mtime.unwrap_or(ctx.now);
            inode.xattrs =
                upload.attributes.filter(|attributes| attributes.at == ino).map_or(0, |attributes| attributes.count);
            put_new(txn, ctx, upload.parent, &upload.name, &inode);
            object_of(ino, &content, writer.epoch).put(txn);
            let bytes = difference(content.len, 0);
            adjust(txn, ctx, upload.parent, 1, bytes, Touch::Entries)?;
            let charge = charge_in(txn, upload.parent, &inode)?;
            let delta = Delta::one_file(content.len);
            settle(txn, ctx, Some((charge, delta)), writer.reservation.take())?;
            (ino, None)
        }
    };
    Ok(CommitReply::Complete { ino, replaced, upload: Some(id) })
}

/// Where an upload's object goes.
#[allow(clippy::large_enum_variant)] // lives for one call
enum NamePosition {
    /// To this file, in place of this object.
    Taken(Located, Content),
    /// To the name, which is free.
    Free,
}

/// Why an upload cannot become visible.
struct CommitRefused {
    code: ErrorCode,
    why: &'static str,
}

fn find_place(
    read: &dyn Read,
    ctx: &Context,
    upload: &UploadRecord,
    completion: Completion,
) -> Result<Result<NamePosition, CommitRefused>, NsError> {
    let late = completion == Completion::AtGraceEnd && !planted::is(Bug::LateCommitUndoes);
    let refuse = |code, why| Ok(Err(CommitRefused { code, why }));
    let parent = match get_inode_value(read, upload.parent)? {
        Some(InodeValue::Record(inode)) => inode,
        _ => return refuse(ErrorCode::NotFound, "the directory has been removed meanwhile"),
    };
    let entry = get_dentry(read, upload.parent, &upload.name)?;
    match (entry, upload.replaces) {
        (None, Some(_)) if late => refuse(ErrorCode::NotFound, "the file has been removed or moved meanwhile"),
        (None, replaces) => {
            // If the file to replace is gone, the open did not need this permission. It must have had it then, and have it now: a manager commits for
            // the writer, and does not know its groups and limits.
            let is_permitted = || permit_upload(read, &ctx.actor, upload, &[PathOperation::CreateFile]).is_ok();
            let may = upload.may_create && may_create(&ctx.actor, &parent.access) && is_permitted();
            if replaces.is_some() && !may {
                return refuse(
                    ErrorCode::Denied,
                    "the file has been removed meanwhile, and you may not create it again",
                );
            }
            Ok(Ok(NamePosition::Free))
        }
        (Some(Dentry::Directory(_)), _) => refuse(ErrorCode::IsDirectory, "a directory has taken the name meanwhile"),
        (Some(entry), replaces) => {
            let same = replaces == Some(entry.ino());
            let located = locate_entry(read, upload.parent, &upload.name, entry)?;
            let Some(content) = located.inode.content().copied() else {
                return refuse(ErrorCode::Exists, "a symbolic link has taken the name meanwhile");
            };
            if !same && !planted::is(Bug::CommitOverwritesNewName) {
                return refuse(ErrorCode::Exists, "another file has taken the name meanwhile");
            }
            if matches!(content.state, FileState::Open(_)) {
                return refuse(ErrorCode::Busy, "another client is writing that file again");
            }
            if late && matches!(content.state, FileState::Updating(_)) {
                return refuse(ErrorCode::Busy, "another client is changing that file");
            }
            if late && upload.replaces_content != Some((content.object, content.generation)) {
                return refuse(ErrorCode::Exists, "the file has been replaced meanwhile");
            }
            Ok(Ok(NamePosition::Taken(located, content)))
        }
    }
}

/// Why the quotas do not let an upload replace its file, if that counts for others than it did at the open, or is gone. The upload has reserved its length
/// for those of then.
fn find_quota(
    read: &dyn Read,
    ctx: &Context,
    upload: &UploadRecord,
    writer: &WriterRecord,
    place: &NamePosition,
    len: u64,
) -> Result<Option<CommitRefused>, NsError> {
    if upload.replaces.is_none() || planted::is(Bug::OpenFilesMove) {
        return Ok(None);
    }
    let charged = writer.reservation.map(|reservation| (reservation.charge.owner, reservation.charge.group));
    // The usual case. The name is where it was, and so in the same tree.
    if let NamePosition::Taken(Located { inode, .. }, _) = place
        && charged.unwrap_or((upload.owner, upload.group)) == (inode.access.owner, inode.access.group)
    {
        return Ok(None);
    }
    let from = match writer.reservation {
        Some(reservation) => Some(reservation.charge),
        None => upload.charge(read)?,
    };
    let refused = |why| Ok(Some(CommitRefused { code: ErrorCode::Quota, why }));
    match (place, from) {
        (NamePosition::Taken(located, old), Some(from)) => {
            let Some(to) = charge_of(read, located)? else { return Ok(None) };
            let more = len.saturating_sub(old.len);
            for (then, now) in from.parts().into_iter().zip(to.parts()) {
                let is_other = (from.tree, then) != (to.tree, now);
                if is_other && more > 0 {
                    let room = QuotaRecord::get(read, to.tree, now)?.room_for_bytes(ctx.now);
                    if room.is_some_and(|room| room < more) {
                        return refused("the file counts for somebody else meanwhile, whose quota has no room for it");
                    }
                }
            }
            Ok(None)
        }
        // A file more than before. Its bytes are reserved.
        (NamePosition::Free, Some(from)) => {
            let is_full = |record: &QuotaRecord| record.room_for_files(ctx.now) == Some(0);
            match from.load(read)?.iter().any(is_full) {
                true => {
                    refused("the file has been removed or moved meanwhile, and a quota has no room for another one")
                }
                false => Ok(None),
            }
        }
        (_, None) => Ok(None),
    }
}

/// Keeps an upload that cannot become visible. Its writer ends all the same.
fn keep(
    txn: &mut dyn Txn,
    ctx: &Context,
    request: &Commit,
    writer: &mut WriterRecord,
    mut upload: UploadRecord,
    refusal: &CommitRefused,
) -> Result<NsError, NsError> {
    upload.state = UploadState::Refused(refusal.code);
    upload.deadline = Some(ctx.now.plus(ctx.limits.upload_keep));
    upload.epoch = writer.epoch;
    upload.kept_len = request.content.len;
    upload.sums = request.content.sums;
    upload.take_reservation(txn, writer.reservation.take().as_ref())?;
    upload.put(txn);
    writer.delete(txn)?;
    writer.entomb(txn, WriterEnd::Refused, ctx.now.plus(ctx.limits.tombstone_keep));
    Ok(NsError::UploadKept {
        path: upload.path.escape_ascii().to_string(),
        reason: refusal.why,
        code: refusal.code,
        upload: upload.upload,
        kept_secs: ctx.limits.upload_keep.as_secs(),
    })
}

impl Operation for Commit {
    const TAG: OpTag = OpTag::Commit;
    type Reply = CommitReply;
    fn ahead(&self, ctx: &Context) -> Vec<Prefetch> {
        writer_ahead(&self.writer, Some(ctx))
    }
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<CommitReply, NsError> {
        commit(txn, ctx, self)
    }
    /// A server commits again under the writer's new epoch.
    fn is_remembered(result: &Result<CommitReply, NsError>) -> bool {
        result.is_ok()
    }
    /// The end of an open write deletes its record.
    fn is_undone(&self, read: &dyn Read) -> Result<bool, NsError> {
        is_being_written(read, &self.writer)
    }
}
