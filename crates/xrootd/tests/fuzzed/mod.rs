//! Whole sessions made of arbitrary bytes: broken, hostile or strange input from clients. The same bytes always give
//! the same session.
//!
//! The bytes are choices: the connection, the request with its handle, offset and path, the changes to the frame, how
//! it is split on the way, and whether answers are read. Most requests are valid, so that sessions reach open files
//! and checkpoints. Sessions work below [`TOP`] only; everything else must stay unchanged.
//!
//! Users are this crate's fuzz target (`fuzz/fuzz_targets/sessions.rs`, guided by coverage) and, with random bytes, a
//! test of the real binary (`crates/weir/tests/sessions.rs`).
#![allow(dead_code, clippy::unwrap_used, clippy::panic, clippy::cast_possible_truncation)] // a test may fail this way; not every user uses everything

mod choices;
mod frames;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

pub use choices::Choices;
use frames::Frame;

/// The folder that sessions work in. It exists before.
pub const TOP: &str = "/fuzz";
/// The folder that sessions may not change. Requests that name it are not sent.
pub const FIXED: &str = "/fixed";
const PEERS: usize = 3;
const STEPS_MAX: usize = 250;
/// How long to wait for an answer that the session needs.
const ANSWER: Duration = Duration::from_millis(150);
/// The longest valid body of an answer.
const BODY_MAX: usize = 64 << 20;

/// The totals of a session.
#[derive(Clone, Copy, Default, Debug)]
pub struct Played {
    /// Frames sent, completely or in part.
    pub frames: u64,
    /// Successful answers.
    pub good: u64,
    /// Errors.
    pub refused: u64,
    /// Files opened.
    pub opened: u64,
    /// Connections that the server has ended.
    pub ended: u64,
}

impl Played {
    /// Adds the totals of another session.
    pub fn add(&mut self, other: Played) {
        self.frames += other.frames;
        self.good += other.good;
        self.refused += other.refused;
        self.opened += other.opened;
        self.ended += other.ended;
    }
}

/// Plays the session that `bytes` describe. Panics on an invalid answer.
pub fn play(address: SocketAddr, bytes: &[u8], most: Duration) -> Played {
    let mut choices = Choices::new(bytes);
    let mut session = Session { address, peers: Vec::new(), played: Played::default() };
    let end = Instant::now() + most;
    for _ in 0..STEPS_MAX {
        if choices.is_empty() || Instant::now() > end {
            break;
        }
        session.step(&mut choices);
    }
    session.played
}

/// A connection.
struct Peer {
    socket: TcpStream,
    number: u16,
    /// The session id of the login.
    id: [u8; 16],
    handles: Vec<[u8; 4]>,
    /// Received data that is not yet a complete answer.
    input: Vec<u8>,
    ended: bool,
}

struct Session {
    address: SocketAddr,
    peers: Vec<Peer>,
    played: Played,
}

impl Session {
    fn step(&mut self, c: &mut Choices<'_>) {
        if self.peers.is_empty() || (self.peers.len() < PEERS && c.one_in(24)) {
            self.connect(c);
            return;
        }
        let at = c.below(self.peers.len());
        match c.below(80) {
            0 => {
                // Disconnect, whatever is in progress.
                let peer = self.peers.swap_remove(at);
                if c.one_in(2) {
                    let _ = peer.socket.shutdown(Shutdown::Both);
                }
            }
            1 => drop(self.peers[at].socket.shutdown(Shutdown::Write)),
            2 => self.send_raw(at, c.bytes(64)),
            3 => std::thread::sleep(Duration::from_millis(c.below(4) as u64)),
            4..=9 => self.take_all(at),
            10 => self.half_frame(at, c),
            11 | 12 => self.pipeline(at, c),
            _ => self.one_frame(at, c),
        }
        if self.peers.get(at).is_some_and(|peer| peer.ended) {
            self.played.ended += 1;
            self.peers.swap_remove(at);
        }
    }

