//! Opening for update: in place of a complete file, or back to a writer that lost its connection. A re-open finds the object that this client was
//! writing. It never finds an object that has become visible under the same path meanwhile.

use kv::Txn;
use types::{GroupId, NsPath, ObjectId, Placement, UploadId, WriterToken};

use crate::groups::stripe::is_whole;
use crate::planted::{self, Bug};
use crate::tree::node::{Dentry, InodeValue, Located, get_inode_value, locate, locate_entry};
use crate::tree::permission::may_create;
use crate::tree::walk::{Last, Resolved, resolve};
use crate::writers::begin::{begin_writer, busy, opened};
use crate::writers::interrupt::interrupt;
use crate::writers::record::named_open_write;
use crate::writers::reserving::{reserve_for_update, reserve_for_upload};
use crate::writers::returning::{makes, permit_return, permit_upload};
use crate::writers::sharing::{note_away, note_back};
use crate::writers::uploads::permit_own;
use crate::{
    AccessKind, Content, Context, EndedWriter, FileState, Inode, Interrupt, Kind, NsError, OpenKind, OpenWrite,
    OpenedWrite, PathOperation, Read, Resume, Sharing, UploadRecord, UploadState, WriterEnd, WriterKey, WriterKind,
    WriterRecord, allows, find_writer, holders, keys, object_record, permit, permit_client, units_of,
};

pub(crate) fn open_update(txn: &mut dyn Txn, ctx: &Context, request: &OpenWrite) -> Result<OpenedWrite, NsError> {
    if let Some(Resume::Upload(upload)) = request.resume {
        return resume_upload(txn, ctx, request, upload);
    }
    let path = &request.path;
    if let Some(of) = request.unit_of {
        let file = crate::writers::record::current_writer(txn, &of)?;
        permit_client(&ctx.actor, &file.client, &|| path.to_string())?;
        permit_file_of_unit(txn, ctx, path, &file)?;
    }
    let mut own = find_writer(txn, &request.client, path)?;
    own.retain(|writer| request.only.is_none_or(|only| writer.token() == only));
    if planted::is(Bug::ReopenReachesOldObject) {
        own.retain(|writer| !matches!(writer.kind, WriterKind::Upload(_)));
    }
    match own.len() {
        0 if request.unit_of.is_some() && request.resume == Some(Resume::Visible) => {
            return go_on_with_unit(txn, ctx, request);
        }
        0 if request.unit_of.is_some() || request.only.is_some() => {
            if let Some(writer) = joined_before(txn, request)? {
                return share(txn, ctx, request, writer);
            }
            let why = "this open write has ended";
            return Err(NsError::Stale { what: path.to_string(), why });
        }
        0 => {}
        1 if can_share(request, &own[0]) => return share(txn, ctx, request, own.remove(0)),
        1 => return reopen(txn, ctx, request, own.remove(0)),
        count => return Err(NsError::Ambiguous { path: path.to_string(), count }),
    }
    let key = keys::writer_key(&request.client, path.as_bytes());
    let ended = EndedWriter::get(txn, key)?.filter(|ended| ended.until > ctx.now && ended.is_of(&request.client, path));
    let Resolved { parent, name, entry, place, .. } =
        match resolve(txn, &ctx.actor, path, Last::Follow, request.operations()) {
            Err(NsError::NotFound(..)) if ended.is_some() => return Err(write_ended(path)),
            other => other?,
        };
    let located = match entry {
        None if ended.is_some() => return Err(write_ended(path)),
        None => return Err(NsError::NotFound(path.to_string(), "file or directory")),
        Some(Dentry::Directory(_)) => return Err(NsError::IsDirectory(path.to_string())),
        Some(entry) => locate_entry(txn, parent.ino, &name, entry)?,
    };
    let found = located.inode.content();
    let (object, state) = (found.map(|content| content.object), found.map(|content| content.state));
    // The client that makes the file goes on with it.
    let goes_on = matches!(state, Some(FileState::Interrupted(by)) if by == key);
    let operations = if goes_on { request.operations() } else { &[PathOperation::ModifyFile] };
    place.permit(&ctx.actor, operations, path)?;
    // A client that goes on with an interrupted file, and returns to its open write, opens the file as it did at first. It must not begin again without
    // knowing: it would not send again what was acknowledged, and of that the bytes behind the first gap are gone.
    let is_interrupted = matches!(state, Some(FileState::Interrupted(_)));
    let goes_on_twice = request.restarted && request.resume.is_some() && is_interrupted;
    let is_over = |ended: EndedWriter| {
        let is_dropped = ended.how == WriterEnd::Dropped || Some(ended.object) != object;
        is_dropped || goes_on_twice && ended.how == WriterEnd::Interrupted
    };
    // A stock client that returns opens the file as any client does, and sends only what was not acknowledged.
    let in_earlier_boot = ended.as_ref().and_then(|ended| ended.boot).is_some_and(|boot| boot != request.boot);
    if ended.is_some_and(is_over) {
        return Err(write_ended(path));
    }
    let is_whole = matches!(state, Some(FileState::Complete | FileState::Updating(_)));
    if in_earlier_boot && request.resume.is_none() && is_whole {
        let why = "since this client wrote it, each machine that had its bytes has restarted, and acknowledged bytes may be lost; compare what is there, and open it with ?weir.resume=1 to change it as it is";
        return Err(NsError::WriteEnded { what: path.to_string(), why });
    }
    begin_update(txn, ctx, request, located, request.resume == Some(Resume::Visible))
}

