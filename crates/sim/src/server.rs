//! The real disk server with one store. Its clock, connections, jobs and clients are simulated.

mod front;
mod outside;
mod scrub;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cluster::message::{FromStore, ToManager, ToServer, ToStore};
use cluster::replication::{Epoch, ObjectDigest};
use cluster::server::{Grant, PartTerms, ReadView, View};
use cluster::{ProcessEpoch, Time};
use disk::SimDisk;
use disk_server::{DiskServer, DiskSettings, DiskTerms, DiskWorld, ReplicatedWriter, StoreAt, VerifiedCapability};
use namespace::AtRest;
use node::{FromDisk, FromManager};
use types::{BootId, ErrorCode, NsPath, ObjectId, ReplicaId, SessionId, StoreId, WriterToken};

use crate::manager::{Env, node_of, node_of_manager, store_of};
use crate::message::{Addr, Message};
use crate::settings::{Bug, Settings};
use crate::stored::Stored;
use front::{Growth, Held};
use outside::{Outside, World, lock};
use scrub::StoreScrub;

/// The server remembers a writer for this time after it attached, even if its write has ended.
const WRITERS_KEPT: Duration = Duration::from_secs(10);

/// A job for a thread of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Due {
    /// The job's number.
    pub(crate) job: u64,
    /// The client that asked for the job. Jobs of one client run in order. `None` for a job that may run at any time.
    pub(crate) client: Option<usize>,
}

pub(crate) struct Server {
    index: usize,
    stored: Stored,
    shell: Arc<DiskServer>,
    outside: Arc<Mutex<Outside>>,
    last_session: SessionId,
    /// Client requests that no thread has started.
    requests: BTreeMap<u64, (usize, Message)>,
    /// Objects that clients write here, or have written recently.
    open: BTreeMap<ReplicaId, Arc<ReplicatedWriter>>,
    /// The files that clients have open for reading.
    readers: BTreeMap<usize, Held>,
    growth: Growth,
    /// Open writes of vanished clients, and when they end.
    gone: BTreeMap<ReplicaId, (Epoch, Time)>,
    /// Writers that were attached here, and when last.
    writers: BTreeMap<ReplicaId, (WriterToken, Time)>,
    /// Replicas of which the one on another store differed from the one here, for the checks.
    pub(crate) differing: BTreeSet<(ReplicaId, StoreId)>,
    /// Replicas that were deleted from the disk, for the checks.
    pub(crate) drained: Vec<ReplicaId>,
    planted: Option<Bug>,
    /// `None` in simulations without damage.
    scrub: Option<StoreScrub>,
    ticks: u64,
}

impl Server {
    /// Starts on a disk, which an earlier server may have used.
    pub(crate) fn start(
        index: usize,
        disk: &SimDisk,
        (process_epoch, boot): (ProcessEpoch, BootId),
        (now, seed): (Time, u64),
        settings: &Settings,
    ) -> Result<Self, String> {
        let stored = Stored::open(disk).map_err(|error| format!("server {index} does not start: {error}"))?;
        // Fast, because all files are small here.
        let part = PartTerms {
            fetch: 16 << 10,
            fetch_patience: Duration::from_secs(2),
            kept: Duration::from_secs(8),
            planted: settings.planted.and_then(Bug::of_machine),
            ..PartTerms::default()
        };
        let planted = settings.planted.and_then(Bug::of_shell);
        let terms = DiskTerms { leases: settings.terms, part, planted };
        let store_id = store_of(index);
        let outside = Arc::new(Mutex::new(Outside::new(now, seed, (settings.servers, settings.managers))));
        let of_disk = DiskSettings { node: node_of(store_id), process_epoch, boot: stored.boot(boot) };
        let at = StoreAt { store_id, store: Arc::clone(stored.store()) };
        let world = Arc::new(World { index, outside: Arc::clone(&outside) }) as Arc<dyn DiskWorld>;
        let shell = DiskServer::with_terms(of_disk, terms, vec![at], world);
        Ok(Self {
            index,
            stored,
            shell,
            outside,
            last_session: SessionId(0),
            requests: BTreeMap::new(),
            open: BTreeMap::new(),
            readers: BTreeMap::new(),
            growth: Growth::default(),
            gone: BTreeMap::new(),
            writers: BTreeMap::new(),
            differing: BTreeSet::new(),
            drained: Vec::new(),
            planted: settings.planted,
            scrub: settings.faults.damage_every.map(|_| StoreScrub::default()),
            ticks: 0,
        })
    }

    /// Its present session, or its last one.
    pub(crate) fn last_session(&self) -> SessionId {
        self.last_session
    }

    /// Prepares a call. `false` if a sync of its disk has failed: then the server stays silent until it restarts.
    fn enter(&self, env: &Env<'_>) -> bool {
        lock(&self.outside).now = env.now;
        !self.has_failed()
    }

