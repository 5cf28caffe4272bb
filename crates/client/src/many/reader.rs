//! Reads dozens of small files at once. A file's open, its reads and the request for its checksum follow one
//! another. Meanwhile those of other files continue.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use wire::request::{Access, Close, Open, OpenOptions, PgFlags, Pgread, Query, QueryKind};
use wire::response::{ChecksumReply, OpenReply, ResultKind, Status, StatusInfo};
use wire::{FileHandle, PathArg, Request, Response, ResponseStatus, StreamId, page};

use super::take_due;
use crate::pace::WaitLimit;
use crate::{Algorithm, BEGINNING_KIB_MAX, ClientError, Kind, Session};

/// The length of the longest file that is read in this way, in bytes.
const LEN_MAX: usize = 8 << 20;

/// A small file that was read.
#[derive(Debug)]
pub struct Read<T> {
    /// The caller's tag.
    pub tag: T,
    /// Its path.
    pub path: String,
    /// Its permission bits, if the server sent them.
    pub mode: Option<u16>,
    /// Its modification time in seconds since 1970, if the server sent it.
    pub mtime: Option<i64>,
    /// Its bytes. They are checked page by page if the server sends pages. Those that came with the open are checked as
    /// a whole.
    pub result: Result<Vec<u8>, ClientError>,
}

/// Reads small files.
#[derive(Debug)]
pub struct ManyReader<T> {
    session: Session,
    algorithm: Option<Algorithm>,
    files: HashMap<StreamId, Reading<T>>,
    closes: HashSet<StreamId>,
    /// Files that the server has deferred, and files whose request was not sent when the connection was lost.
    later: Vec<Reading<T>>,
}

#[derive(Debug)]
struct Reading<T> {
    tag: T,
    path: String,
    len: usize,
    mode: Option<u16>,
    mtime: Option<i64>,
    handle: Option<FileHandle>,
    data: Vec<u8>,
    /// The data came with the open, so no page was checked.
    came_with_open: bool,
    /// All bytes are here, and the checksum has been requested.
    asked: bool,
    waits: WaitLimit,
}

impl<T> ManyReader<T> {
    /// Uses this connection. With `algorithm` each file's checksum is requested too. A server that keeps checksums
    /// of whole files then reports files that are still being written or are known to be damaged.
    #[must_use]
    pub fn new(session: Session, algorithm: Option<Algorithm>) -> Self {
        Self { session, algorithm, files: HashMap::new(), closes: HashSet::new(), later: Vec::new() }
    }

