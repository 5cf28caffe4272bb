//! Why a server of HTTP did not do what it was asked for.

use std::io;

use client::Endpoint;

use super::HttpUrlError;
use crate::target::Failure;

/// A server of HTTP did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// No connection.
    #[error("cannot connect to {server}: {source}")]
    Connect {
        /// Which server.
        server: Endpoint,
        /// What the kernel, or TLS, said.
        source: io::Error,
    },
    /// A connection broke, was silent for too long, or brought something that is not HTTP.
    #[error("{method} {url}: {source}")]
    Broken {
        /// What was tried.
        method: &'static str,
        /// Where.
        url: String,
        /// What happened.
        source: io::Error,
    },
    /// The server said no.
    #[error("{method} {url}: {status} {reason}")]
    Status {
        /// What was tried.
        method: &'static str,
        /// Where.
        url: String,
        /// The code of the answer.
        status: u16,
        /// The server's words.
        reason: String,
    },
    /// An answer that is none to what was asked.
    #[error("{method} {url}: {why}")]
    Answer {
        /// What was tried.
        method: &'static str,
        /// Where.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// A redirect to something that is no address.
    #[error("{method} {url} was redirected: {source}")]
    Redirect {
        /// What was tried.
        method: &'static str,
        /// Where.
        url: String,
        /// What is wrong with where it leads.
        source: HttpUrlError,
    },
    /// Redirects without an end.
    #[error("{method} {url}: more than {redirects} redirects")]
    Redirects {
        /// What was tried.
        method: &'static str,
        /// Where the last one led.
        url: String,
        /// How many were followed.
        redirects: u32,
    },
    /// The token cannot be used.
    #[error("the token in {place}: {why}")]
    Token {
        /// A variable of the environment, or a file.
        place: String,
        /// What is wrong with it.
        why: String,
    },
    /// No certificates of authorities.
    #[error("no authority to believe a server's certificate: {why}; set SSL_CERT_FILE, SSL_CERT_DIR or X509_CERT_DIR")]
    Authorities {
        /// What went wrong on the way.
        why: String,
    },
}

impl HttpError {
    /// What it was, of all systems alike.
    pub(in crate::target) fn failure(&self) -> Failure {
        match self {
            Self::Connect { .. } => Failure::Unreachable,
            Self::Broken { source, .. } => match source.kind() {
                io::ErrorKind::InvalidData => Failure::Other,
                _ => Failure::Unreachable,
            },
            Self::Status { method, status, .. } => match (*method, *status) {
                // RFC 4918, 9.3.1: there is something already.
                ("MKCOL", 405) => Failure::Exists,
                // Before a parent is there nothing can be made.
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
