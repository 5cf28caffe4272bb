//! Randomness for tests.

use crate::{NoRandom, Random};

/// Numbers that look random, and are the same in each run.
#[derive(Clone, Debug)]
pub struct Numbers(pub u64);

impl Random for Numbers {
    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), NoRandom> {
        for byte in bytes {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = self.0.to_be_bytes()[0];
        }
        Ok(())
    }
}
