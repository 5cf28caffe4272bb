//! Hard links.

use kv::Txn;
use types::{Ino, NsPath};

use crate::{Context, NsError, OpTag, Operation};

/// Gives a file (or symbolic link) one more name in the same tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Link {
    /// The file.
    pub existing: NsPath,
    /// Its further name.
    pub new: NsPath,
}

/// See [`Link`].
pub fn link(txn: &mut dyn Txn, ctx: &Context, request: &Link) -> Result<Ino, NsError> {
    todo!("{request:?} {ctx:?} {}", txn.get(b"")?.is_some())
}

impl Operation for Link {
    const TAG: OpTag = OpTag::Link;
    type Reply = Ino;
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<Ino, NsError> {
        link(txn, ctx, self)
    }
}
