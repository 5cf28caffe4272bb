//! The tree, its version numbers, its snapshots, and its compaction thread.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lsm_tree::compaction::Leveled;
use lsm_tree::config::{BlockSizePolicy, PinningPolicy};
use lsm_tree::{AbstractTree, AnyTree, Cache, Config, DescriptorTable, Guard, SequenceNumberCounter, Slice};
use parking_lot::{Condvar, Mutex};

use super::{LsmConfig, decode_applied, encode_applied, marker};
use crate::engine::{Applied, Entry, EntrySource};
use crate::{KvError, ScanOrder, Visit, batch};

/// The engine's own key; behind all others, because none may begin with this byte.
const APPLIED_KEY: &[u8] = &[batch::RESERVED, b'a'];
/// How long a step waits for compaction before it goes on regardless.
const COMPACTION_WAIT_MAX: Duration = Duration::from_secs(5);
/// How often files that no snapshot needs any more are looked for when nothing else happens.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(10);

pub(super) struct Inner {
    folder: PathBuf,
    config: LsmConfig,
    tree: AnyTree,
    /// The next version number. Shared with the tree, which numbers its own changes too.
    next: SequenceNumberCounter,
    visible: SequenceNumberCounter,
    /// Held for a step, a flush, or while a snapshot is taken.
    state: Mutex<State>,
    /// Snapshots that are held: versions below each, and how many.
    held: Mutex<BTreeMap<u64, usize>>,
    compactor: Mutex<Option<JoinHandle<()>>>,
    signal: (Mutex<Signal>, Condvar),
    /// Why it is to be built again.
    unusable: Mutex<Option<String>>,
}

struct State {
    applied: Applied,
    flushed: Applied,
    /// Set when a step failed in the middle.
    broken: Option<String>,
}

#[derive(Default)]
struct Signal {
    stop: bool,
    compact: bool,
}

impl Inner {
    pub(super) fn open(folder: &Path, config: LsmConfig) -> Result<Arc<Self>, KvError> {
        let (next, visible) = (SequenceNumberCounter::new(1), SequenceNumberCounter::new(1));
        let tree = Config::new(folder, next.clone(), visible.clone())
            .use_cache(Arc::new(Cache::with_capacity_bytes(config.cache_bytes)))
            .use_descriptor_table(Some(Arc::new(DescriptorTable::new(config.open_files.max(16)))))
            .data_block_size_policy(BlockSizePolicy::all(8 << 10))
            // Indexes and filters go through the cache in small parts, so that memory does not grow with the number of keys.
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
            folder: folder.to_owned(),
            config,
            tree,
            next,
            visible,
            state: Mutex::new(State { applied, flushed: applied, broken: None }),
            held: Mutex::default(),
            compactor: Mutex::default(),
            signal: Default::default(),
            unusable: Mutex::default(),
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
            // An earlier flush failed. Memory is bounded: nothing more is taken in until it works.
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
            // Its entries must never become visible, and there is no taking them out again.
            state.broken = Some(format!("a step of the index failed: {error}; it has to be built again"));
            self.mark_unusable(&error.to_string());
            return Err(error);
        }
        self.visible.fetch_max(version + 1);
        state.applied = applied;
        if self.tree.active_memtable().size() >= self.config.memtable_bytes
            && let Err(error) = self.flush_locked(&mut state)
        {
            // The step is in; the next one tries again first.
            tracing::error!("cannot flush the index {}: {error}", self.folder.display());
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
        // Only now does it have a position: an interrupted load is begun anew.
        self.apply(&mut Nothing, applied)?;
        self.flush()
    }

    /// Steps wait while flushed tables pile up: each one makes every read slower.
    fn wait_for_compaction(&self) {
        let until = Instant::now() + COMPACTION_WAIT_MAX;
        let mut signal = self.signal.0.lock();
        while self.tree.l0_run_count() >= self.config.flushed_runs_max && !signal.stop {
            signal.compact = true;
            self.signal.1.notify_all();
            if self.signal.1.wait_until(&mut signal, until).timed_out() {
                return;
            }
        }
    }

    /// Versions that are hidden by others below this number are needed by nobody.
    fn unneeded(&self) -> u64 {
        let held = self.held.lock();
        held.keys().next().copied().unwrap_or_else(|| self.visible.get()).saturating_sub(1)
    }

    fn start_compactor(self: &Arc<Self>) -> Result<(), KvError> {
        let weak = Arc::downgrade(self);
        let thread = std::thread::Builder::new()
            .name("compactor".into())
            .spawn(move || {
                while let Some(inner) = weak.upgrade() {
                    {
                        let mut signal = inner.signal.0.lock();
                        if !signal.compact && !signal.stop {
                            inner.signal.1.wait_for(&mut signal, UPKEEP_INTERVAL);
                        }
                        if signal.stop {
                            return;
                        }
                        signal.compact = false;
                    }
                    inner.compact();
                    inner.signal.1.notify_all();
                }
            })
            .map_err(|error| KvError::Io(format!("cannot start the compactor: {error}")))?;
        *self.compactor.lock() = Some(thread);
        Ok(())
    }

