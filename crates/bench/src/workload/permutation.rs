//! All numbers below a bound in random order, each once, without a list of them.

use crate::splitmix;

/// A permutation of `0..len`, by a seed. It is a Feistel network over the next power of four, repeated until the
/// number is within the bound (at most four steps are expected).
#[derive(Clone, Copy, Debug)]
pub struct Permutation {
    len: u64,
    half_bits: u32,
    seed: u64,
}

const ROUNDS: u64 = 4;

impl Permutation {
    /// A permutation of `0..len`, for `len` of up to 2^62.
    #[must_use]
    pub fn new(len: u64, seed: u64) -> Self {
        let bits = u64::BITS - len.saturating_sub(1).leading_zeros();
        Self { len, half_bits: bits.div_ceil(2).clamp(1, 31), seed }
    }

    /// Returns the image of `place`, or `place` itself if it is not within the bound.
    #[must_use]
    pub fn at(&self, place: u64) -> u64 {
        if place >= self.len {
            return place;
        }
        let mut number = place;
        loop {
            number = self.once(number);
            if number < self.len {
                return number;
            }
        }
    }

    fn once(&self, number: u64) -> u64 {
        let mask = (1 << self.half_bits) - 1;
        let (mut left, mut right) = (number >> self.half_bits, number & mask);
        for round in 0..ROUNDS {
            let mixed = splitmix::finalize(
                right ^ self.seed.rotate_left(16 * u32::try_from(round).unwrap_or(0)) ^ (round << 56),
            );
            (left, right) = (right, (left ^ mixed) & mask);
        }
        (left << self.half_bits) | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_comes_once() {
        for len in [1, 2, 3, 7, 64, 65, 1000, 4097] {
            let mut seen: Vec<u64> = (0..len).map(|place| Permutation::new(len, 9).at(place)).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..len).collect::<Vec<_>>(), "{len}");
        }
    }

    #[test]
    fn the_order_is_random() {
        let len = 10_000;
        let order: Vec<u64> = (0..len).map(|place| Permutation::new(len, 1).at(place)).collect();
        let other: Vec<u64> = (0..len).map(|place| Permutation::new(len, 2).at(place)).collect();
        let ascents = order.windows(2).filter(|pair| pair[0] < pair[1]).count();
        assert!((4800..5200).contains(&ascents), "{ascents}");
        let near = order.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) < 10).count();
        assert!(near < 60, "{near}");
        assert!(order.iter().zip(&other).filter(|(a, b)| a == b).count() < 10);
    }
}
