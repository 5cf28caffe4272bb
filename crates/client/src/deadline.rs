//! How long one request may still wait. All its waits and retries share one [`Deadline`]: connecting, logging in,
//! answers, waits that a server asks for, redirects, and opening a file again. This module only decides; the time
//! is an argument.
//!
//! The bound is one of three at any time:
//!
//! 1. At first the answer must come within the time that a server may be silent (`silence_max`).
//! 2. Once a server has asked to wait, or has promised its answer for later, it must come within `wait_max` of that
//!    moment.
//! 3. Once the connection is lost, everything until it is restored must happen within `recovery_max` of that moment.
//!    After that the first bound holds again. But if the connection is lost once more before anything has moved, the
//!    time of the first loss counts.
//!
//! So a request ends at the latest after the sum of the three, whatever servers do.

use std::time::{Duration, Instant};

use crate::Settings;
use crate::pace::PAUSE_MIN;

/// The time that is left for the answer to a last attempt.
pub(crate) const ANSWER_MIN: Duration = Duration::from_millis(500);

/// The times that a user sets.
#[derive(Clone, Copy, Debug)]
struct Limits {
    silence: Duration,
    wait: Duration,
    recovery: Duration,
}

/// Where the end comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Bound {
    /// The server must answer.
    Answer,
    /// A server has asked to wait.
    Wait,
    /// The connection must be restored.
    Recovery,
}

/// The time that a request, or the requests under way on one open file, may still take. It is handed down by value:
/// whoever waits keeps to its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    limits: Limits,
    /// Since when nothing has moved.
    since: Instant,
    bound: Bound,
    end: Instant,
    /// The end of all attempts since the connection was lost first; `None` once something has moved.
    recovery_end: Option<Instant>,
    /// Since when nobody waits, because the caller does something else.
    paused: Option<Instant>,
}

impl Deadline {
    /// A request begins at `now`.
    pub(crate) fn new(settings: &Settings, now: Instant) -> Self {
        let limits = Limits { silence: settings.silence_max, wait: settings.wait_max, recovery: settings.recovery_max };
        let end = now + limits.silence;
        Self { limits, since: now, bound: Bound::Answer, end, recovery_end: None, paused: None }
    }

    /// Something has moved: an answer has come, or enough of one.
    pub(crate) fn moved(&mut self, now: Instant) {
        *self = Self {
            since: now,
            bound: Bound::Answer,
            end: now + self.limits.silence,
            recovery_end: None,
            paused: None,
            ..*self
        };
    }

    /// Changes how long a server may be silent from now on.
    pub(crate) fn set_silence(&mut self, silence: Duration, now: Instant) {
        self.limits.silence = silence;
        self.asked(now);
    }

    /// A request is sent while none is under way.
    pub(crate) fn begin(&mut self, now: Instant) {
        if self.recovery_end.is_none() {
            self.moved(now);
        }
    }

    /// Another request is sent, or the same again because the server had deferred it. Its answer may take as long
    /// as any.
    pub(crate) fn asked(&mut self, now: Instant) {
        if self.bound == Bound::Answer {
            self.end = now + self.limits.silence;
        }
    }

    /// A server asks to wait, or promises its answer for later.
    pub(crate) fn put_off(&mut self, now: Instant) {
        if self.bound == Bound::Answer {
            (self.bound, self.end) = (Bound::Wait, now + self.limits.wait + ANSWER_MIN);
        }
    }

    /// A server asks to send the request again after `seconds`. Returns when that is; `None`: too late.
    pub(crate) fn again_at(&mut self, seconds: u32, now: Instant) -> Option<Instant> {
        self.put_off(now);
        let again = now + Duration::from_secs(u64::from(seconds)).max(PAUSE_MIN);
        match self.bound {
            // The server's time is a guess. The last attempt is made early enough for its answer.
            Bound::Recovery => {
                let last = self.end.checked_sub(ANSWER_MIN).unwrap_or(now);
                (again.min(last) >= now + PAUSE_MIN).then(|| again.min(last))
            }
            Bound::Answer | Bound::Wait => (again <= self.end).then_some(again),
        }
    }

    /// The connection is lost. Returns whether there is time for another attempt.
    pub(crate) fn lost(&mut self, now: Instant) -> bool {
        let end = *self.recovery_end.get_or_insert(now + self.limits.recovery);
        (self.bound, self.end) = (Bound::Recovery, end);
        now < end
    }

    /// The connection is there again, and the requests are sent again.
    pub(crate) fn restored(&mut self, now: Instant) {
        (self.bound, self.end) = (Bound::Answer, now + self.limits.silence);
    }

    /// The caller stops waiting, and does something else. That time does not count.
    pub(crate) fn pause(&mut self, now: Instant) {
        self.paused = Some(now);
    }

