//! Analysis jobs of uproot on the same files as the bench's own. Each job is a Python process of its own, which has
//! imported everything before the common start. Events, requested bytes and times are the process's own figures.

mod process;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use self::process::{Finished, JobResult, PythonProcess, Request};
use super::analysis::{AnalysisPhase, AnalysisSource, AnalysisSpec, Mode, Order, UprootInput};
use super::kind::{LocalFile, Names, Site, Unit, WorkError, Workload, word_of, workers_of};
use crate::load::{JobTally, OpenedWith, Tally, Worker, WorkerPool};
use crate::target::{DelayedTarget, RelName, Target, TargetError};

/// The interpreter that is used unless another one is named.
pub const DEFAULT_PYTHON: &str = "python3";
/// All events, in millionths.
const EVENTS_ALL: u32 = 1_000_000;

/// Another tool for analysis jobs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JobTool {
    /// uproot.
    Uproot,
}

/// The Python package with which uproot opens `root://` addresses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UprootWith {
    /// weir's if it is installed, otherwise fsspec-xrootd.
    #[default]
    Auto,
    /// weir's.
    Weir,
    /// fsspec-xrootd.
    FsspecXrootd,
}

/// Jobs of uproot.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UprootSpec {
    /// The work of the bench's own jobs.
    pub work: AnalysisSpec,
    /// The package that opens the file.
    pub with: UprootWith,
    /// The interpreter.
    pub python: PathBuf,
    /// Whether the interpreter has what it needs. It is tried once for all works.
    #[serde(skip)]
    pub tried: Tried,
}

/// The result of the first try of an interpreter. Two of them are equal if their specifications are.
#[derive(Clone, Default, Debug)]
pub struct Tried(Arc<OnceLock<Result<(), UprootError>>>);

impl PartialEq for Tried {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// uproot cannot do the work.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UprootError {
    /// The work has something that uproot does not support.
    #[error("uproot jobs do not support {0}; remove `beside`, or put this into its own section")]
    Unsupported(&'static str),
    /// The interpreter does not run the program.
    #[error(
        "cannot run uproot with `{python}`: {why}; name a Python 3 that has uproot (`python` in a campaign, --python)"
    )]
    Start {
        /// The interpreter.
        python: String,
        /// The reason.
        why: String,
    },
    /// A Python package is missing.
    #[error(
        "cannot run uproot: `{python}` cannot import {package} ({why}); install it with {}, or name another Python \
         (`python` in a campaign, --python)",
        how_to_install(.package, .python)
    )]
    Missing {
        /// The interpreter.
        python: String,
        /// The package.
        package: String,
        /// The error of the import.
        why: String,
    },
    /// The job failed.
    #[error("an uproot job failed: {why}")]
    Job {
        /// Its error.
        why: String,
    },
}

fn how_to_install(package: &str, python: &str) -> String {
    match package {
        "weir" => format!("`{python} -m pip install build/weir-*.whl` (`make wheel` makes it)"),
        "fsspec-xrootd" => format!("`{python} -m pip install fsspec-xrootd xrootd`"),
        package => format!("`{python} -m pip install {package}`"),
    }
}

/// What the program does.
#[derive(Serialize)]
#[serde(tag = "task", rename_all = "kebab-case")]
enum Task<'a> {
    /// Imports everything.
    Probe,
    /// Reads branches.
    Read { location: &'a str, tree: &'a str, branches: &'a [String], step_bytes: u64, compute_us_per_mb: u32 },
    /// Writes a file.
    Write(&'a MadeFile<'a>),
}

/// A file that uproot writes, with branches of 32-bit numbers.
#[derive(Serialize, Debug)]
pub struct MadeFile<'a> {
    /// Its path on this machine.
    pub path: &'a Path,
    /// The number of branches: `b000`, `b001`, …
    pub branches: u32,
    /// The number of clusters, each with one basket of each branch.
    pub clusters: u64,
    /// The number of events in a cluster.
    pub events: u32,
    /// The seed of the numbers.
    pub seed: u64,
}

/// Writes a file with uproot.
///
/// # Errors
/// uproot is missing, or cannot write the file.
pub fn make_file(python: &Path, file: &MadeFile<'_>) -> Result<(), UprootError> {
    let mut process = PythonProcess::start(python, &Request { with: UprootWith::Auto, task: Task::Write(file) })?;
    process.ready(&|| false)?;
    process.work(&|| false)?;
    Ok(())
}

/// Tries whether an interpreter has what uproot needs.
fn probe(python: &Path, with: UprootWith) -> Result<(), UprootError> {
    let mut process = PythonProcess::start(python, &Request { with, task: Task::Probe })?;
    process.ready(&|| false).map(drop)
}

impl UprootSpec {
    /// Returns what uproot does not support of the work.
    fn refused(&self) -> Option<&'static str> {
        let work = &self.work;
        let of_all = [
            (!matches!(work.source, AnalysisSource::RootFile { .. }), "other sources than a `root_file`"),
            (work.order != Order::Ordered, "`order = \"unordered\"`, which takes the baskets to other places"),
            (work.events_millionths != EVENTS_ALL, "a share of events"),
            (work.mode != Mode::Vector, "modes other than `vector`: uproot asks for all baskets of a step at once"),
            (
                work.added_round_trip_us > 0,
                "`added_round_trip`, which is a pause of the bench's own client; use `round_trip`",
            ),
            (!work.decompress, "`decompress = false`"),
        ];
        of_all.into_iter().find(|(is_so, _)| *is_so).map(|(_, what)| what)
    }

    fn input(&self) -> Result<UprootInput, WorkError> {
        Ok(self.work.uproot_input()?)
    }
}

