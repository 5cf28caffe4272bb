//! Reading a segment's frames in order, and searching for frames where the order is lost.

use std::ops::ControlFlow;
use std::sync::Arc;

use disk::{ALIGNMENT, AlignedBuf, DiskError, DiskFile};
use types::Crc32c;

use crate::frame::{self, Decoded, FrameHeader, HEADER_LEN};
use crate::segment::PAGE_U64;
use crate::{JournalError, PAYLOAD_MAX};

const WINDOW: usize = 4 << 20;
/// Unreadable pages allowed in one file. Beyond this the device has failed, rather than the file being damaged.
const UNREADABLE_MAX: u32 = 256;

/// The first unreadable offset of a file, the number of unreadable pages, and the system's message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Unreadable {
    pub(crate) offset: u64,
    pages: u32,
    what: String,
}

impl std::fmt::Display for Unreadable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the page at byte {} cannot be read: {}", self.offset, self.what)
    }
}

/// Whether the error concerns single unreadable sectors (Linux: EIO, ENODATA, EILSEQ).
fn is_sector_error(e: &DiskError) -> bool {
    matches!(e.source.raw_os_error(), Some(5 | 61 | 84))
}

/// Fills `buf` like `read_at`; `offset` is a page boundary. Pages that the device cannot read become `ff`: no record
/// begins with it and no checksum matches it. Stores the first such page in `unreadable`.
pub(crate) fn read_around(
    file: &dyn DiskFile,
    buf: &mut [u8],
    offset: u64,
    unreadable: &mut Option<Unreadable>,
) -> Result<usize, DiskError> {
    match file.read_at(buf, offset) {
        Err(e) if is_sector_error(&e) => {}
        read => return read,
    }
    // Pages of the file: `offset` may be arbitrary if reads need no alignment.
    let mut page = AlignedBuf::new(ALIGNMENT);
    let mut done = 0;
    while done < buf.len() {
        let at = offset + done as u64;
        let within = usize::try_from(at % PAGE_U64).unwrap_or(0);
        let wanted = (buf.len() - done).min(ALIGNMENT - within);
        let got = match file.read_at(&mut page, at - within as u64) {
            Err(e) if is_sector_error(&e) => {
                let first = unreadable.get_or_insert_with(|| Unreadable {
                    offset: at - within as u64,
                    pages: 0,
                    what: e.source.to_string(),
                });
                first.pages += 1;
                if first.pages > UNREADABLE_MAX {
                    return Err(e);
                }
                page.fill(0xff);
                ALIGNMENT
            }
            read => read?,
        };
        let wanted = wanted.min(got.saturating_sub(within));
        if wanted == 0 {
            break;
        }
        buf[done..done + wanted].copy_from_slice(&page[within..within + wanted]);
        done += wanted;
    }
    Ok(done)
}

/// A file that is read forward in large aligned blocks.
pub(crate) struct Window {
    file: Arc<dyn DiskFile>,
    buf: AlignedBuf,
    base: u64,
    filled: usize,
    /// Whether to skip unreadable pages.
    around: bool,
    /// The pages that were skipped.
    unreadable: Option<Unreadable>,
}

impl Window {
    /// `len` is the length of the file, so that a small file needs no large buffer.
    pub(crate) fn new(file: Arc<dyn DiskFile>, len: u64) -> Self {
        let size = usize::try_from(len).unwrap_or(WINDOW).next_multiple_of(ALIGNMENT) + 2 * ALIGNMENT;
        Self { file, buf: AlignedBuf::new(size.min(WINDOW)), base: 0, filled: 0, around: false, unreadable: None }
    }

    /// A window that treats unreadable pages as invalid bytes.
    pub(crate) fn around(file: Arc<dyn DiskFile>, len: u64) -> Self {
        Self { around: true, ..Self::new(file, len) }
    }

    /// The pages that could not be read so far.
    pub(crate) fn unreadable(&self) -> Option<&Unreadable> {
        self.unreadable.as_ref()
    }

    /// The length that a caller may request at any offset without growing the buffer.
    fn step(&self) -> usize {
        self.buf.len() - ALIGNMENT
    }

    /// `len` bytes from `offset` on; fewer only at the end of the file.
    pub(crate) fn get(&mut self, offset: u64, len: usize) -> Result<&[u8], JournalError> {
        let held = self.base..self.base + self.filled as u64;
        if !(held.contains(&offset) && offset + len as u64 <= held.end) {
            self.base = offset - offset % ALIGNMENT as u64;
            let within = usize::try_from(offset - self.base).unwrap_or(0);
            let needed = (within + len).next_multiple_of(ALIGNMENT);
            if needed > self.buf.len() {
                self.buf = AlignedBuf::new(needed);
            }
            self.filled = 0;
            self.filled = if self.around {
                read_around(&*self.file, &mut self.buf, self.base, &mut self.unreadable)?
            } else {
                self.file.read_at(&mut self.buf, self.base)?
            };
        }
        let within = usize::try_from(offset - self.base).unwrap_or(0).min(self.filled);
        Ok(&self.buf[within..self.filled.min(within + len)])
    }
}

