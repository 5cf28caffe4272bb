//! Errors between a client and its server.

use std::io;
use std::time::Duration;

use wire::{ErrorNumber, Response, WireError};

use crate::{Endpoint, UrlError};

/// Why an operation failed. The texts say what was tried, where, and what went wrong.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the texts say what the fields are
pub enum ClientError {
    #[error(transparent)]
    Url(#[from] UrlError),
    #[error("cannot connect to {server}: {source}")]
    Connect { server: Endpoint, source: io::Error },
    #[error("{server} is no XRootD server: {source}")]
    NotXrootd { server: Endpoint, source: WireError },
    #[error("cannot log in at {server}, which offers {reasons}")]
    Authentication { server: Endpoint, reasons: String },
    #[error("{server} is not asked, because the connection would not be safe: {source}{}", advice(source))]
    Tls { server: Endpoint, source: Box<tls::ChannelError> },
    #[error(
        "{server} does not offer TLS, and the address with roots:// asks for it; root:// would send everything in the clear"
    )]
    NoTls { server: Endpoint },
    #[error("{server} speaks TLS, but its certificate cannot be checked: {source}; X509_CERT_DIR can name a directory")]
    Authorities { server: Endpoint, source: Box<tls::TrustError> },
    #[error("the connection to {server} was lost: {source}")]
    Lost { server: Endpoint, source: io::Error },
    #[error("{server} does not have the file any more and refers to another server")]
    Moved { server: Endpoint },
    #[error("{server} has sent nothing for {} s", after.as_secs())]
    Silent { server: Endpoint, after: Duration },
    #[error("{server} has sent {bytes} bytes in {} s, and more was due; that is too slow", after.as_secs())]
    Slow { server: Endpoint, bytes: usize, after: Duration },
    #[error("{what}: {server} shows no progress for {} s", after.as_secs())]
    Stalled { server: Endpoint, what: String, after: Duration },
    #[error("{last}; gave up after trying for {} s", after.as_secs())]
    GaveUp { after: Duration, last: Box<ClientError> },
    #[error("stopped before it was done")]
    Stopped,
    #[error("{server} is not among the servers that may be reached")]
    OutOfReach { server: Endpoint },
    #[error("{server} sent what the protocol does not allow: {source}")]
    Protocol { server: Endpoint, source: WireError },
    #[error("{server} sent what the protocol does not allow: {what}")]
    Unexpected { server: Endpoint, what: String },
    #[error("{what}: {text} ({}, from {server})", number.name())]
    Refused { server: Endpoint, what: String, number: ErrorNumber, text: String },
    #[error("{what}: sent from server to server {limit} times, last to {server}; gave up")]
    Redirects { server: Endpoint, what: String, limit: u32 },
    #[error("{what}: {server} asks to wait for more than the {} s in all that it is waited for; it says: {text}", most.as_secs())]
    Waited { server: Endpoint, what: String, most: Duration, text: String },
    #[error("{what}: the request cannot be sent: {source}")]
    Unsendable { what: String, source: WireError },
    #[error("{file} was replaced or changed since {since}")]
    Replaced { file: String, since: &'static str },
    #[error("{what}: it ends at {end} bytes, {expected} were expected; has it been changed meanwhile?")]
    Shorter { what: String, end: u64, expected: u64 },
}

/// The kind of an error, by which a caller decides what to do next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// No such file or directory.
    NotFound,
    /// The name is taken.
    Exists,
    /// Not allowed.
    Denied,
    /// A directory where a file was needed, or the other way round.
    WrongKind,
    /// There is no space.
    NoSpace,
    /// The server cannot do this at all.
    Unsupported,
    /// The bytes are damaged.
    Checksum,
    /// The connection: trying again may help.
    Connection,
    /// The address or the request is invalid.
    Usage,
    /// Anything else.
    Other,
}

