//! Many files of very different sizes that come, change, are read and go: the job of many small tools, and the directory with very many
//! files that many clients work in for hours. Every byte and every file is verified, at the end as well.

mod plan;
mod worker;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

pub use plan::{Files, Mix, Plan, Sizes, Step};
pub use worker::Slot;

use self::worker::Churner;
use super::kind::{Names, Site, Unit, WORKERS_MAX, WorkError, Workload, word_of, workers_of};
use crate::load::Crew;
use crate::splitmix;
use crate::target::{Manner, RelName};

/// What is done with the files.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChurnPhase {
    /// All are made.
    Fill,
    /// They are made, written anew, read, asked for, listed and removed in a mixed order.
    Mixed,
    /// All that have to be there are read, and those that must not be there are looked for.
    ReadBack,
    /// All that are there are removed.
    Remove,
}

impl ChurnPhase {
    /// All, in the order in which they can be done.
    pub const ALL: [Self; 4] = [Self::Fill, Self::Mixed, Self::ReadBack, Self::Remove];
}

/// Many files that come, change and go.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChurnSpec {
    /// What is done.
    pub phase: ChurnPhase,
    /// Clients at a time.
    pub clients: u32,
    /// Files that each client has room for.
    pub files: u32,
    /// Their sizes.
    pub sizes: Sizes,
    /// Operations of each client in the mixture.
    pub operations: u64,
    /// How often which.
    pub mix: Mix,
    /// Whether all files were made before the mixture; otherwise it begins with none.
    pub filled: bool,
    /// All in one directory; otherwise each client has its own.
    pub one_directory: bool,
    /// How files are opened.
    pub manner: Manner,
    /// Operations a second of each client at fixed times, whatever the system does; flat out otherwise.
    pub rate: Option<u32>,
    /// Seed of contents, sizes and orders.
    pub seed: u64,
}

/// A specification that makes no sense.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ChurnError {
    /// Out of bounds.
    #[error("{what} is {value}; give 1 to {most}")]
    Bounds {
        /// What.
        what: &'static str,
        /// What was asked for.
        value: u64,
        /// The most.
        most: u64,
    },
    /// Sizes the wrong way round.
    #[error("files of {least} to {most} bytes; the smallest first, and at most 64 MiB")]
    Sizes {
        /// The smallest.
        least: u32,
        /// The largest.
        most: u32,
    },
    /// Phases that cannot follow each other.
    #[error(
        "phases are fill, mixed, read-back and remove, in this order, of which one may be left out; it begins with fill or mixed"
    )]
    Order,
    /// A mixture of nothing.
    #[error("all weights of the mix are 0; give at least one")]
    NoMix,
}

const FILE_MAX: u32 = 64 << 20;

impl ChurnSpec {
    /// Whether it makes sense.
    ///
    /// # Errors
    /// What does not.
    pub fn check(&self) -> Result<(), ChurnError> {
        let bounds = [
            ("clients", u64::from(self.clients), WORKERS_MAX),
            ("files", u64::from(self.files), 100_000_000),
            ("operations", self.operations, 1 << 40),
            ("rate", u64::from(self.rate.unwrap_or(1)), 1_000_000),
        ];
        if let Some((what, value, most)) = bounds.into_iter().find(|(_, value, most)| !(1..=*most).contains(value)) {
            return Err(ChurnError::Bounds { what, value, most });
        }
        if self.sizes.least > self.sizes.most || self.sizes.most > FILE_MAX {
            return Err(ChurnError::Sizes { least: self.sizes.least, most: self.sizes.most });
        }
        if self.mix.sum() == 0 { Err(ChurnError::NoMix) } else { Ok(()) }
    }

    /// The directory of a client's files.
    fn directory(&self, client: u32) -> RelName {
        RelName::numbered('d', if self.one_directory { 0 } else { u64::from(client) })
    }

