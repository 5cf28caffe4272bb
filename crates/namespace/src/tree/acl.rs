//! Access control lists as in POSIX.1e draft 17 and acl(5): their entries, how a change makes a new one, and what a new inode inherits.
//!
//! An inode's **access ACL** decides who may do what. The entries of owner and others are always in its mode. Without further entries, the mode's
//! group bits are the entry of the owning group. With further entries they are the **mask**, as in Linux: the most that named users, the owning group
//! and named groups get. So `ls -l` shows the mask, and chmod changes it. [`ExtendedAcl`] then holds the entry of the owning group.
//!
//! A directory's **default ACL** is what its new inodes get. It grants nothing on the directory itself.

use std::fmt;

use types::PrincipalId;

use crate::Access;

/// Most named users and groups of one ACL. It bounds the record of an inode.
pub const ACL_NAMED_MAX: usize = 64;

/// Any of read (4), write (2) and pass or execute (1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Permissions(u8);

impl Permissions {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// `r`.
    pub const READ: Self = Self(4);
    /// `w`.
    pub const WRITE: Self = Self(2);
    /// `x`.
    pub const PASS: Self = Self(1);

    /// From the three lowest bits; others are dropped.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits & 7)
    }

    /// The bits of one class in a mode: `shift` is 6 for the owner, 3 for the group and 0 for others.
    pub(crate) const fn of_mode(mode: u16, shift: u16) -> Self {
        Self((mode >> shift & 7) as u8)
    }

    /// As a number from 0 to 7.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Whether all of `wanted` are among them.
    #[must_use]
    pub const fn has(self, wanted: Self) -> bool {
        self.0 & wanted.0 == wanted.0
    }

    /// Those that are in both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Those that are in one of them.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Display for Permissions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = |of: Self, letter| if self.has(of) { letter } else { '-' };
        write!(f, "{}{}{}", letter(Self::READ, 'r'), letter(Self::WRITE, 'w'), letter(Self::PASS, 'x'))
    }
}

/// Whom a named entry is for. Users sort before groups.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Named {
    /// A user.
    User(PrincipalId),
    /// A group.
    Group(PrincipalId),
}

/// Whom or what an entry is for, in the order of acl(5).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum AclTag {
    /// `user::`, the owner.
    Owner,
    /// `user:N:`.
    User(PrincipalId),
    /// `group::`, the owning group.
    OwningGroup,
    /// `group:N:`.
    Group(PrincipalId),
    /// `mask::`.
    Mask,
    /// `other::`.
    Other,
}

impl From<Named> for AclTag {
    fn from(named: Named) -> Self {
        match named {
            Named::User(id) => Self::User(id),
            Named::Group(id) => Self::Group(id),
        }
    }
}

/// As in the text form, with numbers: `user:7`, `mask:`.
impl fmt::Display for AclTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Owner => f.write_str("user:"),
            Self::User(id) => write!(f, "user:{id}"),
            Self::OwningGroup => f.write_str("group:"),
            Self::Group(id) => write!(f, "group:{id}"),
            Self::Mask => f.write_str("mask:"),
            Self::Other => f.write_str("other:"),
        }
    }
}

/// One entry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct AclEntry {
    /// Whom or what it is for.
    pub tag: AclTag,
    /// What it grants.
    pub permissions: Permissions,
}

/// As in the text form, with numbers: `user:7:rw-`.
impl fmt::Display for AclEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.tag, self.permissions)
    }
}

/// The entry of a named user or group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NamedEntry {
    /// Whom it is for.
    pub who: Named,
    /// What it grants, as far as the mask allows.
    pub permissions: Permissions,
}

impl From<NamedEntry> for AclEntry {
    fn from(entry: NamedEntry) -> Self {
        Self { tag: entry.who.into(), permissions: entry.permissions }
    }
}

/// Named entries: users before groups, each in ascending order, none twice, at most [`ACL_NAMED_MAX`].
///
/// They are kept as they are stored, so that reading a record neither copies nor allocates them: [`ENTRY_BYTES`] bytes each, bit 7 of the first is 1 for
/// a group, its three lowest bits are the permissions, and the number u32 follows, big-endian.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct NamedEntries(Vec<u8>);

/// The bytes of a named entry.
pub(crate) const ENTRY_BYTES: usize = 5;
/// The bit of an entry that is for a group.
pub(crate) const OF_GROUP: u8 = 0x80;

