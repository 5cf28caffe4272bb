//! How open writes end in a cluster, together with the in-sync replicas or the servers of the stripe units.

use std::sync::Arc;
use std::time::Instant;

use disk_server::{ClosedBy, ReplicatedWriter};
use types::RequestNumber;

use super::Endings;
use crate::answer::Answer;
use crate::error::Error;
use crate::lease::Lease;
use crate::striped::{StripedError, StripedFile};
use crate::workers::apart;
use crate::write_target::WriteTargetError;

impl Endings {
    /// Completes an object in a cluster: all in-sync replicas make it durable, and the manager commits it.
    pub(super) fn complete_replicated(
        self: &Arc<Self>,
        lease: &Arc<Lease>,
        replicated: &Arc<ReplicatedWriter>,
        closed: ClosedBy,
        then: impl FnOnce(Result<(), Error>) + Send + 'static,
    ) {
        let (inner, kept) = (Arc::clone(self), Arc::clone(lease));
        replicated.close(lease.mtime(), closed, move |result| {
            let error = match result {
                Ok(()) => {
                    kept.drop_writer();
                    kept.set_committed();
                    inner.writes.lock().forget(kept.object);
                    return then(Ok(()));
                }
                Err(error) => Error::of_disk_server(&format_args!("close {}", kept.path), &error),
            };
            kept.set_failure(&error);
            inner.ended_or_waits(&kept, &error);
            then(Err(error));
        });
    }

    /// Completes a striped file on its own thread, because it waits for other servers, which may wait for this
    /// server's workers.
    pub(super) fn complete_striped(
        self: &Arc<Self>,
        lease: &Arc<Lease>,
        striped: Arc<dyn StripedFile>,
        closed: ClosedBy,
        then: impl FnOnce(Result<(), Error>) + Send + 'static,
    ) {
        let request = match closed {
            ClosedBy::Client { request } => request,
            ClosedBy::GraceEnd => {
                tracing::info!(path = %lease.path, client = %lease.caller, "its writer went away; its stripe units are closed");
                None
            }
        };
        let (inner, kept) = (Arc::clone(self), Arc::clone(lease));
        apart(then, move |then| {
            let done = striped.complete(kept.mtime(), request);
            let failed = |error: StripedError| WriteTargetError::from(error).told(&format_args!("close {}", kept.path));
            let result = done.map_err(failed);
            match &result {
                Ok(()) => {
                    kept.drop_writer();
                    kept.set_committed();
                    inner.writes.lock().forget(kept.object);
                }
                Err(error) => {
                    kept.set_failure(error);
                    inner.writes.lock().failed(kept.object, true, Instant::now());
                }
            }
            then(result);
        });
    }

    /// Abandons the stripe units. Their servers mark the kept data of each, and then the manager marks the file.
    pub(super) fn give_up_striped(self: &Arc<Self>, lease: &Arc<Lease>) {
        tracing::info!(path = %lease.path, client = %lease.caller, "its writer went away; its stripe units are abandoned");
        lease.drop_writer();
        self.writes.lock().forget(lease.object);
    }

    /// Removes an object that another server continues. Any other object waits for another grace period.
    pub(super) fn ended_or_waits(&self, lease: &Lease, why: &Error) {
        let mut writers = self.writes.lock();
        if matches!(why, Error::Redirect(_)) {
            writers.forget(lease.object);
        } else {
            writers.failed(lease.object, true, Instant::now());
        }
    }

    pub(super) fn interrupt_replicated(self: &Arc<Self>, lease: &Arc<Lease>, replicated: &Arc<ReplicatedWriter>) {
        let (inner, kept) = (Arc::clone(self), Arc::clone(lease));
        replicated.interrupt(move |result| match result {
            Ok(kept_len) => {
                tracing::info!(path = %kept.path, kept_len, client = %kept.caller, "interrupted: its writer went away");
                kept.drop_writer();
                inner.writes.lock().forget(kept.object);
            }
            Err(error) => {
                let error = Error::of_disk_server(&format_args!("interrupt {}", kept.path), &error);
                tracing::info!(path = %kept.path, %error, "cannot interrupt a file");
                inner.ended_or_waits(&kept, &error);
            }
        });
    }

    /// Ends an update in place that has changed nothing.
    pub(crate) fn leave_replicated(
        self: &Arc<Self>,
        lease: &Arc<Lease>,
        replicated: &Arc<ReplicatedWriter>,
        then: impl FnOnce() + Send + 'static,
    ) {
        self.complete_replicated(lease, replicated, ClosedBy::Client { request: None }, move |_| then());
    }

    /// The same as [`Endings::truncate`] in a cluster: on all in-sync replicas.
    pub(crate) fn truncate_replicated(
        self: &Arc<Self>,
        lease: &Arc<Lease>,
        replicated: &Arc<ReplicatedWriter>,
        len: u64,
        request: Option<RequestNumber>,
        answer: impl Answer<()>,
    ) {
        let closed = ClosedBy::Client { request };
        if let Err(refused) = lease.reserve(len) {
            // Nothing has changed, so the file stays complete.
            return self.leave_replicated(lease, replicated, move || answer.give(Err(refused)));
        }
        match replicated.truncate(len) {
            Ok(()) => self.complete_replicated(lease, replicated, closed, move |result| answer.give(result)),
            Err(error) => {
                // The truncation may be incomplete, so the file keeps its present data, without checksums.
                self.interrupt(lease);
                answer.give(Err(Error::of_disk_server(&format_args!("truncate {}", lease.path), &error)));
            }
        }
    }
}
