//! Compares a replica that the namespace counts on with what its store has. Pure decisions.

use cluster::message::Original;
use node::{StoredReplica, StoredState};
use serde::{Deserialize, Serialize};

/// What is wrong with a replica or a file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProblemKind {
    /// The namespace has the object, and no store that should have it does.
    Lost,
    /// A store lacks a replica that the namespace counts on. Another store has it.
    Absent,
    /// A store has another version than the namespace.
    Stale,
    /// The bytes of a replica do not match their checksums.
    Damaged,
    /// A store has an object that nothing refers to.
    Extra,
    /// The namespace has the object, and every store that should have it could not be asked or lacks it.
    Unchecked,
}

impl ProblemKind {
    /// All of them, the most serious first.
    pub const ALL: [ProblemKind; 6] =
        [Self::Lost, Self::Damaged, Self::Absent, Self::Stale, Self::Extra, Self::Unchecked];
}

/// A store's replica, compared with the version that it should be. `None`: it is right.
pub(super) fn compare(original: &Original, stored: Option<&StoredReplica>) -> Option<ProblemKind> {
    let Some(StoredReplica { state, is_damaged, .. }) = stored else { return Some(ProblemKind::Absent) };
    let is_right = match (original, state) {
        (Original::Whole(whole), StoredState::Whole(found)) => whole == found,
        (Original::Whole(_), _) | (Original::Kept { .. }, StoredState::Written(_)) => false,
        // Only the length is known. A store may have kept more than the namespace counts.
        (Original::Kept { len, .. }, StoredState::Whole(found)) => found.len >= *len,
        (Original::Kept { len, .. }, StoredState::Kept(found)) => found >= len,
    };
    match (is_right, is_damaged) {
        (false, _) => Some(ProblemKind::Stale),
        (true, true) => Some(ProblemKind::Damaged),
        (true, false) => None,
    }
}

/// A replica that is absent on a store: `others` says for each other store that should have it whether it does, or `None` if it could not be asked.
pub(super) fn absent(others: &[Option<bool>]) -> ProblemKind {
    if others.contains(&Some(true)) {
        ProblemKind::Absent
    } else if others.contains(&None) {
        ProblemKind::Unchecked
    } else {
        ProblemKind::Lost
    }
}

#[cfg(test)]
mod tests {
    use cluster::replication::ObjectDigest;
    use types::{Adler32, Crc32c, Incarnation, ObjectId, ReplicaId};

    use super::*;

    const WHOLE: ObjectDigest = ObjectDigest { len: 10, crc32c: Crc32c(7), adler32: Adler32(8) };

    fn found(original: Original, state: StoredState, is_damaged: bool) -> Option<ProblemKind> {
        compare(
            &original,
            Some(&StoredReplica {
                replica: ReplicaId::first(ObjectId(1)),
                state,
                is_damaged,
                incarnation: Incarnation(1),
            }),
        )
    }

    #[test]
    fn replica_is_right_stale_damaged_or_absent() {
        let whole = Original::Whole(WHOLE);
        assert_eq!(compare(&whole, None), Some(ProblemKind::Absent));
        assert_eq!(found(whole, StoredState::Whole(WHOLE), false), None);
        assert_eq!(found(whole, StoredState::Whole(WHOLE), true), Some(ProblemKind::Damaged));
        let other = ObjectDigest { crc32c: Crc32c(9), ..WHOLE };
        assert_eq!(found(whole, StoredState::Whole(other), true), Some(ProblemKind::Stale));
        assert_eq!(found(whole, StoredState::Kept(10), false), Some(ProblemKind::Stale));
        assert_eq!(found(whole, StoredState::Written(10), false), Some(ProblemKind::Stale));
        let kept = Original::Kept { len: 5, was_whole: false };
        assert_eq!(found(kept, StoredState::Kept(5), false), None);
        assert_eq!(found(kept, StoredState::Kept(4), false), Some(ProblemKind::Stale));
        assert_eq!(found(kept, StoredState::Whole(WHOLE), false), None);
        assert_eq!(found(kept, StoredState::Written(10), false), Some(ProblemKind::Stale));
    }

    #[test]
    fn object_is_lost_only_if_every_store_was_asked_and_lacks_it() {
        assert_eq!(absent(&[]), ProblemKind::Lost);
        assert_eq!(absent(&[Some(false), Some(false)]), ProblemKind::Lost);
        assert_eq!(absent(&[Some(false), None]), ProblemKind::Unchecked);
        assert_eq!(absent(&[None, Some(true)]), ProblemKind::Absent);
    }
}
