//! [`LsmEngine`]: the engine on disk, over the tables of `lsm-tree`.
//!
//! These tables are fjall's. weir does not use fjall itself: its journal would be a second one beside weir's. It can
//! refuse to open or lose its middle, and a full disk poisons it. If its journal is removed before opening, fjall 3.1
//! restarts version numbers at 0, below those in its tables, so that old values win over new ones. Without it there is
//! one journal, and a stop loses exactly the entries that were not flushed.
//!
//! A flush writes all entries since the last one, with `applied`, into table files and syncs these. Renaming one file
//! then makes them count. After any stop the tables therefore hold a prefix of the steps. Whatever is wrong with the
//! files, the engine continues empty in a new directory: checkpoint and journal have everything. The old directory
//! stays, because its readers still use it. Until the new one is complete, it may also be the last copy.
//!
//! `lsm-tree` takes paths. It gets the path of an open directory ([`Directory::held`]), so that a disk mounted over the
//! data directory later does not get tables of this engine.

mod compaction;
mod inner;
mod snapshot;
#[cfg(test)]
mod trees_tests;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use disk::{Directory, DiskError};
use journal::Seq;
use parking_lot::Mutex;

use crate::engine::{Applied, Engine, EntrySource};
use crate::{KvError, Read, ScanOrder, Visit};
use inner::Inner;
use snapshot::LsmSnapshot;

/// The tree's first directory inside the engine's. Later ones are `live-1`, `live-2`, and so on; the last one counts.
const LIVE: &str = "live";
/// `live-<n>.unusable` tells the next opening not to use that directory, and why.
const UNUSABLE: &str = "unusable";

/// Bounds of an engine on disk. The default keeps an index of tens of millions of keys below 128 MiB of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LsmConfig {
    /// Bytes of blocks (entries, indexes, filters) in memory.
    pub cache_bytes: u64,
    /// Bytes of entries in memory at which they are flushed to a table.
    pub memtable_bytes: u64,
    /// Target size of a table file in bytes.
    pub table_bytes: u64,
    /// Runs of flushed tables at which compaction begins.
    pub flushed_runs: u8,
    /// Runs of flushed tables at which steps wait for compaction.
    pub flushed_runs_max: usize,
    /// Open table files at most.
    pub open_files: usize,
}

impl Default for LsmConfig {
    fn default() -> Self {
        Self {
            cache_bytes: 32 << 20,
            memtable_bytes: 12 << 20,
            table_bytes: 16 << 20,
            flushed_runs: 4,
            flushed_runs_max: 16,
            open_files: 128,
        }
    }
}

/// The engine on disk.
pub struct LsmEngine {
    config: LsmConfig,
    inner: Mutex<Current>,
    set_aside: Mutex<Option<String>>,
    /// Dropped last: the trees use its path.
    home: Arc<Directory>,
}

/// The tree in use, and the number of its directory.
struct Current {
    number: u64,
    tree: Arc<Inner>,
}

impl LsmEngine {
    /// Opens the engine in the directory `path`, and makes it if needed: see [`LsmEngine::open_in`].
    ///
    /// # Errors
    /// As [`LsmEngine::open_in`], and errors of the directory.
    pub fn open(path: &Path, config: LsmConfig) -> Result<Self, KvError> {
        std::fs::create_dir_all(path)
            .map_err(|error| KvError::Io(format!("cannot make the folder of the index {}: {error}", path.display())))?;
        Self::open_in(Directory::open(path).map_err(of_folder)?, config)
    }

    /// Opens the engine in the directory `home`, which no other process uses. If its contents are unusable for any
    /// reason, sets them aside and starts empty: see [`LsmEngine::set_aside`].
    ///
    /// # Errors
    /// An empty engine cannot be made either; [`KvError::NoSpace`] if only space is missing.
    pub fn open_in(home: Directory, config: LsmConfig) -> Result<Self, KvError> {
        let home = Arc::new(home);
        let number = numbers(&home)?.last().copied().unwrap_or(0);
        let opened = match reason_in(&marker(&folder(&home, number))) {
            Some(why) => Err(KvError::Damaged(why)),
            None => open_caught(&home, number, config),
        };
        let (current, set_aside) = match opened {
            Ok(tree) => (Current { number, tree }, None),
            Err(KvError::NoSpace) => return Err(KvError::NoSpace),
            Err(why) => {
                let why = home.in_words(&why.to_string());
                let shown = home.shown().join(name(number));
                tracing::error!("the index in {} is not used any more, and is built again: {why}", shown.display());
                mark(&home, number, &why)?;
                (begin(&home, number + 1, config)?, Some(why))
            }
        };
        Ok(Self { config, inner: Mutex::new(current), set_aside: Mutex::new(set_aside), home })
    }

