//! The append-only journal that makes weir durable. It knows frames, sequence numbers, segments and syncs, and not what records mean.
//!
//! # Promise
//!
//! When [`Journal::sync_to`] has returned for a record, every later [`Journal::open`] reads back that record and all before it, or refuses and says
//! where the journal is damaged. Records come back in the order of their numbers, whole, each once. What was appended and not synced may or may not come
//! back, but never in part and never with a gap before it.
//!
//! # One journal, several users
//!
//! A node has one journal. Several streams share it: the namespace, the store's index, and the bytes of files being written. They share one order and
//! one fsync, so a record appended earlier is durable whenever a later one is. The close of a small file appends the store's record, then the
//! namespace's commit, and waits for one fsync. Callers that wait at the same time share one write and one fdatasync: group commit happens here.
//!
//! # A failed write or sync
//!
//! It stops the journal, since nothing is known of those bytes any more, and is recorded at once: the file `journal/sound-N` becomes `failed-N`. A failed
//! sync of an object's files does the same. The next opening makes `sound-N+1` of it. The kernel's boot that is kept with writers is mixed with N
//! ([`Journal::boot`]), so whoever wrote without a sync is treated as after a power failure. What opening reads of the end of the journal it writes again
//! before it counts as durable. A kill alone changes nothing: its writers continue.
//!
//! The bytes are in `docs/reference/formats.md`.

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
