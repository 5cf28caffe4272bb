//! A few pages over HTTP/1.1 for trusted readers: `/metrics` of a node, and the live page of a measurement. Also decides which addresses
//! weir may listen on at all.
//!
//! Promises: one thread serves all visitors, a slow or silent visitor delays nobody, and requests are bounded. The crate does not know what
//! a page shows. It is no front end: it has no TLS, no keep-alive and no request bodies.

mod http;
pub mod listen;
mod metrics;

pub use http::{Page, Reply, Request, Responder};
pub use metrics::{WatchPage, WatchResult, watched};
