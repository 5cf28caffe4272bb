//! The loop that shows a source: again and again on a terminal, block after block elsewhere, or once.

use std::io::{IsTerminal as _, Write as _};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use console::{Exit, Failure};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGWINCH};
use signal_hook::iterator::Signals;

/// Terminals that do not say how large they are.
const USUAL_SIZE: Size = Size { columns: 80, rows: 24 };
/// Failed looks in a row before the run ends: a node that is started again comes back.
const FAILURES_MAX: u32 = 10;

/// A terminal's size in characters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size {
    /// Characters on a line.
    pub columns: usize,
    /// Lines.
    pub rows: usize,
}

/// Something that a wait was cut short by.
enum Event {
    /// The terminal has another size.
    Resized,
    /// The user has had enough.
    Stop,
}

/// What is looked at.
pub trait Source {
    /// What is seen now; `None`: it takes another look.
    ///
    /// # Errors
    /// What keeps it from being seen.
    fn look(&mut self) -> Result<Option<Box<dyn Seen>>, Failure>;
}

/// What was seen.
pub trait Seen {
    /// On one line.
    fn json(&self) -> String;
    /// For people; on a terminal of `size` no more and no longer lines than fit, with the headings in bold.
    fn lines(&self, size: Option<Size>) -> Vec<String>;
}

/// How it is shown.
#[derive(Clone, Debug, Default)]
pub struct ShowOptions {
    /// Show one look, and end.
    pub once: bool,
    /// Print one JSON object and end; with `interval` one on a line for each look.
    pub json: bool,
    /// Seconds between two looks; 1 where nothing is said.
    pub interval: Option<f64>,
}

/// Shows what `source` sees until it is told to stop, or once.
///
/// # Errors
/// The interval is wrong, or nothing can be seen (on a terminal: several times in a row).
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

/// Writes to stdout; whether somebody still reads it.
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

/// The terminal's other screen, without a cursor; what was there before comes back when this is dropped.
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
