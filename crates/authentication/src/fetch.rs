//! Fetches the keys of an issuer: first its discovery document, then the keys that this names.

use std::fmt;
use std::time::{Duration, Instant};

use identity::{DISCOVERY_BYTES_MAX, Discovery, DiscoveryError, IssuerUrl, JWKS_BYTES_MAX, KeySet, KeySetError};
use tls::{Authorities, Trust};

use crate::https::{HttpsError, get};
use identity::shown;

/// How long fetches may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FetchTimes {
    /// One attempt to connect to one address of an issuer.
    pub connect: Duration,
    /// All of a fetch: lookups, connections, redirects, both documents.
    pub total: Duration,
    /// How long a client waits for a fetch. More than `total`, so that it learns what failed.
    pub wait: Duration,
}

impl Default for FetchTimes {
    fn default() -> Self {
        Self { connect: Duration::from_secs(3), total: Duration::from_secs(8), wait: Duration::from_secs(10) }
    }
}

/// What was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FetchStep {
    /// The discovery document, which says where the keys are.
    Discovery,
    /// The keys.
    Keys,
}

impl fmt::Display for FetchStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Discovery => "discovery document",
            Self::Keys => "keys",
        })
    }
}

/// What went wrong in a step.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FetchProblem {
    /// The document did not come.
    #[error(transparent)]
    Https(#[from] HttpsError),
    /// It is not a discovery document of the issuer.
    #[error(transparent)]
    Discovery(#[from] DiscoveryError),
    /// It is not a set of keys.
    #[error(transparent)]
    Keys(#[from] KeySetError),
}

/// An attempt that failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FailedStep {
    /// What was asked for.
    pub step: FetchStep,
    /// Where.
    pub url: String,
    /// What went wrong.
    pub why: FetchProblem,
}

/// Why the keys of an issuer could not be fetched.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FetchError {
    /// Each place where the keys could be was tried.
    #[error("cannot fetch the keys of {issuer}: {}", list(.steps))]
    Steps {
        /// The issuer.
        issuer: IssuerUrl,
        /// The attempts, in their order.
        steps: Vec<FailedStep>,
    },
    /// There are no authorities to trust.
    #[error("cannot fetch the keys of {issuer}: {why}")]
    Authorities {
        /// The issuer.
        issuer: IssuerUrl,
        /// What is wrong.
        why: String,
    },
    /// No fetch could begin.
    #[error("cannot fetch the keys of {issuer}: {why}")]
    NotBegun {
        /// The issuer.
        issuer: IssuerUrl,
        /// The reason.
        why: String,
    },
}

fn list(steps: &[FailedStep]) -> String {
    let texts = steps.iter().map(|FailedStep { step, url, why }| format!("{step} at {}: {why}", shown(url)));
    texts.collect::<Vec<_>>().join("; ")
}

/// What a fetch gives.
pub(crate) struct Fetched {
    pub(crate) keys: KeySet,
    /// The document that the keys were read from.
    pub(crate) document: Vec<u8>,
}

/// Fetches the keys of `issuer`.
pub(crate) fn fetch(authorities: &Authorities, issuer: &IssuerUrl, times: FetchTimes) -> Result<Fetched, FetchError> {
    let deadline = Instant::now() + times.total;
    let trust = authorities
        .get()
        .map_err(|error| FetchError::Authorities { issuer: issuer.clone(), why: error.to_string() })?;
    let mut steps = Vec::new();
    for url in Discovery::urls(issuer) {
        let document = get(&trust, &url, DISCOVERY_BYTES_MAX, times.connect, deadline).map_err(FetchProblem::from);
        let found = document.and_then(|document| Ok(Discovery::parse(&document, issuer)?));
        let why = match found {
            Ok(discovery) => match keys(&trust, issuer, discovery.keys_url(), times, deadline) {
                Ok(fetched) => return Ok(fetched),
                Err(why) => {
                    steps.push(FailedStep { step: FetchStep::Keys, url: discovery.keys_url().to_owned(), why });
                    break;
                }
            },
            Err(why) => why,
        };
        // The other place is on the same server. It may have the document if this one has answered with something else.
        let ends = matches!(&why, FetchProblem::Https(error) if !error.is_of_answer());
        steps.push(FailedStep { step: FetchStep::Discovery, url, why });
        if ends {
            break;
        }
    }
    Err(FetchError::Steps { issuer: issuer.clone(), steps })
}

fn keys(
    trust: &Trust,
    issuer: &IssuerUrl,
    url: &str,
    times: FetchTimes,
    deadline: Instant,
) -> Result<Fetched, FetchProblem> {
    let document = get(trust, url, JWKS_BYTES_MAX, times.connect, deadline)?;
    let keys = KeySet::parse(&document, issuer)?;
    Ok(Fetched { keys, document })
}
