//! Writes to the socket of a connection, encrypted or not: at once, as far as it takes bytes without waiting, or to the end.

use std::io::{self, ErrorKind, IoSlice, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::SendFlags;
use service::TransferSlot;
use tls::Channel;

use crate::config::PACE_BYTES;

/// So much is encrypted at a time: it stays in the cache until it is sent.
const SEALED_AT_ONCE: usize = 128 << 10;

/// Whether the socket's send timeout has passed since `began`.
fn is_over(socket: &TcpStream, began: Instant) -> bool {
    let time = socket.write_timeout().ok().flatten();
    // The kernel counts in ticks of several milliseconds.
    time.is_some_and(|time| began.elapsed() >= time.mul_f32(0.9))
}

/// Why not everything was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unsent {
    /// The connection has ended.
    Gone,
    /// The client took less than [`PACE_BYTES`] within the socket's send timeout.
    Slow,
}

/// What is sent together, and may be dropped as soon as it is sent or copied.
pub(crate) trait Parts {
    /// Appends the parts in their order.
    fn append_to<'a>(&'a self, slices: &mut Vec<IoSlice<'a>>);
}

/// The most parts of one call (`IOV_MAX`).
const PARTS_MAX: usize = 1024;

/// Writes what the socket takes without waiting. Returns what is left.
pub(crate) fn send_at_once<'a, 'b>(
    socket: &TcpStream,
    slices: &'b mut [IoSlice<'a>],
) -> Result<&'b mut [IoSlice<'a>], Unsent> {
    let mut rest = slices;
    while !rest.is_empty() {
        match AtOnce(socket).write_vectored(&rest[..rest.len().min(PARTS_MAX)]) {
            Ok(sent) => IoSlice::advance_slices(&mut rest, sent),
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(_) => {
                let _ = socket.shutdown(Shutdown::Both);
                return Err(Unsent::Gone);
            }
        }
    }
    Ok(rest)
}

/// The bytes of `parts`.
pub(crate) fn copied(parts: &[IoSlice<'_>]) -> Vec<u8> {
    parts.iter().map(|part| &**part).collect::<Vec<_>>().concat()
}

/// A socket that takes what it can take without waiting.
struct AtOnce<'a>(&'a TcpStream);

impl Write for AtOnce<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        loop {
            match rustix::net::sendmsg(self.0, parts, &mut rustix::net::SendAncillaryBuffer::default(), flags) {
                Err(Errno::INTR) => {}
                sent => return Ok(sent?),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// `parts` in groups that are encrypted together.
fn groups<'a>(parts: &'a [IoSlice<'_>]) -> Vec<Vec<IoSlice<'a>>> {
    let mut groups: Vec<Vec<IoSlice<'a>>> = Vec::new();
    let mut bytes = 0;
    for piece in parts.iter().flat_map(|part| part.chunks(SEALED_AT_ONCE)) {
        match groups.last_mut() {
            Some(group) if bytes < SEALED_AT_ONCE => group.push(IoSlice::new(piece)),
            _ => {
                groups.push(vec![IoSlice::new(piece)]);
                bytes = 0;
            }
        }
        bytes += piece.len();
    }
    groups
}

/// Encrypts `parts`, and writes what the socket takes without waiting. Returns whether it has taken everything.
fn seal_to(socket: &TcpStream, channel: &Channel, parts: &[IoSlice<'_>]) -> Result<bool, Unsent> {
    channel.seal_to(parts, &mut AtOnce(socket)).map_err(|_| {
        let _ = socket.shutdown(Shutdown::Both);
        Unsent::Gone
    })
}

/// Writes `pending`, then encrypts `parts` and writes them, some at a time, as long as the socket takes them without waiting.
/// Returns what is still to be sent, encrypted.
pub(crate) fn seal_and_send_at_once(
    socket: &TcpStream,
    channel: &Channel,
    pending: &[u8],
    parts: &[IoSlice<'_>],
) -> Result<Vec<u8>, Unsent> {
    let mut left =
        if pending.is_empty() { Vec::new() } else { copied(send_at_once(socket, &mut [IoSlice::new(pending)])?) };
    let mut groups = groups(parts).into_iter();
    while left.is_empty() {
        let Some(group) = groups.next() else { return Ok(left) };
        if !seal_to(socket, channel, &group)? {
            break;
        }
    }
    let rest: Vec<IoSlice<'_>> = groups.flatten().collect();
    channel.seal(&rest, &mut left).map_err(|_| Unsent::Gone)?;
    Ok(left)
}

/// Encrypts `parts` and writes them, some at a time.
pub(crate) fn send_sealed(
    socket: &TcpStream,
    channel: &Channel,
    parts: &[IoSlice<'_>],
    mut turn: Option<&mut TransferSlot<'_>>,
) -> Result<(), Unsent> {
    let mut left = Vec::new();
    for group in groups(parts) {
        if !seal_to(socket, channel, &group)? {
            channel.seal(&[], &mut left).map_err(|_| Unsent::Gone)?;
            send_all(socket, &left, &mut [], turn.as_deref_mut())?;
            left.clear();
        }
    }
    Ok(())
}

/// Writes `head` and `parts`: first in the transfer slot as far as the socket takes it, then blocking without the
/// slot.
pub(crate) fn send_all(
    socket: &TcpStream,
    head: &[u8],
    parts: &mut [IoSlice<'_>],
    turn: Option<&mut TransferSlot<'_>>,
) -> Result<(), Unsent> {
    let mut all: Vec<IoSlice<'_>> = Vec::with_capacity(parts.len() + 1);
    if !head.is_empty() {
        all.push(IoSlice::new(head));
    }
    all.extend(parts.iter().map(|part| IoSlice::new(part)));
    let mut rest: &mut [IoSlice<'_>] = &mut all;
    if let Some(turn) = turn {
        rest = send_at_once(socket, rest)?;
        if !rest.is_empty() {
            turn.end();
        }
    }
    while !rest.is_empty() {
        let batch = rest.len().min(PARTS_MAX);
        let wanted: usize = rest[..batch].iter().map(|part| part.len()).sum();
        let mut none = rustix::net::SendAncillaryBuffer::default();
        let began = Instant::now();
        let why = match rustix::net::sendmsg(socket, &rest[..batch], &mut none, SendFlags::NOSIGNAL) {
            // A blocking send returns early after the timeout, or because of a signal.
            Ok(n) if n < wanted.min(PACE_BYTES) && is_over(socket, began) => Unsent::Slow,
            Ok(n) => {
                IoSlice::advance_slices(&mut rest, n);
                continue;
            }
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN) => Unsent::Slow,
            Err(_) => Unsent::Gone,
        };
        let _ = socket.shutdown(Shutdown::Both);
        return Err(why);
    }
    Ok(())
}
