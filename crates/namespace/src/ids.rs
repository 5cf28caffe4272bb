//! The source of inode and object numbers: ranges of 2^20, recorded durably before the first number is handed out.
//!
//! A run may skip object numbers before its first range. Suppose two incarnations continue from one copy of a namespace. If each skips a random
//! count, their objects have different numbers, even before they learn of each other.

use std::sync::Arc;

use kv::Txn;
use parking_lot::Mutex;
use types::{Ino, ObjectId};

use crate::codec::{BadValue, Decoder, Encoder};
use crate::planted::{self, Bug};
use crate::{NsError, keys};

/// The durable mark: the first numbers that no run has taken.
const MARK: &[u8] = b"numbers";

/// The first inode number after the fixed ones (the root is 1).
const FIRST_INO: u64 = 1 << 10;

/// The first numbers that nobody has taken yet, as the mark says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct UnusedNumbers {
    pub ino: u64,
    pub object: u64,
}

pub(crate) fn untaken(txn: &dyn kv::Read) -> Result<UnusedNumbers, NsError> {
    let key = keys::mark(MARK);
    let Some(value) = txn.get(&key)? else {
        return Ok(UnusedNumbers { ino: FIRST_INO, object: 1 });
    };
    let decode = |value: &[u8]| -> Result<UnusedNumbers, BadValue> {
        let mut from = Decoder::new(value, "the mark of numbers")?;
        let untaken = UnusedNumbers { ino: from.u64()?, object: from.u64()? };
        from.end()?;
        Ok(untaken)
    };
    decode(&value).map_err(|bad| bad.at(&key))
}

pub(crate) fn put_untaken(txn: &mut dyn Txn, untaken: UnusedNumbers) {
    let mut out = Encoder::new(17);
    out.u64(untaken.ino);
    out.u64(untaken.object);
    txn.put(&keys::mark(MARK), &out.0);
}

/// A range of both kinds of numbers, taken by a transaction. It may be used once that transaction is on the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TakenRange {
    first: UnusedNumbers,
    len: u64,
    /// Objects before the first one that this run skips.
    passed_over: u64,
}

/// Takes the next range in `txn`: not below `least`, after `passed_over` skipped objects. Call [`IdSource::add`] only after the commit is *synced*. A
/// store names files by these numbers, and a number lost in a power failure would be handed out twice.
pub(crate) fn take_range(
    txn: &mut dyn Txn,
    len: u64,
    least: ObjectId,
    passed_over: u64,
) -> Result<TakenRange, NsError> {
    let after = |n: u64, count: u64| n.checked_add(count).ok_or(NsError::OutOfNumbers);
    let mut first = untaken(txn)?;
    first.object = after(first.object.max(least.0), passed_over)?;
    put_untaken(txn, UnusedNumbers { ino: after(first.ino, len)?, object: after(first.object, len)? });
    if planted::is(Bug::ReuseAObjectNumber) {
        let first = UnusedNumbers { ino: first.ino, object: first.object.saturating_sub(len).max(1) };
        return Ok(TakenRange { first, len, passed_over: 0 });
    }
    Ok(TakenRange { first, len, passed_over })
}

/// How many objects to skip for a random number: less than 2^40. If two incarnations each skip such a count and make a few million files, they
/// collide with a probability below 1 in 100,000. The numbers last for some ten million such starts.
#[must_use]
pub fn count_to_pass_over(random: u64) -> u64 {
    random >> (u64::BITS - 40)
}

/// The numbers from `first` up to but not including `end`.
type NumberRange = (u64, u64);

#[derive(Debug, Default)]
struct Numbers {
    /// Available ranges; the first one is in use.
    inos: Vec<NumberRange>,
    objects: Vec<NumberRange>,
    /// A thread is taking the next range.
    taking: bool,
    /// Objects up to this one are not handed out, even if a range contains them.
    used: u64,
    /// The highest reported object that only another incarnation can have made.
    of_others: u64,
    /// The highest end of the object ranges added so far.
    objects_end: u64,
    /// Objects that this run has skipped. No continuation of this incarnation can have them.
    passed_over: Vec<NumberRange>,
}

