//! The part of an index that the engine does not have yet: generations of versions in memory.
//!
//! A generation takes versions in the order of their sequence numbers until it is sealed. All numbers in a later
//! generation are higher. Readers use it without locks while it grows, each as of its own sequence number.

use std::borrow::Borrow;
use std::cmp::Ordering as Order;
use std::iter::Peekable;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crossbeam_skiplist::SkipMap;
use crossbeam_skiplist::map::{Entry as Node, Iter as Walk};

use crate::ScanOrder;
use crate::cache::hash;
use crate::key::{AsKey, Key, KeyRef};
use crate::write_set::Bytes;

/// Bytes of a version besides its key and value: nodes, counters, allocator.
const VERSION_OVERHEAD: usize = 152;

/// 64-bit words of a generation's filter, which excludes most keys that the generation lacks. Each key sets three bits.
const FILTER_WORDS: usize = 1 << 13;

/// A key and the number of the record that changed it. Newer versions of a key come first.
struct Version {
    key: Key,
    seq: u64,
}

/// A position in the order of versions.
#[derive(Clone, Copy)]
struct VersionKey<'a> {
    key: KeyRef<'a>,
    seq: u64,
}

impl<'a> VersionKey<'a> {
    fn new(key: &'a [u8], seq: u64) -> Self {
        Self { key: KeyRef::new(key), seq }
    }
}

/// Lets the map be searched with a borrowed key.
trait AsVersionKey {
    fn place(&self) -> VersionKey<'_>;
}

impl AsVersionKey for Version {
    fn place(&self) -> VersionKey<'_> {
        VersionKey { key: self.key.as_key(), seq: self.seq }
    }
}

impl AsVersionKey for VersionKey<'_> {
    fn place(&self) -> VersionKey<'_> {
        *self
    }
}

fn compare(a: &VersionKey<'_>, b: &VersionKey<'_>) -> Order {
    a.key.cmp(&b.key).then_with(|| b.seq.cmp(&a.seq))
}

impl PartialEq for dyn AsVersionKey + '_ {
    fn eq(&self, other: &Self) -> bool {
        compare(&self.place(), &other.place()).is_eq()
    }
}
impl Eq for dyn AsVersionKey + '_ {}
impl PartialOrd for dyn AsVersionKey + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Order> {
        Some(self.cmp(other))
    }
}
impl Ord for dyn AsVersionKey + '_ {
    fn cmp(&self, other: &Self) -> Order {
        compare(&self.place(), &other.place())
    }
}
impl PartialEq for Version {
    fn eq(&self, other: &Self) -> bool {
        compare(&self.place(), &other.place()).is_eq()
    }
}
impl Eq for Version {}
impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Order> {
        Some(self.cmp(other))
    }
}
impl Ord for Version {
    fn cmp(&self, other: &Self) -> Order {
        compare(&self.place(), &other.place())
    }
}
impl<'a> Borrow<dyn AsVersionKey + 'a> for Version {
    fn borrow(&self) -> &(dyn AsVersionKey + 'a) {
        self
    }
}

/// The versions of a run of records.
pub(crate) struct Generation {
    map: SkipMap<Version, Option<Bytes>>,
    filter: Box<[AtomicU64]>,
    bytes: AtomicUsize,
    last: AtomicU64,
}

impl Default for Generation {
    fn default() -> Self {
        let filter = (0..FILTER_WORDS).map(|_| AtomicU64::new(0)).collect();
        Self { map: SkipMap::new(), filter, bytes: AtomicUsize::new(0), last: AtomicU64::new(0) }
    }
}

/// The positions of a key's bits in the filters of all generations.
#[derive(Clone, Copy)]
pub(crate) struct FilterBits {
    word: usize,
    bits: u64,
}

impl FilterBits {
    #[allow(clippy::cast_possible_truncation)] // uses a part of the hash
    pub(crate) fn of(key: &[u8]) -> Self {
        let hash = hash(0, key);
        let bits = 1 << (hash & 63) | 1 << (hash >> 6 & 63) | 1 << (hash >> 12 & 63);
        Self { word: (hash >> 32) as usize % FILTER_WORDS, bits }
    }
}

impl Generation {
    /// Adds a version. Numbers never fall from call to call. Returns the bytes that it occupies.
    pub(crate) fn insert(&self, seq: u64, key: Key, value: Option<Bytes>) -> usize {
        let bytes = key.bytes().len() + value.as_ref().map_or(0, |value| value.len()) + VERSION_OVERHEAD;
        // Before the version becomes visible: a reader that may see it also finds its bits.
        let bits = FilterBits::of(key.bytes());
        self.filter[bits.word].fetch_or(bits.bits, Ordering::Relaxed);
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

    /// The highest number in the generation; 0 while it is empty.
    pub(crate) fn last(&self) -> u64 {
        self.last.load(Ordering::Acquire)
    }

    /// The newest version of `key` up to `at`.
    pub(crate) fn get(&self, key: &[u8], bits: FilterBits, at: u64) -> Option<Option<Bytes>> {
        if self.filter[bits.word].load(Ordering::Relaxed) & bits.bits != bits.bits {
            return None;
        }
        let entry = self.seek(key, at)?;
        (**entry.key().key.bytes() == *key).then(|| entry.value().clone())
    }

    /// The first version at or after the position (key, at).
    fn seek(&self, key: &[u8], at: u64) -> Option<Node<'_, Version, Option<Bytes>>> {
        self.map.lower_bound::<dyn AsVersionKey>(Bound::Included(&VersionKey::new(key, at)))
    }

