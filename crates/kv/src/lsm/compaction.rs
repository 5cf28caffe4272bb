//! The thread that merges tables, and removes those that nobody needs any more.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lsm_tree::AbstractTree;
use lsm_tree::compaction::Leveled;
use lsm_tree::compaction::filter::{CompactionFilter, Context, Factory, ItemAccessor, Verdict};

use super::inner::Inner;
use crate::KvError;
use crate::background::{come_back, give_way, in_spare_time};

/// How long a step waits for compaction before it goes on regardless.
const COMPACTION_WAIT_MAX: Duration = Duration::from_secs(5);
/// How often files that no snapshot needs any more are looked for when nothing else happens.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(10);
/// Rounds of compaction after which the tree itself, and readers, are done with a table that was merged into others.
const ROUNDS_HELD: u64 = 2;
/// The rest after each table that is removed: see [`disk::Removal`].
const REMOVAL_REST: Duration = Duration::from_millis(20);

impl Inner {
    /// Whether compaction falls behind.
    pub(super) fn piles_up(&self) -> bool {
        self.tree.l0_run_count() >= self.config.flushed_runs_max / 2
    }

    /// Steps wait while flushed tables pile up: each one makes every read slower.
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

    pub(super) fn compact(&self) {
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
}

/// What a compaction is told, and heeds.
#[derive(Default)]
pub(super) struct Ways {
    /// It is to be given up: a stop waits for the compactor, which may get little time.
    pub(super) give_up: AtomicBool,
    /// It works in the time that others leave, until it takes the tree's lock, or tables pile up.
    pub(super) in_spare_time: AtomicBool,
    /// Flushed tables pile up.
    pub(super) piled_up: AtomicBool,
}

/// Goes along with the making of tables; keeps everything. An error ends the compaction.
pub(super) struct Making(pub(super) Arc<Ways>);

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

#[cfg(test)]
mod tests {
    use super::super::snapshot::LsmSnapshot;
    use super::super::trees_tests::{change, open};
    use super::*;

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
