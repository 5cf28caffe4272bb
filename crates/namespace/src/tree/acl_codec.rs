//! The bytes of ACLs in inode records, directory entries and uploads. Each is a tagged field that a reader must understand: one that ignored it would let
//! in whom the ACL keeps out, and would drop it with the next change. [`NamedEntries`] has the form of a named entry.

use std::ops::Range;

use crate::codec::{BadValue, Encoder};
use crate::tree::acl::{ACL_NAMED_MAX, Acl, ENTRY_BYTES, ExtendedAcl, NamedEntries, OF_GROUP, Permissions};

const NO_MASK: u8 = 0xff;

fn check_named(bytes: &[u8]) -> Result<(), BadValue> {
    let (entries, rest) = bytes.as_chunks::<ENTRY_BYTES>();
    if !rest.is_empty() {
        return Err(BadValue::Damaged("an ACL in it has a wrong length"));
    }
    if entries.len() > ACL_NAMED_MAX {
        return Err(BadValue::Damaged("an ACL in it has too many entries"));
    }
    // Each walk checks each ACL on its way, so there is one branch for all entries.
    let (mut least, mut is_bad) = (0, false);
    for &[kind, a, b, c, d] in entries {
        let order = u64::from(kind & OF_GROUP) << 32 | u64::from(u32::from_be_bytes([a, b, c, d]));
        is_bad |= kind & !(OF_GROUP | 7) != 0;
        is_bad |= order < least;
        least = order + 1;
    }
    if is_bad {
        return Err(BadValue::Damaged("the entries of an ACL in it are of an unknown kind, or not in order"));
    }
    Ok(())
}

fn permissions(byte: u8) -> Result<Permissions, BadValue> {
    if byte > 7 {
        return Err(BadValue::Damaged("an ACL in it grants what there is not"));
    }
    Ok(Permissions::from_bits(byte))
}

/// Writes an access ACL: u8 the entry of the owning group, then the named entries.
pub(crate) fn put_extended(out: &mut Encoder, tag: u8, acl: &ExtendedAcl) {
    let mut field = Vec::with_capacity(1 + acl.named.as_bytes().len());
    field.push(acl.group.bits());
    field.extend_from_slice(acl.named.as_bytes());
    out.tag(tag, &field);
}

/// Reads what [`put_extended`] has written.
pub(crate) fn extended(field: &[u8]) -> Result<ExtendedAcl, BadValue> {
    take_extended(field.to_vec(), 0..field.len())
}

/// The same, of a field at this place in a value. It keeps the memory of the value, so it allocates none.
pub(crate) fn take_extended(mut value: Vec<u8>, at: Range<usize>) -> Result<ExtendedAcl, BadValue> {
    let field = value.get(at.clone()).and_then(<[u8]>::split_first);
    let (&group, named) = field.ok_or(BadValue::Damaged("an ACL in it is too short"))?;
    let group = permissions(group)?;
    check_named(named)?;
    let len = named.len();
    value.copy_within(at.end - len..at.end, 0);
    value.truncate(len);
    Ok(ExtendedAcl { group, named: NamedEntries::from_checked(value) })
}

/// Writes a default ACL: u8 each the entries of owner, owning group, others and mask (0xff: no mask), then the named entries.
pub(crate) fn put_default(out: &mut Encoder, tag: u8, acl: &Acl) {
    let mut field = Vec::with_capacity(4 + acl.named.as_bytes().len());
    let mask = acl.mask.map_or(NO_MASK, Permissions::bits);
    field.extend_from_slice(&[acl.owner.bits(), acl.group.bits(), acl.other.bits(), mask]);
    field.extend_from_slice(acl.named.as_bytes());
    out.tag(tag, &field);
}

/// Reads what [`put_default`] has written.
pub(crate) fn default(field: &[u8]) -> Result<Acl, BadValue> {
    let (&[owner, group, other, mask], rest) =
        field.split_first_chunk().ok_or(BadValue::Damaged("a default ACL in it is too short"))?;
    let mask = if mask == NO_MASK { None } else { Some(permissions(mask)?) };
    check_named(rest)?;
    let named = NamedEntries::from_checked(rest.to_vec());
    if mask.is_none() && !named.is_empty() {
        return Err(BadValue::Damaged("a default ACL in it has named entries and no mask"));
    }
    Ok(Acl { owner: permissions(owner)?, named, group: permissions(group)?, mask, other: permissions(other)? })
}

