//! [`Engine`], which keeps the swept part of an index, and the one in memory.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use journal::Seq;
use parking_lot::Mutex;

use crate::{KvError, Read, ScanOrder, Visit};

/// How far an engine has come, and in which journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Applied {
    /// The engine has all records of the stream up to this one; 0 for none.
    pub seq: Seq,
    /// The journal's incarnation ([`journal::Journal::incarnation`]).
    pub incarnation: u64,
}

/// A key with its value; `None` deletes the key.
pub type Entry<'a> = (&'a [u8], Option<&'a [u8]>);

/// Sorted entries, each key once, returned one at a time.
pub trait EntrySource {
    /// The next entry, valid until the next call.
    fn next(&mut self) -> Result<Option<Entry<'_>>, KvError>;
}

/// No entries, for a step that only advances the position.
pub struct NoEntries;

impl EntrySource for NoEntries {
    fn next(&mut self) -> Result<Option<Entry<'_>>, KvError> {
        Ok(None)
    }
}

/// An ordered map on disk or in memory. One thread (the sweeper) changes it in large steps. It may lose all steps since
/// the last flush, or everything: the journal and its checkpoints restore them. It must never show a part of a step.
pub trait Engine: Send + Sync {
    /// The state after the last step; does not change.
    fn snapshot(&self) -> Arc<dyn Read + Send + Sync>;
    /// Applies one step: the sorted entries together with the new `applied`. After an error none of it is visible.
    fn apply(&self, entries: &mut dyn EntrySource, applied: Applied) -> Result<(), KvError>;
    /// The position of the last step.
    fn applied(&self) -> Applied;
    /// The position that survives a power failure.
    fn flushed(&self) -> Applied;
    /// Makes all applied steps durable.
    fn flush(&self) -> Result<(), KvError>;
    /// Empties the engine and sets `applied` to 0. Keeps the old contents aside at least until [`Engine::rebuilt`].
    fn reset(&self, why: &str) -> Result<(), KvError>;
    /// Fills an empty engine with sorted entries, durably, and only then sets `applied`.
    fn load(&self, entries: &mut dyn EntrySource, applied: Applied) -> Result<(), KvError>;
    /// Reports that the engine was rebuilt after [`Engine::reset`] and is durable. The contents kept aside are no
    /// longer the last copy.
    fn rebuilt(&self) {}
    /// Why the engine can no longer be trusted (damage, or a step that failed halfway). It must be reset and refilled
    /// from checkpoint and journal.
    fn damaged(&self) -> Option<String> {
        None
    }
    /// Ends background threads and closes files. No call follows.
    fn close(&self) {}
    /// Whether the engine has no keys at all.
    fn is_empty(&self) -> Result<bool, KvError> {
        let mut empty = true;
        self.snapshot().scan(&[], &[crate::batch::RESERVED], ScanOrder::Ascending, &mut |_, _| {
            empty = false;
            ControlFlow::Break(())
        })?;
        Ok(empty)
    }
}

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// The engine for tests and temporary servers. It ends with the process; the journal restores it.
#[derive(Default)]
pub struct MemoryEngine {
    state: Mutex<(Arc<Map>, Applied)>,
}

impl MemoryEngine {
    /// An empty engine.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl Engine for MemoryEngine {
    fn snapshot(&self) -> Arc<dyn Read + Send + Sync> {
        Arc::new(MapSnapshot(Arc::clone(&self.state.lock().0)))
    }

    fn apply(&self, entries: &mut dyn EntrySource, applied: Applied) -> Result<(), KvError> {
        let mut state = self.state.lock();
        let mut map = Map::clone(&state.0);
        while let Some((key, value)) = entries.next()? {
            match value {
                Some(value) => map.insert(key.to_vec(), value.to_vec()),
                None => map.remove(key),
            };
        }
        *state = (Arc::new(map), applied);
        Ok(())
    }

    fn applied(&self) -> Applied {
        self.state.lock().1
    }

    fn flushed(&self) -> Applied {
        self.applied()
    }

    fn flush(&self) -> Result<(), KvError> {
        Ok(())
    }

    fn reset(&self, _why: &str) -> Result<(), KvError> {
        *self.state.lock() = Default::default();
        Ok(())
    }

    fn load(&self, entries: &mut dyn EntrySource, applied: Applied) -> Result<(), KvError> {
        self.apply(entries, applied)
    }
}

/// A map that no longer changes.
pub(crate) struct MapSnapshot(pub(crate) Arc<Map>);

impl Read for MapSnapshot {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        Ok(self.0.get(key).cloned())
    }

    fn scan(&self, start: &[u8], end: &[u8], order: ScanOrder, visit: Visit<'_>) -> Result<(), KvError> {
        if start >= end {
            return Ok(()); // BTreeMap::range would panic
        }
        let mut range = self.0.range::<[u8], _>((Bound::Included(start), Bound::Excluded(end)));
        loop {
            let next = match order {
                ScanOrder::Ascending => range.next(),
                ScanOrder::Descending => range.next_back(),
            };
            match next.map(|(key, value)| visit(key, value)) {
                Some(ControlFlow::Continue(())) => {}
                Some(ControlFlow::Break(())) | None => return Ok(()),
            }
        }
    }
}
