//! The thread of one connection: the handshake, then the requests in the order in which they arrive.

use std::io::IoSlice;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use authentication::SigningLevel;
use service::{BackgroundStore, OpenFile, TransferSlot};
use tls::{Channel, ChannelError, ServerCertificate};
use types::{ClientIdentity, Timestamp};
use wire::signing::SignatureError;
use wire::{
    ErrorNumber, HANDSHAKE_LEN, Handshake, HandshakeReply, Limits, Payload, REQUEST_HEADER_LEN, Request, RequestHeader,
    RequestKind, ResponseHeader, ResponseStatus, StreamId, WireError,
};

use crate::answer::{self, Reply};
use crate::config::{INPUT_BYTES, PACE_BYTES};
use crate::from_wire;
use crate::front_end::FrontEnd;
use crate::input::{Input, InputEnd};
use crate::meter::{Began, Ended, SignatureResult};
use crate::outgoing::{Gone, Outgoing};
use crate::sent_away::SentAway;
use crate::session::Session;
use crate::signatures::{self, Signatures};
use crate::to_wire::RequestError;

/// Maximum payload of fattr, in bytes: the maximum number of attributes, each of the maximum length.
const FATTR_BYTES_MAX: u32 = (1 << 20) + (16 << 10);

/// After the client's last byte, the remaining answers have this time to reach it.
const LAST_ANSWERS: Duration = Duration::from_secs(10);

/// A payload over its limit is discarded up to this many bytes.
const EXCESS_MAX: u32 = 16 << 20;
/// A client that is disconnected for bad input has this time to read the reason.
const LINGER: Duration = Duration::from_secs(1);

