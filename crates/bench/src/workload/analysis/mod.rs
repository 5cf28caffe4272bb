//! Analysis: jobs that read events from files, decompress them and compute. The figure is the share of their time
//! in which they compute.
//!
//! A job's input is one of three, best first. A recording gives the reads of a real job. A real ROOT file gives the
//! baskets or pages of chosen branches, which the job decompresses. A synthetic file has baskets of one length, and
//! all results call it synthetic.

mod ahead;
mod arrange;
mod clock;
mod cost;
mod input;
mod job;
mod material;
mod plan;
mod put;
mod recording;
mod shared;
mod uproot_input;

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub use input::Mode;
pub use recording::RecordingError;
pub use shared::Shared;
pub(super) use uproot_input::UprootInput;

use self::material::{JobReads, Material};
use super::kind::{word_of, workers_of};
use super::{LocalFile, Names, Refusal, Site, Unit, WorkError, Workload, no_names};
use crate::load::WorkerPool;
use crate::target::{DelayedTarget, RelName, Target};

/// A phase of the analysis.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AnalysisPhase {
    /// Put the files on the system.
    Put,
    /// Run the jobs that read them.
    Analyse,
}

/// The order of baskets in a file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// The order of the original; in a synthetic file, the order of entries.
    Ordered,
    /// The same baskets in a random order.
    Unordered,
}

/// What a replayed job does while the recorded one did not read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Gaps {
    /// It continues reading at once.
    Skip,
    /// It computes for that time.
    Compute,
}

/// The source of a job's reads.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AnalysisSource {
    /// A ROOT file on this machine.
    RootFile {
        /// Its path.
        path: PathBuf,
        /// The tree or ntuple; `None`: the largest.
        tree: Option<String>,
        /// Patterns of the branches or fields to read.
        branches: Vec<String>,
    },
    /// A recording of XRootD's recorder plug-in.
    Recording {
        /// Its path.
        path: PathBuf,
    },
    /// A synthetic file.
    Synthetic(SyntheticSpec),
}

/// A synthetic file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct SyntheticSpec {
    /// The largest size of the file, in bytes.
    pub file_bytes: u64,
    /// The number of events.
    pub events: u64,
    /// The number of branches. All have the same number of baskets.
    pub branches: u32,
    /// How many of them jobs read.
    pub read: u32,
    /// The size of each basket in bytes.
    pub basket_bytes: u32,
}

impl SyntheticSpec {
    /// The number of baskets of each branch.
    fn rounds(&self) -> u64 {
        self.file_bytes / (u64::from(self.branches) * u64::from(self.basket_bytes)).max(1)
    }

    fn bytes(&self) -> u64 {
        self.rounds() * u64::from(self.branches) * u64::from(self.basket_bytes)
    }
}

/// The parameters of an analysis.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct AnalysisSpec {
    /// The phase.
    pub phase: AnalysisPhase,
    /// The source of the reads.
    pub source: AnalysisSource,
    /// The number of copies of the files on the system. Jobs are spread over them.
    pub copies: u32,
    /// The order of the baskets in the file.
    pub order: Order,
    /// Jobs at a time.
    pub jobs: u32,
    /// The share of events that a job reads, in millionths. Each job chooses its own events at random.
    pub events_millionths: u32,
    /// How jobs read.
    pub mode: Mode,
    /// The bytes read at once, or ahead.
    pub cache_bytes: u64,
    /// A delay on this machine before each answer, in microseconds, as if the system were further away.
    pub added_round_trip_us: u64,
    /// The round trip of a proxy on this machine that delays the path to the system, in microseconds; 0: none.
    pub round_trip_us: u64,
    /// Whether jobs decompress.
    pub decompress: bool,
    /// The CPU time for each MB (uncompressed, if they decompress), in microseconds.
    pub compute_us_per_mb: u32,
    /// What replayed jobs do between the recorded reads.
    pub gaps: Gaps,
    /// The directory for copies on this machine.
    pub scratch: PathBuf,
    /// The seed of random choices.
    pub seed: u64,
    /// The input, which is made once for all phases.
    #[serde(skip)]
    pub shared: Shared,
}

/// The parameters are not valid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AnalysisError {
    /// A value is out of bounds.
    #[error("{what} is {value}; give {least} to {most}")]
    Bounds {
        /// Its name.
        what: &'static str,
        /// The value.
        value: u64,
        /// The smallest allowed value.
        least: u64,
        /// The largest allowed value.
        most: u64,
    },
    /// There must be exactly one source.
    #[error("give exactly one of root_file, recording and synthetic; `branches` and `tree` are for root_file only")]
    OneSource,
    /// The source has nothing to decompress, or to choose from.
    #[error("{0} is for a root_file, not for this source")]
    NotOfThis(&'static str),
    /// The jobs need more memory than a machine has.
    #[error(
        "{jobs} jobs with caches of {cache} bytes need more than 64 GiB of memory; give fewer jobs, or smaller caches"
    )]
    Memory {
        /// The number of jobs.
        jobs: u32,
        /// The memory of each job.
        cache: u64,
    },
    /// The source cannot be used.
    #[error("{path}: {what}")]
    Source {
        /// Its path.
        path: String,
        /// The reason.
        what: String,
    },
}

