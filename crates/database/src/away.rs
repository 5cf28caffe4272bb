//! Whether the database is away, and since when.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::DatabaseError;

/// The database is away.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outage {
    /// For how long.
    pub lasted: Duration,
    /// What the last attempt to reach it said.
    pub reason: String,
}

/// What one of its users knows of that. It logs the beginning and the end of an outage, and not each attempt.
#[derive(Default)]
pub(crate) struct Away(Mutex<Option<(Instant, String)>>);

impl Away {
    /// It is away, and says `error`. `waits`: what waits for it.
    pub(crate) fn note(&self, error: &DatabaseError, waits: &str) {
        let mut away = self.0.lock();
        if away.is_none() {
            tracing::warn!("{error}; {waits}");
        }
        let since = away.as_ref().map_or_else(Instant::now, |(since, _)| *since);
        *away = Some((since, error.to_string()));
    }

    /// It is not away any more, in the words of `what`.
    pub(crate) fn end(&self, what: &str) {
        if let Some((since, _)) = self.0.lock().take() {
            tracing::info!("{what}, after {:.1} s", since.elapsed().as_secs_f64());
        }
    }

    /// Whether it is away.
    pub(crate) fn outage(&self) -> Option<Outage> {
        self.0.lock().as_ref().map(|(since, reason)| Outage { lasted: since.elapsed(), reason: reason.clone() })
    }
}
