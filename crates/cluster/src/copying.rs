//! Copies that are owed: which is made next, at a bounded rate. What is owed stands in the namespace, so that nothing is forgotten when this is.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use types::{GroupId, ObjectId, StoreId};

use crate::Time;

/// How fast.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyRate {
    /// Bytes a second, in all.
    pub bytes_per_second: u64,
    /// Copies at a time.
    pub at_once: usize,
    /// A copy that is not done in that time, and what its length takes at [`SLOWEST`], is taken for lost.
    pub patience: Duration,
    /// After one that failed the same is not tried again for so long.
    pub rest: Duration,
    /// When nothing is owed, it is looked again after this.
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

/// Bytes a second that a copy makes at least: one of a large content is not begun anew because a disk is busy.
pub const SLOWEST: u64 = 4 << 20;

/// How often it is looked while copies are being made.
const LOOK_WHILE_BUSY: Duration = Duration::from_millis(200);

/// A copy that is owed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct MissingReplica {
    /// The group.
    pub group: GroupId,
    /// The content.
    pub object: ObjectId,
    /// Who is to get it.
    pub to: StoreId,
    /// How long it is, in bytes.
    pub len: u64,
}

/// A part of what is owed.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct MissingReplicaPage {
    /// What of it can be copied now.
    pub missing: Vec<MissingReplica>,
    /// Where the part ends, whether or not what stands there can be copied; `None`: there is nothing behind it.
    pub end: Option<(GroupId, ObjectId)>,
}

/// One that is being made.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub struct CopyId(pub u64);

/// What is to be done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CopyEffect {
    /// Look through a page of what is owed behind this; `None`: from the beginning.
    Look(Option<(GroupId, ObjectId)>),
    /// Make this copy.
    Make(CopyId, MissingReplica),
    /// Nothing has been heard of this one for too long: what is still said of it does not count.
    GiveUp(CopyId),
}

/// Decides which copies are made when.
#[derive(Clone, Debug)]
pub struct Copying {
    rate: CopyRate,
    /// Bytes that may be copied now; below 0 after a large one.
    credit: i128,
    counted: Time,
    found: VecDeque<MissingReplica>,
    /// Up to where it was looked; `None` at the beginning.
    looked: Option<(GroupId, ObjectId)>,
    is_looking: bool,
    next_look: Time,
    given: u64,
    making: BTreeMap<CopyId, (MissingReplica, Time)>,
    resting: BTreeMap<(ObjectId, StoreId), Time>,
}

impl Copying {
    /// Begins now.
    #[must_use]
    pub fn new(now: Time, rate: CopyRate) -> Self {
        Self {
            rate,
            credit: 0,
            counted: now,
            found: VecDeque::new(),
            looked: None,
            is_looking: false,
            next_look: now,
            given: 0,
            making: BTreeMap::new(),
            resting: BTreeMap::new(),
        }
    }

    /// Copies under way.
    #[must_use]
    pub fn making(&self) -> usize {
        self.making.len()
    }

    /// From now on so many bytes a second, in all.
    pub fn set_bytes_per_second(&mut self, bytes_per_second: u64) {
        self.rate.bytes_per_second = bytes_per_second;
    }

    /// The page that was asked for.
    pub fn found(&mut self, now: Time, page: MissingReplicaPage) {
        let MissingReplicaPage { missing, end } = page;
        if !self.is_looking {
            return;
        }
        self.is_looking = false;
        self.looked = end;
        if end.is_none() {
            // While something is being made there is likely to be more soon: members that are being filled are owed theirs by and by.
            let is_busy = missing.iter().any(|one| !self.resting.contains_key(&(one.object, one.to)));
            let pause = if is_busy { self.rate.look_every.min(LOOK_WHILE_BUSY) } else { self.rate.look_every };
            self.next_look = now + pause;
        }
        let is_new = |one: &MissingReplica| {
            !self.making.values().any(|(making, _)| (making.object, making.to) == (one.object, one.to))
        };
        let new: Vec<MissingReplica> = missing.into_iter().filter(is_new).collect();
        self.found.extend(new);
    }

