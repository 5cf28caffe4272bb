//! Counts of values by their magnitude, such as durations and sizes.

/// The number of values for each power of two, and their sum. The owner knows their meaning (microseconds, bytes,
/// operations). Adding a value takes some nanoseconds; a histogram has 264 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Histogram {
    counts: [u64; Self::BUCKETS],
    sum: u64,
}

impl Histogram {
    /// Number of buckets: the first for 0, the next for 1, then 2 and 3, then 4 to 7, and so on; the last for all from
    /// 2^30 on.
    pub const BUCKETS: usize = 32;

    /// The bucket of `value`.
    #[must_use]
    pub const fn bucket_of(value: u64) -> usize {
        let bits = (u64::BITS - value.leading_zeros()) as usize;
        if bits < Self::BUCKETS { bits } else { Self::BUCKETS - 1 }
    }

    /// The largest value of `bucket`; `None` for the last, which has no end.
    #[must_use]
    pub const fn largest_of(bucket: usize) -> Option<u64> {
        if bucket + 1 < Self::BUCKETS { Some((1 << bucket) - 1) } else { None }
    }

    /// Adds `value`.
    pub fn add(&mut self, value: u64) {
        self.add_counted(Self::bucket_of(value), 1, value);
    }

    /// Adds `count` values of the bucket `bucket` with the total `sum`, for owners that keep the parts elsewhere.
    pub fn add_counted(&mut self, bucket: usize, count: u64, sum: u64) {
        let bucket = bucket.min(Self::BUCKETS - 1);
        self.counts[bucket] = self.counts[bucket].wrapping_add(count);
        self.sum = self.sum.wrapping_add(sum);
    }

    /// The number of values in each bucket.
    #[must_use]
    pub fn counts(&self) -> &[u64; Self::BUCKETS] {
        &self.counts
    }

    /// The number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The sum of all values.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_falls_into_the_bucket_with_its_bounds() {
        for value in [0, 1, 2, 3, 4, 7, 8, 1000, 1 << 29, (1 << 30) - 1, 1 << 30, u64::MAX] {
            let bucket = Histogram::bucket_of(value);
            assert!(Histogram::largest_of(bucket).is_none_or(|largest| value <= largest), "{value}");
            assert!(bucket == 0 || Histogram::largest_of(bucket - 1).is_some_and(|below| value > below), "{value}");
        }
        assert_eq!(Histogram::largest_of(Histogram::BUCKETS - 1), None);
    }

    #[test]
    fn counts_and_sum_cover_all_values() {
        let mut histogram = Histogram::default();
        [0, 5, 6, 1 << 40].into_iter().for_each(|value| histogram.add(value));
        histogram.add_counted(3, 2, 9);
        assert_eq!((histogram.count(), histogram.sum()), (6, 20 + (1 << 40)));
        assert_eq!(histogram.counts()[3], 4);
    }
}
