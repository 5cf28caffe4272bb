//! `[[small]]`.

use std::time::Duration;

use serde::Deserialize;

use super::super::trial::{Phase, Work};
use super::super::value::{OneOrMany, Size};
use super::analysis::Time;
use super::{Section, each, named, product, request, size, yes};
use crate::target::{Durability, IoOptions, Window};
use crate::workload::{SmallPhase, SmallSpec};

/// Many small files, in all combinations of their parameters.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Small {
    /// Its name in results.
    pub name: String,
    /// The phases in order, on the same files.
    #[serde(default = "all_phases")]
    pub phases: Vec<SmallPhase>,
    /// Clients at a time.
    pub clients: OneOrMany<u32>,
    /// The number of files of each client.
    pub files: OneOrMany<u32>,
    /// The size of each file in bytes.
    pub file: OneOrMany<Size>,
    /// Whether all clients share one directory. Otherwise each has its own.
    #[serde(default = "own_directories")]
    pub one_directory: OneOrMany<bool>,
    /// When written bytes must be durable.
    #[serde(default = "undurable")]
    pub durability: Durability,
    /// Whether files are created in weir's batches, if the system supports them. Each batch is as large as the
    /// system allows.
    #[serde(default)]
    pub batch: bool,
    /// Operations a second of each client, at fixed times.
    pub rate: Option<u32>,
    /// Whether read bytes are compared with the written ones.
    #[serde(default = "yes")]
    pub verify: bool,
    /// How long the phases `list`, `stat` and `read` last at least: until then, each client begins again with its first
    /// file. `0s`: every file is asked for once.
    #[serde(default = "a_second")]
    pub least: Time,
}

fn a_second() -> Time {
    Time(Duration::from_secs(1))
}

fn all_phases() -> Vec<SmallPhase> {
    SmallPhase::ALL.to_vec()
}

fn own_directories() -> OneOrMany<bool> {
    OneOrMany::One(false)
}

fn undurable() -> Durability {
    Durability::None
}

impl Section for Small {
    fn combinations(&self) -> u64 {
        product([self.clients.count(), self.files.count(), self.file.count(), self.one_directory.count()])
    }

    fn file_sizes(&self) -> Vec<Size> {
        self.file.all()
    }

    fn works(&self, _seed: u64) -> Vec<Work> {
        #[derive(Clone, Default)]
        struct Point {
            clients: u32,
            files: u32,
            file: u64,
            one_directory: bool,
        }
        let points = each(vec![Point::default()], &self.clients, |point, clients| point.clients = clients);
        let points = each(points, &self.files, |point, files| point.files = files);
        let points = each(points, &self.file, |point, file| point.file = file.bytes);
        let points = each(points, &self.one_directory, |point, one| point.one_directory = one);
        let work = |point: Point| {
            let phase = |phase: &SmallPhase| {
                Phase::Small(SmallSpec {
                    phase: *phase,
                    clients: point.clients,
                    files: point.files,
                    file_bytes: request(point.file),
                    one_directory: point.one_directory,
                    io_options: IoOptions { direct: false, durability: self.durability, window: Window::default() },
                    rate: self.rate,
                    verify: self.verify,
                    batch: self.batch,
                    least_ms: u32::try_from(self.least.0.as_millis()).unwrap_or(u32::MAX),
                })
            };
            Work {
                phases: self.phases.iter().map(phase).collect(),
                parameters: named([
                    ("clients", point.clients.to_string()),
                    ("files", point.files.to_string()),
                    ("file", size(point.file, &self.file)),
                    ("directories", if point.one_directory { "one".to_owned() } else { "own".to_owned() }),
                ]),
                ..Work::new(&self.name)
            }
        };
        points.into_iter().map(work).collect()
    }
}
