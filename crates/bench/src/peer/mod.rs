//! The connections between the processes of one measurement, on one machine or many: a shared secret ([`Token`]), a
//! handshake in which both sides prove that they know it ([`connect`], [`accept`]), and messages of bounded length
//! ([`Peer`]).
//!
//! It controls which processes take part. It does not encrypt messages, so they contain no secrets. Networks that
//! are not trusted need a tunnel.

mod frame;
mod hello;
mod token;

pub use frame::{FRAME_BYTES_MAX, FrameError, Peer, receive, send};
pub use hello::{Fresh, GREETING_BYTES, Hello, HelloError, PeerRefused, Role, Timed, VERSION, accept, connect};
pub use token::{Secret, Token, TokenError};