impl Numbers {
    fn leave_out_used(&mut self) {
        let used = self.used;
        for (next, end) in &mut self.objects {
            *next = (*next).max(used.saturating_add(1)).min(*end);
        }
        self.objects.retain(|(next, end)| next < end);
    }

    /// The lowest object that can still be handed out.
    fn next_object(&self) -> u64 {
        let first = self.objects.first().map_or(self.objects_end, |(next, _)| *next);
        first.max(self.used.saturating_add(1))
    }
}

fn next(ranges: &mut Vec<NumberRange>) -> Option<u64> {
    let first = ranges.first_mut()?;
    let number = first.0;
    first.0 += 1;
    if first.0 >= first.1 {
        ranges.remove(0);
    }
    Some(number)
}

fn left(ranges: &[NumberRange]) -> u64 {
    ranges.iter().map(|(next, end)| end - next).sum()
}

/// More objects than a million a second make in years, and than thousands of starts skip.
const LIVES: u64 = 1 << 52;

/// The numbers of one operation. An engine may run an operation several times: after a collision, or when it has fetched what the operation read. Each
/// run gets the same numbers, so that it reads the same keys, and none is wasted. A clone is for another operation.
#[derive(Debug)]
pub struct OperationNumbers {
    source: Arc<IdSource>,
    inos: Mutex<TakenNumbers<Ino>>,
    objects: Mutex<TakenNumbers<ObjectId>>,
}

/// The numbers of one kind.
#[derive(Debug)]
struct TakenNumbers<T> {
    /// Most operations take one.
    first: Option<T>,
    others: Vec<T>,
    /// How many of them this run has used.
    used: usize,
}

impl<T: Copy> TakenNumbers<T> {
    const NONE: Self = Self { first: None, others: Vec::new(), used: 0 };

    fn next(&mut self, take: impl FnOnce() -> Result<T, NsError>) -> Result<T, NsError> {
        let known = match self.used.checked_sub(1) {
            None => self.first,
            Some(place) => self.others.get(place).copied(),
        };
        let number = match known {
            Some(number) => number,
            None => {
                let number = take()?;
                match self.used {
                    0 => self.first = Some(number),
                    _ => self.others.push(number),
                }
                number
            }
        };
        self.used += 1;
        Ok(number)
    }
}

impl OperationNumbers {
    /// Numbers from `source`, for one operation.
    #[must_use]
    pub fn new(source: Arc<IdSource>) -> Self {
        Self { source, inos: Mutex::new(TakenNumbers::NONE), objects: Mutex::new(TakenNumbers::NONE) }
    }

    /// A run begins.
    pub(crate) fn begin_run(&self) {
        self.inos.lock().used = 0;
        self.objects.lock().used = 0;
    }

    /// The next inode number.
    pub fn next_ino(&self) -> Result<Ino, NsError> {
        self.inos.lock().next(|| self.source.next_ino())
    }

    /// The next object number.
    pub fn next_object(&self) -> Result<ObjectId, NsError> {
        self.objects.lock().next(|| self.source.next_object())
    }
}

impl Clone for OperationNumbers {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.source))
    }
}

/// Hands out numbers that no run has handed out before.
#[derive(Debug, Default)]
pub struct IdSource {
    numbers: Mutex<Numbers>,
}

impl IdSource {
    /// A source without numbers.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The next inode number.
    pub fn next_ino(&self) -> Result<Ino, NsError> {
        next(&mut self.numbers.lock().inos).map(Ino).ok_or(NsError::OutOfNumbers)
    }

    /// The next object number.
    pub fn next_object(&self) -> Result<ObjectId, NsError> {
        next(&mut self.numbers.lock().objects).map(ObjectId).ok_or(NsError::OutOfNumbers)
    }

