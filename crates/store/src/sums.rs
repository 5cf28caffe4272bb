//! Checksums of pages, and how to combine them for a whole file without reading the bytes again.

use std::sync::LazyLock;

use types::{Adler32, Crc32c, PAGE_SIZE};

/// Bytes in a page.
pub(crate) const PAGE: u64 = PAGE_SIZE as u64;

/// The number of pages that `len` bytes touch.
pub(crate) fn pages_of(len: u64) -> u64 {
    len.div_ceil(PAGE)
}

/// Both checksums of one page (or of the last, shorter one), as stored in the sidecar.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageSum {
    pub(crate) crc32c: Crc32c,
    pub(crate) adler32: Adler32,
}

/// Bytes of a [`PageSum`] in a sidecar.
pub(crate) const PAGE_SUM_BYTES: u64 = 8;

static ZERO_PAGE: LazyLock<PageSum> = LazyLock::new(|| PageSum::of(&[0; PAGE_SIZE]));

/// The effect of 4096 more bytes on each of a CRC's four bytes, so that adding a page takes four lookups.
static PAGE_SHIFT: LazyLock<Box<[[u32; 256]; 4]>> = LazyLock::new(|| {
    let mut tables = Box::new([[0u32; 256]; 4]);
    for (place, table) in (0u32..).zip(tables.iter_mut()) {
        for bit in 0..8 {
            // The shift is linear: a byte's image combines those of its highest bit and of the rest.
            let image = Crc32c(1 << (8 * place + bit)).combine(Crc32c::EMPTY, PAGE).0;
            let (known, new) = table.split_at_mut(1 << bit);
            for (entry, rest) in new.iter_mut().zip(known) {
                *entry = image ^ *rest;
            }
        }
    }
    tables
});

impl PageSum {
    /// The checksums of a page's bytes, at most 4096.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self { crc32c: Crc32c::of(bytes), adler32: Adler32::of(bytes) }
    }

    /// The checksum that XRootD sends with a page.
    #[must_use]
    pub fn crc32c(&self) -> Crc32c {
        self.crc32c
    }

    /// The checksums of 4096 zeros.
    pub(crate) fn zero_page() -> Self {
        *ZERO_PAGE
    }

    /// The form in a sidecar: XORed with the checksums of a zero page, so that a hole in the sidecar describes a hole
    /// in the file.
    pub(crate) fn encode(self) -> [u8; 8] {
        let zero = Self::zero_page();
        let (crc, adler) = (self.crc32c.0 ^ zero.crc32c.0, self.adler32.0 ^ zero.adler32.0);
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
        bytes[4..].copy_from_slice(&adler.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: [u8; 8]) -> Self {
        let zero = Self::zero_page();
        let [a, b, c, d, e, f, g, h] = bytes;
        Self {
            crc32c: Crc32c(u32::from_le_bytes([a, b, c, d]) ^ zero.crc32c.0),
            adler32: Adler32(u32::from_le_bytes([e, f, g, h]) ^ zero.adler32.0),
        }
    }
}

/// The checksums of a file that grows page by page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RunningSum {
    pub(crate) crc32c: Crc32c,
    pub(crate) adler32: Adler32,
    pub(crate) len: u64,
}

impl RunningSum {
    pub(crate) const EMPTY: Self = Self { crc32c: Crc32c::EMPTY, adler32: Adler32::EMPTY, len: 0 };

    /// Adds a part of `len` bytes.
    pub(crate) fn push(&mut self, sum: PageSum, len: u64) {
        if len == PAGE {
            let [a, b, c, d] = self.crc32c.0.to_le_bytes().map(usize::from);
            let shift = &*PAGE_SHIFT;
            self.crc32c = Crc32c(shift[0][a] ^ shift[1][b] ^ shift[2][c] ^ shift[3][d] ^ sum.crc32c.0);
        } else {
            self.crc32c = self.crc32c.combine(sum.crc32c, len);
        }
        self.adler32 = self.adler32.combine(sum.adler32, len);
        self.len += len;
    }

    /// The checksums of `bytes`.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self { crc32c: Crc32c::of(bytes), adler32: Adler32::of(bytes), len: bytes.len() as u64 }
    }

    /// Adds another running sum's bytes.
    pub(crate) fn append(&mut self, other: Self) {
        self.push(PageSum { crc32c: other.crc32c, adler32: other.adler32 }, other.len);
    }

    /// Adds `count` pages of zeros, in steps that double.
    pub(crate) fn push_zero_pages(&mut self, count: u64) {
        let mut unit = Self::EMPTY;
        unit.push(PageSum::zero_page(), PAGE);
        let mut left = count;
        while left > 0 {
            if left & 1 == 1 {
                self.append(unit);
            }
            let half = unit;
            unit.append(half);
            left >>= 1;
        }
    }
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation)] // small numbers
mod tests {
    use super::*;

    #[test]
    fn pages_add_up_to_the_file() {
        let bytes: Vec<u8> = (0..50_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let mut sum = RunningSum::EMPTY;
        for page in bytes.chunks(PAGE_SIZE) {
            sum.push(PageSum::of(page), page.len() as u64);
        }
        assert_eq!(sum, RunningSum::of(&bytes));
    }

    #[test]
    fn zero_pages_add_up() {
        for count in [0, 1, 2, 3, 7, 64, 100] {
            let mut sum = RunningSum::of(b"before");
            sum.push_zero_pages(count);
            let whole = [b"before".to_vec(), vec![0; PAGE_SIZE * count as usize]].concat();
            assert_eq!(sum, RunningSum::of(&whole), "{count}");
        }
    }

    #[test]
    fn a_hole_in_the_sidecar_is_a_zero_page() {
        assert_eq!(PageSum::decode([0; 8]), PageSum::of(&[0; PAGE_SIZE]));
        let sum = PageSum::of(b"something");
        assert_eq!(PageSum::decode(sum.encode()), sum);
    }
}
