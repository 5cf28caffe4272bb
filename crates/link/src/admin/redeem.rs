//! How an invited person becomes an administrator: the client makes a key, shows the invitation to a manager, and gets
//! a certificate.
//!
//! Only the manager shows a certificate in TLS. The client trusts the authority whose fingerprint is in the invitation.
//!
//! | from | bytes | |
//! | --- | --- | --- |
//! | manager | 40 | `weiradmn`, 32 random bytes |
//! | client | 4 + n | length, and a message: id, secret, public key, signature of random bytes, id and key |
//! | manager | 4 + n | length, and a message: name, role and certificate, or the reason for a refusal |
//!
//! The secret goes only to a manager of the invitation's cluster. The private key never leaves the client.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use types::Timestamp;

use crate::admin::stream::dial;
use crate::admin::{
    AdminError, AdminHandler, AdminIdentity, AdminIdentityError, AdminName, AdminRole, Invitation, PresentedInvitation,
};
use crate::admission::{Admission, OnAdmission};
use crate::authority::Authority;
use crate::channel::{self, Deadline, SplitChannel};
use crate::credentials::{self, INVITE_PROTOCOL};
use crate::error::{CloseCause, LinkError};
use crate::hello::{cut, printable};
use crate::issued::{IssuedAdmin, IssuedBytes};
use crate::join::{now, receive, send};
use crate::refusal::{Refusal, turn_away};
use crate::standby::is_of_standby;
use crate::verify::name_of;
use crate::{NewKey, Role, Settings, keys, random};

const MAGIC: &[u8; 8] = b"weiradmn";
const CHALLENGE_BYTES: usize = 40;
const REASON_MAX: usize = 1024;
/// How often the same key asks when no answer comes.
const TRIES: usize = 3;

/// What a manager grants to somebody with an invitation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AdminGrant {
    /// The name for people.
    pub name: String,
    /// The role.
    pub role: AdminRole,
    /// How long the certificate may be valid.
    pub validity: Duration,
}

/// Where the managers keep administrators.
pub trait AdminStore: Send + Sync {
    /// Compares `presented` with the kept invitation ([`crate::admin::check_invitation`]) and records the key. Durable
    /// on return.
    ///
    /// # Errors
    /// [`AdminError`].
    fn redeem(&self, presented: &PresentedInvitation, key: &[u8; 32], now: Timestamp)
    -> Result<AdminGrant, AdminError>;
}

/// The entry point for administrators at a manager.
pub struct AdminService {
    /// Issues certificates.
    pub authority: Arc<Authority>,
    /// Checks invitations.
    pub store: Arc<dyn AdminStore>,
    /// Serves connections.
    pub handler: Arc<dyn AdminHandler>,
    /// Learns who has redeemed an invitation, and who with the secret of one was refused.
    pub on_admission: OnAdmission,
}

impl std::fmt::Debug for AdminService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AdminService({:?})", self.authority)
    }
}

