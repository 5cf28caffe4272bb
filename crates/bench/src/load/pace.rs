//! When operations are due.

use std::time::{Duration, Instant};

/// The times at which a worker's operations start. Without a rate they follow one another at once. With a rate the
/// times are fixed whatever the system does (open loop), so that a stalled system is charged for everything that
/// waited.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    start: Instant,
    period: Option<Duration>,
    due: u32,
}

impl Pace {
    /// Plans an operation each `period` from `start`; `None`: as fast as possible.
    #[must_use]
    pub fn new(start: Instant, period: Option<Duration>) -> Self {
        Self { start, period: period.filter(|period| !period.is_zero()), due: 0 }
    }

    /// The same for operations of `bytes` bytes each, at `rate` bytes a second.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // a rate
    pub fn of_bytes(start: Instant, bytes: u32, rate: Option<u64>) -> Self {
        Self::shared(start, bytes, rate, 1)
    }

    /// The same for one of `workers` that share the rate.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // a rate
    pub fn shared(start: Instant, bytes: u32, rate: Option<u64>, workers: u32) -> Self {
        let period = |rate: u64| f64::from(bytes) * f64::from(workers) / rate.max(1) as f64;
        Self::new(start, rate.map(|rate| Duration::from_secs_f64(period(rate))))
    }

    /// Waits until the next operation is due. Returns when that was.
    pub fn wait(&mut self) -> Instant {
        let due = self.due();
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        due
    }

    /// Returns when the next operation is due, for a worker that has other work until then.
    pub fn due(&mut self) -> Instant {
        self.next(Instant::now())
    }

    /// Whether operations are due at fixed times.
    #[must_use]
    pub fn is_fixed(&self) -> bool {
        self.period.is_some()
    }

    /// Returns when the next operation is due; its latency counts from there. Without a rate that is `now`.
    fn next(&mut self, now: Instant) -> Instant {
        let Some(period) = self.period else { return now };
        let due = self.start + period * self.due;
        if self.due == u32::MAX {
            // `Duration` multiplies by 32 bits, so counting starts again at the same time.
            (self.start, self.due) = (due, 0);
        }
        self.due += 1;
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_behind_a_slow_one_keep_their_due_times() {
        let start = Instant::now();
        let mut pace = Pace::new(start, Some(Duration::from_millis(10)));
        let late = start + Duration::from_secs(1);
        let due: Vec<_> = (0..3).map(|_| pace.next(late) - start).collect();
        assert_eq!(due, [0, 10, 20].map(Duration::from_millis));
        assert_eq!(Pace::new(start, None).next(late), late);
        pace.due = u32::MAX;
        let last = pace.next(late);
        assert_eq!(pace.next(late), last + Duration::from_millis(10));
    }
}
