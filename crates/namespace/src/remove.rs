//! Removing a file or a symbolic link.

use kv::Txn;
use types::{BodyId, Ino, NsPath};

use crate::{Context, NsError, OpTag, Operation};

/// What was removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Removed {
    /// The inode.
    pub ino: Ino,
    /// Its body, if its deletion was queued. `None` while other links, holders or a writer need it.
    pub body: Option<BodyId>,
}

/// Removes a file's or symbolic link's name. The body goes to the deletion queue when nothing needs it any more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Remove {
    /// The path.
    pub path: NsPath,
}

/// See [`Remove`].
pub fn remove(txn: &mut dyn Txn, ctx: &Context, request: &Remove) -> Result<Removed, NsError> {
    todo!("{request:?} {ctx:?} {}", txn.get(b"")?.is_some())
}

impl Operation for Remove {
    const TAG: OpTag = OpTag::Remove;
    type Reply = Removed;
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<Removed, NsError> {
        remove(txn, ctx, self)
    }
}
