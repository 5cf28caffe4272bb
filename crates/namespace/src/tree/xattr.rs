//! Extended attributes: of a named inode, of an open file wherever it is, and of a file that is not visible yet. The last are those of an upload
//! under a free name. They are stored under the file's future number, and appear with it. An upload that replaces a file has no attributes of its
//! own: it uses those of the file.

use std::fmt;
use std::ops::ControlFlow;

use kv::{Prefetch, Read, ScanOrder, Txn};
use types::{Ino, NAME_MAX, NsPath};

use crate::ahead::{Ahead, inode_ahead, key_ahead, prefix_ahead, tell, writer_ahead};
use crate::codec::{BadValue, VERSION};
use crate::damage_mark::DAMAGED_MARK;
use crate::tree::node::{Located, locate, locate_entry, put_directory};
use crate::tree::path_limits::ByKind;
use crate::tree::walk::{Last, resolve_by_kind};
use crate::writers::record::current_writer;
use crate::{
    AccessKind, Actor, Context, FileState, HiddenAttributes, Inode, Kind, NsError, OpTag, Operation, PathOperation,
    UploadRecord, WriterKind, WriterRecord, WriterToken, keys, permit,
};

/// The owner of the attributes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum XattrOf {
    /// The inode at this path, subject to permissions.
    Path(NsPath),
    /// An open file, whatever names it has now. The open has checked the permission.
    Inode(Ino),
    /// The upload of this writer under a free name. [`NsError::Stale`] if the writer was fenced or has ended.
    Upload(WriterToken),
}

impl From<NsPath> for XattrOf {
    fn from(path: NsPath) -> Self {
        Self::Path(path)
    }
}

impl fmt::Display for XattrOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => path.fmt(f),
            Self::Inode(ino) => write!(f, "inode {:016x}", ino.0),
            Self::Upload(writer) => write!(f, "upload of object {:016x}", writer.object.0),
        }
    }
}

/// Whether the attribute may, must or must not exist.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum XattrMode {
    /// Set it in any case.
    Set,
    /// Only if it does not exist.
    Create,
    /// Only if it exists.
    Replace,
}

/// Sets an extended attribute.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SetXattr {
    /// The owner of the attribute.
    pub of: XattrOf,
    /// Its name: 1 to 255 bytes, no NUL.
    pub name: Vec<u8>,
    /// Its value, bounded by [`crate::Limits::xattr_value_max`].
    pub value: Vec<u8>,
    /// Whether it may exist already.
    pub mode: XattrMode,
}

/// Removes an extended attribute.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RemoveXattr {
    /// The owner of the attribute.
    pub of: XattrOf,
    /// Its name.
    pub name: Vec<u8>,
}

/// An attribute's name and value.
pub type NamedValue = (Vec<u8>, Vec<u8>);

/// The attribute that clients call `weir.state`: the state of a file, in one of the words of [`state_in_words`]. It is computed, is in no list, and cannot be
/// set or removed.
pub const STATE_ATTRIBUTE: &[u8] = b"user.weir.state";

/// The longest value that any configuration allows, in bytes.
const VALUE_MAX: u32 = 65_536;

fn check_name(name: &[u8]) -> Result<(), NsError> {
    if name.len() > NAME_MAX {
        return Err(types::NameError::NameTooLong(name.len()).into());
    }
    if name.is_empty() || name.contains(&0) {
        let what = format!("attribute {}", name.escape_ascii());
        return Err(NsError::Invalid { what, why: "an attribute's name has 1 to 255 bytes and no NUL" });
    }
    Ok(())
}

/// Refuses a change of an attribute that is computed.
fn check_changeable(of: &XattrOf, name: &[u8]) -> Result<(), NsError> {
    if name != STATE_ATTRIBUTE {
        return Ok(());
    }
    let what = format!("{of}: attribute weir.state");
    Err(NsError::Invalid { what, why: "the server computes it, and nobody else can change it" })
}

