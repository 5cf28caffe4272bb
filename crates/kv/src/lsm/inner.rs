//! The tree, its version numbers, its snapshots, and its compaction thread.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lsm_tree::compaction::Leveled;
use lsm_tree::compaction::filter::{CompactionFilter, Context, Factory, ItemAccessor, Verdict};
use lsm_tree::config::{BlockSizePolicy, PinningPolicy};
use lsm_tree::file::CURRENT_VERSION_FILE;
use lsm_tree::table::filter::standard_bloom;
use lsm_tree::{AbstractTree, AnyTree, Cache, Config, DescriptorTable, Guard, SequenceNumberCounter, Slice, Table};
use parking_lot::{Condvar, Mutex};

use super::{LsmConfig, decode_applied, encode_applied, marker};
use crate::background::{come_back, give_way, in_spare_time};
use crate::engine::{Applied, EntrySource, NoEntries};
use crate::{KvError, ScanOrder, Visit, batch};

/// The engine's own key; behind all others, because none may begin with this byte.
const APPLIED_KEY: &[u8] = &[batch::RESERVED, b'a'];
/// `current` holds the number of the list of tables (8 bytes, little-endian), the list's checksum (16) and its kind (1).
const SUM_XXH3: u8 = 0;
/// How long a step waits for compaction before it goes on regardless.
const COMPACTION_WAIT_MAX: Duration = Duration::from_secs(5);
/// How often files that no snapshot needs any more are looked for when nothing else happens.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(10);
/// Rounds of compaction after which the tree itself, and readers, are done with a table that was merged into others.
const ROUNDS_HELD: u64 = 2;
/// The rest after each table that is removed: see [`disk::Removal`].
const REMOVAL_REST: Duration = Duration::from_millis(20);

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
    /// The round of compaction, and tables that were merged into others, each with its round. Whoever lets go of a table last removes its file: many at
    /// once would hold up the disk, so they are held here and let go one by one.
    merged: Mutex<(u64, VecDeque<(u64, Table)>)>,
    signal: (Mutex<Signal>, Condvar),
    /// For the compaction that is under way.
    ways: Arc<Ways>,
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
        check_list(folder)?;
        let (next, visible) = (SequenceNumberCounter::new(1), SequenceNumberCounter::new(1));
        let ways = Arc::new(Ways::default());
        let tree = Config::new(folder, next.clone(), visible.clone())
            .with_compaction_filter_factory(Some(Arc::new(Making(Arc::clone(&ways)))))
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
            merged: Mutex::default(),
            signal: Default::default(),
            ways,
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
        self.ways.piled_up.store(self.piles_up(), Ordering::Relaxed);
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
        self.apply(&mut NoEntries, applied)?;
        self.flush()
    }

    /// Whether compaction falls behind.
    fn piles_up(&self) -> bool {
        self.tree.l0_run_count() >= self.config.flushed_runs_max / 2
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
                    let urgent = inner.piles_up();
                    inner.ways.in_spare_time.store(!urgent, Ordering::Relaxed);
                    in_spare_time("compacting", urgent, || inner.compact());
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
            if self.ways.in_spare_time.load(Ordering::Relaxed) {
                give_way();
            }
            let before = self.tree.current_version();
            let unneeded = self.unneeded();
            let result = self.guarded(|| {
                let strategy = Arc::clone(&strategy);
                self.tree.compact(strategy, unneeded).map_err(|error| self.trouble("compact", &error))
            });
            if self.ways.give_up.load(Ordering::Relaxed) {
                // Nothing is lost: what was to be merged stays, and what was half made goes when the tree is opened next.
                return;
            }
            if let Err(error) = result {
                tracing::error!("cannot compact the index {}: {error}", self.folder.display());
                return;
            }
            let after = self.tree.current_version();
            if after.id() == before.id() {
                break;
            }
            let there: HashSet<_> = after.iter_tables().map(|table| table.id()).collect();
            let mut merged = self.merged.lock();
            let round = merged.0;
            merged.1.extend(
                before.iter_tables().filter(|table| !there.contains(&table.id())).map(|table| (round, table.clone())),
            );
            drop(merged);
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
        self.merged.lock().0 += 1;
        self.remove_merged();
    }

    /// Lets go of the tables that nobody needs any more, one by one.
    fn remove_merged(&self) {
        while !self.ways.give_up.load(Ordering::Relaxed) {
            let mut merged = self.merged.lock();
            let round = merged.0;
            if merged.1.front().is_none_or(|(since, _)| since + ROUNDS_HELD > round) {
                return;
            }
            let table = merged.1.pop_front();
            drop(merged);
            drop(table);
            // A commit of the file system's for each, so that the disk hears of few blocks at a time. Nothing depends on it.
            let _ = std::fs::File::open(&self.folder).and_then(|folder| folder.sync_all());
            std::thread::sleep(REMOVAL_REST);
        }
    }

    /// Ends the thread, giving up its present compaction.
    pub(super) fn stop(&self) {
        self.ways.give_up.store(true, Ordering::Relaxed);
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
        // Should the process end before it is built again.
        let marked = std::fs::write(marker(&self.folder), why);
        tracing::error!("{why}; the index has to be built again (marked: {})", marked.is_ok());
    }
}

