//! The history of a disk's space, and when the space ends if it goes on like that.

use std::collections::VecDeque;

use super::SpaceEnd;

/// Seconds between two samples.
const SAMPLE_EVERY: u64 = 600;
/// How far back the history goes: a day, because most experiments have days and nights.
const HISTORY: u64 = 86_400;
/// The shortest history that says anything.
const HISTORY_MIN: u64 = 3_600;
/// What takes longer is not soon.
const SOON: u64 = 10 * 365 * 86_400;

/// The available bytes of a disk in the last day.
#[derive(Clone, Debug, Default)]
pub struct SpaceTrend {
    capacity: u64,
    /// (seconds, available bytes), the oldest first.
    samples: VecDeque<(u64, u64)>,
}

impl SpaceTrend {
    /// Notes the space at the time `now`, in seconds; most calls change nothing. Another capacity or a clock that was set back begins a new
    /// history.
    pub fn note(&mut self, now: u64, capacity: u64, available: u64) {
        if capacity != self.capacity || self.samples.back().is_some_and(|(at, _)| *at > now) {
            self.capacity = capacity;
            self.samples.clear();
        }
        if self.samples.back().is_some_and(|(at, _)| now < at + SAMPLE_EVERY) {
            return;
        }
        // One sample at or before the beginning of the history stays.
        while self.samples.get(1).is_some_and(|(at, _)| at + HISTORY <= now) {
            self.samples.pop_front();
        }
        self.samples.push_back((now, available));
    }

    /// When the `available` bytes of the time `now` end, at the mean rate of the history.
    #[must_use]
    pub fn end(&self, now: u64, available: u64) -> SpaceEnd {
        let Some((from, had)) = self.samples.front().copied() else { return SpaceEnd::NotKnownYet };
        let took = now.saturating_sub(from);
        if took < HISTORY_MIN {
            return SpaceEnd::NotKnownYet;
        }
        let used = had.saturating_sub(available);
        if used == 0 {
            return SpaceEnd::NotSoon;
        }
        let left = u128::from(available) * u128::from(took) / u128::from(used);
        match u64::try_from(left) {
            Ok(left) if left < SOON => SpaceEnd::InSeconds(left),
            _ => SpaceEnd::NotSoon,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    /// The end at `hours`, if `used` GiB of 1000 disappear every hour.
    fn after(hours: u64, used: u64) -> SpaceEnd {
        let mut trend = SpaceTrend::default();
        let available = |second: u64| 1000 * GIB - used * GIB * second / 3600;
        for second in (0..=hours * 3600).step_by(60) {
            trend.note(second, 2000 * GIB, available(second));
        }
        trend.end(hours * 3600, available(hours * 3600))
    }

    #[test]
    fn space_ends_at_the_rate_of_the_last_day() {
        assert_eq!(after(0, 10), SpaceEnd::NotKnownYet);
        assert_eq!(after(1, 10), SpaceEnd::InSeconds(99 * 3600));
        assert_eq!(after(50, 10), SpaceEnd::InSeconds(50 * 3600));
        assert_eq!(after(50, 0), SpaceEnd::NotSoon);
    }

    #[test]
    fn too_short_a_history_says_nothing() {
        let mut trend = SpaceTrend::default();
        assert_eq!(trend.end(5000, GIB), SpaceEnd::NotKnownYet);
        trend.note(0, GIB, GIB);
        assert_eq!(trend.end(HISTORY_MIN - 1, 1), SpaceEnd::NotKnownYet);
        assert_ne!(trend.end(HISTORY_MIN, 1), SpaceEnd::NotKnownYet);
    }

    #[test]
    fn growth_deletions_and_slow_use_are_no_alarm() {
        let mut trend = SpaceTrend::default();
        trend.note(0, 100 * GIB, 50 * GIB);
        assert_eq!(trend.end(7200, 60 * GIB), SpaceEnd::NotSoon, "more is free than before");
        assert_eq!(trend.end(7200, 50 * GIB - 1), SpaceEnd::NotSoon, "a byte in two hours");
        // A new disk, or one more store.
        trend.note(7200, 200 * GIB, 150 * GIB);
        assert_eq!(trend.end(7200, 150 * GIB), SpaceEnd::NotKnownYet);
        // The clock was set back.
        trend.note(100, 200 * GIB, 150 * GIB);
        assert_eq!(trend.end(200, 150 * GIB), SpaceEnd::NotKnownYet);
    }

    #[test]
    fn the_history_is_bounded() {
        let mut trend = SpaceTrend::default();
        for second in (0..30 * 86_400).step_by(100) {
            trend.note(second, GIB, GIB);
        }
        assert!(trend.samples.len() as u64 <= HISTORY / SAMPLE_EVERY + 2, "{}", trend.samples.len());
    }
}
