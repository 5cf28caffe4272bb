//! Bytes that wait for their write into a segment.

use disk::{ALIGNMENT, AlignedBuf, DiskError};

use crate::segment::PAGE_U64;
use crate::segment_file::SegmentFile;

const ROOM_AT_FIRST: usize = 256 << 10;
/// A larger buffer is not kept for the next batch.
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
        // Include the zeros that fill the last page.
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

/// Consecutive unwritten bytes of one segment. The buffer starts at the beginning of their first page, because a
/// write covers whole pages. The next batch therefore writes a half-full last page a second time. That never changes
/// bytes that are already on the disk: a torn sector holds either the old or the new bytes, and both contain the
/// durable records.
pub(crate) struct Batch {
    pub(crate) segment: u64,
    file: SegmentFile,
    /// Offset of the buffer in the segment; a multiple of the page size.
    base: u64,
    /// Offset in the segment of the first unwritten byte.
    start: u64,
    buffer: Buffer,
}

impl Batch {
    /// An empty batch for a segment that ends at `start`. `page_head` holds the bytes of its last page before `start`.
    pub(crate) fn new(segment: u64, file: SegmentFile, start: u64, page_head: &[u8], recycled: Option<Buffer>) -> Self {
        let mut buffer = recycled.unwrap_or_else(Buffer::new);
        buffer.used = 0;
        buffer.extend(page_head);
        Self { segment, file, base: start - page_head.len() as u64, start, buffer }
    }

    pub(crate) fn file(&self) -> &SegmentFile {
        &self.file
    }

    pub(crate) fn end(&self) -> u64 {
        self.base + self.buffer.used as u64
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.end() == self.start
    }

    /// Number of unwritten bytes.
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

    /// An empty batch that starts where this one ends.
    pub(crate) fn successor(&self, recycled: Option<Buffer>) -> Batch {
        let within = usize::try_from(self.end() % PAGE_U64).unwrap_or(0);
        let head = &self.buffer.bytes()[self.buffer.used - within..];
        Batch::new(self.segment, self.file.clone(), self.end(), head, recycled)
    }

    /// Fills the last page with zeros. Nothing can be pushed afterwards.
    pub(crate) fn finish(&mut self) {
        let used = self.buffer.used;
        let odd = used % ALIGNMENT;
        if odd != 0 {
            self.buffer.zeros(ALIGNMENT - odd);
            self.buffer.used = used;
        }
    }

    /// Writes the unwritten bytes. Returns how many bytes went to the disk.
    pub(crate) fn write(&self) -> Result<u64, DiskError> {
        let whole = self.buffer.used.next_multiple_of(ALIGNMENT);
        self.file.write_at(&self.buffer.bytes[..whole], self.base)?;
        Ok(whole as u64)
    }

    /// The unwritten bytes from `offset` on, if this batch contains `offset`.
    pub(crate) fn unwritten_from(&self, segment: u64, offset: u64) -> Option<&[u8]> {
        if segment != self.segment || offset < self.start || offset >= self.end() {
            return None;
        }
        self.buffer.bytes().get(usize::try_from(offset - self.base).ok()?..)
    }

    /// The buffer, for another batch.
    pub(crate) fn into_buffer(self) -> Option<Buffer> {
        (self.buffer.bytes.len() <= ROOM_KEPT_MAX).then_some(self.buffer)
    }
}
