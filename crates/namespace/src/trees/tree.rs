//! Trees: the roots of quota and snapshot.

use kv::{Read, Txn};
use types::{Ino, NsPath, PrincipalId, Timestamp, TreeId};

use crate::codec::{BadValue, Decoder, Encoder, field_u32};
use crate::quota::charge::{Charge, Delta, move_usage};
use crate::tree::node::{Dentry, get_directory, put_directory};
use crate::tree::rmdir::is_empty;
use crate::tree::walk::{Last, resolve_existing};
use crate::trees::owner::TreeOwner;
use crate::{Access, AccessKind, Context, Kind, NsError, OpTag, Operation, PathOperation, keys, permit};

/// `T`: a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TreeRecord {
    /// Its number.
    pub tree: TreeId,
    /// Its root directory.
    pub root: Ino,
    /// When it was made.
    pub made: Timestamp,
    /// Who decides about its policies and quotas beside the administrator.
    pub owner: Option<TreeOwner>,
}

// A reader that does not know the owner gives nobody rights.
const TAG_USER: u8 = 0x01;
const TAG_GROUP: u8 = 0x02;

impl TreeRecord {
    pub(crate) fn put(&self, txn: &mut dyn Txn) {
        let mut out = Encoder::new(24);
        out.u64(self.root.0);
        out.i64(self.made.0);
        match self.owner {
            None => {}
            Some(TreeOwner::User(user)) => out.tag_u32(TAG_USER, user.0),
            Some(TreeOwner::Group(group)) => out.tag_u32(TAG_GROUP, group.0),
        }
        txn.put(&keys::tree(self.tree), &out.0);
    }

    /// The record of `tree`.
    pub fn get(read: &dyn Read, tree: TreeId) -> Result<Option<Self>, NsError> {
        let key = keys::tree(tree);
        let decode = |value: &[u8]| -> Result<Self, BadValue> {
            let mut from = Decoder::new(value, "a tree")?;
            let mut record = Self { tree, root: Ino(from.u64()?), made: Timestamp(from.i64()?), owner: None };
            from.tags(|tag, field| {
                let id = || field_u32(field).map(PrincipalId);
                match tag {
                    TAG_USER => record.owner = Some(TreeOwner::User(id()?)),
                    TAG_GROUP => record.owner = Some(TreeOwner::Group(id()?)),
                    _ => return Ok(false),
                }
                Ok(true)
            })?;
            Ok(record)
        };
        read.get(&key)?.map(|value| decode(&value).map_err(|bad| bad.at(&key))).transpose()
    }
}

/// Makes an empty directory the root of a new tree. The tree gets the directory's inode number. Only the administrator may.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MakeTree {
    /// The path.
    pub path: NsPath,
}

/// See [`MakeTree`].
pub fn make_tree(txn: &mut dyn Txn, ctx: &Context, request: &MakeTree) -> Result<TreeId, NsError> {
    let path = &request.path;
    if path.is_root() {
        return Err(NsError::Invalid { what: "/".into(), why: "the root belongs to the default tree" });
    }
    let nobody_else = Access::new(PrincipalId(0), PrincipalId(0), 0);
    permit(&ctx.actor, &nobody_else, AccessKind::Own, &|| path.to_string())?;
    let (parent, _, entry) = resolve_existing(txn, &ctx.actor, path, Last::Keep, PathOperation::ModifyDirectory)?;
    let Dentry::Directory(dir) = entry else {
        return Err(NsError::NotDirectory(path.to_string()));
    };
    if !is_empty(txn, dir.ino)? {
        return Err(NsError::NotEmpty(path.to_string()));
    }
    if dir.tree != parent.tree {
        return Err(NsError::Exists(path.to_string()));
    }
    // Inode numbers are never reused and start above the fixed numbers, so they can number trees too.
    let tree = TreeId(dir.ino.0);
    let (mut inode, mut record) = get_directory(txn, dir.ino)?;
    record.tree = tree;
    inode.ctime = ctx.now;
    inode.kind = Kind::Directory(record.clone());
    put_directory(txn, ctx, &inode, &record);
    let charges = (Charge::new(parent.tree, &inode), Charge::new(tree, &inode));
    move_usage(txn, ctx, charges, Delta::one_file(0), &|| path.to_string())?;
    TreeRecord { tree, root: dir.ino, made: ctx.now, owner: None }.put(txn);
    Ok(tree)
}

impl Operation for MakeTree {
    const TAG: OpTag = OpTag::MakeTree;
    type Reply = TreeId;
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<TreeId, NsError> {
        make_tree(txn, ctx, self)
    }
}
