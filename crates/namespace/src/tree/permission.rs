//! The only permission check: owner, group, mode and ACL, as in acl(5), and the limits of the credential. The administrator (principal 0) passes all but
//! the limits.

use std::sync::Arc;

use types::{ClientIdentity, NsPath, PrincipalId};

use crate::NsError;
use crate::PathOperation;
use crate::planted::{self, Bug};
use crate::tree::acl::{AclEntry, AclTag, ExtendedAcl, Named, Permissions};
use crate::tree::path_limits::PathLimits;
use crate::tree::rule::{By, Marked, Step, Witness, rule_of, rule_of_sticky};

/// The principal that makes a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Actor {
    /// The principal that the credentials were mapped to; 0 is the administrator.
    pub principal: PrincipalId,
    /// Its groups (also numeric principals). The first one becomes the group of new inodes.
    pub groups: Arc<[PrincipalId]>,
    /// What its credential permits at most, by path. It holds for the administrator too. `None`: everything.
    pub limits: Option<Arc<dyn PathLimits>>,
    /// Is told each decision about this actor, to explain them.
    pub witness: Option<Arc<Witness>>,
}

impl Actor {
    /// A principal whose credential sets no limits.
    #[must_use]
    pub fn new(principal: PrincipalId, groups: Arc<[PrincipalId]>) -> Self {
        Self { principal, groups, limits: None, witness: None }
    }

    /// The same principal, with the limits of its credential.
    #[must_use]
    pub fn with_limits(self, limits: Arc<dyn PathLimits>) -> Self {
        Self { limits: Some(limits), ..self }
    }

    /// The administrator, whom no rule denies anything.
    #[must_use]
    pub fn admin() -> Self {
        Self::new(PrincipalId(0), Arc::from([PrincipalId(0)]))
    }

    /// Whether this is the administrator.
    #[must_use]
    pub fn is_admin(&self) -> bool {
        self.principal == PrincipalId(0)
    }

    /// The group of the inodes that this actor creates.
    #[must_use]
    pub fn primary_group(&self) -> PrincipalId {
        self.groups.first().copied().unwrap_or(self.principal)
    }

    /// Denies a request unless the limits permit one of `operations` on `path`. The rule in the denial is about the first one. `asked` is the path in the
    /// request, for the message.
    pub(crate) fn permit_path(
        &self,
        operations: &[PathOperation],
        path: &NsPath,
        asked: &NsPath,
    ) -> Result<(), NsError> {
        let Some(limits) = &self.limits else { return Ok(()) };
        let mut denied = None;
        let mut allowed = false;
        for operation in operations {
            match limits.permit(*operation, path) {
                Ok(()) => {
                    allowed = true;
                    break;
                }
                Err(rule) => denied = denied.or(Some(rule)),
            }
        }
        let rule = denied.unwrap_or_default();
        if let Some(witness) = &self.witness {
            let rule = if allowed { "the limits of the credential permit it".into() } else { rule.clone() };
            witness.saw(Step { place: path.to_string(), needs: "a credential for it", allowed, rule });
        }
        if allowed { Ok(()) } else { Err(NsError::Denied { path: asked.to_string(), rule }) }
    }
}

/// The fields of an inode that a check needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Access {
    /// The owner.
    pub owner: PrincipalId,
    /// The group.
    pub group: PrincipalId,
    /// Permission bits as in POSIX (`07777`). With an extended ACL, the group bits are its mask.
    pub mode: u16,
    /// Further entries, if there are any.
    pub extended: Option<ExtendedAcl>,
}

impl Access {
    /// Without further entries.
    #[must_use]
    pub const fn new(owner: PrincipalId, group: PrincipalId, mode: u16) -> Self {
        Self { owner, group, mode, extended: None }
    }

    /// Takes the set-group-ID bit off, unless `actor` may give the rights of the group: it is a member, or the administrator.
    pub(crate) fn keep_setgid_for(&mut self, actor: &Actor) {
        if !actor.is_admin() && !actor.groups.contains(&self.group) {
            self.mode &= !0o2000;
        }
    }

    /// Takes the set-user-ID bit off a file, and the set-group-ID bit if the group may execute it. Otherwise that bit has another meaning.
    pub(crate) fn drop_set_id(&mut self) {
        self.mode &= if self.mode & 0o010 == 0 { !0o4000 } else { !0o6000 };
    }

