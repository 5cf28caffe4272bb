//! Opens a new file, an upload that replaces a file, or again the unfinished file of the same client.

use kv::Txn;
use types::{Ino, NsPath, ObjectId, Policy, UploadId};

use crate::ahead::{Ahead, tell};
use crate::groups::deletion::release_object;
use crate::planted::{self, Bug};
use crate::quota::charge::{Charge, Delta, charge_of};
use crate::quota::reserve::{Wanted, reserve_for_open};
use crate::tree::mkdir::resolve_making;
use crate::tree::new_access::access_of_file;
use crate::tree::node::{Dentry, Dir, Located, locate_entry, new_inode, put_new};
use crate::tree::permission::may_create;
use crate::tree::trail::Place;
use crate::tree::walk::{Last, Resolved, Walk, resolve, walk};
use crate::trees::policy::policy_of;
use crate::trees::totals::{self, Touch, adjust, adjust_bytes, difference};
use crate::writers::begin::{begin_writer, make_units, new_content, opened};
use crate::{
    Access, AccessKind, Actor, Content, Context, EndedWriter, FileState, Kind, NsError, OpenKind, OpenWrite,
    OpenedWrite, PathOperation, Read, UploadRecord, UploadState, WriteMode, WriterKey, WriterKind, WriterRecord, keys,
    permit,
};

pub(crate) fn open_new(txn: &mut dyn Txn, ctx: &Context, request: &OpenWrite) -> Result<OpenedWrite, NsError> {
    let path = &request.path;
    let key = keys::writer_key(&request.client, path.as_bytes());
    let uploads_dropped = if request.restarted { drop_own_uploads(txn, ctx, request)? } else { Vec::new() };
    if EndedWriter::get(txn, key)?.is_some_and(|ended| ended.is_of(&request.client, path)) {
        // A client that starts again has abandoned its earlier write.
        txn.delete(&keys::ended(key));
    }
    let (last, wanted) = (last_of(request), request.operations());
    let at = match request.mkpath {
        true => resolve_making(txn, ctx, path, last, wanted)?,
        false => resolve(txn, &ctx.actor, path, last, wanted)?,
    };
    let Resolved { parent, parent_is_new, name, entry, place, .. } = at.for_no_directory(path)?;
    let mut opened = match entry {
        None if request.empty.is_some() => return Err(not_empty(path)),
        None => {
            place.permit(&ctx.actor, &[PathOperation::CreateFile], path)?;
            permit(&ctx.actor, &parent.access, AccessKind::Write, &|| path.to_string())?;
            // No walk has passed a directory that was just made.
            permit(&ctx.actor, &parent.access, AccessKind::Pass, &|| path.to_string())?;
            if request.posc {
                let target = Target { parent: &parent, name, replaces: None, access: None, may_create: true };
                new_upload(txn, ctx, request, key, target)?
            } else {
                new_file(txn, ctx, request, key, (&parent, parent_is_new), &name)?
            }
        }
        Some(Dentry::Directory(_)) if request.how == WriteMode::Replace => {
            return Err(NsError::IsDirectory(path.to_string()));
        }
        Some(Dentry::Directory(_)) => return Err(NsError::Exists(path.to_string())),
        Some(entry) => {
            let located = locate_entry(txn, parent.ino, &name, entry)?;
            open_over(txn, ctx, request, key, (&parent, name, &place), located)?
        }
    };
    opened.dropped.extend(uploads_dropped);
    Ok(opened)
}

/// The policy for a file that this request would make or replace, as [`crate::policy_for`]. Denies a request that the open will deny: a manager asks
/// before it takes stores for the file.
///
/// Of a new file, it does not read the name: the open does. What it reads of the directories was usually read before, and a new name never was.
pub fn policy_for_new(read: &dyn Read, actor: &Actor, request: &OpenWrite) -> Result<Option<Policy>, NsError> {
    if request.how == WriteMode::NewOnly
        && let Ok(policy) = policy_with(read, actor, request, Last::Leave)
    {
        return Ok(policy);
    }
    // A name that exists is no news to somebody who may make none there.
    policy_with(read, actor, request, last_of(request))
}

fn policy_with(read: &dyn Read, actor: &Actor, request: &OpenWrite, last: Last) -> Result<Option<Policy>, NsError> {
    let path = &request.path;
    let what = || path.to_string();
    tell(read, &|| Ahead::walk(path).record().ancestors().policies().list())?;
    let dir = match walk(read, actor, path, last, request.operations())? {
        Walk::MissingName(missing) => {
            if request.mkpath && !missing.only_directory {
                permit(actor, &missing.dir.access, AccessKind::Write, &what)?;
            }
            missing.dir.ino
        }
        Walk::Resolved(resolved) => {
            let Resolved { parent, name, entry, place, .. } = resolved.checked(path)?.for_no_directory(path)?;
            match entry {
                None => {
                    place.permit(actor, &[PathOperation::CreateFile], path)?;
                    permit(actor, &parent.access, AccessKind::Write, &what)?;
                }
                // The open says that it exists.
                Some(_) if request.how == WriteMode::NewOnly => {}
                Some(Dentry::Directory(_)) => {}
                Some(entry) => {
                    let located = locate_entry(read, parent.ino, &name, entry)?;
                    permit(actor, &located.inode.access, AccessKind::Write, &what)?;
                }
            }
            parent.ino
        }
    };
    Ok(policy_of(read, dir)?.map(|inherited| inherited.policy))
}

