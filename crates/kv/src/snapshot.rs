//! Consistent reading: generations over the engine, as of a sequence number.

use std::sync::Arc;

use crate::cache::ReadCache;
use crate::overlay::{FilterBits, Generation, Merged};
use crate::write_set::{Bytes, scan_merged};
use crate::{KvError, Read, ScanOrder, Visit};

/// The state that readers use. The engine's snapshot holds everything of the generations no longer listed. It holds
/// nothing that was unpublished when it was taken.
pub(crate) struct View {
    pub(crate) engine: Arc<dyn Read + Send + Sync>,
    /// Oldest first; the last one still grows.
    pub(crate) generations: Vec<Arc<Generation>>,
    /// Cached keys of this index, which need no lookup.
    pub(crate) cache: Arc<ReadCache>,
    /// The cache's epoch when the engine's snapshot was taken.
    pub(crate) epoch: u64,
}

/// A state that no longer changes.
pub(crate) struct Snapshot {
    pub(crate) view: Arc<View>,
    /// Records up to this one are visible.
    pub(crate) at: u64,
}

impl Snapshot {
    fn look_up(&self, key: &[u8]) -> Result<Option<Bytes>, KvError> {
        let bits = FilterBits::of(key);
        for generation in self.view.generations.iter().rev() {
            if let Some(value) = generation.get(key, bits, self.at) {
                return Ok(value);
            }
        }
        Ok(self.view.engine.get(key)?.map(Bytes::from))
    }

    fn merged<'a>(&'a self, start: &'a [u8], end: &'a [u8], order: ScanOrder) -> Merged<'a> {
        Merged::new(self.view.generations.iter().rev().map(|generation| &**generation), start, end, order, self.at)
    }
}

impl Read for Snapshot {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        let value = match self.view.cache.get(key, self.at) {
            Some(value) => value,
            None => {
                let value = self.look_up(key)?;
                self.view.cache.fill(key, value.as_ref(), self.at, self.view.epoch);
                value
            }
        };
        Ok(value.map(|value| value.to_vec()))
    }

    fn scan(&self, start: &[u8], end: &[u8], order: ScanOrder, visit: Visit<'_>) -> Result<(), KvError> {
        scan_merged(&*self.view.engine, &mut self.merged(start, end, order), start, end, order, visit)
    }
}
