//! Writes dozens of small files at once: sends the next request for each, and passes on the answers.
//! [`super::upload`] decides what follows an answer.

use std::collections::HashMap;
use std::time::Instant;

use types::Crc32c;
use wire::request::{PgFlags, Pgwrite, Write};
use wire::{FileHandle, Request, Response, StreamId};

use super::take_due;
use super::upload::{Next, SmallFile, Upload, write_failed};
use crate::{ClientError, Session};

/// A small file with its result.
#[derive(Debug)]
pub struct SmallFileResult<T> {
    /// The file.
    pub file: SmallFile<T>,
    /// Whether the complete file exists at the server.
    pub result: Result<(), ClientError>,
}

/// Writes small files.
#[derive(Debug)]
pub struct ManyWriter<T> {
    session: Session,
    files: HashMap<StreamId, Box<Upload<T>>>,
    /// For each write without an answer, the close behind it.
    closing: HashMap<StreamId, StreamId>,
    /// Files that the server has deferred, and files whose request was not sent when the connection was lost.
    later: Vec<Box<Upload<T>>>,
}

impl<T> ManyWriter<T> {
    /// Uses this connection.
    #[must_use]
    pub fn new(session: Session) -> Self {
        Self { session, files: HashMap::new(), closing: HashMap::new(), later: Vec::new() }
    }

