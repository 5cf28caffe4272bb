//! What this process knows of the entries without asking the database.
//!
//! The changes of the committer go in here as they are committed, so what is known stays exact as long as nobody else commits. For the committer itself
//! its fence sees to that: if another process had taken its place, nothing that it decided by this knowledge would be committed. Readers use it only
//! under the lease of the committer ([`crate::Postgres::lease`]).

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use kv::Chain;
use parking_lot::RwLock;

use crate::chains::{beginning_with, walk_chain};
use crate::fetched::Fetched;
use crate::needs::{Needs, Range};

/// Batches of which it is remembered what they changed, and the most of these keys. A reader that is slower cannot be told whether what it knows is old.
const RECENT_BATCHES: usize = 4096;
const RECENT_KEYS: usize = 1 << 16;

/// Entries of one fetch that are remembered at most.
const LEARNED_MAX: usize = 512;
/// What was read so many batches ago is not remembered: to look whether it has changed would take long.
const LATE_BATCHES: i64 = 64;
/// How often a reader looks whether the committer has got the answer of the database.
const LOOK: Duration = Duration::from_micros(200);

/// Entries that are known.
pub(crate) struct Cache {
    state: RwLock<State>,
    /// Bytes of each of the two generations at most.
    generation_bytes: usize,
}

/// Which changes of the committer somebody sees in the database.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Seen {
    /// The last of its batches.
    pub(crate) batch: i64,
    /// Its fence. Each connection of the committer has another one: with an earlier one, this is a server that is not the primary any more.
    pub(crate) fence: i64,
}

#[derive(Default)]
struct State {
    /// The fence of the committer.
    fence: i64,
    /// The last batch of the committer whose changes are in here.
    batch: i64,
    /// The last batch that a reader has seen in the database. Until it is in here, readers get nothing: nobody may see an earlier state after a later one.
    seen: i64,
    /// What was used lately. It replaces `old` when it is full.
    young: Fetched,
    old: Fetched,
    /// What the last batches have changed, the latest last.
    recent: VecDeque<Changed>,
    recent_keys: usize,
    /// The batch before the first of `recent`.
    recent_from: i64,
}

/// The keys that a batch has changed.
struct Changed {
    batch: i64,
    keys: BTreeSet<Box<[u8]>>,
}

/// Who asks for what is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum For {
    /// Readers. They must not see less than others have seen.
    Reader,
    /// The committer, whose batches these are.
    Committer,
}

impl Cache {
    /// Knows nothing, of a database in which the committer is `at`. `bytes`: how much may be known at most, in bytes.
    pub(crate) fn new(at: Seen, bytes: usize) -> Self {
        let Seen { batch, fence } = at;
        let state = State { fence, batch, seen: batch, recent_from: batch, ..State::default() };
        Self { state: RwLock::new(state), generation_bytes: bytes / 2 }
    }

    /// Adds to `known` what is wanted, if all of it is known. Returns the batch as of which that holds.
    pub(crate) fn supply(&self, who: For, needs: &Needs, known: &mut Fetched) -> Option<i64> {
        self.copy_to(who, known, |state, found| {
            needs.keys.iter().all(|key| state.copy(key, found))
                && needs.ranges.iter().all(|range| state.copy_range(range, found))
                && needs.chains.iter().all(|chain| state.copy_chain(chain, found))
        })
    }

    /// Adds to `known` what is known of `needs`. Returns the batch as of which that holds, unless nobody may use it now.
    pub(crate) fn supply_part(&self, who: For, needs: &Needs, known: &mut Fetched) -> Option<i64> {
        self.copy_to(who, known, |state, found| {
            for key in &needs.keys {
                state.copy(key, found);
            }
            for range in &needs.ranges {
                state.copy_range(range, found);
            }
            for chain in &needs.chains {
                state.copy_part_of_chain(chain, found);
            }
            true
        })
    }

    /// Adds to `known` what `copy` has found, if it says so. All of that is of one state.
    fn copy_to(&self, who: For, known: &mut Fetched, copy: impl FnOnce(&State, &mut Found) -> bool) -> Option<i64> {
        let (at, found, uses_old) = {
            let state = self.state.read();
            if who == For::Reader && state.batch < state.seen {
                return None;
            }
            let mut found = Found::default();
            if !copy(&state, &mut found) || found.entries.is_empty() {
                return None;
            }
            (Seen { batch: state.batch, fence: state.fence }, found.entries, found.uses_old)
        };
        if uses_old {
            self.learn(at, &found);
        }
        known.absorb(found);
        Some(at.batch)
    }

