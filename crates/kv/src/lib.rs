//! Ordered keys and values with transactions: the trait that the namespace's rules are written over ([`Kv`]), and its engines. This crate knows
//! nothing of files or directories.
//!
//! * [`MemoryKv`]: a map for model tests, with conflicts and lost answers by seed.
//! * [`Embedded`]: the committer. It runs queued operations, each on a savepoint, and puts the net effect of a batch into one record of the journal with
//!   one sync.
//! * [`Inline`]: the same by the caller's own thread, one operation at a time.
//! * [`LoggedIndex`]: a stream of the journal as a map: an overlay in memory over an [`Engine`] ([`LsmEngine`] on disk, [`MemoryEngine`]), with checkpoints
//!   made from the journal. The store uses it directly.
//!
//! # Promises
//!
//! - What was answered as committed is in the journal, synced (or in the kernel, if the caller asked for less). Every later opening has it, in order and
//!   whole, or refuses and says what is missing where.
//! - Readers see whole batches only, and never one that could still be lost unless they asked for that.
//! - The engine is an index that may be behind or lost. It never holds what the journal might lose. It is rebuilt from checkpoint and journal when it cannot be
//!   trusted, also while everything else continues.
//! - The journal is trimmed only below what both a verified checkpoint and the engine's files hold.
//!
//! # How a stream becomes a map
//!
//! `append` puts a batch into the journal and into the **overlay**: versions in memory, by sequence number, bounded in bytes. Readers see overlay over engine
//! as of a sequence number. A background thread, the sweeper, moves what is *durable* from the overlay to the engine in bulk, in one atomic batch that
//! also writes `applied = sequence`. So short-lived keys (`W`) never reach the engine, hot ones (`A`) reach it once a sweep, and a file that is
//! created and soon committed reaches it once.
//!
//! After any stop: open the engine at its `applied`, and replay the rest of the journal. If the engine's files are gone or do not open, rebuild them from
//! checkpoint and journal. If the engine is *ahead* of the journal, the journal has lost durable records: that is damage, and refused. `fsck --repair-journal` lets
//! the index follow.
//!
//! A **cache** (16 MiB for each index) of entries read or written lately stands before both, for readers and the committer alike. An entry holds from a
//! record on. The appender replaces it before anybody sees the change. The cache takes in what a reader found only if nothing of its set changed since
//! the reader's snapshot.
//!
//! **Checkpoints** are sorted, checksummed files made from the journal, not from the engine: a delta for a run of old segments, merged into the base when the
//! deltas outgrow it. So a damaged engine never gets into its own backup.
//!
//! # Why not all of fjall
//!
//! [`LsmEngine`] uses fjall's tables (`lsm-tree`) alone. Fjall's journal would be a second journal beside ours. Set aside, fjall 3.1 numbers versions from 0
//! again, below those in its tables, so old values would win.

mod background;
mod batch;
mod cache;
mod checkpoint;
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
mod without_log;
mod write_set;

pub use batch::{BATCH_MAX, Batch, KEY_MAX, VALUE_MAX};
pub use checkpoint::{Backup, BackupHead, BackupTotals, Followed, read_backup, restore_backups};
pub use embedded::{BatchDone, Embedded, EmbeddedConfig, EmbeddedStats};
pub use engine::{Applied, Engine, Entry, EntrySource, MemoryEngine, NoEntries};
pub use index::{IndexConfig, IndexStats, LoggedIndex};
pub use inline::Inline;
pub use lsm::{LsmConfig, LsmEngine};
pub use memory_kv::{MemoryCounts, MemoryFaults, MemoryKv};
pub use recovery::{Rebuilt, Recovery};
pub use traits::{Durability, Kv, KvError, Op, OpDone, OpOutcome, Read, Savepoint, ScanOrder, Txn, Visit, transact};
pub use without_log::{Standing, WithoutLog};
