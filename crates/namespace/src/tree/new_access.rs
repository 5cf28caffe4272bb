//! What a new inode inherits from its directory: the group if that is set-group-id, and the ACLs if that has a default ACL.

use kv::Read;

use crate::planted::{self, Bug};
use crate::tree::acl::Acl;
use crate::tree::node::Dir;
use crate::{Access, Actor, NsError};

/// Added to the mode of a new file or directory that the client asked no mode for. Like a umask, such a mode does not limit a default ACL.
pub const USUAL_MODE: u16 = 1 << 15;

fn plain(actor: &Actor, dir: &Dir, mode: u16) -> Access {
    let inherits = dir.access.mode & 0o2000 != 0;
    let group = if inherits { dir.access.group } else { actor.primary_group() };
    Access::new(actor.principal, group, mode & 0o7777)
}

/// Limits the default ACL by the mode, which a umask must not have limited before. `most` limits it instead if nobody asked for the mode.
fn inherit(access: &mut Access, default: Option<&Acl>, asked: u16, most: u16) {
    if let Some(default) = default {
        let mode = if asked & USUAL_MODE != 0 { most } else { access.mode };
        let mode = if planted::is(Bug::InheritedAclIgnoresMode) { 0o777 } else { mode };
        access.set_acl(&default.inherited(mode));
    }
}

/// The access of a file that `actor` creates in `dir` with `mode` (perhaps with [`USUAL_MODE`]).
pub(crate) fn access_of_file(read: &dyn Read, actor: &Actor, dir: &Dir, mode: u16) -> Result<Access, NsError> {
    let mut access = plain(actor, dir, mode);
    inherit(&mut access, dir.default_acl(read)?.as_deref(), mode, 0o666);
    access.keep_setgid_for(actor);
    Ok(access)
}

/// The access and the default ACL of a directory that `actor` creates in `dir` with `mode`.
pub(crate) fn access_of_directory(
    read: &dyn Read,
    actor: &Actor,
    dir: &Dir,
    mode: u16,
) -> Result<(Access, Option<Box<Acl>>), NsError> {
    let mut access = plain(actor, dir, mode);
    let default = dir.default_acl(read)?;
    inherit(&mut access, default.as_deref(), mode, 0o777);
    access.mode |= dir.access.mode & 0o2000;
    Ok((access, default.filter(|_| !planted::is(Bug::DirectoriesInheritNoDefaultAcl))))
}

/// The access of a symbolic link. Its mode has no meaning, and it has no ACL.
pub(crate) fn access_of_symlink(actor: &Actor, dir: &Dir) -> Access {
    plain(actor, dir, 0o777)
}