    fn compact(&self) {
        let strategy = Leveled::default()
            .with_l0_threshold(self.config.flushed_runs)
            .with_table_target_size(self.config.table_bytes);
        let strategy = Arc::new(strategy);
        loop {
            if self.signal.0.lock().stop {
                return;
            }
            let before = self.tree.current_version().id();
            let unneeded = self.unneeded();
            let result = self.guarded(|| {
                let strategy = Arc::clone(&strategy);
                self.tree.compact(strategy, unneeded).map_err(|error| self.trouble("compact", &error))
            });
            if let Err(error) = result {
                tracing::error!("cannot compact the index {}: {error}", self.folder.display());
                return;
            }
            if self.tree.current_version().id() == before {
                break;
            }
            // A waiting step can go on as soon as there are few enough runs.
            self.signal.1.notify_all();
        }
        let unneeded = self.unneeded();
        let result = self.guarded(|| {
            let mut versions = self.tree.get_version_history_lock();
            versions.maintenance(&self.folder, unneeded).map_err(|error| self.trouble("tidy up", &error))
        });
        if let Err(error) = result {
            tracing::warn!("cannot remove old files of the index {}: {error}", self.folder.display());
        }
    }

    /// Ends the thread after its present compaction.
    pub(super) fn stop(&self) {
        self.signal.0.lock().stop = true;
        self.signal.1.notify_all();
        if let Some(thread) = self.compactor.lock().take()
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }

    /// Turns a panic of the tree's into an error; such a tree is not used after the next start.
    fn guarded<T>(&self, f: impl FnOnce() -> Result<T, KvError>) -> Result<T, KvError> {
        catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| {
            let what = format!("the index panicked: {}", crate::embedded::panic_text(&*panic));
            self.mark_unusable(&what);
            Err(KvError::Damaged(what))
        })
    }

    /// An error of the tree's. Anything but a refusal by the disk means that its files are damaged.
    fn trouble(&self, doing: &str, error: &lsm_tree::Error) -> KvError {
        let what = format!("cannot {doing} the index {}: {error}", self.folder.display());
        match error {
            lsm_tree::Error::Io(io) if io.kind() == std::io::ErrorKind::StorageFull => KvError::NoSpace,
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
        // Should the process end before it is built again.
        let marked = std::fs::write(marker(&self.folder), why);
        tracing::error!("{why}; the index has to be built again (marked: {})", marked.is_ok());
    }
}

/// What a file that was cut or is missing gives.
fn is_damage(error: &std::io::Error) -> bool {
    use std::io::ErrorKind;
    matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::NotFound | ErrorKind::InvalidData)
}

struct Nothing;

impl EntrySource for Nothing {
    fn next(&mut self) -> Result<Option<Entry<'_>>, KvError> {
        Ok(None)
    }
}

/// The state after a step.
pub(super) struct LsmSnapshot {
    inner: Arc<Inner>,
    /// Versions below this number are seen.
    below: u64,
}

impl LsmSnapshot {
    pub(super) fn new(inner: Arc<Inner>) -> Self {
        let below = {
            // No step is half way through while this is held. The tree's own changes of files may be: they do not
            // change what is seen.
            let _state = inner.state.lock();
            let mut held = inner.held.lock();
            let below = inner.visible.get();
            *held.entry(below).or_default() += 1;
            below
        };
        Self { inner, below }
    }

    pub(super) fn get_value(&self, key: &[u8]) -> Result<Option<Slice>, KvError> {
        if key.is_empty() {
            return Ok(None);
        }
        self.inner.guarded(|| self.inner.tree.get(key, self.below).map_err(|error| self.inner.trouble("read", &error)))
    }

    pub(super) fn scan_range(
        &self,
        start: &[u8],
        end: &[u8],
        order: ScanOrder,
        visit: Visit<'_>,
    ) -> Result<(), KvError> {
        let end = end.min(&[batch::RESERVED]);
        if start >= end {
            return Ok(());
        }
        let mut entries = self.inner.guarded(|| Ok(self.inner.tree.range(start..end, self.below, None)))?;
        loop {
            // Only the tree is guarded: a panic of the visitor's is not the tree's fault.
            let entry = self.inner.guarded(|| {
                let entry = match order {
                    ScanOrder::Ascending => entries.next(),
                    ScanOrder::Descending => entries.next_back(),
                };
                entry.map(Guard::into_inner).transpose().map_err(|error| self.inner.trouble("read", &error))
            })?;
            match entry {
                Some((key, value)) => {
                    if visit(&key, &value) == ControlFlow::Break(()) {
                        return Ok(());
                    }
                }
                None => return Ok(()),
            }
        }
    }
}

impl Drop for LsmSnapshot {
    fn drop(&mut self) {
        let mut held = self.inner.held.lock();
        if let Some(count) = held.get_mut(&self.below) {
            *count -= 1;
            if *count == 0 {
                held.remove(&self.below);
            }
        }
    }
}
