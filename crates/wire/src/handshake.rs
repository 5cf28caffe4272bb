//! The first bytes of a connection.

use crate::WireError;

/// The length of the client's first message in bytes.
pub const HANDSHAKE_LEN: usize = 20;
/// The length of the server's answer in bytes.
pub const HANDSHAKE_REPLY_LEN: usize = 16;

/// The client's first 20 bytes. They only show that the client speaks XRootD. A `protocol` request may follow in
/// the same packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Handshake;

const BYTES: [u8; HANDSHAKE_LEN] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0x07, 0xdc];

impl Handshake {
    /// Checks the 20 bytes: three zeros, 4, 2012.
    pub fn decode(bytes: &[u8; HANDSHAKE_LEN]) -> Result<Self, WireError> {
        if *bytes == BYTES { Ok(Self) } else { Err(WireError::NotXrootd { first: *bytes }) }
    }

    /// Whether a connection that begins with `bytes` (any number of them) can be XRootD. This distinguishes it from
    /// other protocols on one port.
    #[must_use]
    pub fn may_begin_with(bytes: &[u8]) -> bool {
        bytes.iter().zip(BYTES.iter()).all(|(a, b)| a == b)
    }

    /// Returns the 20 bytes.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; HANDSHAKE_LEN] {
        BYTES
    }
}

/// The server's answer to [`Handshake`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HandshakeReply {
    /// The server's protocol version, for example [`crate::PROTOCOL_VERSION`].
    pub version: u32,
    /// 1 for a data server, 0 for a manager. Only old clients read it; new ones use the `protocol` answer.
    pub server_type: u32,
}

impl HandshakeReply {
    /// Makes the answer of a data server that announces `version`.
    #[must_use]
    pub const fn data_server(version: u32) -> Self {
        Self { version, server_type: 1 }
    }

    /// Returns the 16 bytes: an `ok` response to stream 0 with two numbers.
    #[must_use]
    pub fn to_bytes(self) -> [u8; HANDSHAKE_REPLY_LEN] {
        let mut bytes = [0; HANDSHAKE_REPLY_LEN];
        bytes[7] = 8;
        bytes[8..12].copy_from_slice(&self.version.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.server_type.to_be_bytes());
        bytes
    }

    /// Parses the 16 bytes.
    pub fn decode(bytes: &[u8; HANDSHAKE_REPLY_LEN]) -> Result<Self, WireError> {
        let [0, 0, 0, 0, 0, 0, 0, 8, v0, v1, v2, v3, t0, t1, t2, t3] = *bytes else {
            return Err(WireError::Malformed {
                what: "handshake answer",
                why: "it does not begin with an ok of 8 bytes",
            });
        };
        Ok(Self { version: u32::from_be_bytes([v0, v1, v2, v3]), server_type: u32::from_be_bytes([t0, t1, t2, t3]) })
    }
}
