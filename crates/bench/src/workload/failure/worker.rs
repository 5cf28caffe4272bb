//! Workers that continue in spite of failures: a writer of files, a reader of acknowledged files, and a checker
//! that verifies all of them at the end.

use std::thread::sleep;
use std::time::{Duration, Instant};

use super::FailureSpec;
use super::board::{Board, WorkerEnd};
use crate::content::{Content, FileKey};
use crate::load::{Tally, Worker};
use crate::memory::Memory;
use crate::splitmix;
use crate::target::{Failure, Purpose, Session, Target, TargetError};

/// The pause after a failure before the next attempt.
const PAUSE: Duration = Duration::from_millis(200);

pub(super) struct Site<'a> {
    pub(super) spec: &'a FailureSpec,
    pub(super) content: &'a Content,
    pub(super) board: &'a Board,
    pub(super) target: &'a dyn Target,
}

/// A worker's resources. Its session is replaced after each failure.
struct Hand<'a> {
    site: &'a Site<'a>,
    worker: &'a Worker,
    session: Option<Box<dyn Session>>,
    memory: Option<Memory>,
    tally: Tally,
    start: Instant,
}

impl<'a> Hand<'a> {
    fn new(site: &'a Site<'a>, worker: &'a Worker) -> Result<Self, TargetError> {
        let session = Some(site.target.session()?);
        let memory = Some(site.memory()?);
        Ok(Self { site, worker, session, memory, tally: Tally::default(), start: Instant::now() })
    }

    /// Calls `work` with a session. After a failure there is a pause, and the next call gets a new session.
    fn with<T>(
        &mut self,
        what: impl FnOnce(&mut Self, &mut dyn Session) -> Result<T, TargetError>,
    ) -> Result<T, TargetError> {
        let mut session = match self.session.take() {
            Some(session) => session,
            None => self.site.target.session().inspect_err(|_| sleep(PAUSE))?,
        };
        match what(self, &mut *session) {
            Ok(done) => {
                self.session = Some(session);
                Ok(done)
            }
            Err(error) => {
                sleep(PAUSE);
                Err(error)
            }
        }
    }

    fn failed(&mut self, error: &TargetError) {
        self.worker.meter().add_failure();
        self.tally.add_failure(self.start.elapsed(), error);
    }

    fn is_over(&self) -> bool {
        self.worker.is_stopped() || self.start.elapsed() >= Duration::from_secs(u64::from(self.site.spec.seconds))
    }

    fn moved(&mut self, bytes: u64, since: Instant) {
        self.worker.meter().add(bytes);
        self.tally.add(bytes, since.elapsed());
    }

    /// Reads and compares a whole file.
    fn read(&mut self, session: &mut dyn Session, (writer, file): (u32, u32)) -> Result<(), TargetError> {
        let spec = self.site.spec;
        let name = spec.name(writer, file);
        let mut open = session.open(&name, Purpose::Read, spec.io_options)?;
        let mut at = 0;
        while at < spec.file_bytes {
            let since = Instant::now();
            let asked = spec.request(at);
            let mut memory = self.memory.take().map_or_else(|| self.site.memory(), Ok)?;
            memory.show(0..asked);
            open.read(at, memory)?;
            let memory = open.done_whole(asked, &|| format!("read {name} at byte {at}"))?;
            match self.site.content.check(spec.key(writer, file), 0..=0, at, &memory) {
                Ok(()) => self.tally.verified += asked as u64,
                Err(mismatch) => self.tally.add_wrong(self.start.elapsed(), format!("{name}: {mismatch}")),
            }
            self.memory = Some(memory);
            at += asked as u64;
            self.moved(asked as u64, since);
        }
        open.close()
    }

