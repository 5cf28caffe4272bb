//! Segments made in advance. A switch to the next one then costs nothing, and a full disk shows while there is still
//! room.
//!
//! The journal keeps two spare segments. An ordinary append may start one only if another remains; the last one is the
//! reserve for urgent appends (deletions). On a full disk urgent appends use the reserve, and then one more segment in
//! the space of the ballast.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::MutexGuard;

use crate::batch::Batch;
use crate::files::{Pace, make};
use crate::scan::path_of;
use crate::segment::{PAGE_U64, SegmentHeader};
use crate::segment_file::SegmentFile;
use crate::state::{NoSpareSegment, Segment, Shared, SpareSegment, State};
use crate::{Ballast, JournalError};

/// How many spare segments to keep.
pub(crate) const SPARES: usize = 2;
/// How long the thread waits after a failure before it tries again.
const RETRY: Duration = Duration::from_secs(1);

impl Shared {
    /// Makes segments until `wanted` spares exist. `now` means that a thread waits for it.
    pub(crate) fn ensure_spares(&self, wanted: usize, now: bool) -> Result<(), JournalError> {
        let waiters = u32::from(now);
        self.awaited.fetch_add(waiters, Ordering::Relaxed);
        let result = self.make_until(wanted);
        self.awaited.fetch_sub(waiters, Ordering::Relaxed);
        result
    }

    /// The pace: fast while a thread waits for a segment.
    fn pace(&self) -> Pace {
        if self.stopping.load(Ordering::Relaxed) {
            Pace::Stop
        } else if self.awaited.load(Ordering::Relaxed) > 0 {
            Pace::Now
        } else {
            Pace::Gentle
        }
    }

    fn make_until(&self, wanted: usize) -> Result<(), JournalError> {
        let mut state = self.state.lock();
        while state.spares.len() < wanted {
            state.check()?;
            if state.making {
                let tries = state.tries;
                while state.making && state.tries == tries {
                    self.tried.wait(&mut state);
                }
                if state.spares.len() >= wanted {
                    break;
                }
                // Another thread has just tried; use its result.
                match state.last_try.clone() {
                    Some(failure) => return Err(self.no_spare(&failure)),
                    None => continue,
                }
            }
            if let Err(failure) = self.make_spare(&mut state) {
                return Err(self.no_spare(&failure));
            }
        }
        if state.spares.len() >= SPARES {
            state.reserve_only = false;
        }
        Ok(())
    }

    /// Makes one spare and releases the lock meanwhile.
    fn make_spare(&self, state: &mut MutexGuard<'_, State>) -> Result<(), NoSpareSegment> {
        state.making = true;
        let last = state.spares.back().map(|s| s.number).or(state.segments.back().map(|s| s.number)).unwrap_or(0);
        let number = last + 1;
        let path = path_of(&self.dir, number);
        let bytes = self.config.segment_bytes;
        let made = MutexGuard::unlocked(state, || {
            // A panic would leave `making` set forever, and end the thread unnoticed.
            catch_unwind(AssertUnwindSafe(|| {
                make(&*self.disk, &self.dir, &path, bytes, self.config.direct, &|| self.pace())?;
                Ok(SegmentFile::open(&*self.disk, &path, self.config.direct)?)
            }))
        });
        let made = made.unwrap_or_else(|_| {
            state.stats.panics += 1;
            Err(JournalError::NoSegment { reason: format!("making {path} panicked") })
        });
        state.making = false;
        state.tries += 1;
        state.last_try = None;
        let result = match made {
            Ok(file) => {
                state.spares.push_back(SpareSegment { number, path, file });
                state.stats.segments_made += 1;
                Ok(())
            }
            Err(e) => {
                let failure = match e {
                    JournalError::NoSpace { .. } => NoSpareSegment::NoSpace,
                    other => NoSpareSegment::Failed(other.to_string()),
                };
                state.last_try = Some(failure.clone());
                Err(failure)
            }
        };
        self.tried.notify_all();
        result
    }

    fn no_spare(&self, failure: &NoSpareSegment) -> JournalError {
        match failure {
            NoSpareSegment::NoSpace => JournalError::NoSpace { wanted: self.config.segment_bytes },
            NoSpareSegment::Failed(reason) => JournalError::NoSegment { reason: reason.clone() },
        }
    }

    /// Makes the space that an append needs to continue in a new segment. Call it at the latest when an append reports
    /// that there is none.
    pub(crate) fn make_room(&self, urgent: bool) -> Result<(), JournalError> {
        let wanted = if urgent { 1 } else { SPARES };
        loop {
            let full = match self.ensure_spares(wanted, true) {
                Err(full @ JournalError::NoSpace { .. }) => full,
                other => return other,
            };
            // First remove segments that the journal no longer needs.
            if self.remove_trimmed(&mut self.state.lock()) {
                continue;
            }
            let Some(ballast) = self.config.ballast.as_ref().filter(|_| urgent) else { return Err(full) };
            if !Ballast::new(self.disk.clone(), &ballast.path).release()? {
                return Err(full);
            }
        }
    }

    /// Whether an append may start a spare segment.
    pub(crate) fn may_switch(state: &State, urgent: bool) -> bool {
        state.spares.len() >= if urgent { 1 } else { SPARES }
    }

    /// Continues in the next segment. Its header is written together with its first records.
    pub(crate) fn switch(&self, state: &mut State) -> bool {
        let Some(spare) = state.spares.pop_front() else { return false };
        let header = SegmentHeader {
            incarnation: self.incarnation,
            segment: spare.number,
            first: state.appended + 1,
            previous_last: state.appended,
            segment_bytes: self.config.segment_bytes,
            synced_to: self.config.synced_to(state.durable),
        };
        let mut batch = Batch::new(spare.number, spare.file, 0, &[], None);
        batch.push(&header.encode(), &[]);
        if state.pending.back().is_some_and(Batch::is_empty) {
            state.pending.pop_back();
        }
        state.pending.push_back(batch);
        state.segments.push_back(Segment {
            number: spare.number,
            path: spare.path,
            incarnation: self.incarnation,
            bytes: self.config.segment_bytes,
            first: state.appended + 1,
            last: state.appended,
            end: PAGE_U64,
            reader: None,
        });
        state.reserve_only = state.spares.is_empty();
        self.wanted.notify_all();
        true
    }

    /// The loop of the thread that makes spare segments and removes trimmed ones.
    pub(crate) fn keep_spares(&self) {
        let mut state = self.state.lock();
        while !state.stop {
            if state.poisoned.is_some() || state.spares.len() >= SPARES {
                if !self.remove_trimmed(&mut state) && !state.stop {
                    self.wanted.wait(&mut state);
                }
                continue;
            }
            let hurry = state.segments.back().is_some_and(|s| s.end > s.bytes / 2);
            let made = MutexGuard::unlocked(&mut state, || self.ensure_spares(SPARES, hurry));
            if made.is_err() && !state.stop && !self.remove_trimmed(&mut state) {
                self.wanted.wait_for(&mut state, RETRY);
            }
        }
    }

    /// Adopts the spare segments of an earlier run.
    pub(crate) fn spares_of(&self, numbers: &[u64]) -> Result<VecDeque<SpareSegment>, JournalError> {
        let mut spares = VecDeque::new();
        for number in numbers {
            let path = path_of(&self.dir, *number);
            let file = SegmentFile::open(&*self.disk, &path, self.config.direct)?;
            spares.push_back(SpareSegment { number: *number, path, file });
        }
        Ok(spares)
    }
}
