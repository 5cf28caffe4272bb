//! The campaign file. Every key has to be known; sizes have units; a parameter may be one value or a list, and all combinations of lists
//! are done.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

use super::combine;
use super::trial::Work;
use crate::target::{Durability, Place, PlaceError};
use crate::workload::{Access, ClientWork, DaqError, GenerateError, SmallError, SmallPhase, StreamError};

/// What is wrong with a campaign.
#[derive(Debug, thiserror::Error)]
pub enum CampaignError {
    /// Not TOML, or an unknown key, or a value of a wrong kind.
    #[error("the campaign cannot be read: {0}")]
    Syntax(#[from] toml::de::Error),
    /// There is nothing to do.
    #[error("the campaign has no {0}")]
    Nothing(&'static str),
    /// Two systems of one name.
    #[error("two systems are called `{0}`")]
    Twice(String),
    /// A place that is none.
    #[error("system `{name}`: {source}")]
    Place {
        /// The system.
        name: String,
        /// Why.
        source: PlaceError,
    },
    /// More trials than anybody can mean.
    #[error("{0} trials; at most {TRIALS_MAX}, so leave out some values or repeats")]
    Many(u64),
    /// Work that makes no sense.
    #[error("work `{name}`: {source}")]
    Streams {
        /// The work.
        name: String,
        /// Why.
        source: StreamError,
    },
    /// Work that makes no sense.
    #[error("work `{name}`: {source}")]
    Small {
        /// The work.
        name: String,
        /// Why.
        source: SmallError,
    },
    /// Work that makes no sense.
    #[error("work `{name}`: {source}")]
    Daq {
        /// The work.
        name: String,
        /// Why.
        source: DaqError,
    },
    /// Work that makes no sense.
    #[error("work `{name}`: {source}")]
    Client {
        /// The work.
        name: String,
        /// Why.
        source: GenerateError,
    },
    /// A disk that nobody knows.
    #[error(
        "system `{name}`: its disk is said to be the system `{disk}`, which is not there; name one by a path on the same disk"
    )]
    NoDisk {
        /// The system.
        name: String,
        /// What it names.
        disk: String,
    },
}

/// Most trials of a campaign.
pub const TRIALS_MAX: u64 = 100_000;

/// One value or several.
#[derive(Clone, PartialEq, Debug)]
pub enum Many<T> {
    /// One.
    One(T),
    /// Several: each is done.
    All(Vec<T>),
}

impl<T: Clone> Many<T> {
    /// All of them.
    pub fn all(&self) -> Vec<T> {
        match self {
            Self::One(value) => vec![value.clone()],
            Self::All(values) => values.clone(),
        }
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Many<T> {
    /// By what it looks like, so that the error is that of the value itself.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = toml::Value::deserialize(deserializer)?;
        let read = if value.is_array() { value.try_into().map(Self::All) } else { value.try_into().map(Self::One) };
        read.map_err(|error: toml::de::Error| serde::de::Error::custom(error.message()))
    }
}

/// A size as people write it: `4KiB`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size(pub u64);

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        types::units::parse_size(&text).map(Self).map_err(serde::de::Error::custom)
    }
}

/// Bytes a second, or as fast as it goes (`flat-out`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate(pub Option<u64>);

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text == "flat-out" {
            return Ok(Self(None));
        }
        types::units::parse_size(&text).map(|rate| Self(Some(rate))).map_err(serde::de::Error::custom)
    }
}

fn one() -> Many<u32> {
    Many::One(1)
}

/// A system to be measured.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct System {
    /// What it is called in results.
    pub name: String,
    /// A directory on it, by path or URL.
    pub place: String,
    /// The system that is the disk below this one, by its name: what it reaches is this one's ceiling.
    pub disk: Option<String>,
}

/// Streams in all combinations of their parameters.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Streams {
    /// What it is called in results.
    pub name: String,
    /// The patterns, in their order, on the same files.
    pub phases: Vec<Access>,
    /// Bytes of each file.
    pub file: Many<Size>,
    /// Bytes of each request.
    pub block: Many<Size>,
    /// Streams at a time.
    #[serde(default = "one")]
    pub streams: Many<u32>,
    /// Files of each stream.
    #[serde(default = "one")]
    pub files: Many<u32>,
    /// Parts of a file at a time; new files are written by one worker all the same.
    #[serde(default = "one")]
    pub chunks: Many<u32>,
    /// Requests under way at a time on one file, where the driver can.
    #[serde(default = "one")]
    pub window: Many<u32>,
    /// Past the client's page cache.
    #[serde(default)]
    pub direct: bool,
    /// When written bytes have to be on the disk.
    #[serde(default)]
    pub durability: Durability,
    /// Bytes a second of each stream, at fixed times.
    pub rate: Option<Size>,
    /// Share of writes of a mixture.
    #[serde(default = "half")]
    pub write_percent: u8,
    /// Compares what is read with what was written.
    #[serde(default = "yes")]
    pub verify: bool,
}

fn half() -> u8 {
    50
}

fn yes() -> bool {
    true
}