/// Why a connection ends.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Stop {
    /// There is no more input.
    #[error(transparent)]
    Input(#[from] InputEnd),
    /// The socket cannot be written to.
    #[error("the client takes no answers")]
    Gone,
    /// After this input the beginning of the next request cannot be found.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// TLS cannot begin.
    #[error(transparent)]
    Tls(#[from] ChannelError),
    /// It has shown too many credentials that are not good.
    #[error("{0} credentials of one connection were refused")]
    BadCredentials(u32),
    /// A request was not signed as it must be.
    #[error("the signature of a {0} request does not count: {1}")]
    Signature(&'static str, SignatureError),
    /// Most pages of a pgwrite had wrong checksums.
    #[error("{0} pages of one pgwrite came with wrong checksums, so the stream is out of step; the connection ends")]
    OutOfStep(usize),
}

impl From<Gone> for Stop {
    fn from(_: Gone) -> Self {
        Stop::Gone
    }
}

/// The state of a connection, used by its thread.
pub(crate) struct Connection {
    pub(crate) front: Arc<FrontEnd>,
    pub(crate) session: Arc<Session>,
    /// The number of this connection. A data stream uses another connection's session.
    pub(crate) number: u64,
    pub(crate) out: Arc<Outgoing>,
    pub(crate) input: Input,
    limits: Limits,
    pub(crate) logged_in: bool,
    /// Data that another thread is storing.
    pub(crate) behind: BackgroundStore,
    /// The protocol version of the client; 0: unknown.
    pub(crate) client_version: u32,
    /// The client can speak TLS.
    pub(crate) is_tls_able: bool,
    /// What a client says about itself that has logged in, and has not yet shown who it is.
    pub(crate) pending: Option<ClientIdentity>,
    /// A login that takes several rounds, between two of them.
    pub(crate) login: Option<Box<authentication::GsiLogin>>,
    /// The number of credentials that were not good.
    pub(crate) refused: u32,
    /// Which requests must be signed after a login that gives a key: as the client was told, whatever changes later.
    pub(crate) signing: SigningLevel,
    /// The signatures of a client that must sign requests.
    pub(crate) signatures: Option<Box<Signatures>>,
    /// When its credential ends. Then it can begin nothing any more.
    pub(crate) expires: Option<Timestamp>,
    /// The audit log has the line that the credential has ended.
    is_end_audited: bool,
    /// The current request, until it is answered or handed on.
    pub(crate) began: Option<Began>,
    /// In a standby manager: what it has sent to the active one last.
    pub(crate) sent_away: SentAway,
    /// Kinds of requests for which bad input was logged. Their number is bounded.
    complained: Vec<&'static str>,
}

/// Serves `socket` until it ends.
pub(crate) fn serve(front: &Arc<FrontEnd>, socket: Arc<TcpStream>, peer: SocketAddr) {
    let times = front.times();
    let input = match Input::new(Arc::clone(&socket), times.frame, times.login) {
        Ok(input) => input,
        Err(error) => {
            tracing::error!(%peer, %error, "cannot set up a connection");
            return;
        }
    };
    let bounds = &front.config.limits;
    let out = Outgoing::new(
        Arc::clone(&socket),
        Arc::clone(&front.drainer),
        Arc::clone(&front.meter),
        bounds.requests_in_flight_max,
        bounds.pending_bytes_max,
    );
    let session = Session::new(front, peer, Arc::clone(&out));
    let ending = Ending { front, session: Arc::clone(&session) };
    let limits = Limits { paths: 64 << 10, fattr: FATTR_BYTES_MAX, ..Limits::default() };
    let mut connection = Connection {
        front: Arc::clone(front),
        number: session.open.number(),
        session,
        out,
        input,
        limits,
        logged_in: false,
        behind: BackgroundStore::default(),
        client_version: 0,
        is_tls_able: false,
        pending: None,
        login: None,
        refused: 0,
        signing: front
            .config
            .authenticator
            .as_ref()
            .map_or(SigningLevel::None, |authenticator| authenticator.signing()),
        signatures: None,
        expires: None,
        is_end_audited: false,
        began: None,
        sent_away: SentAway::default(),
        complained: Vec::new(),
    };
    let stop = connection.run();
    connection.settle();
    if let (false, Stop::Tls(reason) | Stop::Input(InputEnd::Tls(reason))) = (connection.logged_in, &stop) {
        connection.audit_denial("tls", reason.to_string());
    }
    let Connection { session, out, mut input, .. } = connection;
    match &stop {
        _ if out.was_slow() => {
            let (pace, time) = (PACE_BYTES >> 10, times.send);
            front.complaints.bad_input(
                &*session,
                &format_args!("connection cut: it took less than {pace} KiB of its answers in {time:?}"),
            );
            front.meter.ended(Ended::SlowReader);
        }
        Stop::Input(InputEnd::Closed) => tracing::debug!(client = %session, "connection ended"),
        Stop::Input(InputEnd::Io(error)) => tracing::debug!(client = %session, %error, "connection ended"),
        // Usually the network failed or the client was killed.
        Stop::Input(InputEnd::HalfFrame) => tracing::info!(client = %session, "connection lost within a request"),
        Stop::Gone => tracing::debug!(client = %session, "connection cut: the client took no answers"),
        Stop::Input(reason) => front.complaints.bad_input(&*session, reason),
        Stop::Tls(reason) => front.complaints.bad_input(&*session, reason),
        Stop::Wire(reason) => front.complaints.bad_input(&*session, reason),
        Stop::OutOfStep(_) | Stop::BadCredentials(_) | Stop::Signature(..) => {
            front.complaints.bad_input(&*session, &stop)
        }
    }
    if let Some(ended) = ended_by_us(&stop) {
        front.meter.ended(ended);
    }
    drop(ending);
    if !matches!(stop, Stop::Gone) && !out.was_slow() {
        out.settle(Instant::now() + LAST_ANSWERS);
        out.end();
    }
    if matches!(stop, Stop::Wire(_) | Stop::BadCredentials(_) | Stop::Signature(..)) {
        // Closing a socket with unread input would reset the connection, and the client would lose the answer.
        let _ = socket.shutdown(Shutdown::Write);
        input.discard(LINGER, EXCESS_MAX as usize);
    }
    out.cut();
    let _ = socket.shutdown(Shutdown::Both);
}

/// Ends the session when dropped, even if the thread panics, so that its writers are detached.
struct Ending<'a> {
    front: &'a FrontEnd,
    session: Arc<Session>,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.session.end(self.front);
    }
}

impl Connection {
    fn run(&mut self) -> Stop {
        if let Err(stop) = self.shake_hands() {
            return stop;
        }
        loop {
            let result = self.one_request();
            self.count();
            if let Err(stop) = result {
                return stop;
            }
            if let Err(gone) = self.out.relieve() {
                return gone.into();
            }
            self.input.frame_done();
        }
    }

    /// Waits for `n` bytes (at most [`INPUT_BYTES`]). Answers are sent before it waits.
    fn wait_for(&mut self, n: usize) -> Result<(), Stop> {
        if self.input.has(n) {
            return Ok(());
        }
        self.out.leave()?;
        self.input.restart_clock();
        self.input.fill(n)?;
        self.out.back();
        Ok(())
    }

