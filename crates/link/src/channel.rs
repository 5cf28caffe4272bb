//! Bytes over TLS, with one half for the thread that reads and one for the thread that writes.
//!
//! The socket does not block; who has to wait polls. rustls's connection is one object for both directions, so it is locked, but only while bytes
//! are encrypted, decrypted or handed to the kernel, never while a side waits for the other.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};

use crate::error::CloseCause;

/// Bytes that one system call brings. Eight records of the longest kind fit.
const RECEIVE_BYTES: usize = 136 << 10;
/// Bytes that are encrypted, and given to the kernel, at a time.
const SEND_BYTES: usize = 128 << 10;
/// A record's own header, and the most that can follow it (RFC 8446, 5.2).
const RECORD_HEADER: usize = 5;
const RECORD_MAX: usize = (16 << 10) + 256;
const RECORD_KINDS: std::ops::RangeInclusive<u8> = 20..=23;
/// Somebody who takes less than this in the time for sending is too slow.
const PACE_BYTES: usize = 64 << 10;

/// What both halves have.
pub(crate) struct Channel {
    socket: TcpStream,
    tls: Mutex<Connection>,
}

impl Channel {
    /// Ends both directions at once, from any thread.
    pub(crate) fn cut(&self) {
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    /// Whether the other side has closed it, as far as the kernel knows: also if nobody has read that far.
    pub(crate) fn has_hung_up(&self) -> bool {
        wait(&self.socket, PollFlags::RDHUP, Duration::ZERO).unwrap_or(true)
    }
}

/// The half that reads.
pub(crate) struct Reading {
    channel: Arc<Channel>,
    raw: Box<[u8]>,
    start: usize,
    end: usize,
}

/// The half that writes.
pub(crate) struct Writing {
    channel: Arc<Channel>,
    /// How long the peer may take for [`PACE_BYTES`].
    patience: Duration,
}

/// Both, after the handshake.
pub(crate) struct Halves {
    pub(crate) channel: Arc<Channel>,
    pub(crate) reading: Reading,
    pub(crate) writing: Writing,
}

/// What the handshake told.
pub(crate) struct Shown {
    /// The protocol that both agreed on.
    pub(crate) protocol: Option<Vec<u8>>,
    /// The certificate of the peer, which has been verified.
    pub(crate) certificate: Option<rustls::pki_types::CertificateDer<'static>>,
}

/// Connects TLS over `socket` as the one who has connected.
pub(crate) fn connect(
    socket: TcpStream,
    config: Arc<ClientConfig>,
    deadline: Deadline,
    patience: Duration,
) -> Result<(Halves, Shown), CloseCause> {
    // Hosts have no names here: the verifier looks at clusters and nodes.
    let name = rustls::pki_types::ServerName::IpAddress(std::net::Ipv4Addr::UNSPECIFIED.into());
    let tls = ClientConnection::new(config, name).map_err(CloseCause::of_tls)?;
    shake_hands(socket, tls.into(), deadline, patience)
}

/// Connects TLS over `socket` as the one who has accepted.
pub(crate) fn accept(
    socket: TcpStream,
    config: Arc<ServerConfig>,
    deadline: Deadline,
    patience: Duration,
) -> Result<(Halves, Shown), CloseCause> {
    let tls = ServerConnection::new(config).map_err(CloseCause::of_tls)?;
    shake_hands(socket, tls.into(), deadline, patience)
}

fn shake_hands(
    socket: TcpStream,
    mut tls: Connection,
    deadline: Deadline,
    patience: Duration,
) -> Result<(Halves, Shown), CloseCause> {
    let setup = || {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)
    };
    setup().map_err(|source| CloseCause::Io { what: "setting up the socket", source })?;
    // What we write is bounded by what we give to it.
    tls.set_buffer_limit(None);
    let channel = Arc::new(Channel { socket, tls: Mutex::new(tls) });
    let raw = vec![0; RECEIVE_BYTES].into_boxed_slice();
    let mut reading = Reading { channel: Arc::clone(&channel), raw, start: 0, end: 0 };
    let writing = Writing { channel: Arc::clone(&channel), patience };
    loop {
        writing.flush_before(deadline)?;
        if !channel.tls.lock().is_handshaking() {
            break;
        }
        if let Err(why) = reading.feed_more(deadline) {
            // The alert that says why.
            let _ = writing.flush_before(deadline);
            return Err(why);
        }
    }
    let shown = {
        let tls = channel.tls.lock();
        let certificate =
            tls.peer_certificates().and_then(<[_]>::first).map(|certificate| certificate.clone().into_owned());
        Shown { protocol: tls.alpn_protocol().map(<[u8]>::to_vec), certificate }
    };
    Ok((Halves { channel, reading, writing }, shown))
}

/// The time by which something has to be done.
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

/// Whether the socket is ready for `events` within `time`.
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

impl Reading {
    /// Waits up to `time` for the first byte of what comes next; `false`: none came.
    pub(crate) fn wait_for_more(&mut self, time: Duration) -> Result<bool, CloseCause> {
        Ok(self.start < self.end || self.has_plaintext()? || wait(&self.channel.socket, PollFlags::IN, time)?)
    }

    fn has_plaintext(&self) -> Result<bool, CloseCause> {
        let mut tls = self.channel.tls.lock();
        let state = tls.process_new_packets().map_err(CloseCause::of_tls)?;
        Ok(state.plaintext_bytes_to_read() > 0)
    }

    /// Fills all of `bytes`. `false`: the peer has ended the stream in an orderly way before the first of them.
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

    /// Gives rustls the next record, which is waited for until `deadline`.
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
            // However slowly it drips.
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

    /// Reads away what comes, until the peer ends its stream or `time` is over.
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

    /// Length of the record that begins to arrive, its header with it. What cannot be one is not waited for: rustls refuses it.
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

impl Writing {
    /// Sends all of `parts`, one behind the other, and waits until the kernel has taken them.
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

    /// Says that nothing more comes, and closes this direction.
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
                Pushed::All => return Ok(()),
                Pushed::Some(n) => sent += n,
                Pushed::Nothing => {
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
                Pushed::All => return Ok(()),
                Pushed::Some(_) => {}
                Pushed::Nothing => {
                    wait(&self.channel.socket, PollFlags::OUT, deadline.left()?)?;
                }
            }
        }
    }

    fn push(&self) -> Result<Pushed, CloseCause> {
        let mut tls = self.channel.tls.lock();
        if !tls.wants_write() {
            return Ok(Pushed::All);
        }
        match tls.write_tls(&mut &self.channel.socket) {
            Ok(n) => Ok(Pushed::Some(n)),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock => Ok(Pushed::Nothing),
                io::ErrorKind::Interrupted => Ok(Pushed::Some(0)),
                _ => Err(failed("sending", error)),
            },
        }
    }
}

enum Pushed {
    All,
    Some(usize),
    Nothing,
}
