//! Many small files over one connection: the requests for dozens of them are under way at once, so that a file costs no
//! round trip of its own.
//!
//! A file's write and close are sent together. Data travels as pages with their CRC32C where the server takes them, so
//! each file is checked on arrival without a further question. After a lost connection nothing is repeated here: the
//! caller gets back what was not finished, and knows what is known of each ([`SmallFile::opened`]). A file that the server
//! puts off (kXR_wait) is asked for again later, while the others go on.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use types::Crc32c;
use wire::request::{Access, Close, Open, OpenOptions, PgFlags, Pgread, Pgwrite, Query, QueryKind, Rm, Write};
use wire::response::{ChecksumReply, OpenReply, Status, StatusInfo};
use wire::{FileHandle, PathArg, Request, Response, ResponseStatus, StreamId, page};

use crate::pace::Waits;
use crate::{Algorithm, ClientError, Kind, Session};

/// Longest file that is read in this way.
const LEN_MAX: usize = 8 << 20;

/// A small file to be written, and what has become of it.
#[derive(Debug)]
pub struct SmallFile<T> {
    /// The path at the server.
    pub path: String,
    /// Its permission bits.
    pub mode: u16,
    /// What it holds; at most a few MiB.
    pub data: Vec<u8>,
    /// May it replace what is there?
    pub replace: bool,
    /// More words behind the path of the open, as in `key=value&other=value`.
    pub words: Option<String>,
    /// The caller's name for it.
    pub tag: T,
    /// Whether the server has opened it for us: from then on what is there is ours.
    pub opened: bool,
}

/// A small file that is done with.
#[derive(Debug)]
pub struct Written<T> {
    /// The file.
    pub file: SmallFile<T>,
    /// Whether it is there, whole.
    pub result: Result<(), ClientError>,
}

/// Writes small files.
#[derive(Debug)]
pub struct ManyWriter<T> {
    session: Session,
    files: HashMap<StreamId, (Step, Box<Writing<T>>)>,
    closing: HashMap<StreamId, StreamId>,
    /// What the server has put off.
    later: Vec<(Step, Box<Writing<T>>)>,
}

#[derive(Debug)]
struct Writing<T> {
    file: SmallFile<T>,
    handle: FileHandle,
    failed: Option<ClientError>,
    waits: Waits,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Open,
    Close,
    CleanUp,
}

impl Step {
    fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Close => "close",
            Self::CleanUp => "remove",
        }
    }
}

impl<T> ManyWriter<T> {
    /// Over this connection.
    #[must_use]
    pub fn new(session: Session) -> Self {
        Self { session, files: HashMap::new(), closing: HashMap::new(), later: Vec::new() }
    }