const MILLION: u32 = 1_000_000;
const MEMORY_MAX: u64 = 64 << 30;

impl AnalysisSpec {
    /// Checks the parameters, without using the source.
    ///
    /// # Errors
    /// The first invalid one.
    pub fn check(&self) -> Result<(), AnalysisError> {
        let bounds = [
            ("jobs", u64::from(self.jobs), 1, 4096),
            ("copies", u64::from(self.copies), 1, 100_000),
            ("events", u64::from(self.events_millionths), 1, u64::from(MILLION)),
            ("cache", self.cache_bytes, 1, 4 << 30),
            ("added_round_trip (in microseconds)", self.added_round_trip_us, 0, 60_000_000),
            ("round_trip (in microseconds)", self.round_trip_us, 0, 10_000_000),
            ("compute (in microseconds for each MB)", u64::from(self.compute_us_per_mb), 0, 100_000_000),
        ];
        let made = match &self.source {
            AnalysisSource::Synthetic(made) => vec![
                ("file", made.file_bytes, 1, 1 << 50),
                ("events", made.events, 1, plan::ENTRIES_MAX),
                ("branches", u64::from(made.branches), 1, 100_000),
                ("read", u64::from(made.read), 1, u64::from(made.branches)),
                ("basket", u64::from(made.basket_bytes), 1, 256 << 20),
                ("baskets of each branch", made.rounds(), 1, 10_000_000 / u64::from(made.branches.max(1))),
                ("events", made.events, made.rounds(), plan::ENTRIES_MAX),
            ],
            _ => Vec::new(),
        };
        for (what, value, least, most) in bounds.into_iter().chain(made) {
            if !(least..=most).contains(&value) {
                return Err(AnalysisError::Bounds { what, value, least, most });
            }
        }
        let is_real = matches!(self.source, AnalysisSource::RootFile { .. });
        let is_recorded = matches!(self.source, AnalysisSource::Recording { .. });
        let misplaced = [
            ("decompress", self.decompress && !is_real),
            ("a share of events", is_recorded && self.events_millionths < MILLION),
            ("order", is_recorded && self.order == Order::Unordered),
            ("vector (a recording has its own vector reads; use `direct`)", is_recorded && self.mode == Mode::Vector),
        ];
        if let Some((what, _)) = misplaced.into_iter().find(|(_, is_so)| *is_so) {
            return Err(AnalysisError::NotOfThis(what));
        }
        let blocks = match self.mode {
            Mode::Direct | Mode::CopyIn => 0,
            Mode::Vector => 1,
            Mode::ReadAhead => 2,
        };
        if self.cache_bytes.saturating_mul(u64::from(self.jobs) * blocks) > MEMORY_MAX {
            return Err(AnalysisError::Memory { jobs: self.jobs, cache: self.cache_bytes });
        }
        Ok(())
    }

    /// Returns the input, which is made at the first use.
    fn material(&self) -> Result<Arc<Material>, AnalysisError> {
        self.shared.get(|| {
            let material = Material::load(self)?;
            if let JobReads::Dataset(dataset) = &material.reading {
                let chosen = dataset.entries.saturating_mul(u64::from(self.events_millionths)) / u64::from(MILLION);
                let is_too_much = dataset.entries > plan::ENTRIES_MAX || chosen > plan::CHOSEN_MAX;
                if self.events_millionths < MILLION && is_too_much {
                    let (value, most) = (chosen, plan::CHOSEN_MAX);
                    return Err(AnalysisError::Bounds { what: "events chosen at random", value, least: 1, most });
                }
            }
            Ok(material)
        })
    }

    /// Returns the system through a proxy that delays the path to it; `None`: the path is as it is.
    pub(super) fn delayed(&self, target: &Arc<dyn Target>) -> Result<Option<DelayedTarget>, WorkError> {
        if self.round_trip_us == 0 {
            return Ok(None);
        }
        let files = self.material()?.files.len();
        let delayed = target.delayed(Duration::from_micros(self.round_trip_us)).and_then(|delayed| {
            delayed.check(&put::name(files, 0, 0))?;
            Ok(delayed)
        });
        delayed.map(Some).map_err(|error| WorkError::Delay(error.to_string()))
    }

