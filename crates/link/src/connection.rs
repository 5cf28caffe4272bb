//! One connection between two nodes: how it is made, its sending thread, and its reading loop.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use types::ClusterId;

use crate::call::{Answer, Buffer, Bulk, CallError};
use crate::channel::{self, Channel, Deadline, HandshakeResult, ReceiveHalf, SendHalf, SplitChannel};
use crate::credentials::{Credentials, NODE_PROTOCOL};
use crate::error::{CloseCause, LinkError};
use crate::frame::{FrameHeader, GOODBYE_BYTES_MAX, HEADER_BYTES, Kind};
use crate::hello::{self, Expect, Hello, Versions};
use crate::peer::{Inner, Next, Peer, PeerIdentity, Responder, Waiting};
use crate::verify::name_of;
use crate::{CertificateProblem, NodeName, Settings};

/// Small frames are combined up to this size before they are sent.
const TOGETHER_BYTES: usize = 32 << 10;
/// The size of the reads that discard bulk without a buffer.
const SCRATCH_BYTES: usize = 64 << 10;
/// How often the reading thread checks whether the connection must end.
const LOOK: Duration = Duration::from_millis(500);
/// Address space of a sending thread's stack. Untouched parts cost nothing.
const STACK_BYTES: usize = 256 << 10;

/// The local node, for all its connections.
#[derive(Clone, Debug)]
pub struct LocalNode {
    /// Its credentials.
    pub credentials: Arc<Credentials>,
    /// Its software version.
    pub software: String,
    /// The protocol versions that it speaks: [`Versions::SPOKEN`], except in tests of older and newer nodes.
    pub versions: Versions,
    /// Time limits and bounds.
    pub settings: Settings,
}

impl LocalNode {
    /// A node of this build with these credentials.
    #[must_use]
    pub fn new(credentials: Arc<Credentials>, settings: Settings) -> Self {
        let software = concat!("weir ", env!("CARGO_PKG_VERSION")).to_owned();
        Self { credentials, software, versions: Versions::SPOKEN, settings }
    }

    /// Its cluster.
    #[must_use]
    pub fn cluster(&self) -> ClusterId {
        self.credentials.name().cluster
    }

    fn hello(&self, name: NodeName) -> Hello {
        let Settings { requests_max, bytes_max, .. } = self.settings;
        Hello { versions: self.versions, name, requests_max, bytes_max, software: self.software.clone() }
    }
}

/// The part of a received message that is known before its bulk arrives.
#[derive(Debug)]
pub struct IncomingHeader<'a> {
    /// The frame's header.
    pub header: &'a FrameHeader,
    /// The message.
    pub message: &'a [u8],
}

/// A message from a peer.
#[derive(Debug)]
pub enum Received<B> {
    /// A message that expects an answer.
    Request {
        /// The message, for [`crate::decode`].
        message: Vec<u8>,
        /// The bulk after the message.
        bulk: Bulk<B>,
        /// Sends the answer, from any thread.
        responder: Responder<B>,
    },
    /// A message that expects no answer.
    OneWay {
        /// The message, for [`crate::decode`].
        message: Vec<u8>,
        /// The bulk after the message.
        bulk: Bulk<B>,
    },
}

/// Handles the messages of a node's peers. The connection's reading thread makes all these calls. While one runs,
/// nothing else is read from that peer. A call that waits for an answer of the same peer waits forever.
pub trait Handler: Send + Sync {
    /// Memory for bulk.
    type Buffer: Buffer;

    /// Returns memory for the `header.bulk_len` bytes of bulk after this message, or more. May wait for memory. `None`
    /// discards the bulk.
    fn buffer(&self, from: &PeerIdentity, arriving: &IncomingHeader<'_>) -> Option<Self::Buffer>;

    /// Decides whether this node may connect; for example, it may have been removed from the cluster. The peer gets the
    /// reason of a refusal.
    ///
    /// # Errors
    /// The reason of the refusal.
    fn admit(&self, _peer: &PeerIdentity) -> Result<(), String> {
        Ok(())
    }

    /// Called when a connection is up.
    fn connected(&self, _peer: &Peer<Self::Buffer>) {}

    /// Called for each message.
    fn received(&self, from: &Peer<Self::Buffer>, received: Received<Self::Buffer>);

    /// Called when the connection has ended, once for each [`Handler::connected`].
    fn ended(&self, _peer: &Peer<Self::Buffer>, _why: &LinkError) {}
}

/// A connection on which both sides know each other, before its loop runs.
pub struct Ready<B> {
    peer: Peer<B>,
    reading: ReceiveHalf,
    writing: SendHalf,
}

impl<B> std::fmt::Debug for Ready<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ready({:?})", self.peer)
    }
}

