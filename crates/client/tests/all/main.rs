//! The client against small test servers.
#![allow(clippy::unwrap_used, missing_docs)] // a test may fail this way

mod reads;
mod server;
mod several_managers;
