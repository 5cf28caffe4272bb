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

use self::keys::Keys;
pub(super) use self::web::Web;
use types::units::{show_duration, show_size};

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
            None => self.draw(&[line(trial, phase, progress)]),
            Some(view) if self.drawn.is_none_or(|drawn| drawn.elapsed() >= DRAW_EACH) => {
                self.drawn = Some(Instant::now());
                let title = format!("{trial}: {phase} {}", show_duration(progress.elapsed));
                let hint = if self.keys.is_some() { "q: stop" } else { "" };
                self.draw(&table::lines(&title, hint, &view, size()));
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

/// The line for a single machine.
fn line(trial: &str, phase: &str, progress: Progress) -> String {
    let rate = if progress.last.bytes > 0 {
        format!("{}/s", show_size(progress.last.bytes))
    } else {
        format!("{} /s", progress.last.operations)
    };
    let failures =
        if progress.done.failures > 0 { format!(", {} failed", progress.done.failures) } else { String::new() };
    format!("{trial}: {phase} {} {rate}{failures}", show_duration(progress.elapsed))
}

/// The terminal's size in columns and rows.
fn size() -> (usize, usize) {
    match rustix::termios::tcgetwinsize(std::io::stderr()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (usize::from(size.ws_col), usize::from(size.ws_row)),
        _ => (80, 24),
    }
}
