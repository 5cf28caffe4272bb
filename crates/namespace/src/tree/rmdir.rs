//! Removing an empty directory.

use std::ops::ControlFlow;

use kv::{Prefetch, Read, ScanOrder, Txn};
use types::{Ino, NsPath};

use crate::ahead::Ahead;
use crate::quota::charge::{Charge, Delta, add};
use crate::tree::node::{Dentry, Dir, get_directory};
use crate::tree::remove::permit_removal;
use crate::tree::walk::{Last, resolve_existing};
use crate::trees::totals::{self, Touch, adjust};
use crate::{Context, NsError, OpTag, Operation, PathOperation, keys};

/// Removes an empty directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rmdir {
    /// The path.
    pub path: NsPath,
}

/// See [`Rmdir`].
pub fn rmdir(txn: &mut dyn Txn, ctx: &Context, request: &Rmdir) -> Result<Ino, NsError> {
    let path = &request.path;
    if path.is_root() {
        return Err(NsError::Invalid { what: path.to_string(), why: "the root directory stays" });
    }
    let (parent, name, entry) = resolve_existing(txn, &ctx.actor, path, Last::Keep, PathOperation::ModifyDirectory)?;
    let Dentry::Directory(dir) = entry else {
        return Err(NsError::NotDirectory(path.to_string()));
    };
    permit_removal(ctx, &parent, dir.access.owner, path)?;
    if !is_empty(txn, dir.ino)? {
        return Err(NsError::NotEmpty(path.to_string()));
    }
    drop_directory(txn, ctx, &parent, &name, &dir)?;
    Ok(dir.ino)
}

/// Whether a directory has no entries. Uploads that will appear in it do not count: their commit finds the directory gone.
pub(crate) fn is_empty(read: &dyn Read, dir: Ino) -> Result<bool, NsError> {
    let prefix = keys::dentry(dir, b"");
    let mut empty = true;
    read.scan(&prefix, &keys::end_of(&prefix), ScanOrder::Ascending, &mut |_, _| {
        empty = false;
        ControlFlow::Break(())
    })?;
    Ok(empty)
}

/// Removes an empty directory and its name.
pub(crate) fn drop_directory(
    txn: &mut dyn Txn,
    ctx: &Context,
    parent: &Dir,
    name: &[u8],
    dir: &Dir,
) -> Result<(), NsError> {
    let (inode, record) = get_directory(txn, dir.ino)?;
    if dir.tree != parent.tree {
        txn.delete(&keys::tree(record.tree));
        crate::scan::delete_all(txn, &keys::quotas(record.tree))?;
    } else {
        add(txn, ctx, Charge::new(record.tree, &inode), Delta::one_file(0).taken())?;
    }
    txn.delete(&keys::dentry(parent.ino, name));
    txn.delete(&keys::inode(dir.ino));
    if inode.xattrs > 0 {
        crate::scan::delete_all(txn, &keys::xattr(dir.ino, b""))?;
    }
    crate::trees::policy::drop_policy(txn, dir.ino)?;
    totals::delete_all(txn, dir.ino)?;
    adjust(txn, ctx, parent.ino, -1, 0, Touch::Entries)
}

impl Operation for Rmdir {
    const TAG: OpTag = OpTag::Rmdir;
    type Reply = Ino;
    fn ahead(&self, ctx: &Context) -> Vec<Prefetch> {
        Ahead::walk(&self.path).record().attributes().emptied().parent_changes(ctx).parent_usage(&ctx.actor).list()
    }
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<Ino, NsError> {
        rmdir(txn, ctx, self)
    }
}
