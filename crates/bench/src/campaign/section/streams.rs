//! `[[streams]]`.

use serde::Deserialize;

use super::super::trial::{Phase, Work};
use super::super::value::{OneOrMany, Size};
use super::{Section, each, named, one, one_request, product, request, size, yes};
use crate::target::{Durability, IoOptions, Window};
use crate::workload::{Access, ForeignSpec, StreamSpec, Tool};

/// Streams in all combinations of their parameters.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Streams {
    /// Its name in results.
    pub name: String,
    /// The access patterns in order, on the same files.
    pub phases: Vec<Access>,
    /// The size of each file in bytes.
    pub file: OneOrMany<Size>,
    /// The size of each request in bytes.
    pub block: OneOrMany<Size>,
    /// Streams at a time.
    #[serde(default = "one")]
    pub streams: OneOrMany<u32>,
    /// The number of files of each stream.
    #[serde(default = "one")]
    pub files: OneOrMany<u32>,
    /// The parts of a file that are read or written at a time. A new file always has one writer.
    #[serde(default = "one")]
    pub chunks: OneOrMany<u32>,
    /// The requests under way on one file, if the driver supports several.
    #[serde(default = "one_request")]
    pub window: OneOrMany<Window>,
    /// How many of the system's directories the files are spread over. The default is all.
    pub targets: Option<OneOrMany<u32>>,
    /// Whether to bypass the client's page cache.
    #[serde(default)]
    pub direct: bool,
    /// When written bytes must be durable.
    #[serde(default)]
    pub durability: Durability,
    /// Other tools for the same work, after the bench's own test: fio by path, xrdcp by `root://`.
    #[serde(default)]
    pub beside: Vec<Tool>,
    /// The rate of each stream in bytes a second, at fixed times.
    pub rate: Option<Size>,
    /// The share of writes in a mixture, in percent.
    #[serde(default = "half")]
    pub write_percent: u8,
    /// Whether read bytes are compared with the written ones.
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
            self.targets.as_ref().map_or(1, OneOrMany::count),
        ])
    }

    fn file_sizes(&self) -> Vec<Size> {
        self.file.all()
    }

    fn works(&self, seed: u64) -> Vec<Work> {
        #[derive(Clone, Default)]
        struct Point {
            file: u64,
            block: u64,
            count: u32,
            files: u32,
            chunks: u32,
            window: Window,
            targets: Option<u32>,
        }
        let points = each(vec![Point::default()], &self.file, |point, file| point.file = file.bytes);
        let points = each(points, &self.block, |point, block| point.block = block.bytes);
        let points = each(points, &self.streams, |point, count| point.count = count);
        let points = each(points, &self.files, |point, files| point.files = files);
        let points = each(points, &self.chunks, |point, chunks| point.chunks = chunks);
        let points = each(points, &self.window, |point, window| point.window = window);
        let targets = match &self.targets {
            None => OneOrMany::One(None),
            Some(targets) => OneOrMany::All(targets.all().into_iter().map(Some).collect()),
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
                    io_options: IoOptions { direct: self.direct, durability: self.durability, window: point.window },
                    rate: self.rate.map(|rate| rate.bytes),
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
                ("file", size(point.file, &self.file)),
                ("block", size(point.block, &self.block)),
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