/// Opens a unit that has ended, for a writer that resumes its file. A complete unit is changed in place. A unit that was interrupted while this very writer
/// had it open is refused: acknowledged bytes after its first gap are gone, and the writer would not send them again.
fn go_on_with_unit(txn: &mut dyn Txn, ctx: &Context, request: &OpenWrite) -> Result<OpenedWrite, NsError> {
    let nothing = || NsError::NotFound(format!("{}: {}", request.path, request.client.user), "unit");
    let (Some(of), Ok(unit)) = (request.unit_of, u8::try_from(request.client.pid)) else { return Err(nothing()) };
    if request.client != crate::groups::stripe::unit_writer(request.client.principal, of.object, unit) {
        return Err(nothing());
    }
    let record = crate::groups::stripe::stripe_of(txn, of.object)?;
    let ino = record.and_then(|record| record.units.get(usize::from(unit)).copied()).ok_or_else(nothing)?;
    let located = locate(txn, ino)?.ok_or_else(nothing)?;
    if let Some(unit) = located.inode.content() {
        permit_going_on(txn, of, unit)?;
    }
    begin_update(txn, ctx, request, located, true)
}

/// Requires that the writer `of` of a striped file may open this unit, whose open write has ended.
///
/// # Errors
/// [`NsError::WriteEnded`] if the unit was interrupted while this very writer had it open.
pub fn permit_going_on(read: &dyn Read, of: WriterToken, unit: &Content) -> Result<(), NsError> {
    if is_whole(unit) || last_epoch(read, unit)? < of.epoch {
        return Ok(());
    }
    let why = "a stripe unit of it was interrupted while this client wrote it; open the file again to go on with what is kept";
    Err(NsError::WriteEnded { what: named_open_write(of.object), why })
}

/// The epoch of the last open write of this object: of the present one, if there is one.
fn last_epoch(read: &dyn Read, content: &Content) -> Result<u32, NsError> {
    if let FileState::Open(by) | FileState::Updating(by) = content.state
        && let Some(writer) = WriterRecord::get(read, by, content.object)?
    {
        return Ok(writer.epoch);
    }
    Ok(object_record(read, content.group, content.object)?.map_or(0, |record| record.epoch))
}

