//! Writes a file, several requests ahead of the answers, from buffers of the caller.

use std::collections::VecDeque;
use std::ops::Deref;
use std::time::Instant;

use wire::request::Write;
use wire::{Request, Response, StreamId};

use crate::pace::Waits;
use crate::{Chunk, ClientError, RemoteFile, Session};

/// Writes parts of a file with several requests under way. Each buffer is kept until the server has answered for it, so that it
/// can be sent again over a new connection.
#[derive(Debug)]
pub struct Writer<B> {
    file: RemoteFile,
    pending: VecDeque<Pending<B>>,
}

#[derive(Debug)]
struct Pending<B> {
    stream: StreamId,
    chunk: Chunk<B>,
    waits: Waits,
}

/// What [`Writer::put`] gives back.
pub type Sent<B> = Option<Chunk<B>>;

impl<B: Deref<Target = [u8]>> Writer<B> {
    /// Writes to `file`.
    #[must_use]
    pub fn new(file: RemoteFile) -> Self {
        Self { file, pending: VecDeque::new() }
    }

    /// The file.
    #[must_use]
    pub fn file(&self) -> &RemoteFile {
        &self.file
    }

    /// The file, if nothing is under way.
    pub(crate) fn into_file(self) -> Option<RemoteFile> {
        self.pending.is_empty().then_some(self.file)
    }

    /// The file, for requests of another kind; `None` while some of this writer's are under way.
    pub fn file_mut(&mut self) -> Option<&mut RemoteFile> {
        self.pending.is_empty().then_some(&mut self.file)
    }

    /// Sends a part. Where as many as the settings' `window` are under way, one is waited for; it is given back.
    ///
    /// # Errors
    /// Of the server; of the connection, when it cannot be made again.
    pub fn put(&mut self, chunk: Chunk<B>) -> Result<Sent<B>, ClientError> {
        self.pending.push_back(Pending { stream: StreamId::default(), chunk, waits: Waits::default() });
        let last = self.pending.len() - 1;
        if let Err(lost) = self.send(last) {
            self.again(lost)?;
        }
        if self.pending.len() >= self.file.settings.window.max(1) { self.answered() } else { Ok(None) }
    }

    /// Waits until the server has answered for one part more, and gives it back; `None`: nothing is under way.
    ///
    /// # Errors
    /// As [`Writer::put`].
    pub fn answered(&mut self) -> Result<Sent<B>, ClientError> {
        self.answered_by(None)
    }

    /// The same, but waits until `end` at most; `None`: nothing was answered by then, or nothing is under way.
    ///
    /// # Errors
    /// As [`Writer::put`].
    pub fn answered_until(&mut self, end: Instant) -> Result<Sent<B>, ClientError> {
        self.answered_by(Some(end))
    }

    fn answered_by(&mut self, end: Option<Instant>) -> Result<Sent<B>, ClientError> {
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

    /// Takes what comes next; tells which part has been answered for by it, if one has.
    fn step(&mut self) -> Result<Sent<B>, ClientError> {
        match self.next() {
            Ok(Some(done)) => {
                let chunk = self.pending.remove(done).map(|pending| pending.chunk);
                self.file.has_moved(chunk.as_ref().map_or(0, |chunk| chunk.len));
                Ok(chunk)
            }
            Ok(None) => Ok(None),
            Err(lost) => self.again(lost).map(|()| None),
        }
    }

    /// Waits for all answers and closes the file: it is complete.
    ///
    /// # Errors
    /// As [`Writer::put`].
    pub fn finish(mut self) -> Result<Session, ClientError> {
        while self.answered()?.is_some() {}
        self.file.close()
    }

    /// Gives the file up: the connection is cut, so that the server does not take it for complete.
    pub fn abandon(self) {
        drop(self);
    }

    /// Makes what was written so far durable.
    ///
    /// # Errors
    /// As [`Writer::put`].
    pub fn sync(&mut self) -> Result<(), ClientError> {
        while self.answered()?.is_some() {}
        self.file.sync()
    }

    fn again(&mut self, mut lost: ClientError) -> Result<(), ClientError> {
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
        if self.file.session.ready_or_due(due, under_way)? { self.receive() } else { Ok(None) }
    }

    fn receive(&mut self) -> Result<Option<usize>, ClientError> {
        let (stream, response) = self.file.session.response()?;
        let place = self.pending.iter().position(|pending| pending.stream == stream);
        match (response, place) {
            (Response::Ok(_), Some(index)) => Ok(Some(index)),
            (Response::WaitResp { .. }, Some(_)) => Ok(None),
            (Response::Wait { seconds, text }, Some(index)) => {
                let what = format!("write {}", self.file.url());
                self.file.session.put_off(&mut self.pending[index].waits, &what, seconds, &text)?;
                Ok(None)
            }
            (other, _) => Err(self.file.session.refused(&format!("write {}", self.file.url()), other)),
        }
    }
}
