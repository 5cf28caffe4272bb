//! Many files of different sizes that are created, changed, read and removed. This is the job of many small tools,
//! and the directory with very many files in which many clients work for hours. Every byte and every file is
//! verified, also at the end.

mod plan;
mod worker;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

pub use plan::{Files, Mix, Plan, Sizes, Step};
pub use worker::Slot;

use self::worker::Churner;
use super::kind::{Names, Site, Unit, WORKERS_MAX, WorkError, Workload, word_of, workers_of};
use crate::load::WorkerPool;
use crate::splitmix;
use crate::target::{IoOptions, RelName};

/// A phase.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChurnPhase {
    /// Create all files.
    Fill,
    /// Create, rewrite, read, stat, list and remove files in a mixed order.
    Mixed,
    /// Read all files that must exist, and look for those that must not.
    ReadBack,
    /// Remove all existing files.
    Remove,
}

impl ChurnPhase {
    /// All phases, in a possible order.
    pub const ALL: [Self; 4] = [Self::Fill, Self::Mixed, Self::ReadBack, Self::Remove];
}

/// The parameters of work with files that are created and removed.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChurnSpec {
    /// The phase.
    pub phase: ChurnPhase,
    /// Clients at a time.
    pub clients: u32,
    /// The number of files of each client.
    pub files: u32,
    /// The sizes of the files.
    pub sizes: Sizes,
    /// The operations of each client in the mixture.
    pub operations: u64,
    /// The frequencies of the operations.
    pub mix: Mix,
    /// Whether all files exist before the mixture; otherwise it starts with none.
    pub filled: bool,
    /// Whether all clients share one directory. Otherwise each has its own.
    pub one_directory: bool,
    /// The options of opens.
    pub io_options: IoOptions,
    /// Operations a second of each client, at fixed times; `None`: as fast as possible.
    pub rate: Option<u32>,
    /// The seed of contents, sizes and orders.
    pub seed: u64,
}

/// The parameters are not valid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ChurnError {
    /// A value is out of bounds.
    #[error("{what} is {value}; give 1 to {most}")]
    Bounds {
        /// Its name.
        what: &'static str,
        /// The value.
        value: u64,
        /// The largest allowed value.
        most: u64,
    },
    /// The smallest size exceeds the largest.
    #[error("files of {least} to {most} bytes; the smallest first, and at most 64 MiB")]
    Sizes {
        /// The smallest size.
        least: u32,
        /// The largest size.
        most: u32,
    },
    /// The order of phases is impossible.
    #[error(
        "the phases are fill, mixed, read-back and remove, in this order; any may be left out, but the first must be fill or mixed"
    )]
    Order,
    /// All weights of the mixture are zero.
    #[error("all weights of the mix are 0; give at least one")]
    NoMix,
}

const FILE_MAX: u32 = 64 << 20;

impl ChurnSpec {
    /// Checks the parameters.
    ///
    /// # Errors
    /// The first invalid one.
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

    /// Returns the directory of a client's files.
    fn directory(&self, client: u32) -> RelName {
        RelName::numbered('d', if self.one_directory { 0 } else { u64::from(client) })
    }

    /// Returns the file's number among all.
    fn key(&self, client: u32, slot: u32) -> u64 {
        u64::from(client) * u64::from(self.files) + u64::from(slot)
    }

    /// Returns the file's name.
    fn name(&self, client: u32, slot: u32) -> RelName {
        self.directory(client).join(&RelName::numbered('f', self.key(client, slot)))
    }

    /// Returns a client's files before the mixture.
    fn begin(&self) -> Files {
        if self.filled { Files::all(self.files) } else { Files::none(self.files) }
    }

    /// Returns a client's steps in the mixture.
    fn plan(&self, client: u32) -> Plan {
        let seed = splitmix::next(self.seed ^ splitmix::next(u64::from(client)));
        Plan::new(self.begin(), self.mix, self.operations, seed)
    }

    /// Returns the bytes of all files if all exist with average size: the mean of sizes that are spread evenly over
    /// powers of two.
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

    fn io_options(&self) -> Option<IoOptions> {
        Some(self.io_options)
    }

    fn writes(&self) -> bool {
        matches!(self.phase, ChurnPhase::Fill | ChurnPhase::Mixed)
    }

    fn parts(&self) -> u32 {
        self.clients
    }

    fn worker_pool(&self, site: &Site, parts: Range<u32>) -> Result<WorkerPool, WorkError> {
        self.check()?;
        let (spec, target, content) = (self.clone(), site.target(&self.title())?, Arc::clone(&site.content));
        let known = Arc::clone(&site.known);
        Ok(WorkerPool::hire(&[("", workers_of(&parts, 1))], move |worker| {
            Churner::new(&spec, &*target, &content, &known, worker)?.run()
        })?)
    }
}