fn last_of(request: &OpenWrite) -> Last {
    if request.how == WriteMode::NewOnly { Last::Keep } else { Last::Follow }
}

/// The name exists: replace the file, or refuse.
fn open_over(
    txn: &mut dyn Txn,
    ctx: &Context,
    request: &OpenWrite,
    key: WriterKey,
    (parent, name, place): (&Dir, Vec<u8>, &Place),
    located: Located,
) -> Result<OpenedWrite, NsError> {
    let path = &request.path;
    let exists = || Err(NsError::Exists(path.to_string()));
    let Kind::File(content) = located.inode.kind else {
        return exists(); // a symbolic link: NewOnly does not follow it
    };
    let is_empty = content.state == FileState::Complete && content.len == 0;
    if request.empty.is_some_and(|object| !is_empty || object != content.object) {
        return Err(not_empty(path));
    }
    let own_unfinished = match content.state {
        // The key is a hash, and others can forge a collision. The record tells who the writer is.
        FileState::Open(by) if request.restarted && by == key => {
            WriterRecord::get(txn, by, content.object)?.is_some_and(|writer| writer.is_of(&request.client, path))
        }
        FileState::Interrupted(by) => request.restarted && by == key,
        FileState::Open(_) | FileState::Complete | FileState::Updating(_) => false,
    };
    if request.how == WriteMode::NewOnly && (request.posc || !own_unfinished) {
        return exists();
    }
    let restarts = own_unfinished && !request.posc;
    if restarts {
        not_overtaken(request, content.object)?;
    }
    let operations = if restarts { request.operations() } else { &[PathOperation::ModifyFile] };
    if !planted::is(Bug::CreatingReplaces) {
        place.permit(&ctx.actor, operations, path)?;
    }
    permit(&ctx.actor, &located.inode.access, AccessKind::Write, &|| path.to_string())?;
    match content.state {
        _ if restarts => restart(txn, ctx, request, key, located, content),
        FileState::Open(by) => Err(crate::writers::begin::busy(txn, path, by, content.object)),
        _ => {
            let access = Some(located.inode.access.clone());
            let replaces = Some((located.inode.ino, content));
            let may_create = may_create(&ctx.actor, &parent.access)
                && place.permit(&ctx.actor, &[PathOperation::CreateFile], path).is_ok();
            let target = Target { parent, name, replaces, access, may_create };
            new_upload(txn, ctx, request, key, target)
        }
    }
}

/// Refuses a request if the client has made `object`, which it would drop, after the server had received this request.
fn not_overtaken(request: &OpenWrite, object: ObjectId) -> Result<(), NsError> {
    match request.received_before {
        Some(later) if object >= later => {
            let why = "the same client has opened it again since it sent this request";
            Err(NsError::Stale { what: request.path.to_string(), why })
        }
        _ => Ok(()),
    }
}

fn not_empty(path: &NsPath) -> NsError {
    NsError::Stale { what: path.to_string(), why: "it has been written, replaced or removed at this moment; ask again" }
}

fn new_file(
    txn: &mut dyn Txn,
    ctx: &Context,
    request: &OpenWrite,
    key: WriterKey,
    (parent, parent_is_new): (&Dir, bool),
    name: &[u8],
) -> Result<OpenedWrite, NsError> {
    let (ino, object) = (ctx.ids.next_ino()?, ctx.ids.next_object()?);
    let access = access_of_file(txn, &ctx.actor, parent, request.mode)?;
    let inode = new_inode(ctx, ino, access.clone(), Kind::File(new_content(object, request.placement.group, key)));
    put_new(txn, ctx, parent.ino, name, &inode);
    if parent_is_new {
        totals::begin(txn, ctx, parent.ino);
    } else {
        adjust(txn, ctx, parent.ino, 1, 0, Touch::Entries)?;
    }
    let mut writer = begin_writer(ctx, request, key, WriterKind::New, ino, object);
    let wanted = Wanted { announced: request.expected_len, is_new: true, ..Wanted::default() };
    let made = (&wanted, Delta::one_file(0), None);
    let charge = Charge::new(parent.tree, &inode);
    writer.reservation = reserve_for_open(txn, ctx, charge, made, &|| request.path.to_string())?;
    if request.path.as_bytes().ends_with(name) {
        writer.parent = parent.ino;
    }
    writer.put(txn);
    make_units(txn, ctx, request, &writer, access)?;
    Ok(opened(&writer, OpenKind::New, 0))
}

/// Where an upload will appear.
struct Target<'a> {
    parent: &'a Dir,
    name: Vec<u8>,
    /// The file that it replaces, and the present object of that file.
    replaces: Option<(Ino, Content)>,
    /// The access of the file that it replaces.
    access: Option<Access>,
    /// Whether the client may create a file with that name.
    may_create: bool,
}