/// Connects to the node at `address`.
///
/// # Errors
/// No node answers there, it belongs to another cluster, or it is not the expected one.
pub fn connect<B: Buffer>(us: &LocalNode, address: SocketAddr, expect: Expect) -> Result<Ready<B>, LinkError> {
    let deadline = Deadline::new("connecting", us.settings.connect_time);
    let result = (|| {
        let socket = TcpStream::connect_timeout(&address, us.settings.connect_time).map_err(CloseCause::Connect)?;
        let current = us.credentials.current();
        let (halves, shown) = channel::connect(socket, Arc::clone(&current.client), deadline, us.settings.send_time)?;
        greet(us, current.name, halves, &shown, address, expect, deadline, &|_| Ok(()))
    })();
    result.map_err(|why| why.with(address))
}

/// Exchanges the hellos, on either side.
#[allow(clippy::too_many_arguments)] // two callers; a struct would serve only them
pub(crate) fn greet<B: Buffer>(
    us: &LocalNode,
    name: NodeName,
    mut halves: SplitChannel,
    shown: &HandshakeResult,
    address: SocketAddr,
    expect: Expect,
    deadline: Deadline,
    admit: &dyn Fn(&PeerIdentity) -> Result<(), String>,
) -> Result<Ready<B>, CloseCause> {
    if shown.protocol.as_deref() != Some(NODE_PROTOCOL) {
        return Err(CloseCause::Hello(hello::HelloProblem::NotANode));
    }
    let certificate = shown.certificate.as_ref().ok_or(CloseCause::NoCertificate)?;
    // An administrator's certificate is valid, too.
    let certificate = name_of(certificate).ok_or(CloseCause::Certificate(CertificateProblem::NoNode))?;
    let chain = shown.chain.as_ref().ok_or(CloseCause::NoCertificate)?;
    let ours = us.hello(name);
    let identity = |theirs: &Hello, version| PeerIdentity {
        name: certificate,
        authority: chain.signer(),
        chain: Arc::clone(chain),
        address,
        software: theirs.software.clone(),
        version,
    };
    let judge = |theirs: &Hello, version| admit(&identity(theirs, version));
    let (theirs, version) = hello::exchange(&mut halves, &ours, &certificate, expect, deadline, &judge)?;
    let SplitChannel { channel, reading, writing } = halves;
    let identity = identity(&theirs, version);
    let requests_max = theirs.requests_max.min(us.settings.requests_max);
    let bytes_max = theirs.bytes_max.min(us.settings.bytes_max);
    Ok(Ready { peer: new_peer(us, identity, channel, requests_max, bytes_max), reading, writing })
}

fn new_peer<B: Buffer>(
    us: &LocalNode,
    identity: PeerIdentity,
    channel: Arc<Channel>,
    requests_max: u32,
    bytes_max: u64,
) -> Peer<B> {
    Peer::new(identity, us.settings, channel, requests_max, bytes_max)
}

impl<B: Buffer> Ready<B> {
    /// The handle. Its messages are sent once the loop runs.
    #[must_use]
    pub fn peer(&self) -> &Peer<B> {
        &self.peer
    }

