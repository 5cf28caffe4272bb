//! Opening for writing: new files, uploads, updates in place, and the recovery of a writer that lost its connection.

use std::collections::BTreeSet;

use kv::Txn;
use types::{BootId, ClientIdentity, GroupId, InSyncReplica, Ino, NsPath, ObjectId, Placement, ReplicaId, UploadId};

use crate::groups::deletion::release_object;
use crate::groups::stripe::{NewStripe, make_units};
use crate::tree::inode::{Content, FileState, Inode, Kind, WriterKey};
use crate::tree::mkdir::resolve_making;
use crate::tree::node::{Dentry, Dir, Located, locate_entry, put_new};
use crate::tree::walk::{Last, Resolved, new_access, resolve};
use crate::trees::totals::{Touch, adjust, adjust_bytes, difference};
use crate::{
    Access, Context, EndedWriter, NsError, OpTag, Operation, UploadRecord, UploadState, Want, WriterKind, WriterRecord,
    WriterToken, keys, permit, permit_client,
};

/// What the client wants of the name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// The name must be free (kXR_new).
    NewOnly,
    /// Take the place of what is there, if anything is (kXR_delete). What is there stands and is served until commit.
    Replace,
    /// Change what is there, or append to it (kXR_open_updt, kXR_open_apnd without kXR_new); also how stock clients
    /// come back to a writer that lost its connection.
    Update,
}

/// The explicit wish to go on with something interrupted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resume {
    /// The interrupted file at the path.
    Visible,
    /// A kept upload.
    Upload(UploadId),
}

/// What the store says of a object that was being written when the machine stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Vouched {
    /// Which.
    pub object: ObjectId,
    /// Every acknowledged byte is there.
    pub all_there: bool,
    /// Length of the prefix that is there, in bytes.
    pub kept_len: u64,
}

/// Opens for writing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenWrite {
    /// The file.
    pub path: NsPath,
    /// New, replace or update.
    pub how: How,
    /// Make the directories on the way (kXR_mkpath).
    pub mkpath: bool,
    /// Permission bits of a new file.
    pub mode: u16,
    /// Visible only when closed (kXR_posc): always an upload.
    pub posc: bool,
    /// Who writes.
    pub client: ClientIdentity,
    /// This kernel's boot.
    pub boot: BootId,
    /// The announced length (`oss.asize`), in bytes.
    pub expected_len: Option<u64>,
    /// The client starts its copy again (`tried=`), or repeats an open whose answer it did not get (the server sees its
    /// own client open the same name anew while the first handle is detached): it may take the place of its own
    /// unfinished file or upload, whose handle is fenced.
    pub restarted: bool,
    /// After a boot: what the store says of the writer's object ([`crate::find_writer`] tells which to ask about).
    pub vouched: Option<Vouched>,
    /// The wish to resume; with [`How::Update`] only.
    pub resume: Option<Resume>,
    /// Where a new content goes. Of one that is there already, those of its holders that are to take part in the writing: others are left out. A
    /// writer that is there keeps its own.
    pub placement: Placement,
    /// A new content is dealt out over units; `placement` is in [`GroupId::STRIPED`] then.
    pub stripe: Option<NewStripe>,
    /// A unit of what this one writes is to be opened again, with [`How::Update`]: only as long as it does, and the unit has a writer.
    pub unit_of: Option<WriterToken>,
    /// With [`How::Update`]: back to this writer of the client and to no other. It may have several under one path, as a file that is being written can
    /// be renamed, and another one be made in its place.
    pub only: Option<WriterToken>,
}

impl OpenWrite {
    /// Opens `path` for `client`, in this boot of the kernel, and wants nothing more: on a single node, with permission bits 0644 where it is made.
    #[must_use]
    pub fn new(path: NsPath, how: How, client: ClientIdentity, boot: BootId) -> Self {
        Self {
            path,
            how,
            mkpath: false,
            mode: 0o644,
            posc: false,
            client,
            boot,
            expected_len: None,
            restarted: false,
            vouched: None,
            resume: None,
            placement: Placement::single_node(),
            stripe: None,
            unit_of: None,
            only: None,
        }
    }
}

