//! Gives numbers to users and groups that have none yet.

use kv::Txn;
use types::{PrincipalId, PrincipalKind, PrincipalName};

use crate::context::operations;
use crate::planted::{self, Bug};
use crate::principals::table::{administrator, counts, must_be_for, number_of, put_principal};
use crate::{Context, NsError};

/// The most names of one request: a user with 256 groups.
pub const NAMES_OF_REQUEST_MAX: usize = 257;

/// Returns the numbers of users and groups in the order of `names`, and gives a number to each that has none. The server makes this change itself, as the
/// administrator, for credentials that it has verified. Nobody else may.
///
/// Ask [`crate::numbers_of`] first: it changes nothing, and usually all have numbers.
///
/// The name `admin` stands for 0 here too. A caller that derives names from credentials must itself decide which credentials may become `admin`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamePrincipals {
    /// At most [`NAMES_OF_REQUEST_MAX`].
    pub names: Vec<(PrincipalKind, PrincipalName)>,
}

/// See [`NamePrincipals`]. [`NsError::TooMany`] if the request or the table is full.
pub fn name_principals(
    txn: &mut dyn Txn,
    ctx: &Context,
    request: &NamePrincipals,
) -> Result<Vec<PrincipalId>, NsError> {
    administrator(ctx)?;
    if request.names.len() > NAMES_OF_REQUEST_MAX {
        let what = "users and groups to name in one request";
        return Err(NsError::TooMany { what, bound: NAMES_OF_REQUEST_MAX as u64 });
    }
    let before = counts(txn)?;
    let (mut after, mut found) = (before, Vec::with_capacity(request.names.len()));
    for (kind, name) in &request.names {
        let mut known = number_of(txn, *kind, name)?;
        if known.is_none() && planted::is(Bug::GroupGetsTheNumberOfAUser) {
            known = number_of(txn, PrincipalKind::User, name)?;
        }
        let id = match known {
            Some(id) => id,
            None => {
                must_be_for(*kind, name)?;
                let id = after.take()?;
                put_principal(txn, *kind, name, id);
                id
            }
        };
        found.push(id);
    }
    if after != before && !planted::is(Bug::PrincipalNumberIsGivenTwice) {
        after.put(txn);
    }
    Ok(found)
}

operations! {
    NamePrincipals, name_principals -> Vec<PrincipalId>;
}
