//! One client of the mixture. It does the steps of its plan, and compares the results with the expected files.

use std::time::{Duration, Instant};

use super::super::KnownFiles;
use super::plan::Step;
use super::{ChurnPhase, ChurnSpec};
use crate::content::{Content, FileKey};
use crate::load::{Pace, Tally, Worker};
use crate::memory::Memory;
use crate::target::{Failure, Purpose, RelName, Session, Target, TargetError};

/// The size of each request in bytes. Most programs copy files with it, and most of these files are smaller.
const REQUEST_BYTES: usize = 1 << 20;

/// The most unknown names of a directory that are reported.
const STRANGERS_MAX: usize = 10;

/// What a client knows of one of its files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Slot {
    /// The file was never created, or its removal was acknowledged.
    Gone,
    /// The file has this acknowledged generation.
    Holds(u32),
    /// A change has failed. The file may be missing, or have any contents.
    Unknown,
}

pub(super) struct Churner<'a> {
    spec: &'a ChurnSpec,
    content: &'a Content,
    worker: &'a Worker,
    session: Box<dyn Session>,
    client: u32,
    known: &'a KnownFiles,
    /// The real state of its files: that of the plan, as far as it was done.
    slots: Vec<Slot>,
    /// The memory for requests. A failed request keeps it.
    memory: Option<Memory>,
    tally: Tally,
    start: Instant,
}

impl<'a> Churner<'a> {
    pub(super) fn new(
        spec: &'a ChurnSpec,
        target: &dyn Target,
        content: &'a Content,
        known: &'a KnownFiles,
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

    /// Returns the files that may exist.
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

    /// Returns the step with the file's real generation; `None`: the step needs a file that may not exist.
    fn possible(&self, step: Step) -> Option<Step> {
        match step {
            Step::Read { slot, .. } => self.held(slot).map(|generation| Step::Read { slot, generation }),
            Step::Stat { slot, .. } => self.held(slot).map(|generation| Step::Stat { slot, generation }),
            Step::Remove { slot } => (self.slot(slot) != Slot::Gone).then_some(step),
            Step::Create { .. } | Step::Rewrite { .. } | Step::List => Some(step),
        }
    }

    /// Returns the generation that is certain.
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
                    // A file that must exist and does not is lost.
                    if error.failure() == Failure::NotFound && matches!(step, Step::Read { .. } | Step::Stat { .. }) {
                        self.tally.add_lost(self.start.elapsed(), format!("{error}: it was created and not removed"));
                    }
                }
            }
        }
    }

    /// Returns the moved bytes.
    fn step(&mut self, step: Step) -> Result<u64, TargetError> {
        match step {
            Step::Create { slot, generation } => {
                // If a removal has failed, the file may exist.
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
                        let text = format!("{name} is missing: it was created and not removed");
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
            // The file does not exist, and that was possible.
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
        let mut file = self.session.open(&name, purpose(size), spec.io_options)?;
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
        let mut file = self.session.open(&name, Purpose::Read, spec.io_options)?;
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
        // One more byte than expected means that older, longer contents are still there.
        memory.show(0..1);
        file.read(size, memory)?;
        let after = file.done()?.map(|done| done.memory);
        if after.as_ref().is_some_and(|memory| !memory.is_empty()) {
            self.wrong(format!("{name}: it is longer than its {size} bytes"));
        }
        self.memory = after;
        self.tally.add_served(file.server(), size);
        file.close()?;
        Ok(size)
    }

    /// Lists the client's directory, and compares its own names with the expected ones. A directory of its own must
    /// contain nothing else. `missing`: report expected names that are not listed, too.
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
                // A file of another client in the shared directory.
                None => {}
            }
        })?;
        for (slot, times) in (0..spec.files).zip(listed) {
            let name = || spec.name(self.client, slot);
            let text = match (self.slot(slot), times) {
                (Slot::Gone, 1..) => format!("{} is listed, although it was removed or never created", name()),
                (Slot::Holds(_), 0) if missing => {
                    format!("{} is not listed, although it was created and not removed", name())
                }
                (_, 2..) => format!("{} is listed {times} times", name()),
                _ => continue,
            };
            self.wrong(text);
        }
        for name in strangers {
            self.wrong(format!("{directory}/{name} is listed, and this run has not created it"));
        }
        Ok(())
    }

    /// After all expected files were read: checks that there are no others.
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
