//! Randomness from the kernel.

use rand::TryRngCore as _;

/// The kernel has no randomness.
#[derive(Debug, thiserror::Error)]
#[error("the kernel gives no random bytes: {0}")]
pub struct RandomError(#[from] rand::rand_core::OsError);

/// Returns `N` random bytes.
pub(crate) fn bytes<const N: usize>() -> Result<[u8; N], RandomError> {
    let mut bytes = [0; N];
    rand::rngs::OsRng.try_fill_bytes(&mut bytes)?;
    Ok(bytes)
}
