//! The once-a-second work: open writers are synced, grace periods end, deleted contents go, kept uploads are
//! forgotten in time.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use namespace::{
    DeletionDone, DropTombstones, DueDeletion, Durability, ForgetUpload, NsError, WriterKind, WriterRecord,
};
use parking_lot::{Condvar, Mutex};
use types::{NsPath, ObjectId, ReplicaId, UploadId};

use crate::config::Planted;
use crate::endings;
use crate::node::{Node, Role, wall_clock};
use crate::open_file::{Lease, LeaseFacts, LeaseState};
use crate::writers::Owner;

/// Writers whose end is begun in one round.
const ENDINGS_PER_ROUND: usize = 256;
/// Bodies that are deleted in one transaction.
const DELETIONS_PER_BATCH: usize = 1024;
/// Batches of deletions in one round, so that the other work is not put off.
const BATCHES_PER_ROUND: usize = 16;
/// Records looked at in one step.
const PAGE: usize = 1024;
/// Uploads and tombstones are looked at once in so many rounds.
const ROUNDS_PER_SWEEP: u64 = 60;
/// Transfer buffers that stay when nobody uses them.
const BUFFERS_KEPT: usize = 4;

/// The keeper's thread.
pub(crate) struct Keeper {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    stopping: Mutex<bool>,
    wake: Condvar,
}

impl Keeper {
    /// Starts it.
    pub(crate) fn start(node: Arc<Node>) -> std::io::Result<Self> {
        let shared = Arc::new(Shared { stopping: Mutex::new(false), wake: Condvar::new() });
        let inner = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("keeper".into()).stack_size(512 << 10).spawn(move || {
            let mut round = 0u64;
            let mut strays = Strays::default();
            loop {
                let mut stopping = inner.stopping.lock();
                if !*stopping {
                    inner.wake.wait_for(&mut stopping, node.times().keeper);
                }
                if *stopping {
                    return;
                }
                drop(stopping);
                // The rest of the node lives by this thread.
                let work = std::panic::AssertUnwindSafe(|| one_round(&node, round, &mut strays));
                if std::panic::catch_unwind(work).is_err() {
                    tracing::error!(round, "the keeper's round panicked; it goes on with the next");
                }
                round += 1;
            }
        })?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Whether the thread has ended, which it does not by itself.
    pub(crate) fn ended(&self) -> bool {
        self.thread.lock().as_ref().is_some_and(JoinHandle::is_finished)
    }

    /// Ends it.
    pub(crate) fn stop(&self) {
        *self.shared.stopping.lock() = true;
        self.shared.wake.notify_all();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the keeper had panicked");
        }
    }
}

fn one_round(node: &Arc<Node>, round: u64, strays: &mut Strays) {
    let began = Instant::now();
    for store in node.stores() {
        if let Err(error) = store.tick() {
            complain(node, "the store's regular work", &error);
        }
    }
    match node.space_of_all() {
        Ok(space) => node.floor_reached.store(space.floor_reached, Ordering::Relaxed),
        Err(error) => complain(node, "looking at the free space", &error),
    }
    end_writers(node);
    node.rendezvous.expire(began);
    // In a cluster the manager has contents deleted, and looks for writers that nobody waits for.
    let is_alone = matches!(node.role, Role::Alone { .. });
    if is_alone && let Err(error) = delete_objects(node) {
        complain(node, "deleting objects", &error);
    }
    if round.is_multiple_of(ROUNDS_PER_SWEEP) {
        if !node.config.keep_uploads
            && !matches!(node.role, Role::Disk(_))
            && let Err(error) = forget_uploads(node)
        {
            complain(node, "forgetting uploads", &error);
        }
        if is_alone && let Err(error) = strays.look(node) {
            complain(node, "looking for writers whose grace period is over", &error);
        }
        node.buffers.trim(BUFFERS_KEPT);
    }
    let took = began.elapsed();
    if took > Duration::from_secs(5) {
        tracing::warn!(?took, "a round of the keeper took long; the disk is slow");
    }
}

fn complain(node: &Node, what: &str, error: &dyn std::fmt::Display) {
    if let Some(held_back) = node.alarms.admit(Instant::now()) {
        tracing::error!(%error, held_back, "{what} failed");
    }
}

fn end_writers(node: &Arc<Node>) {
    let due = node.writers.lock().due(Instant::now(), ENDINGS_PER_ROUND);
    for due in due {
        let inner = Arc::clone(node);
        if due.lease.is_striped {
            // It asks other servers, which may ask this one's workers.
            node.apart(due, move |due| endings::end_of_grace(&inner, &due));
            continue;
        }
        if let Err(job) = node.workers.submit(Box::new(move || endings::end_of_grace(&inner, &due))) {
            job();
        }
    }
}

