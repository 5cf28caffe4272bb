//! TLS between clients and servers: the certificate that a server shows, the authorities that a client trusts, and the
//! records of a connection.
//!
//! - [`ServerCertificate`]: certificate and key from files. They are read again when they change, without a restart.
//! - [`Trust`]: the authorities of the system, or a directory as grid sites keep it: hashed names, with revocation lists.
//! - [`load_grid_trust`]: the same directory, for the certificates of grid users, which `grid` judges.
//! - [`Authorities`]: the same for a program that runs for long. [`Rereading`] decides when authorities are read again, and for how long those of before
//!   stay in use if a file was damaged.
//! - [`Channel`]: one connection's encryption. It has no socket: its owner moves the bytes.
//!
//! Nodes of a cluster know each other by certificates of their own (`link`). Who a client is, is decided elsewhere.

mod authorities;
mod authority_files;
mod certificate;
mod channel;
mod error;
mod grid_trust;
mod required;
mod rereading;
mod trust;

use std::sync::Arc;

use rustls::crypto::CryptoProvider;

pub use authorities::Authorities;
pub use certificate::{CertificateFiles, ServerCertificate};
pub use channel::{Channel, Opened};
pub use error::{CertificateError, ChannelError, Distrusted, Problem, TrustError};
pub use grid_trust::{VOMS_DIRECTORY, load_grid_trust};
pub use required::TlsRequired;
pub use rereading::{Reading, Rereading};
pub use trust::{GRID_AUTHORITIES, ServerError, Trust, TrustSource};

/// The cryptography of all connections: `ring`.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

#[cfg(test)]
mod tests;
