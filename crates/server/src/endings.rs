//! How writers end: closed, completed by the server, interrupted, dropped. The order is always the same: the data is
//! durable, the store's record is appended, then the namespace's, then one sync of the log makes both durable, then
//! the answer goes out.
//!
//! These functions block (disk, a full queue of the committer): they run on workers, on the keeper, or on the
//! connection's own thread.

use std::sync::Arc;
use std::time::Instant;

use disk_server::Placed;
use namespace::{
    Abandon, Commit, CommitReply, Committed, Completion, Durability, EndUnchanged, GraceEnd, GraceFacts, Interrupt,
    NsError, Sums, WriterToken,
};
use store::{Completed, ReplicaState, ReplicaStatus, StoreError};
use types::{ClientIdentity, ObjectId, ReplicaId};
use wire::ErrorNumber;

use crate::answer::Reply;
use crate::config::Planted;
use crate::making::{Making, MakingError};
use crate::node::Node;
use crate::open_file::Lease;
use crate::refusal::Refusal;
use crate::striped::{StripedError, StripedFile};
use crate::writers::Due;

/// The client closes what it wrote; `doubt` is a reason not to take it for whole. The entry is in closing standing.
pub(crate) fn close(node: &Arc<Node>, lease: &Arc<Lease>, doubt: Option<Refusal>, reply: Reply) {
    let Some(writer) = lease.writer() else {
        node.writers.lock().failed(lease.object, false, Instant::now());
        return reply.refuse(&lease.ended());
    };
    // xrdcp closes its handle also after a copy that failed in the middle. What was announced tells.
    let short = lease
        .expected_len
        .filter(|&expected| lease.fresh && (writer.len() != expected || writer.gaps()))
        .filter(|_| !node.config.has(Planted::BelieveClose));
    let refused = match (doubt, short) {
        (Some(refusal), _) => Some(refusal),
        (None, Some(expected)) => {
            let gaps = if writer.gaps() { " with gaps" } else { "" };
            let text = format!(
                "Cannot close {} as complete: {expected} bytes were announced, and {}{gaps} have come; it is kept as interrupted",
                lease.path,
                writer.len()
            );
            Some(Refusal::new(ErrorNumber::FS_ERROR, text))
        }
        (None, None) => None,
    };
    drop(writer);
    if let Some(refusal) = refused {
        lease.set_failure(&refusal);
        interrupt(node, lease);
        return reply.refuse(&refusal);
    }
    complete(node, lease, Completion::ByClient, move |result| reply.settle(result));
}

/// Completes in the store and commits to the namespace. `then` is called once, perhaps on the responder.
fn complete(
    node: &Arc<Node>,
    lease: &Arc<Lease>,
    completion: Completion,
    then: impl FnOnce(Result<(), Refusal>) + Send + 'static,
) {
    let completed = match lease.writer() {
        Some(Making::Placed(placed)) => return complete_placed(node, lease, &placed, completion, then),
        Some(Making::Striped(striped)) => return complete_striped(node, lease, striped, completion, then),
        Some(Making::Here(writer)) => writer.complete(),
        None => {
            let replica = ReplicaId::first(lease.object);
            node.store_of(replica).and_then(|store| store.reopen(replica)).and_then(|writer| writer.complete())
        }
    };
    let completed = match completed {
        Ok(completed) => completed,
        Err(error) => {
            let again = !matches!(error, StoreError::Failed { .. } | StoreError::Disk(_));
            let refusal = Refusal::of_store(&format_args!("close {}", lease.path), &error);
            let refusal = refusal.of_close(&not_completed(node, lease, again));
            lease.set_failure(&refusal);
            node.writers.lock().failed(lease.object, true, Instant::now());
            return then(Err(refusal));
        }
    };
    lease.drop_writer();
    let Completed { len, adler32, crc32c, .. } = completed;
    commit_or_leave(node, lease, (len, Sums { adler32, crc32c }), completion, then);
}

/// The same in a cluster: all that take part make it durable, the manager makes it the file's content.
fn complete_placed(
    node: &Arc<Node>,
    lease: &Arc<Lease>,
    placed: &Arc<Placed>,
    completion: Completion,
    then: impl FnOnce(Result<(), Refusal>) + Send + 'static,
) {
    let (inner, kept) = (Arc::clone(node), Arc::clone(lease));
    placed.close(lease.mtime(), completion == Completion::AtGraceEnd, move |result| {
        let refusal = match result {
            Ok(()) => {
                kept.drop_writer();
                kept.set_committed();
                inner.writers.lock().forget(kept.object);
                return then(Ok(()));
            }
            Err(error) => Refusal::of_placed(&format_args!("close {}", kept.path), &error),
        };
        kept.set_failure(&refusal);
        ended_or_waits(&inner, &kept, &refusal);
        then(Err(refusal));
    });
}

