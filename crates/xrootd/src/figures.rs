//! What a running server says of itself, as plain data: for monitoring.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use service::{Bounded, FrontEndFigures, Space};
use types::{Histogram, Timestamp};
use wire::ErrorNumber;

use crate::front_end::FrontEnd;

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
    /// Contents that wait to be deleted; no more than [`service::DELETIONS_COUNTED_MAX`] are counted. `None`: it could not be read.
    pub deletions_waiting: Option<usize>,
    /// The file system; `None`: it could not be asked.
    pub space: Option<Space>,
}

/// Asks a running server. To be dropped before what the server stands on is closed.
pub struct Watch {
    pub(crate) front: Arc<FrontEnd>,
}

impl Watch {
    /// The figures at this moment. Looks at the file system and into the deletion queue.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let FrontEnd { service, meter, connections, connection_shares, .. } = &*self.front;
        let of_service = service.figures();
        Figures {
            started: of_service.started,
            requests: meter.requests(),
            errors: meter.errors(),
            waits: meter.waits(),
            redirects: meter.redirects(),
            bytes_read: of_service.bytes_read,
            bytes_written: of_service.bytes_written,
            connections_accepted: connections.load(Ordering::Relaxed),
            connections_ended: meter.endings(),
            connections: Bounded::of(connection_shares),
            sessions: of_service.sessions,
            open_files: of_service.open_files,
            writers: of_service.writers,
            writers_memory: of_service.writers_memory,
            transfers: of_service.transfers,
            transfers_waiting: of_service.transfers_waiting,
            transfer_buffers: of_service.transfer_buffers,
            deletions_waiting: service.deletions_waiting(),
            space: service.space_now(),
        }
    }

    /// What a cluster's manager is told of this front. Looks at nothing outside, so that it can be asked often.
    #[must_use]
    pub fn door(&self) -> FrontEndFigures {
        self.front.service.door()
    }
}
