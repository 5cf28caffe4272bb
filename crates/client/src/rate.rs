//! Limits how many bytes move in a second. This module only decides; the time is an argument.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The most bytes that move at once when a rate is limited, so that the connection stays busy.
pub(crate) const PART: usize = 64 << 10;
/// After a break, so much time may be made up for.
const BURST: Duration = Duration::from_millis(100);

/// The most bytes that clients receive and send in a second, each; by default there is no limit. All clients with the
/// same settings share it.
#[derive(Clone, Default)]
pub struct RateLimit(Option<Arc<Directions>>);

struct Directions {
    received: Mutex<Bucket>,
    sent: Mutex<Bucket>,
}

impl RateLimit {
    /// Limits each direction to so many bytes a second; 0 counts as 1.
    #[must_use]
    pub fn of(bytes_per_second: u64) -> Self {
        let bucket = || Mutex::new(Bucket::new(bytes_per_second.max(1), Instant::now()));
        Self(Some(Arc::new(Directions { received: bucket(), sent: bucket() })))
    }

    /// Whether there is a limit.
    pub(crate) fn is_limited(&self) -> bool {
        self.0.is_some()
    }

    /// How many of `len` bytes to move at once.
    pub(crate) fn part(&self, len: usize) -> usize {
        if self.0.is_some() { len.min(PART) } else { len }
    }

    /// Bytes were received. Returns how long to wait before the next.
    pub(crate) fn received(&self, bytes: usize) -> Duration {
        self.0.as_ref().map_or(Duration::ZERO, |both| both.received.lock().take(bytes, Instant::now()))
    }

    /// Bytes were sent. Returns how long to wait before the next.
    pub(crate) fn sent(&self, bytes: usize) -> Duration {
        self.0.as_ref().map_or(Duration::ZERO, |both| both.sent.lock().take(bytes, Instant::now()))
    }
}

impl fmt::Debug for RateLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(both) => write!(f, "RateLimit({} B/s)", both.sent.lock().rate),
            None => f.write_str("RateLimit(none)"),
        }
    }
}

/// One direction.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    rate: u64,
    /// When all bytes so far have had their time.
    due: Instant,
}

impl Bucket {
    fn new(rate: u64, now: Instant) -> Self {
        Self { rate, due: now }
    }

    /// Counts bytes that have moved. Returns how long to wait before the next.
    fn take(&mut self, bytes: usize, now: Instant) -> Duration {
        let earliest = now.checked_sub(BURST).unwrap_or(now);
        let nanos = u128::from(bytes as u64) * 1_000_000_000 / u128::from(self.rate);
        self.due = self.due.max(earliest) + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        self.due.saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_kept_and_a_break_is_not_made_up_for() {
        let start = Instant::now();
        let mut bucket = Bucket::new(1_000_000, start);
        let mut now = start;
        for _ in 0..100 {
            now += bucket.take(50_000, now);
        }
        let took = now - start;
        assert!(took >= Duration::from_millis(4850) && took <= Duration::from_millis(5000), "{took:?}");
        now += Duration::from_secs(60);
        let mut moved = 0;
        while bucket.take(50_000, now).is_zero() {
            moved += 50_000;
        }
        assert_eq!(moved, 100_000, "of a minute's break only a tenth of a second is made up for");
    }

    #[test]
    fn without_a_limit_nothing_waits() {
        let none = RateLimit::default();
        assert_eq!((none.part(usize::MAX), none.sent(usize::MAX)), (usize::MAX, Duration::ZERO));
        let some = RateLimit::of(0);
        assert_eq!(some.part(usize::MAX), PART);
        assert!(some.received(10) > Duration::from_secs(9));
    }
}
