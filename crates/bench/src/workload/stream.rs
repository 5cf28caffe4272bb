//! Streams: workers with their own files, which they read or write block by block in one of the [`Access`]
//! patterns.

use std::collections::VecDeque;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::KnownFiles;
use super::access::{Access, Operation, Operations, Part};
use super::file_window::FileWindow;
use super::kind::{Names, Site, Unit, WORKERS_MAX, WorkError, Workload, word_of, workers_of};
use crate::content::{Content, FileKey};
use crate::load::{Pace, Tally, Worker, WorkerPool};
use crate::memory::Memory;
use crate::target::{Done, Failure, IoOptions, OpenFile, Purpose, RelName, Session, Target, TargetError};

/// The parameters of streams.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamSpec {
    /// The access pattern.
    pub access: Access,
    /// The number of streams, each with its own files.
    pub streams: u32,
    /// The files of each stream, one after the other.
    pub files: u32,
    /// The size of each file in bytes.
    pub file_bytes: u64,
    /// The size of each request in bytes.
    pub block_bytes: u32,
    /// The parts of one file that are done at a time, each by a worker with its own open file.
    pub chunks: u32,
    /// The options of opens.
    pub io_options: IoOptions,
    /// The rate of each stream in bytes a second, at fixed times; `None`: as fast as possible.
    pub rate: Option<u64>,
    /// The share of writes in a mixture, in percent.
    pub write_percent: u8,
    /// Whether read bytes are compared with the written ones.
    pub verify: bool,
    /// The newest generation in the files before.
    pub generation: u64,
    /// The oldest generation in the files before. A pattern that writes only some blocks leaves the others
    /// unchanged.
    pub oldest_generation: u64,
    /// The seed of contents and orders.
    pub seed: u64,
}

/// The parameters are not valid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StreamError {
    /// A value must be at least 1.
    #[error("{0} is 0; give at least 1")]
    Zero(&'static str),
    /// There are more workers than one machine can have.
    #[error("{streams} streams of {chunks} chunks at a time; at most {WORKERS_MAX} workers")]
    Many {
        /// The number of streams.
        streams: u32,
        /// The workers of each stream.
        chunks: u32,
    },
    /// Blocks are too large for memory.
    #[error("blocks of {0} bytes; at most 256 MiB")]
    Block(u32),
    /// Lengths are not aligned for direct I/O.
    #[error("direct I/O with blocks of {block} bytes in files of {file}: {} a multiple of 4,096", odd(*.block, *.file))]
    Unaligned {
        /// The block size.
        block: u32,
        /// The file size.
        file: u64,
    },
    /// Patterns that write in place verify whole pages only.
    #[error("{access:?} with blocks of {block} bytes cannot be verified; their size must be a multiple of 4,096")]
    Unverifiable {
        /// The pattern.
        access: Access,
        /// The block size.
        block: u32,
    },
    /// A new file cannot have several writers.
    #[error("one worker writes a new file from start to end, so `chunks` must be 1 with `write`")]
    ChunksOfNew,
    /// Buffers like the C library's are not aligned for direct I/O.
    #[error("{0:?} uses buffers, so it cannot use direct I/O; put it into a work without `direct`")]
    DirectStdio(Access),
}

const BLOCK_MAX: u32 = 256 << 20;
const PAGE: u32 = 4096;

/// Names the length that is not a multiple of a page, for a message.
fn odd(block: u32, file: u64) -> &'static str {
    match (block.is_multiple_of(PAGE), file.is_multiple_of(u64::from(PAGE))) {
        (false, true) => "the block is not",
        (true, false) => "the file is not (sizes like 100MB are decimal; 100MiB is one)",
        _ => "neither is",
    }
}

