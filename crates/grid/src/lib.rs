//! The certificates of grid users: who has a chain of X.509 certificates, by RFC 5280, with proxies by RFC 3820 and VOMS
//! attributes by RFC 5755.
//!
//! - [`Trust`]: authorities with their revocation lists and signing policies, and VOMS servers.
//! - [`verify_user`]: the user of a chain, or which rule refuses it.
//! - [`verify_delegated`]: a proxy that a user has signed for this service.
//! - [`verify_host`]: the same for a server.
//! - [`ProxyInfo`]: what a proxy says about itself.
//! - [`UserCredential`]: what a client presents, from a proxy file.
//!
//! What this crate promises: it does no I/O and reads no clock, so every decision can be replayed. It does not panic on
//! outside bytes. Length of chains, length of certificates, and the number of signatures that are checked are bounded.
//!
//! What it leaves to others: files, what a principal's name is, and the proof that somebody has the private key.

mod attribute_certificate;
mod certificate;
mod delegated;
mod der;
mod error;
mod host;
mod limits;
mod lsc;
mod name;
mod name_constraints;
mod path;
mod proxy;
mod revocation;
mod signature;
mod signing_policy;
mod trust;
mod user;
mod user_credential;
mod voms;
mod voms_error;

pub use delegated::verify_delegated;
pub use error::{GridError, Problem, Unreadable};
pub use host::{GridHost, verify_host};
pub use limits::{CERTIFICATE_BYTES_MAX, CHAIN_MAX};
pub use lsc::VomsServer;
pub use proxy::{ProxyInfo, ProxyInfoProblem};
pub use revocation::problem_of_revocation_list;
pub use trust::{Trust, TrustFile, TrustMaterial};
pub use user::{GridUser, verify_user};
pub use user_credential::{PEM_BYTES_MAX, PemError, UserCredential, certificates_from_pem};
pub use voms_error::{VomsError, VomsProblem};