/// What was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenKind {
    /// A new file, visible at once; make the replica.
    New,
    /// An upload with a new object; make the replica.
    Upload(UploadId),
    /// A complete file's own object, to be changed in place.
    Update,
    /// The object that this client was writing (its old handle is fenced), or one resumed by wish. If it is an upload,
    /// which.
    Resumed(Option<UploadId>),
}

/// The writer that [`open_write`] made or found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenedWrite {
    /// Names the writer; hand it to commit and interrupt.
    pub writer: WriterToken,
    /// The inode: the new one, or the one that is replaced or updated.
    pub ino: Ino,
    /// The content to write.
    pub object: ObjectId,
    /// Its replica on a single store.
    pub replica: ReplicaId,
    /// The group of stores that is to hold it.
    pub group: GroupId,
    /// What it is.
    pub kind: OpenKind,
    /// Committed length so far (0 for a new object or one in the making), in bytes.
    pub len: u64,
    /// Bodies that a restart gave up; their writers' handles are fenced and their deletion queued.
    pub dropped: Vec<ObjectId>,
    /// Those that take part in the writing, its primary first; none on a single node.
    pub in_sync: Vec<InSyncReplica>,
}

/// See [`OpenWrite`]. [`NsError::Stale`] if a store is to take part that is not in the group any more; [`NsError::TooMany`] and [`NsError::Invalid`] if
/// more are to take part than a record has room for, or one twice.
pub fn open_write(txn: &mut dyn Txn, ctx: &Context, request: &OpenWrite) -> Result<OpenedWrite, NsError> {
    let units = request.stripe.iter().flat_map(|stripe| &stripe.units);
    for Placement { group, in_sync } in std::iter::once(&request.placement).chain(units) {
        can_be_kept(in_sync)?;
        if in_sync.is_empty() {
            continue;
        }
        let Some(group) = crate::group(txn, *group)? else { continue };
        let what = || format!("group {}", group.group);
        if !in_sync.iter().all(|one| group.members.iter().any(|member| member.store == one.store)) {
            let why = "a store that should be in sync has left it meanwhile";
            return Err(NsError::Stale { what: what(), why });
        }
        // All who stay get it. Where those that leave are counted as well it would have fewer copies in the end than it was to have.
        let stay = group.members.iter().filter(|member| !member.is_leaving()).count();
        if request.how != How::Update && stay < in_sync.len() {
            let why = "a store that should be in sync is about to leave it";
            return Err(NsError::Stale { what: what(), why });
        }
    }
    permit_client(&ctx.actor, &request.client, &|| request.path.to_string())?;
    if request.path.is_root() {
        return Err(NsError::IsDirectory(request.path.to_string()));
    }
    match request.how {
        How::Update => crate::writers::recover::open_update(txn, ctx, request),
        _ if request.resume.is_some() => {
            Err(NsError::Invalid { what: request.path.to_string(), why: "to resume, open for update" })
        }
        How::NewOnly | How::Replace => open_new(txn, ctx, request),
    }
}

/// What does not fit into a writer's record could not be read again.
fn can_be_kept(in_sync: &[InSyncReplica]) -> Result<(), NsError> {
    const MAX: usize = Placement::IN_SYNC_MAX;
    if in_sync.len() > MAX {
        return Err(NsError::TooMany { what: "in-sync replicas of an open write", bound: MAX as u64 });
    }
    let stores: BTreeSet<_> = in_sync.iter().map(|one| one.store).collect();
    if stores.len() < in_sync.len() {
        return Err(NsError::Invalid { what: "an open write".into(), why: "a store is listed twice as in sync" });
    }
    Ok(())
}

