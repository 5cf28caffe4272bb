//! The missing replicas whose last copy has failed.

use std::collections::BTreeMap;

use types::{GroupId, ObjectId, StoreId};

/// The most failures that are remembered. Beyond it the first ones by group and object are forgotten, and their next attempt records them again.
const FAILURES_MAX: usize = 4096;

/// A missing replica: its group, its object and the store that should have it.
pub(super) type Missing = (GroupId, ObjectId, StoreId);

/// A missing replica whose last copy has failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FailedCopy {
    pub(crate) group: GroupId,
    pub(crate) object: ObjectId,
    /// The source store.
    pub(crate) from: StoreId,
    /// The target store.
    pub(crate) to: StoreId,
    /// The reason, for people.
    pub(crate) why: String,
    /// How often it has failed so far.
    pub(crate) times: u32,
}

/// See the module. A replica that was made since, or is not missing any more, is not in it.
#[derive(Default)]
pub(super) struct Failures {
    all: BTreeMap<Missing, (u64, FailedCopy)>,
    /// Failures so far. The number of each tells which is the latest.
    count: u64,
}

impl Failures {
    /// A copy has failed.
    pub(super) fn add(&mut self, (group, object, to): Missing, from: StoreId, why: String) {
        self.count += 1;
        let times = self.all.get(&(group, object, to)).map_or(0, |(_, before)| before.times);
        let failed = FailedCopy { group, object, from, to, why, times: times.saturating_add(1) };
        self.all.insert((group, object, to), (self.count, failed));
        if self.all.len() > FAILURES_MAX {
            self.all.pop_first();
        }
    }

    /// The replica was made.
    pub(super) fn remove(&mut self, missing: Missing) {
        self.all.remove(&missing);
    }

    /// Compares with a page of missing replicas: those after `after` up to `end`, or all that follow if there is no `end`.
    pub(super) fn compare(
        &mut self,
        after: Option<(GroupId, ObjectId)>,
        end: Option<(GroupId, ObjectId)>,
        is_missing: impl Fn(&Missing) -> bool,
    ) {
        self.all.retain(|missing, _| {
            let at = (missing.0, missing.1);
            let is_on_page = after.is_none_or(|after| at > after) && end.is_none_or(|end| at <= end);
            !is_on_page || is_missing(missing)
        });
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// The latest failure.
    pub(super) fn latest(&self) -> Option<&FailedCopy> {
        self.all.values().max_by_key(|(number, _)| *number).map(|(_, failed)| failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(object: u64) -> Missing {
        (GroupId(2), ObjectId(object), StoreId(7))
    }

    #[test]
    fn a_failure_is_present_until_the_replica_is_made_or_not_missing_any_more() {
        let mut failures = Failures::default();
        for object in [5, 1, 3, 5] {
            failures.add(missing(object), StoreId(4), format!("of {object}"));
        }
        let latest = failures.latest().unwrap();
        assert_eq!((failures.len(), latest.object, latest.times), (3, ObjectId(5), 2));
        failures.remove(missing(5));
        assert_eq!(failures.latest().unwrap().object, ObjectId(3));
        // The page ends before object 3, so nothing is known of it. Object 1 is on no list any more.
        failures.compare(None, Some((GroupId(2), ObjectId(2))), |_| false);
        assert_eq!(failures.len(), 1);
        failures.compare(Some((GroupId(2), ObjectId(2))), None, |_| true);
        assert_eq!(failures.len(), 1);
        failures.compare(Some((GroupId(2), ObjectId(2))), None, |_| false);
        assert_eq!((failures.len(), failures.latest()), (0, None));
    }

    #[test]
    fn failures_are_bounded() {
        let mut failures = Failures::default();
        for object in 0..2 * FAILURES_MAX as u64 {
            failures.add(missing(object), StoreId(4), String::new());
        }
        assert_eq!(failures.len(), FAILURES_MAX);
    }
}
