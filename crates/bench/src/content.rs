//! The contents of the files that the bench writes, and the checks of what it reads. Every byte follows from a
//! seed, the file's number, its generation (a rewrite makes the next) and the offset. So anyone who knows the seed
//! can verify any part of any file.
//!
//! A page of 4 KiB consists of a stamp of 32 bytes and a part of a table of random bytes. Compressors that look
//! back less than 1 MiB find no repetition. No two pages are equal, so deduplication finds nothing either. Making
//! the next block of a stream only sets its stamps, one cache line for each page. That costs no more than writing
//! the same buffer repeatedly, as other tools do.

use std::fmt;
use std::ops::{Range, RangeInclusive};

use types::PAGE_SIZE;

use crate::memory::Memory;
use crate::splitmix;
use crate::target::TargetError;

/// The size of the table in bytes. It must exceed the distance that compressors look back.
pub const TABLE_BYTES: usize = 1 << 20;
/// The bytes at the start of each page that identify it.
pub const STAMP_BYTES: usize = 32;

const PAGE: u64 = PAGE_SIZE as u64;

/// A file of a run, and how often it was rewritten.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct FileKey {
    /// Its number in the run.
    pub file: u64,
    /// 0 for the first version.
    pub generation: u64,
}

/// The contents of all files of a run.
#[derive(Debug)]
pub struct Content {
    keys: [u64; 4],
    table: Vec<u8>,
}

/// A difference from the written bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mismatch {
    /// The offset in the file of the first wrong byte.
    pub offset: u64,
    /// What is there instead.
    pub found: Found,
}

/// What a wrong page contains.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// Zeros, as in a hole or an unwritten block.
    Zeros,
    /// Another page of this run.
    Page {
        /// Its file.
        key: FileKey,
        /// Its offset in that file, in bytes.
        offset: u64,
    },
    /// The correct page, but with wrong bytes from the offset on.
    Changed,
    /// Bytes that this run has never written.
    Foreign,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "wrong data from byte {} on: ", self.offset)?;
        match self.found {
            Found::Zeros => write!(f, "zeros"),
            Found::Page { key, offset } => {
                write!(
                    f,
                    "the page that belongs to byte {offset} of file {} in its generation {}",
                    key.file, key.generation
                )
            }
            Found::Changed => write!(f, "the page's stamp is right, the bytes after it are not"),
            Found::Foreign => write!(f, "bytes that this run has never written"),
        }
    }
}

/// The position in the table of the bytes at `offset` of any file.
fn phase(offset: u64) -> usize {
    usize::try_from(offset % TABLE_BYTES as u64).unwrap_or(0)
}

