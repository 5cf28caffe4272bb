//! Hard links.

use kv::{Prefetch, Txn};
use types::{Ino, NsPath};

use crate::ahead::Ahead;
use crate::tree::node::{Dentry, Located, RecordLocation, encode_pointer, locate_entry};
use crate::tree::walk::{Last, resolve, resolve_existing};
use crate::trees::totals::{Touch, adjust, difference};
use crate::{AccessKind, Context, NsError, OpTag, Operation, PathOperation, keys, permit};

/// Gives a file (or symbolic link) one more name in the same tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Link {
    /// The file.
    pub existing: NsPath,
    /// The additional name.
    pub new: NsPath,
}

/// The value of an `L` key.
pub(crate) const LINK_VALUE: &[u8] = &[crate::codec::VERSION];

/// See [`Link`].
pub fn link(txn: &mut dyn Txn, ctx: &Context, request: &Link) -> Result<Ino, NsError> {
    let (of_existing, of_new) = (PathOperation::Link, PathOperation::CreateFile);
    ctx.actor.permit_path(&[of_new], &request.new, &request.new)?;
    let (from, from_name, entry) = resolve_existing(txn, &ctx.actor, &request.existing, Last::Keep, of_existing)?;
    if matches!(entry, Dentry::Directory(_)) {
        return Err(NsError::IsDirectory(request.existing.to_string()));
    }
    let to = resolve(txn, &ctx.actor, &request.new, Last::Keep, &[of_new])?.for_no_directory(&request.new)?;
    if to.entry.is_some() {
        return Err(NsError::Exists(request.new.to_string()));
    }
    permit(&ctx.actor, &to.parent.access, AccessKind::Write, &|| request.new.to_string())?;
    if from.tree != to.parent.tree {
        return Err(NsError::CrossTree(request.new.to_string()));
    }
    let mut file = locate_entry(txn, from.ino, &from_name, entry)?;
    if file.inode.nlink >= ctx.limits.links_max {
        return Err(NsError::TooMany { what: "links of one file", bound: u64::from(ctx.limits.links_max) });
    }
    let ino = file.inode.ino;
    let pointer = encode_pointer(ino);
    if let RecordLocation::Entry(parent, name) = &file.place {
        // The second name moves the record under `I`. From now on all names are pointers.
        txn.put(&keys::dentry(*parent, name), &pointer);
        txn.put(&keys::link(ino, *parent, name), LINK_VALUE);
    }
    file.inode.nlink += 1;
    file.inode.ctime = ctx.now;
    let file = Located { place: RecordLocation::Own, ..file };
    file.store(txn, ctx);
    txn.put(&keys::dentry(to.parent.ino, &to.name), &pointer);
    txn.put(&keys::link(ino, to.parent.ino, &to.name), LINK_VALUE);
    let bytes = file.inode.content().map_or(0, |content| difference(content.len, 0));
    adjust(txn, ctx, to.parent.ino, 1, bytes, Touch::Entries)?;
    Ok(ino)
}

impl Operation for Link {
    const TAG: OpTag = OpTag::Link;
    type Reply = Ino;
    fn ahead(&self, ctx: &Context) -> Vec<Prefetch> {
        let new = Ahead::walk(&self.new).parent_changes(ctx);
        Ahead::walk(&self.existing).record().more(new.list()).list()
    }
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<Ino, NsError> {
        link(txn, ctx, self)
    }
}
