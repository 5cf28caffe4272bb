//! A job: reads the data of its events, checks and decompresses them, computes, and reports the cost.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use types::Crc32c;

use super::clock::{burn, thread_cpu};
use super::cost::Cost;
use super::input::{Input, InputOptions, Mode};
use super::material::{Dataset, JobReads, Material};
use super::plan::{Chosen, NeededPart, groups, needs};
use super::recording::{OperationKind, Recording};
use super::{AnalysisSource, AnalysisSpec, Gaps, put};
use crate::content::Content;
use crate::load::{JobTally, Tally, Worker};
use crate::memory::Memory;
use crate::rootfile::{Part, Unpacker};
use crate::splitmix;
use crate::target::{Session, Span, Target, TargetError};

/// Does job `number`.
pub(super) fn job(
    spec: &AnalysisSpec,
    material: &Arc<Material>,
    target: &dyn Target,
    content: &Content,
    worker: &Worker,
) -> Result<Tally, TargetError> {
    let number = u32::try_from(worker.number).unwrap_or(u32::MAX);
    let plan = Plan::new(spec, material, number);
    let mut job = Job {
        spec,
        material,
        content,
        session: target.session()?,
        copy: number % spec.copies.max(1),
        cost: Cost::new(worker, Duration::from_micros(spec.added_round_trip_us)),
        memory: Some(Memory::new(plan.memory)?),
        unpacker: Unpacker::default(),
        plain: Vec::new(),
        done: JobTally::default(),
        start: Instant::now(),
    };
    job.start = worker.start();
    let cpu = thread_cpu();
    let result = match (&plan.steps, &material.reading) {
        (Steps::Dataset { chosen, needs, groups }, JobReads::Dataset(dataset)) => {
            job.dataset(dataset, chosen, needs, groups)
        }
        (_, JobReads::Recording(recording)) => job.recording(recording),
        (Steps::Recording, JobReads::Dataset(_)) => Ok(()),
    };
    let wall = job.start.elapsed();
    let cpu = thread_cpu().saturating_sub(cpu);
    if let Err(error) = result {
        worker.meter().add_failure();
        job.cost.tally.add_failure(wall, &error);
    }
    Ok(job.finish(wall, cpu))
}

/// A job's plan, which is made before the measurement.
struct Plan {
    steps: Steps,
    /// The bytes of the largest group.
    memory: usize,
}

enum Steps {
    Dataset { chosen: Chosen, needs: Vec<NeededPart>, groups: Vec<std::ops::Range<usize>> },
    Recording,
}

impl Plan {
    fn new(spec: &AnalysisSpec, material: &Material, number: u32) -> Self {
        match &material.reading {
            JobReads::Dataset(dataset) => {
                let seed = splitmix::next(spec.seed ^ u64::from(number));
                // The number of chosen events was checked when the material was made.
                let chosen = Chosen::new(dataset.entries, spec.events_millionths, seed);
                let chosen = chosen.unwrap_or(Chosen::All(dataset.entries));
                let needs = needs(&dataset.parts, &dataset.branches, &chosen);
                let cache = if spec.mode == Mode::Vector { spec.cache_bytes } else { 0 };
                let groups = groups(&dataset.parts, &needs, cache);
                let len = |place: u32| part(dataset, place).map_or(0, |part| index(part.bytes));
                let of_group = groups.iter().map(|group| {
                    needs.get(group.clone()).unwrap_or_default().iter().map(|need| len(need.part)).sum::<usize>()
                });
                let memory = of_group.chain(dataset.head.clone().map(len)).max().unwrap_or(0);
                Self { steps: Steps::Dataset { chosen, needs, groups }, memory }
            }
            JobReads::Recording(recording) => {
                let len = |what: &OperationKind| match what {
                    OperationKind::Read(span) => span.len,
                    OperationKind::VectorRead(spans) => spans.iter().map(|span| span.len).sum(),
                    OperationKind::Open(_) | OperationKind::Close => 0,
                };
                let memory = recording.operations.iter().map(|operation| len(&operation.what)).max().unwrap_or(0);
                Self { steps: Steps::Recording, memory }
            }
        }
    }
}

