//! One connection's encryption, without its socket.
//!
//! The thread that receives calls [`Channel::open`] with what has come, and gets what it says. Whoever sends calls
//! [`Channel::seal`], and sends what it gets, in the order of the calls. Both may be called from different threads: a lock is
//! held while bytes are encrypted or decrypted, never while somebody waits for a socket.

use std::io::{ErrorKind, IoSlice, Read, Write};
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};

use crate::ChannelError;

/// The most data in a record (RFC 8446, section 5.1).
const RECORD_BYTES: usize = 16 << 10;
/// What a record has beside its data: the header, the type and the tag (RFC 8446, section 5.2), or in TLS 1.2 the header,
/// the nonce and the tag.
const RECORD_OVERHEAD_BYTES: usize = 29;

/// What has been received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Opened {
    /// So many bytes are in the buffer; 0: more must be received first.
    Bytes(usize),
    /// The other side has ended the connection, and has said so.
    Ended,
}

/// `parts` in pieces that go in a record each.
fn pieces<'a>(parts: &'a [IoSlice<'_>]) -> impl Iterator<Item = &'a [u8]> {
    parts.iter().flat_map(|part| part.chunks(RECORD_BYTES))
}

/// Appends to `out` all that is to be sent; after an error, what tells the other side why.
fn take(connection: &mut Connection, out: &mut Vec<u8>) -> Result<(), ChannelError> {
    while connection.wants_write() {
        connection.write_tls(out)?;
    }
    Ok(())
}

/// The encryption of one connection. See the module.
pub struct Channel {
    connection: Mutex<Connection>,
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Channel(..)")
    }
}

impl Channel {
    /// The side of a server.
    ///
    /// # Errors
    /// The configuration does not work.
    pub fn server(config: Arc<ServerConfig>) -> Result<Self, ChannelError> {
        Ok(Self::new(ServerConnection::new(config)?.into()))
    }

    /// The side of a client, which expects the certificate of `host`: a name or an address.
    ///
    /// # Errors
    /// `host` is neither.
    pub fn client(config: Arc<ClientConfig>, host: &str) -> Result<Self, ChannelError> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| rustls::Error::General(format!("`{host}` is neither a host name nor an address")))?;
        Ok(Self::new(ClientConnection::new(config, name)?.into()))
    }

    fn new(mut connection: Connection) -> Self {
        // The owner bounds what it wants to send.
        connection.set_buffer_limit(None);
        Self { connection: Mutex::new(connection) }
    }

    /// Whether the two sides still agree on keys. Until then nothing else can be sent or received.
    #[must_use]
    pub fn is_handshaking(&self) -> bool {
        self.connection.lock().is_handshaking()
    }

    /// Whether TLS itself has something to send: call [`Channel::seal`].
    #[must_use]
    pub fn has_to_send(&self) -> bool {
        self.connection.lock().wants_write()
    }

    /// Whether decrypted bytes are here that [`Channel::open`] has not given yet. They need no more input.
    #[must_use]
    pub fn has_opened(&self) -> bool {
        matches!(self.connection.lock().process_new_packets(), Ok(state) if state.plaintext_bytes_to_read() > 0)
    }

    /// Decrypts what was `received`, and fills `into` as far as that goes. It takes the bytes that it needs from the
    /// beginning of `received`; while some are left, `into` was too small.
    ///
    /// # Errors
    /// The connection cannot go on. What [`Channel::seal`] gives then tells the other side why.
    pub fn open(&self, received: &mut &[u8], into: &mut [u8]) -> Result<Opened, ChannelError> {
        let mut connection = self.connection.lock();
        let mut filled = 0;
        loop {
            if filled < into.len() {
                match connection.reader().read(&mut into[filled..]) {
                    Ok(0) if filled > 0 => return Ok(Opened::Bytes(filled)),
                    Ok(0) => return Ok(Opened::Ended),
                    Ok(count) => {
                        filled += count;
                        continue;
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error.into()),
                }
            }
            if received.is_empty() || (filled == into.len() && !connection.is_handshaking()) {
                return Ok(Opened::Bytes(filled));
            }
            connection.read_tls(received)?;
            connection.process_new_packets()?;
        }
    }

    /// Encrypts `parts`, and appends to `out` what must be sent: first what TLS itself has to send.
    ///
    /// # Errors
    /// The connection cannot go on.
    pub fn seal(&self, parts: &[IoSlice<'_>], out: &mut Vec<u8>) -> Result<(), ChannelError> {
        let mut connection = self.connection.lock();
        out.reserve(pieces(parts).map(|piece| piece.len() + RECORD_OVERHEAD_BYTES).sum());
        for piece in pieces(parts) {
            let written = connection.writer().write_all(piece);
            // Each record is copied while it is in the processor's nearest cache.
            take(&mut connection, out)?;
            written?;
        }
        take(&mut connection, out)
    }

    /// Encrypts `parts`, and writes what must be sent to `out`: first what TLS itself has to send. Returns whether `out` has
    /// taken everything. What it would not take without waiting comes first in the next call of this or of [`Channel::seal`].
    /// So that it does not grow, call this for further parts only when everything is taken.
    ///
    /// # Errors
    /// The connection cannot go on, or `out` fails.
    pub fn seal_to(&self, parts: &[IoSlice<'_>], out: &mut impl Write) -> Result<bool, ChannelError> {
        let mut connection = self.connection.lock();
        for piece in pieces(parts) {
            connection.writer().write_all(piece)?;
        }
        while connection.wants_write() {
            match connection.write_tls(out) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    /// Says that this side ends the connection. Appends to `out` what must be sent.
    ///
    /// # Errors
    /// The connection cannot go on.
    pub fn end(&self, out: &mut Vec<u8>) -> Result<(), ChannelError> {
        self.connection.lock().send_close_notify();
        self.seal(&[], out)
    }
}
