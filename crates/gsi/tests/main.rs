//! Tests of the handshake of gsi.

#![allow(clippy::unwrap_used, clippy::panic)] // a test may fail this way

mod delegation;
mod handshake;
mod peers;
mod versions;
