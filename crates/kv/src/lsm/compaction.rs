//! The thread that merges tables and removes unused ones.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lsm_tree::AbstractTree;
use lsm_tree::compaction::Leveled;
use lsm_tree::compaction::filter::{CompactionFilter, Context, Factory, ItemAccessor, Verdict};

use super::inner::Inner;
use crate::KvError;
use crate::background::{at_low_priority, lower_priority, restore_priority};

/// How long a step waits for compaction before it continues anyway.
const COMPACTION_WAIT_MAX: Duration = Duration::from_secs(5);
/// How often to look for unused files while nothing else happens.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(10);
/// Rounds of compaction after which neither the tree nor readers use a merged table.
const ROUNDS_HELD: u64 = 2;
/// The pause after each removed table: see [`disk::Removal`].
const REMOVAL_REST: Duration = Duration::from_millis(20);

impl Inner {
    /// Whether compaction falls behind.
    pub(super) fn is_behind(&self) -> bool {
        self.tree.l0_run_count() >= self.config.flushed_runs_max / 2
    }

    /// Makes a step wait while flushed tables pile up: each one slows down every read.
    pub(super) fn wait_for_compaction(&self) {
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

    pub(super) fn start_compactor(self: &Arc<Self>) -> Result<(), KvError> {
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
                    let urgent = inner.is_behind();
                    inner.signals.at_low_priority.store(!urgent, Ordering::Relaxed);
                    at_low_priority("compacting", urgent, || inner.compact());
                    inner.signal.1.notify_all();
                }
            })
            .map_err(|error| KvError::Io(format!("cannot start the compactor: {error}")))?;
        *self.compactor.lock() = Some(thread);
        Ok(())
    }

    pub(super) fn compact(&self) {
        let strategy = Leveled::default()
            .with_l0_threshold(self.config.flushed_runs)
            .with_table_target_size(self.config.table_bytes);
        let strategy = Arc::new(strategy);
        loop {
            if self.signal.0.lock().stop {
                return;
            }
            if self.signals.at_low_priority.load(Ordering::Relaxed) {
                lower_priority();
            }
            let before = self.tree.current_version();
            let unneeded = self.unneeded();
            let result = self.guarded(|| {
                let strategy = Arc::clone(&strategy);
                self.tree.compact(strategy, unneeded).map_err(|error| self.trouble("compact", &error))
            });
            if self.signals.give_up.load(Ordering::Relaxed) {
                // Nothing is lost: the input tables stay, and the next opening removes unfinished output.
                return;
            }
            if let Err(error) = result {
                tracing::error!("cannot compact the index {}: {error}", self.shown.display());
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
            // A waiting step can continue as soon as there are few enough runs.
            self.signal.1.notify_all();
        }
        let unneeded = self.unneeded();
        let result = self.guarded(|| {
            let mut versions = self.tree.get_version_history_lock();
            versions.maintenance(&self.folder, unneeded).map_err(|error| self.trouble("tidy up", &error))
        });
        if let Err(error) = result {
            tracing::warn!("cannot remove old files of the index {}: {error}", self.shown.display());
        }
        self.merged.lock().0 += 1;
        self.remove_merged();
    }

    /// Releases unused tables one by one.
    fn remove_merged(&self) {
        while !self.signals.give_up.load(Ordering::Relaxed) {
            let mut merged = self.merged.lock();
            let round = merged.0;
            if merged.1.front().is_none_or(|(since, _)| since + ROUNDS_HELD > round) {
                return;
            }
            let table = merged.1.pop_front();
            drop(merged);
            drop(table);
            // One file system commit for each, so that the disk frees few blocks at a time. Correctness does not depend
            // on it.
            let _ = std::fs::File::open(&self.folder).and_then(|folder| folder.sync_all());
            std::thread::sleep(REMOVAL_REST);
        }
    }

    /// Abandons the current compaction and ends the thread.
    pub(super) fn stop(&self) {
        self.signals.give_up.store(true, Ordering::Relaxed);
        self.signal.0.lock().stop = true;
        self.signal.1.notify_all();
        if let Some(thread) = self.compactor.lock().take()
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

/// Signals to a running compaction.
#[derive(Default)]
pub(super) struct CompactionSignals {
    /// Abandon the compaction: a stop waits for the compactor, which may get little time.
    pub(super) give_up: AtomicBool,
    /// It runs at idle priority until it takes the tree's lock, or tables pile up.
    pub(super) at_low_priority: AtomicBool,
    /// Flushed tables pile up.
    pub(super) is_behind: AtomicBool,
}

/// Watches the making of tables and keeps all entries. An error ends the compaction.
pub(super) struct CompactionObserver(pub(super) Arc<CompactionSignals>);

impl Factory for CompactionObserver {
    fn name(&self) -> &'static str {
        "making"
    }

    fn make_filter(&self, _: &Context) -> Box<dyn CompactionFilter> {
        Box::new(Self(Arc::clone(&self.0)))
    }
}

impl CompactionFilter for CompactionObserver {
    fn filter_item(&mut self, _: ItemAccessor<'_>, _: &Context) -> lsm_tree::Result<Verdict> {
        if self.0.give_up.load(Ordering::Relaxed) {
            return Err(std::io::Error::from(std::io::ErrorKind::Interrupted).into());
        }
        if self.0.is_behind.load(Ordering::Relaxed) && self.0.at_low_priority.load(Ordering::Relaxed) {
            self.0.at_low_priority.store(false, Ordering::Relaxed);
            restore_priority();
        }
        Ok(Verdict::Keep)
    }

    fn finish(self: Box<Self>) {
        // The next part holds the tree's lock: steps and scans wait for it.
        if self.0.at_low_priority.load(Ordering::Relaxed) {
            restore_priority();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::snapshot::LsmSnapshot;
    use super::super::trees_tests::{change, open};
    use super::*;

    #[test]
    fn merged_tables_are_removed_later() {
        let folder = tempfile::tempdir().unwrap();
        let inner = open(&folder.path().join("tree"));
        for seq in 1..=20 {
            change(&inner, seq, b"key", Some(&seq.to_le_bytes()));
            inner.flush().unwrap();
            inner.compact();
        }
        // No more changes, only rounds of upkeep.
        (0..=ROUNDS_HELD).for_each(|_| inner.compact());
        let files = std::fs::read_dir(folder.path().join("tree/tables")).unwrap().count();
        assert_eq!(files, inner.tree.table_count());
        inner.stop();
    }

    #[test]
    fn an_abandoned_compaction_loses_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tree");
        let inner = open(&path);
        for seq in 1..=3 {
            change(&inner, seq, b"key", Some(&seq.to_le_bytes()));
            inner.flush().unwrap();
        }
        let before = inner.tree.current_version().id();
        inner.signals.give_up.store(true, Ordering::Relaxed);
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
