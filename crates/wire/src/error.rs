//! Errors in received bytes, and in data that our own code wants to encode.

use crate::{ErrorNumber, RequestKind};

/// Why bytes could not be decoded, or data not encoded.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WireError {
    /// The connection does not begin with XRootD's handshake.
    #[error("the connection does not begin with the XRootD handshake but with {}", first.escape_ascii())]
    NotXrootd {
        /// The received bytes.
        first: [u8; 20],
    },
    /// A negative payload length.
    #[error("{} request with payload length {dlen}", kind.name())]
    NegativeLength {
        /// The request.
        kind: RequestKind,
        /// The received length.
        dlen: i32,
    },
    /// The payload is longer than this request allows.
    #[error("{} request with {len} bytes of payload; {limit} is the limit", kind.name())]
    PayloadTooLong {
        /// The request.
        kind: RequestKind,
        /// The announced length in bytes.
        len: u32,
        /// The limit in bytes.
        limit: u32,
    },
    /// The payload is a list with more entries than this request allows.
    #[error("{} request with {count} {what}; {limit} is the limit", kind.name())]
    ListTooLong {
        /// The request.
        kind: RequestKind,
        /// The entries.
        what: &'static str,
        /// Their announced number.
        count: u32,
        /// The largest allowed number.
        limit: u32,
        /// The announced length in bytes.
        len: u32,
    },
    /// A list or text is longer than allowed.
    #[error("{what}: {count} given, {limit} is the limit")]
    TooMany {
        /// The list or text.
        what: &'static str,
        /// The received number.
        count: usize,
        /// The largest allowed number.
        limit: usize,
    },
    /// The bytes end too early.
    #[error("{what}: {missing} more bytes are needed")]
    TooShort {
        /// What was being read.
        what: &'static str,
        /// The least number of missing bytes.
        missing: usize,
    },
    /// Bytes are left over.
    #[error("{what}: {extra} bytes too many")]
    Trailing {
        /// What was being read.
        what: &'static str,
        /// Their number.
        extra: usize,
    },
    /// A number is negative, or exceeds its field.
    #[error("{what} {value} is out of range")]
    OutOfRange {
        /// The number's name.
        what: &'static str,
        /// Its received value.
        value: i64,
    },
    /// A required part is empty.
    #[error("{what} is missing")]
    Missing {
        /// The part.
        what: &'static str,
    },
    /// Another violation of the protocol.
    #[error("{what}: {why}")]
    Malformed {
        /// What was being read.
        what: &'static str,
        /// What is wrong.
        why: &'static str,
    },
    /// A checksum inside a frame does not match the frame.
    #[error("{what}: checksum {found:08x} where {expected:08x} was computed")]
    Checksum {
        /// The part with the checksum.
        what: &'static str,
        /// The checksum computed from the bytes.
        expected: u32,
        /// The received checksum.
        found: u32,
    },
    /// So many pages of a pgwrite have wrong checksums that the server must refuse the whole request.
    #[error("more than {limit} pages do not match their checksums")]
    TooManyBadPages {
        /// The largest allowed number.
        limit: usize,
    },
    /// Our own code wants to send what the protocol cannot carry.
    #[error("{what} cannot be sent: {why}")]
    Unsendable {
        /// The part.
        what: &'static str,
        /// What is wrong.
        why: &'static str,
    },
}

/// The side that caused an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The peer sent what the protocol does not allow.
    Peer,
    /// Our own code asked for the impossible.
    Caller,
}

impl WireError {
    /// Returns the side that caused it.
    #[must_use]
    pub fn fault(&self) -> Fault {
        match self {
            WireError::Unsendable { .. } => Fault::Caller,
            _ => Fault::Peer,
        }
    }

    /// Whether the connection must be closed, because the start of the next request is unknown or not worth
    /// reaching. Then answer (if the stream is known) and close. Otherwise answer with [`WireError::number`] and
    /// continue.
    #[must_use]
    pub fn closes(&self) -> bool {
        matches!(
            self,
            WireError::NotXrootd { .. }
                | WireError::NegativeLength { .. }
                | WireError::PayloadTooLong { .. }
                | WireError::ListTooLong { .. }
        )
    }

    /// Returns the error number for the answer.
    #[must_use]
    pub fn number(&self) -> ErrorNumber {
        match self {
            WireError::NotXrootd { .. } => ErrorNumber::INVALID_REQUEST,
            WireError::PayloadTooLong { .. } | WireError::ListTooLong { .. } | WireError::TooMany { .. } => {
                ErrorNumber::ARG_TOO_LONG
            }
            WireError::Missing { .. } => ErrorNumber::ARG_MISSING,
            WireError::Checksum { .. } => ErrorNumber::CHECKSUM,
            WireError::TooManyBadPages { .. } => ErrorNumber::TOO_MANY_ERRORS,
            WireError::Unsendable { .. } => ErrorNumber::SERVER_ERROR,
            WireError::NegativeLength { .. }
            | WireError::TooShort { .. }
            | WireError::Trailing { .. }
            | WireError::OutOfRange { .. }
            | WireError::Malformed { .. } => ErrorNumber::ARG_INVALID,
        }
    }
}
