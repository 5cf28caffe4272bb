//! Recently read or written values, shared by all readers of an index. A lookup in the overlay and the engine costs
//! many times as much.
//!
//! An entry is valid from a record `since` up to the newest record in the cache. A reader whose snapshot is older than
//! `since` gets no answer. An answer therefore always equals that of the snapshot, for old and new snapshots alike. Two
//! rules ensure this:
//!
//! - The appender reports each change ([`ReadCache::changed`]) before any reader can see it.
//! - A reader may have looked a value up before a later change. The cache accepts it ([`ReadCache::fill`]) only if no
//!   key of its set has changed since the reader's snapshot.
//!
//! The cache is bounded in bytes. Keys are spread over small sets. Each set has its own lock, which readers share. Sets are made, some at a time, when the
//! first key comes into one of them: a small node does without most of the memory.

use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};

use crate::write_set::Bytes;

/// Bytes in a set: about ten file names.
const SET_BYTES: usize = 2048;
/// The longest entry in the cache, with its overhead.
const ENTRY_MAX: usize = SET_BYTES / 2;
/// Bytes of an entry besides its key and value.
const ENTRY_OVERHEAD: usize = 112;
/// Entries in a set at most. They are stored in place: most of a lookup's time is waiting for memory.
const WAYS: usize = 12;
/// Sets that are made together, of some 600 bytes each.
const MADE_TOGETHER: usize = 64;

/// Some sets, once they are made.
type MadeTogether = OnceLock<Box<[RwLock<Set>]>>;

/// See the module's documentation.
pub(crate) struct ReadCache {
    sets: Box<[MadeTogether]>,
    set_count: usize,
    /// Sets are made under it, and are cleared under it, so that none is overlooked.
    making: Mutex<()>,
    /// Prevents clients from choosing names that fall into one set.
    seed: u64,
    /// Rises when the cache is cleared.
    epoch: AtomicU64,
}

#[derive(Default)]
struct Set {
    /// The last record that changed any key of this set.
    changed: u64,
    bytes: usize,
    /// Where the search for an entry to evict continues.
    hand: usize,
    /// The low halves of the entries' hashes.
    tags: [u32; WAYS],
    entries: [Option<Entry>; WAYS],
}

struct Entry {
    key: Bytes,
    /// `None`: the key does not exist.
    value: Option<Bytes>,
    since: u64,
    /// Read since the hand last passed.
    used: AtomicBool,
}

impl ReadCache {
    /// A cache of about `bytes` in all; with 0 it stores nothing.
    pub(crate) fn new(bytes: usize) -> Self {
        let set_count = bytes / SET_BYTES;
        let sets = (0..set_count.div_ceil(MADE_TOGETHER)).map(|_| OnceLock::new()).collect();
        Self { sets, set_count, making: Mutex::new(()), seed: RandomState::new().hash_one(0), epoch: AtomicU64::new(0) }
    }

    /// The value of `key` as of record `at`; `Some(None)` if the key does not exist, `None` if the cache does not know.
    pub(crate) fn get(&self, key: &[u8], at: u64) -> Option<Option<Bytes>> {
        let (at_set, tag) = self.place(key)?;
        let set = self.sets[at_set / MADE_TOGETHER].get()?[at_set % MADE_TOGETHER].read();
        let entry = set.entries[set.find(tag, key)?].as_ref()?;
        if entry.since > at {
            return None;
        }
        if !entry.used.load(Ordering::Relaxed) {
            entry.used.store(true, Ordering::Relaxed);
        }
        Some(entry.value.clone())
    }

    /// Stores the `value` that a reader found for `key` as of record `at`, in a view of `epoch`.
    pub(crate) fn fill(&self, key: &[u8], value: Option<&Bytes>, at: u64, epoch: u64) {
        let Some((set, tag)) = self.place(key) else { return };
        let mut set = self.set(set).write();
        // Check under the lock that changes and clearing also take.
        if set.changed > at || self.epoch() != epoch || set.find(tag, key).is_some() {
            return;
        }
        // The set has not changed since, so the key has not either.
        let since = set.changed;
        set.push(tag, Entry { key: key.into(), value: value.cloned(), since, used: AtomicBool::new(false) });
    }

    /// Notes that record `seq` sets `key`, before any reader can see it. Call it in the order of the records.
    pub(crate) fn changed(&self, seq: u64, key: &Bytes, value: Option<&Bytes>) {
        let Some((set, tag)) = self.place(key) else { return };
        let mut set = self.set(set).write();
        set.changed = seq;
        let used = set.find(tag, key).is_some_and(|at| set.remove(at));
        // A deleted key is seldom read again, unless it was read before.
        if value.is_some() || used {
            let used = AtomicBool::new(used);
            set.push(tag, Entry { key: key.clone(), value: value.cloned(), since: seq, used });
        }
    }