impl ClientError {
    /// Makes the error for the answer of `server` to `what`.
    pub(crate) fn refused(server: &Endpoint, what: &str, response: Response) -> Self {
        let server = server.clone();
        match response {
            Response::Error { number, text } => {
                let text = String::from_utf8_lossy(&text).trim_end().to_owned();
                Self::Refused { server, what: what.to_owned(), number, text }
            }
            other => Self::Unexpected { server, what: format!("{:?} as the answer to: {what}", other.status()) },
        }
    }

    /// Returns its kind.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Url(_) | Self::Unsendable { .. } => Kind::Usage,
            Self::Connect { .. }
            | Self::Lost { .. }
            | Self::Moved { .. }
            | Self::Silent { .. }
            | Self::Slow { .. }
            | Self::Stalled { .. }
            | Self::GaveUp { .. }
            | Self::Waited { .. } => Kind::Connection,
            Self::Authentication { .. }
            | Self::Tls { .. }
            | Self::NoTls { .. }
            | Self::Authorities { .. }
            | Self::OutOfReach { .. } => Kind::Denied,
            Self::Refused { number, .. } => match *number {
                ErrorNumber::NOT_FOUND | ErrorNumber::ATTR_NOT_FOUND => Kind::NotFound,
                ErrorNumber::EXISTS => Kind::Exists,
                ErrorNumber::NOT_AUTHORIZED | ErrorNumber::AUTH_FAILED | ErrorNumber::FS_READ_ONLY => Kind::Denied,
                ErrorNumber::IS_DIRECTORY | ErrorNumber::NOT_FILE => Kind::WrongKind,
                ErrorNumber::NO_SPACE | ErrorNumber::OVER_QUOTA => Kind::NoSpace,
                ErrorNumber::UNSUPPORTED | ErrorNumber::INVALID_REQUEST | ErrorNumber::IMPOSSIBLE => Kind::Unsupported,
                ErrorNumber::ARG_INVALID | ErrorNumber::ARG_MISSING | ErrorNumber::ARG_TOO_LONG => Kind::Usage,
                ErrorNumber::CHECKSUM => Kind::Checksum,
                _ => Kind::Other,
            },
            _ => Kind::Other,
        }
    }

    /// Whether a server has refused the request with this number.
    pub(crate) fn is_refused_as(&self, wanted: ErrorNumber) -> bool {
        matches!(self, Self::Refused { number, .. } if *number == wanted)
    }

    /// Whether a reader's name has another file by now. Servers of a cluster answer "stale" then. A writer gets that answer for
    /// other reasons, too.
    pub(crate) fn is_replaced(&self) -> bool {
        matches!(self, Self::Replaced { .. }) || self.is_refused_as(ErrorNumber::FILE_NOT_OPEN)
    }

    /// Whether the connection is the cause.
    #[must_use]
    pub fn is_connection(&self) -> bool {
        self.may_help_to_retry() || matches!(self, Self::GaveUp { .. })
    }

    /// Whether a new connection may help, because the old one was the cause, and the time for that is not used up.
    #[must_use]
    pub fn may_help_to_retry(&self) -> bool {
        matches!(self, Self::Connect { .. } | Self::Lost { .. } | Self::Moved { .. } | Self::Silent { .. })
    }

    /// Makes the error for the end of all attempts, of which this was the last. `after`: the time that they may take.
    pub(crate) fn gave_up(self, after: Duration) -> Self {
        // Without time for a second attempt there is nothing to say about it.
        if after.is_zero() || matches!(self, Self::GaveUp { .. }) {
            return self;
        }
        Self::GaveUp { after, last: Box::new(self) }
    }
}

/// What helps if TLS fails.
fn advice(error: &tls::ChannelError) -> &'static str {
    match error.problem() {
        tls::Problem::UnknownAuthority => {
            "; if its authority is to be trusted, its certificate must be in the directory that X509_CERT_DIR names"
        }
        tls::Problem::OtherName => "; the address must have a name that is in the certificate",
        tls::Problem::Other => "",
    }
}
