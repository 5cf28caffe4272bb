//! The outcome of a copy of many files: counts, printed lines, and the exit code.

use std::io::{IsTerminal as _, Write as _};
use std::time::Instant;

use console::Exit;
use serde_json::json;
use types::units::show_size;

use crate::bulk::Copied;
use crate::context::Context;
use crate::error::TransferError;
use crate::options::TransferOptions;
use crate::place::CopyPath;
use crate::plan::Item;

/// The outcome so far.
pub(crate) struct Outcome {
    command: &'static str,
    /// Something could not be looked into.
    pub(crate) incomplete: bool,
    /// Files whose copy a stop has ended.
    stopped: u64,
    /// Files that were found and whose copy had not begun at a stop.
    not_begun: u64,
    /// A stop has ended the search for files.
    search_stopped: bool,
    removed: u64,
    json: bool,
    quiet: bool,
    verbose: bool,
    began: Instant,
    files: u64,
    skipped: u64,
    failed: u64,
    unverified: u64,
    bytes: u64,
    exit: Option<Exit>,
}

impl Outcome {
    pub(crate) fn of(command: &'static str, how: &TransferOptions) -> Self {
        let TransferOptions { json, quiet, verbose, .. } = *how;
        Self {
            command,
            incomplete: false,
            stopped: 0,
            not_begun: 0,
            search_stopped: false,
            removed: 0,
            json,
            quiet,
            verbose,
            began: Instant::now(),
            files: 0,
            skipped: 0,
            failed: 0,
            unverified: 0,
            bytes: 0,
            exit: None,
        }
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failed > 0
    }

    /// A worker has panicked, so its files were not copied.
    pub(crate) fn broke(&mut self) {
        self.failed += 1;
        self.exit = Some(Exit::Broken);
        self.say("a bug: a thread that copies has died; its files were not copied");
    }

    /// Nothing was removed, because not all of the source was seen.
    pub(crate) fn kept_all(&mut self) {
        self.say("nothing was removed at the target, because not everything at the source could be looked at");
        self.exit = self.exit.or(Some(Exit::Wrong));
    }

    /// Prints an action of a dry run.
    pub(crate) fn would(&self, what: &str, place: &CopyPath) {
        if self.json {
            Self::print(&json!({ "would": what, "to": place.to_string() }));
        } else {
            Self::line(&format!("{what} {place}"));
        }
    }

    /// Prints a line for a person on stdout, over the progress line if both are on the terminal.
    fn line(text: &str) {
        let clear = if std::io::stdout().is_terminal() { "\r\x1b[K" } else { "" };
        // Names must not manipulate a terminal.
        let text = if text.chars().any(char::is_control) { text.escape_debug().to_string() } else { text.to_owned() };
        let _ = writeln!(std::io::stdout(), "{clear}{text}");
    }

    pub(crate) fn removed(&mut self, place: &CopyPath) {
        self.removed += 1;
        if self.json {
            Self::print(&json!({ "to": place.to_string(), "state": "removed" }));
        } else if self.verbose {
            Self::line(&format!("removed {place}"));
        }
    }

    pub(crate) fn copied(&mut self, item: &Item, copied: &Copied) {
        self.bytes += copied.bytes;
        if copied.skipped {
            self.skipped += 1;
        } else {
            self.files += 1;
            self.unverified += u64::from(!copied.verified);
        }
        if self.json {
            let sum = copied.sum.map(|sum| sum.to_string());
            let state = if copied.skipped { "skipped" } else { "copied" };
            Self::print(&json!({
                "from": item.from.to_string(), "to": item.to.to_string(), "state": state, "bytes": copied.bytes,
                "size": copied.len, "checksum": sum, "verified": copied.verified,
            }));
        } else if self.verbose && item.to != CopyPath::Standard && !(copied.skipped && self.command == "sync") {
            let there = if copied.skipped { " (was there)" } else { "" };
            Self::line(&format!("{} -> {}{there}", item.from, item.to));
        }
    }

    /// A stop came before the copy of a file had begun.
    pub(crate) fn not_begun(&mut self) {
        self.not_begun += 1;
    }

    /// A stop came before all files were found.
    pub(crate) fn search_stopped(&mut self) {
        self.search_stopped = true;
    }

    pub(crate) fn failed(&mut self, from: &CopyPath, to: Option<&CopyPath>, error: &TransferError) {
        if matches!(error, TransferError::Stopped) {
            self.stopped += 1;
            if self.json {
                let to = to.map(CopyPath::to_string);
                Self::print(&json!({ "from": from.to_string(), "to": to, "state": "stopped" }));
            }
            // The summary says it once for all of them.
            return;
        }
        self.failed += 1;
        self.exit = Some(error.exit().after(self.exit));
        if self.json {
            let to = to.map(CopyPath::to_string);
            let (state, text) = ("failed", error.to_string());
            Self::print(&json!({ "from": from.to_string(), "to": to, "state": state, "error": text }));
        }
        self.say(&error.to_string());
    }

