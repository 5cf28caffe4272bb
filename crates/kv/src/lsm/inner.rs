//! The tree, its version numbers, and its steps.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use disk::Directory;
use lsm_tree::config::{BlockSizePolicy, PinningPolicy};
use lsm_tree::file::CURRENT_VERSION_FILE;
use lsm_tree::{AbstractTree, AnyTree, Cache, Config, DescriptorTable, SequenceNumberCounter, Table};
use parking_lot::{Condvar, Mutex};

use super::compaction::{CompactionObserver, CompactionSignals};
use super::{LsmConfig, decode_applied, encode_applied, marker};
use crate::engine::{Applied, EntrySource, NoEntries};
use crate::{KvError, batch};

/// The engine's own key. It sorts last, because no other key may begin with this byte.
const APPLIED_KEY: &[u8] = &[batch::RESERVED, b'a'];
/// `current` holds the number of the list of tables (8 bytes, little-endian), the list's checksum (16) and its kind
/// (1).
const SUM_XXH3: u8 = 0;

pub(super) struct Inner {
    /// The tree's directory, below [`Directory::held`] of its home.
    pub(super) folder: PathBuf,
    /// The same, for people.
    pub(super) shown: PathBuf,
    pub(super) config: LsmConfig,
    pub(super) tree: AnyTree,
    /// The next version number. Shared with the tree, which numbers its own changes too.
    next: SequenceNumberCounter,
    pub(super) visible: SequenceNumberCounter,
    /// Held during a step or a flush, and while a snapshot is taken.
    pub(super) state: Mutex<State>,
    /// Open snapshots: the version below which each reads, and their number.
    pub(super) held: Mutex<BTreeMap<u64, usize>>,
    pub(super) compactor: Mutex<Option<JoinHandle<()>>>,
    /// The round of compaction, and the merged tables, each with its round. The last user of a table removes its file.
    /// Removing many at once would delay the disk, so the engine holds them here and releases them one by one.
    pub(super) merged: Mutex<(u64, VecDeque<(u64, Table)>)>,
    pub(super) signal: (Mutex<Signal>, Condvar),
    /// Signals to the running compaction.
    pub(super) signals: Arc<CompactionSignals>,
    /// Why the engine must be rebuilt.
    unusable: Mutex<Option<String>>,
    /// Dropped last: the tables remove their files by `folder`.
    _home: Arc<Directory>,
}

pub(super) struct State {
    applied: Applied,
    flushed: Applied,
    /// Set when a step failed halfway.
    broken: Option<String>,
}

#[derive(Default)]
pub(super) struct Signal {
    pub(super) stop: bool,
    pub(super) compact: bool,
}

impl Inner {
    /// Opens the tree in the directory `name` of `home`.
    pub(super) fn open(home: &Arc<Directory>, name: &str, config: LsmConfig) -> Result<Arc<Self>, KvError> {
        let folder = home.held().join(name);
        check_list(&folder)?;
        let (next, visible) = (SequenceNumberCounter::new(1), SequenceNumberCounter::new(1));
        let signals = Arc::new(CompactionSignals::default());
        let tree = Config::new(&folder, next.clone(), visible.clone())
            .with_compaction_filter_factory(Some(Arc::new(CompactionObserver(Arc::clone(&signals)))))
            .use_cache(Arc::new(Cache::with_capacity_bytes(config.cache_bytes)))
            .use_descriptor_table(Some(Arc::new(DescriptorTable::new(config.open_files.max(16)))))
            .data_block_size_policy(BlockSizePolicy::all(8 << 10))
            // Indexes and filters go through the cache in small parts, so memory does not grow with the number of keys.
            .index_block_partitioning_policy(PinningPolicy::all(true))
            .filter_block_partitioning_policy(PinningPolicy::all(true))
            .index_block_pinning_policy(PinningPolicy::all(false))
            .filter_block_pinning_policy(PinningPolicy::all(false))
            .open()
            .map_err(|error| match error {
                lsm_tree::Error::Io(io) if io.kind() == std::io::ErrorKind::StorageFull => KvError::NoSpace,
                error => KvError::Io(format!("its tables do not open: {error}")),
            })?;
        let highest = tree.get_highest_seqno().unwrap_or(0);
        next.fetch_max(highest + 1);
        visible.fetch_max(highest + 1);
        let value = tree.get(APPLIED_KEY, visible.get()).map_err(|error| KvError::Io(error.to_string()))?;
        let applied = match &value {
            Some(value) => {
                decode_applied(value).ok_or_else(|| KvError::Damaged("its position is unreadable".into()))?
            }
            None => Applied::default(),
        };
        let inner = Arc::new(Self {
            folder,
            shown: home.shown().join(name),
            config,
            tree,
            next,
            visible,
            state: Mutex::new(State { applied, flushed: applied, broken: None }),
            held: Mutex::default(),
            compactor: Mutex::default(),
            merged: Mutex::default(),
            signal: Default::default(),
            signals,
            unusable: Mutex::default(),
            _home: Arc::clone(home),
        });
        inner.start_compactor()?;
        Ok(inner)
    }

    pub(super) fn applied(&self) -> Applied {
        self.state.lock().applied
    }

    pub(super) fn flushed(&self) -> Applied {
        self.state.lock().flushed
    }

    pub(super) fn damaged(&self) -> Option<String> {
        self.unusable.lock().clone()
    }

