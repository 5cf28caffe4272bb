//! The progress of a copy, and the line that shows it.

use std::collections::VecDeque;
use std::io::{IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use types::units::show_size;

use crate::waits::WaitNotices;

/// How often the line is redrawn.
const EVERY: Duration = Duration::from_millis(200);
/// The shown rate is the average over this time.
const SPAN: Duration = Duration::from_secs(5);

/// Counts of one copy.
#[derive(Debug, Default)]
pub struct Progress {
    bytes: AtomicU64,
    bytes_skipped: AtomicU64,
    files: AtomicU64,
    bytes_found: AtomicU64,
    files_found: AtomicU64,
    all_found: AtomicBool,
    /// Files that are followed at this moment. Nobody knows how long they will be.
    followed: AtomicU64,
}

impl Progress {
    /// Counts transferred bytes.
    pub fn moved(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts bytes that existed already.
    pub fn skipped(&self, bytes: u64) {
        self.bytes_skipped.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts a finished file.
    pub fn file_done(&self) {
        self.files.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a file to copy, with its length or 0.
    pub fn found(&self, bytes: u64) {
        self.files_found.fetch_add(1, Ordering::Relaxed);
        self.bytes_found.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A file that is being written is followed from now on.
    pub fn follows(&self) {
        self.followed.fetch_add(1, Ordering::Relaxed);
    }

    /// It is followed no more.
    pub fn follows_no_more(&self) {
        self.followed.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts bytes that were added to a file since it was found.
    pub fn grew(&self, bytes: u64) {
        self.bytes_found.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Marks that the search has ended.
    pub fn found_all(&self) {
        self.all_found.store(true, Ordering::Relaxed);
    }

    /// Bytes transferred so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// The progress line on the terminal.
#[derive(Debug, Default)]
pub struct Line {
    looks: VecDeque<(Instant, u64, u64)>,
    width: usize,
}

impl Line {
    /// Redraws until `done`; does nothing if stderr is no terminal.
    pub fn run(&mut self, progress: &Progress, waits: &WaitNotices, done: &AtomicBool) {
        if !std::io::stderr().is_terminal() {
            return;
        }
        waits.has_line(true);
        while !done.load(Ordering::Relaxed) {
            std::thread::park_timeout(EVERY);
            let text = self.text(progress, Instant::now());
            // What keeps the copy from moving says more than a rate of 0.
            self.show(&waits.now().unwrap_or(text));
        }
        waits.has_line(false);
        self.show("");
        let _ = write!(std::io::stderr(), "\r");
    }

    fn show(&mut self, text: &str) {
        let columns =
            rustix::termios::tcgetwinsize(std::io::stderr()).map_or(80, |size| usize::from(size.ws_col.max(20)));
        let text = fitted(text, columns - 1);
        let blanks = self.width.saturating_sub(text.chars().count());
        self.width = text.chars().count();
        let _ = write!(std::io::stderr(), "\r{text}{:blanks$}", "");
        let _ = std::io::stderr().flush();
    }

    /// The text of the line at `now`.
    fn text(&mut self, progress: &Progress, now: Instant) -> String {
        let (bytes, files) = (progress.bytes(), progress.files.load(Ordering::Relaxed));
        self.looks.push_back((now, bytes, files));
        while self.looks.len() > 2 && self.looks.front().is_some_and(|(at, ..)| now - *at > SPAN) {
            self.looks.pop_front();
        }
        let (then, bytes_then, files_then) = self.looks.front().copied().unwrap_or((now, bytes, files));
        let seconds = (now - then).as_secs_f64().max(1e-3);
        let per_second = |count: u64| count as f64 / seconds;
        let (rate, file_rate) = (per_second(bytes - bytes_then), per_second(files - files_then));
        let follows = progress.followed.load(Ordering::Relaxed) > 0;
        let all = progress.all_found.load(Ordering::Relaxed) && !follows;
        let files_found = progress.files_found.load(Ordering::Relaxed);
        let bytes_found = progress.bytes_found.load(Ordering::Relaxed);
        let handled = bytes + progress.bytes_skipped.load(Ordering::Relaxed);
        let more = if all { "" } else { "+" };
        let mut text =
            format!("{} of {}{more}  {}/s", show_size(handled), show_size(bytes_found), show_size(whole(rate)));
        if follows {
            text.push_str("  following the writer");
        }
        if files_found > 1 {
            text.push_str(&format!("  {files} of {files_found}{more} files, {file_rate:.0}/s"));
        }
        if all && bytes_found > 0 {
            text.push_str(&format!("  {}%", handled.min(bytes_found) * 100 / bytes_found));
            if rate > 0.0 && bytes_found > handled {
                text.push_str(&format!("  {} left", in_words(((bytes_found - handled) as f64 / rate).ceil())));
            }
        }
        text
    }
}

/// The text in so many columns. A wait keeps its end, which says how long it lasts.
fn fitted(text: &str, columns: usize) -> String {
    let len = |text: &str| text.chars().count();
    let (what, times) = text.split_at(text.rfind("; waiting for ").unwrap_or(text.len()));
    if len(text) <= columns || len(times) >= columns {
        return text.chars().take(columns).collect();
    }
    what.chars().take(columns - len(times) - 1).chain(['…']).chain(times.chars()).collect()
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a rate for display
fn whole(rate: f64) -> u64 {
    rate.max(0.0) as u64
}

fn in_words(seconds: f64) -> String {
    let seconds = whole(seconds);
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{}:{:02} min", seconds / 60, seconds % 60),
        _ => format!("{}:{:02} h", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_shows_rate_share_and_time_left() {
        let progress = Progress::default();
        let mut line = Line::default();
        let start = Instant::now();
        progress.found(100 << 20);
        assert_eq!(line.text(&progress, start), "0 B of 100 MiB+  0 B/s");
        progress.found_all();
        progress.moved(25 << 20);
        assert_eq!(
            line.text(&progress, start + Duration::from_secs(1)),
            "25.0 MiB of 100 MiB  25.0 MiB/s  25%  3 s left"
        );
        progress.skipped(75 << 20);
        assert_eq!(line.text(&progress, start + Duration::from_secs(1)), "100 MiB of 100 MiB  25.0 MiB/s  100%");
        assert_eq!((in_words(61.0), in_words(7260.0)), ("1:01 min".into(), "2:01 h".into()));
    }

    #[test]
    fn nobody_knows_how_much_of_a_followed_file_is_left() {
        let progress = Progress::default();
        let mut line = Line::default();
        let start = Instant::now();
        progress.found(1 << 20);
        progress.found_all();
        progress.follows();
        line.text(&progress, start);
        progress.grew(1 << 20);
        progress.moved(2 << 20);
        let text = line.text(&progress, start + Duration::from_secs(1));
        assert_eq!(text, "2.00 MiB of 2.00 MiB+  2.00 MiB/s  following the writer");
        progress.follows_no_more();
        assert!(line.text(&progress, start + Duration::from_secs(1)).ends_with("100%"));
    }

    #[test]
    fn a_long_wait_keeps_its_times() {
        let wait = "host:1094 has nothing new (follow root://host//f); waiting for 2 s, gives up in 8 s";
        assert_eq!(fitted(wait, 200), wait);
        assert_eq!(fitted(wait, 60), "host:1094 has nothing new…; waiting for 2 s, gives up in 8 s");
        assert_eq!((fitted(wait, 20), fitted("12345", 3)), ("host:1094 has nothin".into(), "12…".into()));
    }

    #[test]
    fn several_files_are_counted() {
        let progress = Progress::default();
        progress.found(0);
        progress.found(0);
        progress.file_done();
        progress.found_all();
        let mut line = Line::default();
        let start = Instant::now();
        assert!(line.text(&progress, start).contains("1 of 2 files"));
    }
}
