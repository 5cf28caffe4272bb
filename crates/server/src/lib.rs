//! The front door for stock XRootD clients (root://) and the node's sessions: connections, logins, handles, the life of
//! files that are being written. Frames become requests to `namespace` and `store`, which decide.
//!
//! Promises:
//! - Data requests of one connection are done in the order in which they came; a close follows its writes.
//! - A close is answered when the content and its name are on the disk.
//! - A writer that lost its connection can come back for the grace period, also after a restart of the server; its old
//!   handles are fenced before the new one can write. What never comes back is completed if it is known to be whole,
//!   and marked interrupted otherwise.
//! - A slow, stuck or hostile client costs itself: nothing that others need waits for a socket, every buffer and queue
//!   is bounded ([`Limits`]), and bad input is answered with the protocol's own error and logged.
//!
//! Leaves to others: what a name or content is, and what is durable. No authentication yet: all clients act as
//! [`ServerConfig::actor`].

mod answer;
mod behind;
mod buffers;
mod checksums;
mod complaints;
mod config;
mod connection;
mod creates;
mod data_streams;
mod drainer;
mod endings;
mod fair;
mod figures;
mod gather;
mod handles;
mod input;
mod keeper;
mod listener;
mod making;
mod meter;
mod missing;
mod node;
mod open_file;
mod outgoing;
mod part;
mod refusal;
mod requests;
mod server;
mod session;
mod shares;
mod striped;
mod third_party;
mod transfers;
mod workers;
mod writer_memory;
mod writers;

#[cfg(any(test, feature = "planted"))]
pub use config::Planted;
pub use config::{
    Fetcher, INPUT_BYTES, Limits, PACE_BYTES, PutsTogether, SMALL_TRANSFER_BYTES, ServerConfig, TRANSFER_BYTES, Times,
    WRITE_BUFFERS_SHARE, WRITE_BYTES,
};
pub use figures::{Bounded, DELETIONS_COUNTED_MAX, Figures, Watch};
pub use node::Role;
pub use outgoing::batch_done;
pub use requests::query::{CONTENT_OF, DAMAGED_MARK};
pub use server::{Server, ServerError, StopReport};
pub use striped::{StripedError, StripedFile, StripedOpen, Striper};
pub use third_party::{Cancelled, Pull, PullSink, PullSource};
