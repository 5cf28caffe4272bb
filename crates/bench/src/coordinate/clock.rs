//! A common time for machines whose clocks differ: a clock that never jumps, and the offset of another machine's
//! clock.

use std::collections::VecDeque;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The time since 1970. It starts with the machine's clock and then runs steadily, even if someone sets that clock.
#[derive(Clone, Copy, Debug)]
pub struct SteadyClock {
    zero: Instant,
    since_1970: Duration,
}

impl SteadyClock {
    /// Starts at the machine's time.
    #[must_use]
    pub fn new() -> Self {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { zero: Instant::now(), since_1970 }
    }

    /// Returns its time.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.since_1970 + self.zero.elapsed()
    }

    /// Returns the moment at which it shows `time`. The result is not before its start, and at most a day from now.
    #[must_use]
    pub fn instant_of(&self, time: Duration) -> Instant {
        const DAY: Duration = Duration::from_secs(86_400);
        self.zero + time.saturating_sub(self.since_1970).min(self.zero.elapsed() + DAY)
    }
}

impl Default for SteadyClock {
    fn default() -> Self {
        Self::new()
    }
}

/// The offset of another clock, with its accuracy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offset {
    /// The other clock minus this one, in microseconds.
    pub ahead_us: i64,
    /// The round trip of the measurement. The offset is accurate to half of it.
    pub round_trip: Duration,
}

impl Offset {
    /// Returns the other clock's time when this one shows `here`.
    #[must_use]
    pub fn there(self, here: Duration) -> Duration {
        let us = i64::try_from(here.as_micros()).unwrap_or(i64::MAX).saturating_add(self.ahead_us);
        Duration::from_micros(u64::try_from(us).unwrap_or(0))
    }
}

/// The measured round trips. Clocks drift, so old ones are forgotten.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RoundTrips {
    latest: VecDeque<Offset>,
}

/// The number of trips that are kept: about a minute of them.
const TRIPS_MAX: usize = 64;

impl RoundTrips {
    /// Adds a request that was sent at `sent` and answered at `received`. The other clock showed `told` in between.
    pub fn add(&mut self, sent: Duration, told: Duration, received: Duration) {
        let us = |time: Duration| i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
        let round_trip = received.saturating_sub(sent);
        let ahead_us = us(told).saturating_sub(us(sent + round_trip / 2));
        if self.latest.len() == TRIPS_MAX {
            self.latest.pop_front();
        }
        self.latest.push_back(Offset { ahead_us, round_trip });
    }

    /// Returns the offset of the shortest trip. Delays made the longer ones less accurate.
    #[must_use]
    pub fn best(&self) -> Option<Offset> {
        self.latest.iter().copied().min_by_key(|offset| offset.round_trip)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn an_offset_is_right_to_half_its_round_trip(
            ahead in -1_000_000_000_i64..1_000_000_000,
            trips in proptest::collection::vec((0_u64..50_000, 0_u64..50_000), 1..100),
        ) {
            let start = 1_700_000_000_000_000_u64;
            let mut found = RoundTrips::default();
            for (number, (there, back)) in trips.iter().enumerate() {
                let sent = start + number as u64 * 1_000_000;
                let told = (sent + there).saturating_add_signed(ahead);
                let time = Duration::from_micros;
                found.add(time(sent), time(told), time(sent + there + back));
            }
            let best = found.best().unwrap();
            let half = i64::try_from(best.round_trip.as_micros() / 2).unwrap();
            prop_assert!((best.ahead_us - ahead).abs() <= half + 1, "{best:?}");
            prop_assert!(found.latest.len() <= TRIPS_MAX);
        }
    }

    #[test]
    fn a_moment_there_is_the_same_moment_here() {
        let offset = Offset { ahead_us: -250, round_trip: Duration::ZERO };
        assert_eq!(offset.there(Duration::from_micros(1000)), Duration::from_micros(750));
        let clock = SteadyClock::new();
        let (soon, now) = (clock.now() + Duration::from_secs(5), Instant::now());
        let at = clock.instant_of(soon);
        assert!(at > now + Duration::from_secs(4) && at <= now + Duration::from_secs(6));
        assert!(clock.instant_of(Duration::MAX) < now + Duration::from_secs(90_000));
        assert!(clock.instant_of(Duration::ZERO) <= now);
    }
}