/// The same of a striped file, in a thread of its own: it waits for other servers, which may wait for this one's workers.
fn complete_striped(
    node: &Arc<Node>,
    lease: &Arc<Lease>,
    striped: Arc<dyn StripedFile>,
    completion: Completion,
    then: impl FnOnce(Result<(), Refusal>) + Send + 'static,
) {
    if completion == Completion::AtGraceEnd {
        tracing::info!(path = %lease.path, "its writer went away; its stripe units are closed");
    }
    let (inner, kept) = (Arc::clone(node), Arc::clone(lease));
    node.apart(then, move |then| {
        let done = striped.complete(kept.mtime());
        let failed = |error: StripedError| MakingError::from(error).refusal(&format_args!("close {}", kept.path));
        let result = done.map_err(failed);
        match &result {
            Ok(()) => {
                kept.drop_writer();
                kept.set_committed();
                inner.writers.lock().forget(kept.object);
            }
            Err(refusal) => {
                kept.set_failure(refusal);
                inner.writers.lock().failed(kept.object, true, Instant::now());
            }
        }
        then(result);
    });
}

/// Its units are given up: their servers mark what is kept of each, and the manager the file when that is done.
fn give_up_striped(node: &Arc<Node>, lease: &Arc<Lease>) {
    tracing::info!(path = %lease.path, client = %lease.client.host, "its writer went away; its stripe units are abandoned");
    lease.drop_writer();
    node.writers.lock().forget(lease.object);
}

/// A content that somebody else goes on with is none of this node's any more; another one waits a grace period more.
fn ended_or_waits(node: &Node, lease: &Lease, why: &Refusal) {
    let mut writers = node.writers.lock();
    if matches!(why, Refusal::Redirect(_)) {
        writers.forget(lease.object);
    } else {
        writers.failed(lease.object, true, Instant::now());
    }
}

fn interrupt_placed(node: &Arc<Node>, lease: &Arc<Lease>, placed: &Arc<Placed>) {
    let (inner, kept) = (Arc::clone(node), Arc::clone(lease));
    placed.interrupt(move |result| match result {
        Ok(kept_len) => {
            tracing::info!(path = %kept.path, kept_len, client = %kept.client.host, "interrupted: its writer went away");
            kept.drop_writer();
            inner.writers.lock().forget(kept.object);
        }
        Err(error) => {
            let refusal = Refusal::of_placed(&format_args!("interrupt {}", kept.path), &error);
            tracing::info!(path = %kept.path, %error, "cannot interrupt a file");
            ended_or_waits(&inner, &kept, &refusal);
        }
    });
}

/// What becomes of a file that the store could not complete; `again`: it may be able to later.
fn not_completed(node: &Node, lease: &Lease, again: bool) -> String {
    let grace = node.times().grace.as_secs();
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
    node: &Arc<Node>,
    lease: &Arc<Lease>,
    (len, sums): (u64, Sums),
    completion: Completion,
    then: impl FnOnce(Result<(), Refusal>) + Send + 'static,
) {
    let content = Committed { len, sums: Some(sums), mtime: lease.mtime() };
    if lease.fresh || !lease.is_untouched() {
        return commit(node, lease, content, completion, then);
    }
    let (inner, kept) = (Arc::clone(node), Arc::clone(lease));
    leave_unchanged(node, lease, (len, sums), completion, move |left| {
        if left {
            kept.set_committed();
            inner.writers.lock().forget(kept.object);
            then(Ok(()));
        } else {
            let node = Arc::clone(&inner);
            inner.workers.submit_duty(Box::new(move || commit(&node, &kept, content, completion, then)));
        }
    });
}

/// Ends an update in place if the file, of which the store has `len` bytes and `sums`, is what it was before. `then` is called once, on
/// the responder, and told whether it has ended so.
fn leave_unchanged(
    node: &Arc<Node>,
    lease: &Arc<Lease>,
    (len, sums): (u64, Sums),
    completion: Completion,
    then: impl FnOnce(bool) + Send + 'static,
) {
    let op = EndUnchanged { writer: lease.token(), len, sums, certain: lease.is_unchanged(), completion };
    // Nothing hangs on its being durable: after a power failure the update is found, and ends in the same way again.
    node.change_urgent(Durability::Written, op, move |result| match result {
        Ok(left) => then(left),
        // Whatever it is, the commit or the mark meets it too, and knows what to do.
        Err(error) => {
            tracing::debug!(%error, "an update cannot be ended as unchanged");
            then(false);
        }
    });
}

