//! A limit for lines in logs.

use std::time::{Duration, Instant};

/// So many lines at once, and then one more every so often.
#[derive(Clone, Debug)]
pub struct TokenBucket {
    burst: u32,
    every: Duration,
    tokens: u32,
    /// When the last token came.
    filled: Instant,
}

impl TokenBucket {
    /// A full one, for `burst` lines at once and one `every` so often.
    #[must_use]
    pub fn new(burst: u32, every: Duration, now: Instant) -> Self {
        Self { burst, every, tokens: burst, filled: now }
    }

    fn refill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.filled).as_secs() / self.every.as_secs().max(1);
        let new = u32::try_from(passed).unwrap_or(u32::MAX).min(self.burst);
        self.tokens = self.tokens.saturating_add(new).min(self.burst);
        self.filled = if self.tokens == self.burst { now } else { self.filled + self.every * new };
    }

    /// Whether one more line may be written at `now`. It counts then.
    pub fn take(&mut self, now: Instant) -> bool {
        self.refill(now);
        let rest = self.tokens.checked_sub(1);
        self.tokens = rest.unwrap_or(0);
        rest.is_some()
    }

    /// Whether a new one would do the same.
    pub fn is_full(&mut self, now: Instant) -> bool {
        self.refill(now);
        self.tokens == self.burst
    }
}
