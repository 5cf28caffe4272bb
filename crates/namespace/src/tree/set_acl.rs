//! Changing ACLs.

use kv::{Prefetch, Txn};
use types::NsPath;

use crate::ahead::Ahead;
use crate::tree::acl::{ACL_NAMED_MAX, AclEdit, BadAcl};
use crate::tree::attributes::{find_own, store};
use crate::{Context, Kind, NsError, OpTag, Operation};

/// Changes the ACLs of a file or directory; the owner may. `getfacl` is [`crate::Access::acl`] and [`crate::Inode::default_acl`] of what
/// [`crate::stat`] returns, and [`crate::acl_text`].
///
/// As with chmod, the set-group-ID bit goes if the owner is no member of the file's group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SetAcl {
    /// The path. A symbolic link at its end is followed.
    pub path: NsPath,
    /// The change of the access ACL.
    pub access: Option<AclEdit>,
    /// The change of the default ACL, which only a directory has. Entries of owner, owning group and others that a new one lacks are those of the
    /// access ACL. The removal of entries makes no default ACL where there is none.
    pub default: Option<AclEdit>,
}

/// See [`SetAcl`].
pub fn set_acl(txn: &mut dyn Txn, ctx: &Context, request: &SetAcl) -> Result<(), NsError> {
    let SetAcl { path, access: of_access, default: of_default } = request;
    let refused = |bad: BadAcl| refused(path, bad);
    // Before the change is judged: what is wrong with it may depend on which users exist.
    let mut located = find_own(txn, ctx, path)?;
    let edits = [of_access, of_default];
    edits.into_iter().flatten().try_for_each(AclEdit::check).map_err(refused)?;
    let access = &mut located.inode.access;
    if let Some(edit) = of_access {
        access.set_acl(&access.acl().edited(edit).map_err(refused)?);
        access.keep_setgid_for(&ctx.actor);
    }
    match (&mut located.inode.kind, of_default) {
        (_, None) => {}
        (Kind::Directory(dir), Some(AclEdit::Clear)) => dir.default_acl = None,
        // A removal takes rights away. Without this, it would make a default ACL of the mode, which then replaces the umask of new files.
        (Kind::Directory(dir), Some(AclEdit::Remove(_))) if dir.default_acl.is_none() => {}
        (Kind::Directory(dir), Some(edit)) => {
            let before = dir.default_acl.take().map_or_else(|| access.acl().without_names(), |acl| *acl);
            dir.default_acl = Some(Box::new(before.edited(edit).map_err(refused)?));
        }
        // It has none, so nothing has to go.
        (_, Some(AclEdit::Clear)) => {}
        _ => {
            let why = "only a directory has a default ACL, and this is none";
            return Err(NsError::Invalid { what: path.to_string(), why });
        }
    }
    store(txn, ctx, located);
    Ok(())
}

fn refused(path: &NsPath, bad: BadAcl) -> NsError {
    match bad {
        BadAcl::TooMany => NsError::TooMany { what: "named entries of one ACL", bound: ACL_NAMED_MAX as u64 },
        BadAcl::Twice(tag) => {
            let why = "the change names this entry of the ACL twice";
            NsError::Invalid { what: format!("{path}: {tag}"), why }
        }
    }
}

impl Operation for SetAcl {
    const TAG: OpTag = OpTag::SetAcl;
    type Reply = ();
    fn ahead(&self, _: &Context) -> Vec<Prefetch> {
        Ahead::walk(&self.path).record().list()
    }
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<(), NsError> {
        set_acl(txn, ctx, self)
    }
}