/// An invitation could not be redeemed.
#[derive(Debug, thiserror::Error)]
pub enum RedeemError {
    /// The manager refuses it.
    #[error("the manager at {address} refuses: {reason}")]
    Refused {
        /// The manager.
        address: String,
        /// The reason.
        reason: String,
    },
    /// No manager answered.
    #[error("no manager could be asked: {}", list(.0))]
    Unreachable(Vec<LinkError>),
    /// The answer holds no valid identity.
    #[error(transparent)]
    Identity(#[from] AdminIdentityError),
}

fn list(errors: &[LinkError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

#[derive(Serialize, Deserialize)]
struct Request {
    presented: PresentedInvitation,
    key: [u8; 32],
    signature: Vec<u8>,
}

#[derive(Serialize, Deserialize)]
enum Verdict {
    Welcome { name: String, role: AdminRole, issued: IssuedBytes },
    Refused(String),
}

/// Redeems `invitation` for `key` at the first manager of `managers` that answers. Keep the key before: an invitation is
/// good for one key, which may ask again when an answer was lost ([`crate::admin::key_to_redeem`]).
///
/// # Errors
/// [`RedeemError`].
pub fn redeem(
    invitation: &Invitation,
    key: &NewKey,
    managers: &[String],
    settings: &Settings,
) -> Result<AdminIdentity, RedeemError> {
    let mut failed = Vec::new();
    let mut refused = None;
    for _ in 0..TRIES {
        failed.clear();
        for address in managers {
            match ask(invitation, key, address, settings) {
                Ok(Verdict::Welcome { name, role, issued }) => {
                    let issued = IssuedAdmin::from_message(issued);
                    let issued = issued.ok_or(AdminIdentityError::Answer("it makes no sense"))?;
                    if issued.name.id != invitation.id || !issued.authority.trusts(&invitation.authority) {
                        return Err(AdminIdentityError::Answer("it is for somebody else").into());
                    }
                    return Ok(AdminIdentity::new(key, issued, (name, role), managers.to_vec(), now())?);
                }
                Ok(Verdict::Refused(reason)) => {
                    let reason = printable(reason.as_bytes());
                    let is_of_standby = is_of_standby(&reason);
                    let error = RedeemError::Refused { address: address.clone(), reason };
                    // The active manager is at another address.
                    if !is_of_standby {
                        return Err(error);
                    }
                    refused = Some(error);
                }
                Err(error) => failed.push(error),
            }
        }
        // A connection that broke off may have lost the answer; everything else will not be better soon.
        if !failed.iter().any(|error| matches!(error.why, CloseCause::BrokenOff)) {
            break;
        }
    }
    Err(refused.unwrap_or(RedeemError::Unreachable(failed)))
}

fn ask(invitation: &Invitation, key: &NewKey, address: &str, settings: &Settings) -> Result<Verdict, LinkError> {
    let ask = || {
        let deadline = Deadline::new("redeeming the invitation", settings.connect_time);
        let config = credentials::joining(invitation.authority, INVITE_PROTOCOL).map_err(CloseCause::of_tls)?;
        let (socket, _) = dial(address, settings)?;
        let (mut halves, shown) = channel::connect(socket, config, deadline, settings.send_time)?;
        // Only a manager may see the secret.
        let name = shown.certificate.as_ref().and_then(name_of).ok_or(CloseCause::NoCertificate)?;
        if !name.roles.contain(Role::Manager) {
            return Err(CloseCause::Misbehaved(format!("is node {}, which is no manager", name.node)));
        }
        let mut challenge = [0; CHALLENGE_BYTES];
        if !halves.reading.fill(&mut challenge, deadline)? {
            return Err(CloseCause::BrokenOff);
        }
        if !challenge.starts_with(MAGIC) {
            return Err(CloseCause::Misbehaved("does not know how invitations are redeemed".into()));
        }
        let request = Request {
            presented: invitation.presented(),
            key: key.public(),
            signature: key.sign_redeem(&challenge, &invitation.id),
        };
        send(&mut halves, &request)?;
        let verdict = receive(&mut halves, deadline)?;
        halves.writing.end();
        Ok(verdict)
    };
    ask().map_err(|why: CloseCause| why.with(address))
}

/// Redeems the peer's invitation if it is valid.
///
/// # Errors
/// Also for a peer without an invitation of this cluster, which has been told so: the listener limits how often that
/// stands in the log. The audit log has only what a secret was needed for.
pub(crate) fn serve(
    service: &AdminService,
    mut halves: SplitChannel,
    address: SocketAddr,
    deadline: Deadline,
) -> Result<(), CloseCause> {
    let mut challenge = [0; CHALLENGE_BYTES];
    challenge[..8].copy_from_slice(MAGIC);
    let nonce: [u8; 32] = random::bytes().map_err(|error| CloseCause::ClosedHere(error.to_string()))?;
    challenge[8..].copy_from_slice(&nonce);
    halves.writing.send(&[&challenge])?;
    let request: Request = receive(&mut halves, deadline)?;
    let id = request.presented.id;
    let verdict = match grant(service, &challenge, &request) {
        Ok((AdminGrant { name, role, .. }, issued)) => {
            tracing::info!(target: "audit", by = name, %role, peer = %address, what = "redeem an invitation", outcome = "done", "change");
            let shown = role.to_string();
            (service.on_admission)(&Admission { name: &name, role: Some(&shown), address, refused: None });
            Verdict::Welcome { name, role, issued: issued.to_message() }
        }
        Err(Refusal::OfInvited(reason)) => {
            tracing::warn!(target: "audit", peer = %address, what = format!("redeem invitation {id}"), outcome = format!("refused: {reason}"), "change");
            let invitation = format!("invitation {id}");
            (service.on_admission)(&Admission { name: &invitation, role: None, address, refused: Some(&reason) });
            Verdict::Refused(cut(&reason, REASON_MAX).to_owned())
        }
        Err(Refusal::OfStranger(reason)) => {
            let verdict = Verdict::Refused(cut(&reason, REASON_MAX).to_owned());
            return Err(turn_away(&mut halves, &verdict, format!("could not redeem invitation {id}: {reason}")));
        }
    };
    send(&mut halves, &verdict)?;
    halves.writing.end();
    Ok(())
}

fn grant(
    service: &AdminService,
    challenge: &[u8; CHALLENGE_BYTES],
    request: &Request,
) -> Result<(AdminGrant, IssuedAdmin), Refusal> {
    let Request { presented, key, signature } = request;
    if !keys::check_redeem(challenge, &presented.id, key, signature) {
        return Err(Refusal::OfStranger("the request is not signed with the key that it is for".into()));
    }
    let now = now();
    let grant = service.store.redeem(presented, key, now).map_err(|error| match error {
        AdminError::InvitationUnknown { .. } => Refusal::OfStranger(error.to_string()),
        error => Refusal::OfInvited(error.to_string()),
    })?;
    let subject = AdminName { cluster: service.authority.cluster(), id: presented.id };
    let issued = service.authority.issue_admin(&subject, key, now, grant.validity);
    let issued = issued.map_err(|error| Refusal::OfInvited(error.to_string()))?;
    Ok((grant, issued))
}

#[cfg(test)]
mod tests {
    use types::ClusterId;

    use super::*;
    use crate::UnidentifiedConnection;
    use crate::admin::AdminStream;

    /// Lets nobody in, and notices who asks.
    struct Closed;

    impl AdminStore for Closed {
        fn redeem(&self, _: &PresentedInvitation, _: &[u8; 32], _: Timestamp) -> Result<AdminGrant, AdminError> {
            Err(AdminError::Failed("it was asked".into()))
        }
    }

    impl AdminHandler for Closed {
        fn serve(&self, _: AdminName, _: AdminStream, _: UnidentifiedConnection) {}
        fn serve_with_token(&self, _: AdminStream, _: UnidentifiedConnection) {}

        fn serve_with_certificate(&self, _: AdminStream, _: UnidentifiedConnection) {}
    }

    #[test]
    fn a_request_counts_only_with_the_signature_of_its_key() {
        let folder = tempfile::tempdir().unwrap();
        let authority = Arc::new(Authority::create(folder.path(), ClusterId(1), now()).unwrap());
        let (invitation, _) = Invitation::make(vec!["m:1".into()], authority.fingerprint(), now()).unwrap();
        let service = AdminService {
            authority,
            store: Arc::new(Closed),
            handler: Arc::new(Closed),
            on_admission: Arc::new(|_| ()),
        };
        let (challenge, other) = ([1; CHALLENGE_BYTES], [2; CHALLENGE_BYTES]);
        let (key, stolen) = (NewKey::draw().unwrap(), NewKey::draw().unwrap());
        let said = |signature: Vec<u8>, key: &NewKey| {
            let request = Request { presented: invitation.presented(), key: key.public(), signature };
            grant(&service, &challenge, &request).unwrap_err()
        };
        let asked = said(key.sign_redeem(&challenge, &invitation.id), &key);
        assert!(matches!(&asked, Refusal::OfInvited(why) if why.contains("it was asked")), "{asked:?}");
        for signature in
            [key.sign_redeem(&other, &invitation.id), stolen.sign_redeem(&challenge, &invitation.id), vec![]]
        {
            let unsigned = said(signature, &key);
            assert!(matches!(&unsigned, Refusal::OfStranger(why) if why.contains("not signed")), "{unsigned:?}");
        }
    }
}
