//! What can be wrong.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// A server's certificate cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the texts say what the fields are
pub enum CertificateError {
    #[error("cannot read the {what} in {}: {problem}", path.display())]
    Unreadable { what: &'static str, path: PathBuf, problem: String },
    #[error("{} has no {what}: it must hold one in PEM form (-----BEGIN …-----)", path.display())]
    Missing { what: &'static str, path: PathBuf },
    #[error("the key {} may be read by others than its owner (mode {mode:04o}): chmod 600 it", path.display())]
    OpenToOthers { path: PathBuf, mode: u32 },
    #[error("the certificate {} and the key {} cannot be used: {source}", certificate.display(), key.display())]
    Unusable { certificate: PathBuf, key: PathBuf, source: rustls::Error },
    #[error("the certificate {} cannot be read as X.509: {problem}", path.display())]
    NotX509 { path: PathBuf, problem: String },
}

/// The authorities to trust cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the texts say what the fields are
pub enum TrustError {
    #[error("cannot read the certificates of authorities in {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error(
        "no certificate of an authority was found in {}: files in PEM form are expected, in a directory with names like 5168735f.0 (`openssl rehash` makes them)",
        path.display()
    )]
    Empty { path: PathBuf },
    #[error(
        "the system has no certificates of authorities: install the package ca-certificates, or name a file or directory"
    )]
    NoneInSystem,
    #[error("the directory {} of authorities has more than 20,000 files", path.display())]
    TooMany { path: PathBuf },
    #[error("the certificates of authorities cannot be used: {0}")]
    Unusable(String),
    #[error("none of the authorities in {} is trusted: {}", .0.path.display(), .0.problems.join("; "))]
    Distrusted(Arc<Distrusted>),
}

/// Authorities of which none is trusted, because nobody can tell what they have revoked.
#[derive(Debug)]
pub struct Distrusted {
    /// Where they are.
    pub path: PathBuf,
    /// How many there are.
    pub unusable_authorities: usize,
    /// Why.
    pub problems: Vec<String>,
}

/// A TLS connection cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// The other side, or its certificate, is not what it should be.
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// The other side has sent more than fits, or nothing that TLS knows.
    #[error("TLS: {0}")]
    Io(#[from] io::Error),
}

/// What is wrong with the other side's certificate, as far as somebody can do something about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Problem {
    /// No trusted authority has signed it.
    UnknownAuthority,
    /// It is for another name or address.
    OtherName,
    /// Anything else.
    Other,
}

impl ChannelError {
    /// Returns what is wrong.
    #[must_use]
    pub fn problem(&self) -> Problem {
        use rustls::CertificateError::{BadSignature, NotValidForName, NotValidForNameContext, UnknownIssuer};
        match self {
            // A trusted authority may have the name of the one that has signed it.
            Self::Tls(rustls::Error::InvalidCertificate(UnknownIssuer | BadSignature)) => Problem::UnknownAuthority,
            Self::Tls(rustls::Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. })) => {
                Problem::OtherName
            }
            _ => Problem::Other,
        }
    }
}