    /// Files under way.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.files.len() + self.later.len()
    }

    /// Begins with a file.
    ///
    /// # Errors
    /// Of the connection; the file is then among [`ManyWriter::unfinished`].
    pub fn put(&mut self, file: SmallFile<T>) -> Result<(), ClientError> {
        let writing = Writing { file, handle: FileHandle::default(), failed: None, waits: Waits::default() };
        self.step(Step::Open, Box::new(writing)).map(drop)
    }

    /// Waits until one more file is done with; `None`: nothing is under way.
    ///
    /// # Errors
    /// Of the connection: nothing more comes over it.
    pub fn wait(&mut self) -> Result<Option<Written<T>>, ClientError> {
        while self.under_way() > 0 {
            if !self.send_what_is_due()? {
                continue;
            }
            let (stream, response) = self.response()?;
            // The answer to a write whose close is under way already changes what the close will tell.
            if let Some(close) = self.closing.remove(&stream) {
                if let Some(error) = self.write_failed(response)
                    && let Some((_, writing)) = self.files.get_mut(&close)
                {
                    writing.failed = Some(error);
                }
                continue;
            }
            let Some((step, writing)) = self.files.remove(&stream) else {
                let what = "an answer to a question that was not asked".to_owned();
                return Err(ClientError::Unexpected { server: self.session.server().clone(), what });
            };
            if let Some(done) = self.advance(stream, step, writing, response)? {
                return Ok(Some(done));
            }
        }
        Ok(None)
    }

    /// Is an answer here already?
    #[must_use]
    pub fn has_input(&self) -> bool {
        self.session.has_input()
    }

    /// Sends what was gathered.
    ///
    /// # Errors
    /// Of the connection.
    pub fn flush(&mut self) -> Result<(), ClientError> {
        self.session.flush()
    }

    /// After an error of the connection: the files of which nobody knows whether they are there.
    #[must_use]
    pub fn unfinished(self) -> Vec<SmallFile<T>> {
        self.files.into_values().chain(self.later).map(|(_, writing)| writing.file).collect()
    }

    /// The connection, when nothing is under way.
    #[must_use]
    pub fn into_session(self) -> Session {
        self.session
    }

    fn advance(
        &mut self,
        stream: StreamId,
        step: Step,
        mut writing: Box<Writing<T>>,
        response: Response,
    ) -> Result<Option<Written<T>>, ClientError> {
        match (step, response) {
            (_, Response::WaitResp { .. }) => {
                self.files.insert(stream, (step, writing));
                Ok(None)
            }
            (Step::Open, Response::Ok(body)) => {
                writing.file.opened = true;
                let reply = match OpenReply::decode(&body) {
                    Ok(reply) => reply,
                    Err(source) => {
                        let error = self.session.malformed(source);
                        self.files.insert(stream, (step, writing));
                        return Err(error);
                    }
                };
                self.write_and_close(reply.handle, writing)?;
                Ok(None)
            }
            (_, Response::Wait { seconds, text }) => {
                let what = format!("{} {}", step.name(), writing.file.path);
                match self.session.put_off(&mut writing.waits, &what, seconds, &text) {
                    Ok(()) => {
                        self.later.push((step, writing));
                        Ok(None)
                    }
                    // Nobody knows whether what it is for is done: the close, or the removal.
                    Err(error) => {
                        let error = writing.failed.take().unwrap_or(error);
                        Ok(Some(Written { file: writing.file, result: Err(error) }))
                    }
                }
            }
            (Step::Close, Response::Ok(_)) if writing.failed.is_none() => {
                Ok(Some(Written { file: writing.file, result: Ok(()) }))
            }
            (Step::Close, response) => {
                if writing.failed.is_none() {
                    writing.failed = Some(self.session.refused(&format!("close {}", writing.file.path), response));
                }
                // A replacement that was refused has left what was there as it was, and that is not ours to remove.
                if writing.file.replace {
                    let result = Err(writing.failed.unwrap_or_else(|| self.nothing_failed()));
                    return Ok(Some(Written { file: writing.file, result }));
                }
                // What is there is not what was sent: it must not stay.
                self.step(Step::CleanUp, writing)?;
                Ok(None)
            }
            (Step::CleanUp, _) => {
                let result = Err(writing.failed.unwrap_or_else(|| self.nothing_failed()));
                Ok(Some(Written { file: writing.file, result }))
            }
            (Step::Open, response) => {
                let error = self.session.refused(&format!("open {}", writing.file.path), response);
                Ok(Some(Written { file: writing.file, result: Err(error) }))
            }
        }
    }

    fn nothing_failed(&self) -> ClientError {
        let what = "a file was taken away for no reason".to_owned();
        ClientError::Unexpected { server: self.session.server().clone(), what }
    }

    /// Sends what the server had put off and is due; then tells whether an answer is to be received, or something is due again.
    fn send_what_is_due(&mut self) -> Result<bool, ClientError> {
        if self.later.is_empty() {
            return Ok(true);
        }
        let now = Instant::now();
        let (due, later) =
            std::mem::take(&mut self.later).into_iter().partition(|(_, writing)| writing.waits.is_due(now));
        self.later = later;
        let mut due: Vec<(Step, Box<Writing<T>>)> = due;
        while let Some((step, writing)) = due.pop() {
            if let Err(error) = self.step(step, writing) {
                self.later.append(&mut due);
                return Err(error);
            }
        }
        let next = self.later.iter().filter_map(|(_, writing)| writing.waits.until()).min();
        self.session.ready_or_due(next, !self.files.is_empty())
    }

    fn write_and_close(&mut self, handle: FileHandle, mut writing: Box<Writing<T>>) -> Result<(), ClientError> {
        writing.handle = handle;
        let data = &writing.file.data;
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
                // It must not get lost: its caller asks for what is unfinished.
                self.files.insert(StreamId::default(), (Step::Open, writing));
                return Err(error);
            }
        };
        let close = self.step(Step::Close, writing)?;
        if let Some(write) = write {
            self.closing.insert(write, close);
        }
        Ok(())
    }

    fn step(&mut self, step: Step, mut writing: Box<Writing<T>>) -> Result<StreamId, ClientError> {
        let file = &writing.file;
        let request = match step {
            Step::Open => {
                let how = if file.replace { OpenOptions::DELETE } else { OpenOptions::NEW };
                let opaque = announced(file.data.len(), file.words.as_deref());
                let target = PathArg { path: file.path.clone().into_bytes(), opaque };
                let options = how | OpenOptions::UPDATE | OpenOptions::MKPATH;
                Request::Open(Open::plain(Access(file.mode), options, target))
            }
            Step::Close => Request::Close(Close { handle: writing.handle }),
            Step::CleanUp => Request::Rm(Rm { target: PathArg::plain(file.path.as_bytes()) }),
        };
        writing.waits.sent();
        match self.session.queue(&request) {
            Ok(stream) => {
                self.files.insert(stream, (step, writing));
                Ok(stream)
            }
            Err(error) => {
                // It must be told apart from what is finished.
                self.files.insert(StreamId::default(), (step, writing));
                Err(error)
            }
        }
    }

    fn write_failed(&self, response: Response) -> Option<ClientError> {
        match response {
            Response::Ok(_) | Response::Status(Status { data_len: 0, .. }) => None,
            Response::Status(_) => {
                let what = "pages arrived damaged".to_owned();
                Some(ClientError::Unexpected { server: self.session.server().clone(), what })
            }
            other => Some(self.session.refused("write", other)),
        }
    }

    /// The next answer; the list of bad pages that follows a status is read away.
    fn response(&mut self) -> Result<(StreamId, Response), ClientError> {
        let (stream, response) = self.session.response()?;
        if let Response::Status(status) = &response {
            let _ = self.session.body(status.data_len)?;
        }
        Ok((stream, response))
    }
}

