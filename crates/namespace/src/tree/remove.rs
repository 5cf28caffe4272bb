//! Removing a file or a symbolic link.

use kv::{Prefetch, Txn};
use types::{Ino, NsPath, ObjectId};

use crate::ahead::Ahead;
use crate::groups::deletion::drop_inode;
use crate::quota::charge::{Delta, add, charge_in};
use crate::tree::node::{Dentry, Dir, Located, RecordLocation, get_record};
use crate::tree::path_limits::ByKind;
use crate::tree::walk::{Last, resolve_by_kind};
use crate::trees::totals::{Touch, adjust, difference};
use crate::{AccessKind, Context, Inode, NsError, OpTag, Operation, PathOperation, keys, permit};

/// The removed inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Removed {
    /// The inode.
    pub ino: Ino,
    /// Its object, if the removal queued its deletion. `None` while other links, holders or a writer need it.
    pub object: Option<ObjectId>,
}

/// Removes the name of a file or symbolic link. The object goes to the deletion queue when nothing else needs it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Remove {
    /// The path.
    pub path: NsPath,
}

/// See [`Remove`].
pub fn remove(txn: &mut dyn Txn, ctx: &Context, request: &Remove) -> Result<Removed, NsError> {
    let path = &request.path;
    let only_file = ByKind { file: PathOperation::ModifyFile, directory: PathOperation::ModifyFile };
    remove_by(txn, ctx, path, only_file)
}

/// Removes it if it is no directory. The limits of the actor must permit `wanted`, also before the error says that it is one.
pub(crate) fn remove_by(txn: &mut dyn Txn, ctx: &Context, path: &NsPath, wanted: ByKind) -> Result<Removed, NsError> {
    let (parent, name, entry) = resolve_by_kind(txn, &ctx.actor, path, Last::Keep, wanted)?;
    let inode = match entry {
        Dentry::Directory(_) => return Err(NsError::IsDirectory(path.to_string())),
        Dentry::Record(inode) => Some(inode),
        Dentry::Pointer(ino) => Some(get_record(txn, ino)?),
    };
    let owner = inode.as_ref().map_or(ctx.actor.principal, Inode::owner);
    permit_removal(ctx, &parent, owner, path)?;
    unlink(txn, ctx, parent.ino, &name)
}

/// What the removal of a file reads.
pub(crate) fn ahead_of_removal(path: &NsPath, ctx: &Context) -> Ahead {
    Ahead::walk(path).record().attributes().parent_changes(ctx).parent_usage(&ctx.actor)
}

/// As in POSIX, the last name of a path that loses or gets a name is not `.`.
pub(crate) fn ends_in_dot(path: &NsPath) -> NsError {
    let why = "a directory cannot be removed or moved by a path that ends in `.`; leave that out";
    NsError::Invalid { what: path.to_string(), why }
}

/// Checks `w` on the directory, and the sticky rule.
pub(crate) fn permit_removal(
    ctx: &Context,
    dir: &Dir,
    entry_owner: types::PrincipalId,
    path: &NsPath,
) -> Result<(), NsError> {
    if path.ends_in_dot() {
        return Err(ends_in_dot(path));
    }
    permit(&ctx.actor, &dir.access, AccessKind::Write, &|| path.to_string())?;
    crate::tree::permission::permit_unlink(&ctx.actor, &dir.access, entry_owner, &|| path.to_string())
}

/// Removes a name that is not a directory's. With the last name the inode goes.
pub(crate) fn unlink(txn: &mut dyn Txn, ctx: &Context, dir: Ino, name: &[u8]) -> Result<Removed, NsError> {
    let key = keys::dentry(dir, name);
    let mut inode = match crate::tree::node::get_dentry(txn, dir, name)? {
        Some(Dentry::Record(inode)) => inode,
        Some(Dentry::Pointer(ino)) => {
            txn.delete(&keys::link(ino, dir, name));
            get_record(txn, ino)?
        }
        _ => return Err(NsError::NotFound(name.escape_ascii().to_string(), "file")),
    };
    txn.delete(&key);
    let bytes = inode.content().map_or(0, |content| difference(0, content.len));
    adjust(txn, ctx, dir, -1, bytes, Touch::Entries)?;
    inode.nlink = inode.nlink.saturating_sub(1);
    if inode.nlink == 0 {
        let len = inode.content().map_or(0, |content| content.len);
        let charge = charge_in(txn, dir, &inode)?;
        add(txn, ctx, charge, Delta::one_file(len).taken())?;
    }
    inode.ctime = ctx.now;
    let ino = inode.ino;
    if inode.nlink > 0 || inode.holders > 0 {
        Located { inode, place: RecordLocation::Own }.store(txn, ctx);
        return Ok(Removed { ino, object: None });
    }
    let object = drop_inode(txn, ctx, &inode)?;
    Ok(Removed { ino, object })
}

impl Operation for Remove {
    const TAG: OpTag = OpTag::Remove;
    type Reply = Removed;
    fn ahead(&self, ctx: &Context) -> Vec<Prefetch> {
        ahead_of_removal(&self.path, ctx).list()
    }
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<Removed, NsError> {
        remove(txn, ctx, self)
    }
}
