//! Authorities that are read again while a service runs, and which reading counts. Tools fetch revocation lists every few hours, and a file may be damaged
//! only while one of them writes it. So what was read before stays in use for a while. Then the authority of a damaged list is not trusted any more: it may
//! have revoked any certificate.
//!
//! All of it is pure but the log.

use std::time::Duration;

use crate::Trust;

/// How often the files are read while some of them cannot be used.
const BAD_EVERY: Duration = Duration::from_secs(10);
/// How long the authorities of before stay in use. It is short, because what others have revoked meanwhile does not count.
const KEPT_MAX: Duration = Duration::from_secs(600);

/// One reading of the files.
pub trait Reading {
    /// How many authorities are not trusted because a file of theirs, such as their revocation list, cannot be used.
    fn unusable_authorities(&self) -> usize;
    /// What was left out, for the log.
    fn problems(&self) -> &[String];
    /// Whether no authority is trusted at all.
    fn is_nobody(&self) -> bool {
        false
    }
}

impl Reading for Trust {
    fn unusable_authorities(&self) -> usize {
        self.unusable_authorities()
    }

    fn problems(&self) -> &[String] {
        self.problems()
    }
}

impl Reading for grid::Trust {
    fn unusable_authorities(&self) -> usize {
        self.unusable_authorities()
    }

    fn problems(&self) -> &[String] {
        self.problems()
    }
}

/// When to read again, and what to use. Times are of a steady clock.
#[derive(Debug)]
pub struct Rereading {
    /// What the authorities are for, for the log.
    purpose: &'static str,
    every: Duration,
    read: Duration,
    unusable: usize,
    /// Since when the authorities of before stay in use.
    kept_since: Option<Duration>,
    /// The problems of the last reading, which the log has.
    told: Vec<String>,
}

impl Rereading {
    /// After the first reading, at `now`. While all is well, the next one is due `every` so often.
    #[must_use]
    pub fn new(purpose: &'static str, every: Duration, now: Duration, first: &impl Reading) -> Self {
        let mut new = Self { purpose, every, read: now, unusable: 0, kept_since: None, told: Vec::new() };
        new.note(now, first);
        new
    }

    /// Whether the files are to be read.
    #[must_use]
    pub fn is_due(&self, now: Duration) -> bool {
        let every = if self.unusable > 0 { self.every.min(BAD_EVERY) } else { self.every };
        now.saturating_sub(self.read) >= every
    }

    /// How many authorities had a file that cannot be used when they were read last, even if those of before are in use.
    #[must_use]
    pub fn unusable_authorities(&self) -> usize {
        self.unusable
    }

    /// The files could not be read at all. What was read before stays in use.
    pub fn failed(&mut self, now: Duration) {
        self.read = now;
    }

    /// Returns `again`, which was read now, if it is to be used from now on. `None`: `before` stays in use.
    pub fn choose<R: Reading>(&mut self, now: Duration, again: R, before: &R) -> Option<R> {
        self.note(now, &again);
        let trusted = |reading: &R| (reading.is_nobody(), reading.unusable_authorities());
        let is_worse = !before.is_nobody() && trusted(&again) > trusted(before);
        let since = *self.kept_since.get_or_insert(now);
        if is_worse && now.saturating_sub(since) < KEPT_MAX {
            if since == now {
                tracing::error!(
                    unusable_authorities = again.unusable_authorities(),
                    "a revocation list or signing policy for {} has become unusable; what was read before stays in use for {} minutes at most",
                    self.purpose,
                    KEPT_MAX.as_secs() / 60
                );
            }
            return None;
        }
        self.kept_since = None;
        Some(again)
    }

    /// Tells each problem once, as long as it lasts.
    fn note(&mut self, now: Duration, reading: &impl Reading) {
        self.read = now;
        self.unusable = reading.unusable_authorities();
        for problem in reading.problems().iter().filter(|problem| !self.told.contains(problem)) {
            tracing::warn!("for {}: {problem}", self.purpose);
        }
        self.told = reading.problems().to_vec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Found(Vec<String>, bool);

    impl Reading for Found {
        fn unusable_authorities(&self) -> usize {
            self.0.len()
        }

        fn is_nobody(&self) -> bool {
            self.1
        }

        fn problems(&self) -> &[String] {
            &self.0
        }
    }

    fn found(unusable: usize) -> Found {
        Found((0..unusable).map(|number| number.to_string()).collect(), false)
    }

    fn nobody(unusable: usize) -> Found {
        Found(found(unusable).0, true)
    }

    fn at(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn what_was_read_before_stays_in_use_while_a_file_may_be_written() {
        let good = found(0);
        let mut rereading = Rereading::new("tests", at(3600), at(0), &good);
        assert!(!rereading.is_due(at(3599)) && rereading.is_due(at(3600)));
        assert!(rereading.choose(at(3600), found(1), &good).is_none());
        assert_eq!(rereading.unusable_authorities(), 1);
        assert!(!rereading.is_due(at(3609)) && rereading.is_due(at(3610)));
        assert!(rereading.choose(at(3610), found(0), &good).is_some(), "all is well again");
        assert!(!rereading.is_due(at(3620)));
        assert!(rereading.choose(at(8000), found(1), &good).is_none());
        assert!(rereading.choose(at(8599), found(1), &good).is_none());
        assert!(rereading.choose(at(8600), found(1), &good).is_some(), "its authority is not trusted any more");
        // That is the best that there is, until another one gets worse.
        assert!(rereading.choose(at(8610), found(1), &found(1)).is_some());
        assert!(rereading.choose(at(8620), found(2), &found(1)).is_none());
    }

    #[test]
    fn nobody_is_worse_than_some_and_never_kept() {
        let mut rereading = Rereading::new("tests", at(600), at(0), &found(1));
        assert!(
            rereading.choose(at(600), nobody(1), &found(1)).is_none(),
            "a file of the last good one is being replaced"
        );
        assert!(rereading.choose(at(1200), nobody(1), &found(1)).is_some());
        assert!(rereading.choose(at(1210), found(2), &nobody(1)).is_some());
        assert!(rereading.choose(at(1220), nobody(3), &nobody(1)).is_some());
    }

    #[test]
    fn a_reading_that_fails_comes_again_in_its_time() {
        let mut rereading = Rereading::new("tests", at(600), at(0), &found(0));
        rereading.failed(at(600));
        assert!(!rereading.is_due(at(1199)) && rereading.is_due(at(1200)));
    }

    #[test]
    fn the_log_tells_each_problem_once() {
        let mut rereading = Rereading::new("tests", at(600), at(0), &found(2));
        assert_eq!(rereading.told, ["0", "1"]);
        rereading.choose(at(600), found(1), &found(2));
        assert_eq!(rereading.told, ["0"], "one that comes back is told again");
    }
}
