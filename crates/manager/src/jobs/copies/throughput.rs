//! How fast repair copies at present.

use std::collections::VecDeque;
use std::time::Duration;

use cluster::Time;

/// The time over which the mean is taken, in seconds.
const WINDOW: u64 = 30;

/// Bytes of finished copies, by the second in which they were copied. Disk servers report a copy when it has ended. Its bytes count as if they had
/// been copied evenly since its start.
#[derive(Default)]
pub(super) struct Throughput(VecDeque<(u64, u64)>);

impl Throughput {
    /// A copy of this many bytes has just ended.
    pub(super) fn add(&mut self, since: Time, now: Time, bytes: u64) {
        let last = now.0.as_secs();
        let first = since.0.as_secs().clamp(last.saturating_sub(WINDOW), last);
        let total = now.since(since).as_nanos();
        for second in first..=last {
            let begin = Time(Duration::from_secs(second)).max(since);
            let end = Time(Duration::from_secs(second + 1)).min(now);
            let part = match total {
                0 => u128::from(bytes),
                total => u128::from(bytes) * end.since(begin).as_nanos() / total,
            };
            self.add_to(second, u64::try_from(part).unwrap_or(u64::MAX));
        }
        self.forget(last);
    }

    fn add_to(&mut self, second: u64, bytes: u64) {
        let at = self.0.partition_point(|(known, _)| *known < second);
        match self.0.get_mut(at).filter(|(known, _)| *known == second) {
            Some((_, sum)) => *sum = sum.saturating_add(bytes),
            None => self.0.insert(at, (second, bytes)),
        }
    }

    fn forget(&mut self, now: u64) {
        while self.0.front().is_some_and(|(second, _)| *second + WINDOW < now) {
            self.0.pop_front();
        }
    }

    /// The mean rate of the last seconds in bytes a second. `None` if no copy has ended in that time.
    pub(super) fn bytes_per_second(&mut self, now: Time) -> Option<u64> {
        self.forget(now.0.as_secs());
        let (first, _) = self.0.front()?;
        let sum: u128 = self.0.iter().map(|(_, bytes)| u128::from(*bytes)).sum();
        let millis = now.since(Time(Duration::from_secs(*first))).as_millis().max(1000);
        Some(u64::try_from(sum * 1000 / millis).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time(Duration::from_millis(ms))
    }

    #[test]
    fn the_rate_is_that_of_the_last_seconds() {
        let mut throughput = Throughput::default();
        assert_eq!(throughput.bytes_per_second(at(5000)), None);
        // One copy of 10 s that has been running alone.
        throughput.add(at(10_000), at(20_000), 1000);
        assert_eq!(throughput.bytes_per_second(at(20_000)), Some(100));
        // A second one beside it, in its last second.
        throughput.add(at(19_000), at(20_000), 1000);
        assert_eq!(throughput.bytes_per_second(at(20_000)), Some(200));
        // Nothing more comes: the rate falls, and at last it is unknown.
        assert_eq!(throughput.bytes_per_second(at(30_000)), Some(100));
        assert_eq!(throughput.bytes_per_second(at(60_000)), None);
    }

    #[test]
    fn many_small_copies_take_no_memory_and_one_at_once_counts() {
        let mut throughput = Throughput::default();
        for ms in 0..100_000 {
            throughput.add(at(ms), at(ms), 7);
        }
        assert!(throughput.0.len() <= 32, "{}", throughput.0.len());
        let rate = throughput.bytes_per_second(at(100_000)).unwrap();
        assert!((6900..=7000).contains(&rate), "{rate}");
    }

    #[test]
    fn a_copy_longer_than_the_window_counts_with_its_last_part() {
        let mut throughput = Throughput::default();
        throughput.add(at(0), at(300_000), 300_000);
        let rate = throughput.bytes_per_second(at(300_000)).unwrap();
        assert!((950..=1050).contains(&rate), "{rate}");
    }
}
