//! Repair: which missing replica is made next, at a bounded rate. The namespace records the missing replicas, so the
//! manager may lose the state in this module.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use types::{GroupId, ObjectId, StoreId};

use crate::Time;

/// The limits of repair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyRate {
    /// Bytes a second, for all copies together.
    pub bytes_per_second: u64,
    /// The number of copies in progress at a time.
    pub at_once: usize,
    /// A copy is treated as failed after this time plus the time that its length takes at [`SLOWEST`].
    pub patience: Duration,
    /// After a failure the same copy is not tried again for this time.
    pub rest: Duration,
    /// When nothing is missing, the namespace is searched again after this time.
    pub look_every: Duration,
}

impl Default for CopyRate {
    fn default() -> Self {
        Self {
            bytes_per_second: 100 << 20,
            at_once: 8,
            patience: Duration::from_secs(600),
            rest: Duration::from_secs(10),
            look_every: Duration::from_secs(5),
        }
    }
}

/// The lowest speed that a copy may have, in bytes a second. It is low, so that a busy disk does not make a large
/// copy start again.
pub const SLOWEST: u64 = 4 << 20;

/// How long a copy waits for which its target has too much to do.
const REST_WHILE_BUSY: Duration = Duration::from_secs(1);

/// How often the namespace is searched while copies are being made.
const LOOK_WHILE_BUSY: Duration = Duration::from_millis(200);

/// A missing replica.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct MissingReplica {
    /// The group.
    pub group: GroupId,
    /// The object.
    pub object: ObjectId,
    /// The store that must get it.
    pub to: StoreId,
    /// Its length in bytes.
    pub len: u64,
}

/// One page of the list of missing replicas.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct MissingReplicaPage {
    /// The replicas of this page that can be copied now.
    pub missing: Vec<MissingReplica>,
    /// The last entry of the page, whether or not it can be copied. `None`: this is the last page.
    pub end: Option<(GroupId, ObjectId)>,
}

/// The number of a copy in progress.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub struct CopyId(pub u64);

/// What the caller must do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CopyEffect {
    /// Read the page of missing replicas after this entry. `None`: the first page.
    Look(Option<(GroupId, ObjectId)>),
    /// Make this copy.
    Make(CopyId, MissingReplica),
    /// This copy has been silent for too long. Ignore later messages about it.
    GiveUp(CopyId),
}

/// Decides when each copy is made.
#[derive(Clone, Debug)]
pub struct Copying {
    rate: CopyRate,
    /// Bytes that may be copied now; below 0 after a large copy.
    credit: i128,
    counted: Time,
    found: VecDeque<MissingReplica>,
    /// The last entry that was read; `None` at the beginning.
    looked: Option<(GroupId, ObjectId)>,
    is_looking: bool,
    /// The list has grown since the last search began.
    is_urgent: bool,
    next_look: Time,
    given: u64,
    under_way: BTreeMap<CopyId, (MissingReplica, Time)>,
    resting: BTreeMap<(ObjectId, StoreId), Time>,
}

impl Copying {
    /// Starts at `now` with these limits.
    #[must_use]
    pub fn new(now: Time, rate: CopyRate) -> Self {
        Self {
            rate,
            credit: 0,
            counted: now,
            found: VecDeque::new(),
            looked: None,
            is_looking: false,
            is_urgent: false,
            next_look: now,
            given: 0,
            under_way: BTreeMap::new(),
            resting: BTreeMap::new(),
        }
    }

    /// Returns the number of copies in progress.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// Sets the total rate from now on, in bytes a second.
    pub fn set_bytes_per_second(&mut self, bytes_per_second: u64) {
        self.rate.bytes_per_second = bytes_per_second;
    }

    /// Searches the namespace at the next tick: it has new missing replicas.
    pub fn look_soon(&mut self) {
        self.is_urgent = true;
    }

    /// Takes the page that [`CopyEffect::Look`] asked for.
    pub fn found(&mut self, now: Time, page: MissingReplicaPage) {
        let MissingReplicaPage { missing, end } = page;
        if !self.is_looking {
            return;
        }
        self.is_looking = false;
        self.looked = end;
        if end.is_none() {
            // While copies are in progress, more are likely to follow soon: members in backfill get their missing
            // replicas in parts.
            let is_busy = missing.iter().any(|one| !self.resting.contains_key(&(one.object, one.to)));
            let pause = if is_busy { self.rate.look_every.min(LOOK_WHILE_BUSY) } else { self.rate.look_every };
            self.next_look = now + pause;
        }
        let is_new = |one: &MissingReplica| {
            !self.under_way.values().any(|(other, _)| (other.object, other.to) == (one.object, one.to))
        };
        let new: Vec<MissingReplica> = missing.into_iter().filter(is_new).collect();
        self.found.extend(new);
    }

