//! Keeps a cluster's administrators. [`link::admin`] judges whether somebody may act or redeem an invitation; here is the one list that it judges by.
//!
//! The list is beside the cluster's authority, not in the namespace: a namespace that is restored to an earlier state must not bring a revoked
//! administrator back. Each change is durable before it counts.

use std::time::Duration;

use link::admin::{
    ADMIN_VALIDITY, ADMINISTRATORS_MAX, AdminError, AdminGrant, AdminId, AdminRecord, AdminRole, AdminStore,
    INVITED_BY_MAX, Invitation, InvitationError, PresentedInvitation, admit, check_invitation, is_admin_name,
};
use link::{Authority, Fingerprint, ManagerFiles, RandomError};
use serde::{Deserialize, Serialize};
use types::Timestamp;

use crate::tracked::Tracked;

/// How long a record stays in the list after nobody can act by it any more.
const KEPT: Duration = Duration::from_secs(90 * 86_400);

/// Writes the whole list durably. Returns an error for people.
pub type KeepAdministrators = dyn Fn(&[AdminRecord]) -> Result<(), String> + Send + Sync;

/// Why an invitation was not made.
#[derive(Debug, thiserror::Error)]
pub enum InviteError {
    /// The name does not fit.
    #[error(
        "`{0}` is no name for an administrator: write 1 to 64 letters, digits, and any of `.`, `_`, `-`, `@`, and begin with none of `.` and `-`"
    )]
    Name(String),
    /// There is such an administrator.
    #[error("there is an administrator {0} already; `weir admin revoke {0}` first, if that one must be replaced")]
    Exists(String),
    /// The list is full.
    #[error(
        "there are {ADMINISTRATORS_MAX} administrators and open invitations already; revoke some with `weir admin revoke NAME`"
    )]
    TooMany,
    /// The system has no randomness.
    #[error(transparent)]
    Random(#[from] RandomError),
    /// The invitation would not be valid.
    #[error(transparent)]
    Invitation(#[from] InvitationError),
    /// The list cannot be written.
    #[error("the invitation cannot be kept: {0}")]
    Keep(String),
}

/// Why an administrator was not revoked.
#[derive(Debug, thiserror::Error)]
pub enum RevokeAdminError {
    /// There is no such administrator.
    #[error("there is no administrator {0}, nor an open invitation of one; `weir admin list` shows all")]
    Unknown(String),
    /// The list cannot be written.
    #[error("{name} is revoked until this manager stops, but that cannot be kept: {why}; repair that and revoke again")]
    Keep {
        /// The name.
        name: String,
        /// The error of the system.
        why: String,
        /// Whose connections the caller must end.
        ids: Vec<AdminId>,
    },
}

/// Who may be invited, and for how long.
#[derive(Clone, Debug)]
pub struct Invite {
    /// The name of the administrator.
    pub name: String,
    /// The role.
    pub role: AdminRole,
    /// How long the invitation is valid.
    pub valid: Duration,
    /// How long the access lasts; `None` for no end.
    pub access: Option<Duration>,
    /// Who invites, in words. What is too long is cut.
    pub by: String,
}

/// An administrator in a list.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AdminView {
    /// The name.
    pub name: String,
    /// The id: hexadecimal digits.
    pub id: String,
    /// The role.
    pub role: AdminRole,
    /// The state.
    pub state: AdminState,
    /// Who made the invitation.
    pub invited_by: String,
    /// When the invitation was made, in seconds since 1970.
    pub invited: i64,
    /// When the invitation, the certificate or the access ends, whichever comes first; or when it has ended.
    pub until: i64,
}

/// The state of an administrator.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AdminState {
    /// The invitation can be redeemed.
    Invited,
    /// May act.
    Active,
    /// Was revoked.
    Revoked,
    /// The invitation, the certificate or the access has expired.
    Expired,
}

/// The administrators of a cluster.
pub struct Administrators {
    records: Tracked<Vec<AdminRecord>>,
    keep: Box<KeepAdministrators>,
}