impl StreamSpec {
    /// Checks the parameters.
    ///
    /// # Errors
    /// The first invalid one.
    pub fn check(&self) -> Result<(), StreamError> {
        for (what, value) in
            [("streams", self.streams), ("files", self.files), ("block", self.block_bytes), ("chunks", self.chunks)]
        {
            if value == 0 {
                return Err(StreamError::Zero(what));
            }
        }
        if self.io_options.window.is_zero() {
            return Err(StreamError::Zero("window"));
        }
        if u64::from(self.streams) * u64::from(self.chunks) > WORKERS_MAX {
            return Err(StreamError::Many { streams: self.streams, chunks: self.chunks });
        }
        if self.block_bytes > BLOCK_MAX {
            return Err(StreamError::Block(self.block_bytes));
        }
        let aligned = self.block_bytes.is_multiple_of(PAGE);
        if self.io_options.direct && !(aligned && self.file_bytes.is_multiple_of(u64::from(PAGE))) {
            return Err(StreamError::Unaligned { block: self.block_bytes, file: self.file_bytes });
        }
        if self.access.writes() && !self.access.makes_files() && !aligned {
            return Err(StreamError::Unverifiable { access: self.access, block: self.block_bytes });
        }
        if self.access.makes_files() && self.chunks > 1 {
            return Err(StreamError::ChunksOfNew);
        }
        if self.access.is_stdio() && self.io_options.direct {
            return Err(StreamError::DirectStdio(self.access));
        }
        Ok(())
    }

    /// Returns the number of workers.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.streams as usize * self.chunks as usize
    }

    /// Returns the bytes of all files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.file_bytes.saturating_mul(u64::from(self.files)).saturating_mul(u64::from(self.streams))
    }

    /// Returns the number among all files of file `file` of `stream`.
    fn key(&self, stream: u32, file: u32) -> u64 {
        u64::from(stream) * u64::from(self.files) + u64::from(file)
    }

    /// Returns the stream whose files a worker of `stream` uses.
    fn stream_of(&self, stream: u32) -> u32 {
        if self.access != Access::ReadOthers {
            return stream;
        }
        let other = u64::from(stream) + u64::from(self.streams / 2);
        u32::try_from(other % u64::from(self.streams.max(1))).unwrap_or(stream)
    }

    /// Returns the oldest and the newest generation in the files after it.
    #[must_use]
    pub fn generations_after(&self) -> (u64, u64) {
        if !self.access.writes() {
            return (self.oldest_generation, self.generation);
        }
        let written = self.written_generation();
        (if self.access.writes_all() { written } else { self.oldest_generation }, written)
    }

    /// Returns the generation that it writes.
    fn written_generation(&self) -> u64 {
        if self.access == Access::Write { self.generation } else { self.generation + 1 }
    }

    /// Returns the generations that it may read.
    fn read_generations(&self) -> RangeInclusive<u64> {
        self.oldest_generation..=self.generation + u64::from(self.access.writes())
    }

    /// Returns the name of a file.
    #[must_use]
    pub fn name(&self, stream: u32, file: u32) -> RelName {
        RelName::numbered('s', u64::from(stream)).join(&RelName::numbered('f', u64::from(file)))
    }
}

impl Workload for StreamSpec {
    fn title(&self) -> String {
        word_of(self.access)
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
        self.bytes()
    }

    fn fixed_time(&self) -> Option<Duration> {
        self.rate.map(|rate| Duration::from_secs(self.file_bytes.saturating_mul(u64::from(self.files)) / rate.max(1)))
    }

    fn directories(&self) -> Vec<RelName> {
        (0..self.streams).map(|stream| RelName::numbered('s', u64::from(stream))).collect()
    }

    fn files(&self) -> Names<'_> {
        Box::new((0..self.streams).flat_map(move |stream| (0..self.files).map(move |file| self.name(stream, file))))
    }

    fn needs_files(&self) -> bool {
        self.access.needs_files()
    }

    fn makes_files(&self) -> bool {
        self.access.makes_files()
    }

    fn must_follow_write(&self) -> bool {
        self.access == Access::AfterWrite
    }

    fn is_cold(&self) -> bool {
        self.access.is_cold() && !self.io_options.direct
    }

    #[allow(clippy::cast_precision_loss)] // a rate
    fn asked_rate(&self, _role: &str) -> Option<f64> {
        self.rate.map(|rate| rate as f64 * f64::from(self.streams))
    }

    fn workers(&self) -> u32 {
        self.streams.saturating_mul(self.chunks)
    }

    fn io_options(&self) -> Option<IoOptions> {
        Some(self.io_options)
    }

    fn writes(&self) -> bool {
        self.access.writes()
    }

    fn parts(&self) -> u32 {
        self.streams
    }

    fn worker_pool(&self, site: &Site, parts: Range<u32>) -> Result<WorkerPool, WorkError> {
        self.check()?;
        let (spec, target, content) = (self.clone(), site.target(&self.title())?, Arc::clone(&site.content));
        let (workers, known) = (workers_of(&parts, self.chunks), Arc::clone(&site.known));
        Ok(WorkerPool::hire(&[("", workers)], move |worker| {
            Stream::new(&spec, &*target, &content, &known, worker)?.run()
        })?)
    }
}