    /// Remembers what was read in the database as of `at`, except for what has changed since.
    pub(crate) fn learn(&self, at: Seen, found: &Fetched) {
        let Seen { batch, fence } = at;
        // A long listing is read once, and would take the place of what is read often.
        if self.generation_bytes == 0 || found.entries().len() > LEARNED_MAX {
            return;
        }
        let mut state = self.state.write();
        // The answer of a server that is not the primary any more may have changes that nobody else ever sees.
        let oldest = state.recent_from.max(state.batch - LATE_BATCHES);
        if fence != state.fence || !(oldest..=state.batch).contains(&batch) {
            return;
        }
        let State { young, recent, .. } = &mut *state;
        let changed: Vec<&BTreeSet<_>> =
            recent.iter().rev().take_while(|one| one.batch > batch).map(|one| &one.keys).collect();
        for (key, value) in found.entries() {
            if !changed.iter().any(|keys| keys.contains(key)) {
                young.insert(key, value);
            }
        }
        for (start, end) in found.ranges() {
            if !changed.iter().any(|keys| has_between(keys, start, end)) {
                young.cover(start, end);
            }
        }
        self.rotate(&mut state);
    }

    /// The committer has committed `batch`.
    pub(crate) fn apply(&self, batch: i64, changes: &kv::Batch) {
        let keys: BTreeSet<Box<[u8]>> = changes.iter().map(|(key, _)| Box::from(key)).collect();
        let mut state = self.state.write();
        for (key, value) in changes.iter() {
            if self.generation_bytes > 0 {
                state.young.insert(key, value);
            }
            if state.old.get(key).is_some() {
                state.old.insert(key, value);
            }
        }
        state.batch = batch;
        state.recent_keys += keys.len();
        state.recent.push_back(Changed { batch, keys });
        while state.recent.len() > RECENT_BATCHES || state.recent_keys > RECENT_KEYS {
            let Some(first) = state.recent.pop_front() else { break };
            state.recent_keys -= first.keys.len();
            state.recent_from = first.batch;
        }
        self.rotate(&mut state);
    }

    /// Forgets everything: the committer has a new connection, and is `at`.
    pub(crate) fn reset(&self, at: Seen) {
        let Seen { batch, fence } = at;
        let mut state = self.state.write();
        // What others have seen of a server that is not the primary any more never comes here.
        let fresh = State { fence, batch, seen: batch, recent_from: batch, ..State::default() };
        let before = std::mem::replace(&mut *state, fresh);
        drop(state);
        drop_aside(before);
    }

    /// A reader has this before it in the database. Returns whether that is the committer's own server.
    pub(crate) fn saw(&self, at: Seen) -> bool {
        let Seen { batch, fence } = at;
        {
            let state = self.state.read();
            if state.fence != fence || state.seen >= batch {
                return state.fence == fence;
            }
        }
        let mut state = self.state.write();
        if state.fence == fence {
            state.seen = state.seen.max(batch);
        }
        state.fence == fence
    }

    /// Whether `known`, which was exact as of batch `from`, is so as of batch `to`, too. `false` if nobody can tell.
    pub(crate) fn is_unchanged(&self, known: &Fetched, from: i64, to: i64) -> bool {
        if from == to {
            return true;
        }
        let state = self.state.read();
        let (from, to) = (from.min(to), from.max(to));
        let since = state.recent.iter().rev().take_while(|one| from < one.batch).filter(|one| one.batch <= to);
        state.recent_from <= from
            && to <= state.batch
            && !since.flat_map(|one| &one.keys).any(|key| known.get(key).is_some())
    }

    /// Waits until the changes of `batch` are in here, but at most for `patience`. Returns whether they are.
    pub(crate) fn wait_for(&self, batch: i64, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        while self.state.read().batch < batch {
            if Instant::now() >= until {
                return false;
            }
            // The committer has the answer of the database in a moment.
            std::thread::sleep(LOOK);
        }
        true
    }

    fn rotate(&self, state: &mut State) {
        if state.young.bytes() > self.generation_bytes {
            let young = std::mem::take(&mut state.young);
            drop_aside(std::mem::replace(&mut state.old, young));
        }
    }
}

/// Drops something large without making anybody wait.
fn drop_aside<T: Send + 'static>(large: T) {
    // Without a thread for it, it is dropped here.
    let _ = std::thread::Builder::new().name("cache".into()).spawn(move || drop(large));
}

