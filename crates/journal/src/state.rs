//! What the open log holds under its lock.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use disk::{Disk, DiskFile};
use parking_lot::{Condvar, Mutex};

use crate::batch::{Batch, Buffer};
use crate::event::Event;
use crate::losses::Losses;
use crate::{JournalConfig, JournalError, JournalStats, StreamId};

/// A retained segment.
pub(crate) struct Segment {
    pub(crate) number: u64,
    pub(crate) path: String,
    pub(crate) incarnation: u64,
    /// Bytes that the file has.
    pub(crate) bytes: u64,
    pub(crate) first: u64,
    /// `first - 1`: none.
    pub(crate) last: u64,
    /// The first byte after the last record, written or not.
    pub(crate) end: u64,
    /// For reading, through the page cache; opened when first needed.
    pub(crate) reader: Option<Arc<dyn DiskFile>>,
}

/// A segment that the log does not know any more.
pub(crate) struct Trimmed {
    pub(crate) path: String,
    /// Whoever reads a record just now has this too.
    pub(crate) reader: Option<Arc<dyn DiskFile>>,
}

/// A segment made ahead.
pub(crate) struct Spare {
    pub(crate) number: u64,
    pub(crate) path: String,
    pub(crate) file: Arc<dyn DiskFile>,
}

pub(crate) struct State {
    /// Oldest first; the last is the one that is appended to. Never empty.
    pub(crate) segments: VecDeque<Segment>,
    pub(crate) spares: VecDeque<Spare>,
    /// Only the reserve is left: ordinary appends are refused until a segment could be made again.
    pub(crate) reserve_only: bool,
    /// A thread is making a segment; how often one was tried, and why the last try failed.
    pub(crate) making: bool,
    pub(crate) tries: u64,
    pub(crate) last_try: Option<NoSpare>,
    /// Not yet taken by a writer, oldest first; the last one belongs to the current segment and is added to.
    pub(crate) pending: VecDeque<Batch>,
    pub(crate) in_flight: Vec<Arc<Batch>>,
    pub(crate) recycled: Option<Buffer>,
    /// Files written since the last sync began, oldest first, by segment number.
    pub(crate) dirty: BTreeMap<u64, Arc<dyn DiskFile>>,
    pub(crate) writing: bool,
    pub(crate) syncing: bool,
    /// Counts the rounds of syncs begun.
    pub(crate) round: u64,
    /// What the round under way will make durable, once that is settled.
    pub(crate) syncing_to: Option<u64>,
    pub(crate) appended: u64,
    pub(crate) written: u64,
    pub(crate) durable: u64,
    /// The last record is this mark, and it covers all before it.
    pub(crate) marked: Option<u64>,
    pub(crate) poisoned: Option<String>,
    pub(crate) stop: bool,
    pub(crate) trim: BTreeMap<StreamId, u64>,
    /// Files of trimmed segments, which are still to be removed.
    pub(crate) trimmed: VecDeque<Trimmed>,
    /// Replays under way. What they read is not cut short under them.
    pub(crate) replays: usize,
    pub(crate) stats: JournalStats,
}

/// Why a segment could not be made.
#[derive(Clone)]
pub(crate) enum NoSpare {
    NoSpace,
    Failed(String),
}

pub(crate) struct Shared {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) dir: String,
    pub(crate) config: JournalConfig,
    pub(crate) incarnation: u64,
    pub(crate) state: Mutex<State>,
    pub(crate) wrote: Condvar,
    /// `State::durable`, to be looked at without the lock.
    pub(crate) durable: AtomicU64,
    /// The ends of even and of odd rounds of syncs.
    pub(crate) rounds: [Event; 2],
    /// A try to make a segment has ended.
    pub(crate) tried: Condvar,
    /// For the thread that makes segments: there may be something to do.
    pub(crate) wanted: Condvar,
    /// Appends that wait for a segment, or a current segment more than half full: no time to be gentle.
    pub(crate) awaited: AtomicU32,
    pub(crate) losses: Mutex<Losses>,
    /// The journal is being dropped.
    pub(crate) stopping: AtomicBool,
    /// One trim at a time.
    pub(crate) trimming: Mutex<()>,
}

impl State {
    pub(crate) fn check(&self) -> Result<(), JournalError> {
        match &self.poisoned {
            Some(reason) => Err(JournalError::Poisoned { reason: reason.clone() }),
            None => Ok(()),
        }
    }

    pub(crate) fn pending_bytes(&self) -> u64 {
        self.pending.iter().map(Batch::unwritten).sum()
    }

    pub(crate) fn poison(&mut self, reason: String) -> JournalError {
        let reason = self.poisoned.get_or_insert(reason).clone();
        JournalError::Poisoned { reason }
    }
}

impl Shared {
    /// The event that ends a round.
    pub(crate) fn end_of(&self, round: u64) -> &Event {
        &self.rounds[usize::from(round % 2 == 1)]
    }

    /// A write or a sync of the log, or of what it speaks of, has failed: that is written down.
    pub(crate) fn note_failure(&self) {
        if self.config.notes_failures() {
            self.losses.lock().fail(&*self.disk, &self.dir);
        }
    }

    /// Wakes everybody, after the log was poisoned or stopped.
    pub(crate) fn wake_all(&self) {
        self.wrote.notify_all();
        self.rounds.iter().for_each(Event::notify_all);
        self.tried.notify_all();
        self.wanted.notify_all();
    }
}