/// The highest epoch of the open writes of this file until now, and of those of its stripe units.
fn epoch_before(read: &dyn Read, content: &Content) -> Result<u32, NsError> {
    let mut before = last_epoch(read, content)?;
    if content.group == GroupId::STRIPED {
        let (_, units) = units_of(read, content.object)?;
        for unit in units.iter().filter_map(Inode::content) {
            before = before.max(last_epoch(read, unit)?);
        }
    }
    Ok(before)
}

/// Why a client does not get back to its open write, although that has not ended yet.
pub const IS_ENDING: &str = "its client was away for too long, and its open write is being ended at this moment";

fn write_ended(path: &NsPath) -> NsError {
    NsError::WriteEnded {
        what: path.to_string(),
        why: "this client's open write has ended or was replaced meanwhile; open the file again",
    }
}

/// Whether the request may write together with the clients of this writer.
fn can_share(request: &OpenWrite, writer: &WriterRecord) -> bool {
    let is_of_principal = writer.client.principal == request.client.principal;
    request.sharing.is_some() && writer.kind == WriterKind::Update && is_of_principal && writer.boot == request.boot
}

/// The open write of another client that this very request has joined before.
fn joined_before(read: &dyn Read, request: &OpenWrite) -> Result<Option<WriterRecord>, NsError> {
    let Some(only) = request.only.filter(|_| request.unit_of.is_none()) else { return Ok(None) };
    let writer = WriterRecord::get(read, only.key, only.object)?;
    let is_it = |writer: &WriterRecord| writer.token() == only && request.path.is_of_file(&writer.path);
    Ok(writer.filter(|writer| is_it(writer) && can_share(request, writer)))
}

/// Refuses a path that the caller may not follow. It may lead nowhere by now (`None`).
fn check_reachable(read: &dyn Read, ctx: &Context, request: &OpenWrite) -> Result<Option<Resolved>, NsError> {
    match resolve(read, &ctx.actor, &request.path, Last::Follow, request.operations()) {
        Err(error @ NsError::Denied { .. }) => Err(error),
        found => Ok(found.ok()),
    }
}

/// Requires that the caller may write the file of a stripe unit. A unit has the access that the file had when it was made, so that of the file counts.
fn permit_file_of_unit(read: &dyn Read, ctx: &Context, path: &NsPath, file: &WriterRecord) -> Result<(), NsError> {
    if let WriterKind::Upload(upload) = file.kind {
        return UploadRecord::get(read, upload)?.map_or(Ok(()), |upload| permit_own(ctx, &upload));
    }
    let located = locate(read, file.ino)?;
    // If the file was removed or replaced, its open write ends with nothing.
    let has_it = |located: &Located| located.inode.content().is_some_and(|content| content.object == file.object);
    located.filter(has_it).map_or(Ok(()), |located| permit_writer(ctx, path, file, &located.inode))
}

/// Requires that the caller may go on with this open write of a visible file.
fn permit_writer(ctx: &Context, path: &NsPath, writer: &WriterRecord, inode: &Inode) -> Result<(), NsError> {
    // Who creates a file may write it, whatever its mode is, as with open(2).
    if writer.kind == WriterKind::New && ctx.actor.principal == inode.owner() {
        return Ok(());
    }
    permit(&ctx.actor, &inode.access, AccessKind::Write, &|| path.to_string())
}

/// The content of a visible file with this open write, if the caller may write it.
fn writable_content(
    read: &dyn Read,
    ctx: &Context,
    request: &OpenWrite,
    writer: &WriterRecord,
) -> Result<Content, NsError> {
    let path = &request.path;
    let located = locate(read, writer.ino)?;
    let content = located.as_ref().and_then(|located| located.inode.content().copied());
    let (Some(located), Some(content)) = (located, content.filter(|content| content.object == writer.object)) else {
        let why = "it was removed or replaced while it was being written";
        return Err(NsError::Stale { what: path.to_string(), why });
    };
    if request.unit_of.is_none() {
        permit_writer(ctx, path, writer, &located.inode)?;
    }
    Ok(content)
}

