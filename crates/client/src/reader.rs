//! Reads a file into buffers of the caller, with several requests under way.

use std::collections::VecDeque;
use std::ops::DerefMut;
use std::time::{Duration, Instant};

use wire::request::Read;
use wire::{Request, Response, ResponseStatus, StreamId};

use crate::pace::{Pace, WaitLimit};
use crate::{ClientError, Incoming, RemoteFile, Session};

/// How long an abandoned reader goes on receiving answers from a server.
const GIVE_UP_MAX: Duration = Duration::from_secs(10);

/// A part of a file in a buffer.
#[derive(Debug)]
pub struct Chunk<B> {
    /// Its offset in the file, in bytes.
    pub offset: u64,
    /// The number of its bytes, at the front of the buffer.
    pub len: usize,
    /// The buffer.
    pub buffer: B,
}

/// Reads parts of a file with several requests under way. The caller supplies buffers with their offsets, and gets
/// them back filled, in the order of the server's answers.
#[derive(Debug)]
pub struct Reader<B> {
    file: RemoteFile,
    pending: Vec<Pending<B>>,
    /// Parts that the answer to the open had, so that they need no request.
    ready: VecDeque<Chunk<B>>,
    /// It counts the bytes of the file, so that answers of one byte each count as slow, too.
    pace: Pace,
}

#[derive(Debug)]
struct Pending<B> {
    stream: StreamId,
    offset: u64,
    want: usize,
    got: usize,
    buffer: B,
    waits: WaitLimit,
    /// The replica of one server is damaged. Another server is asked for this part.
    damaged: bool,
    /// The server may wait so long until it has something. What comes then is all that this request gets.
    wait_seconds: u8,
}

impl<B: DerefMut<Target = [u8]>> Reader<B> {
    /// Reads `file`. If its beginning came with the open ([`crate::Client::open_to_read`]), the reader requests only the
    /// bytes behind it.
    #[must_use]
    pub fn new(file: RemoteFile) -> Self {
        Self { file, pending: Vec::new(), ready: VecDeque::new(), pace: Pace::new(Instant::now()) }
    }

    /// Reads `file` while it grows. Parts at its present end are shorter than requested, or empty.
    #[must_use]
    pub fn growing(mut file: RemoteFile) -> Self {
        file.grows = true;
        // There may be more by now, for which a reader at the end would have to wait.
        file.beginning = Vec::new();
        Self::new(file)
    }

    /// Returns the file.
    #[must_use]
    pub fn file(&self) -> &RemoteFile {
        &self.file
    }

    /// Returns the file for requests of another kind; `None` while requests of this reader are under way.
    pub fn file_mut(&mut self) -> Option<&mut RemoteFile> {
        (self.under_way() == 0).then_some(&mut self.file)
    }

