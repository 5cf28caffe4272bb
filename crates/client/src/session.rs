//! One connection: it sends requests and receives answers. `login` has its beginning, `sending` puts bytes into its
//! socket.

mod login;
mod sending;
mod signing;

use std::io::{self, IoSlice, Read as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::{set_socket_keepalive, set_tcp_keepidle};

use signing::Signer;
use wire::response::{Attn, Redirect, ServerFlags};
use wire::{RESPONSE_HEADER_LEN, Request, Response, ResponseHeader, ResponseStatus, SessionId, StreamId};

use crate::connect;
use crate::deadline::Deadline;
use crate::fs::{has_mark, unsendable_mark};
use crate::pace::{Pace, WaitLimit};
use crate::rate::RateLimit;
use crate::sealed::Sealed;
use crate::settings::{Stop, TICK};
use crate::waiting::Waiting;
use crate::watch::{REASON_MAX, WaitReason};
use crate::{ClientError, Endpoint, Settings, Url};

/// The size of the receive buffer. Larger data bypass it.
const INPUT_LEN: usize = 64 << 10;
/// Queued requests are sent when they reach this many bytes.
const GATHER_MAX: usize = 64 << 10;
/// Data up to this length are copied behind their request. Longer data are sent from the caller's memory.
const COPIED_MAX: usize = 16 << 10;
/// After this idle time the kernel probes the other end. Firewalls forget connections that are idle for longer, and
/// the client learns that a server is gone before it needs it.
const KEEP_ALIVE: Duration = Duration::from_secs(60);
/// The largest answer that is read into memory at once.
const ANSWER_MAX: u32 = 64 << 20;

/// The header of an answer. The caller must read its body of `len` bytes next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Incoming {
    /// The stream of the request.
    pub stream: StreamId,
    /// The status of the answer.
    pub status: ResponseStatus,
    /// The length of its body in bytes.
    pub len: u32,
}

/// A connection to a server, after login. See the crate's documentation for its use.
#[derive(Debug)]
pub struct Session {
    /// The server, and how long the requests under way may still take.
    waiting: Waiting,
    socket: TcpStream,
    /// With TLS.
    sealed: Option<Box<Sealed>>,
    /// Signs requests, if the server asks for it.
    signer: Option<Box<Signer>>,
    /// The time of the fastest answer so far. A proxy or a tunnel accepts a connection at once, wherever the server is, so
    /// the time to connect says nothing.
    round_trip: Duration,
    id: SessionId,
    flags: ServerFlags,
    /// How long the server may be silent or too slow now.
    patience: Duration,
    silence_max: Duration,
    wait_max: Duration,
    rate: RateLimit,
    input: Vec<u8>,
    input_at: usize,
    input_end: usize,
    output: Vec<u8>,
    sealed_output: Vec<u8>,
    next_stream: u16,
    /// The reason that the server gave when it deferred a request last.
    asked_why: Vec<u8>,
}

/// The result of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    /// The whole answer.
    Done(Vec<u8>),
    /// The request must go to another server.
    Elsewhere(Redirect),
}

impl Session {
    /// Connects to the server of `url`, or to one of them, and logs in as its user, over TLS if `url` says so.
    ///
    /// # Errors
    /// [`ClientError::Connect`], [`ClientError::NotXrootd`], [`ClientError::Tls`], [`ClientError::NoTls`],
    /// [`ClientError::Authorities`], [`ClientError::Authentication`], [`ClientError::OutOfReach`].
    pub fn connect(url: &Url, settings: &Settings) -> Result<Self, ClientError> {
        Self::connect_within(url, settings, ("", Deadline::new(settings, Instant::now())))
    }

