//! A handle to the node at the other end: requests, answers and one-way messages from any thread.
//!
//! Frames are queued here, and the connection's own thread sends them. A thread that answers therefore never waits for
//! the network. The queue is still bounded: requests by the window that the peer granted in its hello, answers by the
//! window that this node granted, and one-way messages by their own limit.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::call::{Answer, Buffer, Call, CallError, Outgoing, SendError};
use crate::channel::Channel;
use crate::error::{CloseCause, LinkError};
use crate::frame::{FrameHeader, HEADER_BYTES, Kind};
use crate::{AuthoritySet, Fingerprint, NodeName, Settings, ShownChain};

/// The node at the other end. Its certificate proves everything except the address and the software.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerIdentity {
    /// Its cluster (the same as this node's), number and roles.
    pub name: NodeName,
    /// The authority that has signed the certificate that it showed when it connected, if it has shown that one too.
    pub authority: Option<Fingerprint>,
    /// That certificate, with those that it has shown along with it.
    pub chain: Arc<ShownChain>,
    /// Its address.
    pub address: SocketAddr,
    /// Its software, as it says.
    pub software: String,
    /// The version of the protocol that both speak ([`crate::Version`]).
    pub version: u16,
}

impl PeerIdentity {
    /// Whether a node that trusts `authorities` would let it in with the certificate that it showed when it connected.
    #[must_use]
    pub fn is_trusted_by(&self, authorities: &AuthoritySet) -> bool {
        self.chain.is_trusted_by(authorities)
    }
}

impl fmt::Display for PeerIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {} ({}, {})", self.name.node, self.name.roles, self.address)
    }
}

type OnAnswer<B> = Box<dyn FnOnce(Result<Answer<B>, CallError>) + Send>;

/// A request that waits for its answer.
pub(crate) struct Waiting<B> {
    bytes: u64,
    pub(crate) answer_bulk_max: u32,
    pub(crate) into: Option<B>,
    pub(crate) on_answer: OnAnswer<B>,
}

struct Queued {
    header: FrameHeader,
    outgoing: Outgoing,
}

struct State<B> {
    queue: VecDeque<Queued>,
    one_way_bytes: u64,
    next_request: u64,
    waiting: HashMap<u64, Waiting<B>>,
    waiting_bytes: u64,
    /// Unanswered requests of the peer, with their bytes.
    taken: HashMap<u64, u64>,
    taken_bytes: u64,
    last_taken: u64,
    /// The goodbye, once the connection is closing.
    closing: Option<String>,
    end: Option<Arc<LinkError>>,
    reader_done: bool,
}

pub(crate) struct Inner<B> {
    pub(crate) identity: PeerIdentity,
    pub(crate) settings: Settings,
    channel: Arc<Channel>,
    /// The limits of the peer.
    requests_max: u32,
    bytes_max: u64,
    state: Mutex<State<B>>,
    work: Condvar,
    room: Condvar,
}

/// The node at the other end of a connection. Clones are the same handle.
pub struct Peer<B>(pub(crate) Arc<Inner<B>>);

impl<B> Clone for Peer<B> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<B> fmt::Debug for Peer<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Peer({})", self.0.identity)
    }
}

/// What to do when there is no room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    /// Wait for room. Never on a connection's reading thread, because answers make room there.
    Wait,
    /// Fail with [`SendError::Full`].
    Try,
}

/// An answer that has not arrived yet.
#[derive(Debug)]
pub struct Pending<B>(mpsc::Receiver<Result<Answer<B>, CallError>>);

impl<B> Pending<B> {
    /// Waits for the answer.
    ///
    /// # Errors
    /// There is no answer, or none within `time`.
    pub fn wait(self, time: Duration) -> Result<Answer<B>, CallError> {
        // Without an answer the sender is dropped only together with the connection.
        self.0.recv_timeout(time).unwrap_or(Err(CallError::Late(time)))
    }
}

