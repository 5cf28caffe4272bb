//! The part of an index that the engine doesn't have yet: generations of versions in memory.
//!
//! A generation takes versions in the order of their sequence numbers until it is sealed; all numbers in a later
//! generation are higher. Readers go through it without locks while it grows, each as of its own sequence number.

use std::borrow::Borrow;
use std::cmp::Ordering as Order;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crossbeam_skiplist::SkipMap;
use crossbeam_skiplist::map::Entry as Node;

use crate::ScanOrder;
use crate::write_set::Bytes;

/// Bytes that a version takes besides its key and value: nodes, counters, allocator.
const VERSION_OVERHEAD: usize = 128;

/// A key and the number of the record that changed it. Newer versions of a key come first.
#[derive(PartialEq, Eq)]
struct Version {
    key: Bytes,
    seq: u64,
}

/// Lets the map be searched with a borrowed key.
trait Place {
    fn place(&self) -> (&[u8], u64);
}

impl Place for Version {
    fn place(&self) -> (&[u8], u64) {
        (&self.key, self.seq)
    }
}

impl Place for (&[u8], u64) {
    fn place(&self) -> (&[u8], u64) {
        *self
    }
}

fn compare(a: (&[u8], u64), b: (&[u8], u64)) -> Order {
    a.0.cmp(b.0).then(b.1.cmp(&a.1))
}

impl PartialEq for dyn Place + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.place() == other.place()
    }
}
impl Eq for dyn Place + '_ {}
impl PartialOrd for dyn Place + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Order> {
        Some(self.cmp(other))
    }
}
impl Ord for dyn Place + '_ {
    fn cmp(&self, other: &Self) -> Order {
        compare(self.place(), other.place())
    }
}
impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Order> {
        Some(self.cmp(other))
    }
}
impl Ord for Version {
    fn cmp(&self, other: &Self) -> Order {
        compare(self.place(), other.place())
    }
}
impl<'a> Borrow<dyn Place + 'a> for Version {
    fn borrow(&self) -> &(dyn Place + 'a) {
        self
    }
}

/// Versions of a run of records.
#[derive(Default)]
pub(crate) struct Generation {
    map: SkipMap<Version, Option<Bytes>>,
    bytes: AtomicUsize,
    last: AtomicU64,
}

impl Generation {
    /// Takes a version in. Numbers never fall from call to call. Returns the bytes that it takes.
    pub(crate) fn insert(&self, seq: u64, key: Bytes, value: Option<Bytes>) -> usize {
        let bytes = key.len() + value.as_ref().map_or(0, |value| value.len()) + VERSION_OVERHEAD;
        self.map.insert(Version { key, seq }, value);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.last.store(seq, Ordering::Release);
        bytes
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Number of versions.
    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }

    /// The highest number in it; 0 while it is empty.
    pub(crate) fn last(&self) -> u64 {
        self.last.load(Ordering::Acquire)
    }

    /// The newest version of `key` up to `at`.
    pub(crate) fn get(&self, key: &[u8], at: u64) -> Option<Option<Bytes>> {
        let entry = self.seek(key, at)?;
        (*entry.key().key == *key).then(|| entry.value().clone())
    }

    /// The first version at or after the place (key, at).
    fn seek(&self, key: &[u8], at: u64) -> Option<Node<'_, Version, Option<Bytes>>> {
        self.map.lower_bound::<dyn Place>(Bound::Included(&(key, at)))
    }

    /// The last version of any key below `key`.
    fn seek_below(&self, key: &[u8]) -> Option<Node<'_, Version, Option<Bytes>>> {
        // The newest possible version of `key` itself is its first.
        self.map.upper_bound::<dyn Place>(Bound::Excluded(&(key, u64::MAX)))
    }

    /// The visible keys within the bounds, as of `at`.
    pub(crate) fn cursor<'a>(&'a self, start: &'a [u8], end: &'a [u8], order: ScanOrder, at: u64) -> Cursor<'a> {
        let next = match order {
            _ if start >= end => None,
            ScanOrder::Ascending => self.seek(start, u64::MAX),
            ScanOrder::Descending => self.seek_below(end),
        };
        Cursor { generation: self, next, start, end, order, at }
    }
}