/// One worker of a stream.
struct Stream<'a> {
    spec: &'a StreamSpec,
    content: &'a Content,
    worker: &'a Worker,
    session: Box<dyn Session>,
    window: FileWindow,
    stream: u32,
    chunk: u32,
    known: &'a KnownFiles,
    /// Unused memory to write from, which holds the table.
    to_write: Vec<Memory>,
    /// Unused memory to read into.
    to_read: Vec<Memory>,
    /// The requests under way, and how late they started.
    under_way: VecDeque<(Operation, Duration)>,
    tally: Tally,
}

impl<'a> Stream<'a> {
    fn new(
        spec: &'a StreamSpec,
        target: &dyn Target,
        content: &'a Content,
        known: &'a KnownFiles,
        worker: &'a Worker,
    ) -> Result<Self, TargetError> {
        let number = u32::try_from(worker.number).unwrap_or(u32::MAX);
        let driver_max = if spec.access.is_stdio() { 1 } else { target.window_max() };
        let mut stream = Self {
            spec,
            content,
            worker,
            session: target.session()?,
            window: FileWindow::new(spec.io_options.window, driver_max),
            stream: spec.stream_of(number / spec.chunks),
            chunk: number % spec.chunks,
            known,
            to_write: Vec::new(),
            to_read: Vec::new(),
            under_way: VecDeque::new(),
            tally: Tally::default(),
        };
        stream.fill_up()?;
        Ok(stream)
    }

    /// Ensures that there is memory for all requests. The memory of pending requests is lost when a file fails.
    fn fill_up(&mut self) -> Result<(), TargetError> {
        self.under_way.clear();
        let block = self.spec.block_bytes as usize;
        while self.spec.access.writes() && self.to_write.len() < self.window.allowed() {
            self.to_write.push(self.content.memory(block)?);
        }
        while self.spec.access.reads() && self.to_read.len() < self.window.allowed() {
            self.to_read.push(Memory::new(block)?);
        }
        Ok(())
    }

    fn run(mut self) -> Result<Tally, TargetError> {
        let start = self.worker.start();
        let mut pace = Pace::shared(start, self.spec.block_bytes, self.spec.rate, self.spec.chunks);
        let makes_files = self.spec.access.makes_files();
        let known = self.known.lengths.of(self.stream);
        let mut lengths = match known {
            Some(lengths) => lengths,
            None if makes_files => vec![None; self.spec.files as usize],
            // Another machine has created them.
            None => vec![Some(self.spec.file_bytes); self.spec.files as usize],
        };
        for (file, length) in (0..self.spec.files).zip(&mut lengths) {
            if self.worker.is_stopped() {
                self.tally.cut = 1;
                break;
            }
            let bytes = if makes_files { Some(self.spec.file_bytes) } else { *length };
            self.tally.left_out += u64::from(self.chunk == 0 && bytes != Some(self.spec.file_bytes));
            let Some(bytes) = bytes else { continue };
            let done = self.one_file(file, bytes, start, &mut pace);
            // An unsupported operation has changed nothing.
            let is_refused = done.as_ref().is_err_and(|error| error.failure() == Failure::Unsupported);
            if makes_files && !is_refused {
                *length = done.as_ref().ok().copied().flatten();
            }
            if let Err(error) = done {
                self.worker.meter().add_failure();
                self.tally.add_failure(start.elapsed(), &error);
                self.fill_up()?;
            }
        }
        if makes_files {
            self.known.lengths.keep(self.stream, lengths);
        }
        Ok(self.tally)
    }

