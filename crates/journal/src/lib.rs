//! The append-only log that makes weir durable. Knows frames, sequence numbers, segments, syncs; not what records mean.
//!
//! Promise: when [`Journal::sync_to`] has returned for a record, that record and all before it are read back by every
//! later [`Journal::open`], or the open refuses and says where the log is damaged. Records come back in the order of
//! their numbers, whole, each once. What was appended and not synced may or may not come back, but never in part and
//! never with a gap before it.
//!
//! Several streams (the namespace, the store) may share one log: one order, one fsync. Group commit is here: callers
//! that wait at the same time share one write and one fdatasync.

mod ballast;
mod batch;
mod begin;
mod commit;
mod config;
mod error;
mod event;
mod files;
mod frame;
mod journal;
mod losses;
mod reading;
mod recover;
mod repair;
mod scan;
mod segment;
mod spares;
mod state;
mod tail;
mod trim;
mod walk;
mod words;

pub use ballast::Ballast;
pub use commit::WRITER_DIED;
#[cfg(any(test, feature = "planted"))]
pub use config::Planted;
pub use config::{BallastConfig, JournalConfig, PAYLOAD_MAX, Prepare, SEGMENT_BYTES_DEFAULT};
pub use error::{Damage, JournalError};
pub use journal::Journal;
pub use words::{
    Appended, Beginning, Cut, JournalStats, Location, Loss, Opened, Repaired, SegmentInfo, Seq, StreamId, Visit,
    VisitMany,
};
