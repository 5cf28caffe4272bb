//! Work with all its parameters, and trials of it.

use super::file::CampaignError;
use crate::network::NetworkSpec;
use crate::target::RelName;
use crate::workload::{
    Access, AnalysisPhase, AnalysisSpec, ChurnSpec, DaqSpec, FailureSpec, ForeignFlowsSpec, ForeignSpec, GenerateSpec,
    Names, SmallPhase, SmallSpec, StreamSpec, UprootSpec, WorkError, Workload, no_names,
};

/// The name in results for work without a system.
pub const CLIENT_ALONE: &str = "this client";
/// The name in results for all systems together.
pub const ALL_AT_ONCE: &str = "all at once";

/// Work that is done at once, on files of its own.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Work {
    /// Its name in results.
    pub name: String,
    /// The parameters that distinguish it from others of its name, as readable text.
    pub parameters: Vec<(String, String)>,
    /// The phases in order.
    pub phases: Vec<Phase>,
    /// A directory on a second system, for copies.
    pub copy_to: Option<String>,
    /// When the system's `fail` command runs, in seconds after the start of the phase.
    pub fail_at_s: Option<u32>,
    /// When its `restore` command runs.
    pub restore_at_s: Option<u32>,
    /// How many of the system's directories it uses. The default is all.
    pub targets: Option<u32>,
    /// Whether it differs from an earlier work only in how clients open `root://` addresses. Then it is not done on
    /// other systems.
    pub only_root: bool,
}

/// A part of a work that is measured on its own.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Streams.
    Stream(StreamSpec),
    /// Small files.
    Small(SmallSpec),
    /// Data acquisition.
    Daq(DaqSpec),
    /// Many files that are created and removed.
    Churn(ChurnSpec),
    /// Work that continues while something is broken.
    Failure(FailureSpec),
    /// Another tool on the same work.
    Foreign(ForeignSpec),
    /// The client alone, with no system.
    Client(GenerateSpec),
    /// The network between clients and network-test servers.
    Network(NetworkSpec),
    /// Another tool on the same flows.
    ForeignFlows(ForeignFlowsSpec),
    /// Analysis.
    Analysis(AnalysisSpec),
    /// uproot on the same files.
    Uproot(UprootSpec),
}

