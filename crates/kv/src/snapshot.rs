//! Consistent reading: generations over the engine, as of a sequence number.

use std::sync::Arc;

use crate::overlay::{Generation, Merged};
use crate::write_set::scan_merged;
use crate::{KvError, Read, ScanOrder, Visit};

/// What readers look at. The engine's snapshot holds everything of the generations that are not listed any more, and
/// nothing that was not published when it was taken.
pub(crate) struct View {
    pub(crate) engine: Arc<dyn Read + Send + Sync>,
    /// Oldest first; the last one is still growing.
    pub(crate) generations: Vec<Arc<Generation>>,
}

/// A state that no longer changes.
pub(crate) struct Snapshot {
    pub(crate) view: Arc<View>,
    /// Records up to this one count.
    pub(crate) at: u64,
}

impl Snapshot {
    fn merged<'a>(&'a self, start: &'a [u8], end: &'a [u8], order: ScanOrder) -> Merged<'a> {
        Merged::new(self.view.generations.iter().rev().map(|generation| &**generation), start, end, order, self.at)
    }
}

impl Read for Snapshot {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        for generation in self.view.generations.iter().rev() {
            if let Some(value) = generation.get(key, self.at) {
                return Ok(value.map(|value| value.to_vec()));
            }
        }
        self.view.engine.get(key)
    }

    fn scan(&self, start: &[u8], end: &[u8], order: ScanOrder, visit: Visit<'_>) -> Result<(), KvError> {
        scan_merged(&*self.view.engine, &mut self.merged(start, end, order), start, end, order, visit)
    }
}
