//! `[[streams]]`.

use serde::Deserialize;

use super::super::trial::{Phase, Work};
use super::super::value::{Many, Size};
use super::{Section, each, named, one, product, request, size, yes};
use crate::target::{Durability, Manner};
use crate::workload::{Access, ForeignSpec, StreamSpec, Tool};

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
    /// Of the system's places so many, over which files are spread; otherwise all.
    pub targets: Option<Many<u32>>,
    /// Past the client's page cache.
    #[serde(default)]
    pub direct: bool,
    /// When written bytes have to be on the disk.
    #[serde(default)]
    pub durability: Durability,
    /// Other tools on the same work, after our own: fio by path, xrdcp by `root://`.
    #[serde(default)]
    pub beside: Vec<Tool>,
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

impl Section for Streams {
    fn combinations(&self) -> u64 {
        product([
            self.file.count(),
            self.block.count(),
            self.streams.count(),
            self.files.count(),
            self.chunks.count(),
            self.window.count(),
            self.targets.as_ref().map_or(1, Many::count),
        ])
    }

    fn works(&self, seed: u64) -> Vec<Work> {
        #[derive(Clone, Default)]
        struct Point {
            file: u64,
            block: u64,
            count: u32,
            files: u32,
            chunks: u32,
            window: u32,
            targets: Option<u32>,
        }
        let points = each(vec![Point::default()], &self.file, |point, file| point.file = file.0);
        let points = each(points, &self.block, |point, block| point.block = block.0);
        let points = each(points, &self.streams, |point, count| point.count = count);
        let points = each(points, &self.files, |point, files| point.files = files);
        let points = each(points, &self.chunks, |point, chunks| point.chunks = chunks);
        let points = each(points, &self.window, |point, window| point.window = window);
        let targets = match &self.targets {
            None => Many::One(None),
            Some(targets) => Many::All(targets.all().into_iter().map(Some).collect()),
        };
        let points = each(points, &targets, |point, targets| point.targets = targets);
        let work = |point: Point| {
            let mut generations = (0, 0);
            let phase = |access: &Access| {
                let spec = StreamSpec {
                    access: *access,
                    streams: point.count,
                    files: point.files,
                    file_bytes: point.file,
                    block_bytes: request(point.block),
                    // A new file has one writer.
                    chunks: if access.makes_files() { 1 } else { point.chunks },
                    manner: Manner { direct: self.direct, durability: self.durability, window: point.window as usize },
                    rate: self.rate.map(|rate| rate.0),
                    write_percent: self.write_percent,
                    verify: self.verify,
                    generation: generations.1,
                    oldest_generation: generations.0,
                    seed,
                };
                generations = spec.generations_after();
                Phase::Stream(spec)
            };
            let mut parameters = named([
                ("file", size(point.file)),
                ("block", size(point.block)),
                ("streams", point.count.to_string()),
                ("files", point.files.to_string()),
                ("chunks", point.chunks.to_string()),
                ("window", point.window.to_string()),
            ]);
            parameters.extend(point.targets.map(|targets| ("targets".to_owned(), targets.to_string())));
            let ours: Vec<Phase> = self.phases.iter().map(phase).collect();
            let theirs = self.beside.iter().flat_map(|tool| {
                ours.iter().filter_map(|phase| match phase {
                    Phase::Stream(work) => Some(Phase::Foreign(ForeignSpec { tool: *tool, work: work.clone() })),
                    _ => None,
                })
            });
            Work {
                phases: ours.iter().cloned().chain(theirs).collect(),
                parameters,
                targets: point.targets,
                ..Work::new(&self.name)
            }
        };
        points.into_iter().map(work).collect()
    }
}
