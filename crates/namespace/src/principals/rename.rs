//! Gives another name to a user or a group. It keeps its number, so its files and its entries in ACLs stay as they are.

use kv::Txn;
use types::{PrincipalKind, PrincipalName};

use crate::context::operations;
use crate::planted::{self, Bug};
use crate::principals::table::{administrator, is_built_in, must_be_for, number_of, put_principal, shown};
use crate::{Context, NsError, keys};

/// Renames a user or a group. Only the administrator may.
///
/// The old name is free afterwards. If a credential still leads to it, [`crate::NamePrincipals`] gives it a new number: change the rules for credentials
/// as well.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RenamePrincipal {
    /// Whether a user or a group is renamed.
    pub kind: PrincipalKind,
    /// Its present name.
    pub from: PrincipalName,
    /// Its new name, which nobody of this kind may have.
    pub to: PrincipalName,
}

/// See [`RenamePrincipal`]. [`NsError::NotFound`] if nobody has the old name, [`NsError::Exists`] if somebody has the new one, [`NsError::Invalid`] if
/// the old one is built in.
pub fn rename_principal(txn: &mut dyn Txn, ctx: &Context, request: &RenamePrincipal) -> Result<(), NsError> {
    administrator(ctx)?;
    let RenamePrincipal { kind, from, to } = request;
    if is_built_in(from) {
        return Err(NsError::Invalid { what: shown(*kind, from), why: "it is built in and cannot be renamed" });
    }
    must_be_for(*kind, to)?;
    let id = number_of(txn, *kind, from)?.ok_or_else(|| NsError::NotFound(from.to_string(), kind.as_str()))?;
    if number_of(txn, *kind, to)?.is_some() && !planted::is(Bug::RenameTakesThePrincipalsName) {
        return Err(NsError::Exists(shown(*kind, to)));
    }
    if !planted::is(Bug::RenamedPrincipalKeepsItsOldName) {
        txn.delete(&keys::principal_name(*kind, from.as_str().as_bytes()));
    }
    put_principal(txn, *kind, to, id);
    Ok(())
}

operations! {
    RenamePrincipal, rename_principal -> ();
}