    /// A copy has ended. `is_there`: the replica exists.
    pub fn done(&mut self, now: Time, copy: CopyId, is_there: bool) {
        let ended = self.under_way.remove(&copy);
        if let Some((missing, since)) = ended.filter(|_| !is_there) {
            self.rest(now, missing, since, self.rate.rest);
        }
    }

    /// The target has too much to do for this copy at the moment. It is asked again soon.
    pub fn put_off(&mut self, now: Time, copy: CopyId) {
        if let Some((missing, since)) = self.under_way.remove(&copy) {
            self.rest(now, missing, since, self.rate.rest.min(REST_WHILE_BUSY));
        }
    }

    fn rest(&mut self, now: Time, missing: MissingReplica, since: Time, rest: Duration) {
        self.resting.insert((missing.object, missing.to), now + rest);
        // Other copies may use the bytes that were reserved for this one and cannot have been copied yet.
        // Otherwise a large copy that fails at once would keep them waiting.
        let copied = self.earned(now.since(since)).min(u128::from(missing.len));
        let back = u128::from(missing.len) - copied;
        self.credit = self.credit.saturating_add(i128::try_from(back).unwrap_or(i128::MAX)).min(self.most());
    }

    /// Starts the copies that are due, and ends those that are silent.
    pub fn tick(&mut self, now: Time, out: &mut Vec<CopyEffect>) {
        let lost: Vec<CopyId> = self
            .under_way
            .iter()
            .filter(|(_, (missing, since))| {
                now.since(*since) >= self.rate.patience + Duration::from_secs(missing.len / SLOWEST)
            })
            .map(|(copy, _)| *copy)
            .collect();
        for copy in lost {
            self.done(now, copy, false);
            out.push(CopyEffect::GiveUp(copy));
        }
        self.resting.retain(|_, until| now < *until);
        self.go_on(now, out);
        if self.found.is_empty() && !self.is_looking && (self.is_urgent || now >= self.next_look) {
            (self.is_looking, self.is_urgent) = (true, false);
            out.push(CopyEffect::Look(self.looked));
        }
    }

    /// Starts copies from those found, as far as the rate allows. It also runs when a copy ends, because small
    /// copies take less time than passes between two ticks.
    pub fn go_on(&mut self, now: Time, out: &mut Vec<CopyEffect>) {
        self.count(now);
        while self.credit > 0 && self.under_way.len() < self.rate.at_once {
            let Some(missing) = self.found.pop_front() else { break };
            if self.resting.contains_key(&(missing.object, missing.to)) {
                continue;
            }
            self.given += 1;
            let copy = CopyId(self.given);
            self.credit -= i128::from(missing.len);
            self.under_way.insert(copy, (missing, now));
            out.push(CopyEffect::Make(copy, missing));
        }
    }

    /// Adds the bytes that the time since the last call allows. Unused bytes are kept for at most a second, so that
    /// a pause is not followed by a burst.
    fn count(&mut self, now: Time) {
        let rate = u128::from(self.rate.bytes_per_second.max(1));
        let earned = self.earned(now.since(self.counted));
        // A rest below one byte is counted the next time.
        let counted = u64::try_from(earned.saturating_mul(1_000_000_000) / rate).unwrap_or(u64::MAX);
        self.counted = self.counted + Duration::from_nanos(counted);
        self.credit = self.credit.saturating_add(i128::try_from(earned).unwrap_or(i128::MAX)).min(self.most());
    }

    /// The bytes that may be copied in this time.
    fn earned(&self, time: Duration) -> u128 {
        u128::from(self.rate.bytes_per_second.max(1)).saturating_mul(time.as_nanos()) / 1_000_000_000
    }

