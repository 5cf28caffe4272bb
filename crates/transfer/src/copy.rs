//! `weir cp`: copies between this machine and servers, and between servers.

use std::sync::atomic::{AtomicBool, Ordering};

use client::Client;
use console::{Exit, signals};
use parking_lot::Mutex;
use wire::response::StatFlags;

use crate::bulk::Copied;
use crate::context::{Context, Options};
use crate::error::TransferError;
use crate::options::CopyOptions;
use crate::outcome::Outcome;
use crate::place::CopyPath;
use crate::plan::{self, Item, Queue, SearchSink};
use crate::progress;
use crate::workers::{self, Reports};

/// Makes the copies of `options` and prints the result. A signal ends it soon.
///
/// # Errors
/// What keeps the copy from beginning. Errors of single files are printed, and the exit code reflects them.
pub fn copy(options: &CopyOptions) -> Result<Exit, TransferError> {
    let Some((to, from)) = options.paths.split_last().filter(|(_, from)| !from.is_empty()) else {
        return Err(TransferError::NoSource);
    };
    let from = from.iter().map(|text| CopyPath::parse(text)).collect::<Result<Vec<_>, _>>()?;
    let target = CopyPath::parse(to)?;
    if from.iter().filter(|place| **place == CopyPath::Standard).count() > 1 {
        return Err(TransferError::StandardInputTwice);
    }
    let remote = |place: &CopyPath| matches!(place, CopyPath::Remote(_));
    if options.third_party && !(remote(&target) && from.iter().all(remote)) {
        return Err(TransferError::ThirdPartyHere);
    }
    let how = Options {
        force: options.force,
        resume: options.resume,
        tpc: options.third_party,
        ..options.how.of_each_file()
    };
    let context = Context::new(how, options.how.client.clone());
    let mut outcome = Outcome::of("cp", options.how.json, options.how.quiet);
    if let CopyPath::Local(path) = &target
        && to.ends_with('/')
    {
        std::fs::create_dir_all(path).map_err(TransferError::local("make", path))?;
    }
    let mut client = Client::new(context.settings.clone());
    let into = goes_into(&mut client, &target, to, &from, options.recursive)?;
    copy_all(&context, client, &from, &target, into, options, &mut outcome)?;
    Ok(outcome.end(&context))
}

/// Refuses to copy something onto or into itself.
pub(crate) fn apart(from: &CopyPath, to: &CopyPath) -> Result<(), TransferError> {
    let inside = match (from, to) {
        (CopyPath::Local(from), CopyPath::Local(to)) => {
            // The target may not exist, but its parent must.
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
        (CopyPath::Remote(from), CopyPath::Remote(to)) if from.server == to.server => {
            let (from, to) = (from.path.trim_end_matches('/'), to.path.trim_end_matches('/'));
            to.strip_prefix(from).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        }
        _ => false,
    };
    if inside { Err(TransferError::IntoItself { from: from.to_string(), to: to.to_string() }) } else { Ok(()) }
}

/// Whether the target is a directory, so that a source keeps its name in it.
fn goes_into(
    client: &mut Client,
    target: &CopyPath,
    text: &str,
    from: &[CopyPath],
    recursive: bool,
) -> Result<bool, TransferError> {
    let is_directory = match target {
        CopyPath::Local(path) => path.is_dir(),
        CopyPath::Remote(url) => match client.look(url) {
            Ok(found) => found.is_some_and(|stat| stat.flags.has(StatFlags::IS_DIR)),
            Err(error) => return Err(TransferError::Client(error)),
        },
        CopyPath::Standard => false,
    };
    let into = is_directory || (text.ends_with('/') && !recursive);
    if from.len() > 1 && !into && *target != CopyPath::Standard && !text.ends_with('/') {
        return Err(TransferError::SeveralIntoOne { target: target.to_string() });
    }
    Ok(into || from.len() > 1 && *target != CopyPath::Standard)
}

fn copy_all(
    context: &Context,
    mut client: Client,
    from: &[CopyPath],
    target: &CopyPath,
    into: bool,
    options: &CopyOptions,
    outcome: &mut Outcome,
) -> Result<(), TransferError> {
    let several = options.recursive || from.len() > 1;
    let workers = if several { options.how.jobs } else { 1 };
    goes_on(context, workers, options.how.quiet || options.how.json, outcome, |queue, outcome| {
        let mut finds = Finding { context, queue, outcome, client: Client::new(context.settings.clone()) };
        for place in from {
            let to = if into { target.join(&place.name()) } else { target.clone() };
            if let Err(error) = apart(place, &to) {
                finds.problem(place, error);
                continue;
            }
            plan::walk(&mut client, place, &to, options.recursive, &options.how.filter, &mut finds);
        }
    })
}

/// Starts the workers and the progress line, and lets `find` fill their list.
pub(crate) fn goes_on(
    context: &Context,
    workers: u16,
    silent: bool,
    outcome: &mut Outcome,
    find: impl FnOnce(&Queue, &Mutex<&mut Outcome>),
) -> Result<(), TransferError> {
    let queue = Queue::default();
    let finished = AtomicBool::new(false);
    let stop = signals::catch().map_err(TransferError::Signals)?;
    let flag = context.stop_flag();
    // Waits as long as the process lives.
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

/// Sends found files to the list and errors to the outcome.
struct Finding<'a, 'b> {
    context: &'a Context,
    queue: &'a Queue,
    outcome: &'a Mutex<&'b mut Outcome>,
    client: Client,
}

impl SearchSink for Finding<'_, '_> {
    fn file(&mut self, item: Item) {
        if !self.context.stopping() {
            self.context.progress.found(item.size.unwrap_or(0));
            self.queue.put(item);
        }
    }

    fn directory(&mut self, to: &CopyPath) -> Result<(), TransferError> {
        match to {
            CopyPath::Local(path) => std::fs::create_dir_all(path).map_err(TransferError::local("make", path)),
            CopyPath::Remote(_) | CopyPath::Standard => Ok(()),
        }
    }

    fn empty_directory(&mut self, to: &CopyPath) -> Result<(), TransferError> {
        match to {
            CopyPath::Remote(url) => Ok(self.client.mkdir(url, 0o755, true)?),
            CopyPath::Local(_) | CopyPath::Standard => Ok(()),
        }
    }

    fn problem(&mut self, from: &CopyPath, error: TransferError) {
        self.outcome.lock().failed(from, None, &error);
    }

    fn left_out(&mut self, from: &CopyPath, why: &'static str) {
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
