//! Work with all its parameters, and a trial of it.

use super::file::CampaignError;
use crate::network::NetworkSpec;
use crate::target::RelName;
use crate::workload::{
    Access, AnalysisPhase, AnalysisSpec, ChurnSpec, DaqSpec, FailureSpec, ForeignFlowsSpec, ForeignSpec, GenerateSpec,
    Names, SmallPhase, SmallSpec, StreamSpec, WorkError, Workload, no_names,
};

/// What results call the client where it works with no system.
pub const CLIENT_ALONE: &str = "this client";
/// What results call all systems together.
pub const ALL_AT_ONCE: &str = "all at once";

/// Work that is done in one go, on files of its own.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Work {
    /// What it is called in results.
    pub name: String,
    /// Parameters that set it apart from others of its name, as people read them.
    pub parameters: Vec<(String, String)>,
    /// What is done, in this order.
    pub phases: Vec<Phase>,
    /// A directory on a second system, where copies go.
    pub copy_to: Option<String>,
    /// When the system's command that breaks something is run, in seconds after the start of the phase.
    pub fail_at_s: Option<u32>,
    /// When the command that mends it is.
    pub restore_at_s: Option<u32>,
    /// Of the system's places so many; otherwise all.
    pub targets: Option<u32>,
}

/// A part of work that is measured by itself.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Streams.
    Stream(StreamSpec),
    /// Small files.
    Small(SmallSpec),
    /// Data acquisition.
    Daq(DaqSpec),
    /// Many files that come and go.
    Churn(ChurnSpec),
    /// Going on while something is broken.
    Failure(FailureSpec),
    /// Another tool on the same work.
    Foreign(ForeignSpec),
    /// The client alone, with no system.
    Client(GenerateSpec),
    /// The network to the far sides of systems.
    Network(NetworkSpec),
    /// Another tool on the same flows.
    ForeignFlows(ForeignFlowsSpec),
    /// Analysis.
    Analysis(AnalysisSpec),
}

impl Phase {
    /// What it is.
    #[must_use]
    pub fn workload(&self) -> &dyn Workload {
        match self {
            Self::Stream(spec) => spec,
            Self::Small(spec) => spec,
            Self::Daq(spec) => spec,
            Self::Churn(spec) => spec,
            Self::Failure(spec) => spec,
            Self::Foreign(spec) => spec,
            Self::Client(spec) => spec,
            Self::Network(spec) => spec,
            Self::ForeignFlows(spec) => spec,
            Self::Analysis(spec) => spec,
        }
    }

    /// The same where something before it failed, or was cut, that was to write: any content that the files had or were to have may be there.
    /// One of several agents does not know which files the others have.
    #[must_use]
    pub fn of_uncertain(&self, by_agents: bool) -> Self {
        match self {
            Self::Stream(spec) => Self::Stream(StreamSpec { oldest_generation: 0, ..spec.clone() }),
            other if by_agents => other.of_fewer(),
            other => other.clone(),
        }
    }

    /// Of a work's parameters its own: a new file is written by one worker, however many chunks there are later.
    #[must_use]
    pub fn parameters(&self, of_work: &[(String, String)]) -> Vec<(String, String)> {
        let mut parameters = of_work.to_vec();
        if let Self::Stream(spec) = self {
            let chunks = parameters.iter_mut().find(|(name, _)| name == "chunks");
            chunks.into_iter().for_each(|(_, value)| *value = spec.chunks.to_string());
        }
        parameters
    }

    /// Whether it can be done only where all files were written that were to be: who does it does not know how far that came, and would take
    /// what was never written for something that is gone.
    #[must_use]
    pub fn needs_whole_files(&self, by_agents: bool) -> bool {
        match self {
            Self::Stream(spec) => by_agents && spec.access == Access::ReadOthers,
            Self::Foreign(spec) => spec.needs_files(),
            Self::Analysis(spec) => spec.phase == AnalysisPhase::Analyse,
            _ => false,
        }
    }

