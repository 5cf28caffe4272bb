//! Lookup of the inode at a path.

use kv::Read;
use types::{Ino, NsPath};

use crate::ahead::{Ahead, inode_ahead, tell};
use crate::tree::node::{Dentry, locate, locate_entry};
use crate::tree::walk::{Last, resolve_existing};
use crate::trees::totals::with_latest_change;
use crate::{AccessKind, Actor, FileState, Inode, Kind, NsError, PathOperation, permit, permit_list};

fn find(read: &dyn Read, actor: &Actor, path: &NsPath, last: Last, wanted: PathOperation) -> Result<Inode, NsError> {
    tell(read, &|| match wanted {
        PathOperation::Read => Ahead::walk(path).record().object().list(),
        _ => Ahead::walk(path).record().totals().list(),
    })?;
    let (parent, name, entry) = resolve_existing(read, actor, path, last, wanted)?;
    match entry {
        Dentry::Record(inode) => Ok(inode),
        other => Ok(locate_entry(read, parent.ino, &name, other)?.inode),
    }
}

/// The inode at `path`. Follows symbolic links (at most 40), and checks `x` on every directory on the way.
pub fn lookup(read: &dyn Read, actor: &Actor, path: &NsPath) -> Result<Inode, NsError> {
    lookup_for(read, actor, path, PathOperation::Stat)
}

/// Like [`lookup`], for an actor that wants to do `wanted` there. Of the rights to do that, it checks the limits of the actor's credential.
pub fn lookup_for(read: &dyn Read, actor: &Actor, path: &NsPath, wanted: PathOperation) -> Result<Inode, NsError> {
    find(read, actor, path, Last::Follow, wanted)
}

/// Like [`lookup`]. For a directory, the times include the latest change of its entries.
pub fn stat(read: &dyn Read, actor: &Actor, path: &NsPath) -> Result<Inode, NsError> {
    with_latest_change(read, lookup(read, actor, path)?)
}

/// Like [`stat`], but does not follow a symbolic link at the end of the path, unless a slash comes behind it.
pub fn stat_no_follow(read: &dyn Read, actor: &Actor, path: &NsPath) -> Result<Inode, NsError> {
    let last = if path.must_be_directory() { Last::Follow } else { Last::Keep };
    with_latest_change(read, find(read, actor, path, last, PathOperation::Stat)?)
}

/// Like [`stat`], by number. It also finds an inode that is unlinked and held. It checks no permission: a caller with the number has passed a check
/// to get it.
pub fn stat_ino(read: &dyn Read, ino: Ino) -> Result<Inode, NsError> {
    tell(read, &|| inode_ahead(ino))?;
    match locate(read, ino)? {
        Some(located) => with_latest_change(read, located.inode),
        None => Err(NsError::NotFound(format!("inode {ino}"), "inode")),
    }
}

/// Like [`lookup`], for a file that the caller wants to read. Checks `r`, refuses directories, and refuses an interrupted file unless `partial`. For
/// a file with an open write, ask the store for the length.
pub fn open_read(read: &dyn Read, actor: &Actor, path: &NsPath, partial: bool) -> Result<Inode, NsError> {
    let inode = lookup_for(read, actor, path, PathOperation::Read)?;
    match &inode.kind {
        Kind::Directory(_) => return Err(NsError::IsDirectory(path.to_string())),
        Kind::Symlink(_) => return Err(NsError::Loop(path.to_string())),
        Kind::File(content) => {
            permit(actor, &inode.access, AccessKind::Read, &|| path.to_string())?;
            if matches!(content.state, FileState::Interrupted(_)) && !partial {
                return Err(NsError::Interrupted { path: path.to_string(), kept: content.len });
            }
        }
    }
    Ok(inode)
}

/// Like [`lookup`], for a directory that the caller wants to list with [`crate::list`] or [`crate::list_visit`]. Checks the permission ([`permit_list`]).
pub fn open_list(read: &dyn Read, actor: &Actor, path: &NsPath, with_attributes: bool) -> Result<Inode, NsError> {
    let inode = lookup_for(read, actor, path, PathOperation::List)?;
    if !inode.is_dir() {
        return Err(NsError::NotDirectory(path.to_string()));
    }
    permit_list(actor, &inode.access, with_attributes, &|| path.to_string())?;
    Ok(inode)
}