    fn connect(&mut self, c: &mut Choices<'_>) {
        let Ok(socket) = TcpStream::connect_timeout(&self.address, Duration::from_secs(5)) else { return };
        let _ = socket.set_nodelay(true);
        let _ = socket.set_write_timeout(Some(ANSWER));
        let mut peer = Peer { socket, number: 0, id: [0; 16], handles: Vec::new(), input: Vec::new(), ended: false };
        if c.one_in(30) {
            peer.send(c.bytes(40)); // not a handshake
        } else {
            peer.send(&frames::handshake());
            peer.skip_handshake();
        }
        self.peers.push(peer);
        let at = self.peers.len() - 1;
        if c.one_in(20) {
            return; // no login
        }
        let other = self.peers[c.below(self.peers.len())].id;
        let (frame, is_login) = if c.one_in(12) { (frames::bind(other), false) } else { (frames::login(c), true) };
        let body = self.ask(at, &frame);
        if let (true, Some(id)) = (is_login, body.as_deref().and_then(|body| body.first_chunk())) {
            self.peers[at].id = *id;
        }
    }

    /// A handle, usually of this connection.
    fn handle(&self, at: usize, c: &mut Choices<'_>) -> [u8; 4] {
        let from = if c.one_in(16) { c.below(self.peers.len()) } else { at };
        let handles = &self.peers[from].handles;
        match handles.len() {
            _ if c.one_in(24) => c.array(),
            0 => [0; 4],
            n => handles[c.below(n)],
        }
    }

    fn one_frame(&mut self, at: usize, c: &mut Choices<'_>) {
        let handle = self.handle(at, c);
        let mut frame = frames::any(c, handle, self.peers[at].id, self.address.port());
        let changed = frame.change(c);
        if frame.names(FIXED) {
            return;
        }
        if frame.opens() && !changed {
            let body = self.ask(at, &frame);
            if let Some(handle) = body.as_deref().and_then(|body| body.first_chunk())
                && let Some(peer) = self.peers.get_mut(at)
            {
                peer.handles.push(*handle);
                self.played.opened += 1;
            }
            return;
        }
        self.send_cut(at, &frame, c);
        if c.one_in(2) {
            self.take_some(at);
        }
    }

    /// Sends a part of a frame, then something else or nothing.
    fn half_frame(&mut self, at: usize, c: &mut Choices<'_>) {
        let handle = self.handle(at, c);
        let frame = frames::any(c, handle, self.peers[at].id, self.address.port());
        if frame.names(FIXED) {
            return;
        }
        let bytes = frame.bytes(self.peers[at].next());
        let part = c.below(bytes.len());
        self.send_raw(at, &bytes[..part]);
    }

    /// Sends the same request many times without reading answers.
    fn pipeline(&mut self, at: usize, c: &mut Choices<'_>) {
        let handle = self.handle(at, c);
        let frame = frames::any(c, handle, self.peers[at].id, self.address.port());
        if frame.names(FIXED) || frame.opens() {
            return;
        }
        let count = 1 << c.below(8);
        let mut all = Vec::new();
        for _ in 0..count {
            let bytes = frame.bytes(self.peers[at].next());
            if all.len() + bytes.len() > 1 << 20 {
                break;
            }
            all.extend_from_slice(&bytes);
        }
        self.played.frames += count;
        self.send_raw(at, &all);
    }

    fn send_raw(&mut self, at: usize, bytes: &[u8]) {
        if bytes.windows(FIXED.len()).any(|window| window == FIXED.as_bytes()) {
            return;
        }
        self.played.frames += 1;
        self.peers[at].send(bytes);
    }

    /// Sends a frame whole, in two parts, or in small parts.
    fn send_cut(&mut self, at: usize, frame: &Frame, c: &mut Choices<'_>) {
        self.played.frames += 1;
        let peer = &mut self.peers[at];
        let bytes = frame.bytes(peer.next());
        match c.below(8) {
            0 => {
                let (one, two) = bytes.split_at(c.below(bytes.len()));
                peer.send(one);
                std::thread::sleep(Duration::from_millis(1));
                peer.send(two);
            }
            1 => bytes.chunks(bytes.len() / 30 + 1).for_each(|crumb| peer.send(crumb)),
            _ => peer.send(&bytes),
        }
    }

