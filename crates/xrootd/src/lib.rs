//! The front end for XRootD clients (root://): connections, logins, frames, and the translation of requests and
//! answers. The [`service`] handles the requests.
//!
//! Promises:
//! - The data requests of a connection are handled in the order of their arrival. A close comes after its writes.
//! - A slow, stuck or hostile client harms only itself. Nothing that others need waits for a socket, and [`Limits`]
//!   bounds every buffer and queue. Bad input gets one of the protocol's errors and is logged.
//!
//! The service makes all decisions. Without [`ServerConfig::authenticator`], all clients act as [`ServerConfig::principal`].
//!
//! Batches ([`wire::batch`]) are a separate front end: the module `batch` uses the frames and the service, but no
//! single requests.

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
mod repeated_opens;
mod requests;
mod sent_away;
mod server;
mod session;
mod signatures;
mod socket_writes;
mod third_party;
mod to_wire;

pub use config::{INPUT_BYTES, Limits, PACE_BYTES, ServerConfig, Times, TlsConfig};
pub use figures::{Figures, Watch};
pub use outgoing::batch_done;
pub use server::{Server, ServerError, StopReport};
