//! The records. `docs/reference/bench-schema.json` describes them. The version rises when a field changes its
//! meaning.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::settings::MachineSettings;
use crate::campaign::Trial;
use crate::fault::FaultRecord;
use crate::measure::Measured;
use crate::sampling::{Sample, Settings};

/// The version of the records.
pub const VERSION: u32 = 1;

/// The common data of all trials of a run.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct RunHead {
    /// The version of the records.
    pub version: u32,
    /// The campaign's name.
    pub name: String,
    /// The text of the campaign file.
    pub campaign: String,
    /// The start in seconds since 1970.
    pub began: i64,
    /// The program that measured.
    pub program: String,
    /// The memory of the machine that keeps the records, in bytes; 0: unknown.
    #[serde(default)]
    pub memory_bytes: u64,
    /// The settings of that machine.
    #[serde(default)]
    pub machine: Settings,
}

/// Whether the read data may have come from a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Caches {
    /// This machine's page cache was emptied before.
    Dropped,
    /// No cache was emptied, because the pattern needs cached data, or writes.
    Kept,
    /// The cache could not be emptied.
    Unknown,
}

/// The record of a phase, or of one of its roles.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PhaseRecord {
    /// The index of the work's phase. Each role of a phase has its own record.
    pub number: usize,
    /// Its name.
    pub phase: String,
    /// The start in seconds since 1970.
    pub began: i64,
    /// Whether data may have come from a cache.
    pub caches: Caches,
    /// The commands that broke and restored something, recorded with the first role.
    #[serde(default)]
    pub faults: Vec<FaultRecord>,
    /// The measurement.
    pub measured: Measured,
    /// The machines that took part, recorded with the first role.
    #[serde(default)]
    pub machines: Machines,
}

impl PhaseRecord {
    /// Returns the CPU seconds of processes that did a part of the clients' work, such as FUSE mounts; `None`: a
    /// client had none.
    #[must_use]
    pub fn helpers_cpu_s(&self) -> Option<f64> {
        let agents = self.machines.agents.iter().map(|agent| &agent.samples);
        let machines = agents.chain(self.machines.agents.is_empty().then_some(&self.measured.client));
        machines.map(|samples| processes_cpu_s(samples)).sum()
    }
}

/// The machines that took part in a phase, besides the one that keeps the records.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct Machines {
    /// The agents; none: the recording machine did the work.
    pub agents: Vec<AgentRecord>,
    /// The planned agents that did not take part, or not to the end, with the reason. Each role has them.
    pub missing: Vec<String>,
    /// The watched servers.
    pub servers: Vec<ServerRecord>,
}

/// One agent's share of a phase.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct AgentRecord {
    /// Its name.
    pub name: String,
    /// The number of parts that it did.
    #[serde(default)]
    pub parts: u32,
    /// The work of each role.
    pub roles: Vec<AgentRole>,
    /// The machine second by second. Samples are longer if there would be too many.
    pub samples: Vec<Sample>,
    /// Its clock minus the coordinator's, in microseconds.
    pub ahead_us: i64,
    /// The round trip of that measurement in microseconds. The agent started within half of it of the common start.
    pub round_trip_us: u64,
}

/// The work of one role on one agent.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct AgentRole {
    /// The role; empty if there is only one.
    pub role: String,
    /// The seconds from the common start to the end of its last worker here.
    pub wall_s: f64,
    /// The number of operations.
    pub operations: u64,
    /// The bytes that they moved.
    pub bytes: u64,
    /// The number of failed operations.
    pub failures: u64,
}

/// A watched server's activity during a phase.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ServerRecord {
    /// The name of its system.
    pub system: String,
    /// The name of the machine.
    pub name: String,
    /// The processes whose CPU time is the server's; none: all CPU time of the machine.
    pub processes: Vec<String>,
    /// Whether the samples cover the whole phase.
    pub is_whole: bool,
    /// The machine second by second.
    pub samples: Vec<Sample>,
}

impl ServerRecord {
    /// Returns the server's CPU time in seconds; `None`: a part of it is unknown, or none of its processes was
    /// found.
    #[must_use]
    pub fn cpu_s(&self) -> Option<f64> {
        if self.processes.is_empty() {
            return self.is_whole.then(|| self.samples.iter().map(Sample::machine_cpu_s).sum());
        }
        processes_cpu_s(&self.samples).filter(|_| self.is_whole)
    }
}

/// Returns the CPU seconds of the watched processes on a machine; `None`: none was found.
fn processes_cpu_s(samples: &[Sample]) -> Option<f64> {
    let is_there = samples.iter().any(|sample| !sample.processes.is_empty());
    is_there.then(|| samples.iter().map(Sample::processes_cpu_s).sum())
}

/// The record of a trial.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct TrialRecord {
    /// The trial.
    pub trial: Trial,
    /// The system's name.
    pub system: String,
    /// The work's name.
    pub work: String,
    /// Its parameters.
    pub parameters: Vec<(String, String)>,
    /// Its phases, in order.
    pub phases: Vec<PhaseRecord>,
    /// Why it ended early, if it did.
    pub ended: Option<String>,
    /// The indexes of the phases that were not done, or not completely.
    #[serde(default)]
    pub not_done: Vec<usize>,
    /// The files that it made and could not remove, if any. Its figures are valid.
    #[serde(default)]
    pub left: Option<String>,
    /// Machine settings that earlier trials have not recorded, or that have changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<MachineSettings>,
}

impl TrialRecord {
    /// Whether a phase was done completely.
    #[must_use]
    pub fn is_whole(&self, number: usize) -> bool {
        // Old records do not say which phases were not done.
        self.ended.is_none() || (!self.not_done.is_empty() && !self.not_done.contains(&number))
    }
}

/// Returns the last record of each trial, with its line from 0. A repeated trial replaces one that ended early.
#[must_use]
pub fn latest(trials: &[TrialRecord]) -> Vec<(usize, &TrialRecord)> {
    let last: BTreeMap<&Trial, usize> = trials.iter().enumerate().map(|(line, record)| (&record.trial, line)).collect();
    trials.iter().enumerate().filter(|(line, record)| last.get(&record.trial) == Some(line)).collect()
}

/// Returns the trials that are complete.
#[must_use]
pub fn whole(trials: &[TrialRecord]) -> BTreeSet<Trial> {
    let whole = latest(trials).into_iter().filter(|(_, record)| record.ended.is_none());
    whole.map(|(_, record)| record.trial.clone()).collect()
}