    /// Returns the number of requests under way.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.pending.len() + self.ready.len()
    }

    /// Requests `len` bytes (at least 1, at most the buffer's length) at `offset`.
    ///
    /// # Errors
    /// The connection fails and cannot be restored.
    pub fn ask(&mut self, offset: u64, len: usize, buffer: B) -> Result<(), ClientError> {
        self.ask_when_grown(offset, len, 0, buffer)
    }

    /// The same at the present end of a file that grows: a server of weir answers when there is more, or after `seconds`;
    /// with 0 it answers at once. The part may be shorter than requested, also where more has come by then. Other servers answer at once.
    ///
    /// # Errors
    /// The same as those of [`Reader::ask`].
    pub fn ask_when_grown(&mut self, offset: u64, len: usize, seconds: u8, buffer: B) -> Result<(), ClientError> {
        self.file.session.deadline_mut().resume(Instant::now());
        let asked = self.ask_now(offset, len, seconds, buffer);
        self.file.session.deadline_mut().pause(Instant::now());
        asked
    }

    fn ask_now(&mut self, offset: u64, len: usize, wait_seconds: u8, mut buffer: B) -> Result<(), ClientError> {
        let want = len.min(buffer.len());
        let got = self.file.copy_beginning(offset, &mut buffer[..want]);
        if got > 0 && got == want {
            self.ready.push_back(Chunk { offset, len: got, buffer });
            return Ok(());
        }
        if self.pending.is_empty() {
            self.pace = Pace::new(Instant::now());
        }
        let (stream, waits) = (StreamId::default(), WaitLimit::default());
        self.pending.push(Pending { stream, offset, want, got, buffer, waits, damaged: false, wait_seconds });
        let last = self.pending.len() - 1;
        self.begin_to_wait(last);
        match self.send(last).and_then(|()| self.file.session.flush()) {
            Ok(()) => Ok(()),
            Err(lost) => self.resend_all(lost),
        }
    }

    /// Waits for the next complete part; `None`: no request is under way.
    ///
    /// # Errors
    /// The server refuses. The connection fails and cannot be restored. [`ClientError::Shorter`]: the file ends
    /// before a part does, and may not grow.
    pub fn wait(&mut self) -> Result<Option<Chunk<B>>, ClientError> {
        self.wait_for(None)
    }

    /// The same, but waits until `end` at most. `None`: no part was complete by then, or no request is under way.
    ///
    /// # Errors
    /// The same as those of [`Reader::wait`].
    pub fn wait_until(&mut self, end: Instant) -> Result<Option<Chunk<B>>, ClientError> {
        self.wait_for(Some(end))
    }

    /// A request is sent while `others` are under way.
    fn begin_to_wait(&mut self, others: usize) {
        if others == 0 {
            let what = format!("read {}", self.file.url);
            let deadline = self.file.session.deadline();
            self.file.session.take_up(&what, deadline);
        }
        self.file.session.has_asked(others > 0);
    }

    fn wait_for(&mut self, end: Option<Instant>) -> Result<Option<Chunk<B>>, ClientError> {
        self.file.session.deadline_mut().resume(Instant::now());
        let found = self.wait_till(end);
        self.file.session.deadline_mut().pause(Instant::now());
        found
    }

    fn wait_till(&mut self, end: Option<Instant>) -> Result<Option<Chunk<B>>, ClientError> {
        if let Some(chunk) = self.ready.pop_front() {
            return Ok(Some(chunk));
        }
        while !self.pending.is_empty() {
            if let Some(end) = end {
                let until = self.pending.iter().map(|pending| pending.waits.until());
                match self.file.session.ready_until(until, end) {
                    Ok(false) => return Ok(None),
                    Ok(true) => {}
                    Err(lost) => self.resend_all(lost)?,
                }
            }
            if let Some(chunk) = self.step()? {
                return Ok(Some(chunk));
            }
        }
        Ok(None)
    }

    /// Takes the next input. Returns the part that it completes, if any.
    fn step(&mut self) -> Result<Option<Chunk<B>>, ClientError> {
        match self.next() {
            Ok(Some(done)) => {
                self.pace = Pace::new(Instant::now());
                self.file.session.has_moved();
                let Pending { offset, want, got, buffer, damaged, .. } = self.pending.remove(done);
                if damaged {
                    // For the next part, those servers' replicas may be undamaged.
                    self.file.damaged.clear();
                }
                if self.file.grows {
                    // Also an empty answer shows that the connection is worth restoring the next time.
                    self.file.fruitless = 0;
                } else if got < want {
                    let (what, end) = (format!("read {}", self.file.url()), offset + got as u64);
                    return Err(ClientError::Shorter { what, end, expected: offset + want as u64 });
                }
                Ok(Some(Chunk { offset, len: got, buffer }))
            }
            Ok(None) => Ok(None),
            Err(lost) => self.resend_all(lost).map(|()| None),
        }
    }

    /// Closes the file.
    ///
    /// # Errors
    /// The server refuses, or the connection fails.
    pub fn close(self) -> Result<Session, ClientError> {
        self.file.close()
    }

    /// Abandons the file. Receives and drops the pending answers, and returns the connection if it can be used
    /// again.
    pub fn give_up(mut self) -> Option<Session> {
        if self.pending.iter().any(|pending| pending.wait_seconds > 0) {
            // Its answer may take seconds, and a new connection does not.
            return None;
        }
        let usual = self.file.settings.silence_max;
        self.file.session.be_patient(usual.min(GIVE_UP_MAX));
        self.pending.retain(|pending| pending.waits.until().is_none());
        let end = Instant::now() + GIVE_UP_MAX;
        while !self.pending.is_empty() {
            if Instant::now() > end {
                return None;
            }
            match self.receive() {
                Ok(Some(done)) => drop(self.pending.swap_remove(done)),
                // A refusal is an answer, too.
                Ok(None) | Err(ClientError::Refused { .. }) => {}
                Err(_) => return None,
            }
            self.pending.retain(|pending| pending.waits.until().is_none() && !pending.damaged);
        }
        let mut session = self.file.close().ok()?;
        session.be_patient(usual);
        Some(session)
    }

    fn resend_all(&mut self, mut lost: ClientError) -> Result<(), ClientError> {
        loop {
            // A refused request has had its answer, unless it is sent again.
            self.file.recover(lost).inspect_err(|_| self.pending.retain(|pending| !pending.damaged))?;
            self.pace = Pace::new(Instant::now());
            let sent = (0..self.pending.len()).try_for_each(|index| self.send(index));
            match sent.and_then(|()| self.file.session.flush()) {
                Ok(()) => return Ok(()),
                Err(error) => lost = error,
            }
        }
    }

    fn send(&mut self, index: usize) -> Result<(), ClientError> {
        let pending = &mut self.pending[index];
        let len = u32::try_from(pending.want - pending.got).unwrap_or(u32::MAX);
        let offset = pending.offset + pending.got as u64;
        let read = Read::new(self.file.handle, offset, len);
        let read = if pending.wait_seconds > 0 { read.waiting(pending.wait_seconds) } else { read };
        pending.stream = self.file.session.queue(&Request::Read(read))?;
        pending.waits.sent();
        Ok(())
    }

    /// Sends the deferred requests that are due, while answers to others arrive.
    fn next(&mut self) -> Result<Option<usize>, ClientError> {
        let now = Instant::now();
        for index in 0..self.pending.len() {
            if self.pending[index].waits.is_due(now) {
                self.file.session.has_asked(true);
                self.send(index)?;
            }
        }
        let due = self.pending.iter().filter_map(|pending| pending.waits.until()).min();
        let under_way = self.pending.iter().any(|pending| pending.waits.until().is_none());
        if !self.file.session.ready_or_due(due, under_way)? {
            return Ok(None);
        }
        let before = self.got();
        let done = self.receive()?;
        let came = self.got() - before;
        self.file.has_moved(came);
        if !under_way || due.is_some() {
            // The client does not count the time that the server has asked for as slowness.
            self.pace = Pace::new(Instant::now());
        } else if done.is_none() {
            let mut pace = self.pace;
            self.file.session.keep_pace(&mut pace, came)?;
            self.pace = pace;
        }
        Ok(done)
    }

    fn got(&self) -> usize {
        self.pending.iter().map(|pending| pending.got).sum()
    }

    /// Takes one answer. Returns the request that it completes, if any.
    fn receive(&mut self) -> Result<Option<usize>, ClientError> {
        let incoming = self.file.session.incoming()?;
        let place = |stream| self.pending.iter().position(|pending| pending.stream == stream);
        match (incoming.status, place(incoming.stream)) {
            (ResponseStatus::Ok | ResponseStatus::OkSoFar, Some(index)) => self.take_data(incoming, index),
            _ => {
                let body = self.file.session.body(incoming.len)?;
                let Some((stream, response)) = self.file.session.understand(incoming, &body)? else { return Ok(None) };
                let Some(index) = place(stream) else {
                    return Err(self.unexpected("an answer to a request that was not sent".to_owned()));
                };
                self.take_other(index, response)
            }
        }
    }

    fn take_data(&mut self, incoming: Incoming, index: usize) -> Result<Option<usize>, ClientError> {
        let pending = &mut self.pending[index];
        let len = usize::try_from(incoming.len).unwrap_or(usize::MAX);
        let Some(into) = pending.buffer.get_mut(pending.got..pending.want).and_then(|room| room.get_mut(..len)) else {
            return Err(self.unexpected(format!("{len} bytes more than were asked for")));
        };
        self.file.session.body_into(into)?;
        pending.got += len;
        self.complete_or_ask(index, incoming.status == ResponseStatus::Ok, len)
    }

    /// An answer may be shorter than the request, because a server may limit what it sends at once. Only an empty
    /// answer means the end of the file.
    fn complete_or_ask(&mut self, index: usize, last: bool, len: usize) -> Result<Option<usize>, ClientError> {
        let pending = &self.pending[index];
        if !last {
            return Ok(None);
        }
        if pending.got == pending.want || len == 0 || pending.wait_seconds > 0 {
            return Ok(Some(index));
        }
        self.send(index)?;
        self.file.session.flush()?;
        Ok(None)
    }

    fn take_other(&mut self, index: usize, response: Response) -> Result<Option<usize>, ClientError> {
        match response {
            Response::WaitResp { .. } if self.pending[index].wait_seconds > 0 => {
                self.file.session.waits_for_growth();
                Ok(None)
            }
            Response::WaitResp { .. } => {
                self.file.session.deadline_mut().put_off(Instant::now());
                Ok(None)
            }
            // The answer to a deferred request.
            Response::Ok(data) | Response::OkSoFar(data)
                if data.len() <= self.pending[index].want - self.pending[index].got =>
            {
                let pending = &mut self.pending[index];
                pending.buffer[pending.got..pending.got + data.len()].copy_from_slice(&data);
                pending.got += data.len();
                self.complete_or_ask(index, true, data.len())
            }
            Response::Wait { seconds, text } => {
                let what = format!("read {}", self.file.url());
                self.file.session.put_off(&mut self.pending[index].waits, &what, seconds, &text)?;
                Ok(None)
            }
            other => {
                let error = self.file.session.refused(&format!("read {}", self.file.url()), other);
                // A refusal is the answer, except if the server redirects, or another replica may be undamaged.
                // Then the part is requested again.
                if self.file.may_be_whole_elsewhere(&error) {
                    self.pending[index].damaged = true;
                } else if !error.is_connection() {
                    self.pending.swap_remove(index);
                }
                Err(error)
            }
        }
    }

    fn unexpected(&self, what: String) -> ClientError {
        ClientError::Unexpected { server: self.file.url().server.clone(), what }
    }
}
