//! What a running server says of itself, as plain data: for monitoring.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use disk_server::FrontEndFigures;
use store::Space;
use types::{Histogram, Timestamp};
use wire::ErrorNumber;

use crate::node::Node;
use crate::shares::Shares;

/// Contents in the deletion queue that are counted at most: the queue is read for it.
pub const DELETIONS_COUNTED_MAX: usize = 10_000;

/// Everything at one moment. What only grows is counted from the start of the server on.
#[derive(Clone, Debug)]
pub struct Figures {
    /// When the server was started.
    pub started: Timestamp,
    /// How long requests took, in microseconds, by kind: from the arrival of the request's header to its answer, with
    /// the time that the client took to send data or to take it. Kinds that did not occur are left out.
    pub requests: Vec<(&'static str, Histogram)>,
    /// Answers that said why not, by the protocol's number.
    pub errors: Vec<(ErrorNumber, u64)>,
    /// Answers that asked to come again later (kXR_wait).
    pub waits: u64,
    /// Answers that sent the client to another server (kXR_redirect).
    pub redirects: u64,
    /// Bytes of data read by clients.
    pub bytes_read: u64,
    /// Bytes of data that clients have sent to be written.
    pub bytes_written: u64,
    /// Connections taken in.
    pub connections_accepted: u64,
    /// Connections that the server has ended, by reason.
    pub connections_ended: Vec<(&'static str, u64)>,
    /// Connections now, and at most.
    pub connections: Bounded,
    /// Sessions: connections that have logged in.
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
    /// Contents that wait to be deleted; no more than [`DELETIONS_COUNTED_MAX`] are counted. `None`: it could not be read.
    pub deletions_waiting: Option<usize>,
    /// The file system; `None`: it could not be asked.
    pub space: Option<Space>,
}

/// How much there is of something that there is a limited amount of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounded {
    /// In use.
    pub now: usize,
    /// At most.
    pub most: usize,
}

/// Asks a running server. To be dropped before what the server stands on is closed.
pub struct Watch {
    pub(crate) node: Arc<Node>,
}

impl Watch {
    /// The figures at this moment. Looks at the file system and into the deletion queue.
    #[must_use]
    pub fn figures(&self) -> Figures {
        self.node.figures()
    }

    /// What a cluster's manager is told of this front door. Looks at nothing outside, so that it can be asked often.
    #[must_use]
    pub fn door(&self) -> FrontEndFigures {
        let Node { counters, sessions, handle_shares, writers, writer_memory, transfers, .. } = &*self.node;
        let memory = writer_memory.bytes();
        let (running, waiting, most) = transfers.counts();
        let load = (running + waiting).saturating_mul(1000) / most.max(1);
        FrontEndFigures {
            sessions: sessions.lock().len() as u64,
            open_files: handle_shares.taken() as u64,
            writing: writers.lock().len() as u64,
            read_bytes: counters.bytes_read.load(Ordering::Relaxed),
            written_bytes: counters.bytes_written.load(Ordering::Relaxed),
            writers_memory: memory.now as u64,
            writers_memory_max: memory.most as u64,
            load_permille: u16::try_from(load.min(1000)).unwrap_or(1000),
        }
    }
}

impl Node {
    fn figures(&self) -> Figures {
        let counters = &self.counters;
        let get = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let (running, waiting, most) = self.transfers.counts();
        let due = self.read_names(|read| namespace::due_deletions(read, None, DELETIONS_COUNTED_MAX));
        Figures {
            started: self.started,
            requests: self.meter.requests(),
            errors: self.meter.errors(),
            waits: self.meter.waits(),
            redirects: self.meter.redirects(),
            bytes_read: get(&counters.bytes_read),
            bytes_written: get(&counters.bytes_written),
            connections_accepted: get(&counters.connections),
            connections_ended: self.meter.endings(),
            connections: bounded(&self.connection_shares),
            sessions: self.sessions.lock().len(),
            open_files: bounded(&self.handle_shares),
            writers: self.writers.lock().len(),
            writers_memory: self.writer_memory.bytes(),
            transfers: Bounded { now: running, most },
            transfers_waiting: waiting,
            transfer_buffers: self.buffers.in_use(),
            deletions_waiting: due.ok().map(|due| due.len()),
            space: self.space_of_all().ok(),
        }
    }
}

fn bounded(shares: &Shares) -> Bounded {
    Bounded { now: shares.taken(), most: shares.most() }
}