impl Workload for UprootSpec {
    fn title(&self) -> String {
        format!("{} by {}", word_of(self.work.phase), word_of(JobTool::Uproot))
    }

    fn check(&self) -> Result<(), WorkError> {
        if let Some(what) = self.refused() {
            return Err(UprootError::Unsupported(what).into());
        }
        Ok(self.work.check()?)
    }

    fn prepare(&self) -> Result<(), WorkError> {
        self.input()?;
        self.try_tools()
    }

    fn try_tools(&self) -> Result<(), WorkError> {
        Ok(self.tried.0.get_or_init(|| probe(&self.python, self.with)).clone()?)
    }

    fn unit(&self) -> Unit {
        Unit::Efficiency
    }

    fn room(&self) -> u64 {
        self.work.room()
    }

    fn moved(&self) -> u64 {
        self.work.moved()
    }

    fn directories(&self) -> Vec<RelName> {
        Vec::new()
    }

    fn files(&self) -> Names<'_> {
        self.work.files()
    }

    fn suits(&self, target: &dyn Target) -> bool {
        let place = target.location();
        let is_root = place.as_ref().is_some_and(|place| place.starts_with("root://"));
        is_root || (self.work.round_trip_us == 0 && place.is_some_and(|place| !place.contains("://")))
    }

    fn needs_files(&self) -> bool {
        self.work.phase == AnalysisPhase::Analyse
    }

    fn is_cold(&self) -> bool {
        self.work.is_cold()
    }

    fn runs_a_tool(&self) -> bool {
        true
    }

    fn local_files(&self) -> Vec<LocalFile> {
        let named = (self.python != Path::new(DEFAULT_PYTHON)).then(|| LocalFile::Run(self.python.clone()));
        self.work.local_files().into_iter().chain(named).collect()
    }

    fn parts(&self) -> u32 {
        self.work.jobs
    }

    fn worker_pool(&self, site: &Site, parts: Range<u32>) -> Result<WorkerPool, WorkError> {
        Workload::check(self)?;
        let (spec, input) = (self.clone(), self.input()?);
        let target = site.target(&self.title())?;
        let path = self.work.delayed(&target)?;
        let finished = Finished::default();
        Ok(WorkerPool::hire(&[("", workers_of(&parts, 1))], move |worker| {
            let target = path.as_ref().map_or(&target, DelayedTarget::target);
            job(&spec, &input, &**target, worker, &finished)
        })?)
    }
}

/// Does one job.
fn job(
    spec: &UprootSpec,
    input: &UprootInput,
    target: &dyn Target,
    worker: &Worker,
    finished: &Finished,
) -> Result<Tally, TargetError> {
    let failed = |error: UprootError| TargetError::path(format!("job {}", worker.number), std::io::Error::other(error));
    let unsupported = TargetError::Unsupported { what: "uproot jobs", by: "a system of several places, or by HTTP" };
    let folder = target.location().ok_or(unsupported)?;
    let copy = u32::try_from(worker.number).unwrap_or(u32::MAX) % spec.work.copies.max(1);
    let location = format!("{folder}/{}", input.name(copy));
    let task = Task::Read {
        location: &location,
        tree: &input.tree,
        branches: &input.branches,
        step_bytes: spec.work.cache_bytes,
        compute_us_per_mb: spec.work.compute_us_per_mb,
    };
    let is_stopped = || worker.is_stopped();
    let mut process = PythonProcess::start(&spec.python, &Request { with: spec.with, task }).map_err(failed)?;
    let with = process.ready(&is_stopped).map_err(failed)?;
    let start = worker.start();
    let mut tally = Tally::default();
    let done = process.work(&is_stopped);
    let took = start.elapsed();
    finished.keep(process);
    match (with, done) {
        (Some(with), Ok(Some(done))) => match serde_json::from_value::<JobResult>(done) {
            Ok(done) => add(&mut tally, input, &done, with, worker),
            Err(error) => tally.add_failure(took, &failed(UprootError::Job { why: error.to_string() })),
        },
        // A signal for this process may have reached the program first.
        (_, done) if done.is_ok() || worker.is_stopped() => {
            tally.cut = 1;
            tally.complain(took, "uproot was killed: the time was over, or the run was stopped".to_owned());
        }
        (_, done) => {
            worker.meter().add_failure();
            let error = done.err().unwrap_or(UprootError::Job { why: "it gave no figures".to_owned() });
            tally.add_failure(took, &failed(error));
        }
    }
    Ok(tally)
}

fn add(tally: &mut Tally, input: &UprootInput, done: &JobResult, with: OpenedWith, worker: &Worker) {
    let wall = Duration::try_from_secs_f64(done.wall_s).unwrap_or_default();
    if done.events != input.entries || done.asked == 0 {
        let what = format!("job {}: uproot read {} of {} events", worker.number, done.events, input.entries);
        return tally.add_wrong(wall, what);
    }
    // By path the kernel does not say what it fetched: 0.
    let moved = if with == OpenedWith::Path { 0 } else { done.moved };
    tally.operations += done.requests.max(1);
    tally.bytes += done.asked;
    worker.meter().add(done.asked);
    tally.jobs.push(JobTally {
        wall_s: wall.as_secs_f64(),
        cpu_s: if done.cpu_s.is_finite() { done.cpu_s.max(0.0) } else { 0.0 },
        events: done.events,
        asked: done.asked,
        moved,
        requests: done.requests,
        unpacked: done.unpacked,
        cores: std::thread::available_parallelism().map_or(1, |cores| u32::try_from(cores.get()).unwrap_or(u32::MAX)),
        compressible: input.compressible,
        opened_with: Some(with),
        ..JobTally::default()
    });
}