    /// Clears the cache and ignores later fills by readers of older views. Returns the epoch of views made from now on.
    pub(crate) fn forget(&self) {
        self.epoch.fetch_add(1, Ordering::AcqRel);
        // Whoever makes a set after this knows the new epoch.
        let _making = self.making.lock();
        for set in self.made_sets() {
            let mut set = set.write();
            *set = Set { changed: set.changed, ..Set::default() };
        }
    }

    /// The epoch of views that are made now.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// The number of the key's set, and its tag there. `None`: the cache stores nothing.
    #[allow(clippy::cast_possible_truncation)] // uses halves of the hash
    fn place(&self, key: &[u8]) -> Option<(usize, u32)> {
        let hash = hash(self.seed, key);
        let at = ((hash >> 32) * self.set_count as u64) >> 32;
        (self.set_count > 0).then_some((at as usize, hash as u32))
    }

    /// The set with this number.
    fn set(&self, at: usize) -> &RwLock<Set> {
        let some = &self.sets[at / MADE_TOGETHER];
        let made = some.get().unwrap_or_else(|| {
            let _making = self.making.lock();
            some.get_or_init(|| (0..MADE_TOGETHER).map(|_| RwLock::default()).collect())
        });
        &made[at % MADE_TOGETHER]
    }

    fn made_sets(&self) -> impl Iterator<Item = &RwLock<Set>> {
        self.sets.iter().filter_map(OnceLock::get).flat_map(|made| made.iter())
    }
}

impl Set {
    fn find(&self, tag: u32, key: &[u8]) -> Option<usize> {
        let mut places = self.tags.iter().zip(&self.entries);
        places.position(|(other, entry)| *other == tag && entry.as_ref().is_some_and(|entry| *entry.key == *key))
    }

    /// Returns whether the entry was in use.
    fn remove(&mut self, at: usize) -> bool {
        let Some(entry) = self.entries[at].take() else { return false };
        self.bytes -= entry.weight();
        entry.used.into_inner()
    }

    /// Adds an entry whose key is not in the set. Evicts entries that were not used lately.
    fn push(&mut self, tag: u32, entry: Entry) {
        let weight = entry.weight();
        if weight > ENTRY_MAX {
            return;
        }
        let place = loop {
            let free = self.entries.iter().position(Option::is_none);
            match free {
                Some(at) if self.bytes + weight <= SET_BYTES => break at,
                _ => self.make_room(),
            }
        };
        self.bytes += weight;
        self.tags[place] = tag;
        self.entries[place] = Some(entry);
    }

    /// Advances the hand and evicts the entry there, unless it was used since the last pass.
    fn make_room(&mut self) {
        let at = self.hand;
        self.hand = (at + 1) % WAYS;
        if self.entries[at].as_mut().is_some_and(|entry| !std::mem::take(entry.used.get_mut())) {
            self.remove(at);
        }
    }
}

impl Entry {
    fn weight(&self) -> usize {
        self.key.len() + self.value.as_ref().map_or(0, |value| value.len()) + ENTRY_OVERHEAD
    }
}

