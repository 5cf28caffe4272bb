//! Ordered keys and values with transactions: the trait that the namespace's rules are written over ([`Kv`]), and what
//! stands behind it. Knows nothing of files or directories.
//!
//! * [`MemoryKv`]: a map, for model tests, with conflicts and lost answers by seed.
//! * [`Embedded`]: the committer. Runs queued operations, each on a savepoint, and puts the net effect of a batch of them
//!   into one record of the log with one sync.
//! * [`Inline`]: the same by the caller's own thread, one operation at a time.
//! * [`LoggedIndex`]: a stream of the log as a map: an overlay in memory over an [`Engine`] ([`LsmEngine`] on disk,
//!   [`MemoryEngine`]), with checkpoints made from the log. The store uses it directly.
//!
//! Promises: what was answered as committed is in the log, synced (or, if it asked for less, in the kernel), and every
//! later opening has it, in order and whole, or refuses and says what is missing where. Readers see whole batches only,
//! never one that could still be lost unless it asked for that. The engine is an index that may be behind or lost: it
//! never holds what the log might lose, and is built again from checkpoint and log when it is not to be trusted, also
//! while everything goes on. The log is trimmed only below what both a verified checkpoint and the engine's files hold.

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
