//! How writers end: closed, completed by the server, interrupted, dropped. The order is always the same: the data is
//! durable, the store's record is appended, then the namespace's, then one sync of the log makes both durable, then
//! the answer goes out.
//!
//! They block (disk, a full queue of the committer): they run on workers, on the keeper, or on the
//! connection's own thread.

mod placed;

use std::sync::Arc;
use std::time::Instant;

use namespace::{
    Abandon, Commit, CommitReply, Committed, Completion, Durability, EndUnchanged, GraceEnd, GraceFacts, Interrupt,
    NsError, Sums, WriterToken,
};
use store::{Completed, ReplicaState, ReplicaStatus, StoreError};
use types::{ErrorCode, NsPath, ObjectId, ReplicaId};

use crate::answer::Answer;
use crate::caller::Caller;
use crate::config::Planted;
use crate::error::Error;
use crate::lease::Lease;
use crate::making::Making;
use crate::names::{Names, Own};
use crate::open_writes::OpenWrites;
use crate::settings::Settings;
use crate::stores::Stores;
use crate::workers::Workers;
use crate::writers::Due;

/// What ends writers, with what it needs for that.
pub(crate) struct Endings {
    pub(crate) settings: Arc<Settings>,
    pub(crate) names: Names,
    pub(crate) stores: Stores,
    pub(crate) writes: Arc<OpenWrites>,
    pub(crate) workers: Arc<Workers>,
}

impl Endings {
    /// The client closes what it wrote; `doubt` is a reason not to take it for whole. The entry is in closing standing.
    pub(crate) fn close(self: &Arc<Self>, lease: &Arc<Lease>, doubt: Option<Error>, answer: impl Answer<()>) {
        let Some(writer) = lease.writer() else {
            self.writes.lock().failed(lease.object, false, Instant::now());
            return answer.give(Err(lease.ended()));
        };
        // xrdcp closes its handle also after a copy that failed in the middle. What was announced tells.
        let short = lease
            .expected_len
            .filter(|&expected| lease.fresh && (writer.len() != expected || writer.gaps()))
            .filter(|_| !self.settings.has(Planted::BelieveClose));
        let refused = match (doubt, short) {
            (Some(error), _) => Some(error),
            (None, Some(expected)) => {
                let gaps = if writer.gaps() { " with gaps" } else { "" };
                let text = format!(
                    "Cannot close {} as complete: {expected} bytes were announced, and {}{gaps} have come; it is kept as interrupted",
                    lease.path,
                    writer.len()
                );
                Some(Error::new(ErrorCode::Incomplete, text))
            }
            (None, None) => None,
        };
        drop(writer);
        if let Some(error) = refused {
            lease.set_failure(&error);
            self.interrupt(lease);
            return answer.give(Err(error));
        }
        self.complete(lease, Completion::ByClient, move |result| answer.give(result));
    }

    /// Completes in the store and commits to the namespace. `then` is called once, perhaps on the responder.
    fn complete(
        self: &Arc<Self>,
        lease: &Arc<Lease>,
        completion: Completion,
        then: impl FnOnce(Result<(), Error>) + Send + 'static,
    ) {
        let completed = match lease.writer() {
            Some(Making::Placed(placed)) => return self.complete_placed(lease, &placed, completion, then),
            Some(Making::Striped(striped)) => return self.complete_striped(lease, striped, completion, then),
            Some(Making::Here(writer)) => writer.complete(),
            None => {
                let replica = ReplicaId::first(lease.object);
                self.stores
                    .of_replica(replica)
                    .and_then(|store| store.reopen(replica))
                    .and_then(|writer| writer.complete())
            }
        };
        let completed = match completed {
            Ok(completed) => completed,
            Err(error) => {
                let again = !matches!(error, StoreError::Failed { .. } | StoreError::Disk(_));
                let error = Error::of_store(&format_args!("close {}", lease.path), &error);
                let error = error.of_close(&self.not_completed(lease, again));
                lease.set_failure(&error);
                self.writes.lock().failed(lease.object, true, Instant::now());
                return then(Err(error));
            }
        };
        lease.drop_writer();
        let Completed { len, adler32, crc32c, .. } = completed;
        self.commit_or_leave(lease, (len, Sums { adler32, crc32c }), completion, then);
    }