    /// The caller waits again.
    pub(crate) fn resume(&mut self, now: Instant) {
        let gap = self.paused.take().map(|paused| now.saturating_duration_since(paused)).unwrap_or_default();
        if self.bound != Bound::Recovery {
            self.since += gap;
            self.end += gap;
        }
    }

    /// Where the end comes from.
    pub(crate) fn bound(&self) -> Bound {
        self.bound
    }

    /// The whole time that the present bound allows.
    pub(crate) fn most(&self) -> Duration {
        match self.bound {
            Bound::Answer => self.limits.silence,
            Bound::Wait => self.limits.wait,
            Bound::Recovery => self.limits.recovery,
        }
    }

    /// The whole time for which a server's requests to wait are followed now.
    pub(crate) fn most_of_waits(&self) -> Duration {
        if self.bound == Bound::Recovery { self.limits.recovery } else { self.limits.wait }
    }

    /// How long nothing has moved.
    pub(crate) fn waited(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }

    /// How long it may still take.
    pub(crate) fn left(&self, now: Instant) -> Duration {
        self.end.saturating_duration_since(now)
    }

    /// Whether its time is over.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        now >= self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    fn settings() -> Settings {
        Settings { silence_max: seconds(300), wait_max: seconds(600), recovery_max: seconds(15), ..Settings::default() }
    }

    #[test]
    fn retries_end_when_they_say_whatever_servers_ask_for() {
        let start = Instant::now();
        let mut deadline = Deadline::new(&settings(), start);
        assert!(deadline.lost(start + seconds(1)));
        // The manager asks to wait, again and again; the connection is made and lost, again and again.
        assert_eq!(deadline.again_at(5, start + seconds(2)), Some(start + seconds(7)));
        assert!(deadline.lost(start + seconds(9)));
        let last = start + Duration::from_millis(15_500);
        assert_eq!(deadline.again_at(60, start + seconds(10)), Some(last), "the last attempt");
        assert_eq!(deadline.left(start + seconds(10)), seconds(6));
        assert_eq!((deadline.again_at(0, last), deadline.again_at(0, start + seconds(20))), (None, None));
        assert!(!deadline.lost(start + seconds(16)) && deadline.is_over(start + seconds(16)));
    }

    #[test]
    fn a_restored_connection_that_moves_nothing_gets_no_new_time_when_it_is_lost() {
        let start = Instant::now();
        let mut deadline = Deadline::new(&settings(), start);
        assert!(deadline.lost(start));
        deadline.restored(start + seconds(1));
        assert!(!deadline.is_over(start + seconds(300)), "the server may take its usual time to answer");
        assert!(deadline.is_over(start + seconds(301)));
        assert!(deadline.lost(start + seconds(14)) && !deadline.lost(start + seconds(15)));
        deadline.moved(start + seconds(20));
        assert!(deadline.lost(start + seconds(100)) && deadline.left(start + seconds(100)) == seconds(15));
    }

    #[test]
    fn a_server_that_asks_to_wait_is_waited_for_once() {
        let start = Instant::now();
        let mut deadline = Deadline::new(&settings(), start);
        for turn in 0..60 {
            let now = start + seconds(10 * turn);
            assert_eq!(deadline.again_at(10, now), Some(now + seconds(10)), "{turn}");
            deadline.asked(now + seconds(10));
        }
        assert_eq!(deadline.again_at(10, start + seconds(600)), None);
        assert_eq!(Deadline::new(&settings(), start).again_at(u32::MAX, start), None);
        assert_eq!(Deadline::new(&settings(), start).again_at(0, start), Some(start + PAUSE_MIN));
    }

    #[test]
    fn a_shorter_silence_counts_at_once() {
        let start = Instant::now();
        let mut deadline = Deadline::new(&settings(), start);
        deadline.set_silence(seconds(15), start);
        assert!(deadline.is_over(start + seconds(15)) && !deadline.is_over(start + seconds(14)));
        // A server that asks to wait has answered.
        deadline.put_off(start + seconds(1));
        assert!(!deadline.is_over(start + seconds(16)));
    }

    #[test]
    fn the_time_between_two_waits_does_not_count() {
        let start = Instant::now();
        let mut deadline = Deadline::new(&settings(), start);
        deadline.pause(start + seconds(1));
        deadline.resume(start + seconds(3601));
        assert_eq!(deadline.waited(start + seconds(3602)), seconds(2));
        assert_eq!(deadline.left(start + seconds(3601)), seconds(299));
        assert!(deadline.lost(start + seconds(3700)));
        deadline.pause(start + seconds(3700));
        deadline.resume(start + seconds(3710));
        assert_eq!(deadline.left(start + seconds(3710)), seconds(5), "but a lost connection is lost");
    }
}