    /// The lowest number that an object can have which this run makes from now on.
    #[must_use]
    pub fn upcoming_object(&self) -> ObjectId {
        ObjectId(self.numbers.lock().next_object())
    }

    /// Adds a range whose transaction is on the disk.
    pub(crate) fn add(&self, range: TakenRange) {
        let mut numbers = self.numbers.lock();
        numbers.inos.push((range.first.ino, range.first.ino + range.len));
        if range.passed_over > 0 {
            numbers.passed_over.push((range.first.object - range.passed_over, range.first.object));
        }
        let end = range.first.object + range.len;
        numbers.objects.push((range.first.object, end));
        numbers.objects_end = numbers.objects_end.max(end);
        numbers.taking = false;
        numbers.leave_out_used();
    }

    /// Whether an object with this number can exist in any incarnation of this namespace. Its distance from the current numbers must be within what
    /// use can have produced. A wrong or malicious report must not use up all numbers.
    pub fn is_plausible(&self, object: ObjectId) -> bool {
        let numbers = self.numbers.lock();
        object.0 <= numbers.objects_end.max(numbers.used).saturating_add(LIVES)
    }

    /// A store reports an object with this number. Returns whether only another incarnation of this namespace can have made it, and it is above all
    /// such reports so far. Then this namespace is older than the stored objects, as after a restore from a copy.
    ///
    /// If the number was still available, it, all lower numbers and the next `passed_over` numbers are no longer handed out: others may have them.
    pub(crate) fn is_of_another_incarnation(&self, object: ObjectId, passed_over: impl FnOnce() -> u64) -> bool {
        let mut numbers = self.numbers.lock();
        let is_ahead = numbers.next_object() <= object.0;
        let is_passed_over = numbers.passed_over.iter().any(|(first, end)| (*first..*end).contains(&object.0));
        if object.0 <= numbers.of_others || !(is_ahead || is_passed_over) {
            return false;
        }
        numbers.of_others = object.0;
        if is_ahead {
            numbers.used = object.0.saturating_add(passed_over());
            let followers = (object.0.saturating_add(1), numbers.used.saturating_add(1));
            numbers.passed_over.push(followers);
            numbers.leave_out_used();
        }
        true
    }

    /// The lowest object with which a range may start.
    pub(crate) fn least_object(&self) -> ObjectId {
        ObjectId(self.numbers.lock().used.saturating_add(1))
    }

    /// Whether the caller should take the next range now: fewer than half of `range` are left, and no other thread is taking one.
    pub(crate) fn should_take(&self, range: u64) -> bool {
        let mut numbers = self.numbers.lock();
        let low = left(&numbers.inos).min(left(&numbers.objects)) < range / 2;
        let take = low && !numbers.taking;
        numbers.taking |= take;
        take
    }

    /// The range could not be taken. The next caller tries again.
    pub(crate) fn taking_failed(&self) {
        self.numbers.lock().taking = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: u64) -> TakenRange {
        TakenRange { first: UnusedNumbers { ino: first, object: first }, len: 10, passed_over: 0 }
    }

    #[test]
    fn each_run_of_an_operation_has_the_same_numbers_and_no_other_operation_has_them() {
        let source = Arc::new(IdSource::new());
        source.add(range(100));
        let numbers = OperationNumbers::new(Arc::clone(&source));
        let run = |count: usize| {
            numbers.begin_run();
            (0..count).map(|_| (numbers.next_ino().unwrap().0, numbers.next_object().unwrap().0)).collect::<Vec<_>>()
        };
        assert_eq!(run(1), [(100, 100)]);
        assert_eq!(run(3), [(100, 100), (101, 101), (102, 102)]);
        let other = numbers.clone();
        assert_eq!(other.next_ino().unwrap(), Ino(103));
        assert_eq!(run(4), [(100, 100), (101, 101), (102, 102), (104, 103)]);
        assert_eq!(run(2), [(100, 100), (101, 101)]);
        assert_eq!(other.next_object().unwrap(), ObjectId(104));
    }