impl std::fmt::Debug for Administrators {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Administrators")
    }
}

impl Administrators {
    /// The administrators in `records`; `keep` writes each change.
    #[must_use]
    pub fn new(records: Vec<AdminRecord>, keep: Box<KeepAdministrators>) -> Self {
        Self { records: Tracked::new(records), keep }
    }

    /// The files that all managers have: the authority and this list.
    #[must_use]
    pub fn files(&self, authority: &Authority) -> ManagerFiles {
        ManagerFiles { authority: authority.to_secret_bytes(), administrators: self.records() }
    }

    /// The whole list, for another manager.
    #[must_use]
    pub fn records(&self) -> Vec<AdminRecord> {
        self.records.lock().clone()
    }

    /// Takes the list of another manager. Durable on return. Returns whether it was news.
    ///
    /// # Errors
    /// It cannot be kept; then nothing has changed.
    pub fn follow(&self, records: Vec<AdminRecord>) -> Result<bool, String> {
        let mut own = self.records.lock();
        if *own == records {
            return Ok(false);
        }
        if records.len() > ADMINISTRATORS_MAX {
            return Err(format!("there are {} administrators in it, more than {ADMINISTRATORS_MAX}", records.len()));
        }
        (self.keep)(&records)?;
        *own = records;
        Ok(true)
    }

    /// Makes an invitation and returns its text. Show that only to the person who asked. Durable on return.
    ///
    /// # Errors
    /// [`InviteError`].
    pub fn invite(
        &self,
        invite: Invite,
        addresses: Vec<String>,
        authority: Fingerprint,
        now: Timestamp,
    ) -> Result<String, InviteError> {
        let Invite { name, role, valid, access, mut by } = invite;
        // Names of people and their credentials can be longer than all records together have room for.
        while by.len() > INVITED_BY_MAX {
            by.pop();
        }
        if !is_admin_name(&name) {
            return Err(InviteError::Name(name));
        }
        let expires = now.plus(valid);
        let (invitation, hash) = Invitation::make(addresses, authority, expires)?;
        let text = invitation.text()?;
        // The list stays locked while it is written, so that the file has the changes in their order.
        let mut records = self.records.lock();
        if records.iter().any(|record| record.name == name && !record.is_over(now)) {
            return Err(InviteError::Exists(name));
        }
        let mut next: Vec<AdminRecord> = records.iter().filter(|record| is_shown(record, now)).cloned().collect();
        make_room(&mut next, now);
        if next.len() >= ADMINISTRATORS_MAX {
            return Err(InviteError::TooMany);
        }
        next.push(AdminRecord {
            id: invitation.id,
            name,
            role,
            invited: now,
            invited_by: by,
            hash,
            invitation_ends: expires,
            access_ends: access.map(|access| now.plus(access)),
            key: None,
            certificate_ends: None,
            revoked: None,
        });
        (self.keep)(&next).map_err(InviteError::Keep)?;
        *records = next;
        Ok(text)
    }

    /// All administrators and invitations, by name.
    #[must_use]
    pub fn list(&self, now: Timestamp) -> Vec<AdminView> {
        let mut views: Vec<AdminView> = self.records.lock().iter().map(|record| shown(record, now)).collect();
        views.sort_by(|a, b| (&a.name, a.invited).cmp(&(&b.name, b.invited)));
        views
    }

    /// Revokes an administrator or an open invitation. Nobody can act by it once this has returned, even if it cannot be kept. The caller ends open
    /// connections. Returns the ids that were revoked.
    ///
    /// # Errors
    /// [`RevokeAdminError`].
    pub fn revoke(&self, name: &str, now: Timestamp) -> Result<Vec<AdminId>, RevokeAdminError> {
        let mut records = self.records.lock();
        let mut revoked = Vec::new();
        for record in records.iter_mut().filter(|record| record.name == name) {
            // Revoking again writes the file again, if that failed before.
            if record.revoked.is_none() {
                record.revoked = Some(now);
            }
            revoked.push(record.id);
        }
        if revoked.is_empty() {
            return Err(RevokeAdminError::Unknown(name.to_owned()));
        }
        match (self.keep)(&records) {
            Ok(()) => Ok(revoked),
            Err(why) => Err(RevokeAdminError::Keep { name: name.to_owned(), why, ids: revoked }),
        }
    }

