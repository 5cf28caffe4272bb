//! read, pgread, readv: verified data from the store. Large answers are sent in steps, so that a connection needs
//! only one transfer buffer.

use std::io::IoSlice;

use service::{Class, GrowingBuffer, SMALL_TRANSFER_BYTES, TransferSlot, Vectored, framed_len};
use types::PAGE_SIZE;
use wire::request::{Pgread, Read, Readv, Segment};
use wire::response::{ReadvSegment, ResultKind};
use wire::{ErrorNumber, FileHandle, ResponseStatus, StreamId, reply};

use crate::connection::{Connection, Stop};
use crate::data_streams::Task;
use crate::to_wire::Refusal;

/// Maximum length of a readv segment, as the stock server announces it (`readv_ior_max`: 2 MiB less its header).
pub(crate) const READV_SEGMENT_MAX: u32 = 2_097_136;
/// Maximum number of segments of a readv (`readv_iov_max`).
pub(crate) const READV_SEGMENTS_MAX: usize = 1024;
/// Bytes of a segment's header in the answer.
const SEGMENT_HEADER: usize = 16;

impl Connection {
    /// kXR_read.
    pub(crate) fn read(&mut self, stream: StreamId, r: &Read) -> Result<Result<(), Refusal>, Stop> {
        let path_id = r.path_id.unwrap_or(0);
        if let Some(handed) = self.elsewhere(stream, path_id, || Task::Read(r.clone())) {
            return Ok(handed);
        }
        let file = match self.file(r.handle) {
            Ok(file) => file,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let wanted = file.bounded(r.offset, r.len);
        if wanted <= SMALL_TRANSFER_BYTES {
            let mut data = vec![0; wanted];
            return Ok(file.read(r.offset, &mut data).map_err(Refusal::from).and_then(|n| {
                self.front.service.counters().read(n as u64);
                self.ok(stream, |out| out.extend_from_slice(&data[..n]))
            }));
        }
        self.out.leave()?;
        let mut buffer = self.front.service.buffers().take(wanted);
        let mut turn =
            self.front.service.transfers().of(&*self.session.open, self.number, file.class(), file.in_turns(wanted));
        let (mut at, mut left) = (r.offset, wanted);
        loop {
            let step = left.min(buffer.len());
            turn.let_others();
            turn.take(|| step as u64);
            let n = match file.read(at, &mut buffer[..step]) {
                Ok(n) => n,
                Err(error) => {
                    self.out.back();
                    return Ok(Err(error.into()));
                }
            };
            at += n as u64;
            left -= n;
            let last = left == 0 || n < step;
            let status = if last { ResponseStatus::Ok } else { ResponseStatus::OkSoFar };
            self.front.service.counters().read(n as u64);
            self.send_frame(stream, status, &buffer[..n], Some(&mut turn))?;
            if last {
                self.out.back();
                return Ok(Ok(()));
            }
        }
    }

    /// kXR_pgread: pages with their checksums.
    pub(crate) fn pgread(&mut self, stream: StreamId, r: &Pgread) -> Result<Result<(), Refusal>, Stop> {
        if let Some(handed) = self.elsewhere(stream, r.path_id, || Task::Pgread(r.clone())) {
            return Ok(handed);
        }
        let file = match self.file(r.handle) {
            Ok(file) => file,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let wanted = file.bounded(r.offset, r.len);
        if wanted <= SMALL_TRANSFER_BYTES {
            let mut pages = vec![0; framed_len(r.offset, wanted)];
            return Ok(file.read_pages(r.offset, wanted, &mut pages).map_err(Refusal::from).map(|n| {
                self.front.service.counters().read(n as u64);
                pages.truncate(framed_len(r.offset, n));
                self.out.answer(|out| {
                    reply::pgread_header(out, stream, r.offset, wire_len(pages.len()), ResultKind::Final);
                    out.extend_from_slice(&pages);
                });
            }));
        }
        self.out.leave()?;
        let mut buffer = self.front.service.buffers().take(wanted);
        let mut turn =
            self.front.service.transfers().of(&*self.session.open, self.number, file.class(), file.in_turns(wanted));
        let (mut at, mut left) = (r.offset, wanted);
        loop {
            // Steps end at page boundaries.
            let step = left.min(buffer.len() - usize::try_from(at % PAGE_SIZE as u64).unwrap_or(0));
            turn.let_others();
            turn.take(|| step as u64);
            let n = match file.read_pages(at, step, buffer.with_sums_room()) {
                Ok(n) => n,
                Err(error) => {
                    self.out.back();
                    return Ok(Err(error.into()));
                }
            };
            let start = at;
            at += n as u64;
            left -= n;
            let last = left == 0 || n < step;
            self.front.service.counters().read(n as u64);
            let result = if last { ResultKind::Final } else { ResultKind::Partial };
            let pages = &buffer.with_sums_room()[..framed_len(start, n)];
            let mut head = Vec::with_capacity(64);
            reply::pgread_header(&mut head, stream, start, wire_len(pages.len()), result);
            self.out.send_now(&mut [IoSlice::new(&head), IoSlice::new(pages)], Some(&mut turn))?;
            if last {
                self.out.back();
                return Ok(Ok(()));
            }
        }
    }

    /// kXR_readv. Every segment must lie within its file; a segment is never answered in part.
    pub(crate) fn readv(&mut self, stream: StreamId, r: &Readv) -> Result<Result<(), Refusal>, Stop> {
        if let Some(handed) = self.elsewhere(stream, r.path_id, || Task::Readv(r.clone())) {
            return Ok(handed);
        }
        let total: u64 = r.reply_len();
        let wanted = usize::try_from(total).unwrap_or(usize::MAX);
        let mut answer = self.front.service.buffers().take_growing(wanted);
        // A single striped file among them is enough to need no slot.
        let in_turns = |segment: &Segment| self.file(segment.handle).map_or(wanted, |file| file.in_turns(wanted));
        let in_turns = r.segments.iter().map(in_turns).min().unwrap_or(0);
        let mut turn = self.front.service.transfers().of(&*self.session.open, self.number, Class::Read, in_turns);
        self.out.leave()?;
        let mut known: Option<(FileHandle, Vectored)> = None;
        for segment in &r.segments {
            let from = match known.take().filter(|(handle, _)| *handle == segment.handle) {
                Some((_, from)) => from,
                None => match self.file(segment.handle).and_then(|file| Ok(Vectored::new(file)?)) {
                    Ok(from) => from,
                    Err(refusal) => {
                        self.out.back();
                        return Ok(Err(refusal));
                    }
                },
            };
            let from = &known.insert((segment.handle, from)).1;
            if let Err(refusal) = self.read_segment(stream, from, segment, &mut answer, &mut turn)? {
                self.out.back();
                return Ok(Err(refusal));
            }
            self.front.service.counters().read(u64::from(segment.len));
        }
        self.send_frame(stream, ResponseStatus::Ok, answer.filled(), Some(&mut turn))?;
        self.out.back();
        Ok(Ok(()))
    }

    /// Appends a segment. If the segment does not fit, the data before it is sent first. Clients expect each segment
    /// whole in one frame. A segment that is longer than the step needs a larger buffer, which may be refused.
    fn read_segment(
        &self,
        stream: StreamId,
        from: &Vectored,
        segment: &Segment,
        answer: &mut GrowingBuffer,
        turn: &mut TransferSlot<'_>,
    ) -> Result<Result<(), Refusal>, Stop> {
        if segment.len > READV_SEGMENT_MAX {
            let text = format!("A readv segment of {} bytes is over the limit of {READV_SEGMENT_MAX}", segment.len);
            // as the stock server
            return Ok(Err(Refusal::new(ErrorNumber::NO_MEMORY, text)));
        }
        let len = segment.len as usize;
        let past_end = || {
            let text =
                format!("Cannot read {}: {len} bytes at {} reach past its end", from.file().path, segment.offset);
            // as the stock server
            Refusal::new(ErrorNumber::FS_ERROR, text)
        };
        if from.bounded(segment.offset, segment.len) < len {
            return Ok(Err(past_end()));
        }
        if !answer.filled().is_empty() && answer.filled().len() + SEGMENT_HEADER + len > answer.step {
            self.send_frame(stream, ResponseStatus::OkSoFar, answer.filled(), Some(&mut *turn))?;
            answer.clear();
            turn.let_others();
        }
        let block = answer.step.max(len) as u64;
        turn.take(|| block);
        if SEGMENT_HEADER + len > answer.step && !self.front.service.buffers().may_grow(answer) {
            let text = "Too many long reads are under way at the moment".into();
            return Ok(Err(Refusal::Wait { seconds: 1, text }));
        }
        let (header, data) = answer.more(SEGMENT_HEADER + len, Vectored::MARGIN).split_at_mut(SEGMENT_HEADER);
        header.copy_from_slice(&ReadvSegment(*segment).to_bytes());
        Ok(match from.read(segment.offset, len, data) {
            Ok(n) if n == len => Ok(()),
            Ok(_) => Err(past_end()),
            Err(error) => Err(error.into()),
        })
    }
}

/// Steps have a few MiB at most.
fn wire_len(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}