/// Many small files in all combinations of their parameters.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Small {
    /// What it is called in results.
    pub name: String,
    /// What is done, in its order, with the same files.
    #[serde(default = "all_phases")]
    pub phases: Vec<SmallPhase>,
    /// Clients at a time.
    pub clients: Many<u32>,
    /// Files of each.
    pub files: Many<u32>,
    /// Bytes of each file.
    pub file: Many<Size>,
    /// All in one directory; otherwise each client has its own.
    #[serde(default = "own_directories")]
    pub one_directory: Many<bool>,
    /// When written bytes have to be on the disk.
    #[serde(default = "undurable")]
    pub durability: Durability,
    /// Operations a second of each client, at fixed times.
    pub rate: Option<u32>,
    /// Compares what is read with what was written.
    #[serde(default = "yes")]
    pub verify: bool,
}

fn all_phases() -> Vec<SmallPhase> {
    SmallPhase::ALL.to_vec()
}

fn own_directories() -> Many<bool> {
    Many::One(false)
}

fn undurable() -> Durability {
    Durability::None
}

/// Recorders and who reads what they write, in all combinations of the parameters.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Daq {
    /// What it is called in results.
    pub name: String,
    /// Recorders at a time.
    pub recorders: Many<u32>,
    /// Files of each, one after the other.
    #[serde(default = "one_file")]
    pub files: u32,
    /// Bytes of each file.
    pub file: Many<Size>,
    /// Bytes of each request.
    pub block: Many<Size>,
    /// Bytes a second of each recorder.
    #[serde(default = "flat_out")]
    pub rate: Many<Rate>,
    /// What a recorder can keep while the system is slow, before a deadline is missed.
    #[serde(default = "buffer")]
    pub buffer: Size,
    /// Readers that follow each recorder.
    #[serde(default = "none")]
    pub followers: Many<u32>,
    /// Copies of finished files at a time.
    #[serde(default)]
    pub copiers: u32,
    /// The directory that they go to.
    pub copy_to: Option<String>,
    /// Requests under way at a time on one file, where the driver can.
    #[serde(default = "one")]
    pub window: Many<u32>,
    /// Past the client's page cache.
    #[serde(default)]
    pub direct: bool,
    /// When written bytes have to be on the disk.
    #[serde(default)]
    pub durability: Durability,
    /// Compares what is read with what was written.
    #[serde(default = "yes")]
    pub verify: bool,
}

fn one_file() -> u32 {
    1
}

fn none() -> Many<u32> {
    Many::One(0)
}

fn flat_out() -> Many<Rate> {
    Many::One(Rate(None))
}

fn buffer() -> Size {
    Size(64 << 20)
}

/// The client alone, in all combinations of the parameters.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientAlone {
    /// What it is called in results.
    pub name: String,
    /// What is done with each block.
    #[serde(default = "all_client_work")]
    pub work: Vec<ClientWork>,
    /// Threads at a time.
    #[serde(default = "one")]
    pub threads: Many<u32>,
    /// Bytes of each block.
    pub block: Many<Size>,
    /// For how long each.
    #[serde(default = "few_seconds")]
    pub seconds: u32,
}

fn all_client_work() -> Vec<ClientWork> {
    ClientWork::ALL.to_vec()
}

fn few_seconds() -> u32 {
    3
}

/// A campaign.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Campaign {
    /// What it is called in results.
    pub name: String,
    /// Seed of contents and orders.
    #[serde(default)]
    pub seed: u64,
    /// How often each trial is done; at least six give an interval of 95 %.
    pub repeats: u32,
    /// The systems.
    #[serde(rename = "system", default)]
    pub systems: Vec<System>,
    /// Streams.
    #[serde(rename = "streams", default)]
    pub streams: Vec<Streams>,
    /// Small files.
    #[serde(rename = "small", default)]
    pub small: Vec<Small>,
    /// Data acquisition.
    #[serde(rename = "daq", default)]
    pub daq: Vec<Daq>,
    /// The client alone.
    #[serde(rename = "client", default)]
    pub client: Vec<ClientAlone>,
}

impl Campaign {
    /// Reads a campaign, and checks all that can be known before anything is touched.
    ///
    /// # Errors
    /// [`CampaignError`].
    pub fn parse(text: &str) -> Result<Self, CampaignError> {
        let campaign: Self = toml::from_str(text)?;
        campaign.check()?;
        Ok(campaign)
    }

