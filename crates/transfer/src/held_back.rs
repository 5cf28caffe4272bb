//! Holds back the end of a copy between servers until the source is known to be whole.
//!
//! A client may tell a server the length of a file. The server then takes the file for complete once it has that many bytes and nobody
//! returns to close it: stock clients leave files so. The copy may find only after the last byte that the source is damaged or still being
//! written. It could not take the target back if it then lost the connection or died. A file without its end is never complete.

use client::Chunk;
use disk::AlignedBuf;
use types::PAGE_SIZE;

/// A last part of up to this many bytes is kept whole, because two parts would mean more work for the server.
const WHOLE_MAX: usize = 64 << 10;

/// The offset in a file of `len` bytes at which the held-back end begins, however little remains to be written.
pub fn begins_at(len: u64) -> u64 {
    let page = PAGE_SIZE as u64;
    len.saturating_sub(1) / page * page
}

/// The held-back end of one copy.
#[derive(Debug, Default)]
pub struct HeldBack {
    /// The length of the file; `None`: nothing is held back.
    len: Option<u64>,
    last: Option<Chunk<AlignedBuf>>,
}

impl HeldBack {
    /// For a file of `len` bytes.
    pub fn of(len: u64) -> Self {
        Self { len: Some(len), last: None }
    }

    /// Takes the end of the file out of `chunk`. If the chunk has more, the rest stays in it.
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

    /// Returns the end, for when the source is known to be whole.
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
    fn the_last_page_is_held_back_whenever_it_comes() {
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
    fn something_is_always_left_to_write_last() {
        for (len, at) in [(1, 0), (4096, 0), (4097, 4096), (8192, 4096)] {
            assert_eq!(begins_at(len), at);
        }
    }
}
