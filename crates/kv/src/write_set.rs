//! Changes of transactions that are not yet handed over: the newest value of each key, with savepoints.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use crate::key::{AsKey, Key, KeyRef};
use crate::{Batch, KvError, Prefetch, Read, Savepoint, ScanOrder, Txn, Visit, batch};

/// A key or value, shared between the write set, the batch and the overlay without copying.
pub(crate) type Bytes = Arc<[u8]>;

/// Pending changes. `None` is a deletion.
#[derive(Default)]
pub struct WriteSet {
    map: BTreeMap<Key, Option<Bytes>>,
    /// The previous entry of each change: `None` if the key was not in the set.
    undo: Vec<(Key, Option<Option<Bytes>>)>,
    /// Errors for keys and values over the limits, with the length of `undo` before each.
    refused: Vec<(usize, KvError)>,
    /// Upper bound of the encoded bytes of the entries.
    weight: usize,
}

/// Bytes of an encoded entry besides its key and value.
const ENTRY_WEIGHT: usize = 16;

impl WriteSet {
    /// Whether there are no changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Upper bound of the encoded size. Only [`WriteSet::rollback_to`] lowers it.
    #[must_use]
    pub fn weight(&self) -> usize {
        self.weight
    }

    pub(crate) fn savepoint(&self) -> Savepoint {
        Savepoint(self.undo.len())
    }

    pub(crate) fn rollback_to(&mut self, savepoint: Savepoint) {
        self.refused.retain(|(at, _)| *at < savepoint.0);
        while self.undo.len() > savepoint.0 {
            let Some((key, before)) = self.undo.pop() else { break };
            let undone = match before {
                Some(value) => self.map.insert(key.clone(), value),
                None => self.map.remove(&key),
            };
            let value_len = undone.flatten().map_or(0, |value| value.len());
            self.weight = self.weight.saturating_sub(key.bytes().len() + value_len + ENTRY_WEIGHT);
        }
    }

    /// The error of the first entry since `savepoint` that exceeds a limit.
    pub(crate) fn refused_since(&self, savepoint: Savepoint) -> Option<KvError> {
        self.refused.iter().find(|(at, _)| *at >= savepoint.0).map(|(_, error)| error.clone())
    }

    /// Makes all changes final: earlier savepoints become invalid.
    pub(crate) fn forget_savepoints(&mut self) {
        self.undo.clear();
        self.refused.clear();
    }

    pub(crate) fn set(&mut self, key: &[u8], value: Option<&[u8]>) {
        if let Err(error) = batch::check(key, value) {
            self.refused.push((self.undo.len(), error));
        }
        self.weight += key.len() + value.map_or(0, <[u8]>::len) + ENTRY_WEIGHT;
        let value = value.map(Bytes::from);
        let key = Key::new(key.into());
        let before = match self.map.entry(key.clone()) {
            Entry::Occupied(mut slot) => Some(slot.insert(value)),
            Entry::Vacant(slot) => {
                slot.insert(value);
                None
            }
        };
        self.undo.push((key, before));
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<&Option<Bytes>> {
        self.map.get::<dyn AsKey>(&KeyRef::new(key))
    }

    /// Takes the net effect; the set is empty afterwards.
    pub fn take(&mut self) -> Batch {
        self.undo.clear();
        self.weight = 0;
        Batch::from_map(std::mem::take(&mut self.map))
    }

    fn range(&self, start: &[u8], end: &[u8]) -> impl DoubleEndedIterator<Item = (&[u8], Option<&[u8]>)> {
        // BTreeMap::range would panic on an inverted range.
        let (start, end) = (KeyRef::new(start), KeyRef::new(end.max(start)));
        let bounds: (Bound<&dyn AsKey>, Bound<&dyn AsKey>) = (Bound::Included(&start), Bound::Excluded(&end));
        self.map.range::<dyn AsKey, _>(bounds).map(|(key, value)| (&**key.bytes(), value.as_deref()))
    }
}

/// Scans `base` with `changes` laid over it. `changes` must be sorted in the direction of the scan, lie within its
/// bounds, and hold each key once.
pub(crate) fn scan_merged<K: AsRef<[u8]>, V: AsRef<[u8]>>(
    base: &dyn Read,
    changes: &mut dyn Iterator<Item = (K, Option<V>)>,
    start: &[u8],
    end: &[u8],
    order: ScanOrder,
    visit: Visit<'_>,
) -> Result<(), KvError> {
    let mut pending = changes.next();
    let mut stopped = false;
    base.scan(start, end, order, &mut |key, value| {
        while let Some((changed, new)) = &pending {
            let ordering = match order {
                ScanOrder::Ascending => changed.as_ref().cmp(key),
                ScanOrder::Descending => key.cmp(changed.as_ref()),
            };
            if ordering.is_gt() {
                break;
            }
            let flow = new.as_ref().map_or(ControlFlow::Continue(()), |new| visit(changed.as_ref(), new.as_ref()));
            pending = changes.next();
            if flow.is_break() {
                stopped = true;
                return flow;
            }
            if ordering.is_eq() {
                return ControlFlow::Continue(());
            }
        }
        let flow = visit(key, value);
        stopped = flow.is_break();
        flow
    })?;
    while !stopped {
        let Some((changed, new)) = pending else { break };
        if let Some(new) = new {
            stopped = visit(changed.as_ref(), new.as_ref()).is_break();
        }
        pending = changes.next();
    }
    Ok(())
}

/// A transaction: `writes` over `base`.
pub(crate) struct Transaction<'a> {
    pub(crate) base: &'a dyn Read,
    pub(crate) writes: &'a mut WriteSet,
}

impl Read for Transaction<'_> {
    fn prefetch(&self, wanted: &dyn Fn() -> Vec<Prefetch>) -> Result<(), KvError> {
        self.base.prefetch(wanted)
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        match self.writes.get(key) {
            Some(value) => Ok(value.as_ref().map(|value| value.to_vec())),
            None => self.base.get(key),
        }
    }

    fn scan(&self, start: &[u8], end: &[u8], order: ScanOrder, visit: Visit<'_>) -> Result<(), KvError> {
        match order {
            ScanOrder::Ascending => {
                scan_merged(self.base, &mut self.writes.range(start, end), start, end, order, visit)
            }
            ScanOrder::Descending => {
                scan_merged(self.base, &mut self.writes.range(start, end).rev(), start, end, order, visit)
            }
        }
    }
}

impl Txn for Transaction<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) {
        self.writes.set(key, Some(value));
    }

    fn delete(&mut self, key: &[u8]) {
        self.writes.set(key, None);
    }

    fn savepoint(&mut self) -> Savepoint {
        self.writes.savepoint()
    }

    fn rollback_to(&mut self, savepoint: Savepoint) {
        self.writes.rollback_to(savepoint);
    }
}
