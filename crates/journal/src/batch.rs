//! Bytes on their way into a segment.

use std::sync::Arc;

use disk::{ALIGNMENT, AlignedBuf, DiskError, DiskFile};

use crate::segment::PAGE_U64;

const ROOM_AT_FIRST: usize = 256 << 10;
/// A buffer that grew beyond this is not kept for the next batch.
const ROOM_KEPT_MAX: usize = 4 << 20;

/// An aligned buffer that grows.
pub(crate) struct Buffer {
    bytes: AlignedBuf,
    used: usize,
}

impl Buffer {
    pub(crate) fn new() -> Self {
        Self { bytes: AlignedBuf::new(ROOM_AT_FIRST), used: 0 }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.used]
    }

    fn reserve(&mut self, more: usize) {
        // Room for the zeros up to the page's end as well.
        let needed = self.used + more + ALIGNMENT;
        if needed > self.bytes.len() {
            let mut bytes = AlignedBuf::new(needed.next_power_of_two());
            bytes[..self.used].copy_from_slice(&self.bytes[..self.used]);
            self.bytes = bytes;
        }
    }

    pub(crate) fn extend(&mut self, part: &[u8]) {
        self.reserve(part.len());
        self.bytes[self.used..self.used + part.len()].copy_from_slice(part);
        self.used += part.len();
    }

    fn zeros(&mut self, n: usize) {
        self.reserve(n);
        self.bytes[self.used..self.used + n].fill(0);
        self.used += n;
    }
}

/// Consecutive bytes of one segment that are not written yet, from the beginning of the page in which they begin:
/// direct I/O writes whole pages, so the last one, half full, is written again with the next batch. That never changes
/// bytes that are already there: a sector that tears shows the old or the new, and both hold the durable records.
pub(crate) struct Batch {
    pub(crate) segment: u64,
    file: Arc<dyn DiskFile>,
    /// Where in the segment the buffer begins; a multiple of the page size.
    base: u64,
    /// Where in the segment the bytes begin that are not written.
    start: u64,
    buffer: Buffer,
}

impl Batch {
    /// For a segment that ends at `start`; `page_head` is what its last page holds up to there.
    pub(crate) fn new(
        segment: u64,
        file: Arc<dyn DiskFile>,
        start: u64,
        page_head: &[u8],
        recycled: Option<Buffer>,
    ) -> Self {
        let mut buffer = recycled.unwrap_or_else(Buffer::new);
        buffer.used = 0;
        buffer.extend(page_head);
        Self { segment, file, base: start - page_head.len() as u64, start, buffer }
    }

    pub(crate) fn file(&self) -> &Arc<dyn DiskFile> {
        &self.file
    }

    pub(crate) fn end(&self) -> u64 {
        self.base + self.buffer.used as u64
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.end() == self.start
    }

    /// Bytes not written.
    pub(crate) fn unwritten(&self) -> u64 {
        self.end() - self.start
    }

    pub(crate) fn push(&mut self, header: &[u8], payload: &[&[u8]]) {
        self.buffer.extend(header);
        for part in payload {
            self.buffer.extend(part);
        }
        let odd = self.buffer.used % 8;
        if odd != 0 {
            self.buffer.zeros(8 - odd);
        }
    }

    /// The batch that goes on where this one ends.
    pub(crate) fn successor(&self, recycled: Option<Buffer>) -> Batch {
        let within = usize::try_from(self.end() % PAGE_U64).unwrap_or(0);
        let head = &self.buffer.bytes()[self.buffer.used - within..];
        Batch::new(self.segment, Arc::clone(&self.file), self.end(), head, recycled)
    }

    /// Fills the last page up with zeros behind the end, for direct I/O. Nothing can be pushed any more.
    pub(crate) fn finish(&mut self) {
        let used = self.buffer.used;
        let odd = used % ALIGNMENT;
        if odd != 0 {
            self.buffer.zeros(ALIGNMENT - odd);
            self.buffer.used = used;
        }
    }

    /// Writes what is not written. Returns how many bytes went to the disk.
    pub(crate) fn write(&self) -> Result<u64, DiskError> {
        if self.file.is_direct() {
            let whole = self.buffer.used.next_multiple_of(ALIGNMENT);
            self.file.write_at(&self.buffer.bytes[..whole], self.base)?;
            Ok(whole as u64)
        } else {
            let skip = usize::try_from(self.start - self.base).unwrap_or(0);
            self.file.write_at(&self.buffer.bytes()[skip..], self.start)?;
            Ok(self.unwritten())
        }
    }

    /// The unwritten bytes from `offset` on, if `offset` lies in them.
    pub(crate) fn unwritten_from(&self, segment: u64, offset: u64) -> Option<&[u8]> {
        if segment != self.segment || offset < self.start || offset >= self.end() {
            return None;
        }
        self.buffer.bytes().get(usize::try_from(offset - self.base).ok()?..)
    }

    /// The buffer, to be used again.
    pub(crate) fn into_buffer(self) -> Option<Buffer> {
        (self.buffer.bytes.len() <= ROOM_KEPT_MAX).then_some(self.buffer)
    }
}
