//! Splits a client's byte stream into requests, for callers that receive bytes in parts of any size.

use crate::planted::{self, Bug};
use crate::request::{Chkpoint, ChkpointOp};
use crate::{
    HANDSHAKE_LEN, Handshake, Limits, Payload, REQUEST_HEADER_LEN, Request, RequestHeader, RequestKind, StreamId,
    WireError,
};

/// An event in the stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event<'a> {
    /// The connection has begun correctly. Answer with [`crate::HandshakeReply`].
    Handshake(Handshake),
    /// A request. If [`Request::following`] is not 0, its data come as [`Event::Data`]. Alternatively the caller
    /// reads them from the connection itself, and reports that with [`ServerDecoder::took`].
    Request {
        /// The stream id for the answer.
        stream: StreamId,
        /// The request.
        request: Request,
    },
    /// A request that could not be decoded. The next one can be. Answer with [`WireError::number`]. File data of
    /// this request still come as [`Event::Data`].
    Malformed {
        /// Its header.
        header: RequestHeader,
        /// The reason.
        error: WireError,
    },
    /// Part of the data that the last request announced.
    Data {
        /// The bytes, borrowed from the caller's input.
        bytes: &'a [u8],
        /// The number of bytes still to come after these.
        left: u64,
    },
}

/// Splits a client's stream into requests. It holds at most one request's header and payload ([`Limits`]), and
/// never file data.
#[derive(Debug)]
pub struct ServerDecoder {
    limits: Limits,
    state: State,
    /// The received bytes of the part that `state` waits for.
    held: Vec<u8>,
    header: Option<RequestHeader>,
}

#[derive(Debug)]
enum State {
    Handshake,
    Header,
    Payload(RequestHeader, usize),
    Data(u64),
    Failed(WireError),
}

impl ServerDecoder {
    /// Starts at the beginning of a connection.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, state: State::Handshake, held: Vec::new(), header: None }
    }

    /// Takes bytes off the front of `input` until an event is complete. `None` means that `input` is used up.
    ///
    /// After an error (negative or too large length, no handshake) the stream cannot be followed. Every later call
    /// returns the same error. [`ServerDecoder::last_header`] tells which request to answer.
    #[allow(clippy::should_implement_trait)] // lends from its argument, which no Iterator can
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Event<'a>>, WireError> {
        loop {
            match &self.state {
                State::Failed(error) => return Err(error.clone()),
                State::Data(0) => self.state = State::Header,
                State::Data(left) => {
                    if input.is_empty() {
                        return Ok(None);
                    }
                    let here = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
                    let (bytes, rest) = input.split_at(here);
                    *input = rest;
                    let left = left - bytes.len() as u64;
                    self.state = State::Data(left);
                    return Ok(Some(Event::Data { bytes, left }));
                }
                State::Handshake => {
                    let Some(bytes) = self.collect::<HANDSHAKE_LEN>(input) else {
                        // do not wait for 20 bytes of another protocol
                        if !Handshake::may_begin_with(&self.held) {
                            let mut first = [0; HANDSHAKE_LEN];
                            first[..self.held.len()].copy_from_slice(&self.held);
                            return Err(self.fail(WireError::NotXrootd { first }));
                        }
                        return Ok(None);
                    };
                    let handshake = Handshake::decode(&bytes).map_err(|error| self.fail(error))?;
                    self.state = State::Header;
                    return Ok(Some(Event::Handshake(handshake)));
                }
                State::Header => {
                    let Some(bytes) = self.collect::<REQUEST_HEADER_LEN>(input) else { return Ok(None) };
                    let header = RequestHeader::parse(&bytes);
                    self.header = Some(header);
                    match header.payload(&self.limits).map_err(|error| self.fail(error))? {
                        Payload::Stream(len) => {
                            self.state = State::Data(u64::from(len));
                            return Ok(Some(event(&header, Request::decode(&header, &[]))));
                        }
                        Payload::Buffer(len) => {
                            self.state = State::Payload(header, usize::try_from(len).unwrap_or(usize::MAX));
                        }
                    }
                }
                State::Payload(header, len) => {
                    let (header, len) = (*header, *len);
                    // the input may already hold all of it; otherwise it is collected
                    let decoded = if self.held.is_empty() && input.len() >= len {
                        let (payload, rest) = input.split_at(len);
                        *input = rest;
                        Request::decode(&header, payload)
                    } else {
                        let here = (len - self.held.len()).min(input.len());
                        let (part, rest) = input.split_at(here);
                        self.held.extend_from_slice(part);
                        *input = rest;
                        if self.held.len() < len {
                            if planted::is(Bug::SplitPayloadLost) {
                                self.state = State::Header;
                                self.held.clear();
                            }
                            return Ok(None);
                        }
                        let decoded = Request::decode(&header, &self.held);
                        self.held.clear();
                        decoded
                    };
                    let following = self.following(&header, &decoded)?;
                    self.state = State::Data(following);
                    return Ok(Some(event(&header, decoded)));
                }
            }
        }
    }

    /// Returns how many bytes of file data the caller may read from the connection itself.
    #[must_use]
    pub fn data_left(&self) -> u64 {
        match self.state {
            State::Data(left) => left,
            _ => 0,
        }
    }

    /// The caller has read `bytes` of the announced data from the connection itself. They must not exceed
    /// [`ServerDecoder::data_left`]; this is asserted.
    pub fn took(&mut self, bytes: u64) {
        let left = self.data_left();
        assert!(bytes <= left, "{bytes} bytes taken where {left} were announced");
        if bytes > 0 {
            self.state = State::Data(left - bytes);
        }
    }

    /// Returns the header of the last request.
    #[must_use]
    pub fn last_header(&self) -> Option<&RequestHeader> {
        self.header.as_ref()
    }

    /// The length of the data that follow the payload. If a `writev` or checkpoint cannot be decoded, that length
    /// is unknown, and the connection ends.
    fn following(&mut self, header: &RequestHeader, decoded: &Result<Request, WireError>) -> Result<u64, WireError> {
        match decoded {
            // an inner writev has a list and then data, so a server must read the list before it executes the
            // request
            Ok(Request::Chkpoint(Chkpoint { op: ChkpointOp::Execute(inner), .. }))
                if inner.kind == RequestKind::Writev =>
            {
                Err(self.fail(WireError::Malformed { what: "chkpoint", why: "writev inside it is not supported" }))
            }
            Ok(request) => Ok(request.following()),
            Err(error) if header.kind.closes_if_malformed() => Err(self.fail(error.clone())),
            Err(_) => Ok(0),
        }
    }

    fn fail(&mut self, error: WireError) -> WireError {
        self.held = Vec::new();
        self.state = State::Failed(error.clone());
        error
    }

    /// Collects `N` bytes, over several calls if necessary.
    fn collect<const N: usize>(&mut self, input: &mut &[u8]) -> Option<[u8; N]> {
        if self.held.is_empty()
            && let Some((bytes, rest)) = input.split_first_chunk::<N>()
        {
            *input = rest;
            return Some(*bytes);
        }
        let here = (N - self.held.len()).min(input.len());
        let (part, rest) = input.split_at(here);
        self.held.extend_from_slice(part);
        *input = rest;
        let bytes = self.held.first_chunk::<N>().copied()?;
        self.held.clear();
        Some(bytes)
    }
}

fn event<'a>(header: &RequestHeader, decoded: Result<Request, WireError>) -> Event<'a> {
    match decoded {
        Ok(request) => Event::Request { stream: header.stream, request },
        Err(error) => Event::Malformed { header: *header, error },
    }
}
