//! The figures of a running server, for monitoring.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use service::{Bounded, FrontEndFigures, ReadAheadFigures, Space};
use types::{Histogram, Timestamp};
use wire::ErrorNumber;

use crate::front_end::FrontEnd;

/// The figures at one moment. Totals count from the start of the server.
#[derive(Clone, Debug)]
pub struct Figures {
    /// The time of the start.
    pub started: Timestamp,
    /// The duration of requests in microseconds, by kind, from the arrival of the header to the answer. It includes
    /// the time that the client takes to send or receive data. Kinds without requests are omitted.
    pub requests: Vec<(&'static str, Histogram)>,
    /// Errors, by the protocol's number.
    pub errors: Vec<(ErrorNumber, u64)>,
    /// Answers that told the client to try again later (kXR_wait).
    pub waits: u64,
    /// Answers that redirected the client (kXR_redirect).
    pub redirects: u64,
    /// Bytes that clients have read.
    pub bytes_read: u64,
    /// Bytes that clients have sent to be written.
    pub bytes_written: u64,
    /// Accepted connections.
    pub connections_accepted: u64,
    /// Connections that the server has ended, by reason.
    pub connections_ended: Vec<(&'static str, u64)>,
    /// Signatures of requests, by what became of them: `verified`, `refused`, `unneeded`.
    pub signatures: Vec<(&'static str, u64)>,
    /// When the certificate ends that clients are shown; `None`: there is none.
    pub certificate_ends: Option<Timestamp>,
    /// Logins and the keys of issuers; `None`: clients need not show who they are.
    pub authentication: Option<authentication::Snapshot>,
    /// Open connections, and their maximum.
    pub connections: Bounded,
    /// Connections that have logged in.
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
    /// Objects that wait for deletion, at most [`service::DELETIONS_COUNTED_MAX`]. `None`: the queue could not be
    /// read.
    pub deletions_waiting: Option<usize>,
    /// The total space of the file systems. `None`: a query failed.
    pub space: Option<Space>,
}

/// Reads the figures of a running server. Drop it before closing the parts below the server.
pub struct Watch {
    pub(crate) front: Arc<FrontEnd>,
}

impl Watch {
    /// The service.
    #[must_use]
    pub fn service(&self) -> &Arc<service::Service> {
        &self.front.service
    }

    /// The first trees of the namespace, at most `limit`, with what they use. None on a node without a namespace.
    #[must_use]
    pub fn trees(&self, limit: usize) -> Vec<service::ListedTree> {
        self.front.service.trees(None, limit).unwrap_or_default()
    }

    /// The first `limit` users and groups with quotas ([`service::Service::limited_owners`]). None on a node without a namespace.
    #[must_use]
    pub fn limited_owners(&self, looked_at: usize, limit: usize) -> (Vec<service::LimitedOwner>, bool) {
        self.front.service.limited_owners(looked_at, limit).unwrap_or_default()
    }

    /// The figures at this moment. Reads the file systems' space and the deletion queue.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let service = &self.front.service;
        Figures {
            deletions_waiting: service.deletions_waiting(),
            space: service.space_now(),
            ..self.figures_without_names()
        }
    }

    /// The figures that need neither names nor disks, for a node whose names are in a database that is away: nobody waits for it.
    #[must_use]
    pub fn figures_without_names(&self) -> Figures {
        let FrontEnd { service, config, meter, connections, connection_shares, .. } = &*self.front;
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
            signatures: meter.signatures(),
            certificate_ends: config.tls.as_ref().map(|tls| tls.certificate.ends(SystemTime::now().into())),
            authentication: config.authenticator.as_ref().map(|authenticator| authenticator.snapshot()),
            connections: Bounded::of(connection_shares),
            sessions: of_service.sessions,
            open_files: of_service.open_files,
            writers: of_service.writers,
            writers_memory: of_service.writers_memory,
            transfers: of_service.transfers,
            transfers_waiting: of_service.transfers_waiting,
            read_ahead: of_service.read_ahead,
            transfer_buffers: of_service.transfer_buffers,
            deletions_waiting: None,
            space: None,
        }
    }

    /// The figures that a disk server reports to its manager. It accesses no disk, so it can be called often.
    #[must_use]
    pub fn front_end(&self) -> FrontEndFigures {
        self.front.service.front_end()
    }
}