    /// Which file it is of all.
    fn key(&self, client: u32, slot: u32) -> u64 {
        u64::from(client) * u64::from(self.files) + u64::from(slot)
    }

    /// Its name.
    fn name(&self, client: u32, slot: u32) -> RelName {
        self.directory(client).join(&RelName::numbered('f', self.key(client, slot)))
    }

    /// What a client's files are before the mixture.
    fn begin(&self) -> Files {
        if self.filled { Files::all(self.files) } else { Files::none(self.files) }
    }

    /// What a client does in the mixture.
    fn plan(&self, client: u32) -> Plan {
        let seed = splitmix::next(self.seed ^ splitmix::next(u64::from(client)));
        Plan::new(self.begin(), self.mix, self.operations, seed)
    }

    /// Bytes of all files, if all are there and of ordinary size: the mean of what is spread evenly over powers of two.
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)] // an estimate
    fn bytes(&self) -> u64 {
        let (least, most) = (f64::from(self.sizes.least.max(1)), f64::from(self.sizes.most.max(1)));
        let mean = if most > least { (most - least) / (most / least).ln() } else { most };
        (mean * f64::from(self.clients) * f64::from(self.files)) as u64
    }
}

impl Workload for ChurnSpec {
    fn title(&self) -> String {
        word_of(self.phase)
    }

    fn check(&self) -> Result<(), WorkError> {
        Ok(self.check()?)
    }

    fn unit(&self) -> Unit {
        Unit::Operations
    }

    fn room(&self) -> u64 {
        self.bytes()
    }

    fn moved(&self) -> u64 {
        match self.phase {
            ChurnPhase::Fill | ChurnPhase::ReadBack => self.bytes(),
            ChurnPhase::Mixed => {
                let moving = u64::from(self.mix.create) + u64::from(self.mix.rewrite) + u64::from(self.mix.read);
                let each = self.bytes() / (u64::from(self.clients) * u64::from(self.files)).max(1);
                let share = u128::from(self.operations()) * u128::from(moving) / u128::from(self.mix.sum().max(1));
                each.saturating_mul(u64::try_from(share).unwrap_or(u64::MAX))
            }
            ChurnPhase::Remove => 0,
        }
    }

    fn operations(&self) -> u64 {
        let each = if self.phase == ChurnPhase::Mixed { self.operations } else { u64::from(self.files) };
        each.saturating_mul(u64::from(self.clients))
    }

    fn fixed_time(&self) -> Option<Duration> {
        let each = if self.phase == ChurnPhase::Mixed { self.operations } else { u64::from(self.files) };
        self.rate.map(|rate| Duration::from_secs(each / u64::from(rate.max(1))))
    }

    fn directories(&self) -> Vec<RelName> {
        (0..if self.one_directory { 1 } else { self.clients }).map(|client| self.directory(client)).collect()
    }

    fn files(&self) -> Names<'_> {
        Box::new((0..self.clients).flat_map(move |client| (0..self.files).map(move |slot| self.name(client, slot))))
    }

    fn is_job(&self) -> bool {
        true
    }

    fn asked_rate(&self, _role: &str) -> Option<f64> {
        self.rate.map(|rate| f64::from(rate) * f64::from(self.clients))
    }

    fn manner(&self) -> Option<Manner> {
        Some(self.manner)
    }

    fn writes(&self) -> bool {
        matches!(self.phase, ChurnPhase::Fill | ChurnPhase::Mixed)
    }

    fn parts(&self) -> u32 {
        self.clients
    }

    fn crew(&self, site: &Site, parts: Range<u32>) -> Result<Crew, WorkError> {
        self.check()?;
        let (spec, target, content) = (self.clone(), site.target(&self.title())?, Arc::clone(&site.content));
        let known = Arc::clone(&site.known);
        Ok(Crew::hire(&[("", workers_of(&parts, 1))], move |worker| {
            Churner::new(&spec, &*target, &content, &known, worker)?.run()
        })?)
    }
}
