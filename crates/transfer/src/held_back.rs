//! The end of a copy between servers, which is not sent before its source is known to be whole.
//!
//! A server that was told how long a file is to be takes it for complete once so many bytes are there and nobody comes back to close it: stock clients
//! leave files so. Whoever finds after the last byte that what was read is damaged, or is being written still, could not take that back once the
//! connection, or the process, is gone. A file that lacks its end is complete for nobody, whatever happens then.

use client::Chunk;
use disk::AlignedBuf;
use types::PAGE_SIZE;

/// A last part of so many bytes is kept whole: in two, its server would have more work with it.
const WHOLE_MAX: usize = 64 << 10;

/// Where in a file of `len` bytes the end begins that has to be written last, however little is left to be written.
pub fn begins_at(len: u64) -> u64 {
    let page = PAGE_SIZE as u64;
    len.saturating_sub(1) / page * page
}

/// The end of one copy.
#[derive(Debug, Default)]
pub struct HeldBack {
    /// How long the file is to be; `None`: nothing is held back.
    len: Option<u64>,
    last: Option<Chunk<AlignedBuf>>,
}

impl HeldBack {
    /// Of a file of `len` bytes.
    pub fn of(len: u64) -> Self {
        Self { len: Some(len), last: None }
    }

    /// Keeps what of `chunk` is the file's end; the rest stays in it, if there is more.
    pub fn keep_of(&mut self, chunk: &mut Chunk<AlignedBuf>) {
        let end = chunk.offset + chunk.len as u64;
        let Some(len) = self.len.filter(|len| *len == end) else { return };
        let before = usize::try_from(begins_at(len).saturating_sub(chunk.offset)).unwrap_or(chunk.len);
        let before = if chunk.len <= WHOLE_MAX { 0 } else { before };
        let kept = &chunk.buffer[before..chunk.len];
        let mut buffer = AlignedBuf::new(kept.len().next_multiple_of(disk::ALIGNMENT));
        buffer[..kept.len()].copy_from_slice(kept);
        self.last = Some(Chunk { offset: chunk.offset + before as u64, len: kept.len(), buffer });
        chunk.len = before;
    }

    /// The source is whole: what is to be written now.
    pub fn release(self) -> Option<Chunk<AlignedBuf>> {
        self.last
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test may fail this way

    use super::*;

    fn chunk(offset: u64, len: usize) -> Chunk<AlignedBuf> {
        let mut buffer = AlignedBuf::new(len.next_multiple_of(disk::ALIGNMENT));
        (0u64..).zip(&mut buffer[..len]).for_each(|(at, byte)| *byte = u8::try_from((offset + at) % 251).unwrap());
        Chunk { offset, len, buffer }
    }

    #[test]
    fn the_last_page_is_kept_of_the_last_part_whenever_that_comes() {
        for (offset, len, kept) in
            [(0, 1, 1), (4096, 64 << 10, 64 << 10), (0, 70_000, 70_000 - 69_632), (1 << 20, 1 << 20, 4096)]
        {
            let mut held = HeldBack::of(offset + len as u64);
            let mut last = chunk(offset, len);
            held.keep_of(&mut last);
            assert_eq!(last.len, len - kept);
            if offset > 0 {
                let mut other = chunk(0, usize::try_from(offset).unwrap());
                held.keep_of(&mut other);
                assert_eq!(other.len as u64, offset, "the others are not touched");
            }
            let end = held.release().unwrap();
            assert_eq!((end.offset, end.len), (offset + (len - kept) as u64, kept));
            assert_eq!(end.buffer[..kept], chunk(end.offset, kept).buffer[..kept]);
        }
        let mut last = chunk(0, 100);
        HeldBack::default().keep_of(&mut last);
        assert_eq!(last.len, 100, "of what has no known end nothing is kept");
    }

    #[test]
    fn there_is_always_something_to_be_written_last() {
        for (len, at) in [(1, 0), (4096, 0), (4097, 4096), (8192, 4096)] {
            assert_eq!(begins_at(len), at);
        }
    }
}