    /// The record of somebody with a valid certificate, who may act now.
    ///
    /// # Errors
    /// [`AdminError`].
    pub fn admit(&self, id: AdminId, now: Timestamp) -> Result<AdminRecord, AdminError> {
        let records = self.records.lock();
        admit(records.iter().find(|record| record.id == id), id, now).cloned()
    }

    /// Permits a new certificate for an administrator, who may act now. Durable on return.
    ///
    /// # Errors
    /// [`AdminError`].
    pub fn renew(&self, id: AdminId, now: Timestamp) -> Result<AdminGrant, AdminError> {
        self.grant(id, None, now, |record| admit(record, id, now).map(drop))
    }

    /// Records a new certificate, and the `key` of a redeemed invitation, if `judge` agrees.
    fn grant(
        &self,
        id: AdminId,
        key: Option<&[u8; 32]>,
        now: Timestamp,
        judge: impl FnOnce(Option<&AdminRecord>) -> Result<(), AdminError>,
    ) -> Result<AdminGrant, AdminError> {
        let mut records = self.records.lock();
        judge(records.iter().find(|record| record.id == id))?;
        let mut next = records.clone();
        let record = next.iter_mut().find(|record| record.id == id).ok_or(AdminError::Unknown { id })?;
        let validity = record.validity(now, ADMIN_VALIDITY);
        record.certificate_ends = Some(now.plus(validity));
        if let Some(key) = key {
            record.key = Some(*key);
        }
        let grant = AdminGrant { name: record.name.clone(), role: record.role, validity };
        (self.keep)(&next).map_err(AdminError::Failed)?;
        *records = next;
        Ok(grant)
    }
}

impl AdminStore for Administrators {
    fn redeem(
        &self,
        presented: &PresentedInvitation,
        key: &[u8; 32],
        now: Timestamp,
    ) -> Result<AdminGrant, AdminError> {
        self.grant(presented.id, Some(key), now, |record| check_invitation(record, presented, key, now).map(drop))
    }
}

/// Whether a list still shows a record.
fn is_shown(record: &AdminRecord, now: Timestamp) -> bool {
    !record.is_over(now) || ended(record).plus(KEPT) > now
}

/// When nobody could act by the record any more, or when that will be.
fn ended(record: &AdminRecord) -> Timestamp {
    let ends = [record.revoked, record.access_ends, record.certificate_ends];
    let invitation = record.key.is_none().then_some(record.invitation_ends);
    ends.into_iter().flatten().chain(invitation).min().unwrap_or(record.invitation_ends)
}

/// Forgets the oldest records by which nobody can act, until there is room for one more. An administrator that is not known is refused like one
/// that was revoked.
fn make_room(records: &mut Vec<AdminRecord>, now: Timestamp) {
    while records.len() >= ADMINISTRATORS_MAX {
        let over = records.iter().enumerate().filter(|(_, record)| record.is_over(now));
        let Some(oldest) = over.min_by_key(|(_, record)| ended(record)).map(|(at, _)| at) else { return };
        records.remove(oldest);
    }
}