impl NamedEntries {
    /// The caller has checked the bytes.
    pub(crate) fn from_checked(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    fn from_sorted(entries: &[NamedEntry]) -> Self {
        debug_assert!(entries.is_sorted_by(|a, b| a.who < b.who) && entries.len() <= ACL_NAMED_MAX);
        let mut bytes = Vec::with_capacity(entries.len() * ENTRY_BYTES);
        for NamedEntry { who, permissions } in entries {
            let (kind, PrincipalId(id)) = match who {
                Named::User(id) => (0, id),
                Named::Group(id) => (OF_GROUP, id),
            };
            bytes.push(kind | permissions.bits());
            bytes.extend_from_slice(&id.to_be_bytes());
        }
        Self(bytes)
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The entries in order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = NamedEntry> + '_ {
        self.0.as_chunks::<ENTRY_BYTES>().0.iter().map(|&[kind, a, b, c, d]| {
            let id = PrincipalId(u32::from_be_bytes([a, b, c, d]));
            let who = if kind & OF_GROUP == 0 { Named::User(id) } else { Named::Group(id) };
            NamedEntry { who, permissions: Permissions::from_bits(kind) }
        })
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len() / ENTRY_BYTES
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for NamedEntries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// What an access ACL has beyond the mode. While an inode has it, the group bits of its mode are the mask.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExtendedAcl {
    /// The entry of the owning group.
    pub group: Permissions,
    /// The named entries. Without any, the mask still limits the owning group.
    pub named: NamedEntries,
}

/// A whole ACL. One with named entries has a mask.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Acl {
    pub(crate) owner: Permissions,
    pub(crate) named: NamedEntries,
    pub(crate) group: Permissions,
    pub(crate) mask: Option<Permissions>,
    pub(crate) other: Permissions,
}

/// A change of one ACL, as setfacl(1) makes it. If the change gives no mask, the mask becomes what the owning group and all named entries have
/// together. An ACL without named entries then has none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AclEdit {
    /// Exactly these entries. Those of owner, owning group and others stay as they are if they are not given.
    Replace(Vec<AclEntry>),
    /// Sets these entries and keeps the others.
    Modify(Vec<AclEntry>),
    /// Removes the entries of these users and groups. One that has no entry is no error.
    Remove(Vec<Named>),
    /// Removes all entries that are not in the mode; of a default ACL, all. The owning group keeps only what the mask let it have.
    Clear,
}

/// Why a list of entries is no ACL.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BadAcl {
    TooMany,
    Twice(AclTag),
}

impl AclEdit {
    /// Refuses a change that no ACL can take in, before anything is read.
    pub(crate) fn check(&self) -> Result<(), BadAcl> {
        match self {
            Self::Replace(entries) | Self::Modify(entries) => {
                // Each of the four entries without a name may be there once.
                if entries.len() > ACL_NAMED_MAX + 4 {
                    return Err(BadAcl::TooMany);
                }
                let mut tags: Vec<AclTag> = entries.iter().map(|entry| entry.tag).collect();
                tags.sort_unstable();
                match tags.windows(2).find(|two| two[0] == two[1]) {
                    Some(two) => Err(BadAcl::Twice(two[0])),
                    None => Ok(()),
                }
            }
            Self::Remove(names) if names.len() > ACL_NAMED_MAX => Err(BadAcl::TooMany),
            Self::Remove(_) | Self::Clear => Ok(()),
        }
    }
}

