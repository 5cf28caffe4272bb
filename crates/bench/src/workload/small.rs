//! Many small files. Each client creates, lists, reads and removes files, in its own directory or in a shared one.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::KnownFiles;
use super::kind::{Names, Site, Unit, WORKERS_MAX, WorkError, Workload, word_of, workers_of};
use crate::content::{Content, FileKey};
use crate::load::{Pace, Tally, Worker, WorkerPool};
use crate::memory::Memory;
use crate::target::{CreatedFile, IoOptions, NewFile, Purpose, RelName, Session, Target, TargetError};

/// A phase.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SmallPhase {
    /// Open a new file, write it, close it.
    Create,
    /// List the directories, with lengths.
    List,
    /// Ask for the length of each file by its name.
    Stat,
    /// Open a file, read it completely, close it.
    Read,
    /// Remove the files.
    Remove,
}

impl SmallPhase {
    /// All phases, in a possible order.
    pub const ALL: [Self; 5] = [Self::Create, Self::List, Self::Stat, Self::Read, Self::Remove];
}

/// The parameters of work with many small files.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SmallSpec {
    /// The phase.
    pub phase: SmallPhase,
    /// Clients at a time.
    pub clients: u32,
    /// Files of each client.
    pub files: u32,
    /// The size of each file in bytes.
    pub file_bytes: u32,
    /// Whether all clients share one directory. Otherwise each has its own.
    pub one_directory: bool,
    /// The options of opens.
    pub io_options: IoOptions,
    /// Operations a second of each client, at fixed times; `None`: as fast as possible.
    pub rate: Option<u32>,
    /// Whether read bytes, and listed names and lengths, are compared with the written ones.
    pub verify: bool,
    /// Whether files are created in batches, each as large as the system allows. Otherwise they are opened, written
    /// and closed one by one.
    #[serde(default)]
    pub batch: bool,
    /// The least time of a phase that changes nothing, in milliseconds: until then, each client begins again with its
    /// first file. In a short phase, the figure depends on where the scheduler has put the processes. 0: every file
    /// is asked for once. With a rate, too.
    #[serde(default)]
    pub least_ms: u32,
}

/// The parameters are not valid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SmallError {
    /// A value must be at least 1.
    #[error("{0} is 0; give at least 1")]
    Zero(&'static str),
    /// There are more clients than one machine can have.
    #[error("{0} clients; at most {WORKERS_MAX}")]
    Many(u32),
    /// A file is larger than one request.
    #[error("files of {0} bytes are too large here, where 16 MiB are allowed; use `[[streams]]`")]
    Large(u32),
    /// Batches cannot be created at fixed times.
    #[error("batches cannot have a rate; remove `batch` or `rate`")]
    PacedBatches,
    /// Lengths are not aligned for direct I/O.
    #[error("direct I/O with files of {0} bytes; their size must be a multiple of 4,096")]
    Unaligned(u32),
}

const FILE_MAX: u32 = 16 << 20;

impl SmallSpec {
    /// Checks the parameters.
    ///
    /// # Errors
    /// The first invalid one.
    pub fn check(&self) -> Result<(), SmallError> {
        for (what, value) in [("clients", self.clients), ("files", self.files)] {
            if value == 0 {
                return Err(SmallError::Zero(what));
            }
        }
        if u64::from(self.clients) > WORKERS_MAX {
            return Err(SmallError::Many(self.clients));
        }
        if self.file_bytes > FILE_MAX {
            return Err(SmallError::Large(self.file_bytes));
        }
        if self.batch && self.rate.is_some() {
            return Err(SmallError::PacedBatches);
        }
        if self.io_options.direct && !self.file_bytes.is_multiple_of(4096) {
            return Err(SmallError::Unaligned(self.file_bytes));
        }
        Ok(())
    }

    /// Returns the bytes of all files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        u64::from(self.clients) * u64::from(self.files) * u64::from(self.file_bytes)
    }

    /// Returns how long a phase lasts at least, if it can be repeated on the same files.
    fn least_time(&self) -> Duration {
        let is_repeated = matches!(self.phase, SmallPhase::List | SmallPhase::Stat | SmallPhase::Read);
        Duration::from_millis(if is_repeated && self.rate.is_none() { self.least_ms.into() } else { 0 })
    }

    /// Returns the directory of a client's files.
    #[must_use]
    pub fn directory(&self, client: u32) -> RelName {
        if self.one_directory { RelName::numbered('d', 0) } else { RelName::numbered('d', u64::from(client)) }
    }

    /// Returns all directories.
    pub fn directories(&self) -> impl Iterator<Item = RelName> + '_ {
        (0..if self.one_directory { 1 } else { self.clients }).map(|client| self.directory(client))
    }

    /// Returns the numbers of a client's files.
    fn numbers(&self, client: u32) -> Range<u64> {
        let first = u64::from(client) * u64::from(self.files);
        first..first + u64::from(self.files)
    }

    /// Returns the names of a client's files.
    pub fn names(&self, client: u32) -> impl Iterator<Item = RelName> + use<> {
        let folder = self.directory(client);
        self.numbers(client).map(move |number| folder.join(&RelName::numbered('f', number)))
    }
}

