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

    /// Returns how many bytes are left.
    pub(super) fn left(&mut self, at: Instant) -> u64 {
        self.pass(at);
        self.most.saturating_sub(self.now.saturating_add(self.before))
    }

    /// Takes bytes, at most as many as were left a moment ago. Returns the period to give them back to.
    pub(super) fn take(&mut self, bytes: u64, at: Instant) -> Period {
        self.pass(at);
        self.now = self.now.saturating_add(bytes);
        self.period
    }

    fn pass(&mut self, at: Instant) {
        let passed = at.saturating_duration_since(self.began);
        if passed >= PERIOD {
            self.before = if passed < PERIOD * 2 { self.now } else { 0 };
            self.now = 0;
            // Two periods on, so that nothing taken before is given back.
            self.period = Period(self.period.0.saturating_add(if passed < PERIOD * 2 { 1 } else { 2 }));
            self.began = at;
        }
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
        let period = budget.take(80, start);
        assert_eq!(budget.left(start), 20);
        budget.take(20, start);
        assert_eq!(budget.left(start), 0);
        budget.give_back(30, period);
        assert_eq!(budget.left(start), 30);
        // In the next period they still count, and can be given back.
        let later = start + PERIOD;
        assert_eq!(budget.left(later), 30);
        budget.give_back(10, period);
        assert_eq!(budget.left(later), 40);
        budget.take(10, later);
        // Then they do not.
        let last = later + PERIOD;
        assert_eq!(budget.left(last), 90);
        budget.give_back(80, period);
        assert_eq!(budget.left(last), 90);
        // After a long pause nothing counts.
        let long_after = last + PERIOD * 10;
        let new = budget.take(100, long_after);
        assert_eq!(budget.left(long_after), 0);
        budget.set_most(50);
        budget.give_back(60, new);
        assert_eq!(budget.left(long_after), 10);
    }
}
