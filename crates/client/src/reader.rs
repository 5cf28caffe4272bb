//! Reads a file, several requests ahead, into buffers of the caller.

use std::ops::DerefMut;
use std::time::{Duration, Instant};

use wire::request::Read;
use wire::{Request, Response, ResponseStatus, StreamId};

use crate::pace::{Pace, Waits};
use crate::{ClientError, Incoming, RemoteFile, Session};

/// How long what nobody wants any more is received from a server.
const GIVE_UP_MAX: Duration = Duration::from_secs(10);

/// A part of a file in a buffer.
#[derive(Debug)]
pub struct Chunk<B> {
    /// Where in the file it begins.
    pub offset: u64,
    /// Bytes of it, at the front of the buffer.
    pub len: usize,
    /// The buffer.
    pub buffer: B,
}

/// Reads parts of a file with several requests under way. The caller supplies buffers with the places that they are for, and gets
/// them back filled, in the order in which the server answers.
#[derive(Debug)]
pub struct Reader<B> {
    file: RemoteFile,
    pending: Vec<Pending<B>>,
    /// Of the bytes of the file: answers that come whole, with a byte each, are not too slow by themselves.
    pace: Pace,
    /// The file may end before a part does.
    grows: bool,
}

#[derive(Debug)]
struct Pending<B> {
    stream: StreamId,
    offset: u64,
    want: usize,
    got: usize,
    buffer: B,
    waits: Waits,
    /// A server's copy of it is damaged: it is asked for again at another one.
    damaged: bool,
}

impl<B: DerefMut<Target = [u8]>> Reader<B> {
    /// Reads `file`.
    #[must_use]
    pub fn new(file: RemoteFile) -> Self {
        Self { file, pending: Vec::new(), pace: Pace::new(Instant::now()), grows: false }
    }

    /// Reads `file` while it grows: parts are shorter than asked for, or empty, where it ends by now.
    #[must_use]
    pub fn growing(file: RemoteFile) -> Self {
        Self { grows: true, ..Self::new(file) }
    }

    /// The file.
    #[must_use]
    pub fn file(&self) -> &RemoteFile {
        &self.file
    }

    /// The file, for requests of another kind; `None` while some of this reader's are under way.
    pub fn file_mut(&mut self) -> Option<&mut RemoteFile> {
        self.pending.is_empty().then_some(&mut self.file)
    }

    /// Requests under way.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.pending.len()
    }

    /// Asks for `len` bytes (at least 1, at most the buffer's length) at `offset`.
    ///
    /// # Errors
    /// Of the connection, when it cannot be made again.
    pub fn ask(&mut self, offset: u64, len: usize, buffer: B) -> Result<(), ClientError> {
        let want = len.min(buffer.len());
        if self.pending.is_empty() {
            self.pace = Pace::new(Instant::now());
        }
        let (stream, waits) = (StreamId::default(), Waits::default());
        self.pending.push(Pending { stream, offset, want, got: 0, buffer, waits, damaged: false });
        let last = self.pending.len() - 1;
        match self.send(last).and_then(|()| self.file.session.flush()) {
            Ok(()) => Ok(()),
            Err(lost) => self.again(lost),
        }
    }

    /// Waits for the next part that is complete; `None`: nothing is under way.
    ///
    /// # Errors
    /// Of the server; of the connection, when it cannot be made again; [`ClientError::Shorter`] where the file ends
    /// before a part does, unless it may grow.
    pub fn wait(&mut self) -> Result<Option<Chunk<B>>, ClientError> {
        self.wait_for(None)
    }

    /// The same, but waits until `end` at most; `None`: nothing was complete by then, or nothing is under way.
    ///
    /// # Errors
    /// As [`Reader::wait`].
    pub fn wait_until(&mut self, end: Instant) -> Result<Option<Chunk<B>>, ClientError> {
        self.wait_for(Some(end))
    }

    fn wait_for(&mut self, end: Option<Instant>) -> Result<Option<Chunk<B>>, ClientError> {
        while !self.pending.is_empty() {
            if let Some(end) = end {
                let until = self.pending.iter().map(|pending| pending.waits.until());
                match self.file.session.ready_until(until, end) {
                    Ok(false) => return Ok(None),
                    Ok(true) => {}
                    Err(lost) => self.again(lost)?,
                }
            }
            if let Some(chunk) = self.step()? {
                return Ok(Some(chunk));
            }
        }
        Ok(None)
    }

    /// Takes what comes next; tells of the part that is complete by it, if one is.
    fn step(&mut self) -> Result<Option<Chunk<B>>, ClientError> {
        match self.next() {
            Ok(Some(done)) => {
                self.pace = Pace::new(Instant::now());
                let Pending { offset, want, got, buffer, damaged, .. } = self.pending.remove(done);
                if damaged {
                    // Elsewhere that server's copy may be the whole one.
                    self.file.damaged.clear();
                }
                if got < want && !self.grows {
                    let (what, end) = (format!("read {}", self.file.url()), offset + got as u64);
                    return Err(ClientError::Shorter { what, end, expected: offset + want as u64 });
                }
                Ok(Some(Chunk { offset, len: got, buffer }))
            }
            Ok(None) => Ok(None),
            Err(lost) => self.again(lost).map(|()| None),
        }
    }

    /// Closes the file.
    ///
    /// # Errors
    /// Of the server or of the connection.
    pub fn close(self) -> Result<Session, ClientError> {
        self.file.close()
    }

    /// Gives the file up, and its connection back if that is of further use: what is under way is received and forgotten.
    pub fn give_up(mut self) -> Option<Session> {
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

    fn again(&mut self, mut lost: ClientError) -> Result<(), ClientError> {
        loop {
            // What was refused has had its answer, unless it is asked for again.
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
        let read = Read { handle: self.file.handle, offset, len, path_id: None, read_ahead: Vec::new() };
        pending.stream = self.file.session.queue(&Request::Read(read))?;
        pending.waits.sent();
        Ok(())
    }

    /// Sends what the server had put off and is due, while the answers to the others come.
    fn next(&mut self) -> Result<Option<usize>, ClientError> {
        let now = Instant::now();
        for index in 0..self.pending.len() {
            if self.pending[index].waits.is_due(now) {
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
            // The time that the server has asked for is not held against it.
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

    /// Takes one answer; tells which request is complete by it, if any.
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

    /// An answer may be shorter than the question: a server may bound what it sends at once. Only one without any bytes
    /// says that the file ends.
    fn complete_or_ask(&mut self, index: usize, last: bool, len: usize) -> Result<Option<usize>, ClientError> {
        let pending = &self.pending[index];
        if !last {
            return Ok(None);
        }
        if pending.got == pending.want || len == 0 {
            return Ok(Some(index));
        }
        self.send(index)?;
        self.file.session.flush()?;
        Ok(None)
    }

    fn take_other(&mut self, index: usize, response: Response) -> Result<Option<usize>, ClientError> {
        match response {
            Response::WaitResp { .. } => Ok(None),
            // Put off, and now here.
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
                // A refusal is its answer; where a server sends away, or another copy may be whole, it is asked for again.
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
