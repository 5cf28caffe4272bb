//! Writes a file from buffers of the caller, with several requests under way.

use std::collections::VecDeque;
use std::ops::Deref;
use std::time::Instant;

use wire::request::Write;
use wire::{Request, Response, StreamId};

use crate::pace::WaitLimit;
use crate::{Chunk, ClientError, RemoteFile, Session};

/// Writes parts of a file with several requests under way. It keeps each buffer until the server has acknowledged
/// it, so that it can send the buffer again over a new connection.
#[derive(Debug)]
pub struct Writer<B> {
    file: RemoteFile,
    pending: VecDeque<Pending<B>>,
}

#[derive(Debug)]
struct Pending<B> {
    stream: StreamId,
    chunk: Chunk<B>,
    waits: WaitLimit,
}

/// The result of [`Writer::put`]: an acknowledged part, if there is one.
pub type Sent<B> = Option<Chunk<B>>;

impl<B: Deref<Target = [u8]>> Writer<B> {
    /// Writes to `file`.
    #[must_use]
    pub fn new(file: RemoteFile) -> Self {
        Self { file, pending: VecDeque::new() }
    }

    /// Returns the file.
    #[must_use]
    pub fn file(&self) -> &RemoteFile {
        &self.file
    }

    /// Returns the file, if no request is under way.
    pub(crate) fn into_file(self) -> Option<RemoteFile> {
        self.pending.is_empty().then_some(self.file)
    }

    /// Returns the file for requests of another kind; `None` while requests of this writer are under way.
    pub fn file_mut(&mut self) -> Option<&mut RemoteFile> {
        self.pending.is_empty().then_some(&mut self.file)
    }

    /// Sends a part. If as many requests as the settings' `window` are under way, waits for one, and returns its
    /// part.
    ///
    /// # Errors
    /// The server refuses, or the connection fails and cannot be restored.
    pub fn put(&mut self, chunk: Chunk<B>) -> Result<Sent<B>, ClientError> {
        self.file.session.deadline_mut().resume(Instant::now());
        let sent = self.put_now(chunk);
        self.file.session.deadline_mut().pause(Instant::now());
        sent
    }

    fn put_now(&mut self, chunk: Chunk<B>) -> Result<Sent<B>, ClientError> {
        self.pending.push_back(Pending { stream: StreamId::default(), chunk, waits: WaitLimit::default() });
        let last = self.pending.len() - 1;
        self.begin_to_wait(last);
        if let Err(lost) = self.send(last) {
            self.resend_all(lost)?;
        }
        if self.pending.len() >= self.file.settings.window.max(1) { self.answered_till(None) } else { Ok(None) }
    }

    /// Waits until the server has acknowledged one more part, and returns it. `None`: no part is under way.
    ///
    /// # Errors
    /// The same as those of [`Writer::put`].
    pub fn answered(&mut self) -> Result<Sent<B>, ClientError> {
        self.answered_by(None)
    }

    /// The same, but waits until `end` at most. `None`: no part was acknowledged by then, or none is under way.
    ///
    /// # Errors
    /// The same as those of [`Writer::put`].
    pub fn answered_until(&mut self, end: Instant) -> Result<Sent<B>, ClientError> {
        self.answered_by(Some(end))
    }

    /// A request is sent while `others` are under way.
    fn begin_to_wait(&mut self, others: usize) {
        if others == 0 {
            let what = format!("write {}", self.file.url);
            let deadline = self.file.session.deadline();
            self.file.session.take_up(&what, deadline);
        }
        self.file.session.has_asked(others > 0);
    }

    fn answered_by(&mut self, end: Option<Instant>) -> Result<Sent<B>, ClientError> {
        self.file.session.deadline_mut().resume(Instant::now());
        let answered = self.answered_till(end);
        self.file.session.deadline_mut().pause(Instant::now());
        answered
    }

    fn answered_till(&mut self, end: Option<Instant>) -> Result<Sent<B>, ClientError> {
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

    /// Takes the next input. Returns the part that it acknowledges, if any.
    fn step(&mut self) -> Result<Sent<B>, ClientError> {
        match self.next() {
            Ok(Some(done)) => {
                let chunk = self.pending.remove(done).map(|pending| pending.chunk);
                self.file.session.has_moved();
                self.file.has_moved(chunk.as_ref().map_or(0, |chunk| chunk.len));
                Ok(chunk)
            }
            Ok(None) => Ok(None),
            Err(lost) => self.resend_all(lost).map(|()| None),
        }
    }

    /// Waits for all answers and closes the file. It is complete then.
    ///
    /// # Errors
    /// The same as those of [`Writer::put`].
    pub fn finish(mut self) -> Result<Session, ClientError> {
        while self.answered()?.is_some() {}
        self.file.close()
    }

    /// Abandons the file. It cuts the connection, so that the server does not treat the file as complete.
    pub fn abandon(self) {
        drop(self);
    }

    /// Makes the bytes written so far durable.
    ///
    /// # Errors
    /// The same as those of [`Writer::put`].
    pub fn sync(&mut self) -> Result<(), ClientError> {
        while self.answered()?.is_some() {}
        self.file.sync()
    }

    fn resend_all(&mut self, mut lost: ClientError) -> Result<(), ClientError> {
        loop {
            self.file.recover(lost)?;
            match (0..self.pending.len()).try_for_each(|index| self.send(index)) {
                Ok(()) => return Ok(()),
                Err(error) => lost = error,
            }
        }
    }

    fn send(&mut self, index: usize) -> Result<(), ClientError> {
        let pending = &mut self.pending[index];
        let data = &pending.chunk.buffer[..pending.chunk.len];
        let len = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let write = Write { handle: self.file.handle, offset: pending.chunk.offset, path_id: 0, len };
        pending.stream = self.file.session.send(&Request::Write(write), &[data])?;
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
        if self.file.session.ready_or_due(due, under_way)? { self.receive() } else { Ok(None) }
    }

    fn receive(&mut self) -> Result<Option<usize>, ClientError> {
        let (stream, response) = self.file.session.response()?;
        let place = self.pending.iter().position(|pending| pending.stream == stream);
        match (response, place) {
            (Response::Ok(_), Some(index)) => Ok(Some(index)),
            (Response::WaitResp { .. }, Some(_)) => {
                self.file.session.deadline_mut().put_off(Instant::now());
                Ok(None)
            }
            (Response::Wait { seconds, text }, Some(index)) => {
                let what = format!("write {}", self.file.url());
                self.file.session.put_off(&mut self.pending[index].waits, &what, seconds, &text)?;
                Ok(None)
            }
            (other, _) => Err(self.file.session.refused(&format!("write {}", self.file.url()), other)),
        }
    }
}
