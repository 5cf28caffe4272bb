//! Ordered keys and values with transactions: the trait over which the namespace's rules are written ([`Kv`]), and its
//! engines. This crate knows nothing of files or directories.
//!
//! - [`MemoryKv`]: a map for model tests, with conflicts and lost answers by seed.
//! - [`Embedded`]: the committer. It runs queued operations, each on a savepoint, and puts the net effect of a batch
//!   into one journal record with one sync.
//! - [`Inline`]: the same on the caller's thread, one operation at a time.
//! - [`JournaledIndex`]: a stream of the journal as a map. It has an overlay in memory over an [`Engine`] ([`LsmEngine`]
//!   on disk, [`MemoryEngine`]), and checkpoints made from the journal. The store uses it directly.
//!
//! # Promises
//!
//! - Operations answered as committed are in the journal, synced (or in the kernel, if the caller asked for less).
//!   Every later opening has them, in order and complete, or fails and says what is missing where.
//! - Readers see only whole batches. They see a batch that could still be lost only if they asked for that.
//! - The engine is an index that may lag behind or be lost. It never holds changes that the journal might lose. If it
//!   cannot be trusted, it is rebuilt from checkpoint and journal while everything else continues.
//! - The journal is trimmed only below records that both a verified checkpoint and the engine's files hold.
//!
//! # How a stream becomes a map
//!
//! `append` puts a batch into the journal and into the **overlay**: versions in memory by sequence number, bounded in
//! bytes. Readers see the overlay over the engine as of a sequence number. A background thread, the sweeper, moves
//! *durable* changes from the overlay to the engine. Each move is one atomic batch that also writes `applied =
//! sequence`. Short-lived keys (`W`) therefore never reach the engine, and hot ones (`A`) reach it once per sweep. A
//! file that is created and soon committed reaches it once.
//!
//! After any stop, opening takes the engine at its `applied` and replays the rest of the journal. If the engine's files
//! are missing or invalid, opening rebuilds them from checkpoint and journal. If the engine is *ahead* of the journal,
//! the journal has lost durable records: opening reports damage. `fsck --repair-journal` lets the index follow the
//! journal.
//!
//! A **cache** (16 MiB for each index) holds entries read or written lately, for readers and the committer. An entry is
//! valid from a record on. The appender replaces it before any reader sees the change. The cache accepts a reader's
//! result only if no key of its set has changed since the reader's snapshot.
//!
//! **Checkpoints** are sorted, checksummed files made from the journal, not from the engine: a delta for a run of old
//! segments, merged into the base when the deltas outgrow it. A damaged engine therefore never gets into its own
//! backup.
//!
//! # Why not all of fjall
//!
//! [`LsmEngine`] uses only fjall's tables (`lsm-tree`). Fjall's journal would be a second one beside weir's. If that
//! journal is set aside, fjall 3.1 restarts version numbers at 0, below those in its tables, so old values would win.

mod background;
mod batch;
mod cache;
mod checkpoint;
mod chunks;
mod embedded;
mod engine;
mod index;
mod inline;
mod key;
mod lsm;
mod memory_kv;
mod overlay;
mod recovery;
mod snapshot;
mod sweeper;
#[cfg(test)]
mod tests;
mod traits;
mod without_journal;
mod write_set;

/// The parts that committers share: queued operations, their changes, and the thread that answers them. An engine in another
/// crate is made of these.
pub mod committing {
    pub use crate::embedded::drive::{Give, commit_until_closed};
    pub use crate::embedded::queue::{Queue, Request};
    pub use crate::embedded::responder::{Answers, Completions, Responder};
    pub use crate::embedded::run::{OpResult, run_one};
    pub use crate::write_set::WriteSet;
}

pub use batch::{BATCH_MAX, Batch, KEY_MAX, VALUE_MAX};
pub use checkpoint::{
    Backup, BackupHead, BackupJournal, BackupTotals, backup_entries, place_entries, read_backup, restore_backups,
    write_backup,
};
pub use chunks::{Chunks, OwnedEntry, chunk_of};
pub use embedded::{BatchDone, Embedded, EmbeddedConfig, EmbeddedStats};
pub use engine::{Applied, Engine, Entry, EntrySource, MemoryEngine, NoEntries};
pub use index::{IndexConfig, IndexStats, JournalOwner, JournaledIndex};
pub use inline::Inline;
pub use lsm::{LsmConfig, LsmEngine};
pub use memory_kv::{MemoryCounts, MemoryFaults, MemoryKv};
pub use recovery::{Rebuilt, Recovery};
pub use traits::{
    Chain, Durability, Follow, ID_LEN, Kv, KvError, Op, OpDone, OpOutcome, Prefetch, Read, Savepoint, ScanOrder, Txn,
    Visit, transact,
};
pub use without_journal::{IndexPositions, WithoutJournal};
