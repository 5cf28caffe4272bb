//! How slow a server may be, and how long it may put a request off: decisions alone, the time is handed in.

use std::time::{Duration, Instant};

/// The least that must come in each time of patience while something is awaited, or all of it. As weir's servers ask of their clients.
const PACE_BYTES: usize = 32 << 10;
/// The shortest time that a request is put off, whatever the server says.
const PAUSE_MIN: Duration = Duration::from_millis(100);

/// Watches over what comes while something is awaited.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    since: Instant,
    bytes: usize,
}

/// The server is too slow: so many bytes have come since the time of patience began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TooSlow {
    pub(crate) bytes: usize,
}

impl Pace {
    /// From `now` on something is awaited.
    pub(crate) fn new(now: Instant) -> Self {
        Self { since: now, bytes: 0 }
    }

    /// `bytes` have come, perhaps none; tells whether that goes too slowly for `patience`.
    pub(crate) fn came(&mut self, bytes: usize, now: Instant, patience: Duration) -> Result<(), TooSlow> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes >= PACE_BYTES {
            *self = Self::new(now);
        }
        if now.saturating_duration_since(self.since) < patience { Ok(()) } else { Err(TooSlow { bytes: self.bytes }) }
    }

    /// Has as much come as makes it worth while to go on after one more lost connection?
    pub(crate) fn is_progress(bytes: usize) -> bool {
        bytes >= PACE_BYTES
    }
}

/// A request that the server may put off (kXR_wait), again and again, but not for ever.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waits {
    waited: Duration,
    until: Option<Instant>,
}

impl Waits {
    /// The server has asked for `seconds` more. `false`: that would be more than `most` in all.
    pub(crate) fn put_off(&mut self, seconds: u32, now: Instant, most: Duration) -> bool {
        let pause = Duration::from_secs(u64::from(seconds)).max(PAUSE_MIN);
        self.waited = self.waited.saturating_add(pause);
        self.until = (self.waited <= most).then(|| now + pause);
        self.until.is_some()
    }

    /// Until when it is put off, if it is.
    pub(crate) fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Is it to be sent again?
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| until <= now)
    }

    /// It has been sent again.
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
    fn a_request_is_put_off_for_so_long_in_all_and_no_longer() {
        let start = Instant::now();
        let mut waits = Waits::default();
        for turn in 0..6 {
            assert!(waits.put_off(10, start, PATIENCE), "{turn}");
            assert!(!waits.is_due(start) && waits.is_due(start + Duration::from_secs(10)));
            waits.sent();
        }
        assert!(!waits.put_off(10, start, PATIENCE));
        assert_eq!(waits.until(), None);
        // A server that says "now" is not asked without a pause, and not for ever.
        let mut none = Waits::default();
        assert_eq!((0..10_000).filter(|_| none.put_off(0, start, PATIENCE)).count(), 600);
        assert!(!Waits::default().put_off(u32::MAX, start, PATIENCE));
    }
}
