//! Listing a directory with attributes, a page at a time.

use std::ops::ControlFlow;

use kv::Read;
use types::{FileName, Ino};

use crate::{Inode, NsError};

/// One entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListEntry {
    /// Its name.
    pub name: FileName,
    /// What it is, as [`crate::stat_no_follow`] would say.
    pub inode: Inode,
}

/// Part of a listing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListPage {
    /// Entries in the order of their names' bytes.
    pub entries: Vec<ListEntry>,
    /// Whether there are more after the last one.
    pub more: bool,
}

/// The entries of directory `dir` after the name `after` (which need not exist any more), at most `limit` (and at most
/// 65,536). The caller has checked `r` on the directory ([`crate::permit`]).
pub fn list(read: &dyn Read, dir: Ino, after: Option<&FileName>, limit: usize) -> Result<ListPage, NsError> {
    todo!("{dir} {after:?} {limit} {}", read.get(b"")?.is_some())
}

/// As [`list`] without building a page: `visit` gets each name and inode in order until it breaks or `limit` is
/// reached. Says whether there are more.
pub fn list_visit(
    read: &dyn Read,
    dir: Ino,
    after: Option<&[u8]>,
    limit: usize,
    visit: &mut dyn FnMut(&[u8], &Inode) -> ControlFlow<()>,
) -> Result<bool, NsError> {
    let _ = visit(b"", &crate::stat_ino(read, dir)?);
    todo!("{after:?} {limit}")
}