/// Takes contents off the deletion queue: first the store forgets them, then the queue.
fn delete_objects(node: &Node) -> Result<(), NsError> {
    let mut after: Option<DueDeletion> = None;
    for _ in 0..BATCHES_PER_ROUND {
        let due = node.read_names(|read| namespace::due_deletions(read, after, DELETIONS_PER_BATCH))?;
        let full = due.len() == DELETIONS_PER_BATCH;
        after = due.last().copied();
        let mut done = Vec::new();
        for deletion in due {
            match node
                .store_of(ReplicaId::first(deletion.object))
                .and_then(|store| store.delete(ReplicaId::first(deletion.object)))
            {
                Ok(()) => done.push(deletion),
                Err(error) => complain(node, "deleting an object", &error),
            }
        }
        if !done.is_empty() {
            node.change_urgent_wait(Durability::Written, DeletionDone { done })?;
        }
        if !full {
            break;
        }
    }
    Ok(())
}

fn forget_uploads(node: &Arc<Node>) -> Result<(), NsError> {
    let mut after: Option<UploadId> = None;
    loop {
        let (due, next) = node.read_names(|read| namespace::due_uploads(read, wall_clock(), after, PAGE))?;
        for upload in due {
            tracing::info!(path = %upload.path.escape_ascii(), upload = %upload.upload, "a kept upload has expired");
            let op = ForgetUpload { upload: upload.upload };
            match node.change_urgent_wait(Durability::Written, op) {
                Ok(object) => endings::dropped(node, object),
                // One that is damaged keeps nobody else's from being forgotten.
                Err(error @ NsError::Damaged { .. }) => complain(node, "removing an upload", &error),
                Err(error) => return Err(error),
            }
        }
        after = next;
        if after.is_none() {
            break;
        }
    }
    let mut after: Option<u64> = None;
    loop {
        let op = DropTombstones { after, limit: u32::try_from(PAGE).unwrap_or(u32::MAX) };
        after = node.change_wait(Durability::Written, op)?;
        if after.is_none() || node.stopping() {
            return Ok(());
        }
    }
}

/// Writers that nobody would ever end: those of the namespace without an entry here, and entries that are attached to
/// a session that is gone. There should be none; each would keep its file from everybody until the next start.
/// What is seen so in two looks, a minute apart, gets a grace period.
#[derive(Default)]
struct Strays {
    unknown: HashSet<ObjectId>,
    orphaned: HashSet<(ObjectId, Owner)>,
}

impl Strays {
    fn look(&mut self, node: &Arc<Node>) -> Result<(), NsError> {
        let mut unknown = HashSet::new();
        let mut after = None;
        loop {
            let records = node.read_names(|read| namespace::writers(read, after, PAGE))?;
            let Some(last) = records.last() else { break };
            after = Some((last.key, last.object));
            let mut writers = node.writers.lock();
            for record in &records {
                if writers.lease(record.object).is_some() {
                    continue;
                }
                if self.unknown.contains(&record.object) {
                    tracing::warn!(object = %record.object, path = %record.path.escape_ascii(), "a writer was left behind; it gets a grace period");
                    writers.found(record.object, lease_of(node, record), Instant::now());
                } else {
                    unknown.insert(record.object);
                }
            }
        }
        self.unknown = unknown;
        let sessions: HashSet<u64> = node.sessions.lock().keys().copied().collect();
        let mut writers = node.writers.lock();
        let mut orphaned: HashSet<_> = writers.attached().filter(|(_, owner)| !sessions.contains(&owner.0)).collect();
        for (object, owner) in orphaned.intersection(&self.orphaned) {
            tracing::warn!(%object, "a writer's session is gone; it gets a grace period");
            writers.detach(*object, *owner, false, Instant::now());
        }
        orphaned.retain(|pair| !self.orphaned.contains(pair));
        self.orphaned = orphaned;
        Ok(())
    }
}

/// Takes up the writers that an earlier run of the server has left: each gets a full grace period from now on.
pub(crate) fn find_writers(node: &Arc<Node>) -> Result<usize, NsError> {
    let mut after = None;
    let mut found = 0;
    if node.config.has(Planted::ForgetWriters) || !matches!(node.role, Role::Alone { .. }) {
        return Ok(0);
    }
    loop {
        let records = node.read_names(|read| namespace::writers(read, after, PAGE))?;
        let Some(last) = records.last() else { return Ok(found) };
        after = Some((last.key, last.object));
        found += records.len();
        let now = Instant::now();
        let mut writers = node.writers.lock();
        for record in &records {
            if record.boot != node.config.boot {
                node.old_boots.store(true, Ordering::Relaxed);
            }
            writers.found(record.object, lease_of(node, record), now);
        }
    }
}

fn lease_of(node: &Node, record: &WriterRecord) -> Arc<Lease> {
    // It is the same machine's as it was at the open.
    let peer = record.client.host.parse().unwrap_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED));

    let facts = LeaseFacts {
        path: NsPath::parse(&record.path).unwrap_or_else(|_| NsPath::root()),
        client: Arc::new(record.client.clone()),
        fresh: record.kind != WriterKind::Update,
        begun: false,
        expected_len: record.expected_len,
        boot: record.boot,
        room: Some(node.writer_memory.take_regardless(peer, record.expected_len)),
    };
    let state = LeaseState { owner: None, token: record.token(), writer: None };
    Lease::new((record.ino, record.object), facts, state)
}