    /// Sends a frame and waits for its answer. Returns the body if it was successful.
    fn ask(&mut self, at: usize, frame: &Frame) -> Option<Vec<u8>> {
        self.played.frames += 1;
        let peer = &mut self.peers[at];
        let number = peer.next();
        peer.send(&frame.bytes(number));
        let end = Instant::now() + ANSWER;
        loop {
            while let Some((stream, status, body)) = peer.answer() {
                count(&mut self.played, status);
                if stream == number && status != frames::OKSOFAR {
                    return (status == frames::OK).then_some(body);
                }
            }
            if peer.ended || !peer.receive(end) {
                return None;
            }
        }
    }

    /// Takes the answers that have already arrived.
    fn take_some(&mut self, at: usize) {
        let peer = &mut self.peers[at];
        if peer.receive(Instant::now() + Duration::from_millis(2)) {
            while let Some((_, status, _)) = peer.answer() {
                count(&mut self.played, status);
            }
        }
    }

    /// Takes answers until none arrives for a moment.
    fn take_all(&mut self, at: usize) {
        let end = Instant::now() + ANSWER;
        let peer = &mut self.peers[at];
        while peer.receive(end.min(Instant::now() + Duration::from_millis(10))) {
            while let Some((_, status, _)) = peer.answer() {
                count(&mut self.played, status);
            }
        }
    }
}

fn count(played: &mut Played, status: u16) {
    match status {
        frames::ERROR => played.refused += 1,
        _ => played.good += 1,
    }
}

impl Peer {
    fn next(&mut self) -> u16 {
        self.number = self.number.wrapping_add(1);
        self.number
    }

    fn send(&mut self, bytes: &[u8]) {
        match self.socket.write_all(bytes) {
            Ok(()) => {}
            // The server reads nothing because its answers are not read, which is one of the cases to test.
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => self.ended = true,
        }
    }

    fn skip_handshake(&mut self) {
        let end = Instant::now() + ANSWER;
        while self.input.len() < frames::HANDSHAKE_REPLY && self.receive(end) {}
        if self.input.len() >= frames::HANDSHAKE_REPLY {
            self.input.drain(..frames::HANDSHAKE_REPLY);
        } else {
            self.ended = true;
        }
    }

    /// Waits for more data until `end`. Returns whether any arrived.
    fn receive(&mut self, end: Instant) -> bool {
        let left = end.saturating_duration_since(Instant::now());
        if self.ended || left.is_zero() {
            return false;
        }
        let _ = self.socket.set_read_timeout(Some(left));
        let mut buffer = [0; 64 << 10];
        match self.socket.read(&mut buffer) {
            Ok(0) => {
                self.ended = true;
                false
            }
            Ok(n) => {
                self.input.extend_from_slice(&buffer[..n]);
                true
            }
            Err(error) => {
                let patient =
                    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted);
                self.ended |= !patient;
                false
            }
        }
    }

    /// The next complete answer: stream, status and body. Anything else is an error of the server, whatever was sent.
    fn answer(&mut self) -> Option<(u16, u16, Vec<u8>)> {
        let header = self.input.first_chunk::<8>()?;
        let stream = u16::from_be_bytes([header[0], header[1]]);
        let status = u16::from_be_bytes([header[2], header[3]]);
        let mut len = u32::from_be_bytes([header[4], header[5], header[6], header[7]]) as usize;
        assert!(frames::is_status(status) && len <= BODY_MAX, "not an answer: {header:02x?}");
        if status == frames::STATUS {
            assert!(len >= 16, "a status of {len} bytes");
            let extra = self.input.get(20..24)?;
            len += u32::from_be_bytes(extra.try_into().unwrap()) as usize;
            assert!(len <= BODY_MAX, "a status that announces {len} bytes");
        }
        if self.input.len() < 8 + len {
            return None;
        }
        let body = self.input[8..8 + len].to_vec();
        self.input.drain(..8 + len);
        assert!(status != frames::ERROR || body.len() > 5, "an error without words: {body:?}");
        Some((stream, status, body))
    }
}