impl Content {
    /// Makes the contents for `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let keys = [1, 2, 3, 4].map(|n: u64| splitmix::next(seed.wrapping_mul(0x2545_F491_4F6C_DD1D) ^ n));
        let table =
            (0..TABLE_BYTES as u64 / 8).flat_map(|n| splitmix::next(keys[3].wrapping_add(n)).to_le_bytes()).collect();
        Self { keys, table }
    }

    fn stamp(&self, key: FileKey, page: u64) -> [u8; STAMP_BYTES] {
        let words =
            [key.file ^ self.keys[0], key.generation ^ self.keys[1], page ^ self.keys[2], self.proof(key, page)];
        let mut stamp = [0; STAMP_BYTES];
        for (bytes, word) in stamp.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        stamp
    }

    fn proof(&self, key: FileKey, page: u64) -> u64 {
        splitmix::next(self.keys[3] ^ splitmix::next(key.file ^ splitmix::next(key.generation ^ splitmix::next(page))))
    }

    /// Returns the file and the page number of a page that begins with `page_bytes`, if it belongs to this run.
    fn whose(&self, page_bytes: &[u8]) -> Option<(FileKey, u64)> {
        let mut words = page_bytes.get(..STAMP_BYTES)?.chunks_exact(8).map(|bytes| {
            let mut word = [0; 8];
            word.copy_from_slice(bytes);
            u64::from_le_bytes(word)
        });
        let file = words.next()? ^ self.keys[0];
        let generation = words.next()? ^ self.keys[1];
        let page = words.next()? ^ self.keys[2];
        let key = FileKey { file, generation };
        (words.next()? == self.proof(key, page)).then_some((key, page))
    }

    /// Fills `into` with the bytes of the file from `offset`.
    pub fn fill(&self, key: FileKey, offset: u64, into: &mut [u8]) {
        let mut done = 0;
        while done < into.len() {
            let from = phase(offset + done as u64);
            let step = (TABLE_BYTES - from).min(into.len() - done);
            into[done..done + step].copy_from_slice(&self.table[from..from + step]);
            done += step;
        }
        self.set_stamps(key, offset, into);
    }

    fn set_stamps(&self, key: FileKey, offset: u64, bytes: &mut [u8]) {
        let end = offset + bytes.len() as u64;
        let mut page = offset / PAGE;
        while page * PAGE < end {
            let (from, to) = ((page * PAGE).max(offset), (page * PAGE + STAMP_BYTES as u64).min(end));
            if from < to {
                let stamp = self.stamp(key, page);
                let (at, len) = (index(from - offset), index(to - from));
                bytes[at..at + len].copy_from_slice(&stamp[index(from - page * PAGE)..][..len]);
            }
            page += 1;
        }
    }

    /// Compares `bytes`, read from `offset` of a file, with the written ones. Each page may have any of the
    /// `generations`: during or after an incomplete rewrite, some pages are old and some are new.
    ///
    /// # Errors
    /// The first difference, and what is there.
    pub fn check(
        &self,
        file: u64,
        generations: RangeInclusive<u64>,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), Mismatch> {
        let end = offset + bytes.len() as u64;
        let mut at = offset;
        while at < end {
            let page = at / PAGE;
            let page_end = ((page + 1) * PAGE).min(end);
            let part = &bytes[index(at - offset)..index(page_end - offset)];
            if !generations.clone().any(|generation| self.is_part(FileKey { file, generation }, at, part)) {
                return Err(self.explain(FileKey { file, generation: *generations.end() }, at, part));
            }
            at = page_end;
        }
        Ok(())
    }

    /// Whether `part`, which lies within one page, was written at `at`.
    fn is_part(&self, key: FileKey, at: u64, part: &[u8]) -> bool {
        let within = index(at % PAGE);
        let stamped = STAMP_BYTES.saturating_sub(within).min(part.len());
        let (head, tail) = part.split_at(stamped);
        let from = phase(at) + stamped;
        (head.is_empty() || *head == self.stamp(key, at / PAGE)[within..within + stamped])
            && *tail == self.table[from..from + tail.len()]
    }

    #[cold]
    fn explain(&self, key: FileKey, at: u64, part: &[u8]) -> Mismatch {
        let mut right = vec![0; part.len()];
        self.fill(key, at, &mut right);
        let first = right.iter().zip(part).position(|(right, read)| right != read).unwrap_or(0);
        let stamp = (at.is_multiple_of(PAGE)).then(|| self.whose(part)).flatten();
        let found = match stamp {
            Some((found, page)) if (found, page) == (key, at / PAGE) => Found::Changed,
            Some((found, page)) => Found::Page { key: found, offset: page.saturating_mul(PAGE) },
            None if part[first..].iter().all(|byte| *byte == 0) => Found::Zeros,
            None => Found::Foreign,
        };
        Mismatch { offset: at + first as u64, found }
    }

    /// Returns memory for [`Content::block`] with blocks of up to `block` bytes.
    ///
    /// # Errors
    /// The kernel does not have that much memory.
    pub fn memory(&self, block: usize) -> Result<Memory, TargetError> {
        let mut memory = Memory::new(TABLE_BYTES + block)?;
        self.fill(FileKey::default(), 0, memory.whole());
        Ok(memory)
    }

    /// Makes `memory` hold the `len` bytes of a file from `offset`, and returns their range in it. The range is as
    /// well aligned as the memory and the offset allow. `memory` must come from [`Content::memory`] or hold the
    /// same table; only stamps are set. `None`: the memory is too small.
    pub fn block(&self, memory: &mut [u8], key: FileKey, offset: u64, len: usize) -> Option<Range<usize>> {
        let begin = phase(offset);
        let place = begin..begin.checked_add(len)?;
        self.set_stamps(key, offset, memory.get_mut(place.clone())?);
        Some(place)
    }
}