    /// What becomes of a file that the store could not complete; `again`: it may be able to later.
    fn not_completed(&self, lease: &Lease, again: bool) -> String {
        let grace = self.settings.times().grace.as_secs();
        match (lease.fresh, again) {
            (true, true) => format!(
                "what was written is kept for {grace} s: open it again for update and close it, or it is then marked as interrupted"
            ),
            (true, false) => format!("it is marked as interrupted in {grace} s, with what is durable of it"),
            (false, true) => format!(
                "what was changed stands: open it again for update and close it within {grace} s, or it stays as it is then, without checksums until it is read"
            ),
            (false, false) => format!("in {grace} s the file stands with what is durable of the change"),
        }
    }

    /// Commits what the store has completed, unless it is an update in place that has left the file as it was.
    fn commit_or_leave(
        self: &Arc<Self>,
        lease: &Arc<Lease>,
        (len, sums): (u64, Sums),
        completion: Completion,
        then: impl FnOnce(Result<(), Error>) + Send + 'static,
    ) {
        let content = Committed { len, sums: Some(sums), mtime: lease.mtime() };
        if lease.fresh || !lease.is_untouched() {
            return self.commit(lease, content, completion, then);
        }
        let (inner, kept) = (Arc::clone(self), Arc::clone(lease));
        self.leave_unchanged(lease, (len, sums), completion, move |left| {
            if left {
                kept.set_committed();
                inner.writes.lock().forget(kept.object);
                then(Ok(()));
            } else {
                let node = Arc::clone(&inner);
                inner.workers.submit_duty(Box::new(move || node.commit(&kept, content, completion, then)));
            }
        });
    }

    /// Ends an update in place if the file, of which the store has `len` bytes and `sums`, is what it was before. `then` is called once, on
    /// the responder, and told whether it has ended so.
    fn leave_unchanged(
        self: &Arc<Self>,
        lease: &Arc<Lease>,
        (len, sums): (u64, Sums),
        completion: Completion,
        then: impl FnOnce(bool) + Send + 'static,
    ) {
        let op = EndUnchanged { writer: lease.token(), len, sums, certain: lease.is_unchanged(), completion };
        // Nothing hangs on its being durable: after a power failure the update is found, and ends in the same way again.
        self.names.change_urgent(&lease.caller, Durability::Written, op, move |result| match result {
            Ok(left) => then(left),
            // Whatever it is, the commit or the mark meets it too, and knows what to do.
            Err(error) => {
                tracing::debug!(%error, "an update cannot be ended as unchanged");
                then(false);
            }
        });
    }

