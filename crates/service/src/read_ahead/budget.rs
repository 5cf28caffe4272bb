//! How many bytes all open files together may have announced and not read yet.

use std::time::{Duration, Instant};

/// Bytes that were announced between one and two periods ago count no longer: their reader has paused or gone away, and the
/// kernel has read them long ago.
const PERIOD: Duration = Duration::from_secs(5);

/// A limit of bytes, and who has how many of them.
#[derive(Debug)]
pub(super) struct Budget {
    most: u64,
    period: Period,
    began: Instant,
    /// Bytes taken in this period and in the one before.
    now: u64,
    before: u64,
}

/// The number of a period.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Period(u64);

impl Budget {
    pub(super) fn new(most: u64, at: Instant) -> Self {
        Self { most, period: Period(0), began: at, now: 0, before: 0 }
    }

    pub(super) fn set_most(&mut self, most: u64) {
        self.most = most;
    }

    /// Takes as many bytes as are left, at most `wanted`. Returns them and the period to give them back to.
    pub(super) fn take(&mut self, wanted: u64, at: Instant) -> (u64, Period) {
        let passed = at.saturating_duration_since(self.began);
        if passed >= PERIOD {
            self.before = if passed < PERIOD * 2 { self.now } else { 0 };
            self.now = 0;
            // A number that is 2 higher than that of any bytes that count no longer.
            self.period = Period(self.period.0.saturating_add(if passed < PERIOD * 2 { 1 } else { 2 }));
            self.began = at;
        }
        let taken = wanted.min(self.most.saturating_sub(self.now.saturating_add(self.before)));
        self.now = self.now.saturating_add(taken);
        (taken, self.period)
    }

    /// Gives bytes back that were taken in this period.
    pub(super) fn give_back(&mut self, bytes: u64, period: Period) {
        let age = self.period.0.saturating_sub(period.0);
        match age {
            0 => self.now = self.now.saturating_sub(bytes),
            1 => self.before = self.before.saturating_sub(bytes),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_holds_and_what_nobody_reads_counts_no_longer() {
        let start = Instant::now();
        let mut budget = Budget::new(100, start);
        let (first, period) = budget.take(80, start);
        assert_eq!((first, budget.take(80, start).0, budget.take(1, start).0), (80, 20, 0));
        budget.give_back(30, period);
        assert_eq!(budget.take(80, start).0, 30);
        // In the next period they still count, and can be given back.
        let later = start + PERIOD;
        assert_eq!(budget.take(80, later).0, 0);
        budget.give_back(10, period);
        assert_eq!(budget.take(80, later).0, 10);
        // Then they do not.
        let last = later + PERIOD;
        let (taken, _) = budget.take(200, last);
        assert_eq!(taken, 90);
        budget.give_back(80, period);
        assert_eq!(budget.take(200, last).0, 0);
        // After a long pause nothing counts.
        let (taken, new) = budget.take(200, last + PERIOD * 10);
        assert_eq!(taken, 100);
        budget.set_most(50);
        budget.give_back(60, new);
        assert_eq!(budget.take(200, last + PERIOD * 10).0, 10);
    }
}
