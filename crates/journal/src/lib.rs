//! The append-only journal that makes weir durable. It knows frames, sequence numbers, segments and syncs. It does not
//! know what records mean.
//!
//! # Promise
//!
//! When [`Journal::sync_to`] has returned for a record, every later [`Journal::open`] reads back that record and all
//! earlier ones, or fails and says where the journal is damaged. Records come back in the order of their numbers,
//! complete, each once. A record that was appended but not synced may or may not come back. It never comes back in
//! part, and never after a gap.
//!
//! # One journal, several users
//!
//! A node has one journal. Several streams share it: the namespace, the store's index, and the bytes of open writes.
//! They share one order and one fsync, so a record appended earlier is durable whenever a later one is. Closing a small
//! file appends the store's record, then the namespace's commit, and waits for one fsync. Callers that wait at the same
//! time share one write and one fdatasync: group commit happens here.
//!
//! # A failed write or sync
//!
//! A failure stops the journal, because the state of those bytes is unknown. It is recorded at once: the file
//! `journal/sound-N` becomes `failed-N`. A failed sync of an object's files does the same. The next opening renames the
//! file to `sound-N+1`. [`Journal::boot`] mixes N into the kernel's boot id, and open writes keep the result. A writer
//! whose bytes were not synced is therefore treated as after a power failure. Opening rewrites the end of the journal
//! before it counts as durable. A kill alone changes nothing: its writers continue.
//!
//! `docs/reference/formats.md` describes the bytes.

mod ballast;
mod batch;
mod begin;
mod commit;
mod config;
mod error;
mod event;
mod files;
mod frame;
mod interface;
mod journal;
mod losses;
mod reading;
mod recover;
mod repair;
mod scan;
mod segment;
mod segment_file;
mod spare_segments;
mod state;
mod tail;
mod trim;
mod walk;

pub use ballast::Ballast;
pub use commit::WRITER_DIED;
#[cfg(any(test, feature = "planted"))]
pub use config::PlantedBug;
pub use config::{BallastConfig, JournalConfig, PAYLOAD_MAX, Prepare, SEGMENT_BYTES_DEFAULT};
pub use error::{Damage, JournalError};
pub use interface::{
    Appended, Beginning, Cut, JournalStats, Location, Loss, Opened, Repaired, SegmentInfo, Seq, StreamId, Visit,
    VisitMany,
};
pub use journal::Journal;