    pub(crate) fn say(&self, text: &str) {
        // The progress line may occupy this line.
        let clear = if std::io::stderr().is_terminal() { "\r\x1b[K" } else { "" };
        let _ = writeln!(std::io::stderr(), "{clear}weir {}: {text}", self.command);
    }

    fn print(value: &serde_json::Value) {
        let _ = writeln!(std::io::stdout(), "{value}");
    }

    pub(crate) fn end(&self, context: &Context) -> Exit {
        let seconds = self.began.elapsed().as_secs_f64();
        for note in context.notes() {
            self.say(&note);
        }
        let stopping = context.stopping();
        if self.json {
            Self::print(&json!({ "summary": {
                "copied": self.files, "removed": self.removed, "skipped": self.skipped, "failed": self.failed,
                "stopped": self.stopped, "not_begun": self.not_begun, "all_found": !self.search_stopped,
                "unverified": self.unverified, "bytes": self.bytes, "seconds": seconds,
            }}));
        } else if stopping {
            self.say(&format!("stopped before it was done: {}{}", self.summary(seconds), self.undone()));
        } else if !self.quiet && (std::io::stderr().is_terminal() || self.failed > 0 && self.files + self.failed > 1) {
            self.say(&self.summary(seconds));
        }
        if stopping {
            return Exit::Unclean;
        }
        match self.exit {
            // That code says that nothing was touched.
            Some(Exit::Usage) if self.files + self.removed > 0 => Exit::Failed,
            exit => exit.unwrap_or(Exit::Done),
        }
    }

    /// What a stop has prevented.
    fn undone(&self) -> String {
        let mut text = String::new();
        if self.stopped > 0 {
            text.push_str(&format!("; {} ended on the way", self.stopped));
        }
        if self.not_begun > 0 || self.search_stopped {
            let least = if self.search_stopped { "at least " } else { "" };
            text.push_str(&format!("; {least}{} not begun", self.not_begun));
        }
        text
    }

    fn summary(&self, seconds: f64) -> String {
        #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let rate = (self.bytes as f64 / seconds.max(1e-3)) as u64; // only for display
        let files = if self.files == 1 { "1 file".to_owned() } else { format!("{} files", self.files) };
        let mut text = format!("{files}, {} in {seconds:.1} s, {}/s", show_size(self.bytes), show_size(rate));
        if self.skipped > 0 {
            text.push_str(&format!("; {} were there already", self.skipped));
        }
        if self.removed > 0 {
            text.push_str(&format!("; {} removed", self.removed));
        }
        if self.unverified > 0 {
            text.push_str(&format!("; {} not compared", self.unverified));
        }
        if self.failed > 0 {
            text.push_str(&format!("; {} failed", self.failed));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test may fail this way

    use client::Settings;

    use super::*;
    use crate::plan::CopyAction;
    use crate::waits::{Shown, WaitNotices};

    fn context() -> Context {
        let options = crate::options::tests::plain().of_each_file();
        Context::new(options, Settings::default(), WaitNotices::new(Shown::Off))
    }

    fn item() -> Item {
        let (from, to) = (CopyPath::parse("/a").unwrap(), CopyPath::parse("/b").unwrap());
        Item { from, to, size: None, mtime: None, how: CopyAction::New }
    }

    fn copied() -> Copied {
        Copied { bytes: 1, len: 1, sum: None, verified: true, skipped: false }
    }

    #[test]
    fn what_a_stop_has_ended_is_neither_copied_nor_failed() {
        let mut outcome = Outcome::of("cp", &crate::options::tests::plain());
        outcome.copied(&item(), &copied());
        for _ in 0..3 {
            outcome.failed(&item().from, None, &TransferError::Stopped);
        }
        outcome.not_begun();
        assert_eq!(outcome.undone(), "; 3 ended on the way; 1 not begun");
        outcome.search_stopped();
        assert_eq!(outcome.undone(), "; 3 ended on the way; at least 1 not begun");
        assert!(outcome.summary(1.0).starts_with("1 file, ") && !outcome.summary(1.0).contains("failed"));
        assert!(!outcome.has_failed());
    }

    #[test]
    fn a_usage_error_after_work_is_no_usage_error() {
        let directory = TransferError::IsDirectory { path: "/d".into() };
        let mut outcome = Outcome::of("cp", &crate::options::tests::plain());
        outcome.failed(&item().from, None, &directory);
        assert_eq!(outcome.end(&context()), Exit::Usage);
        outcome.copied(&item(), &copied());
        assert_eq!(outcome.end(&context()), Exit::Failed);
        let mut outcome = Outcome::of("cp", &crate::options::tests::plain());
        outcome.copied(&item(), &Copied { skipped: true, ..copied() });
        outcome.failed(&item().from, None, &directory);
        assert_eq!(outcome.end(&context()), Exit::Usage, "a file that was there already is no work");
    }
}
