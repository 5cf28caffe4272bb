//! The only permission check: owner, group, mode. The administrator (principal 0) passes.

use std::sync::Arc;

use types::{ClientIdentity, PrincipalId};

use crate::NsError;

/// The principal that makes a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Actor {
    /// The principal that the credentials were mapped to; 0 is the administrator.
    pub principal: PrincipalId,
    /// Its groups (also numeric principals). The first one becomes the group of new inodes.
    pub groups: Arc<[PrincipalId]>,
}

impl Actor {
    /// The administrator, whom no rule denies anything.
    #[must_use]
    pub fn admin() -> Self {
        Self { principal: PrincipalId(0), groups: Arc::from([PrincipalId(0)]) }
    }

    /// Whether this is the administrator.
    #[must_use]
    pub fn is_admin(&self) -> bool {
        self.principal == PrincipalId(0)
    }

    /// The group of the inodes that this actor creates.
    #[must_use]
    pub fn primary_group(&self) -> PrincipalId {
        self.groups.first().copied().unwrap_or(self.principal)
    }
}

/// The fields of an inode that a check needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// The owner.
    pub owner: PrincipalId,
    /// The group.
    pub group: PrincipalId,
    /// Permission bits as in POSIX (`07777`).
    pub mode: u16,
}

/// The kind of access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessKind {
    /// Read a file or list a directory (`r`).
    Read,
    /// Write a file or change a directory's entries (`w`).
    Write,
    /// Pass through a directory (`x`).
    Pass,
    /// Change mode, group, or times: owners only.
    Own,
}

/// Denies an actor that names another principal's client. The administrator may, to end abandoned writes. `what` is for the message.
///
/// # Errors
///
/// [`NsError::Denied`].
pub fn permit_client(actor: &Actor, client: &ClientIdentity, what: &dyn Fn() -> String) -> Result<(), NsError> {
    if client.principal == actor.principal || actor.is_admin() {
        return Ok(());
    }
    let rule = format!("it belongs to a client of principal {}, you are {}", client.principal, actor.principal);
    Err(NsError::Denied { path: what(), rule })
}

/// Denies the request, and names the rule, unless `actor` may do `want` to an inode with `access`. `what` is for the message.
pub fn permit(actor: &Actor, access: &Access, want: AccessKind, what: &dyn Fn() -> String) -> Result<(), NsError> {
    if actor.is_admin() {
        return Ok(());
    }
    let owner = actor.principal == access.owner;
    let bit = match want {
        AccessKind::Own => {
            return if owner {
                Ok(())
            } else {
                let rule = format!("only its owner ({}) may, you are {}", access.owner, actor.principal);
                Err(NsError::Denied { path: what(), rule })
            };
        }
        AccessKind::Read => 4,
        AccessKind::Write => 2,
        AccessKind::Pass => 1,
    };
    let (shift, class) = if owner {
        (6, "owner")
    } else if actor.groups.contains(&access.group) {
        (3, "group")
    } else {
        (0, "others")
    };
    if access.mode >> shift & bit != 0 {
        return Ok(());
    }
    let letter = match want {
        AccessKind::Read => "r",
        AccessKind::Write => "w",
        AccessKind::Pass | AccessKind::Own => "x",
    };
    let rule = format!(
        "mode {:04o} of owner {} group {} gives {class} no {letter}, and you are {}",
        access.mode, access.owner, access.group, actor.principal
    );
    Err(NsError::Denied { path: what(), rule })
}

/// Denies the removal from a sticky directory, unless `actor` owns the directory or the entry.
pub(crate) fn permit_unlink(
    actor: &Actor,
    dir: &Access,
    entry_owner: PrincipalId,
    what: &dyn Fn() -> String,
) -> Result<(), NsError> {
    let sticky = dir.mode & 0o1000 != 0;
    if !sticky || actor.is_admin() || actor.principal == dir.owner || actor.principal == entry_owner {
        return Ok(());
    }
    let rule = format!("the directory is sticky, and neither it nor the entry (owner {entry_owner}) is yours");
    Err(NsError::Denied { path: what(), rule })
}