fn commit(
    node: &Arc<Node>,
    lease: &Arc<Lease>,
    content: Committed,
    completion: Completion,
    then: impl FnOnce(Result<(), Refusal>) + Send + 'static,
) {
    let token = lease.token();
    let op = Commit { writer: token, content, completion };
    let (inner, lease) = (Arc::clone(node), Arc::clone(lease));
    let early = node.config.has(Planted::AcknowledgeBeforeSync);
    let durability = if early { Durability::Written } else { Durability::Synced };
    node.change(durability, op, move |result: Result<CommitReply, NsError>| {
        match result {
            Ok(_) => {
                lease.set_committed();
                inner.writers.lock().forget(lease.object);
                then(Ok(()));
            }
            Err(error @ NsError::Stale { .. }) => {
                let node = Arc::clone(&inner);
                inner.workers.submit_duty(Box::new(move || {
                    let refusal = Refusal::of_namespace(&format_args!("close {}:", lease.path), &error);
                    lease.set_failure(&refusal);
                    match after_stale(&node, &lease, token) {
                        Stale::Renewed => commit(&node, &lease, content, completion, then),
                        Stale::Ended | Stale::Unknown => then(Err(refusal)),
                    }
                }));
            }
            // It has its place in the namespace's list of uploads now.
            Err(error @ NsError::UploadKept { .. }) => {
                let refusal = Refusal::of_namespace(&"close", &error);
                lease.set_failure(&refusal);
                inner.writers.lock().forget(lease.object);
                then(Err(refusal));
            }
            Err(error) => {
                let refusal = Refusal::of_namespace(&format_args!("close {}", lease.path), &error).of_close(&format_args!(
                    "what was written is kept whole, and the server tries again in {} s if no client opens it for update and closes it before",
                    inner.times().grace.as_secs()
                ));
                lease.set_failure(&refusal);
                inner.writers.lock().failed(lease.object, false, Instant::now());
                then(Err(refusal));
            }
        }
    });
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

/// The end of the entry is still this caller's: while it is closing or ending, a re-open gets nothing but a wait.
fn after_stale(node: &Node, lease: &Lease, used: WriterToken) -> Stale {
    match node.read_names(|read| namespace::find_writer(read, &lease.client, &lease.path)) {
        Ok(found) => {
            match found.iter().map(namespace::WriterRecord::token).find(|token| token.object == lease.object) {
                Some(token) if token != used => {
                    lease.renew(token);
                    Stale::Renewed
                }
                Some(_) => {
                    node.writers.lock().failed(lease.object, false, Instant::now());
                    Stale::Unknown
                }
                None => {
                    node.writers.lock().forget(lease.object);
                    Stale::Ended
                }
            }
        }
        Err(error) => {
            tracing::error!(path = %lease.path, %error, "cannot look for a writer; trying again after another grace period");
            node.writers.lock().failed(lease.object, false, Instant::now());
            Stale::Unknown
        }
    }
}

/// Ends a writer whose content is not known to be whole: what is durable is kept and marked. The entry is in closing
/// or ending standing.
pub(crate) fn interrupt(node: &Arc<Node>, lease: &Arc<Lease>) {
    lease.fence();
    match lease.writer() {
        Some(Making::Placed(placed)) => return interrupt_placed(node, lease, &placed),
        Some(Making::Striped(_)) => return give_up_striped(node, lease),
        Some(Making::Here(_)) | None => {}
    }
    let replica = ReplicaId::first(lease.object);
    let kept_len = match node.store_of(replica).and_then(|store| store.interrupt(replica)) {
        Ok(kept_len) => kept_len,
        Err(StoreError::NotFound { .. }) => 0,
        Err(error) => {
            tracing::error!(path = %lease.path, %error, "cannot interrupt; trying again after another grace period");
            node.writers.lock().failed(lease.object, true, Instant::now());
            return;
        }
    };
    lease.drop_writer();
    mark_interrupted(node, lease, kept_len);
}

/// Marks it, unless it is an update in place that has come to nothing: such a file is what it was.
fn mark_interrupted(node: &Arc<Node>, lease: &Arc<Lease>, kept_len: u64) {
    let replica = ReplicaId::first(lease.object);
    let status = if lease.fresh { Ok(None) } else { node.store_of(replica).and_then(|store| store.status(replica)) };
    let Ok(Some(ReplicaStatus { len, state: ReplicaState::Complete { adler32, crc32c }, .. })) = status else {
        return mark(node, lease, kept_len);
    };
    let (inner, kept) = (Arc::clone(node), Arc::clone(lease));
    leave_unchanged(node, lease, (len, Sums { adler32, crc32c }), Completion::AtGraceEnd, move |left| {
        if left {
            tracing::info!(path = %kept.path, client = %kept.client.host, "its writer went away and had changed nothing");
            inner.writers.lock().forget(kept.object);
        } else {
            let node = Arc::clone(&inner);
            inner.workers.submit_duty(Box::new(move || mark(&node, &kept, kept_len)));
        }
    });
}

fn mark(node: &Arc<Node>, lease: &Arc<Lease>, kept_len: u64) {
    tracing::info!(path = %lease.path, kept_len, client = %lease.client.host, "interrupted: its writer went away");
    let token = lease.token();
    let op = Interrupt { writer: token, kept_len };
    let (inner, lease) = (Arc::clone(node), Arc::clone(lease));
    // A mark frees more than it takes: it goes through on a full disk.
    node.change_urgent(Durability::Written, op, move |result| match result {
        Ok(_) => inner.writers.lock().forget(lease.object),
        Err(NsError::Stale { .. }) => {
            let node = Arc::clone(&inner);
            inner.workers.submit_duty(Box::new(move || {
                if matches!(after_stale(&node, &lease, token), Stale::Renewed) {
                    mark(&node, &lease, kept_len);
                }
            }));
        }
        Err(error) => {
            tracing::error!(%error, "cannot mark a file interrupted; trying again after another grace period");
            inner.writers.lock().failed(lease.object, true, Instant::now());
        }
    });
}

/// The grace period is over and nobody came back.
pub(crate) fn end_of_grace(node: &Arc<Node>, due: &Due<Arc<Lease>>) {
    let lease = &due.lease;
    lease.fence();
    lease.end_checkpoint();
    let spoiled = due.spoiled || lease.doubt().is_some();
    let replica = ReplicaId::first(due.object);
    let (len, gaps) = match lease.writer() {
        Some(writer) => (writer.len(), writer.gaps()),
        None => match node.store_of(replica).and_then(|store| store.status(replica)) {
            Ok(None) => return mark_interrupted(node, lease, 0),
            Ok(Some(status)) => match status.state {
                // The client's close got as far as the store's record; only the namespace's is missing.
                ReplicaState::Complete { adler32, crc32c } if !spoiled => {
                    let found = (status.len, Sums { adler32, crc32c });
                    return commit_or_leave(node, lease, found, Completion::AtGraceEnd, log_end(lease));
                }
                ReplicaState::Complete { .. } => return mark_interrupted(node, lease, status.len),
                ReplicaState::Interrupted => return mark_interrupted(node, lease, status.len),
                ReplicaState::InMaking { prefix, .. } => (status.len, prefix < status.len),
                ReplicaState::Dirty => (status.len, true),
            },
            Err(error) => {
                tracing::error!(path = %lease.path, %error, "cannot end a writer; trying again later");
                node.writers.lock().failed(due.object, true, Instant::now());
                return;
            }
        },
    };
    let facts =
        GraceFacts { gaps, len, expected_len: lease.expected_len, wrote_in: lease.boot, boot: node.config.boot };
    match namespace::at_grace_end(&facts) {
        GraceEnd::Interrupt if node.config.has(Planted::CompleteEverything) => {
            complete(node, lease, Completion::AtGraceEnd, log_end(lease));
        }
        GraceEnd::Complete if !spoiled && lease.fresh => {
            tracing::info!(path = %lease.path, len, "completed: all announced bytes are here, its close never came");
            complete(node, lease, Completion::AtGraceEnd, log_end(lease));
        }
        _ => interrupt(node, lease),
    }
}

/// The uploads of `client` for `path` that wait for it to come back.
pub(crate) fn own_detached_uploads(node: &Node, client: &ClientIdentity, path: &types::NsPath) -> Vec<ObjectId> {
    let mut found = node.read_names(|read| namespace::find_writer(read, client, path)).unwrap_or_default();
    let writers = node.writers.lock();
    found
        .retain(|record| matches!(record.kind, namespace::WriterKind::Upload(_)) && writers.is_detached(record.object));
    found.into_iter().map(|record| record.object).collect()
}

/// A client that opens `path` anew will not come back to what it was uploading there before: that ends now, as at the
/// end of its grace period. What the caller submits next finds it ended.
pub(crate) fn end_own_uploads(node: &Arc<Node>, client: &ClientIdentity, path: &types::NsPath) {
    for object in own_detached_uploads(node, client, path) {
        let due = node.writers.lock().due_at_once(object);
        if let Some(due) = due {
            end_of_grace(node, &due);
        }
    }
}

fn log_end(lease: &Arc<Lease>) -> impl FnOnce(Result<(), Refusal>) + Send + 'static {
    let path = lease.path.clone();
    move |result| {
        if let Err(reason) = result {
            tracing::warn!(%path, ?reason, "the end of a grace period");
        }
    }
}

