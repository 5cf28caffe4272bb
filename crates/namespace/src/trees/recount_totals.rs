//! Recounts a directory's totals from its entries.

use kv::{Read, Txn};
use types::Ino;

use crate::scan::in_pages;
use crate::tree::node::{Dentry, InodeValue, decode_dentry, get_inode_value, get_record};
use crate::tree::permission::permit_administrator;
use crate::trees::totals::set_all;
use crate::{Context, NsError, OpTag, Operation, keys};

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
    let (mut entries, mut bytes) = (0_i64, 0_i64);
    let prefix = keys::dentry(dir, b"");
    in_pages(read, &prefix, &keys::end_of(&prefix), |key, value| {
        let len = match decode_dentry(value).map_err(|bad| bad.at(key))? {
            Dentry::Record(inode) => inode.content().map_or(0, |content| content.len),
            Dentry::Pointer(ino) => get_record(read, ino)?.content().map_or(0, |content| content.len),
            Dentry::Directory(_) => 0,
        };
        entries += 1;
        // Wraps like the single additions do: only the sum has a meaning.
        bytes = bytes.wrapping_add(len.cast_signed());
        Ok(())
    })?;
    Ok((entries, bytes))
}

impl Operation for RecountTotals {
    const TAG: OpTag = OpTag::RecountTotals;
    type Reply = ();
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<(), NsError> {
        recount_totals(txn, ctx, self)
    }
}