#[cfg(test)]
mod tests {
    use types::PrincipalId;

    use super::*;
    use crate::{AclEdit, AclEntry, AclTag};

    fn with(count: u32) -> Acl {
        let tag = |n: u32| {
            if n.is_multiple_of(2) { AclTag::User(PrincipalId(n)) } else { AclTag::Group(PrincipalId(u32::MAX - n)) }
        };
        let entry = |n: u32| AclEntry { tag: tag(n), permissions: Permissions::from_bits((n % 8) as u8) };
        let acl = crate::Access::new(PrincipalId(1), PrincipalId(2), 0o754).acl();
        acl.edited(&AclEdit::Replace((0..count).map(entry).collect())).unwrap()
    }

    fn bytes_of(put: impl FnOnce(&mut Encoder)) -> Vec<u8> {
        let mut out = Encoder(Vec::new());
        put(&mut out);
        out.0[3..].to_vec()
    }

    fn extended_of(acl: &Acl) -> ExtendedAcl {
        ExtendedAcl { group: acl.group, named: acl.named.clone() }
    }

    #[test]
    fn acls_of_each_length_read_back() {
        for count in 0..=64 {
            let acl = with(count);
            assert_eq!(default(&bytes_of(|out| put_default(out, 1, &acl))), Ok(acl.clone()));
            let acl = extended_of(&acl);
            assert_eq!(extended(&bytes_of(|out| put_extended(out, 1, &acl))), Ok(acl));
        }
    }

    /// What is read is exactly what would be written: a changed byte is another ACL, or damage.
    #[test]
    fn hostile_bytes_are_damage_or_another_acl_that_writes_the_same_bytes() {
        let (mut acls, mut damage) = (0, 0);
        let mut count = |is_acl: bool| if is_acl { acls += 1 } else { damage += 1 };
        let mut try_both = |bytes: &[u8]| {
            match default(bytes) {
                Ok(acl) => assert_eq!(bytes_of(|out| put_default(out, 1, &acl)), bytes),
                Err(bad) => assert!(matches!(bad, BadValue::Damaged(_))),
            }
            match extended(bytes) {
                Ok(acl) => assert_eq!(bytes_of(|out| put_extended(out, 1, &acl)), bytes),
                Err(bad) => assert!(matches!(bad, BadValue::Damaged(_))),
            }
            count(default(bytes).is_ok() || extended(bytes).is_ok());
        };
        let acl = with(9);
        for whole in
            [bytes_of(|out| put_default(out, 1, &acl)), bytes_of(|out| put_extended(out, 1, &extended_of(&acl)))]
        {
            for len in 0..whole.len() {
                try_both(&whole[..len]);
            }
            for at in 0..whole.len() {
                for byte in 0..=255 {
                    let mut changed = whole.clone();
                    changed[at] = byte;
                    try_both(&changed);
                }
            }
        }
        for len in [1 + 64 * 5, 1 + 65 * 5, 4 + 65 * 5, 65_535] {
            try_both(&vec![0; len]);
        }
        assert!(acls > 1_000 && damage > 1_000, "{acls} {damage}");
    }

    #[test]
    fn order_number_and_mask_are_checked() {
        let user = |id: u8| [4, 0, 0, 0, id];
        let group = |id: u8| [0x84, 0, 0, 0, id];
        let read = |entries: &[[u8; 5]]| extended(&[&[7][..], entries.as_flattened()].concat());
        assert!(read(&[user(1), user(2), group(1), group(2)]).is_ok());
        for bad in [&[user(1), user(1)][..], &[user(2), user(1)], &[group(1), user(1)], &[[0x44, 0, 0, 0, 1]]] {
            assert!(read(bad).is_err(), "{bad:?}");
        }
        let many: Vec<[u8; 5]> = (0..65).map(user).collect();
        assert!(read(&many[..64]).is_ok() && read(&many).is_err());
        assert!(extended(&[8]).is_err() && extended(&[]).is_err());
        assert!(default(&[7, 5, 5, 0xff]).is_ok() && default(&[7, 5, 5, 8]).is_err());
        assert!(default(&[7, 5, 5, 0xff, 4, 0, 0, 0, 1]).is_err(), "named entries without a mask");
    }
}
