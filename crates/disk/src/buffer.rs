//! Buffers that direct I/O accepts.

use std::ops::{Deref, DerefMut};

use memmap2::{Advice, MmapMut};

/// The alignment for direct I/O: addresses, offsets and lengths are multiples of this.
pub const ALIGNMENT: usize = 4096;

/// Bytes of a huge page. Buffers of at least this size use huge pages if the kernel has any. A direct write then needs
/// no list of hundreds of pages, reaches the disk in one request instead of several, and costs half.
const HUGE_PAGE: usize = 2 << 20;

/// Zeroed bytes whose address is a multiple of [`ALIGNMENT`], for direct I/O. The length is the requested one; for
/// direct writes round it up to [`ALIGNMENT`].
pub struct AlignedBuf {
    // Over-allocated by one alignment: a slice starts at an aligned address, without unsafe code.
    bytes: Bytes,
    start: usize,
    len: usize,
}

enum Bytes {
    Heap(Vec<u8>),
    Mapped(MmapMut),
}

impl Bytes {
    /// Maps at least `len` bytes, in huge pages if possible. `None` if the mapping fails.
    fn huge(len: usize) -> Option<Self> {
        let map = MmapMut::map_anon(len).ok()?;
        // Without huge pages the mapping still works.
        let _ = map.advise(Advice::HugePage);
        Some(Self::Mapped(map))
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Heap(bytes) => bytes,
            Self::Mapped(map) => map,
        }
    }
}

impl DerefMut for Bytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Heap(bytes) => bytes,
            Self::Mapped(map) => map,
        }
    }
}

impl AlignedBuf {
    /// `len` zero bytes.
    #[must_use]
    pub fn new(len: usize) -> Self {
        let huge = if len >= HUGE_PAGE { Bytes::huge(len + HUGE_PAGE) } else { None };
        let alignment = if huge.is_some() { HUGE_PAGE } else { ALIGNMENT };
        let bytes = huge.unwrap_or_else(|| Bytes::Heap(vec![0u8; len + ALIGNMENT]));
        // Neither a mapping nor the heap block of a Vec without pushes moves.
        let start = bytes.as_ptr().align_offset(alignment);
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
    fn a_buffer_is_aligned_zeroed_and_of_the_requested_length() {
        for len in [0, 1, 4095, 4096, 1 << 20, HUGE_PAGE, (4 << 20) + 1] {
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