    /// Serves the connection in this thread until it ends. Returns why it ended.
    pub fn run<H: Handler<Buffer = B>>(self, handler: &H) -> Arc<LinkError> {
        let Self { peer, mut reading, writing } = self;
        let inner = Arc::clone(&peer.0);
        let sending = std::thread::Builder::new()
            .name(format!("send-{}", peer.identity().name.node))
            .stack_size(STACK_BYTES)
            .spawn(move || send_all(&inner, writing));
        let sending = match sending {
            Ok(thread) => thread,
            Err(source) => {
                let end = peer.0.end(CloseCause::Io { what: "starting a thread", source });
                peer.0.cut();
                return end;
            }
        };
        // Even after a panic of the handler: no thread may wait for answers on a connection without a reader.
        let guard = Guard(&peer.0);
        handler.connected(&peer);
        let why = match read_all(&mut reading, &peer, handler) {
            Ok(never) => match never {},
            Err(why) => why,
        };
        let settings = peer.0.settings;
        let end = if matches!(why, CloseCause::Nonsense(_) | CloseCause::Misbehaved(_)) {
            peer.0.last_words(&why.to_string());
            let end = peer.0.end(why);
            // Closing with unread input would reset the connection and lose the goodbye.
            reading.discard(settings.close_time);
            end
        } else {
            peer.0.end(why)
        };
        drop(guard);
        if sending.join().is_err() {
            tracing::error!(peer = %peer.identity(), "the sending thread had panicked");
        }
        match &end.why {
            CloseCause::Nonsense(_) | CloseCause::Misbehaved(_) => {
                tracing::warn!(peer = %peer.identity(), reason = %end.why, "connection cut")
            }
            why if why.is_ordinary() => tracing::debug!(peer = %peer.identity(), reason = %why, "connection ended"),
            why => tracing::info!(peer = %peer.identity(), reason = %why, "connection lost"),
        }
        handler.ended(&peer, &end);
        end
    }
}

struct Guard<'a, B>(&'a Inner<B>);

impl<B> Drop for Guard<'_, B> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.end(CloseCause::ClosedHere("the handler panicked".into()));
        }
        self.0.reader_done();
    }
}

/// The sending thread.
fn send_all<B>(inner: &Inner<B>, mut writing: SendHalf) {
    let mut together = Vec::new();
    let failed = loop {
        let sent = match inner.next() {
            Next::Frame { header, outgoing, more } => {
                let (message, bulk) = outgoing.parts();
                together.extend(header.to_bytes());
                together.extend(message);
                if more && bulk.is_empty() && together.len() < TOGETHER_BYTES {
                    continue;
                }
                writing.send(&[&together, bulk])
            }
            Next::Alive => writing.send(&[&header_of(Kind::Alive, 0).to_bytes()]),
            Next::End(last_words) => {
                let reason = last_words.unwrap_or_default();
                let reason = hello::cut(&reason, GOODBYE_BYTES_MAX as usize).as_bytes();
                let header = header_of(Kind::Goodbye, u32::try_from(reason.len()).unwrap_or(0)).to_bytes();
                break writing.send(&[&together, &header, reason]).err();
            }
        };
        together.clear();
        // Memory for one long message is not kept forever.
        together.shrink_to(TOGETHER_BYTES);
        if let Err(why) = sent {
            break Some(why);
        }
    };
    if let Some(why) = failed {
        inner.end(why);
    } else {
        writing.end();
        inner.wait_for_reader();
    }
    inner.cut();
}

fn header_of(kind: Kind, message_len: u32) -> FrameHeader {
    FrameHeader { kind, request: 0, message_len, bulk_len: 0, answer_bulk_max: 0 }
}

/// Reads until the end.
fn read_all<H: Handler>(
    reading: &mut ReceiveHalf,
    peer: &Peer<H::Buffer>,
    handler: &H,
) -> Result<std::convert::Infallible, CloseCause> {
    let inner = &peer.0;
    let settings = inner.settings;
    loop {
        let began = Instant::now();
        while !reading.wait_for_more(LOOK.min(settings.silence_max))? {
            if let Some(end) = peer.ended() {
                return Err(CloseCause::ClosedHere(end.why.to_string()));
            }
            if began.elapsed() >= settings.silence_max {
                return Err(CloseCause::Silent(settings.silence_max));
            }
        }
        let deadline = Deadline::new("the rest of a frame", settings.frame_time);
        let mut bytes = [0; HEADER_BYTES];
        if !reading.fill(&mut bytes, deadline)? {
            return Err(CloseCause::BrokenOff);
        }
        let header = FrameHeader::from_bytes(&bytes)?;
        if header.kind == Kind::Request {
            inner.take_in(&header)?;
        }
        let mut frame = Frame { reading, peer, handler, header, deadline };
        match header.kind {
            Kind::Alive => {}
            Kind::Goodbye => {
                let message = frame.message()?;
                return Err(CloseCause::Goodbye(hello::printable(&message)));
            }
            Kind::Request => {
                let responder = Responder::new(Arc::clone(inner), &header);
                let (message, bulk) = frame.contents()?;
                handler.received(peer, Received::Request { message, bulk, responder });
            }
            Kind::OneWay => {
                let (message, bulk) = frame.contents()?;
                handler.received(peer, Received::OneWay { message, bulk });
            }
            Kind::Answer | Kind::Unanswered => frame.answer()?,
        }
    }
}

