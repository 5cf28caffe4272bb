//! The checksums of a file that is written in parts, in any order. They are known as long as no byte was written
//! twice.

use types::{Adler32, Crc32c};

/// The most ranges that are remembered. It exceeds the number of parts that a copy has under way with the smallest
/// chunks. A file written in more ranges at a time has no checksums.
const RANGES_MAX: usize = 4096;

/// Adjacent written bytes, and their checksums.
#[derive(Clone, Copy, Debug)]
struct Range {
    start: u64,
    len: u64,
    sums: WrittenSums,
}

/// Both checksums of the same bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WrittenSums {
    /// adler32.
    pub adler32: Adler32,
    /// CRC32C.
    pub crc32c: Crc32c,
}

impl WrittenSums {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self { adler32: Adler32::of(bytes), crc32c: Crc32c::of(bytes) }
    }
}

impl Range {
    fn end(&self) -> u64 {
        self.start.saturating_add(self.len)
    }

    fn then(self, next: &Self) -> Self {
        let adler32 = self.sums.adler32.combine(next.sums.adler32, next.len);
        let crc32c = self.sums.crc32c.combine(next.sums.crc32c, next.len);
        Self { start: self.start, len: self.len + next.len, sums: WrittenSums { adler32, crc32c } }
    }
}

/// The checksums of the bytes written so far.
#[derive(Clone, Debug)]
pub(crate) struct SumsOfWritten {
    /// Ordered and not adjacent; `None`: the checksums are unknown.
    ranges: Option<Vec<Range>>,
}

impl SumsOfWritten {
    /// Starts with an empty file, or with unknown contents if `is_known` is false.
    pub(crate) fn new(is_known: bool) -> Self {
        Self { ranges: is_known.then(Vec::new) }
    }

    /// The checksums are unknown from now on.
    pub(crate) fn forget(&mut self) {
        self.ranges = None;
    }

    /// `bytes` were written at `start`.
    pub(crate) fn wrote(&mut self, start: u64, bytes: &[u8]) {
        if self.ranges.is_some() {
            self.add(start, bytes.len() as u64, WrittenSums::of(bytes));
        }
    }

    /// `len` bytes with these checksums were written at `start`.
    pub(crate) fn add(&mut self, start: u64, len: u64, sums: WrittenSums) {
        let Some(ranges) = &mut self.ranges else { return };
        if len == 0 {
            return;
        }
        let mut new = Range { start, len, sums };
        let mut at = ranges.partition_point(|range| range.start < start);
        let before = at.checked_sub(1).map(|before| ranges[before]);
        let overlaps = before.is_some_and(|before| before.end() > start)
            || ranges.get(at).is_some_and(|after| after.start < new.end());
        if overlaps || ranges.len() >= RANGES_MAX {
            return self.forget();
        }
        if let Some(before) = before.filter(|before| before.end() == start) {
            at -= 1;
            ranges.remove(at);
            new = before.then(&new);
        }
        if let Some(after) = ranges.get(at).copied().filter(|after| after.start == new.end()) {
            ranges.remove(at);
            new = new.then(&after);
        }
        ranges.insert(at, new);
    }

    /// Returns the checksums of the whole file of `len` bytes, if each byte was written exactly once.
    pub(crate) fn whole(&self, len: u64) -> Option<WrittenSums> {
        match self.ranges.as_deref()? {
            [] if len == 0 => Some(WrittenSums::of(&[])),
            [all] if (all.start, all.len) == (0, len) => Some(all.sums),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test may fail this way

    use super::*;

    fn data(len: usize) -> Vec<u8> {
        (0..len).map(|n| u8::try_from(n * 7 % 251).unwrap()).collect()
    }

    #[test]
    fn parts_in_any_order_give_the_sums_of_the_whole() {
        let data = data(10_000);
        for order in [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1], [1, 3, 0, 2]] {
            let mut sums = SumsOfWritten::new(true);
            for (number, part) in order.into_iter().enumerate() {
                assert_eq!(sums.whole(10_000), None, "{number} of 4 parts are there");
                let range = [0..1, 1..4_096, 4_096..9_999, 9_999..10_000][part].clone();
                sums.wrote(range.start as u64, &data[range]);
            }
            assert_eq!(sums.whole(10_000), Some(WrittenSums::of(&data)), "{order:?}");
            assert_eq!((sums.whole(9_999), sums.whole(10_001)), (None, None), "of no other length");
        }
        assert_eq!(SumsOfWritten::new(true).whole(0), Some(WrittenSums::of(&[])));
    }

    #[test]
    fn bytes_written_twice_or_before_have_no_checksums() {
        let data = data(100);
        for (start, len) in [(0, 1), (49, 1), (40, 20), (0, 100), (60, 3), (69, 2)] {
            let mut sums = SumsOfWritten::new(true);
            sums.wrote(0, &data[..50]);
            sums.wrote(60, &data[60..70]);
            sums.wrote(start, &data[..len]);
            sums.wrote(50, &data[50..60]);
            sums.wrote(70, &data[70..]);
            assert_eq!(sums.whole(100), None, "{len} bytes at {start} were written twice");
        }
        let mut sums = SumsOfWritten::new(false);
        sums.wrote(0, &data);
        assert_eq!((sums.whole(100), sums.whole(0)), (None, None));
    }

    #[test]
    fn too_many_ranges_have_no_checksums() {
        let mut sums = SumsOfWritten::new(true);
        for n in 0..=RANGES_MAX as u64 {
            sums.wrote(2 * n, &[1]);
        }
        assert!(sums.ranges.is_none());
    }
}
