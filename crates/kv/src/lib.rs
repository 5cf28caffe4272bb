//! Ordered keys and values with transactions: the trait that the namespace's rules are written over, and its engines
//! (`memory`, `fjall`) as an index over the journal. Knows nothing of files or directories.
//!
//! Promise: a transaction reported committed is in the journal, synced (or, if it asked for less, in the kernel);
//! the engine is an index that may be behind or lost, and is brought up from the journal when opened.

mod batch;
mod checkpoint;
mod embedded;
mod engine;
mod index;
mod lsm;
mod memory_kv;
mod overlay;
mod recovery;
mod snapshot;
mod sweeper;
#[cfg(test)]
mod tests;
mod traits;
mod write_set;

pub use batch::{BATCH_MAX, Batch, KEY_MAX, VALUE_MAX};
pub use embedded::{BatchDone, Embedded, EmbeddedConfig, EmbeddedStats};
pub use engine::{Applied, Engine, Entry, EntrySource, MemoryEngine};
pub use index::{IndexConfig, IndexStats, LoggedIndex};
pub use lsm::{LsmConfig, LsmEngine};
pub use memory_kv::{MemoryCounts, MemoryFaults, MemoryKv};
pub use recovery::{Rebuilt, Recovery};
pub use traits::{Durability, Kv, KvError, Op, OpDone, OpOutcome, Read, Savepoint, ScanOrder, Txn, Visit, transact};