    /// Sends the messages that the server has produced.
    fn leave(&mut self, env: &mut Env<'_>) {
        self.go_on_reserved(env);
        let mut outside = lock(&self.outside);
        env.out.append(&mut outside.out);
        self.drained.append(&mut outside.drained);
        self.differing.append(&mut outside.differing);
        let counted = std::mem::take(&mut outside.counted);
        for replicated in outside.attached.drain(..) {
            self.open.insert(replicated.replica(), replicated);
        }
        let graces = std::mem::take(&mut outside.graces);
        drop(outside);
        env.counts.left_out += counted.left_out;
        env.counts.differing += counted.differing;
        env.counts.interrupted += counted.ended;
        for (replica, result) in graces {
            // If the server is busy, a close or the same request may be in progress. A later tick asks again.
            if result != Err(ErrorCode::Busy) {
                self.gone.remove(&replica);
            }
            env.counts.interrupted += u64::from(result.is_ok());
        }
        self.last_session = self.shell.session_now().unwrap_or(self.last_session);
    }

    pub(crate) fn tick(&mut self, env: &mut Env<'_>) {
        if !self.enter(env) {
            return;
        }
        self.ticks += 1;
        if self.ticks.is_multiple_of(10) {
            self.stored.tick();
            self.shell.report();
        }
        if self.ticks.is_multiple_of(60) {
            self.stored.sweep();
            self.forget(env.now);
        }
        let next = lock(&self.outside).choice.as_mut().and_then(|choice| choice.tick(env.now));
        if next.is_some() {
            self.shell.manager_connected();
        }
        self.shell.tick();
        self.end_gone(env.now);
        self.scrub(env);
        self.leave(env);
    }

    fn forget(&mut self, now: Time) {
        let (shell, store) = (&self.shell, store_of(self.index));
        self.writers
            .retain(|replica, (_, since)| shell.leads(store, *replica).is_some() || now.since(*since) < WRITERS_KEPT);
        let Self { writers, open, growth, .. } = self;
        open.retain(|replica, _| writers.contains_key(replica));
        growth.forget(|replica| writers.contains_key(replica));
    }

    pub(crate) fn receive(&mut self, from: Addr, message: Message, env: &mut Env<'_>) {
        if !self.enter(env) {
            return;
        }
        match (from, message) {
            (Addr::Manager(manager), Message::FromManager(message)) => {
                let (messages, must_greet) = self.hear(manager, message, env.now);
                if must_greet {
                    self.shell.manager_connected();
                }
                messages.into_iter().for_each(|message| self.of_manager(message, env));
            }
            (Addr::Server(other), Message::Peer(between, bulk)) => {
                self.shell.receive_of_node(node_of(store_of(other)), between, bulk);
            }
            (Addr::Client(client), message) => self.of_client(client, message),
            _ => {}
        }
        self.leave(env);
    }

    /// A connection with a manager is up.
    pub(crate) fn connected(&mut self, manager: usize, env: &mut Env<'_>) {
        if self.enter(env) {
            let node = node_of_manager(manager);
            let is_followed = lock(&self.outside).choice.as_mut().is_none_or(|choice| choice.connected(env.now, node));
            self.greet_if(is_followed, env);
        }
    }

    /// The connection with a manager has ended.
    pub(crate) fn disconnected(&mut self, manager: usize, env: &mut Env<'_>) {
        let next =
            lock(&self.outside).choice.as_mut().and_then(|choice| choice.ended(env.now, node_of_manager(manager)));
        if next.is_some() && self.enter(env) {
            self.greet_if(true, env);
        }
    }

    /// Greets the manager that it follows from now on.
    fn greet_if(&mut self, is_followed: bool, env: &mut Env<'_>) {
        if is_followed {
            self.shell.manager_connected();
        }
        self.leave(env);
    }

    /// The messages that count now, and whether the server must greet the manager.
    fn hear(&self, manager: usize, message: FromManager, now: Time) -> (Vec<FromManager>, bool) {
        match &mut lock(&self.outside).choice {
            None => (vec![message], false),
            Some(choice) => {
                let heard = choice.hear(now, node_of_manager(manager), message);
                (heard.messages, heard.must_greet)
            }
        }
    }

    /// A connection with another disk server is up.
    pub(crate) fn node_connected(&mut self, other: usize, env: &mut Env<'_>) {
        if self.enter(env) {
            self.shell.node_connected(node_of(store_of(other)));
            self.leave(env);
        }
    }

    /// Whether it admits another disk server.
    pub(crate) fn knows(&self, other: usize) -> bool {
        !self.has_failed() && self.shell.knows(node_of(store_of(other)))
    }

