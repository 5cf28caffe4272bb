//! Reading and writing inodes, wherever their records are stored: in the entry (one link), or under `I`.

use std::ops::{ControlFlow, Range};

use kv::{Read, ScanOrder, Txn};
use types::{Adler32, Crc32c, GroupId, Ino, ObjectId, PATH_MAX, PrincipalId, SnapshotEpoch, Timestamp, TreeId};

use crate::codec::{BadValue, Decoder, Encoder, field_u32, field_u64};
use crate::tree::acl::Acl;
use crate::tree::acl_codec;
use crate::tree::inode::{Content, DirectoryRecord, FileState, Inode, Kind, Sums, WriterKey};
use crate::{Access, Context, NsError, keys};

// Second byte of `D` and `I` values.
const FORM_RECORD: u8 = 1;
const FORM_POINTER: u8 = 2;
const FORM_DIRECTORY: u8 = 3;
const FORM_BACK: u8 = 4;

const KIND_FILE: u8 = 1;
const KIND_DIRECTORY: u8 = 2;
const KIND_SYMLINK: u8 = 3;

const STATE_COMPLETE: u8 = 1;
const STATE_OPEN: u8 = 2;
const STATE_UPDATING: u8 = 3;
const STATE_INTERRUPTED: u8 = 4;

const TAG_NLINK: u8 = 0x81;
const TAG_GROUP: u8 = 0x82;
const TAG_SHARED: u8 = 0x83;
const TAG_HOLDERS: u8 = 0x84;
const TAG_XATTRS: u8 = 0x85;
const TAG_ACL: u8 = 0x86;
/// In a directory's record: its default ACL. In its entry, empty: the record has one.
const TAG_DEFAULT_ACL: u8 = 0x87;
const TAG_ATIME: u8 = 0x01;

/// Where numbers begin in values, in bytes. Engines over a network follow them (`ahead.rs`).
pub(crate) mod at {
    /// In a directory's entry: its inode number.
    pub(crate) const DIRECTORY_INO: u32 = 12;
    /// And its tree.
    pub(crate) const DIRECTORY_TREE: u32 = 20;
    /// In a directory's record: its tree.
    pub(crate) const DIRECTORY_RECORD_TREE: u32 = 61;
    /// In the record of a file or symbolic link: its inode number.
    pub(crate) const RECORD_INO: u32 = 13;
    /// And of a file: its object.
    pub(crate) const RECORD_OBJECT: u32 = 53;
    /// And of a file with an open write: the first half of its writer's key.
    pub(crate) const RECORD_WRITER: u32 = 74;
    /// And of a file that has its checksums, or an open write: its group, in most records. Others have more before it.
    pub(crate) const RECORD_GROUP: u32 = 86;
    /// In an entry that points to a record: its inode number.
    pub(crate) const POINTER_INO: u32 = 2;
    /// Under `I`, if an entry has the record: the directory.
    pub(crate) const BACK_PARENT: u32 = 2;
    /// And the name, up to the end.
    pub(crate) const BACK_NAME: u32 = 12;
}

/// The value of an entry (`D`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Dentry {
    /// The record of a file or symbolic link with one link.
    Record(Inode),
    /// A file or symbolic link with its record under `I`.
    Pointer(Ino),
    /// A directory, with the fields that a walk needs.
    Directory(Dir),
}

/// The fields of a directory that a walk needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Dir {
    pub ino: Ino,
    pub access: Access,
    pub tree: TreeId,
    /// Whether its record has a default ACL. A walk does not need that, so the entry does not repeat it.
    pub has_default_acl: bool,
}

impl Dir {
    pub(crate) fn new(inode: &Inode, record: &DirectoryRecord) -> Self {
        let has_default_acl = record.default_acl.is_some();
        Self { ino: inode.ino, access: inode.access.clone(), tree: record.tree, has_default_acl }
    }

    /// The default ACL. Costs a get if there is one.
    pub(crate) fn default_acl(&self, read: &dyn Read) -> Result<Option<Box<Acl>>, NsError> {
        if !self.has_default_acl {
            return Ok(None);
        }
        Ok(get_directory(read, self.ino)?.1.default_acl)
    }
}

impl Dentry {
    /// The access, if the entry has it.
    fn access(&mut self) -> Option<&mut Access> {
        match self {
            Dentry::Record(inode) => Some(&mut inode.access),
            Dentry::Directory(dir) => Some(&mut dir.access),
            Dentry::Pointer(_) => None,
        }
    }

