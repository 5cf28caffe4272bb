//! How a new machine becomes a node: it makes its key, shows a token to a manager, and gets a number and a certificate.
//!
//! Only the manager shows a certificate in TLS. The new node trusts the authority whose fingerprint is in its token.
//!
//! | from | bytes | |
//! | --- | --- | --- |
//! | manager | 44 | `weirjoin`, oldest and newest version (2 bytes each, little-endian), 32 random bytes |
//! | new node | 4 + n | length, and a message: token, secret, roles, name, public key, signature of all these and the random bytes |
//! | manager | 4 + n | length, and a message: the certificate, or the reason for a refusal |
//!
//! The secret goes only to a manager of the token's cluster. The private key never leaves the node.

use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use types::{ClusterId, NodeId, Timestamp};

use crate::admission::{Admission, OnAdmission};
use crate::authority::Authority;
use crate::channel::{self, Deadline, SplitChannel};
use crate::credentials::{self, JOIN_PROTOCOL};
use crate::error::{CloseCause, LinkError};
use crate::hello::{Versions, cut, printable};
use crate::identity::{Identity, IdentityError};
use crate::issued::{Issued, IssuedBytes};
use crate::refusal::{Refusal, turn_away};
use crate::standby::is_of_standby;
use crate::token::{JoinToken, PresentedToken, TokenError, TokenRequest};
use crate::verify::name_of;
use crate::{NewKey, Role, Roles, Settings, keys, message, random};

const MAGIC: &[u8; 8] = b"weirjoin";
const CHALLENGE_BYTES: usize = 44;
/// Messages are short here, because the sender is still a stranger.
const MESSAGE_MAX: u32 = 16 << 10;
/// Longest name of a node in bytes.
pub const NAME_MAX: usize = 255;
const REASON_MAX: usize = 1024;

/// Why a manager does not let a node join.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TakeError {
    /// Its token is not valid.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The manager cannot decide now.
    #[error("the manager cannot take it in now: {0}; try again")]
    Failed(String),
}

/// A node that has joined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Joined {
    /// Its number.
    pub node: NodeId,
    /// The roles with which it joined. A repeated request gets those of the first one.
    pub roles: Roles,
}

/// Where the managers keep tokens.
pub trait TokenStore: Send + Sync {
    /// Lets a node join, in one transaction:
    ///
    /// 1. Compares `presented` with the stored token ([`crate::token::check`]).
    /// 2. Marks the token as used by this key.
    /// 3. Gives the node a new number ([`crate::token::Admission::New`]) or the one that it already has.
    ///
    /// Durable on return.
    ///
    /// # Errors
    /// [`TakeError`].
    fn take(&self, presented: &PresentedToken, wish: &TokenRequest, now: Timestamp) -> Result<Joined, TakeError>;
}

/// The entry point for new nodes at a manager.
pub struct JoinService {
    /// Issues certificates.
    pub authority: Arc<Authority>,
    /// Checks tokens.
    pub tokens: Arc<dyn TokenStore>,
    /// The validity of the certificates.
    pub validity: Duration,
    /// Learns who has joined, and who with a token was refused.
    pub on_admission: OnAdmission,
}

impl std::fmt::Debug for JoinService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "JoinService({:?})", self.authority)
    }
}

/// A node could not join.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// A problem with its token.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The manager refuses it.
    #[error("the manager at {address} does not let this node join: {reason}")]
    Refused {
        /// The manager.
        address: String,
        /// The reason.
        reason: String,
    },
    /// No manager answered.
    #[error("no manager could be asked: {}", list(.0))]
    Unreachable(Vec<LinkError>),
    /// The manager is of another cluster than the new node expects. It has not seen the token.
    #[error(
        "the manager at {address} is of cluster {found}, and this node is for cluster {ours}; the token was not used"
    )]
    OtherCluster {
        /// The manager.
        address: String,
        /// Its cluster.
        found: Box<ClusterId>,
        /// The expected cluster.
        ours: Box<ClusterId>,
    },
    /// The answer holds no valid identity.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// A name is too long.
    #[error("a node's name has 1 to {NAME_MAX} bytes, and this has {0}")]
    Name(usize),
}

