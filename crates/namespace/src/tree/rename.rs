//! Renaming.

use kv::{Prefetch, Read, Txn};
use types::{Ino, NsPath};

use crate::ahead::Ahead;
use crate::planted::{self, Bug};
use crate::quota::charge::{Charge, Delta, move_usage, permit_open_move};
use crate::tree::link::LINK_VALUE;
use crate::tree::node::{
    Dentry, Dir, encode_pointer, encode_record, get_directory, get_record, put_directory, put_new,
};
use crate::tree::path_limits::ByKind;
use crate::tree::remove::{ends_in_dot, permit_removal, unlink};
use crate::tree::rmdir::{drop_directory, is_empty};
use crate::tree::walk::{Last, Resolved, resolve_by_kind, resolve_unchecked};
use crate::trees::totals::{Touch, adjust, difference};
use crate::{AccessKind, Actor, Context, Kind, NsError, OpTag, Operation, PathOperation, keys, permit};

/// The renamed inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Renamed {
    /// The inode that moved.
    pub ino: Ino,
    /// The inode that it replaced.
    pub replaced: Option<Ino>,
}

/// Renames an inode.
/// - A file can replace a file or link, and a directory an empty directory.
/// - A directory cannot move below itself. To move it to another parent needs `w` on it too.
/// - Directories and files with several links stay in their tree.
///
/// The limits of a credential must permit the move at both names. A directory takes everything below it along, so both names need the right to change the
/// directory, which includes what is below. A replaced file needs the right to change it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rename {
    /// The current name. A symbolic link itself is moved.
    pub from: NsPath,
    /// The new name.
    pub to: NsPath,
    /// Whether the rename may replace an inode at the new name.
    pub replace: bool,
}

/// See [`Rename`].
pub fn rename(txn: &mut dyn Txn, ctx: &Context, request: &Rename) -> Result<Renamed, NsError> {
    let (from_path, to_path) = (&request.from, &request.to);
    if from_path.is_root() || to_path.is_root() {
        return Err(NsError::Invalid { what: "/".into(), why: "the root directory stays where it is" });
    }
    let either = [PathOperation::RenameFile, PathOperation::ModifyFile, PathOperation::ModifyDirectory];
    ctx.actor.permit_path(&either, to_path, to_path)?;
    let unlimited = || Actor { limits: None, ..ctx.actor.clone() };
    let forgetful = planted::is(Bug::LimitsForgetTheOldName).then(unlimited);
    let actor = forgetful.as_ref().unwrap_or(&ctx.actor);
    let (from, from_name, entry) = resolve_by_kind(txn, actor, from_path, Last::Keep, ByKind::MOVE)?;
    let ino = entry.ino();
    let moves_directory = matches!(entry, Dentry::Directory(_));
    let owner = match &entry {
        Dentry::Record(inode) => inode.owner(),
        Dentry::Pointer(ino) => get_record(txn, *ino)?.owner(),
        Dentry::Directory(dir) => dir.access.owner,
    };
    permit_removal(ctx, &from, owner, from_path)?;
    let (free, taken) = (ByKind::MOVE.of(moves_directory), ByKind::MODIFY.of(moves_directory));
    let to = resolve_unchecked(txn, &ctx.actor, to_path, Last::Keep, &[free, taken])?;
    // As in POSIX, this is the first reason to refuse, whatever has the new name.
    if moves_directory && !planted::is(Bug::RenameIntoItself) {
        refuse_into_itself(txn, ino, to.parent.ino, to_path)?;
    }
    let to = to.checked(to_path)?;
    if to_path.ends_in_dot() {
        return Err(ends_in_dot(to_path));
    }
    if to.only_directory && to.entry.is_none() && !moves_directory {
        return Err(NsError::NotDirectory(format!("{from_path}, which was to be moved to {to_path}")));
    }
    permit(&ctx.actor, &to.parent.access, AccessKind::Write, &|| to_path.to_string())?;
    // As in Linux: another parent changes the directory itself, its `..`.
    if let Dentry::Directory(dir) = &entry
        && from.ino != to.parent.ino
    {
        permit(&ctx.actor, &dir.access, AccessKind::Write, &|| from_path.to_string())?;
    }
    if from.ino == to.parent.ino && from_name == to.name {
        return Ok(Renamed { ino, replaced: None });
    }
    check_trees(txn, &from, &to.parent, &entry, to_path)?;
    let replaced = match &to.entry {
        None => {
            to.place.permit(&ctx.actor, &[free], to_path)?;
            None
        }
        Some(_) if !request.replace => return Err(NsError::Exists(to_path.to_string())),
        // Both are names of one file. As in POSIX, nothing happens.
        Some(there) if there.ino() == ino => return Ok(Renamed { ino, replaced: None }),
        Some(there) => {
            to.place.permit(&ctx.actor, &[taken], to_path)?;
            Some(make_room(txn, ctx, &entry, &to, there, to_path)?)
        }
    };
    move_entry(txn, ctx, (&from, &from_name, from_path), (&to.parent, &to.name, to_path), entry)?;
    Ok(Renamed { ino, replaced })
}

