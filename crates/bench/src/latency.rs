//! The latencies of operations: accurate to three digits, small, and mergeable over threads, machines and runs.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The longest latency that is distinguished: an hour.
const LONGEST_US: u64 = 3_600_000_000;
const DIGITS: u8 = 3;

/// A histogram of latencies from 1 µs to an hour.
#[derive(Clone, PartialEq, Debug)]
pub struct Latency {
    counts: Histogram<u64>,
}

impl Default for Latency {
    fn default() -> Self {
        // The bounds are constants that the crate accepts. Otherwise, a histogram that grows is used.
        let counts = Histogram::new_with_bounds(1, LONGEST_US, DIGITS).or_else(|_| Histogram::new(DIGITS));
        #[allow(clippy::expect_used)] // three digits are always allowed
        Self { counts: counts.expect("a histogram of three digits") }
    }
}

impl Latency {
    /// Adds a latency. In open-loop runs `took` counts from when the operation was due. So an operation that waited
    /// behind a slow one includes that wait.
    pub fn add(&mut self, took: Duration) {
        self.add_many(took, 1);
    }

    /// Adds `count` operations of the same latency.
    pub fn add_many(&mut self, took: Duration, count: u64) {
        let us = u64::try_from(took.as_nanos().div_ceil(1000)).unwrap_or(LONGEST_US);
        self.counts.saturating_record_n(us.clamp(1, LONGEST_US), count);
    }

    /// Adds all of `other`.
    pub fn merge(&mut self, other: &Self) {
        // The bounds are the same, so nothing can be out of range.
        let _ = self.counts.add(&other.counts);
    }

    /// Returns the number of operations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.len()
    }

    /// Returns the latency that a share `q` of all operations did not exceed; `None` without operations.
    #[must_use]
    pub fn quantile(&self, q: f64) -> Option<Duration> {
        (!self.counts.is_empty()).then(|| Duration::from_micros(self.counts.value_at_quantile(q)))
    }

    /// Returns the longest latency.
    #[must_use]
    pub fn longest(&self) -> Option<Duration> {
        (!self.counts.is_empty()).then(|| Duration::from_micros(self.counts.max()))
    }

    /// Returns latencies in microseconds with their numbers of operations, ascending, for plots and files.
    pub fn steps(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.counts.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value()))
    }
}

impl Serialize for Latency {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.steps())
    }
}

impl<'de> Deserialize<'de> for Latency {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut latency = Self::default();
        for (us, count) in Vec::<(u64, u64)>::deserialize(deserializer)? {
            latency.counts.saturating_record_n(us.clamp(1, LONGEST_US), count);
        }
        Ok(latency)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merged_parts_equal_the_whole() {
        let took = |n: u64| Duration::from_micros(n * n % 100_003);
        let (mut whole, mut parts) = (Latency::default(), [Latency::default(), Latency::default()]);
        for n in 0..20_000 {
            whole.add(took(n));
            parts[usize::from(n % 3 == 0)].add(took(n));
        }
        let [mut merged, second] = parts;
        merged.merge(&second);
        assert_eq!(merged, whole);
        let text = serde_json::to_string(&whole).unwrap();
        let read: Latency = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (read.count(), read.quantile(0.5), read.longest()),
            (whole.count(), whole.quantile(0.5), whole.longest())
        );
    }

    #[test]
    fn quantiles_are_exact_to_three_digits() {
        let mut latency = Latency::default();
        (1..=100_000).for_each(|us| latency.add(Duration::from_micros(us)));
        for q in [0.5, 0.9, 0.99, 0.999] {
            let found = latency.quantile(q).unwrap().as_secs_f64() * 1e6;
            assert!((found / (q * 100_000.0) - 1.0).abs() < 0.002, "{q}: {found}");
        }
        latency.add(Duration::from_secs(7200));
        assert!(latency.longest().unwrap() >= Duration::from_secs(3600));
        assert_eq!(Latency::default().quantile(0.5), None);
    }
}