    /// The same for a file that `principal` has written, as in Linux: nobody runs with another's rights what somebody else has written. The
    /// administrator's files keep their bits.
    pub(crate) fn drop_set_id_for(&mut self, principal: PrincipalId) {
        if principal != PrincipalId(0) {
            self.drop_set_id();
        }
    }
}

/// The kind of access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessKind {
    /// Read a file or list a directory (`r`).
    Read,
    /// Write a file or change a directory's entries (`w`).
    Write,
    /// Pass through a directory (`x`).
    Pass,
    /// Change mode, group, ACL, or times: owners only.
    Own,
}

impl AccessKind {
    /// What it needs, in words.
    const fn needs(self) -> &'static str {
        match self {
            Self::Read => "r",
            Self::Write => "w",
            Self::Pass => "x",
            Self::Own => "to own it",
        }
    }

    /// The permission that it needs. `None`: none gives it.
    pub(crate) const fn permission(self) -> Option<Permissions> {
        match self {
            Self::Read => Some(Permissions::READ),
            Self::Write => Some(Permissions::WRITE),
            Self::Pass => Some(Permissions::PASS),
            Self::Own => None,
        }
    }
}

/// Denies an actor that names another principal's client. The administrator may, to end abandoned writes, unless its credential has limits: they permit
/// nothing that is not about a path. `what` is for the message.
///
/// # Errors
///
/// [`NsError::Denied`].
pub fn permit_client(actor: &Actor, client: &ClientIdentity, what: &dyn Fn() -> String) -> Result<(), NsError> {
    if client.principal == actor.principal || (actor.is_admin() && actor.limits.is_none()) {
        return Ok(());
    }
    let (theirs, yours) = (Marked(client.principal), Marked(actor.principal));
    let rule = format!("it belongs to a client of principal {theirs}, you are {yours}");
    Err(NsError::Denied { path: what(), rule })
}

/// Denies what only the administrator may do and what is about no path, such as a change of the cluster. So an administrator whose credential has limits
/// may not do it either. `what` is for the message.
pub(crate) fn permit_administrator(actor: &Actor, what: &dyn Fn() -> String) -> Result<(), NsError> {
    permit(actor, &Access::new(PrincipalId(0), PrincipalId(0), 0), AccessKind::Own, what)?;
    if actor.limits.is_some() {
        let rule = "the credential is limited to paths, and this is about more than a path".into();
        return Err(NsError::Denied { path: what(), rule });
    }
    Ok(())
}

/// Denies the request, and names the rule, unless `actor` may do `want` to an inode with `access`. `what` is for the message.
pub fn permit(actor: &Actor, access: &Access, want: AccessKind, what: &dyn Fn() -> String) -> Result<(), NsError> {
    permit_at(actor, access, want, what, what)
}

/// The same. `place` names the inode, for a witness: a walk tells a client no more than the whole path.
pub(crate) fn permit_at(
    actor: &Actor,
    access: &Access,
    want: AccessKind,
    what: &dyn Fn() -> String,
    place: &dyn Fn() -> String,
) -> Result<(), NsError> {
    if let Some(witness) = &actor.witness {
        let (allowed, rule) = rule_of(actor, access, want);
        witness.saw(Step { place: place(), needs: want.needs(), allowed, rule });
    }
    if allows(actor, access, want) { Ok(()) } else { Err(denied(actor, access, want, what)) }
}

/// Whether `actor` may do `want` to an inode with `access`. For decisions that deny nothing: [`permit`] also says why not.
#[must_use]
pub fn allows(actor: &Actor, access: &Access, want: AccessKind) -> bool {
    decide(actor, access, want, &mut |_| ()).0
}

/// The error for a request that [`allows`] refuses.
#[cold]
fn denied(actor: &Actor, access: &Access, want: AccessKind, what: &dyn Fn() -> String) -> NsError {
    NsError::Denied { path: what(), rule: rule_of(actor, access, want).1 }
}

