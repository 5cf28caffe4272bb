//! Listing a directory with attributes, a page at a time.

use std::ops::ControlFlow;

use kv::{Prefetch, Read, ScanOrder};
use types::{FileName, Ino};

use crate::ahead::{record_ahead, tell};
use crate::tree::node::{Dentry, Dir, decode_dentry, get_record};
use crate::trees::totals::with_latest_change;
use crate::{Access, AccessKind, Actor, Inode, NsError, keys, permit};

/// An entry of a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListEntry {
    /// Its name.
    pub name: FileName,
    /// Its inode, as [`crate::stat_no_follow`] returns it.
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

/// Most entries of one page.
const PAGE_MAX: usize = 65_536;
/// Entries that [`list_visit`] reads at a time.
const CHUNK: usize = 1_024;

/// Receives each entry; breaks to end.
type EntrySink<'a> = &'a mut dyn FnMut(&[u8], Inode) -> Result<ControlFlow<()>, NsError>;

/// Entries as read: their names in one buffer, and their values.
#[derive(Default)]
struct Chunk {
    names: Vec<u8>,
    entries: Vec<(usize, Dentry)>,
}

impl Chunk {
    /// Reads up to `limit` entries of `dir` after `after`. Returns whether more follow.
    fn fill(&mut self, read: &dyn Read, dir: Ino, after: Option<&[u8]>, limit: usize) -> Result<bool, NsError> {
        self.names.clear();
        self.entries.clear();
        let prefix = keys::dentry(dir, b"");
        let mut start = keys::dentry(dir, after.unwrap_or(b"")).to_vec();
        if after.is_some() {
            start.push(0); // the first key after `after`
        }
        let end = keys::end_of(&prefix);
        // One more, to see whether more follow.
        let most = u32::try_from(limit).unwrap_or(u32::MAX).saturating_add(1);
        tell(read, &|| vec![Prefetch::Range { start: start.clone(), end: end.clone(), most }])?;
        let (mut more, mut bad) = (false, None);
        read.scan(&start, &end, ScanOrder::Ascending, &mut |key, value| {
            if self.entries.len() == limit {
                more = true;
                return ControlFlow::Break(());
            }
            match decode_dentry(value) {
                Ok(dentry) => {
                    self.names.extend_from_slice(key.get(prefix.len()..).unwrap_or(b""));
                    self.entries.push((self.names.len(), dentry));
                    ControlFlow::Continue(())
                }
                Err(error) => {
                    bad = Some(error.at(key));
                    ControlFlow::Break(())
                }
            }
        })?;
        bad.map_or(Ok(more), Err)
    }

    /// Passes each entry to `visit`. Follows pointers here, outside the scan.
    fn visit(&mut self, read: &dyn Read, visit: EntrySink<'_>) -> Result<ControlFlow<()>, NsError> {
        tell(read, &|| {
            let elsewhere = self.entries.iter().filter(|(_, dentry)| !matches!(dentry, Dentry::Record(_)));
            elsewhere.flat_map(|(_, dentry)| record_ahead(dentry)).collect()
        })?;
        let mut begin = 0;
        for (end, dentry) in self.entries.drain(..) {
            let inode = match dentry {
                Dentry::Record(inode) => inode,
                Dentry::Pointer(ino) | Dentry::Directory(Dir { ino, .. }) => {
                    with_latest_change(read, get_record(read, ino)?)?
                }
            };
            if visit(&self.names[begin..end], inode)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            begin = end;
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// Denies a listing of a directory with this access. Names need `r`. Attributes of what they name need `x` too, as looking up each name would.
///
/// # Errors
///
/// [`NsError::Denied`].
pub fn permit_list(
    actor: &Actor,
    access: &Access,
    with_attributes: bool,
    what: &dyn Fn() -> String,
) -> Result<(), NsError> {
    permit(actor, access, AccessKind::Read, what)?;
    if with_attributes { permit(actor, access, AccessKind::Pass, what) } else { Ok(()) }
}

/// The entries of directory `dir` after the name `after`, at most `limit` (and at most 65,536). The name `after` need not exist any more. The caller
/// has checked the permission ([`crate::open_list`]).
pub fn list(read: &dyn Read, dir: Ino, after: Option<&FileName>, limit: usize) -> Result<ListPage, NsError> {
    let mut chunk = Chunk::default();
    let more = chunk.fill(read, dir, after.map(FileName::as_bytes), limit.min(PAGE_MAX))?;
    let mut entries = Vec::with_capacity(chunk.entries.len());
    let _ = chunk.visit(read, &mut |name, inode| {
        entries.push(ListEntry { name: FileName::new(name)?, inode });
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(ListPage { entries, more })
}

/// Like [`list`] without building a page. `visit` gets each name and inode in order until it breaks or `limit` is reached. Returns whether more
/// follow.
pub fn list_visit(
    read: &dyn Read,
    dir: Ino,
    after: Option<&[u8]>,
    limit: usize,
    visit: &mut dyn FnMut(&[u8], &Inode) -> ControlFlow<()>,
) -> Result<bool, NsError> {
    let mut chunk = Chunk::default();
    let mut after = after.map(<[u8]>::to_vec);
    let mut left = limit;
    loop {
        let more = chunk.fill(read, dir, after.as_deref(), left.min(CHUNK))?;
        left -= chunk.entries.len();
        if let [.., (begin, _), (end, _)] = chunk.entries.as_slice() {
            after = Some(chunk.names[*begin..*end].to_vec());
        } else if let [(end, _)] = chunk.entries.as_slice() {
            after = Some(chunk.names[..*end].to_vec());
        }
        if chunk.visit(read, &mut |name, inode| Ok(visit(name, &inode)))?.is_break() {
            return Ok(true);
        }
        if !more || left == 0 {
            return Ok(more);
        }
    }
}
