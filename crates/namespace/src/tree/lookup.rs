//! Finding and describing what is at a path.

use kv::Read;
use types::{Ino, NsPath};

use crate::tree::node::{Dentry, locate, locate_entry};
use crate::tree::walk::{Last, resolve_existing};
use crate::trees::totals::with_latest_change;
use crate::{Actor, FileState, Inode, Kind, NsError, Want, permit};

fn find(read: &dyn Read, actor: &Actor, path: &NsPath, last: Last) -> Result<Inode, NsError> {
    let (parent, name, entry) = resolve_existing(read, actor, path, last)?;
    match entry {
        Dentry::Record(inode) => Ok(inode),
        other => Ok(locate_entry(read, parent.ino, &name, other)?.inode),
    }
}

/// What is at `path`, symbolic links followed (at most 40), with every directory on the way checked for passage.
pub fn lookup(read: &dyn Read, actor: &Actor, path: &NsPath) -> Result<Inode, NsError> {
    find(read, actor, path, Last::Follow)
}

/// As [`lookup`]; a directory with the times of its entries' latest change.
pub fn stat(read: &dyn Read, actor: &Actor, path: &NsPath) -> Result<Inode, NsError> {
    with_latest_change(read, find(read, actor, path, Last::Follow)?)
}

/// As [`stat`], but of a symbolic link itself.
pub fn stat_no_follow(read: &dyn Read, actor: &Actor, path: &NsPath) -> Result<Inode, NsError> {
    with_latest_change(read, find(read, actor, path, Last::Keep)?)
}

/// As [`stat`], by number; also of what is unlinked and held. No permission is needed: whoever has the number passed
/// a check to get it.
pub fn stat_ino(read: &dyn Read, ino: Ino) -> Result<Inode, NsError> {
    match locate(read, ino)? {
        Some(located) => with_latest_change(read, located.inode),
        None => Err(NsError::NotFound(format!("inode {ino}"), "inode")),
    }
}

/// As [`lookup`], of a file that is to be read: `r` is checked, directories are refused, and so is an interrupted file
/// unless `partial`. A file that is being written is given; its length is the store's to say.
pub fn open_read(read: &dyn Read, actor: &Actor, path: &NsPath, partial: bool) -> Result<Inode, NsError> {
    let inode = lookup(read, actor, path)?;
    match &inode.kind {
        Kind::Directory(_) => return Err(NsError::IsDirectory(path.to_string())),
        Kind::Symlink(_) => return Err(NsError::Loop(path.to_string())),
        Kind::File(content) => {
            permit(actor, &inode.access, Want::Read, &|| path.to_string())?;
            if matches!(content.state, FileState::Interrupted(_)) && !partial {
                return Err(NsError::Interrupted { path: path.to_string(), kept: content.len });
            }
        }
    }
    Ok(inode)
}