fn has_between(keys: &BTreeSet<Box<[u8]>>, start: &[u8], end: &[u8]) -> bool {
    use std::ops::Bound::{Excluded, Included};
    start < end && keys.range::<[u8], _>((Included(start), Excluded(end))).next().is_some()
}

/// What is supplied.
#[derive(Default)]
struct Found {
    entries: Fetched,
    /// Whether something of it is in the old generation, where it would soon be forgotten.
    uses_old: bool,
}

impl State {
    fn get(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        self.young.get(key).or_else(|| self.old.get(key))
    }

    /// Copies an entry, or that there is none. Returns whether it is known.
    fn copy(&self, key: &[u8], found: &mut Found) -> bool {
        let Some(value) = self.get(key) else { return false };
        found.uses_old |= self.young.get(key).is_none();
        found.entries.insert(key, value);
        true
    }

    /// Copies the first entries of a range. Returns whether they are known, all in one generation.
    fn copy_range(&self, range: &Range, found: &mut Found) -> bool {
        if self.young.copy_range(range, &mut found.entries) {
            return true;
        }
        let is_old = self.old.copy_range(range, &mut found.entries);
        found.uses_old |= is_old;
        is_old
    }

    /// Copies the entries of a chain. Returns whether all are known.
    fn copy_chain(&self, chain: &Chain, found: &mut Found) -> bool {
        let find = |key: &[u8]| self.get(key);
        walk_chain(chain, find, |key, most| match most {
            None => self.copy(&key, found),
            Some(most) => self.copy_range(&beginning_with(key, most), found),
        })
    }

