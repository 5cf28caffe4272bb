//! The XRootD protocol as bytes and as plain data: requests of clients and responses of servers, in both
//! directions.
//!
//! This crate takes bytes and returns bytes. It has no sockets, no clock and no namespace, and keeps no session.
//! The authority is `XProtocol.hh` of xrootd (protocol 5.2.0, announced as `0x520`). Where that is silent, it
//! follows what the stock client and server 5.5.3 send (`docs/reference/xrootd-wire.md`, `tests/frames/`).
//!
//! Promises:
//!
//! - No input makes it panic, and it checks every received length before it uses it.
//! - Trailing bytes are an error. Reserved bytes are ignored when read and zero when written.
//! - [`WireError`] says which side caused the error, which number to answer, and whether the connection can
//!   continue.
//! - Bulk data (`write`, `pgwrite`, `writev`) never pass through this crate's memory. A request's header says how
//!   many payload bytes follow, and the server receives them where it wants them.
//!
//! A server with blocking reads uses [`Handshake::decode`]. For each request it uses [`RequestHeader::parse`] on 24
//! bytes, [`RequestHeader::payload`] for the payload, and [`Request::decode`]. A server with an event loop (and the
//! fuzzer) uses [`ServerDecoder`], which is built from the same parts. [`reply`] makes the answers.
//!
//! Other crates decide which paths are valid (`types`), what a handle means, and about order, flow control and TLS.

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
pub mod signing;

pub use error::{Fault, WireError};
pub use error_number::ErrorNumber;
pub use frame::{Event, ServerDecoder};
pub use handshake::{HANDSHAKE_LEN, HANDSHAKE_REPLY_LEN, Handshake, HandshakeReply};
pub use header::{FileHandle, Limits, Payload, REQUEST_HEADER_LEN, RequestHeader, RequestKind, SessionId, StreamId};
pub use opaque::{OPAQUE_PAIRS_MAX, Opaque, PathArg};
pub use request::Request;
pub use response::{RESPONSE_HEADER_LEN, Response, ResponseHeader, ResponseStatus};

/// The protocol version that a single node announces: 5.2.0, like xrootd 6. From this version on, XrdCl 6 uses `clone`
/// and the open options `dup` and `samefs`. Older clients (0x511 and below) need less, and see no change.
pub const PROTOCOL_VERSION: u32 = 0x0000_0520;

/// 5.1.1, the version before. A server that announces it is asked for nothing that [`PROTOCOL_VERSION`] has added.
pub const PROTOCOL_VERSION_BEFORE: u32 = 0x0000_0511;
