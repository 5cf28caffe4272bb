//! Work with all its parameters, and a trial of it.

use super::file::CampaignError;
use crate::target::RelName;
use crate::workload::{Access, DaqSpec, GenerateSpec, SmallPhase, SmallSpec, StreamError, StreamSpec};

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
    /// The client alone, with no system.
    Client(GenerateSpec),
}

impl Phase {
    /// What it is called in results.
    #[must_use]
    pub fn title(&self) -> String {
        let word = match self {
            Self::Stream(spec) => serde_json::to_value(spec.access),
            Self::Small(spec) => serde_json::to_value(spec.phase),
            Self::Daq(_) => Ok("daq".into()),
            Self::Client(spec) => serde_json::to_value(spec.work),
        };
        word.ok().and_then(|word| word.as_str().map(str::to_owned)).unwrap_or_default()
    }

    /// Bytes that lie on the system after it, at most.
    #[must_use]
    pub fn room(&self) -> u64 {
        match self {
            Self::Stream(spec) => spec.bytes(),
            Self::Small(spec) => spec.bytes(),
            Self::Daq(spec) => spec.bytes(),
            Self::Client(_) => 0,
        }
    }

    /// Bytes that it moves.
    #[must_use]
    pub fn moved(&self) -> u64 {
        match self {
            Self::Stream(spec) => spec.bytes(),
            Self::Small(spec) if matches!(spec.phase, SmallPhase::Create | SmallPhase::Read) => spec.bytes(),
            Self::Daq(spec) => {
                spec.bytes().saturating_mul(u64::from(spec.followers) + 1 + 2 * u64::from(spec.copiers > 0))
            }
            Self::Small(_) | Self::Client(_) => 0,
        }
    }
}

impl Work {
    /// Whether each phase makes sense, and finds the files that it needs.
    pub(super) fn check(&self) -> Result<(), CampaignError> {
        let name = || self.name.clone();
        let mut made = false;
        for phase in &self.phases {
            match phase {
                Phase::Stream(spec) => {
                    spec.check().map_err(|source| CampaignError::Streams { name: name(), source })?;
                    if spec.access.needs_files() && !made {
                        return Err(CampaignError::Streams { name: name(), source: StreamError::NoFiles(spec.access) });
                    }
                    made |= spec.access == Access::Write;
                }
                Phase::Small(spec) => spec.check().map_err(|source| CampaignError::Small { name: name(), source })?,
                Phase::Daq(spec) => spec.check().map_err(|source| CampaignError::Daq { name: name(), source })?,
                Phase::Client(spec) => spec.check().map_err(|source| CampaignError::Client { name: name(), source })?,
            }
        }
        if self.phases.is_empty() { Err(CampaignError::Nothing("phases in one of its works")) } else { Ok(()) }
    }

    /// Directories that have to be there before the first phase.
    #[must_use]
    pub fn directories(&self) -> Vec<RelName> {
        match self.phases.first() {
            Some(Phase::Stream(spec)) => {
                (0..spec.streams).map(|stream| RelName::numbered('s', u64::from(stream))).collect()
            }
            Some(Phase::Small(spec)) => spec.directories().collect(),
            Some(Phase::Daq(spec)) => spec.directories().collect(),
            Some(Phase::Client(_)) | None => Vec::new(),
        }
    }

    /// Files that may be there after the last phase, whatever happened.
    pub fn files(&self) -> Box<dyn Iterator<Item = RelName> + '_> {
        match self.phases.first() {
            Some(Phase::Stream(spec)) => Box::new(
                (0..spec.streams).flat_map(move |stream| (0..spec.files).map(move |file| spec.name(stream, file))),
            ),
            Some(Phase::Small(spec)) => Box::new((0..spec.clients).flat_map(|client| spec.names(client))),
            Some(Phase::Daq(spec)) => Box::new(spec.names()),
            Some(Phase::Client(_)) | None => Box::new(std::iter::empty()),
        }
    }

    /// Files that may be on the second system then.
    pub fn copies(&self) -> Box<dyn Iterator<Item = RelName> + '_> {
        match self.phases.first() {
            Some(Phase::Daq(spec)) if self.copy_to.is_some() => Box::new(spec.copy_names()),
            _ => Box::new(std::iter::empty()),
        }
    }

    /// Whether it is done on a system, and not by the client alone.
    #[must_use]
    pub fn needs_system(&self) -> bool {
        !self.phases.iter().all(|phase| matches!(phase, Phase::Client(_)))
    }

    /// Bytes that it takes at most on the system.
    #[must_use]
    pub fn room(&self) -> u64 {
        self.phases.iter().map(Phase::room).max().unwrap_or(0)
    }

    /// Its name with its parameters.
    #[must_use]
    pub fn title(&self) -> String {
        let parameters: Vec<String> = self.parameters.iter().map(|(name, value)| format!("{name}={value}")).collect();
        format!("{} {}", self.name, parameters.join(" "))
    }
}

/// One piece of work on one system.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub struct Trial {
    /// Which of the campaign's systems.
    pub system: usize,
    /// Which of the campaign's works.
    pub work: usize,
    /// Which repeat, from 0.
    pub repeat: u32,
}
