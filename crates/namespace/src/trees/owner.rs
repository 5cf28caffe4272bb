//! Owners of trees: a user or a group that may set the policies and quotas in a tree without being the administrator.
//!
//! The decision is here, in the transaction that makes the change: between a check and a later change, the owner could replace a directory of the tree
//! by a symbolic link that leads out of it.

use std::sync::Arc;

use kv::{Read, Txn};
use types::{Ino, NsPath, PrincipalId, TreeId};

use crate::codec::BadValue;
use crate::tree::node::{Dentry, Dir, get_dir, get_directory};
use crate::tree::path_of::DEPTH_MAX;
use crate::tree::walk::{Last, Walk, resolve_existing, walk};
use crate::trees::tree::TreeRecord;
use crate::{Access, AccessKind, Actor, Context, NsError, PathLimits, PathOperation, permit};

/// The owner of a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TreeOwner {
    /// A user.
    User(PrincipalId),
    /// Each member of a group.
    Group(PrincipalId),
}

impl TreeOwner {
    fn is(self, actor: &Actor) -> bool {
        match self {
            Self::User(user) => user == actor.principal,
            Self::Group(group) => actor.groups.contains(&group),
        }
    }
}

/// Gives a tree to a user or a group, or to nobody. Only the administrator may.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SetTreeOwner {
    /// The root of the tree; a symbolic link to it is followed.
    pub path: NsPath,
    /// The owner. `None`: only the administrator decides about the tree.
    pub owner: Option<TreeOwner>,
}

/// See [`SetTreeOwner`].
pub fn set_tree_owner(txn: &mut dyn Txn, ctx: &Context, request: &SetTreeOwner) -> Result<(), NsError> {
    let path = &request.path;
    permit(&ctx.actor, &Access::new(PrincipalId(0), PrincipalId(0), 0), AccessKind::Own, &|| path.to_string())?;
    let tree = tree_of_root(txn, &ctx.actor, path)?;
    let record = record(txn, tree)?;
    TreeRecord { owner: request.owner, ..record }.put(txn);
    Ok(())
}

crate::context::operations! {
    SetTreeOwner, set_tree_owner -> ();
}

fn record(read: &dyn Read, tree: TreeId) -> Result<TreeRecord, NsError> {
    let missing = || BadValue::Damaged("a directory is in this tree, which has no record").at(&crate::keys::tree(tree));
    TreeRecord::get(read, tree)?.ok_or_else(missing)
}

/// Whether the actor owns this tree, or one around it.
fn owns(read: &dyn Read, actor: &Actor, tree: TreeId) -> Result<bool, NsError> {
    let mut tree = tree;
    for _ in 0..DEPTH_MAX {
        let TreeRecord { root, owner, .. } = record(read, tree)?;
        if owner.is_some_and(|owner| owner.is(actor)) {
            return Ok(true);
        }
        if root == Ino::ROOT {
            return Ok(false);
        }
        let (_, directory) = get_directory(read, root)?;
        tree = get_dir(read, directory.parent)?.tree;
    }
    Err(NsError::TooMany { what: "trees around each other", bound: DEPTH_MAX as u64 })
}

/// The limits of a credential, asked about what is in a directory: an owner decides about that. A token never changes the directory itself at which its
/// issuer's part of the namespace begins, and that may be the root of the tree.
#[derive(Debug)]
struct Inside(Arc<dyn PathLimits>);

impl PathLimits for Inside {
    fn permit(&self, operation: PathOperation, path: &NsPath) -> Result<(), String> {
        let inside = NsPath::parse(&[path.as_bytes(), b"/*"].concat()).map_err(|error| error.to_string())?;
        self.0.permit(operation, &inside)
    }
}

/// The directory at `path`, if the actor decides about its policy and its quotas: as the administrator, or because it lies in a tree that the actor
/// owns. Symbolic links are followed, and where they lead counts. Modes and ACLs do not: an owner decides about the whole tree. The limits of the
/// actor's credential do.
///
/// # Errors
/// [`NsError::Denied`] for everything outside of the actor's trees, the same whether there is something or not.
pub(crate) fn administered_directory(read: &dyn Read, actor: &Actor, path: &NsPath) -> Result<Dir, NsError> {
    const WANTED: PathOperation = PathOperation::ModifyDirectory;
    if actor.is_admin() {
        let (_, _, entry) = resolve_existing(read, actor, path, Last::Follow, WANTED)?;
        return match entry {
            Dentry::Directory(dir) => Ok(dir),
            _ => Err(NsError::NotDirectory(path.to_string())),
        };
    }
    // Nobody is told about links: those that lead out of the actor's trees give the denial of below.
    let anybody = Actor {
        limits: actor.limits.clone().map(|limits| Arc::new(Inside(limits)) as Arc<dyn PathLimits>),
        ..Actor::admin()
    };
    anybody.permit_path(&[WANTED], path, path)?;
    let denied = || {
        let rule = "only an administrator decides there, or the owner of the tree that it lies in; `weir tree list` shows the owners";
        Err(NsError::Denied { path: path.to_string(), rule: rule.into() })
    };
    match walk(read, &anybody, path, Last::Follow, &[WANTED]) {
        Ok(Walk::Resolved(resolved)) => match resolved.entry {
            Some(Dentry::Directory(dir)) if owns(read, actor, dir.tree)? => Ok(dir),
            Some(Dentry::Record(_) | Dentry::Pointer(_)) if owns(read, actor, resolved.parent.tree)? => {
                Err(NsError::NotDirectory(path.to_string()))
            }
            None if owns(read, actor, resolved.parent.tree)? => {
                Err(NsError::NotFound(path.to_string(), "file or directory"))
            }
            _ => denied(),
        },
        Ok(Walk::MissingName(missing)) if owns(read, actor, missing.dir.tree)? => {
            Err(NsError::NotFound(path.to_string(), "directory on the way"))
        }
        // Only about the node itself is there something else to say.
        Err(error @ (NsError::Kv(_) | NsError::Damaged { .. } | NsError::Newer { .. } | NsError::Older { .. })) => {
            Err(error)
        }
        Ok(Walk::MissingName(_)) | Err(_) => denied(),
    }
}

/// Checks that the actor decides about the directory at `path`: as the administrator, or as the owner of the tree that it lies in.
///
/// # Errors
/// [`NsError::Denied`] for everything outside of the actor's trees.
pub fn permit_tree_owner(read: &dyn Read, actor: &Actor, path: &NsPath) -> Result<(), NsError> {
    administered_directory(read, actor, path).map(drop)
}

/// The tree whose root is at `path`. The actor is the administrator, or owns the tree or one around it.
///
/// # Errors
/// [`NsError::Invalid`]: it is a directory in a tree. [`NsError::Denied`]: it is not in a tree of the actor.
pub fn tree_of_root(read: &dyn Read, actor: &Actor, path: &NsPath) -> Result<TreeId, NsError> {
    let dir = administered_directory(read, actor, path)?;
    // A tree has the number of its root.
    if dir.tree.0 != dir.ino.0 {
        let why = "it is not the root of a tree; `weir tree create` makes an empty directory one, `weir tree list` shows them";
        return Err(NsError::Invalid { what: path.to_string(), why });
    }
    Ok(dir.tree)
}
