//! `weir cp`: copies between this machine and servers, and between servers.

use std::sync::atomic::{AtomicBool, Ordering};

use client::Client;
use console::{Exit, signals};
use parking_lot::Mutex;
use wire::response::StatFlags;

use crate::bulk::Copied;
use crate::context::{Context, Options};
use crate::error::TransferError;
use crate::local::KeptAttributes;
use crate::options::CopyOptions;
use crate::outcome::Outcome;
use crate::place::CopyPath;
use crate::plan::{self, Item, Queue, SearchSink};
use crate::target::{Goes, Source, Target};
use crate::workers::{self, Reports};
use crate::{progress, times};

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
    if options.follow
        && let Some(here) = from.iter().find(|place| !remote(place))
    {
        return Err(TransferError::FollowHere { path: here.to_string() });
    }
    let how = Options {
        force: options.force,
        resume: options.resume,
        tpc: options.third_party,
        delegate: options.delegate,
        follow: options.follow,
        ..options.how.of_each_file()
    };
    let context = Context::new(how, options.how.client.clone(), options.how.waits("cp"));
    let mut outcome = Outcome::of("cp", &options.how);
    let mut client = Client::new(context.settings.clone());
    let pairs = pairs(&mut client, from, (&target, to), options)?;
    copy_all(&context, client, &pairs, options, &mut outcome)?;
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

/// Returns each source with the place of its copy. `to`: the target as it was given.
fn pairs(
    client: &mut Client,
    from: Vec<CopyPath>,
    (target, to): (&CopyPath, &str),
    options: &CopyOptions,
) -> Result<Vec<(CopyPath, CopyPath)>, TransferError> {
    let is_alone = from.len() == 1;
    if *target == CopyPath::Standard {
        return Ok(from.into_iter().map(|from| (from, CopyPath::Standard)).collect());
    }
    let goal = Target {
        is_directory: is_directory(client, target)?,
        has_slash: to.ends_with('/'),
        is_copy: options.no_target_directory,
        resumes: options.resume,
    };
    if !is_alone && goal.is_copy {
        return Err(TransferError::SeveralOntoOne { target: target.to_string() });
    }
    if goal.is_copy && goal.is_directory && !(options.recursive && is_directory(client, &from[0])?) {
        return Err(TransferError::TargetIsDirectory { path: target.to_string() });
    }
    let mut pairs = Vec::with_capacity(from.len());
    for (from, text) in from.into_iter().zip(&options.paths) {
        let has_slash = text.ends_with('/');
        // A plain copy learns what a source is when it finds it.
        let mut source =
            Source { is_tree: options.recursive, has_slash, is_alone, has_own_name_in_it: false, is_in_target: false };
        if goal.must_find_earlier(source.is_tree, has_slash, is_alone) {
            let name = from.name();
            source.is_tree = is_directory(client, &from)?;
            source.is_in_target = source.is_tree && is_directory(client, &target.join(&name))?;
            source.has_own_name_in_it = source.is_in_target && is_directory(client, &from.join(&name))?;
        }
        let to = match goal.of(&source) {
            Goes::Into => target.join(&from.name()),
            Goes::Onto => target.clone(),
            Goes::Unclear => {
                let (from, target) = (from.to_string(), target.to_string());
                return Err(TransferError::EitherWay { from, target });
            }
        };
        if !is_alone && !goal.is_directory && !goal.has_slash {
            return Err(TransferError::SeveralIntoOne { target: target.to_string() });
        }
        pairs.push((from, to));
    }
    if let CopyPath::Local(path) = target
        && goal.has_slash
        && !goal.is_copy
        && !options.dry_run
    {
        std::fs::create_dir_all(path).map_err(TransferError::local("make", path))?;
    }
    Ok(pairs)
}

/// Whether the place is a directory; a missing one is none.
fn is_directory(client: &mut Client, place: &CopyPath) -> Result<bool, TransferError> {
    Ok(match place {
        CopyPath::Local(path) => path.is_dir(),
        CopyPath::Remote(url) => client.look(url)?.is_some_and(|stat| stat.flags.has(StatFlags::IS_DIR)),
        CopyPath::Standard => false,
    })
}

