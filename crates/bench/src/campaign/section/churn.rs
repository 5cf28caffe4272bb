//! `[[repeat]]`, a job with many files of different sizes, and `[[robust]]`, very many files of many clients in one
//! directory. Both do the same work with different defaults.

use serde::Deserialize;

use super::super::file::CampaignError;
use super::super::trial::{Phase, Work};
use super::super::value::{OneOrMany, Size};
use super::{Section, each, named, one, product, request};
use crate::target::{Durability, IoOptions, Window};
use crate::workload::{ChurnError, ChurnPhase, ChurnSpec, Mix, Sizes};

/// A job with many files of different sizes, in all combinations of its parameters.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Repeat {
    /// Its name in results.
    pub name: String,
    /// The phases in order, on the same files.
    #[serde(default = "job_phases")]
    pub phases: Vec<ChurnPhase>,
    /// Jobs at a time.
    #[serde(default = "one")]
    pub jobs: OneOrMany<u32>,
    /// The number of files of each job.
    pub files: OneOrMany<u32>,
    /// The sizes of the smallest and the largest file.
    #[serde(default = "kinds")]
    pub sizes: [Size; 2],
    /// The operations of each job.
    pub operations: OneOrMany<u64>,
    /// The frequencies of the operations.
    #[serde(default)]
    pub mix: Mix,
    /// Whether all jobs share one directory. Otherwise each has its own.
    #[serde(default)]
    pub one_directory: bool,
    /// When written bytes must be durable.
    #[serde(default = "undurable")]
    pub durability: Durability,
    /// Operations a second of each job, at fixed times.
    pub rate: Option<u32>,
}

/// Very many files of many clients in one directory, in all combinations of its parameters.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Robust {
    /// Its name in results.
    pub name: String,
    /// The phases in order, on the same files.
    #[serde(default = "robust_phases")]
    pub phases: Vec<ChurnPhase>,
    /// Clients at a time.
    pub clients: OneOrMany<u32>,
    /// The number of files of each client.
    pub files: OneOrMany<u32>,
    /// The sizes of the smallest and the largest file.
    #[serde(default = "robust_sizes")]
    pub sizes: [Size; 2],
    /// The operations of each client between the first and the last phase. They make the work last for hours.
    #[serde(default = "thousand")]
    pub operations: OneOrMany<u64>,
    /// The frequencies of the operations.
    #[serde(default = "robust_mix")]
    pub mix: Mix,
    /// Whether all clients share one directory. Otherwise each has its own.
    #[serde(default = "in_one")]
    pub one_directory: bool,
    /// When written bytes must be durable.
    #[serde(default = "undurable")]
    pub durability: Durability,
    /// Operations a second of each client, at fixed times.
    pub rate: Option<u32>,
}

fn job_phases() -> Vec<ChurnPhase> {
    vec![ChurnPhase::Mixed, ChurnPhase::ReadBack]
}

fn robust_phases() -> Vec<ChurnPhase> {
    vec![ChurnPhase::Fill, ChurnPhase::Mixed, ChurnPhase::ReadBack]
}

fn kinds() -> [Size; 2] {
    [Size::of(100), Size::of(4 << 20)]
}

fn robust_sizes() -> [Size; 2] {
    [Size::of(4 << 10), Size::of(64 << 10)]
}

fn thousand() -> OneOrMany<u64> {
    OneOrMany::One(1000)
}

/// No listings: with very many files they would be most of the work.
fn robust_mix() -> Mix {
    Mix { create: 10, rewrite: 20, read: 50, stat: 10, list: 0, remove: 10 }
}

fn in_one() -> bool {
    true
}

fn undurable() -> Durability {
    Durability::None
}

