//! How slow a server may be, and how long it may defer a request. This module only decides; the time is an
//! argument.

use std::time::{Duration, Instant};

use crate::deadline::ANSWER_MIN;

/// The bytes that must arrive in each period of patience while the client waits, unless fewer remain. Weir's
/// servers demand the same of their clients.
const PACE_BYTES: usize = 32 << 10;
/// The shortest time that a request is deferred, whatever the server says.
pub(crate) const PAUSE_MIN: Duration = Duration::from_millis(100);

/// Measures the speed of an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    since: Instant,
    bytes: usize,
}

/// The server is too slow. The field holds the bytes that have come since the period of patience began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TooSlow {
    pub(crate) bytes: usize,
}

impl Pace {
    /// The client begins to wait at `now`.
    pub(crate) fn new(now: Instant) -> Self {
        Self { since: now, bytes: 0 }
    }

    /// `bytes` have arrived, perhaps none. Returns an error if that is too slow for `patience`.
    pub(crate) fn came(&mut self, bytes: usize, now: Instant, patience: Duration) -> Result<(), TooSlow> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes >= PACE_BYTES {
            *self = Self::new(now);
        }
        if now.saturating_duration_since(self.since) < patience { Ok(()) } else { Err(TooSlow { bytes: self.bytes }) }
    }

    /// How long the server may still send nothing.
    pub(crate) fn left(&self, now: Instant, patience: Duration) -> Duration {
        patience.saturating_sub(now.saturating_duration_since(self.since))
    }

    /// Whether a period has begun at `now`, because enough has arrived.
    pub(crate) fn is_new(&self, now: Instant) -> bool {
        self.since == now
    }

    /// Whether so much has arrived that another attempt after a lost connection is worth while.
    pub(crate) fn is_progress(bytes: usize) -> bool {
        bytes >= PACE_BYTES
    }
}

/// One of several requests under way that the server may defer (kXR_wait) repeatedly, but not for ever. The others
/// continue meanwhile.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WaitLimit {
    waited: Duration,
    /// When the server deferred it first.
    since: Option<Instant>,
    until: Option<Instant>,
}

impl WaitLimit {
    /// The server defers the request by `seconds`. Returns `false` if the total, with the time that its answers took,
    /// would exceed `most`.
    pub(crate) fn put_off(&mut self, seconds: u32, now: Instant, most: Duration) -> bool {
        let pause = Duration::from_secs(u64::from(seconds)).max(PAUSE_MIN);
        let since = *self.since.get_or_insert(now);
        self.waited = self.waited.saturating_add(pause);
        // The last answer may come a moment after the last pause.
        let passed = now.saturating_duration_since(since).saturating_sub(ANSWER_MIN);
        let total = self.waited.max(passed.saturating_add(pause));
        self.until = (total <= most).then(|| now + pause);
        self.until.is_some()
    }

    /// Returns when the request must be sent again, if it is deferred.
    pub(crate) fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Whether the request must be sent again now.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| until <= now)
    }

    /// The request has been sent again.
    pub(crate) fn sent(&mut self) {
        self.until = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn a_byte_a_second_is_too_slow_and_a_slow_line_is_not() {
        let start = Instant::now();
        let mut drip = Pace::new(start);
        let slow = (1..100).find_map(|second| drip.came(1, start + Duration::from_secs(second), PATIENCE).err());
        assert_eq!(slow, Some(TooSlow { bytes: 60 }));
        let mut line = Pace::new(start);
        for second in 1..10_000 {
            assert_eq!(line.came(600, start + Duration::from_secs(second), PATIENCE), Ok(()), "after {second} s");
        }
        let mut silent = Pace::new(start);
        assert_eq!(silent.came(0, start + PATIENCE, PATIENCE), Err(TooSlow { bytes: 0 }));
    }

    #[test]
    fn a_request_is_deferred_for_a_bounded_time_in_all() {
        let start = Instant::now();
        let mut waits = WaitLimit::default();
        for turn in 0..6 {
            assert!(waits.put_off(10, start, PATIENCE), "{turn}");
            assert!(!waits.is_due(start) && waits.is_due(start + Duration::from_secs(10)));
            waits.sent();
        }
        assert!(!waits.put_off(10, start, PATIENCE));
        assert_eq!(waits.until(), None);
        // If a server defers by zero seconds, the client still pauses, and not for ever.
        let mut none = WaitLimit::default();
        assert_eq!((0..10_000).filter(|_| none.put_off(0, start, PATIENCE)).count(), 600);
        assert!(!WaitLimit::default().put_off(u32::MAX, start, PATIENCE));
    }

    #[test]
    fn the_time_that_a_deferring_server_takes_to_say_so_counts() {
        let start = Instant::now();
        let mut waits = WaitLimit::default();
        assert!(waits.put_off(1, start, PATIENCE));
        assert!(waits.put_off(1, start + Duration::from_secs(59), PATIENCE));
        assert!(!waits.put_off(1, start + Duration::from_secs(60), PATIENCE));
    }
}