impl Acl {
    /// All entries, in the order of acl(5).
    pub fn entries(&self) -> impl Iterator<Item = AclEntry> + '_ {
        let users = self.named.iter().filter(|entry| matches!(entry.who, Named::User(_)));
        let groups = self.named.iter().filter(|entry| matches!(entry.who, Named::Group(_)));
        let one = |tag, permissions| std::iter::once(AclEntry { tag, permissions });
        one(AclTag::Owner, self.owner)
            .chain(users.map(AclEntry::from))
            .chain(one(AclTag::OwningGroup, self.group))
            .chain(groups.map(AclEntry::from))
            .chain(self.mask.map(|permissions| AclEntry { tag: AclTag::Mask, permissions }))
            .chain(one(AclTag::Other, self.other))
    }

    /// The three entries that every ACL has.
    pub(crate) fn without_names(&self) -> Self {
        Self { named: NamedEntries::default(), mask: None, ..self.clone() }
    }

    /// The ACL after `edit`, which [`AclEdit::check`] has accepted.
    pub(crate) fn edited(&self, edit: &AclEdit) -> Result<Self, BadAcl> {
        match edit {
            AclEdit::Replace(entries) => self.without_names().with(entries),
            AclEdit::Modify(entries) => self.with(entries),
            AclEdit::Remove(names) => {
                let named: Vec<_> = self.named.iter().filter(|entry| !names.contains(&entry.who)).collect();
                let named = NamedEntries::from_sorted(&named);
                Ok(Self { named, ..self.clone() }.with_mask(None))
            }
            AclEdit::Clear => {
                let group = self.group.and(self.mask.unwrap_or(self.group));
                Ok(Self { group, ..self.without_names() })
            }
        }
    }

    fn with(&self, entries: &[AclEntry]) -> Result<Self, BadAcl> {
        let mut acl = self.clone();
        let mut named: Vec<NamedEntry> = self.named.iter().collect();
        let mut mask = None;
        for AclEntry { tag, permissions } in entries.iter().copied() {
            let who = match tag {
                AclTag::User(id) => Named::User(id),
                AclTag::Group(id) => Named::Group(id),
                AclTag::Owner => {
                    acl.owner = permissions;
                    continue;
                }
                AclTag::OwningGroup => {
                    acl.group = permissions;
                    continue;
                }
                AclTag::Other => {
                    acl.other = permissions;
                    continue;
                }
                AclTag::Mask => {
                    mask = Some(permissions);
                    continue;
                }
            };
            match named.binary_search_by_key(&who, |entry| entry.who) {
                Ok(at) => named[at].permissions = permissions,
                Err(at) => named.insert(at, NamedEntry { who, permissions }),
            }
        }
        if named.len() > ACL_NAMED_MAX {
            return Err(BadAcl::TooMany);
        }
        acl.named = NamedEntries::from_sorted(&named);
        Ok(acl.with_mask(mask))
    }

    fn with_mask(mut self, given: Option<Permissions>) -> Self {
        let all = self.named.iter().fold(self.group, |all, entry| all.or(entry.permissions));
        self.mask = given.or((!self.named.is_empty()).then_some(all));
        self
    }

    /// The access ACL of a new inode that inherits this default ACL, made with `mode`. No entry in the mode grants what `mode` does not, and the
    /// mask does not either. So named entries keep what they have, and the mask limits them.
    pub(crate) fn inherited(&self, mode: u16) -> Self {
        let (owner, group, other) =
            (Permissions::of_mode(mode, 6), Permissions::of_mode(mode, 3), Permissions::of_mode(mode, 0));
        Self {
            owner: self.owner.and(owner),
            named: self.named.clone(),
            group: if self.mask.is_some() { self.group } else { self.group.and(group) },
            mask: self.mask.map(|mask| mask.and(group)),
            other: self.other.and(other),
        }
    }
}

impl Access {
    /// The whole access ACL.
    #[must_use]
    pub fn acl(&self) -> Acl {
        let [owner, middle, other] = [6, 3, 0].map(|shift| Permissions::of_mode(self.mode, shift));
        match &self.extended {
            None => Acl { owner, named: NamedEntries::default(), group: middle, mask: None, other },
            Some(extended) => {
                Acl { owner, named: extended.named.clone(), group: extended.group, mask: Some(middle), other }
            }
        }
    }

    /// The mode of a copy that cannot have the further entries, with which nobody gets more than with them. A named user of the copy is in its group or
    /// among the others, and a member of a named group is among the others, so these get no more than such an entry gives. The mask limits the group bits
    /// no longer, so they are what the owning group gets at most.
    #[must_use]
    pub fn mode_without_acl(&self) -> u16 {
        let Some(extended) = &self.extended else { return self.mode };
        let mask = Permissions::of_mode(self.mode, 3);
        let (mut group, mut other) = (extended.group.and(mask), Permissions::of_mode(self.mode, 0));
        for NamedEntry { who, permissions } in extended.named.iter() {
            let given = permissions.and(mask);
            other = other.and(given);
            if matches!(who, Named::User(_)) {
                group = group.and(given);
            }
        }
        self.mode & !0o077 | u16::from(group.bits()) << 3 | u16::from(other.bits())
    }

