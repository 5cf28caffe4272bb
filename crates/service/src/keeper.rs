//! Housekeeping, once a second: syncs open writes, ends grace periods, deletes objects, and removes expired uploads.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use namespace::{
    DeletionDone, DropTombstones, DueDeletion, Durability, ForgetUpload, NsError, WriterKind, WriterRecord,
};
use parking_lot::{Condvar, Mutex};
use types::{NsPath, ObjectId, ReplicaId, UploadId};

use crate::caller::{Caller, Principal, Rights};
use crate::config::PlantedBug;
use crate::lease::{Lease, LeaseFacts, LeaseState};
use crate::names::{By, wall_clock};
use crate::open_writes::lose_session;
use crate::service::{Role, Service};
use crate::sharers::Sharers;
use crate::workers::apart;
use crate::writers::Owner;

/// Open writes that one round ends.
const ENDINGS_PER_ROUND: usize = 256;
/// Objects that one transaction deletes.
const DELETIONS_PER_BATCH: usize = 1024;
/// Batches of deletions in one round, so that they do not delay the other work.
const BATCHES_PER_ROUND: usize = 16;
/// Records read in one step.
const PAGE: usize = 1024;
/// The number of rounds between two sweeps of uploads and tombstones.
const ROUNDS_PER_SWEEP: u64 = 60;
/// Unused transfer buffers to keep.
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
    /// A keeper that is not yet running.
    pub(crate) fn new() -> Self {
        let shared = Arc::new(Shared { stopping: Mutex::new(false), wake: Condvar::new() });
        Self { shared, thread: Mutex::new(None) }
    }

    /// Starts the thread. It ends with [`Keeper::stop`], or when the service is dropped.
    pub(crate) fn start(&self, service: &Arc<Service>) -> std::io::Result<()> {
        let inner = Arc::clone(&self.shared);
        let (service, settings) = (Arc::downgrade(service), Arc::clone(&service.settings));
        let thread = std::thread::Builder::new().name("keeper".into()).stack_size(512 << 10).spawn(move || {
            let mut round = 0u64;
            let mut strays = Strays::default();
            loop {
                let mut stopping = inner.stopping.lock();
                if !*stopping {
                    inner.wake.wait_for(&mut stopping, settings.times().keeper);
                }
                if *stopping {
                    return;
                }
                drop(stopping);
                let Some(service) = service.upgrade() else { return };
                // The rest of the node depends on this thread.
                let work = std::panic::AssertUnwindSafe(|| one_round(&service, round, &mut strays));
                if std::panic::catch_unwind(work).is_err() {
                    tracing::error!(round, "the keeper's round panicked; it goes on with the next");
                }
                round += 1;
            }
        })?;
        *self.thread.lock() = Some(thread);
        Ok(())
    }

    /// Whether the thread has ended without a stop.
    pub(crate) fn ended(&self) -> bool {
        self.thread.lock().as_ref().is_some_and(JoinHandle::is_finished)
    }

    /// Ends the thread.
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

fn one_round(service: &Arc<Service>, round: u64, strays: &mut Strays) {
    let began = Instant::now();
    for store in service.stores.all() {
        if let Err(error) = store.tick() {
            complain(service, "the store's regular work", &error);
        }
    }
    match service.stores.space() {
        Ok(space) => service.stores.set_floor_reached(space.floor_reached),
        Err(error) => complain(service, "looking at the free space", &error),
    }
    end_writers(service);
    service.third_party.rendezvous.expire(began);
    // In a cluster the manager deletes objects and looks for stray writers.
    let is_alone = matches!(service.role, Role::Alone { .. });
    if is_alone && let Err(error) = delete_objects(service) {
        complain(service, "deleting objects", &error);
    }
    if round.is_multiple_of(ROUNDS_PER_SWEEP) {
        if !service.settings.config.keep_uploads
            && service.has_names()
            && let Err(error) = forget_uploads(service)
        {
            complain(service, "forgetting uploads", &error);
        }
        if is_alone && let Err(error) = strays.look(service) {
            complain(service, "looking for writers whose grace period is over", &error);
        }
        service.buffers.trim(BUFFERS_KEPT);
    }
    let took = began.elapsed();
    if took > Duration::from_secs(5) {
        tracing::warn!(?took, "a round of the keeper took long; the disk is slow");
    }
}

fn complain(service: &Service, what: &str, error: &dyn std::fmt::Display) {
    if let Some(held_back) = service.alarms.admit(Instant::now()) {
        tracing::error!(%error, held_back, "{what} failed");
    }
}

fn end_writers(service: &Arc<Service>) {
    let due = service.writes.lock().due(Instant::now(), ENDINGS_PER_ROUND);
    for due in due {
        let inner = Arc::clone(&service.endings);
        if due.lease.is_striped {
            // This waits for other servers, which may wait for this server's workers.
            apart(due, move |due| inner.end_of_grace(&due));
            continue;
        }
        if let Err(job) = service.workers.submit(Box::new(move || inner.end_of_grace(&due))) {
            job();
        }
    }
}

/// Deletes the objects in the deletion queue: first from the store, then from the queue.
fn delete_objects(service: &Service) -> Result<(), NsError> {
    let mut after: Option<DueDeletion> = None;
    for _ in 0..BATCHES_PER_ROUND {
        let due = service.names.read(|read| namespace::due_deletions(read, after, DELETIONS_PER_BATCH))?;
        let full = due.len() == DELETIONS_PER_BATCH;
        after = due.last().copied();
        let mut done = Vec::new();
        for deletion in due {
            let replica = ReplicaId::first(deletion.object);
            match service.stores.of_replica(replica).and_then(|store| store.delete(replica)) {
                Ok(()) => done.push(deletion),
                Err(error) => complain(service, "deleting an object", &error),
            }
        }
        if !done.is_empty() {
            service.names.change_wait(By::service().urgently(), Durability::Written, DeletionDone { done })?;
        }
        if !full {
            break;
        }
    }
    Ok(())
}

