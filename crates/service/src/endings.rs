//! How open writes end: closed by the client, completed by the server, interrupted, or dropped. The order is always
//! the same. First the data becomes durable. Then the store appends its record, and the namespace appends its own.
//! One sync of the journal makes both records durable. Only then is the answer sent.
//!
//! These functions block on the disk or on a full queue of the committer. They run on workers, on the keeper, or on
//! the connection's own thread.

mod discarded;
mod replicated;

use std::sync::Arc;
use std::time::Instant;

use disk_server::{ClosedBy, DiskServer};
use namespace::{
    Abandon, Commit, CommitReply, Committed, Completion, Durability, EndUnchanged, GraceEnd, GraceFacts, Interrupt,
    NsError, Sums, WriterKind, WriterRecord, WriterToken,
};
use store::{Completed, ReplicaState, ReplicaStatus, StoreError};
use types::{ErrorCode, NsPath, ObjectId, ReplicaId, RequestNumber};

use crate::answer::Answer;
use crate::audit;
use crate::caller::Caller;
use crate::config::PlantedBug;
use crate::error::Error;
use crate::lease::Lease;
use crate::names::{By, Names};
use crate::open_writes::OpenWrites;
use crate::settings::Settings;
use crate::stores::Stores;
use crate::workers::Workers;
use crate::write_target::WriteTarget;
use crate::writers::Due;

/// Ends open writes, with the parts that it needs for that.
pub(crate) struct Endings {
    pub(crate) settings: Arc<Settings>,
    pub(crate) names: Names,
    pub(crate) stores: Stores,
    pub(crate) writes: Arc<OpenWrites>,
    pub(crate) workers: Arc<Workers>,
    /// In a cluster: this node's stores and its connection with the manager.
    pub(crate) disk: Option<Arc<DiskServer>>,
}

impl Endings {
    /// Closes a file for its client, whose request may have a number. `doubt` is a reason not to complete the file. The
    /// entry must be in the state `Closing`.
    pub(crate) fn close(
        self: &Arc<Self>,
        lease: &Arc<Lease>,
        doubt: Option<Error>,
        request: Option<RequestNumber>,
        answer: impl Answer<()>,
    ) {
        let Some(writer) = lease.writer() else {
            self.writes.lock().failed(lease.object, false, Instant::now());
            return answer.give(Err(lease.ended()));
        };
        // After a copy that has failed, xrdcp still closes its handle. The announced length shows that the file is
        // incomplete.
        let short = lease
            .expected_len
            .filter(|&expected| lease.fresh && (writer.len() != expected || writer.gaps()))
            .filter(|_| !self.settings.has(PlantedBug::BelieveClose));
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
        self.complete(lease, ClosedBy::Client { request }, move |result| answer.give(result));
    }