/// A length, announced so that the server can take a file whose connection is lost for complete, and more words.
fn announced(len: usize, more: Option<&str>) -> Option<wire::Opaque> {
    let words = match more {
        Some(more) => format!("oss.asize={len}&{more}"),
        None => format!("oss.asize={len}"),
    };
    wire::Opaque::parse(words.as_bytes()).ok()
}

/// A small file that was read.
#[derive(Debug)]
pub struct Read<T> {
    /// The caller's name for it.
    pub tag: T,
    /// Its path.
    pub path: String,
    /// Its permission bits, if the server told them.
    pub mode: Option<u16>,
    /// The time of its last change, in seconds since 1970, if the server told it.
    pub mtime: Option<i64>,
    /// What it holds, checked page by page where the server sends pages.
    pub result: Result<Vec<u8>, ClientError>,
}

/// Reads small files.
#[derive(Debug)]
pub struct ManyReader<T> {
    session: Session,
    algorithm: Option<Algorithm>,
    files: HashMap<StreamId, Reading<T>>,
    closes: HashSet<StreamId>,
    /// What the server has put off.
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
    /// All of it is here; its checksum has been asked for.
    asked: bool,
    waits: Waits,
}

impl<T> ManyReader<T> {
    /// Over this connection. With `algorithm` each file's checksum is asked for too: a server that keeps one for whole files says
    /// then that a file is still being written, or known to be damaged.
    #[must_use]
    pub fn new(session: Session, algorithm: Option<Algorithm>) -> Self {
        Self { session, algorithm, files: HashMap::new(), closes: HashSet::new(), later: Vec::new() }
    }

