//! One client of the mixture: does what its plan says, and compares all that it sees with what has to be there.

use std::time::{Duration, Instant};

use super::super::Known;
use super::plan::Step;
use super::{ChurnPhase, ChurnSpec};
use crate::content::{Content, FileKey};
use crate::load::{Pace, Tally, Worker};
use crate::memory::Memory;
use crate::target::{Failure, Purpose, RelName, Session, Target, TargetError};

/// Bytes of each request: what most programs copy files with, and more than most of these files have.
const REQUEST_BYTES: usize = 1 << 20;

/// Names in a directory that nobody has made, of which a listing is told.
const STRANGERS_MAX: usize = 10;

/// What a client knows of one of its files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Slot {
    /// It was never made, or its removal was acknowledged.
    Gone,
    /// It holds this generation, which was acknowledged.
    Holds(u32),
    /// What was to change it has failed: it may be gone, or hold anything.
    Unknown,
}

pub(super) struct Churner<'a> {
    spec: &'a ChurnSpec,
    content: &'a Content,
    worker: &'a Worker,
    session: Box<dyn Session>,
    client: u32,
    known: &'a Known,
    /// Its files as they are: what the plan says of them, as far as it was done.
    slots: Vec<Slot>,
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
        known: &'a Known,
        worker: &'a Worker,
    ) -> Result<Self, TargetError> {
        let client = u32::try_from(worker.number).unwrap_or(u32::MAX);
        let session = target.session()?;
        let tally = Tally::default();
        let files = spec.files as usize;
        let is_new = spec.phase == ChurnPhase::Fill || (spec.phase == ChurnPhase::Mixed && !spec.filled);
        let slots = if is_new {
            vec![Slot::Gone; files]
        } else {
            let before = known.slots.take(client).filter(|slots| slots.len() == files);
            before.unwrap_or_else(|| vec![Slot::Unknown; files])
        };
        Ok(Self { spec, content, worker, session, client, known, slots, memory: None, tally, start: Instant::now() })
    }

    pub(super) fn run(mut self) -> Result<Tally, TargetError> {
        let spec = self.spec;
        self.memory = Some(Memory::new(self.request_bytes())?);
        self.start = self.worker.start();
        let mut pace = Pace::new(self.start, spec.rate.map(|rate| Duration::from_secs(1) / rate.max(1)));
        match spec.phase {
            ChurnPhase::Fill => {
                self.steps((0..spec.files).map(|slot| Step::Create { slot, generation: 0 }), &mut pace);
            }
            ChurnPhase::Mixed => self.steps(spec.plan(self.client), &mut pace),
            ChurnPhase::ReadBack => {
                self.steps(self.there().into_iter().map(|slot| Step::Read { slot, generation: 0 }), &mut pace);
                self.look_for_others();
            }
            ChurnPhase::Remove => {
                self.steps(self.there().into_iter().map(|slot| Step::Remove { slot }), &mut pace);
            }
        }
        self.known.slots.keep(self.client, self.slots);
        Ok(self.tally)
    }

    /// Files that may be there.
    fn there(&self) -> Vec<u32> {
        (0..self.spec.files).filter(|slot| self.slot(*slot) != Slot::Gone).collect()
    }

    fn slot(&self, slot: u32) -> Slot {
        self.slots.get(slot as usize).copied().unwrap_or(Slot::Unknown)
    }

    fn set(&mut self, slot: u32, to: Slot) {
        if let Some(slot) = self.slots.get_mut(slot as usize) {
            *slot = to;
        }
    }

    /// The step with what its file really holds; `None`: it needs a file of which nobody knows that it is there.
    fn possible(&self, step: Step) -> Option<Step> {
        match step {
            Step::Read { slot, .. } => self.held(slot).map(|generation| Step::Read { slot, generation }),
            Step::Stat { slot, .. } => self.held(slot).map(|generation| Step::Stat { slot, generation }),
            Step::Remove { slot } => (self.slot(slot) != Slot::Gone).then_some(step),
            Step::Create { .. } | Step::Rewrite { .. } | Step::List => Some(step),
        }
    }

    /// The generation that is there for certain.
    fn held(&self, slot: u32) -> Option<u32> {
        match self.slot(slot) {
            Slot::Holds(generation) => Some(generation),
            Slot::Gone | Slot::Unknown => None,
        }
    }

    fn request_bytes(&self) -> usize {
        (self.spec.sizes.most as usize).clamp(1, REQUEST_BYTES)
    }

    fn steps(&mut self, steps: impl Iterator<Item = Step>, pace: &mut Pace) {
        for step in steps {
            if self.worker.is_stopped() {
                self.tally.cut = 1;
                break;
            }
            let Some(step) = self.possible(step) else {
                self.tally.left_out += 1;
                continue;
            };
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
            Step::Create { slot, generation } => {
                // Where a removal has failed there may be something.
                let is_gone = self.slot(slot) == Slot::Gone;
                let purpose = move |len| if is_gone { Purpose::Create { len } } else { Purpose::Replace { len } };
                self.change(slot, generation, purpose)
            }
            Step::Rewrite { slot, generation } => self.change(slot, generation, |len| Purpose::Replace { len }),
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
            Step::List => self.list(true).map(|()| 0),
            Step::Remove { slot } => self.remove(slot).map(|()| 0),
        }
    }

    fn remove(&mut self, slot: u32) -> Result<(), TargetError> {
        let before = self.slot(slot);
        self.set(slot, Slot::Unknown);
        match self.session.remove(&self.spec.name(self.client, slot)) {
            // Nothing is there, but nobody knew whether there was anything.
            Err(error) if error.failure() == Failure::NotFound && before == Slot::Unknown => {}
            removed => removed?,
        }
        self.set(slot, Slot::Gone);
        Ok(())
    }

    fn change(&mut self, slot: u32, generation: u32, purpose: impl Fn(u64) -> Purpose) -> Result<u64, TargetError> {
        self.set(slot, Slot::Unknown);
        let bytes = self.write(slot, generation, purpose)?;
        self.set(slot, Slot::Holds(generation));
        Ok(bytes)
    }

    fn wrong(&mut self, text: String) {
        self.tally.add_wrong(self.start.elapsed(), text);
    }

    fn memory(&mut self) -> Result<Memory, TargetError> {
        let bytes = self.request_bytes();
        self.memory.take().map_or_else(|| Memory::new(bytes), Ok)
    }

    fn write(&mut self, slot: u32, generation: u32, purpose: impl Fn(u64) -> Purpose) -> Result<u64, TargetError> {
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
            memory = file.done_whole(len, &|| format!("write {name}"))?;
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
            memory = file.done_whole(len, &|| format!("read {name} at byte {at}"))?;
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

    /// Lists the client's directory, and compares the names of its own files with those that have to be there; in a directory of its own there
    /// is nothing else. `missing`: what is not listed is told of, too.
    fn list(&mut self, missing: bool) -> Result<(), TargetError> {
        let (spec, directory) = (self.spec, self.spec.directory(self.client));
        let first = spec.key(self.client, 0);
        let mut listed = vec![0_u8; self.slots.len()];
        let mut strangers = Vec::new();
        self.session.list(&directory, &mut |entry| {
            let number = RelName::number_of('f', &entry.name).and_then(|number| number.checked_sub(first));
            let slot = number.and_then(|number| usize::try_from(number).ok());
            match slot.and_then(|slot| listed.get_mut(slot)) {
                Some(times) => *times = times.saturating_add(1),
                None if !spec.one_directory && strangers.len() < STRANGERS_MAX => strangers.push(entry.name),
                // Another client's, in the directory that is everybody's.
                None => {}
            }
        })?;
        for (slot, times) in (0..spec.files).zip(listed) {
            let name = || spec.name(self.client, slot);
            let text = match (self.slot(slot), times) {
                (Slot::Gone, 1..) => format!("{} is listed, though it was removed or never made", name()),
                (Slot::Holds(_), 0) if missing => {
                    format!("{} is not listed, though it was made and not removed", name())
                }
                (_, 2..) => format!("{} is listed {times} times", name()),
                _ => continue,
            };
            self.wrong(text);
        }
        for name in strangers {
            self.wrong(format!("{directory}/{name} is listed, and no client has created it"));
        }
        Ok(())
    }

    /// After all that has to be there was read: whether there is anything else.
    fn look_for_others(&mut self) {
        if self.worker.is_stopped() {
            return;
        }
        if let Err(error) = self.list(false) {
            self.worker.meter().add_failure();
            self.tally.add_failure(self.start.elapsed(), &error);
        }
    }
}

impl ChurnSpec {
    fn size(&self, client: u32, slot: u32, generation: u32) -> u32 {
        self.sizes.of(self.key(client, slot), generation, self.seed)
    }
}
