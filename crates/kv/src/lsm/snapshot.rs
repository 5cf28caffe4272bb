//! The state after a step, for readers.

use std::ops::ControlFlow;
use std::sync::Arc;

use lsm_tree::table::filter::standard_bloom;
use lsm_tree::{AbstractTree, AnyTree, Guard, Slice};

use super::inner::Inner;
use crate::{KvError, ScanOrder, Visit, batch};

/// The state after a step.
pub(super) struct LsmSnapshot {
    /// Dropped before `inner`: the last user of a table removes its file, by a path that `inner` keeps valid.
    look_up: Option<ValueLookup>,
    inner: Arc<Inner>,
    /// Readers see versions below this number.
    below: u64,
}

/// Finds the value of a key as of a version, in the memory and the tables of one moment.
type ValueLookup = Box<dyn Fn(&[u8], u64) -> lsm_tree::Result<Option<Slice>> + Send + Sync>;

/// Returns a lookup that finds the same as the tree, without the tree's lock. A flush or a compaction holds that lock
/// while it syncs the list of tables, and all commits would wait for it. `None` if some memory could not be flushed
/// yet: only the tree itself can reach it.
fn look_up(tree: &AnyTree) -> Option<ValueLookup> {
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
            // No step is halfway while this is held. The tree may be changing its files, but that does not change what
            // readers see.
            let _state = inner.state.lock();
            let mut held = inner.held.lock();
            let below = inner.visible.get();
            *held.entry(below).or_default() += 1;
            (below, look_up(&inner.tree))
        };
        Self { look_up, inner, below }
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
            // Only the tree is guarded: a panic of the visitor is not the tree's fault.
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
    use std::time::Duration;

    use super::super::trees_tests::{change, open};
    use super::*;

    #[test]
    fn lookups_do_not_wait_for_a_write_of_the_table_list() {
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
        // A flush holds this while it syncs.
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
}
