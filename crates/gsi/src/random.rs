//! Randomness, which is handed in.

use rsa::rand_core::{TryCryptoRng, TryRng};

/// There are no random bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the system gives no random bytes")]
pub struct NoRandom;

/// Where random bytes come from. They must be fit for keys.
pub trait Random {
    /// Fills `bytes`.
    ///
    /// # Errors
    /// [`NoRandom`].
    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), NoRandom>;
}

/// The same for the crate `rsa`.
pub(crate) struct Generator<'a>(pub(crate) &'a mut dyn Random);

impl TryRng for Generator<'_> {
    type Error = NoRandom;

    fn try_next_u32(&mut self) -> Result<u32, NoRandom> {
        let mut bytes = [0; 4];
        self.0.fill(&mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn try_next_u64(&mut self) -> Result<u64, NoRandom> {
        let mut bytes = [0; 8];
        self.0.fill(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), NoRandom> {
        self.0.fill(bytes)
    }
}

impl TryCryptoRng for Generator<'_> {}