/// What [`STATE_ATTRIBUTE`] says of a file.
fn state_in_words(state: FileState) -> &'static str {
    match state {
        FileState::Complete => "complete",
        FileState::Open(_) => "being written",
        FileState::Updating(_) => "being changed",
        FileState::Interrupted(_) => "interrupted",
    }
}

fn missing(of: &XattrOf, name: &[u8]) -> NsError {
    NsError::NotFound(format!("{of}: attribute {}", name.escape_ascii()), "attribute")
}

/// The resolved owner of attributes.
#[allow(clippy::large_enum_variant)] // lives for one call
enum Owner {
    Inode(Located),
    Hidden(Ino, UploadRecord),
}

impl Owner {
    /// The inode number that holds the attributes.
    fn ino(&self) -> Ino {
        match self {
            Self::Inode(located) => located.inode.ino,
            Self::Hidden(ino, _) => *ino,
        }
    }

    /// What [`STATE_ATTRIBUTE`] says. `None`: it is no file.
    fn state(&self) -> Option<&'static str> {
        match self {
            Self::Inode(located) => located.inode.content().map(|content| state_in_words(content.state)),
            Self::Hidden(..) => Some("being written"),
        }
    }

    fn count(&self) -> u32 {
        match self {
            Self::Inode(located) => located.inode.xattrs,
            Self::Hidden(_, upload) => upload.attributes.map_or(0, |attributes| attributes.count),
        }
    }

    fn store(self, txn: &mut dyn Txn, ctx: &Context, count: u32) {
        match self {
            Self::Inode(mut located) => {
                located.inode = Inode { xattrs: count, ctime: ctx.now, ..located.inode };
                match &located.inode.kind {
                    Kind::Directory(dir) => put_directory(txn, ctx, &located.inode, dir),
                    _ => located.store(txn, ctx),
                }
            }
            Self::Hidden(at, mut upload) => {
                upload.attributes = Some(HiddenAttributes { at, count });
                upload.put(txn);
            }
        }
    }
}

/// What is read of an owner, and of one of its attributes or all.
fn ahead_of(of: &XattrOf, name: Option<&[u8]>) -> Vec<Prefetch> {
    match (of, name) {
        (XattrOf::Path(path), Some(name)) => Ahead::walk(path).record().attribute(name).list(),
        (XattrOf::Path(path), None) => Ahead::walk(path).record().attributes().list(),
        (XattrOf::Inode(ino), name) => {
            let attributes =
                name.map_or_else(|| prefix_ahead(&keys::xattr(*ino, b"")), |name| key_ahead(&keys::xattr(*ino, name)));
            let mut wanted = inode_ahead(*ino);
            wanted.push(attributes);
            wanted
        }
        (XattrOf::Upload(token), _) => writer_ahead(token, None),
    }
}

fn find(read: &dyn Read, actor: &Actor, of: &XattrOf, want: AccessKind) -> Result<Owner, NsError> {
    match of {
        XattrOf::Path(path) => {
            let wanted = match want {
                AccessKind::Read => ByKind { file: PathOperation::Stat, directory: PathOperation::Stat },
                _ => ByKind::MODIFY,
            };
            let (parent, name, entry) = resolve_by_kind(read, actor, path, Last::Follow, wanted)?;
            let located = locate_entry(read, parent.ino, &name, entry)?;
            permit(actor, &located.inode.access, want, &|| path.to_string())?;
            Ok(Owner::Inode(located))
        }
        XattrOf::Inode(ino) => {
            let located = locate(read, *ino)?;
            located.map(Owner::Inode).ok_or_else(|| NsError::NotFound(of.to_string(), "inode"))
        }
        XattrOf::Upload(token) => match hidden(read, token)? {
            Some((writer, upload)) => Ok(Owner::Hidden(writer.ino, upload)),
            None => {
                let why = "it is no upload under a free name; its attributes are those of the file";
                Err(NsError::Invalid { what: of.to_string(), why })
            }
        },
    }
}

