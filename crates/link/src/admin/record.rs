//! What a manager keeps of each administrator, who may act by it, and the file that holds it.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use types::{Timestamp, units};

use crate::admin::{AdminId, AdminRole, PresentedInvitation};
use crate::message;
use crate::secret_file::{Existing, FileError, SecretFile};

/// The most administrators and open invitations that a manager keeps, ended ones included.
pub const ADMINISTRATORS_MAX: usize = 128;

const KIND: SecretFile = SecretFile {
    first_line: "weir administrators 1",
    hint: "put back the file of a backup, or move it away: all administrators must then be invited again",
};

/// An administrator, or the invitation of one.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdminRecord {
    /// The id.
    pub id: AdminId,
    /// The name for people.
    pub name: String,
    /// What the administrator may do.
    pub role: AdminRole,
    /// When the invitation was made.
    pub invited: Timestamp,
    /// Who made it: at most [`INVITED_BY_MAX`](super::INVITED_BY_MAX) bytes.
    pub invited_by: String,
    /// A hash of the invitation's secret. The secret is random, so nobody can guess it from the hash.
    pub hash: [u8; 32],
    /// When the invitation expires.
    pub invitation_ends: Timestamp,
    /// When the access ends, whatever certificate there is.
    pub access_ends: Option<Timestamp>,
    /// The public key that redeemed the invitation.
    pub key: Option<[u8; 32]>,
    /// When the newest certificate expires.
    pub certificate_ends: Option<Timestamp>,
    /// When the administrator was revoked.
    pub revoked: Option<Timestamp>,
}

impl fmt::Debug for AdminRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, name, role, revoked, .. } = self;
        write!(f, "AdminRecord({id}, {name}, {role}, revoked {revoked:?}, ..)")
    }
}

/// Why somebody may not act as an administrator. It contains nothing of a secret.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AdminError {
    /// Nobody of this id is known.
    #[error("this cluster does not know this administrator (id {id}); ask for an invitation: `weir admin invite`")]
    Unknown {
        /// The id.
        id: AdminId,
    },
    /// The administrator was revoked.
    #[error("administrator {name} was revoked {} ago; ask for a new invitation: `weir admin invite`", units::show_duration(*ago))]
    Revoked {
        /// The name.
        name: String,
        /// The time since then.
        ago: Duration,
    },
    /// The access has ended.
    #[error("the access of administrator {name} ended {} ago; ask for a new invitation: `weir admin invite`", units::show_duration(*ago))]
    Ended {
        /// The name.
        name: String,
        /// The time since then.
        ago: Duration,
    },
    /// The cluster has replaced the authority of the certificate.
    #[error(
        "this certificate is of an authority that the cluster has replaced; ask for a new invitation: `weir admin invite`"
    )]
    OldAuthority,
    /// The invitation is unknown, or its secret is wrong.
    #[error("this cluster does not know the invitation (id {id}); ask for a new one: `weir admin invite`")]
    InvitationUnknown {
        /// The id.
        id: AdminId,
    },
    /// Somebody has redeemed it.
    #[error(
        "the invitation of {name} was redeemed already; if that was not you, let an administrator run `weir admin revoke {name}` at once"
    )]
    Used {
        /// The name.
        name: String,
    },
    /// It has expired.
    #[error("the invitation of {name} expired {} ago by the manager's clock; ask for a new one: `weir admin invite`", units::show_duration(*ago))]
    Expired {
        /// The name.
        name: String,
        /// The time since then.
        ago: Duration,
    },
    /// The manager cannot record it now.
    #[error("the manager cannot record it: {0}; try again")]
    Failed(String),
    /// The manager is a standby. The text is [`standby_reason`](crate::standby_reason) as it is, so that whoever asked understands it.
    #[error("{0}")]
    Standby(String),
}

fn since(then: Timestamp, now: Timestamp) -> Duration {
    Duration::from_nanos(u64::try_from(now.0.saturating_sub(then.0)).unwrap_or(0))
}

impl AdminRecord {
    /// Whether nobody can act by it any more, nor ever again.
    #[must_use]
    pub fn is_over(&self, now: Timestamp) -> bool {
        let has_ended = |end: Option<Timestamp>| end.is_some_and(|end| end <= now);
        let is_unused = self.key.is_none() && self.invitation_ends <= now;
        // Without a valid certificate nobody can renew one.
        self.revoked.is_some() || is_unused || has_ended(self.access_ends) || has_ended(self.certificate_ends)
    }

