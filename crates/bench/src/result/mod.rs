//! Results: one folder for each run. Every trial is recorded as soon as it is done, so that an interrupted run can
//! continue.

mod folder;
mod record;
mod settings;

pub use folder::{DerivedFile, FIGURE_START, FIGURES_FOLDER, FolderError, ResultFolder};
pub use record::{
    AgentRecord, AgentRole, Caches, Machines, PhaseRecord, RunHead, ServerRecord, TrialRecord, VERSION, latest, whole,
};
pub use settings::{KnownSettings, MachineSettings, known_settings, news};