    /// The last version of any key below `key`.
    fn seek_below(&self, key: &[u8]) -> Option<Node<'_, Version, Option<Bytes>>> {
        // The newest possible version of `key` is its first.
        self.map.upper_bound::<dyn AsVersionKey>(Bound::Excluded(&VersionKey::new(key, u64::MAX)))
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

/// A key with its visible value; `None` if it is deleted.
type Visible = (Bytes, Option<Bytes>);

/// Iterates over one generation's keys.
pub(crate) struct Cursor<'a> {
    generation: &'a Generation,
    /// Ascending: the first version not yet examined. Descending: the last (oldest) version of the next key.
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
            if **version.key.bytes() >= *self.end {
                return None;
            }
            if version.seq > self.at {
                let key = version.key.bytes().clone();
                self.next = entry.next();
                // Hot keys have thousands of versions: after one unsuccessful step, jump.
                if self.next.as_ref().is_some_and(|next| *next.key().key.bytes() == key && next.key().seq > self.at) {
                    self.next = self.generation.seek(&key, self.at);
                }
                continue;
            }
            let found = (version.key.bytes().clone(), entry.value().clone());
            self.next = entry.next();
            if self.next.as_ref().is_some_and(|next| *next.key().key.bytes() == found.0) {
                // After the oldest possible version (numbers start at 1).
                self.next = self.generation.seek(&found.0, 0);
            }
            return Some(found);
        }
    }

    fn descend(&mut self) -> Option<Visible> {
        loop {
            let oldest = self.next.take()?;
            let key = oldest.key().key.bytes().clone();
            if *key < *self.start {
                return None;
            }
            let found = if oldest.key().seq > self.at {
                None
            } else {
                self.generation.seek(&key, self.at).filter(|entry| *entry.key().key.bytes() == key)
            };
            self.next = self.generation.seek_below(&key);
            if let Some(entry) = found {
                return Some((key, entry.value().clone()));
            }
        }
    }
}

/// The keys of several generations as one sorted stream. Where several have a key, the latest generation counts.
pub(crate) struct Merged<'a> {
    /// Newest generation first, each with its next entry.
    cursors: Vec<(Cursor<'a>, Option<Visible>)>,
    order: ScanOrder,
}

impl<'a> Merged<'a> {
    /// `generations` must be newest first.
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

/// The net effect of some generations: each key that they change, in order, with its final value.
pub(crate) struct NetChanges<'a> {
    /// Newest generation first.
    walks: Vec<Peekable<Walk<'a, Version, Option<Bytes>>>>,
}

/// The newest of a key's versions.
pub(crate) struct NetChange {
    pub(crate) key: Bytes,
    pub(crate) value: Option<Bytes>,
    /// How many versions the key has.
    pub(crate) versions: usize,
}

impl<'a> NetChanges<'a> {
    /// `generations` must be newest first and sealed.
    pub(crate) fn new(generations: impl Iterator<Item = &'a Generation>) -> Self {
        Self { walks: generations.map(|generation| generation.map.iter().peekable()).collect() }
    }
}

impl Iterator for NetChanges<'_> {
    type Item = NetChange;

    fn next(&mut self) -> Option<NetChange> {
        let keys = self.walks.iter_mut().filter_map(|walk| walk.peek().map(|node| &node.key().key));
        let key = keys.min_by_key(|key| key.as_key())?.bytes().clone();
        let (mut value, mut versions) = (None, 0);
        for walk in &mut self.walks {
            while let Some(node) = walk.next_if(|node| *node.key().key.bytes() == key) {
                if versions == 0 {
                    value = node.value().clone();
                }
                versions += 1;
            }
        }
        Some(NetChange { key, value, versions })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn net_changes_are_the_newest_versions_in_key_order() {
        let of = |versions: &[(u64, &str, Option<&str>)]| {
            let generation = Generation::default();
            for (seq, key, value) in versions {
                generation.insert(*seq, Key::new(key.as_bytes().into()), value.map(|value| value.as_bytes().into()));
            }
            generation
        };
        let older = of(&[(1, "b", Some("1")), (1, "d", Some("1")), (2, "b", Some("2")), (3, "a", None)]);
        let newer = of(&[(4, "b", None), (5, "c", Some("5"))]);
        let found: Vec<_> = NetChanges::new([&newer, &older].into_iter())
            .map(|change| (change.key.to_vec(), change.value.map(|value| value.to_vec()), change.versions))
            .collect();
        let told = |key: &str, value: Option<&str>, versions| (key.into(), value.map(|value| value.into()), versions);
        assert_eq!(found, [told("a", None, 1), told("b", None, 3), told("c", Some("5"), 1), told("d", Some("1"), 1)]);
    }

    #[test]
    fn the_filter_never_hides_a_key_and_excludes_most_others() {
        let generation = Generation::default();
        let name = |n: u32| format!("D/{n:06}");
        for n in 0..30_000 {
            generation.insert(1, Key::new(name(n).as_bytes().into()), None);
        }
        for n in 0..30_000 {
            assert!(generation.get(name(n).as_bytes(), FilterBits::of(name(n).as_bytes()), 1).is_some());
        }
        let passed = (30_000..60_000).filter(|n| {
            let bits = FilterBits::of(name(*n).as_bytes());
            generation.filter[bits.word].load(Ordering::Relaxed) & bits.bits == bits.bits
        });
        let passed = passed.count();
        assert!(passed < 900, "{passed} of 30,000");
    }
}