    /// Returns the bytes of all files.
    fn bytes(&self) -> u64 {
        let one = match &self.source {
            AnalysisSource::RootFile { path, .. } => std::fs::metadata(path).map_or(0, |found| found.len()),
            AnalysisSource::Synthetic(made) => made.bytes(),
            AnalysisSource::Recording { .. } => self.material().map_or(0, |material| material.bytes()),
        };
        one.saturating_mul(u64::from(self.copies))
    }
}

impl Workload for AnalysisSpec {
    fn title(&self) -> String {
        word_of(self.phase)
    }

    fn check(&self) -> Result<(), WorkError> {
        Ok(self.check()?)
    }

    fn local_files(&self) -> Vec<LocalFile> {
        let source = match &self.source {
            AnalysisSource::RootFile { path, .. } | AnalysisSource::Recording { path } => {
                Some(LocalFile::Read(path.clone()))
            }
            AnalysisSource::Synthetic(_) => None,
        };
        let scratch = (self.mode == Mode::CopyIn).then(|| LocalFile::Scratch(self.scratch.clone()));
        source.into_iter().chain(scratch).collect()
    }

    fn prepare(&self) -> Result<(), WorkError> {
        self.material()?;
        if self.mode == Mode::CopyIn && !self.scratch.is_dir() {
            let (path, what) =
                (self.scratch.display().to_string(), "it is not a directory; `scratch` must be one".to_owned());
            return Err(AnalysisError::Source { path, what }.into());
        }
        Ok(())
    }

    fn unit(&self) -> Unit {
        match self.phase {
            AnalysisPhase::Put => Unit::Bytes,
            AnalysisPhase::Analyse => Unit::Efficiency,
        }
    }

    fn room(&self) -> u64 {
        self.bytes()
    }

    fn moved(&self) -> u64 {
        match self.phase {
            AnalysisPhase::Put => self.bytes(),
            // At most this much, unless a basket is read several times.
            AnalysisPhase::Analyse => (self.bytes() / u64::from(self.copies)).saturating_mul(u64::from(self.jobs)),
        }
    }

    fn directories(&self) -> Vec<RelName> {
        Vec::new()
    }

    fn files(&self) -> Names<'_> {
        let files = match &self.source {
            AnalysisSource::RootFile { .. } | AnalysisSource::Synthetic(_) => 1,
            // A recording that cannot be read any more has no files on the system.
            AnalysisSource::Recording { .. } => self.material().map_or(0, |material| material.files.len()),
        };
        if files == 0 {
            return no_names();
        }
        Box::new((0..self.copies).flat_map(move |copy| (0..files).map(move |file| put::name(files, copy, file))))
    }

    fn suits(&self, target: &dyn Target) -> bool {
        // Without jobs that read them, no files are put there.
        self.round_trip_us == 0 || target.location().is_some_and(|place| place.starts_with("root://"))
    }

    fn refusal(&self, target: &dyn Target) -> Option<Refusal> {
        let what = "`round_trip`, which needs a single place by root:// (use `added_round_trip`)";
        let by = match target.location() {
            None => "a system of several places",
            Some(place) if !place.contains("://") => "a system by path",
            Some(_) => "a system by HTTP",
        };
        (self.phase == AnalysisPhase::Analyse && !self.suits(target)).then_some(Refusal { what, by })
    }

    fn needs_files(&self) -> bool {
        self.phase == AnalysisPhase::Analyse
    }

    fn makes_files(&self) -> bool {
        self.phase == AnalysisPhase::Put
    }

    fn is_cold(&self) -> bool {
        self.phase == AnalysisPhase::Analyse
    }

    fn parts(&self) -> u32 {
        match self.phase {
            AnalysisPhase::Put => self.copies,
            AnalysisPhase::Analyse => self.jobs,
        }
    }

    fn worker_pool(&self, site: &Site, parts: Range<u32>) -> Result<WorkerPool, WorkError> {
        self.check()?;
        let (spec, material) = (self.clone(), self.material()?);
        let (target, content) = (site.target(&self.title())?, Arc::clone(&site.content));
        if self.phase == AnalysisPhase::Analyse {
            let path = self.delayed(&target)?;
            return Ok(WorkerPool::hire(&[("", workers_of(&parts, 1))], move |worker| {
                let target = path.as_ref().map_or(&target, DelayedTarget::target);
                job::job(&spec, &material, &**target, &content, worker)
            })?);
        }
        // A few writers, each with its share of the copies.
        let writers = parts.len().min(WRITERS_MAX);
        Ok(WorkerPool::hire(&[("", 0..writers)], move |worker| {
            let copies = parts.clone().skip(worker.number).step_by(writers.max(1));
            put::put(&material, &*target, &content, worker, copies)
        })?)
    }
}

/// The most files that are put on the system at a time.
const WRITERS_MAX: usize = 8;
