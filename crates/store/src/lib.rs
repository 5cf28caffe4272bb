//! Objects on one local disk: bytes, page checksums, crash rules. This crate knows nothing of names, users or protocols.
//!
//! # Promises
//!
//! - A write is acknowledged when its bytes and the record of its range are in the kernel. SIGKILL cannot undo it; a power failure can, until
//!   [`Writer::sync`] or [`Writer::complete`].
//! - After [`Writer::complete`] and a sync of the journal up to its `seq`, the object comes back whole after any stop.
//! - Every byte that is handed out was compared with the CRC32C of its page.
//! - An object that was not completed is never shown as complete; its durable prefix is kept.
//! - An object's number is never used twice, except for a replica that is made again from another store ([`Store::begin_anew`]).
//!
//! # Where bytes are
//!
//! Small objects lie in the journal first; a background thread moves them to segment files. Large ones are plain files with a sidecar of checksums. The
//! records are in a `LoggedIndex`; what is being written is in the journal's stream `STORE_DATA` (`docs/reference/formats.md`).
//!
//! The sidecar holds CRC32C and adler32 of each page, so whole-file sums are combined without reading data again, also after overwrites. Pages that are
//! overwritten, or partly full, go to the journal whole and reach the file when the journal is durable. So no choice is left to make after a crash; large
//! overwrites in place are written twice.
//!
//! Short reads of large objects find the CRCs in a table that all readers of an object share (bounded for all together), or in the sidecar. A page that
//! does not match is compared once more with the sidecar, under the object's lock, before it counts as damaged.

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
mod log_record;
mod making;
mod object;
mod orphans;
mod pages;
mod plan;
mod provenance;
mod ranges;
mod reader;
mod rebuild;
mod record;
mod recover;
mod replay;
mod replica;
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
mod write_state;
mod writer;

/// Memory from which [`Writer::write`] writes without another copy.
pub use disk::AlignedBuf;

pub use at_rest::AtRest;
pub use checkpoint::CheckpointSize;
pub use config::{Planted, REPLICA_LEN_MAX, StoreConfig};
pub use error::StoreError;
pub use provenance::Provenance;
pub use reader::Reader;
pub use rebuild::Rebuilt;
pub use scrub::{Scrubbed, Scrubber};
pub use status::{Completed, NewReplica, ReplicaState, ReplicaStatus, Space, StoreRecovery, Verified};
pub use store::{RecordIndex, Store};
pub use sums::PageSum;
pub use without_log::highest_log_segment;
pub use writer::{Writer, writer_memory};
