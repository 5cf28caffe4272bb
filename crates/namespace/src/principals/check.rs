//! The rules of the table of principals, for [`crate::check`].

use kv::Read;
use types::PrincipalId;

use crate::codec::BadValue;
use crate::principals::table::{FIRST_NAMED_PRINCIPAL, decode_name, decode_number, is_built_in, kind_of, parse_name};
use crate::{NsError, keys};

/// Where the name or the number begins in a key.
const BEGINS: usize = 2;

/// Whether the key has a principal by its number. Each principal has one such key.
pub(crate) fn is_by_number(key: &[u8]) -> bool {
    key.get(1) == Some(&0)
}

/// The rules that one record (`E`) breaks. Numbers from `unnamed` on have not been given yet.
///
/// # Errors
/// The record, or the one that it leads to, cannot be decoded.
pub(crate) fn broken_rules(
    read: &dyn Read,
    key: &[u8],
    value: &[u8],
    unnamed: PrincipalId,
) -> Result<Vec<&'static str>, NsError> {
    let rest = key.get(BEGINS..).unwrap_or_default();
    let rules = if is_by_number(key) {
        let bad = BadValue::Damaged("the key of a user's or a group's number has a wrong length");
        let id = rest.try_into().map(|id| PrincipalId(u32::from_be_bytes(id))).map_err(|_| bad.at(key))?;
        let (kind, name) = decode_name(value).map_err(|bad| bad.at(key))?;
        let by_name = read.get(&keys::principal_name(kind, name.as_str().as_bytes()))?;
        let leads_back = by_name.map(|value| decode_number(&value)).transpose().map_err(|bad| bad.at(key))? == Some(id);
        vec![
            (id >= FIRST_NAMED_PRINCIPAL, "a number that is left to the configuration has a name"),
            (id < unnamed, "a number of a user or a group above those that were given"),
            (!is_built_in(&name), "a name that is built in belongs to somebody else"),
            (leads_back, "the name does not lead back to the number"),
        ]
    } else {
        let unknown = BadValue::Damaged("the key of a user or a group has an unknown kind");
        let kind = key.get(1).and_then(|byte| kind_of(*byte)).ok_or_else(|| unknown.at(key))?;
        let name = parse_name(kind, rest).map_err(|bad| bad.at(key))?;
        let id = decode_number(value).map_err(|bad| bad.at(key))?;
        let by_number = read.get(&keys::principal_number(id))?;
        let there = by_number.map(|value| decode_name(&value)).transpose().map_err(|bad| bad.at(key))?;
        vec![(there == Some((kind, name)), "the number does not lead back to the name")]
    };
    Ok(rules.into_iter().filter(|(holds, _)| !holds).map(|(_, rule)| rule).collect())
}
