//! What is recorded. `docs/reference/bench-schema.json` describes it; the version is raised when a field changes its meaning.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::settings::MachineSettings;
use crate::campaign::Trial;
use crate::fault::FaultRecord;
use crate::measure::Measured;
use crate::sampling::{Sample, Settings};

/// Version of the records.
pub const VERSION: u32 = 1;

/// What all trials of a run have in common.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct RunHead {
    /// Of the records.
    pub version: u32,
    /// The campaign's name.
    pub name: String,
    /// The campaign file, as it was.
    pub campaign: String,
    /// When it began, in seconds since 1970.
    pub began: i64,
    /// The program that measured.
    pub program: String,
    /// Bytes of memory of the machine that keeps the records; 0 where that is not known.
    #[serde(default)]
    pub memory_bytes: u64,
    /// Settings of that machine.
    #[serde(default)]
    pub machine: Settings,
}

/// Whether what was read could come from a memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Caches {
    /// This machine's page cache was emptied before.
    Dropped,
    /// Nothing was emptied, because the pattern is about what is in memory, or it writes.
    Kept,
    /// It was to be emptied, and that was not possible.
    Unknown,
}

/// A phase of a trial.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PhaseRecord {
    /// Which of the work's phases; the roles of one phase have records of their own.
    pub number: usize,
    /// Its name.
    pub phase: String,
    /// When it began, in seconds since 1970.
    pub began: i64,
    /// What could come from a memory.
    pub caches: Caches,
    /// What was broken and mended meanwhile, told with the first role.
    #[serde(default)]
    pub faults: Vec<FaultRecord>,
    /// What was measured.
    pub measured: Measured,
    /// The machines that took part; of several roles the first has them all.
    #[serde(default)]
    pub machines: Machines,
}

impl PhaseRecord {
    /// CPU time in seconds of the processes that did a part of the clients' work, as those of FUSE mounts do; `None` where a client had none.
    #[must_use]
    pub fn helpers_cpu_s(&self) -> Option<f64> {
        let agents = self.machines.agents.iter().map(|agent| &agent.samples);
        let machines = agents.chain(self.machines.agents.is_empty().then_some(&self.measured.client));
        machines.map(|samples| processes_cpu_s(samples)).sum()
    }
}

/// The machines that took part in a phase, beside the one that keeps the records.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct Machines {
    /// Those that did the work; none: this one did it.
    pub agents: Vec<AgentRecord>,
    /// Those that were to take part and did not, or not to the end, and why; each role has them.
    pub missing: Vec<String>,
    /// Servers that were watched.
    pub servers: Vec<ServerRecord>,
}

/// One machine's share of a phase.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct AgentRecord {
    /// Its name.
    pub name: String,
    /// Parts of the work that it had.
    #[serde(default)]
    pub parts: u32,
    /// What it did, role by role.
    pub roles: Vec<AgentRole>,
    /// The machine, second by second; longer samples where there would be too many.
    pub samples: Vec<Sample>,
    /// Its clock less the coordinator's, in microseconds.
    pub ahead_us: i64,
    /// The round trip by which that was found, in microseconds: it began within half of that of the common start.
    pub round_trip_us: u64,
}

/// What one machine's workers of a role did.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct AgentRole {
    /// The role; empty where there is only one.
    pub role: String,
    /// From the common start to the end of its last worker here, in seconds.
    pub wall_s: f64,
    /// Operations done.
    pub operations: u64,
    /// Bytes moved by them.
    pub bytes: u64,
    /// Operations that failed.
    pub failures: u64,
}

/// What a watched server did during a phase.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ServerRecord {
    /// The system, by its name.
    pub system: String,
    /// The machine.
    pub name: String,
    /// Processes whose CPU time is the server's; none: all of the machine.
    pub processes: Vec<String>,
    /// Whether the samples are of all of the phase.
    pub is_whole: bool,
    /// The machine, second by second.
    pub samples: Vec<Sample>,
}

impl ServerRecord {
    /// The server's CPU time in seconds; `None` where not all of it is known, or none of its processes was there.
    #[must_use]
    pub fn cpu_s(&self) -> Option<f64> {
        if self.processes.is_empty() {
            return self.is_whole.then(|| self.samples.iter().map(Sample::machine_cpu_s).sum());
        }
        processes_cpu_s(&self.samples).filter(|_| self.is_whole)
    }
}

/// CPU time in seconds of the processes that were watched on a machine; `None` where none of them was there.
fn processes_cpu_s(samples: &[Sample]) -> Option<f64> {
    let is_there = samples.iter().any(|sample| !sample.processes.is_empty());
    is_there.then(|| samples.iter().map(Sample::processes_cpu_s).sum())
}

/// A trial that was done.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct TrialRecord {
    /// Which.
    pub trial: Trial,
    /// The system's name.
    pub system: String,
    /// The work's name.
    pub work: String,
    /// Its parameters.
    pub parameters: Vec<(String, String)>,
    /// Its phases, in their order.
    pub phases: Vec<PhaseRecord>,
    /// Why it ended early, if it did.
    pub ended: Option<String>,
    /// The phases that were not done then, or not to their end: their places in the work.
    #[serde(default)]
    pub not_done: Vec<usize>,
    /// What it made and could not remove, if that is so: nothing is wrong with its figures.
    #[serde(default)]
    pub left: Option<String>,
    /// Settings of machines that the trials before have not recorded, or that are not the same any more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<MachineSettings>,
}

impl TrialRecord {
    /// Whether a phase of it was done to its end.
    #[must_use]
    pub fn is_whole(&self, number: usize) -> bool {
        // Records of before this was told: nobody knows which.
        self.ended.is_none() || (!self.not_done.is_empty() && !self.not_done.contains(&number))
    }
}

/// The last record of each trial, with its line, from 0: what was done again replaces what ended early.
#[must_use]
pub fn latest(trials: &[TrialRecord]) -> Vec<(usize, &TrialRecord)> {
    let last: BTreeMap<&Trial, usize> = trials.iter().enumerate().map(|(line, record)| (&record.trial, line)).collect();
    trials.iter().enumerate().filter(|(line, record)| last.get(&record.trial) == Some(line)).collect()
}

/// The trials of which nothing is left to be done.
#[must_use]
pub fn whole(trials: &[TrialRecord]) -> BTreeSet<Trial> {
    let whole = latest(trials).into_iter().filter(|(_, record)| record.ended.is_none());
    whole.map(|(_, record)| record.trial.clone()).collect()
}