/// The decision, and what decided. `consulted` gets the entries of an ACL that were looked at. If the entry of a named user
/// decides, it is the last one.
pub(crate) fn decide(
    actor: &Actor,
    access: &Access,
    want: AccessKind,
    consulted: &mut impl FnMut(AclEntry),
) -> (bool, By) {
    let is_owner = actor.principal == access.owner;
    let Some(wanted) = want.permission() else {
        let by = if actor.is_admin() && !is_owner { By::Administrator } else { By::Owner };
        return (is_owner || actor.is_admin(), by);
    };
    if actor.is_admin() {
        return (true, By::Administrator);
    }
    let (shift, by) = match &access.extended {
        _ if is_owner => (6, By::Owner),
        Some(extended) => return decide_by_acl(actor, access, extended, wanted, consulted),
        None if actor.groups.contains(&access.group) => (3, By::Groups),
        None => (0, By::Others),
    };
    (Permissions::of_mode(access.mode, shift).has(wanted), by)
}

/// The algorithm of acl(5) for an actor that is not the owner: the entry of its name decides, or those of its groups, or that of others. One group
/// that grants is enough. The mask limits all but the last.
fn decide_by_acl(
    actor: &Actor,
    access: &Access,
    extended: &ExtendedAcl,
    wanted: Permissions,
    consulted: &mut impl FnMut(AclEntry),
) -> (bool, By) {
    let mask =
        if planted::is(Bug::MaskIsIgnored) { Permissions::from_bits(7) } else { Permissions::of_mode(access.mode, 3) };
    let mut in_group = actor.groups.contains(&access.group);
    let mut grants = in_group && extended.group.has(wanted);
    if in_group {
        consulted(AclEntry { tag: AclTag::OwningGroup, permissions: extended.group });
    }
    for entry in extended.named.iter() {
        match entry.who {
            Named::User(user) if user == actor.principal => {
                consulted(entry.into());
                return (entry.permissions.and(mask).has(wanted), By::NamedUser);
            }
            Named::User(_) => {}
            Named::Group(group) => {
                if actor.groups.contains(&group) && !(planted::is(Bug::FirstGroupDecides) && in_group) {
                    consulted(entry.into());
                    in_group = true;
                    grants |= entry.permissions.has(wanted);
                }
            }
        }
    }
    if in_group {
        return (grants && mask.has(wanted), By::Groups);
    }
    let others = Permissions::of_mode(access.mode, 0);
    consulted(AclEntry { tag: AclTag::Other, permissions: others });
    (others.has(wanted), By::Others)
}

/// Whether `actor` may create a file in a directory with this access.
pub(crate) fn may_create(actor: &Actor, dir: &Access) -> bool {
    allows(actor, dir, AccessKind::Write) && allows(actor, dir, AccessKind::Pass)
}

