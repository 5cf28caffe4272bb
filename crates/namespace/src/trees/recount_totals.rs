//! A directory's totals, counted anew from its entries.

use std::ops::ControlFlow;

use kv::{Read, ScanOrder, Txn};
use types::{Ino, PrincipalId};

use crate::tree::node::{Dentry, InodeValue, decode_dentry, get_inode_value, get_record};
use crate::trees::totals::set_all;
use crate::{Access, Context, NsError, OpTag, Operation, Want, keys, permit};

/// Entries read at a time: whatever the directory holds, memory holds this many.
const PAGE: usize = 1_024;

/// Sets a directory's totals to what its entries say. For `weir fsck` alone, on a node that serves nobody: the
/// transaction reads all entries, and nobody else commits meanwhile. The administrator may.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecountTotals {
    /// The directory.
    pub dir: Ino,
}

/// See [`RecountTotals`]. The time of the entries' latest change stays as far as it can be read. Refused where an entry
/// cannot be read, because then nobody knows the right totals.
pub fn recount_totals(txn: &mut dyn Txn, ctx: &Context, request: &RecountTotals) -> Result<(), NsError> {
    let dir = request.dir;
    let root = Access { owner: PrincipalId(0), group: PrincipalId(0), mode: 0 };
    permit(&ctx.actor, &root, Want::Own, &|| format!("the totals of inode {dir}"))?;
    match get_inode_value(txn, dir)? {
        Some(InodeValue::Record(inode)) if inode.is_dir() => {}
        _ => return Err(NsError::NotFound(format!("inode {dir}"), "directory")),
    }
    let (entries, bytes) = count(txn, dir)?;
    set_all(txn, dir, entries, bytes)
}

/// The number of entries, and the bytes of the files that they mean.
fn count(read: &dyn Read, dir: Ino) -> Result<(i64, i64), NsError> {
    let prefix = keys::dentry(dir, b"");
    let (mut start, end) = (prefix.to_vec(), keys::end_of(&prefix));
    let (mut entries, mut bytes) = (0_i64, 0_i64);
    loop {
        // A page first and the files of its pointers afterwards: no engine is asked while it scans.
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
            // As they are added up one by one: only the sum means something.
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
