//! Reading ahead of readers whose next request can be told from their last ones. [`pattern`] decides what; threads of the
//! node ask the kernel for it, so no request waits for that.
//!
//! A reader that goes through a large file for the first time has its next bytes fetched past the page cache
//! ([`first_read`]).
//!
//! Only a reader that waits for the disk is looked at, or one that reads what was announced for it. So readers of cached data
//! pay nothing.

mod budget;
mod first_read;
mod pattern;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use store::Reader;

use self::budget::{Budget, Period};
use self::first_read::FirstReadAhead;
use self::pattern::{BYTES_MAX, Noted, Pattern, SEGMENTS_MAX};
use crate::workers::Workers;

/// Threads that ask the kernel for data, which waits if the disk has enough to do.
const THREADS: usize = 4;
/// Threads that read for first reads.
const FETCHING_THREADS: usize = 8;
/// Blocks that may wait for one of them.
const FETCHES_MAX: usize = 256;
/// Announcements that may wait for a thread. One more is dropped: its data is read when it is asked for.
const QUEUE_MAX: usize = 64;
/// Segments of requests that all open files together may remember: up to 32 MiB of memory.
const REMEMBERED_MAX: usize = 512 << 10;

/// No request ends there.
const NOWHERE: u64 = u64::MAX;

/// What the open files of a node share.
pub(crate) struct ReadAhead {
    workers: Workers,
    fetching: Workers,
    budget: Mutex<Budget>,
    is_on: AtomicBool,
    /// Segments that open files remember.
    remembered: AtomicUsize,
    announced_bytes: AtomicU64,
    used_bytes: AtomicU64,
}

/// What reading ahead has done so far.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ReadAheadFigures {
    /// Bytes that the node has asked the kernel to read ahead.
    pub bytes: u64,
    /// Of these, the bytes that were requested afterwards.
    pub used_bytes: u64,
}

impl ReadAhead {
    /// `most`: bytes that are announced and not read yet; 0 turns it off.
    pub(crate) fn start(most: u64) -> std::io::Result<Self> {
        Ok(Self {
            workers: Workers::start("read-ahead", THREADS, QUEUE_MAX)?,
            fetching: Workers::start("first-read", FETCHING_THREADS, FETCHES_MAX)?,
            budget: Mutex::new(Budget::new(most, Instant::now())),
            is_on: AtomicBool::new(most > 0),
            remembered: AtomicUsize::new(0),
            announced_bytes: AtomicU64::new(0),
            used_bytes: AtomicU64::new(0),
        })
    }

    /// Changes the limit.
    pub(crate) fn set_most(&self, most: u64) {
        self.budget.lock().set_most(most);
        self.is_on.store(most > 0, Ordering::Relaxed);
    }

    pub(crate) fn figures(&self) -> ReadAheadFigures {
        ReadAheadFigures {
            bytes: self.announced_bytes.load(Ordering::Relaxed),
            used_bytes: self.used_bytes.load(Ordering::Relaxed),
        }
    }

    /// Whether a thread has ended without a stop.
    pub(crate) fn ended(&self) -> bool {
        self.workers.ended() || self.fetching.ended()
    }

    /// Ends the threads.
    pub(crate) fn stop(&self) {
        self.workers.stop();
        self.fetching.stop();
    }
}

/// Reading ahead for one open file.
pub(crate) struct HandleReadAhead {
    node: Arc<ReadAhead>,
    /// Whether bytes are announced and not requested yet.
    is_active: AtomicBool,
    /// The end of the last request, if it was a single range.
    last_end: AtomicU64,
    first_read: FirstReadAhead,
    state: Mutex<Option<Box<State>>>,
}

#[derive(Default)]
struct State {
    pattern: Pattern,
    /// Where the announced bytes were taken from the budget, the first first.
    taken: VecDeque<(u64, Period)>,
    /// The segments counted in [`ReadAhead::remembered`].
    remembered: usize,
}

impl HandleReadAhead {
    pub(crate) fn new(node: &Arc<ReadAhead>) -> Self {
        Self {
            node: Arc::clone(node),
            is_active: AtomicBool::new(false),
            last_end: AtomicU64::new(NOWHERE),
            first_read: FirstReadAhead::default(),
            state: Mutex::new(None),
        }
    }