impl Workload for SmallSpec {
    fn title(&self) -> String {
        word_of(self.phase)
    }

    fn check(&self) -> Result<(), WorkError> {
        Ok(self.check()?)
    }

    /// Small files are counted, whatever their size.
    fn unit(&self) -> Unit {
        Unit::Operations
    }

    fn room(&self) -> u64 {
        self.bytes()
    }

    fn moved(&self) -> u64 {
        if matches!(self.phase, SmallPhase::Create | SmallPhase::Read) { self.bytes() } else { 0 }
    }

    fn operations(&self) -> u64 {
        u64::from(self.clients) * u64::from(self.files)
    }

    fn fixed_time(&self) -> Option<Duration> {
        let paced = self.rate.filter(|_| self.phase != SmallPhase::List);
        paced.map(|rate| Duration::from_secs(u64::from(self.files / rate.max(1))))
    }

    fn directories(&self) -> Vec<RelName> {
        self.directories().collect()
    }

    fn files(&self) -> Names<'_> {
        Box::new((0..self.clients).flat_map(move |client| self.names(client)))
    }

    fn asked_rate(&self, _role: &str) -> Option<f64> {
        // A listing is one answer for all entries, and never has a rate.
        let paced = self.rate.filter(|_| self.phase != SmallPhase::List);
        paced.map(|rate| f64::from(rate) * f64::from(self.clients))
    }

    fn io_options(&self) -> Option<IoOptions> {
        Some(self.io_options)
    }

    fn writes(&self) -> bool {
        self.phase == SmallPhase::Create
    }

    fn parts(&self) -> u32 {
        self.clients
    }

    fn worker_pool(&self, site: &Site, parts: Range<u32>) -> Result<WorkerPool, WorkError> {
        self.check()?;
        let (spec, target, content) = (self.clone(), site.target(&self.title())?, Arc::clone(&site.content));
        let known = Arc::clone(&site.known);
        Ok(WorkerPool::hire(&[("", workers_of(&parts, 1))], move |worker| {
            Client::new(&spec, &*target, &content, &known, worker)?.run()
        })?)
    }
}

struct Client<'a> {
    spec: &'a SmallSpec,
    content: &'a Content,
    worker: &'a Worker,
    known: &'a KnownFiles,
    session: Box<dyn Session>,
    number: u32,
    memory: Option<Memory>,
    tally: Tally,
}

impl<'a> Client<'a> {
    fn new(
        spec: &'a SmallSpec,
        target: &dyn Target,
        content: &'a Content,
        known: &'a KnownFiles,
        worker: &'a Worker,
    ) -> Result<Self, TargetError> {
        let memory = Memory::new(spec.file_bytes as usize)?;
        let number = u32::try_from(worker.number).unwrap_or(u32::MAX);
        Ok(Self {
            spec,
            content,
            worker,
            known,
            session: target.session()?,
            number,
            memory: Some(memory),
            tally: Tally::default(),
        })
    }

    fn run(mut self) -> Result<Tally, TargetError> {
        // The expected files are computed before the measurement.
        let creates = self.spec.phase == SmallPhase::Create;
        let mut lengths = if creates { vec![None; self.spec.files as usize] } else { self.lengths() };
        let unknown = if self.spec.phase == SmallPhase::List { self.unknown() } else { 0 };
        let start = self.worker.start();
        let least = self.spec.least_time();
        if self.spec.phase == SmallPhase::List {
            // In a shared directory, too, each client lists everything, like users do.
            loop {
                self.list(start, &lengths, unknown);
                if !self.goes_on(start, least) {
                    return Ok(self.tally);
                }
            }
        }
        if creates && self.spec.batch {
            self.create_in_batches(start, &mut lengths)?;
            self.known.lengths.keep(self.number, lengths);
            return Ok(self.tally);
        }
        let period = self.spec.rate.map(|rate| Duration::from_secs(1) / rate.max(1));
        let mut pace = Pace::new(start, period);
        self.each(&mut lengths, &mut pace, start);
        let cut = self.tally.cut;
        while self.goes_on(start, least) {
            self.each(&mut lengths, &mut pace, start);
        }
        // The end of the time cuts only what was repeated.
        self.tally.cut = cut;
        self.known.lengths.keep(self.number, lengths);
        Ok(self.tally)
    }

