//! How open writes are discarded. The namespace ends the open write and queues the deletion of its object. The deletion
//! queue does the rest.

use std::sync::Arc;
use std::time::Instant;

use disk_server::NotAgreed;
use namespace::{Abandon, Durability, NsError};
use types::ErrorCode;

use super::{Endings, Stale};
use crate::error::Error;
use crate::lease::Lease;
use crate::names::By;
use crate::write_target::WriteTarget;

impl Endings {
    /// Discards an open write. The entry must be in the state `Closing` or `Ending`. `then` is called once, perhaps on
    /// another thread, which must not wait.
    pub(crate) fn discard(self: &Arc<Self>, lease: &Arc<Lease>, then: impl FnOnce(Result<(), Error>) + Send + 'static) {
        lease.set_discarded();
        lease.fence();
        match (lease.writer(), &self.disk) {
            (Some(WriteTarget::Replicated(_) | WriteTarget::Striped(_)), Some(disk)) => {
                let (inner, lease) = (Arc::clone(self), Arc::clone(lease));
                disk.discard(lease.token(), move |agreed| inner.discarded_by_manager(lease, agreed, then));
            }
            _ => {
                lease.drop_writer();
                self.discard_here(lease, then);
            }
        }
    }

    fn discard_here(self: &Arc<Self>, lease: &Arc<Lease>, then: impl FnOnce(Result<(), Error>) + Send + 'static) {
        let token = lease.token();
        let (inner, lease) = (Arc::clone(self), Arc::clone(lease));
        let (by, op) = (By::caller(&lease.caller).urgently(), Abandon { writer: token, request: None });
        self.names.change(by, Durability::Synced, op, move |result| match result {
            Ok(_) => inner.end_discarded(&lease, then),
            Err(error @ NsError::Stale { .. }) => {
                let node = Arc::clone(&inner);
                inner.workers.submit_duty(Box::new(move || match node.after_stale(&lease, token) {
                    Stale::Renewed => node.discard_here(&lease, then),
                    // It was ended in another way, for example removed together with its file.
                    Stale::Ended => node.end_discarded(&lease, then),
                    Stale::Unknown => then(Err(Error::of_namespace(&format_args!("discard {}:", lease.path), &error))),
                }));
            }
            Err(error) => {
                let error = Error::of_namespace(&format_args!("discard {}:", lease.path), &error);
                then(Err(inner.discard_later(&lease, error)));
            }
        });
    }

    fn discarded_by_manager(
        self: &Arc<Self>,
        lease: Arc<Lease>,
        agreed: Result<(), NotAgreed>,
        then: impl FnOnce(Result<(), Error>) + Send + 'static,
    ) {
        let not_agreed = match agreed {
            Ok(()) => {
                // The last user of a striped file closes its connections.
                let inner = Arc::clone(self);
                return self.workers.submit_duty(Box::new(move || {
                    lease.drop_writer();
                    inner.end_discarded(&lease, then);
                }));
            }
            Err(not_agreed) => not_agreed,
        };
        let error = Error::of_code(not_agreed.code(), &format_args!("discard {}", lease.path), &not_agreed);
        if not_agreed.code() == ErrorCode::Stale {
            // It has ended in another way, or another server continues it for its client.
            lease.set_failure(&error);
            self.writes.lock().forget(lease.object);
            return then(Err(error));
        }
        then(Err(self.discard_later(&lease, error)));
    }

    fn end_discarded(&self, lease: &Lease, then: impl FnOnce(Result<(), Error>)) {
        lease.set_failure(&Error::new(ErrorCode::Stale, format!("What was written to {} was discarded", lease.path)));
        self.writes.lock().forget(lease.object);
        then(Ok(()));
    }

    /// The end of the grace period discards it again. The client has lost its handle, so it is not told to wait.
    fn discard_later(&self, lease: &Lease, why: Error) -> Error {
        let again = self.settings.times().grace.as_secs();
        let error = why.of_close(&format_args!("it cannot be continued, and the server tries again in {again} s"));
        lease.set_failure(&error);
        self.writes.lock().failed(lease.object, true, Instant::now());
        error
    }
}