/// The works of the phases, for each of `specs`. `given` are the sizes of their smallest and largest file.
fn works(name: &str, clients: &str, phases: &[ChurnPhase], given: [Size; 2], specs: Vec<ChurnSpec>) -> Vec<Work> {
    let before = |number: usize, phase| phases.iter().take(number).any(|before| *before == phase);
    let work = |spec: ChurnSpec| Work {
        parameters: named([
            (clients, spec.clients.to_string()),
            ("files", spec.files.to_string()),
            ("sizes", format!("{} to {}", given[0], given[1])),
            ("operations", spec.operations.to_string()),
            ("directories", if spec.one_directory { "one".to_owned() } else { "own".to_owned() }),
        ]),
        phases: phases
            .iter()
            .enumerate()
            .map(|(number, phase)| {
                let filled = before(number, ChurnPhase::Fill);
                Phase::Churn(ChurnSpec { phase: *phase, filled, ..spec.clone() })
            })
            .collect(),
        ..Work::new(name)
    };
    specs.into_iter().map(work).collect()
}

/// Checks the order of the phases. Otherwise a phase would look for files that do not exist.
fn in_order(name: &str, phases: &[ChurnPhase]) -> Result<(), CampaignError> {
    let again = |pair: &[ChurnPhase]| pair[0] > pair[1] || (pair[0] == pair[1] && pair[0] != ChurnPhase::ReadBack);
    let starts = phases.first().is_none_or(|first| matches!(first, ChurnPhase::Fill | ChurnPhase::Mixed));
    if starts && !phases.windows(2).any(again) {
        return Ok(());
    }
    Err(CampaignError::Work { name: name.to_owned(), source: ChurnError::Order.into() })
}

fn sizes([least, most]: [Size; 2]) -> Sizes {
    Sizes { least: request(least.bytes), most: request(most.bytes) }
}

impl Section for Repeat {
    fn combinations(&self) -> u64 {
        product([self.jobs.count(), self.files.count(), self.operations.count()])
    }

    fn file_sizes(&self) -> Vec<Size> {
        self.sizes.to_vec()
    }

    fn works(&self, seed: u64) -> Vec<Work> {
        let first = ChurnSpec {
            phase: ChurnPhase::Mixed,
            clients: 0,
            files: 0,
            sizes: sizes(self.sizes),
            operations: 0,
            mix: self.mix,
            filled: false,
            one_directory: self.one_directory,
            io_options: IoOptions { direct: false, durability: self.durability, window: Window::default() },
            rate: self.rate,
            seed,
        };
        let specs = each(vec![first], &self.jobs, |spec, jobs| spec.clients = jobs);
        let specs = each(specs, &self.files, |spec, files| spec.files = files);
        let specs = each(specs, &self.operations, |spec, operations| spec.operations = operations);
        works(&self.name, "jobs", &self.phases, self.sizes, specs)
    }

    fn check(&self) -> Result<(), CampaignError> {
        in_order(&self.name, &self.phases)
    }
}

impl Section for Robust {
    fn combinations(&self) -> u64 {
        product([self.clients.count(), self.files.count(), self.operations.count()])
    }

    fn file_sizes(&self) -> Vec<Size> {
        self.sizes.to_vec()
    }

    fn works(&self, seed: u64) -> Vec<Work> {
        let first = ChurnSpec {
            phase: ChurnPhase::Fill,
            clients: 0,
            files: 0,
            sizes: sizes(self.sizes),
            operations: 0,
            mix: self.mix,
            filled: false,
            one_directory: self.one_directory,
            io_options: IoOptions { direct: false, durability: self.durability, window: Window::default() },
            rate: self.rate,
            seed,
        };
        let specs = each(vec![first], &self.clients, |spec, clients| spec.clients = clients);
        let specs = each(specs, &self.files, |spec, files| spec.files = files);
        let specs = each(specs, &self.operations, |spec, operations| spec.operations = operations);
        works(&self.name, "clients", &self.phases, self.sizes, specs)
    }

    fn check(&self) -> Result<(), CampaignError> {
        in_order(&self.name, &self.phases)
    }
}
