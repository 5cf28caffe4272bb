//! Whether a store that has refused data for lack of space still counts as full.

use parking_lot::Mutex;

/// A store has room again when a hundredth of its size is free beyond what was free at the refusal, at most this much.
const MORE_MAX: u64 = 1 << 30;

/// See the module. `None`: the store has refused nothing since it last had room.
#[derive(Default)]
pub(super) struct Fullness(Mutex<Option<u64>>);

impl Fullness {
    /// The store has refused data, with this many usable bytes left. Returns whether it counted as having room before.
    pub(super) fn says_full(&self, room: u64) -> bool {
        let mut full_at = self.0.lock();
        let is_news = full_at.is_none();
        *full_at = Some(full_at.map_or(room, |before| before.min(room)));
        is_news
    }

    /// Whether the store counts as full, now that this many bytes of its `capacity` are usable.
    pub(super) fn is_full(&self, capacity: u64, room: u64) -> bool {
        let mut full_at = self.0.lock();
        let has_more = |before: u64| room > before.saturating_add((capacity / 100).min(MORE_MAX));
        *full_at = full_at.filter(|before| !has_more(*before));
        full_at.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPACITY: u64 = 1000 << 20;

    #[test]
    fn a_store_that_has_refused_data_is_full_until_it_has_more_room() {
        let fullness = Fullness::default();
        assert!(!fullness.is_full(CAPACITY, 0), "it has refused nothing");
        assert!(fullness.says_full(5 << 20), "news");
        assert!(!fullness.says_full(7 << 20) && fullness.is_full(CAPACITY, 15 << 20));
        assert!(!fullness.is_full(CAPACITY, (15 << 20) + 1), "a hundredth more than at the first refusal");
        assert!(!fullness.is_full(CAPACITY, 0) && fullness.says_full(0));
    }

    #[test]
    fn a_large_store_has_room_again_after_a_gibibyte() {
        let fullness = Fullness::default();
        fullness.says_full(0);
        assert!(fullness.is_full(u64::MAX, MORE_MAX) && !fullness.is_full(u64::MAX, MORE_MAX + 1));
    }
}