/// Walks from the new parent up to the root. The moving directory must not be on that path.
fn refuse_into_itself(read: &dyn Read, moving: Ino, mut dir: Ino, path: &NsPath) -> Result<(), NsError> {
    loop {
        if dir == moving {
            return Err(NsError::Invalid { what: path.to_string(), why: "a directory cannot be moved into itself" });
        }
        if dir == Ino::ROOT {
            return Ok(());
        }
        dir = get_directory(read, dir)?.1.parent;
    }
}

fn check_trees(read: &dyn Read, from: &Dir, to: &Dir, entry: &Dentry, path: &NsPath) -> Result<(), NsError> {
    let stays = match entry {
        // The root of a tree keeps its own tree. It may move only within the surrounding tree.
        Dentry::Record(_) => true,
        Dentry::Directory(_) => from.tree == to.tree,
        Dentry::Pointer(ino) => from.tree == to.tree || get_record(read, *ino)?.nlink == 1,
    };
    if stays { Ok(()) } else { Err(NsError::CrossTree(path.to_string())) }
}

/// Removes the inode at the new name, if the moving inode may replace it.
fn make_room(
    txn: &mut dyn Txn,
    ctx: &Context,
    entry: &Dentry,
    to: &Resolved,
    there: &Dentry,
    path: &NsPath,
) -> Result<Ino, NsError> {
    let moves_directory = matches!(entry, Dentry::Directory(_));
    let owner = match there {
        Dentry::Record(inode) => inode.owner(),
        Dentry::Pointer(ino) => get_record(txn, *ino)?.owner(),
        Dentry::Directory(dir) => dir.access.owner,
    };
    match there {
        Dentry::Directory(_) if !moves_directory => return Err(NsError::IsDirectory(path.to_string())),
        Dentry::Record(_) | Dentry::Pointer(_) if moves_directory => {
            return Err(NsError::NotDirectory(path.to_string()));
        }
        _ => {}
    }
    permit_removal(ctx, &to.parent, owner, path)?;
    match there {
        Dentry::Directory(dir) => {
            if !is_empty(txn, dir.ino)? {
                return Err(NsError::NotEmpty(path.to_string()));
            }
            drop_directory(txn, ctx, &to.parent, &to.name, dir)?;
        }
        _ => {
            unlink(txn, ctx, to.parent.ino, &to.name)?;
        }
    }
    Ok(there.ino())
}

/// Moves the entry, and updates the pointer back to it.
fn move_entry(
    txn: &mut dyn Txn,
    ctx: &Context,
    (from, from_name, from_path): (&Dir, &[u8], &NsPath),
    (to, to_name, to_path): (&Dir, &[u8], &NsPath),
    entry: Dentry,
) -> Result<(), NsError> {
    let ino = entry.ino();
    if from.tree != to.tree && !planted::is(Bug::MovedUsageStays) {
        let inode = match &entry {
            Dentry::Record(inode) => Some(inode.clone()),
            Dentry::Pointer(ino) => Some(get_record(txn, *ino)?),
            // The root of a tree counts in its own.
            Dentry::Directory(_) => None,
        };
        if let Some(inode) = inode {
            let delta = Delta::one_file(inode.content().map_or(0, |content| content.len));
            let charges = (Charge::new(from.tree, &inode), Charge::new(to.tree, &inode));
            permit_open_move(txn, charges, &inode, from_path)?;
            move_usage(txn, ctx, charges, delta, &|| to_path.to_string())?;
        }
    }
    txn.delete(&keys::dentry(from.ino, from_name));
    let bytes = match entry {
        Dentry::Record(mut inode) => {
            inode.ctime = ctx.now;
            let bytes = inode.content().map_or(0, |content| content.len);
            put_new(txn, ctx, to.ino, to_name, &inode);
            bytes
        }
        Dentry::Pointer(_) => {
            let mut inode = get_record(txn, ino)?;
            inode.ctime = ctx.now;
            txn.put(&keys::inode(ino), &encode_record(&inode, ctx.epoch));
            txn.put(&keys::dentry(to.ino, to_name), &encode_pointer(ino));
            txn.delete(&keys::link(ino, from.ino, from_name));
            txn.put(&keys::link(ino, to.ino, to_name), LINK_VALUE);
            inode.content().map_or(0, |content| content.len)
        }
        Dentry::Directory(_) => {
            let (mut inode, mut record) = get_directory(txn, ino)?;
            inode.ctime = ctx.now;
            record.parent = to.ino;
            record.name = to_name.to_vec();
            inode.kind = Kind::Directory(record.clone());
            put_directory(txn, ctx, &inode, &record);
            0
        }
    };
    let bytes = difference(bytes, 0);
    adjust(txn, ctx, from.ino, -1, -bytes, Touch::Entries)?;
    adjust(txn, ctx, to.ino, 1, bytes, Touch::Entries)
}

impl Operation for Rename {
    const TAG: OpTag = OpTag::Rename;
    type Reply = Renamed;
    fn ahead(&self, ctx: &Context) -> Vec<Prefetch> {
        let to = Ahead::walk(&self.to).record().attributes().emptied().ancestors().parent_changes(ctx);
        let from = Ahead::walk(&self.from).record().parent_changes(ctx);
        from.more(to.parent_usage(&ctx.actor).list()).list()
    }
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<Renamed, NsError> {
        rename(txn, ctx, self)
    }
}
