//! Data acquisition: recorders write files at the rate of a detector, readers follow the files while they grow, and finished files are
//! copied out to a second system.

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
use crate::load::Crew;
use crate::target::{Manner, RelName, Target};

/// The roles, as results name them.
pub const ROLES: [&str; 3] = ["record", "follow", "copy-out"];

/// Recorders, and who reads what they write.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DaqSpec {
    /// Recorders at a time, each with files of its own.
    pub recorders: u32,
    /// Files of each, one after the other.
    pub files: u32,
    /// Bytes of each file.
    pub file_bytes: u64,
    /// Bytes of each request.
    pub block_bytes: u32,
    /// Bytes a second of each recorder, at fixed times; flat out otherwise.
    pub rate: Option<u64>,
    /// What a recorder can keep while the system is slow. A block that is begun later than it takes to fill that is a missed deadline: a
    /// detector would have lost it.
    pub buffer_bytes: u64,
    /// Readers that follow each recorder.
    pub followers: u32,
    /// Copies that are made at a time of finished files; none without a second system.
    pub copiers: u32,
    /// How files are opened.
    pub manner: Manner,
    /// Whether what is read is compared with what was written.
    pub verify: bool,
}

/// A specification that makes no sense.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DaqError {
    /// Something that has to be at least 1.
    #[error("{0} is 0; give at least 1")]
    Zero(&'static str),
    /// More than one machine can have.
    #[error("{workers} recorders, followers and copiers; at most {WORKERS_MAX} on one machine")]
    Many {
        /// All of them.
        workers: u64,
    },
    /// Blocks larger than memory allows.
    #[error("blocks of {0} bytes; at most 256 MiB")]
    Block(u32),
    /// Direct I/O of odd lengths.
    #[error("direct I/O with blocks of {block} bytes in files of {file}; both have to be multiples of 4,096")]
    Unaligned {
        /// The block.
        block: u32,
        /// The file.
        file: u64,
    },
    /// Copies to nowhere, or a place without copies.
    #[error("copiers and copy_to belong together: give both, or neither")]
    CopiesWhere,
}

const BLOCK_MAX: u32 = 256 << 20;
const PAGE: u32 = 4096;

impl DaqSpec {
    /// Whether it makes sense.
    ///
    /// # Errors
    /// What does not.
    pub fn check(&self) -> Result<(), DaqError> {
        let numbers = [
            ("recorders", u64::from(self.recorders)),
            ("files", u64::from(self.files)),
            ("file", self.file_bytes),
            ("block", u64::from(self.block_bytes)),
            ("rate", self.rate.unwrap_or(1)),
            ("window", self.manner.window as u64),
        ];
        if let Some((what, _)) = numbers.into_iter().find(|(_, value)| *value == 0) {
            return Err(DaqError::Zero(what));
        }
        let workers = u64::from(self.recorders) * (1 + u64::from(self.followers)) + u64::from(self.copiers);
        if workers > WORKERS_MAX {
            return Err(DaqError::Many { workers });
        }
        if self.block_bytes > BLOCK_MAX {
            return Err(DaqError::Block(self.block_bytes));
        }
        let aligned = self.block_bytes.is_multiple_of(PAGE) && self.file_bytes.is_multiple_of(u64::from(PAGE));
        if self.manner.direct && !aligned {
            return Err(DaqError::Unaligned { block: self.block_bytes, file: self.file_bytes });
        }
        Ok(())
    }

    /// Bytes of all files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.file_bytes.saturating_mul(u64::from(self.files)).saturating_mul(u64::from(self.recorders))
    }

    /// How late a block may be begun; `None`: flat out, so that nothing is late.
    #[must_use]
    pub fn patience(&self) -> Option<Duration> {
        #[allow(clippy::cast_precision_loss)] // a time
        self.rate.map(|rate| Duration::from_secs_f64(self.buffer_bytes as f64 / rate.max(1) as f64))
    }

    /// Which file it is of all.
    fn key(&self, recorder: u32, file: u32) -> u64 {
        u64::from(recorder) * u64::from(self.files) + u64::from(file)
    }

    /// Its name.
    #[must_use]
    pub fn name(&self, recorder: u32, file: u32) -> RelName {
        RelName::numbered('s', u64::from(recorder)).join(&RelName::numbered('f', u64::from(file)))
    }

    /// What its copy is called.
    fn copy_name(&self, recorder: u32, file: u32) -> RelName {
        RelName::numbered('c', self.key(recorder, file))
    }

    /// All files, or all copies.
    fn each<T>(&self, name: impl Fn(u32, u32) -> T) -> impl Iterator<Item = T> {
        let files = self.files;
        (0..self.recorders)
            .flat_map(move |recorder| (0..files).map(move |file| (recorder, file)))
            .map(move |(r, f)| name(r, f))
    }

    /// Names of all files.
    pub fn names(&self) -> impl Iterator<Item = RelName> + '_ {
        self.each(|recorder, file| self.name(recorder, file))
    }

    /// Names of all copies.
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

    /// A follower reads as fast as is recorded, if it keeps up; a copier copies as fast as it can.
    #[allow(clippy::cast_precision_loss)] // a rate
    fn asked_rate(&self, role: &str) -> Option<f64> {
        let followers = match role {
            "record" => 1,
            "follow" => self.followers,
            _ => return None,
        };
        self.rate.map(|rate| rate as f64 * f64::from(self.recorders) * f64::from(followers))
    }

    fn manner(&self) -> Option<Manner> {
        Some(self.manner)
    }

    fn writes(&self) -> bool {
        true
    }

    fn parts(&self) -> u32 {
        self.recorders
    }

    /// The roles are [`ROLES`]. A machine with recorders has at least one copier, if there are any.
    fn crew(&self, site: &kind::Site, parts: Range<u32>) -> Result<Crew, WorkError> {
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
        Ok(Crew::hire(&roles, move |worker| {
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

/// What all workers share.
struct Site<'a> {
    spec: &'a DaqSpec,
    content: &'a Content,
    floor: &'a Floor,
    target: &'a dyn Target,
}

/// How long to wait before something is looked for again that may be there at any moment.
const POLL: Duration = Duration::from_millis(2);
