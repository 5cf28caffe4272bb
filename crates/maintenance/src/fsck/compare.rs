//! Compares names with objects, without I/O. It merges two sequences that are sorted by the object's number. Memory does not grow with the number of
//! files.

use std::cmp::Ordering;

use namespace::{Content, FileState, Sums};
use store::{ReplicaState, ReplicaStatus};
use types::{Ino, ObjectId, ReplicaId};

use super::finding::Problem;

/// An object that the namespace lists (its `B` records).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Named {
    /// The object.
    pub object: ObjectId,
    /// The inode that points to it.
    pub ino: Ino,
    /// Its length in bytes, as listed.
    pub len: u64,
}

/// The entries for one number in the two sequences.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Pair {
    /// Only the namespace has it.
    NamedOnly(Named),
    /// Only the store has it.
    StoredOnly(ReplicaId, ReplicaStatus),
    /// Both have it.
    Both(Named, ReplicaId, ReplicaStatus),
}

/// Merges two sorted sequences. An error in one of them, or a wrong order, becomes an error of the result.
pub struct MergedScan<N: Iterator, S: Iterator> {
    named: std::iter::Peekable<N>,
    stored: std::iter::Peekable<S>,
}

impl<E, N, S> MergedScan<N, S>
where
    N: Iterator<Item = Result<Named, E>>,
    S: Iterator<Item = Result<(ReplicaId, ReplicaStatus), E>>,
{
    /// Merges `named`, sorted by object, with `stored`, sorted by replica.
    pub fn of(named: N, stored: S) -> Self {
        Self { named: named.peekable(), stored: stored.peekable() }
    }
}

impl<E, N, S> Iterator for MergedScan<N, S>
where
    N: Iterator<Item = Result<Named, E>>,
    S: Iterator<Item = Result<(ReplicaId, ReplicaStatus), E>>,
{
    type Item = Result<Pair, E>;

    fn next(&mut self) -> Option<Self::Item> {
        let order = match (self.named.peek(), self.stored.peek()) {
            (None, None) => return None,
            // Errors first, from either sequence.
            (Some(Err(_)), _) | (Some(_), None) => Ordering::Less,
            (_, Some(Err(_))) | (None, Some(_)) => Ordering::Greater,
            (Some(Ok(named)), Some(Ok((replica, _)))) => ReplicaId::first(named.object).cmp(replica),
        };
        match order {
            Ordering::Less => self.named.next().map(|named| named.map(Pair::NamedOnly)),
            Ordering::Greater => {
                self.stored.next().map(|stored| stored.map(|(replica, status)| Pair::StoredOnly(replica, status)))
            }
            Ordering::Equal => match (self.named.next(), self.stored.next()) {
                (Some(Ok(named)), Some(Ok((replica, status)))) => Some(Ok(Pair::Both(named, replica, status))),
                (Some(Err(error)), _) | (_, Some(Err(error))) => Some(Err(error)),
                _ => None,
            },
        }
    }
}

/// The contradictions between a file's record in the namespace and its object's record in the store. Does not look at the bytes.
#[must_use]
pub fn disagreements(content: &Content, status: &ReplicaStatus) -> Vec<Problem> {
    let mut problems = Vec::new();
    let stored_sums = match &status.state {
        ReplicaState::Complete { adler32, crc32c } => Some(Sums { adler32: *adler32, crc32c: *crc32c }),
        _ => None,
    };
    let settled = match content.state {
        // The file has an open write, or had one when the node stopped. The records agree again when that ends.
        FileState::Open(_) | FileState::Updating(_) => return problems,
        FileState::Complete => {
            // A file without checksums had an interrupted in-place update. It is readable, but not verified.
            let dirty_is_fine = content.sums.is_none() && status.state == ReplicaState::Dirty;
            matches!(status.state, ReplicaState::Complete { .. }) || dirty_is_fine
        }
        FileState::Interrupted(_) => status.state == ReplicaState::Interrupted,
    };
    if !settled {
        problems.push(Problem::StateDiffers { named: state_named(content.state), stored: state_stored(&status.state) });
    }
    if content.len != status.len {
        problems.push(Problem::LengthDiffers { named: content.len, stored: status.len });
    } else if let (Some(named), Some(stored)) = (content.sums, stored_sums)
        && named != stored
    {
        problems.push(Problem::SumsDiffer { named, stored });
    }
    problems
}

/// The state in plain words.
#[must_use]
pub fn state_named(state: FileState) -> &'static str {
    match state {
        FileState::Complete => "complete",
        FileState::Open(_) => "being written",
        FileState::Updating(_) => "being changed in place",
        FileState::Interrupted(_) => "interrupted",
    }
}

