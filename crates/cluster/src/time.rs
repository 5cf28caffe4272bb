//! A node's own clock, as an argument.

use std::fmt;
use std::ops::Add;
use std::time::Duration;

/// A moment on one node's monotonic clock. Moments of different nodes cannot be compared, and their clocks may run
/// at different speeds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(pub Duration);

impl Time {
    /// Returns the time since `earlier`, or zero if that is later.
    #[must_use]
    pub fn since(self, earlier: Time) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Time {
    type Output = Time;
    fn add(self, duration: Duration) -> Time {
        Time(self.0.saturating_add(duration))
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6}s", self.0.as_secs_f64())
    }
}
