//! The XRootD protocol as bytes and as plain data: requests of clients, responses of servers, both ways.
//!
//! Pure: bytes in, bytes out. This crate knows no socket, no clock and no namespace, and keeps no session. The
//! authority is `XProtocol.hh` of xrootd (protocol 5.2.0, announced as `0x520`) and, where it is silent, what the
//! stock client and server 5.5.3 put on the wire (`docs/reference/xrootd-wire.md`, `tests/frames/`).
//!
//! What it promises:
//!
//! - Nothing that comes from the other side makes it panic, and no length from outside is used before it is bounded.
//! - Trailing bytes are an error; reserved bytes are ignored when read and zero when written.
//! - [`WireError`] says whose fault it was, with which number to answer, and whether the connection can go on.
//! - Bulk data (`write`, `pgwrite`, `writev`) never passes through this crate's memory: a request's header says how
//!   many payload bytes follow, and the server receives them where it wants them.
//!
//! A server with blocking reads uses [`Handshake::decode`], then for each request [`RequestHeader::parse`] on 24
//! bytes, [`RequestHeader::payload`] for what follows, and [`Request::decode`]. A server with an event loop (and the
//! fuzzer) uses [`ServerDecoder`], which is built from the same parts. Answers are made with [`reply`].
//!
//! What it leaves to others: what a path may be (`types`), what a handle means, order and flow control, TLS.

#[macro_use]
mod flags;
pub mod batch;
mod error;
mod error_number;
mod frame;
mod handshake;
mod header;
mod opaque;
pub mod page;
#[cfg(feature = "planted")]
pub mod planted;
#[cfg(not(feature = "planted"))]
#[allow(dead_code)] // the names are for the tests
mod planted;
mod reader;
pub mod reply;
pub mod request;
pub mod response;

pub use error::{Fault, WireError};
pub use error_number::ErrorNumber;
pub use frame::{Event, ServerDecoder};
pub use handshake::{HANDSHAKE_LEN, HANDSHAKE_REPLY_LEN, Handshake, HandshakeReply};
pub use header::{FileHandle, Limits, Payload, REQUEST_HEADER_LEN, RequestHeader, RequestKind, SessionId, StreamId};
pub use opaque::{OPAQUE_PAIRS_MAX, Opaque, PathArg};
pub use request::Request;
pub use response::{RESPONSE_HEADER_LEN, Response, ResponseHeader, ResponseStatus};

/// The protocol version that weir announces: 5.2.0, as xrootd 6 does. From this one on XrdCl 6 asks for `clone` and for the open options
/// `dup` and `samefs`; older clients (0x511 and below) compare it with what they need, which is less, and see no change.
pub const PROTOCOL_VERSION: u32 = 0x0000_0520;