struct Job<'a> {
    spec: &'a AnalysisSpec,
    material: &'a Material,
    content: &'a Content,
    session: Box<dyn Session>,
    copy: u32,
    cost: Cost<'a>,
    memory: Option<Memory>,
    unpacker: Unpacker,
    plain: Vec<u8>,
    done: JobTally,
    start: Instant,
}

impl Job<'_> {
    fn open(&mut self, file: usize) -> Result<Input, TargetError> {
        let files = self.material.files.len();
        let name = put::name(files, self.copy, file);
        let how = InputOptions {
            mode: self.spec.mode,
            window: usize::try_from(self.spec.cache_bytes).unwrap_or(usize::MAX),
            scratch: &self.spec.scratch,
        };
        let bytes = self.material.files.get(file).map_or(0, |file| file.bytes);
        Input::open(&mut *self.session, &name, bytes, &how, &mut self.cost)
    }

    /// Reads cluster by cluster, in the order of entries.
    fn dataset(
        &mut self,
        dataset: &Dataset,
        chosen: &Chosen,
        needs: &[NeededPart],
        groups: &[std::ops::Range<usize>],
    ) -> Result<(), TargetError> {
        let mut input = self.open(0)?;
        for place in dataset.head.clone() {
            self.read_parts(&mut input, dataset, &[place])?;
        }
        let mut before = 0;
        for (number, group) in groups.iter().enumerate() {
            if self.cost.is_stopped() {
                break;
            }
            let mut places: Vec<u32> =
                needs.get(group.clone()).unwrap_or_default().iter().map(|need| need.part).collect();
            if self.spec.mode == Mode::Vector {
                // In the order of the file, like caches do.
                places.sort_unstable_by_key(|place| part(dataset, *place).map(|part| part.offset));
            }
            self.read_parts(&mut input, dataset, &places)?;
            // When the next group's first event is reached, the earlier events are done.
            let next = groups.get(number + 1).and_then(|next| needs.get(next.start));
            let end = next.map_or(dataset.entries, |need| need.event);
            self.done.events += chosen.count(before..end);
            before = end;
        }
        input.close(&mut self.cost)
    }

    fn read_parts(&mut self, input: &mut Input, dataset: &Dataset, places: &[u32]) -> Result<(), TargetError> {
        let found: Vec<(u32, Part)> =
            places.iter().filter_map(|place| Some((*place, *part(dataset, *place)?))).collect();
        let spans = found.iter().map(|(_, part)| Span { offset: part.offset, len: index(part.bytes) });
        let memory = self.get(input, &joined(spans))?;
        let mut at = 0;
        let before = (self.done.unpacked, self.done.asked);
        for (place, part) in &found {
            let len = index(part.bytes);
            let bytes = memory.get(at..at + len).unwrap_or_default();
            self.check_part(dataset, *place, part, bytes);
            at += len;
        }
        self.memory = Some(memory);
        self.compute(self.done.unpacked - before.0);
        Ok(())
    }

    /// Compares a part with the original, decompressed if the job decompresses.
    fn check_part(&mut self, dataset: &Dataset, place: u32, part: &Part, bytes: &[u8]) {
        let Some(sums) = dataset.sums.get(place as usize) else {
            self.done.unpacked += bytes.len() as u64;
            return self.check_content(0, part.offset, bytes);
        };
        let wrong = |what: String| format!("byte {} of a file, {} bytes: {what}", part.offset, part.bytes);
        let text = if self.spec.decompress {
            match self.unpacker.unpack(part, bytes, &mut self.plain) {
                Ok(()) if Crc32c::of(&self.plain) == sums.plain => None,
                Ok(()) => Some(wrong("decompressed, it differs from the original".to_owned())),
                Err(error) => Some(wrong(error.to_string())),
            }
        } else {
            (Crc32c::of(bytes) != sums.packed).then(|| wrong("it differs from the original".to_owned()))
        };
        match text {
            None => self.cost.tally.verified += bytes.len() as u64,
            Some(text) => self.cost.tally.add_wrong(self.start.elapsed(), text),
        }
        self.done.unpacked += if self.spec.decompress { u64::from(part.uncompressed) } else { bytes.len() as u64 };
    }

    fn check_content(&mut self, file: usize, offset: u64, bytes: &[u8]) {
        let key = put::number(self.material.files.len(), self.copy, file);
        match self.content.check(key, 0..=0, offset, bytes) {
            Ok(()) => self.cost.tally.verified += bytes.len() as u64,
            Err(mismatch) => self.cost.tally.add_wrong(self.start.elapsed(), mismatch.to_string()),
        }
    }

    fn get(&mut self, input: &mut Input, spans: &[Span]) -> Result<Memory, TargetError> {
        let wanted: usize = spans.iter().map(|span| span.len).sum();
        let memory = self.memory.take().map_or_else(|| Memory::new(wanted), Ok)?;
        let memory = input.get(spans, true, memory, &mut self.cost)?;
        self.done.asked += wanted as u64;
        Ok(memory)
    }

    /// Does the computation for this number of bytes.
    fn compute(&mut self, bytes: u64) {
        let time = bytes.saturating_mul(u64::from(self.spec.compute_us_per_mb)) / 1_000_000;
        if time > 0 {
            burn(Duration::from_micros(time), || self.cost.is_stopped());
        }
    }

    /// Replays the recording, one operation after the other.
    fn recording(&mut self, recording: &Recording) -> Result<(), TargetError> {
        let mut open: HashMap<u64, (usize, Input)> = HashMap::new();
        for operation in &recording.operations {
            if self.cost.is_stopped() {
                break;
            }
            if self.spec.gaps == Gaps::Compute {
                burn(operation.gap, || self.cost.is_stopped());
            }
            let one;
            let spans: &[Span] = match &operation.what {
                OperationKind::Open(file) => {
                    let input = self.open(*file)?;
                    open.insert(operation.handle, (*file, input));
                    continue;
                }
                OperationKind::Close => {
                    if let Some((_, input)) = open.remove(&operation.handle) {
                        input.close(&mut self.cost)?;
                    }
                    continue;
                }
                OperationKind::Read(span) => {
                    one = [*span];
                    &one
                }
                OperationKind::VectorRead(spans) => spans,
            };
            let Some((file, input)) = open.get_mut(&operation.handle) else { continue };
            let (file, memory) = (*file, self.get(input, spans)?);
            let mut at = 0;
            for span in spans {
                let bytes = memory.get(at..at + span.len).unwrap_or_default();
                self.check_content(file, span.offset, bytes);
                at += span.len;
            }
            self.memory = Some(memory);
            self.done.unpacked += at as u64;
            self.compute(at as u64);
        }
        open.into_values().try_for_each(|(_, input)| input.close(&mut self.cost))
    }

    fn finish(self, wall: Duration, cpu: Duration) -> Tally {
        let Cost { mut tally, io_cpu, helper_cpu, waited, requests, moved, .. } = self.cost;
        tally.jobs.push(JobTally {
            wall_s: wall.as_secs_f64(),
            cpu_s: (cpu + helper_cpu).as_secs_f64(),
            io_cpu_s: (io_cpu + helper_cpu).as_secs_f64(),
            waited_s: waited.as_secs_f64(),
            moved,
            requests,
            cores: std::thread::available_parallelism()
                .map_or(1, |cores| u32::try_from(cores.get()).unwrap_or(u32::MAX)),
            compressible: self.material.compressible,
            synthetic: matches!(self.spec.source, AnalysisSource::Synthetic(_)),
            ..self.done
        });
        tally
    }
}

/// Joins adjacent spans.
fn joined(spans: impl Iterator<Item = Span>) -> Vec<Span> {
    let mut joined: Vec<Span> = Vec::new();
    for span in spans {
        match joined.last_mut() {
            Some(last) if last.offset + last.len as u64 == span.offset => last.len += span.len,
            _ => joined.push(span),
        }
    }
    joined
}

fn part(dataset: &Dataset, place: u32) -> Option<&Part> {
    dataset.parts.get(index(place))
}

fn index(n: u32) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}