fn copy_all(
    context: &Context,
    mut client: Client,
    pairs: &[(CopyPath, CopyPath)],
    options: &CopyOptions,
    outcome: &mut Outcome,
) -> Result<(), TransferError> {
    let several = options.recursive || pairs.len() > 1;
    let workers = if several { options.how.jobs } else { 1 };
    let mut directories = Vec::new();
    let silent = options.how.quiet || options.how.json || options.dry_run;
    goes_on(context, workers, silent, outcome, |queue, outcome| {
        let client_of_finds = Client::new(context.settings.clone());
        let (dry_run, directories) = (options.dry_run, &mut directories);
        let mut finds = Finding { context, queue, outcome, client: client_of_finds, dry_run, directories };
        for (from, to) in pairs {
            if let Err(error) = apart(from, to) {
                finds.problem(from, error);
                continue;
            }
            plan::walk(&mut client, from, to, options.recursive, &options.how.filter, &mut finds);
        }
    })?;
    keep_directories(context, directories, outcome);
    Ok(())
}

/// Sets the times and modes of copied directories, those inside first: a file that is put into a directory changes its
/// time.
pub(crate) fn keep_directories(context: &Context, directories: Vec<(CopyPath, KeptAttributes)>, outcome: &mut Outcome) {
    let mut client = Client::new(context.settings.clone());
    for (place, kept) in directories.into_iter().rev() {
        if context.stopping() {
            return;
        }
        match times::keep(context, &mut client, &place, kept) {
            // If nothing could be copied into it, nobody has made it.
            Err(error) if error.exit() != Exit::NotFound => outcome.failed(&place, None, &error),
            _ => {}
        }
    }
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
        let line = (!silent)
            .then(|| scope.spawn(|| progress::Line::default().run(&context.progress, &context.waits, finished)));
        find(queue, outcome);
        if context.stopping() {
            outcome.lock().search_stopped();
        }
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
    dry_run: bool,
    /// The directories whose attributes are set when everything is in them.
    directories: &'a mut Vec<(CopyPath, KeptAttributes)>,
}

impl Finding<'_, '_> {
    /// What a copy would do with a file.
    fn would(&mut self, item: &Item) -> Result<&'static str, TransferError> {
        let options = &self.context.options;
        let is_there = match &item.to {
            CopyPath::Local(path) => !item.to.is_stream() && path.symlink_metadata().is_ok(),
            CopyPath::Remote(url) => self.client.look(url)?.is_some(),
            CopyPath::Standard => false,
        };
        match (is_there, options.resume, options.force) {
            (false, ..) => Ok("copy"),
            (true, true, _) => Ok("compare"),
            (true, false, true) => Ok("replace"),
            (true, false, false) => Err(TransferError::Exists { path: item.to.to_string() }),
        }
    }
}

impl SearchSink for Finding<'_, '_> {
    fn file(&mut self, item: Item) {
        if self.dry_run {
            match self.would(&item) {
                Ok(what) => self.outcome.lock().would(what, &item.to),
                Err(error) => self.outcome.lock().failed(&item.from, Some(&item.to), &error),
            }
        } else if self.context.stopping() {
            self.outcome.lock().not_begun();
        } else {
            self.context.progress.found(item.size.unwrap_or(0));
            self.queue.put(item);
        }
    }

    fn directory(&mut self, to: &CopyPath, kept: KeptAttributes) -> Result<(), TransferError> {
        if self.dry_run {
            return Ok(());
        }
        if self.context.options.preserve {
            self.directories.push((to.clone(), kept));
        }
        match to {
            CopyPath::Local(path) => std::fs::create_dir_all(path).map_err(TransferError::local("make", path)),
            CopyPath::Remote(_) | CopyPath::Standard => Ok(()),
        }
    }

    fn empty_directory(&mut self, to: &CopyPath) -> Result<(), TransferError> {
        match to {
            CopyPath::Remote(_) if self.dry_run => Ok(()),
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

    fn not_begun(&mut self) {
        self.0.lock().not_begun();
    }
}
