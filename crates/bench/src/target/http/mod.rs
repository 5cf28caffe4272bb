//! HTTP/1.1 as a storage client needs it: requests one after the other on connections that are kept, redirects, ranges, and uploads that are
//! sent piece by piece from where the bytes lie.
//!
//! Uploads are why it is not somebody's whole client: those take a body from a reader, which would be a thread and a queue between the workload
//! and the socket, in the very path that is measured.

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
