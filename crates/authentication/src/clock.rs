//! The clock of an authenticator, which tests replace.

use std::time::{Duration, Instant, SystemTime};

use types::Timestamp;

/// Where the time comes from.
pub trait Clock: Send + Sync {
    /// The time of day: tokens say until when they are valid.
    fn wall(&self) -> Timestamp;

    /// The time since a fixed moment, which never goes back: the age of keys.
    fn steady(&self) -> Duration;
}

/// The clock of the system.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock(Instant);

impl SystemClock {
    /// The clock.
    #[must_use]
    pub fn new() -> Self {
        Self(Instant::now())
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn wall(&self) -> Timestamp {
        SystemTime::now().into()
    }

    fn steady(&self) -> Duration {
        self.0.elapsed()
    }
}
