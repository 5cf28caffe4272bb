//! Analysis: jobs that read events from files, decompress them and compute. What counts is how much of their time they compute.
//!
//! What a job reads is, best first: what a recording says that a real job read; the baskets or pages of chosen branches of a real ROOT file,
//! which it decompresses; or baskets of one length of a file that is made up, and is called synthetic in all results.

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

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

pub use input::Mode;
pub use recording::RecordingError;
pub use shared::Shared;

use self::material::{Material, Reading};
use super::kind::{word_of, workers_of};
use super::{LocalFile, Names, Site, Unit, WorkError, Workload, no_names};
use crate::load::Crew;
use crate::target::RelName;

/// What is done.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AnalysisPhase {
    /// The files are put on the system.
    Put,
    /// Jobs read them.
    Analyse,
}

/// How baskets lie in a file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// As in the original; in a file that is made up, in the order of entries.
    Ordered,
    /// The same baskets in a random order.
    Unordered,
}

/// What a replayed job does where the recorded one did something else than read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Gaps {
    /// Nothing: it goes on reading.
    Skip,
    /// It computes for as long.
    Compute,
}

/// Where the reads of a job come from.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AnalysisSource {
    /// A ROOT file of this machine.
    RootFile {
        /// Where.
        path: PathBuf,
        /// The tree or ntuple; the largest otherwise.
        tree: Option<String>,
        /// Patterns of branches or fields that are read.
        branches: Vec<String>,
    },
    /// A recording of XRootD's recorder plug-in.
    Recording {
        /// Where.
        path: PathBuf,
    },
    /// Nothing real.
    Synthetic(SyntheticSpec),
}

/// A file that is made up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct SyntheticSpec {
    /// Bytes of the file, at most.
    pub file_bytes: u64,
    /// Events in it.
    pub events: u64,
    /// Branches, each with the same number of baskets.
    pub branches: u32,
    /// How many of them jobs read.
    pub read: u32,
    /// Bytes of each basket.
    pub basket_bytes: u32,
}

impl SyntheticSpec {
    /// Baskets of each branch.
    fn rounds(&self) -> u64 {
        self.file_bytes / (u64::from(self.branches) * u64::from(self.basket_bytes)).max(1)
    }

    fn bytes(&self) -> u64 {
        self.rounds() * u64::from(self.branches) * u64::from(self.basket_bytes)
    }
}

/// Analysis.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct AnalysisSpec {
    /// What is done.
    pub phase: AnalysisPhase,
    /// Where the reads come from.
    pub source: AnalysisSource,
    /// Copies of the files on the system; jobs are spread over them.
    pub copies: u32,
    /// How baskets lie in the file.
    pub order: Order,
    /// Jobs at a time.
    pub jobs: u32,
    /// The share of events that a job reads, each at random, in millionths; another choice for each job.
    pub events_millionths: u32,
    /// How they are read.
    pub mode: Mode,
    /// Bytes that are read at once, or ahead.
    pub cache_bytes: u64,
    /// A wait before each answer is seen, on this machine, in microseconds: as if the system were further away.
    pub added_round_trip_us: u64,
    /// Whether jobs decompress what they read.
    pub decompress: bool,
    /// CPU time that they spend for each MB (uncompressed, if they decompress), in microseconds.
    pub compute_us_per_mb: u32,
    /// What they do where a recorded job did not read.
    pub gaps: Gaps,
    /// Where files are copied to, on this machine.
    pub scratch: PathBuf,
    /// Of random choices.
    pub seed: u64,
    /// What is made of the source, once for all phases.
    #[serde(skip)]
    pub shared: Shared,
}

/// A specification that makes no sense.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AnalysisError {
    /// Out of bounds.
    #[error("{what} is {value}; give {least} to {most}")]
    Bounds {
        /// What.
        what: &'static str,
        /// What was asked for.
        value: u64,
        /// The least.
        least: u64,
        /// The most.
        most: u64,
    },
    /// Not one source.
    #[error("give one of root_file, recording and synthetic, and `branches` and `tree` with root_file alone")]
    OneSource,
    /// Nothing to decompress, or to choose among.
    #[error("{0} is for a root_file; there is nothing of that kind in this source")]
    NotOfThis(&'static str),
    /// More memory than a machine has.
    #[error("{jobs} jobs with caches of {cache} bytes take more than 64 GiB of memory; give fewer, or smaller caches")]
    Memory {
        /// Jobs.
        jobs: u32,
        /// Of each.
        cache: u64,
    },
    /// The source cannot be used.
    #[error("{path}: {what}")]
    Source {
        /// Which.
        path: String,
        /// Why.
        what: String,
    },
}

const MILLION: u32 = 1_000_000;
const MEMORY_MAX: u64 = 64 << 30;

impl AnalysisSpec {
    /// Whether it makes sense, as far as that can be known without its source.
    ///
    /// # Errors
    /// What does not.
    pub fn check(&self) -> Result<(), AnalysisError> {
        let bounds = [
            ("jobs", u64::from(self.jobs), 1, 4096),
            ("copies", u64::from(self.copies), 1, 100_000),
            ("events", u64::from(self.events_millionths), 1, u64::from(MILLION)),
            ("cache", self.cache_bytes, 1, 4 << 30),
            ("added_round_trip (in microseconds)", self.added_round_trip_us, 0, 60_000_000),
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
            (
                "vector (a recording says itself what is read at once: take `direct`)",
                is_recorded && self.mode == Mode::Vector,
            ),
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

    /// What is read, made on first use.
    fn material(&self) -> Result<Arc<Material>, AnalysisError> {
        self.shared.get(|| {
            let material = Material::load(self)?;
            if let Reading::Dataset(dataset) = &material.reading {
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

    /// Bytes of all files.
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
                (self.scratch.display().to_string(), "it is no directory; scratch has to be one".to_owned());
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
            // At most, unless a basket is read several times.
            AnalysisPhase::Analyse => (self.bytes() / u64::from(self.copies)).saturating_mul(u64::from(self.jobs)),
        }
    }

    fn directories(&self) -> Vec<RelName> {
        Vec::new()
    }

    fn files(&self) -> Names<'_> {
        let files = match &self.source {
            AnalysisSource::RootFile { .. } | AnalysisSource::Synthetic(_) => 1,
            // What cannot be read any more has not been put anywhere.
            AnalysisSource::Recording { .. } => self.material().map_or(0, |material| material.files.len()),
        };
        if files == 0 {
            return no_names();
        }
        Box::new((0..self.copies).flat_map(move |copy| (0..files).map(move |file| put::name(files, copy, file))))
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

    fn crew(&self, site: &Site, parts: Range<u32>) -> Result<Crew, WorkError> {
        self.check()?;
        let (spec, material) = (self.clone(), self.material()?);
        let (target, content) = (site.target(&self.title())?, Arc::clone(&site.content));
        if self.phase == AnalysisPhase::Analyse {
            return Ok(Crew::hire(&[("", workers_of(&parts, 1))], move |worker| {
                job::job(&spec, &material, &*target, &content, worker)
            })?);
        }
        // A few at a time, each with its share of the copies.
        let writers = parts.len().min(WRITERS_MAX);
        Ok(Crew::hire(&[("", 0..writers)], move |worker| {
            let copies = parts.clone().skip(worker.number).step_by(writers.max(1));
            put::put(&material, &*target, &content, worker, copies)
        })?)
    }
}

/// Files that are put on the system at a time.
const WRITERS_MAX: usize = 8;
