//! The state of the open journal that its lock protects.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use disk::{Disk, DiskFile};
use parking_lot::{Condvar, Mutex};

use crate::batch::{Batch, Buffer};
use crate::event::Event;
use crate::losses::Losses;
use crate::segment_file::SegmentFile;
use crate::{JournalConfig, JournalError, JournalStats, StreamId};

/// A retained segment.
pub(crate) struct Segment {
    pub(crate) number: u64,
    pub(crate) path: String,
    pub(crate) incarnation: u64,
    /// Size of the file in bytes.
    pub(crate) bytes: u64,
    pub(crate) first: u64,
    /// `first - 1` if it has no record.
    pub(crate) last: u64,
    /// The first byte after the last record, written or not.
    pub(crate) end: u64,
    /// For reading through the page cache; opened on the first use.
    pub(crate) reader: Option<Arc<dyn DiskFile>>,
}

/// A segment that no longer belongs to the journal.
pub(crate) struct Trimmed {
    pub(crate) path: String,
    /// A running read of a record holds this too.
    pub(crate) reader: Option<Arc<dyn DiskFile>>,
}

/// A segment made in advance.
pub(crate) struct SpareSegment {
    pub(crate) number: u64,
    pub(crate) path: String,
    pub(crate) file: SegmentFile,
}

pub(crate) struct State {
    /// Oldest first; appends go to the last one. Never empty.
    pub(crate) segments: VecDeque<Segment>,
    pub(crate) spares: VecDeque<SpareSegment>,
    /// Only the reserve is left: ordinary appends fail until a segment can be made again.
    pub(crate) reserve_only: bool,
    /// Whether a thread is making a segment; the number of attempts, and why the last one failed.
    pub(crate) making: bool,
    pub(crate) tries: u64,
    pub(crate) last_try: Option<NoSpareSegment>,
    /// Batches that no writer has taken yet, oldest first. The last one belongs to the current segment and grows.
    pub(crate) pending: VecDeque<Batch>,
    pub(crate) in_flight: Vec<Arc<Batch>>,
    pub(crate) recycled: Option<Buffer>,
    /// Files written since the last sync began, by segment number (oldest first).
    pub(crate) dirty: BTreeMap<u64, SegmentFile>,
    pub(crate) writing: bool,
    pub(crate) syncing: bool,
    /// The number of sync rounds begun.
    pub(crate) round: u64,
    /// The last record that the current round makes durable, once that is known.
    pub(crate) syncing_to: Option<u64>,
    pub(crate) appended: u64,
    pub(crate) written: u64,
    pub(crate) durable: u64,
    /// The last record is this mark, and it covers all earlier records.
    pub(crate) marked: Option<u64>,
    pub(crate) poisoned: Option<String>,
    pub(crate) stop: bool,
    pub(crate) trim: BTreeMap<StreamId, u64>,
    /// Files of trimmed segments that still exist.
    pub(crate) trimmed: VecDeque<Trimmed>,
    /// The number of running replays. Nothing that they read is cut short.
    pub(crate) replays: usize,
    pub(crate) stats: JournalStats,
}

/// Why no segment could be made.
#[derive(Clone)]
pub(crate) enum NoSpareSegment {
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
    /// A copy of `State::durable` that can be read without the lock.
    pub(crate) durable: AtomicU64,
    /// The ends of even and of odd sync rounds.
    pub(crate) rounds: [Event; 2],
    /// Signals the end of an attempt to make a segment.
    pub(crate) tried: Condvar,
    /// Wakes the thread that makes segments.
    pub(crate) wanted: Condvar,
    /// The number of reasons to hurry: appends that wait for a segment, or a current segment more than half full.
    pub(crate) awaited: AtomicU32,
    pub(crate) losses: Mutex<Losses>,
    /// The journal is being dropped.
    pub(crate) stopping: AtomicBool,
    /// Allows one trim at a time.
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
    /// The event that signals the end of a round.
    pub(crate) fn end_of(&self, round: u64) -> &Event {
        &self.rounds[usize::from(round % 2 == 1)]
    }

    /// Records a failed write or sync of the journal, or of files that it refers to.
    pub(crate) fn note_failure(&self) {
        if self.config.notes_failures() {
            self.losses.lock().fail(&*self.disk, &self.dir);
        }
    }

    /// Wakes all threads after the journal was poisoned or stopped.
    pub(crate) fn wake_all(&self) {
        self.wrote.notify_all();
        self.rounds.iter().for_each(Event::notify_all);
        self.tried.notify_all();
        self.wanted.notify_all();
    }
}
