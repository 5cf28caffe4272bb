//! Why a system did not do what a workload asked for.

use std::io;

use client::{ClientError, Kind};

use super::http::HttpError;
use crate::network::NetworkError;

/// What went wrong, of all systems alike.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Failure {
    /// Nothing is there.
    NotFound,
    /// Something is there already.
    Exists,
    /// Not allowed.
    Denied,
    /// No room.
    NoSpace,
    /// The system cannot do this.
    Unsupported,
    /// The system cannot be reached, or went away.
    Unreachable,
    /// The system says that bytes are damaged.
    Damaged,
    /// Anything else.
    Other,
}

/// A system did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// By path.
    #[error("{what}: {source}")]
    Path {
        /// What was tried, with the name.
        what: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// By root://.
    #[error(transparent)]
    Root(#[from] ClientError),
    /// By HTTP.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// A write or read that ended early.
    #[error("{what}: {moved} of {asked} bytes and then nothing")]
    Short {
        /// What was tried, with the name.
        what: String,
        /// Bytes that were moved.
        moved: usize,
        /// Bytes that were to be moved.
        asked: usize,
    },
    /// Flows over the network.
    #[error(transparent)]
    Network(Box<NetworkError>),
    /// Something that the driver does not do.
    #[error("{what} is not possible by {by}")]
    Unsupported {
        /// What was tried.
        what: &'static str,
        /// The driver.
        by: &'static str,
    },
}

impl TargetError {
    /// What it was, of all systems alike.
    #[must_use]
    pub fn failure(&self) -> Failure {
        match self {
            Self::Path { source, .. } => of_io(source),
            Self::Root(error) => of_client(error.kind()),
            Self::Http(error) => error.failure(),
            Self::Short { .. } => Failure::Other,
            Self::Network(_) => Failure::Unreachable,
            Self::Unsupported { .. } => Failure::Unsupported,
        }
    }

    pub(crate) fn path(what: String, source: impl Into<io::Error>) -> Self {
        Self::Path { what, source: source.into() }
    }
}

fn of_io(error: &io::Error) -> Failure {
    use io::ErrorKind as E;
    match error.kind() {
        E::NotFound => Failure::NotFound,
        E::AlreadyExists => Failure::Exists,
        E::PermissionDenied | E::ReadOnlyFilesystem => Failure::Denied,
        E::StorageFull | E::QuotaExceeded => Failure::NoSpace,
        E::Unsupported => Failure::Unsupported,
        E::NotConnected | E::TimedOut | E::HostUnreachable | E::NetworkDown | E::StaleNetworkFileHandle => {
            Failure::Unreachable
        }
        _ => Failure::Other,
    }
}

fn of_client(kind: Kind) -> Failure {
    match kind {
        Kind::NotFound => Failure::NotFound,
        Kind::Exists => Failure::Exists,
        Kind::Denied => Failure::Denied,
        Kind::NoSpace => Failure::NoSpace,
        Kind::Unsupported => Failure::Unsupported,
        Kind::Connection => Failure::Unreachable,
        Kind::Checksum => Failure::Damaged,
        Kind::WrongKind | Kind::Usage | Kind::Other => Failure::Other,
    }
}