    /// How long a certificate that is made now may be valid.
    #[must_use]
    pub fn validity(&self, now: Timestamp, longest: Duration) -> Duration {
        self.access_ends.map_or(longest, |end| longest.min(since(now, end)))
    }

    fn check_access(&self, now: Timestamp) -> Result<(), AdminError> {
        let name = || self.name.clone();
        if let Some(at) = self.revoked {
            return Err(AdminError::Revoked { name: name(), ago: since(at, now) });
        }
        match self.access_ends {
            Some(end) if end <= now => Err(AdminError::Ended { name: name(), ago: since(end, now) }),
            _ => Ok(()),
        }
    }
}

/// Decides whether the holder of a valid certificate for `id` may act, given the kept `record`.
///
/// # Errors
/// [`AdminError`].
pub fn admit(record: Option<&AdminRecord>, id: AdminId, now: Timestamp) -> Result<&AdminRecord, AdminError> {
    let record = record.filter(|record| record.id == id && record.key.is_some()).ok_or(AdminError::Unknown { id })?;
    record.check_access(now).map(|()| record)
}

/// Decides whether `presented` gets a certificate for `key`. The caller must record the key before anybody else's
/// request is decided. The same key may ask again: its answer was lost.
///
/// # Errors
/// [`AdminError`]. Somebody without the secret learns nothing.
pub fn check_invitation<'a>(
    record: Option<&'a AdminRecord>,
    presented: &PresentedInvitation,
    key: &[u8; 32],
    now: Timestamp,
) -> Result<&'a AdminRecord, AdminError> {
    let id = presented.id;
    let known = |record: &&AdminRecord| record.id == id && presented.has_hash(&record.hash);
    let record = record.filter(known).ok_or(AdminError::InvitationUnknown { id })?;
    record.check_access(now)?;
    let name = || record.name.clone();
    if record.key.is_some_and(|used| used != *key) {
        return Err(AdminError::Used { name: name() });
    }
    if record.invitation_ends <= now {
        return Err(AdminError::Expired { name: name(), ago: since(record.invitation_ends, now) });
    }
    Ok(record)
}

/// Writes the records to the file `path` durably, replacing an existing one.
///
/// # Errors
/// The file cannot be written.
pub fn write_records(path: &Path, records: &[AdminRecord]) -> Result<(), FileError> {
    let bytes = message::encode(&records).map_err(|_| KIND.damaged(path, "the records are too long"))?;
    KIND.write(path, &[("records", STANDARD.encode(bytes))], Existing::Replace)
}