/// Writes a complete file together with clients of the same principal that change it in place. The record stays that of the client that began.
fn share(
    txn: &mut dyn Txn,
    ctx: &Context,
    request: &OpenWrite,
    mut writer: WriterRecord,
) -> Result<OpenedWrite, NsError> {
    let path = &request.path;
    let found = check_reachable(txn, ctx, request)?;
    let content = writable_content(txn, ctx, request, &writer)?;
    permit_return(txn, ctx, request, found.as_ref(), &writer)?;
    let expected = match request.sharing {
        Some(Sharing::Keeps(epoch)) => epoch,
        Some(Sharing::Raises(from)) => Some(from),
        None => None,
    };
    if expected.is_some_and(|epoch| epoch != writer.epoch) {
        let why = "it has been opened again at this moment";
        return Err(NsError::Stale { what: path.to_string(), why });
    }
    if let Some(Sharing::Raises(_)) = request.sharing {
        writer.epoch = writer.epoch.saturating_add(1);
        writer.session = ctx.session;
        writer.put(txn);
    }
    // Any of them may be gone when another one ends the open write.
    if writer.placement.group == GroupId::DEFAULT {
        note_away(txn, ctx, (&request.client, path.as_bytes()), (writer.object, writer.boot));
        if writer.client != request.client {
            note_away(txn, ctx, (&writer.client, &writer.path), (writer.object, writer.boot));
        }
    }
    Ok(OpenedWrite { returns: true, ..opened(&writer, OpenKind::Resumed(None), content.len) })
}

/// Back to the object that this client was writing.
fn reopen(
    txn: &mut dyn Txn,
    ctx: &Context,
    request: &OpenWrite,
    mut writer: WriterRecord,
) -> Result<OpenedWrite, NsError> {
    let path = &request.path;
    // The client's identity is only its own claim, so it grants nothing: the path and the file are checked as for anybody.
    let found = check_reachable(txn, ctx, request)?;
    // The manager ends it with another primary.
    if writer.is_ending && !request.ends {
        return Err(NsError::Stale { what: path.to_string(), why: IS_ENDING });
    }
    let len = match writer.kind {
        WriterKind::Upload(upload) => {
            let missing = || NsError::Damaged {
                key: keys::upload(upload).escape_ascii().to_string(),
                why: "a writer says that it writes this upload, but there is none",
            };
            permit_own(ctx, &UploadRecord::get(txn, upload)?.ok_or_else(missing)?)?;
            0
        }
        WriterKind::New | WriterKind::Update => writable_content(txn, ctx, request, &writer)?.len,
    };
    permit_return(txn, ctx, request, found.as_ref(), &writer)?;
    if writer.boot != request.boot {
        let recovered = request.recovered.filter(|recovered| recovered.object == writer.object);
        if let Some(recovered) = recovered.filter(|recovered| !recovered.all_there) {
            interrupt(txn, ctx, &Interrupt { writer: writer.token(), kept_len: recovered.kept_len })?;
        }
        if recovered.is_none_or(|recovered| !recovered.all_there) {
            return Err(NsError::LostBytes {
                path: path.to_string(),
                object: writer.object,
                marked: recovered.is_some(),
            });
        }
    }
    if request.resume.is_some() && writer.placement.group == GroupId::STRIPED {
        let why = "another request of this client has begun to go on with it at this moment";
        return Err(NsError::Stale { what: path.to_string(), why });
    }
    writer.epoch = ctx.next_epoch(writer.epoch).max(least_epoch(request));
    if planted::is(Bug::ReturnForgetsTheReservation) {
        writer.reservation = None;
    }
    writer.session = ctx.session;
    writer.boot = request.boot;
    // A change in place keeps all its bytes, so its client may go on with it.
    writer.is_ending |= request.ends && writer.kind != WriterKind::Update;
    writer.put(txn);
    let upload = match writer.kind {
        WriterKind::Upload(upload) => Some(upload),
        _ => None,
    };
    Ok(OpenedWrite { returns: true, ..opened(&writer, OpenKind::Resumed(upload), len) })
}

