//! Shows a run in progress: a line or a table on the terminal, and a web page. Both can stop it.

mod keys;
mod table;
mod web;

use std::io::{IsTerminal as _, Write as _};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bench::coordinate::View;
use bench::measure::Progress;
use bench::units::show_rate;

use self::keys::Keys;
pub(super) use self::web::Web;
use types::units::show_duration;

/// Shortest time between two redraws of a table.
const DRAW_EACH: Duration = Duration::from_millis(450);

/// The present activity, in words.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Activity {
    /// The trial's name and number.
    pub(super) trial: String,
    /// Its phase.
    pub(super) phase: String,
}

/// The state that all displays share.
#[derive(Clone, Default)]
pub(super) struct DisplayState {
    doing: Arc<Mutex<Activity>>,
    /// The machines; `None` if this machine works alone and nobody watches a server.
    machines: Option<Arc<Mutex<View>>>,
}

impl DisplayState {
    pub(super) fn new(machines: Option<Arc<Mutex<View>>>) -> Self {
        Self { doing: Arc::default(), machines }
    }

    fn doing(&self) -> Activity {
        self.doing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn view(&self) -> Option<View> {
        self.machines.as_ref().map(|view| view.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

/// The display on the terminal.
pub(super) struct Screen {
    sight: DisplayState,
    is_on: bool,
    /// Lines that it occupies; the cursor is on the last.
    shown: usize,
    drawn: Option<Instant>,
    keys: Option<Keys>,
}

impl Screen {
    /// Pressing `q` sets `stop`.
    pub(super) fn new(quiet: bool, sight: DisplayState, stop: &Arc<AtomicBool>) -> Self {
        let is_on = !quiet && std::io::stderr().is_terminal();
        let keys = if is_on { Keys::listen(stop) } else { None };
        Self { sight, is_on, shown: 0, drawn: None, keys }
    }

    /// Shows the progress.
    pub(super) fn show(&mut self, trial: &str, phase: &str, progress: Progress) {
        *self.sight.doing.lock().unwrap_or_else(PoisonError::into_inner) =
            Activity { trial: trial.to_owned(), phase: phase.to_owned() };
        if !self.is_on {
            return;
        }
        match self.sight.view() {
            None => self.draw(&[line(trial, phase, progress, size().0)]),
            Some(view) if self.drawn.is_none_or(|drawn| drawn.elapsed() >= DRAW_EACH) => {
                self.drawn = Some(Instant::now());
                let hint = if self.keys.is_some() { "q: stop" } else { "" };
                let size = size();
                let now = format!(": {phase} {}", show_duration(progress.elapsed));
                let title = fitted(trial, &now, size.0.saturating_sub(hint.len() + 1));
                self.draw(&table::lines(&title, hint, &view, size));
            }
            Some(_) => {}
        }
    }

    fn draw(&mut self, lines: &[String]) {
        let text = format!("{}{}", self.erased(), lines.join("\r\n"));
        // Stderr may be closed.
        let _ = write!(std::io::stderr(), "{text}");
        self.shown = lines.len();
    }

    fn erased(&self) -> String {
        match self.shown {
            0 | 1 => "\r\x1b[J".to_owned(),
            lines => format!("\r\x1b[{}A\x1b[J", lines - 1),
        }
    }

    /// Clears the display.
    pub(super) fn clear(&mut self) {
        if self.shown > 0 {
            let _ = write!(std::io::stderr(), "{}", self.erased());
            self.shown = 0;
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.clear();
    }
}

/// The line for a single machine. A longer one than the terminal is wide could not be erased.
fn line(trial: &str, phase: &str, progress: Progress, columns: usize) -> String {
    let rate = if progress.last.bytes > 0 {
        show_rate(progress.last.bytes)
    } else {
        format!("{} /s", progress.last.operations)
    };
    let failures =
        if progress.done.failures > 0 { format!(", {} failed", progress.done.failures) } else { String::new() };
    let now = format!(": {phase} {} {rate}{failures}", show_duration(progress.elapsed));
    fitted(trial, &now, columns.saturating_sub(1))
}

/// A trial and what it does now, in so many columns. If they are too few, parameters are left out.
fn fitted(trial: &str, now: &str, columns: usize) -> String {
    let len = |text: &str| text.chars().count();
    let (parameters, system) = trial.split_at(trial.rfind(" on ").unwrap_or(trial.len()));
    let room = columns.saturating_sub(len(system) + len(now));
    let parameters = match len(parameters) {
        known if known <= room => parameters.to_owned(),
        _ => parameters.chars().take(room.saturating_sub(1)).chain(['…']).collect(),
    };
    format!("{parameters}{system}{now}").chars().take(columns).collect()
}

/// The terminal's size in columns and rows.
fn size() -> (usize, usize) {
    match rustix::termios::tcgetwinsize(std::io::stderr()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (usize::from(size.ws_col), usize::from(size.ws_row)),
        _ => (80, 24),
    }
}

#[cfg(test)]
mod tests {
    use bench::load::Reading;

    use super::*;

    #[test]
    fn rates_have_the_units_of_the_reports() {
        let last = Reading { operations: 3, bytes: 104_900_000, failures: 0 };
        let progress = Progress { elapsed: Duration::from_secs(3), done: last, last };
        assert_eq!(line("1/2 large", "write", progress, 80), "1/2 large: write 3.0 s 105 MB/s");
    }

    #[test]
    fn a_narrow_terminal_shows_the_phase_and_the_system() {
        let shown = |columns| fitted("1/2 large file=2 GB block=1 MB window=1 on weir", ": write 3.0 s", columns);
        assert_eq!(shown(60), "1/2 large file=2 GB block=1 MB window=1 on weir: write 3.0 s");
        assert_eq!(shown(59), "1/2 large file=2 GB block=1 MB window… on weir: write 3.0 s");
        assert_eq!(shown(35), "1/2 large fil… on weir: write 3.0 s");
        assert_eq!((shown(10).chars().count(), shown(0).as_str()), (10, ""));
    }
}
