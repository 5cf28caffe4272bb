//! One client of the mixture: does what its plan says, and compares all that it sees with what has to be there.

use std::time::{Duration, Instant};

use super::plan::Step;
use super::{ChurnPhase, ChurnSpec};
use crate::content::{Content, FileKey};
use crate::load::{Pace, Tally, Worker};
use crate::memory::Memory;
use crate::target::{Failure, OpenFile, Purpose, Session, Target, TargetError};

/// Bytes of each request: what most programs copy files with, and more than most of these files have.
const REQUEST_BYTES: usize = 1 << 20;

pub(super) struct Churner<'a> {
    spec: &'a ChurnSpec,
    content: &'a Content,
    worker: &'a Worker,
    session: Box<dyn Session>,
    client: u32,
    /// What requests are done with; one that failed has kept it.
    memory: Option<Memory>,
    tally: Tally,
    start: Instant,
}

impl<'a> Churner<'a> {
    pub(super) fn new(
        spec: &'a ChurnSpec,
        target: &dyn Target,
        content: &'a Content,
        worker: &'a Worker,
    ) -> Result<Self, TargetError> {
        let client = u32::try_from(worker.number).unwrap_or(u32::MAX);
        let session = target.session()?;
        let tally = Tally::default();
        Ok(Self { spec, content, worker, session, client, memory: None, tally, start: Instant::now() })
    }

    pub(super) fn run(mut self) -> Result<Tally, TargetError> {
        let spec = self.spec;
        // What is there is worked out before the clock runs.
        let before = match spec.phase {
            ChurnPhase::Fill | ChurnPhase::Mixed => spec.begin(),
            ChurnPhase::ReadBack | ChurnPhase::Remove => spec.before(self.client),
        };
        self.memory = Some(Memory::new(self.request_bytes())?);
        self.start = self.worker.start();
        let mut pace = Pace::new(self.start, spec.rate.map(|rate| Duration::from_secs(1) / rate.max(1)));
        match spec.phase {
            ChurnPhase::Fill => {
                self.steps((0..spec.files).map(|slot| Step::Create { slot, generation: 0 }), &mut pace);
            }
            ChurnPhase::Mixed => self.steps(spec.plan(self.client), &mut pace),
            ChurnPhase::ReadBack => {
                self.steps(before.iter().map(|(slot, generation)| Step::Read { slot, generation }), &mut pace);
                self.look_for_others(before.iter().map(|(slot, _)| slot).collect());
            }
            ChurnPhase::Remove => self.steps(before.iter().map(|(slot, _)| Step::Remove { slot }), &mut pace),
        }
        Ok(self.tally)
    }

    fn request_bytes(&self) -> usize {
        (self.spec.sizes.most as usize).clamp(1, REQUEST_BYTES)
    }

    fn steps(&mut self, steps: impl Iterator<Item = Step>, pace: &mut Pace) {
        for step in steps {
            if self.worker.is_stopped() {
                break;
            }
            let due = pace.wait();
            match self.step(step) {
                Ok(bytes) => {
                    self.worker.meter().add(bytes);
                    self.tally.add(bytes, due.elapsed());
                }
                Err(error) => {
                    self.worker.meter().add_failure();
                    self.tally.add_failure(self.start.elapsed(), &error);
                    // A file that has to be there and is not was lost, whatever else it is.
                    if error.failure() == Failure::NotFound && matches!(step, Step::Read { .. } | Step::Stat { .. }) {
                        self.tally.add_lost(self.start.elapsed(), format!("{error}: it was made and not removed"));
                    }
                }
            }
        }
    }

    /// Bytes moved.
    fn step(&mut self, step: Step) -> Result<u64, TargetError> {
        match step {
            Step::Create { slot, generation } => self.write(slot, generation, |len| Purpose::Create { len }),
            Step::Rewrite { slot, generation } => self.write(slot, generation, |len| Purpose::Replace { len }),
            Step::Read { slot, generation } => self.read(slot, generation),
            Step::Stat { slot, generation } => {
                let name = self.spec.name(self.client, slot);
                let right = u64::from(self.spec.size(self.client, slot, generation));
                match self.session.len_of(&name)? {
                    Some(len) if len == right => {}
                    Some(len) => self.wrong(format!("{name}: {len} bytes instead of {right}")),
                    None => {
                        let text = format!("{name} is not there: it was made and not removed");
                        self.tally.add_lost(self.start.elapsed(), text);
                    }
                }
                Ok(0)
            }
            Step::List => {
                let mut entries = 0_u64;
                self.session.list(&self.spec.directory(self.client), &mut |_| entries += 1)?;
                Ok(0)
            }
            Step::Remove { slot } => self.session.remove(&self.spec.name(self.client, slot)).map(|()| 0),
        }
    }

