//! What a running service says of itself, as plain data: for monitoring.

use std::sync::atomic::{AtomicU64, Ordering};

use disk_server::FrontEndFigures;
use store::Space;
use types::Timestamp;

use crate::service::Service;
use crate::shares::Shares;

/// Contents in the deletion queue that are counted at most: the queue is read for it.
pub const DELETIONS_COUNTED_MAX: usize = 10_000;

/// What has been done since the start.
#[derive(Default)]
pub struct Counters {
    pub(crate) bytes_read: AtomicU64,
    pub(crate) bytes_written: AtomicU64,
}

impl Counters {
    /// Bytes of data have been read for clients.
    pub fn read(&self, bytes: u64) {
        self.bytes_read.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Clients have sent bytes of data to be written.
    pub fn written(&self, bytes: u64) {
        self.bytes_written.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Everything at one moment. What only grows is counted from the start of the service on.
#[derive(Clone, Debug)]
pub struct Figures {
    /// When the service was started.
    pub started: Timestamp,
    /// Bytes of data read by clients.
    pub bytes_read: u64,
    /// Bytes of data that clients have sent to be written.
    pub bytes_written: u64,
    /// Sessions: clients that have logged in.
    pub sessions: usize,
    /// Files that clients have open, and at most.
    pub open_files: Bounded,
    /// Files in the making: being written, or waiting for their writer to come back.
    pub writers: usize,
    /// Bytes that these may hold in memory, and at most.
    pub writers_memory: Bounded,
    /// Transfer buffers in use, and at most.
    pub transfer_buffers: Bounded,
    /// Pieces of data that are moved at this moment, and at most.
    pub transfers: Bounded,
    /// Those who wait to move one.
    pub transfers_waiting: usize,
}

/// How much there is of something that there is a limited amount of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounded {
    /// In use.
    pub now: usize,
    /// At most.
    pub most: usize,
}

impl Bounded {
    /// Of `shares`.
    #[must_use]
    pub fn of(shares: &Shares) -> Self {
        Self { now: shares.taken(), most: shares.most() }
    }
}

impl Service {
    /// The figures at this moment. Looks at nothing outside, so that it can be asked often.
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
            transfer_buffers: self.buffers.in_use(),
        }
    }

    /// Contents that wait to be deleted; no more than [`DELETIONS_COUNTED_MAX`] are counted. Reads the deletion queue. `None`: it could not be read.
    #[must_use]
    pub fn deletions_waiting(&self) -> Option<usize> {
        let due = self.names.read(|read| namespace::due_deletions(read, None, DELETIONS_COUNTED_MAX));
        due.ok().map(|due| due.len())
    }

    /// The file systems together. Looks at them. `None`: one could not be asked.
    #[must_use]
    pub fn space_now(&self) -> Option<Space> {
        self.stores.space().ok()
    }

    /// What a cluster's manager is told of this node. Looks at nothing outside, so that it can be asked often.
    #[must_use]
    pub fn door(&self) -> FrontEndFigures {
        let figures = self.figures();
        let load =
            (figures.transfers.now + figures.transfers_waiting).saturating_mul(1000) / figures.transfers.most.max(1);
        FrontEndFigures {
            sessions: figures.sessions as u64,
            open_files: figures.open_files.now as u64,
            writing: figures.writers as u64,
            read_bytes: figures.bytes_read,
            written_bytes: figures.bytes_written,
            writers_memory: figures.writers_memory.now as u64,
            writers_memory_max: figures.writers_memory.most as u64,
            load_permille: u16::try_from(load.min(1000)).unwrap_or(1000),
        }
    }
}
