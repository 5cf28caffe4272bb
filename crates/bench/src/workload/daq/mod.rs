//! Data acquisition: recorders write files at the rate of a detector, readers follow the files while they grow, and
//! finished files are copied to a second system.

mod copier;
mod floor;
mod follower;
mod recorder;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use self::floor::Floor;
use super::kind::{self, Names, Unit, WORKERS_MAX, WorkError, Workload, workers_of};
use crate::content::Content;
use crate::load::WorkerPool;
use crate::target::{IoOptions, RelName, Target};

/// The names of the roles in results.
pub const ROLES: [&str; 3] = ["record", "follow", "copy-out"];

/// Recorders, and readers of their files.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DaqSpec {
    /// The number of recorders, each with its own files.
    pub recorders: u32,
    /// The files of each recorder, one after the other.
    pub files: u32,
    /// The size of each file in bytes.
    pub file_bytes: u64,
    /// The size of each request in bytes.
    pub block_bytes: u32,
    /// The rate of each recorder in bytes a second, at fixed times; `None`: as fast as possible.
    pub rate: Option<u64>,
    /// The bytes that a recorder can buffer while the system is slow. A block that starts later than the time to
    /// fill the buffer is a missed deadline: a detector would have lost it.
    pub buffer_bytes: u64,
    /// The number of readers that follow each recorder.
    pub followers: u32,
    /// The finished files that are copied at a time; none without a second system.
    pub copiers: u32,
    /// The options of opens.
    pub io_options: IoOptions,
    /// Whether read bytes are compared with the written ones.
    pub verify: bool,
}

/// The parameters are not valid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DaqError {
    /// A value must be at least 1.
    #[error("{0} is 0; give at least 1")]
    Zero(&'static str),
    /// There are more workers than one machine can have.
    #[error("{workers} recorders, followers and copiers; at most {WORKERS_MAX} on one machine")]
    Many {
        /// The number of all workers.
        workers: u64,
    },
    /// Blocks are too large for memory.
    #[error("blocks of {0} bytes; at most 256 MiB")]
    Block(u32),
    /// Lengths are not aligned for direct I/O.
    #[error("direct I/O with blocks of {block} bytes in files of {file}; both must be multiples of 4,096")]
    Unaligned {
        /// The block size.
        block: u32,
        /// The file size.
        file: u64,
    },
    /// Copiers and a directory for copies need each other.
    #[error("copiers and copy_to belong together: give both, or neither")]
    CopiesWhere,
}

const BLOCK_MAX: u32 = 256 << 20;
const PAGE: u32 = 4096;

impl DaqSpec {
    /// Checks the parameters.
    ///
    /// # Errors
    /// The first invalid one.
    pub fn check(&self) -> Result<(), DaqError> {
        let numbers = [
            ("recorders", u64::from(self.recorders)),
            ("files", u64::from(self.files)),
            ("file", self.file_bytes),
            ("block", u64::from(self.block_bytes)),
            ("rate", self.rate.unwrap_or(1)),
        ];
        if let Some((what, _)) = numbers.into_iter().find(|(_, value)| *value == 0) {
            return Err(DaqError::Zero(what));
        }
        if self.io_options.window.is_zero() {
            return Err(DaqError::Zero("window"));
        }
        let workers = u64::from(self.recorders) * (1 + u64::from(self.followers)) + u64::from(self.copiers);
        if workers > WORKERS_MAX {
            return Err(DaqError::Many { workers });
        }
        if self.block_bytes > BLOCK_MAX {
            return Err(DaqError::Block(self.block_bytes));
        }
        let aligned = self.block_bytes.is_multiple_of(PAGE) && self.file_bytes.is_multiple_of(u64::from(PAGE));
        if self.io_options.direct && !aligned {
            return Err(DaqError::Unaligned { block: self.block_bytes, file: self.file_bytes });
        }
        Ok(())
    }