    /// A copy is there, or could not be made.
    pub fn done(&mut self, now: Time, copy: CopyId, is_there: bool) {
        if let Some((missing, since)) = self.making.remove(&copy)
            && !is_there
        {
            self.resting.insert((missing.object, missing.to), now + self.rate.rest);
            // What was counted for it and cannot have been copied yet is there for others: a large one that fails at once must not keep them waiting.
            let copied = self.earned(now.since(since)).min(u128::from(missing.len));
            let back = u128::from(missing.len) - copied;
            self.credit = self.credit.saturating_add(i128::try_from(back).unwrap_or(i128::MAX)).min(self.most());
        }
    }

    /// Goes on.
    pub fn tick(&mut self, now: Time, out: &mut Vec<CopyEffect>) {
        let lost: Vec<CopyId> = self
            .making
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
        if self.found.is_empty() && !self.is_looking && now >= self.next_look {
            self.is_looking = true;
            out.push(CopyEffect::Look(self.looked));
        }
    }

    /// Has copies made as far as the rate allows, of those that were found: when one is done as well, as small ones take less time than passes between
    /// two ticks.
    pub fn go_on(&mut self, now: Time, out: &mut Vec<CopyEffect>) {
        self.count(now);
        while self.credit > 0 && self.making.len() < self.rate.at_once {
            let Some(missing) = self.found.pop_front() else { break };
            if self.resting.contains_key(&(missing.object, missing.to)) {
                continue;
            }
            self.given += 1;
            let copy = CopyId(self.given);
            self.credit -= i128::from(missing.len);
            self.making.insert(copy, (missing, now));
            out.push(CopyEffect::Make(copy, missing));
        }
    }

    /// What was not used is kept for a second at most: a pause is not made good by a storm.
    fn count(&mut self, now: Time) {
        let rate = u128::from(self.rate.bytes_per_second.max(1));
        let earned = self.earned(now.since(self.counted));
        // What is left of a byte is counted the next time.
        let counted = u64::try_from(earned.saturating_mul(1_000_000_000) / rate).unwrap_or(u64::MAX);
        self.counted = self.counted + Duration::from_nanos(counted);
        self.credit = self.credit.saturating_add(i128::try_from(earned).unwrap_or(i128::MAX)).min(self.most());
    }

    /// Bytes that may be copied in that time.
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
    fn nothing_is_made_twice_at_a_time_and_what_fails_rests() {
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
        // It is looked again after a while, and finds what failed and what is still being made.
        copying.tick(at(5000), &mut out);
        assert_eq!(out, [CopyEffect::Look(None)]);
        copying.found(at(5000), page(vec![missing(1, 10), missing(2, 10)], None));
        out.clear();
        copying.tick(at(5010), &mut out);
        assert_eq!(out, []);
        // Soon again, while there is something that can be made.
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
        // One of which nothing is heard is taken for lost.
        out.clear();
        copying.tick(at(60_010), &mut out);
        assert_eq!(copying.making(), 1);
        assert_eq!(out.first(), Some(&CopyEffect::GiveUp(CopyId(2))));
    }

    #[test]
    fn a_large_one_that_fails_at_once_keeps_no_other_waiting() {
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
    fn a_large_one_may_take_its_time() {
        let mut copying = Copying::new(at(0), rate(1 << 40, 8));
        let mut out = Vec::new();
        copying.tick(at(1000), &mut out);
        copying.found(at(1000), page(vec![missing(1, 100 * SLOWEST), missing(2, 10)], None));
        copying.tick(at(1000), &mut out);
        out.clear();
        copying.tick(at(160_000), &mut out);
        assert_eq!(out.first(), Some(&CopyEffect::GiveUp(CopyId(2))));
        assert_eq!(copying.making(), 1);
        out.clear();
        copying.tick(at(161_000), &mut out);
        assert!(out.contains(&CopyEffect::GiveUp(CopyId(1))), "{out:?}");
    }

    #[test]
    fn a_page_of_which_nothing_can_be_copied_keeps_nobody_behind_it_waiting() {
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
    fn a_pause_is_not_made_good_by_a_storm() {
        let mut copying = Copying::new(at(0), rate(1000, 1000));
        let mut out = Vec::new();
        copying.tick(at(3_600_000), &mut out);
        copying.found(at(3_600_000), page((1..500).map(|object| missing(object, 100)).collect(), None));
        out.clear();
        copying.tick(at(3_600_000), &mut out);
        assert_eq!(out.len(), 10);
    }
}
