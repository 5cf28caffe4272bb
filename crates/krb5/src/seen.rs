//! The messages that a server has seen, as long as they could count again.

use std::time::Duration;

use replays::{Before, Limits, Now, Refused, Start};
use types::Timestamp;

use crate::{CLOCK_SKEW, Principal, Refusal};

/// So long a message is remembered: one that was made in the future, as far as clocks may differ, counts until then.
pub const KEEP: Duration = Duration::from_secs(2 * CLOCK_SKEW.as_secs() + 1);
/// Most messages that are remembered, which take some 40 MiB. So many in [`KEEP`] are 436 logins a second; further ones are refused until
/// older ones are forgotten.
pub const REPLAYS_MAX: usize = 1 << 18;
/// Most of them of one client, so that one does not keep out the others.
pub const REPLAYS_OF_CLIENT_MAX: usize = REPLAYS_MAX / 4;

const LIMITS: Limits =
    Limits { keep: KEEP, clock_skew: CLOCK_SKEW, most: REPLAYS_MAX, most_of_one: REPLAYS_OF_CLIENT_MAX };

type Mark = [u8; 16];

/// The messages that were seen lately.
#[derive(Debug)]
pub struct Replays(replays::Replays<Principal, Mark>);

impl Replays {
    /// Of a server that began at this time of the steady clock. A clock that was wrong then may have been set since.
    #[must_use]
    pub fn new(began: Duration, before: Before) -> Self {
        Self(replays::Replays::new(LIMITS, Start::Since(began), before))
    }

    /// The latest time at which a message that was admitted was made ([`replays::Replays::newest`]).
    #[must_use]
    pub fn newest(&self) -> Option<Timestamp> {
        self.0.newest()
    }

    /// Remembers a message, and refuses it if it was seen.
    pub(crate) fn note(&mut self, client: &Principal, mark: Mark, made: Timestamp, now: Now) -> Result<(), Refusal> {
        Ok(self.0.note(client, mark, made, now)?)
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
    use super::*;

    fn at(wall: i64, steady: u64) -> Now {
        Now { wall: Timestamp::from_secs(wall), steady: Duration::from_secs(steady) }
    }

    fn mark(number: usize) -> Mark {
        let mut mark = [0; 16];
        mark[..8].copy_from_slice(&number.to_be_bytes());
        mark
    }

    fn client(name: &str) -> Principal {
        Principal::parse(&format!("{name}@A.ORG")).unwrap()
    }

    fn note(replays: &mut Replays, number: usize, made: i64, now: Now) -> Result<(), Refusal> {
        replays.note(&client("ana"), mark(number), Timestamp::from_secs(made), now)
    }

    #[test]
    fn a_message_counts_once_as_long_as_it_could_count_again() {
        let mut replays = Replays::new(Duration::from_secs(1000), Before::None);
        assert_eq!(note(&mut replays, 1, 1300, at(1000, 1000)), Ok(()));
        assert_eq!(note(&mut replays, 1, 1300, at(1000, 1000)), Err(Refusal::Replayed));
        assert_eq!(note(&mut replays, 2, 900, at(1001, 1001)), Ok(()));
        // It was made 300 s in the future, and counts as long after that.
        assert_eq!(note(&mut replays, 1, 1300, at(1600, 1600)), Err(Refusal::Replayed));
        // Setting the clock does not help: neither while it is remembered, nor later.
        assert_eq!(note(&mut replays, 1, 1300, at(1300, 1600)), Err(Refusal::Replayed));
        assert_eq!(note(&mut replays, 1, 1300, at(1300, 1700)), Err(Refusal::Forgotten(1)));
        assert_eq!(note(&mut replays, 3, 1700, at(1700, 1700)), Ok(()));
        assert_eq!(replays.0.sizes(), (1, 1, 1, 1));
    }

    #[test]
    fn what_was_made_before_the_start_could_have_been_seen() {
        let began = Duration::from_secs(50);
        let mut replays = Replays::new(began, Before::Unknown(None));
        assert_eq!(note(&mut replays, 1, 999, at(1000, 50)), Err(Refusal::Forgotten(301)));
        assert_eq!(note(&mut replays, 1, 1300, at(1200, 250)), Err(Refusal::Forgotten(101)));
        assert_eq!(note(&mut replays, 1, 1301, at(1301, 351)), Ok(()));
        let newest = replays.newest().unwrap();
        let mut replays = Replays::new(Duration::from_secs(1), Before::Until(newest));
        assert_eq!(note(&mut replays, 1, 1301, at(1302, 1)), Err(Refusal::Forgotten(1)));
        assert_eq!(note(&mut replays, 2, 1302, at(1302, 1)), Ok(()));
        let mut replays = Replays::new(began, Before::None);
        assert_eq!(note(&mut replays, 1, 999, at(1000, 50)), Ok(()));
    }

    #[test]
    fn a_clock_that_is_set_after_the_start_does_not_make_old_messages_count() {
        for wrong in [-4000, 4000] {
            let began = Duration::from_secs(50);
            let mut replays = Replays::new(began, Before::Unknown(None));
            // Before the clock is set, nothing that is made by the right time gets so far. Ten seconds later it is set.
            assert_eq!(note(&mut replays, 9, 9000 + wrong, at(9000 + wrong, 50)), Err(Refusal::Forgotten(301)));
            assert_eq!(note(&mut replays, 1, 8990, at(9010, 60)), Err(Refusal::Forgotten(291)), "{wrong}");
            assert_eq!(note(&mut replays, 1, 9300, at(9010, 60)), Err(Refusal::Forgotten(291)), "{wrong}");
            assert_eq!(note(&mut replays, 1, 9301, at(9010, 60)), Ok(()), "{wrong}");
        }
    }

    #[test]
    fn a_clock_that_was_ahead_says_what_to_do() {
        let mut replays = Replays::new(Duration::ZERO, Before::Until(Timestamp::from_secs(90_000)));
        let why = note(&mut replays, 1, 3600, at(3600, 1)).unwrap_err();
        assert_eq!(why, Refusal::Forgotten(86_401));
        assert!(why.to_string().contains("was set back: ask its administrator"), "{why}");
        assert!(Refusal::Forgotten(301).to_string().ends_with("try again in 301 s"));
    }

    #[test]
    fn the_memory_is_bounded_and_shared_among_clients() {
        let mut replays = Replays::new(Duration::ZERO, Before::None);
        let mut note = |name: &str, number, steady| {
            replays.note(&client(name), mark(number), Timestamp::from_secs(10), at(10, steady))
        };
        for (number, name) in ["a", "b", "c", "d"].iter().enumerate() {
            for count in 0..REPLAYS_OF_CLIENT_MAX {
                assert_eq!(note(name, number * REPLAYS_OF_CLIENT_MAX + count, 10), Ok(()));
            }
            assert_eq!(note(name, REPLAYS_MAX + number, 10), Err(Refusal::Busy));
        }
        assert_eq!(note("e", REPLAYS_MAX + 9, 10), Err(Refusal::Busy));
        let later = 10 + KEEP.as_secs();
        assert_eq!(replays.note(&client("e"), mark(1), Timestamp::from_secs(700), at(700, later)), Ok(()));
        assert_eq!(replays.0.sizes(), (1, 1, 1, 1));
    }
}
