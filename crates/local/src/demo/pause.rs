//! Explains why the reader gets nothing new for some seconds after a disk server was killed, while it waits.

use std::time::{Duration, Instant};

use cluster::{LeaseTerms, Presence};

use super::follower::PATIENCE;

/// The reader gets new bytes about once a second. A longer wait is explained.
const USUAL: Duration = Duration::from_millis(1500);
/// How often a wait that goes on is told.
const EVERY: Duration = Duration::from_secs(2);

/// The reader of a stream whose primary was killed.
#[derive(Debug)]
pub struct ReaderPause {
    victim: String,
    /// The bytes that the reader had last, and since when.
    has: (u64, Instant),
    /// When something was last said of this wait.
    told: Option<Instant>,
    /// The reader has gone on since.
    is_over: bool,
}

impl ReaderPause {
    /// `victim` was killed at `now`, when the reader had `has` bytes.
    #[must_use]
    pub fn new(victim: &str, has: u64, now: Instant) -> Self {
        Self { victim: victim.to_owned(), has: (has, now), told: None, is_over: false }
    }

    /// The reader has `has` bytes at `now`. Returns what to say about that, if anything. `presence`: the state of the killed server, as the
    /// manager sees it.
    pub fn look(&mut self, has: u64, now: Instant, presence: impl FnOnce() -> Option<Presence>) -> Option<String> {
        let waited = now.saturating_duration_since(self.has.1);
        let seconds = waited.as_secs_f64();
        if has > self.has.0 {
            self.has = (has, now);
            let was_told = self.told.take().is_some();
            self.is_over |= was_told;
            return was_told.then(|| format!("the reader goes on after {seconds:.1} s"));
        }
        let is_due = match self.told {
            None => !self.is_over && waited >= USUAL,
            Some(told) => now.saturating_duration_since(told) >= EVERY,
        };
        if !is_due {
            return None;
        }
        let (victim, is_first) = (&self.victim, self.told.is_none());
        self.told = Some(now);
        Some(match presence() {
            _ if is_first => format!(
                "the reader waits for the lease of {victim} to end, at most {} s after the kill. Until then {victim} may \
                 still serve stream1, as far as the manager knows, and no other disk server takes over. After {} s \
                 without new bytes the demo fails.",
                LeaseTerms::default().at_manager().as_secs(),
                PATIENCE.as_secs(),
            ),
            Some(Presence::Away) => {
                format!("the reader waits for {seconds:.1} s; the lease has ended, another disk server takes over")
            }
            _ => format!("the reader waits for {seconds:.1} s; the lease of {victim} still runs"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_explained_while_it_lasts() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut pause = ReaderPause::new("disk2", 10, start);
        let mut look = |has, millis, presence| pause.look(has, at(millis), || Some(presence)).unwrap_or_default();
        assert_eq!(look(10, 1000, Presence::Suspect), "", "an ordinary wait");
        assert_eq!(look(20, 1100, Presence::Suspect), "", "it had these bytes on their way");
        let first = look(20, 2700, Presence::Suspect);
        assert!(first.contains("lease of disk2 to end, at most 5 s after") && first.contains("After 40 s"), "{first}");
        assert_eq!(look(20, 4600, Presence::Suspect), "");
        assert_eq!(look(20, 4700, Presence::Suspect), "the reader waits for 3.6 s; the lease of disk2 still runs");
        let ended = "the reader waits for 5.6 s; the lease has ended, another disk server takes over";
        assert_eq!(look(20, 6700, Presence::Away), ended);
        assert_eq!(look(30, 7100, Presence::Away), "the reader goes on after 6.0 s");
        assert_eq!(look(30, 9900, Presence::Away), "", "it is explained once");
    }
}
