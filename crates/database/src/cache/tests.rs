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
            let there: Entries =
                state.range(start.to_vec()..end.to_vec()).map(|(key, value)| (key.clone(), value.clone())).collect();
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
                    let batch = world.rng.random_range(world.last().saturating_sub(6).max(FIRST_BATCH)..=world.last());
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
    let rows: [(Vec<u8>, Vec<u8>); 3] =
        [(key(0, b"a"), vec![1; 8]), (key(1, b"b"), vec![2; 8]), ([b"A".as_slice(), &[2; 8], b"s"].concat(), vec![9])];
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

/// A process whose readers follow this committer, which tells it what has changed. Parts of that are left out, answers come late, and the committer connects
/// again.
#[test]
fn what_a_follower_knows_is_exact_and_never_goes_back() {
    let (mut supplied, mut went_on, mut late, mut later) = (0, 0, 0, 0);
    for seed in 0..300 {
        let bytes = if seed % 3 == 0 { 3000 } else { 1 << 20 };
        let mut world = World::new(seed, bytes);
        let follower = Cache::new(Seen::default(), if seed % 2 == 0 { 3000 } else { 1 << 20 });
        let (mut known, mut as_of, mut fence) = (Fetched::default(), FIRST_BATCH, 5);
        let mut answers = Vec::new();
        for _ in 0..300 {
            let before = follower.at();
            match world.rng.random_range(0..12) {
                0..3 if world.waiting.len() < 3 => world.commit(),
                3..5 => world.note_one(),
                5..7 => {
                    let since = follower.at();
                    // The question says what this one's readers have seen in the database.
                    world.cache.saw(follower.state.read().seen);
                    let Some(mut changes) = world.cache.changes_since(since) else {
                        later += 1;
                        continue;
                    };
                    assert_eq!(Seen { batch: changes.batch, fence: changes.fence }, world.cache.at());
                    went_on += i32::from(changes.entries.is_some());
                    for entry in changes.entries.iter_mut().flatten() {
                        if world.rng.random_bool(0.2) {
                            entry.now = None;
                        }
                    }
                    answers.push((since, changes.clone()));
                    // The answer may never come.
                    if world.rng.random_bool(0.8) {
                        assert!(follower.follow(since, changes));
                        assert_eq!(follower.at(), world.cache.at());
                    }
                }
                // An answer that was meant for an earlier question.
                7 if !answers.is_empty() => {
                    let (since, changes) = answers.swap_remove(world.rng.random_range(0..answers.len()));
                    late += i32::from(!follower.follow(since, changes));
                }
                8 => {
                    let batch = world.rng.random_range(world.last().saturating_sub(6).max(FIRST_BATCH)..=world.last());
                    let needs = world.needs();
                    let found = world.fetched(&needs, batch);
                    // The row has the fence that the committer has now.
                    follower.saw(Seen { batch, fence });
                    follower.learn(Seen { batch, fence }, &found);
                }
                // The committer reads, so it knows values that it can tell.
                9 if world.waiting.is_empty() => {
                    let needs = world.needs();
                    let found = world.fetched(&needs, world.last());
                    world.cache.learn(Seen { batch: world.last(), fence }, &found);
                }
                10 if world.rng.random_bool(0.05) => {
                    world.waiting.clear();
                    fence += 1;
                    world.cache.reset(Seen { batch: world.last(), fence });
                }
                _ => {
                    // A transaction may have begun between two answers.
                    let between = world.rng.random_range(as_of..=as_of.max(follower.at().batch));
                    if follower.is_unchanged(&known, as_of, between) {
                        world.assert_exact(&known, between);
                    }
                    let (needs, mut found) = (world.needs(), Fetched::default());
                    let Some(batch) = follower.supply(For::Reader, &needs, &mut found) else { continue };
                    world.assert_exact(&found, batch);
                    if follower.is_unchanged(&known, as_of, batch) {
                        world.assert_exact(&known, batch);
                        known.absorb(found);
                    } else {
                        known = found;
                    }
                    (as_of, supplied) = (batch, supplied + 1);
                    let before = world.rng.random_range(as_of.saturating_sub(4).max(FIRST_BATCH)..=as_of);
                    if follower.is_unchanged(&known, as_of, before) {
                        world.assert_exact(&known, before);
                    }
                }
            }
            let now = follower.at();
            assert!((now.fence, now.batch) >= (before.fence, before.batch), "{before:?}, then {now:?}");
        }
    }
    assert!(supplied > 2000 && went_on > 3000 && late > 500 && later > 500, "{supplied}, {went_on}, {late}, {later}");
}

#[test]
fn a_follower_is_told_so_much_at_most() {
    let cache = Cache::new(at(0), 64 << 20);
    let mut changes = Batch::new();
    for number in 0..4000_u32 {
        changes.put(&number.to_be_bytes(), &[7; 1000]);
    }
    cache.apply(1, &changes);
    let told = cache.changes_since(at(0)).unwrap();
    let entries = told.entries.clone().unwrap();
    let with_values = entries.iter().filter(|entry| entry.now.is_some()).count();
    assert_eq!(entries.len(), 4000, "keys are told without values");
    assert!((400..600).contains(&with_values), "{with_values}");
    let follower = Cache::new(at(0), 64 << 20);
    let mut found = Fetched::default();
    found.insert_range(&all(), std::iter::empty());
    follower.learn(at(0), &found);
    assert!(follower.follow(at(0), told));
    let state = follower.state.read();
    let known = entries.iter().filter(|entry| state.get(&entry.key).is_some()).count();
    assert_eq!(known, with_values, "nothing is known of the others");
    assert_eq!(state.get(b"\0\0\0\0x"), Some(None), "of what has not changed, all is known");
    drop(state);
    for number in 4000..60_000_u32 {
        changes.put(&number.to_be_bytes(), b"");
    }
    cache.apply(2, &changes);
    let entries_since = |since| cache.changes_since(since).unwrap().entries;
    assert_eq!(entries_since(at(1)), None, "too many");
    assert_eq!(entries_since(Seen { batch: 1, fence: 4 }), None, "another committer");
    assert_eq!(entries_since(at(3)), None, "a batch that is not here");
    assert_eq!(entries_since(at(2)), Some(Vec::new()));
}

fn all() -> Range {
    Range { start: Vec::new(), end: vec![0xff], order: ScanOrder::Ascending, most: u32::MAX }
}