/// The state in plain words.
#[must_use]
pub fn state_stored(state: &ReplicaState) -> &'static str {
    match state {
        ReplicaState::BeingWritten { .. } => "being written",
        ReplicaState::Complete { .. } => "complete",
        ReplicaState::Interrupted => "interrupted",
        ReplicaState::Dirty => "being changed in place",
    }
}

#[cfg(test)]
mod tests {
    use namespace::WriterKey;
    use types::{Adler32, Crc32c, GroupId, Incarnation};

    use super::*;

    fn named(object: u64) -> Named {
        Named { object: ObjectId(object), ino: Ino(object + 100), len: 10 }
    }

    fn complete(len: u64) -> ReplicaStatus {
        let state = ReplicaState::Complete { adler32: Adler32(1), crc32c: Crc32c(2) };
        ReplicaStatus { len, state, generation: 1, incarnation: Incarnation(1) }
    }

    fn stored(object: u64) -> (ReplicaId, ReplicaStatus) {
        (ReplicaId::first(ObjectId(object)), complete(10))
    }

    fn content(state: FileState, len: u64, sums: Option<Sums>) -> Content {
        Content { object: ObjectId(1), group: GroupId(1), len, state, sums, generation: 1, shared: false }
    }

    const SUMS: Sums = Sums { adler32: Adler32(1), crc32c: Crc32c(2) };

    type Step = Result<Pair, &'static str>;

    fn meet(left: &[u64], right: &[u64]) -> Vec<Step> {
        MergedScan::of(left.iter().map(|n| Ok(named(*n))), right.iter().map(|n| Ok(stored(*n)))).collect()
    }

    /// Every combination of two small sets, against the plain definition.
    #[test]
    fn all_small_sets_are_merged_correctly() {
        let set = |bits: u64| (0..5).filter(|n| bits >> n & 1 == 1).collect::<Vec<u64>>();
        for left in 0..32 {
            for right in 0..32 {
                let (left, right) = (set(left), set(right));
                let expected: Vec<Step> = (0..5)
                    .filter_map(|n| match (left.contains(&n), right.contains(&n)) {
                        (true, true) => Some(Ok(Pair::Both(named(n), stored(n).0, stored(n).1))),
                        (true, false) => Some(Ok(Pair::NamedOnly(named(n)))),
                        (false, true) => Some(Ok(Pair::StoredOnly(stored(n).0, stored(n).1))),
                        (false, false) => None,
                    })
                    .collect();
                assert_eq!(meet(&left, &right), expected, "{left:?} {right:?}");
            }
        }
    }

    #[test]
    fn errors_are_passed_on() {
        let left = vec![Ok(named(1)), Err("broken")];
        let right = vec![Ok(stored(1)), Ok(stored(2))];
        let met: Vec<Step> = MergedScan::of(left.into_iter(), right.into_iter()).collect();
        assert!(met.contains(&Err("broken")));
        let met: Vec<Step> = MergedScan::of(vec![Ok(named(1))].into_iter(), vec![Err("broken")].into_iter()).collect();
        assert!(met.contains(&Err("broken")));
    }

    #[test]
    fn consistent_records_have_no_disagreement() {
        for (content, status) in [
            (content(FileState::Complete, 10, Some(SUMS)), complete(10)),
            (content(FileState::Complete, 10, None), ReplicaStatus { state: ReplicaState::Dirty, ..complete(10) }),
            (
                content(FileState::Open(WriterKey(1)), 0, None),
                ReplicaStatus { state: ReplicaState::Interrupted, ..complete(10) },
            ),
            (
                content(FileState::Interrupted(WriterKey(1)), 10, None),
                ReplicaStatus { state: ReplicaState::Interrupted, ..complete(10) },
            ),
        ] {
            assert_eq!(disagreements(&content, &status), []);
        }
    }

    #[test]
    fn each_disagreement_is_named() {
        let kinds = |content: Content, status: ReplicaStatus| {
            disagreements(&content, &status).iter().map(Problem::kind).collect::<Vec<_>>()
        };
        use super::super::finding::ProblemKind::{LengthDiffers, StateDiffers, SumsDiffer};
        let whole = content(FileState::Complete, 10, Some(SUMS));
        assert_eq!(kinds(whole, complete(9)), [LengthDiffers]);
        let other = Sums { adler32: Adler32(3), ..SUMS };
        assert_eq!(kinds(content(FileState::Complete, 10, Some(other)), complete(10)), [SumsDiffer]);
        let making = ReplicaState::BeingWritten { written: vec![(0, 10)], prefix: 10, durable_prefix: 10 };
        assert_eq!(kinds(whole, ReplicaStatus { state: making, ..complete(10) }), [StateDiffers]);
        assert_eq!(kinds(whole, ReplicaStatus { state: ReplicaState::Dirty, ..complete(10) }), [StateDiffers]);
        assert_eq!(kinds(content(FileState::Interrupted(WriterKey(1)), 10, None), complete(10)), [StateDiffers]);
    }
}
