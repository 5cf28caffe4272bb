//! `[[placement]]`.

use serde::Deserialize;

use super::super::trial::{Phase, Work};
use super::super::value::{OneOrMany, Size};
use super::{Section, each, named, one, product, request, size, yes};
use crate::target::{Durability, IoOptions, Window};
use crate::workload::{Access, StreamSpec};

/// Clients that write files, then read their own and those of others, in all combinations of the parameters. The
/// results show which servers get the data and which serve them. Clients at several locations are several machines;
/// scenarios are systems.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Placement {
    /// Its name in results.
    pub name: String,
    /// The phases in order, on the same files.
    #[serde(default = "phases")]
    pub phases: Vec<Access>,
    /// Clients at a time.
    pub clients: OneOrMany<u32>,
    /// The number of files of each client.
    #[serde(default = "one")]
    pub files: OneOrMany<u32>,
    /// The size of each file in bytes.
    pub file: OneOrMany<Size>,
    /// The size of each request in bytes.
    #[serde(default = "block")]
    pub block: Size,
    /// The requests under way on one file, if the driver supports several.
    #[serde(default = "window")]
    pub window: Window,
    /// When written bytes must be durable.
    #[serde(default)]
    pub durability: Durability,
    /// Whether read bytes are compared with the written ones.
    #[serde(default = "yes")]
    pub verify: bool,
}

fn phases() -> Vec<Access> {
    vec![Access::Write, Access::Read, Access::ReadOthers]
}

fn block() -> Size {
    Size::of(1 << 20)
}

fn window() -> Window {
    Window::Fixed(4)
}

impl Section for Placement {
    fn combinations(&self) -> u64 {
        product([self.clients.count(), self.files.count(), self.file.count()])
    }

    fn file_sizes(&self) -> Vec<Size> {
        self.file.all()
    }

    fn works(&self, seed: u64) -> Vec<Work> {
        let first = StreamSpec {
            access: Access::Write,
            streams: 0,
            files: 0,
            file_bytes: 0,
            block_bytes: request(self.block.bytes),
            chunks: 1,
            io_options: IoOptions { direct: false, durability: self.durability, window: self.window },
            rate: None,
            write_percent: 0,
            verify: self.verify,
            generation: 0,
            oldest_generation: 0,
            seed,
        };
        let specs = each(vec![first], &self.clients, |spec, clients| spec.streams = clients);
        let specs = each(specs, &self.files, |spec, files| spec.files = files);
        let specs = each(specs, &self.file, |spec, file| spec.file_bytes = file.bytes);
        let work = |spec: StreamSpec| {
            let mut generations = (0, 0);
            let phase = |access: &Access| {
                let (oldest_generation, generation) = generations;
                let spec = StreamSpec { access: *access, generation, oldest_generation, ..spec.clone() };
                generations = spec.generations_after();
                Phase::Stream(spec)
            };
            Work {
                phases: self.phases.iter().map(phase).collect(),
                parameters: named([
                    ("clients", spec.streams.to_string()),
                    ("files", spec.files.to_string()),
                    ("file", size(spec.file_bytes, &self.file)),
                ]),
                ..Work::new(&self.name)
            }
        };
        specs.into_iter().map(work).collect()
    }
}
