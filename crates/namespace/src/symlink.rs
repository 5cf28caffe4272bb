//! Symbolic links.

use kv::{Read, Txn};
use types::{Ino, NsPath};

use crate::{Actor, Context, NsError, OpTag, Operation};

/// The target of the symbolic link at `path`.
pub fn readlink(read: &dyn Read, actor: &Actor, path: &NsPath) -> Result<Vec<u8>, NsError> {
    todo!("{actor:?} {path} {}", read.get(b"")?.is_some())
}

/// Makes a symbolic link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Symlink {
    /// The path.
    pub path: NsPath,
    /// Where it leads: 1 to 4096 bytes, any but NUL; not resolved now.
    pub target: Vec<u8>,
}

/// See [`Symlink`].
pub fn symlink(txn: &mut dyn Txn, ctx: &Context, request: &Symlink) -> Result<Ino, NsError> {
    todo!("{request:?} {ctx:?} {}", txn.get(b"")?.is_some())
}

impl Operation for Symlink {
    const TAG: OpTag = OpTag::Symlink;
    type Reply = Ino;
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<Ino, NsError> {
        symlink(txn, ctx, self)
    }
}