    /// Copies those entries of a chain that are known.
    fn copy_part_of_chain(&self, chain: &Chain, found: &mut Found) {
        let find = |key: &[u8]| self.get(key);
        walk_chain(chain, find, |key, most| {
            match most {
                None => self.copy(&key, found),
                Some(most) => self.copy_range(&beginning_with(key, most), found),
            };
            true
        });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::ops::ControlFlow;

    use kv::{Batch, Follow, Prefetch, ScanOrder};
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

    /// A database and its committer: the entries after each batch. Some of the last batches are in the database, and not yet in the cache.
    struct World {
        rng: StdRng,
        states: Vec<Entries>,
        waiting: VecDeque<Batch>,
        cache: Cache,
    }

    const FIRST_BATCH: i64 = 100;

    fn at(batch: i64) -> Seen {
        Seen { batch, fence: 5 }
    }

    impl World {
        fn new(seed: u64, bytes: usize) -> Self {
            let cache = Cache::new(at(FIRST_BATCH), bytes);
            Self { rng: StdRng::seed_from_u64(seed), states: vec![Entries::new()], waiting: VecDeque::new(), cache }
        }

        fn state(&self, batch: i64) -> &Entries {
            &self.states[usize::try_from(batch - FIRST_BATCH).unwrap()]
        }

        /// The last batch in the database.
        fn last(&self) -> i64 {
            FIRST_BATCH + i64::try_from(self.states.len()).unwrap() - 1
        }

        fn key(&mut self) -> Vec<u8> {
            [b"k".as_slice(), &[self.rng.random_range(b'a'..b'f'), self.rng.random_range(b'a'..b'f')]].concat()
        }

        fn commit(&mut self) {
            let (mut batch, mut state) = (Batch::new(), self.states.last().unwrap().clone());
            for _ in 0..self.rng.random_range(0..4) {
                let key = self.key();
                if self.rng.random_bool(0.4) {
                    batch.delete(&key);
                    state.remove(&key);
                } else {
                    let value = self.rng.random::<[u8; 4]>().to_vec();
                    batch.put(&key, &value);
                    state.insert(key, value);
                }
            }
            self.states.push(state);
            self.waiting.push_back(batch);
        }

        fn note_one(&mut self) {
            let batch = self.last() - i64::try_from(self.waiting.len()).unwrap() + 1;
            if let Some(changes) = self.waiting.pop_front() {
                self.cache.apply(batch, &changes);
            }
        }

        fn needs(&mut self) -> Needs {
            let mut needs = Needs::default();
            for _ in 0..self.rng.random_range(1..3) {
                needs.keys.insert(self.key());
            }
            if self.rng.random_bool(0.5) {
                let (one, other) = (self.key(), self.key());
                let order = if self.rng.random_bool(0.5) { ScanOrder::Ascending } else { ScanOrder::Descending };
                let most = self.rng.random_range(1..6);
                let end = [one.as_slice().max(&other), &[0]].concat();
                needs.add_range(Range { start: one.min(other), end, order, most });
            }
            needs
        }

        /// What the database answers as of `batch`.
        fn fetched(&self, needs: &Needs, batch: i64) -> Fetched {
            let (state, mut found) = (self.state(batch), Fetched::default());
            for key in &needs.keys {
                found.insert(key, state.get(key).map(Vec::as_slice));
            }
            for range in &needs.ranges {
                let most = usize::try_from(range.most).unwrap();
                let within = state.range(range.start.clone()..range.end.clone());
                let mut rows: Vec<_> = within.map(|(key, value)| (key.as_slice(), value.as_slice())).collect();
                if range.order == ScanOrder::Descending {
                    rows.reverse();
                }
                rows.truncate(most);
                found.insert_range(range, rows.into_iter());
            }
            found
        }

        /// All that `known` says is so as of `batch`.
        fn assert_exact(&self, known: &Fetched, batch: i64) {
            let state = self.state(batch);
            for (key, value) in known.entries() {
                assert_eq!(value, state.get(key).map(Vec::as_slice), "{key:?} as of {batch}");
            }
            for (start, end) in known.ranges() {
                let mut seen = Entries::new();
                known.scan(start, end, ScanOrder::Ascending, &mut |key, value| {
                    seen.insert(key.to_vec(), value.to_vec());
                    ControlFlow::Continue(())
                });
                let there: Entries = state
                    .range(start.to_vec()..end.to_vec())
                    .map(|(key, value)| (key.clone(), value.clone()))
                    .collect();
                assert_eq!(seen, there, "from {start:?} to {end:?} as of {batch}");
            }
        }
    }

    #[test]
    fn what_is_supplied_is_what_the_database_had_and_nobody_sees_an_earlier_state_later() {
        let (mut supplied, mut parts) = ([0; 2], 0);
        for seed in 0..300 {
            // Small enough to forget, and large enough to forget nothing.
            let bytes = if seed % 3 == 0 { 3000 } else { 1 << 20 };
            let mut world = World::new(seed, bytes);
            let (mut seen, mut known, mut as_of) = (FIRST_BATCH, Fetched::default(), FIRST_BATCH);
            for _ in 0..300 {
                match world.rng.random_range(0..10) {
                    0..3 if world.waiting.len() < 3 => world.commit(),
                    3..5 => world.note_one(),
                    // A reader of the database: its transaction may have begun some batches ago.
                    5 => {
                        let batch =
                            world.rng.random_range(world.last().saturating_sub(6).max(FIRST_BATCH)..=world.last());
                        let needs = world.needs();
                        let found = world.fetched(&needs, batch);
                        world.cache.saw(at(batch));
                        world.cache.learn(at(batch), &found);
                        seen = seen.max(batch);
                    }
                    // The committer reads the database.
                    6 if world.waiting.is_empty() => {
                        let needs = world.needs();
                        let found = world.fetched(&needs, world.last());
                        world.cache.learn(at(world.last()), &found);
                    }
                    7 if world.rng.random_bool(0.02) => {
                        world.waiting.clear();
                        world.cache.reset(at(world.last()));
                    }
                    _ => {
                        let needs = world.needs();
                        let mut found = Fetched::default();
                        let who = if world.rng.random_bool(0.5) { For::Reader } else { For::Committer };
                        let mut part = Fetched::default();
                        if let Some(batch) = world.cache.supply_part(who, &needs, &mut part) {
                            world.assert_exact(&part, batch);
                            assert!(who == For::Committer || batch >= seen, "a reader has seen {seen}");
                            parts += 1;
                        }
                        let Some(batch) = world.cache.supply(who, &needs, &mut found) else { continue };
                        world.assert_exact(&found, batch);
                        assert!(part.entries().len() >= found.entries().len());
                        if who == For::Reader {
                            assert!(batch >= seen, "a reader has seen {seen}, and gets {batch}");
                        }
                        for range in &needs.ranges {
                            assert!(found.copy_range(range, &mut Fetched::default()), "{range:?} was not supplied");
                        }
                        supplied[usize::from(!needs.ranges.is_empty())] += 1;
                        if world.cache.is_unchanged(&known, as_of, batch) {
                            world.assert_exact(&known, batch);
                            known.absorb(found);
                            world.assert_exact(&known, batch);
                        } else {
                            known = found;
                        }
                        as_of = batch;
                    }
                }
            }
        }
        assert!(supplied.iter().all(|count| *count > 1000), "{supplied:?}");
        assert!(parts > supplied.iter().sum::<i32>() + 5000, "{parts}, {supplied:?}");
    }

    #[test]
    fn a_path_that_was_read_once_is_known() {
        let cache = Cache::new(at(7), 1 << 20);
        let key = |id: u8, name: &[u8]| [b"D".as_slice(), &[id; 8], name].concat();
        let follow = Follow { after: 2, prefix: b"A".to_vec(), most: Some(3), ..Follow::default() };
        let names = vec![b"a".to_vec(), b"b".to_vec()];
        let chain = Chain { prefix: b"D".to_vec(), first: [0; 8], names, id_at: 0, follow: vec![follow] };
        let rows: [(Vec<u8>, Vec<u8>); 3] = [
            (key(0, b"a"), vec![1; 8]),
            (key(1, b"b"), vec![2; 8]),
            ([b"A".as_slice(), &[2; 8], b"s"].concat(), vec![9]),
        ];
        let mut found = Fetched::default();
        found.insert_chain(&chain, &rows.iter().map(|(key, value)| (key.as_slice(), value.as_slice())).collect());
        cache.learn(at(7), &found);
        let wanted = || {
            let mut needs = Needs::default();
            needs.add(vec![Prefetch::Chain(chain.clone())], &Fetched::default());
            let mut known = Fetched::default();
            cache.supply(For::Reader, &needs, &mut known).map(|batch| (batch, known))
        };
        let (batch, known) = wanted().unwrap();
        assert_eq!(batch, 7);
        assert_eq!(known.get(&rows[2].0), Some(Some([9].as_slice())));
        // Another directory takes the name, and of that one nothing is known.
        let mut changes = Batch::new();
        changes.put(&rows[0].0, &[3; 8]);
        cache.apply(8, &changes);
        assert!(wanted().is_none());
        assert!(!cache.is_unchanged(&known, 7, 8));
        // Somebody has seen a batch that is not here yet.
        changes.put(&rows[0].0, &[1; 8]);
        assert!(cache.saw(at(9)));
        assert!(wanted().is_none());
        cache.apply(9, &changes);
        assert_eq!(wanted().unwrap().0, 9);
    }

    #[test]
    fn a_server_that_is_not_the_primary_any_more_is_not_believed() {
        let cache = Cache::new(at(7), 1 << 20);
        let wants = |key: &[u8]| {
            let mut needs = Needs::default();
            needs.keys.insert(key.to_vec());
            needs
        };
        let mut found = Fetched::default();
        found.insert(b"k", Some(b"of a batch that was never confirmed"));
        // The committer has connected to another server, which does not have batch 8.
        let now = Seen { batch: 7, fence: 6 };
        cache.reset(now);
        let mut changes = Batch::new();
        changes.put(b"other", b"1");
        cache.apply(8, &changes);
        assert!(!cache.saw(at(8)));
        cache.learn(at(8), &found);
        let mut known = Fetched::default();
        assert_eq!(cache.supply(For::Committer, &wants(b"k"), &mut known), None);
        assert!(!cache.saw(at(99)), "nobody waits for it");
        assert_eq!(cache.supply(For::Reader, &wants(b"other"), &mut known), Some(8));
    }

    #[test]
    fn what_was_removed_takes_no_room_where_all_is_known() {
        let cache = Cache::new(at(0), 1 << 20);
        let mut queue = Needs::default();
        queue.add_range(Range { start: b"Z".into(), end: b"[".into(), order: ScanOrder::Ascending, most: u32::MAX });
        let mut found = Fetched::default();
        found.insert_range(&queue.ranges[0], std::iter::empty());
        cache.learn(at(0), &found);
        let before = cache.state.read().young.bytes();
        for batch in 1..100 {
            let mut changes = Batch::new();
            if batch % 2 == 1 {
                changes.put(b"Z1", b"x");
            } else {
                changes.delete(b"Z1");
            }
            cache.apply(batch, &changes);
        }
        let mut changes = Batch::new();
        changes.delete(b"Z1");
        cache.apply(100, &changes);
        assert_eq!(cache.state.read().young.bytes(), before);
        let mut known = Fetched::default();
        assert_eq!(cache.supply(For::Reader, &queue, &mut known), Some(100));
        assert_eq!(known.get(b"Z1"), Some(None));
    }
}