/// Seeded, because clients choose the names. All bits are well mixed, because parts of the hash are used separately.
pub(crate) fn hash(seed: u64, key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(key, seed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    fn bytes(text: &str) -> Bytes {
        Bytes::from(text.as_bytes())
    }

    #[test]
    fn the_cache_is_bounded_and_keeps_entries_in_use() {
        let cache = ReadCache::new(64 << 10);
        let hot: Vec<Bytes> = (0..20).map(|n| bytes(&format!("hot{n}"))).collect();
        let value = bytes(&"v".repeat(60));
        for key in &hot {
            cache.changed(1, key, Some(&value));
        }
        for n in 0..20_000_u32 {
            cache.changed(2, &bytes(&format!("cold{n}")), Some(&value));
            for key in &hot {
                assert_eq!(cache.get(key, 1), Some(Some(value.clone())), "after {n}");
            }
        }
        for set in cache.made_sets() {
            let set = set.read();
            let held: usize = set.entries.iter().flatten().map(Entry::weight).sum();
            assert!(held == set.bytes && held <= SET_BYTES);
        }
        let (large, small) = (bytes(&"x".repeat(ENTRY_MAX)), bytes("s"));
        cache.changed(3, &hot[0], Some(&large));
        assert_eq!(cache.get(&hot[0], 3), None, "too large, and the old value does not hold");
        cache.fill(&hot[0], Some(&small), 3, 1);
        assert_eq!(cache.get(&hot[0], 3), None, "from another epoch");
        cache.fill(&hot[0], Some(&small), 3, 0);
        assert_eq!(cache.get(&hot[0], 3), Some(Some(small)));
        cache.forget();
        assert_eq!(cache.get(&hot[0], 3), None);
        assert!(cache.made_sets().count() > 0 && ReadCache::new(64 << 10).made_sets().next().is_none());
        let none = ReadCache::new(0);
        none.changed(1, &hot[0], Some(&large));
        none.fill(&hot[0], None, 1, 0);
        assert_eq!(none.get(&hot[0], 1), None);
    }

    #[test]
    fn keys_are_spread() {
        let cache = ReadCache::new(2 << 20);
        let mut loads = BTreeMap::<usize, u32>::new();
        for n in 0..100_000_u64 {
            let key = [b"D".as_slice(), &(n % 100).to_be_bytes(), format!("f{n}").as_bytes()].concat();
            let (set, _) = cache.place(&key).unwrap();
            *loads.entry(set).or_default() += 1;
        }
        let most = loads.values().max().unwrap();
        assert!(loads.len() == 1024 && *most < 200, "{} sets, at most {most} of 98 on the average", loads.len());
    }

    /// The values of a key, by record.
    type History = BTreeMap<u64, Option<Bytes>>;

    fn as_of(history: &History, at: u64) -> Option<Bytes> {
        history.range(..=at).next_back().and_then(|(_, value)| value.clone())
    }

    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    enum Bug {
        NotInvalidated,
        FilledWithoutLooking,
    }

    /// Runs the steps of an appender and of readers in any order. Each reader takes its snapshot, looks into the cache,
    /// reads the index, and fills the cache; steps of others run between any two of these.
    fn interleave(seed: u64, bug: Option<Bug>, hits: &mut u64) -> Result<(), String> {
        let mut rng = SmallRng::seed_from_u64(seed);
        // One set, or few.
        let cache = ReadCache::new(SET_BYTES << rng.random_range(0..4));
        let keys: Vec<Bytes> = (0..rng.random_range(1..12)).map(|n| bytes(&format!("k{n}"))).collect();
        let mut histories = vec![History::new(); keys.len()];
        let (mut appended, mut published) = (0, 0);
        // Open snapshots, and running lookups: key, state, result.
        let mut held = vec![0];
        let mut pending: Vec<(usize, u64, Option<Bytes>)> = Vec::new();
        for _ in 0..400 {
            let key = rng.random_range(0..keys.len());
            match rng.random_range(0..10) {
                0 | 1 => {
                    appended += 1;
                    for _ in 0..rng.random_range(1..4) {
                        let key = rng.random_range(0..keys.len());
                        let value = rng.random_bool(0.7).then(|| bytes(&format!("{appended}")));
                        if bug != Some(Bug::NotInvalidated) {
                            cache.changed(appended, &keys[key], value.as_ref());
                        }
                        histories[key].insert(appended, value);
                    }
                }
                2 => published = rng.random_range(published..=appended),
                3 => held.push(published),
                4 if held.len() > 4 => drop(held.remove(rng.random_range(0..held.len()))),
                5 if rng.random_bool(0.05) => cache.forget(),
                5 | 6 if !pending.is_empty() => {
                    let (key, at, value) = pending.swap_remove(rng.random_range(0..pending.len()));
                    let at = if bug == Some(Bug::FilledWithoutLooking) { u64::MAX } else { at };
                    cache.fill(&keys[key], value.as_ref(), at, cache.epoch());
                }
                _ => {
                    // The newest snapshot, an open one, or (for the committer) unpublished state.
                    let at = match rng.random_range(0..4) {
                        0 => held[rng.random_range(0..held.len())],
                        1 => appended,
                        _ => published,
                    };
                    let expected = as_of(&histories[key], at);
                    match cache.get(&keys[key], at) {
                        Some(found) if found == expected => *hits += 1,
                        Some(found) => return Err(format!("as of {at}: {found:?}, expected {expected:?}")),
                        None => pending.push((key, at, expected)),
                    }
                }
            }
        }
        Ok(())
    }

    #[test]
    fn a_cached_answer_equals_the_snapshots_in_any_order_of_steps() {
        let mut hits = 0;
        let seeds = crate::tests::seeds(3000);
        for seed in 0..seeds {
            interleave(seed, None, &mut hits).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        }
        println!("{seeds} seeds, {hits} hits");
        assert!(hits > seeds * 30, "{hits} hits");
    }

    #[test]
    fn planted_bugs_are_found() {
        for bug in [Bug::NotInvalidated, Bug::FilledWithoutLooking] {
            let found = (0..100).find_map(|seed| interleave(seed, Some(bug), &mut 0).err().map(|what| (seed, what)));
            println!("{bug:?}: {found:?}");
            assert!(found.is_some(), "{bug:?} was not found");
        }
    }
}
