//! What can be wrong with bytes from the other side, and with what our own code asked to have encoded.

use crate::{ErrorNumber, RequestKind};

/// Why bytes were not understood, or data could not be put into bytes.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WireError {
    /// The first bytes of the connection are not XRootD's.
    #[error("the connection does not begin with the XRootD handshake but with {}", first.escape_ascii())]
    NotXrootd {
        /// What came.
        first: [u8; 20],
    },
    /// A payload length below zero.
    #[error("{} request with payload length {dlen}", kind.name())]
    NegativeLength {
        /// Of which request.
        kind: RequestKind,
        /// As it came.
        dlen: i32,
    },
    /// More payload than this request may have.
    #[error("{} request with {len} bytes of payload; {limit} is the limit", kind.name())]
    PayloadTooLong {
        /// Of which request.
        kind: RequestKind,
        /// Announced bytes.
        len: u32,
        /// The limit in bytes.
        limit: u32,
    },
    /// A list or text longer than it may be.
    #[error("{what}: {count} given, {limit} is the limit")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many came.
        count: usize,
        /// How many may.
        limit: usize,
    },
    /// The bytes end too early.
    #[error("{what}: {missing} more bytes are needed")]
    TooShort {
        /// What was being read.
        what: &'static str,
        /// How many bytes are missing at least.
        missing: usize,
    },
    /// Bytes are left over.
    #[error("{what}: {extra} bytes too many")]
    Trailing {
        /// What was being read.
        what: &'static str,
        /// How many are left over.
        extra: usize,
    },
    /// A number below zero, or past what the field may hold.
    #[error("{what} {value} is out of range")]
    OutOfRange {
        /// Which number.
        what: &'static str,
        /// As it came.
        value: i64,
    },
    /// Something that has to be there is empty.
    #[error("{what} is missing")]
    Missing {
        /// What.
        what: &'static str,
    },
    /// Anything else that does not fit the protocol.
    #[error("{what}: {why}")]
    Malformed {
        /// What was being read.
        what: &'static str,
        /// What does not fit.
        why: &'static str,
    },
    /// A checksum inside a frame does not match the frame.
    #[error("{what}: checksum {found:08x} where {expected:08x} was computed")]
    Checksum {
        /// Of what.
        what: &'static str,
        /// Computed from the bytes.
        expected: u32,
        /// As it came.
        found: u32,
    },
    /// So many pages of a pgwrite do not match their checksums that the whole of it is to be refused.
    #[error("more than {limit} pages do not match their checksums")]
    TooManyBadPages {
        /// How many may.
        limit: usize,
    },
    /// Our own code wants something sent that the protocol cannot carry.
    #[error("{what} cannot be sent: {why}")]
    Unsendable {
        /// What.
        what: &'static str,
        /// Why not.
        why: &'static str,
    },
}

/// Whose fault it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The other side sent what the protocol does not allow.
    Peer,
    /// Our own code asked for what cannot be done.
    Caller,
}

impl WireError {
    /// Whose fault it was.
    #[must_use]
    pub fn fault(&self) -> Fault {
        match self {
            WireError::Unsendable { .. } => Fault::Caller,
            _ => Fault::Peer,
        }
    }

    /// Is the place of the next request unknown or not worth reaching? Then answer (if the stream is known) and close.
    /// Otherwise answer with [`WireError::number`] and go on.
    #[must_use]
    pub fn closes(&self) -> bool {
        matches!(
            self,
            WireError::NotXrootd { .. } | WireError::NegativeLength { .. } | WireError::PayloadTooLong { .. }
        )
    }

    /// The number to answer with.
    #[must_use]
    pub fn number(&self) -> ErrorNumber {
        match self {
            WireError::NotXrootd { .. } => ErrorNumber::INVALID_REQUEST,
            WireError::PayloadTooLong { .. } | WireError::TooMany { .. } => ErrorNumber::ARG_TOO_LONG,
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