    /// Works on the first `bytes` of a file. Returns how many it completed; `None`: the bytes written so far are
    /// not kept.
    fn one_file(
        &mut self,
        number: u32,
        bytes: u64,
        start: Instant,
        pace: &mut Pace,
    ) -> Result<Option<u64>, TargetError> {
        let spec = self.spec;
        let purpose = match spec.access {
            Access::Write => Purpose::Create { len: spec.file_bytes },
            Access::Fwrite => Purpose::Replace { len: spec.file_bytes },
            access if access.writes() => Purpose::Update,
            _ => Purpose::Read,
        };
        let name = spec.name(self.stream, number);
        let key = spec.key(self.stream, number);
        let mut file = if spec.access.is_stdio() {
            self.session.open_stdio(&name, purpose, spec.io_options)?
        } else {
            self.session.open(&name, purpose, spec.io_options)?
        };
        self.window.opened(&*file, spec.block_bytes as usize, &mut self.tally);
        self.fill_up()?;
        let part = Part::of(bytes, u64::from(spec.block_bytes), u64::from(self.chunk), u64::from(spec.chunks));
        let (before, mut end) = (self.tally.bytes, bytes);
        let seed = spec.seed ^ (u64::from(self.stream) << 32) ^ u64::from(number);
        for operation in Operations::new(spec.access, part, spec.block_bytes as usize, spec.write_percent, seed) {
            if self.worker.is_stopped() {
                (self.tally.cut, end) = (1, operation.offset);
                break;
            }
            let due = pace.due();
            if pace.is_fixed() {
                self.wait(&mut *file, &name, key, start, due)?;
            }
            let late = due.elapsed();
            self.begin(&mut *file, &name, key, operation, late)?;
            while self.under_way.len() >= self.window.allowed() {
                self.finish(&mut *file, &name, key, start)?;
            }
        }
        while !self.under_way.is_empty() {
            self.finish(&mut *file, &name, key, start)?;
        }
        self.tally.add_served(file.server(), self.tally.bytes - before);
        if end < bytes && !file.keeps_part() {
            return Ok(None);
        }
        file.close()?;
        Ok(Some(end))
    }

    fn begin(
        &mut self,
        file: &mut dyn OpenFile,
        name: &RelName,
        key: u64,
        operation: Operation,
        late: Duration,
    ) -> Result<(), TargetError> {
        let pool = if operation.write { &mut self.to_write } else { &mut self.to_read };
        let missing = || TargetError::Short { what: format!("find memory for {name}"), moved: 0, asked: operation.len };
        let mut memory = pool.pop().ok_or_else(missing)?;
        self.under_way.push_back((operation, late));
        if operation.write {
            let key = FileKey { file: key, generation: self.spec.written_generation() };
            let place = self.content.block(memory.whole(), key, operation.offset, operation.len).ok_or_else(missing)?;
            memory.show(place);
            file.write(operation.offset, memory)
        } else {
            memory.show(0..operation.len);
            file.read(operation.offset, memory)
        }
    }

    /// Takes completed requests until `due`.
    fn wait(
        &mut self,
        file: &mut dyn OpenFile,
        name: &RelName,
        key: u64,
        start: Instant,
        due: Instant,
    ) -> Result<(), TargetError> {
        while !self.under_way.is_empty()
            && let Some(done) = file.done_until(due)?
        {
            self.take(done, name, key, start)?;
        }
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        Ok(())
    }

    fn finish(&mut self, file: &mut dyn OpenFile, name: &RelName, key: u64, start: Instant) -> Result<(), TargetError> {
        let done = file.done()?.ok_or_else(|| lost(name, 0, self.under_way.len()))?;
        self.take(done, name, key, start)
    }

    fn take(&mut self, done: Done, name: &RelName, key: u64, start: Instant) -> Result<(), TargetError> {
        let place = self.under_way.iter().position(|(operation, _)| operation.offset == done.offset);
        let (operation, late) =
            place.and_then(|place| self.under_way.remove(place)).ok_or_else(|| lost(name, 0, done.memory.len()))?;
        let moved = done.memory.len();
        if operation.write {
            self.to_write.push(done.memory);
        } else {
            if moved < operation.len {
                return Err(TargetError::Short {
                    what: format!("read {name} at byte {}", operation.offset),
                    moved,
                    asked: operation.len,
                });
            }
            if self.spec.verify {
                match self.content.check(key, self.spec.read_generations(), operation.offset, &done.memory) {
                    Ok(()) => self.tally.verified += moved as u64,
                    Err(mismatch) => self.tally.add_wrong(start.elapsed(), format!("{name}: {mismatch}")),
                }
            }
            self.to_read.push(done.memory);
        }
        self.worker.meter().add(moved as u64);
        self.tally.add(moved as u64, done.took + late);
        Ok(())
    }
}

/// Makes the error for a wrong answer, or a missing one.
fn lost(name: &RelName, moved: usize, asked: usize) -> TargetError {
    TargetError::Short { what: format!("read or write {name}"), moved, asked }
}