/// An open that the store refused right after the namespace had agreed: nothing was written.
pub(crate) fn abandon(node: &Arc<Node>, token: WriterToken) {
    node.change_urgent(Durability::Written, Abandon { writer: token }, |result| {
        if let Err(error) = result {
            tracing::error!(%error, "cannot take back an open");
        }
    });
}

/// A new file of a batch could not be written: its client has all of it still, and nothing of it is left here. The entry is in closing standing.
pub(crate) fn take_back(node: &Arc<Node>, lease: &Arc<Lease>, why: Refusal, reply: Reply) {
    lease.fence();
    lease.drop_writer();
    let (inner, kept) = (Arc::clone(node), Arc::clone(lease));
    node.change_urgent(Durability::Written, Abandon { writer: lease.token() }, move |result| {
        match result {
            Ok(_) => inner.writers.lock().forget(kept.object),
            Err(error) => {
                tracing::debug!(path = %kept.path, %error, "an open cannot be taken back");
                let node = Arc::clone(&inner);
                inner.workers.submit_duty(Box::new(move || interrupt(&node, &kept)));
            }
        }
        reply.refuse(&why);
    });
}

/// The namespace has marked `object` interrupted because bytes may be gone (the machine has booted, or its disk has failed): so does the store.
pub(crate) fn lost(node: &Arc<Node>, object: ObjectId) {
    let lease = node.writers.lock().lease(object);
    if let Some(lease) = lease {
        lease.fence();
        lease.drop_writer();
    }
    node.writers.lock().forget(object);
    let replica = ReplicaId::first(object);
    if let Err(error) = node.store_of(replica).and_then(|store| store.interrupt(replica)) {
        tracing::warn!(%object, %error, "cannot mark a replica interrupted");
    }
}