    fn shake_hands(&mut self) -> Result<(), Stop> {
        self.wait_for(HANDSHAKE_LEN)?;
        let mut bytes = [0; HANDSHAKE_LEN];
        bytes.copy_from_slice(self.input.take(HANDSHAKE_LEN));
        Handshake::decode(&bytes)?;
        let reply = HandshakeReply::data_server(self.front.protocol_version());
        self.out.answer(|out| out.extend_from_slice(&reply.to_bytes()));
        self.input.frame_done();
        Ok(())
    }

    /// Agrees on keys with the client, after everything before was sent in the clear.
    #[inline(never)] // see `dispatch`
    pub(crate) fn start_tls(&mut self, certificate: &ServerCertificate) -> Result<(), Stop> {
        self.out.send_now(&mut [], None)?;
        let channel = Arc::new(Channel::server(certificate.config(SystemTime::now().into()))?);
        self.input.seal(Arc::clone(&channel));
        self.out.encrypt(Arc::clone(&channel));
        // It has the time of one request, however it comes.
        self.input.restart_clock();
        while channel.is_handshaking() {
            let received = self.input.shake_hands();
            // After an error, it says which one.
            let sent = self.out.send_now(&mut [], None);
            received?;
            sent?;
        }
        Ok(())
    }

    fn one_request(&mut self) -> Result<(), Stop> {
        self.wait_for(REQUEST_HEADER_LEN)?;
        let mut bytes = [0; REQUEST_HEADER_LEN];
        bytes.copy_from_slice(self.input.take(REQUEST_HEADER_LEN));
        let header = RequestHeader::parse(&bytes);
        let stream = header.stream;
        self.began = Some(self.front.meter.begin(header.kind, self.number));
        let request = match header.payload(&self.limits) {
            Ok(Payload::Stream(_)) => {
                self.check_signature(&header)?;
                Request::decode(&header, &[])
            }
            Ok(Payload::Buffer(n)) => self.decode_signed(&header, n as usize)?,
            Err(error) => return self.over_long(&header, error),
        };
        let request = match request {
            Ok(request) => request,
            Err(error) => {
                self.complain(header.kind, &error);
                self.refuse(stream, &RequestError::of_wire(&error));
                // For some requests the malformed part says how much data follows.
                if error.closes() || (header.kind.closes_if_malformed() && header.dlen > 0) {
                    return Err(error.into());
                }
                // The payload of a malformed data request still follows.
                if let Ok(Payload::Stream(n)) = header.payload(&self.limits) {
                    self.skip(u64::from(n))?;
                }
                return Ok(());
            }
        };
        if !self.logged_in && !allowed_before_login(header.kind) {
            let first = if self.pending.is_some() { "show who you are (auth)" } else { "log in" };
            let text = format!("{} request refused: {first} first", header.kind.name());
            self.complain(header.kind, &text);
            self.refuse(stream, &RequestError::new(ErrorNumber::INVALID_REQUEST, text));
            return self.skip(request.following());
        }
        // Before anything is looked up for it: a cluster's disk server must not redirect it to the manager either.
        if self.front.service.is_stopping() && header.kind == RequestKind::Open {
            self.refuse(stream, &service::Error::wait_for_restart().into());
            return Ok(());
        }
        self.dispatch(stream, request)
    }

    /// Handles a payload over the request's limit. A moderate excess is discarded and the connection continues.
    /// Otherwise the connection ends, and also where more data follows than the header says.
    fn over_long(&mut self, header: &RequestHeader, error: WireError) -> Result<(), Stop> {
        self.refuse(header.stream, &RequestError::of_wire(&error));
        match error {
            WireError::PayloadTooLong { len, .. } | WireError::ListTooLong { len, .. }
                if len <= EXCESS_MAX && header.kind != RequestKind::Writev =>
            {
                self.complain(header.kind, &error);
                self.skip(u64::from(len))
            }
            error => Err(error.into()),
        }
    }

    /// Logs bad input, once per connection for each kind of request.
    pub(crate) fn complain(&mut self, kind: RequestKind, reason: &dyn std::fmt::Display) {
        if !self.complained.contains(&kind.name()) {
            self.complained.push(kind.name());
            self.front.complaints.bad_input(&*self.session, reason);
        }
    }

    /// Receives the payload of a request, and decodes it if it is signed as it must be.
    fn decode_signed(&mut self, header: &RequestHeader, n: usize) -> Result<Result<Request, WireError>, Stop> {
        let (decoded, signature) = if n <= INPUT_BYTES {
            self.wait_for(n)?;
            let payload = self.input.take(n);
            (Request::decode(header, payload), signatures::check(&mut self.signatures, header, payload))
        } else {
            let payload = self.large_payload(n)?;
            (Request::decode(header, &payload), signatures::check(&mut self.signatures, header, &payload))
        };
        self.after_signature(header, signature)?;
        Ok(decoded)
    }

