//! Pieces of bodies on one local disk: bytes, page checksums, crash rules. Knows nothing of names, users, protocols.
//!
//! Promises:
//! - A write is acknowledged when its bytes and the record of its range are in the kernel: SIGKILL cannot undo it, a
//!   power failure can, until [`Writer::sync`] or [`Writer::complete`].
//! - After [`Writer::complete`] and a sync of the log up to its `seq`, the piece comes back whole after any stop.
//! - Every byte that is handed out was compared with the CRC32C of its page.
//! - A piece that was not completed is never shown as complete; its durable prefix is kept.
//! - A number of a body is never used twice, but for a copy that is made anew from another store ([`Store::begin_anew`]).
//!
//! Small pieces lie in the log first and are settled into segment files later; large ones are plain files with a sidecar of
//! checksums (`docs/reference/formats.md`). The records are in a `LoggedIndex`; what is under way is in the log's stream
//! `STORE_DATA`.

mod anew;
mod at_rest;
mod buffers;
mod checkpoint;
mod codec;
mod config;
mod end;
mod error;
mod floor;
mod holds;
mod known_sums;
mod life;
mod log_record;
mod making;
mod object;
mod orphans;
mod pages;
mod piece;
mod plan;
mod provenance;
mod ranges;
mod reader;
mod rebuild;
mod record;
mod recover;
mod replay;
mod scrub;
mod segment;
mod segments;
mod settle;
mod sidecar;
mod small;
mod status;
mod store;
mod stream;
mod sums;
#[cfg(test)]
#[allow(clippy::cast_possible_truncation)] // small numbers
mod tests;
mod trim;
mod verify;
mod without_log;
mod writer;

/// Memory from which [`Writer::write`] writes without another copy.
pub use disk::AlignedBuf;

pub use at_rest::AtRest;
pub use checkpoint::CheckpointSize;
pub use config::{PIECE_LEN_MAX, Planted, StoreConfig};
pub use error::StoreError;
pub use provenance::Provenance;
pub use reader::Reader;
pub use rebuild::Rebuilt;
pub use scrub::{Scrubbed, Scrubber};
pub use status::{Completed, NewPiece, PieceState, PieceStatus, Space, StoreRecovery, Verified};
pub use store::{RecordIndex, Store};
pub use sums::PageSum;
pub use without_log::highest_log_segment;
pub use writer::{Writer, writer_memory};
