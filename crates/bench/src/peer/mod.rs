//! How the processes of one measurement speak with each other, on one machine or on many: a secret that all of them have been given
//! ([`Token`]), a greeting in which both sides prove it ([`connect`], [`accept`]), and messages of bounded length ([`Peer`]).
//!
//! It says who may take part. It hides nothing: messages are not encrypted, so they hold no secrets, and networks that are not trusted want a
//! tunnel around them.

mod frame;
mod hello;
mod token;

pub use frame::{FRAME_BYTES_MAX, FrameError, Peer, receive, send};
pub use hello::{Fresh, GREETING_BYTES, Hello, HelloError, Refusal, Role, Timed, VERSION, accept, connect};
pub use token::{Secret, Token, TokenError};