    /// A request for these ranges of `reader`'s bytes has been answered. Has the next one read ahead if it can be told.
    pub(crate) fn was_read(&self, reader: &Arc<Reader>, mut request: impl Iterator<Item = Range<u64>>) {
        let waited = reader.has_waited();
        let (first, second) = (request.next(), request.next());
        let is_active = self.is_active.load(Ordering::Relaxed);
        let only = first.as_ref().filter(|_| second.is_none());
        let goes_on = self.goes_on(only);
        if self.first_read.was_read(&self.node, reader, only, goes_on, waited) {
            return;
        }
        // The kernel reads ahead for a sequential reader. It waits at regular distances all the same: that is no stride.
        let is_noted = is_active || waited && !goes_on;
        if !is_noted || !self.node.is_on.load(Ordering::Relaxed) {
            return;
        }
        let request: Vec<Range<u64>> = first.into_iter().chain(second).chain(request).take(SEGMENTS_MAX).collect();
        let (len, now) = (reader.len(), Instant::now());
        let mut guard = self.state.lock();
        let state = guard.get_or_insert_default();
        if !state.may_remember(&self.node, request.len()) {
            return;
        }
        let room = self.node.budget.lock().left(now).min(BYTES_MAX);
        let noted = state.pattern.note(&request, waited, len, room);
        state.count(&self.node, &noted, now);
        if state.pattern.is_idle() {
            state.remember_only(&self.node, request.len());
        }
        if !noted.next.is_empty() && !self.announce(reader, noted) {
            let withdrawn = state.pattern.withdraw();
            state.give_back(&self.node, withdrawn);
        }
        self.is_active.store(!state.pattern.is_idle(), Ordering::Relaxed);
    }

    /// Whether a request, which is this single range, begins where the last one ended.
    fn goes_on(&self, only: Option<&Range<u64>>) -> bool {
        let end = only.map_or(NOWHERE, |range| range.end);
        self.last_end.swap(end, Ordering::Relaxed) == only.map_or(NOWHERE, |range| range.start) && only.is_some()
    }

    /// Queues it. Returns `false` if the threads have too much to do.
    fn announce(&self, reader: &Arc<Reader>, noted: Noted) -> bool {
        // A file that is closed meanwhile is not read ahead.
        let reader = Arc::downgrade(reader);
        let queued = self.node.workers.submit(Box::new(move || {
            // An error is the reader's, who meets it when it reads.
            if let Some(reader) = reader.upgrade()
                && let Ok(Some(at_rest)) = reader.at_rest()
            {
                let len_of = |range: &Range<u64>| usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
                at_rest.will_read(noted.next.iter().map(|range| (range.start, len_of(range))));
            }
        }));
        if queued.is_ok() {
            self.node.announced_bytes.fetch_add(noted.bytes, Ordering::Relaxed);
        }
        queued.is_ok()
    }
}

impl State {
    /// Whether so many segments may be remembered. Counts them if so.
    fn may_remember(&mut self, node: &ReadAhead, segments: usize) -> bool {
        let more = segments.saturating_sub(self.remembered);
        let counted = node.remembered.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |all| {
            all.checked_add(more).filter(|all| more == 0 || *all <= REMEMBERED_MAX)
        });
        if counted.is_ok() {
            self.remembered += more;
        }
        counted.is_ok()
    }

    /// Nothing is announced, so that no more is remembered than the last request.
    fn remember_only(&mut self, node: &ReadAhead, segments: usize) {
        let fewer = self.remembered.saturating_sub(segments);
        node.remembered.fetch_sub(fewer, Ordering::Relaxed);
        self.remembered -= fewer;
    }

    /// Accounts for a request.
    fn count(&mut self, node: &ReadAhead, noted: &Noted, now: Instant) {
        node.used_bytes.fetch_add(noted.used, Ordering::Relaxed);
        self.give_back(node, noted.released);
        if noted.bytes > 0 {
            let period = node.budget.lock().take(noted.bytes, now);
            self.taken.push_back((noted.bytes, period));
        }
    }

    fn give_back(&mut self, node: &ReadAhead, mut bytes: u64) {
        while bytes > 0
            && let Some((taken, period)) = self.taken.front_mut()
        {
            let back = bytes.min(*taken);
            node.budget.lock().give_back(back, *period);
            (bytes, *taken) = (bytes - back, *taken - back);
            if *taken == 0 {
                self.taken.pop_front();
            }
        }
    }
}

impl Drop for HandleReadAhead {
    fn drop(&mut self) {
        if let Some(mut state) = self.state.get_mut().take() {
            let withdrawn = state.pattern.withdraw();
            state.give_back(&self.node, withdrawn);
            self.node.remembered.fetch_sub(state.remembered, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With a window of the kernel's read-ahead between the requests that wait, these would look strided.
    #[test]
    fn a_sequential_reader_is_recognised_whether_it_waits_or_not() {
        let node = Arc::new(ReadAhead::start(1 << 20).unwrap());
        let handle = HandleReadAhead::new(&node);
        let goes_on = |range: Option<Range<u64>>| handle.goes_on(range.as_ref());
        assert!(!goes_on(Some(0..10)));
        assert!(goes_on(Some(10..30)) && goes_on(Some(30..40)));
        assert!(!goes_on(Some(41..50)) && !goes_on(Some(30..41)));
        // A vector begins nowhere and ends nowhere.
        assert!(!goes_on(None) && !goes_on(None) && !goes_on(Some(41..50)) && goes_on(Some(50..60)));
        node.stop();
    }
}
