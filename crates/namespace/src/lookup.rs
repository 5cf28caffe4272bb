//! Finding and describing what is at a path.

use kv::Read;
use types::{Ino, NsPath};

use crate::{Actor, Inode, NsError};

/// What is at `path`, symbolic links followed (at most 40), with every directory on the way checked for passage.
pub fn lookup(read: &dyn Read, actor: &Actor, path: &NsPath) -> Result<Inode, NsError> {
    todo!("{actor:?} {path} {}", read.get(b"")?.is_some())
}

/// As [`lookup`]; a directory with the times of its entries' latest change.
pub fn stat(read: &dyn Read, actor: &Actor, path: &NsPath) -> Result<Inode, NsError> {
    todo!("{actor:?} {path} {}", read.get(b"")?.is_some())
}

/// As [`stat`], but of a symbolic link itself.
pub fn stat_no_follow(read: &dyn Read, actor: &Actor, path: &NsPath) -> Result<Inode, NsError> {
    todo!("{actor:?} {path} {}", read.get(b"")?.is_some())
}

/// As [`stat`], by number; also of what is unlinked and held. No permission is needed: whoever has the number passed
/// a check to get it.
pub fn stat_ino(read: &dyn Read, ino: Ino) -> Result<Inode, NsError> {
    todo!("{ino} {}", read.get(b"")?.is_some())
}

/// As [`lookup`], of a file that is to be read: `r` is checked, directories are refused, and so is an interrupted file
/// unless `partial`. A file that is being written is given; its length is the store's to say.
pub fn open_read(read: &dyn Read, actor: &Actor, path: &NsPath, partial: bool) -> Result<Inode, NsError> {
    todo!("{actor:?} {path} {partial} {}", read.get(b"")?.is_some())
}
