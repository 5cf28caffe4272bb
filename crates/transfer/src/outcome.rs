//! The outcome of a copy of many files: counts, printed lines, and the exit code.

use std::io::{IsTerminal as _, Write as _};
use std::time::Instant;

use console::Exit;
use serde_json::json;
use types::units::show_size;

use crate::bulk::Copied;
use crate::context::Context;
use crate::error::TransferError;
use crate::place::CopyPath;
use crate::plan::Item;

/// The outcome so far.
pub(crate) struct Outcome {
    command: &'static str,
    /// Something could not be looked into.
    pub(crate) incomplete: bool,
    /// A stop was reported already.
    stopped: bool,
    removed: u64,
    json: bool,
    quiet: bool,
    began: Instant,
    files: u64,
    skipped: u64,
    failed: u64,
    unverified: u64,
    bytes: u64,
    exit: Option<Exit>,
}

impl Outcome {
    pub(crate) fn of(command: &'static str, json: bool, quiet: bool) -> Self {
        Self {
            command,
            incomplete: false,
            stopped: false,
            removed: 0,
            json,
            quiet,
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
            let _ = writeln!(std::io::stdout(), "{what} {place}");
        }
    }

    pub(crate) fn removed(&mut self, place: &CopyPath) {
        self.removed += 1;
        if self.json {
            Self::print(&json!({ "to": place.to_string(), "state": "removed" }));
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
        }
    }

    pub(crate) fn failed(&mut self, from: &CopyPath, to: Option<&CopyPath>, error: &TransferError) {
        self.failed += 1;
        let exit = error.exit();
        // Several kinds of failure share no specific code.
        self.exit = Some(self.exit.map_or(exit, |before| if before == exit { exit } else { Exit::Failed }));
        if self.json {
            let to = to.map(CopyPath::to_string);
            let (state, text) = ("failed", error.to_string());
            Self::print(&json!({ "from": from.to_string(), "to": to, "state": state, "error": text }));
        }
        // One message is enough for all files that were stopped together.
        if !(matches!(error, TransferError::Stopped) && std::mem::replace(&mut self.stopped, true)) {
            self.say(&error.to_string());
        }
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
        if self.json {
            Self::print(&json!({ "summary": {
                "copied": self.files, "removed": self.removed, "skipped": self.skipped, "failed": self.failed, "unverified": self.unverified,
                "bytes": self.bytes, "seconds": seconds,
            }}));
        } else if !self.quiet && (std::io::stderr().is_terminal() || self.failed > 0 && self.files + self.failed > 1) {
            self.say(&self.summary(seconds));
        }
        if context.stopping() {
            return Exit::Unclean;
        }
        self.exit.unwrap_or(Exit::Done)
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
