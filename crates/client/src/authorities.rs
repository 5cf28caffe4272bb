//! The authorities whose certificates the client accepts.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use tls::{Trust, TrustError, TrustSource};

/// The authorities whose certificates the client accepts. They are read before the first TLS connection. Clones share
/// them.
#[derive(Clone)]
pub struct Authorities(Arc<tls::Authorities>);

impl Authorities {
    /// Takes the authorities from these places.
    #[must_use]
    pub fn of(sources: Vec<TrustSource>) -> Self {
        Self(Arc::new(tls::Authorities::new("servers", sources)))
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
        self.0.get()
    }
}

impl Default for Authorities {
    fn default() -> Self {
        Self::from_environment()
    }
}

impl fmt::Debug for Authorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Authorities").field(&self.0.sources()).finish()
    }
}
