//! Why an HTTP server did not do a request.

use std::io;

use client::Endpoint;

use super::HttpUrlError;
use crate::target::Failure;

/// A failed HTTP request.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The connection could not be made.
    #[error("cannot connect to {server}: {source}")]
    Connect {
        /// The server.
        server: Endpoint,
        /// The error of the kernel or TLS.
        source: io::Error,
    },
    /// A connection broke, was silent for too long, or carried something other than HTTP.
    #[error("{method} {url}: {source}")]
    Broken {
        /// The method.
        method: &'static str,
        /// The address.
        url: String,
        /// What happened.
        source: io::Error,
    },
    /// The server refused.
    #[error("{method} {url}: {status} {reason}")]
    Status {
        /// The method.
        method: &'static str,
        /// The address.
        url: String,
        /// The code of the answer.
        status: u16,
        /// The server's text.
        reason: String,
    },
    /// The answer does not match the request.
    #[error("{method} {url}: {why}")]
    Answer {
        /// The method.
        method: &'static str,
        /// The address.
        url: String,
        /// What is wrong.
        why: String,
    },
    /// A redirect leads to an invalid address.
    #[error("{method} {url} was redirected: {source}")]
    Redirect {
        /// The method.
        method: &'static str,
        /// The address.
        url: String,
        /// What is wrong with the target.
        source: HttpUrlError,
    },
    /// There are too many redirects.
    #[error("{method} {url}: more than {redirects} redirects")]
    Redirects {
        /// The method.
        method: &'static str,
        /// The last target.
        url: String,
        /// The number of redirects that were followed.
        redirects: u32,
    },
    /// The token cannot be used.
    #[error("the token in {place}: {why}")]
    Token {
        /// The environment variable, or the file.
        place: String,
        /// What is wrong.
        why: String,
    },
    /// There are no certificates of authorities.
    #[error(
        "cannot check a server's certificate without authorities: {why}; set SSL_CERT_FILE, SSL_CERT_DIR or X509_CERT_DIR"
    )]
    Authorities {
        /// What went wrong.
        why: String,
    },
}

impl HttpError {
    /// Returns its kind, the same as for all systems.
    pub(in crate::target) fn failure(&self) -> Failure {
        match self {
            Self::Connect { .. } => Failure::Unreachable,
            Self::Broken { source, .. } => match source.kind() {
                io::ErrorKind::InvalidData => Failure::Other,
                _ => Failure::Unreachable,
            },
            Self::Status { method, status, .. } => match (*method, *status) {
                // RFC 4918, 9.3.1: the directory exists.
                ("MKCOL", 405) => Failure::Exists,
                // Without its parent, nothing can be created.
                (_, 404 | 409 | 410) => Failure::NotFound,
                (_, 412) => Failure::Exists,
                (_, 401 | 403 | 407) => Failure::Denied,
                (_, 413 | 507) => Failure::NoSpace,
                (_, 405 | 501) => Failure::Unsupported,
                (_, 502..=504) => Failure::Unreachable,
                _ => Failure::Other,
            },
            Self::Token { .. } | Self::Authorities { .. } => Failure::Denied,
            Self::Answer { .. } | Self::Redirect { .. } | Self::Redirects { .. } => Failure::Other,
        }
    }
}
