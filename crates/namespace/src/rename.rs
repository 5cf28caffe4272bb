//! Renaming.

use kv::Txn;
use types::{Ino, NsPath};

use crate::{Context, NsError, OpTag, Operation};

/// What was renamed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Renamed {
    /// The inode that moved.
    pub ino: Ino,
    /// The inode that had the new name.
    pub replaced: Option<Ino>,
}

/// Gives something another name. A file may take the place of a file or link, a directory that of an empty directory; nothing goes into itself; directories and files with several links stay in their tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rename {
    /// The name now; a symbolic link itself is moved.
    pub from: NsPath,
    /// The name then.
    pub to: NsPath,
    /// Whether something at the new name may be replaced.
    pub replace: bool,
}

/// See [`Rename`].
pub fn rename(txn: &mut dyn Txn, ctx: &Context, request: &Rename) -> Result<Renamed, NsError> {
    todo!("{request:?} {ctx:?} {}", txn.get(b"")?.is_some())
}

impl Operation for Rename {
    const TAG: OpTag = OpTag::Rename;
    type Reply = Renamed;
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<Renamed, NsError> {
        rename(txn, ctx, self)
    }
}