    /// Replaces the access ACL, and with it the nine lowest bits of the mode.
    pub(crate) fn set_acl(&mut self, acl: &Acl) {
        let bits = |permissions: Permissions| u16::from(permissions.bits());
        let middle = acl.mask.unwrap_or(acl.group);
        self.mode = self.mode & !0o777 | bits(acl.owner) << 6 | bits(middle) << 3 | bits(acl.other);
        self.extended = acl.mask.map(|_| ExtendedAcl { group: acl.group, named: acl.named.clone() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: AclTag = AclTag::User(PrincipalId(7));

    fn entry(tag: AclTag, bits: u8) -> AclEntry {
        AclEntry { tag, permissions: Permissions::from_bits(bits) }
    }

    fn shown(acl: &Acl) -> String {
        acl.entries().map(|entry| entry.to_string()).collect::<Vec<_>>().join(",")
    }

    fn access(mode: u16) -> Access {
        Access::new(PrincipalId(1), PrincipalId(2), mode)
    }

    #[test]
    fn group_bits_are_the_mask_while_there_are_further_entries() {
        let mut access = access(0o2640);
        let acl = access.acl().edited(&AclEdit::Modify(vec![entry(USER, 6)])).unwrap();
        access.set_acl(&acl);
        assert_eq!(access.mode, 0o2660, "the mask holds all that the group class has");
        assert_eq!(shown(&access.acl()), "user::rw-,user:7:rw-,group::r--,mask::rw-,other::---");
        assert_eq!(access.mode_without_acl(), 0o2640);
        access.mode = 0o2620;
        assert_eq!(access.mode_without_acl(), 0o2600);
        access.mode = 0o2600;
        let cleared = access.acl().edited(&AclEdit::Clear).unwrap();
        assert_eq!(shown(&cleared), "user::rw-,group::---,other::---", "nobody gets what the mask withheld");
        let removed = access.acl().edited(&AclEdit::Remove(vec![Named::User(PrincipalId(7))])).unwrap();
        assert_eq!(shown(&removed), "user::rw-,group::r--,other::---", "the mask is computed again, and not needed");
    }

    #[test]
    fn given_mask_counts_and_named_entries_are_sorted() {
        let entries = [
            entry(AclTag::Group(PrincipalId(3)), 7),
            entry(AclTag::User(PrincipalId(9)), 1),
            entry(AclTag::Mask, 5),
            entry(USER, 0),
        ];
        let acl = access(0o750).acl().edited(&AclEdit::Replace(entries.to_vec())).unwrap();
        assert_eq!(shown(&acl), "user::rwx,user:7:---,user:9:--x,group::r-x,group:3:rwx,mask::r-x,other::---");
        let acl = acl.edited(&AclEdit::Modify(vec![entry(AclTag::Other, 4)])).unwrap();
        assert!(shown(&acl).ends_with("mask::rwx,other::r--"), "{}", shown(&acl));
        let acl = acl.edited(&AclEdit::Replace(vec![entry(AclTag::Mask, 1)])).unwrap();
        assert_eq!(shown(&acl), "user::rwx,group::r-x,mask::--x,other::r--");
    }

    #[test]
    fn too_many_entries_and_one_entry_twice_are_refused() {
        let many = |count: u32| (0..count).map(|id| entry(AclTag::User(PrincipalId(id)), 4)).collect::<Vec<_>>();
        let max = u32::try_from(ACL_NAMED_MAX).unwrap();
        let full = access(0).acl().edited(&AclEdit::Replace(many(max))).unwrap();
        let one_more = AclEdit::Modify(vec![entry(AclTag::Group(PrincipalId(1)), 4)]);
        assert_eq!(one_more.check(), Ok(()));
        assert_eq!(full.edited(&one_more), Err(BadAcl::TooMany));
        assert_eq!(full.edited(&AclEdit::Modify(many(1))).as_ref(), Ok(&full));
        assert_eq!(AclEdit::Replace(many(max + 5)).check(), Err(BadAcl::TooMany));
        assert_eq!(access(0).acl().edited(&AclEdit::Replace(many(max + 1))), Err(BadAcl::TooMany));
        let twice = vec![entry(USER, 4), entry(AclTag::Other, 0), entry(USER, 4)];
        assert_eq!(AclEdit::Modify(twice).check(), Err(BadAcl::Twice(USER)));
    }

    #[test]
    fn inherited_acl_grants_nothing_that_the_mode_withholds() {
        let acl = access(0o775).acl();
        assert_eq!(shown(&acl.inherited(0o640)), "user::rw-,group::r--,other::---");
        let acl = acl.edited(&AclEdit::Modify(vec![entry(USER, 7)])).unwrap();
        assert_eq!(shown(&acl.inherited(0o640)), "user::rw-,user:7:rwx,group::rwx,mask::r--,other::---");
    }
}