impl<B: Buffer> Peer<B> {
    pub(crate) fn new(
        identity: PeerIdentity,
        settings: Settings,
        channel: Arc<Channel>,
        requests_max: u32,
        bytes_max: u64,
    ) -> Self {
        let state = State {
            queue: VecDeque::new(),
            one_way_bytes: 0,
            next_request: 1,
            waiting: HashMap::new(),
            waiting_bytes: 0,
            taken: HashMap::new(),
            taken_bytes: 0,
            last_taken: 0,
            closing: None,
            end: None,
            reader_done: false,
        };
        let (state, work, room) = (Mutex::new(state), Condvar::new(), Condvar::new());
        Self(Arc::new(Inner { identity, settings, channel, requests_max, bytes_max, state, work, room }))
    }

    /// The peer's identity.
    #[must_use]
    pub fn identity(&self) -> &PeerIdentity {
        &self.0.identity
    }

    /// Whether both are handles of one connection.
    #[must_use]
    pub fn is_same_connection(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Waits for room and sends a request.
    ///
    /// # Errors
    /// The connection ends, or the request is too long.
    pub fn request(&self, call: Call<B>) -> Result<Pending<B>, SendError> {
        self.pending(call, Room::Wait)
    }

    /// Sends a request if there is room for it.
    ///
    /// # Errors
    /// Those of [`Peer::request`], and [`SendError::Full`].
    pub fn try_request(&self, call: Call<B>) -> Result<Pending<B>, SendError> {
        self.pending(call, Room::Try)
    }

    fn pending(&self, call: Call<B>, room: Room) -> Result<Pending<B>, SendError> {
        let (sender, receiver) = mpsc::sync_channel(1);
        self.request_then(call, room, move |answer| {
            // No thread waits any more: the answer is useless.
            let _ = sender.send(answer);
        })?;
        Ok(Pending(receiver))
    }

    /// Sends a request. `on_answer` is called once with the answer, or the reason why there is none. It runs on the
    /// connection's reading thread, so it must not wait. It is not called if this call fails.
    ///
    /// # Errors
    /// Those of [`Peer::request`], and with [`Room::Try`] [`SendError::Full`].
    pub fn request_then(
        &self,
        call: Call<B>,
        room: Room,
        on_answer: impl FnOnce(Result<Answer<B>, CallError>) + Send + 'static,
    ) -> Result<(), SendError> {
        let inner = &*self.0;
        let Call { outgoing, answer_bulk_max, into } = call;
        let mut header = outgoing.header(Kind::Request, 1, answer_bulk_max)?;
        let bytes = outgoing.len() + u64::from(answer_bulk_max);
        if bytes > inner.bytes_max {
            return Err(SendError::TooLong { what: "request with its answer", bytes, max: inner.bytes_max });
        }
        let mut state = inner.state.lock();
        loop {
            state.check_open(inner)?;
            let is_room = state.waiting.len() < inner.requests_max as usize
                && state.waiting_bytes.saturating_add(bytes) <= inner.bytes_max;
            match room {
                _ if is_room => break,
                Room::Try => return Err(SendError::Full),
                Room::Wait => inner.room.wait(&mut state),
            }
        }
        header.request = state.next_request;
        state.next_request += 1;
        state.waiting_bytes += bytes;
        let waiting = Waiting { bytes, answer_bulk_max, into, on_answer: Box::new(on_answer) };
        state.waiting.insert(header.request, waiting);
        state.queue.push_back(Queued { header, outgoing });
        inner.work.notify_one();
        Ok(())
    }

    /// Sends a message without an answer. The sender does not learn whether it arrives.
    ///
    /// # Errors
    /// The connection has ended, or the message is too long; with [`Room::Try`] [`SendError::Full`].
    pub fn tell(&self, outgoing: Outgoing, room: Room) -> Result<(), SendError> {
        let inner = &*self.0;
        let header = outgoing.header(Kind::OneWay, 0, 0)?;
        let bytes = outgoing.len() + HEADER_BYTES as u64;
        let mut state = inner.state.lock();
        loop {
            state.check_open(inner)?;
            let is_room = state.one_way_bytes == 0 || state.one_way_bytes + bytes <= inner.settings.one_way_bytes_max;
            match room {
                _ if is_room => break,
                Room::Try => return Err(SendError::Full),
                Room::Wait => inner.room.wait(&mut state),
            }
        }
        state.one_way_bytes += bytes;
        state.queue.push_back(Queued { header, outgoing });
        inner.work.notify_one();
        Ok(())
    }

    /// Ends the connection after sending the queue. The peer gets `reason`. Unanswered requests get no answer any more.
    pub fn close(&self, reason: &str) {
        let mut state = self.0.state.lock();
        state.closing.get_or_insert_with(|| reason.to_owned());
        self.0.work.notify_all();
        self.0.room.notify_all();
    }

    /// Ends the connection at once, without a goodbye.
    pub fn cut(&self, reason: &str) {
        self.0.end_by(CloseCause::ClosedHere(reason.to_owned()), || self.0.channel.cut());
    }

    /// Whether the connection has ended, or the peer has closed it and that end was not read yet, as far as the kernel
    /// knows now.
    #[must_use]
    pub fn has_hung_up(&self) -> bool {
        self.ended().is_some() || self.0.channel.has_hung_up()
    }

    /// Why the connection has ended; `None` if it has not.
    #[must_use]
    pub fn ended(&self) -> Option<Arc<LinkError>> {
        self.0.state.lock().end.clone()
    }
}

impl<B> State<B> {
    fn check_open(&self, inner: &Inner<B>) -> Result<(), SendError> {
        if let Some(end) = &self.end {
            return Err(SendError::Ended(Arc::clone(end)));
        }
        match &self.closing {
            Some(reason) => {
                let why = CloseCause::ClosedHere(reason.clone());
                Err(SendError::Ended(Arc::new(why.with(&inner.identity))))
            }
            None => Ok(()),
        }
    }
}

/// The operations of the connection's own threads.
impl<B> Inner<B> {
    /// Ends the connection; the first reason counts. All waiting requests get it.
    pub(crate) fn end(&self, why: CloseCause) -> Arc<LinkError> {
        self.end_by(why, || ())
    }

