//! A recorder: files one after the other, blocks at fixed times.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::Site;
use crate::content::FileKey;
use crate::load::{Pace, Tally, Worker};
use crate::memory::Memory;
use crate::target::{Done, OpenFile, Purpose, Session, TargetError};
use crate::workload::file_window::FileWindow;

pub(super) fn record(site: &Site<'_>, worker: &Worker) -> Result<Tally, TargetError> {
    let leaves = RecorderEnd(site);
    let recorder = u32::try_from(worker.number).unwrap_or(u32::MAX);
    let window = FileWindow::new(site.spec.io_options.window, site.target.window_max());
    let mut recorder = Recorder {
        site,
        worker,
        recorder,
        window,
        session: site.target.session()?,
        spare: Vec::new(),
        under_way: VecDeque::new(),
        tally: Tally::default(),
    };
    while recorder.spare.len() < recorder.window.allowed() {
        recorder.spare.push(site.content.memory(site.spec.block_bytes as usize)?);
    }
    let done = recorder.run();
    drop(leaves);
    done
}

/// Reports the end of a recorder, however it ends, so that nobody waits for it.
struct RecorderEnd<'a>(&'a Site<'a>);

impl Drop for RecorderEnd<'_> {
    fn drop(&mut self) {
        self.0.floor.leave();
    }
}

struct Recorder<'a> {
    site: &'a Site<'a>,
    worker: &'a Worker,
    recorder: u32,
    window: FileWindow,
    session: Box<dyn Session>,
    /// Unused memory.
    spare: Vec<Memory>,
    /// The blocks under way, and how late they started.
    under_way: VecDeque<(u64, Duration)>,
    tally: Tally,
}

impl Recorder<'_> {
    fn run(mut self) -> Result<Tally, TargetError> {
        let spec = self.site.spec;
        let start = self.worker.start();
        let mut pace = Pace::of_bytes(start, spec.block_bytes, spec.rate);
        for file in 0..spec.files {
            if self.worker.is_stopped() {
                break;
            }
            let recorded = self.one_file(file, &mut pace);
            self.site.floor.end(self.recorder, file, recorded.as_ref().is_ok_and(|whole| *whole));
            if let Err(error) = recorded {
                self.worker.meter().add_failure();
                self.tally.add_failure(start.elapsed(), &error);
                self.under_way.clear();
            }
        }
        Ok(self.tally)
    }

    /// Returns whether the whole file was written.
    fn one_file(&mut self, file: u32, pace: &mut Pace) -> Result<bool, TargetError> {
        let spec = self.site.spec;
        let key = FileKey { file: spec.key(self.recorder, file), generation: 0 };
        let mut open = self.session.open(
            &spec.name(self.recorder, file),
            Purpose::Create { len: spec.file_bytes },
            spec.io_options,
        )?;
        self.window.opened(&*open, spec.block_bytes as usize, &mut self.tally);
        self.site.floor.begin(self.recorder, file);
        let (block, mut offset) = (u64::from(spec.block_bytes), 0);
        while offset < spec.file_bytes && !self.worker.is_stopped() {
            let due = pace.due();
            if pace.is_fixed() {
                self.wait(&mut *open, file, due)?;
            }
            let late = due.elapsed();
            if spec.patience().is_some_and(|patience| late > patience) {
                self.tally.missed += 1;
            }
            let len = usize::try_from(block.min(spec.file_bytes - offset)).unwrap_or(usize::MAX);
            let mut memory = match self.spare.pop() {
                Some(memory) => memory,
                // A failed request has kept it, or the window of this file is larger.
                None => self.site.content.memory(spec.block_bytes as usize)?,
            };
            if let Some(place) = self.site.content.block(memory.whole(), key, offset, len) {
                memory.show(place);
            }
            self.under_way.push_back((offset, late));
            open.write(offset, memory)?;
            while self.under_way.len() >= self.window.allowed() {
                self.finish(&mut *open, file)?;
            }
            offset += len as u64;
        }
        while !self.under_way.is_empty() {
            self.finish(&mut *open, file)?;
        }
        let is_whole = offset >= spec.file_bytes;
        if is_whole || open.keeps_part() {
            open.close()?;
        }
        Ok(is_whole)
    }

    /// Takes completed requests until `due`, so that followers learn of them.
    fn wait(&mut self, open: &mut dyn OpenFile, file: u32, due: Instant) -> Result<(), TargetError> {
        while !self.under_way.is_empty()
            && let Some(done) = open.done_until(due)?
        {
            self.take(done, file)?;
        }
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        Ok(())
    }

    fn finish(&mut self, open: &mut dyn OpenFile, file: u32) -> Result<(), TargetError> {
        let done = open.done()?.ok_or_else(|| self.lost(file, 0))?;
        self.take(done, file)
    }

    /// Makes the error for a wrong answer, or a missing one.
    fn lost(&self, file: u32, moved: usize) -> TargetError {
        let name = self.site.spec.name(self.recorder, file);
        TargetError::Short { what: format!("write {name}"), moved, asked: moved + 1 }
    }

    fn take(&mut self, done: Done, file: u32) -> Result<(), TargetError> {
        let place = self.under_way.iter().position(|(offset, _)| *offset == done.offset);
        let (offset, late) =
            place.and_then(|place| self.under_way.remove(place)).ok_or_else(|| self.lost(file, done.memory.len()))?;
        let block = usize::try_from(offset / u64::from(self.site.spec.block_bytes)).unwrap_or(usize::MAX);
        self.site.floor.written(self.recorder, file, block);
        let moved = done.memory.len() as u64;
        self.spare.push(done.memory);
        self.worker.meter().add(moved);
        self.tally.add(moved, done.took + late);
        Ok(())
    }
}