    /// Completes the object in the store and commits it to the namespace. `then` is called once, possibly on a
    /// thread of the engine.
    fn complete(
        self: &Arc<Self>,
        lease: &Arc<Lease>,
        closed: ClosedBy,
        then: impl FnOnce(Result<(), Error>) + Send + 'static,
    ) {
        let completed = match lease.writer() {
            Some(WriteTarget::Replicated(replicated)) => {
                return self.complete_replicated(lease, &replicated, closed, then);
            }
            Some(WriteTarget::Striped(striped)) => return self.complete_striped(lease, striped, closed, then),
            Some(WriteTarget::Local(writer)) => writer.complete(),
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
        self.commit_or_leave(lease, (len, Sums { adler32, crc32c }), closed, then);
    }

    /// What happens to a file that the store could not complete. `again`: a later attempt may succeed.
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

    /// Commits an object that the store has completed, unless it is an update in place that changed nothing.
    fn commit_or_leave(
        self: &Arc<Self>,
        lease: &Arc<Lease>,
        (len, sums): (u64, Sums),
        closed: ClosedBy,
        then: impl FnOnce(Result<(), Error>) + Send + 'static,
    ) {
        let content = Committed { len, sums: Some(sums), mtime: lease.mtime() };
        if lease.fresh || !lease.is_untouched() {
            return self.commit(lease, content, closed, then);
        }
        let (inner, kept) = (Arc::clone(self), Arc::clone(lease));
        self.leave_unchanged(lease, (len, sums), closed, move |left| {
            if left {
                kept.set_committed();
                inner.writes.lock().forget(kept.object);
                then(Ok(()));
            } else {
                let node = Arc::clone(&inner);
                inner.workers.submit_duty(Box::new(move || node.commit(&kept, content, closed, then)));
            }
        });
    }

    /// Ends an update in place if the file is the same as before. The store has `len` bytes with these `sums`. `then`
    /// is called once, on a thread of the engine; its argument says whether the update has ended.
    fn leave_unchanged(
        self: &Arc<Self>,
        lease: &Arc<Lease>,
        (len, sums): (u64, Sums),
        closed: ClosedBy,
        then: impl FnOnce(bool) + Send + 'static,
    ) {
        let (completion, request) = completion_of(closed);
        let op = EndUnchanged { writer: lease.token(), len, sums, certain: lease.is_unchanged(), completion };
        let by = By::caller(&lease.caller).numbered(request).urgently();
        // This need not be durable: after a power failure the update is found and ends in the same way.
        self.names.change(by, Durability::Written, op, move |result| match result {
            Ok(left) => then(left),
            // The following commit or mark meets the same error and handles it.
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
        closed: ClosedBy,
        then: impl FnOnce(Result<(), Error>) + Send + 'static,
    ) {
        let token = lease.token();
        let (completion, request) = completion_of(closed);
        let op = Commit { writer: token, content, completion };
        let (inner, lease) = (Arc::clone(self), Arc::clone(lease));
        let by = By::caller(&lease.caller).numbered(request);
        let early = self.settings.has(PlantedBug::AcknowledgeBeforeSync);
        let durability = if early { Durability::Written } else { Durability::Synced };
        self.names.change(by, durability, op, move |result: Result<CommitReply, NsError>| {
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
                            Stale::Renewed => node.commit(&lease, content, closed, then),
                            Stale::Ended | Stale::Unknown => then(Err(error)),
                        }
                    }));
                }
                // The namespace now lists it as an upload.
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

    /// The caller still has to end this entry: while it is closing or ending, a reopen is told to wait.
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

    /// Ends an open write that is not known to be complete: keeps and marks its durable data. The entry must be in
    /// the state `Closing` or `Ending`.
    pub(crate) fn interrupt(self: &Arc<Self>, lease: &Arc<Lease>) {
        lease.fence();
        match lease.writer() {
            Some(WriteTarget::Replicated(replicated)) => return self.interrupt_replicated(lease, &replicated),
            Some(WriteTarget::Striped(_)) => return self.give_up_striped(lease),
            Some(WriteTarget::Local(_)) | None => {}
        }
        let replica = ReplicaId::first(lease.object);
        let kept_len = match self.stores.of_replica(replica).and_then(|store| store.interrupt(replica)) {
            Ok(kept) => kept.len,
            Err(StoreError::NotFound { .. }) => self.len_without_object(lease.token(), &lease.path),
            Err(error) => {
                tracing::error!(path = %lease.path, %error, "cannot interrupt; trying again after another grace period");
                self.writes.lock().failed(lease.object, true, Instant::now());
                return;
            }
        };
        lease.drop_writer();
        self.mark_interrupted(lease, kept_len);
    }

    /// The length to record of a file whose object the store does not have. A new file may have none yet. A file that was changed in place or continued
    /// has lost it, and must not become an empty file: readers get an error.
    pub(crate) fn len_without_object(&self, token: WriterToken, path: &NsPath) -> u64 {
        let len = self.names.read(|read| {
            let record = namespace::writer_of(read, token.key, token.object)?;
            let is_visible = |record: &WriterRecord| !matches!(record.kind, WriterKind::Upload(_));
            let Some(record) = record.filter(is_visible) else { return Ok(None) };
            Ok::<_, NsError>(namespace::stat_ino(read, record.ino)?.content().map(|content| content.len))
        });
        let Ok(Some(len @ 1..)) = len else { return 0 };
        tracing::error!(%path, object = %token.object, "the object of a file that was being written again is missing: its bytes are lost");
        len
    }

    /// Marks the file as interrupted, unless it is an update in place that changed nothing.
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
        self.leave_unchanged(lease, (len, Sums { adler32, crc32c }), ClosedBy::GraceEnd, move |left| {
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
        let by = By::caller(&lease.caller).urgently();
        // A mark frees more space than it takes, so it is allowed on a full disk.
        self.names.change(by, Durability::Written, op, move |result| match result {
            Ok(_) => {
                audit::ended_without_client(&inner.settings.config.audit, &lease, "interrupt");
                inner.writes.lock().forget(lease.object);
            }
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

    /// Ends an open write whose writer has not returned within the grace period.
    pub(crate) fn end_of_grace(self: &Arc<Self>, due: &Due<Arc<Lease>>) {
        let lease = &due.lease;
        if lease.is_discarded() {
            return self.discard(lease, self.log_end(lease, "discard"));
        }
        lease.fence();
        lease.end_checkpoint();
        let spoiled = due.spoiled || lease.doubt().is_some();
        let replica = ReplicaId::first(due.object);
        let (len, gaps) = match lease.writer() {
            Some(writer) => (writer.len(), writer.gaps()),
            None => match self.stores.of_replica(replica).and_then(|store| store.status(replica)) {
                Ok(None) => return self.mark_interrupted(lease, self.len_without_object(lease.token(), &lease.path)),
                Ok(Some(status)) => match status.state {
                    // The client's close got as far as the store's record; only the namespace's record is missing.
                    ReplicaState::Complete { adler32, crc32c } if !spoiled => {
                        let found = (status.len, Sums { adler32, crc32c });
                        return self.commit_or_leave(lease, found, ClosedBy::GraceEnd, self.log_end(lease, "complete"));
                    }
                    ReplicaState::Complete { .. } => return self.mark_interrupted(lease, status.len),
                    ReplicaState::Interrupted => return self.mark_interrupted(lease, status.len),
                    ReplicaState::BeingWritten { prefix, .. } => (status.len, prefix < status.len),
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
            GraceEnd::Interrupt if self.settings.has(PlantedBug::CompleteEverything) => {
                self.complete(lease, ClosedBy::GraceEnd, self.log_end(lease, "complete"));
            }
            GraceEnd::Complete if !spoiled && lease.fresh => {
                tracing::info!(path = %lease.path, len, client = %lease.caller, "completed: all announced bytes are here, its close never came");
                self.complete(lease, ClosedBy::GraceEnd, self.log_end(lease, "complete"));
            }
            _ => self.interrupt(lease),
        }
    }

    /// Tells how the service has ended an open write.
    fn log_end(
        &self,
        lease: &Arc<Lease>,
        operation: &'static str,
    ) -> impl FnOnce(Result<(), Error>) + Send + use<> + 'static {
        let (lease, log) = (Arc::clone(lease), self.settings.config.audit.clone());
        move |result| match result {
            Ok(()) => audit::ended_without_client(&log, &lease, operation),
            Err(reason) => tracing::warn!(path = %lease.path, ?reason, "the end of a grace period"),
        }
    }

    /// Ends the caller's earlier uploads for `path` as at the end of their grace period: a client that opens the path
    /// again will not return to them. Operations that the caller submits later find them ended.
    pub(crate) fn end_own_uploads(self: &Arc<Self>, caller: &Caller, path: &NsPath) {
        for object in self.writes.own_detached_uploads(&self.names, caller, path) {
            let due = self.writes.lock().due_at_once(object);
            if let Some(due) = due {
                self.end_of_grace(&due);
            }
        }
    }

    /// Takes back an open in the namespace that the store then refused. Nothing was written. `request` is the number of
    /// the open, which can then be repeated. `then` is called once, on a thread of the
    /// engine.
    pub(crate) fn abandon(
        self: &Arc<Self>,
        token: WriterToken,
        request: Option<RequestNumber>,
        then: impl FnOnce() + Send + 'static,
    ) {
        let op = Abandon { writer: token, request };
        self.names.change(By::service().urgently(), Durability::Written, op, move |result| {
            if let Err(error) = result {
                tracing::error!(%error, "cannot take back an open");
            }
            then();
        });
    }

    /// Removes a new file of a batch that could not be written. Its client still has all the data. The entry must be
    /// in the state `Closing`.
    pub(crate) fn take_back(self: &Arc<Self>, lease: &Arc<Lease>, why: Error, answer: impl Answer<()>) {
        lease.fence();
        lease.drop_writer();
        let (inner, kept) = (Arc::clone(self), Arc::clone(lease));
        let by = By::caller(&lease.caller).urgently();
        self.names.change(by, Durability::Written, Abandon { writer: lease.token(), request: None }, move |result| {
            match result {
                Ok(_) => inner.writes.lock().forget(kept.object),
                Err(error) => {
                    tracing::debug!(path = %kept.path, %error, "an open cannot be taken back");
                    let node = Arc::clone(&inner);
                    inner.workers.submit_duty(Box::new(move || node.interrupt(&kept)));
                }
            }
            answer.give(Err(why));
        });
    }

    /// Marks `object` as interrupted in the store, as the namespace has done. Bytes may be lost, because the machine
    /// has rebooted or its disk has failed.
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

    /// Fences the writer of `object`, which the namespace has dropped. The deletion queue does the rest.
    pub(crate) fn dropped(self: &Arc<Self>, object: ObjectId) {
        let lease = self.writes.lock().lease(object);
        if let Some(lease) = lease {
            lease.fence();
        }
        self.writes.lock().forget(object);
    }

    /// Truncates or extends a complete file to `len` bytes, as an update in place by the server. The entry must be in
    /// the state `Closing`.
    pub(crate) fn truncate(
        self: &Arc<Self>,
        lease: &Arc<Lease>,
        len: u64,
        request: Option<RequestNumber>,
        answer: impl Answer<()>,
    ) {
        let replica = ReplicaId::first(lease.object);
        let done = self.stores.of_replica(replica).and_then(|store| store.reopen(replica)).and_then(|writer| {
            writer.truncate(len)?;
            writer.complete()
        });
        match done {
            Ok(completed) => {
                let sums = Sums { adler32: completed.adler32, crc32c: completed.crc32c };
                let content = Committed { len: completed.len, sums: Some(sums), mtime: None };
                self.commit(lease, content, ClosedBy::Client { request }, move |result| answer.give(result));
            }
            Err(error) => {
                // The file keeps its present data, without checksums if it was truncated.
                self.interrupt(lease);
                answer.give(Err(Error::of_store(&format_args!("truncate {}", lease.path), &error)));
            }
        }
    }
}

/// Why the namespace considers a writer stale although its entry is closing or ending.
enum Stale {
    /// A reopen has raised its epoch and was told to wait. The lease has the new epoch.
    Renewed,
    /// The namespace has ended it in another way. The entry is removed.
    Ended,
    /// Unknown at the moment. The entry waits.
    Unknown,
}

/// The party that completes a file, as the namespace knows it, and the number of its request.
fn completion_of(closed: ClosedBy) -> (Completion, Option<RequestNumber>) {
    match closed {
        ClosedBy::Client { request } => (Completion::ByClient, request),
        ClosedBy::GraceEnd => (Completion::AtGraceEnd, None),
    }
}