/// Compares the list of tables with its checksum, which `lsm-tree` 3.1 writes beside its number and does not compare itself: with a
/// changed list it would open without some of the tables, and remove their files.
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

/// What a file that was cut or is missing gives.
fn is_damage(error: &std::io::Error) -> bool {
    use std::io::ErrorKind;
    matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::NotFound | ErrorKind::InvalidData)
}

/// What a compaction is told, and heeds.
#[derive(Default)]
struct Ways {
    /// It is to be given up: a stop waits for the compactor, which may get little time.
    give_up: AtomicBool,
    /// It works in the time that others leave, until it takes the tree's lock, or tables pile up.
    in_spare_time: AtomicBool,
    /// Flushed tables pile up.
    piled_up: AtomicBool,
}

/// Goes along with the making of tables; keeps everything. An error ends the compaction.
struct Making(Arc<Ways>);

impl Factory for Making {
    fn name(&self) -> &'static str {
        "making"
    }

    fn make_filter(&self, _: &Context) -> Box<dyn CompactionFilter> {
        Box::new(Self(Arc::clone(&self.0)))
    }
}

impl CompactionFilter for Making {
    fn filter_item(&mut self, _: ItemAccessor<'_>, _: &Context) -> lsm_tree::Result<Verdict> {
        if self.0.give_up.load(Ordering::Relaxed) {
            return Err(std::io::Error::from(std::io::ErrorKind::Interrupted).into());
        }
        if self.0.piled_up.load(Ordering::Relaxed) && self.0.in_spare_time.load(Ordering::Relaxed) {
            self.0.in_spare_time.store(false, Ordering::Relaxed);
            come_back();
        }
        Ok(Verdict::Keep)
    }

    fn finish(self: Box<Self>) {
        // What follows holds the tree's lock: steps and scans wait for it.
        if self.0.in_spare_time.load(Ordering::Relaxed) {
            come_back();
        }
    }
}

/// The state after a step.
pub(super) struct LsmSnapshot {
    inner: Arc<Inner>,
    /// Versions below this number are seen.
    below: u64,
    look_up: Option<LookUp>,
}

/// Finds the value of a key as of a version, in the memory and the tables of one moment.
type LookUp = Box<dyn Fn(&[u8], u64) -> lsm_tree::Result<Option<Slice>> + Send + Sync>;

/// What the tree itself would find, without its lock: that is held while a flush or a compaction syncs the list of tables, and all
/// commits would wait for it. `None` if there is memory that could not be flushed yet, which only the tree itself can reach.
fn look_up(tree: &AnyTree) -> Option<LookUp> {
    if tree.sealed_memtable_count() > 0 {
        return None;
    }
    let (memory, version) = (tree.active_memtable(), tree.current_version());
    Some(Box::new(move |key, below| {
        let mut found = memory.get(key, below);
        if found.is_none() {
            let hash = standard_bloom::Builder::get_hash(key);
            let runs = version.iter_levels().flat_map(|level| level.iter());
            for table in runs.filter_map(|run| run.get_for_key(key)) {
                found = table.get(key, below, hash)?;
                if found.is_some() {
                    break;
                }
            }
        }
        Ok(found.filter(|entry| !entry.is_tombstone()).map(|entry| entry.value))
    }))
}

impl LsmSnapshot {
    pub(super) fn new(inner: Arc<Inner>) -> Self {
        let (below, look_up) = {
            // No step is half way through while this is held. The tree's own changes of files may be: they do not
            // change what is seen.
            let _state = inner.state.lock();
            let mut held = inner.held.lock();
            let below = inner.visible.get();
            *held.entry(below).or_default() += 1;
            (below, look_up(&inner.tree))
        };
        Self { inner, below, look_up }
    }

