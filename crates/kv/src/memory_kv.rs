//! [`MemoryKv`]: the [`Kv`] of model tests. It has no journal and nothing survives; it injects conflicts and lost
//! answers.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::engine::MapSnapshot;
use crate::write_set::{Transaction, WriteSet};
use crate::{Durability, Kv, KvError, Op, OpDone, OpOutcome, Read};

/// How often [`MemoryKv`] behaves like a database over a network, in thousandths of the operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemoryFaults {
    /// The operation runs, its changes are dropped, and it runs again (up to three times in a row).
    pub conflicts: u32,
    /// The answer is [`KvError::MaybeCommitted`]; half of these operations took effect.
    pub maybe_committed: u32,
}

/// Counters of [`MemoryKv`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemoryCounts {
    /// Operations that committed.
    pub committed: u64,
    /// Operations that decided to abort.
    pub aborted: u64,
    /// Runs that were dropped as if there had been a conflict.
    pub conflicts: u64,
    /// Lost answers of operations that took effect.
    pub maybe_applied: u64,
    /// Lost answers of operations that had no effect.
    pub maybe_dropped: u64,
}

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

struct Committer {
    random: u64,
    faults: MemoryFaults,
    counts: MemoryCounts,
}

impl Committer {
    /// xorshift64*: the same seed gives the same faults on every machine.
    fn below(&mut self, bound: u64) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound
    }
}

/// Keys and values in memory. [`Kv::submit`] runs the operation and its completion before it returns, so a test with
/// one thread is deterministic. An operation must not submit another one; a completion may.
pub struct MemoryKv {
    committer: Mutex<Committer>,
    current: Mutex<Arc<Map>>,
}

impl MemoryKv {
    /// An empty map without faults.
    #[must_use]
    pub fn new() -> Self {
        Self::with_faults(0, MemoryFaults::default())
    }

    /// An empty map. `seed` alone decides the order of the faults.
    #[must_use]
    pub fn with_faults(seed: u64, faults: MemoryFaults) -> Self {
        let random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x6a09_e667_f3bc_c909;
        let committer = Committer { random: random.max(1), faults, counts: MemoryCounts::default() };
        Self { committer: Mutex::new(committer), current: Mutex::new(Arc::default()) }
    }

    /// The counters so far.
    #[must_use]
    pub fn counts(&self) -> MemoryCounts {
        self.committer.lock().counts
    }

    /// All entries in order, for comparison with a model.
    #[must_use]
    pub fn dump(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let map = Arc::clone(&self.current.lock());
        map.iter().map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    fn run(&self, op: &mut Op) -> Result<(), KvError> {
        let mut committer = self.committer.lock();
        let base = MapSnapshot(Arc::clone(&self.current.lock()));
        let mut writes = WriteSet::default();
        let mut reruns = 0;
        let outcome = loop {
            let outcome = op(&mut Transaction { base: &base, writes: &mut writes });
            if reruns < 3 && committer.below(1000) < u64::from(committer.faults.conflicts) {
                reruns += 1;
                committer.counts.conflicts += 1;
                writes = WriteSet::default();
                continue;
            }
            break outcome;
        };
        drop(base);
        if outcome == OpOutcome::Abort {
            committer.counts.aborted += 1;
            return Ok(());
        }
        let lost = committer.below(1000) < u64::from(committer.faults.maybe_committed);
        if lost && committer.below(2) == 0 {
            committer.counts.maybe_dropped += 1;
            return Err(KvError::MaybeCommitted);
        }
        let mut current = self.current.lock();
        let map = Arc::make_mut(&mut current);
        for (key, value) in writes.take().iter() {
            match value {
                Some(value) => map.insert(key.to_vec(), value.to_vec()),
                None => map.remove(key),
            };
        }
        if lost {
            committer.counts.maybe_applied += 1;
            return Err(KvError::MaybeCommitted);
        }
        committer.counts.committed += 1;
        Ok(())
    }
}

impl Default for MemoryKv {
    fn default() -> Self {
        Self::new()
    }
}

impl Kv for MemoryKv {
    fn snapshot(&self) -> Box<dyn Read + Send + '_> {
        Box::new(MapSnapshot(Arc::clone(&self.current.lock())))
    }

    fn submit(&self, _durability: Durability, mut op: Op, done: OpDone) {
        // No lock is held when `done` runs: it may submit.
        let result = self.run(&mut op);
        drop(op);
        done(result);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ops::ControlFlow;

    use crate::{ScanOrder, transact};

    fn put(kv: &MemoryKv, key: &'static str, value: &'static str) -> Result<(), KvError> {
        transact(kv, Durability::Synced, move |txn| {
            txn.put(key.as_bytes(), value.as_bytes());
            (OpOutcome::Commit, ())
        })
    }

    fn keys(read: &dyn Read, order: ScanOrder) -> Vec<String> {
        let mut keys = Vec::new();
        read.scan(b"a", b"z", order, &mut |key, _| {
            keys.push(String::from_utf8_lossy(key).into_owned());
            ControlFlow::Continue(())
        })
        .unwrap();
        keys
    }

    #[test]
    fn a_transaction_sees_its_own_writes_and_a_snapshot_does_not_change() {
        let kv = MemoryKv::new();
        put(&kv, "b", "1").unwrap();
        put(&kv, "d", "2").unwrap();
        let before = kv.snapshot();
        let seen = transact(&kv, Durability::Synced, |txn| {
            txn.put(b"c", b"3");
            txn.delete(b"b");
            let mark = txn.savepoint();
            txn.put(b"e", b"4");
            txn.delete(b"d");
            txn.put(b"c", b"5");
            let all = keys(txn, ScanOrder::Descending);
            txn.rollback_to(mark);
            assert_eq!(txn.get(b"c").unwrap().as_deref(), Some(b"3".as_slice()));
            (OpOutcome::Commit, (all, keys(txn, ScanOrder::Ascending)))
        })
        .unwrap();
        assert_eq!(seen, (vec!["e".into(), "c".into()], vec!["c".to_owned(), "d".into()]));
        assert_eq!(keys(&*before, ScanOrder::Ascending), ["b", "d"]);
        assert_eq!(keys(&*kv.snapshot(), ScanOrder::Descending), ["d", "c"]);
    }

    #[test]
    fn an_aborted_operation_leaves_nothing() {
        let kv = MemoryKv::new();
        transact(&kv, Durability::Synced, |txn| {
            txn.put(b"b", b"1");
            (OpOutcome::Abort, ())
        })
        .unwrap();
        assert!(kv.dump().is_empty());
    }

    #[test]
    fn the_seed_decides_the_faults_and_lost_answers_may_or_may_not_apply() {
        let run = |seed| {
            let kv = MemoryKv::with_faults(seed, MemoryFaults { conflicts: 200, maybe_committed: 200 });
            let results: Vec<bool> = (0..500).map(|_| put(&kv, "k", "v").is_ok()).collect();
            (results, kv.counts())
        };
        let (results, counts) = run(7);
        assert_eq!((results, counts), run(7));
        assert_ne!(run(8).1, counts);
        assert!(counts.conflicts > 50 && counts.maybe_applied > 20 && counts.maybe_dropped > 20, "{counts:?}");
        assert_eq!(counts.committed + counts.maybe_applied + counts.maybe_dropped, 500);
    }
}
