//! The integration tests of identities: one program, because each program costs a link.

#![allow(clippy::unwrap_used, clippy::panic)] // a test may fail this way

mod common;
mod grid_map;
mod key_cache;
mod key_set;
mod mapping;
mod scopes;
mod token;
