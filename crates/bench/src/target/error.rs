//! Why a system did not do an operation.

use std::io;

use client::{ClientError, Kind};

use super::http::HttpError;
use crate::network::NetworkError;

/// The kind of an error, the same for all systems.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Failure {
    /// The file does not exist.
    NotFound,
    /// The file exists.
    Exists,
    /// Not allowed.
    Denied,
    /// There is no room.
    NoSpace,
    /// The system does not support it.
    Unsupported,
    /// The system cannot be reached, or is gone.
    Unreachable,
    /// The system reports damaged bytes.
    Damaged,
    /// Anything else.
    Other,
}

/// A failed operation of a system.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// An error by path.
    #[error("{what}: {source}")]
    Path {
        /// What was tried, with the name.
        what: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// An error by root://.
    #[error(transparent)]
    Root(#[from] ClientError),
    /// An error by HTTP.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// A write or read ended early.
    #[error("{what}: only {moved} of {asked} bytes")]
    Short {
        /// What was tried, with the name.
        what: String,
        /// The moved bytes.
        moved: usize,
        /// The requested bytes.
        asked: usize,
    },
    /// An error of a network test.
    #[error(transparent)]
    Network(Box<NetworkError>),
    /// The driver does not support it.
    #[error("{by} does not support {what}")]
    Unsupported {
        /// What was tried.
        what: &'static str,
        /// The driver.
        by: &'static str,
    },
}

impl TargetError {
    /// Returns its kind.
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