/// The journal and segment to which frames must belong.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected<'p> {
    pub(crate) path: &'p str,
    pub(crate) segment: u64,
    pub(crate) segment_bytes: u64,
    pub(crate) incarnation: u64,
    pub(crate) first: u64,
    /// Compare checksums; only a planted bug turns this off.
    pub(crate) check_crc: bool,
    /// Refuse frames of other journals and segments; only a planted bug turns this off.
    pub(crate) check_origin: bool,
}

/// Receives a frame's header, the offset of its payload, and the payload.
pub(crate) type VisitFrame<'v> = dyn FnMut(&FrameHeader, u64, &[u8]) -> ControlFlow<()> + 'v;

/// Where and why a walk ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct WalkEnd {
    /// The first byte after the last frame.
    pub(crate) offset: u64,
    /// The last frame's number; `first - 1` if there was none.
    pub(crate) last: u64,
    /// Describes the bytes at `offset` that are no frame of this journal. `None` at zeros, at the segment's end, or
    /// when the visitor broke.
    pub(crate) bad: Option<String>,
}

/// Passes a segment's frames and the offsets of their payloads to the visitor, up to the first fault.
pub(crate) fn walk(
    window: &mut Window,
    expected: Expected<'_>,
    visit: &mut VisitFrame<'_>,
) -> Result<WalkEnd, JournalError> {
    let mut offset = PAGE_U64;
    let mut next = expected.first;
    loop {
        let end = |bad: Option<String>| WalkEnd { offset, last: next.saturating_sub(1), bad };
        if offset + HEADER_LEN as u64 > expected.segment_bytes {
            return Ok(end(None));
        }
        let header = match frame::decode(window.get(offset, HEADER_LEN)?, expected.check_crc) {
            Decoded::Zeros => return Ok(end(None)),
            Decoded::Bad(what) => return Ok(end(Some(what.to_owned()))),
            Decoded::Frame(header) => header,
        };
        if expected.check_origin
            && (header.incarnation != expected.incarnation || header.segment != frame::low_half(expected.segment))
        {
            return Ok(end(Some("a record of another journal, or of another part of this one".to_owned())));
        }
        if let Some(what) = header.unsupported() {
            return Err(JournalError::Unsupported { file: expected.path.to_owned(), what });
        }
        if header.seq != next {
            return Ok(end(Some(format!("record {} stands where {next} should", header.seq))));
        }
        let len = usize::try_from(header.len).unwrap_or(usize::MAX);
        let frame_len = frame::frame_len(u64::from(header.len));
        if len > PAYLOAD_MAX || offset + frame_len > expected.segment_bytes {
            return Ok(end(Some(format!("record {next} claims an impossible length of {len} bytes"))));
        }
        let payload_at = offset + HEADER_LEN as u64;
        let payload = window.get(payload_at, len)?;
        if payload.len() < len {
            return Ok(end(Some(format!("the file ends inside record {next}"))));
        }
        if expected.check_crc && Crc32c::of(payload) != header.payload_crc {
            return Ok(end(Some(format!("record {next} does not match its checksum"))));
        }
        let flow = visit(&header, payload_at, payload);
        offset += frame_len;
        next += 1;
        if flow.is_break() {
            return Ok(WalkEnd { offset, last: next.saturating_sub(1), bad: None });
        }
    }
}

/// The contents of a range in which the sequence of frames is broken.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Survey {
    /// The first nonzero byte (in steps of 8 bytes), and one past the last.
    pub(crate) nonzero: Option<(u64, u64)>,
    /// The highest `synced_to` of frames with an intact header.
    pub(crate) synced_to: u64,
    /// The highest number of frames with an intact header.
    pub(crate) highest: u64,
}

/// Searches a file from `from` to its end for frames of `segment` (and of `incarnation`, if known).
pub(crate) fn survey(
    window: &mut Window,
    from: u64,
    segment: u64,
    incarnation: Option<u64>,
) -> Result<Survey, JournalError> {
    let mut found = Survey::default();
    let mut offset = from - from % 8;
    loop {
        // A header may span two steps. Steps are multiples of 8 and stay inside the window.
        let step = window.step();
        let bytes = window.get(offset, step)?;
        if bytes.is_empty() {
            return Ok(found);
        }
        if let (Some(first), Some(last)) = (bytes.iter().position(|b| *b != 0), bytes.iter().rposition(|b| *b != 0)) {
            let start = found.nonzero.map_or(offset + (first - first % 8) as u64, |(start, _)| start);
            found.nonzero = Some((start, offset + last as u64 + 1));
            for (_, header) in frame::find_headers(bytes) {
                if header.segment == frame::low_half(segment) && incarnation.is_none_or(|i| i == header.incarnation) {
                    found.synced_to = found.synced_to.max(header.synced_to);
                    found.highest = found.highest.max(header.seq);
                }
            }
        }
        if bytes.len() < step {
            return Ok(found);
        }
        offset += (step - HEADER_LEN) as u64;
    }
}
