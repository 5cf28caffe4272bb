//! How far the copies of missing replicas are, in words.

use std::io::Write as _;
use std::time::{Duration, Instant};

use config::units::{show_duration, show_size};
use manager::{CopyProgress, FailedCopyView};

use super::counted;
use crate::wrap::wrapped;

/// How often a command that waits asks for the progress.
const LOOK: Duration = Duration::from_millis(500);
/// How often it prints the progress at most. Rates change with each look.
const PRINT: Duration = Duration::from_secs(2);

/// The progress that a waiting command shows on stderr.
#[derive(Default)]
pub(super) struct Progress {
    shown: Vec<String>,
    printed: Option<Instant>,
}

impl Progress {
    /// Prints these lines if they are others than before, and pauses until the next look.
    pub(super) fn show_and_pause(&mut self, lines: Vec<String>) {
        if lines != self.shown && self.printed.is_none_or(|printed| printed.elapsed() >= PRINT) {
            // Stderr may be closed.
            let _ = writeln!(std::io::stderr(), "{}", wrapped(lines.clone()).join("\n"));
            (self.shown, self.printed) = (lines, Some(Instant::now()));
        }
        std::thread::sleep(LOOK);
    }
}

/// What is left to copy, at which rate, and how long that takes. `None`: nothing is left. `more_follows`: not all missing replicas are known yet.
pub(super) fn left(progress: &CopyProgress, more_follows: bool) -> Option<String> {
    let CopyProgress { missing_bytes, bytes_per_second, seconds_left, .. } = progress;
    if missing_bytes.count == 0 {
        return None;
    }
    let is_least = more_follows || missing_bytes.and_more;
    let at_least = if is_least { "at least " } else { "" };
    let mut text = format!("{at_least}{} to copy", show_size(missing_bytes.count));
    if let (Some(rate), Some(seconds)) = (bytes_per_second, seconds_left) {
        let about = if is_least { "at least" } else { "about" };
        text += &format!(", at {}/s: {about} {}", show_size(*rate), show_duration(Duration::from_secs(*seconds)));
    }
    Some(text)
}

/// The missing replicas whose last copy has failed, if any.
pub(super) fn failed(progress: &CopyProgress) -> Option<String> {
    let FailedCopyView { path, from, to, why, times } = progress.last_failed.as_ref()?;
    let what = path.as_deref().unwrap_or("a file that was removed since");
    let latest = if progress.failed > 1 { "; the latest" } else { "" };
    let replicas = counted(progress.failed, "replica");
    let times = if *times > 1 { format!(" ({times} times)") } else { String::new() };
    Some(format!(
        "{replicas} could not be made yet, and repair tries again{latest}: {what}, from {from} to {to}{times}: {why}"
    ))
}

#[cfg(test)]
mod tests {
    use manager::Counted;

    use super::*;

    #[test]
    fn progress_names_bytes_rate_and_time() {
        let missing_bytes = Counted { count: 300 << 20, and_more: false };
        let progress = CopyProgress { missing_bytes, ..CopyProgress::default() };
        assert_eq!(left(&CopyProgress::default(), false), None);
        assert_eq!(left(&progress, false).unwrap(), "300 MiB to copy", "no copy has ended yet");
        let progress = CopyProgress { bytes_per_second: Some(100 << 20), seconds_left: Some(3), ..progress };
        assert_eq!(left(&progress, false).unwrap(), "300 MiB to copy, at 100 MiB/s: about 3.0 s");
        assert_eq!(left(&progress, true).unwrap(), "at least 300 MiB to copy, at 100 MiB/s: at least 3.0 s");
    }

    #[test]
    fn a_failure_names_file_stores_and_reason() {
        assert_eq!(failed(&CopyProgress::default()), None);
        let failure = |times| FailedCopyView {
            path: Some("/f".into()),
            from: "store 1".into(),
            to: "store 2".into(),
            why: "the source store does not answer".into(),
            times,
        };
        let with =
            |failed, times| CopyProgress { failed, last_failed: Some(failure(times)), ..CopyProgress::default() };
        assert_eq!(
            failed(&with(1, 1)).unwrap(),
            "1 replica could not be made yet, and repair tries again: /f, from store 1 to store 2: the source store does not answer"
        );
        assert_eq!(
            failed(&with(3, 2)).unwrap(),
            "3 replicas could not be made yet, and repair tries again; the latest: /f, from store 1 to store 2 (2 times): the source store does not answer"
        );
    }
}