    fn write(&mut self, session: &mut dyn Session, writer: u32, file: u32) -> Result<(), TargetError> {
        let spec = self.site.spec;
        let name = spec.name(writer, file);
        let key = FileKey { file: spec.key(writer, file), generation: 0 };
        let mut open = session.open(&name, Purpose::Create { len: spec.file_bytes }, spec.io_options)?;
        let mut at = 0;
        while at < spec.file_bytes {
            let since = Instant::now();
            let len = spec.request(at);
            let mut memory = self.memory.take().map_or_else(|| self.site.memory(), Ok)?;
            if let Some(place) = self.site.content.block(memory.whole(), key, at, len) {
                memory.show(place);
            }
            open.write(at, memory)?;
            self.memory = Some(open.done_whole(len, &|| format!("write {name} at byte {at}"))?);
            at += len as u64;
            self.moved(len as u64, since);
        }
        open.close()
    }
}

impl Site<'_> {
    fn memory(&self) -> Result<Memory, TargetError> {
        self.content.memory(self.spec.block_bytes as usize)
    }
}

fn number(worker: &Worker) -> u32 {
    u32::try_from(worker.number).unwrap_or(u32::MAX)
}

/// Writes file after file until the time is over. A failed file is not repeated, because it was never acknowledged.
pub(super) fn write(site: &Site<'_>, worker: &Worker) -> Result<Tally, TargetError> {
    let leaves = WorkerEnd(site.board);
    let mut hand = Hand::new(site, worker)?;
    hand.start = worker.start();
    for file in 0..site.spec.files {
        if hand.is_over() {
            break;
        }
        match hand.with(|hand, session| hand.write(session, number(worker), file)) {
            Ok(()) => site.board.acknowledge(number(worker), file),
            Err(error) => hand.failed(&error),
        }
    }
    drop(leaves);
    Ok(hand.tally)
}

/// Reads acknowledged files repeatedly until the time is over.
pub(super) fn read(site: &Site<'_>, worker: &Worker) -> Result<Tally, TargetError> {
    let leaves = WorkerEnd(site.board);
    let mut hand = Hand::new(site, worker)?;
    // A reader's memory needs no table, but one kind of memory is simpler than two.
    hand.start = worker.start();
    let mut chance = worker.number as u64;
    while !hand.is_over() {
        chance = splitmix::next(chance);
        let Some(file) = site.board.any(chance) else {
            sleep(Duration::from_millis(10));
            continue;
        };
        if let Err(error) = hand.with(|hand, session| hand.read(session, file)) {
            hand.failed(&error);
        }
    }
    drop(leaves);
    Ok(hand.tally)
}

/// After the others: reads all acknowledged files, and reports those that are missing. Waits for a system that has
/// not recovered.
pub(super) fn check(site: &Site<'_>, worker: &Worker) -> Result<Tally, TargetError> {
    let mut hand = Hand::new(site, worker)?;
    hand.start = worker.start();
    let Some(all) = site.board.all(worker) else { return Ok(hand.tally) };
    worker.begin();
    let patience = Duration::from_secs(u64::from(site.spec.wait_seconds));
    // The limit covers all files together, so that a system that is gone does not delay everything for ever.
    let until = Instant::now() + patience;
    for file in all.into_iter().skip(worker.number).step_by(site.spec.checkers() as usize) {
        if worker.is_stopped() {
            break;
        }
        check_one(&mut hand, file, until);
    }
    Ok(hand.tally)
}

fn check_one(hand: &mut Hand<'_>, file: (u32, u32), until: Instant) {
    let name = hand.site.spec.name(file.0, file.1);
    loop {
        let Err(error) = hand.with(|hand, session| hand.read(session, file)) else { return };
        let is_gone = match (&error, error.failure()) {
            (TargetError::Short { .. }, _) | (_, Failure::NotFound | Failure::Damaged) => true,
            _ if Instant::now() < until && !hand.worker.is_stopped() => continue,
            _ => false,
        };
        if is_gone {
            let text = format!("{name} was acknowledged and is not complete: {error}");
            hand.tally.add_lost(hand.start.elapsed(), text);
        } else {
            hand.failed(&error);
        }
        return;
    }
}
