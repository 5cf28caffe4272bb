//! What all kinds of work have in common: what a campaign, a run and a report have to know of each.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::{
    AnalysisError, ChurnError, DaqError, FailureError, ForeignError, GenerateError, Known, SmallError, StreamError,
};
use crate::content::Content;
use crate::load::{Crew, HireError, Tally};
use crate::network::{Far, SpecError};
use crate::target::{Manner, RelName, Target};

/// Work that cannot be done as it is described.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WorkError {
    /// Of streams.
    #[error(transparent)]
    Streams(#[from] StreamError),
    /// Of small files.
    #[error(transparent)]
    Small(#[from] SmallError),
    /// Of recorders and who reads what they write.
    #[error(transparent)]
    Daq(#[from] DaqError),
    /// Of files that come and go.
    #[error(transparent)]
    Churn(#[from] ChurnError),
    /// Of going on while something is broken.
    #[error(transparent)]
    Failure(#[from] FailureError),
    /// Of another tool.
    #[error(transparent)]
    Foreign(#[from] ForeignError),
    /// Of the client alone.
    #[error(transparent)]
    Client(#[from] GenerateError),
    /// Of flows.
    #[error(transparent)]
    Network(#[from] SpecError),
    /// Nobody to have flows with.
    #[error("flows need the server of a network test; give the system a `peer`")]
    NoPeer,
    /// Of analysis.
    #[error(transparent)]
    Analysis(#[from] AnalysisError),
    /// Workers that cannot be started.
    #[error(transparent)]
    Hire(#[from] HireError),
    /// Nothing to work on.
    #[error("{0} needs files; put `write` before it")]
    NoFiles(String),
    /// Nowhere to work.
    #[error("{0} needs a system")]
    NoSystem(String),
}

/// Most workers of one kind of work on one machine, each a thread with connections of its own.
pub(super) const WORKERS_MAX: u64 = 4096;

/// What a figure counts.
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

/// Where work is done, and with what content.
#[derive(Clone)]
pub struct Site {
    /// The system; `None` where the client works alone.
    pub target: Option<Arc<dyn Target>>,
    /// Where copies go, if some are made.
    pub copies: Option<Arc<dyn Target>>,
    /// Far sides of the flows that the work is about; none for other work.
    pub peers: Vec<Far>,
    /// Contents of all files.
    pub content: Arc<Content>,
    /// What is known of the files from the phases before.
    pub known: Arc<Known>,
}

/// Names of files, made one by one: there may be millions.
pub type Names<'a> = Box<dyn Iterator<Item = RelName> + 'a>;

/// None at all.
#[must_use]
pub fn no_names<'a>() -> Names<'a> {
    Box::new(std::iter::empty())
}

/// One kind of work with all its parameters: a part of a trial that is measured by itself.
pub trait Workload {
    /// What it is called in results.
    fn title(&self) -> String;

    /// Whether it makes sense.
    ///
    /// # Errors
    /// What does not.
    fn check(&self) -> Result<(), WorkError>;

    /// Reads what it needs on this machine, before anything is done anywhere.
    ///
    /// # Errors
    /// What is not there, or is not what it should be.
    fn prepare(&self) -> Result<(), WorkError> {
        Ok(())
    }

    /// What its figures count.
    fn unit(&self) -> Unit;

    /// Bytes that lie on the system after it, at most.
    fn room(&self) -> u64;

    /// Bytes that it moves.
    fn moved(&self) -> u64;

    /// Operations that take their time whatever they move: opens, entries, removals.
    fn operations(&self) -> u64 {
        0
    }

    /// How long it takes, where that does not depend on the system.
    fn fixed_time(&self) -> Option<Duration> {
        None
    }

    /// Directories that have to be there before it.
    fn directories(&self) -> Vec<RelName>;

    /// Files that may be there after it, whatever happened.
    fn files(&self) -> Names<'_>;

    /// Files that may be on the second system then.
    fn copies(&self) -> Names<'_> {
        no_names()
    }

    /// Whether it is done on a system, and not by the client alone.
    fn needs_system(&self) -> bool {
        true
    }

    /// Whether it can be done by this driver at all; what cannot is left out, and is no failure.
    fn suits(&self, _target: &dyn Target) -> bool {
        true
    }

    /// Whether it is done in a folder on the system.
    fn needs_place(&self) -> bool {
        self.needs_system()
    }

    /// Whether it is done with the far sides of systems: of one, or of all where it needs no single system.
    fn needs_peers(&self) -> bool {
        false
    }

    /// Whether it works on files that a phase before it has made.
    fn needs_files(&self) -> bool {
        false
    }

    /// Whether it makes the files that other phases need.
    fn makes_files(&self) -> bool {
        false
    }

    /// Whether this machine's caches are to be emptied before it.
    fn is_cold(&self) -> bool {
        false
    }

    /// Whether it is told of as of a job: elapsed, user and system time.
    fn is_job(&self) -> bool {
        false
    }

    /// Whether operations may fail, because something is broken on purpose.
    fn expects_failures(&self) -> bool {
        false
    }

    /// The rate that is asked of all workers of a role together, in the unit of its figures; `None`: flat out.
    fn asked_rate(&self, _role: &str) -> Option<f64> {
        None
    }

    /// How its files are opened; `None` where it opens none.
    fn manner(&self) -> Option<Manner> {
        None
    }

    /// Whether it writes data.
    fn writes(&self) -> bool {
        false
    }

    /// Workers that wait for the system at a time; of several roles those of the first.
    fn workers(&self) -> u32 {
        self.parts()
    }

    /// Parts that can be divided over machines: streams, clients, recorders with all who read what they write; threads of what needs no
    /// system, so that it is the ceiling of as many workers on as many machines.
    fn parts(&self) -> u32;

    /// Files of the machine that works which it names, outside of any system.
    fn local_files(&self) -> Vec<LocalFile> {
        Vec::new()
    }

    /// Whether it runs a program that is not this one.
    fn runs_a_tool(&self) -> bool {
        false
    }

    /// Workers of these `parts`, ready to start. The directories have to be there. Names and contents are the same whoever does a part.
    ///
    /// # Errors
    /// [`Workload::check`]; and where `site` lacks something.
    fn crew(&self, site: &Site, parts: Range<u32>) -> Result<Crew, WorkError>;

    /// Reads back what somebody else has written and compares it, for as long as `go_on` says so: after all that is measured, and outside of it.
    fn read_back(&self, _site: &Site, _tally: &mut Tally, _go_on: &mut dyn FnMut() -> bool) {}
}

/// A file of the machine that works.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LocalFile {
    /// One that is read.
    Read(PathBuf),
    /// A directory in which copies without a name are kept for as long as a job takes.
    Scratch(PathBuf),
}

impl Site {
    /// Where the client works alone.
    #[must_use]
    pub fn alone(content: Arc<Content>) -> Self {
        Self { target: None, copies: None, peers: Vec::new(), content, known: Arc::default() }
    }

    /// On a system.
    #[must_use]
    pub fn on(target: Arc<dyn Target>, content: Arc<Content>) -> Self {
        Self { target: Some(target), ..Self::alone(content) }
    }

    /// The system, for work called `title`.
    pub(super) fn target(&self, title: &str) -> Result<Arc<dyn Target>, WorkError> {
        self.target.clone().ok_or_else(|| WorkError::NoSystem(title.to_owned()))
    }
}

/// The word by which a value is written in campaigns and results.
pub(crate) fn word_of(value: impl serde::Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|word| word.as_str().map(str::to_owned)).unwrap_or_default()
}

/// `numbers` of parts as numbers of workers, where each part has `workers`.
pub(super) fn workers_of(parts: &Range<u32>, workers: u32) -> Range<usize> {
    parts.start as usize * workers as usize..parts.end as usize * workers as usize
}