    /// Like [`Inner::end`]; `before` runs before any thread can see the end.
    fn end_by(&self, why: CloseCause, before: impl FnOnce()) -> Arc<LinkError> {
        let (end, orphans) = {
            let mut state = self.state.lock();
            let end = match &state.end {
                Some(end) => Arc::clone(end),
                None => {
                    // An error while closing is reported as the closing.
                    let why = match (&state.closing, why) {
                        (Some(reason), CloseCause::Goodbye(_) | CloseCause::BrokenOff) => {
                            CloseCause::ClosedHere(reason.clone())
                        }
                        (_, why) => why,
                    };
                    Arc::new(why.with(&self.identity))
                }
            };
            state.end = Some(Arc::clone(&end));
            state.waiting_bytes = 0;
            before();
            (end, std::mem::take(&mut state.waiting))
        };
        self.work.notify_all();
        self.room.notify_all();
        for waiting in orphans.into_values() {
            (waiting.on_answer)(Err(CallError::Ended(Arc::clone(&end))));
        }
        end
    }

    /// Makes `reason` the goodbye to the peer, unless there is one already.
    pub(crate) fn last_words(&self, reason: &str) {
        self.state.lock().closing.get_or_insert_with(|| reason.to_owned());
        self.work.notify_all();
    }

    pub(crate) fn cut(&self) {
        self.channel.cut();
    }

    pub(crate) fn reader_done(&self) {
        self.state.lock().reader_done = true;
        self.work.notify_all();
    }

    /// The request with this number, for its answer. Frees its room.
    pub(crate) fn take_waiting(&self, request: u64) -> Option<Waiting<B>> {
        let mut state = self.state.lock();
        let waiting = state.waiting.remove(&request)?;
        state.waiting_bytes -= waiting.bytes;
        drop(state);
        self.room.notify_all();
        Some(waiting)
    }

    /// Checks an arriving request of the peer against the granted limits.
    pub(crate) fn take_in(&self, header: &FrameHeader) -> Result<(), CloseCause> {
        let mut state = self.state.lock();
        if header.request <= state.last_taken {
            return Err(CloseCause::Misbehaved(format!("sent request {} after {}", header.request, state.last_taken)));
        }
        let bytes = u64::from(header.message_len) + u64::from(header.bulk_len) + u64::from(header.answer_bulk_max);
        let (requests, sum) = (state.taken.len() + 1, state.taken_bytes.saturating_add(bytes));
        let Settings { requests_max, bytes_max, .. } = self.settings;
        if requests > requests_max as usize || sum > bytes_max {
            return Err(CloseCause::Misbehaved(format!(
                "sent {requests} requests of {sum} bytes in all without waiting for answers; it was granted {requests_max} of {bytes_max}"
            )));
        }
        state.last_taken = header.request;
        state.taken.insert(header.request, bytes);
        state.taken_bytes = sum;
        Ok(())
    }