    /// The same for the request `what`, which may take until `deadline`.
    pub(crate) fn connect_within(
        url: &Url,
        settings: &Settings,
        (what, deadline): (&str, Deadline),
    ) -> Result<Self, ClientError> {
        let servers = settings.met.in_order(url, Instant::now());
        let (last, first) = servers.split_last().unwrap_or((&url.server, &[]));
        for server in first {
            match Self::connect_to(url, (server, true), settings, (what, deadline)) {
                Err(error) if error.may_help_to_retry() && !deadline.is_over(Instant::now()) => {
                    settings.met.ask_last(server, Instant::now());
                    tracing::info!(%error, "the next server of the list is asked");
                }
                result => return result,
            }
        }
        let connected = Self::connect_to(url, (last, false), settings, (what, deadline));
        if !first.is_empty() && connected.as_ref().is_err_and(ClientError::may_help_to_retry) {
            settings.met.ask_last(last, Instant::now());
        }
        connected
    }

    /// The same for one server of `url`. `has_next`: another one is asked after it.
    fn connect_to(
        url: &Url,
        (server, has_next): (&Endpoint, bool),
        settings: &Settings,
        (what, deadline): (&str, Deadline),
    ) -> Result<Self, ClientError> {
        settings.stop.check()?;
        settings.reach.check(server)?;
        let waiting = Waiting::new(server, what, deadline, settings);
        let cannot = |source| ClientError::Connect { server: server.clone(), source };
        let most = connect::within(settings.connect_timeout, has_next);
        let (socket, is_only) = connect::connect(&waiting, most)?;
        socket.set_nodelay(true).map_err(cannot)?;
        socket.set_read_timeout(Some(TICK)).map_err(cannot)?;
        socket.set_write_timeout(Some(TICK)).map_err(cannot)?;
        set_socket_keepalive(&socket, true).map_err(|error| cannot(error.into()))?;
        match is_only && url.others.is_empty() {
            true => set_tcp_keepidle(&socket, KEEP_ALIVE).map_err(|error| cannot(error.into()))?,
            false => connect::notice_loss(&socket).map_err(cannot)?,
        }
        let mut session = Self {
            waiting,
            socket,
            sealed: None,
            signer: None,
            round_trip: Duration::MAX,
            id: SessionId::default(),
            flags: ServerFlags::NONE,
            patience: most,
            silence_max: settings.silence_max,
            wait_max: settings.wait_max,
            rate: settings.rate.clone(),
            input: vec![0; INPUT_LEN],
            input_at: 0,
            input_end: 0,
            output: Vec::new(),
            sealed_output: Vec::new(),
            next_stream: 0,
            asked_why: Vec::new(),
        };
        session.log_in(url, settings)?;
        session.patience = settings.silence_max;
        Ok(session)
    }

    /// Returns the server's address.
    #[must_use]
    pub fn server(&self) -> &Endpoint {
        &self.waiting.server
    }

    /// Takes this connection for the request `what`, which may take until `deadline`.
    pub(crate) fn take_up(&mut self, what: &str, deadline: Deadline) {
        self.waiting.set_what(what);
        self.waiting.deadline = deadline;
        self.waiting.for_growth = false;
    }

    /// The server has promised its answer for when a file has grown. It takes less time than a server may be silent.
    pub(crate) fn waits_for_growth(&mut self) {
        self.waiting.for_growth = true;
    }

    /// Returns how long the requests under way may still take.
    pub(crate) fn deadline(&self) -> Deadline {
        self.waiting.deadline
    }

    /// Changes how long the requests under way may still take.
    pub(crate) fn deadline_mut(&mut self) -> &mut Deadline {
        &mut self.waiting.deadline
    }

    /// Another server of a list can be asked: this one may not be silent for as long as a single one. Returns which one it is.
    pub(crate) fn hurry(&mut self, settings: &Settings) -> Endpoint {
        let silence = settings.next_server_after.min(settings.silence_max);
        self.waiting.deadline.set_silence(silence, Instant::now());
        self.waiting.server.clone()
    }

    /// Something has moved: an answer has come.
    pub(crate) fn has_moved(&mut self) {
        self.waiting.deadline.moved(Instant::now());
    }

