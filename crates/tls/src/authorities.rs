//! The authorities of servers, for a program that runs for long: they are read before the first connection, and again later.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::error::Distrusted;
use crate::rereading::{Reading, Rereading};
use crate::{Trust, TrustError, TrustSource};

/// How often the authorities are read: their revocation lists change.
const EVERY: Duration = Duration::from_secs(3600);

/// The authorities whose servers are trusted. If they cannot be read again, those of before stay in use. If a revocation list was damaged, they stay for
/// a while ([`Rereading`]). Then the list's authority is not trusted, and if it was the only one, nobody is.
#[derive(Debug)]
pub struct Authorities {
    /// What they are for, for the log.
    purpose: &'static str,
    sources: Vec<TrustSource>,
    began: Instant,
    loaded: Mutex<Option<Loaded>>,
    /// As it was at the last reading. Whoever asks does not wait while the files are read again.
    unusable: AtomicUsize,
}

#[derive(Debug)]
struct Loaded {
    in_use: Result<Trust, Arc<Distrusted>>,
    rereading: Rereading,
}

impl Reading for Result<Trust, Arc<Distrusted>> {
    fn unusable_authorities(&self) -> usize {
        self.as_ref().map_or_else(|none| none.unusable_authorities, Trust::unusable_authorities)
    }

    fn problems(&self) -> &[String] {
        match self {
            Ok(trust) => trust.problems(),
            Err(none) => &none.problems,
        }
    }

    fn is_nobody(&self) -> bool {
        self.is_err()
    }
}

impl Authorities {
    /// Those of all these places, each of which must have some. Reads nothing yet.
    #[must_use]
    pub fn new(purpose: &'static str, sources: Vec<TrustSource>) -> Self {
        Self { purpose, sources, began: Instant::now(), loaded: Mutex::new(None), unusable: AtomicUsize::new(0) }
    }

    /// The places.
    #[must_use]
    pub fn sources(&self) -> &[TrustSource] {
        &self.sources
    }

    /// The authorities, read lately.
    ///
    /// # Errors
    /// They were never read successfully, or none of them is trusted any more.
    pub fn get(&self) -> Result<Trust, TrustError> {
        self.get_at(self.began.elapsed())
    }

    pub(crate) fn get_at(&self, now: Duration) -> Result<Trust, TrustError> {
        let mut loaded = self.loaded.lock();
        let Some(Loaded { in_use, rereading }) = &mut *loaded else {
            let trust = Trust::load_all(&self.sources)?;
            let in_use = Ok(trust.clone());
            let rereading = Rereading::new(self.purpose, EVERY, now, &in_use);
            self.unusable.store(rereading.unusable_authorities(), Ordering::Relaxed);
            *loaded = Some(Loaded { in_use, rereading });
            return Ok(trust);
        };
        if rereading.is_due(now) {
            let again = match Trust::load_all(&self.sources) {
                Ok(trust) => Some(Ok(trust)),
                Err(TrustError::Distrusted(none)) => Some(Err(none)),
                Err(error) => {
                    rereading.failed(now);
                    tracing::error!(%error, "the authorities for {} cannot be read again; those of before stay in use", self.purpose);
                    None
                }
            };
            if let Some(chosen) = again.and_then(|again| rereading.choose(now, again, in_use)) {
                *in_use = chosen;
            }
            self.unusable.store(rereading.unusable_authorities(), Ordering::Relaxed);
        }
        in_use.clone().map_err(TrustError::Distrusted)
    }

    /// How many authorities had a revocation list that cannot be used when they were read last.
    #[must_use]
    pub fn unusable(&self) -> usize {
        self.unusable.load(Ordering::Relaxed)
    }
}
