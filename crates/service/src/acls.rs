//! Owners and ACLs as text, with the names of users and groups.

use namespace::{AclEdit, AclTextError, Named, SetAcl, acl_text, parse_acl, parse_acl_names};
use types::{ErrorCode, NsPath, PrincipalId, PrincipalKind};

use crate::caller::Caller;
use crate::error::Error;
use crate::service::Service;

/// How a text changes the ACLs of a file or directory, as setfacl(1) does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AclChange {
    /// Sets the entries of the text, and removes those of other users and groups. A default ACL stays if the text gives no
    /// entry of one.
    Replace,
    /// Sets the entries of the text, and keeps the others.
    Modify,
    /// Removes the entries of the users and groups in the text.
    Remove,
    /// Removes all entries that are not in the mode; the text is empty.
    Clear,
    /// Removes the default ACL of a directory; the text is empty.
    ClearDefault,
}

impl AclChange {
    /// All of them, with the names that requests use.
    pub const ALL: [(&'static str, Self); 5] = [
        ("replace", Self::Replace),
        ("modify", Self::Modify),
        ("remove", Self::Remove),
        ("clear", Self::Clear),
        ("clear-default", Self::ClearDefault),
    ];
}

impl Service {
    /// The ACL of a file or directory, and the default ACL of a directory that has one, as text with the names of users and
    /// groups. Whoever may see the attributes may see this.
    ///
    /// # Errors
    /// The path does not exist, or `caller` may not know it.
    pub fn acl(&self, caller: &Caller, path: &NsPath) -> Result<String, Error> {
        let inode = self.inode_at(caller, &"show the ACL of", path)?;
        let name_of = |who: Named| {
            let (Named::User(id) | Named::Group(id)) = who;
            Some(self.shown_principal(id).to_string())
        };
        Ok(acl_text(&inode.access.acl(), inode.default_acl(), &name_of))
    }

    /// The change of ACLs that `text` describes.
    ///
    /// # Errors
    /// The text has another form, or names somebody who is not known.
    pub fn acl_edit(&self, path: NsPath, change: AclChange, text: &str) -> Result<SetAcl, Error> {
        let find = |name: &str, is_group: bool| {
            let kind = if is_group { PrincipalKind::Group } else { PrincipalKind::User };
            self.principal_called(kind, name).ok()
        };
        let wrong =
            |error: AclTextError| Error::new(ErrorCode::Invalid, format!("Cannot change the ACL of {path}: {error}"));
        let unless_empty = |entries: Vec<_>, edit: fn(Vec<_>) -> AclEdit| (!entries.is_empty()).then(|| edit(entries));
        let (access, default) = match change {
            AclChange::Replace | AclChange::Modify => {
                let entries = parse_acl(text, &find).map_err(wrong)?;
                let edit = if change == AclChange::Replace { AclEdit::Replace } else { AclEdit::Modify };
                (unless_empty(entries.access, edit), unless_empty(entries.default, edit))
            }
            AclChange::Remove => {
                let names = parse_acl_names(text, &find).map_err(wrong)?;
                let edit = |names: Vec<Named>| (!names.is_empty()).then_some(AclEdit::Remove(names));
                (edit(names.access), edit(names.default))
            }
            AclChange::Clear => (Some(AclEdit::Clear), None),
            AclChange::ClearDefault => (None, Some(AclEdit::Clear)),
        };
        if access.is_none() && default.is_none() {
            return Err(Error::new(ErrorCode::Invalid, format!("Cannot change the ACL of {path}: no entry was given")));
        }
        Ok(SetAcl { path, access, default })
    }

    /// The numbers of a new owner and a new group.
    ///
    /// # Errors
    /// Nobody is called that.
    pub fn new_owner(
        &self,
        owner: Option<&str>,
        group: Option<&str>,
    ) -> Result<(Option<PrincipalId>, Option<PrincipalId>), Error> {
        let called = |kind, text: Option<&str>| text.map(|text| self.principal_called(kind, text)).transpose();
        Ok((called(PrincipalKind::User, owner)?, called(PrincipalKind::Group, group)?))
    }
}
