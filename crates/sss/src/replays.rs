//! The credentials that a server has seen, as long as they could count again.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use types::Timestamp;

use crate::packet::NONCE_LEN;
use crate::verify::{KEEP, Now};
use crate::{KeyId, Refusal};

/// Most credentials that are remembered, which take some MiB. So many in [`KEEP`] are 1,985 logins a second; further ones are
/// refused until older ones are forgotten.
pub const REPLAYS_MAX: usize = 65_536;

/// What tells credentials apart: the key, and the random bytes that were encrypted with it. Not the message: a part of it can be
/// changed by who does not know the key.
type Mark = (KeyId, [u8; NONCE_LEN]);

/// The credentials that were seen lately. After [`KEEP`] a credential is too old to count, so its mark is forgotten. That time is
/// one of a clock that never goes back: if the time of day is set back, a credential must not count again.
#[derive(Debug)]
pub struct Replays {
    marks: BTreeSet<Mark>,
    /// The same, with the time at which each was seen, the oldest first.
    order: VecDeque<(Duration, Mark)>,
    /// When this began. Nobody knows which credentials were seen before.
    started: Now,
}

impl Replays {
    /// Nothing was seen before `now`.
    #[must_use]
    pub fn new(now: Now) -> Self {
        Self { marks: BTreeSet::new(), order: VecDeque::new(), started: now }
    }

    /// How many are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.marks.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.marks.is_empty()
    }

    /// Remembers a credential that was made at `made`, and refuses it if it was seen.
    pub(crate) fn note(
        &mut self,
        key: KeyId,
        nonce: [u8; NONCE_LEN],
        made: Timestamp,
        now: Now,
    ) -> Result<(), Refusal> {
        let is_forgotten = |seen: Duration| now.steady.saturating_sub(seen) >= KEEP;
        while let Some((seen, mark)) = self.order.front()
            && is_forgotten(*seen)
        {
            self.marks.remove(mark);
            self.order.pop_front();
        }
        // Credentials have whole seconds.
        if made.secs() < self.started.wall.secs() && !is_forgotten(self.started.steady) {
            return Err(Refusal::BeforeStart);
        }
        let mark = (key, nonce);
        if self.marks.contains(&mark) {
            return Err(Refusal::Replayed);
        }
        if self.marks.len() >= REPLAYS_MAX {
            return Err(Refusal::Busy);
        }
        self.marks.insert(mark);
        self.order.push_back((now.steady, mark));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(wall: i64, steady: u64) -> Now {
        Now { wall: Timestamp::from_secs(wall), steady: Duration::from_secs(steady) }
    }

    fn nonce(number: usize) -> [u8; NONCE_LEN] {
        let mut nonce = [0; NONCE_LEN];
        nonce[..8].copy_from_slice(&number.to_be_bytes());
        nonce
    }

    #[test]
    fn a_credential_counts_once_as_long_as_it_could_count_again() {
        let mut replays = Replays::new(at(0, 0));
        let made = Timestamp::from_secs(1000);
        let mut note = |key: i64, number: usize, now| replays.note(KeyId(key), nonce(number), made, now);
        assert_eq!(note(1, 1, at(1000, 1000)), Ok(()));
        assert_eq!(note(1, 1, at(1000, 1000)), Err(Refusal::Replayed));
        assert_eq!(note(2, 1, at(1000, 1000)), Ok(()));
        assert_eq!(note(1, 2, at(1000, 1000)), Ok(()));
        // Setting the clock does not help.
        assert_eq!(note(1, 1, at(0, 1001)), Err(Refusal::Replayed));
        let end = 1000 + KEEP.as_secs();
        assert_eq!(note(1, 1, at(5000, end - 1)), Err(Refusal::Replayed));
        // By now it is too old. The memory shrinks.
        assert_eq!(note(3, 3, at(5000, end)), Ok(()));
        assert_eq!(replays.len(), 1);
    }

    #[test]
    fn what_was_made_before_the_start_could_have_been_seen() {
        let mut replays = Replays::new(at(1000, 50));
        let mut note = |number, made, now| replays.note(KeyId(1), nonce(number), Timestamp::from_secs(made), now);
        assert_eq!(note(1, 999, at(1000, 50)), Err(Refusal::BeforeStart));
        assert_eq!(note(1, 999, at(1030, 50 + KEEP.as_secs() - 1)), Err(Refusal::BeforeStart));
        assert_eq!(note(1, 1000, at(1000, 50)), Ok(()));
        // A clock that was ahead at the start does not keep clients out for long.
        assert_eq!(note(2, 500, at(500, 50 + KEEP.as_secs())), Ok(()));
    }

    #[test]
    fn the_memory_is_bounded() {
        let mut replays = Replays::new(at(0, 0));
        let mut note = |number, steady| replays.note(KeyId(1), nonce(number), Timestamp::from_secs(10), at(10, steady));
        for number in 0..REPLAYS_MAX {
            assert_eq!(note(number, 10), Ok(()));
        }
        assert_eq!(note(REPLAYS_MAX, 10), Err(Refusal::Busy));
        assert_eq!(note(0, 10), Err(Refusal::Replayed));
        assert_eq!(note(REPLAYS_MAX, 10 + KEEP.as_secs()), Ok(()));
        assert_eq!((replays.len(), replays.order.len()), (1, 1));
    }
}