    /// Why the old contents were set aside when the engine was opened or reset; `None` if they were not.
    #[must_use]
    pub fn set_aside(&self) -> Option<String> {
        self.set_aside.lock().clone()
    }

    fn inner(&self) -> Arc<Inner> {
        Arc::clone(&self.inner.lock().tree)
    }
}

fn of_folder(error: DiskError) -> KvError {
    KvError::Io(format!("the folder of an index: {error}"))
}

fn cannot(what: &str, home: &Directory, error: &dyn std::fmt::Display) -> KvError {
    KvError::Io(format!("cannot {what} the index {}: {error}", home.shown().display()))
}

/// Opens a tree. Turns every failure, including a panic, into an error.
fn open_caught(home: &Arc<Directory>, number: u64, config: LsmConfig) -> Result<Arc<Inner>, KvError> {
    catch_unwind(AssertUnwindSafe(|| Inner::open(home, &name(number), config))).unwrap_or_else(|panic| {
        Err(KvError::Damaged(format!("opening it panicked: {}", crate::embedded::panic_text(&*panic))))
    })
}

/// The name of the tree's directory of that number.
fn name(number: u64) -> String {
    if number == 0 { LIVE.to_owned() } else { format!("{LIVE}-{number}") }
}

/// The tree's directory of that number.
fn folder(home: &Directory, number: u64) -> PathBuf {
    home.held().join(name(number))
}

/// The file that marks a tree's directory as unusable.
fn marker(folder: &Path) -> PathBuf {
    folder.with_extension(UNUSABLE)
}

fn reason_in(marker: &Path) -> Option<String> {
    marker.exists().then(|| std::fs::read_to_string(marker).unwrap_or_else(|error| format!("it is marked ({error})")))
}

/// The numbers of the trees' directories, in order.
fn numbers(home: &Directory) -> Result<Vec<u64>, KvError> {
    let entries = std::fs::read_dir(home.held()).map_err(|error| cannot("list", home, &error))?;
    let mut numbers = Vec::new();
    for entry in entries {
        let found = entry.map_err(|error| cannot("list", home, &error))?.file_name();
        let Some(rest) = found.to_str().and_then(|found| found.strip_prefix(LIVE)) else { continue };
        let number = if rest.is_empty() { Some(0) } else { rest.strip_prefix('-').and_then(|n| n.parse().ok()) };
        numbers.extend(number.filter(|number| found == *name(*number) && *number < 1 << 62));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// Marks a tree's directory as unusable, durably.
fn mark(home: &Directory, number: u64, why: &str) -> Result<(), KvError> {
    let marker = marker(&folder(home, number));
    let written = std::fs::write(&marker, why).and_then(|()| std::fs::File::open(&marker)?.sync_all());
    written.map_err(|error| cannot("set aside", home, &error))?;
    sync(home)
}

fn sync(home: &Directory) -> Result<(), KvError> {
    let synced = std::fs::File::open(home.held()).and_then(|folder| folder.sync_all());
    synced.map_err(|error| cannot("sync the folder of", home, &error))
}

/// Makes an empty tree in a directory of that number.
fn begin(home: &Arc<Directory>, number: u64, config: LsmConfig) -> Result<Current, KvError> {
    let tree = open_caught(home, number, config)?;
    sync(home)?;
    Ok(Current { number, tree })
}

/// Removes a tree's directory and its mark. A leftover does no harm.
fn remove(home: &Directory, number: u64) {
    let folder = folder(home, number);
    for result in [std::fs::remove_dir_all(&folder), std::fs::remove_file(marker(&folder))] {
        if let Err(error) = result
            && error.kind() != std::io::ErrorKind::NotFound
        {
            let shown = home.shown().join(name(number));
            tracing::warn!("cannot remove what is left of an old index in {}: {error}", shown.display());
        }
    }
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
        let mut current = self.inner.lock();
        current.tree.stop();
        let old = current.number;
        let has_content = current.tree.applied().seq > Seq::ZERO;
        if has_content {
            // Durably, so that it stays unusable even if the new directory is lost.
            mark(&self.home, old, why)?;
        }
        *current = begin(&self.home, old + 1, self.config)?;
        *self.set_aside.lock() = Some(why.to_owned());
        if !has_content {
            // At most an unfinished tree that never counted.
            remove(&self.home, old);
        }
        Ok(())
    }

    fn rebuilt(&self) {
        let current = self.inner.lock().number;
        let mut older = numbers(&self.home).unwrap_or_default();
        older.retain(|number| *number < current);
        // The last one is kept for inspection, and for its readers.
        older.pop();
        older.iter().for_each(|number| remove(&self.home, *number));
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

/// Encodes the engine's position, the value of its reserved key: little-endian.
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
