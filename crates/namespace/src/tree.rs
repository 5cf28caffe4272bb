//! Trees: the roots of quota, snapshot and policy.

use kv::Txn;
use types::{Ino, NsPath, Timestamp, TreeId};

use crate::{Context, NsError, OpTag, Operation};

/// `T`: a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TreeRecord {
    /// Its number.
    pub tree: TreeId,
    /// Its root directory.
    pub root: Ino,
    /// When it was made.
    pub made: Timestamp,
}

/// Makes an empty directory the root of a new tree. The administrator may.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MakeTree {
    /// The path.
    pub path: NsPath,
}

/// See [`MakeTree`].
pub fn make_tree(txn: &mut dyn Txn, ctx: &Context, request: &MakeTree) -> Result<TreeId, NsError> {
    todo!("{request:?} {ctx:?} {}", txn.get(b"")?.is_some())
}

impl Operation for MakeTree {
    const TAG: OpTag = OpTag::MakeTree;
    type Reply = TreeId;
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<TreeId, NsError> {
        make_tree(txn, ctx, self)
    }
}