    /// Tells the watch of a wait that has its own time: how long it has taken, and how long it may still take.
    pub(crate) fn tell(&self, why: WaitReason<'_>, time: (Duration, Duration)) {
        self.waiting.tell_of(why, time);
    }

    /// Another request was sent while `others` are under way.
    pub(crate) fn has_asked(&mut self, others: bool) {
        let now = Instant::now();
        if !others {
            self.waiting.deadline.begin(now);
        }
        self.waiting.deadline.asked(now);
    }

    /// An answer has come to a request of this time. Slower answers took more of the server's own time.
    fn answered_after(&mut self, sent: Instant) {
        self.round_trip = self.round_trip.min(sent.elapsed());
    }

    /// Returns the approximate round trip time: that of the fastest answer so far.
    #[must_use]
    pub fn round_trip(&self) -> Duration {
        self.round_trip
    }

    /// Returns the flags that the server sent.
    #[must_use]
    pub fn flags(&self) -> ServerFlags {
        self.flags
    }

    /// Returns the server's id of this session.
    #[must_use]
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// Whether the server supports pgread and pgwrite.
    #[must_use]
    pub fn has_pages(&self) -> bool {
        self.flags.has(ServerFlags::SUPPORTS_PGRW)
    }

    /// Queues a request without data. It is sent by [`Session::flush`], or before the next wait for an answer.
    ///
    /// # Errors
    /// [`ClientError::Unsendable`], or the connection fails.
    pub fn queue(&mut self, request: &Request) -> Result<StreamId, ClientError> {
        self.send(request, &[])
    }

    /// The same with the data that follow the request ([`Request::following`] bytes in all).
    ///
    /// # Errors
    /// [`ClientError::Unsendable`], or the connection fails.
    pub fn send(&mut self, request: &Request, data: &[&[u8]]) -> Result<StreamId, ClientError> {
        if has_mark(request) {
            return Err(unsendable_mark(&self.waiting.what));
        }
        self.next_stream = self.next_stream.wrapping_add(1);
        let stream = StreamId(self.next_stream.to_be_bytes());
        let unsendable = |source| ClientError::Unsendable { what: request.kind().name().to_owned(), source };
        let start = self.output.len();
        request.encode(stream, &mut self.output).map_err(unsendable)?;
        if let Some(signer) = &mut self.signer {
            signer.sign(&mut self.output, start, data).map_err(unsendable)?;
        }
        let len: usize = data.iter().map(|part| part.len()).sum();
        if len <= COPIED_MAX {
            for part in data {
                self.output.extend_from_slice(part);
            }
        } else {
            let mut parts = Vec::with_capacity(1 + data.len());
            let output = std::mem::take(&mut self.output);
            parts.push(IoSlice::new(&output));
            parts.extend(data.iter().map(|part| IoSlice::new(part)));
            let sent = self.write_all(&mut parts);
            self.output = output;
            self.output.clear();
            sent?;
        }
        if self.output.len() >= GATHER_MAX {
            self.flush()?;
        }
        Ok(stream)
    }

    /// Sends the queued requests.
    ///
    /// # Errors
    /// The connection fails.
    pub fn flush(&mut self) -> Result<(), ClientError> {
        if self.output.is_empty() {
            return Ok(());
        }
        let output = std::mem::take(&mut self.output);
        let sent = self.write_all(&mut [IoSlice::new(&output)]);
        self.output = output;
        self.output.clear();
        sent
    }

    /// Waits for the header of the next answer.
    ///
    /// # Errors
    /// [`ClientError::Lost`], [`ClientError::Silent`], [`ClientError::Slow`], [`ClientError::Protocol`].
    pub fn incoming(&mut self) -> Result<Incoming, ClientError> {
        self.flush()?;
        // Headers that never stop to come are no answer.
        self.waiting.check(Instant::now())?;
        let mut header = [0; RESPONSE_HEADER_LEN];
        self.body_into(&mut header)?;
        let header = ResponseHeader::parse(&header).map_err(|source| self.malformed(source))?;
        Ok(Incoming { stream: header.stream, status: header.status, len: header.dlen })
    }