    /// Receives the payload of a request inside of another one, and decodes it. A signature of the outer one covers the header of the
    /// inner one, and not this payload.
    pub(crate) fn decode_with_payload(
        &mut self,
        header: &RequestHeader,
        n: usize,
    ) -> Result<Result<Request, WireError>, Stop> {
        if n <= INPUT_BYTES {
            self.wait_for(n)?;
            return Ok(Request::decode(header, self.input.take(n)));
        }
        let payload = self.large_payload(n)?;
        Ok(Request::decode(header, &payload))
    }

    fn large_payload(&mut self, n: usize) -> Result<Vec<u8>, Stop> {
        let mut payload = vec![0; n];
        self.out.leave()?;
        self.input.restart_clock();
        self.input.fill_slice(&mut payload, None)?;
        self.out.back();
        Ok(payload)
    }

    /// Checks the signature of a request whose payload is a stream.
    fn check_signature(&mut self, header: &RequestHeader) -> Result<(), Stop> {
        let result = signatures::check(&mut self.signatures, header, &[]);
        self.after_signature(header, result)
    }

    fn after_signature(
        &mut self,
        header: &RequestHeader,
        result: Result<SignatureResult, SignatureError>,
    ) -> Result<(), Stop> {
        match result {
            Ok(SignatureResult::NotNeeded) => Ok(()),
            Ok(result) => {
                self.front.meter.signature(result);
                Ok(())
            }
            Err(why) => Err(self.refuse_signature(header, why)),
        }
    }

    /// Handles a request. Functions for rare requests are not inlined here: their stack frames would be part of every
    /// connection's stack. One page of stack for each of a thousand connections is 4 MiB.
    fn dispatch(&mut self, stream: StreamId, request: Request) -> Result<(), Stop> {
        // A write receives its own data first, and then waits for the previous one.
        if !matches!(request, Request::Write(_) | Request::Pgwrite(_)) {
            self.settle();
        }
        if let Some(ended) = self.after_its_credential(&request) {
            self.audit_end(&ended);
            self.refuse(stream, &ended);
            return self.skip(request.following());
        }
        if let Some(redirect) = self.at_manager(&request) {
            self.refuse(stream, &redirect);
            return Ok(());
        }
        let result = match request {
            Request::Protocol(r) => self.protocol(stream, &r)?,
            Request::Login(r) => self.login(stream, &r)?,
            Request::Ping => self.ok(stream, |_| ()),
            Request::Auth(r) => self.auth(stream, &r)?,
            Request::Bind(r) => self.bind(stream, &r)?,
            Request::Endsess(r) => self.endsess(stream, &r),
            Request::Set(r) => self.set(stream, &r),
            Request::Stat(r) => self.stat(stream, &r),
            Request::Statx(r) => self.statx(stream, &r),
            Request::Locate(r) => self.locate(stream, &r),
            Request::Dirlist(r) => self.dirlist(stream, &r)?,
            Request::Mkdir(r) => self.mkdir(stream, r)?,
            Request::Rm(r) => self.rm(stream, &r)?,
            Request::Rmdir(r) => self.rmdir(stream, &r)?,
            Request::Mv(r) => self.mv(stream, &r)?,
            Request::Chmod(r) => self.chmod(stream, &r)?,
            Request::Truncate(r) => self.truncate(stream, &r)?,
            Request::Open(r) => self.open(stream, &r)?,
            Request::Close(r) => self.close(stream, &r)?,
            Request::Sync(r) => self.sync(stream, &r)?,
            Request::Read(r) => self.read(stream, &r)?,
            Request::Pgread(r) => self.pgread(stream, &r)?,
            Request::Readv(r) => self.readv(stream, &r)?,
            Request::Batch(r) => self.batch(stream, &r)?,
            Request::Write(r) => self.write(stream, &r)?,
            Request::Pgwrite(r) => self.pgwrite(stream, &r)?,
            Request::Writev(r) => self.writev(stream, &r)?,
            Request::Chkpoint(r) => self.chkpoint(stream, &r)?,
            Request::Clone(r) => self.clone_ranges(stream, &r)?,
            Request::Query(r) => self.query(stream, &r)?,
            Request::Fattr(r) => self.fattr(stream, r)?,
            Request::Prepare(r) => self.prepare(stream, &r),
            Request::Sigver(r) => self.sigver(stream, r),
            Request::Unknown(r) => {
                let text = format!("Request code {} is not known to this protocol", r.code);
                self.complain(RequestKind::Unknown(r.code), &text);
                Err(RequestError::new(ErrorNumber::INVALID_REQUEST, text))
            }
            other => {
                self.skip(other.following())?;
                Err(RequestError::unsupported(&format!("The request {}", other.kind().name())))
            }
        };
        if let Err(request_error) = result {
            self.refuse(stream, &request_error);
        }
        Ok(())
    }