    fn check(&self) -> Result<(), CampaignError> {
        if self.systems.is_empty() {
            return Err(CampaignError::Nothing("system"));
        }
        if self.repeats == 0 {
            return Err(CampaignError::Nothing("repeats"));
        }
        for (number, system) in self.systems.iter().enumerate() {
            if self.systems[..number].iter().any(|other| other.name == system.name) {
                return Err(CampaignError::Twice(system.name.clone()));
            }
            let name = || system.name.clone();
            Place::parse(&system.place).map_err(|source| CampaignError::Place { name: name(), source })?;
            let known = |disk: &String| self.systems.iter().any(|other| other.name == *disk);
            if let Some(disk) = system.disk.as_ref().filter(|disk| !known(disk)) {
                return Err(CampaignError::NoDisk { name: name(), disk: disk.clone() });
            }
        }
        for daq in &self.daq {
            let name = || daq.name.clone();
            if daq.copy_to.is_some() != (daq.copiers > 0) {
                return Err(CampaignError::Daq { name: name(), source: DaqError::CopiesWhere });
            }
            if let Some(place) = &daq.copy_to {
                Place::parse(place).map_err(|source| CampaignError::Place { name: name(), source })?;
            }
        }
        let trials =
            self.combinations().saturating_mul(self.systems.len() as u64).saturating_mul(u64::from(self.repeats));
        if trials > TRIALS_MAX {
            return Err(CampaignError::Many(trials));
        }
        if trials == 0 {
            return Err(CampaignError::Nothing("work (client, streams, small, daq)"));
        }
        self.works().iter().try_for_each(Work::check)
    }

    /// How many there are, without making them: lists multiply.
    fn combinations(&self) -> u64 {
        let product = |lens: &[usize]| lens.iter().fold(1_u64, |product, len| product.saturating_mul(*len as u64));
        let streams = self.streams.iter().map(|s| {
            let lens = [s.file.all().len(), s.block.all().len(), s.streams.all().len(), s.files.all().len()];
            product(&lens).saturating_mul(product(&[s.chunks.all().len(), s.window.all().len()]))
        });
        let small = self.small.iter().map(|s| {
            product(&[s.clients.all().len(), s.files.all().len(), s.file.all().len(), s.one_directory.all().len()])
        });
        let daq = self.daq.iter().map(|d| {
            let lens = [d.recorders.all().len(), d.file.all().len(), d.block.all().len(), d.rate.all().len()];
            product(&lens).saturating_mul(product(&[d.followers.all().len(), d.window.all().len()]))
        });
        let client = self.client.iter().map(|c| product(&[c.threads.all().len(), c.block.all().len()]));
        streams.chain(small).chain(daq).chain(client).fold(0, u64::saturating_add)
    }

    /// All work, in all combinations.
    #[must_use]
    pub fn works(&self) -> Vec<Work> {
        let client = self.client.iter().flat_map(combine::client);
        let streams = self.streams.iter().flat_map(|streams| combine::streams(streams, self.seed));
        let small = self.small.iter().flat_map(combine::small);
        client.chain(streams).chain(small).chain(self.daq.iter().flat_map(combine::daq)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAMPAIGN: &str = r#"
        name = "two disks"
        repeats = 3
        [[system]]
        name = "a"
        place = "/a"
        [[system]]
        name = "b"
        place = "root://b//data"
        [[streams]]
        name = "large"
        phases = ["write", "read", "random-read"]
        file = ["100MB", "1GiB"]
        block = "1MiB"
        streams = [1, 6, 8]
        [[small]]
        name = "small"
        clients = 4
        files = [512, 1024]
        file = "4KiB"
        one_directory = [false, true]
        [[daq]]
        name = "daq"
        recorders = [1, 6]
        file = "1GiB"
        block = "1MiB"
        rate = ["flat-out", "100MB"]
        followers = 1
        [[client]]
        name = "client"
        threads = [1, 6]
        block = "1MiB"
    "#;

    #[test]
    fn lists_are_combined() {
        let campaign = Campaign::parse(CAMPAIGN).unwrap();
        assert_eq!((campaign.works().len(), campaign.combinations()), (16, 16));
        assert_eq!(campaign.works().iter().filter(|work| !work.needs_system()).count(), 2);
    }

    #[test]
    fn what_is_wrong_is_said_before_anything_is_touched() {
        let with = |from: &str, to: &str| Campaign::parse(&CAMPAIGN.replace(from, to)).unwrap_err().to_string();
        assert!(with("block =", "blok =").contains("blok"));
        assert!(with("\"1MiB\"", "\"1\"").contains("64MiB"), "{}", with("\"1MiB\"", "\"1\""));
        assert!(with("\"b\"", "\"a\"").contains("two systems are called `a`"));
        assert!(with("root://b//data", "gopher://b").contains("gopher"));
        assert!(with("repeats = 3", "repeats = 0").contains("repeats"));
        assert!(with("repeats = 3", "repeats = 9000").contains("288000 trials"));
        assert!(with("streams = [1, 6, 8]", "streams = [0]").contains("streams is 0"));
        assert!(with("\"write\", ", "").contains("write"), "{}", with("\"write\", ", ""));
        assert!(with("\"random-read\"", "\"sideways\"").contains("sideways"));
        assert!(with("phases", "direct = true\nphases").contains("4,096"));
        assert!(with("recorders = [1, 6]", "recorders = [1, 0]").contains("recorders is 0"));
        assert!(with("recorders = [1, 6]", "recorders = 1\ncopiers = 2").contains("copy_to"));
        assert!(with("\"flat-out\"", "\"fast\"").contains("fast"));
        assert!(with("place = \"/a\"", "place = \"/a\"\ndisk = \"c\"").contains("`c`"));
        assert!(with("threads = [1, 6]", "threads = [1, 0]").contains("threads is 0"));
    }
}
