//! HTTP/1.1 for a storage client: one request after the other on kept connections, redirects, ranges, and uploads
//! in parts from the caller's memory.
//!
//! The uploads are the reason for an own client. Existing clients take a body from a reader, which would need a
//! thread and a queue between the workload and the socket, in the measured path.

mod address;
mod agent;
mod answer;
mod connection;
mod error;
mod reply;
mod tls;
mod token;
mod upload;

#[cfg(test)]
mod tests;

pub use address::{HttpUrl, HttpUrlError};
pub(super) use agent::{Agent, Request};
pub use error::HttpError;
pub(super) use reply::Reply;
pub(super) use upload::Upload;
