//! Extended attributes.

use kv::{Read, Txn};
use types::NsPath;

use crate::{Actor, Context, NsError, OpTag, Operation};

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

/// The value of attribute `name` of what is at `path`.
pub fn get_xattr(read: &dyn Read, actor: &Actor, path: &NsPath, name: &[u8]) -> Result<Vec<u8>, NsError> {
    todo!("{actor:?} {path} {name:?} {}", read.get(b"")?.is_some())
}

/// Names (and values) of all attributes; at most [`crate::Limits::xattrs_max`].
pub fn list_xattrs(read: &dyn Read, actor: &Actor, path: &NsPath) -> Result<Vec<(Vec<u8>, Vec<u8>)>, NsError> {
    todo!("{actor:?} {path} {}", read.get(b"")?.is_some())
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

/// See [`SetXattr`].
pub fn set_xattr(txn: &mut dyn Txn, ctx: &Context, request: &SetXattr) -> Result<(), NsError> {
    todo!("{request:?} {ctx:?} {}", txn.get(b"")?.is_some())
}

impl Operation for SetXattr {
    const TAG: OpTag = OpTag::SetXattr;
    type Reply = ();
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<(), NsError> {
        set_xattr(txn, ctx, self)
    }
}

/// Removes an extended attribute.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RemoveXattr {
    /// The path.
    pub path: NsPath,
    /// Its name.
    pub name: Vec<u8>,
}

/// See [`RemoveXattr`].
pub fn remove_xattr(txn: &mut dyn Txn, ctx: &Context, request: &RemoveXattr) -> Result<(), NsError> {
    todo!("{request:?} {ctx:?} {}", txn.get(b"")?.is_some())
}

impl Operation for RemoveXattr {
    const TAG: OpTag = OpTag::RemoveXattr;
    type Reply = ();
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<(), NsError> {
        remove_xattr(txn, ctx, self)
    }
}
