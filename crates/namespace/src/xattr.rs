//! Extended attributes.

use std::ops::ControlFlow;

use kv::{Read, ScanOrder, Txn};
use types::{Ino, NAME_MAX, NsPath};

use crate::codec::{BadValue, VERSION};
use crate::node::{Located, locate_entry, put_directory};
use crate::walk::{Last, resolve_existing};
use crate::{Actor, Context, Inode, Kind, NsError, OpTag, Operation, Want, keys, permit};

/// Whether the attribute may, must or must not be there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum XattrMode {
    /// Set in any case.
    Set,
    /// Only if it is not there.
    Create,
    /// Only if it is there.
    Replace,
}

/// Sets an extended attribute.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SetXattr {
    /// The path.
    pub path: NsPath,
    /// Its name: 1 to 255 bytes, no NUL.
    pub name: Vec<u8>,
    /// Its value, bounded by [`crate::Limits::xattr_value_max`].
    pub value: Vec<u8>,
    /// Whether it may be there.
    pub mode: XattrMode,
}

/// Removes an extended attribute.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RemoveXattr {
    /// The path.
    pub path: NsPath,
    /// Its name.
    pub name: Vec<u8>,
}

/// An attribute's name and value.
pub type NamedValue = (Vec<u8>, Vec<u8>);

/// Longest value in any configuration, in bytes.
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

fn missing(path: &NsPath, name: &[u8]) -> NsError {
    NsError::NotFound(format!("{path}: attribute {}", name.escape_ascii()), "attribute")
}

fn find(read: &dyn Read, actor: &Actor, path: &NsPath, want: Want) -> Result<Located, NsError> {
    let (parent, name, entry) = resolve_existing(read, actor, path, Last::Follow)?;
    let located = locate_entry(read, parent.ino, &name, entry)?;
    permit(actor, &located.inode.access, want, &|| path.to_string())?;
    Ok(located)
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

/// The value of attribute `name` of what is at `path`. Whoever may read the file may.
pub fn get_xattr(read: &dyn Read, actor: &Actor, path: &NsPath, name: &[u8]) -> Result<Vec<u8>, NsError> {
    check_name(name)?;
    let located = find(read, actor, path, Want::Read)?;
    let key = keys::xattr(located.inode.ino, name);
    match read.get(&key)? {
        Some(value) => payload(&key, &value).map(<[u8]>::to_vec),
        None => Err(missing(path, name)),
    }
}

/// An attribute of an inode, whoever asks; for the server's own marks. `None`: it has no such one.
pub fn xattr_of(read: &dyn Read, ino: Ino, name: &[u8]) -> Result<Option<Vec<u8>>, NsError> {
    let key = keys::xattr(ino, name);
    read.get(&key)?.map(|value| payload(&key, &value).map(<[u8]>::to_vec)).transpose()
}

/// As [`list_xattrs`], by number and whoever asks: for who takes everything out.
pub fn xattrs_of(read: &dyn Read, ino: Ino) -> Result<Vec<NamedValue>, NsError> {
    all(read, ino)
}

/// Names and values of all attributes; at most [`crate::Limits::xattrs_max`]. Whoever may read the file may.
pub fn list_xattrs(read: &dyn Read, actor: &Actor, path: &NsPath) -> Result<Vec<NamedValue>, NsError> {
    all(read, find(read, actor, path, Want::Read)?.inode.ino)
}

/// Takes all attributes of an inode away, with the inode.
pub(crate) fn delete_all(txn: &mut dyn Txn, ino: Ino) -> Result<(), NsError> {
    for (name, _) in all(txn, ino)? {
        txn.delete(&keys::xattr(ino, &name));
    }
    Ok(())
}

fn store(txn: &mut dyn Txn, ctx: &Context, mut located: Located, count: u32) {
    located.inode = Inode { xattrs: count, ctime: ctx.now, ..located.inode };
    match &located.inode.kind {
        Kind::Directory(dir) => put_directory(txn, &located.inode, dir),
        _ => located.store(txn),
    }
}

/// See [`SetXattr`]. Whoever may write the file may.
pub fn set_xattr(txn: &mut dyn Txn, ctx: &Context, request: &SetXattr) -> Result<(), NsError> {
    check_name(&request.name)?;
    let bound = ctx.limits.xattr_value_max.min(VALUE_MAX);
    if request.value.len() > bound as usize {
        let (len, bound) = (request.value.len() as u64, u64::from(bound));
        return Err(NsError::TooLarge { what: "the attribute's value", len, bound });
    }
    let located = find(txn, &ctx.actor, &request.path, Want::Write)?;
    let key = keys::xattr(located.inode.ino, &request.name);
    let there = txn.get(&key)?.is_some();
    match (there, request.mode) {
        (true, XattrMode::Create) => {
            let at = format!("{}: attribute {}", request.path, request.name.escape_ascii());
            return Err(NsError::Exists(at));
        }
        (false, XattrMode::Replace) => return Err(missing(&request.path, &request.name)),
        _ => {}
    }
    let count = located.inode.xattrs + u32::from(!there);
    if count > ctx.limits.xattrs_max {
        return Err(NsError::TooMany { what: "attributes of one file", bound: u64::from(ctx.limits.xattrs_max) });
    }
    let mut value = Vec::with_capacity(1 + request.value.len());
    value.push(VERSION);
    value.extend_from_slice(&request.value);
    txn.put(&key, &value);
    store(txn, ctx, located, count);
    Ok(())
}

/// See [`RemoveXattr`]. Whoever may write the file may.
pub fn remove_xattr(txn: &mut dyn Txn, ctx: &Context, request: &RemoveXattr) -> Result<(), NsError> {
    check_name(&request.name)?;
    let located = find(txn, &ctx.actor, &request.path, Want::Write)?;
    let key = keys::xattr(located.inode.ino, &request.name);
    if txn.get(&key)?.is_none() {
        return Err(missing(&request.path, &request.name));
    }
    txn.delete(&key);
    let count = located.inode.xattrs.saturating_sub(1);
    store(txn, ctx, located, count);
    Ok(())
}

impl Operation for SetXattr {
    const TAG: OpTag = OpTag::SetXattr;
    type Reply = ();
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<(), NsError> {
        set_xattr(txn, ctx, self)
    }
}

impl Operation for RemoveXattr {
    const TAG: OpTag = OpTag::RemoveXattr;
    type Reply = ();
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<(), NsError> {
        remove_xattr(txn, ctx, self)
    }
}