    pub(super) fn apply(&self, entries: &mut dyn EntrySource, applied: Applied) -> Result<(), KvError> {
        self.wait_for_compaction();
        let mut state = self.state.lock();
        if let Some(broken) = &state.broken {
            return Err(KvError::Io(broken.clone()));
        }
        if self.tree.sealed_memtable_count() > 0 {
            // An earlier flush failed. Memory is bounded: take no more changes until a flush works.
            self.flush_locked(&mut state)?;
        }
        let version = self.next.next();
        let result = self.guarded(|| {
            while let Some((key, value)) = entries.next()? {
                match value {
                    Some(value) => self.tree.insert(key, value, version),
                    None => self.tree.remove(key, version),
                };
            }
            self.tree.insert(APPLIED_KEY, encode_applied(applied).as_slice(), version);
            Ok(())
        });
        if let Err(error) = result {
            // Its entries must never become visible, and they cannot be removed again.
            state.broken = Some(format!("a step of the index failed: {error}; it has to be built again"));
            self.mark_unusable(&error.to_string());
            return Err(error);
        }
        self.visible.fetch_max(version + 1);
        state.applied = applied;
        if self.tree.active_memtable().size() >= self.config.memtable_bytes
            && let Err(error) = self.flush_locked(&mut state)
        {
            // The step is applied; the next one first tries again to flush.
            tracing::error!("cannot flush the index {}: {error}", self.shown.display());
        }
        Ok(())
    }

    pub(super) fn flush(&self) -> Result<(), KvError> {
        self.flush_locked(&mut self.state.lock())
    }

    fn flush_locked(&self, state: &mut State) -> Result<(), KvError> {
        if state.flushed == state.applied {
            return Ok(());
        }
        if let Some(broken) = &state.broken {
            return Err(KvError::Io(broken.clone()));
        }
        let unneeded = self.unneeded();
        self.guarded(|| {
            let lock = self.tree.get_flush_lock();
            self.tree.rotate_memtable();
            self.tree.flush(&lock, unneeded).map_err(|error| self.trouble("write", &error))?;
            Ok(())
        })?;
        state.flushed = state.applied;
        self.signals.is_behind.store(self.is_behind(), Ordering::Relaxed);
        self.signal.0.lock().compact = true;
        self.signal.1.notify_all();
        Ok(())
    }

    pub(super) fn load(&self, entries: &mut dyn EntrySource, applied: Applied) -> Result<(), KvError> {
        {
            let _state = self.state.lock();
            self.guarded(|| {
                let write = |error| self.trouble("write", &error);
                let mut ingestion = self.tree.ingestion().map_err(write)?;
                while let Some((key, value)) = entries.next()? {
                    match value {
                        Some(value) => ingestion.write(key, value).map_err(write)?,
                        None => ingestion.write_tombstone(key).map_err(write)?,
                    }
                }
                ingestion.finish().map_err(write)
            })?;
        }
        // Set the position only now: an interrupted load starts over.
        self.apply(&mut NoEntries, applied)?;
        self.flush()
    }

    /// Versions hidden by others below this number are unused.
    pub(super) fn unneeded(&self) -> u64 {
        let held = self.held.lock();
        held.keys().next().copied().unwrap_or_else(|| self.visible.get()).saturating_sub(1)
    }

    /// Turns a panic of the tree into an error; the next start does not use such a tree.
    pub(super) fn guarded<T>(&self, f: impl FnOnce() -> Result<T, KvError>) -> Result<T, KvError> {
        catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| {
            let what = format!("the index panicked: {}", crate::embedded::panic_text(&*panic));
            self.mark_unusable(&what);
            Err(KvError::Damaged(what))
        })
    }

    /// Converts an error of the tree. Anything other than an error of the disk means that the files are damaged.
    pub(super) fn trouble(&self, doing: &str, error: &lsm_tree::Error) -> KvError {
        let what = format!("cannot {doing} the index {}: {error}", self.shown.display());
        match error {
            lsm_tree::Error::Io(io) if io.kind() == std::io::ErrorKind::StorageFull => {
                self.merged.lock().1.clear();
                KvError::NoSpace
            }
            lsm_tree::Error::Io(io) if !is_damage(io) => KvError::Io(what),
            _ => {
                self.mark_unusable(&what);
                KvError::Damaged(what)
            }
        }
    }

    fn mark_unusable(&self, why: &str) {
        let mut unusable = self.unusable.lock();
        if unusable.is_some() {
            return;
        }
        *unusable = Some(why.to_owned());
        // In case the process ends before the rebuild.
        let marked = std::fs::write(marker(&self.folder), why);
        tracing::error!("{why}; the index has to be built again (marked: {})", marked.is_ok());
    }
}

/// Compares the list of tables with its checksum. `lsm-tree` 3.1 writes the checksum beside the list's number but does
/// not compare it. With a changed list it would open without some of the tables and remove their files.
fn check_list(folder: &Path) -> Result<(), KvError> {
    let damaged = |what: &str| KvError::Damaged(format!("the list of its tables {what}"));
    let current = match std::fs::read(folder.join(CURRENT_VERSION_FILE)) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        read => read.map_err(|error| damaged(&format!("cannot be read: {error}")))?,
    };
    let parts = current.split_first_chunk().and_then(|(number, rest)| Some((number, rest.split_first_chunk()?)));
    let Some((number, (sum, [SUM_XXH3]))) = parts else { return Err(damaged("is not named as it should be")) };
    let list = std::fs::read(folder.join(format!("v{}", u64::from_le_bytes(*number))))
        .map_err(|error| damaged(&format!("cannot be read: {error}")))?;
    if xxhash_rust::xxh3::xxh3_128(&list) != u128::from_le_bytes(*sum) {
        return Err(damaged("does not match its checksum"));
    }
    Ok(())
}

/// Whether the error comes from a truncated or missing file.
fn is_damage(error: &std::io::Error) -> bool {
    use std::io::ErrorKind;
    matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::NotFound | ErrorKind::InvalidData)
}
