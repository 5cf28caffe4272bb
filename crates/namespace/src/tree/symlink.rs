//! Symbolic links.

use kv::{Prefetch, Read, Txn};
use types::{Ino, NsPath, PATH_MAX};

use crate::ahead::{Ahead, tell};
use crate::quota::charge::{Charge, Delta, add_if_room};
use crate::tree::new_access::access_of_symlink;
use crate::tree::node::{locate_entry, new_inode, put_new};
use crate::tree::walk::{Last, resolve, resolve_existing};
use crate::trees::totals::{Touch, adjust};
use crate::{AccessKind, Actor, Context, Kind, NsError, OpTag, Operation, PathOperation, permit};

/// Returns the target of the symbolic link at `path`.
pub fn readlink(read: &dyn Read, actor: &Actor, path: &NsPath) -> Result<Vec<u8>, NsError> {
    tell(read, &|| Ahead::walk(path).record().list())?;
    let (parent, name, entry) = resolve_existing(read, actor, path, Last::Keep, PathOperation::Stat)?;
    match locate_entry(read, parent.ino, &name, entry)?.inode.kind {
        Kind::Symlink(target) => Ok(target),
        _ => Err(NsError::Invalid { what: path.to_string(), why: "it is not a symbolic link" }),
    }
}

/// Makes a symbolic link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Symlink {
    /// The path.
    pub path: NsPath,
    /// The target: 1 to 4096 bytes without NUL. It is not resolved now.
    pub target: Vec<u8>,
}

/// See [`Symlink`].
pub fn symlink(txn: &mut dyn Txn, ctx: &Context, request: &Symlink) -> Result<Ino, NsError> {
    let path = &request.path;
    if request.target.len() > PATH_MAX {
        return Err(types::NameError::PathTooLong(request.target.len()).into());
    }
    if request.target.is_empty() || request.target.contains(&0) {
        return Err(NsError::Invalid { what: path.to_string(), why: "a link's target has 1 to 4096 bytes and no NUL" });
    }
    let at = resolve(txn, &ctx.actor, path, Last::Keep, &[PathOperation::CreateFile])?.for_no_directory(path)?;
    if at.entry.is_some() {
        return Err(NsError::Exists(path.to_string()));
    }
    permit(&ctx.actor, &at.parent.access, AccessKind::Write, &|| path.to_string())?;
    let ino = ctx.ids.next_ino()?;
    let access = access_of_symlink(&ctx.actor, &at.parent);
    let inode = new_inode(ctx, ino, access, Kind::Symlink(request.target.clone()));
    put_new(txn, ctx, at.parent.ino, &at.name, &inode);
    adjust(txn, ctx, at.parent.ino, 1, 0, Touch::Entries)?;
    let charge = Charge::new(at.parent.tree, &inode);
    add_if_room(txn, ctx, charge, Delta::one_file(0), &|| path.to_string())?;
    Ok(ino)
}

impl Operation for Symlink {
    const TAG: OpTag = OpTag::Symlink;
    type Reply = Ino;
    fn ahead(&self, ctx: &Context) -> Vec<Prefetch> {
        Ahead::walk(&self.path).parent_changes(ctx).parent_usage(&ctx.actor).list()
    }
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<Ino, NsError> {
        symlink(txn, ctx, self)
    }
}