/// Reads the records in the file `path`; none if there is no such file.
///
/// # Errors
/// The file is damaged, or readable by others.
pub fn read_records(path: &Path) -> Result<Vec<AdminRecord>, FileError> {
    let [records] = match KIND.read(path, ["records"]) {
        Err(FileError::Missing { .. }) => return Ok(Vec::new()),
        other => other?,
    };
    let bytes = STANDARD.decode(records).map_err(|_| KIND.damaged(path, "its records are not base64"))?;
    message::decode(&bytes).map_err(|_| KIND.damaged(path, "its records make no sense"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::Invitation;
    use crate::{Fingerprint, NewKey};

    const NOW: Timestamp = Timestamp(1_000_000_000_000);
    const DAY: Duration = Duration::from_secs(86_400);

    fn made() -> (Invitation, AdminRecord) {
        let expires = NOW.plus(DAY);
        let (invitation, hash) = Invitation::make(vec!["m:1".into()], Fingerprint([0; 32]), expires).unwrap();
        let record = AdminRecord {
            id: invitation.id,
            name: "alice".into(),
            role: AdminRole::Operator,
            invited: NOW,
            invited_by: "root".into(),
            hash,
            invitation_ends: expires,
            access_ends: None,
            key: None,
            certificate_ends: None,
            revoked: None,
        };
        (invitation, record)
    }

    #[test]
    fn an_invitation_is_good_for_one_key_until_it_expires() {
        let (invitation, mut record) = made();
        let shown = invitation.presented();
        assert_eq!(check_invitation(Some(&record), &shown, &[1; 32], NOW).unwrap().name, "alice");
        let late = check_invitation(Some(&record), &shown, &[1; 32], NOW.plus(DAY * 2)).unwrap_err();
        assert_eq!(late, AdminError::Expired { name: "alice".into(), ago: DAY });
        record.key = Some([1; 32]);
        assert!(check_invitation(Some(&record), &shown, &[1; 32], NOW).is_ok(), "its answer was lost");
        let other = check_invitation(Some(&record), &shown, &[2; 32], NOW).unwrap_err();
        assert_eq!(other, AdminError::Used { name: "alice".into() });
        record.revoked = Some(NOW);
        assert!(matches!(check_invitation(Some(&record), &shown, &[1; 32], NOW), Err(AdminError::Revoked { .. })));
    }

    #[test]
    fn without_the_secret_nobody_learns_anything() {
        let (invitation, mut record) = made();
        record.revoked = Some(NOW);
        let (other, _) = made();
        let mut guess = other.presented();
        guess.id = invitation.id;
        let unknown = AdminError::InvitationUnknown { id: invitation.id };
        assert_eq!(check_invitation(Some(&record), &guess, &[1; 32], NOW), Err(unknown.clone()));
        assert_eq!(check_invitation(None, &invitation.presented(), &[1; 32], NOW), Err(unknown));
    }

    #[test]
    fn a_certificate_alone_is_not_enough() {
        let (_, mut record) = made();
        let id = record.id;
        let unknown = Err(AdminError::Unknown { id });
        assert_eq!(admit(None, id, NOW), unknown);
        assert_eq!(admit(Some(&record), id, NOW), unknown, "nobody has redeemed it");
        record.key = Some([1; 32]);
        assert!(admit(Some(&record), id, NOW).is_ok());
        assert_eq!(admit(Some(&record), AdminId([0; 16]), NOW), Err(AdminError::Unknown { id: AdminId([0; 16]) }));
        record.access_ends = Some(NOW.plus(DAY));
        assert!(admit(Some(&record), id, NOW).is_ok());
        let ended = admit(Some(&record), id, NOW.plus(DAY));
        assert_eq!(ended, Err(AdminError::Ended { name: "alice".into(), ago: Duration::ZERO }));
        assert_eq!(record.validity(NOW, DAY * 30), DAY);
        assert_eq!(record.validity(NOW.plus(DAY * 3), DAY * 30), Duration::ZERO);
        record.revoked = Some(NOW);
        assert!(matches!(admit(Some(&record), id, NOW), Err(AdminError::Revoked { .. })));
    }

    #[test]
    fn the_bytes_of_a_record_are_pinned() {
        let record = AdminRecord {
            id: AdminId([1; 16]),
            name: "a".into(),
            role: AdminRole::Operator,
            invited: Timestamp(1),
            invited_by: "b".into(),
            hash: [2; 32],
            invitation_ends: Timestamp(2),
            access_ends: None,
            key: Some([3; 32]),
            certificate_ends: Some(Timestamp(3)),
            revoked: None,
        };
        let bytes = [&[1; 16][..], b"\x01a\x01\x02\x01b", &[2; 32], &[4, 0, 1], &[3; 32], &[1, 6, 0]].concat();
        assert_eq!(message::encode(&record).unwrap(), bytes);
    }

    #[test]
    fn records_are_read_back_from_a_private_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cluster/administrators");
        assert_eq!(read_records(&path).unwrap(), []);
        let records: Vec<AdminRecord> = (0..ADMINISTRATORS_MAX)
            .map(|_| AdminRecord {
                name: "n".repeat(crate::admin::ADMIN_NAME_MAX),
                invited_by: "n".repeat(crate::admin::INVITED_BY_MAX),
                key: Some(NewKey::draw().unwrap().public()),
                access_ends: Some(Timestamp(i64::MAX)),
                certificate_ends: Some(Timestamp(i64::MAX)),
                revoked: Some(Timestamp(i64::MAX)),
                ..made().1
            })
            .collect();
        write_records(&path, &records).unwrap();
        assert_eq!(read_records(&path).unwrap(), records, "the most that are kept fit into the file");
        std::fs::write(&path, "weir administrators 1\n").unwrap();
        assert!(read_records(&path).unwrap_err().to_string().contains("invited again"));
    }
}
