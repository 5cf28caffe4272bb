//! read, pgread, readv: verified data from the store. Large answers are sent in steps, so that a connection needs
//! only one transfer buffer.

use std::io::IoSlice;

use service::{Class, GrowingBuffer, OpenFile, SMALL_TRANSFER_BYTES, TransferSlot, Vectored, framed_len};
use types::PAGE_SIZE;
use wire::request::{Pgread, Read, Readv, Segment};
use wire::response::{ReadvSegment, ResultKind};
use wire::{ErrorNumber, FileHandle, ResponseHeader, ResponseStatus, StreamId, reply};

use crate::connection::{Connection, Stop};
use crate::data_streams::Task;
use crate::to_wire::RequestError;

/// Maximum length of a readv segment, as the stock server announces it (`readv_ior_max`: 2 MiB less its header).
pub(crate) const READV_SEGMENT_MAX: u32 = 2_097_136;
/// Maximum number of segments of a readv (`readv_iov_max`).
pub(crate) const READV_SEGMENTS_MAX: usize = 1024;
/// Bytes of a segment's header in the answer.
const SEGMENT_HEADER: usize = 16;

/// How the answer to a read contains the data.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// The bytes alone.
    Plain,
    /// Pages with their checksums.
    Pages,
}

impl Form {
    /// The length of `len` bytes of data at `offset` in the answer.
    fn len(self, offset: u64, len: usize) -> usize {
        match self {
            Form::Plain => len,
            Form::Pages => framed_len(offset, len),
        }
    }

    /// Reads `len` bytes at `offset` into `into`. Returns the number of bytes, which is lower at the end of the file.
    fn read(self, file: &OpenFile, offset: u64, len: usize, into: &mut [u8]) -> Result<usize, RequestError> {
        Ok(match self {
            Form::Plain => file.read(offset, &mut into[..len])?,
            Form::Pages => file.read_pages(offset, len, into)?,
        })
    }

    /// Appends what comes before `bytes` bytes of an answer with the data at `offset`.
    fn begin(self, out: &mut Vec<u8>, stream: StreamId, offset: u64, bytes: usize, is_last: bool) {
        // Steps have a few MiB at most.
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        match self {
            Form::Plain => {
                let status = if is_last { ResponseStatus::Ok } else { ResponseStatus::OkSoFar };
                out.extend_from_slice(&ResponseHeader { stream, status, dlen: bytes }.to_bytes());
            }
            Form::Pages => {
                let result = if is_last { ResultKind::Final } else { ResultKind::Partial };
                reply::pgread_header(out, stream, offset, bytes, result);
            }
        }
    }
}

impl Connection {
    /// kXR_read.
    pub(crate) fn read(&mut self, stream: StreamId, r: &Read) -> Result<Result<(), RequestError>, Stop> {
        if let Some(handed) = self.elsewhere(stream, r.path_id.unwrap_or(0), || Task::Read(r.clone())) {
            return Ok(handed);
        }
        self.read_range(stream, r.handle, (r.offset, r.len), Form::Plain)
    }

    /// kXR_pgread: pages with their checksums.
    pub(crate) fn pgread(&mut self, stream: StreamId, r: &Pgread) -> Result<Result<(), RequestError>, Stop> {
        if let Some(handed) = self.elsewhere(stream, r.path_id, || Task::Pgread(r.clone())) {
            return Ok(handed);
        }
        self.read_range(stream, r.handle, (r.offset, r.len), Form::Pages)
    }

    fn read_range(
        &mut self,
        stream: StreamId,
        handle: FileHandle,
        (offset, len): (u64, u32),
        form: Form,
    ) -> Result<Result<(), RequestError>, Stop> {
        let file = match self.file(handle) {
            Ok(file) => file,
            Err(request_error) => return Ok(Err(request_error)),
        };
        let wanted = file.bounded(offset, len);
        if wanted <= SMALL_TRANSFER_BYTES {
            let mut data = vec![0; form.len(offset, wanted)];
            return Ok(form.read(&file, offset, wanted, &mut data).map(|n| {
                self.front.service.counters().read(n as u64);
                data.truncate(form.len(offset, n));
                self.out.answer(|out| {
                    form.begin(out, stream, offset, data.len(), true);
                    out.extend_from_slice(&data);
                });
            }));
        }
        self.out.leave()?;
        let sent = self.read_in_steps(stream, &file, (offset, wanted), form)?;
        self.out.back();
        Ok(sent)
    }

    /// Sends `wanted` bytes at `offset`, more than a small answer has.
    fn read_in_steps(
        &self,
        stream: StreamId,
        file: &OpenFile,
        (offset, wanted): (u64, usize),
        form: Form,
    ) -> Result<Result<(), RequestError>, Stop> {
        let service = &self.front.service;
        let mut buffer = service.buffers().take(wanted);
        let mut turn = service.transfers().of(&*self.session.open, self.number, file.class(), file.in_turns(wanted));
        let (mut at, mut left) = (offset, wanted);
        loop {
            // Steps end at page boundaries, so that no page is verified twice.
            let step = left.min(buffer.len() - usize::try_from(at % PAGE_SIZE as u64).unwrap_or(0));
            turn.let_others();
            turn.take(|| step as u64);
            let n = match form.read(file, at, step, buffer.with_sums_room()) {
                Ok(n) => n,
                Err(request_error) => return Ok(Err(request_error)),
            };
            left -= n;
            let is_last = left == 0 || n < step;
            service.counters().read(n as u64);
            let data = &buffer.with_sums_room()[..form.len(at, n)];
            let mut head = Vec::with_capacity(64);
            form.begin(&mut head, stream, at, data.len(), is_last);
            self.out.send_now(&mut [IoSlice::new(&head), IoSlice::new(data)], Some(&mut turn))?;
            if is_last {
                return Ok(Ok(()));
            }
            at += n as u64;
        }
    }

    /// kXR_readv. Every segment must lie within its file; a segment is never answered in part.
    pub(crate) fn readv(&mut self, stream: StreamId, r: &Readv) -> Result<Result<(), RequestError>, Stop> {
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
                    Err(request_error) => {
                        self.out.back();
                        return Ok(Err(request_error));
                    }
                },
            };
            let from = &known.insert((segment.handle, from)).1;
            if let Err(request_error) = self.read_segment(stream, from, segment, &mut answer, &mut turn)? {
                self.out.back();
                return Ok(Err(request_error));
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
        if !answer.filled().is_empty() && answer.filled().len() + SEGMENT_HEADER + len > answer.step {
            self.send_frame(stream, ResponseStatus::OkSoFar, answer.filled(), Some(&mut *turn))?;
            answer.clear();
            turn.let_others();
        }
        let block = answer.step.max(len) as u64;
        turn.take(|| block);
        if SEGMENT_HEADER + len > answer.step && !self.front.service.buffers().may_grow(answer) {
            let text = "Too many long reads are under way at the moment".into();
            return Ok(Err(RequestError::Wait { seconds: 1, text }));
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
