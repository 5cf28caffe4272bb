//! The integration tests of authentication, with a real issuer over HTTPS: one program, because each program costs a link.

#![allow(clippy::unwrap_used, clippy::panic)] // a test may fail this way

mod certificates;
mod explain;
mod fetching;
mod issuer_server;
mod local;
mod reload;
mod restart;
mod secrets;
mod tickets;
mod tokens;
mod world;
