//! Who callers are: users and groups have names outside of weir, and numbers in the namespace.

use std::collections::HashMap;
use std::sync::Arc;

use identity::TokenRights;
use namespace::{Durability, NamePrincipals, NsError, PathLimits, PathOperation, RenamePrincipal};
use parking_lot::Mutex;
use types::{NsPath, PrincipalId, PrincipalKind, PrincipalName};

use crate::caller::{Principal, Rights};
use crate::error::Error;
use crate::names::By;
use crate::service::{Role, Service};

/// The most names that are kept in memory. A listing of files by more users reads some of them again.
const KEPT_MAX: usize = 16_384;

/// Names that were looked up lately.
#[derive(Debug, Default)]
pub(crate) struct KeptNames(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    names: HashMap<PrincipalId, Arc<str>>,
    /// How often names have changed.
    changes: u64,
}

impl KeptNames {
    /// The name, or the number of changes so far: [`KeptNames::keep`] wants it.
    fn get(&self, id: PrincipalId) -> Result<Arc<str>, u64> {
        let kept = self.0.lock();
        kept.names.get(&id).cloned().ok_or(kept.changes)
    }

    /// Keeps a name that was read after [`KeptNames::get`], unless it may have changed since.
    fn keep(&self, id: PrincipalId, name: &Arc<str>, changes: u64) {
        let mut kept = self.0.lock();
        if kept.changes != changes {
            return;
        }
        if kept.names.len() >= KEPT_MAX {
            kept.names.clear();
        }
        kept.names.insert(id, Arc::clone(name));
    }

    /// A name has changed.
    fn forget(&self) {
        let mut kept = self.0.lock();
        kept.changes += 1;
        kept.names.clear();
    }
}

/// What the scopes of a token allow, as the namespace asks for it.
#[derive(Debug)]
struct TokenLimits(TokenRights);

impl PathLimits for TokenLimits {
    fn permit(&self, operation: PathOperation, path: &NsPath) -> Result<(), String> {
        self.0.allows(operation, path).map_err(|denial| denial.to_string())
    }
}

/// What a token allows, as the namespace asks for it.
pub(crate) fn limits_of(rights: TokenRights) -> Arc<dyn PathLimits> {
    Arc::new(TokenLimits(rights))
}

impl Service {
    /// The principal of a client that has shown to be the user `name` in `groups`. A user or a group that is new here gets a
    /// number, which it keeps. The client may do no more than `rights`.
    ///
    /// # Errors
    /// This node has no namespace, or it cannot be read or changed.
    pub fn principal(
        &self,
        name: &PrincipalName,
        groups: &[PrincipalName],
        rights: Option<TokenRights>,
    ) -> Result<Principal, Error> {
        let groups = groups.iter().map(|group| (PrincipalKind::Group, group.clone()));
        let names: Vec<_> = std::iter::once((PrincipalKind::User, name.clone())).chain(groups).collect();
        let failed = |error: NsError| Error::of_namespace(&format_args!("let {name} in"), &error);
        let limits = rights.map(limits_of);
        let known = self.names.read(|read| namespace::numbers_of(read, &names));
        let known = match (&self.role, known) {
            // Nobody can get a number here, so the active manager lets the client in.
            (Role::Standby(_), Ok(None) | Err(_)) => {
                return Ok(Principal { name: Some(name.as_str().into()), ..Principal::nobody() });
            }
            (_, known) => known.map_err(failed)?,
        };
        let numbers = match known {
            Some(numbers) => numbers,
            None => {
                let op = NamePrincipals { names };
                self.names.change_wait(By::service(), Durability::Synced, op).map_err(failed)?
            }
        };
        let Some((id, groups)) = numbers.split_first() else {
            return Err(Error::new(types::ErrorCode::Internal, format!("Cannot let {name} in: no number was given")));
        };
        Ok(Principal { id: *id, groups: groups.into(), rights: Rights::Full, limits, name: Some(name.as_str().into()) })
    }

    /// The name of a user or a group, or its number if it has none.
    #[must_use]
    pub fn shown_principal(&self, id: PrincipalId) -> Arc<str> {
        let changes = match self.kept_names.get(id) {
            Ok(name) => return name,
            Err(changes) => changes,
        };
        match self.names.read(|read| namespace::name_of(read, id)) {
            Ok(Some((_, name))) => {
                let name = name.as_str().into();
                // Only the active manager knows when a name changes.
                if !self.is_standby() {
                    self.kept_names.keep(id, &name, changes);
                }
                name
            }
            // A server of a cluster has no names, and a namespace that cannot be read says so elsewhere.
            Ok(None) | Err(_) => id.to_string().into(),
        }
    }

    /// The user or group for which `text` stands: its name or its number.
    ///
    /// # Errors
    /// Nobody is called that.
    pub fn principal_called(&self, kind: PrincipalKind, text: &str) -> Result<PrincipalId, Error> {
        if let Ok(number) = text.parse() {
            return Ok(PrincipalId(number));
        }
        let name = parsed(kind, text)?.1;
        let found = self.names.read(|read| namespace::number_of(read, kind, &name));
        let found = found.map_err(|error| Error::of_namespace(&format_args!("find the {kind} {name}"), &error))?;
        found.ok_or_else(|| {
            let text = format!("No {kind} is called {name} here: they get their numbers when they first log in, or by `weir identity add`");
            Error::new(types::ErrorCode::NotFound, text)
        })
    }

    /// Gives a number to a user or a group that has none, and returns it.
    ///
    /// # Errors
    /// The name cannot be one, or the namespace cannot be changed.
    pub fn add_principal(&self, kind: PrincipalKind, name: &str) -> Result<PrincipalId, Error> {
        let op = NamePrincipals { names: vec![parsed(kind, name)?] };
        let numbers = self.names.change_wait(By::service(), Durability::Synced, op);
        let numbers = numbers.map_err(|error| Error::of_namespace(&format_args!("add the {kind} {name}"), &error))?;
        numbers.first().copied().ok_or_else(|| Error::new(types::ErrorCode::Internal, "No number was given".to_owned()))
    }

    /// Gives another name to a user or a group. It keeps its number, and so its files.
    ///
    /// # Errors
    /// Nobody is called `from`, or somebody is called `to`, or the namespace cannot be changed.
    pub fn rename_principal(&self, kind: PrincipalKind, from: &str, to: &str) -> Result<(), Error> {
        let op = RenamePrincipal { kind, from: parsed(kind, from)?.1, to: parsed(kind, to)?.1 };
        let done = self.names.change_wait(By::service(), Durability::Synced, op);
        done.map_err(|error| Error::of_namespace(&format_args!("rename the {kind} {from}"), &error))?;
        self.kept_names.forget();
        Ok(())
    }

    /// At most `limit` users or groups after `after`, in the order of their names.
    ///
    /// # Errors
    /// The namespace cannot be read.
    pub fn principals(
        &self,
        kind: PrincipalKind,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(PrincipalName, PrincipalId)>, Error> {
        let after = after.map(|after| parsed(kind, after)).transpose()?.map(|(_, name)| name);
        let listed = self.names.read(|read| namespace::principals(read, kind, after.as_ref(), limit));
        listed.map_err(|error| Error::of_namespace(&format_args!("list the {kind}s"), &error))
    }
}

fn parsed(kind: PrincipalKind, text: &str) -> Result<(PrincipalKind, PrincipalName), Error> {
    let name =
        PrincipalName::parse(kind, text).map_err(|error| Error::new(types::ErrorCode::Invalid, error.to_string()))?;
    Ok((kind, name))
}
