//! The loop that shows a source: again and again on a terminal, block after block elsewhere, or once.

use std::io::{IsTerminal as _, Write as _};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use console::{Exit, Failure};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGWINCH};
use signal_hook::iterator::Signals;

/// For terminals that do not report their size.
const USUAL_SIZE: Size = Size { columns: 80, rows: 24 };
/// Failed looks in a row before the run ends; a restarted node comes back sooner.
const FAILURES_MAX: u32 = 10;

/// A terminal's size in characters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size {
    /// Characters on a line.
    pub columns: usize,
    /// Lines.
    pub rows: usize,
}

/// An event that interrupts a wait.
enum Event {
    /// The terminal has another size.
    Resized,
    /// The user asks for the end.
    Stop,
}

/// A source to look at.
pub trait Source {
    /// Looks now; `None`: it takes another look.
    ///
    /// # Errors
    /// What keeps it from looking.
    fn look(&mut self) -> Result<Option<Box<dyn Seen>>, Failure>;
}

/// The result of a look.
pub trait Seen {
    /// As one line of JSON.
    fn json(&self) -> String;
    /// As lines for people. On a terminal of `size` they fit, and headings are bold.
    fn lines(&self, size: Option<Size>) -> Vec<String>;
}

/// How to show it.
#[derive(Clone, Debug, Default)]
pub struct ShowOptions {
    /// Show one look, then end.
    pub once: bool,
    /// Print one JSON object and end; with `interval`, one line for each look.
    pub json: bool,
    /// Seconds between two looks; 1 by default.
    pub interval: Option<f64>,
}

/// Shows the looks at `source` until a signal stops it, or once.
///
/// # Errors
/// The interval is wrong, or the looks fail (on a terminal: several times in a row).
pub fn show(source: &mut dyn Source, args: &ShowOptions) -> Result<Exit, Failure> {
    let interval = args.interval.unwrap_or(1.0);
    if !(0.1..=3600.0).contains(&interval) {
        return Err(Failure::message(Exit::Usage, "--interval takes seconds from 0.1 to 3600"));
    }
    let interval = Duration::from_secs_f64(interval);
    let once = args.once || (args.json && args.interval.is_none());
    let events = events().map_err(|error| Failure::new(Exit::Failed, error).while_doing("cannot catch signals"))?;
    let mut shown = source.look()?;
    let on_terminal = std::io::stdout().is_terminal() && !once && !args.json;
    let _screen = on_terminal.then(AlternateScreen::enter);
    let mut failures = 0;
    loop {
        if let Some(seen) = &shown {
            let text = if args.json {
                format!("{}\n", seen.json())
            } else if on_terminal {
                let lines = seen.lines(Some(size()));
                let lines: Vec<_> = lines.iter().map(|line| format!("{line}\x1b[K")).collect();
                format!("\x1b[H{}\x1b[J", lines.join("\r\n"))
            } else {
                format!("{}\n\n", seen.lines(None).join("\n"))
            };
            if !put(&text)? || once {
                return Ok(Exit::Done);
            }
        }
        match wait(&events, interval) {
            Some(Event::Stop) => return Ok(Exit::Done),
            Some(Event::Resized) => {}
            None => match source.look() {
                Ok(seen) => (failures, shown) = (0, seen),
                Err(error) => {
                    failures += 1;
                    if failures >= FAILURES_MAX || !on_terminal {
                        return Err(error);
                    }
                    shown = None;
                    put(&format!("\x1b[H\x1b[J{error}\r\n"))?;
                }
            },
        }
    }
}

/// Writes to stdout. Returns whether it still has a reader.
fn put(text: &str) -> Result<bool, Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::new(Exit::Failed, error).while_doing("cannot write to stdout")),
    }
}

fn events() -> std::io::Result<Receiver<Event>> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGWINCH])?;
    let (sender, receiver) = channel();
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        for signal in signals.forever() {
            if sender.send(if signal == SIGWINCH { Event::Resized } else { Event::Stop }).is_err() {
                return;
            }
        }
    })?;
    Ok(receiver)
}

fn wait(events: &Receiver<Event>, interval: Duration) -> Option<Event> {
    match events.recv_timeout(interval) {
        Ok(event) => Some(event),
        Err(RecvTimeoutError::Timeout) => None,
        Err(RecvTimeoutError::Disconnected) => Some(Event::Stop),
    }
}

fn size() -> Size {
    match rustix::termios::tcgetwinsize(std::io::stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
            Size { columns: usize::from(size.ws_col), rows: usize::from(size.ws_row) }
        }
        _ => USUAL_SIZE,
    }
}

/// The terminal's alternate screen, without a cursor. Dropping this restores the earlier contents.
struct AlternateScreen;

impl AlternateScreen {
    fn enter() -> Self {
        let _ = put("\x1b[?1049h\x1b[?25l\x1b[2J");
        Self
    }
}

impl Drop for AlternateScreen {
    fn drop(&mut self) {
        let _ = put("\x1b[?25h\x1b[?1049l");
    }
}