impl Phase {
    /// Returns the phase's workload.
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
            Self::Uproot(spec) => spec,
        }
    }

    /// Returns the same phase after an earlier phase that writes has failed or was cut short. The files may then
    /// have any version of their contents. `by_agents`: an agent does not know which files other agents have.
    #[must_use]
    pub fn of_uncertain(&self, by_agents: bool) -> Self {
        match self {
            Self::Stream(spec) => Self::Stream(StreamSpec { oldest_generation: 0, ..spec.clone() }),
            other if by_agents => other.of_fewer(),
            other => other.clone(),
        }
    }

    /// Returns the parameters that apply to this phase. For example, a new file has one writer, however many chunks
    /// later phases use.
    #[must_use]
    pub fn parameters(&self, of_work: &[(String, String)]) -> Vec<(String, String)> {
        let mut parameters = of_work.to_vec();
        if let Self::Stream(spec) = self {
            let chunks = parameters.iter_mut().find(|(name, _)| name == "chunks");
            chunks.into_iter().for_each(|(_, value)| *value = spec.chunks.to_string());
        }
        parameters
    }

    /// Whether the phase needs all files of earlier phases to be complete. A worker of such a phase does not know
    /// how far those phases came, and would report unwritten data as lost.
    #[must_use]
    pub fn needs_whole_files(&self, by_agents: bool) -> bool {
        match self {
            Self::Stream(spec) => by_agents && spec.access == Access::ReadOthers,
            Self::Foreign(spec) => spec.needs_files(),
            Self::Analysis(spec) => spec.phase == AnalysisPhase::Analyse,
            Self::Uproot(spec) => spec.needs_files(),
            _ => false,
        }
    }

    /// Returns the same phase after some creators of files are gone. A phase that checks all files of a directory
    /// cannot expect all of them then.
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
    /// Makes a work without phases.
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            parameters: Vec::new(),
            phases: Vec::new(),
            copy_to: None,
            fail_at_s: None,
            restore_at_s: None,
            targets: None,
            only_root: false,
        }
    }

    /// Whether a system with this number of directories can do it.
    #[must_use]
    pub fn fits(&self, places: u64) -> bool {
        self.targets.is_none_or(|targets| u64::from(targets) <= places)
    }

    /// Checks each phase and the files that it needs.
    pub(super) fn check(&self) -> Result<(), CampaignError> {
        let wrong = |source| CampaignError::Work { name: self.name.clone(), source };
        let (mut made, mut has_written) = (false, false);
        for phase in self.workloads() {
            phase.check().map_err(wrong)?;
            if phase.needs_files() && !made {
                return Err(wrong(WorkError::NoFiles(phase.title())));
            }
            if phase.must_follow_write() && !has_written {
                return Err(wrong(WorkError::NotAfterWrite(phase.title())));
            }
            made |= phase.makes_files();
            has_written = phase.writes();
        }
        if self.phases.is_empty() { Err(CampaignError::Nothing("phases in one of its works")) } else { Ok(()) }
    }

    /// Reads the files that it needs on this machine, before any work starts.
    ///
    /// # Errors
    /// [`CampaignError::Work`].
    pub fn prepare(&self) -> Result<(), CampaignError> {
        let wrong = |source| CampaignError::Work { name: self.name.clone(), source };
        self.workloads().try_for_each(|phase| phase.prepare().map_err(wrong))
    }

    /// Tries whether this machine has the programs that it runs.
    ///
    /// # Errors
    /// [`CampaignError::Work`].
    pub fn try_tools(&self) -> Result<(), CampaignError> {
        let wrong = |source| CampaignError::Work { name: self.name.clone(), source };
        self.workloads().try_for_each(|phase| phase.try_tools().map_err(wrong))
    }

    fn workloads(&self) -> impl Iterator<Item = &dyn Workload> {
        self.phases.iter().map(Phase::workload)
    }

    /// Returns the directories that must exist before the first phase.
    #[must_use]
    pub fn directories(&self) -> Vec<RelName> {
        self.workloads().next().map_or_else(Vec::new, Workload::directories)
    }

    /// Returns the files that may exist after the last phase, whatever happened.
    pub fn files(&self) -> Names<'_> {
        let ours = self.workloads().next().map_or_else(no_names, Workload::files);
        let others = self.phases.iter().find_map(|phase| match phase {
            Phase::Foreign(spec) => Some(spec.files()),
            _ => None,
        });
        Box::new(ours.chain(others.into_iter().flatten()))
    }

    /// Returns the files that may exist on the second system then.
    pub fn copies(&self) -> Names<'_> {
        self.workloads().next().filter(|_| self.copy_to.is_some()).map_or_else(no_names, Workload::copies)
    }

    /// Whether it is done on a system, not by the client alone.
    #[must_use]
    pub fn needs_system(&self) -> bool {
        self.workloads().any(Workload::needs_system)
    }

    /// Whether it needs a folder on the system.
    #[must_use]
    pub fn needs_place(&self) -> bool {
        self.workloads().any(Workload::needs_place)
    }

    /// Whether it needs network-test servers.
    #[must_use]
    pub fn needs_peers(&self) -> bool {
        self.workloads().any(Workload::needs_peers)
    }

    /// Returns the name in results for the system called `name`.
    #[must_use]
    pub fn system_name<'a>(&self, name: &'a str) -> &'a str {
        match (self.needs_system(), self.needs_peers()) {
            (true, _) => name,
            (false, true) => ALL_AT_ONCE,
            (false, false) => CLIENT_ALONE,
        }
    }

    /// Returns the most bytes that it needs on the system.
    #[must_use]
    pub fn room(&self) -> u64 {
        self.workloads().map(Workload::room).max().unwrap_or(0)
    }

    /// Returns its name with its parameters.
    #[must_use]
    pub fn title(&self) -> String {
        let parameters: Vec<String> = self.parameters.iter().map(|(name, value)| format!("{name}={value}")).collect();
        format!("{} {}", self.name, parameters.join(" "))
    }
}

/// One repeat of a work on one system.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, serde::Serialize, serde::Deserialize)]
pub struct Trial {
    /// The index of the campaign's system.
    pub system: usize,
    /// The index of the campaign's work.
    pub work: usize,
    /// The repeat, from 0.
    pub repeat: u32,
}
