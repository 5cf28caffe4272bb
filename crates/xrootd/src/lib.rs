//! The front door for stock XRootD clients (root://): connections, logins, frames, and the translation of requests and answers in both directions.
//! What is asked for, the [`service`] does.
//!
//! Promises:
//! - Data requests of one connection are done in the order in which they came; a close follows its writes.
//! - A slow, stuck or hostile client costs itself: nothing that others need waits for a socket, every buffer and queue
//!   is bounded ([`Limits`]), and bad input is answered with the protocol's own error and logged.
//!
//! Leaves to others: every decision. No authentication yet: all clients act as [`ServerConfig::principal`].
//!
//! Batches ([`wire::batch`]) are a front end of their own: `batch` knows the frames and the service, and nothing of single requests.

mod answer;
mod batch;
mod config;
mod connection;
mod data_streams;
mod drainer;
mod figures;
mod from_wire;
mod front_end;
mod gather;
mod input;
mod listener;
mod meter;
mod outgoing;
mod requests;
mod server;
mod session;
mod third_party;
mod to_wire;

pub use config::{INPUT_BYTES, Limits, PACE_BYTES, ServerConfig, Times};
pub use figures::{Figures, Watch};
pub use outgoing::batch_done;
pub use server::{Server, ServerError, StopReport};
