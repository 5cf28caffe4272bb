//! The authorities whose certificates the client accepts.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tls::{Trust, TrustError, TrustSource};

/// A program that runs for long reads the authorities again after this time: their revocation lists change.
const FRESH: Duration = Duration::from_secs(3600);

/// The authorities whose certificates the client accepts. They are read before the first TLS connection. Clones share
/// them.
#[derive(Clone)]
pub struct Authorities(Arc<Shared>);

struct Shared {
    sources: Vec<TrustSource>,
    loaded: Mutex<Option<(Trust, Instant)>>,
}

impl Authorities {
    /// Takes the authorities from these places.
    #[must_use]
    pub fn of(sources: Vec<TrustSource>) -> Self {
        Self(Arc::new(Shared { sources, loaded: Mutex::new(None) }))
    }

    /// Takes the authorities that `X509_CERT_DIR` and `X509_CERT_FILE` name, like the stock client. Without them: those of
    /// the system and of the grid.
    #[must_use]
    pub fn from_environment() -> Self {
        let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let directory = named("X509_CERT_DIR").map(TrustSource::Directory);
        let sources: Vec<_> = directory.into_iter().chain(named("X509_CERT_FILE").map(TrustSource::File)).collect();
        Self::of(if sources.is_empty() { vec![TrustSource::System] } else { sources })
    }

    /// Returns the authorities. Reads them first if it must.
    pub(crate) fn trust(&self) -> Result<Trust, TrustError> {
        let mut loaded = self.0.loaded.lock();
        let now = Instant::now();
        let old = match &*loaded {
            Some((trust, since)) if now.saturating_duration_since(*since) < FRESH => return Ok(trust.clone()),
            old => old.as_ref().map(|(trust, _)| trust.clone()),
        };
        let trust = match (Trust::load_all(&self.0.sources), old) {
            (Ok(trust), _) => trust,
            (Err(error), Some(old)) => {
                tracing::warn!(%error, "the authorities that were read before stay in use");
                old
            }
            (Err(error), None) => return Err(error),
        };
        *loaded = Some((trust.clone(), now));
        Ok(trust)
    }
}

impl Default for Authorities {
    fn default() -> Self {
        Self::from_environment()
    }
}

impl fmt::Debug for Authorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Authorities").field(&self.0.sources).finish()
    }
}
