//! The cost of a failure: writers and readers continue while something is broken. Afterwards the work checks that
//! all acknowledged files are still there.

mod board;
mod worker;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use self::board::Board;
use super::kind::{Names, Site, Unit, WORKERS_MAX, WorkError, Workload, workers_of};
use crate::load::WorkerPool;
use crate::target::{IoOptions, RelName, Window};

/// The names of the roles in results.
const ROLES: [&str; 3] = ["write", "read", "check"];

/// Writers and readers that continue in spite of failures.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailureSpec {
    /// Writers at a time.
    pub writers: u32,
    /// The most files of each writer.
    pub files: u32,
    /// The size of each file in bytes.
    pub file_bytes: u64,
    /// The size of each request in bytes.
    pub block_bytes: u32,
    /// The number of readers of acknowledged files.
    pub readers: u32,
    /// The duration in seconds.
    pub seconds: u32,
    /// How long to wait at the end for a system that has not recovered, in seconds.
    pub wait_seconds: u32,
    /// The options of opens.
    pub io_options: IoOptions,
}

/// The parameters are not valid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FailureError {
    /// A value is out of bounds.
    #[error("{what} is {value}; give {least} to {most}")]
    Bounds {
        /// Its name.
        what: &'static str,
        /// The value.
        value: u64,
        /// The smallest allowed value.
        least: u64,
        /// The largest allowed value.
        most: u64,
    },
    /// More than one request under way.
    #[error("window is {0}; give 1")]
    Window(Window),
    /// Lengths are not aligned for direct I/O.
    #[error("direct I/O with blocks of {block} bytes in files of {file}; both have to be multiples of 4,096")]
    Unaligned {
        /// The block size.
        block: u32,
        /// The file size.
        file: u64,
    },
    /// A command would run after the end.
    #[error("the command would run after {at} s, and the phase ends after {seconds} s; make the phase longer")]
    Late {
        /// The time of the command in seconds.
        at: u32,
        /// The end in seconds.
        seconds: u32,
    },
}

impl FailureSpec {
    /// Checks the parameters.
    ///
    /// # Errors
    /// The first invalid one.
    pub fn check(&self) -> Result<(), FailureError> {
        let bounds = [
            ("writers", u64::from(self.writers), 1, WORKERS_MAX / 2),
            ("files", u64::from(self.files), 1, 10_000_000),
            ("file", self.file_bytes, 1, 1 << 50),
            ("block", u64::from(self.block_bytes), 1, 256 << 20),
            ("readers", u64::from(self.readers), 0, WORKERS_MAX / 2 - 8),
            ("seconds", u64::from(self.seconds), 1, 86_400),
            ("wait", u64::from(self.wait_seconds), 0, 86_400),
        ];
        let is_out = |(_, value, least, most): &(_, u64, u64, u64)| !(*least..=*most).contains(value);
        if let Some((what, value, least, most)) = bounds.into_iter().find(is_out) {
            return Err(FailureError::Bounds { what, value, least, most });
        }
        if self.io_options.window != Window::Fixed(1) {
            return Err(FailureError::Window(self.io_options.window));
        }
        let aligned = self.block_bytes.is_multiple_of(4096) && self.file_bytes.is_multiple_of(4096);
        if self.io_options.direct && !aligned {
            return Err(FailureError::Unaligned { block: self.block_bytes, file: self.file_bytes });
        }
        Ok(())
    }

    fn key(&self, writer: u32, file: u32) -> u64 {
        u64::from(writer) * u64::from(self.files) + u64::from(file)
    }

    fn name(&self, writer: u32, file: u32) -> RelName {
        RelName::numbered('s', u64::from(writer)).join(&RelName::numbered('f', u64::from(file)))
    }

    /// Returns the length of the request at an offset.
    fn request(&self, at: u64) -> usize {
        usize::try_from((self.file_bytes - at).min(u64::from(self.block_bytes))).unwrap_or(usize::MAX)
    }

    /// Returns the number of workers that check at the end.
    fn checkers(&self) -> u32 {
        self.writers.min(8)
    }

    fn bytes(&self) -> u64 {
        self.file_bytes.saturating_mul(u64::from(self.files)).saturating_mul(u64::from(self.writers))
    }
}

impl Workload for FailureSpec {
    fn title(&self) -> String {
        "failure".to_owned()
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
        0
    }

    fn fixed_time(&self) -> Option<Duration> {
        Some(Duration::from_secs(u64::from(self.seconds)))
    }

    fn directories(&self) -> Vec<RelName> {
        (0..self.writers).map(|writer| RelName::numbered('s', u64::from(writer))).collect()
    }

    fn files(&self) -> Names<'_> {
        Box::new((0..self.writers).flat_map(move |writer| (0..self.files).map(move |file| self.name(writer, file))))
    }

    fn expects_failures(&self) -> bool {
        true
    }

    fn io_options(&self) -> Option<IoOptions> {
        Some(self.io_options)
    }

    fn writes(&self) -> bool {
        true
    }

    fn parts(&self) -> u32 {
        self.writers
    }

    /// A machine with writers has its share of readers, which read its own writers' files.
    fn worker_pool(&self, site: &Site, parts: Range<u32>) -> Result<WorkerPool, WorkError> {
        self.check()?;
        let (spec, target, content) = (self.clone(), site.target(&self.title())?, Arc::clone(&site.content));
        let share = |part: u32| u64::from(self.readers) * u64::from(part) / u64::from(self.writers);
        let [first, last] = [parts.start, parts.end].map(|part| usize::try_from(share(part)).unwrap_or(usize::MAX));
        let roles =
            [(ROLES[0], workers_of(&parts, 1)), (ROLES[1], first..last), (ROLES[2], 0..self.checkers() as usize)];
        let board = Board::new(roles[0].1.len() + roles[1].1.len());
        let roles: Vec<_> = roles.into_iter().filter(|(_, numbers)| !numbers.is_empty()).collect();
        let names: Vec<&str> = roles.iter().map(|(name, _)| *name).collect();
        Ok(WorkerPool::hire(&roles, move |worker| {
            let site = worker::Site { spec: &spec, content: &content, board: &board, target: &*target };
            match names[worker.role] {
                "write" => worker::write(&site, worker),
                "read" => worker::read(&site, worker),
                _ => worker::check(&site, worker),
            }
        })?)
    }
}
