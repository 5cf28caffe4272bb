//! Who administers by the settings: the values of `[[administrator]]`.

use link::admin::AdminRole;
use serde::{Deserialize, Serialize};
use types::{PrincipalKind, PrincipalName};

use crate::keys::Given;

/// The keys of an `[[administrator]]`.
pub const ADMINISTRATOR_KEYS: &[&str] = &["administrator.principal", "administrator.group", "administrator.role"];
/// Most of them. More are better a group.
const ADMINISTRATORS_MAX: usize = 1_000;

/// An `[[administrator]]` of the file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdministratorSettings {
    /// This principal.
    pub principal: Option<String>,
    /// Each principal in this group.
    pub group: Option<String>,
    /// What they may do.
    pub role: AdminRole,
}

/// A checked `[[administrator]]`: who has which role.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AdministratorRule {
    /// Whether it is about a principal or a group.
    pub kind: PrincipalKind,
    /// The name of the principal or group.
    pub name: PrincipalName,
    /// The role.
    pub role: AdminRole,
}

pub(crate) fn administrators(given: Given<'_>) -> Result<Vec<AdministratorRule>, String> {
    let Given::Administrators(tables) = given else {
        return Err("takes a table for each administrator: [[administrator]]".into());
    };
    if tables.len() > ADMINISTRATORS_MAX {
        return Err(format!("has {} tables; {ADMINISTRATORS_MAX} is the limit: use groups", tables.len()));
    }
    tables.iter().enumerate().map(|(index, table)| rule(index + 1, table)).collect()
}

fn rule(number: usize, table: &AdministratorSettings) -> Result<AdministratorRule, String> {
    let (kind, name) = match (&table.principal, &table.group) {
        (Some(name), None) => (PrincipalKind::User, name),
        (None, Some(name)) => (PrincipalKind::Group, name),
        _ => return Err(format!("cannot be used: number {number} must have either `principal` or `group`")),
    };
    let name = PrincipalName::parse(kind, name).map_err(|why| format!("cannot be used: number {number}: {why}"))?;
    Ok(AdministratorRule { kind, name, role: table.role })
}