/// Denies the removal from a sticky directory, unless `actor` owns the directory or the entry.
pub(crate) fn permit_unlink(
    actor: &Actor,
    dir: &Access,
    entry_owner: PrincipalId,
    what: &dyn Fn() -> String,
) -> Result<(), NsError> {
    if dir.mode & 0o1000 == 0 {
        return Ok(());
    }
    let allowed = actor.is_admin() || actor.principal == dir.owner || actor.principal == entry_owner;
    let rule = || rule_of_sticky(actor, dir.owner, entry_owner);
    if let Some(witness) = &actor.witness {
        witness.saw(Step { place: what(), needs: "to own it or its directory", allowed, rule: rule() });
    }
    if allowed { Ok(()) } else { Err(NsError::Denied { path: what(), rule: rule() }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AclEdit, AclEntry};

    const OWNER: u32 = 10;
    const NAMED: u32 = 11;
    const OTHER: u32 = 12;
    const OWNING: u32 = 20;
    const FIRST: u32 = 21;
    const SECOND: u32 = 22;
    const NO_GROUP: u32 = 29;

    fn entry(tag: AclTag, bits: u8) -> AclEntry {
        AclEntry { tag, permissions: Permissions::from_bits(bits) }
    }

    fn actor(id: u32, groups: &[u32]) -> Actor {
        Actor::new(PrincipalId(id), groups.iter().map(|id| PrincipalId(*id)).collect())
    }

    /// The entries of one case: a bit for each, whether it grants.
    #[derive(Clone, Copy, Debug)]
    struct Grants {
        owner: bool,
        named: bool,
        owning: bool,
        first: bool,
        second: bool,
        mask: bool,
        other: bool,
    }

    /// acl(5), "access check algorithm", in its own words. Without a mask there are no named entries.
    fn expected(grants: Grants, id: u32, groups: &[u32], has_names: bool) -> bool {
        // 1. If the effective user ID of the process matches the user ID of the file object owner: if the ACL_USER_OBJ entry contains the requested
        //    permissions, access is granted, else access is denied.
        if id == OWNER {
            return grants.owner;
        }
        // 2. else if the effective user ID of the process matches the qualifier of any entry of type ACL_USER: if the matching ACL_USER entry and
        //    the ACL_MASK entry contain the requested permissions, access is granted, else access is denied.
        if has_names && id == NAMED {
            return grants.named && grants.mask;
        }
        // 3. else if the effective group ID or any of the supplementary group IDs of the process match the file group or the qualifier of any entry
        //    of type ACL_GROUP: if the ACL contains an ACL_MASK entry: if the ACL_MASK entry and any of the matching ACL_GROUP_OBJ or ACL_GROUP
        //    entries contain the requested permissions, access is granted, else access is denied; else (if there is no mask) the ACL_GROUP_OBJ
        //    entry decides.
        let in_owning = groups.contains(&OWNING);
        let in_first = has_names && groups.contains(&FIRST);
        let in_second = has_names && groups.contains(&SECOND);
        if in_owning || in_first || in_second {
            let any = in_owning && grants.owning || in_first && grants.first || in_second && grants.second;
            return any && (grants.mask || !has_names);
        }
        // 4. else if the ACL_OTHER entry contains the requested permissions, access is granted, else access is denied.
        grants.other
    }

    #[test]
    fn each_combination_of_entries_decides_as_in_acl_5() {
        let sets: [&[u32]; 8] = [
            &[NO_GROUP],
            &[OWNING],
            &[FIRST],
            &[SECOND, NO_GROUP],
            &[NO_GROUP, SECOND, FIRST],
            &[OWNING, FIRST],
            &[FIRST, SECOND, OWNING],
            &[],
        ];
        let kinds = [(AccessKind::Read, 4_u8), (AccessKind::Write, 2), (AccessKind::Pass, 1)];
        let mut cases = 0;
        for number in 0..1_u32 << 9 {
            let bit = |at: u32| number >> at & 1 == 1;
            let grants = Grants {
                owner: bit(0),
                named: bit(1),
                owning: bit(2),
                first: bit(3),
                second: bit(4),
                mask: bit(5),
                other: bit(6),
            };
            let (has_names, others_granted) = (bit(7), bit(8));
            for (kind, wanted) in kinds {
                // The other two permissions must not matter.
                let bits =
                    |granted: bool| if granted { wanted } else { 0 } | if others_granted { 7 & !wanted } else { 0 };
                let mut access = Access::new(PrincipalId(OWNER), PrincipalId(OWNING), 0);
                let mut entries = vec![
                    entry(AclTag::Owner, bits(grants.owner)),
                    entry(AclTag::OwningGroup, bits(grants.owning)),
                    entry(AclTag::Other, bits(grants.other)),
                ];
                if has_names {
                    entries.push(entry(AclTag::Mask, bits(grants.mask)));
                    entries.push(entry(AclTag::User(PrincipalId(NAMED)), bits(grants.named)));
                    entries.push(entry(AclTag::User(PrincipalId(NAMED + 100)), 7));
                    entries.push(entry(AclTag::Group(PrincipalId(FIRST)), bits(grants.first)));
                    entries.push(entry(AclTag::Group(PrincipalId(SECOND)), bits(grants.second)));
                    entries.push(entry(AclTag::Group(PrincipalId(SECOND + 100)), 7));
                }
                access.set_acl(&access.acl().edited(&AclEdit::Replace(entries)).unwrap());
                for id in [OWNER, NAMED, OTHER] {
                    for groups in sets {
                        let result = permit(&actor(id, groups), &access, kind, &|| "/f".into());
                        let expected = expected(grants, id, groups, has_names);
                        assert_eq!(allows(&actor(id, groups), &access, kind), expected);
                        assert_eq!(result.is_ok(), expected, "{kind:?} by {id} of {groups:?}, {has_names} {grants:?}");
                        cases += 1;
                    }
                }
                assert!(permit(&actor(0, &[]), &access, kind, &String::new).is_ok(), "the administrator passes");
            }
        }
        assert_eq!(cases, 512 * 3 * 3 * 8);
    }

    #[test]
    fn mode_of_a_copy_without_the_acl_gives_nobody_more() {
        let (mut kept, mut lost) = (0, 0);
        for bits in 0..8_u16.pow(4) {
            let [user, named, group, other] = [0, 3, 6, 9].map(|shift| (bits >> shift & 7) as u8);
            for mask in [7, 5, 2] {
                let mut with = Access::new(PrincipalId(OWNER), PrincipalId(OWNING), 0o4700);
                let entries = vec![
                    entry(AclTag::User(PrincipalId(NAMED)), user),
                    entry(AclTag::Group(PrincipalId(FIRST)), named),
                    entry(AclTag::OwningGroup, group),
                    entry(AclTag::Other, other),
                    entry(AclTag::Mask, mask),
                ];
                with.set_acl(&with.acl().edited(&AclEdit::Replace(entries)).unwrap());
                let without = Access { mode: with.mode_without_acl(), extended: None, ..with.clone() };
                assert_eq!(without.mode & 0o7700, 0o4700);
                for id in [OWNER, NAMED, OTHER] {
                    for groups in [&[][..], &[OWNING], &[FIRST], &[OWNING, FIRST]] {
                        let actor = actor(id, groups);
                        for kind in [AccessKind::Read, AccessKind::Write, AccessKind::Pass] {
                            let may = |access: &Access| permit(&actor, access, kind, &String::new).is_ok();
                            match (may(&with), may(&without)) {
                                (false, true) => panic!("{actor:?} gains {kind:?}: {with:?} as {:o}", without.mode),
                                (true, false) => lost += 1,
                                _ => kept += 1,
                            }
                        }
                    }
                }
            }
        }
        assert!(kept > lost, "{kept} {lost}");
    }

    #[test]
    fn denial_names_the_entries_that_decided() {
        let mut access = Access::new(PrincipalId(OWNER), PrincipalId(OWNING), 0o751);
        let named = |id: u32| AclTag::User(PrincipalId(id));
        let group = |id: u32| AclTag::Group(PrincipalId(id));
        let entries =
            vec![entry(named(NAMED), 6), entry(group(FIRST), 5), entry(group(SECOND), 2), entry(AclTag::Mask, 5)];
        access.set_acl(&access.acl().edited(&AclEdit::Replace(entries)).unwrap());
        let before = access.clone();
        let rule = |id: u32, groups: &[u32], kind| {
            permit(&actor(id, groups), &before, kind, &|| "/f".into()).unwrap_err().to_string()
        };
        assert_eq!(
            rule(NAMED, &[OWNING], AccessKind::Pass),
            "/f: denied: the ACL's entry user:11:rw- gives no x, and you are 11"
        );
        assert_eq!(
            rule(NAMED, &[], AccessKind::Write),
            "/f: denied: the ACL's entry user:11:rw- and the mask r-x give no w, and you are 11"
        );
        assert_eq!(
            rule(OTHER, &[FIRST, OWNING], AccessKind::Write),
            "/f: denied: the ACL's entries group::r-x, group:21:r-x give no w, and you are 12"
        );
        assert_eq!(
            rule(OTHER, &[SECOND], AccessKind::Write),
            "/f: denied: the ACL's entry group:22:-w- and the mask r-x give no w, and you are 12"
        );
        assert_eq!(
            rule(OTHER, &[NO_GROUP], AccessKind::Read),
            "/f: denied: the ACL's entry other::--x gives no r, and you are 12"
        );
        assert!(rule(NAMED, &[OWNING], AccessKind::Own).contains("only its owner (10) may"));
        access.mode &= 0o077;
        let owner = permit(&actor(OWNER, &[]), &access, AccessKind::Read, &|| "/f".into()).unwrap_err().to_string();
        assert!(owner.contains("mode 0051 of owner 10 group 20 gives owner no r"), "{owner}");
        let many = (0..9).map(|id| entry(group(100 + id), 0)).collect();
        access.set_acl(&access.acl().edited(&AclEdit::Modify(many)).unwrap());
        let groups: Vec<u32> = (100..109).collect();
        let many = permit(&actor(OTHER, &groups), &access, AccessKind::Read, &|| "/f".into()).unwrap_err().to_string();
        assert!(many.contains("group:102:---, group:103:--- and 5 more give no r"), "{many}");
    }
}
