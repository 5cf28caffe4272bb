//! `weir top`: what a node does just now, read from its `/metrics`.

mod page;
mod rates;
mod screen;

use std::io::{IsTerminal as _, Write as _};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGWINCH};
use signal_hook::iterator::Signals;

use crate::Failure;
use crate::cli::TopArgs;
use crate::exit::Exit;
use page::{Page, Target};
use rates::Rates;

/// Terminals that do not say how large they are.
const USUAL_SIZE: Size = Size { columns: 80, rows: 24 };
/// Failed looks in a row before the run ends: a node that is started again comes back.
const FAILURES_MAX: u32 = 10;

/// A terminal's size in characters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Size {
    columns: usize,
    rows: usize,
}

/// Something that a wait was cut short by.
enum Event {
    /// The terminal has another size.
    Resized,
    /// The user has had enough.
    Stop,
}

/// Shows rates until it is told to stop; with `--once` once.
pub fn run(args: &TopArgs) -> Result<Exit, Failure> {
    let target = Target::parse(&args.node).map_err(|error| Failure::new(Exit::Usage, error))?;
    if !(0.1..=3600.0).contains(&args.interval) {
        return Err(Failure::message(Exit::Usage, "--interval takes seconds from 0.1 to 3600"));
    }
    let interval = Duration::from_secs_f64(args.interval);
    let events = events().map_err(|error| Failure::new(Exit::Failed, error).while_doing("cannot catch signals"))?;
    let look = || Page::fetch(&target).map(|page| (page, Instant::now()));
    let mut before = look().map_err(|error| Failure::new(Exit::Failed, error))?;
    let on_terminal = std::io::stdout().is_terminal() && !args.once && !args.json;
    let _screen = on_terminal.then(AlternateScreen::enter);
    let mut failures = 0;
    let mut shown = None;
    loop {
        match wait(&events, interval) {
            Some(Event::Stop) => return Ok(Exit::Done),
            Some(Event::Resized) => {}
            None => match look() {
                Ok(now) => {
                    failures = 0;
                    let rates = Rates::between(&before.0, &now.0, now.1.duration_since(before.1));
                    before = now;
                    shown = Some(rates);
                }
                Err(error) => {
                    failures += 1;
                    if failures >= FAILURES_MAX || !on_terminal {
                        return Err(Failure::new(Exit::Failed, error));
                    }
                    shown = None;
                    put(&format!("\x1b[H\x1b[J{error}\r\n"))?;
                }
            },
        }
        let Some(rates) = &shown else { continue };
        let text = if args.json {
            format!("{}\n", rates.json())
        } else if on_terminal {
            let lines = screen::lines(&target.shown(), rates, Some(size()));
            format!("\x1b[H{}\x1b[J", lines.iter().map(|line| format!("{line}\x1b[K")).collect::<Vec<_>>().join("\r\n"))
        } else {
            format!("{}\n\n", screen::lines(&target.shown(), rates, None).join("\n"))
        };
        if !put(&text)? || args.once {
            return Ok(Exit::Done);
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
