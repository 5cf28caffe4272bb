//! TLS on one connection. The session reads from it as from its socket, and sends what it encrypts.

use std::io::{self, ErrorKind, IoSlice, Read as _};
use std::net::{IpAddr, TcpStream};

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use tls::{Channel, ChannelError, Opened, Trust};

/// The most encrypted bytes that are received at once. A record has up to 16 KiB.
const RECEIVED_LEN: usize = 64 << 10;
/// Room for all that they, and the part of a record that came before, can hold.
const REST_LEN: usize = RECEIVED_LEN + (64 << 10);

/// TLS on one connection.
#[derive(Debug)]
pub(crate) struct Sealed {
    channel: Channel,
    received: Buffer,
    /// Decrypted bytes that had no room in the memory of the last reader. So whoever waits for the socket knows that no
    /// complete record is here.
    rest: Buffer,
    /// What the next reader gets after the rest.
    failed: Option<ChannelError>,
}

/// Bytes of which the first may have been taken.
#[derive(Debug, Default)]
struct Buffer {
    bytes: Vec<u8>,
    at: usize,
    end: usize,
}

impl Buffer {
    fn is_empty(&self) -> bool {
        self.at == self.end
    }

    /// All of its memory, when everything was taken.
    fn room(&mut self, len: usize) -> &mut [u8] {
        self.bytes.resize(len, 0);
        &mut self.bytes
    }

    fn filled(&mut self, count: usize) {
        (self.at, self.end) = (0, count);
    }
}

impl Sealed {
    /// Begins a connection with `host`, which must have a certificate of a trusted authority with this name or address.
    pub(crate) fn new(trust: &Trust, host: &str) -> Result<Self, ChannelError> {
        // The certificate has the address without the form for sockets of both versions of IP.
        let host = match host.parse::<IpAddr>() {
            Ok(address) => address.to_canonical().to_string(),
            Err(_) => host.to_owned(),
        };
        let channel = Channel::client(trust.config(), &host)?;
        Ok(Self { channel, received: Buffer::default(), rest: Buffer::default(), failed: None })
    }

    /// Whether the two sides still agree on keys.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.channel.is_handshaking()
    }

    /// Takes a part of the server's side of the agreement on keys.
    pub(crate) fn shake_hands(&mut self, received: &[u8]) -> Result<(), ChannelError> {
        let mut left = received;
        self.channel.open(&mut left, &mut [])?;
        // The server may have said more already.
        self.received.room(RECEIVED_LEN.max(left.len()))[..left.len()].copy_from_slice(left);
        self.received.filled(left.len());
        if !self.is_handshaking() {
            self.keep_rest();
        }
        Ok(())
    }

    /// Encrypts `parts`, and appends to `out` what must be sent.
    pub(crate) fn seal(&self, parts: &[IoSlice<'_>], out: &mut Vec<u8>) -> io::Result<()> {
        self.channel.seal(parts, out).map_err(invalid)
    }

    /// Whether the next read needs nothing from the socket.
    pub(crate) fn has_more(&self) -> bool {
        !self.rest.is_empty()
    }

    /// Receives once from the socket, if it must. [`ErrorKind::Interrupted`]: what came is not enough yet. 0: the end.
    pub(crate) fn read(&mut self, mut socket: &TcpStream, into: &mut [u8]) -> io::Result<usize> {
        if let Some(count) = self.open(into)? {
            return Ok(count);
        }
        let count = socket.read(self.received.room(RECEIVED_LEN))?;
        self.received.filled(count);
        if count == 0 {
            return Ok(0);
        }
        self.open(into)?.ok_or_else(|| ErrorKind::Interrupted.into())
    }

    /// Takes what the kernel has, without waiting. Returns whether the next read has a result. TLS itself also sends
    /// bytes, which are for no reader.
    pub(crate) fn look(&mut self, socket: &TcpStream) -> bool {
        if self.has_more() || self.failed.is_some() {
            return true;
        }
        if self.received.is_empty() {
            match recv(socket, self.received.room(RECEIVED_LEN), RecvFlags::DONTWAIT) {
                Ok((0, _)) => return true,
                Ok((count, _)) => self.received.filled(count),
                Err(Errno::AGAIN | Errno::INTR) => return false,
                Err(_) => return true,
            }
        }
        let ended = self.keep_rest();
        ended || self.has_more() || self.failed.is_some()
    }

    /// Decrypts what is here. `None`: more must be received first. Then nothing that was received is left.
    fn open(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        if self.has_more() {
            let rest = &self.rest.bytes[self.rest.at..self.rest.end];
            let count = rest.len().min(into.len());
            into[..count].copy_from_slice(&rest[..count]);
            self.rest.at += count;
            return Ok(Some(count));
        }
        if let Some(failed) = self.failed.take() {
            return Err(invalid(failed));
        }
        match self.decrypt(into).map_err(invalid)? {
            Opened::Bytes(0) => Ok(None),
            Opened::Bytes(count) => {
                if count == into.len() {
                    self.keep_rest();
                }
                Ok(Some(count))
            }
            Opened::Ended => Ok(Some(0)),
        }
    }

    fn decrypt(&mut self, into: &mut [u8]) -> Result<Opened, ChannelError> {
        let mut left = &self.received.bytes[self.received.at..self.received.end];
        let opened = self.channel.open(&mut left, into);
        self.received.at = self.received.end - left.len();
        opened
    }

    /// Decrypts all that is here and had no room. Returns whether the server has ended the connection.
    fn keep_rest(&mut self) -> bool {
        let mut rest = std::mem::take(&mut self.rest);
        let opened = self.decrypt(rest.room(REST_LEN));
        rest.filled(0);
        match opened {
            Ok(Opened::Bytes(count)) => rest.filled(count),
            Ok(Opened::Ended) => {}
            Err(ref error) => tracing::debug!(%error, "the connection cannot go on"),
        }
        self.rest = rest;
        match opened {
            Ok(Opened::Ended) => true,
            Ok(Opened::Bytes(_)) => false,
            Err(error) => {
                self.failed = Some(error);
                false
            }
        }
    }
}

fn invalid(error: ChannelError) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, error)
}
