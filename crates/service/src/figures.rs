//! The figures of a running service, for monitoring.

use std::sync::atomic::{AtomicU64, Ordering};

use disk_server::FrontEndFigures;
use node::Activity;
use store::Space;
use types::Timestamp;

use crate::read_ahead::ReadAheadFigures;
use crate::service::Service;
use crate::shares::Shares;

/// Maximum number of objects counted in the deletion queue, because counting reads the queue.
pub const DELETIONS_COUNTED_MAX: usize = 10_000;

/// Totals since the start.
#[derive(Default)]
pub struct Counters {
    pub(crate) bytes_read: AtomicU64,
    pub(crate) bytes_written: AtomicU64,
}

impl Counters {
    /// Counts bytes that clients have read.
    pub fn read(&self, bytes: u64) {
        self.bytes_read.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts bytes that clients have sent to be written.
    pub fn written(&self, bytes: u64) {
        self.bytes_written.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// The figures at one moment. Totals count from the start of the service.
#[derive(Clone, Debug)]
pub struct Figures {
    /// The time of the start.
    pub started: Timestamp,
    /// Bytes of data read by clients.
    pub bytes_read: u64,
    /// Bytes of data that clients have sent to be written.
    pub bytes_written: u64,
    /// Registered sessions.
    pub sessions: usize,
    /// Open files, and their maximum.
    pub open_files: Bounded,
    /// Open writes, including those whose writer may still return.
    pub writers: usize,
    /// Bytes of memory that open writes may hold, and their maximum.
    pub writers_memory: Bounded,
    /// Transfer buffers in use, and their maximum.
    pub transfer_buffers: Bounded,
    /// Transfer slots in use, and their maximum.
    pub transfers: Bounded,
    /// Transfers that wait for a slot.
    pub transfers_waiting: usize,
    /// Bytes read ahead.
    pub read_ahead: ReadAheadFigures,
}

/// The usage of a limited resource.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounded {
    /// In use.
    pub now: usize,
    /// The maximum.
    pub most: usize,
}

impl Bounded {
    /// The usage of `shares`.
    #[must_use]
    pub fn of(shares: &Shares) -> Self {
        Self { now: shares.taken(), most: shares.most() }
    }
}

impl Service {
    /// The figures at this moment. It accesses no disk, so it can be called often.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let (running, waiting, most) = self.transfers.counts();
        Figures {
            started: self.started,
            bytes_read: self.counters.bytes_read.load(Ordering::Relaxed),
            bytes_written: self.counters.bytes_written.load(Ordering::Relaxed),
            sessions: self.sessions.len(),
            open_files: Bounded::of(&self.handle_shares),
            writers: self.writes.lock().len(),
            writers_memory: self.writer_memory.bytes(),
            transfers: Bounded { now: running, most },
            transfers_waiting: waiting,
            read_ahead: self.read_ahead.figures(),
            transfer_buffers: self.buffers.in_use(),
        }
    }

    /// Objects that wait for deletion, at most [`DELETIONS_COUNTED_MAX`]. Reads the deletion queue. `None`: it could
    /// not be read.
    #[must_use]
    pub fn deletions_waiting(&self) -> Option<usize> {
        let due = self.names.read(|read| namespace::due_deletions(read, None, DELETIONS_COUNTED_MAX));
        due.ok().map(|due| due.len())
    }

    /// The total space of the file systems. Queries them. `None`: a query failed.
    #[must_use]
    pub fn space_now(&self) -> Option<Space> {
        self.stores.space().ok()
    }

    /// The figures that a disk server reports to its manager. It accesses no disk, so it can be called often.
    #[must_use]
    pub fn front_end(&self) -> FrontEndFigures {
        let figures = self.figures();
        let load =
            (figures.transfers.now + figures.transfers_waiting).saturating_mul(1000) / figures.transfers.most.max(1);
        let activity = Activity {
            up_millis: 0,
            sessions: figures.sessions as u64,
            open_files: figures.open_files.now as u64,
            writing: figures.writers as u64,
            read_bytes: figures.bytes_read,
            written_bytes: figures.bytes_written,
            writers_memory: figures.writers_memory.now as u64,
            writers_memory_max: figures.writers_memory.most as u64,
        };
        FrontEndFigures { activity, load_permille: u16::try_from(load.min(1000)).unwrap_or(1000) }
    }
}
