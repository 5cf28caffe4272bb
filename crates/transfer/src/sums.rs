//! Combines the checksums of parts, in whatever order they come, into that of the whole file.

use std::collections::BTreeMap;

use client::{Algorithm, Sum};

/// Collects the sums of parts.
#[derive(Clone, Debug)]
pub struct PartChecksums {
    algorithm: Algorithm,
    // Key: offset; value: length and sum. Neighbours are merged.
    parts: BTreeMap<u64, (u64, Sum)>,
}

impl PartChecksums {
    /// Starts without parts.
    #[must_use]
    pub fn new(algorithm: Algorithm) -> Self {
        Self { algorithm, parts: BTreeMap::new() }
    }

    /// The kind of checksum.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Adds the part of `len` bytes at `offset`. Parts do not overlap.
    pub fn add(&mut self, offset: u64, len: u64, sum: Sum) {
        if len == 0 {
            return;
        }
        let (mut offset, mut len, mut sum) = (offset, len, sum);
        if let Some((&before, &(before_len, before_sum))) = self.parts.range(..offset).next_back()
            && before + before_len == offset
        {
            self.parts.remove(&before);
            (offset, len, sum) = (before, before_len + len, before_sum.combine(sum, len));
        }
        if let Some((after_len, after_sum)) = self.parts.remove(&(offset + len)) {
            (len, sum) = (len + after_len, sum.combine(after_sum, after_len));
        }
        self.parts.insert(offset, (len, sum));
    }

    /// The sum of the file from its beginning to `len`, if all parts of it were added.
    #[must_use]
    pub fn whole(&self, len: u64) -> Option<Sum> {
        if len == 0 {
            return Some(self.algorithm.of_nothing());
        }
        self.parts.get(&0).filter(|(found, _)| *found == len).map(|(_, sum)| *sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_in_any_order_give_the_same_sum() {
        let data: Vec<u8> = (0..10_000u32).map(|i| i.wrapping_mul(31).to_le_bytes()[1]).collect();
        let cuts = [0, 10, 11, 4096, 7000, 10_000];
        let parts: Vec<(usize, usize)> = cuts.windows(2).map(|cut| (cut[0], cut[1])).collect();
        for algorithm in [Algorithm::Crc32c, Algorithm::Adler32] {
            for turn in 0..parts.len() {
                for back in [false, true] {
                    let mut order: Vec<_> = parts[turn..].iter().chain(&parts[..turn]).copied().collect();
                    if back {
                        order.reverse();
                    }
                    let mut sums = PartChecksums::new(algorithm);
                    for (at, (from, to)) in order.iter().enumerate() {
                        assert_eq!(sums.whole(10_000), None, "after {at} parts");
                        sums.add(*from as u64, (to - from) as u64, algorithm.of(&data[*from..*to]));
                    }
                    assert_eq!(sums.whole(10_000), Some(algorithm.of(&data)));
                    assert_eq!(sums.whole(9_999), None);
                }
            }
            assert_eq!(PartChecksums::new(algorithm).whole(0), Some(algorithm.of(b"")));
        }
    }
}