    fn of_manager(&mut self, mut message: FromManager, env: &mut Env<'_>) {
        match (&mut message, self.planted) {
            (
                FromManager::Cluster(ToServer::ToStore { store, message: ToStore::Fence(fence) }),
                Some(Bug::FenceNotKept),
            ) => {
                let message = FromStore::Fenced(*fence);
                let message = FromDisk::Cluster(ToManager::OfStore { store: *store, message });
                let follows = lock(&self.outside).follows().unwrap_or(0);
                return env.send(Addr::Manager(follows), Message::FromDisk(message));
            }
            (
                FromManager::Cluster(ToServer::ToStore { message: ToStore::Delete { replicas, .. }, .. }),
                Some(Bug::DeletesAnother),
            ) => {
                replicas.extend(replicas.last().map(|replica| ReplicaId::first(ObjectId(replica.object.0 + 1))));
            }
            (FromManager::End(end), _) => {
                if let Ok(path) = NsPath::parse(&end.path)
                    && let Ok(VerifiedCapability::Write(grant)) =
                        self.shell.verify(end.capability.as_bytes(), &path, None)
                {
                    self.writers.insert(grant.replica(), (grant.writer(), env.now));
                }
            }
            _ => {}
        }
        self.shell.receive(message);
    }

    /// The jobs that were added since the last call.
    pub(crate) fn take_due(&mut self) -> Vec<Due> {
        std::mem::take(&mut lock(&self.outside).due)
    }

    /// A thread runs a job.
    pub(crate) fn work(&mut self, job: u64, env: &mut Env<'_>) {
        if !self.enter(env) {
            return;
        }
        if let Some((client, message)) = self.requests.remove(&job) {
            self.answer(client, message, env);
        } else {
            let job = lock(&self.outside).jobs.remove(&job);
            if let Some(job) = job {
                job();
            }
        }
        self.leave(env);
    }
}

/// State for the checks.
impl Server {
    fn at(&self, now: Time) -> &DiskServer {
        lock(&self.outside).now = now;
        &self.shell
    }

    pub(crate) fn view(&self, now: Time) -> View {
        self.at(now).view_now()
    }

    /// Whether a sync of its disk has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.stored.has_failed()
    }

    /// Replicas whose primary it may be, with the open writes for which it became primary.
    pub(crate) fn led(&self) -> impl Iterator<Item = (ReplicaId, WriterToken)> {
        self.writers.iter().map(|(replica, (writer, _))| (*replica, *writer))
    }

    /// The open write with this epoch.
    pub(crate) fn token(&self, replica: ReplicaId, epoch: Epoch) -> Option<WriterToken> {
        self.writers.get(&replica).map(|(writer, _)| *writer).filter(|writer| writer.epoch == epoch.0)
    }

    /// The epoch with which it answers as a replica's primary, if it does.
    pub(crate) fn answers(&self, replica: ReplicaId, now: Time) -> Option<Epoch> {
        self.at(now).answers(store_of(self.index), replica)
    }

    /// Whether it has the complete replica, and nobody writes to it.
    pub(crate) fn is_whole(&self, replica: ReplicaId) -> bool {
        matches!(self.stored.whole(replica), Ok(Some(_)))
    }

    /// What a reader with this grant may see.
    pub(crate) fn may_read(&self, replica: ReplicaId, grant: &Grant, now: Time) -> Result<ReadView, ErrorCode> {
        self.at(now).may_read(store_of(self.index), replica, grant)
    }

    /// A part of a replica's written bytes.
    pub(crate) fn written(&self, replica: ReplicaId, offset: u64, len: usize) -> Result<Vec<u8>, ErrorCode> {
        self.stored.written(replica, offset, len)
    }

    /// Checks that it keeps an object at rest.
    pub(crate) fn keeps(&self, replica: ReplicaId, at_rest: &AtRest) -> Result<(), String> {
        self.stored.keeps(replica, at_rest)
    }

    /// Checks that the replica is complete and has this digest.
    pub(crate) fn holds(&self, replica: ReplicaId, whole: ObjectDigest) -> Result<(), String> {
        self.stored.holds(replica, whole).map_err(|what| format!("server {} has {what}", self.index))
    }

    /// All its replicas.
    pub(crate) fn replicas(&self) -> Result<Vec<ReplicaId>, String> {
        self.stored.all()
    }

    /// Whether the disk has a complete replica as it was written.
    pub(crate) fn is_intact(&self, replica: ReplicaId) -> bool {
        self.stored.is_intact(replica)
    }

    /// Where a part of a complete replica is on its disk.
    pub(crate) fn location(&self, disk: &SimDisk, replica: ReplicaId, part: &[u8]) -> Option<(String, u64)> {
        self.stored.location(disk, replica, part)
    }

    pub(crate) fn content(&self, replica: ReplicaId) -> Result<Arc<[u8]>, ErrorCode> {
        self.stored.content(replica)
    }
}

impl Drop for Server {
    /// The process ends: it does no more jobs, and answers nobody.
    fn drop(&mut self) {
        self.shell.let_go();
        let mut outside = lock(&self.outside);
        let (jobs, attached) = (std::mem::take(&mut outside.jobs), std::mem::take(&mut outside.attached));
        drop(outside);
        drop((jobs, attached));
    }
}