/// The open write of a stripe unit has at least the epoch of its file's.
fn least_epoch(request: &OpenWrite) -> u32 {
    request.unit_of.map_or(0, |of| of.epoch)
}

/// The requested in-sync replicas of an existing object, as far as they hold it.
fn take_part(read: &dyn Read, request: &OpenWrite, group: GroupId, object: ObjectId) -> Result<Placement, NsError> {
    let asked = &request.placement.in_sync;
    if asked.is_empty() {
        // A manager names no replicas if it expects a refusal. The file has changed since: without replicas nobody could end its open write, and its
        // bytes would be given up.
        if ![GroupId::DEFAULT, GroupId::STRIPED].contains(&group) {
            let why = "it has changed at this moment; ask again";
            return Err(NsError::Stale { what: request.path.to_string(), why });
        }
        return Ok(Placement { group, in_sync: Vec::new() });
    }
    let holders = holders(read, group, object)?;
    let in_sync: Vec<_> = asked.iter().filter(|one| holders.contains(&one.store)).copied().collect();
    if in_sync.is_empty() {
        let why = "its replicas are on other stores by now; ask again";
        return Err(NsError::Stale { what: request.path.to_string(), why });
    }
    Ok(Placement { group, in_sync })
}

/// A closed striped file cannot be changed.
fn must_not_be_striped(path: &NsPath, group: GroupId) -> Result<(), NsError> {
    if group == GroupId::STRIPED {
        let why = "it is striped, and a striped file cannot be changed in place; write it again";
        return Err(NsError::Invalid { what: path.to_string(), why });
    }
    Ok(())
}

/// Opens a visible object for change: in place if it is complete, by explicit wish if it is interrupted.
pub(crate) fn begin_update(
    txn: &mut dyn Txn,
    ctx: &Context,
    request: &OpenWrite,
    mut located: Located,
    resume: bool,
) -> Result<OpenedWrite, NsError> {
    let path = &request.path;
    let Kind::File(content) = &mut located.inode.kind else {
        return Err(NsError::Invalid { what: path.to_string(), why: "it is not a file" });
    };
    if content.state == FileState::Complete {
        must_not_be_striped(path, content.group)?;
    }
    if request.unit_of.is_none() {
        permit(&ctx.actor, &located.inode.access, AccessKind::Write, &|| path.to_string())?;
    }
    let key = keys::writer_key(&request.client, path.as_bytes());
    let (kind, open_kind) = match content.state {
        FileState::Updating(by) => {
            let other = WriterRecord::get(txn, by, content.object)?;
            if let Some(other) = other.filter(|other| can_share(request, other)) {
                return share(txn, ctx, request, other);
            }
            return Err(busy(txn, path, by, content.object));
        }
        FileState::Open(by) => return Err(busy(txn, path, by, content.object)),
        FileState::Interrupted(_) if !resume => {
            return Err(NsError::Interrupted { path: path.to_string(), kept: content.len });
        }
        FileState::Interrupted(_) => (WriterKind::New, OpenKind::Resumed(None)),
        FileState::Complete => (WriterKind::Update, OpenKind::Update),
    };
    if request.sharing.is_some() {
        note_back(txn, &request.client, path, content.object)?;
    }
    if resume && request.unit_of.is_none() {
        // This client knows that its earlier open write has ended.
        txn.delete(&keys::ended(key));
    }
    let placement = take_part(txn, request, content.group, content.object)?;
    // Above every epoch of this object's earlier handles, so that none of them can commit. An open write of a stripe unit is not below that of its file, and
    // a file that is resumed begins above all its units: so the epochs say whether a unit has been opened since.
    let before = epoch_before(txn, content)?;
    let epoch = ctx.next_epoch(before).max(least_epoch(request));
    content.state = match kind {
        WriterKind::Update => FileState::Updating(key),
        _ => {
            if let FileState::Interrupted(by) = content.state
                && by != key
            {
                fence_ended(txn, by, content.object)?;
            }
            txn.delete(&keys::object(content.group, content.object)); // the end of this write creates it again
            if content.group != GroupId::DEFAULT {
                txn.delete(&keys::missing(content.group, content.object)); // and this too
            }
            FileState::Open(key)
        }
    };
    // During an in-place change the checksum is unknown until the close.
    let sums_before = content.sums.take().filter(|_| kind == WriterKind::Update);
    let (object, len) = (content.object, content.len);
    located.inode.ctime = ctx.now;
    let ino = located.inode.ino;
    let reservation = reserve_for_update(txn, ctx, request, &located)?;
    located.store(txn, ctx);
    let mut writer = WriterRecord {
        epoch,
        sums_before,
        placement,
        reservation,
        ..begin_writer(ctx, request, key, kind, ino, object)
    };
    // All units may be whole although the file is not: its writer found other bytes than it had sent. So only a client that closes it, or an announced
    // length, completes it.
    if writer.placement.group == GroupId::STRIPED {
        writer.expected_len = writer.expected_len.or(Some(u64::MAX));
    }
    writer.put(txn);
    Ok(opened(&writer, open_kind, len))
}

