//! readv: many segments, of one file or of several. What was written recently goes from the server's memory to the
//! socket without a copy.

use std::io::IoSlice;
use std::ops::Range;

use service::{Class, GrowingBuffer, Lent, TransferSlot, Vectored};
use wire::request::{Readv, Segment};
use wire::response::ReadvSegment;
use wire::{ErrorNumber, FileHandle, ResponseHeader, ResponseStatus, StreamId};

use crate::connection::{Connection, Stop};
use crate::data_streams::Task;
use crate::socket_writes::Parts;
use crate::to_wire::RequestError;

/// Maximum length of a readv segment, as the stock server announces it (`readv_ior_max`: 2 MiB less its header).
pub(crate) const READV_SEGMENT_MAX: u32 = 2_097_136;
/// Maximum number of segments of a readv (`readv_iov_max`).
pub(crate) const READV_SEGMENTS_MAX: usize = 1024;
/// Bytes of a segment's header in the answer.
const SEGMENT_HEADER: usize = 16;
/// Segments shorter than this are copied: a part of its own costs as much.
const LENT_MIN: usize = 2048;

/// The most lent segments of a frame, which keep 2 MiB of memory each from other uses until the frame is sent.
const LENT_MAX: usize = 64;

/// How many times as long as a buffer's step a frame may be if most of it is lent. What is lent takes only half as much
/// of the processor's cache, and longer frames cost clients less: with twice the step a read takes 0.87 to 0.93 of the
/// time, with four times the step no less.
const LENT_STEPS: usize = 2;

/// Bytes that the disk is asked for ahead.
const AHEAD_BYTES: usize = 4 << 20;

/// Has the disk begin to read these segments, as far as they are of the same file, and of [`AHEAD_BYTES`] together.
/// Returns their number.
fn announce(from: &Vectored, segments: &[Segment]) -> usize {
    let Some(first) = segments.first() else { return 0 };
    let mut bytes = 0;
    let is_near = |segment: &&Segment| {
        let has_room = bytes < AHEAD_BYTES;
        bytes += segment.len as usize;
        has_room && segment.handle == first.handle && segment.len <= READV_SEGMENT_MAX
    };
    let near = segments.iter().take_while(is_near).count();
    from.will_read(segments[..near].iter().map(|segment| (segment.offset, segment.len as usize)));
    near
}

/// Segments that are sent together.
struct Frame {
    /// Headers, and the segments that are not lent. Its step is the most that a frame should have.
    copied: GrowingBuffer,
    parts: Vec<Part>,
    /// How many of them are lent.
    lent: usize,
    /// The bytes of all parts.
    len: usize,
}

/// A part of a frame.
enum Part {
    /// In the buffer.
    Copied(Range<usize>),
    Lent(Lent),
}

impl Frame {
    fn new(copied: GrowingBuffer) -> Self {
        Self { copied, parts: Vec::new(), lent: 0, len: 0 }
    }

    /// Whether `len` more bytes may be sent with the others.
    fn has_room(&self, len: usize) -> bool {
        let step = self.copied.step;
        let copied = self.copied.filled().len();
        self.len == 0 || (copied + len <= step && self.len + len <= step * LENT_STEPS)
    }

    fn clear(&mut self) {
        self.copied.clear();
        self.parts.clear();
        (self.lent, self.len) = (0, 0);
    }

    /// Appends `len` bytes for the caller to fill, and then `margin` bytes that do not count.
    fn more(&mut self, len: usize, margin: usize) -> &mut [u8] {
        let begin = self.copied.filled().len();
        match self.parts.last_mut() {
            Some(Part::Copied(range)) => range.end += len,
            _ => self.parts.push(Part::Copied(begin..begin + len)),
        }
        self.len += len;
        self.copied.more(len, margin)
    }

    fn lend(&mut self, lent: Lent, len: usize) {
        self.len += len;
        self.lent += 1;
        self.parts.push(Part::Lent(lent));
    }
}

/// A frame with its header, which borrows the bytes that it does not lend.
struct Outbound<'a> {
    header: [u8; wire::RESPONSE_HEADER_LEN],
    copied: &'a [u8],
    parts: std::vec::Drain<'a, Part>,
}

impl Parts for Outbound<'_> {
    fn append_to<'a>(&'a self, slices: &mut Vec<IoSlice<'a>>) {
        slices.push(IoSlice::new(&self.header));
        for part in self.parts.as_slice() {
            match part {
                Part::Copied(range) => slices.push(IoSlice::new(&self.copied[range.clone()])),
                Part::Lent(lent) => slices.extend(lent.parts().map(IoSlice::new)),
            }
        }
    }
}

