//! The client alone: how fast this machine generates blocks, checks them and computes checksums, without a system.
//! This is the ceiling of its streams.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use types::Crc32c;

use super::kind::{Names, Site, Unit, WorkError, Workload, no_names, word_of, workers_of};
use crate::content::{Content, FileKey};
use crate::load::{Tally, Worker, WorkerPool};
use crate::memory::Memory;
use crate::target::{RelName, TargetError};

/// The operation on each block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClientWork {
    /// Generate it, like a writer.
    Make,
    /// Generate it and compute its CRC32C, like a writer over a protocol with checksums.
    MakeAndSum,
    /// Compare it with the expected bytes, like a reader that verifies.
    Check,
    /// Compute its CRC32C, and compare it.
    CheckAndSum,
}

impl ClientWork {
    /// All operations.
    pub const ALL: [Self; 4] = [Self::Make, Self::MakeAndSum, Self::Check, Self::CheckAndSum];

    fn sums(self) -> bool {
        matches!(self, Self::MakeAndSum | Self::CheckAndSum)
    }

    fn checks(self) -> bool {
        matches!(self, Self::Check | Self::CheckAndSum)
    }
}

/// The client alone.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GenerateSpec {
    /// The operation.
    pub work: ClientWork,
    /// Threads.
    pub threads: u32,
    /// The size of each block in bytes.
    pub block_bytes: u32,
    /// The duration in seconds.
    pub seconds: u32,
}

/// The parameters are not valid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum GenerateError {
    /// A value is out of bounds.
    #[error("{what} is {value}; give 1 to {most}")]
    Bounds {
        /// Its name.
        what: &'static str,
        /// The value.
        value: u32,
        /// The largest allowed value.
        most: u32,
    },
}

/// The memory that a reader cycles through. It exceeds the caches nearest to a processor.
const CHECKED_BYTES: usize = 32 << 20;

impl GenerateSpec {
    /// Checks the parameters.
    ///
    /// # Errors
    /// The first invalid one.
    pub fn check(&self) -> Result<(), GenerateError> {
        let bounds =
            [("threads", self.threads, 4096), ("block", self.block_bytes, 256 << 20), ("seconds", self.seconds, 3600)];
        match bounds.into_iter().find(|(_, value, most)| !(1..=*most).contains(value)) {
            Some((what, value, most)) => Err(GenerateError::Bounds { what, value, most }),
            None => Ok(()),
        }
    }
}

impl Workload for GenerateSpec {
    fn title(&self) -> String {
        word_of(self.work)
    }

    fn check(&self) -> Result<(), WorkError> {
        Ok(self.check()?)
    }

    fn unit(&self) -> Unit {
        Unit::Bytes
    }

    fn room(&self) -> u64 {
        0
    }

    fn moved(&self) -> u64 {
        0
    }

    fn fixed_time(&self) -> Option<Duration> {
        Some(Duration::from_secs(u64::from(self.seconds)))
    }

    fn directories(&self) -> Vec<RelName> {
        Vec::new()
    }

    fn files(&self) -> Names<'_> {
        no_names()
    }

    fn needs_system(&self) -> bool {
        false
    }

    fn parts(&self) -> u32 {
        self.threads
    }

    fn worker_pool(&self, site: &Site, parts: Range<u32>) -> Result<WorkerPool, WorkError> {
        self.check()?;
        let (spec, content) = (self.clone(), Arc::clone(&site.content));
        Ok(WorkerPool::hire(&[("", workers_of(&parts, 1))], move |worker| {
            if spec.work.checks() { check(&spec, &content, worker) } else { make(&spec, &content, worker) }
        })?)
    }
}

fn make(spec: &GenerateSpec, content: &Content, worker: &Worker) -> Result<Tally, TargetError> {
    let block = spec.block_bytes as usize;
    let mut memory = content.memory(block)?;
    let key = FileKey { file: worker.number as u64, generation: 0 };
    Ok(blocks(spec, worker, |offset, _| {
        let Some(place) = content.block(memory.whole(), key, offset, block) else { return 0 };
        if spec.work.sums() { Crc32c::of(&memory.whole()[place]).0 } else { 0 }
    }))
}

fn check(spec: &GenerateSpec, content: &Content, worker: &Worker) -> Result<Tally, TargetError> {
    let block = spec.block_bytes as usize;
    let places = (CHECKED_BYTES / block).max(1);
    let mut memory = Memory::new(places * block)?;
    let key = FileKey { file: worker.number as u64, generation: 0 };
    content.fill(key, 0, memory.whole());
    Ok(blocks(spec, worker, |offset, tally| {
        let at = usize::try_from(offset / block as u64 % places as u64).unwrap_or(0) * block;
        let bytes = &memory.whole()[at..at + block];
        let sum = if spec.work.sums() { Crc32c::of(bytes).0 } else { 0 };
        match content.check(key.file, 0..=0, at as u64, bytes) {
            Ok(()) => tally.verified += block as u64,
            Err(mismatch) => tally.add_wrong(Duration::ZERO, format!("this machine's memory: {mismatch}")),
        }
        sum
    }))
}

/// Calls `each` for block after block until the time is over.
fn blocks(spec: &GenerateSpec, worker: &Worker, mut each: impl FnMut(u64, &mut Tally) -> u32) -> Tally {
    let block = u64::from(spec.block_bytes);
    let (mut tally, mut offset, mut sum) = (Tally::default(), 0, 0);
    let end = worker.start() + Duration::from_secs(u64::from(spec.seconds));
    let mut begun = Instant::now();
    while begun < end && !worker.is_stopped() {
        sum ^= each(offset, &mut tally);
        offset += block;
        let now = Instant::now();
        tally.add(block, now - begun);
        worker.meter().add(block);
        begun = now;
    }
    // The sums are used, so that the compiler keeps the work.
    std::hint::black_box(sum);
    tally
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_works_for_the_given_time() {
        for work in ClientWork::ALL {
            let spec = GenerateSpec { work, threads: 2, block_bytes: 1 << 16, seconds: 1 };
            let site = Site::alone(Arc::new(Content::new(1)));
            let finished = spec.worker_pool(&site, 0..2).unwrap().run(None, |_| true);
            assert!(finished.wall >= Duration::from_secs(1) && finished.wall < Duration::from_secs(3));
            for worker in &finished.roles[0].workers {
                let tally = worker.as_ref().unwrap();
                assert!(tally.bytes > 10 << 20 && tally.bytes == tally.operations << 16, "{}", tally.bytes);
                assert_eq!((tally.wrong, tally.verified), (0, if work.checks() { tally.bytes } else { 0 }));
            }
        }
    }
}
