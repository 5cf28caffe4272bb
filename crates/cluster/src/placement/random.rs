//! Pseudo-random numbers from a seed: splitmix64.

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Spreads the bits of `n` over all of the result.
pub(super) fn mix(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

/// Combines two numbers into one.
pub(super) fn mix2(a: u64, b: u64) -> u64 {
    mix(mix(a.wrapping_add(STEP)).wrapping_add(b.wrapping_mul(STEP)))
}

/// A sequence of pseudo-random numbers.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(mix2(seed, 0))
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    /// A number from 0 to `bound` - 1, or 0 if `bound` is 0.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        // The high half of the product is below `bound`.
        u64::try_from((u128::from(self.next()) * u128::from(bound)) >> 64).unwrap_or(0)
    }

    /// A random index of a list of `len` entries.
    pub(super) fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap_or(0)
    }
}