    /// Writes a line to the audit log about something that the client is denied here.
    #[inline(never)] // see `dispatch`
    pub(crate) fn audit_denial(&self, operation: &'static str, reason: String) {
        self.front.service.denied_at_front(&self.session.open.caller(), operation, reason);
    }

    /// The same for the first request after the end of its credential.
    #[inline(never)] // see `dispatch`
    fn audit_end(&mut self, ended: &RequestError) {
        if let RequestError::Error { text, .. } = ended
            && !std::mem::replace(&mut self.is_end_audited, true)
        {
            self.audit_denial("request", text.clone());
        }
    }

    /// Answers at once with kXR_ok.
    pub(crate) fn ok(&self, stream: StreamId, write: impl FnOnce(&mut Vec<u8>)) -> Result<(), RequestError> {
        self.out.answer(|out| answer::ok(out, stream, write));
        Ok(())
    }

    /// Sends one frame now, after all pending answers. It blocks. If it must wait for the client, it returns the slot
    /// in `turn`.
    pub(crate) fn send_frame(
        &self,
        stream: StreamId,
        status: ResponseStatus,
        body: &[u8],
        turn: Option<&mut TransferSlot<'_>>,
    ) -> Result<(), Stop> {
        let dlen = u32::try_from(body.len()).unwrap_or(u32::MAX);
        let header = ResponseHeader { stream, status, dlen }.to_bytes();
        Ok(self.out.send_now(&mut [IoSlice::new(&header), IoSlice::new(body)], turn)?)
    }

    /// Answers at once with an error, wait or redirect.
    pub(crate) fn refuse(&self, stream: StreamId, request_error: &RequestError) {
        self.front.meter.refused(request_error);
        self.out.answer(|out| answer::request_error(out, stream, request_error));
    }

    /// Prepares an answer that another thread gives.
    pub(crate) fn hand_on(&mut self, stream: StreamId) -> Result<Reply, Stop> {
        self.out.begin()?;
        Ok(Reply::new(Arc::clone(&self.out), stream, self.began.take()))
    }

    /// Records the end of the request, unless another thread answers it.
    pub(crate) fn count(&mut self) {
        if let Some(began) = self.began.take() {
            self.front.meter.done(began);
        }
    }

    /// Discards `n` bytes of input.
    pub(crate) fn skip(&mut self, n: u64) -> Result<(), Stop> {
        if n == 0 {
            return Ok(());
        }
        self.out.leave()?;
        let mut left = n;
        while left > 0 {
            let step = usize::try_from(left).unwrap_or(usize::MAX).min(1 << 30);
            self.input.skip(step)?;
            left -= step as u64;
        }
        self.out.back();
        Ok(())
    }

    /// The open file behind `handle`.
    pub(crate) fn file(&self, handle: wire::FileHandle) -> Result<Arc<OpenFile>, RequestError> {
        Ok(self.front.service.file(&self.session.open, from_wire::handle(handle))?)
    }
}

/// The counter for this reason, if the server ended the connection.
fn ended_by_us(stop: &Stop) -> Option<Ended> {
    match stop {
        Stop::Input(InputEnd::Closed | InputEnd::HalfFrame | InputEnd::Io(_)) => None,
        Stop::Input(InputEnd::Stuck(_)) => Some(Ended::SlowSender),
        Stop::Input(InputEnd::NoLogin(_)) => Some(Ended::NoLogin),
        Stop::Gone => None,
        Stop::Signature(..) => Some(Ended::Signature),
        Stop::Wire(_) | Stop::OutOfStep(_) | Stop::BadCredentials(_) | Stop::Tls(_) | Stop::Input(InputEnd::Tls(_)) => {
            Some(Ended::BadInput)
        }
    }
}

fn allowed_before_login(kind: RequestKind) -> bool {
    matches!(
        kind,
        RequestKind::Protocol | RequestKind::Login | RequestKind::Ping | RequestKind::Auth | RequestKind::Bind
    )
}