    fn answer(&self, header: FrameHeader, outgoing: Outgoing) {
        let mut state = self.state.lock();
        if state.end.is_none() {
            state.queue.push_back(Queued { header, outgoing });
            self.work.notify_one();
        }
    }

    /// The next frame, for the sending thread.
    pub(crate) fn next(&self) -> Next {
        let alive = Instant::now() + self.settings.alive_every;
        let mut state = self.state.lock();
        loop {
            if state.end.is_some() || (state.closing.is_some() && state.queue.is_empty()) {
                return Next::End(state.closing.clone());
            }
            if let Some(Queued { header, outgoing }) = state.queue.pop_front() {
                match header.kind {
                    // From here on the peer may have the answer and send its next request, before the kernel returns.
                    Kind::Answer | Kind::Unanswered => {
                        let bytes = state.taken.remove(&header.request).unwrap_or(0);
                        state.taken_bytes -= bytes;
                    }
                    Kind::OneWay => {
                        state.one_way_bytes -= outgoing.len() + HEADER_BYTES as u64;
                        self.room.notify_all();
                    }
                    _ => {}
                }
                return Next::Frame { header, outgoing, more: !state.queue.is_empty() };
            }
            if self.work.wait_until(&mut state, alive).timed_out() && state.queue.is_empty() {
                return Next::Alive;
            }
        }
    }

    /// Waits a short time for the reading thread to notice the end.
    pub(crate) fn wait_for_reader(&self) {
        let until = Instant::now() + self.settings.close_time;
        let mut state = self.state.lock();
        while !state.reader_done && !self.work.wait_until(&mut state, until).timed_out() {}
    }
}

/// The next task of the sending thread.
pub(crate) enum Next {
    Frame { header: FrameHeader, outgoing: Outgoing, more: bool },
    Alive,
    End(Option<String>),
}

/// The duty to answer a request. If it is dropped without an answer, the peer learns that there will be none.
pub struct Responder<B> {
    inner: Arc<Inner<B>>,
    request: u64,
    answer_bulk_max: u32,
    is_answered: bool,
}

impl<B> fmt::Debug for Responder<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Responder({}, request {})", self.inner.identity, self.request)
    }
}

impl<B> Responder<B> {
    /// The peer that sent the request.
    #[must_use]
    pub fn peer(&self) -> Peer<B> {
        Peer(Arc::clone(&self.inner))
    }

    pub(crate) fn new(inner: Arc<Inner<B>>, header: &FrameHeader) -> Self {
        Self { inner, request: header.request, answer_bulk_max: header.answer_bulk_max, is_answered: false }
    }

    /// Longest bulk of the answer in bytes.
    #[must_use]
    pub fn answer_bulk_max(&self) -> u32 {
        self.answer_bulk_max
    }

    /// Sends the answer. Never waits; does nothing if the connection has ended.
    ///
    /// # Errors
    /// The answer is too long; the peer then learns that there is none.
    pub fn answer(mut self, outgoing: Outgoing) -> Result<(), SendError> {
        let header = outgoing.header(Kind::Answer, self.request, 0)?;
        if header.bulk_len > self.answer_bulk_max {
            let (bytes, max) = (header.bulk_len.into(), self.answer_bulk_max.into());
            return Err(SendError::TooLong { what: "bulk of this answer", bytes, max });
        }
        self.is_answered = true;
        self.inner.answer(header, outgoing);
        Ok(())
    }
}

impl<B> Drop for Responder<B> {
    fn drop(&mut self) {
        if !self.is_answered {
            let header = FrameHeader {
                kind: Kind::Unanswered,
                request: self.request,
                message_len: 0,
                bulk_len: 0,
                answer_bulk_max: 0,
            };
            self.inner.answer(header, Outgoing::default());
        }
    }
}