    pub(crate) fn ino(&self) -> Ino {
        match self {
            Dentry::Record(inode) => inode.ino,
            Dentry::Pointer(ino) | Dentry::Directory(Dir { ino, .. }) => *ino,
        }
    }
}

/// The value of an `I` key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum InodeValue {
    /// The record: of a directory, of a file that has or had several links, or of an inode without links.
    Record(Inode),
    /// The entry that holds the record.
    Back { parent: Ino, name: Vec<u8> },
}

fn encode_access(out: &mut Encoder, access: &Access) {
    out.u16(access.mode);
    out.u32(access.owner.0);
    out.u32(access.group.0);
}

fn decode_access(from: &mut Decoder<'_>) -> Result<Access, BadValue> {
    let mode = from.u16()?;
    Ok(Access::new(PrincipalId(from.u32()?), PrincipalId(from.u32()?), mode))
}

/// Where the field of an access ACL lies in a value. Whoever decodes the value puts the ACL in.
type AclPlace = Option<Range<usize>>;

/// Encodes the record as written in `epoch`, whatever its own epoch says.
pub(crate) fn encode_record(inode: &Inode, epoch: SnapshotEpoch) -> Vec<u8> {
    let mut out = Encoder::new(128);
    out.u8(FORM_RECORD);
    out.u8(match inode.kind {
        Kind::File(_) => KIND_FILE,
        Kind::Directory(_) => KIND_DIRECTORY,
        Kind::Symlink(_) => KIND_SYMLINK,
    });
    encode_access(&mut out, &inode.access);
    out.u64(inode.ino.0);
    out.i64(inode.mtime.0);
    out.i64(inode.ctime.0);
    out.i64(inode.btime.0);
    out.u64(epoch.0);
    match &inode.kind {
        Kind::File(content) => encode_content(&mut out, content),
        Kind::Directory(dir) => {
            out.u64(dir.parent.0);
            out.u64(dir.tree.0);
            out.bytes(&dir.name);
        }
        Kind::Symlink(target) => out.bytes(target),
    }
    if let Some(atime) = inode.atime {
        out.tag(TAG_ATIME, &atime.0.to_be_bytes());
    }
    out.extra(&inode.extra);
    if inode.nlink != 1 {
        out.tag_u32(TAG_NLINK, inode.nlink);
    }
    if let Kind::File(content) = &inode.kind {
        if content.group != GroupId::DEFAULT {
            out.tag_u64(TAG_GROUP, content.group.0);
        }
        if content.shared {
            out.tag(TAG_SHARED, &[]);
        }
    }
    if inode.holders != 0 {
        out.tag_u32(TAG_HOLDERS, inode.holders);
    }
    if inode.xattrs != 0 {
        out.tag_u32(TAG_XATTRS, inode.xattrs);
    }
    if let Some(acl) = &inode.access.extended {
        acl_codec::put_extended(&mut out, TAG_ACL, acl);
    }
    if let Kind::Directory(DirectoryRecord { default_acl: Some(acl), .. }) = &inode.kind {
        acl_codec::put_default(&mut out, TAG_DEFAULT_ACL, acl);
    }
    out.0
}

fn encode_content(out: &mut Encoder, content: &Content) {
    out.u64(content.object.0);
    out.u64(content.len);
    out.u32(content.generation);
    let (state, writer) = match content.state {
        FileState::Complete => (STATE_COMPLETE, None),
        FileState::Open(key) => (STATE_OPEN, Some(key)),
        FileState::Updating(key) => (STATE_UPDATING, Some(key)),
        FileState::Interrupted(key) => (STATE_INTERRUPTED, Some(key)),
    };
    out.u8(state);
    if let Some(WriterKey(key)) = writer {
        out.u64(key);
    }
    encode_sums(out, content.sums.as_ref());
}

pub(crate) fn encode_sums(out: &mut Encoder, sums: Option<&Sums>) {
    match sums {
        None => out.u8(0),
        Some(sums) => {
            out.u8(1);
            out.u32(sums.adler32.0);
            out.u32(sums.crc32c.0);
        }
    }
}