    /// Returns the number of files under way.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.files.len() + self.later.len()
    }

    /// Starts with the file at `path`. `len` is its expected length in bytes.
    ///
    /// # Errors
    /// The connection fails. Then the file is among [`ManyReader::unfinished`].
    pub fn ask(&mut self, path: String, len: usize, tag: T) -> Result<(), ClientError> {
        if self.under_way() == 0 {
            self.session.take_up("read small files", self.session.deadline());
            self.session.has_asked(false);
        }
        self.next_request(Reading {
            tag,
            path,
            len,
            mode: None,
            mtime: None,
            handle: None,
            data: Vec::new(),
            came_with_open: false,
            asked: false,
            waits: WaitLimit::default(),
        })
    }

    /// Waits until one more file has a result. `None`: no file is under way.
    ///
    /// # Errors
    /// The connection fails, and can no longer be used.
    pub fn wait(&mut self) -> Result<Option<Read<T>>, ClientError> {
        self.session.deadline_mut().resume(Instant::now());
        let read = self.next_read();
        self.session.deadline_mut().pause(Instant::now());
        read
    }

    fn next_read(&mut self) -> Result<Option<Read<T>>, ClientError> {
        while self.under_way() > 0 {
            if self.send_due_requests()?
                && let Some(done) = self.receive()?
            {
                self.session.has_moved();
                return Ok(Some(done));
            }
        }
        Ok(None)
    }

    /// Sends the deferred requests that are due. Returns `true` if an answer can be received now, and `false` if
    /// another request has become due.
    fn send_due_requests(&mut self) -> Result<bool, ClientError> {
        if self.later.is_empty() {
            return Ok(true);
        }
        let now = Instant::now();
        while let Some(reading) = take_due(&mut self.later, now, |reading| &reading.waits) {
            self.next_request(reading)?;
        }
        let next = self.later.iter().filter_map(|reading| reading.waits.until()).min();
        self.session.ready_or_due(next, !self.files.is_empty())
    }

    /// After an error of the connection: returns the files that were not read.
    #[must_use]
    pub fn unfinished(self) -> Vec<(T, String)> {
        self.files.into_values().chain(self.later).map(|reading| (reading.tag, reading.path)).collect()
    }

    /// Returns the connection, once the answers to all closes are here.
    ///
    /// # Errors
    /// The connection fails.
    pub fn into_session(mut self) -> Result<Session, ClientError> {
        while !self.closes.is_empty() {
            self.receive()?;
        }
        Ok(self.session)
    }

    /// Returns how much of a file to get with its open, in KiB: all or nothing. Only a checksum of the file can tell that
    /// these bytes are right.
    fn beginning_kib(&self, expected: usize) -> u8 {
        let fits = expected <= usize::from(BEGINNING_KIB_MAX) << 10;
        if fits && self.algorithm.is_some() { BEGINNING_KIB_MAX } else { 0 }
    }

    /// Sends the next request for a file: its open, the next read, or the request for its checksum.
    fn next_request(&mut self, mut reading: Reading<T>) -> Result<(), ClientError> {
        let request = match reading.handle {
            None => {
                let options = OpenOptions::READ | OpenOptions::RETSTAT;
                let open = Open::plain(Access::NONE, options, PathArg::plain(reading.path.as_bytes()));
                Request::Open(Open { beginning_kib: self.beginning_kib(reading.len), ..open })
            }
            Some(_) if reading.asked => {
                let algorithm = self.algorithm.unwrap_or(Algorithm::Crc32c);
                let args = format!("{}?cks.type={}", reading.path, algorithm.name()).into_bytes();
                Request::Query(Query { kind: QueryKind::Checksum, handle: FileHandle::default(), args })
            }
            Some(handle) => {
                let left = reading.len - reading.data.len();
                let (offset, len) = (reading.data.len() as u64, u32::try_from(left.min(1 << 20)).unwrap_or(1 << 20));
                if self.session.has_pages() {
                    Request::Pgread(Pgread { handle, offset, len, path_id: 0, flags: PgFlags::NONE, given: 0 })
                } else {
                    Request::Read(wire::request::Read::new(handle, offset, len))
                }
            }
        };
        reading.waits.sent();
        self.session.has_asked(true);
        match self.session.queue(&request) {
            Ok(stream) => {
                self.files.insert(stream, reading);
                Ok(())
            }
            Err(error) => {
                // The caller must find it among the unfinished files.
                self.later.push(reading);
                Err(error)
            }
        }
    }

    fn receive(&mut self) -> Result<Option<Read<T>>, ClientError> {
        let incoming = self.session.incoming()?;
        let body = self.session.body(incoming.len)?;
        let Some((stream, response)) = self.session.understand(incoming, &body)? else { return Ok(None) };
        if incoming.status != ResponseStatus::WaitResp && self.closes.remove(&stream) {
            return Ok(None);
        }
        let Some(mut reading) = self.files.remove(&stream) else {
            let what = "an answer to a request that was not sent".to_owned();
            return Err(ClientError::Unexpected { server: self.session.server().clone(), what });
        };
        match (reading.handle, response) {
            (_, Response::WaitResp { .. }) => {
                self.session.deadline_mut().put_off(Instant::now());
                self.files.insert(stream, reading);
                Ok(None)
            }
            (handle, Response::Wait { seconds, text }) => {
                let what = format!("read {}", reading.path);
                match (self.session.put_off(&mut reading.waits, &what, seconds, &text), handle) {
                    (Ok(()), _) => {
                        self.later.push(reading);
                        Ok(None)
                    }
                    (Err(error), Some(handle)) => self.end(handle, reading, Some(error)),
                    (Err(error), None) => Ok(Some(reading.read(Err(error)))),
                }
            }
            (Some(handle), response) if reading.asked => {
                let failed = self.compare(&reading, response);
                self.end(handle, reading, failed)
            }
            (None, Response::Ok(body)) => {
                let reply = match OpenReply::decode(&body) {
                    Ok(reply) => reply,
                    Err(source) => {
                        self.files.insert(stream, reading);
                        return Err(self.session.malformed(source));
                    }
                };
                if let Some(stat) = &reply.stat {
                    let is_wanted = self.beginning_kib(reading.len) > 0 && !reply.beginning.is_empty();
                    if is_wanted && reply.beginning.len() as u64 == stat.size {
                        (reading.data, reading.came_with_open) = (reply.beginning, true);
                    }
                    reading.len = usize::try_from(stat.size).unwrap_or(usize::MAX);
                    reading.mode = stat.extra.as_ref().map(|extra| extra.mode & 0o777);
                    reading.mtime = Some(stat.mtime);
                }
                if reading.len > LEN_MAX {
                    let what = format!("{} has grown to {} bytes", reading.path, reading.len);
                    let error = ClientError::Unexpected { server: self.session.server().clone(), what };
                    return self.end(reply.handle, reading, Some(error));
                }
                reading.handle = Some(reply.handle);
                self.read_on(reading)
            }
            (Some(handle), Response::Ok(part) | Response::OkSoFar(part)) => {
                if part.len() > reading.len - reading.data.len() || self.session.has_pages() {
                    let what = format!("bytes of {} that were not asked for in this way", reading.path);
                    let error = ClientError::Unexpected { server: self.session.server().clone(), what };
                    return self.end(handle, reading, Some(error));
                }
                reading.data.extend_from_slice(&part);
                self.go_on(stream, handle, reading, incoming.status == ResponseStatus::OkSoFar, part.len())
            }
            (Some(handle), Response::Status(status)) => {
                let wire = match self.session.body(status.data_len) {
                    Ok(wire) => wire,
                    Err(error) => {
                        self.files.insert(stream, reading);
                        return Err(error);
                    }
                };
                let more = status.result != ResultKind::Final;
                match self.take_pages(&status, &wire, &mut reading) {
                    Ok(got) => self.go_on(stream, handle, reading, more, got),
                    Err(error) => self.end(handle, reading, Some(error)),
                }
            }
            (handle, other) => {
                let error = self.session.refused(&format!("read {}", reading.path), other);
                match handle {
                    Some(handle) => self.end(handle, reading, Some(error)),
                    None => Ok(Some(reading.read(Err(error)))),
                }
            }
        }
    }

    /// Copies pages into the file's data, and compares each with its checksum.
    fn take_pages(&self, status: &Status, wire: &[u8], reading: &mut Reading<T>) -> Result<usize, ClientError> {
        let server = || self.session.server().clone();
        let StatusInfo::Pgread { offset } = status.info else {
            return Err(ClientError::Unexpected { server: server(), what: "the status of another request".to_owned() });
        };
        if offset != reading.data.len() as u64 {
            return Err(ClientError::Unexpected { server: server(), what: "pages out of order".to_owned() });
        }
        let before = reading.data.len();
        for page in page::received(offset, wire).map_err(|source| self.session.malformed(source))? {
            if !page.is_good() {
                let what = format!("a page of {} at {}, damaged on its way", reading.path, page.offset);
                return Err(ClientError::Unexpected { server: server(), what });
            }
            reading.data.extend_from_slice(page.data);
        }
        Ok(reading.data.len() - before)
    }

    fn go_on(
        &mut self,
        stream: StreamId,
        handle: FileHandle,
        reading: Reading<T>,
        more: bool,
        got: usize,
    ) -> Result<Option<Read<T>>, ClientError> {
        if more {
            self.files.insert(stream, reading);
            return Ok(None);
        }
        if reading.data.len() >= reading.len {
            return self.read_on(reading);
        }
        if got == 0 {
            let (end, expected) = (reading.data.len() as u64, reading.len as u64);
            let what = format!("read {}", reading.path);
            return self.end(handle, reading, Some(ClientError::Shorter { what, end, expected }));
        }
        self.read_on(reading)
    }

    fn read_on(&mut self, mut reading: Reading<T>) -> Result<Option<Read<T>>, ClientError> {
        let Some(handle) = reading.handle else { return Ok(None) };
        if reading.data.len() >= reading.len {
            if self.algorithm.is_none() {
                return self.end(handle, reading, None);
            }
            reading.asked = true;
        }
        self.next_request(reading)?;
        Ok(None)
    }

    /// Compares a complete file with the server's checksum. Returns the error, if there is one.
    fn compare(&self, reading: &Reading<T>, response: Response) -> Option<ClientError> {
        let unexpected = |what: String| ClientError::Unexpected { server: self.session.server().clone(), what };
        // A server without a checksum of the whole file is no fault of the file, if its pages were checked already.
        let not_compared = || reading.came_with_open.then(|| unexpected(format!("no checksum of {}", reading.path)));
        let body = match response {
            Response::Ok(body) => body,
            other => {
                let error = self.session.refused(&format!("checksum {}", reading.path), other);
                let has_none = matches!(error.kind(), Kind::Unsupported | Kind::Usage);
                return if has_none { not_compared() } else { Some(error) };
            }
        };
        let told = self.algorithm.zip(ChecksumReply::decode(&body).ok());
        let told = told.filter(|(algorithm, told)| told.algorithm == algorithm.name().as_bytes());
        let Some((algorithm, told)) = told else { return not_compared() };
        let told = String::from_utf8_lossy(&told.value).into_owned();
        let sum = algorithm.of(&reading.data);
        if sum.is(&told) {
            return None;
        }
        let what =
            format!("{} came with {sum}, and the server says {told}; has it been changed meanwhile?", reading.path);
        Some(unexpected(what))
    }

    fn end(
        &mut self,
        handle: FileHandle,
        reading: Reading<T>,
        failed: Option<ClientError>,
    ) -> Result<Option<Read<T>>, ClientError> {
        match self.session.queue(&Request::Close(Close { handle })) {
            Ok(close) => {
                self.closes.insert(close);
            }
            Err(error) => {
                self.later.push(reading);
                return Err(error);
            }
        }
        let result = failed.map_or(Ok(()), Err);
        Ok(Some(reading.read(result)))
    }
}

impl<T> Reading<T> {
    /// Ends the file with this result.
    fn read(self, result: Result<(), ClientError>) -> Read<T> {
        let Self { tag, path, data, mode, mtime, .. } = self;
        Read { tag, path, mode, mtime, result: result.map(|()| data) }
    }
}