    /// Whether the client begins again with its first file.
    fn goes_on(&self, start: Instant, least: Duration) -> bool {
        let tally = &self.tally;
        start.elapsed() < least && !self.worker.is_stopped() && tally.failed() == 0 && tally.left_out == 0
    }

    /// Does the phase's operation with each file of this client.
    fn each(&mut self, lengths: &mut [Option<u64>], pace: &mut Pace, start: Instant) {
        let creates = self.spec.phase == SmallPhase::Create;
        let folder = self.spec.directory(self.number);
        for (number, length) in self.spec.numbers(self.number).zip(lengths) {
            if self.worker.is_stopped() {
                self.tally.cut = 1;
                break;
            }
            if !creates && length.is_none() {
                self.tally.left_out += 1;
                continue;
            }
            let due = pace.wait();
            let name = folder.join(&RelName::numbered('f', number));
            match self.one(&name, number, start) {
                Ok(bytes) => {
                    self.worker.meter().add(bytes);
                    self.tally.add(bytes, due.elapsed());
                    match self.spec.phase {
                        SmallPhase::Create => *length = Some(bytes),
                        SmallPhase::Remove => *length = None,
                        SmallPhase::List | SmallPhase::Stat | SmallPhase::Read => {}
                    }
                }
                Err(error) => {
                    self.worker.meter().add_failure();
                    self.tally.add_failure(start.elapsed(), &error);
                }
            }
        }
    }

    /// Returns the lengths of this client's existing files.
    fn lengths(&self) -> Vec<Option<u64>> {
        let all = || vec![Some(u64::from(self.spec.file_bytes)); self.spec.files as usize];
        self.known.lengths.of(self.number).unwrap_or_else(all)
    }

    /// Returns the number of files in its directory that may not exist. The files of another machine count as
    /// existing.
    fn unknown(&self) -> u64 {
        self.clients().map(|client| self.known.lengths.count(client, Option::is_none)).sum()
    }

    /// Returns the clients whose files are in its directory.
    fn clients(&self) -> Range<u32> {
        if self.spec.one_directory { 0..self.spec.clients } else { self.number..self.number + 1 }
    }

    /// Returns the moved bytes.
    fn one(&mut self, name: &RelName, number: u64, start: Instant) -> Result<u64, TargetError> {
        let len = u64::from(self.spec.file_bytes);
        match self.spec.phase {
            SmallPhase::Create => self.create(name, number).map(|()| len),
            SmallPhase::Read => self.read(name, number, start).map(|()| len),
            SmallPhase::Stat => {
                let found = self.session.len_of(name)?;
                if self.spec.verify && found != Some(len) {
                    let found = found.map_or("nothing".to_owned(), |len| format!("{len} bytes"));
                    self.tally.add_wrong(start.elapsed(), format!("{name}: {found} instead of {len} bytes"));
                }
                Ok(0)
            }
            SmallPhase::Remove => self.session.remove(name).map(|()| 0),
            SmallPhase::List => Ok(0),
        }
    }

    fn memory(&mut self) -> Result<Memory, TargetError> {
        // A failed operation has kept it.
        self.memory.take().map_or_else(|| Memory::new(self.spec.file_bytes as usize), Ok)
    }

    fn create(&mut self, name: &RelName, number: u64) -> Result<(), TargetError> {
        let mut memory = self.memory()?;
        self.content.fill(FileKey { file: number, generation: 0 }, 0, memory.whole());
        memory.show(0..self.spec.file_bytes as usize);
        let mut file =
            self.session.open(name, Purpose::Create { len: u64::from(self.spec.file_bytes) }, self.spec.io_options)?;
        if self.spec.file_bytes > 0 {
            file.write(0, memory)?;
            let asked = self.spec.file_bytes as usize;
            self.memory = Some(file.done_whole(asked, &|| format!("write {name}"))?);
        } else {
            self.memory = Some(memory);
        }
        file.close()
    }

