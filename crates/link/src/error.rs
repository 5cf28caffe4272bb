//! Why a connection failed or ended.

use std::io;
use std::time::Duration;

use crate::frame::FrameError;
use crate::hello::HelloProblem;
use crate::verify::{CertificateProblem, problem_of};

/// A connection failed or ended.
#[derive(Debug, thiserror::Error)]
#[error("the connection with {peer}: {why}")]
pub struct LinkError {
    /// Address of the peer, and its number once that is known.
    pub peer: String,
    /// The cause.
    pub why: CloseCause,
}

/// Why a connection failed or ended.
#[derive(Debug, thiserror::Error)]
pub enum CloseCause {
    /// Nobody answers at the address.
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    /// The socket failed.
    #[error("{what} failed: {source}")]
    Io {
        /// The operation.
        what: &'static str,
        /// The error of the kernel.
        source: io::Error,
    },
    /// It ended without a goodbye.
    #[error("it broke off: the peer was stopped, or the network is interrupted")]
    BrokenOff,
    /// The peer closed it and gave a reason.
    #[error("the peer has closed it: {0}")]
    Goodbye(String),
    /// This side closed it.
    #[error("closed on this side: {0}")]
    ClosedHere(String),
    /// Something took too long.
    #[error(
        "{what} took longer than {within:?}: the peer is stuck or overloaded, or somebody holds the connection on purpose"
    )]
    Slow {
        /// The step.
        what: &'static str,
        /// Its time limit.
        within: Duration,
    },
    /// No frame arrived for too long, although an idle peer sends signs of life.
    #[error("nothing came for {0:?}: the peer is stopped or cut off")]
    Silent(Duration),
    /// The peer's certificate is not valid.
    #[error("{0}")]
    Certificate(CertificateProblem),
    /// The peer rejected this node's certificate.
    #[error("the peer rejects this node's certificate ({alert:?}): {hint}", alert = .0, hint = hint(*.0))]
    OurCertificate(rustls::AlertDescription),
    /// The peer has shown no certificate.
    #[error("the peer has shown no certificate; nodes join with `weir join TOKEN` first")]
    NoCertificate,
    /// The peer wants to act as an administrator without such a certificate.
    #[error("the peer wants to act as an administrator, and its certificate is not an administrator's")]
    NotAnAdministrator,
    /// The peer does not speak this protocol.
    #[error("no TLS connection between nodes came about: {0}; is this the address of a weir node?")]
    Tls(rustls::Error),
    /// The peer knows no connections of this kind.
    #[error("the peer knows no connections of this kind: it may have another version of weir")]
    UnknownKind,
    /// The hellos do not match.
    #[error("{0}")]
    Hello(HelloProblem),
    /// The peer refuses this node.
    #[error("the peer refuses: {0}")]
    Refused(String),
    /// The peer sent an invalid frame.
    #[error("cut because of what the peer sent: {0}")]
    Nonsense(#[from] FrameError),
    /// The peer broke the agreed limits.
    #[error("cut because the peer {0}")]
    Misbehaved(String),
}

fn hint(alert: rustls::AlertDescription) -> &'static str {
    match alert {
        rustls::AlertDescription::CertificateExpired => {
            "it has expired by the peer's clock; let this node join again with a new token, or set the clocks right"
        }
        rustls::AlertDescription::CertificateRequired => "it got none",
        _ => "it is of another cluster, or the peer is; compare `cluster` on both sides",
    }
}

impl CloseCause {
    /// Converts an error of rustls, in weir's own terms if possible.
    pub(crate) fn of_tls(error: rustls::Error) -> Self {
        use rustls::AlertDescription as Alert;
        if let Some(problem) = problem_of(&error) {
            return Self::Certificate(problem);
        }
        match error {
            rustls::Error::AlertReceived(
                alert @ (Alert::CertificateExpired
                | Alert::CertificateUnknown
                | Alert::CertificateRequired
                | Alert::UnknownCA
                | Alert::BadCertificate
                | Alert::UnsupportedCertificate
                | Alert::AccessDenied),
            ) => Self::OurCertificate(alert),
            rustls::Error::AlertReceived(Alert::NoApplicationProtocol) => Self::UnknownKind,
            other => Self::Tls(other),
        }
    }

    /// Whether this is the normal end of a connection that nobody must investigate.
    #[must_use]
    pub fn is_ordinary(&self) -> bool {
        matches!(self, Self::Goodbye(_) | Self::ClosedHere(_))
    }

    pub(crate) fn with(self, peer: impl std::fmt::Display) -> LinkError {
        LinkError { peer: peer.to_string(), why: self }
    }
}
