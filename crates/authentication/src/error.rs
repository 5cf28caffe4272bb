//! Why a client is not let in.

use std::net::IpAddr;

use identity::{CredentialError, Refusal, TokenError};

use crate::Mechanism;
use crate::issuer_keys::KeysError;
use crate::mapping_service::MappingServiceError;

/// Why a client is not let in. The messages contain no token.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AuthenticationError {
    /// The mechanism is not offered.
    #[error("clients cannot authenticate by {0} here: `mechanisms` does not have it")]
    NotOffered(Mechanism),
    /// The client must not use the mechanism from where it is.
    #[error(
        "clients at {peer} cannot authenticate by {mechanism}: it proves nothing, so it is for this machine and `trusted_networks` only"
    )]
    Peer {
        /// The mechanism.
        mechanism: Mechanism,
        /// Where the client connects from.
        peer: IpAddr,
    },
    /// The token is not accepted.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// There is no key to verify the token with.
    #[error(transparent)]
    Keys(#[from] KeysError),
    /// A login name or the name of a host is malformed.
    #[error(transparent)]
    Credential(#[from] CredentialError),
    /// The client names more groups than it can have.
    #[error("the client names {0} groups; {max} is the limit", max = crate::GROUPS_CLAIMED_MAX)]
    TooManyGroups(usize),
    /// The shared secret is not accepted.
    #[error(transparent)]
    Secret(#[from] sss::Refusal),
    /// The Kerberos ticket is not accepted.
    #[error(transparent)]
    Ticket(#[from] krb5::Refusal),
    /// The mapping service has said nothing about the client.
    #[error(transparent)]
    MappingService(#[from] MappingServiceError),
    /// The mapping service does not let the client in.
    #[error("the mapping service refuses {credential}: {reason}")]
    RefusedByService {
        /// The credential.
        credential: String,
        /// What the service says.
        reason: String,
    },
    /// The handshake of `gsi` fails.
    #[error(transparent)]
    Handshake(#[from] gsi::HandshakeError),
    /// The handshake of `gsi` took too long.
    #[error("the client has taken {0} s for the handshake of gsi; {max} s is the limit", max = crate::HANDSHAKE_TIME_MAX.as_secs())]
    Late(u64),
    /// Too many clients show credentials that take work to check.
    #[error("too many clients log in at this time; try again")]
    Busy,
    /// A text has no certificates.
    #[error("cannot read the certificates: {0}")]
    Pem(#[from] grid::PemError),
    /// The certificates are not accepted.
    #[error(transparent)]
    Certificate(#[from] grid::GridError),
    /// The proxy that the client has delegated is not accepted.
    #[error("the delegated proxy is not accepted: {0}")]
    Delegated(grid::GridError),
    /// The key of a delegated proxy cannot be used.
    #[error("cannot use the key of the delegated proxy: {0}")]
    ProxyKey(gsi::SecretError),
    /// The client is known, and no rule lets it in.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// What kind of an error it is, for front ends that answer each in another way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    /// The client has not shown who it is (401 in HTTP). The same credential fails again.
    NotAuthenticated,
    /// The client has shown who it is, and may not (403 in HTTP).
    NotAllowed,
    /// Nobody can say at this time (503 in HTTP). The client may try again.
    Unavailable,
}

impl AuthenticationError {
    /// What the log and `weir identity test` say: more than the client learns, if the reason is about others' secrets or about
    /// services of the site.
    #[must_use]
    pub fn for_log(&self) -> String {
        match self {
            Self::Secret(refusal) => refusal.detail().to_string(),
            Self::MappingService(MappingServiceError::Away(why)) => {
                format!("the mapping service gives no answer: {why}")
            }
            other => other.to_string(),
        }
    }

    /// Whether nothing was decided about the client, because too many come at this time.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        matches!(self, Self::Busy | Self::Keys(KeysError::Busy(_)) | Self::MappingService(MappingServiceError::Busy))
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        use sss::Refusal::{Busy, Forgotten, NotNoted, TooManyFailures};
        match self {
            Self::Keys(KeysError::Away { .. } | KeysError::Slow { .. } | KeysError::Busy(_)) => ErrorKind::Unavailable,
            Self::Keys(KeysError::Refused(identity::KeyRefusal::IssuerAway { .. })) => ErrorKind::Unavailable,
            Self::MappingService(_) | Self::Busy | Self::ProxyKey(_) => ErrorKind::Unavailable,
            Self::Ticket(krb5::Refusal::Busy | krb5::Refusal::Forgotten(_) | krb5::Refusal::NotNoted) => {
                ErrorKind::Unavailable
            }
            Self::Secret(Busy | Forgotten(_) | NotNoted | TooManyFailures) => ErrorKind::Unavailable,
            Self::Refused(_) | Self::RefusedByService { .. } => ErrorKind::NotAllowed,
            Self::NotOffered(_)
            | Self::Peer { .. }
            | Self::Token(_)
            | Self::Secret(_)
            | Self::Ticket(_)
            | Self::Keys(KeysError::Refused(_))
            | Self::Credential(_)
            | Self::Handshake(_)
            | Self::Late(_)
            | Self::Certificate(_)
            | Self::Delegated(_)
            | Self::Pem(_)
            | Self::TooManyGroups(_) => ErrorKind::NotAuthenticated,
        }
    }
}
