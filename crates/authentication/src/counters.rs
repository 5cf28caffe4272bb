//! What happened, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use identity::IssuerUrl;

use crate::Mechanism;
use crate::mapping_service::MappingServiceStatus;

/// The logins by one mechanism.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Logins {
    /// The mechanism.
    pub mechanism: Mechanism,
    /// Those that were accepted.
    pub accepted: u64,
    /// Those that were refused.
    pub refused: u64,
}

/// What is known of an issuer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IssuerStatus {
    /// The issuer.
    pub issuer: IssuerUrl,
    /// How many of its keys can be used.
    pub keys: usize,
    /// How long ago they were fetched; `None`: never.
    pub keys_age: Option<Duration>,
    /// Fetches that succeeded.
    pub fetches_succeeded: u64,
    /// Fetches that failed.
    pub fetches_failed: u64,
    /// Why the last one failed; `None` if it did not.
    pub failure: Option<String>,
    /// Clients that wait for its keys now.
    pub waiting: usize,
}

/// A snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Snapshot {
    /// Logins, for each mechanism.
    pub logins: Vec<Logins>,
    /// The issuers, in the order of their URLs.
    pub issuers: Vec<IssuerStatus>,
    /// The mapping service, if one is asked.
    pub mapping_service: Option<MappingServiceStatus>,
    /// Clients of `sss` that were refused because too many before them failed at the same address; `None`: it is not offered.
    pub too_many_failures: Option<u64>,
    /// Authorities whose users are refused, because their revocation list or signing policy cannot be used; `None`: `gsi` is not offered.
    pub unusable_authorities: Option<usize>,
    /// Authorities of issuers and mapping services with a revocation list that could not be used when it was read last.
    pub unusable_tls_authorities: usize,
}

/// Accepted and refused logins.
#[derive(Debug, Default)]
pub(crate) struct Counters([[AtomicU64; 2]; Mechanism::ALL.len()]);

impl Counters {
    pub(crate) fn count(&self, mechanism: Mechanism, accepted: bool) {
        self.0[mechanism.index()][usize::from(accepted)].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn logins(&self) -> Vec<Logins> {
        let one = |mechanism: Mechanism| {
            let [refused, accepted] = &self.0[mechanism.index()];
            Logins { mechanism, accepted: accepted.load(Ordering::Relaxed), refused: refused.load(Ordering::Relaxed) }
        };
        Mechanism::ALL.map(one).to_vec()
    }
}