/// The namespace has given `object` up: its writer is fenced, the deletion queue does the rest.
pub(crate) fn dropped(node: &Arc<Node>, object: ObjectId) {
    let lease = node.writers.lock().lease(object);
    if let Some(lease) = lease {
        lease.fence();
    }
    node.writers.lock().forget(object);
}

/// The same as [`truncate`] in a cluster: on all stores that take part.
pub(crate) fn truncate_placed(node: &Arc<Node>, lease: &Arc<Lease>, placed: &Arc<Placed>, len: u64, reply: Reply) {
    match placed.truncate(len) {
        Ok(()) => complete_placed(node, lease, placed, Completion::ByClient, move |result| reply.settle(result)),
        Err(error) => {
            // Nobody knows where it was cut: what stands now is the file, without its checksums.
            interrupt(node, lease);
            reply.refuse(&Refusal::of_placed(&format_args!("truncate {}", lease.path), &error));
        }
    }
}

/// Cuts or extends a complete file to `len`: an update in place by the server itself. The entry is in closing standing.
pub(crate) fn truncate(node: &Arc<Node>, lease: &Arc<Lease>, len: u64, reply: Reply) {
    let replica = ReplicaId::first(lease.object);
    let done = node.store_of(replica).and_then(|store| store.reopen(replica)).and_then(|writer| {
        writer.truncate(len)?;
        writer.complete()
    });
    match done {
        Ok(completed) => {
            let sums = Sums { adler32: completed.adler32, crc32c: completed.crc32c };
            let content = Committed { len: completed.len, sums: Some(sums), mtime: None };
            commit(node, lease, content, Completion::ByClient, move |result| reply.settle(result));
        }
        Err(error) => {
            // What stands now is the file, without its checksums if it was cut.
            interrupt(node, lease);
            reply.refuse(&Refusal::of_store(&format_args!("truncate {}", lease.path), &error));
        }
    }
}
