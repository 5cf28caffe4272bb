//! The audit log: who has logged in, what was denied, and what was changed, as lines of JSON.
//!
//! - [`Record`] is one line, as plain data. It is made and bounded without I/O.
//! - [`Log`] takes records and never waits for a disk: a bounded queue, and a thread that writes ([`Sink`]). What cannot be
//!   written is counted, and the log itself says so once it can be written again.
//! - Lines that somebody without any rights can cause are limited for each client (`limit`).
//! - [`Reader`] and [`Filter`] read the files again.
//!
//! What becomes a line is decided in `service` (clients) and in `control` (administrators). This crate knows neither.
//! Nobody hands secrets to it: no tokens, no capabilities, nothing behind the `?` of a path.

mod error;
mod files;
mod filter;
mod journald;
mod limit;
mod log;
mod queue;
mod reader;
mod record;
mod sink;
mod token_bucket;

pub use error::AuditError;
pub use filter::Filter;
pub use log::{Counts, Log};
pub use reader::Reader;
pub use record::{Event, LINE_MAX, Outcome, Record, time_in_line};
pub use sink::{Destination, FileSettings, Settings};
pub use token_bucket::TokenBucket;

/// Sockets of systemd-journald, where it listens for lines (systemd's "Native Journal Protocol").
pub const JOURNALD_SOCKET: &str = "/run/systemd/journal/socket";
