//! Owners and ACLs as text, with the names of users and groups.

use namespace::{AclEdit, AclTextError, Chown, Named, Operation, SetAcl, acl_text, parse_acl, parse_acl_names};
use types::{ErrorCode, NsPath, PrincipalId, PrincipalKind};

use crate::audit::About;
use crate::caller::{Caller, NOBODY};
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

    /// The change of ACLs that `text` describes, for `caller`.
    ///
    /// # Errors
    /// The text has another form, or names somebody who is not known. A caller that may not change the ACLs at `path` learns
    /// only that.
    pub fn acl_edit(&self, caller: &Caller, path: NsPath, change: AclChange, text: &str) -> Result<SetAcl, Error> {
        self.parsed_acl_edit(path.clone(), change, text).map_err(|wrong| {
            let (about, probe) =
                (About::change("set-acl", &path), SetAcl { path: path.clone(), access: None, default: None });
            self.unless_denied(caller, about, "change the ACL of", probe, wrong)
        })
    }

    fn parsed_acl_edit(&self, path: NsPath, change: AclChange, text: &str) -> Result<SetAcl, Error> {
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

    /// The numbers of a new owner and a new group for `path`, for `caller`.
    ///
    /// # Errors
    /// Nobody is called that. A caller that may not give the file away learns only that.
    pub fn new_owner(
        &self,
        caller: &Caller,
        path: &NsPath,
        owner: Option<&str>,
        group: Option<&str>,
    ) -> Result<(Option<PrincipalId>, Option<PrincipalId>), Error> {
        let called = |kind, text: Option<&str>| text.map(|text| self.principal_called(kind, text));
        let (owner, group) = (called(PrincipalKind::User, owner), called(PrincipalKind::Group, group));
        let number = |found: &Option<Result<PrincipalId, Error>>| {
            found.as_ref().map(|found| found.as_ref().copied().unwrap_or(NOBODY))
        };
        let probe = Chown { path: path.clone(), owner: number(&owner), group: number(&group) };
        let both = || Ok((owner.transpose()?, group.transpose()?));
        both().map_err(|unknown| {
            self.unless_denied(caller, About::change("chown", path), "change the owner of", probe, unknown)
        })
    }

    /// The error of a request that names somebody who is not known, or has another fault. Who may not make the change gets
    /// the denial instead, as if the request had no fault: so nobody can try which users there are. `probe` is the change
    /// without the fault, and `verb` names it.
    fn unless_denied<O: Operation + Send + 'static>(
        &self,
        caller: &Caller,
        about: About<'_>,
        verb: &'static str,
        probe: O,
        fault: Error,
    ) -> Error {
        if let Some(elsewhere) = self.names_elsewhere() {
            return elsewhere;
        }
        let denied = caller.may_change(&verb).and_then(|()| {
            let rehearsed = self.names.rehearse(&caller.actor(), probe);
            rehearsed.map_err(|error| Error::of_namespace(&verb, &error))
        });
        let error = denied.err().unwrap_or(fault);
        self.audit_refused(caller, about, &error);
        error
    }
}
