//! Buffers that direct I/O accepts.

use std::ops::{Deref, DerefMut};

/// What direct I/O asks for: addresses, offsets and lengths are multiples of this.
pub const ALIGNMENT: usize = 4096;

/// Zeroed bytes whose address is a multiple of [`ALIGNMENT`], as direct I/O wants it. Its length is what was asked
/// for; round up to [`ALIGNMENT`] what is to be written directly.
pub struct AlignedBuf {
    // Over-allocated by one alignment: a slice of it begins at an aligned address, and no unsafe code is needed.
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBuf {
    /// `len` zero bytes.
    #[must_use]
    pub fn new(len: usize) -> Self {
        let bytes = vec![0u8; len + ALIGNMENT];
        // The heap block of a Vec does not move while nothing is pushed, and nothing ever is.
        let start = bytes.as_ptr().align_offset(ALIGNMENT);
        Self { bytes, start, len }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

impl std::fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AlignedBuf({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_aligned_zeroed_and_as_long_as_asked() {
        for len in [0, 1, 4095, 4096, 1 << 20] {
            let mut buf = AlignedBuf::new(len);
            assert_eq!(buf.len(), len);
            assert_eq!(buf.as_ptr() as usize % ALIGNMENT, 0, "{len}");
            assert!(buf.iter().all(|b| *b == 0));
            if let Some(last) = buf.last_mut() {
                *last = 7;
                assert_eq!(buf[len - 1], 7);
            }
        }
    }
}