fn list(errors: &[LinkError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

#[derive(Serialize, Deserialize)]
struct Request {
    presented: PresentedToken,
    roles: u8,
    name: String,
    key: [u8; 32],
    signature: Vec<u8>,
}

#[derive(Serialize, Deserialize)]
enum Verdict {
    Welcome(IssuedBytes),
    Refused(String),
}

/// Joins the cluster of `token`. After a lost answer, call it again with the same key to get the same number.
///
/// # Errors
/// [`JoinError`].
pub fn join(
    token: &JoinToken,
    key: &NewKey,
    roles: Roles,
    name: &str,
    settings: &Settings,
) -> Result<Identity, JoinError> {
    join_as(None, token, key, roles, name, settings)
}

/// As [`join`], for a node that knows its cluster. Shows the token to no manager of another one.
///
/// # Errors
/// [`JoinError`].
pub fn join_cluster(
    cluster: ClusterId,
    token: &JoinToken,
    key: &NewKey,
    roles: Roles,
    name: &str,
    settings: &Settings,
) -> Result<Identity, JoinError> {
    join_as(Some(cluster), token, key, roles, name, settings)
}

fn join_as(
    cluster: Option<ClusterId>,
    token: &JoinToken,
    key: &NewKey,
    roles: Roles,
    name: &str,
    settings: &Settings,
) -> Result<Identity, JoinError> {
    if name.is_empty() || name.len() > NAME_MAX {
        return Err(JoinError::Name(name.len()));
    }
    let wish = TokenRequest { roles, name: name.to_owned(), key: key.public() };
    let mut failed = Vec::new();
    let mut refused = None;
    for address in &token.addresses {
        match ask((token, cluster), key, &wish, address, settings) {
            Ok(Asked::OtherCluster { found, ours }) => {
                let (address, found, ours) = (address.clone(), Box::new(found), Box::new(ours));
                return Err(JoinError::OtherCluster { address, found, ours });
            }
            Ok(Asked::Verdict(Verdict::Welcome(issued))) => {
                let wrong = || IdentityError::Answer("it makes no sense".into());
                let issued = Issued::from_message(issued).ok_or_else(wrong)?;
                if issued.name.roles != roles || !issued.authority.trusts(&token.authority) {
                    return Err(IdentityError::Answer("it is for other roles or of another authority".into()).into());
                }
                return Ok(Identity::new(key, issued)?);
            }
            Ok(Asked::Verdict(Verdict::Refused(reason))) => {
                let reason = printable(reason.as_bytes());
                let is_of_standby = is_of_standby(&reason);
                let error = JoinError::Refused { address: address.clone(), reason };
                // The active manager is at another address.
                if !is_of_standby {
                    return Err(error);
                }
                refused = Some(error);
            }
            Err(error) => failed.push(error),
        }
    }
    Err(refused.unwrap_or(JoinError::Unreachable(failed)))
}

/// What a manager has answered.
enum Asked {
    Verdict(Verdict),
    /// It was asked nothing, because it is of another cluster than the expected one.
    OtherCluster {
        found: ClusterId,
        ours: ClusterId,
    },
}

fn ask(
    (token, cluster): (&JoinToken, Option<ClusterId>),
    key: &NewKey,
    wish: &TokenRequest,
    address: &str,
    settings: &Settings,
) -> Result<Asked, LinkError> {
    let ask = || {
        let deadline = Deadline::new("joining", settings.connect_time);
        let (mut halves, found) = connect(token, address, deadline, settings)?;
        if let Some(ours) = cluster.filter(|ours| *ours != found) {
            halves.writing.end();
            return Ok(Asked::OtherCluster { found, ours });
        }
        let mut challenge = [0; CHALLENGE_BYTES];
        if !halves.reading.fill(&mut challenge, deadline)? {
            return Err(CloseCause::BrokenOff);
        }
        check_challenge(&challenge)?;
        let request = Request {
            presented: token.presented(),
            roles: wish.roles.bits(),
            name: wish.name.clone(),
            key: wish.key,
            signature: key.sign_join(&challenge, wish),
        };
        send(&mut halves, &request)?;
        let verdict = receive(&mut halves, deadline)?;
        halves.writing.end();
        Ok(Asked::Verdict(verdict))
    };
    ask().map_err(|why: CloseCause| why.with(address))
}

/// Connects. Returns the cluster of the manager, too.
fn connect(
    token: &JoinToken,
    address: &str,
    deadline: Deadline,
    settings: &Settings,
) -> Result<(SplitChannel, ClusterId), CloseCause> {
    let mut refused = CloseCause::Connect(std::io::Error::other("its name has no address"));
    for address in address.to_socket_addrs().map_err(CloseCause::Connect)? {
        let socket = match TcpStream::connect_timeout(&address, settings.connect_time) {
            Ok(socket) => socket,
            Err(error) => {
                refused = CloseCause::Connect(error);
                continue;
            }
        };
        let config = credentials::joining(token.authority, JOIN_PROTOCOL).map_err(CloseCause::of_tls)?;
        let (halves, shown) = channel::connect(socket, config, deadline, settings.send_time)?;
        // Only a manager may see the secret.
        let name = shown.certificate.as_ref().and_then(name_of).ok_or(CloseCause::NoCertificate)?;
        if !name.roles.contain(Role::Manager) {
            return Err(CloseCause::Misbehaved(format!("is node {}, which is no manager", name.node)));
        }
        return Ok((halves, name.cluster));
    }
    Err(refused)
}

fn check_challenge(challenge: &[u8; CHALLENGE_BYTES]) -> Result<(), CloseCause> {
    let number = |at: usize| u16::from_le_bytes([challenge[at], challenge[at + 1]]);
    let versions = Versions { oldest: number(8), newest: number(10) };
    if !challenge.starts_with(MAGIC) {
        return Err(CloseCause::Misbehaved("does not know how nodes join".into()));
    }
    if Versions::SPOKEN.common(versions).is_none() {
        let ours = Versions::SPOKEN;
        return Err(CloseCause::Misbehaved(format!(
            "speaks {versions} of the protocol between nodes, and this node {ours}: install the manager's version of weir here"
        )));
    }
    Ok(())
}

pub(crate) fn send<T: Serialize>(halves: &mut SplitChannel, value: &T) -> Result<(), CloseCause> {
    let bytes = message::encode(value).map_err(|error| CloseCause::Misbehaved(error.to_string()))?;
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes();
    halves.writing.send(&[&length, &bytes])
}

pub(crate) fn receive<T: serde::de::DeserializeOwned>(
    halves: &mut SplitChannel,
    deadline: Deadline,
) -> Result<T, CloseCause> {
    let mut length = [0; 4];
    if !halves.reading.fill(&mut length, deadline)? {
        return Err(CloseCause::BrokenOff);
    }
    let length = u32::from_le_bytes(length);
    if length == 0 || length > MESSAGE_MAX {
        return Err(CloseCause::Misbehaved(format!(
            "sent a message of {length} bytes; the limit for joining is {MESSAGE_MAX}"
        )));
    }
    let mut bytes = vec![0; length as usize];
    if !halves.reading.fill(&mut bytes, deadline)? {
        return Err(CloseCause::BrokenOff);
    }
    message::decode(&bytes).map_err(|error| CloseCause::Misbehaved(format!("sent an invalid message: {error}")))
}

/// Lets the peer join if its token is valid.
///
/// # Errors
/// Also for a peer without a token of this cluster, which has been told so: the listener limits how often that stands
/// in the log.
pub(crate) fn serve(
    service: &JoinService,
    mut halves: SplitChannel,
    address: SocketAddr,
    deadline: Deadline,
) -> Result<(), CloseCause> {
    let mut challenge = [0; CHALLENGE_BYTES];
    challenge[..8].copy_from_slice(MAGIC);
    challenge[8..10].copy_from_slice(&Versions::SPOKEN.oldest.to_le_bytes());
    challenge[10..12].copy_from_slice(&Versions::SPOKEN.newest.to_le_bytes());
    let nonce: [u8; 32] = random::bytes().map_err(|error| CloseCause::ClosedHere(error.to_string()))?;
    challenge[12..].copy_from_slice(&nonce);
    halves.writing.send(&[&challenge])?;
    let request: Request = receive(&mut halves, deadline)?;
    let verdict = match admit(service, &challenge, request) {
        Ok((issued, name)) => {
            tracing::info!(node = %issued.name.node, roles = %issued.name.roles, name, from = %address, "a node has joined");
            let role = issued.name.roles.to_string();
            let shown = format!("{} ({name})", issued.name.node);
            (service.on_admission)(&Admission { name: &shown, role: Some(&role), address, refused: None });
            Verdict::Welcome(issued.to_message())
        }
        Err(Refusal::OfInvited(reason)) => {
            (service.on_admission)(&Admission { name: "", role: None, address, refused: Some(&reason) });
            tracing::warn!(from = %address, reason, "a node was not let in");
            Verdict::Refused(cut(&reason, REASON_MAX).to_owned())
        }
        Err(Refusal::OfStranger(reason)) => {
            let verdict = Verdict::Refused(cut(&reason, REASON_MAX).to_owned());
            return Err(turn_away(&mut halves, &verdict, format!("could not join: {reason}")));
        }
    };
    send(&mut halves, &verdict)?;
    halves.writing.end();
    Ok(())
}

/// The certificate for the peer, and its name.
fn admit(
    service: &JoinService,
    challenge: &[u8; CHALLENGE_BYTES],
    request: Request,
) -> Result<(Issued, String), Refusal> {
    let Request { presented, roles, name, key, signature } = request;
    let unknown = || Refusal::OfStranger("it asks for a role that this version does not know".into());
    let roles = Roles::from_bits(roles).ok_or_else(unknown)?;
    let name = printable(name.as_bytes());
    if name.is_empty() || name.len() > NAME_MAX {
        return Err(Refusal::OfStranger(format!("a node's name has 1 to {NAME_MAX} bytes")));
    }
    let wish = TokenRequest { roles, name, key };
    if !keys::check_join(challenge, &wish, &signature) {
        return Err(Refusal::OfStranger("its request is not signed with the key that it is for".into()));
    }
    let now = now();
    let Joined { node, roles } = service.tokens.take(&presented, &wish, now).map_err(|error| match error {
        TakeError::Token(TokenError::Unknown { .. }) => Refusal::OfStranger(error.to_string()),
        error => Refusal::OfInvited(error.to_string()),
    })?;
    let name = crate::NodeName { cluster: service.authority.cluster(), node, roles };
    let issued = service.authority.issue(&name, &key, now, service.validity);
    let issued = issued.map_err(|error| Refusal::OfInvited(error.to_string()))?;
    Ok((issued, wish.name))
}

/// Asks for a certificate for any key, signed with another.
#[cfg(test)]
pub(crate) fn ask_for(
    token: &JoinToken,
    key: &NewKey,
    wish: &TokenRequest,
    address: &str,
    settings: &Settings,
) -> Result<Result<(), String>, LinkError> {
    Ok(match ask((token, None), key, wish, address, settings)? {
        Asked::Verdict(Verdict::Welcome(_)) => Ok(()),
        Asked::Verdict(Verdict::Refused(reason)) => Err(reason),
        Asked::OtherCluster { found, .. } => Err(found.to_string()),
    })
}

pub(crate) fn now() -> Timestamp {
    SystemTime::now().into()
}
