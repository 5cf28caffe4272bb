//! From lists of parameters to all their combinations.

use super::file::{ClientAlone, Daq, Many, Small, Streams};
use super::trial::{Phase, Work};
use crate::target::Manner;
use crate::workload::{Access, ClientWork, DaqSpec, GenerateSpec, SmallPhase, SmallSpec, StreamSpec};

/// Each of `points` with each of `values`.
fn each<P: Clone, V: Clone>(points: Vec<P>, values: &Many<V>, set: impl Fn(&mut P, V)) -> Vec<P> {
    let values = values.all();
    let with = |point: &P, value: &V| {
        let mut point = point.clone();
        set(&mut point, value.clone());
        point
    };
    points.iter().flat_map(|point| values.iter().map(|value| with(point, value)).collect::<Vec<_>>()).collect()
}

fn size(bytes: u64) -> String {
    types::units::show_size(bytes)
}

fn named<const N: usize>(parameters: [(&str, String); N]) -> Vec<(String, String)> {
    parameters.map(|(name, value)| (name.to_owned(), value)).to_vec()
}

/// What is larger than any request fits nowhere, and is refused as such.
fn request(bytes: u64) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// Of streams.
pub(super) fn streams(streams: &Streams, seed: u64) -> Vec<Work> {
    #[derive(Clone, Default)]
    struct Point {
        file: u64,
        block: u64,
        count: u32,
        files: u32,
        chunks: u32,
        window: u32,
    }
    let points = each(vec![Point::default()], &streams.file, |point, file| point.file = file.0);
    let points = each(points, &streams.block, |point, block| point.block = block.0);
    let points = each(points, &streams.streams, |point, count| point.count = count);
    let points = each(points, &streams.files, |point, files| point.files = files);
    let points = each(points, &streams.chunks, |point, chunks| point.chunks = chunks);
    let points = each(points, &streams.window, |point, window| point.window = window);
    let work = |point: Point| {
        let mut generation = 0;
        let phase = |access: &Access| {
            let spec = StreamSpec {
                access: *access,
                streams: point.count,
                files: point.files,
                file_bytes: point.file,
                block_bytes: request(point.block),
                // A new file has one writer.
                chunks: if *access == Access::Write { 1 } else { point.chunks },
                manner: Manner {
                    direct: streams.direct,
                    durability: streams.durability,
                    window: point.window as usize,
                },
                rate: streams.rate.map(|rate| rate.0),
                write_percent: streams.write_percent,
                verify: streams.verify,
                generation,
                seed,
            };
            generation += u64::from(access.writes() && *access != Access::Write);
            Phase::Stream(spec)
        };
        Work {
            name: streams.name.clone(),
            phases: streams.phases.iter().map(phase).collect(),
            parameters: named([
                ("file", size(point.file)),
                ("block", size(point.block)),
                ("streams", point.count.to_string()),
                ("files", point.files.to_string()),
                ("chunks", point.chunks.to_string()),
                ("window", point.window.to_string()),
            ]),
            copy_to: None,
        }
    };
    points.into_iter().map(work).collect()
}

/// Of small files.
pub(super) fn small(small: &Small) -> Vec<Work> {
    #[derive(Clone, Default)]
    struct Point {
        clients: u32,
        files: u32,
        file: u64,
        one_directory: bool,
    }
    let points = each(vec![Point::default()], &small.clients, |point, clients| point.clients = clients);
    let points = each(points, &small.files, |point, files| point.files = files);
    let points = each(points, &small.file, |point, file| point.file = file.0);
    let points = each(points, &small.one_directory, |point, one| point.one_directory = one);
    let work = |point: Point| {
        let phase = |phase: &SmallPhase| {
            Phase::Small(SmallSpec {
                phase: *phase,
                clients: point.clients,
                files: point.files,
                file_bytes: request(point.file),
                one_directory: point.one_directory,
                manner: Manner { direct: false, durability: small.durability, window: 1 },
                rate: small.rate,
                verify: small.verify,
            })
        };
        Work {
            name: small.name.clone(),
            phases: small.phases.iter().map(phase).collect(),
            parameters: named([
                ("clients", point.clients.to_string()),
                ("files", point.files.to_string()),
                ("file", size(point.file)),
                ("directories", if point.one_directory { "one".to_owned() } else { "own".to_owned() }),
            ]),
            copy_to: None,
        }
    };
    points.into_iter().map(work).collect()
}

/// Of recorders and their readers.
pub(super) fn daq(daq: &Daq) -> Vec<Work> {
    let first = DaqSpec {
        recorders: 0,
        files: daq.files,
        file_bytes: 0,
        block_bytes: 0,
        rate: None,
        buffer_bytes: daq.buffer.0,
        followers: 0,
        copiers: daq.copiers,
        manner: Manner { direct: daq.direct, durability: daq.durability, window: 1 },
        verify: daq.verify,
    };
    let specs = each(vec![first], &daq.recorders, |spec, recorders| spec.recorders = recorders);
    let specs = each(specs, &daq.file, |spec, file| spec.file_bytes = file.0);
    let specs = each(specs, &daq.block, |spec, block| spec.block_bytes = request(block.0));
    let specs = each(specs, &daq.rate, |spec, rate| spec.rate = rate.0);
    let specs = each(specs, &daq.followers, |spec, followers| spec.followers = followers);
    let specs = each(specs, &daq.window, |spec, window| spec.manner.window = window as usize);
    let work = |spec: DaqSpec| Work {
        name: daq.name.clone(),
        parameters: named([
            ("recorders", spec.recorders.to_string()),
            ("files", spec.files.to_string()),
            ("file", size(spec.file_bytes)),
            ("block", size(u64::from(spec.block_bytes))),
            ("rate", spec.rate.map_or("flat out".to_owned(), |rate| format!("{}/s each", size(rate)))),
            ("followers", spec.followers.to_string()),
            ("copiers", spec.copiers.to_string()),
            ("window", spec.manner.window.to_string()),
        ]),
        phases: vec![Phase::Daq(spec)],
        copy_to: daq.copy_to.clone(),
    };
    specs.into_iter().map(work).collect()
}

/// Of the client alone.
pub(super) fn client(client: &ClientAlone) -> Vec<Work> {
    let first = GenerateSpec { work: ClientWork::Make, threads: 0, block_bytes: 0, seconds: client.seconds };
    let specs = each(vec![first], &client.threads, |spec, threads| spec.threads = threads);
    let specs = each(specs, &client.block, |spec, block| spec.block_bytes = request(block.0));
    let work = |spec: GenerateSpec| Work {
        name: client.name.clone(),
        parameters: named([("threads", spec.threads.to_string()), ("block", size(u64::from(spec.block_bytes)))]),
        phases: client.work.iter().map(|work| Phase::Client(GenerateSpec { work: *work, ..spec.clone() })).collect(),
        copy_to: None,
    };
    specs.into_iter().map(work).collect()
}
