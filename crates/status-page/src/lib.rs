//! A few pages over HTTP/1.1 for trusted readers: `/metrics` of a node, the live page of a measurement; and the rule which addresses may be
//! listened on at all.
//!
//! Promises: one thread serves all visitors, a visitor that is slow or silent holds nobody up, and what is read of one is bounded. The crate
//! knows nothing of what a page shows, and it is no front end: it has no TLS, no keep-alive and no bodies of requests.

mod http;
pub mod listen;
mod metrics;

pub use http::{Page, Reply, Request, Responder};
pub use metrics::metrics;
