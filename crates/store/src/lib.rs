//! Objects on one local disk: bytes, page checksums, crash rules. This crate knows nothing of names, users or
//! protocols.
//!
//! # Promises
//!
//! - A write is acknowledged when its bytes and the record of its range are in the kernel. It survives SIGKILL. A power
//!   failure can undo it until [`Writer::sync`] or [`Writer::complete`].
//! - After [`Writer::complete`] and a sync of the journal up to its `seq`, the complete object survives any stop.
//! - Every returned byte was compared with the CRC32C of its page.
//! - An incomplete object is never shown as complete; its durable prefix is kept.
//! - An object's number is never used twice, except when another store sends the replica again ([`Store::recreate`]).
//!
//! # Where bytes are
//!
//! Small objects lie in the journal first; a background thread moves them to segment files. Large ones are plain files
//! with a sidecar of checksums. The records are in a `JournaledIndex`; open writes are in the journal's stream
//! `STORE_DATA` (`docs/reference/formats.md`).
//!
//! The sidecar holds CRC32C and adler32 of each page. Whole-file sums are combined from these without reading data
//! again, even after overwrites. Pages that are overwritten, or partly full, go to the journal as a whole. They reach
//! the file when the journal is durable, so a crash leaves no ambiguity. Large overwrites in place are therefore
//! written twice.
//!
//! Short reads of large objects find the CRCs in the sidecar, or in a table that all readers of an object share. The
//! tables of a store share a limit. A page that does not match is compared again with the sidecar, under the object's
//! lock, before it counts as damaged.

mod at_rest;
mod buffers;
mod checkpoint;
mod codec;
mod config;
mod end;
mod error;
mod first_read;
mod floor;
mod journal_record;
mod journal_references;
mod known_sums;
mod object;
mod orphans;
mod pages;
mod plan;
mod provenance;
mod ranges;
mod reader;
mod rebuild;
mod recent;
mod record;
mod recover;
mod replay;
mod replica;
mod restart;
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
mod without_journal;
mod write_state;
mod write_work;
mod writer;

/// Memory from which [`Writer::write`] writes without another copy.
pub use disk::AlignedBuf;

pub use at_rest::{AtRest, Lent};
pub use checkpoint::CheckpointSize;
pub use config::{PlantedBug, REPLICA_LEN_MAX, StoreConfig};
pub use error::StoreError;
pub use provenance::Provenance;
pub use reader::Reader;
pub use rebuild::Rebuilt;
pub use recent::{FreshMemory, RecentPages, RecentStats};
pub use scrub::{Scrubbed, Scrubber};
pub use status::{Completed, Kept, NewReplica, ReplicaState, ReplicaStatus, Space, StoreRecovery, Verified};
pub use store::{RecordIndex, Store};
pub use sums::PageSum;
pub use without_journal::highest_journal_segment;
pub use writer::{Writer, writer_memory};
