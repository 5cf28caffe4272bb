//! Bytes over TLS, with one half for the reading thread and one for the sending thread.
//!
//! The socket does not block; a thread that must wait polls. rustls has one connection object for both directions. It
//! is locked only while bytes are encrypted, decrypted or passed to the kernel, never while one side waits for the
//! other.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};

use crate::ShownChain;
use crate::error::CloseCause;

/// Bytes received by one system call. Eight records of the maximum length fit.
const RECEIVE_BYTES: usize = 136 << 10;
/// Bytes encrypted and passed to the kernel at a time.
const SEND_BYTES: usize = 128 << 10;
/// A record's own header, and the longest possible rest (RFC 8446, 5.2).
const RECORD_HEADER: usize = 5;
const RECORD_MAX: usize = (16 << 10) + 256;
const RECORD_KINDS: std::ops::RangeInclusive<u8> = 20..=23;
/// A peer that takes less than this within the send time is too slow.
const PACE_BYTES: usize = 64 << 10;

/// The parts that both halves share.
pub(crate) struct Channel {
    socket: TcpStream,
    tls: Mutex<Connection>,
}

/// What the value of a connection is derived for (RFC 8446, section 7.5).
const BINDING_LABEL: &[u8] = b"EXPORTER-weir-admin-certificate-1";

impl Channel {
    /// A value that both ends of this connection know, and nobody else.
    pub(crate) fn binding(&self) -> Result<[u8; 32], CloseCause> {
        self.tls.lock().export_keying_material([0; 32], BINDING_LABEL, None).map_err(CloseCause::of_tls)
    }

    /// Ends both directions at once, from any thread.
    pub(crate) fn cut(&self) {
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    /// Whether the peer has closed the connection, as far as the kernel knows, even if that end was not read yet.
    pub(crate) fn has_hung_up(&self) -> bool {
        wait(&self.socket, PollFlags::RDHUP, Duration::ZERO).unwrap_or(true)
    }
}

/// The reading half.
pub(crate) struct ReceiveHalf {
    channel: Arc<Channel>,
    raw: Box<[u8]>,
    start: usize,
    end: usize,
}

/// The sending half.
pub(crate) struct SendHalf {
    channel: Arc<Channel>,
    /// How long the peer may take for [`PACE_BYTES`].
    patience: Duration,
}

/// Both halves, after the handshake.
pub(crate) struct SplitChannel {
    pub(crate) channel: Arc<Channel>,
    pub(crate) reading: ReceiveHalf,
    pub(crate) writing: SendHalf,
}

/// The result of the handshake.
pub(crate) struct HandshakeResult {
    /// The protocol on which both sides agreed.
    pub(crate) protocol: Option<Vec<u8>>,
    /// The verified certificate of the peer.
    pub(crate) certificate: Option<rustls::pki_types::CertificateDer<'static>>,
    /// That certificate with those that came along with it.
    pub(crate) chain: Option<Arc<ShownChain>>,
}

/// Performs the TLS handshake over `socket` as the connecting side.
pub(crate) fn connect(
    socket: TcpStream,
    config: Arc<ClientConfig>,
    deadline: Deadline,
    patience: Duration,
) -> Result<(SplitChannel, HandshakeResult), CloseCause> {
    // The verifier checks clusters and nodes, not host names.
    let name = rustls::pki_types::ServerName::IpAddress(std::net::Ipv4Addr::UNSPECIFIED.into());
    let tls = ClientConnection::new(config, name).map_err(CloseCause::of_tls)?;
    shake_hands(socket, tls.into(), deadline, patience)
}

/// Performs the TLS handshake over `socket` as the accepting side.
pub(crate) fn accept(
    socket: TcpStream,
    config: Arc<ServerConfig>,
    deadline: Deadline,
    patience: Duration,
) -> Result<(SplitChannel, HandshakeResult), CloseCause> {
    let tls = ServerConnection::new(config).map_err(CloseCause::of_tls)?;
    shake_hands(socket, tls.into(), deadline, patience)
}

fn shake_hands(
    socket: TcpStream,
    mut tls: Connection,
    deadline: Deadline,
    patience: Duration,
) -> Result<(SplitChannel, HandshakeResult), CloseCause> {
    let setup = || {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)
    };
    setup().map_err(|source| CloseCause::Io { what: "setting up the socket", source })?;
    // The caller bounds the outgoing bytes.
    tls.set_buffer_limit(None);
    let channel = Arc::new(Channel { socket, tls: Mutex::new(tls) });
    let raw = vec![0; RECEIVE_BYTES].into_boxed_slice();
    let mut reading = ReceiveHalf { channel: Arc::clone(&channel), raw, start: 0, end: 0 };
    let writing = SendHalf { channel: Arc::clone(&channel), patience };
    loop {
        writing.flush_before(deadline)?;
        if !channel.tls.lock().is_handshaking() {
            break;
        }
        if let Err(why) = reading.feed_more(deadline) {
            // Send the alert with the reason.
            let _ = writing.flush_before(deadline);
            return Err(why);
        }
    }
    let shown = {
        let tls = channel.tls.lock();
        let chain = tls.peer_certificates().unwrap_or_default();
        let certificate = chain.first().map(|certificate| certificate.clone().into_owned());
        let shown = chain.split_first().map(|(certificate, others)| Arc::new(ShownChain::of(certificate, others)));
        HandshakeResult { protocol: tls.alpn_protocol().map(<[u8]>::to_vec), certificate, chain: shown }
    };
    Ok((SplitChannel { channel, reading, writing }, shown))
}

