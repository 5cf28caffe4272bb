//! The credentials that a server has seen, as long as they could count again.

use replays::{Before, Limits, Now, Refused, Start};
use types::Timestamp;

use crate::packet::NONCE_LEN;
use crate::verify::{CLOCK_SKEW, KEEP};
use crate::{KeyId, Refusal};

/// Most credentials that are remembered, which take some MiB. So many in [`KEEP`] are 1,872 logins a second; further ones are
/// refused until older ones are forgotten.
pub const REPLAYS_MAX: usize = 65_536;
/// Most of them of one key, so that the holder of one does not keep out those of the others.
pub const REPLAYS_OF_KEY_MAX: usize = REPLAYS_MAX / 4;

/// What tells credentials apart: the key, and the random bytes that were encrypted with it. Not the message: a part of it can be
/// changed by who does not know the key.
type Mark = (KeyId, [u8; NONCE_LEN]);

const LIMITS: Limits =
    Limits { keep: KEEP, clock_skew: CLOCK_SKEW, most: REPLAYS_MAX, most_of_one: REPLAYS_OF_KEY_MAX };

/// The credentials that were seen lately.
#[derive(Debug)]
pub struct Replays(replays::Replays<KeyId, Mark>);

impl Replays {
    /// At the start of a server at `now`.
    #[must_use]
    pub fn new(now: Now, before: Before) -> Self {
        Self(replays::Replays::new(LIMITS, Start::At(now), before))
    }

    /// How many are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.sizes().0
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The latest time at which a credential that was admitted was made ([`replays::Replays::newest`]).
    #[must_use]
    pub fn newest(&self) -> Option<Timestamp> {
        self.0.newest()
    }

    /// Remembers a credential that was made at `made`, and refuses it if it was seen.
    pub(crate) fn note(
        &mut self,
        key: KeyId,
        nonce: [u8; NONCE_LEN],
        made: Timestamp,
        now: Now,
    ) -> Result<(), Refusal> {
        Ok(self.0.note(&key, (key, nonce), made, now)?)
    }
}

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Replayed => Self::Replayed,
            Refused::Forgotten(seconds) => Self::Forgotten(seconds),
            Refused::Busy => Self::Busy,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(wall: i64, steady: u64) -> Now {
        Now { wall: Timestamp::from_secs(wall), steady: Duration::from_secs(steady) }
    }

    fn nonce(number: usize) -> [u8; NONCE_LEN] {
        let mut nonce = [0; NONCE_LEN];
        nonce[..8].copy_from_slice(&number.to_be_bytes());
        nonce
    }

    /// Shows a credential of the key 1 that was made at `made`.
    fn note(replays: &mut Replays, number: usize, made: i64, now: Now) -> Result<(), Refusal> {
        replays.note(KeyId(1), nonce(number), Timestamp::from_secs(made), now)
    }

    #[test]
    fn a_credential_counts_once_as_long_as_it_could_count_again() {
        let mut replays = Replays::new(at(0, 0), Before::None);
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
    }

    #[test]
    fn what_is_forgotten_does_not_count_again_when_the_clock_is_set_back() {
        let mut replays = Replays::new(at(1000, 0), Before::None);
        assert_eq!(note(&mut replays, 1, 1009, at(1000, 0)), Ok(()));
        assert_eq!(note(&mut replays, 2, 990, at(1000, 0)), Ok(()));
        // By now both are too old, and the memory shrinks. What is made now counts.
        let later = KEEP.as_secs();
        assert_eq!(note(&mut replays, 3, 1013, at(1035, later)), Ok(()));
        assert_eq!(replays.0.sizes(), (1, 1, 1, 1));
        // The clock goes back by half a minute.
        for (number, made) in [(1, 1009), (2, 990), (4, 1009)] {
            assert_eq!(note(&mut replays, number, made, at(1006, later + 1)), Err(Refusal::Forgotten(4)));
        }
        assert_eq!(note(&mut replays, 3, 1013, at(1006, later + 1)), Err(Refusal::Replayed));
        assert_eq!(note(&mut replays, 5, 1010, at(1006, later + 1)), Ok(()));
        // And for as long as it takes.
        assert_eq!(note(&mut replays, 1, 1009, at(1000, later + 1000)), Err(Refusal::Forgotten(14)));
    }

    #[test]
    fn what_was_made_before_the_start_or_early_could_have_been_seen() {
        let mut replays = Replays::new(at(1000, 50), Before::Unknown(None));
        let early = 1010;
        assert_eq!(note(&mut replays, 1, 999, at(1000, 50)), Err(Refusal::Forgotten(11)));
        assert_eq!(note(&mut replays, 1, 1009, at(1000, 50)), Err(Refusal::Forgotten(11)));
        assert_eq!(note(&mut replays, 1, early, at(1010, 60)), Err(Refusal::Forgotten(1)));
        assert_eq!(note(&mut replays, 1, early, at(1030, 50 + KEEP.as_secs() - 1)), Err(Refusal::Forgotten(1)));
        assert_eq!(note(&mut replays, 1, early + 1, at(1001, 51)), Ok(()));
        // A clock that was ahead at the start does not keep clients out for long.
        assert_eq!(note(&mut replays, 2, 500, at(500, 50 + KEEP.as_secs())), Ok(()));
    }

    #[test]
    fn who_knows_what_was_seen_before_refuses_nothing_else() {
        let mut replays = Replays::new(at(1000, 50), Before::None);
        assert_eq!(replays.newest(), None);
        assert_eq!(note(&mut replays, 1, 999, at(1000, 50)), Ok(()));
        assert_eq!(note(&mut replays, 2, 1009, at(1000, 50)), Ok(()));
        assert_eq!(note(&mut replays, 3, 1001, at(1000, 50)), Ok(()));
        let newest = replays.newest().unwrap();
        assert_eq!(newest, Timestamp::from_secs(1009));
        let mut replays = Replays::new(at(1001, 1), Before::Until(newest));
        assert_eq!(replays.newest(), Some(newest));
        for number in [1, 2, 3] {
            assert_eq!(note(&mut replays, number, 1009, at(1001, 1)), Err(Refusal::Forgotten(9)));
        }
        assert_eq!(note(&mut replays, 4, 1010, at(1001, 1)), Ok(()));
        // Also if the clock was set back meanwhile, for as long as it takes.
        assert_eq!(note(&mut replays, 2, 1009, at(1000, 1000)), Err(Refusal::Forgotten(11)));
    }

    #[test]
    fn the_memory_is_bounded_and_shared_among_keys() {
        let mut replays = Replays::new(at(0, 0), Before::None);
        let mut note = |key, number, made, steady| {
            replays.note(KeyId(key), nonce(number), Timestamp::from_secs(made), at(made, steady))
        };
        for key in 1..=4 {
            for number in 0..REPLAYS_OF_KEY_MAX {
                assert_eq!(note(key, number, 10, 10), Ok(()));
            }
            assert_eq!(note(key, REPLAYS_OF_KEY_MAX, 10, 10), Err(Refusal::Busy));
        }
        assert_eq!(note(5, 0, 10, 10), Err(Refusal::Busy));
        assert_eq!(note(1, 0, 10, 10), Err(Refusal::Replayed));
        let later = 10 + KEEP.as_secs();
        assert_eq!(note(1, REPLAYS_OF_KEY_MAX, 45, later), Ok(()));
        assert_eq!(replays.0.sizes(), (1, 1, 1, 1));
    }
}