    fn most(&self) -> i128 {
        i128::from(self.rate.bytes_per_second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time(Duration::from_millis(ms))
    }

    fn missing(object: u64, len: u64) -> MissingReplica {
        MissingReplica { group: GroupId(2), object: ObjectId(object), to: StoreId(1), len }
    }

    fn page(missing: Vec<MissingReplica>, end: Option<u64>) -> MissingReplicaPage {
        MissingReplicaPage { missing, end: end.map(|object| (GroupId(2), ObjectId(object))) }
    }

    fn rate(bytes_per_second: u64, at_once: usize) -> CopyRate {
        CopyRate { bytes_per_second, at_once, patience: Duration::from_secs(60), ..CopyRate::default() }
    }

    #[test]
    fn the_rate_is_kept_whatever_the_sizes_are() {
        for sizes in [vec![1 << 20], vec![10 << 20, 1 << 10, 3 << 20], vec![64 << 20, 1]] {
            let mut copying = Copying::new(at(0), rate(8 << 20, 4));
            let (mut copied, mut object, mut under_way) = (0, 0, Vec::new());
            let mut out = Vec::new();
            for ms in (0..100_000).step_by(10) {
                copying.tick(at(ms), &mut out);
                for effect in out.drain(..) {
                    match effect {
                        CopyEffect::Look(_) => {
                            let found = (object..object + 100)
                                .zip(sizes.iter().cycle())
                                .map(|(object, len)| missing(object, *len));
                            object += 100;
                            copying.found(at(ms), page(found.collect(), Some(object - 1)));
                        }
                        CopyEffect::GiveUp(_) => panic!("all are done in time"),
                        CopyEffect::Make(copy, missing) => {
                            copied += missing.len;
                            under_way.push((ms + 300, copy));
                        }
                    }
                }
                under_way.retain(|(until, copy)| {
                    let is_done = ms >= *until;
                    if is_done {
                        copying.done(at(ms), *copy, true);
                    }
                    !is_done
                });
            }
            let right = 100 * (8 << 20);
            assert!(copied.abs_diff(right) < right / 10, "{sizes:?}: {copied} of {right}");
        }
    }

    #[test]
    fn no_copy_runs_twice_at_a_time_and_a_failed_one_waits() {
        let mut copying = Copying::new(at(0), rate(1 << 30, 2));
        let mut out = Vec::new();
        copying.tick(at(0), &mut out);
        assert_eq!(out, [CopyEffect::Look(None)]);
        copying.found(at(0), page(vec![missing(1, 10), missing(2, 10), missing(3, 10)], None));
        out.clear();
        copying.tick(at(10), &mut out);
        assert_eq!(out, [CopyEffect::Make(CopyId(1), missing(1, 10)), CopyEffect::Make(CopyId(2), missing(2, 10))]);
        out.clear();
        copying.done(at(20), CopyId(1), false);
        copying.tick(at(20), &mut out);
        assert_eq!(out, [CopyEffect::Make(CopyId(3), missing(3, 10))]);
        copying.done(at(30), CopyId(3), true);
        out.clear();
        // The next search finds the failed copy, and the one still in progress.
        copying.tick(at(5000), &mut out);
        assert_eq!(out, [CopyEffect::Look(None)]);
        copying.found(at(5000), page(vec![missing(1, 10), missing(2, 10)], None));
        out.clear();
        copying.tick(at(5010), &mut out);
        assert_eq!(out, []);
        // The next search comes soon, because something can be copied.
        copying.tick(at(5200), &mut out);
        assert_eq!(out, [CopyEffect::Look(None)]);
        copying.found(at(5200), page(vec![missing(1, 10)], None));
        copying.tick(at(10_010), &mut out);
        out.clear();
        copying.tick(at(10_200), &mut out);
        copying.found(at(10_020), page(vec![missing(1, 10), missing(2, 10)], None));
        out.clear();
        copying.tick(at(10_030), &mut out);
        assert_eq!(out, [CopyEffect::Make(CopyId(4), missing(1, 10))]);
        // A silent copy is treated as failed.
        out.clear();
        copying.tick(at(60_010), &mut out);
        assert_eq!(copying.under_way(), 1);
        assert_eq!(out.first(), Some(&CopyEffect::GiveUp(CopyId(2))));
    }

    #[test]
    fn a_large_copy_that_fails_at_once_delays_no_other() {
        let mut copying = Copying::new(at(0), rate(1000, 8));
        let mut out = Vec::new();
        copying.tick(at(1000), &mut out);
        copying.found(at(1000), page(vec![missing(1, 1 << 40), missing(2, 10)], None));
        out.clear();
        copying.tick(at(1000), &mut out);
        assert_eq!(out, [CopyEffect::Make(CopyId(1), missing(1, 1 << 40))]);
        out.clear();
        copying.done(at(1500), CopyId(1), false);
        copying.tick(at(1500), &mut out);
        assert_eq!(
            out.first(),
            Some(&CopyEffect::Make(CopyId(2), missing(2, 10))),
            "and what may have been copied counts"
        );
    }

    #[test]
    fn a_copy_for_which_its_target_has_no_time_gives_way_to_others_and_comes_again_soon() {
        let mut copying = Copying::new(at(0), rate(1000, 1));
        let mut out = Vec::new();
        copying.tick(at(1000), &mut out);
        copying.found(at(1000), page(vec![missing(1, 10), missing(2, 10)], None));
        out.clear();
        copying.tick(at(1000), &mut out);
        assert_eq!(out, [CopyEffect::Make(CopyId(1), missing(1, 10))]);
        out.clear();
        copying.put_off(at(1000), CopyId(1));
        copying.go_on(at(1000), &mut out);
        assert_eq!(out, [CopyEffect::Make(CopyId(2), missing(2, 10))]);
        copying.done(at(1000), CopyId(2), true);
        for (time, is_made) in [(1900, false), (2100, true)] {
            out.clear();
            copying.look_soon();
            copying.tick(at(time), &mut out);
            copying.found(at(time), page(vec![missing(1, 10)], None));
            copying.tick(at(time), &mut out);
            assert_eq!(out.iter().any(|effect| matches!(effect, CopyEffect::Make(..))), is_made, "{time}: {out:?}");
        }
    }

    #[test]
    fn a_large_copy_gets_more_time() {
        let mut copying = Copying::new(at(0), rate(1 << 40, 8));
        let mut out = Vec::new();
        copying.tick(at(1000), &mut out);
        copying.found(at(1000), page(vec![missing(1, 100 * SLOWEST), missing(2, 10)], None));
        copying.tick(at(1000), &mut out);
        out.clear();
        copying.tick(at(160_000), &mut out);
        assert_eq!(out.first(), Some(&CopyEffect::GiveUp(CopyId(2))));
        assert_eq!(copying.under_way(), 1);
        out.clear();
        copying.tick(at(161_000), &mut out);
        assert!(out.contains(&CopyEffect::GiveUp(CopyId(1))), "{out:?}");
    }

    #[test]
    fn a_page_without_possible_copies_does_not_delay_the_next_page() {
        let mut copying = Copying::new(at(0), rate(1000, 8));
        let mut out = Vec::new();
        let end = (GroupId(2), ObjectId(99));
        copying.tick(at(0), &mut out);
        copying.found(at(0), page(Vec::new(), Some(99)));
        out.clear();
        copying.tick(at(10), &mut out);
        assert_eq!(out, [CopyEffect::Look(Some(end))]);
    }

    #[test]
    fn new_missing_replicas_are_looked_for_at_once() {
        let mut copying = Copying::new(at(0), rate(1000, 8));
        let mut out = Vec::new();
        copying.tick(at(0), &mut out);
        copying.found(at(0), page(Vec::new(), None));
        out.clear();
        copying.tick(at(1000), &mut out);
        assert_eq!(out, [], "nothing is missing");
        copying.look_soon();
        copying.tick(at(1010), &mut out);
        assert_eq!(out, [CopyEffect::Look(None)]);
        // The list grows while it is read.
        copying.look_soon();
        copying.found(at(1020), page(Vec::new(), None));
        copying.tick(at(1030), &mut out);
        assert_eq!(out, [CopyEffect::Look(None), CopyEffect::Look(None)]);
        copying.found(at(1040), page(Vec::new(), None));
        copying.tick(at(1050), &mut out);
        assert_eq!(out.len(), 2, "{out:?}");
    }

    #[test]
    fn a_pause_is_not_followed_by_a_burst() {
        let mut copying = Copying::new(at(0), rate(1000, 1000));
        let mut out = Vec::new();
        copying.tick(at(3_600_000), &mut out);
        copying.found(at(3_600_000), page((1..500).map(|object| missing(object, 100)).collect(), None));
        out.clear();
        copying.tick(at(3_600_000), &mut out);
        assert_eq!(out.len(), 10);
    }
}
