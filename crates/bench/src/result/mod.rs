//! Results: one folder for each run, in which every trial is recorded as soon as it is done, so that a run that was cut off is gone on with.

mod folder;
mod record;
mod settings;

pub use folder::{Beside, FolderError, ResultFolder};
pub use record::{
    AgentRecord, AgentRole, Caches, Machines, PhaseRecord, RunHead, ServerRecord, TrialRecord, VERSION, latest, whole,
};
pub use settings::{KnownSettings, MachineSettings, known_settings, news};
