//! Why a connection could not be had, or has ended.

use std::io;
use std::time::Duration;

use crate::frame::FrameError;
use crate::hello::HelloProblem;
use crate::verify::{CertificateProblem, problem_of};

/// A connection could not be had, or has ended.
#[derive(Debug, thiserror::Error)]
#[error("the connection with {peer}: {why}")]
pub struct LinkError {
    /// Address of the peer, and its number once it is known.
    pub peer: String,
    /// Why.
    pub why: CloseCause,
}

/// Why a connection could not be had, or has ended.
#[derive(Debug, thiserror::Error)]
pub enum CloseCause {
    /// There is nobody at the address.
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    /// The socket failed.
    #[error("{what} failed: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// It ended without a word.
    #[error("it broke off: the peer was stopped, or the network is interrupted")]
    BrokenOff,
    /// The peer has taken its leave.
    #[error("the peer has closed it: {0}")]
    Goodbye(String),
    /// We have closed it.
    #[error("closed on this side: {0}")]
    ClosedHere(String),
    /// Something took too long.
    #[error(
        "{what} took longer than {within:?}: the peer is stuck or overloaded, or somebody holds the connection on purpose"
    )]
    Slow {
        /// What.
        what: &'static str,
        /// How long it may take.
        within: Duration,
    },
    /// Nothing at all has come, though a peer without anything to say says so.
    #[error("nothing came for {0:?}: the peer is stopped or cut off")]
    Silent(Duration),
    /// Its certificate is not good.
    #[error("{0}")]
    Certificate(CertificateProblem),
    /// It finds that ours is not.
    #[error("the peer rejects this node's certificate ({alert:?}): {hint}", alert = .0, hint = hint(*.0))]
    OurCertificate(rustls::AlertDescription),
    /// It has shown none.
    #[error("the peer has shown no certificate; nodes join with `weir join TOKEN` first")]
    NoCertificate,
    /// It does not speak our protocol.
    #[error("no TLS connection between nodes came about: {0}; is this the address of a weir node?")]
    Tls(rustls::Error),
    /// Both sides do not fit together.
    #[error("{0}")]
    Hello(HelloProblem),
    /// The peer does not want us.
    #[error("the peer refuses: {0}")]
    Refused(String),
    /// What it sends makes no sense.
    #[error("cut because of what the peer sent: {0}")]
    Nonsense(#[from] FrameError),
    /// It does not keep to what was agreed.
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
    /// What rustls says, as far as possible in words of ours.
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
            other => Self::Tls(other),
        }
    }

    /// Whether it is the ordinary end of a connection, so that nobody has to look into it.
    #[must_use]
    pub fn is_ordinary(&self) -> bool {
        matches!(self, Self::Goodbye(_) | Self::ClosedHere(_))
    }

    pub(crate) fn with(self, peer: impl std::fmt::Display) -> LinkError {
        LinkError { peer: peer.to_string(), why: self }
    }
}