    pub(super) fn get_value(&self, key: &[u8]) -> Result<Option<Slice>, KvError> {
        if key.is_empty() {
            return Ok(None);
        }
        self.inner.guarded(|| {
            let found = match &self.look_up {
                Some(look_up) => look_up(key, self.below),
                None => self.inner.tree.get(key, self.below),
            };
            found.map_err(|error| self.inner.trouble("read", &error))
        })
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

#[cfg(test)]
mod tests {
    use journal::Seq;

    use super::*;
    use crate::engine::Entry;

    struct One(Option<(&'static [u8], Option<Vec<u8>>)>, Option<(&'static [u8], Option<Vec<u8>>)>);

    impl EntrySource for One {
        fn next(&mut self) -> Result<Option<Entry<'_>>, KvError> {
            self.1 = self.0.take();
            Ok(self.1.as_ref().map(|(key, value)| (*key, value.as_deref())))
        }
    }

    fn change(inner: &Inner, seq: u64, key: &'static [u8], value: Option<&[u8]>) {
        let mut one = One(Some((key, value.map(<[u8]>::to_vec))), None);
        inner.apply(&mut one, Applied { seq: Seq(seq), incarnation: 1 }).unwrap();
    }

    /// Compacts only when the test does.
    fn open(folder: &Path) -> Arc<Inner> {
        let inner = Inner::open(folder, LsmConfig { flushed_runs: 2, ..LsmConfig::default() }).unwrap();
        inner.stop();
        inner.ways.give_up.store(false, Ordering::Relaxed);
        inner.signal.0.lock().stop = false;
        inner
    }

    #[test]
    fn looking_up_does_not_wait_while_the_list_of_tables_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let inner = open(&folder.path().join("tree"));
        for (seq, key) in [(1, b"flushed"), (2, b"removed"), (3, b"renewed")] {
            change(&inner, seq, key, Some(b"old"));
        }
        inner.flush().unwrap();
        change(&inner, 4, b"removed", None);
        change(&inner, 5, b"renewed", Some(b"new"));
        let snapshot = Arc::new(LsmSnapshot::new(Arc::clone(&inner)));
        change(&inner, 6, b"renewed", Some(b"later"));
        // What a flush holds while it syncs.
        let writing = inner.tree.get_version_history_lock();
        let (sender, found) = std::sync::mpsc::channel();
        let reader = Arc::clone(&snapshot);
        std::thread::spawn(move || {
            let keys: [&[u8]; 4] = [b"flushed", b"removed", b"renewed", b"neither"];
            let found = keys.map(|key| reader.get_value(key).unwrap().map(|value| value.to_vec()));
            sender.send(found)
        });
        let found = found.recv_timeout(Duration::from_secs(20)).expect("it waits");
        assert_eq!(found, [Some(b"old".to_vec()), None, Some(b"new".to_vec()), None]);
        drop(writing);
        inner.flush().unwrap();
        let found = snapshot.get_value(b"renewed").unwrap();
        assert_eq!(found.as_deref(), Some(&b"new"[..]), "also when what it looked at was flushed");
        inner.stop();
    }

    #[test]
    fn tables_that_were_merged_go_in_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let inner = open(&folder.path().join("tree"));
        for seq in 1..=20 {
            change(&inner, seq, b"key", Some(&seq.to_le_bytes()));
            inner.flush().unwrap();
            inner.compact();
        }
        // Nothing more comes: some rounds of upkeep.
        (0..=ROUNDS_HELD).for_each(|_| inner.compact());
        let files = std::fs::read_dir(folder.path().join("tree/tables")).unwrap().count();
        assert_eq!(files, inner.tree.table_count());
        inner.stop();
    }

    #[test]
    fn a_compaction_is_given_up_and_loses_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tree");
        let inner = open(&path);
        for seq in 1..=3 {
            change(&inner, seq, b"key", Some(&seq.to_le_bytes()));
            inner.flush().unwrap();
        }
        let before = inner.tree.current_version().id();
        inner.ways.give_up.store(true, Ordering::Relaxed);
        let strategy = Arc::new(Leveled::default().with_l0_threshold(2));
        assert!(inner.tree.compact(strategy, inner.unneeded()).is_err());
        assert_eq!((inner.tree.current_version().id(), inner.damaged()), (before, None));
        drop(inner);
        let inner = open(&path);
        let found = LsmSnapshot::new(Arc::clone(&inner)).get_value(b"key").unwrap();
        assert_eq!(found.as_deref(), Some(&3u64.to_le_bytes()[..]));
        inner.stop();
    }
}
