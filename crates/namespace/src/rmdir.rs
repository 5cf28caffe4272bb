//! Removing an empty directory.

use kv::Txn;
use types::{Ino, NsPath};

use crate::{Context, NsError, OpTag, Operation};

/// Removes an empty directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rmdir {
    /// The path.
    pub path: NsPath,
}

/// See [`Rmdir`].
pub fn rmdir(txn: &mut dyn Txn, ctx: &Context, request: &Rmdir) -> Result<Ino, NsError> {
    todo!("{request:?} {ctx:?} {}", txn.get(b"")?.is_some())
}

impl Operation for Rmdir {
    const TAG: OpTag = OpTag::Rmdir;
    type Reply = Ino;
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<Ino, NsError> {
        rmdir(txn, ctx, self)
    }
}