    fn commit(
        self: &Arc<Self>,
        lease: &Arc<Lease>,
        content: Committed,
        completion: Completion,
        then: impl FnOnce(Result<(), Error>) + Send + 'static,
    ) {
        let token = lease.token();
        let op = Commit { writer: token, content, completion };
        let (inner, lease) = (Arc::clone(self), Arc::clone(lease));
        let caller = Arc::clone(&lease.caller);
        let early = self.settings.has(Planted::AcknowledgeBeforeSync);
        let durability = if early { Durability::Written } else { Durability::Synced };
        self.names.change(&caller, durability, op, move |result: Result<CommitReply, NsError>| {
            match result {
                Ok(_) => {
                    lease.set_committed();
                    inner.writes.lock().forget(lease.object);
                    then(Ok(()));
                }
                Err(error @ NsError::Stale { .. }) => {
                    let node = Arc::clone(&inner);
                    inner.workers.submit_duty(Box::new(move || {
                        let error = Error::of_namespace(&format_args!("close {}:", lease.path), &error);
                        lease.set_failure(&error);
                        match node.after_stale(&lease, token) {
                            Stale::Renewed => node.commit(&lease, content, completion, then),
                            Stale::Ended | Stale::Unknown => then(Err(error)),
                        }
                    }));
                }
                // It has its place in the namespace's list of uploads now.
                Err(error @ NsError::UploadKept { .. }) => {
                    let error = Error::of_namespace(&"close", &error);
                    lease.set_failure(&error);
                    inner.writes.lock().forget(lease.object);
                    then(Err(error));
                }
                Err(error) => {
                    let error = Error::of_namespace(&format_args!("close {}", lease.path), &error).of_close(&format_args!(
                        "what was written is kept whole, and the server tries again in {} s if no client opens it for update and closes it before",
                        inner.settings.times().grace.as_secs()
                    ));
                    lease.set_failure(&error);
                    inner.writes.lock().failed(lease.object, false, Instant::now());
                    then(Err(error));
                }
            }
        });
    }

    /// The end of the entry is still this caller's: while it is closing or ending, a re-open gets nothing but a wait.
    fn after_stale(&self, lease: &Lease, used: WriterToken) -> Stale {
        match self.names.read(|read| namespace::find_writer(read, &lease.caller.client, &lease.path)) {
            Ok(found) => {
                match found.iter().map(namespace::WriterRecord::token).find(|token| token.object == lease.object) {
                    Some(token) if token != used => {
                        lease.renew(token);
                        Stale::Renewed
                    }
                    Some(_) => {
                        self.writes.lock().failed(lease.object, false, Instant::now());
                        Stale::Unknown
                    }
                    None => {
                        self.writes.lock().forget(lease.object);
                        Stale::Ended
                    }
                }
            }
            Err(error) => {
                tracing::error!(path = %lease.path, %error, "cannot look for a writer; trying again after another grace period");
                self.writes.lock().failed(lease.object, false, Instant::now());
                Stale::Unknown
            }
        }
    }

    /// Ends a writer whose content is not known to be whole: what is durable is kept and marked. The entry is in closing
    /// or ending standing.
    pub(crate) fn interrupt(self: &Arc<Self>, lease: &Arc<Lease>) {
        lease.fence();
        match lease.writer() {
            Some(Making::Placed(placed)) => return self.interrupt_placed(lease, &placed),
            Some(Making::Striped(_)) => return self.give_up_striped(lease),
            Some(Making::Here(_)) | None => {}
        }
        let replica = ReplicaId::first(lease.object);
        let kept_len = match self.stores.of_replica(replica).and_then(|store| store.interrupt(replica)) {
            Ok(kept_len) => kept_len,
            Err(StoreError::NotFound { .. }) => 0,
            Err(error) => {
                tracing::error!(path = %lease.path, %error, "cannot interrupt; trying again after another grace period");
                self.writes.lock().failed(lease.object, true, Instant::now());
                return;
            }
        };
        lease.drop_writer();
        self.mark_interrupted(lease, kept_len);
    }

    /// Marks it, unless it is an update in place that has come to nothing: such a file is what it was.
    fn mark_interrupted(self: &Arc<Self>, lease: &Arc<Lease>, kept_len: u64) {
        let replica = ReplicaId::first(lease.object);
        let status = if lease.fresh {
            Ok(None)
        } else {
            self.stores.of_replica(replica).and_then(|store| store.status(replica))
        };
        let Ok(Some(ReplicaStatus { len, state: ReplicaState::Complete { adler32, crc32c }, .. })) = status else {
            return self.mark(lease, kept_len);
        };
        let (inner, kept) = (Arc::clone(self), Arc::clone(lease));
        self.leave_unchanged(lease, (len, Sums { adler32, crc32c }), Completion::AtGraceEnd, move |left| {
            if left {
                tracing::info!(path = %kept.path, client = %kept.caller, "its writer went away and had changed nothing");
                inner.writes.lock().forget(kept.object);
            } else {
                let node = Arc::clone(&inner);
                inner.workers.submit_duty(Box::new(move || node.mark(&kept, kept_len)));
            }
        });
    }