/// All lengths and offsets are within a buffer.
fn index(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: FileKey = FileKey { file: 7, generation: 2 };

    #[test]
    fn any_part_equals_that_part_of_the_whole() {
        let content = Content::new(42);
        let mut whole = vec![0; TABLE_BYTES + 3 * PAGE_SIZE];
        content.fill(KEY, 0, &mut whole);
        for (offset, len) in
            [(0, 1), (1, 31), (31, 2), (4090, 20), (5000, 9000), (TABLE_BYTES - 10, 4096 + 40), (17, TABLE_BYTES)]
        {
            let mut part = vec![0; len];
            content.fill(KEY, offset as u64, &mut part);
            assert_eq!(part, whole[offset..offset + len], "{offset} {len}");
            assert_eq!(content.check(7, 2..=2, offset as u64, &part), Ok(()));
        }
    }

    #[test]
    fn blocks_are_the_same_bytes() {
        let content = Content::new(1);
        let mut memory = content.memory(10_000).unwrap();
        for (offset, len) in
            [(0_u64, 10_000), (4096, 4096), (77, 5000), (TABLE_BYTES as u64 - 5, 10_000), (4096, 8192), (1 << 40, 1)]
        {
            let mut right = vec![0; len];
            content.fill(KEY, offset, &mut right);
            let place = content.block(memory.whole(), KEY, offset, len).unwrap();
            assert!(memory.whole()[place] == right, "{offset} {len}");
        }
        assert_eq!(content.block(memory.whole(), KEY, TABLE_BYTES as u64 - 1, 10_002), None);
    }

    #[test]
    fn the_offset_of_a_wrong_byte_is_found() {
        let content = Content::new(3);
        let mut bytes = vec![0; 5 * PAGE_SIZE];
        content.fill(KEY, 100, &mut bytes);
        for at in [0, 3995, 3996, 4000, 9000, 5 * PAGE_SIZE - 1] {
            let mut wrong = bytes.clone();
            wrong[at] ^= 1;
            let mismatch = content.check(7, 2..=2, 100, &wrong).unwrap_err();
            assert_eq!(mismatch.offset, 100 + at as u64);
        }
    }

    #[test]
    fn a_wrong_page_is_identified() {
        let content = Content::new(3);
        let page = |key, offset| {
            let mut bytes = vec![0; PAGE_SIZE];
            content.fill(key, offset, &mut bytes);
            bytes
        };
        let old = FileKey { generation: 1, ..KEY };
        let found = |bytes: &[u8]| content.check(7, 2..=2, 8192, bytes).unwrap_err();
        assert_eq!(found(&vec![0; PAGE_SIZE]).found, Found::Zeros);
        assert_eq!(found(&page(old, 8192)).found, Found::Page { key: old, offset: 8192 });
        assert_eq!(found(&page(KEY, 4096)).found, Found::Page { key: KEY, offset: 4096 });
        assert_eq!(found(&vec![7; PAGE_SIZE]).found, Found::Foreign);
        let mut torn = page(KEY, 8192);
        torn[600..].fill(0);
        assert_eq!(found(&torn), Mismatch { offset: 8192 + 600, found: Found::Changed });
        let mut other = vec![0; PAGE_SIZE];
        Content::new(4).fill(KEY, 8192, &mut other);
        assert_eq!(found(&other).found, Found::Foreign);
        assert_eq!(content.check(7, 1..=2, 8192, &page(old, 8192)), Ok(()));
    }

    #[test]
    fn the_contents_of_old_runs_never_change() {
        let mut bytes = vec![0; 3 * PAGE_SIZE];
        Content::new(42).fill(KEY, 123, &mut bytes);
        assert_eq!(types::Crc32c::of(&bytes).0, 3_808_364_001);
    }
}