fn shown(record: &AdminRecord, now: Timestamp) -> AdminView {
    let state = match record {
        record if record.revoked.is_some() => AdminState::Revoked,
        record if record.is_over(now) => AdminState::Expired,
        record if record.key.is_none() => AdminState::Invited,
        _ => AdminState::Active,
    };
    AdminView {
        name: record.name.clone(),
        id: record.id.to_string(),
        role: record.role,
        state,
        invited_by: record.invited_by.clone(),
        invited: record.invited.secs(),
        until: ended(record).secs(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use link::NewKey;

    use super::*;

    const NOW: Timestamp = Timestamp(1_000_000_000_000_000_000);
    const HOUR: Duration = Duration::from_secs(3600);
    const DAY: Duration = Duration::from_secs(86_400);

    /// Administrators, what was kept of them, and whether keeping fails.
    struct World {
        administrators: Administrators,
        kept: Arc<Tracked<Vec<AdminRecord>>>,
        is_full: Arc<AtomicBool>,
    }

    impl World {
        fn new() -> Self {
            Self::with(Vec::new())
        }

        fn with(records: Vec<AdminRecord>) -> Self {
            let (kept, is_full) = (Arc::new(Tracked::new(records.clone())), Arc::new(AtomicBool::new(false)));
            let (inner, fails) = (Arc::clone(&kept), Arc::clone(&is_full));
            let keep = move |records: &[AdminRecord]| match fails.load(Ordering::SeqCst) {
                true => Err("the disk is full".to_owned()),
                false => {
                    *inner.lock() = records.to_vec();
                    Ok(())
                }
            };
            Self { administrators: Administrators::new(records, Box::new(keep)), kept, is_full }
        }

        /// After a restart.
        fn again(&self) -> Self {
            Self::with(self.kept.lock().clone())
        }

        fn invite(&self, name: &str, access: Option<Duration>) -> Result<Invitation, InviteError> {
            let invite =
                Invite { name: name.into(), role: AdminRole::Operator, valid: HOUR, access, by: "root".into() };
            let text = self.administrators.invite(invite, vec!["m:1".into()], Fingerprint([1; 32]), NOW)?;
            Ok(Invitation::parse(&text).unwrap())
        }

        fn active(&self, name: &str) -> AdminId {
            let invitation = self.invite(name, None).unwrap();
            self.administrators.redeem(&invitation.presented(), &[1; 32], NOW).unwrap();
            invitation.id
        }

        fn state(&self, name: &str, now: Timestamp) -> Vec<AdminState> {
            self.administrators.list(now).into_iter().filter(|view| view.name == name).map(|view| view.state).collect()
        }
    }

    #[test]
    fn an_invitation_makes_one_administrator_also_over_a_restart() {
        let world = World::new();
        let invitation = world.invite("alice", None).unwrap();
        assert_eq!(world.state("alice", NOW), [AdminState::Invited]);
        assert!(world.administrators.admit(invitation.id, NOW).is_err(), "an invitation is no access");
        let world = world.again();
        let key = NewKey::draw().unwrap().public();
        let grant = world.administrators.redeem(&invitation.presented(), &key, NOW).unwrap();
        assert_eq!(grant, AdminGrant { name: "alice".into(), role: AdminRole::Operator, validity: ADMIN_VALIDITY });
        let world = world.again();
        assert_eq!(
            world.administrators.redeem(&invitation.presented(), &key, NOW).unwrap(),
            grant,
            "the answer was lost"
        );
        let other = world.administrators.redeem(&invitation.presented(), &[2; 32], NOW).unwrap_err();
        assert!(matches!(other, AdminError::Used { .. }), "{other}");
        assert_eq!(world.administrators.admit(invitation.id, NOW).unwrap().role, AdminRole::Operator);
        assert_eq!(world.state("alice", NOW), [AdminState::Active]);
        let again = world.invite("alice", None).unwrap_err();
        assert!(matches!(again, InviteError::Exists(_)), "{again}");
    }

    #[test]
    fn what_is_kept_about_the_inviter_is_bounded() {
        let world = World::new();
        let by = "\u{e4}".repeat(10_000);
        let invite = Invite { name: "carol".into(), role: AdminRole::Viewer, valid: HOUR, access: None, by };
        world.administrators.invite(invite, vec!["m:1".into()], Fingerprint([1; 32]), NOW).unwrap();
        assert_eq!(world.administrators.list(NOW)[0].invited_by, "\u{e4}".repeat(INVITED_BY_MAX / 2));
    }

    #[test]
    fn a_revoked_administrator_stays_revoked() {
        let world = World::new();
        let id = world.active("alice");
        assert_eq!(world.administrators.revoke("alice", NOW).unwrap(), [id]);
        for world in [&world, &world.again()] {
            assert!(matches!(world.administrators.admit(id, NOW), Err(AdminError::Revoked { .. })));
            assert!(matches!(world.administrators.renew(id, NOW), Err(AdminError::Revoked { .. })));
            assert_eq!(world.state("alice", NOW), [AdminState::Revoked]);
        }
        assert!(matches!(world.administrators.revoke("bob", NOW), Err(RevokeAdminError::Unknown(_))));
        // Somebody else may have the name.
        let second = world.active("alice");
        assert!(world.administrators.admit(second, NOW).is_ok() && world.administrators.admit(id, NOW).is_err());
        // An open invitation is revoked, too.
        let invitation = world.invite("carol", None).unwrap();
        world.administrators.revoke("carol", NOW).unwrap();
        assert!(world.administrators.redeem(&invitation.presented(), &[3; 32], NOW).is_err());
    }

    #[test]
    fn a_full_disk_lets_nobody_in_and_keeps_nobody_in() {
        let world = World::new();
        let (id, invitation) = (world.active("alice"), world.invite("bob", None).unwrap());
        world.is_full.store(true, Ordering::SeqCst);
        assert!(matches!(world.invite("carol", None), Err(InviteError::Keep(_))));
        assert!(world.state("carol", NOW).is_empty());
        assert!(matches!(
            world.administrators.redeem(&invitation.presented(), &[3; 32], NOW),
            Err(AdminError::Failed(_))
        ));
        assert!(world.administrators.admit(invitation.id, NOW).is_err());
        let error = world.administrators.revoke("alice", NOW).unwrap_err();
        assert!(error.to_string().contains("the disk is full"), "{error}");
        assert!(world.administrators.admit(id, NOW).is_err(), "revoked all the same");
        world.is_full.store(false, Ordering::SeqCst);
        world.administrators.revoke("alice", NOW).unwrap();
        assert!(world.again().administrators.admit(id, NOW).is_err());
    }

    #[test]
    fn access_ends_and_certificates_are_not_longer_than_it() {
        let world = World::new();
        let invitation = world.invite("guest", Some(DAY * 10)).unwrap();
        let id = invitation.id;
        assert_eq!(world.administrators.redeem(&invitation.presented(), &[1; 32], NOW).unwrap().validity, DAY * 10);
        let later = NOW.plus(DAY * 9);
        assert_eq!(world.administrators.renew(id, later).unwrap().validity, DAY);
        assert_eq!(world.state("guest", later), [AdminState::Active]);
        let end = NOW.plus(DAY * 10);
        assert!(matches!(world.administrators.renew(id, end), Err(AdminError::Ended { .. })));
        assert_eq!(world.state("guest", end), [AdminState::Expired]);
        // Without renewal the certificate expires, and the name is free again.
        let _ = world.active("away");
        assert_eq!(world.state("away", NOW.plus(ADMIN_VALIDITY)), [AdminState::Expired]);
    }

    #[test]
    fn the_list_is_bounded_and_forgets_nobody_who_may_act() {
        let world = World::new();
        let first = world.active("first");
        for number in 0..ADMINISTRATORS_MAX + 5 {
            world.invite(&format!("a{number}"), None).unwrap();
            world.administrators.revoke(&format!("a{number}"), NOW).unwrap();
        }
        assert_eq!(world.administrators.list(NOW).len(), ADMINISTRATORS_MAX);
        assert!(world.administrators.admit(first, NOW).is_ok());
        let world = World::new();
        for number in 0..ADMINISTRATORS_MAX {
            world.invite(&format!("a{number}"), None).unwrap();
        }
        assert!(matches!(world.invite("one-more", None), Err(InviteError::TooMany)));
        for name in ["", "a b", "a\nb", "-a", ".a", "ä", &"a".repeat(65)] {
            assert!(matches!(world.invite(name, None), Err(InviteError::Name(_))), "{name}");
        }
    }
}