    fn mark(self: &Arc<Self>, lease: &Arc<Lease>, kept_len: u64) {
        tracing::info!(path = %lease.path, kept_len, client = %lease.caller, "interrupted: its writer went away");
        let token = lease.token();
        let op = Interrupt { writer: token, kept_len };
        let (inner, lease) = (Arc::clone(self), Arc::clone(lease));
        let caller = Arc::clone(&lease.caller);
        // A mark frees more than it takes: it goes through on a full disk.
        self.names.change_urgent(&caller, Durability::Written, op, move |result| match result {
            Ok(_) => inner.writes.lock().forget(lease.object),
            Err(NsError::Stale { .. }) => {
                let node = Arc::clone(&inner);
                inner.workers.submit_duty(Box::new(move || {
                    if matches!(node.after_stale(&lease, token), Stale::Renewed) {
                        node.mark(&lease, kept_len);
                    }
                }));
            }
            Err(error) => {
                tracing::error!(%error, "cannot mark a file interrupted; trying again after another grace period");
                inner.writes.lock().failed(lease.object, true, Instant::now());
            }
        });
    }

    /// The grace period is over and nobody came back.
    pub(crate) fn end_of_grace(self: &Arc<Self>, due: &Due<Arc<Lease>>) {
        let lease = &due.lease;
        lease.fence();
        lease.end_checkpoint();
        let spoiled = due.spoiled || lease.doubt().is_some();
        let replica = ReplicaId::first(due.object);
        let (len, gaps) = match lease.writer() {
            Some(writer) => (writer.len(), writer.gaps()),
            None => match self.stores.of_replica(replica).and_then(|store| store.status(replica)) {
                Ok(None) => return self.mark_interrupted(lease, 0),
                Ok(Some(status)) => match status.state {
                    // The client's close got as far as the store's record; only the namespace's is missing.
                    ReplicaState::Complete { adler32, crc32c } if !spoiled => {
                        let found = (status.len, Sums { adler32, crc32c });
                        return self.commit_or_leave(lease, found, Completion::AtGraceEnd, log_end(lease));
                    }
                    ReplicaState::Complete { .. } => return self.mark_interrupted(lease, status.len),
                    ReplicaState::Interrupted => return self.mark_interrupted(lease, status.len),
                    ReplicaState::InMaking { prefix, .. } => (status.len, prefix < status.len),
                    ReplicaState::Dirty => (status.len, true),
                },
                Err(error) => {
                    tracing::error!(path = %lease.path, %error, "cannot end a writer; trying again later");
                    self.writes.lock().failed(due.object, true, Instant::now());
                    return;
                }
            },
        };
        let facts = GraceFacts {
            gaps,
            len,
            expected_len: lease.expected_len,
            wrote_in: lease.boot,
            boot: self.settings.config.boot,
        };
        match namespace::at_grace_end(&facts) {
            GraceEnd::Interrupt if self.settings.has(Planted::CompleteEverything) => {
                self.complete(lease, Completion::AtGraceEnd, log_end(lease));
            }
            GraceEnd::Complete if !spoiled && lease.fresh => {
                tracing::info!(path = %lease.path, len, "completed: all announced bytes are here, its close never came");
                self.complete(lease, Completion::AtGraceEnd, log_end(lease));
            }
            _ => self.interrupt(lease),
        }
    }

    /// A client that opens `path` anew will not come back to what it was uploading there before: that ends now, as at the
    /// end of its grace period. What the caller submits next finds it ended.
    pub(crate) fn end_own_uploads(self: &Arc<Self>, caller: &Caller, path: &NsPath) {
        for object in self.writes.own_detached_uploads(&self.names, caller, path) {
            let due = self.writes.lock().due_at_once(object);
            if let Some(due) = due {
                self.end_of_grace(&due);
            }
        }
    }