    /// The same where some who made files before are gone: who looks at all files of a directory cannot expect all of them.
    #[must_use]
    pub fn of_fewer(&self) -> Self {
        match self {
            Self::Small(spec) if spec.one_directory => {
                let verify = spec.verify && spec.phase != SmallPhase::List;
                Self::Small(SmallSpec { verify, ..spec.clone() })
            }
            other => other.clone(),
        }
    }
}

impl Work {
    /// Work without anything to do yet.
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            parameters: Vec::new(),
            phases: Vec::new(),
            copy_to: None,
            fail_at_s: None,
            restore_at_s: None,
            targets: None,
        }
    }

    /// Whether it can be done on a system with so many places.
    #[must_use]
    pub fn fits(&self, places: u64) -> bool {
        self.targets.is_none_or(|targets| u64::from(targets) <= places)
    }

    /// Whether each phase makes sense, and finds the files that it needs.
    pub(super) fn check(&self) -> Result<(), CampaignError> {
        let wrong = |source| CampaignError::Work { name: self.name.clone(), source };
        let mut made = false;
        for phase in self.workloads() {
            phase.check().map_err(wrong)?;
            if phase.needs_files() && !made {
                return Err(wrong(WorkError::NoFiles(phase.title())));
            }
            made |= phase.makes_files();
        }
        if self.phases.is_empty() { Err(CampaignError::Nothing("phases in one of its works")) } else { Ok(()) }
    }

    /// Reads what it needs on this machine, before anything is done anywhere.
    ///
    /// # Errors
    /// [`CampaignError::Work`].
    pub fn prepare(&self) -> Result<(), CampaignError> {
        let wrong = |source| CampaignError::Work { name: self.name.clone(), source };
        self.workloads().try_for_each(|phase| phase.prepare().map_err(wrong))
    }

    fn workloads(&self) -> impl Iterator<Item = &dyn Workload> {
        self.phases.iter().map(Phase::workload)
    }

    /// Directories that have to be there before the first phase.
    #[must_use]
    pub fn directories(&self) -> Vec<RelName> {
        self.workloads().next().map_or_else(Vec::new, Workload::directories)
    }

    /// Files that may be there after the last phase, whatever happened.
    pub fn files(&self) -> Names<'_> {
        let ours = self.workloads().next().map_or_else(no_names, Workload::files);
        let others = self.phases.iter().find_map(|phase| match phase {
            Phase::Foreign(spec) => Some(spec.files()),
            _ => None,
        });
        Box::new(ours.chain(others.into_iter().flatten()))
    }

    /// Files that may be on the second system then.
    pub fn copies(&self) -> Names<'_> {
        self.workloads().next().filter(|_| self.copy_to.is_some()).map_or_else(no_names, Workload::copies)
    }

    /// Whether it is done on a system, and not by the client alone.
    #[must_use]
    pub fn needs_system(&self) -> bool {
        self.workloads().any(Workload::needs_system)
    }

    /// Whether it is done in a folder on the system.
    #[must_use]
    pub fn needs_place(&self) -> bool {
        self.workloads().any(Workload::needs_place)
    }

    /// Whether it is done with the far sides of systems.
    #[must_use]
    pub fn needs_peers(&self) -> bool {
        self.workloads().any(Workload::needs_peers)
    }

    /// What results call where it is done, for the system called `name`.
    #[must_use]
    pub fn system_name<'a>(&self, name: &'a str) -> &'a str {
        match (self.needs_system(), self.needs_peers()) {
            (true, _) => name,
            (false, true) => ALL_AT_ONCE,
            (false, false) => CLIENT_ALONE,
        }
    }

    /// Bytes that it takes at most on the system.
    #[must_use]
    pub fn room(&self) -> u64 {
        self.workloads().map(Workload::room).max().unwrap_or(0)
    }

    /// Its name with its parameters.
    #[must_use]
    pub fn title(&self) -> String {
        let parameters: Vec<String> = self.parameters.iter().map(|(name, value)| format!("{name}={value}")).collect();
        format!("{} {}", self.name, parameters.join(" "))
    }
}

/// One piece of work on one system.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, serde::Serialize, serde::Deserialize)]
pub struct Trial {
    /// Which of the campaign's systems.
    pub system: usize,
    /// Which of the campaign's works.
    pub work: usize,
    /// Which repeat, from 0.
    pub repeat: u32,
}