    /// Files under way.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.files.len() + self.later.len()
    }

    /// Begins with the file at `path`, of `len` bytes as far as is known.
    ///
    /// # Errors
    /// Of the connection; the file is then among [`ManyReader::unfinished`].
    pub fn ask(&mut self, path: String, len: usize, tag: T) -> Result<(), ClientError> {
        let (handle, data, waits) = (None, Vec::new(), Waits::default());
        self.next_request(Reading { tag, path, len, mode: None, mtime: None, handle, data, asked: false, waits })
    }

    /// Waits until one more file is done with; `None`: nothing is under way.
    ///
    /// # Errors
    /// Of the connection: nothing more comes over it.
    pub fn wait(&mut self) -> Result<Option<Read<T>>, ClientError> {
        while self.under_way() > 0 {
            if self.send_what_is_due()?
                && let Some(done) = self.receive()?
            {
                return Ok(Some(done));
            }
        }
        Ok(None)
    }

    /// Sends what the server had put off and is due; then tells whether an answer is to be received, or something is due again.
    fn send_what_is_due(&mut self) -> Result<bool, ClientError> {
        if self.later.is_empty() {
            return Ok(true);
        }
        let now = Instant::now();
        let (due, later) = std::mem::take(&mut self.later).into_iter().partition(|reading| reading.waits.is_due(now));
        self.later = later;
        let mut due: Vec<Reading<T>> = due;
        while let Some(reading) = due.pop() {
            if let Err(error) = self.next_request(reading) {
                self.later.append(&mut due);
                return Err(error);
            }
        }
        let next = self.later.iter().filter_map(|reading| reading.waits.until()).min();
        self.session.ready_or_due(next, !self.files.is_empty())
    }

    /// After an error of the connection: what has not been read.
    #[must_use]
    pub fn unfinished(self) -> Vec<(T, String)> {
        self.files.into_values().chain(self.later).map(|reading| (reading.tag, reading.path)).collect()
    }

    /// The connection, once the answers to all closes are here.
    ///
    /// # Errors
    /// Of the connection.
    pub fn into_session(mut self) -> Result<Session, ClientError> {
        while !self.closes.is_empty() {
            self.receive()?;
        }
        Ok(self.session)
    }

    /// Sends what is next for a file: its open, the read of what is missing, or the question for its checksum.
    fn next_request(&mut self, mut reading: Reading<T>) -> Result<(), ClientError> {
        let request = match reading.handle {
            None => {
                let options = OpenOptions::READ | OpenOptions::RETSTAT;
                Request::Open(Open::plain(Access::NONE, options, PathArg::plain(reading.path.as_bytes())))
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
                    Request::Read(wire::request::Read { handle, offset, len, path_id: None, read_ahead: Vec::new() })
                }
            }
        };
        reading.waits.sent();
        let sent = self.session.queue(&request);
        self.files.insert(sent.as_ref().map(|stream| *stream).unwrap_or_default(), reading);
        sent.map(drop)
    }

    fn receive(&mut self) -> Result<Option<Read<T>>, ClientError> {
        let incoming = self.session.incoming()?;
        let body = self.session.body(incoming.len)?;
        let Some((stream, response)) = self.session.understand(incoming, &body)? else { return Ok(None) };
        if incoming.status != ResponseStatus::WaitResp && self.closes.remove(&stream) {
            return Ok(None);
        }
        let Some(mut reading) = self.files.remove(&stream) else {
            let what = "an answer to a question that was not asked".to_owned();
            return Err(ClientError::Unexpected { server: self.session.server().clone(), what });
        };
        match (reading.handle, response) {
            (_, Response::WaitResp { .. }) => {
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
                let more = status.result != wire::response::ResultKind::Final;
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

    /// Takes pages into the file's data, each compared with its sum.
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

    /// What is wrong with a file that has come whole, by what the server says of its checksum.
    fn compare(&self, reading: &Reading<T>, response: Response) -> Option<ClientError> {
        let body = match response {
            Response::Ok(body) => body,
            other => {
                let error = self.session.refused(&format!("checksum {}", reading.path), other);
                // Its pages have been compared; that a server keeps nothing more is no fault of the file.
                return Some(error).filter(|error| !matches!(error.kind(), Kind::Unsupported | Kind::Usage));
            }
        };
        let algorithm = self.algorithm?;
        let told = ChecksumReply::decode(&body).ok().filter(|told| told.algorithm == algorithm.name().as_bytes())?;
        let told = String::from_utf8_lossy(&told.value).into_owned();
        let sum = algorithm.of(&reading.data);
        if sum.is(&told) {
            return None;
        }
        let what =
            format!("{} came with {sum}, and the server says {told}; has it been changed meanwhile?", reading.path);
        Some(ClientError::Unexpected { server: self.session.server().clone(), what })
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
                self.files.insert(StreamId::default(), reading);
                return Err(error);
            }
        }
        let result = failed.map_or(Ok(()), Err);
        Ok(Some(reading.read(result)))
    }
}

impl<T> Reading<T> {
    /// It is done with.
    fn read(self, result: Result<(), ClientError>) -> Read<T> {
        let Self { tag, path, data, mode, mtime, .. } = self;
        Read { tag, path, mode, mtime, result: result.map(|()| data) }
    }
}
