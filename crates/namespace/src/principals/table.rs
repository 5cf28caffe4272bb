//! The records of the table of principals (`E`), their counts (`Cprincipals`), and how to look something up.
//!
//! Each principal has two records: its number by its name, and its name by its number. Users and groups have separate names and share the numbers. The
//! user `admin` and the group `admin` are built in: both are 0, and have no records.

use kv::{Read, Txn};
use types::{PRINCIPAL_NAME_MAX, PrincipalId, PrincipalKind, PrincipalName};

use crate::codec::{BadValue, Decoder, Encoder};
use crate::scan::collect;
use crate::{Access, AccessKind, Context, NsError, keys, permit};

const MARK: &[u8] = b"principals";

/// The most named users and groups together.
pub const PRINCIPALS_MAX: u32 = 1_000_000;

/// The first number that the table gives to a name. Lower ones are free for principals whose numbers are configured by hand.
pub const FIRST_NAMED_PRINCIPAL: PrincipalId = PrincipalId(1 << 20);

/// The number of the administrator, and of its group.
const ADMIN: PrincipalId = PrincipalId(0);
/// The name of the administrator, and of its group.
const ADMIN_NAME: &str = "admin";

/// `Cprincipals`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PrincipalCounts {
    /// The next number. Neither it nor a higher one has ever been given.
    pub next: PrincipalId,
    /// How many users and groups have names.
    pub named: u32,
}

impl PrincipalCounts {
    /// Counts another principal, and returns its number.
    pub(crate) fn take(&mut self) -> Result<PrincipalId, NsError> {
        if self.named >= PRINCIPALS_MAX {
            return Err(NsError::TooMany { what: "named users and groups", bound: u64::from(PRINCIPALS_MAX) });
        }
        let id = self.next;
        let out_of_numbers = NsError::TooMany { what: "numbers of users and groups", bound: u64::from(u32::MAX) };
        self.next = PrincipalId(id.0.checked_add(1).ok_or(out_of_numbers)?);
        self.named += 1;
        Ok(id)
    }

    pub(crate) fn put(self, txn: &mut dyn Txn) {
        let mut out = Encoder::new(9);
        out.u32(self.next.0);
        out.u32(self.named);
        txn.put(&counts_key(), &out.0);
    }
}

pub(crate) fn counts_key() -> keys::Key {
    keys::mark(MARK)
}

/// The counts. A namespace that has never named a principal has no record of them.
pub(crate) fn counts(read: &dyn Read) -> Result<PrincipalCounts, NsError> {
    let key = counts_key();
    let Some(value) = read.get(&key)? else {
        return Ok(PrincipalCounts { next: FIRST_NAMED_PRINCIPAL, named: 0 });
    };
    let decode = |value: &[u8]| -> Result<PrincipalCounts, BadValue> {
        let mut from = Decoder::new(value, "the counts of users and groups")?;
        let counts = PrincipalCounts { next: PrincipalId(from.u32()?), named: from.u32()? };
        from.end()?;
        if counts.next < FIRST_NAMED_PRINCIPAL {
            return Err(BadValue::Damaged("the next number is below all that the table gives"));
        }
        Ok(counts)
    };
    decode(&value).map_err(|bad| bad.at(&key))
}

/// Leaves out as many numbers as principals can have been named since a backup was taken. None is given twice, even if the names are lost.
pub(crate) fn pass_over_principals(txn: &mut dyn Txn) -> Result<(), NsError> {
    let mut counts = counts(txn)?;
    counts.next = PrincipalId(counts.next.0.saturating_add(PRINCIPALS_MAX));
    counts.put(txn);
    Ok(())
}

/// Whether the name is built in: it stands for 0, and is neither given nor changed.
pub(crate) fn is_built_in(name: &PrincipalName) -> bool {
    name.as_str() == ADMIN_NAME
}

/// The number of a user or a group. `None`: nobody has the name. Needs one get.
pub fn number_of(read: &dyn Read, kind: PrincipalKind, name: &PrincipalName) -> Result<Option<PrincipalId>, NsError> {
    if is_built_in(name) {
        return Ok(Some(ADMIN));
    }
    let key = keys::principal_name(kind, name.as_str().as_bytes());
    read.get(&key)?.map(|value| decode_number(&value).map_err(|bad| bad.at(&key))).transpose()
}

/// The numbers of users and groups, in the order of `names`. `None`: at least one has no number yet ([`crate::NamePrincipals`] gives it one). Needs one
/// get for each name.
pub fn numbers_of(
    read: &dyn Read,
    names: &[(PrincipalKind, PrincipalName)],
) -> Result<Option<Vec<PrincipalId>>, NsError> {
    names.iter().map(|(kind, name)| number_of(read, *kind, name)).collect()
}

/// The user or group with this number. `None`: it has no name, as all whose numbers are configured by hand. 0 is given as the user `admin`; the group
/// `admin` has that number too. Needs one get.
pub fn name_of(read: &dyn Read, id: PrincipalId) -> Result<Option<(PrincipalKind, PrincipalName)>, NsError> {
    if id == ADMIN {
        return Ok(PrincipalName::parse(PrincipalKind::User, ADMIN_NAME).ok().map(|name| (PrincipalKind::User, name)));
    }
    let key = keys::principal_number(id);
    read.get(&key)?.map(|value| decode_name(&value).map_err(|bad| bad.at(&key))).transpose()
}