    /// Creates all files in batches. Their latencies are those of their batches.
    fn create_in_batches(&mut self, start: Instant, lengths: &mut [Option<u64>]) -> Result<(), TargetError> {
        let (spec, content, worker) = (self.spec, self.content, self.worker);
        let (folder, numbers) = (spec.directory(self.number), spec.numbers(self.number));
        let (first, mut left, mut cut) = (numbers.start, numbers, 0);
        let mut next = || {
            if worker.is_stopped() {
                cut = 1;
                return None;
            }
            let number = left.next()?;
            let mut bytes = vec![0; spec.file_bytes as usize];
            content.fill(FileKey { file: number, generation: 0 }, 0, &mut bytes);
            Some(NewFile { name: folder.join(&RelName::numbered('f', number)), content: bytes, number })
        };
        let (len, tally) = (u64::from(spec.file_bytes), &mut self.tally);
        let mut made = |made: CreatedFile| match made.result {
            Ok(()) => {
                worker.meter().add(len);
                tally.add(len, made.took);
                let place = usize::try_from(made.number - first).unwrap_or(usize::MAX);
                if let Some(place) = lengths.get_mut(place) {
                    *place = Some(len);
                }
            }
            Err(error) => {
                worker.meter().add_failure();
                tally.add_failure(start.elapsed(), &error);
            }
        };
        self.session.make_in_batches(&mut next, &mut made)?;
        self.tally.cut = cut;
        Ok(())
    }

    fn read(&mut self, name: &RelName, number: u64, start: Instant) -> Result<(), TargetError> {
        let mut memory = self.memory()?;
        let asked = self.spec.file_bytes as usize;
        memory.show(0..asked);
        let mut file = self.session.open(name, Purpose::Read, self.spec.io_options)?;
        if asked > 0 {
            file.read(0, memory)?;
            memory = file.done_whole(asked, &|| format!("read {name}"))?;
            if self.spec.verify {
                match self.content.check(number, 0..=0, 0, &memory) {
                    Ok(()) => self.tally.verified += asked as u64,
                    Err(mismatch) => self.tally.add_wrong(start.elapsed(), format!("{name}: {mismatch}")),
                }
            }
        }
        self.memory = Some(memory);
        file.close()
    }

    /// Each entry is an operation; its latency is that of the whole listing.
    fn list(&mut self, start: Instant, mine: &[Option<u64>], unknown: u64) {
        let spec = self.spec;
        let folder = spec.directory(self.number);
        let clients = self.clients();
        let all = u64::from(spec.files) * u64::from(clients.end - clients.start);
        let (first, numbers) = (spec.numbers(self.number).start, spec.numbers(clients.start).start);
        let numbers = numbers..numbers + all;
        let mut seen = vec![0_u8; mine.len()];
        let (mut entries, mut wrong, len) = (0_u64, 0_u64, Some(u64::from(spec.file_bytes)));
        let (worker, begun) = (self.worker, Instant::now());
        let listed = self.session.list(&folder, &mut |entry| {
            entries += 1;
            worker.meter().add(0);
            let number = RelName::number_of('f', &entry.name).filter(|number| numbers.contains(number));
            let Some(number) = number else {
                wrong += 1;
                return;
            };
            let own = number.checked_sub(first).and_then(|place| usize::try_from(place).ok());
            let own = own.filter(|place| *place < mine.len());
            if let Some(times) = own.and_then(|place| seen.get_mut(place)) {
                *times = times.saturating_add(1);
            }
            // A file in an unknown state may have any length. Of another client it is only known whether it has
            // such files.
            let is_known = own.is_none_or(|place| mine[place].is_some()) && (own.is_some() || unknown == 0);
            wrong += u64::from(is_known && entry.len != len);
        });
        if let Err(error) = listed {
            worker.meter().add_failure();
            self.tally.add_failure(start.elapsed(), &error);
            return;
        }
        self.tally.operations += entries;
        self.tally.latency.add(begun.elapsed());
        if !spec.verify {
            return;
        }
        let missing = mine.iter().zip(&seen).filter(|(length, times)| length.is_some() && **times == 0).count();
        let again = seen.iter().filter(|times| **times > 1).count();
        let least = all.saturating_sub(unknown);
        if !(least..=all).contains(&entries) || wrong > 0 || missing > 0 || again > 0 {
            let text = format!(
                "{folder}: {entries} entries instead of {all}, {wrong} of them wrong; of the client's own {missing} are not listed, \
                 and {again} more than once"
            );
            self.tally.add_wrong(start.elapsed(), text);
        }
        self.tally.left_out += mine.iter().filter(|length| length.is_none()).count() as u64;
    }
}