    /// Whether part of the next answer is here, so that reading it does not wait for long.
    #[must_use]
    pub fn has_input(&self) -> bool {
        self.input_at < self.input_end || self.sealed.as_ref().is_some_and(|sealed| sealed.has_more())
    }

    /// Whether everything is encrypted, and the server has shown that it has the name of its address.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.sealed.is_some()
    }

    /// Something has come to the socket. Returns whether it is for the reader: TLS itself also sends bytes.
    fn has_come(&mut self) -> bool {
        self.sealed.as_mut().is_none_or(|sealed| sealed.look(&self.socket))
    }

    /// Sends the queued requests, and waits until part of the next answer is here. Returns `false` if nothing has
    /// come at `end`.
    ///
    /// # Errors
    /// The connection fails.
    pub(crate) fn ready(&mut self, end: Instant) -> Result<bool, ClientError> {
        self.flush()?;
        loop {
            if self.has_input() {
                return Ok(true);
            }
            let left = end.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left.min(TICK)).ok();
            match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], timeout.as_ref()) {
                Ok(0) if left.is_zero() => return Ok(false),
                Ok(0) | Err(rustix::io::Errno::INTR) => self.waiting.tick(WaitReason::Answer)?,
                Ok(_) if self.has_come() => return Ok(true),
                Ok(_) if left.is_zero() => return Ok(false),
                Ok(_) => self.waiting.tick(WaitReason::Answer)?,
                Err(error) => return Err(self.lost(error.into())),
            }
        }
    }

    /// The same, if some requests are deferred until `due` and must be sent again then. `under_way`: other requests
    /// wait for answers. Returns `false` if a request is due.
    pub(crate) fn ready_or_due(&mut self, due: Option<Instant>, under_way: bool) -> Result<bool, ClientError> {
        match due {
            None => Ok(true),
            Some(due) if under_way => self.ready(due),
            Some(due) => {
                self.flush()?;
                self.waiting.sleep_until(due, WaitReason::Asked(&self.asked_why))?;
                Ok(false)
            }
        }
    }

    /// Waits until part of the next answer is here, or a request that was deferred to `until` is due. Returns
    /// `false` if neither is so at `end`.
    pub(crate) fn ready_until(
        &mut self,
        until: impl Iterator<Item = Option<Instant>>,
        end: Instant,
    ) -> Result<bool, ClientError> {
        let due = until.flatten().min().filter(|due| *due < end);
        Ok(self.ready(due.unwrap_or(end))? || due.is_some())
    }

    /// Whether the server has ended the connection, or sent something without a request, while no request was under
    /// way.
    pub(crate) fn is_stale(&mut self) -> bool {
        let mut socket = [PollFd::new(&self.socket, PollFlags::IN)];
        self.has_input() || poll(&mut socket, Some(&Timespec::default())) != Ok(0) && self.has_come()
    }

    /// Receives the next `into.len()` bytes of the body.
    ///
    /// # Errors
    /// The connection fails.
    pub fn body_into(&mut self, mut into: &mut [u8]) -> Result<(), ClientError> {
        let mut pace = None;
        loop {
            let ready = &self.input[self.input_at..self.input_end];
            let take = ready.len().min(into.len());
            let (filled, rest) = into.split_at_mut(take);
            filled.copy_from_slice(&ready[..take]);
            self.input_at += take;
            into = rest;
            if into.is_empty() {
                return Ok(());
            }
            let pace = pace.get_or_insert_with(|| Pace::new(Instant::now()));
            // The buffer is empty. Large data go directly to the caller's memory.
            if into.len() >= INPUT_LEN {
                let got = self.receive_into(into, pace)?;
                into = &mut into[got..];
            } else {
                let mut input = std::mem::take(&mut self.input);
                let got = self.receive_into(&mut input, pace);
                self.input = input;
                (self.input_at, self.input_end) = (0, got?);
            }
        }
    }

    fn receive_into(&mut self, into: &mut [u8], pace: &mut Pace) -> Result<usize, ClientError> {
        let part = self.rate.part(into.len());
        let into = &mut into[..part];
        loop {
            let received = match &mut self.sealed {
                None => self.socket.read(into),
                Some(sealed) => sealed.read(&self.socket, into),
            };
            let got = match received {
                Ok(0) => return Err(self.lost(io::ErrorKind::UnexpectedEof.into())),
                Ok(got) => got,
                Err(error) if is_a_pause(&error) => 0,
                Err(error) => return Err(self.lost(error)),
            };
            self.keep_pace(pace, got)?;
            if got > 0 {
                self.waiting.stop_check()?;
                self.keep_rate(self.rate.received(got))?;
                return Ok(got);
            }
            let left = pace.left(Instant::now(), self.patience);
            self.waiting.tick_within(WaitReason::Answer, left)?;
        }
    }

    /// Counts `bytes` more of the expected data.
    pub(crate) fn keep_pace(&mut self, pace: &mut Pace, bytes: usize) -> Result<(), ClientError> {
        let now = Instant::now();
        let came = pace.came(bytes, now, self.patience);
        if bytes > 0 && pace.is_new(now) {
            self.waiting.deadline.moved(now);
        }
        came.map_err(|slow| {
            let (server, after) = (self.server().clone(), self.patience);
            match slow.bytes {
                0 => ClientError::Silent { server, after },
                bytes => ClientError::Slow { server, bytes, after },
            }
        })
    }

    /// Waits because bytes have moved faster than they may. That time is not the server's.
    fn keep_rate(&mut self, pause: Duration) -> Result<(), ClientError> {
        if !pause.is_zero() {
            let now = Instant::now();
            self.waiting.deadline.pause(now);
            self.waiting.rest(pause)?;
            self.waiting.deadline.resume(Instant::now());
        }
        Ok(())
    }

    /// Receives a body of `len` bytes into new memory.
    ///
    /// # Errors
    /// The connection fails. [`ClientError::Unexpected`]: the body is too long.
    pub fn body(&mut self, len: u32) -> Result<Vec<u8>, ClientError> {
        if len > ANSWER_MAX {
            let what = format!("an answer of {len} bytes, where at most {ANSWER_MAX} make sense");
            return Err(ClientError::Unexpected { server: self.server().clone(), what });
        }
        let mut body = vec![0; usize::try_from(len).unwrap_or(0)];
        self.body_into(&mut body)?;
        Ok(body)
    }

    /// Returns the next complete answer, with a body of up to 64 MiB. A deferred answer carries the stream of its
    /// request. Messages for people are logged and skipped.
    ///
    /// # Errors
    /// The connection fails.
    pub fn response(&mut self) -> Result<(StreamId, Response), ClientError> {
        loop {
            let incoming = self.incoming()?;
            let body = self.body(incoming.len)?;
            if let Some(found) = self.understand(incoming, &body)? {
                return Ok(found);
            }
        }
    }

    /// Parses an answer whose header has been read, with its body.
    pub(crate) fn understand(
        &self,
        incoming: Incoming,
        body: &[u8],
    ) -> Result<Option<(StreamId, Response)>, ClientError> {
        let header = ResponseHeader { stream: incoming.stream, status: incoming.status, dlen: incoming.len };
        match Response::decode(&header, body).map_err(|source| self.malformed(source))? {
            Response::Attn(Attn::Response(stream, response)) => Ok(Some((stream, *response))),
            Response::Attn(Attn::Message(text)) => {
                tracing::info!(server = %self.server(), "the server says: {}", text.escape_ascii());
                Ok(None)
            }
            Response::Attn(Attn::Other { .. }) => Ok(None),
            response => Ok(Some((incoming.stream, response))),
        }
    }

    /// Sends a request and waits for its answer. No other request may be under way. Requests to wait are followed
    /// here.
    pub(crate) fn call(&mut self, what: &str, request: &Request) -> Result<Answer, ClientError> {
        self.call_with(what, request, &[])
    }

    /// The same with data behind the request.
    pub(crate) fn call_with(&mut self, what: &str, request: &Request, data: &[&[u8]]) -> Result<Answer, ClientError> {
        self.waiting.set_what(what);
        loop {
            let sent = Instant::now();
            let stream = self.send(request, data)?;
            match self.gather(what, stream)? {
                Ok(answer) => {
                    self.answered_after(sent);
                    return Ok(answer);
                }
                Err((seconds, text)) => self.wait_for(what, seconds, &text)?,
            }
        }
    }

    /// Waits because the server has asked for it. No other request is under way.
    pub(crate) fn wait_for(&mut self, what: &str, seconds: u32, text: &[u8]) -> Result<(), ClientError> {
        self.note_wait(what, seconds, text);
        let most = self.waiting.deadline.most_of_waits();
        let again = self.waiting.deadline.again_at(seconds, Instant::now());
        self.waiting.sleep_until(again.ok_or_else(|| self.waited(what, most, text))?, WaitReason::Asked(text))
    }

    /// Notes that the server defers one of several requests under way.
    pub(crate) fn put_off(
        &mut self,
        waits: &mut WaitLimit,
        what: &str,
        seconds: u32,
        text: &[u8],
    ) -> Result<(), ClientError> {
        self.note_wait(what, seconds, text);
        self.asked_why.clear();
        self.asked_why.extend_from_slice(&text[..text.len().min(REASON_MAX)]);
        let is_in_time = waits.put_off(seconds, Instant::now(), self.wait_max);
        if is_in_time { Ok(()) } else { Err(self.waited(what, self.wait_max, text)) }
    }

    fn note_wait(&self, what: &str, seconds: u32, text: &[u8]) {
        tracing::info!(server = %self.server(), seconds, "{what}: the server asks to wait: {}", text.escape_ascii());
    }

    /// Makes the error for a server that defers for longer than `most`.
    pub(crate) fn waited(&self, what: &str, most: Duration, text: &[u8]) -> ClientError {
        let text = String::from_utf8_lossy(text).chars().take(500).collect();
        ClientError::Waited { server: self.server().clone(), what: what.to_owned(), most, text }
    }

    /// Returns the answer to a request that was queued before the call. The server may neither defer nor redirect
    /// it.
    fn answer(&mut self, what: &str) -> Result<Vec<u8>, ClientError> {
        let stream = StreamId(self.next_stream.to_be_bytes());
        match self.gather(what, stream)? {
            Ok(Answer::Done(body)) => Ok(body),
            Ok(Answer::Elsewhere(_)) | Err(_) => {
                let what = "it wants clients to wait, or redirects them before the login".to_owned();
                Err(ClientError::Unexpected { server: self.server().clone(), what })
            }
        }
    }

    /// Receives all parts of the answer to `stream`. The inner error says that the server defers the request.
    #[allow(clippy::type_complexity)] // a result of a result: what came, or when to ask again
    fn gather(&mut self, what: &str, stream: StreamId) -> Result<Result<Answer, (u32, Vec<u8>)>, ClientError> {
        let usual = self.patience;
        let found = self.gather_all(what, stream);
        self.patience = usual;
        found
    }

    #[allow(clippy::type_complexity)] // as above
    fn gather_all(&mut self, what: &str, stream: StreamId) -> Result<Result<Answer, (u32, Vec<u8>)>, ClientError> {
        let mut body = Vec::new();
        // Many small complete parts must also arrive fast enough.
        let mut pace = Pace::new(Instant::now());
        loop {
            let (to, response) = self.response()?;
            if to != stream {
                let what = "an answer to a request that was not sent".to_owned();
                return Err(ClientError::Unexpected { server: self.server().clone(), what });
            }
            match response {
                Response::Ok(last) => {
                    body.extend_from_slice(&last);
                    return Ok(Ok(Answer::Done(body)));
                }
                Response::OkSoFar(part) => {
                    if body.len() + part.len() > usize::try_from(ANSWER_MAX).unwrap_or(usize::MAX) {
                        let what = format!("an answer of more than {ANSWER_MAX} bytes");
                        return Err(ClientError::Unexpected { server: self.server().clone(), what });
                    }
                    body.extend_from_slice(&part);
                    self.keep_pace(&mut pace, part.len())?;
                }
                Response::Redirect(redirect) => return Ok(Ok(Answer::Elsewhere(redirect))),
                Response::Wait { seconds, text } => return Ok(Err((seconds, text))),
                // The answer will come by itself. Until then the server may be silent for longer than otherwise,
                // however often it sends this.
                Response::WaitResp { .. } => {
                    self.patience = self.patience.max(self.wait_max);
                    self.waiting.deadline.put_off(Instant::now());
                    self.keep_pace(&mut pace, 0)?;
                }
                other => return Err(self.refused(what, other)),
            }
        }
    }

    /// Sets how long the server may be silent from now on.
    pub(crate) fn be_patient(&mut self, how_long: Duration) {
        self.patience = how_long;
    }

    /// Replaces the stop that ends this connection's waits.
    pub(crate) fn set_stop(&mut self, stop: Stop) {
        self.waiting.set_stop(stop);
    }

    /// Makes the error for an answer.
    pub(crate) fn refused(&self, what: &str, response: Response) -> ClientError {
        match response {
            Response::Redirect(_) => ClientError::Moved { server: self.server().clone() },
            response => ClientError::refused(self.server(), what, response),
        }
    }

    pub(crate) fn malformed(&self, source: wire::WireError) -> ClientError {
        ClientError::Protocol { server: self.server().clone(), source }
    }

    fn lost(&self, source: io::Error) -> ClientError {
        ClientError::Lost { server: self.server().clone(), source }
    }
}