/// Another client continues `object`. The client that wrote it before must not write into it any more, although the object is still the same.
fn fence_ended(txn: &mut dyn Txn, key: WriterKey, object: ObjectId) -> Result<(), NsError> {
    if let Some(ended) = EndedWriter::get(txn, key)?.filter(|ended| ended.object == object) {
        EndedWriter { how: WriterEnd::Dropped, ..ended }.put(txn);
    }
    Ok(())
}

/// Resumes a kept upload.
fn resume_upload(
    txn: &mut dyn Txn,
    ctx: &Context,
    request: &OpenWrite,
    upload: UploadId,
) -> Result<OpenedWrite, NsError> {
    let path = &request.path;
    check_reachable(txn, ctx, request)?;
    // An upload is not visible. So somebody else's is not found, whatever its path is.
    let is_own =
        |record: &UploadRecord| path.is_of_file(&record.path) && allows(&ctx.actor, &record.access(), AccessKind::Own);
    let Some(mut record) = UploadRecord::get(txn, upload)?.filter(is_own) else {
        return Err(NsError::NotFound(format!("{path}: upload {upload}"), "upload of yours for that path"));
    };
    permit_upload(txn, &ctx.actor, &record, makes(&record))?;
    must_not_be_striped(path, record.placed)?;
    if record.state == UploadState::BeingWritten {
        return Err(busy(txn, path, record.writer, record.object));
    }
    let key = keys::writer_key(&request.client, path.as_bytes());
    // Its attributes, if any, are stored under the future number of the file.
    let ino = match record.replaces.or(record.attributes.map(|attributes| attributes.at)) {
        Some(ino) => ino,
        None => ctx.ids.next_ino()?,
    };
    let placement = take_part(txn, request, record.placed, record.object)?;
    let begun = begin_writer(ctx, request, key, WriterKind::Upload(upload), ino, record.object);
    let reservation = reserve_for_upload(txn, ctx, request, &mut record)?;
    let epoch = ctx.next_epoch(record.epoch);
    let writer = WriterRecord { epoch, placement, reservation, ..begun };
    record.state = UploadState::BeingWritten;
    record.deadline = None;
    record.may_create = match get_inode_value(txn, record.parent)? {
        Some(InodeValue::Record(dir)) => {
            may_create(&ctx.actor, &dir.access)
                && permit_upload(txn, &ctx.actor, &record, &[PathOperation::CreateFile]).is_ok()
        }
        _ => false,
    };
    if record.writer != key {
        fence_ended(txn, record.writer, record.object)?;
    }
    record.writer = key;
    record.client = request.client.clone();
    record.sums = None;
    record.put(txn);
    writer.put(txn);
    Ok(opened(&writer, OpenKind::Resumed(Some(upload)), record.kept_len))
}