/// A key with its visible value, or that it is gone.
type Visible = (Bytes, Option<Bytes>);

/// Walks over one generation's keys.
pub(crate) struct Cursor<'a> {
    generation: &'a Generation,
    /// Ascending: the first version not looked at. Descending: the last (oldest) version of the next key.
    next: Option<Node<'a, Version, Option<Bytes>>>,
    start: &'a [u8],
    end: &'a [u8],
    order: ScanOrder,
    at: u64,
}

impl Iterator for Cursor<'_> {
    type Item = Visible;

    fn next(&mut self) -> Option<Self::Item> {
        match self.order {
            ScanOrder::Ascending => self.ascend(),
            ScanOrder::Descending => self.descend(),
        }
    }
}

impl Cursor<'_> {
    fn ascend(&mut self) -> Option<Visible> {
        loop {
            let entry = self.next.take()?;
            let version = entry.key();
            if *version.key >= *self.end {
                return None;
            }
            if version.seq > self.at {
                let key = version.key.clone();
                self.next = entry.next();
                // Hot keys have thousands of versions: after one step that did not help, jump.
                if self.next.as_ref().is_some_and(|next| next.key().key == key && next.key().seq > self.at) {
                    self.next = self.generation.seek(&key, self.at);
                }
                continue;
            }
            let found = (version.key.clone(), entry.value().clone());
            self.next = entry.next();
            if self.next.as_ref().is_some_and(|next| next.key().key == found.0) {
                // Past the oldest version that there can be (numbers begin with 1).
                self.next = self.generation.seek(&found.0, 0);
            }
            return Some(found);
        }
    }

    fn descend(&mut self) -> Option<Visible> {
        loop {
            let oldest = self.next.take()?;
            let key = oldest.key().key.clone();
            if *key < *self.start {
                return None;
            }
            let found = if oldest.key().seq > self.at {
                None
            } else {
                self.generation.seek(&key, self.at).filter(|entry| entry.key().key == key)
            };
            self.next = self.generation.seek_below(&key);
            if let Some(entry) = found {
                return Some((key, entry.value().clone()));
            }
        }
    }
}

/// Several generations' keys as one sorted stream; where several have a key, the latest generation's counts.
pub(crate) struct Merged<'a> {
    /// Newest generation first, each with its next entry.
    cursors: Vec<(Cursor<'a>, Option<Visible>)>,
    order: ScanOrder,
}

impl<'a> Merged<'a> {
    /// `generations` newest first.
    pub(crate) fn new(
        generations: impl Iterator<Item = &'a Generation>,
        start: &'a [u8],
        end: &'a [u8],
        order: ScanOrder,
        at: u64,
    ) -> Self {
        let cursors = generations
            .map(|generation| {
                let mut cursor = generation.cursor(start, end, order, at);
                let first = cursor.next();
                (cursor, first)
            })
            .filter(|(_, first)| first.is_some())
            .collect();
        Self { cursors, order }
    }
}

impl Iterator for Merged<'_> {
    type Item = Visible;

    fn next(&mut self) -> Option<Self::Item> {
        let key = {
            let keys = self.cursors.iter().filter_map(|(_, next)| next.as_ref().map(|(key, _)| key));
            match self.order {
                ScanOrder::Ascending => keys.min(),
                ScanOrder::Descending => keys.max(),
            }?
            .clone()
        };
        let mut found = None;
        for (cursor, next) in &mut self.cursors {
            if next.as_ref().is_some_and(|(other, _)| *other == key) {
                let entry = std::mem::replace(next, cursor.next());
                found = found.or(entry);
            }
        }
        found
    }
}