/// The users or the groups after `after`, in the order of the bytes of their names; at most `limit`. `admin`, which is built in, is not listed.
pub fn principals(
    read: &dyn Read,
    kind: PrincipalKind,
    after: Option<&PrincipalName>,
    limit: usize,
) -> Result<Vec<(PrincipalName, PrincipalId)>, NsError> {
    let all = keys::principal_name(kind, b"");
    let mut start = keys::principal_name(kind, after.map_or(b"", |after| after.as_str().as_bytes())).to_vec();
    if after.is_some() {
        start.push(0);
    }
    collect(read, &start, &keys::end_of(&all), limit, |key, value| {
        let name = key.get(all.len()..).unwrap_or_default();
        let entry = parse_name(kind, name).and_then(|name| Ok((name, decode_number(value)?)));
        entry.map(Some).map_err(|bad| bad.at(key))
    })
}

/// Writes both records of a principal.
pub(crate) fn put_principal(txn: &mut dyn Txn, kind: PrincipalKind, name: &PrincipalName, id: PrincipalId) {
    let name = name.as_str().as_bytes();
    let mut number = Encoder::new(5);
    number.u32(id.0);
    txn.put(&keys::principal_name(kind, name), &number.0);
    let mut named = Encoder::new(4 + name.len());
    named.u8(keys::principal_kind(kind));
    named.bytes(name);
    txn.put(&keys::principal_number(id), &named.0);
}

pub(crate) fn decode_number(value: &[u8]) -> Result<PrincipalId, BadValue> {
    let mut from = Decoder::new(value, "the number of a user or a group")?;
    let id = PrincipalId(from.u32()?);
    from.end()?;
    Ok(id)
}

pub(crate) fn decode_name(value: &[u8]) -> Result<(PrincipalKind, PrincipalName), BadValue> {
    const WHAT: &str = "the name of a user or a group";
    let mut from = Decoder::new(value, WHAT)?;
    let kind = match from.u8()? {
        0 => return Err(BadValue::Damaged("there is no kind of principal")),
        byte => kind_of(byte).ok_or(BadValue::Newer(WHAT, u64::from(byte)))?,
    };
    let name = parse_name(kind, from.bytes(PRINCIPAL_NAME_MAX)?)?;
    from.end()?;
    Ok((kind, name))
}

/// The kind for which a byte stands.
pub(crate) fn kind_of(byte: u8) -> Option<PrincipalKind> {
    PrincipalKind::ALL.into_iter().find(|kind| keys::principal_kind(*kind) == byte)
}

pub(crate) fn parse_name(kind: PrincipalKind, name: &[u8]) -> Result<PrincipalName, BadValue> {
    let name = str::from_utf8(name).ok().and_then(|name| PrincipalName::parse(kind, name).ok());
    name.ok_or(BadValue::Damaged("a name that a user or a group cannot have"))
}

/// Refuses everybody but the administrator.
pub(crate) fn administrator(ctx: &Context) -> Result<(), NsError> {
    let nobody_else = Access::new(ADMIN, ADMIN, 0);
    permit(&ctx.actor, &nobody_else, AccessKind::Own, &|| "the table of users and groups".into())
}

/// Refuses a name that a principal of this kind cannot have. The type allows names of groups for users too.
pub(crate) fn must_be_for(kind: PrincipalKind, name: &PrincipalName) -> Result<(), NsError> {
    if name.is_for(kind) {
        return Ok(());
    }
    Err(NsError::Invalid { what: shown(kind, name), why: "only the name of a group may have a `/`" })
}

/// A user or a group, for messages.
pub(crate) fn shown(kind: PrincipalKind, name: &PrincipalName) -> String {
    format!("{kind} {name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_values_are_damage_and_newer_ones_are_refused() {
        let named = |kind: u8, name: &[u8]| {
            let mut out = Encoder::new(0);
            out.u8(kind);
            out.bytes(name);
            decode_name(&out.0)
        };
        assert!(named(1, b"ann").is_ok() && named(2, b"cms/prod").is_ok());
        assert!(matches!(named(0, b"ann"), Err(BadValue::Damaged(_))));
        assert!(matches!(named(3, b"ann"), Err(BadValue::Newer(_, 3))), "a kind of a later version");
        for name in [&b""[..], b"17", b"a\xff", b"a b", &[b'a'; PRINCIPAL_NAME_MAX + 1]] {
            assert!(matches!(named(1, name), Err(BadValue::Damaged(_))), "{name:?}");
        }
        assert!(matches!(named(1, b"cms/prod"), Err(BadValue::Damaged(_))), "the name of a group");
        assert!(matches!(decode_number(&[crate::codec::VERSION, 0, 0, 1]), Err(BadValue::Damaged(_))), "too short");
        assert!(matches!(decode_number(&[crate::codec::VERSION, 0, 0, 1, 0, 0xf0, 0, 0]), Err(BadValue::Newer(..))));
    }

    #[test]
    fn the_last_number_and_the_last_name_are_given() {
        let mut counts = PrincipalCounts { next: PrincipalId(u32::MAX - 1), named: 0 };
        assert_eq!(counts.take().unwrap(), PrincipalId(u32::MAX - 1));
        let error = counts.take().unwrap_err();
        assert_eq!(error.to_string(), "numbers of users and groups: 4294967295 is the limit here");
        let mut counts = PrincipalCounts { next: FIRST_NAMED_PRINCIPAL, named: PRINCIPALS_MAX - 1 };
        assert_eq!(counts.take().unwrap(), FIRST_NAMED_PRINCIPAL);
        let error = counts.take().unwrap_err();
        assert_eq!(error.to_string(), "named users and groups: 1000000 is the limit here");
    }
}
