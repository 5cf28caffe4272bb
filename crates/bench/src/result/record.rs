//! What is recorded. `docs/bench-schema.json` describes it; the version is raised when a field changes its meaning.

use serde::{Deserialize, Serialize};

use crate::campaign::Trial;
use crate::fault::FaultRecord;
use crate::measure::Measured;
use crate::sampling::Settings;

/// Version of the records.
pub const VERSION: u32 = 1;

/// What all trials of a run have in common.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
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
}

/// A trial that was done.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
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
}
