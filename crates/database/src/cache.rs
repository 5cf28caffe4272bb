//! What this process knows of the entries without asking the database.
//!
//! The changes of the committer go in here as they are committed, so what is known stays exact as long as nobody else commits. For the committer itself
//! its fence sees to that: if another process had taken its place, nothing that it decided by this knowledge would be committed. Readers use it only
//! under the lease of the committer ([`crate::Postgres::lease`]).
//!
//! In a process whose readers follow another one's committer, the changes come from there (`following.rs`), those of several batches together.

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use kv::Chain;
use parking_lot::RwLock;

use crate::chains::{beginning_with, walk_chain};
use crate::fetched::Fetched;
use crate::needs::{Needs, Range};

mod changes;

pub use changes::{ChangedEntry, RecentChanges};

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

/// Which changes of the committer somebody sees in the database. Later ones are greater.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(crate) struct Seen {
    /// Its fence. Each connection of the committer has another one: with an earlier one, this is a server that is not the primary any more.
    pub(crate) fence: i64,
    /// The last of its batches.
    pub(crate) batch: i64,
}

#[derive(Default)]
struct State {
    /// The fence of the committer.
    fence: i64,
    /// The last batch of the committer whose changes are in here.
    batch: i64,
    /// What a reader has seen in the database, of this process or of another one. Until it is in here, readers get nothing: nobody may see an earlier
    /// state after a later one.
    seen: Seen,
    /// What was used lately. It replaces `old` when it is full.
    young: Fetched,
    old: Fetched,
    /// What the last batches have changed, the latest last.
    recent: VecDeque<Changed>,
    recent_keys: usize,
    /// The batch before the first of `recent`.
    recent_from: i64,
}

/// The keys that some batches have changed: in the process that commits, those of one batch.
struct Changed {
    /// The batch before the first one.
    after: i64,
    /// The last one.
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
        let state = State { fence, batch, seen: at, recent_from: batch, ..State::default() };
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
            if who == For::Reader && state.is_behind() {
                return None;
            }
            let mut found = Found::default();
            if !copy(&state, &mut found) || found.entries.is_empty() {
                return None;
            }
            (state.at(), found.entries, found.uses_old)
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
            state.change(key, value, self.generation_bytes > 0);
        }
        state.note_changed(batch, keys);
        self.rotate(&mut state);
    }

    /// Forgets everything: the committer has a new connection, and is `at`.
    pub(crate) fn reset(&self, at: Seen) {
        let Seen { batch, fence } = at;
        let mut state = self.state.write();
        // What others have seen of a server that is not the primary any more is less than this.
        let fresh = State { fence, batch, seen: state.seen.max(at), recent_from: batch, ..State::default() };
        let before = std::mem::replace(&mut *state, fresh);
        drop(state);
        drop_aside(before);
    }

    /// A reader has this before it in the database. Returns whether that is the committer's own server.
    pub(crate) fn saw(&self, at: Seen) -> bool {
        {
            let state = self.state.read();
            if state.seen >= at {
                return state.fence == at.fence;
            }
        }
        let mut state = self.state.write();
        state.seen = state.seen.max(at);
        state.fence == at.fence
    }

    /// Whether `known`, which was exact as of batch `from`, is so as of batch `to`, too. `false` if nobody can tell.
    pub(crate) fn is_unchanged(&self, known: &Fetched, from: i64, to: i64) -> bool {
        if from == to {
            return true;
        }
        let state = self.state.read();
        let (from, to) = (from.min(to), from.max(to));
        let since = state.recent.iter().rev().take_while(|one| from < one.batch).filter(|one| one.after < to);
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
    /// The batch as of which this is.
    fn at(&self) -> Seen {
        Seen { batch: self.batch, fence: self.fence }
    }

    /// Whether somebody has seen a later state in the database.
    fn is_behind(&self) -> bool {
        self.at() < self.seen
    }

    /// All batches up to `batch` are in here now. The new ones have changed `keys`.
    fn note_changed(&mut self, batch: i64, keys: BTreeSet<Box<[u8]>>) {
        let after = std::mem::replace(&mut self.batch, batch);
        self.recent_keys += keys.len();
        self.recent.push_back(Changed { after, batch, keys });
        while self.recent.len() > RECENT_BATCHES || self.recent_keys > RECENT_KEYS {
            let Some(first) = self.recent.pop_front() else { break };
            self.recent_keys -= first.keys.len();
            self.recent_from = first.batch;
        }
    }

    /// An entry has changed. `is_kept`: it is remembered, also if it was not known before.
    fn change(&mut self, key: &[u8], value: Option<&[u8]>, is_kept: bool) {
        if is_kept {
            self.young.insert(key, value);
        }
        if self.old.get(key).is_some() {
            self.old.insert(key, value);
        }
    }

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
mod tests;
