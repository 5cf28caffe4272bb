//! Credentials that may count only once: which of them a server has seen, as long as they could count again, and what it can
//! know of that after a restart.
//!
//! All of it is pure: it takes the time, and its size is bounded.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use types::Timestamp;

/// The present time, by two clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Now {
    /// The time of day.
    pub wall: Timestamp,
    /// The time since a fixed moment, which never goes back.
    pub steady: Duration,
}

/// What a server that starts knows of the credentials that it admitted before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Before {
    /// There were none.
    None,
    /// None was made after this.
    Until(Timestamp),
    /// Perhaps none was made after this, and perhaps there were any.
    Unknown(Option<Timestamp>),
}

/// When the server started. If it does not know what it admitted before, that can have been made until then, and in the future
/// as far as clocks may differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// As both clocks said at the start.
    At(Now),
    /// Only the clock that nobody sets is believed. The time of day at the start is reckoned back from the present one.
    Since(Duration),
}

/// What is remembered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// After this time a credential is too old to count.
    pub keep: Duration,
    /// How far clocks may differ.
    pub clock_skew: Duration,
    /// Most credentials. Further ones are refused until older ones are forgotten.
    pub most: usize,
    /// Most of one owner, so that one does not keep out the others.
    pub most_of_one: usize,
}

/// Why a credential does not count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// It was seen.
    Replayed,
    /// It may have been seen, and be forgotten. One that is made after so many seconds counts.
    Forgotten(i64),
    /// Too many are remembered.
    Busy,
}

/// A credential that was seen.
#[derive(Debug)]
struct Seen<Owner, Mark> {
    at: Duration,
    made: Timestamp,
    mark: Mark,
    owner: Arc<Owner>,
}

/// The credentials that were seen lately, by their marks. After [`Limits::keep`] one is too old to count, so it is forgotten. If
/// the time of day is set back, it could count again. So of all forgotten ones the latest time at which one was made is kept, and
/// none that was made until then counts. While the clock runs right, these are too old anyway.
#[derive(Debug)]
pub struct Replays<Owner, Mark> {
    limits: Limits,
    marks: BTreeSet<Mark>,
    /// The first seen first.
    order: VecDeque<Seen<Owner, Mark>>,
    /// How many there are of each owner.
    of_owners: BTreeMap<Arc<Owner>, usize>,
    /// The latest time at which one that was admitted was made.
    newest: Option<Timestamp>,
    /// What was made until then may have been forgotten.
    forgotten: Option<Timestamp>,
    /// The start, if there may have been any before.
    start: Option<Start>,
}

impl<Owner: Ord + Clone, Mark: Ord + Copy> Replays<Owner, Mark> {
    /// Of a server that starts.
    #[must_use]
    pub fn new(limits: Limits, start: Start, before: Before) -> Self {
        let (forgotten, start) = match before {
            Before::None => (None, None),
            Before::Until(newest) => (Some(newest), None),
            Before::Unknown(newest) => (newest, Some(start)),
        };
        Self {
            limits,
            marks: BTreeSet::new(),
            order: VecDeque::new(),
            of_owners: BTreeMap::new(),
            newest: forgotten,
            forgotten,
            start,
        }
    }

    /// How many are remembered: by their marks, in their order, of all owners together; and how many owners there are.
    #[must_use]
    pub fn sizes(&self) -> (usize, usize, usize, usize) {
        (self.marks.len(), self.order.len(), self.of_owners.values().sum(), self.of_owners.len())
    }

    /// The latest time at which a credential that was admitted was made. A server that writes it down before it lets the client
    /// in knows after a restart, by [`Before::Until`], what may have been seen.
    #[must_use]
    pub fn newest(&self) -> Option<Timestamp> {
        self.newest
    }

    /// Remembers a credential that was made at `made`.
    ///
    /// # Errors
    /// It was seen, or nobody knows whether it was.
    pub fn note(&mut self, owner: &Owner, mark: Mark, made: Timestamp, now: Now) -> Result<(), Refused> {
        self.forget(now);
        if self.marks.contains(&mark) {
            return Err(Refused::Replayed);
        }
        let until = self.forgotten.max(self.unknown_until(now));
        if let Some(until) = until.filter(|until| made <= *until) {
            return Err(Refused::Forgotten((until.secs() - now.wall.secs()).max(0) + 1));
        }
        let of_owner = self.of_owners.get_key_value(owner);
        let (owner, count) =
            of_owner.map_or_else(|| (Arc::new(owner.clone()), 0), |(owner, count)| (Arc::clone(owner), *count));
        if self.marks.len() >= self.limits.most || count >= self.limits.most_of_one {
            return Err(Refused::Busy);
        }
        self.marks.insert(mark);
        self.of_owners.insert(Arc::clone(&owner), count + 1);
        self.order.push_back(Seen { at: now.steady, made, mark, owner });
        self.newest = self.newest.max(Some(made));
        Ok(())
    }

    /// What was made until then may have been seen before the start. `None`: that is too old by now, or is known.
    fn unknown_until(&self, now: Now) -> Option<Timestamp> {
        let began = match self.start? {
            Start::At(started) if !self.is_over(started.steady, now) => started.wall,
            Start::Since(began) if !self.is_over(began, now) => {
                let running = i64::try_from(now.steady.saturating_sub(began).as_secs()).unwrap_or(i64::MAX);
                Timestamp::from_secs(now.wall.secs().saturating_sub(running))
            }
            Start::At(_) | Start::Since(_) => return None,
        };
        Some(began.plus(self.limits.clock_skew))
    }

    fn is_over(&self, since: Duration, now: Now) -> bool {
        now.steady.saturating_sub(since) >= self.limits.keep
    }

    fn forget(&mut self, now: Now) {
        while self.order.front().is_some_and(|seen| self.is_over(seen.at, now)) {
            let Some(seen) = self.order.pop_front() else { break };
            self.forgotten = self.forgotten.max(Some(seen.made));
            self.marks.remove(&seen.mark);
            if let Some(count) = self.of_owners.get_mut(&seen.owner) {
                *count -= 1;
                if *count == 0 {
                    self.of_owners.remove(&seen.owner);
                }
            }
        }
    }
}
