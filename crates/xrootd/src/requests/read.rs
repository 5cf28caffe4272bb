//! read, pgread: verified data from the store. Large answers are sent in steps, so that a connection needs only one
//! transfer buffer.

use std::io::IoSlice;
use std::sync::Arc;
use std::time::Duration;

use service::{OpenFile, SMALL_TRANSFER_BYTES, framed_len};
use types::PAGE_SIZE;
use wire::request::{Pgread, Read};
use wire::response::ResultKind;
use wire::{FileHandle, ResponseHeader, ResponseStatus, StreamId, reply};

use crate::answer::{self, Reply, WhileListening};
use crate::connection::{Connection, Stop};
use crate::data_streams::Task;
use crate::to_wire::RequestError;

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
        if r.wait_seconds > 0
            && let Ok(file) = self.file(r.handle)
            && file.is_awaited_at(r.offset) != Some(false)
        {
            self.out.begin()?;
            // The wait is not counted as the server's time.
            let reply = Reply::new(Arc::clone(&self.out), stream, None)
                .framed(|bytes: Vec<u8>, out, stream| answer::ok(out, stream, |body| body.extend_from_slice(&bytes)));
            let reply = WhileListening { answer: reply, outgoing: Arc::clone(&self.out) };
            let most = Duration::from_secs(u64::from(r.wait_seconds));
            self.front.service.read_when_grown(file, (r.offset, r.len), most, reply);
            return Ok(Ok(()));
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
        // Answers to other requests do not wait for other servers.
        if file.is_striped() {
            self.out.leave()?;
        }
        let wanted = file.bounded(offset, len);
        let range = offset..offset.saturating_add(wanted as u64);
        if wanted <= SMALL_TRANSFER_BYTES {
            let mut data = vec![0; form.len(offset, wanted)];
            let read = form.read(&file, offset, wanted, &mut data);
            self.out.back();
            return Ok(read.map(|n| {
                self.front.service.counters().read(n as u64);
                data.truncate(form.len(offset, n));
                self.out.answer(|out| {
                    form.begin(out, stream, offset, data.len(), true);
                    out.extend_from_slice(&data);
                });
                file.was_read(std::iter::once(range));
            }));
        }
        self.out.leave()?;
        let sent = self.read_in_steps(stream, &file, (offset, wanted), form)?;
        self.out.back();
        if sent.is_ok() {
            file.was_read(std::iter::once(range));
        }
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
}