    fn wrong(&mut self, text: String) {
        self.tally.add_wrong(self.start.elapsed(), text);
    }

    fn memory(&mut self) -> Result<Memory, TargetError> {
        let bytes = self.request_bytes();
        self.memory.take().map_or_else(|| Memory::new(bytes), Ok)
    }

    fn write(&mut self, slot: u32, generation: u32, purpose: fn(u64) -> Purpose) -> Result<u64, TargetError> {
        let spec = self.spec;
        let (name, size) = (spec.name(self.client, slot), u64::from(spec.size(self.client, slot, generation)));
        let key = FileKey { file: spec.key(self.client, slot), generation: u64::from(generation) };
        let mut memory = self.memory()?;
        let mut file = self.session.open(&name, purpose(size), spec.manner)?;
        let mut at = 0;
        while at < size {
            let len = usize::try_from(size - at).unwrap_or(usize::MAX).min(self.request_bytes());
            memory.show(0..len);
            self.content.fill(key, at, &mut memory);
            file.write(at, memory)?;
            memory = moved(&mut *file, || format!("write {name}"), len)?;
            at += len as u64;
        }
        self.memory = Some(memory);
        self.tally.add_served(file.server(), size);
        file.close()?;
        Ok(size)
    }

    fn read(&mut self, slot: u32, generation: u32) -> Result<u64, TargetError> {
        let spec = self.spec;
        let (name, size) = (spec.name(self.client, slot), u64::from(spec.size(self.client, slot, generation)));
        let (key, generation) = (spec.key(self.client, slot), u64::from(generation));
        let mut memory = self.memory()?;
        let mut file = self.session.open(&name, Purpose::Read, spec.manner)?;
        let mut at = 0;
        while at < size {
            let len = usize::try_from(size - at).unwrap_or(usize::MAX).min(self.request_bytes());
            memory.show(0..len);
            file.read(at, memory)?;
            memory = moved(&mut *file, || format!("read {name} at byte {at}"), len)?;
            match self.content.check(key, generation..=generation, at, &memory) {
                Ok(()) => self.tally.verified += len as u64,
                Err(mismatch) => self.wrong(format!("{name}: {mismatch}")),
            }
            at += len as u64;
        }
        // One byte more than there has to be says that an older, longer content is still there.
        memory.show(0..1);
        file.read(size, memory)?;
        let after = file.done()?.map(|done| done.memory);
        if after.as_ref().is_some_and(|memory| !memory.is_empty()) {
            self.wrong(format!("{name}: it goes on after its {size} bytes"));
        }
        self.memory = after;
        self.tally.add_served(file.server(), size);
        file.close()?;
        Ok(size)
    }

    /// After all that has to be there was read: whether there is anything of this client's that was removed. `there` are the slots that are.
    fn look_for_others(&mut self, mut there: Vec<u32>) {
        there.sort_unstable();
        let first = self.spec.key(self.client, 0);
        let mine = first..first + u64::from(self.spec.files);
        let mut left_over = Vec::new();
        let listed = self.session.list(&self.spec.directory(self.client), &mut |entry| {
            let number = entry.name.strip_prefix('f').and_then(|number| number.parse::<u64>().ok());
            let Some(slot) = number.filter(|number| mine.contains(number)).map(|number| number - first) else { return };
            if u32::try_from(slot).is_ok_and(|slot| there.binary_search(&slot).is_err()) {
                left_over.push(entry.name);
            }
        });
        if let Err(error) = listed {
            self.worker.meter().add_failure();
            self.tally.add_failure(self.start.elapsed(), &error);
        }
        for name in left_over {
            self.wrong(format!("{name} is there, though it was removed"));
        }
    }
}

impl ChurnSpec {
    fn size(&self, client: u32, slot: u32, generation: u32) -> u32 {
        self.sizes.of(self.key(client, slot), generation, self.seed)
    }
}

/// The memory of the one request that is under way, which has to have moved `asked` bytes.
fn moved(file: &mut dyn OpenFile, what: impl Fn() -> String, asked: usize) -> Result<Memory, TargetError> {
    match file.done()?.map(|done| done.memory) {
        Some(memory) if memory.len() == asked => Ok(memory),
        memory => Err(TargetError::Short { what: what(), moved: memory.map_or(0, |memory| memory.len()), asked }),
    }
}
