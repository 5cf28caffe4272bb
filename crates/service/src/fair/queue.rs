//! Sharers of one level that take turns by their clocks: principals, or the users of one principal.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::time::{Duration, Instant};

use super::{IDLE_MAX, Place};

/// How many more grants a sharer may have at a time than another busy one. With 1, one connection beside many of
/// another sharer gets at least a third of the total.
pub(super) const LEAD: usize = 1;
/// A sharer still counts as busy for this time after its last grant, or for twice the duration of its grants. One that
/// returns later is limited by its own speed, so the others do not make room for it.
pub(super) const BREATH: Duration = Duration::from_millis(5);
const BREATH_MAX: Duration = Duration::from_millis(100);

/// The grants of a sharer or of a class.
#[derive(Clone, Copy)]
pub(super) struct Busy {
    /// Grants that have not ended.
    pub(super) granted: usize,
    pub(super) waiting: usize,
    /// The times when the last grant began, and when the last one ended.
    began: Option<Instant>,
    ended: Option<Instant>,
    /// How long after `ended` it still counts as busy.
    breath: Duration,
    /// The minimum of `breath`.
    breath_min: Duration,
}

impl Busy {
    const IDLE: Self = Self { granted: 0, waiting: 0, began: None, ended: None, breath: BREATH, breath_min: BREATH };
    /// A class does not stay busy between grants: otherwise one client that sends a packet now and then would hold
    /// back all others.
    pub(super) const CLASS: Self = Self { breath: Duration::ZERO, breath_min: Duration::ZERO, ..Self::IDLE };

    pub(super) fn begin(&mut self, now: Instant) {
        self.waiting = self.waiting.saturating_sub(1);
        self.granted += 1;
        self.began = Some(now);
    }

    pub(super) fn end(&mut self, now: Instant) {
        self.granted = self.granted.saturating_sub(1);
        self.ended = Some(now);
        let took = self.began.map_or(Duration::ZERO, |began| now.saturating_duration_since(began));
        // A long grant (to the disk) often follows several short ones (from the socket).
        self.breath = (took * 2).max(self.breath / 4 * 3).clamp(self.breath_min, BREATH_MAX);
    }

    /// The number of grants that others compare with; `None`: it is not busy.
    pub(super) fn uses(&self, now: Instant) -> Option<usize> {
        let just_ended = self.ended.is_some_and(|ended| now.saturating_duration_since(ended) < self.breath);
        (self.granted > 0 || self.waiting > 0 || just_ended).then(|| self.granted.max(1))
    }
}

/// Sharers `K`, each with what waits within it.
pub(super) struct Queue<K, V> {
    pub(super) sharers: HashMap<K, Sharer<V>>,
    /// The waiting sharers, ordered by clock. The number breaks ties in order of arrival.
    pub(super) ready: BTreeMap<Place, K>,
    /// The clock of the sharer that got the last grant. New sharers start there.
    clock: u64,
}

pub(super) struct Sharer<V> {
    clock: u64,
    /// Its key in `ready`, while it waits.
    ready: Option<Place>,
    busy: Busy,
    pub(super) within: V,
}

impl<K, V> Default for Queue<K, V> {
    fn default() -> Self {
        Self { sharers: HashMap::new(), ready: BTreeMap::new(), clock: 0 }
    }
}

impl<K: Clone + Eq + Hash, V: Default> Queue<K, V> {
    /// A block waits in the sharer `key`. Returns what is within the sharer.
    pub(super) fn wait(&mut self, key: &K, number: u64) -> &mut V {
        let now = self.clock;
        let idle = || Sharer { clock: now, ready: None, busy: Busy::IDLE, within: V::default() };
        let sharer = self.sharers.entry(key.clone()).or_insert_with(idle);
        sharer.busy.waiting += 1;
        if sharer.ready.is_none() {
            sharer.clock = sharer.clock.max(now);
            let place = (sharer.clock, number);
            sharer.ready = Some(place);
            self.ready.insert(place, key.clone());
        }
        &mut sharer.within
    }

    /// The waiting sharer that is furthest behind, has less than [`LEAD`] more grants than the busiest other one, and
    /// in which `find` finds a block.
    pub(super) fn first<T>(&self, now: Instant, find: impl Fn(&V) -> Option<T>) -> Option<(K, T)> {
        // The two busiest. For a sharer that is one of them, the other one counts.
        let mut most: [Option<usize>; 2] = [None; 2];
        for busy in self.sharers.values().filter_map(|sharer| sharer.busy.uses(now)) {
            if Some(busy) > most[0] {
                most = [Some(busy), most[0]];
            } else if Some(busy) > most[1] {
                most[1] = Some(busy);
            }
        }
        let may = |busy: &Busy| {
            let other = if busy.uses(now) == most[0] { most[1] } else { most[0] };
            other.is_none_or(|other| busy.granted < other + LEAD)
        };
        self.ready.values().find_map(|key| {
            let sharer = self.sharers.get(key).filter(|sharer| may(&sharer.busy))?;
            Some((key.clone(), find(&sharer.within)?))
        })
    }

    /// What is within the sharer `key`.
    pub(super) fn within(&mut self, key: &K) -> Option<&mut V> {
        self.sharers.get_mut(key).map(|sharer| &mut sharer.within)
    }

    /// Grants `bytes` to the sharer `key`, which was [`Queue::first`].
    pub(super) fn begin(&mut self, key: &K, bytes: u64, number: u64, now: Instant) {
        let Some(sharer) = self.sharers.get_mut(key) else { return };
        let Some(place) = sharer.ready.take() else { return };
        self.ready.remove(&place);
        self.clock = self.clock.max(place.0);
        sharer.busy.begin(now);
        sharer.clock = place.0.saturating_add(bytes);
        if sharer.busy.waiting > 0 {
            let place = (sharer.clock, number);
            sharer.ready = Some(place);
            self.ready.insert(place, key.clone());
        }
        if self.sharers.len() > self.ready.len() + IDLE_MAX {
            let clock = self.clock;
            self.sharers.retain(|_, sharer| sharer.busy.uses(now).is_some() || sharer.clock > clock);
        }
    }

    /// Ends a grant of the sharer `key`, which has moved `more` bytes than it was granted. Returns what is within it.
    pub(super) fn end(&mut self, key: &K, more: u64, now: Instant) -> Option<&mut V> {
        let sharer = self.sharers.get_mut(key)?;
        sharer.busy.end(now);
        sharer.clock = sharer.clock.saturating_add(more);
        if let (1.., Some(place)) = (more, sharer.ready) {
            self.ready.remove(&place);
            let place = (sharer.clock, place.1);
            sharer.ready = Some(place);
            self.ready.insert(place, key.clone());
        }
        Some(&mut sharer.within)
    }
}