    /// Returns the bytes of all files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.file_bytes.saturating_mul(u64::from(self.files)).saturating_mul(u64::from(self.recorders))
    }

    /// Returns how late a block may start; `None`: without a rate nothing is late.
    #[must_use]
    pub fn patience(&self) -> Option<Duration> {
        #[allow(clippy::cast_precision_loss)] // a time
        self.rate.map(|rate| Duration::from_secs_f64(self.buffer_bytes as f64 / rate.max(1) as f64))
    }

    /// Returns the file's number among all.
    fn key(&self, recorder: u32, file: u32) -> u64 {
        u64::from(recorder) * u64::from(self.files) + u64::from(file)
    }

    /// Returns the file's name.
    #[must_use]
    pub fn name(&self, recorder: u32, file: u32) -> RelName {
        RelName::numbered('s', u64::from(recorder)).join(&RelName::numbered('f', u64::from(file)))
    }

    /// Returns the name of its copy.
    fn copy_name(&self, recorder: u32, file: u32) -> RelName {
        RelName::numbered('c', self.key(recorder, file))
    }

    /// Calls `name` for all files.
    fn each<T>(&self, name: impl Fn(u32, u32) -> T) -> impl Iterator<Item = T> {
        let files = self.files;
        (0..self.recorders)
            .flat_map(move |recorder| (0..files).map(move |file| (recorder, file)))
            .map(move |(r, f)| name(r, f))
    }

    /// Returns the names of all files.
    pub fn names(&self) -> impl Iterator<Item = RelName> + '_ {
        self.each(|recorder, file| self.name(recorder, file))
    }

    /// Returns the names of all copies.
    pub fn copy_names(&self) -> impl Iterator<Item = RelName> + '_ {
        self.each(|recorder, file| self.copy_name(recorder, file))
    }
}

impl Workload for DaqSpec {
    fn title(&self) -> String {
        "daq".to_owned()
    }

    fn check(&self) -> Result<(), WorkError> {
        Ok(self.check()?)
    }

    fn unit(&self) -> Unit {
        Unit::Bytes
    }

    fn room(&self) -> u64 {
        self.bytes()
    }

    fn moved(&self) -> u64 {
        self.bytes().saturating_mul(u64::from(self.followers) + 1 + 2 * u64::from(self.copiers > 0))
    }

    fn fixed_time(&self) -> Option<Duration> {
        self.rate.map(|rate| Duration::from_secs(self.file_bytes.saturating_mul(u64::from(self.files)) / rate.max(1)))
    }

    fn directories(&self) -> Vec<RelName> {
        (0..self.recorders).map(|recorder| RelName::numbered('s', u64::from(recorder))).collect()
    }

    fn files(&self) -> Names<'_> {
        Box::new(self.names())
    }

    fn copies(&self) -> Names<'_> {
        Box::new(self.copy_names())
    }

    /// A follower that keeps up reads at the rate of its recorder. A copier copies as fast as it can.
    #[allow(clippy::cast_precision_loss)] // a rate
    fn asked_rate(&self, role: &str) -> Option<f64> {
        let followers = match role {
            "record" => 1,
            "follow" => self.followers,
            _ => return None,
        };
        self.rate.map(|rate| rate as f64 * f64::from(self.recorders) * f64::from(followers))
    }

    fn io_options(&self) -> Option<IoOptions> {
        Some(self.io_options)
    }

    fn writes(&self) -> bool {
        true
    }

    fn parts(&self) -> u32 {
        self.recorders
    }

    /// The roles are [`ROLES`]. A machine with recorders has at least one copier, if there are any.
    fn worker_pool(&self, site: &kind::Site, parts: Range<u32>) -> Result<WorkerPool, WorkError> {
        self.check()?;
        if site.copies.is_some() != (self.copiers > 0) {
            return Err(DaqError::CopiesWhere.into());
        }
        let share = |part: u32| u64::from(self.copiers) * u64::from(part) / u64::from(self.recorders);
        let copiers = usize::try_from(share(parts.end) - share(parts.start)).unwrap_or(usize::MAX);
        let copiers = if self.copiers > 0 { copiers.max(1) } else { 0 };
        let all =
            [(ROLES[0], workers_of(&parts, 1)), (ROLES[1], workers_of(&parts, self.followers)), (ROLES[2], 0..copiers)];
        let roles: Vec<_> = all.into_iter().filter(|(_, numbers)| !numbers.is_empty()).collect();
        let floor = Floor::new(parts.end - parts.start, self.followers, self.copiers > 0);
        let (spec, content) = (self.clone(), Arc::clone(&site.content));
        let (target, copies) = (site.target(&self.title())?, site.copies.clone());
        let names: Vec<&str> = roles.iter().map(|(name, _)| *name).collect();
        Ok(WorkerPool::hire(&roles, move |worker| {
            let site = Site { spec: &spec, content: &content, floor: &floor, target: &*target };
            match (names[worker.role], &copies) {
                ("record", _) => recorder::record(&site, worker),
                ("follow", _) => follower::follow(&site, worker),
                (_, Some(copies)) => copier::copy_out(&site, &**copies, worker),
                (_, None) => Ok(crate::load::Tally::default()),
            }
        })?)
    }
}

/// State that all workers share.
struct Site<'a> {
    spec: &'a DaqSpec,
    content: &'a Content,
    floor: &'a Floor,
    target: &'a dyn Target,
}

/// The pause before another look for something that may appear at any moment.
const POLL: Duration = Duration::from_millis(2);