pub(crate) fn decode_sums(from: &mut Decoder<'_>) -> Result<Option<Sums>, BadValue> {
    match from.u8()? {
        0 => Ok(None),
        1 => Ok(Some(Sums { adler32: Adler32(from.u32()?), crc32c: Crc32c(from.u32()?) })),
        _ => Err(BadValue::Damaged("it has an unknown kind of checksums")),
    }
}

fn decode_content(from: &mut Decoder<'_>) -> Result<Content, BadValue> {
    let object = ObjectId(from.u64()?);
    let len = from.u64()?;
    let generation = from.u32()?;
    let state = match from.u8()? {
        STATE_COMPLETE => FileState::Complete,
        STATE_OPEN => FileState::Open(WriterKey(from.u64()?)),
        STATE_UPDATING => FileState::Updating(WriterKey(from.u64()?)),
        STATE_INTERRUPTED => FileState::Interrupted(WriterKey(from.u64()?)),
        _ => return Err(BadValue::Damaged("it has an unknown file state")),
    };
    let sums = decode_sums(from)?;
    Ok(Content { object, group: GroupId::DEFAULT, len, state, sums, generation, shared: false })
}

fn decode_record(mut from: Decoder<'_>, value: &[u8], acl: &mut AclPlace) -> Result<Inode, BadValue> {
    let kind = from.u8()?;
    let access = decode_access(&mut from)?;
    let ino = Ino(from.u64()?);
    let mtime = Timestamp(from.i64()?);
    let ctime = Timestamp(from.i64()?);
    let btime = Timestamp(from.i64()?);
    let changed_epoch = SnapshotEpoch(from.u64()?);
    let mut kind = match kind {
        KIND_FILE => Kind::File(decode_content(&mut from)?),
        KIND_DIRECTORY => {
            let (parent, tree) = (Ino(from.u64()?), TreeId(from.u64()?));
            Kind::Directory(DirectoryRecord { parent, name: from.name()?.to_vec(), tree, default_acl: None })
        }
        KIND_SYMLINK => Kind::Symlink(from.bytes(PATH_MAX)?.to_vec()),
        _ => return Err(BadValue::Damaged("it has an unknown kind")),
    };
    let (mut nlink, mut atime, mut xattrs, mut holders) = (1, None, 0, 0);
    let extra = from.tags_with_rest(|tag, field, rest| {
        match (tag, &mut kind) {
            (TAG_ATIME, _) => atime = Some(Timestamp(field_u64(field)?.cast_signed())),
            (TAG_NLINK, _) => nlink = field_u32(field)?,
            (TAG_GROUP, Kind::File(content)) => content.group = GroupId(field_u64(field)?),
            (TAG_SHARED, Kind::File(content)) => content.shared = true,
            (TAG_HOLDERS, _) => holders = field_u32(field)?,
            (TAG_XATTRS, _) => xattrs = field_u32(field)?,
            (TAG_ACL, Kind::File(_) | Kind::Directory(_)) => *acl = Some(place(value, field, rest)),
            (TAG_DEFAULT_ACL, Kind::Directory(dir)) => dir.default_acl = Some(Box::new(acl_codec::default(field)?)),
            (TAG_ACL | TAG_DEFAULT_ACL, _) => return Err(BadValue::Damaged("it has an ACL that its kind cannot have")),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(Inode { ino, access, nlink, mtime, ctime, btime, atime, changed_epoch, xattrs, holders, extra, kind })
}

/// The entry of a file or symbolic link with its record under `I`.
pub(crate) fn encode_pointer(ino: Ino) -> Vec<u8> {
    let mut out = Encoder::new(10);
    out.u8(FORM_POINTER);
    out.u64(ino.0);
    out.0
}

pub(crate) fn encode_directory_entry(dir: &Dir) -> Vec<u8> {
    let mut out = Encoder::new(28);
    out.u8(FORM_DIRECTORY);
    encode_access(&mut out, &dir.access);
    out.u64(dir.ino.0);
    out.u64(dir.tree.0);
    if let Some(acl) = &dir.access.extended {
        acl_codec::put_extended(&mut out, TAG_ACL, acl);
    }
    if dir.has_default_acl {
        out.tag(TAG_DEFAULT_ACL, &[]);
    }
    out.0
}

fn place(value: &[u8], field: &[u8], rest: usize) -> Range<usize> {
    let end = value.len() - rest;
    end - field.len()..end
}

pub(crate) fn decode_dentry(value: &[u8]) -> Result<Dentry, BadValue> {
    let mut place = None;
    let mut dentry = decode_dentry_apart(value, &mut place)?;
    if let (Some(place), Some(access)) = (place, dentry.access()) {
        access.extended = Some(acl_codec::extended(&value[place])?);
    }
    Ok(dentry)
}

/// The same, and uses the memory of the value for its ACL.
fn dentry_of(value: Vec<u8>) -> Result<Dentry, BadValue> {
    let mut place = None;
    let mut dentry = decode_dentry_apart(&value, &mut place)?;
    if let (Some(place), Some(access)) = (place, dentry.access()) {
        access.extended = Some(acl_codec::take_extended(value, place)?);
    }
    Ok(dentry)
}

/// Decodes all but the ACL, and says where that is.
fn decode_dentry_apart(value: &[u8], acl: &mut AclPlace) -> Result<Dentry, BadValue> {
    let mut from = Decoder::new(value, "a directory entry")?;
    match from.u8()? {
        FORM_RECORD => decode_record(from, value, acl).map(Dentry::Record),
        FORM_POINTER => {
            let ino = Ino(from.u64()?);
            from.end()?;
            Ok(Dentry::Pointer(ino))
        }
        FORM_DIRECTORY => {
            let access = decode_access(&mut from)?;
            let (ino, tree) = (Ino(from.u64()?), TreeId(from.u64()?));
            let mut has_default_acl = false;
            from.tags_with_rest(|tag, field, rest| {
                match tag {
                    TAG_ACL => *acl = Some(place(value, field, rest)),
                    TAG_DEFAULT_ACL if field.is_empty() => has_default_acl = true,
                    TAG_DEFAULT_ACL => return Err(BadValue::Damaged("its mark of a default ACL is not empty")),
                    _ => return Ok(false),
                }
                Ok(true)
            })?;
            Ok(Dentry::Directory(Dir { ino, access, tree, has_default_acl }))
        }
        _ => Err(BadValue::Damaged("a directory entry has an unknown form")),
    }
}

pub(crate) fn encode_back(parent: Ino, name: &[u8]) -> Vec<u8> {
    let mut out = Encoder::new(12 + name.len());
    out.u8(FORM_BACK);
    out.u64(parent.0);
    out.bytes(name);
    out.0
}

pub(crate) fn decode_inode_value(value: &[u8]) -> Result<InodeValue, BadValue> {
    let mut from = Decoder::new(value, "an inode")?;
    match from.u8()? {
        FORM_RECORD => {
            let mut place = None;
            let mut inode = decode_record(from, value, &mut place)?;
            if let Some(place) = place {
                inode.access.extended = Some(acl_codec::extended(&value[place])?);
            }
            Ok(InodeValue::Record(inode))
        }
        FORM_BACK => {
            let parent = Ino(from.u64()?);
            let name = from.name()?.to_vec();
            from.end()?;
            Ok(InodeValue::Back { parent, name })
        }
        _ => Err(BadValue::Damaged("an inode has an unknown form")),
    }
}

pub(crate) fn get_dentry(read: &dyn Read, dir: Ino, name: &[u8]) -> Result<Option<Dentry>, NsError> {
    let key = keys::dentry(dir, name);
    read.get(&key)?.map(|value| dentry_of(value).map_err(|bad| bad.at(&key))).transpose()
}

pub(crate) fn get_inode_value(read: &dyn Read, ino: Ino) -> Result<Option<InodeValue>, NsError> {
    let key = keys::inode(ino);
    read.get(&key)?.map(|value| decode_inode_value(&value).map_err(|bad| bad.at(&key))).transpose()
}

/// The record under `I`. It must exist: the inode is a directory, or a file whose entries are pointers.
pub(crate) fn get_record(read: &dyn Read, ino: Ino) -> Result<Inode, NsError> {
    match get_inode_value(read, ino)? {
        Some(InodeValue::Record(inode)) => Ok(inode),
        _ => Err(BadValue::Damaged("an entry points here, but there is no record").at(&keys::inode(ino))),
    }
}

/// A directory's record.
pub(crate) fn get_directory(read: &dyn Read, ino: Ino) -> Result<(Inode, DirectoryRecord), NsError> {
    let inode = get_record(read, ino)?;
    match &inode.kind {
        Kind::Directory(dir) => {
            let dir = dir.clone();
            Ok((inode, dir))
        }
        _ => Err(no_directory(ino)),
    }
}

/// What a walk needs of a directory, from its record.
pub(crate) fn get_dir(read: &dyn Read, ino: Ino) -> Result<Dir, NsError> {
    let Inode { ino, access, kind, .. } = get_record(read, ino)?;
    let Kind::Directory(DirectoryRecord { tree, default_acl, .. }) = kind else { return Err(no_directory(ino)) };
    Ok(Dir { ino, access, tree, has_default_acl: default_acl.is_some() })
}

fn no_directory(ino: Ino) -> NsError {
    BadValue::Damaged("an entry says that this is a directory").at(&keys::inode(ino))
}

/// Where an inode's record is stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum RecordLocation {
    /// In this entry.
    Entry(Ino, Vec<u8>),
    /// Under `I`.
    Own,
}

/// An inode, and where its record is stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Located {
    pub inode: Inode,
    pub place: RecordLocation,
}

impl Located {
    /// Writes the record back to where it is stored, as changed in this epoch.
    pub(crate) fn store(&self, txn: &mut dyn Txn, ctx: &Context) {
        let record = encode_record(&self.inode, ctx.epoch);
        match &self.place {
            RecordLocation::Entry(parent, name) => txn.put(&keys::dentry(*parent, name), &record),
            RecordLocation::Own => txn.put(&keys::inode(self.inode.ino), &record),
        }
    }
}

/// Finds an inode by number. `None`: it does not exist.
pub(crate) fn locate(read: &dyn Read, ino: Ino) -> Result<Option<Located>, NsError> {
    match get_inode_value(read, ino)? {
        None => Ok(None),
        Some(InodeValue::Record(inode)) => Ok(Some(Located { inode, place: RecordLocation::Own })),
        Some(InodeValue::Back { parent, name }) => match get_dentry(read, parent, &name)? {
            Some(Dentry::Record(inode)) if inode.ino == ino => {
                Ok(Some(Located { inode, place: RecordLocation::Entry(parent, name) }))
            }
            _ => Err(BadValue::Damaged("the entry that it names does not hold it").at(&keys::inode(ino))),
        },
    }
}

/// The inode to which an entry points.
pub(crate) fn locate_entry(read: &dyn Read, dir: Ino, name: &[u8], dentry: Dentry) -> Result<Located, NsError> {
    match dentry {
        Dentry::Record(inode) => Ok(Located { inode, place: RecordLocation::Entry(dir, name.to_vec()) }),
        Dentry::Pointer(ino) | Dentry::Directory(Dir { ino, .. }) => {
            Ok(Located { inode: get_record(read, ino)?, place: RecordLocation::Own })
        }
    }
}

/// A new inode with one link.
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

/// Writes a file's or symbolic link's entry (new or moved) and the pointer back to it.
pub(crate) fn put_new(txn: &mut dyn Txn, ctx: &Context, dir: Ino, name: &[u8], inode: &Inode) {
    txn.put(&keys::dentry(dir, name), &encode_record(inode, ctx.epoch));
    txn.put(&keys::inode(inode.ino), &encode_back(dir, name));
}

/// Writes a directory's record, and the entry that points to it.
pub(crate) fn put_directory(txn: &mut dyn Txn, ctx: &Context, inode: &Inode, dir: &DirectoryRecord) {
    txn.put(&keys::inode(inode.ino), &encode_record(inode, ctx.epoch));
    if inode.ino != Ino::ROOT {
        let entry = encode_directory_entry(&Dir::new(inode, dir));
        txn.put(&keys::dentry(dir.parent, &dir.name), &entry);
    }
}

/// All names of a file with its record under `I`.
pub(crate) fn links_of(read: &dyn Read, ino: Ino) -> Result<Vec<(Ino, Vec<u8>)>, NsError> {
    let start = keys::links(ino);
    let (mut found, mut bad) = (Vec::new(), None);
    read.scan(&start, &keys::end_of(&start), ScanOrder::Ascending, &mut |key, _| {
        match (keys::number_at(key, 9), key.get(17..)) {
            (Some(parent), Some(name)) => found.push((Ino(parent), name.to_vec())),
            _ => bad = Some(BadValue::Damaged("the key of a link has a wrong length").at(key)),
        }
        if bad.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    bad.map_or(Ok(found), Err)
}
