//! The common interface of all kinds of work, for campaigns, runs and reports.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::{
    AnalysisError, ChurnError, DaqError, FailureError, ForeignError, GenerateError, KnownFiles, SmallError,
    StreamError, UprootError,
};
use crate::content::Content;
use crate::load::{HireError, Tally, WorkerPool};
use crate::network::{NetworkServer, SpecError};
use crate::target::{IoOptions, RelName, Target};

/// Work that cannot be done as described.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WorkError {
    /// Streams.
    #[error(transparent)]
    Streams(#[from] StreamError),
    /// Small files.
    #[error(transparent)]
    Small(#[from] SmallError),
    /// Recorders, and readers of their files.
    #[error(transparent)]
    Daq(#[from] DaqError),
    /// Files that are created and removed.
    #[error(transparent)]
    Churn(#[from] ChurnError),
    /// Work that continues while something is broken.
    #[error(transparent)]
    Failure(#[from] FailureError),
    /// Another tool.
    #[error(transparent)]
    Foreign(#[from] ForeignError),
    /// The client alone.
    #[error(transparent)]
    Client(#[from] GenerateError),
    /// A network test.
    #[error(transparent)]
    Network(#[from] SpecError),
    /// There is no network-test server.
    #[error("a network test needs a server; give the system a `peer`")]
    NoPeer,
    /// Analysis.
    #[error(transparent)]
    Analysis(#[from] AnalysisError),
    /// Analysis by uproot.
    #[error(transparent)]
    Uproot(#[from] UprootError),
    /// The path to the system cannot be delayed.
    #[error("{0}")]
    Delay(String),
    /// Workers cannot be started.
    #[error(transparent)]
    Hire(#[from] HireError),
    /// There are no files to work on.
    #[error("{0} needs files; put `write` before it")]
    NoFiles(String),
    /// What it reads must have been written just before.
    #[error("{0} reads what the phase before it has written; put it right behind one that writes")]
    NotAfterWrite(String),
    /// There is no system to work on.
    #[error("{0} needs a system")]
    NoSystem(String),
}

/// The most workers of one kind of work on one machine. Each is a thread with its own connections.
pub(super) const WORKERS_MAX: u64 = 4096;

/// The unit of a figure.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Bytes a second.
    Bytes,
    /// Operations a second.
    Operations,
    /// The share of their time in which jobs compute: CPU time / wall time.
    Efficiency,
}

/// The systems and the contents of a work.
#[derive(Clone)]
pub struct Site {
    /// The system; `None`: the client works alone.
    pub target: Option<Arc<dyn Target>>,
    /// The system for copies, if the work makes any.
    pub copies: Option<Arc<dyn Target>>,
    /// The network-test servers; none for other work.
    pub peers: Vec<NetworkServer>,
    /// The contents of all files.
    pub content: Arc<Content>,
    /// What earlier phases have learnt of the files.
    pub known: Arc<KnownFiles>,
}

/// The names of files, made one by one because there may be millions.
pub type Names<'a> = Box<dyn Iterator<Item = RelName> + 'a>;

/// Returns no names.
#[must_use]
pub fn no_names<'a>() -> Names<'a> {
    Box::new(std::iter::empty())
}

/// One kind of work with all its parameters: a part of a trial that is measured on its own.
pub trait Workload {
    /// Returns its name in results.
    fn title(&self) -> String;

    /// Checks the parameters.
    ///
    /// # Errors
    /// The first invalid one.
    fn check(&self) -> Result<(), WorkError>;

    /// Reads the files that it needs on this machine, before any work starts.
    ///
    /// # Errors
    /// A file is missing or not valid.
    fn prepare(&self) -> Result<(), WorkError> {
        Ok(())
    }

    /// Tries whether this machine has the programs that it runs. [`Workload::prepare`] includes this.
    ///
    /// # Errors
    /// A program is missing.
    fn try_tools(&self) -> Result<(), WorkError> {
        Ok(())
    }

    /// Returns the unit of its figures.
    fn unit(&self) -> Unit;

    /// Returns the most bytes that are on the system after it.
    fn room(&self) -> u64;

    /// Returns the bytes that it moves.
    fn moved(&self) -> u64;

    /// Returns the operations that take time independently of their bytes: opens, entries, removals.
    fn operations(&self) -> u64 {
        0
    }

    /// Returns how long it takes, if that does not depend on the system.
    fn fixed_time(&self) -> Option<Duration> {
        None
    }

    /// Returns the directories that must exist before it.
    fn directories(&self) -> Vec<RelName>;

    /// Returns the files that may exist after it, whatever happened.
    fn files(&self) -> Names<'_>;

    /// Returns the files that may exist on the second system then.
    fn copies(&self) -> Names<'_> {
        no_names()
    }

    /// Whether it is done on a system, not by the client alone.
    fn needs_system(&self) -> bool {
        true
    }

    /// Whether this driver supports it. Unsupported work is skipped without an error.
    fn suits(&self, _target: &dyn Target) -> bool {
        true
    }

    /// Returns what the work needs and this driver lacks, if the report must say that there is no figure. It is asked
    /// if the driver suits no phase of a trial.
    fn refusal(&self, _target: &dyn Target) -> Option<Refusal> {
        None
    }

    /// Whether it needs a folder on the system.
    fn needs_place(&self) -> bool {
        self.needs_system()
    }

    /// Whether it needs network-test servers: that of its system, or all if it needs no single system.
    fn needs_peers(&self) -> bool {
        false
    }

    /// Whether it works on files of an earlier phase.
    fn needs_files(&self) -> bool {
        false
    }

    /// Whether it creates the files of later phases.
    fn makes_files(&self) -> bool {
        false
    }

    /// Whether the phase before it must write.
    fn must_follow_write(&self) -> bool {
        false
    }

    /// Whether this machine's caches must be emptied before it.
    fn is_cold(&self) -> bool {
        false
    }

    /// Whether it is reported like a job: elapsed, user and system time.
    fn is_job(&self) -> bool {
        false
    }

    /// Whether operations may fail, because something is broken on purpose.
    fn expects_failures(&self) -> bool {
        false
    }

    /// Returns the requested rate of all workers of a role together, in the unit of its figures; `None`: as fast as
    /// possible.
    fn asked_rate(&self, _role: &str) -> Option<f64> {
        None
    }

    /// Returns the options of its opens; `None`: it opens no files.
    fn io_options(&self) -> Option<IoOptions> {
        None
    }

    /// Whether it writes data.
    fn writes(&self) -> bool {
        false
    }

    /// Returns the number of workers that wait for the system at a time, of the first role.
    fn workers(&self) -> u32 {
        self.parts()
    }

    /// Returns the number of parts that can be divided among machines: streams, clients, or recorders with their
    /// readers. For work without a system these are threads, so that it is the ceiling of as many workers on as
    /// many machines.
    fn parts(&self) -> u32;

    /// Returns the files on the working machine that it names, outside of any system.
    fn local_files(&self) -> Vec<LocalFile> {
        Vec::new()
    }

    /// Whether it runs another program.
    fn runs_a_tool(&self) -> bool {
        false
    }

    /// Returns the workers of these `parts`, ready to start. The directories must exist. Names and contents do not
    /// depend on the machine that does a part.
    ///
    /// # Errors
    /// Those of [`Workload::check`]; `site` lacks something.
    fn worker_pool(&self, site: &Site, parts: Range<u32>) -> Result<WorkerPool, WorkError>;

    /// Reads back and compares files that another tool has written, as long as `go_on` returns `true`. It runs
    /// after the measurement.
    fn read_back(&self, _site: &Site, _tally: &mut Tally, _go_on: &mut dyn FnMut() -> bool) {}
}

/// Work that the driver of a system does not support.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The work, and what it needs.
    pub what: &'static str,
    /// The driver.
    pub by: &'static str,
}

/// A file on the working machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LocalFile {
    /// A file that is read.
    Read(PathBuf),
    /// A directory for unnamed copies, which exist as long as a job runs.
    Scratch(PathBuf),
    /// A program that is run.
    Run(PathBuf),
}

impl Site {
    /// The client works alone.
    #[must_use]
    pub fn alone(content: Arc<Content>) -> Self {
        Self { target: None, copies: None, peers: Vec::new(), content, known: Arc::default() }
    }

    /// The work is done on a system.
    #[must_use]
    pub fn on(target: Arc<dyn Target>, content: Arc<Content>) -> Self {
        Self { target: Some(target), ..Self::alone(content) }
    }

    /// Returns the system, for work called `title`.
    pub(super) fn target(&self, title: &str) -> Result<Arc<dyn Target>, WorkError> {
        self.target.clone().ok_or_else(|| WorkError::NoSystem(title.to_owned()))
    }
}

/// Returns the word for a value in campaigns and results.
pub(crate) fn word_of(value: impl serde::Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|word| word.as_str().map(str::to_owned)).unwrap_or_default()
}

/// Converts numbers of parts to numbers of workers, if each part has `workers`.
pub(super) fn workers_of(parts: &Range<u32>, workers: u32) -> Range<usize> {
    parts.start as usize * workers as usize..parts.end as usize * workers as usize
}
