//! Wall-clock times as they are stored. Nothing here reads a clock: callers pass the time in.

use std::fmt;

/// Nanoseconds since 1970-01-01T00:00:00Z; negative before.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// Converts whole seconds; saturates at the ends of the range (years 1677 and 2262).
    #[must_use]
    pub fn from_secs(secs: i64) -> Self {
        Self(secs.saturating_mul(1_000_000_000))
    }

    /// Whole seconds, rounded down.
    #[must_use]
    pub fn secs(self) -> i64 {
        self.0.div_euclid(1_000_000_000)
    }

    /// This time plus `duration`; saturates.
    #[must_use]
    pub fn plus(self, duration: std::time::Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)))
    }
}

/// Converts a clock's time. Saturates at 1970 and 2262.
impl From<std::time::SystemTime> for Timestamp {
    fn from(time: std::time::SystemTime) -> Self {
        let since = time.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Self(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}", self.secs(), self.0.rem_euclid(1_000_000_000))
    }
}
