//! Recounts a directory's totals from its entries.

use std::ops::ControlFlow;

use kv::{Read, ScanOrder, Txn};
use types::Ino;

use crate::tree::node::{Dentry, InodeValue, decode_dentry, get_inode_value, get_record};
use crate::tree::permission::permit_administrator;
use crate::trees::totals::set_all;
use crate::{Context, NsError, OpTag, Operation, keys};

/// Entries read at a time. It limits the memory for directories of any size.
const PAGE: usize = 1_024;

/// Sets a directory's totals to the sums of its entries. Only for `weir fsck` on a stopped node: the transaction reads all entries, and nothing else
/// may commit meanwhile. Only the administrator may.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecountTotals {
    /// The directory.
    pub dir: Ino,
}

/// See [`RecountTotals`]. Keeps the time of the entries' latest change as far as it can be read. Fails if an entry cannot be read, because then the
/// right totals are unknown.
pub fn recount_totals(txn: &mut dyn Txn, ctx: &Context, request: &RecountTotals) -> Result<(), NsError> {
    let dir = request.dir;
    permit_administrator(&ctx.actor, &|| format!("the totals of inode {dir}"))?;
    match get_inode_value(txn, dir)? {
        Some(InodeValue::Record(inode)) if inode.is_dir() => {}
        _ => return Err(NsError::NotFound(format!("inode {dir}"), "directory")),
    }
    let (entries, bytes) = count(txn, dir)?;
    set_all(txn, dir, entries, bytes)
}

/// The number of entries, and the bytes of their files.
fn count(read: &dyn Read, dir: Ino) -> Result<(i64, i64), NsError> {
    let prefix = keys::dentry(dir, b"");
    let (mut start, end) = (prefix.to_vec(), keys::end_of(&prefix));
    let (mut entries, mut bytes) = (0_i64, 0_i64);
    loop {
        // Reads a page first, and follows its pointers afterwards: the engine gets no other request during a scan.
        let mut page = Vec::with_capacity(PAGE);
        read.scan(&start, &end, ScanOrder::Ascending, &mut |key, value| {
            page.push((key.to_vec(), value.to_vec()));
            if page.len() == PAGE { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        for (key, value) in &page {
            let len = match decode_dentry(value).map_err(|bad| bad.at(key))? {
                Dentry::Record(inode) => inode.content().map_or(0, |content| content.len),
                Dentry::Pointer(ino) => get_record(read, ino)?.content().map_or(0, |content| content.len),
                Dentry::Directory(_) => 0,
            };
            entries += 1;
            // Wraps like the single additions do: only the sum has a meaning.
            bytes = bytes.wrapping_add(len.cast_signed());
        }
        match page.pop() {
            Some((last, _)) if page.len() + 1 == PAGE => {
                start = last;
                start.push(0);
            }
            _ => return Ok((entries, bytes)),
        }
    }
}

impl Operation for RecountTotals {
    const TAG: OpTag = OpTag::RecountTotals;
    type Reply = ();
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<(), NsError> {
        recount_totals(txn, ctx, self)
    }
}
