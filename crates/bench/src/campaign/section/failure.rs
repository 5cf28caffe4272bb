//! `[[failure]]`.

use serde::Deserialize;

use super::super::file::CampaignError;
use super::super::trial::{Phase, Work};
use super::super::value::{OneOrMany, Size};
use super::{Section, each, named, one, product, request, size};
use crate::target::{Durability, IoOptions, Window};
use crate::workload::{FailureError, FailureSpec};

/// Writers and readers that continue while the system's command breaks something, in all combinations of their
/// parameters.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failure {
    /// Its name in results.
    pub name: String,
    /// Writers at a time.
    #[serde(default = "one")]
    pub writers: OneOrMany<u32>,
    /// The most files of each writer.
    #[serde(default = "thousand")]
    pub files: u32,
    /// The size of each file in bytes.
    pub file: OneOrMany<Size>,
    /// The size of each request in bytes.
    pub block: OneOrMany<Size>,
    /// The number of readers of acknowledged data.
    #[serde(default = "one")]
    pub readers: OneOrMany<u32>,
    /// The duration of the phase.
    pub seconds: u32,
    /// When the system's `fail` command runs, in seconds after the start.
    pub fail_at: u32,
    /// When its `restore` command runs, if there is one.
    pub restore_at: Option<u32>,
    /// How long to wait at the end for a system that has not recovered, in seconds.
    #[serde(default = "minute")]
    pub wait: u32,
    /// Whether to bypass the client's page cache.
    #[serde(default)]
    pub direct: bool,
    /// When written bytes must be durable.
    #[serde(default)]
    pub durability: Durability,
}

fn thousand() -> u32 {
    1000
}

fn minute() -> u32 {
    60
}

impl Section for Failure {
    fn combinations(&self) -> u64 {
        product([self.writers.count(), self.file.count(), self.block.count(), self.readers.count()])
    }

    fn file_sizes(&self) -> Vec<Size> {
        self.file.all()
    }

    fn works(&self, _seed: u64) -> Vec<Work> {
        let first = FailureSpec {
            writers: 0,
            files: self.files,
            file_bytes: 0,
            block_bytes: 0,
            readers: 0,
            seconds: self.seconds,
            wait_seconds: self.wait,
            io_options: IoOptions { direct: self.direct, durability: self.durability, window: Window::default() },
        };
        let specs = each(vec![first], &self.writers, |spec, writers| spec.writers = writers);
        let specs = each(specs, &self.file, |spec, file| spec.file_bytes = file.bytes);
        let specs = each(specs, &self.block, |spec, block| spec.block_bytes = request(block.bytes));
        let specs = each(specs, &self.readers, |spec, readers| spec.readers = readers);
        let work = |spec: FailureSpec| Work {
            parameters: named([
                ("writers", spec.writers.to_string()),
                ("file", size(spec.file_bytes, &self.file)),
                ("block", size(u64::from(spec.block_bytes), &self.block)),
                ("readers", spec.readers.to_string()),
                ("fails after", format!("{} s of {}", self.fail_at, self.seconds)),
            ]),
            phases: vec![Phase::Failure(spec)],
            fail_at_s: Some(self.fail_at),
            restore_at_s: self.restore_at,
            ..Work::new(&self.name)
        };
        specs.into_iter().map(work).collect()
    }

    fn check(&self) -> Result<(), CampaignError> {
        let at = self.fail_at;
        if at == 0 || at >= self.seconds {
            let source = FailureError::Late { at, seconds: self.seconds };
            return Err(CampaignError::Work { name: self.name.clone(), source: source.into() });
        }
        Ok(())
    }
}
