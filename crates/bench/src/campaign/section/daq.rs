//! `[[daq]]`.

use serde::Deserialize;

use super::super::file::CampaignError;
use super::super::trial::{Phase, Work};
use super::super::value::{OneOrMany, Rate, Size};
use super::{Section, each, named, one_request, product, rate, request, size, yes};
use crate::target::{Durability, IoOptions, TargetDir, Window};
use crate::workload::{DaqError, DaqSpec};

/// Recorders, and readers of their files, in all combinations of the parameters.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Daq {
    /// Its name in results.
    pub name: String,
    /// Recorders at a time.
    pub recorders: OneOrMany<u32>,
    /// The files of each recorder, one after the other.
    #[serde(default = "one_file")]
    pub files: u32,
    /// The size of each file in bytes.
    pub file: OneOrMany<Size>,
    /// The size of each request in bytes.
    pub block: OneOrMany<Size>,
    /// The rate of each recorder in bytes a second.
    #[serde(default = "flat_out")]
    pub rate: OneOrMany<Rate>,
    /// The bytes that a recorder can buffer while the system is slow, before it misses a deadline.
    #[serde(default = "buffer")]
    pub buffer: Size,
    /// The number of readers that follow each recorder.
    #[serde(default = "none")]
    pub followers: OneOrMany<u32>,
    /// The number of finished files that are copied at a time.
    #[serde(default)]
    pub copiers: u32,
    /// The directory for these copies.
    pub copy_to: Option<String>,
    /// The requests under way on one file, if the driver supports several.
    #[serde(default = "one_request")]
    pub window: OneOrMany<Window>,
    /// Whether to bypass the client's page cache.
    #[serde(default)]
    pub direct: bool,
    /// When written bytes must be durable.
    #[serde(default)]
    pub durability: Durability,
    /// Whether read bytes are compared with the written ones.
    #[serde(default = "yes")]
    pub verify: bool,
}

fn one_file() -> u32 {
    1
}

fn none() -> OneOrMany<u32> {
    OneOrMany::One(0)
}

fn flat_out() -> OneOrMany<Rate> {
    OneOrMany::One(Rate(None))
}

fn buffer() -> Size {
    Size::of(64 << 20)
}

impl Section for Daq {
    fn combinations(&self) -> u64 {
        product([
            self.recorders.count(),
            self.file.count(),
            self.block.count(),
            self.rate.count(),
            self.followers.count(),
            self.window.count(),
        ])
    }

    fn file_sizes(&self) -> Vec<Size> {
        self.file.all()
    }

    fn works(&self, _seed: u64) -> Vec<Work> {
        let first = DaqSpec {
            recorders: 0,
            files: self.files,
            file_bytes: 0,
            block_bytes: 0,
            rate: None,
            buffer_bytes: self.buffer.bytes,
            followers: 0,
            copiers: self.copiers,
            io_options: IoOptions { direct: self.direct, durability: self.durability, window: Window::default() },
            verify: self.verify,
        };
        let specs = each(vec![first], &self.recorders, |spec, recorders| spec.recorders = recorders);
        let specs = each(specs, &self.file, |spec, file| spec.file_bytes = file.bytes);
        let specs = each(specs, &self.block, |spec, block| spec.block_bytes = request(block.bytes));
        let specs = each(specs, &self.rate, |spec, rate| spec.rate = rate.0.map(|rate| rate.bytes));
        let specs = each(specs, &self.followers, |spec, followers| spec.followers = followers);
        let specs = each(specs, &self.window, |spec, window| spec.io_options.window = window);
        let work = |spec: DaqSpec| Work {
            parameters: named([
                ("recorders", spec.recorders.to_string()),
                ("files", spec.files.to_string()),
                ("file", size(spec.file_bytes, &self.file)),
                ("block", size(u64::from(spec.block_bytes), &self.block)),
                ("rate", rate(spec.rate, &self.rate)),
                ("followers", spec.followers.to_string()),
                ("copiers", spec.copiers.to_string()),
                ("window", spec.io_options.window.to_string()),
            ]),
            phases: vec![Phase::Daq(spec)],
            copy_to: self.copy_to.clone(),
            ..Work::new(&self.name)
        };
        specs.into_iter().map(work).collect()
    }

    fn check(&self) -> Result<(), CampaignError> {
        let name = || self.name.clone();
        if self.copy_to.is_some() != (self.copiers > 0) {
            return Err(CampaignError::Work { name: name(), source: DaqError::CopiesWhere.into() });
        }
        let Some(place) = &self.copy_to else { return Ok(()) };
        TargetDir::parse(place).map(drop).map_err(|source| CampaignError::TargetDir { name: name(), source })
    }
}
