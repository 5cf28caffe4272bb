//! [`LsmEngine`]: the engine on disk, over the tables of `lsm-tree`.
//!
//! Why not fjall itself, whose tables these are: its journal would be a second log beside ours, it can refuse to open
//! or lose its middle, a full disk poisons it, and where its journal is taken away before opening, fjall 3.1 starts
//! numbering versions from 0 again, below those in its tables, so that old values win over new ones. Without it there
//! is one log, and what is lost at a stop is exactly what was not flushed.
//!
//! A flush writes all entries since the last one, `applied` among them, into table files, syncs these, and makes them
//! count by renaming one file. So after any stop the tables hold a prefix of the steps. Whatever is wrong with the
//! files, the folder is set aside and the engine starts empty: checkpoint and log have everything.

mod inner;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use journal::Seq;
use parking_lot::Mutex;

use crate::engine::{Applied, Engine, EntrySource};
use crate::{KvError, Read, ScanOrder, Visit};
use inner::{Inner, LsmSnapshot};

/// The tree's folder inside the engine's.
const LIVE: &str = "live";
/// What the tree's folder is renamed to when it is not to be used any more. Only the last one is kept.
const ASIDE: &str = "aside";
/// Its presence tells the next opening that damage was found while reading.
const UNUSABLE: &str = "unusable";

/// Bounds of an engine on disk. The default keeps an index of tens of millions of keys under 128 MiB of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LsmConfig {
    /// Bytes of blocks (entries, indexes, filters) in memory.
    pub cache_bytes: u64,
    /// Bytes of entries in memory at which they are flushed to a table.
    pub memtable_bytes: u64,
    /// Bytes that a table file aims at.
    pub table_bytes: u64,
    /// Runs of flushed tables at which compaction begins.
    pub flushed_runs: u8,
    /// Runs of flushed tables at which steps wait for compaction.
    pub flushed_runs_max: usize,
    /// Open table files.
    pub open_files: usize,
}

impl Default for LsmConfig {
    fn default() -> Self {
        Self {
            cache_bytes: 32 << 20,
            memtable_bytes: 12 << 20,
            table_bytes: 32 << 20,
            flushed_runs: 4,
            flushed_runs_max: 16,
            open_files: 128,
        }
    }
}

/// The engine on disk.
pub struct LsmEngine {
    path: PathBuf,
    config: LsmConfig,
    inner: Mutex<Arc<Inner>>,
    set_aside: Mutex<Option<String>>,
}

impl LsmEngine {
    /// Opens the engine in the folder `path`, which nobody else uses. If what is there cannot be used for any reason,
    /// it is set aside and the engine is empty: see [`LsmEngine::set_aside`].
    ///
    /// # Errors
    /// Only if an empty one cannot be made either.
    pub fn open(path: &Path, config: LsmConfig) -> Result<Self, KvError> {
        std::fs::create_dir_all(path).map_err(|error| cannot("make the folder of", path, &error))?;
        let marked = std::fs::read_to_string(path.join(UNUSABLE)).ok();
        let opened = match marked {
            Some(why) => Err(why),
            None => open_caught(&path.join(LIVE), config),
        };
        let (inner, set_aside) = match opened {
            Ok(inner) => (inner, None),
            Err(why) => {
                set_aside(path)?;
                (open_caught(&path.join(LIVE), config).map_err(KvError::Io)?, Some(why))
            }
        };
        Ok(Self { path: path.to_owned(), config, inner: Mutex::new(inner), set_aside: Mutex::new(set_aside) })
    }

    /// Why what was in the folder was set aside when the engine was opened or reset, if it was.
    #[must_use]
    pub fn set_aside(&self) -> Option<String> {
        self.set_aside.lock().clone()
    }

    fn inner(&self) -> Arc<Inner> {
        Arc::clone(&self.inner.lock())
    }
}

fn cannot(what: &str, path: &Path, error: &dyn std::fmt::Display) -> KvError {
    KvError::Io(format!("cannot {what} the index {}: {error}", path.display()))
}

/// Opens; everything that can go wrong, panics included, becomes a reason.
fn open_caught(live: &Path, config: LsmConfig) -> Result<Arc<Inner>, String> {
    match catch_unwind(AssertUnwindSafe(|| Inner::open(live, config))) {
        Ok(Ok(inner)) => Ok(inner),
        Ok(Err(error)) => Err(error.to_string()),
        Err(panic) => Err(format!("opening it panicked: {}", crate::embedded::panic_text(&*panic))),
    }
}

/// Renames what is there out of the way, in place of what was renamed before.
fn set_aside(path: &Path) -> Result<(), KvError> {
    let (live, aside) = (path.join(LIVE), path.join(ASIDE));
    let ignore_missing = |result: std::io::Result<()>| match result {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(cannot("set aside", path, &error)),
        _ => Ok(()),
    };
    ignore_missing(std::fs::remove_dir_all(&aside))?;
    ignore_missing(std::fs::rename(&live, &aside))?;
    ignore_missing(std::fs::remove_file(path.join(UNUSABLE)))?;
    let synced = std::fs::File::open(path).and_then(|folder| folder.sync_all());
    synced.map_err(|error| cannot("set aside", path, &error))
}

impl Engine for LsmEngine {
    fn snapshot(&self) -> Arc<dyn Read + Send + Sync> {
        Arc::new(LsmSnapshot::new(self.inner()))
    }

    fn apply(&self, entries: &mut dyn EntrySource, applied: Applied) -> Result<(), KvError> {
        self.inner().apply(entries, applied)
    }

    fn applied(&self) -> Applied {
        self.inner().applied()
    }

    fn flushed(&self) -> Applied {
        self.inner().flushed()
    }

    fn flush(&self) -> Result<(), KvError> {
        self.inner().flush()
    }

    fn reset(&self, why: &str) -> Result<(), KvError> {
        let mut inner = self.inner.lock();
        inner.stop();
        set_aside(&self.path)?;
        *self.set_aside.lock() = Some(why.to_owned());
        *inner = open_caught(&self.path.join(LIVE), self.config).map_err(KvError::Io)?;
        Ok(())
    }

    fn load(&self, entries: &mut dyn EntrySource, applied: Applied) -> Result<(), KvError> {
        self.inner().load(entries, applied)
    }

    fn damaged(&self) -> Option<String> {
        self.inner().damaged()
    }

    fn close(&self) {
        self.inner().stop();
    }
}

impl Drop for LsmEngine {
    fn drop(&mut self) {
        self.inner().stop();
    }
}

impl Read for LsmSnapshot {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        self.get_value(key).map(|value| value.map(|value| value.to_vec()))
    }

    fn scan(&self, start: &[u8], end: &[u8], order: ScanOrder, visit: Visit<'_>) -> Result<(), KvError> {
        self.scan_range(start, end, order, visit)
    }
}

/// Where the engine stands, as its own key's value: little-endian.
fn encode_applied(applied: Applied) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&applied.seq.0.to_le_bytes());
    bytes[8..].copy_from_slice(&applied.incarnation.to_le_bytes());
    bytes
}

fn decode_applied(bytes: &[u8]) -> Option<Applied> {
    let (seq, rest) = bytes.split_first_chunk::<8>()?;
    let incarnation = rest.try_into().ok()?;
    Some(Applied { seq: Seq(u64::from_le_bytes(*seq)), incarnation: u64::from_le_bytes(incarnation) })
}