fn hidden(read: &dyn Read, token: &WriterToken) -> Result<Option<(WriterRecord, UploadRecord)>, NsError> {
    tell(read, &|| writer_ahead(token, None))?;
    let writer = current_writer(read, token)?;
    let WriterKind::Upload(id) = writer.kind else { return Ok(None) };
    let upload = UploadRecord::get(read, id)?.filter(|upload| upload.replaces.is_none());
    Ok(upload.map(|upload| (writer, upload)))
}

/// Whether the object of `writer` is not visible yet, so that its attributes are those of an [`XattrOf::Upload`].
///
/// # Errors
///
/// [`NsError::Stale`] if the writer was fenced or has ended.
pub fn is_hidden_upload(read: &dyn Read, writer: &WriterToken) -> Result<bool, NsError> {
    Ok(hidden(read, writer)?.is_some())
}

fn payload<'a>(key: &[u8], value: &'a [u8]) -> Result<&'a [u8], NsError> {
    match value.split_first() {
        Some((&VERSION, rest)) => Ok(rest),
        Some((&version, _)) => Err(BadValue::Newer("an extended attribute", u64::from(version)).at(key)),
        None => Err(BadValue::Damaged("there is no format version").at(key)),
    }
}

fn all(read: &dyn Read, ino: Ino) -> Result<Vec<NamedValue>, NsError> {
    let prefix = keys::xattr(ino, b"");
    let (mut found, mut bad) = (Vec::new(), None);
    read.scan(&prefix, &keys::end_of(&prefix), ScanOrder::Ascending, &mut |key, value| match payload(key, value) {
        Ok(value) => {
            found.push((key.get(prefix.len()..).unwrap_or(b"").to_vec(), value.to_vec()));
            ControlFlow::Continue(())
        }
        Err(error) => {
            bad = Some(error);
            ControlFlow::Break(())
        }
    })?;
    bad.map_or(Ok(found), Err)
}

/// The value of attribute `name`. An actor that may read the file may read it.
pub fn get_xattr(read: &dyn Read, actor: &Actor, of: &XattrOf, name: &[u8]) -> Result<Vec<u8>, NsError> {
    check_name(name)?;
    tell(read, &|| ahead_of(of, Some(name)))?;
    let owner = find(read, actor, of, AccessKind::Read)?;
    if name == STATE_ATTRIBUTE {
        return owner.state().map(|state| state.as_bytes().to_vec()).ok_or_else(|| missing(of, name));
    }
    xattr_of(read, owner.ino(), name)?.ok_or_else(|| missing(of, name))
}

/// An attribute of an inode, without a permission check. For the server's own marks. `None`: the inode has no such attribute.
pub fn xattr_of(read: &dyn Read, ino: Ino, name: &[u8]) -> Result<Option<Vec<u8>>, NsError> {
    let key = keys::xattr(ino, name);
    read.get(&key)?.map(|value| payload(&key, &value).map(<[u8]>::to_vec)).transpose()
}

/// Like [`list_xattrs`], by number and without a permission check. For exports.
pub fn xattrs_of(read: &dyn Read, ino: Ino) -> Result<Vec<NamedValue>, NsError> {
    all(read, ino)
}

/// Names and values of all attributes; at most [`crate::Limits::xattrs_max`]. An actor that may read the file may list them.
pub fn list_xattrs(read: &dyn Read, actor: &Actor, of: &XattrOf) -> Result<Vec<NamedValue>, NsError> {
    tell(read, &|| ahead_of(of, None))?;
    all(read, find(read, actor, of, AccessKind::Read)?.ino())
}

/// Counts the attributes by their keys. For the check of the namespace.
pub(crate) fn count(read: &dyn Read, ino: Ino) -> Result<u32, NsError> {
    let prefix = keys::xattr(ino, b"");
    let mut count = 0;
    read.scan(&prefix, &keys::end_of(&prefix), ScanOrder::Ascending, &mut |_, _| {
        count += 1;
        ControlFlow::Continue(())
    })?;
    Ok(count)
}