    /// An open that the store refused right after the namespace had agreed: nothing was written.
    pub(crate) fn abandon(self: &Arc<Self>, token: WriterToken) {
        self.names.change_urgent(&Own, Durability::Written, Abandon { writer: token }, |result| {
            if let Err(error) = result {
                tracing::error!(%error, "cannot take back an open");
            }
        });
    }

    /// A new file of a batch could not be written: its client has all of it still, and nothing of it is left here. The entry is in closing standing.
    pub(crate) fn take_back(self: &Arc<Self>, lease: &Arc<Lease>, why: Error, answer: impl Answer<()>) {
        lease.fence();
        lease.drop_writer();
        let (inner, kept) = (Arc::clone(self), Arc::clone(lease));
        self.names.change_urgent(
            &lease.caller,
            Durability::Written,
            Abandon { writer: lease.token() },
            move |result| {
                match result {
                    Ok(_) => inner.writes.lock().forget(kept.object),
                    Err(error) => {
                        tracing::debug!(path = %kept.path, %error, "an open cannot be taken back");
                        let node = Arc::clone(&inner);
                        inner.workers.submit_duty(Box::new(move || node.interrupt(&kept)));
                    }
                }
                answer.give(Err(why));
            },
        );
    }

    /// The namespace has marked `object` interrupted because bytes may be gone (the machine has booted, or its disk has failed): so does the store.
    pub(crate) fn lost(self: &Arc<Self>, object: ObjectId) {
        let lease = self.writes.lock().lease(object);
        if let Some(lease) = lease {
            lease.fence();
            lease.drop_writer();
        }
        self.writes.lock().forget(object);
        let replica = ReplicaId::first(object);
        if let Err(error) = self.stores.of_replica(replica).and_then(|store| store.interrupt(replica)) {
            tracing::warn!(%object, %error, "cannot mark a replica interrupted");
        }
    }

    /// The namespace has given `object` up: its writer is fenced, the deletion queue does the rest.
    pub(crate) fn dropped(self: &Arc<Self>, object: ObjectId) {
        let lease = self.writes.lock().lease(object);
        if let Some(lease) = lease {
            lease.fence();
        }
        self.writes.lock().forget(object);
    }

    /// Cuts or extends a complete file to `len`: an update in place by the server itself. The entry is in closing standing.
    pub(crate) fn truncate(self: &Arc<Self>, lease: &Arc<Lease>, len: u64, answer: impl Answer<()>) {
        let replica = ReplicaId::first(lease.object);
        let done = self.stores.of_replica(replica).and_then(|store| store.reopen(replica)).and_then(|writer| {
            writer.truncate(len)?;
            writer.complete()
        });
        match done {
            Ok(completed) => {
                let sums = Sums { adler32: completed.adler32, crc32c: completed.crc32c };
                let content = Committed { len: completed.len, sums: Some(sums), mtime: None };
                self.commit(lease, content, Completion::ByClient, move |result| answer.give(result));
            }
            Err(error) => {
                // What stands now is the file, without its checksums if it was cut.
                self.interrupt(lease);
                answer.give(Err(Error::of_store(&format_args!("truncate {}", lease.path), &error)));
            }
        }
    }
}

/// Why the namespace calls a writer stale whose entry is closing or ending.
enum Stale {
    /// A re-open has raised its epoch and was told to wait: the lease has the new one.
    Renewed,
    /// The namespace knows another end of it; the entry is gone.
    Ended,
    /// It cannot be told now; the entry waits.
    Unknown,
}

fn log_end(lease: &Arc<Lease>) -> impl FnOnce(Result<(), Error>) + Send + 'static {
    let path = lease.path.clone();
    move |result| {
        if let Err(reason) = result {
            tracing::warn!(%path, ?reason, "the end of a grace period");
        }
    }
}