fn open_new(txn: &mut dyn Txn, ctx: &Context, request: &OpenWrite) -> Result<OpenedWrite, NsError> {
    let path = &request.path;
    let key = keys::writer_key(&request.client, path.as_bytes());
    let uploads_dropped = if request.restarted { drop_own_uploads(txn, ctx, request)? } else { Vec::new() };
    if EndedWriter::get(txn, key)?.is_some_and(|ended| ended.is_of(&request.client, path)) {
        // Whoever begins anew has given up what it wrote before.
        txn.delete(&keys::ended(key));
    }
    let last = if request.how == How::NewOnly { Last::Keep } else { Last::Follow };
    let at = if request.mkpath { resolve_making(txn, ctx, path, last)? } else { resolve(txn, &ctx.actor, path, last)? };
    let Resolved { parent, name, entry } = at;
    let mut opened = match entry {
        None => {
            permit(&ctx.actor, &parent.access, Want::Write, &|| path.to_string())?;
            if request.posc {
                let target = Target { parent: &parent, name, replaces: None, access: None };
                new_upload(txn, ctx, request, key, target)?
            } else {
                new_file(txn, ctx, request, key, &parent, &name)?
            }
        }
        Some(Dentry::Directory(_)) if request.how == How::Replace => {
            return Err(NsError::IsDirectory(path.to_string()));
        }
        Some(Dentry::Directory(_)) => return Err(NsError::Exists(path.to_string())),
        Some(entry) => {
            let located = locate_entry(txn, parent.ino, &name, entry)?;
            open_over(txn, ctx, request, key, (&parent, name), located)?
        }
    };
    opened.dropped.extend(uploads_dropped);
    Ok(opened)
}

/// There is a file: take its place, or refuse.
fn open_over(
    txn: &mut dyn Txn,
    ctx: &Context,
    request: &OpenWrite,
    key: WriterKey,
    (parent, name): (&Dir, Vec<u8>),
    located: Located,
) -> Result<OpenedWrite, NsError> {
    let path = &request.path;
    let exists = || Err(NsError::Exists(path.to_string()));
    let Kind::File(content) = located.inode.kind else {
        return exists(); // a symbolic link: NewOnly does not follow it
    };
    let own_unfinished = match content.state {
        // The key is a hash, which others can meet on purpose: who writes is told by the record.
        FileState::Open(by) if request.restarted && by == key => {
            WriterRecord::get(txn, by, content.object)?.is_some_and(|writer| writer.is_of(&request.client, path))
        }
        FileState::Interrupted(by) => request.restarted && by == key,
        FileState::Open(_) | FileState::Complete | FileState::Updating(_) => false,
    };
    if request.how == How::NewOnly && (request.posc || !own_unfinished) {
        return exists();
    }
    permit(&ctx.actor, &located.inode.access, Want::Write, &|| path.to_string())?;
    match content.state {
        _ if own_unfinished && !request.posc => restart(txn, ctx, request, key, located, content),
        FileState::Open(by) => Err(crate::writers::recover::busy(txn, path, by, content.object)),
        _ => {
            let access = Some(located.inode.access);
            let replaces = Some((located.inode.ino, content));
            let target = Target { parent, name, replaces, access };
            new_upload(txn, ctx, request, key, target)
        }
    }
}

/// A writer that begins now.
pub(crate) fn writer(
    ctx: &Context,
    request: &OpenWrite,
    key: WriterKey,
    kind: WriterKind,
    ino: Ino,
    object: ObjectId,
) -> WriterRecord {
    WriterRecord {
        key,
        object,
        epoch: 1,
        kind,
        ino,
        parent: Ino(0),
        session: ctx.session,
        boot: request.boot,
        client: request.client.clone(),
        path: request.path.as_bytes().to_vec(),
        expected_len: request.expected_len,
        opened: ctx.now,
        sums_before: None,
        placement: request.placement.clone(),
    }
}

fn opened(writer: &WriterRecord, kind: OpenKind) -> OpenedWrite {
    OpenedWrite {
        writer: writer.token(),
        ino: writer.ino,
        object: writer.object,
        replica: writer.replica(),
        group: writer.placement.group,
        kind,
        len: 0,
        dropped: Vec::new(),
        in_sync: writer.placement.in_sync.clone(),
    }
}

pub(crate) fn new_content(object: ObjectId, group: GroupId, key: WriterKey) -> Content {
    Content { object, group, len: 0, state: FileState::Open(key), sums: None, generation: 0, shared: false }
}