impl Connection {
    /// kXR_readv. Every segment must lie within its file; a segment is never answered in part.
    pub(crate) fn readv(&mut self, stream: StreamId, r: &Readv) -> Result<Result<(), RequestError>, Stop> {
        if let Some(handed) = self.elsewhere(stream, r.path_id, || Task::Readv(r.clone())) {
            return Ok(handed);
        }
        let total: u64 = r.reply_len();
        let wanted = usize::try_from(total).unwrap_or(usize::MAX);
        let mut frame = Frame::new(self.front.service.buffers().take_growing(wanted));
        // A single striped file among them is enough to need no slot.
        let in_turns = |segment: &Segment| self.file(segment.handle).map_or(wanted, |file| file.in_turns(wanted));
        let in_turns = r.segments.iter().map(in_turns).min().unwrap_or(0);
        let mut turn = self.front.service.transfers().of(&*self.session.open, self.number, Class::Read, in_turns);
        self.out.leave()?;
        let mut known: Option<(FileHandle, Vectored)> = None;
        let mut announced = 0;
        for (number, segment) in r.segments.iter().enumerate() {
            let from = match known.take().filter(|(handle, _)| *handle == segment.handle) {
                Some((_, from)) => from,
                None => match self.file(segment.handle).and_then(|file| Ok(Vectored::new(file)?)) {
                    Ok(from) => from,
                    Err(request_error) => {
                        self.out.back();
                        return Ok(Err(request_error));
                    }
                },
            };
            let from = &known.insert((segment.handle, from)).1;
            let before_disk = || {
                if announced <= number {
                    announced = number + announce(from, &r.segments[number..]);
                }
            };
            if let Err(request_error) =
                self.read_segment(stream, (from, before_disk), segment, &mut frame, &mut turn)?
            {
                self.out.back();
                return Ok(Err(request_error));
            }
            self.front.service.counters().read(u64::from(segment.len));
        }
        self.send_segments(stream, ResponseStatus::Ok, &mut frame, &mut turn)?;
        self.out.back();
        // A request for several files is not looked at. Such requests are rare.
        let is_of = |handle: &FileHandle| r.segments.iter().all(|one| one.handle == *handle);
        if let Some((_, from)) = known.filter(|(handle, _)| is_of(handle)) {
            let ranges = r.segments.iter().map(|one| one.offset..one.offset.saturating_add(u64::from(one.len)));
            from.file().was_read(ranges);
        }
        Ok(Ok(()))
    }

    /// Appends a segment. If the segment does not fit, the data before it is sent first. Clients expect each segment
    /// whole in one frame. A segment that is longer than the step needs a larger buffer, which may be refused.
    fn read_segment(
        &self,
        stream: StreamId,
        (from, before_disk): (&Vectored, impl FnOnce()),
        segment: &Segment,
        frame: &mut Frame,
        turn: &mut TransferSlot<'_>,
    ) -> Result<Result<(), RequestError>, Stop> {
        if segment.len > READV_SEGMENT_MAX {
            let text = format!("A readv segment of {} bytes is over the limit of {READV_SEGMENT_MAX}", segment.len);
            // as the stock server
            return Ok(Err(RequestError::new(ErrorNumber::NO_MEMORY, text)));
        }
        let len = segment.len as usize;
        let past_end = || {
            let text =
                format!("Cannot read {}: {len} bytes at {} reach past its end", from.file().path, segment.offset);
            // as the stock server
            RequestError::new(ErrorNumber::FS_ERROR, text)
        };
        if from.bounded(segment.offset, segment.len) < len {
            return Ok(Err(past_end()));
        }
        let step = frame.copied.step;
        if !frame.has_room(SEGMENT_HEADER + len) {
            self.send_segments(stream, ResponseStatus::OkSoFar, frame, turn)?;
            turn.let_others();
        }
        let block = step.max(len) as u64;
        turn.take(|| block);
        let header = ReadvSegment(*segment).to_bytes();
        // Shorter than a step: it is copied if the client is slow, and that copy must be bounded.
        if (LENT_MIN..step).contains(&len) && frame.lent < LENT_MAX {
            match from.lend(segment.offset, len) {
                Ok(Some(lent)) => {
                    frame.more(SEGMENT_HEADER, 0).copy_from_slice(&header);
                    frame.lend(lent, len);
                    return Ok(Ok(()));
                }
                Ok(None) => {}
                Err(error) => return Ok(Err(error.into())),
            }
        }
        if SEGMENT_HEADER + len > step && !self.front.service.buffers().may_grow(&mut frame.copied) {
            let text = "Too many long reads are under way at the moment".into();
            return Ok(Err(RequestError::Wait { seconds: 1, text }));
        }
        let (head, data) = frame.more(SEGMENT_HEADER + len, Vectored::MARGIN).split_at_mut(SEGMENT_HEADER);
        head.copy_from_slice(&header);
        Ok(match from.read(segment.offset, len, data, before_disk) {
            Ok(n) if n == len => Ok(()),
            Ok(_) => Err(past_end()),
            Err(error) => Err(error.into()),
        })
    }

    fn send_segments(
        &self,
        stream: StreamId,
        status: ResponseStatus,
        frame: &mut Frame,
        turn: &mut TransferSlot<'_>,
    ) -> Result<(), Stop> {
        if frame.lent == 0 {
            self.send_frame(stream, status, frame.copied.filled(), Some(turn))?;
            frame.clear();
            return Ok(());
        }
        let dlen = u32::try_from(frame.len).unwrap_or(u32::MAX);
        let header = ResponseHeader { stream, status, dlen }.to_bytes();
        let parts = frame.parts.drain(..);
        self.out.send_lent(Outbound { header, copied: frame.copied.filled(), parts }, Some(turn))?;
        frame.clear();
        Ok(())
    }
}
