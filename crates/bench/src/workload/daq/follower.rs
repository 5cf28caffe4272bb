//! A reader that follows the files of a recorder while they grow. Its latency is the age of a block when it has
//! read it.

use std::ops::Range;
use std::time::Instant;

use super::floor::State;
use super::{POLL, Site};
use crate::load::{Tally, Worker};
use crate::memory::Memory;
use crate::target::{Failure, IoOptions, OpenFile, Purpose, Session, TargetError};

pub(super) fn follow(site: &Site<'_>, worker: &Worker) -> Result<Tally, TargetError> {
    let recorder = u32::try_from(worker.number).unwrap_or(u32::MAX) / site.spec.followers.max(1);
    let memory = Some(Memory::new(site.spec.block_bytes as usize)?);
    let session = site.target.session()?;
    let mut follower =
        Follower { site, worker, recorder, session, memory, tally: Tally::default(), start: Instant::now() };
    follower.start = worker.start();
    for file in 0..site.spec.files {
        if !site.floor.wait_for(recorder, file, worker) {
            break;
        }
        if let Err(error) = follower.one_file(file) {
            worker.meter().add_failure();
            follower.tally.add_failure(follower.start.elapsed(), &error);
        }
        site.floor.forget(recorder, file);
    }
    Ok(follower.tally)
}

struct Follower<'a> {
    site: &'a Site<'a>,
    worker: &'a Worker,
    recorder: u32,
    session: Box<dyn Session>,
    memory: Option<Memory>,
    tally: Tally,
    start: Instant,
}

impl Follower<'_> {
    fn one_file(&mut self, file: u32) -> Result<(), TargetError> {
        let spec = self.site.spec;
        let Some(mut open) = self.open(file)? else { return Ok(()) };
        let (block, mut at) = (u64::from(spec.block_bytes), 0);
        while at < spec.file_bytes && !self.worker.is_stopped() {
            // The state is read first: bytes that are missing in a complete file will not come.
            let state = self.site.floor.state(self.recorder, file);
            let end = ((at / block + 1) * block).min(spec.file_bytes);
            let number = usize::try_from((end - 1) / block).unwrap_or(usize::MAX);
            let early = self.site.floor.age(self.recorder, file, number).is_none() && state == State::Growing;
            let got = match self.read(&mut *open, file, at..end, early) {
                // An HTTP server may show a file only when it is complete, and an open sends no request.
                Err(error) if error.failure() == Failure::NotFound && state != State::Whole => 0,
                got => got?,
            };
            match (got, state) {
                (0, State::Growing) => std::thread::sleep(POLL),
                (0, State::Broken) => break,
                (0, State::Whole) => {
                    return Err(TargetError::Short {
                        what: format!("read {}, which is complete, at byte {at}", spec.name(self.recorder, file)),
                        moved: 0,
                        asked: usize::try_from(end - at).unwrap_or(usize::MAX),
                    });
                }
                (got, _) => {
                    at += got;
                    self.worker.meter().add(got);
                    self.tally.bytes += got;
                    if at == end {
                        // It was read before its writer got the acknowledgement, so its age is zero.
                        let age = self.site.floor.age(self.recorder, file, number).unwrap_or_default();
                        self.tally.add(0, age);
                    }
                }
            }
        }
        open.close()
    }

    /// Opens a file that the recorder has created. Another client may not see it yet. `None`: it will never exist.
    fn open(&mut self, file: u32) -> Result<Option<Box<dyn OpenFile>>, TargetError> {
        let spec = self.site.spec;
        loop {
            let state = self.site.floor.state(self.recorder, file);
            // The end of a growing file is not aligned for direct I/O.
            let io_options = IoOptions { direct: false, ..spec.io_options };
            match self.session.open(&spec.name(self.recorder, file), Purpose::Read, io_options) {
                Err(error) if error.failure() == Failure::NotFound && state == State::Growing => {
                    if self.worker.is_stopped() {
                        return Ok(None);
                    }
                    std::thread::sleep(POLL);
                }
                Err(error) if error.failure() == Failure::NotFound && state == State::Broken => return Ok(None),
                Err(error) => return Err(error),
                Ok(open) => return Ok(Some(open)),
            }
        }
    }

    /// Returns the bytes that were there. `early`: the recorder has no acknowledgement yet, so wrong bytes may
    /// become right. Servers show the length that requests out of order have reached, with a hole in it.
    fn read(&mut self, open: &mut dyn OpenFile, file: u32, range: Range<u64>, early: bool) -> Result<u64, TargetError> {
        let spec = self.site.spec;
        let mut memory = match self.memory.take() {
            Some(memory) => memory,
            None => Memory::new(spec.block_bytes as usize)?,
        };
        memory.show(0..usize::try_from(range.end - range.start).unwrap_or(usize::MAX));
        open.read(range.start, memory)?;
        let Some(done) = open.done()? else { return Ok(0) };
        let mut got = done.memory.len();
        if spec.verify && got > 0 {
            match self.site.content.check(spec.key(self.recorder, file), 0..=0, range.start, &done.memory) {
                Ok(()) => self.tally.verified += got as u64,
                Err(_) if early => got = 0,
                Err(mismatch) => {
                    let text = format!("{}: {mismatch}", spec.name(self.recorder, file));
                    self.tally.add_wrong(self.start.elapsed(), text);
                }
            }
        }
        self.memory = Some(done.memory);
        Ok(got as u64)
    }
}