/// The time limit of a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    what: &'static str,
    within: Duration,
    until: Instant,
}

impl Deadline {
    pub(crate) fn new(what: &'static str, within: Duration) -> Self {
        Self { what, within, until: Instant::now() + within }
    }

    fn over(&self) -> CloseCause {
        CloseCause::Slow { what: self.what, within: self.within }
    }

    fn left(&self) -> Result<Duration, CloseCause> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(self.over()) } else { Ok(left) }
    }
}

/// Waits up to `time` until the socket is ready for `events`. Returns whether it is.
fn wait(socket: &TcpStream, events: PollFlags, time: Duration) -> Result<bool, CloseCause> {
    let time =
        Timespec { tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX), tv_nsec: time.subsec_nanos().into() };
    match poll(&mut [PollFd::new(socket, events)], Some(&time)) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(CloseCause::Io { what: "waiting for the socket", source: error.into() }),
    }
}

fn is_reset(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected, UnexpectedEof};
    matches!(kind, BrokenPipe | ConnectionAborted | ConnectionReset | NotConnected | UnexpectedEof)
}

fn failed(what: &'static str, source: io::Error) -> CloseCause {
    if is_reset(source.kind()) { CloseCause::BrokenOff } else { CloseCause::Io { what, source } }
}

impl ReceiveHalf {
    /// Waits up to `time` for the first byte of the next frame. Returns false if none came.
    pub(crate) fn wait_for_more(&mut self, time: Duration) -> Result<bool, CloseCause> {
        Ok(self.start < self.end || self.has_plaintext()? || wait(&self.channel.socket, PollFlags::IN, time)?)
    }

    fn has_plaintext(&self) -> Result<bool, CloseCause> {
        let mut tls = self.channel.tls.lock();
        let state = tls.process_new_packets().map_err(CloseCause::of_tls)?;
        Ok(state.plaintext_bytes_to_read() > 0)
    }

    /// Fills all of `bytes`. Returns false if the peer ended the stream properly before the first byte.
    pub(crate) fn fill(&mut self, bytes: &mut [u8], deadline: Deadline) -> Result<bool, CloseCause> {
        let mut done = 0;
        while done < bytes.len() {
            let came = self.channel.tls.lock().reader().read(&mut bytes[done..]);
            match came {
                Ok(0) if done == 0 => return Ok(false),
                Ok(0) => return Err(CloseCause::BrokenOff),
                Ok(n) => done += n,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.feed_more(deadline)?,
                Err(error) => return Err(failed("receiving", error)),
            }
        }
        Ok(true)
    }

    /// Reads at least one byte, up to all of `bytes`. Returns 0 if the peer ended the stream properly.
    pub(crate) fn read_some(&mut self, bytes: &mut [u8], deadline: Deadline) -> Result<usize, CloseCause> {
        if bytes.is_empty() {
            return Ok(0);
        }
        loop {
            let came = self.channel.tls.lock().reader().read(bytes);
            match came {
                Ok(n) => return Ok(n),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.feed_more(deadline)?,
                Err(error) => return Err(failed("receiving", error)),
            }
        }
    }