/// A frame whose header has arrived.
struct Frame<'a, H: Handler> {
    reading: &'a mut ReceiveHalf,
    peer: &'a Peer<H::Buffer>,
    handler: &'a H,
    header: FrameHeader,
    deadline: Deadline,
}

impl<H: Handler> Frame<'_, H> {
    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), CloseCause> {
        if bytes.is_empty() || self.reading.fill(bytes, self.deadline)? { Ok(()) } else { Err(CloseCause::BrokenOff) }
    }

    fn message(&mut self) -> Result<Vec<u8>, CloseCause> {
        let mut message = vec![0; self.header.message_len as usize];
        self.fill(&mut message)?;
        Ok(message)
    }

    fn contents(&mut self) -> Result<(Vec<u8>, Bulk<H::Buffer>), CloseCause> {
        let message = self.message()?;
        let bulk = self.bulk(&message, None)?;
        Ok((message, bulk))
    }

    fn bulk(&mut self, message: &[u8], into: Option<H::Buffer>) -> Result<Bulk<H::Buffer>, CloseCause> {
        let length = self.header.bulk_len as usize;
        if length == 0 {
            return Ok(Bulk::None);
        }
        let header = self.header;
        let arriving = IncomingHeader { header: &header, message };
        let buffer = into.or_else(|| self.handler.buffer(self.peer.identity(), &arriving));
        // The peer is not at fault for the time spent waiting for memory.
        let mibs = u32::try_from(length.div_ceil(1 << 20)).unwrap_or(u32::MAX);
        self.deadline = Deadline::new("the bulk of a frame", self.peer.0.settings.frame_time.saturating_mul(1 + mibs));
        if let Some(mut buffer) = buffer
            && let Some(room) = buffer.as_mut().get_mut(..length)
        {
            self.fill(room)?;
            return Ok(Bulk::Here { buffer, length });
        }
        let mut scratch = vec![0; SCRATCH_BYTES.min(length)];
        let mut left = length;
        while left > 0 {
            let piece = left.min(scratch.len());
            self.fill(&mut scratch[..piece])?;
            left -= piece;
        }
        Ok(Bulk::Dropped { length })
    }

    fn answer(&mut self) -> Result<(), CloseCause> {
        let FrameHeader { request, bulk_len, kind, .. } = self.header;
        let Some(waiting) = self.peer.0.take_waiting(request) else {
            // A closing side has already dropped its requests.
            if self.peer.ended().is_some() {
                return Err(CloseCause::ClosedHere("closing".into()));
            }
            return Err(CloseCause::Misbehaved(format!(
                "answered request {request}, which is not waiting for an answer"
            )));
        };
        let Waiting { answer_bulk_max, into, on_answer, .. } = waiting;
        let answer = if bulk_len > answer_bulk_max {
            Err(CloseCause::Misbehaved(format!(
                "answered request {request} with {bulk_len} bytes of bulk; {answer_bulk_max} were allowed"
            )))
        } else {
            self.message().and_then(|message| {
                let bulk = self.bulk(&message, into)?;
                Ok(Answer { message, bulk })
            })
        };
        match answer {
            Ok(_) if kind == Kind::Unanswered => on_answer(Err(CallError::Unanswered)),
            Ok(answer) => on_answer(Ok(answer)),
            Err(why) => {
                if matches!(why, CloseCause::Misbehaved(_)) {
                    self.peer.0.last_words(&why.to_string());
                }
                let end = self.peer.0.end(why);
                on_answer(Err(CallError::Ended(Arc::clone(&end))));
                return Err(CloseCause::ClosedHere(end.why.to_string()));
            }
        }
        Ok(())
    }
}
