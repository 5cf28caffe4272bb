//! The client's stream of bytes cut into requests, for callers that get bytes in pieces of any size.

use crate::{Handshake, Limits, Request, RequestHeader, StreamId, WireError};

/// What [`ServerDecoder::next`] found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event<'a> {
    /// The connection begins as it should. Answer with [`crate::HandshakeReply`].
    Handshake(Handshake),
    /// A request. If [`Request::following`] is not 0, its data comes as [`Event::Data`], or the caller takes it from
    /// the connection itself and says so with [`ServerDecoder::took`].
    Request {
        /// To be repeated in the answer.
        stream: StreamId,
        /// What is asked.
        request: Request,
    },
    /// A request that was not understood; the next one can be. Answer with [`WireError::number`].
    Malformed {
        /// As it came.
        header: RequestHeader,
        /// Why.
        error: WireError,
    },
    /// Some of the data that the last request announced.
    Data {
        /// The bytes, out of the caller's own input.
        bytes: &'a [u8],
        /// How many are still to come after these.
        left: u64,
    },
}

/// Cuts a client's stream into requests. Holds at most one request's header and payload ([`Limits`]); never file data.
#[derive(Debug)]
pub struct ServerDecoder {
    limits: Limits,
}

impl ServerDecoder {
    /// At the beginning of a connection.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits }
    }

    /// Takes bytes off the front of `input` until an event is complete; `None` means that `input` is used up.
    ///
    /// After an error (negative or too large length, no handshake) the stream cannot be followed any further and every
    /// later call gives the same error; [`ServerDecoder::last_header`] tells which request to answer.
    #[allow(clippy::todo, clippy::should_implement_trait)]
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Event<'a>>, WireError> {
        let _ = (input, &self.limits);
        todo!()
    }

    /// Bytes of file data that the caller may take from the connection itself.
    #[must_use]
    pub fn data_left(&self) -> u64 {
        0
    }

    /// The caller took `bytes` of the announced data from the connection itself (at most [`ServerDecoder::data_left`]).
    pub fn took(&mut self, bytes: u64) {
        let _ = bytes;
    }

    /// The header of the request that was read last.
    #[must_use]
    pub fn last_header(&self) -> Option<&RequestHeader> {
        None
    }
}