fn forget_uploads(service: &Arc<Service>) -> Result<(), NsError> {
    // After a restore from a backup, an upload of that time may have become a file since.
    if service.names.read(namespace::restored)?.is_some_and(|restored| restored.is_held) {
        return Ok(());
    }
    let mut after: Option<UploadId> = None;
    loop {
        let now = wall_clock();
        let (due, next) = service.names.read(|read| namespace::due_uploads(read, now, after, PAGE))?;
        for upload in due {
            let op = ForgetUpload { upload: upload.upload, expired_by: Some(now) };
            match service.names.change_wait(By::service().urgently(), Durability::Written, op) {
                Ok(object) => {
                    tracing::info!(path = %upload.path.escape_ascii(), upload = %upload.upload, "a kept upload has expired");
                    service.endings.dropped(object);
                }
                // Somebody has resumed or forgotten it meanwhile.
                Err(NsError::Stale { .. } | NsError::NotFound(..)) => {}
                // A damaged upload must not keep others from being removed.
                Err(error @ NsError::Damaged { .. }) => complain(service, "removing an upload", &error),
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
        after = service.names.change_wait(By::service(), Durability::Written, op)?;
        if after.is_none() || service.is_stopping() {
            return Ok(());
        }
    }
}

/// Finds writers that would never end: writers in the namespace without an entry here, and entries whose session is
/// gone. There should be none. Each would lock its file until the next start. A writer that is found in two sweeps, a
/// minute apart, gets a grace period.
#[derive(Default)]
struct Strays {
    unknown: HashSet<ObjectId>,
    orphaned: HashSet<(ObjectId, Owner)>,
}

impl Strays {
    fn look(&mut self, service: &Arc<Service>) -> Result<(), NsError> {
        let mut unknown = HashSet::new();
        let mut after = None;
        loop {
            let records = service.names.read(|read| namespace::writers(read, after, PAGE))?;
            let Some(last) = records.last() else { break };
            after = Some((last.key, last.object));
            let mut writers = service.writes.lock();
            for record in &records {
                if writers.lease(record.object).is_some() {
                    continue;
                }
                if self.unknown.contains(&record.object) {
                    tracing::warn!(object = %record.object, path = %record.path.escape_ascii(), "a writer was left behind; it gets a grace period");
                    writers.found(record.object, lease_of(service, record), Instant::now());
                } else {
                    unknown.insert(record.object);
                }
            }
        }
        self.unknown = unknown;
        let sessions: HashSet<u64> = service.sessions.all().iter().map(|session| session.number()).collect();
        let mut writers = service.writes.lock();
        let mut orphaned: HashSet<(ObjectId, Owner)> = HashSet::new();
        for (object, owner, lease) in writers.attached() {
            let sharers = lease.sharers.lock();
            let all = sharers.sessions().map(|(session, _)| session);
            let all = all.chain((!sharers.are_there()).then_some(owner));
            orphaned.extend(all.filter(|session| !sessions.contains(&session.0)).map(|session| (object, session)));
        }
        for (object, session) in orphaned.intersection(&self.orphaned) {
            tracing::warn!(%object, "a writer's session is gone; it gets a grace period");
            lose_session(&mut writers, *object, *session, Instant::now());
        }
        orphaned.retain(|pair| !self.orphaned.contains(pair));
        self.orphaned = orphaned;
        Ok(())
    }
}

/// Finds the open writes of the last run. Each gets a full grace period from now on.
pub(crate) fn find_writers(service: &Arc<Service>) -> Result<usize, NsError> {
    let mut after = None;
    let mut found = 0;
    if service.settings.has(PlantedBug::ForgetWriters) || !matches!(service.role, Role::Alone { .. }) {
        return Ok(0);
    }
    loop {
        let records = service.names.read(|read| namespace::writers(read, after, PAGE))?;
        let Some(last) = records.last() else { return Ok(found) };
        after = Some((last.key, last.object));
        found += records.len();
        let now = Instant::now();
        let mut writers = service.writes.lock();
        for record in &records {
            if record.boot != service.settings.config.boot {
                service.writes.set_old_boots();
            }
            writers.found(record.object, lease_of(service, record), now);
        }
    }
}

fn lease_of(service: &Service, record: &WriterRecord) -> Arc<Lease> {
    // The memory counts for the same machine as at the open.
    let host = record.client.host.parse().unwrap_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED));
    let peer = SocketAddr::from((host, 0));
    let id = record.client.principal;
    let principal = Principal { id, groups: Arc::from([id]), rights: Rights::Full, limits: None, name: None };
    let caller = Caller::new(&principal, peer, "").with_client(record.client.clone());
    let facts = LeaseFacts {
        path: NsPath::parse(&record.path).unwrap_or_else(|_| NsPath::root()),
        caller: Arc::new(caller),
        fresh: record.kind != WriterKind::Update,
        begun: false,
        expected_len: record.expected_len,
        boot: record.boot,
        opened: record.opened,
        room: Some(service.writer_memory.take_regardless(host, record.expected_len)),
        // The open of a client that returns tells it.
        may_reach: service.growth.from(Some(0)),
    };
    let state = LeaseState { owner: None, token: record.token(), writer: None };
    let lease = Lease::new((record.ino, record.object), facts, state);
    *lease.sharers.lock() = Sharers::recovered();
    lease
}
