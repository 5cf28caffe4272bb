//! What keeps the swept part of an index: [`Engine`], and the one in memory.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use journal::Seq;
use parking_lot::Mutex;

use crate::{KvError, Read, ScanOrder, Visit};

/// How far an engine has come, in which log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Applied {
    /// All records of the stream up to this one are in it. 0: none.
    pub seq: Seq,
    /// The log's incarnation ([`journal::Journal::incarnation`]).
    pub incarnation: u64,
}

/// A key with its value; `None`: the key is to go.
pub type Entry<'a> = (&'a [u8], Option<&'a [u8]>);

/// Sorted entries, each key once, handed over one at a time.
pub trait EntrySource {
    /// The next entry, valid until the next call.
    fn next(&mut self) -> Result<Option<Entry<'_>>, KvError>;
}

/// No entries: a step that changes the position alone.
pub struct NoEntries;

impl EntrySource for NoEntries {
    fn next(&mut self) -> Result<Option<Entry<'_>>, KvError> {
        Ok(None)
    }
}

/// An ordered map on disk or in memory, changed by one thread (the sweeper) in big steps. It may lose what was applied
/// since the last flush, or everything: the log and its checkpoints bring it back. It must never show a part of a step.
pub trait Engine: Send + Sync {
    /// The state after the last step; does not change.
    fn snapshot(&self) -> Arc<dyn Read + Send + Sync>;
    /// One step: the entries, sorted, and the new `applied` together. After an error nothing of it is shown.
    fn apply(&self, entries: &mut dyn EntrySource, applied: Applied) -> Result<(), KvError>;
    /// How far it is.
    fn applied(&self) -> Applied;
    /// How far it is for certain after a power failure.
    fn flushed(&self) -> Applied;
    /// Makes everything applied durable.
    fn flush(&self) -> Result<(), KvError>;
    /// Forgets everything, and is empty with `applied` 0. What was there is kept aside at least until
    /// [`Engine::rebuilt`].
    fn reset(&self, why: &str) -> Result<(), KvError>;
    /// Fills an empty engine with sorted entries, durably, and only then sets `applied`.
    fn load(&self, entries: &mut dyn EntrySource, applied: Applied) -> Result<(), KvError>;
    /// It was built again after [`Engine::reset`], and all of it is durable: what was kept aside is not the last copy
    /// any more.
    fn rebuilt(&self) {}
    /// Why it cannot be relied on any more (damage found, a step that failed in the middle): it is to be reset and filled
    /// again from checkpoint and log.
    fn damaged(&self) -> Option<String> {
        None
    }
    /// Background threads end, files are closed. Nothing else is called afterwards.
    fn close(&self) {}
    /// Whether anything at all is in it.
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

/// The engine of tests and of throw-away servers: gone with the process, brought back by the log.
#[derive(Default)]
pub struct MemoryEngine {
    state: Mutex<(Arc<Map>, Applied)>,
}

impl MemoryEngine {
    /// Empty.
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