    /// Passes the next record to rustls, and waits for it until `deadline`.
    fn feed_more(&mut self, deadline: Deadline) -> Result<(), CloseCause> {
        while !self.has_record() {
            if self.start > 0 {
                self.raw.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, self.end - self.start);
            }
            match (&self.channel.socket).read(&mut self.raw[self.end..]) {
                Ok(0) => return Err(CloseCause::BrokenOff),
                Ok(n) => self.end += n,
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted => {}
                    io::ErrorKind::WouldBlock => {
                        wait(&self.channel.socket, PollFlags::IN, deadline.left()?)?;
                    }
                    _ => return Err(failed("receiving", error)),
                },
            }
            // Even if the bytes arrive slowly.
            deadline.left()?;
        }
        let record = self.record_len();
        let mut bytes = &self.raw[self.start..self.start + record];
        self.start += record;
        let mut tls = self.channel.tls.lock();
        while !bytes.is_empty() {
            tls.read_tls(&mut bytes).map_err(|error| failed("receiving", error))?;
        }
        tls.process_new_packets().map(drop).map_err(CloseCause::of_tls)
    }

    /// Reads and discards bytes until the peer ends its stream or `time` is over.
    pub(crate) fn discard(&mut self, time: Duration) {
        let deadline = Deadline::new("closing", time);
        while let Ok(left) = deadline.left() {
            match (&self.channel.socket).read(&mut self.raw) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if wait(&self.channel.socket, PollFlags::IN, left).is_err() {
                        return;
                    }
                }
                Err(_) => return,
            }
        }
    }

    /// Length of the arriving record with its header. Returns at once for an impossible record, which rustls refuses.
    fn record_len(&self) -> usize {
        let here = self.end - self.start;
        match &self.raw[self.start..self.end] {
            [kind, ..] if !RECORD_KINDS.contains(kind) => here,
            [_, _, _, high, low, ..] => match usize::from(u16::from_be_bytes([*high, *low])) {
                length if length > RECORD_MAX => here,
                length => RECORD_HEADER + length,
            },
            _ => RECORD_HEADER,
        }
    }

    fn has_record(&self) -> bool {
        self.start < self.end && self.end - self.start >= self.record_len()
    }
}

impl SendHalf {
    /// Sends all of `parts` in order, and waits until the kernel has taken them.
    pub(crate) fn send(&mut self, parts: &[&[u8]]) -> Result<(), CloseCause> {
        let mut room = SEND_BYTES;
        for part in parts {
            let mut rest = *part;
            while !rest.is_empty() {
                let (piece, behind) = rest.split_at(rest.len().min(room));
                let took = self.channel.tls.lock().writer().write_all(piece);
                took.map_err(|error| failed("sending", error))?;
                rest = behind;
                room -= piece.len();
                if room == 0 {
                    self.flush()?;
                    room = SEND_BYTES;
                }
            }
        }
        self.flush()
    }

    /// Sets how long the peer may take for [`PACE_BYTES`].
    pub(crate) fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// Announces the end of this direction, and closes it.
    pub(crate) fn end(&mut self) {
        self.channel.tls.lock().send_close_notify();
        let _ = self.flush();
        let _ = self.channel.socket.shutdown(Shutdown::Write);
    }

    fn flush(&self) -> Result<(), CloseCause> {
        let mut sent = 0;
        let mut deadline = Deadline::new("taking what is sent", self.patience);
        loop {
            match self.push()? {
                PushResult::All => return Ok(()),
                PushResult::Some(n) => sent += n,
                PushResult::Nothing => {
                    wait(&self.channel.socket, PollFlags::OUT, deadline.left()?)?;
                }
            }
            if sent >= PACE_BYTES {
                sent = 0;
                deadline = Deadline::new("taking what is sent", self.patience);
            }
        }
    }

    fn flush_before(&self, deadline: Deadline) -> Result<(), CloseCause> {
        loop {
            match self.push()? {
                PushResult::All => return Ok(()),
                PushResult::Some(_) => {}
                PushResult::Nothing => {
                    wait(&self.channel.socket, PollFlags::OUT, deadline.left()?)?;
                }
            }
        }
    }

    fn push(&self) -> Result<PushResult, CloseCause> {
        let mut tls = self.channel.tls.lock();
        if !tls.wants_write() {
            return Ok(PushResult::All);
        }
        match tls.write_tls(&mut &self.channel.socket) {
            Ok(n) => Ok(PushResult::Some(n)),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock => Ok(PushResult::Nothing),
                io::ErrorKind::Interrupted => Ok(PushResult::Some(0)),
                _ => Err(failed("sending", error)),
            },
        }
    }
}

enum PushResult {
    All,
    Some(usize),
    Nothing,
}
