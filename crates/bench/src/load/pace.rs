//! When operations are due.

use std::time::{Duration, Instant};

/// The times at which a worker's operations are to begin: at once one after the other, or at fixed times whatever the system does (open
/// loop), so that a system that stands still is charged for all that waited meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    start: Instant,
    period: Option<Duration>,
    due: u32,
}

impl Pace {
    /// From `start` on one operation each `period`; `None`: flat out.
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

    /// The same for one of `workers` that keep the rate together.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // a rate
    pub fn shared(start: Instant, bytes: u32, rate: Option<u64>, workers: u32) -> Self {
        let period = |rate: u64| f64::from(bytes) * f64::from(workers) / rate.max(1) as f64;
        Self::new(start, rate.map(|rate| Duration::from_secs_f64(period(rate))))
    }

    /// Waits until the next operation is due; tells when that was.
    pub fn wait(&mut self) -> Instant {
        let due = self.due();
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        due
    }

    /// When the next operation is due, for those who have something to do until then.
    pub fn due(&mut self) -> Instant {
        self.next(Instant::now())
    }

    /// Whether operations are due at fixed times.
    #[must_use]
    pub fn is_fixed(&self) -> bool {
        self.period.is_some()
    }

    /// When the next operation is due; latency counts from there. `now` where there is no pace.
    fn next(&mut self, now: Instant) -> Instant {
        let Some(period) = self.period else { return now };
        let due = self.start + period * self.due;
        if self.due == u32::MAX {
            // `Duration` multiplies by 32 bits: begin to count anew, at the same time.
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
    fn what_a_slow_operation_holds_up_is_due_all_the_same() {
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