/// See [`SetXattr`]. Needs the permission to write the file.
pub fn set_xattr(txn: &mut dyn Txn, ctx: &Context, request: &SetXattr) -> Result<(), NsError> {
    check_name(&request.name)?;
    check_changeable(&request.of, &request.name)?;
    let bound = ctx.limits.xattr_value_max.min(VALUE_MAX);
    if request.value.len() > bound as usize {
        let (len, bound) = (request.value.len() as u64, u64::from(bound));
        return Err(NsError::TooLarge { what: "the attribute's value", len, bound });
    }
    let owner = find(txn, &ctx.actor, &request.of, AccessKind::Write)?;
    let key = keys::xattr(owner.ino(), &request.name);
    let there = txn.get(&key)?.is_some();
    match (there, request.mode) {
        (true, XattrMode::Create) => {
            let at = format!("{}: attribute {}", request.of, request.name.escape_ascii());
            return Err(NsError::Exists(at));
        }
        (false, XattrMode::Replace) => return Err(missing(&request.of, &request.name)),
        _ => {}
    }
    let count = owner.count() + u32::from(!there);
    // The server's own mark must not depend on how many attributes the file's owner has set.
    if !there && count > ctx.limits.xattrs_max && request.name != DAMAGED_MARK {
        return Err(NsError::TooMany { what: "attributes of one file", bound: u64::from(ctx.limits.xattrs_max) });
    }
    let mut value = Vec::with_capacity(1 + request.value.len());
    value.push(VERSION);
    value.extend_from_slice(&request.value);
    txn.put(&key, &value);
    owner.store(txn, ctx, count);
    Ok(())
}

/// Sets one of weir's own attributes. Returns whether it is new; then the caller counts it in the inode.
pub(crate) fn put_own(txn: &mut dyn Txn, ino: Ino, name: &[u8], value: &[u8]) -> Result<bool, NsError> {
    let key = keys::xattr(ino, name);
    let is_new = txn.get(&key)?.is_none();
    let mut stored = vec![VERSION];
    stored.extend_from_slice(value);
    txn.put(&key, &stored);
    Ok(is_new)
}

/// Removes one of weir's own attributes. Returns whether it was there; then the caller counts it in the inode.
pub(crate) fn remove_own(txn: &mut dyn Txn, ino: Ino, name: &[u8]) -> Result<bool, NsError> {
    let key = keys::xattr(ino, name);
    let was_there = txn.get(&key)?.is_some();
    if was_there {
        txn.delete(&key);
    }
    Ok(was_there)
}

/// See [`RemoveXattr`]. Needs the permission to write the file.
pub fn remove_xattr(txn: &mut dyn Txn, ctx: &Context, request: &RemoveXattr) -> Result<(), NsError> {
    check_name(&request.name)?;
    check_changeable(&request.of, &request.name)?;
    let owner = find(txn, &ctx.actor, &request.of, AccessKind::Write)?;
    let key = keys::xattr(owner.ino(), &request.name);
    if txn.get(&key)?.is_none() {
        return Err(missing(&request.of, &request.name));
    }
    txn.delete(&key);
    let count = owner.count().saturating_sub(1);
    owner.store(txn, ctx, count);
    Ok(())
}

impl Operation for SetXattr {
    const TAG: OpTag = OpTag::SetXattr;
    type Reply = ();
    fn ahead(&self, _: &Context) -> Vec<Prefetch> {
        ahead_of(&self.of, Some(&self.name))
    }
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<(), NsError> {
        set_xattr(txn, ctx, self)
    }
}

impl Operation for RemoveXattr {
    const TAG: OpTag = OpTag::RemoveXattr;
    type Reply = ();
    fn ahead(&self, _: &Context) -> Vec<Prefetch> {
        ahead_of(&self.of, Some(&self.name))
    }
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<(), NsError> {
        remove_xattr(txn, ctx, self)
    }
}
