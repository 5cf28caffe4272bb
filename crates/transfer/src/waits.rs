//! What a command waits for: in the progress line, or on stderr where there is no such line.

use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::{Wait, Watch};
use parking_lot::Mutex;

/// How often a line is printed about waits.
const PRINT_EVERY: Duration = Duration::from_secs(10);
/// The client tells of a wait several times a second. When it has stopped to, the wait is over.
const OVER_AFTER: Duration = Duration::from_secs(1);

/// Whether waits are shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shown {
    /// In the progress line, and without one on stderr, as lines that begin with the command's name.
    On(&'static str),
    /// No.
    Off,
}

/// The waits that somebody should know of. Clones share them.
#[derive(Clone, Debug)]
pub struct WaitNotices {
    shown: Shown,
    latest: Arc<Mutex<Latest>>,
}

impl WaitNotices {
    /// Shows waits there.
    #[must_use]
    pub fn new(shown: Shown) -> Self {
        Self { shown, latest: Arc::default() }
    }

    /// Returns what the client's settings need to tell of its waits.
    #[must_use]
    pub fn watch(&self) -> Watch {
        if self.shown == Shown::Off {
            return Watch::default();
        }
        let of = self.clone();
        Watch::with(move |wait| of.heard(wait))
    }

    fn heard(&self, wait: &Wait<'_>) {
        let now = Instant::now();
        let printed = self.latest.lock().heard(wait.waited, &wait.to_string(), now);
        let Shown::On(command) = self.shown else { return };
        if let Some(text) = printed {
            // Stderr may be closed.
            let _ = writeln!(std::io::stderr(), "weir {command}: {text}");
        }
    }

    /// A progress line appears, or goes.
    pub(crate) fn has_line(&self, has_line: bool) {
        self.latest.lock().has_line = has_line;
    }

    /// Returns what is waited for at this moment, for the progress line.
    pub(crate) fn now(&self) -> Option<String> {
        self.latest.lock().at(Instant::now())
    }
}

/// The wait that was told last, or that has taken longest of several.
#[derive(Default, Debug)]
struct Latest {
    /// A progress line is on the terminal.
    has_line: bool,
    told: Option<(Instant, Duration, String)>,
    printed: Option<Instant>,
}

impl Latest {
    /// Notes a wait. Returns the text if it should be printed.
    fn heard(&mut self, waited: Duration, text: &str, now: Instant) -> Option<String> {
        let is_past = |since: Option<Instant>, after| since.is_none_or(|since| now.duration_since(since) >= after);
        let longest =
            self.told.as_ref().is_none_or(|(at, longest, _)| is_past(Some(*at), OVER_AFTER) || waited >= *longest);
        if longest {
            self.told = Some((now, waited, text.to_owned()));
        }
        if self.has_line || !is_past(self.printed, PRINT_EVERY) {
            return None;
        }
        self.printed = Some(now);
        Some(text.to_owned())
    }

    fn at(&self, now: Instant) -> Option<String> {
        let (_, _, text) = self.told.as_ref().filter(|(at, ..)| now.saturating_duration_since(*at) < OVER_AFTER)?;
        Some(text.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_in_ten_seconds_is_printed_and_the_longest_wait_is_shown_until_it_ends() {
        let mut latest = Latest::default();
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut printed = Vec::new();
        for tick in 0..48 {
            let text = format!("a for {} s", 2 + tick / 4);
            printed.extend(latest.heard(Duration::from_millis(2000 + 250 * tick), &text, at(250 * tick)));
            printed.extend(latest.heard(Duration::from_secs(2), "b", at(250 * tick + 1)));
        }
        assert_eq!(printed, ["a for 2 s", "a for 12 s"]);
        assert_eq!(latest.at(at(11_751)).as_deref(), Some("a for 13 s"));
        assert_eq!(latest.at(at(12_751)), None, "it is over");
        latest.heard(Duration::from_secs(2), "b", at(13_000));
        assert_eq!(latest.at(at(13_001)).as_deref(), Some("b"));
        latest.has_line = true;
        assert_eq!(latest.heard(Duration::from_secs(30), "c", at(60_000)), None, "the line shows it");
        assert_eq!(latest.at(at(60_001)).as_deref(), Some("c"));
    }
}
