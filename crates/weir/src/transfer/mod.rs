//! `weir cp`: copies between this machine and servers, and between servers.

mod bulk;
mod context;
mod ends;
mod error;
mod filter;
mod held_back;
mod local;
mod ours;
mod place;
mod plan;
mod pool;
mod progress;
mod resume;
mod stream;
mod sums;
pub mod sync;
mod third_party;
mod times;
mod units;
mod workers;

use std::io::{IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use client::{Client, Settings};
use parking_lot::Mutex;
use serde_json::json;
use wire::response::StatFlags;

pub use error::TransferError;
pub use filter::Filter;
pub use local::Direct;
pub use place::Place;
pub use sums::SumOfParts;

use bulk::Copied;
use context::{Context, Options};
use plan::{Finds, Item, Queue};
use workers::Reports;

use crate::Failure;
use crate::cli::{CpArgs, TransferArgs};
use crate::config::units::show_size;
use crate::exit::Exit;
use crate::{logging, signals};

/// Copies what the command line says.
pub fn run(args: &CpArgs) -> Result<Exit, Failure> {
    logging::start(&args.log)?;
    let usage = |error: client::UrlError| Failure::new(Exit::Usage, error);
    let Some((to, from)) = args.paths.split_last().filter(|(_, from)| !from.is_empty()) else {
        return Err(Failure::message(Exit::Usage, "give at least one source, and the target last"));
    };
    let from = from.iter().map(|text| Place::parse(text)).collect::<Result<Vec<_>, _>>().map_err(usage)?;
    let target = Place::parse(to).map_err(usage)?;
    if from.iter().filter(|place| **place == Place::Standard).count() > 1 {
        return Err(Failure::message(Exit::Usage, "standard input can be read once only"));
    }
    let remote = |place: &Place| matches!(place, Place::Remote(_));
    if args.tpc && !(remote(&target) && from.iter().all(remote)) {
        return Err(Failure::message(
            Exit::Usage,
            "a third-party copy is from server to server: give root:// addresses",
        ));
    }
    let options = Options { force: args.force, resume: args.resume, tpc: args.tpc, ..options(&args.how) };
    let context = Context::new(options, settings(&args.how));
    let mut outcome = Outcome::of("cp", args.how.json, args.how.quiet);
    if let Place::Local(path) = &target
        && to.ends_with('/')
    {
        std::fs::create_dir_all(path)
            .map_err(TransferError::local("make", path))
            .map_err(|error| Failure::new(error.exit(), error))?;
    }
    let mut client = Client::new(context.settings.clone());
    let into = goes_into(&mut client, &target, to, &from, args.recursive)?;
    copy(&context, client, &from, &target, into, args, &mut outcome)?;
    Ok(outcome.end(&context))
}

fn options(how: &TransferArgs) -> Options {
    Options {
        force: false,
        resume: false,
        verify: !how.no_verify,
        sync: how.sync,
        preserve: how.preserve,
        tpc: false,
        streams: how.streams,
        direct: how.direct,
    }
}

fn settings(how: &TransferArgs) -> Settings {
    Settings {
        window: usize::from(how.window),
        silence_max: Duration::from_secs(how.timeout),
        recovery_max: Duration::from_secs(how.retry_for),
        wait_max: Duration::from_secs(how.wait_for),
        ..Settings::default()
    }
}

/// Refuses to copy something onto or into itself.
fn apart(from: &Place, to: &Place) -> Result<(), TransferError> {
    let inside = match (from, to) {
        (Place::Local(from), Place::Local(to)) => {
            // The target need not be there; what it will be in is.
            let real = |path: &std::path::Path| {
                let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
                path.canonicalize().or_else(|_| {
                    let parent = parent.unwrap_or(std::path::Path::new(".")).canonicalize()?;
                    Ok::<_, std::io::Error>(parent.join(path.file_name().unwrap_or_default()))
                })
            };
            match (real(from), real(to)) {
                (Ok(from), Ok(to)) => to.starts_with(&from),
                _ => false,
            }
        }
        (Place::Remote(from), Place::Remote(to)) if from.server == to.server => {
            let (from, to) = (from.path.trim_end_matches('/'), to.path.trim_end_matches('/'));
            to.strip_prefix(from).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        }
        _ => false,
    };
    if inside { Err(TransferError::IntoItself { from: from.to_string(), to: to.to_string() }) } else { Ok(()) }
}

/// Is the target a directory, so that what is copied keeps its name in it?
fn goes_into(
    client: &mut Client,
    target: &Place,
    text: &str,
    from: &[Place],
    recursive: bool,
) -> Result<bool, Failure> {
    let is_directory = match target {
        Place::Local(path) => path.is_dir(),
        Place::Remote(url) => match client.look(url) {
            Ok(found) => found.is_some_and(|stat| stat.flags.has(StatFlags::IS_DIR)),
            Err(error) => {
                let error = TransferError::Client(error);
                return Err(Failure::new(error.exit(), error));
            }
        },
        Place::Standard => false,
    };
    let into = is_directory || (text.ends_with('/') && !recursive);
    if from.len() > 1 && !into && *target != Place::Standard && !text.ends_with('/') {
        let text = format!(
            "several sources need a directory as their target, and {target} is none (end it with / to make it)"
        );
        return Err(Failure::message(Exit::Usage, text));
    }
    Ok(into || from.len() > 1 && *target != Place::Standard)
}

fn copy(
    context: &Context,
    mut client: Client,
    from: &[Place],
    target: &Place,
    into: bool,
    args: &CpArgs,
    outcome: &mut Outcome,
) -> Result<(), Failure> {
    let several = args.recursive || from.len() > 1;
    let workers = if several { args.how.jobs } else { 1 };
    goes_on(context, workers, args.how.quiet || args.how.json, outcome, |queue, outcome| {
        let mut finds = Finding { context, queue, outcome, client: Client::new(context.settings.clone()) };
        for place in from {
            let to = if into { target.join(&place.name()) } else { target.clone() };
            if let Err(error) = apart(place, &to) {
                finds.problem(place, error);
                continue;
            }
            plan::walk(&mut client, place, &to, args.recursive, &args.how.filter, &mut finds);
        }
    })
}

/// Starts the workers and the line that shows how far they are, and lets `find` fill their list.
fn goes_on(
    context: &Context,
    workers: u16,
    silent: bool,
    outcome: &mut Outcome,
    find: impl FnOnce(&Queue, &Mutex<&mut Outcome>),
) -> Result<(), Failure> {
    let queue = Queue::default();
    let finished = AtomicBool::new(false);
    let stop =
        signals::catch().map_err(|error| Failure::new(Exit::Failed, error).while_doing("cannot catch signals"))?;
    let flag = context.stop_flag();
    // Waits for as long as the process lives.
    std::thread::spawn(move || {
        if stop.recv().is_ok() {
            flag.store(true, Ordering::Relaxed);
        }
    });
    let outcome = Mutex::new(&mut *outcome);
    std::thread::scope(|scope| {
        let (queue, outcome, finished) = (&queue, &outcome, &finished);
        let workers: Vec<_> = (0..workers)
            .map(|_| {
                scope.spawn(move || {
                    let mut reports = Shared(outcome);
                    let reports: Mutex<&mut dyn Reports> = Mutex::new(&mut reports);
                    workers::work(context, queue, &reports);
                })
            })
            .collect();
        let line = (!silent).then(|| scope.spawn(|| progress::Line::default().run(&context.progress, finished)));
        find(queue, outcome);
        context.progress.found_all();
        queue.end();
        for worker in workers {
            if worker.join().is_err() {
                outcome.lock().broke();
            }
        }
        finished.store(true, Ordering::Relaxed);
        if let Some(line) = line {
            line.thread().unpark();
        }
    });
    Ok(())
}

/// What was found goes to the list, what is wrong to the outcome.
struct Finding<'a, 'b> {
    context: &'a Context,
    queue: &'a Queue,
    outcome: &'a Mutex<&'b mut Outcome>,
    client: Client,
}

impl Finds for Finding<'_, '_> {
    fn file(&mut self, item: Item) {
        if !self.context.stopping() {
            self.context.progress.found(item.size.unwrap_or(0));
            self.queue.put(item);
        }
    }

    fn directory(&mut self, to: &Place) -> Result<(), TransferError> {
        match to {
            Place::Local(path) => std::fs::create_dir_all(path).map_err(TransferError::local("make", path)),
            Place::Remote(_) | Place::Standard => Ok(()),
        }
    }

    fn empty_directory(&mut self, to: &Place) -> Result<(), TransferError> {
        match to {
            Place::Remote(url) => Ok(self.client.mkdir(url, 0o755, true)?),
            Place::Local(_) | Place::Standard => Ok(()),
        }
    }

    fn problem(&mut self, from: &Place, error: TransferError) {
        self.outcome.lock().failed(from, None, &error);
    }

    fn left_out(&mut self, from: &Place, why: &'static str) {
        self.outcome.lock().say(&format!("left out: {from}: {why}"));
    }

    fn stopping(&self) -> bool {
        self.context.stopping()
    }
}

struct Shared<'a, 'b>(&'a Mutex<&'b mut Outcome>);

impl Reports for Shared<'_, '_> {
    fn done(&mut self, item: &Item, result: Result<Copied, TransferError>) {
        let mut outcome = self.0.lock();
        match result {
            Ok(copied) => outcome.copied(item, &copied),
            Err(error) => outcome.failed(&item.from, Some(&item.to), &error),
        }
    }
}

/// What came of it all.
struct Outcome {
    command: &'static str,
    /// Something was there that could not be looked into.
    incomplete: bool,
    /// It was said that something was stopped.
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
    fn of(command: &'static str, json: bool, quiet: bool) -> Self {
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

    fn has_failed(&self) -> bool {
        self.failed > 0
    }

    /// A worker has panicked: what it had in hand was not copied.
    fn broke(&mut self) {
        self.failed += 1;
        self.exit = Some(Exit::Broken);
        self.say("a bug: a thread that copies has died; its files were not copied");
    }

    /// Nothing was removed, because not all that is at the source was seen.
    fn kept_all(&mut self) {
        self.say("nothing was removed at the target, because not everything at the source could be looked at");
        self.exit = self.exit.or(Some(Exit::Wrong));
    }

    /// Something that would be done.
    fn would(&self, what: &str, place: &Place) {
        if self.json {
            Self::print(&json!({ "would": what, "to": place.to_string() }));
        } else {
            let _ = writeln!(std::io::stdout(), "{what} {place}");
        }
    }

    fn removed(&mut self, place: &Place) {
        self.removed += 1;
        if self.json {
            Self::print(&json!({ "to": place.to_string(), "state": "removed" }));
        }
    }

    fn copied(&mut self, item: &Item, copied: &Copied) {
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

    fn failed(&mut self, from: &Place, to: Option<&Place>, error: &TransferError) {
        self.failed += 1;
        let exit = error.exit();
        // Several kinds of failure have no code in common.
        self.exit = Some(self.exit.map_or(exit, |before| if before == exit { exit } else { Exit::Failed }));
        if self.json {
            let to = to.map(Place::to_string);
            let (state, text) = ("failed", error.to_string());
            Self::print(&json!({ "from": from.to_string(), "to": to, "state": state, "error": text }));
        }
        // One word is enough for all that were stopped together.
        if !(matches!(error, TransferError::Stopped) && std::mem::replace(&mut self.stopped, true)) {
            self.say(&error.to_string());
        }
    }

    fn say(&self, text: &str) {
        // The progress may stand on this line.
        let clear = if std::io::stderr().is_terminal() { "\r\x1b[K" } else { "" };
        let _ = writeln!(std::io::stderr(), "{clear}weir {}: {text}", self.command);
    }

    fn print(value: &serde_json::Value) {
        let _ = writeln!(std::io::stdout(), "{value}");
    }

    fn end(&self, context: &Context) -> Exit {
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
        let rate = (self.bytes as f64 / seconds.max(1e-3)) as u64; // for reading only
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