    #[test]
    fn reported_object_counts_even_while_the_source_is_empty() {
        let ids = IdSource::new();
        let is_new = |object: u64| ids.is_of_another_incarnation(ObjectId(object), || 0);
        ids.add(range(100));
        assert!(is_new(300), "that is all of the range");
        assert!(ids.next_object().is_err());
        assert!(!is_new(299) && !is_new(300));
        assert!(is_new(405), "another server has more");
        ids.add(range(110));
        ids.add(range(301));
        assert!(ids.next_object().is_err());
        assert_eq!(ids.least_object(), ObjectId(406));
        ids.add(range(400));
        assert_eq!(ids.next_object().ok(), Some(ObjectId(406)));
    }

    #[test]
    fn implausible_numbers_are_told_from_those_of_a_later_incarnation() {
        let ids = IdSource::new();
        assert!(ids.is_plausible(ObjectId(5)));
        ids.add(range(100));
        assert!(ids.is_plausible(ObjectId(7)) && ids.is_plausible(ObjectId(1 << 51)));
        assert!(!ids.is_plausible(ObjectId(u64::MAX)) && !ids.is_plausible(ObjectId(1 << 60)));
    }

    #[test]
    fn reported_object_is_never_handed_out_from_any_range() {
        let ids = IdSource::new();
        let is_new = |object: u64| ids.is_of_another_incarnation(ObjectId(object), || 0);
        ids.add(range(100));
        assert_eq!(ids.next_object().ok(), Some(ObjectId(100)));
        assert!(!is_new(7) && !is_new(100), "it was handed out before");
        assert_eq!(ids.next_object().ok(), Some(ObjectId(101)));
        assert!(is_new(104) && !is_new(104));
        assert_eq!(ids.next_object().ok(), Some(ObjectId(105)));
        assert!(is_new(115));
        assert!(ids.next_object().is_err() && ids.should_take(10), "all that there was is used");
        ids.add(range(110));
        assert_eq!((ids.next_object().ok(), ids.next_ino().ok()), (Some(ObjectId(116)), Some(Ino(100))));
    }

    #[test]
    fn report_of_a_skipped_number_shows_another_incarnation_and_uses_up_nothing() {
        let ids = IdSource::new();
        let is_new = |object: u64| ids.is_of_another_incarnation(ObjectId(object), || 0);
        ids.add(TakenRange { passed_over: 50, ..range(100) });
        assert!(!is_new(49), "it was handed out by a run before");
        assert!(is_new(50) && !is_new(50), "said once");
        assert_eq!(ids.next_object().ok(), Some(ObjectId(100)));
        assert!(is_new(99) && !is_new(98) && !is_new(100));
        assert_eq!(ids.next_object().ok(), Some(ObjectId(101)));
        ids.add(range(110));
        assert!(is_new(105) && !is_new(60));
        assert_eq!(ids.next_object().ok(), Some(ObjectId(106)));
    }

    #[test]
    fn numbers_after_a_reported_object_may_belong_to_others() {
        let ids = IdSource::new();
        ids.add(range(100));
        assert!(ids.is_of_another_incarnation(ObjectId(300), || 1000));
        assert_eq!(ids.least_object(), ObjectId(1301));
        ids.add(range(301));
        assert!(ids.next_object().is_err());
        ids.add(range(1301));
        assert_eq!(ids.next_object().ok(), Some(ObjectId(1301)));
        assert!(
            ids.is_of_another_incarnation(ObjectId(305), || 1000),
            "it comes later, and nothing has taken its place"
        );
        assert!(!ids.is_of_another_incarnation(ObjectId(305), || 1000));
        assert_eq!(ids.next_object().ok(), Some(ObjectId(1302)));
        assert!(
            ids.is_of_another_incarnation(ObjectId(u64::MAX), || 1000),
            "a caller that asks whether the report is plausible passes it over"
        );
        assert!(ids.next_object().is_err());
    }
}
