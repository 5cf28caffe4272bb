//! What the committer has read or written lately. It is the only one who changes the index, so that what it remembers
//! is always what the index would say; a lookup in the index costs ten times as much.

use std::cell::RefCell;
use std::collections::HashMap;

use crate::write_set::Bytes;
use crate::{Batch, KvError, Read, ScanOrder, Visit};

/// Bytes that an entry takes besides its key and value.
const ENTRY_OVERHEAD: usize = 112;

/// Newest values by key, `None` for a key that is not there. Bounded: when the young half is full, the old half is
/// forgotten, and what is used again moves to the young one.
pub(super) struct Recent {
    young: HashMap<Bytes, Option<Bytes>>,
    old: HashMap<Bytes, Option<Bytes>>,
    young_bytes: usize,
    half_bytes: usize,
}

impl Recent {
    /// At most about `bytes` in all; 0: remembers nothing.
    pub(super) fn new(bytes: usize) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), young_bytes: 0, half_bytes: bytes / 2 }
    }

    fn get(&mut self, key: &[u8]) -> Option<Option<Bytes>> {
        if let Some(value) = self.young.get(key) {
            return Some(value.clone());
        }
        let (key, value) = self.old.remove_entry(key)?;
        self.set(key, value.clone());
        Some(value)
    }

    fn set(&mut self, key: Bytes, value: Option<Bytes>) {
        let bytes = key.len() + value.as_ref().map_or(0, |value| value.len()) + ENTRY_OVERHEAD;
        if self.young_bytes + bytes > self.half_bytes {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
            if bytes > self.half_bytes {
                // Too large to be remembered; what was known of it is not true any more.
                self.old.remove(&key);
                return;
            }
        }
        self.young_bytes += bytes;
        self.old.remove(&key);
        self.young.insert(key, value);
    }

    /// `batch` is in the log's order now.
    pub(super) fn changed(&mut self, batch: &Batch) {
        for (key, value) in batch.shared() {
            self.set(key, value);
        }
    }
}

/// The index as its only appender sees it, through what it remembers.
pub(super) struct Remembering<'a> {
    pub(super) base: &'a dyn Read,
    pub(super) recent: &'a RefCell<Recent>,
}

impl Read for Remembering<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        if let Some(value) = self.recent.borrow_mut().get(key) {
            return Ok(value.map(|value| value.to_vec()));
        }
        let value = self.base.get(key)?;
        self.recent.borrow_mut().set(key.into(), value.as_deref().map(Bytes::from));
        Ok(value)
    }

    fn scan(&self, start: &[u8], end: &[u8], order: ScanOrder, visit: Visit<'_>) -> Result<(), KvError> {
        self.base.scan(start, end, order, visit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Bytes {
        Bytes::from(text.as_bytes())
    }

    #[test]
    fn the_newest_value_counts_in_whichever_half_it_is() {
        let mut recent = Recent::new(8 * (ENTRY_OVERHEAD + 2));
        for round in 0..100 {
            for key in ["a", "b", "c", "d", "e", "f"] {
                recent.set(bytes(key), Some(bytes(&round.to_string()[..1])));
                assert_eq!(recent.get(key.as_bytes()), Some(Some(bytes(&round.to_string()[..1]))), "{key} in {round}");
            }
            for key in ["a", "b", "c", "d", "e", "f"] {
                let known = recent.get(key.as_bytes());
                assert!(known.is_none_or(|value| value == Some(bytes(&round.to_string()[..1]))), "{key} in {round}");
            }
        }
    }

    #[test]
    fn it_is_bounded_and_forgets_what_does_not_fit() {
        let mut recent = Recent::new(4 * (ENTRY_OVERHEAD + 100));
        recent.set(bytes("big"), Some(bytes("small")));
        recent.set(bytes("big"), Some(bytes(&"x".repeat(10_000))));
        assert_eq!(recent.get(b"big"), None);
        for n in 0..10_000 {
            recent.set(bytes(&n.to_string()), None);
        }
        let held = recent.young.len() + recent.old.len();
        assert!(held <= 2 * recent.half_bytes / ENTRY_OVERHEAD, "{held} entries");
        assert_eq!(recent.get(b"9999"), Some(None));
    }
}
