//! Requests that meet the open write of another client.
//!
//! A file whose writer has lost its connection waits for it until the grace period ends. Another client of the same
//! principal need not wait for that: it may replace or continue the file at once. The old open write then ends as at
//! the end of its grace period. Its handles are fenced first, so the old writer can change nothing any more.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use disk_server::{ClientWrites, DiskServer};
use node::{ClaimResult, ClientPresence, GO_ON_HINT, OpenWriteLength};
use types::{ClientIdentity, ErrorCode, ObjectId, PrincipalId, Timestamp, WriterToken};

use crate::endings::Endings;
use crate::error::Error;
use crate::lease::Lease;
use crate::names::wall_clock;
use crate::service::{Role, Service};
use crate::writers::WriterPresence;

/// What a request may do about an open write whose writer has lost its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Claim {
    /// It replaces the file or continues it, so the open write may end.
    TakesOver,
    /// It needs a complete file. A change in place may end, because it leaves one. A new file may not: what is left of
    /// it would be interrupted.
    NeedsComplete,
}

/// What becomes of a request that meets an open write.
#[derive(Debug)]
pub(crate) enum Conflict {
    /// The open write has ended, or is about to end before anything that is requested from now on: repeat the request.
    Ended,
    /// The open write is ending.
    Ending,
    /// It goes on, for this reason.
    Stays(String),
    /// It is not known here: it has just ended, or is just beginning.
    Unknown,
}

impl Conflict {
    /// The error for the client, if the request cannot be repeated at once.
    pub(crate) fn error(self, verb: &str, path: &dyn std::fmt::Display) -> Error {
        match self {
            Self::Ended | Self::Ending | Self::Unknown => {
                let text = format!("Cannot {verb} {path} now: an earlier write of it is just ending");
                Error::Wait { seconds: 1, text }
            }
            Self::Stays(why) => Error::new(ErrorCode::Busy, format!("Cannot {verb} {path}: {why}")),
        }
    }
}

impl Endings {
    /// Ends the open write of `object` for a request of `principal`, if it waits for its writer and belongs to the same
    /// principal. May wait for the disk.
    pub(crate) fn settle(self: &Arc<Self>, object: ObjectId, principal: PrincipalId, claim: Claim) -> Conflict {
        let Some((lease, presence)) = self.writes.lock().open_write(object) else { return Conflict::Unknown };
        let is_own = lease.caller.principal == principal;
        match presence {
            WriterPresence::Ending => Conflict::Ending,
            WriterPresence::Detached { .. } if is_own && (claim == Claim::TakesOver || !lease.fresh) => {
                let due = self.writes.lock().due_at_once(object);
                // Otherwise its writer has just come back.
                if let Some(due) = due {
                    tracing::info!(path = %lease.path, client = %lease.caller, "ended at once: its writer is gone, and another client of its principal takes the file over");
                    self.end_of_grace(&due);
                }
                Conflict::Ended
            }
            WriterPresence::Attached | WriterPresence::Detached { .. } => {
                let hint = match (presence, is_own) {
                    (WriterPresence::Detached { .. }, true) => GO_ON_HINT,
                    _ => "",
                };
                Conflict::Stays(format!("{}{hint}", described(&lease, presence, Instant::now(), wall_clock())))
            }
        }
    }
}

/// Answers the manager of a cluster about the open writes of this disk server's clients.
struct OfClients {
    endings: Arc<Endings>,
    disk: Weak<DiskServer>,
}

impl ClientWrites for OfClients {
    fn settle(&self, claim: node::Claim) {
        let (endings, disk) = (Arc::clone(&self.endings), Weak::clone(&self.disk));
        self.endings.workers.submit_duty(Box::new(move || {
            let node::Claim { number, writer, principal, takes_over } = claim;
            // A lease may make this thread wait, so the lock on the writers must not be held any more.
            let lease = endings.writes.lock().lease(writer.object);
            let is_here = lease.is_some_and(|lease| lease.token() == writer);
            let claim = if takes_over { Claim::TakesOver } else { Claim::NeedsComplete };
            let found = match is_here.then(|| endings.settle(writer.object, principal, claim)) {
                Some(Conflict::Ended | Conflict::Ending) => ClaimResult::Ending,
                Some(Conflict::Stays(why)) => ClaimResult::Stays(why),
                Some(Conflict::Unknown) | None => ClaimResult::Unknown,
            };
            if let Some(disk) = disk.upgrade() {
                disk.claimed(number, found);
            }
        }));
    }

    fn presence(&self, writer: WriterToken) -> ClientPresence {
        let (open_write, is_opening) = {
            let writers = self.endings.writes.lock();
            (writers.open_write(writer.object), writers.is_opening(writer.object))
        };
        match open_write {
            // Its client is just coming back.
            _ if is_opening => ClientPresence::There,
            Some((lease, presence)) => match lease.token_now() {
                Some(token) if token == writer => told(presence, Instant::now()),
                Some(_) => ClientPresence::Unknown,
                None => ClientPresence::There,
            },
            None => ClientPresence::Unknown,
        }
    }

    fn lengths(&self, limit: usize) -> Vec<OpenWriteLength> {
        let leases: Vec<Arc<Lease>> =
            self.endings.writes.lock().leases().filter(|lease| !lease.is_striped).take(limit).cloned().collect();
        let length = |lease: &Arc<Lease>| lease.length().map(|(writer, len)| OpenWriteLength { writer, len });
        leases.iter().filter_map(length).collect()
    }
}

impl Service {
    /// Lets the manager of a cluster ask about the open writes of this disk server's clients, until the service stops.
    pub(crate) fn answer_claims(&self) {
        if let Role::Disk(disk) = &self.role {
            let of_clients = OfClients { endings: Arc::clone(&self.endings), disk: Arc::downgrade(disk) };
            disk.set_client_writes(Some(Box::new(of_clients)));
        }
    }
}

/// Who writes the file, since when, and until when the server waits.
pub(crate) fn described(lease: &Lease, presence: WriterPresence, now: Instant, wall: Timestamp) -> String {
    let opened = Duration::from_nanos(wall.0.saturating_sub(lease.opened.0).try_into().unwrap_or(0));
    let caller = &lease.caller;
    let client = ClientIdentity { principal: caller.principal, ..caller.client.clone() };
    told(presence, now).describe(&client, opened)
}

/// The presence of a writer, as the manager and clients are told.
fn told(presence: WriterPresence, now: Instant) -> ClientPresence {
    let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    match presence {
        WriterPresence::Attached => ClientPresence::There,
        WriterPresence::Detached { since, until } => ClientPresence::Gone {
            ago_ms: ms(now.saturating_duration_since(since)),
            left_ms: ms(until.saturating_duration_since(now)),
        },
        WriterPresence::Ending => ClientPresence::Ending,
    }
}
