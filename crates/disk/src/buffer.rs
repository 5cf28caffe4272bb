//! Buffers that direct I/O accepts.

use std::ops::{Deref, DerefMut};

use memmap2::{Advice, MmapMut};

/// What direct I/O asks for: addresses, offsets and lengths are multiples of this.
pub const ALIGNMENT: usize = 4096;

/// Bytes of a huge page. Buffers that hold one are made of such, where the kernel has them to give: a direct write
/// then needs no list of hundreds of pages, goes to the disk in one request instead of several, and costs half.
const HUGE_PAGE: usize = 2 << 20;

/// Zeroed bytes whose address is a multiple of [`ALIGNMENT`], as direct I/O wants it. Its length is what was asked
/// for; round up to [`ALIGNMENT`] what is to be written directly.
pub struct AlignedBuf {
    // Over-allocated by one alignment: a slice of it begins at an aligned address, and no unsafe code is needed.
    bytes: Bytes,
    start: usize,
    len: usize,
}

enum Bytes {
    Heap(Vec<u8>),
    Mapped(MmapMut),
}

impl Bytes {
    /// At least `len`, of huge pages if possible; `None`: no memory to be had in this way.
    fn huge(len: usize) -> Option<Self> {
        let map = MmapMut::map_anon(len).ok()?;
        // Without huge pages it is memory like any other.
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
        // Neither a mapping nor the heap block of a Vec to which nothing is ever pushed moves.
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
    fn is_aligned_zeroed_and_as_long_as_asked() {
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