    /// Returns the number of files under way.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.files.len() + self.later.len()
    }

    /// Starts with a file.
    ///
    /// # Errors
    /// The connection fails. Then the file is among [`ManyWriter::unfinished`].
    pub fn put(&mut self, file: SmallFile<T>) -> Result<(), ClientError> {
        if self.under_way() == 0 {
            self.session.take_up("write small files", self.session.deadline());
            self.session.has_asked(false);
        }
        self.ask(Box::new(Upload::new(file))).map(drop)
    }

    /// Waits until one more file has a result. `None`: no file is under way.
    ///
    /// # Errors
    /// The connection fails, and can no longer be used.
    pub fn wait(&mut self) -> Result<Option<SmallFileResult<T>>, ClientError> {
        self.session.deadline_mut().resume(Instant::now());
        let written = self.next_written();
        self.session.deadline_mut().pause(Instant::now());
        written
    }

    fn next_written(&mut self) -> Result<Option<SmallFileResult<T>>, ClientError> {
        while self.under_way() > 0 {
            if !self.send_due_requests()? {
                continue;
            }
            let (stream, response) = self.response()?;
            match response {
                Response::WaitResp { .. } => self.session.deadline_mut().put_off(Instant::now()),
                _ => self.session.has_moved(),
            }
            // This answers a write whose close is already under way. It changes the result of the close.
            if let Some(close) = self.closing.remove(&stream) {
                if let Some(error) = write_failed(self.session.server(), response)
                    && let Some(upload) = self.files.get_mut(&close)
                {
                    upload.failed = Some(error);
                }
                continue;
            }
            let Some(upload) = self.files.remove(&stream) else {
                let what = "an answer to a request that was not sent".to_owned();
                return Err(ClientError::Unexpected { server: self.session.server().clone(), what });
            };
            if let Some(done) = self.advance(stream, upload, response)? {
                return Ok(Some(done));
            }
        }
        Ok(None)
    }

    /// Whether an answer is here already.
    #[must_use]
    pub fn has_input(&self) -> bool {
        self.session.has_input()
    }

    /// Sends the queued requests.
    ///
    /// # Errors
    /// The connection fails.
    pub fn flush(&mut self) -> Result<(), ClientError> {
        self.session.flush()
    }

    /// After an error of the connection: returns the files of which it is not known whether they exist.
    #[must_use]
    pub fn unfinished(self) -> Vec<SmallFile<T>> {
        self.files.into_values().chain(self.later).map(|upload| upload.file).collect()
    }

    /// Returns the connection, when no file is under way.
    #[must_use]
    pub fn into_session(self) -> Session {
        self.session
    }

    fn advance(
        &mut self,
        stream: StreamId,
        mut upload: Box<Upload<T>>,
        response: Response,
    ) -> Result<Option<SmallFileResult<T>>, ClientError> {
        match upload.answered(self.session.server(), response) {
            Ok(Next::Await) => {
                self.files.insert(stream, upload);
                Ok(None)
            }
            Ok(Next::Write(handle)) => self.write_and_close(handle, upload).map(|()| None),
            Ok(Next::Later(seconds, text)) => {
                let what = upload.what();
                match self.session.put_off(&mut upload.waits, &what, seconds, &text) {
                    Ok(()) => {
                        self.later.push(upload);
                        Ok(None)
                    }
                    Err(waited) => {
                        let result = Err(upload.given_up(waited));
                        Ok(Some(SmallFileResult { file: upload.file, result }))
                    }
                }
            }
            Ok(Next::Done(result)) => Ok(Some(SmallFileResult { file: upload.file, result })),
            Err(error) => {
                self.files.insert(stream, upload);
                Err(error)
            }
        }
    }

    /// Sends the deferred requests that are due. Returns `true` if an answer can be received now, and `false` if
    /// another request has become due.
    fn send_due_requests(&mut self) -> Result<bool, ClientError> {
        if self.later.is_empty() {
            return Ok(true);
        }
        let now = Instant::now();
        while let Some(upload) = take_due(&mut self.later, now, |upload| &upload.waits) {
            self.ask(upload)?;
        }
        let next = self.later.iter().filter_map(|upload| upload.waits.until()).min();
        self.session.ready_or_due(next, !self.files.is_empty())
    }

    fn write_and_close(&mut self, handle: FileHandle, upload: Box<Upload<T>>) -> Result<(), ClientError> {
        let data = &upload.file.data;
        let mut write = None;
        if !data.is_empty() && self.session.has_pages() {
            let sums: Vec<[u8; 4]> =
                data.chunks(types::PAGE_SIZE).map(|page| Crc32c::of(page).0.to_be_bytes()).collect();
            let mut parts: Vec<&[u8]> = Vec::with_capacity(2 * sums.len());
            for (sum, page) in sums.iter().zip(data.chunks(types::PAGE_SIZE)) {
                parts.push(sum);
                parts.push(page);
            }
            let wire_len = u32::try_from(data.len() + 4 * sums.len()).unwrap_or(u32::MAX);
            let request = Pgwrite { handle, offset: 0, path_id: 0, flags: PgFlags::NONE, wire_len };
            write = Some(self.session.send(&Request::Pgwrite(request), &parts));
        } else if !data.is_empty() {
            let len = u32::try_from(data.len()).unwrap_or(u32::MAX);
            let request = Write { handle, offset: 0, path_id: 0, len };
            write = Some(self.session.send(&Request::Write(request), &[data]));
        }
        let write = match write.transpose() {
            Ok(write) => write,
            Err(error) => {
                // Keep it: the caller asks for the unfinished files.
                self.later.push(upload);
                return Err(error);
            }
        };
        let close = self.ask(upload)?;
        if let Some(write) = write {
            self.closing.insert(write, close);
        }
        Ok(())
    }

    fn ask(&mut self, mut upload: Box<Upload<T>>) -> Result<StreamId, ClientError> {
        upload.waits.sent();
        self.session.has_asked(true);
        match self.session.queue(&upload.request()) {
            Ok(stream) => {
                self.files.insert(stream, upload);
                Ok(stream)
            }
            Err(error) => {
                // The caller must find it among the unfinished files.
                self.later.push(upload);
                Err(error)
            }
        }
    }

    /// Returns the next answer. The list of bad pages that follows a status is read and ignored.
    fn response(&mut self) -> Result<(StreamId, Response), ClientError> {
        let (stream, response) = self.session.response()?;
        if let Response::Status(status) = &response {
            let _ = self.session.body(status.data_len)?;
        }
        Ok((stream, response))
    }
}