fn new_file(
    txn: &mut dyn Txn,
    ctx: &Context,
    request: &OpenWrite,
    key: WriterKey,
    parent: &Dir,
    name: &[u8],
) -> Result<OpenedWrite, NsError> {
    let (ino, object) = (ctx.ids.next_ino()?, ctx.ids.next_object()?);
    let access = new_access(&ctx.actor, parent, request.mode);
    let inode = new_inode(ctx, ino, access, Kind::File(new_content(object, request.placement.group, key)));
    put_new(txn, ctx, parent.ino, name, &inode);
    adjust(txn, ctx, parent.ino, ino.0, 1, 0, Touch::Entries)?;
    let mut writer = writer(ctx, request, key, WriterKind::New, ino, object);
    if request.path.as_bytes().ends_with(name) {
        writer.parent = parent.ino;
    }
    writer.put(txn);
    make_units(txn, ctx, request, &writer, access)?;
    Ok(opened(&writer, OpenKind::New))
}

/// An inode with one link, made now.
pub(crate) fn new_inode(ctx: &Context, ino: Ino, access: Access, kind: Kind) -> Inode {
    Inode {
        ino,
        access,
        nlink: 1,
        mtime: ctx.now,
        ctime: ctx.now,
        btime: ctx.now,
        atime: None,
        changed_epoch: ctx.epoch,
        xattrs: 0,
        holders: 0,
        extra: Vec::new(),
        kind,
    }
}

/// Where an upload is to appear.
struct Target<'a> {
    parent: &'a Dir,
    name: Vec<u8>,
    /// The file that it replaces, and what that has now.
    replaces: Option<(Ino, Content)>,
    /// Of the file that it replaces.
    access: Option<Access>,
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
    let access = target.access.unwrap_or_else(|| new_access(&ctx.actor, target.parent, request.mode));
    UploadRecord {
        upload,
        object,
        state: UploadState::InMaking,
        parent: target.parent.ino,
        name: target.name,
        replaces: target.replaces.map(|(ino, _)| ino),
        replaces_content: target.replaces.map(|(_, content)| (content.object, content.generation)),
        writer: key,
        client: request.client.clone(),
        path: request.path.as_bytes().to_vec(),
        owner: ctx.actor.principal,
        group: access.group,
        mode: access.mode,
        created: ctx.now,
        deadline: None,
        epoch: 0,
        kept_len: 0,
        sums: None,
        attributes: None,
        placed: request.placement.group,
    }
    .put(txn);
    let writer = writer(ctx, request, key, WriterKind::Upload(upload), ino, object);
    writer.put(txn);
    make_units(txn, ctx, request, &writer, access)?;
    Ok(opened(&writer, OpenKind::Upload(upload)))
}

/// The client's own unfinished file begins again: same inode, new object; the old handle is fenced.
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
        txn.delete(&keys::writer(key, old.object));
        crate::groups::deletion::queue(txn, ctx, old.group, old.object)?;
    } else {
        release_object(txn, ctx, &old)?;
    }
    let content = Content { generation: old.generation, ..new_content(object, request.placement.group, key) };
    located.inode.kind = Kind::File(content);
    located.inode.mtime = ctx.now;
    located.inode.ctime = ctx.now;
    located.store(txn, ctx);
    adjust_bytes(txn, ctx, &located, difference(0, old.len))?;
    let writer = writer(ctx, request, key, WriterKind::New, located.inode.ino, object);
    writer.put(txn);
    make_units(txn, ctx, request, &writer, located.inode.access)?;
    Ok(OpenedWrite { dropped: vec![old.object], ..opened(&writer, OpenKind::New) })
}

/// A restart gives up the uploads that the same client has in the making for this path.
fn drop_own_uploads(txn: &mut dyn Txn, ctx: &Context, request: &OpenWrite) -> Result<Vec<ObjectId>, NsError> {
    let mut dropped = Vec::new();
    for writer in crate::find_writer(txn, &request.client, &request.path)? {
        let WriterKind::Upload(upload) = writer.kind else { continue };
        if let Some(record) = UploadRecord::get(txn, upload)? {
            crate::writers::uploads::permit_own(ctx, &record)?;
            record.delete(txn)?;
        }
        writer.delete(txn);
        crate::groups::deletion::queue(txn, ctx, writer.placement.group, writer.object)?;
        dropped.push(writer.object);
    }
    Ok(dropped)
}

impl Operation for OpenWrite {
    const TAG: OpTag = OpTag::OpenWrite;
    type Reply = OpenedWrite;
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<OpenedWrite, NsError> {
        open_write(txn, ctx, self)
    }
}