/// Waits until part of the next answer of one of these sessions is here, and returns its key. `None`: none has come
/// at `end`. All queued requests were sent before.
///
/// # Errors
/// [`ClientError::Stopped`]. Errors of a connection appear when it is read.
pub(crate) fn any_ready<K>(
    sessions: &mut [(K, &mut Session)],
    end: Instant,
    stop: &Stop,
) -> Result<Option<usize>, ClientError> {
    if let Some(ready) = sessions.iter().position(|(_, session)| session.has_input()) {
        return Ok(Some(ready));
    }
    loop {
        stop.check()?;
        let now = Instant::now();
        // Reading from it reports that its time is over.
        if let Some(over) = sessions.iter().position(|(_, session)| session.waiting.deadline.is_over(now)) {
            return Ok(Some(over));
        }
        for (_, session) in sessions.iter() {
            session.waiting.tell(WaitReason::Answer, now);
        }
        let left = end.saturating_duration_since(now);
        let timeout = Timespec::try_from(left.min(TICK)).ok();
        let mut sockets: Vec<_> =
            sessions.iter().map(|(_, session)| PollFd::new(&session.socket, PollFlags::IN)).collect();
        match poll(&mut sockets, timeout.as_ref()) {
            Ok(0) | Err(_) if left.is_zero() => return Ok(None),
            Ok(0) | Err(_) => {}
            Ok(_) => {
                let came = |socket: &PollFd<'_>| !socket.revents().is_empty();
                let came: Vec<usize> = sockets.iter().enumerate().filter(|(_, s)| came(s)).map(|(at, _)| at).collect();
                if let Some(ready) = came.into_iter().find(|at| sessions[*at].1.has_come()) {
                    return Ok(Some(ready));
                }
            }
        }
    }
}

/// Whether the error only means that there was nothing to receive, or no room to send, for a moment.
fn is_a_pause(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}