fn new_upload(
    txn: &mut dyn Txn,
    ctx: &Context,
    request: &OpenWrite,
    key: WriterKey,
    target: Target<'_>,
) -> Result<OpenedWrite, NsError> {
    let object = ctx.ids.next_object()?;
    let upload = UploadId(object.0);
    let ino = match target.replaces {
        Some((ino, _)) => ino,
        None => ctx.ids.next_ino()?,
    };
    // Whom the file will count for.
    let charged = target.access.as_ref().map(|access| (access.owner, access.group));
    let access = match target.access {
        // If the file is gone at the close, it is made again as the writer's own.
        Some(access) if access.owner != ctx.actor.principal => Access { mode: access.mode & !0o6000, ..access },
        Some(access) => access,
        None => access_of_file(txn, &ctx.actor, target.parent, request.mode)?,
    };
    let wanted = Wanted {
        announced: request.expected_len,
        files: u64::from(target.replaces.is_none()),
        is_new: true,
        ..Wanted::default()
    };
    let (owner, group) = charged.unwrap_or((access.owner, access.group));
    let charge = Charge { tree: target.parent.tree, owner, group };
    let made = (&wanted, Delta::default(), None);
    let reservation = reserve_for_open(txn, ctx, charge, made, &|| request.path.to_string())?;
    UploadRecord {
        upload,
        object,
        state: UploadState::BeingWritten,
        parent: target.parent.ino,
        name: target.name,
        replaces: target.replaces.map(|(ino, _)| ino),
        replaces_content: target.replaces.map(|(_, content)| (content.object, content.generation)),
        writer: key,
        client: request.client.clone(),
        path: request.path.as_bytes().to_vec(),
        may_create: target.may_create,
        owner: ctx.actor.principal,
        group: access.group,
        mode: access.mode,
        extended: access.extended.clone().filter(|_| !planted::is(Bug::UploadForgetsItsAcl)),
        created: ctx.now,
        deadline: None,
        epoch: 0,
        kept_len: 0,
        sums: None,
        attributes: None,
        placed: request.placement.group,
        reservation: None,
    }
    .put(txn);
    let begun = begin_writer(ctx, request, key, WriterKind::Upload(upload), ino, object);
    let writer = WriterRecord { reservation, ..begun };
    writer.put(txn);
    make_units(txn, ctx, request, &writer, access)?;
    Ok(opened(&writer, OpenKind::Upload(upload), 0))
}

/// The client's own unfinished file starts again: the same inode with a new object. The old handle is fenced.
fn restart(
    txn: &mut dyn Txn,
    ctx: &Context,
    request: &OpenWrite,
    key: WriterKey,
    mut located: Located,
    old: Content,
) -> Result<OpenedWrite, NsError> {
    let object = ctx.ids.next_object()?;
    if matches!(old.state, FileState::Open(_)) {
        if let Some(before) = WriterRecord::get(txn, key, old.object)? {
            before.delete(txn)?;
        }
        crate::groups::deletion::queue(txn, ctx, old.group, old.object)?;
    } else {
        release_object(txn, ctx, &old)?;
    }
    let content = Content { generation: old.generation, ..new_content(object, request.placement.group, key) };
    located.inode.kind = Kind::File(content);
    located.inode.mtime = ctx.now;
    located.inode.ctime = ctx.now;
    located.store(txn, ctx);
    let shorter = difference(0, old.len);
    adjust_bytes(txn, ctx, &located, shorter)?;
    let mut writer = begin_writer(ctx, request, key, WriterKind::New, located.inode.ino, object);
    if let Some(charge) = charge_of(txn, &located)? {
        let wanted = Wanted { announced: request.expected_len, is_new: false, ..Wanted::default() };
        let made = Delta { bytes: shorter, ..Delta::default() };
        writer.reservation = reserve_for_open(txn, ctx, charge, (&wanted, made, None), &|| request.path.to_string())?;
    }
    writer.put(txn);
    make_units(txn, ctx, request, &writer, located.inode.access)?;
    Ok(OpenedWrite { dropped: vec![old.object], ..opened(&writer, OpenKind::New, 0) })
}

/// A restart drops the unfinished uploads of the same client for this path.
fn drop_own_uploads(txn: &mut dyn Txn, ctx: &Context, request: &OpenWrite) -> Result<Vec<ObjectId>, NsError> {
    let mut dropped = Vec::new();
    for writer in crate::find_writer(txn, &request.client, &request.path)? {
        let WriterKind::Upload(upload) = writer.kind else { continue };
        not_overtaken(request, writer.object)?;
        if let Some(record) = UploadRecord::get(txn, upload)? {
            crate::writers::uploads::permit_own(ctx, &record)?;
            record.delete(txn)?;
        }
        writer.delete(txn)?;
        crate::groups::deletion::queue(txn, ctx, writer.placement.group, writer.object)?;
        dropped.push(writer.object);
    }
    Ok(dropped)
}
