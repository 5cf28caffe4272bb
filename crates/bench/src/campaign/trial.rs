//! Work with all its parameters, and a trial of it.

use super::file::{CampaignError, Small, Streams};
use crate::target::{Manner, RelName};
use crate::workload::{Access, SmallPhase, SmallSpec, StreamError, StreamSpec};

/// Work that is done in one go, on files of its own.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Work {
    /// What it is called in results.
    pub name: String,
    /// Parameters that set it apart from others of its name, as people read them.
    pub parameters: Vec<(String, String)>,
    /// What is done, in this order.
    pub phases: Vec<Phase>,
}

/// A part of work that is measured by itself.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Streams.
    Stream(StreamSpec),
    /// Small files.
    Small(SmallSpec),
}

impl Phase {
    /// What it is called in results.
    #[must_use]
    pub fn title(&self) -> String {
        let word = match self {
            Self::Stream(spec) => serde_json::to_value(spec.access),
            Self::Small(spec) => serde_json::to_value(spec.phase),
        };
        word.ok().and_then(|word| word.as_str().map(str::to_owned)).unwrap_or_default()
    }

    /// Bytes that lie on the system after it, at most.
    #[must_use]
    pub fn room(&self) -> u64 {
        match self {
            Self::Stream(spec) => spec.bytes(),
            Self::Small(spec) => spec.bytes(),
        }
    }

    /// Bytes that it moves.
    #[must_use]
    pub fn moved(&self) -> u64 {
        match self {
            Self::Stream(spec) => spec.bytes(),
            Self::Small(spec) if matches!(spec.phase, SmallPhase::Create | SmallPhase::Read) => spec.bytes(),
            Self::Small(_) => 0,
        }
    }
}

fn size(bytes: u64) -> String {
    types::units::show_size(bytes)
}

impl Work {
    /// All combinations of the parameters.
    pub(super) fn of_streams(streams: &Streams, seed: u64) -> Vec<Self> {
        let mut all = Vec::new();
        for file in streams.file.all() {
            for block in streams.block.all() {
                for count in streams.streams.all() {
                    for files in streams.files.all() {
                        for chunks in streams.chunks.all() {
                            for window in streams.window.all() {
                                let point = Point { file: file.0, block: block.0, count, files, chunks, window };
                                all.push(point.work(streams, seed));
                            }
                        }
                    }
                }
            }
        }
        all
    }

    /// All combinations of the parameters.
    pub(super) fn of_small(small: &Small) -> Vec<Self> {
        let mut all = Vec::new();
        for clients in small.clients.all() {
            for files in small.files.all() {
                for file in small.file.all() {
                    for one_directory in small.one_directory.all() {
                        let spec = |phase: &SmallPhase| {
                            Phase::Small(SmallSpec {
                                phase: *phase,
                                clients,
                                files,
                                file_bytes: u32::try_from(file.0).unwrap_or(u32::MAX),
                                one_directory,
                                manner: Manner { direct: false, durability: small.durability, window: 1 },
                                rate: small.rate,
                                verify: small.verify,
                            })
                        };
                        let parameters = [
                            ("clients", clients.to_string()),
                            ("files", files.to_string()),
                            ("file", size(file.0)),
                            ("directories", if one_directory { "one".to_owned() } else { "own".to_owned() }),
                        ];
                        all.push(Self {
                            name: small.name.clone(),
                            parameters: parameters.map(|(name, value)| (name.to_owned(), value)).to_vec(),
                            phases: small.phases.iter().map(spec).collect(),
                        });
                    }
                }
            }
        }
        all
    }

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
            None => Vec::new(),
        }
    }

    /// Files that may be there after the last phase, whatever happened.
    pub fn files(&self) -> Box<dyn Iterator<Item = RelName> + '_> {
        match self.phases.first() {
            Some(Phase::Stream(spec)) => Box::new(
                (0..spec.streams).flat_map(move |stream| (0..spec.files).map(move |file| spec.name(stream, file))),
            ),
            Some(Phase::Small(spec)) => Box::new((0..spec.clients).flat_map(|client| spec.names(client))),
            None => Box::new(std::iter::empty()),
        }
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

/// One combination of the parameters of streams.
struct Point {
    file: u64,
    block: u64,
    count: u32,
    files: u32,
    chunks: u32,
    window: u32,
}

impl Point {
    fn work(&self, streams: &Streams, seed: u64) -> Work {
        let mut generation = 0;
        let phase = |access: &Access| {
            let spec = StreamSpec {
                access: *access,
                streams: self.count,
                files: self.files,
                file_bytes: self.file,
                block_bytes: u32::try_from(self.block).unwrap_or(u32::MAX),
                // A new file has one writer.
                chunks: if *access == Access::Write { 1 } else { self.chunks },
                manner: Manner { direct: streams.direct, durability: streams.durability, window: self.window as usize },
                rate: streams.rate.map(|rate| rate.0),
                write_percent: streams.write_percent,
                verify: streams.verify,
                generation,
                seed,
            };
            generation += u64::from(access.writes() && *access != Access::Write);
            Phase::Stream(spec)
        };
        let phases = streams.phases.iter().map(phase).collect();
        let parameters = [
            ("file", size(self.file)),
            ("block", size(self.block)),
            ("streams", self.count.to_string()),
            ("files", self.files.to_string()),
            ("chunks", self.chunks.to_string()),
            ("window", self.window.to_string()),
        ];
        Work {
            name: streams.name.clone(),
            parameters: parameters.map(|(name, value)| (name.to_owned(), value)).to_vec(),
            phases,
        }
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
