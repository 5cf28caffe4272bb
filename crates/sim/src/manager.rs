//! The real manager on its own disk, or on a simulated database. Its clock, randomness and connections are simulated.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cluster::message::{FromStore, ToManager, ToServer, ToStore};
use cluster::server::GrantRights;
use cluster::{CopyRate, LeaseTerms, Time};
use database::simulated::{Answer, SimEngine};
use disk::{Disk, SimDisk};
use journal::{Journal, JournalConfig, StreamId};
use kv::{Durability, IndexConfig, Inline, JournaledIndex, Kv, MemoryEngine};
use manager::{ManagerSettings, OpenRequest, OpeningError, Redirect};
use namespace::{Actor, Namespace, NamespaceConfig, NsError, OpenWrite, Operation, Remove, WriteMode};
use node::{FromDisk, FromManager};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use types::capability::{
    Capability as SealedCapability, CapabilityConditions, CapabilityKey, CapabilityKeys, PathHash, Rights,
};
use types::{
    BootGeneration, BootId, ClientIdentity, ErrorCode, GroupId, NodeId, NsPath, ObjectId, PrincipalId, ReplicaId,
    StoreId, Timestamp,
};

use crate::counts::Counts;
use crate::founding::{found, host_of, own_node};
use crate::message::{Addr, Capability, Message, Number, Want};
use crate::settings::{Bug, Scenario, Settings};

/// What a node gets from the simulation, and what it returns.
pub(crate) struct Env<'a> {
    /// The time by the node's own clock.
    pub(crate) now: Time,
    /// The time of day. Only the manager uses it.
    pub(crate) wall: Timestamp,
    /// Whether the node can reach the database.
    pub(crate) reaches_database: bool,
    pub(crate) out: &'a mut Vec<(Addr, Message)>,
    pub(crate) counts: &'a mut Counts,
    pub(crate) rng: &'a mut SmallRng,
}

impl Env<'_> {
    pub(crate) fn send(&mut self, to: Addr, message: Message) {
        self.out.push((to, message));
    }
}

/// A server's store has the server's index plus one as its number. The number of its node is higher by one, because node 1 is the manager.
pub(crate) fn store_of(server: usize) -> StoreId {
    StoreId(server as u64 + 1)
}

pub(crate) fn node_of(store: StoreId) -> NodeId {
    NodeId(store.0 + 1)
}

pub(crate) fn server_of(store: StoreId) -> Addr {
    Addr::Server(usize::try_from(store.0 - 1).unwrap_or(0))
}

/// A number for a manager in the connections of disk servers. Only they use it.
pub(crate) fn node_of_manager(manager: usize) -> NodeId {
    NodeId(manager as u64)
}

pub(crate) fn manager_of_node(node: NodeId) -> usize {
    usize::try_from(node.0).unwrap_or(0)
}

pub(crate) fn server_of_node(node: NodeId) -> Addr {
    Addr::Server(usize::try_from(node.0 - 2).unwrap_or(0))
}

/// Fast, because all files are small here.
const COPIES: CopyRate = CopyRate {
    bytes_per_second: 4 << 20,
    at_once: 4,
    patience: Duration::from_secs(4),
    rest: Duration::from_secs(2),
    look_every: Duration::from_secs(2),
};
/// Longer than a node may be cut off while another one restarts.
const GRACE: Duration = Duration::from_secs(45);

/// What the real manager gets from the simulation.
struct Outside {
    now: Time,
    wall: Timestamp,
    rng: SmallRng,
    /// Messages to its servers.
    told: Vec<(NodeId, FromManager)>,
    /// Results of opens.
    opened: Vec<Opened>,
    /// Results of removals, with the clients that asked.
    removed: Vec<(usize, Number, Result<(), ErrorCode>)>,
}

/// The result of an open, for its client.
struct Opened {
    client: usize,
    number: Number,
    path: NsPath,
    result: Result<Redirect, OpeningError>,
}

struct World {
    outside: Arc<Mutex<Outside>>,
    /// The namespace is in a database.
    place: Option<Place>,
}

/// The place of a manager in its database.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) engine: Arc<SimEngine>,
    /// The moment at which the manager's clock showed zero.
    pub(crate) origin: Instant,
}

impl Place {
    pub(crate) fn has_lease(&self, now: Time) -> bool {
        self.engine.lease(self.origin + now.0).is_held()
    }
}

/// What holds a manager's names.
enum Engine {
    Journal(Arc<JournaledIndex>),
    Database(Place),
}

fn lock(outside: &Mutex<Outside>) -> MutexGuard<'_, Outside> {
    // After a panic of the manager the run is over.
    outside.lock().unwrap_or_else(PoisonError::into_inner)
}

impl manager::World for World {
    fn now(&self) -> Time {
        lock(&self.outside).now
    }

    fn wall(&self) -> Timestamp {
        lock(&self.outside).wall
    }

    fn random(&self) -> u64 {
        lock(&self.outside).rng.random()
    }

    fn secret(&self) -> Option<[u8; 32]> {
        Some(lock(&self.outside).rng.random())
    }

    fn has_lease(&self) -> bool {
        self.place.as_ref().is_none_or(|place| place.has_lease(self.now()))
    }

    fn has_lost_place(&self) -> bool {
        self.place.as_ref().is_some_and(|place| place.engine.end().is_some())
    }

    /// The manager notices a lost connection only through this call.
    fn is_up(&self, _node: NodeId) -> bool {
        true
    }

    fn send(&self, to: NodeId, message: FromManager) -> bool {
        lock(&self.outside).told.push((to, message));
        true
    }

    /// No node is removed here.
    fn cut(&self, _node: NodeId, _why: &str) {}
}

/// An administrator's decision about a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Decision {
    Drain,
    Use,
    OnlyRead,
    GiveUp,
}

pub(crate) struct Manager {
    pub(crate) ns: Arc<Namespace>,
    engine: Engine,
    roles: Arc<manager::Manager>,
    outside: Arc<Mutex<Outside>>,
    /// The keys of the capabilities that clients show.
    keys: BTreeMap<NodeId, CapabilityKeys>,
    boot_generations: BTreeMap<NodeId, BootGeneration>,
    /// The last primary of each replica, as far as this run knows.
    leads: BTreeMap<ReplicaId, StoreId>,
    ticks: u64,
    /// The lease terms for servers.
    terms: LeaseTerms,
    planted: Option<Bug>,
}

impl Manager {
    /// Starts on a disk, which an earlier manager may have used.
    pub(crate) fn start(
        disk: &SimDisk,
        (now, wall, seed): (Time, Timestamp, u64),
        settings: &Settings,
    ) -> Result<Self, String> {
        let text = |error: &dyn std::error::Error| format!("the manager does not start: {error}");
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let config =
            JournalConfig { streams: vec![StreamId::NAMESPACE], incarnation: Some(1), ..JournalConfig::small() };
        let (journal, _) = Journal::open(Arc::clone(&shared), "journal", config).map_err(|error| text(&error))?;
        let engine = Box::new(MemoryEngine::new());
        let (index, _) = JournaledIndex::open(
            Arc::new(journal),
            StreamId::NAMESPACE,
            engine,
            shared,
            "checkpoint",
            IndexConfig::small(),
        )
        .map_err(|error| text(&error))?;
        let kv: Arc<dyn Kv> = Arc::new(Inline::new(Arc::clone(&index)));
        Self::start_on((kv, Engine::Journal(index)), 0, (now, wall, seed), settings).map_err(|error| text(&error))
    }

    /// Starts on a database in which it has just taken the place.
    pub(crate) fn start_in(
        place: Place,
        index: usize,
        at: (Time, Timestamp, u64),
        settings: &Settings,
    ) -> Result<Self, NsError> {
        place.engine.set_at_once(true);
        let kv: Arc<dyn Kv> = Arc::<SimEngine>::clone(&place.engine);
        let started = Self::start_on((kv, Engine::Database(place.clone())), index, at, settings);
        place.engine.set_at_once(false);
        started
    }

    fn start_on(
        (kv, engine): (Arc<dyn Kv>, Engine),
        index: usize,
        (now, wall, seed): (Time, Timestamp, u64),
        settings: &Settings,
    ) -> Result<Self, NsError> {
        let mut limits = NamespaceConfig { id_range: 256, ..NamespaceConfig::default() };
        if settings.scenario == Scenario::Sharing {
            // Small steps, so that open writes must often reserve more.
            limits.limits.reserve_step = (2000, 10_000);
        }
        let ns = Namespace::open(kv, wall, limits)?;
        found(&ns, settings)?;
        let boot_generations = ns.read(namespace::nodes)?;
        let boot_generations =
            boot_generations.into_iter().map(|record| (record.node, record.boot_generation)).collect();
        let (told, opened, removed) = (Vec::new(), Vec::new(), Vec::new());
        let outside = Outside { now, wall, rng: SmallRng::seed_from_u64(seed), told, opened, removed };
        let outside = Arc::new(Mutex::new(outside));
        let terms = match settings.planted {
            Some(Bug::TermCutShort) => LeaseTerms { term: settings.terms.term / 2, ..settings.terms },
            _ => settings.terms,
        };
        let node = own_node(index, settings.servers);
        let of_manager = ManagerSettings { node, terms, grace: GRACE, copies: COPIES, ..ManagerSettings::default() };
        let place = match &engine {
            Engine::Journal(_) => None,
            Engine::Database(place) => Some(place.clone()),
        };
        let world = World { outside: Arc::clone(&outside), place };
        let roles = manager::Manager::start(Arc::clone(&ns), of_manager, Box::new(world))?;
        let (keys, leads) = (BTreeMap::new(), BTreeMap::new());
        let (terms, planted) = (settings.terms, settings.planted);
        Ok(Self { ns, engine, roles, outside, keys, boot_generations, leads, ticks: 0, terms, planted })
    }

    pub(crate) fn tick(&mut self, env: &mut Env<'_>) {
        self.ticks += 1;
        if let Engine::Journal(index) = &self.engine
            && self.ticks.is_multiple_of(50)
        {
            // Move the changes from memory to the index. The next change reports a disk error.
            let _ = index.sweep_now().and_then(|_| index.checkpoint_now());
        }
        self.enter(env);
        self.roles.tick();
        self.leave(env);
    }

    /// Carries out an administrator's decision about a store.
    pub(crate) fn decide(&mut self, store: StoreId, decision: Decision, env: &mut Env<'_>) -> bool {
        self.enter(env);
        self.set_at_once(true);
        let is_done = match decision {
            Decision::Drain => self.roles.drain_store(store).is_ok(),
            Decision::Use => self.roles.set_read_only(store, false).is_ok(),
            Decision::OnlyRead => self.roles.set_read_only(store, true).is_ok(),
            Decision::GiveUp => {
                self.is_dispensable(store).unwrap_or(false) && self.roles.remove_lost_store(store, true).is_ok()
            }
        };
        self.set_at_once(false);
        self.leave(env);
        is_done
    }

    /// Carries out a change of a quota, or of a file's owner, mode or ACL. `None`: the outcome is unknown.
    pub(crate) fn administer<O: Operation + Send + 'static>(
        &mut self,
        op: O,
        env: &mut Env<'_>,
    ) -> Option<Result<(), ErrorCode>> {
        self.enter(env);
        let durability =
            if self.planted == Some(Bug::AccessNotSynced) { Durability::Written } else { Durability::Synced };
        let ctx = self.ns.context(env.wall, &Actor::admin(), None);
        self.set_at_once(true);
        let result = told(self.ns.change_wait(durability, ctx, op).map(drop));
        self.set_at_once(false);
        self.leave(env);
        result
    }

    /// Whether no known object is on this store alone.
    fn is_dispensable(&self, store: StoreId) -> Result<bool, NsError> {
        self.ns.read(|read| {
            for writer in namespace::writers(read, None, usize::MAX)? {
                let in_sync = &writer.placement.in_sync;
                if in_sync.len() < 2 && in_sync.iter().any(|one| one.store == store) {
                    return Ok(false);
                }
            }
            for group in namespace::groups(read, None, usize::MAX)? {
                for record in namespace::objects(read, group.group, None, usize::MAX)? {
                    if namespace::holders(read, group.group, record.object)? == [store] {
                        return Ok(false);
                    }
                }
            }
            Ok(true)
        })
    }

    /// Why no store leaves a group, to explain a run that does not end.
    pub(crate) fn what_needs(&self, group: GroupId) -> String {
        let found = self.ns.read(|read| {
            let members = namespace::group(read, group)?.map(|group| group.members);
            let missing = namespace::missing(read, group, None, 3)?;
            let mut writers = namespace::writers(read, None, usize::MAX)?;
            writers.retain(|writer| writer.placement.group == group);
            let mut what = format!("{members:?}, writers {writers:?}");
            for (object, stores) in missing {
                let (at_rest, holders) =
                    (namespace::at_rest(read, group, object)?, namespace::holders(read, group, object)?);
                let _ = write!(what, ", {object:?} missing on {stores:?}, held by {holders:?}: {at_rest:?}");
            }
            Ok::<_, NsError>(what)
        });
        found.unwrap_or_else(|error| error.to_string())
    }

    /// Whether it knows that a store's replica of an object is damaged.
    pub(crate) fn knows_damage(&self, store: StoreId, object: ObjectId) -> bool {
        self.roles.knows_damage(store, object)
    }

    /// The stores that the namespace names as holders of an object.
    pub(crate) fn holders(&self, object: ObjectId) -> Vec<StoreId> {
        let found = self.ns.read(|read| {
            for group in namespace::groups(read, None, usize::MAX)? {
                if namespace::object_record(read, group.group, object)?.is_some() {
                    return namespace::holders(read, group.group, object);
                }
            }
            Ok(Vec::new())
        });
        found.unwrap_or_default()
    }

    /// How far its changes have come, for the checks.
    pub(crate) fn written(&self) -> u64 {
        match &self.engine {
            Engine::Journal(index) => index.journal().appended().0,
            Engine::Database(place) => place.engine.stats().batches,
        }
    }

    /// Its place in the database.
    pub(crate) fn place(&self) -> Option<&Place> {
        match &self.engine {
            Engine::Journal(_) => None,
            Engine::Database(place) => Some(place),
        }
    }

    /// Whether the simulation waits for changes: a call into the manager that blocks.
    fn set_at_once(&self, is_at_once: bool) {
        if let Some(place) = self.place() {
            place.engine.set_at_once(is_at_once);
        }
    }

    /// An answer of the database.
    pub(crate) fn answered(&mut self, number: u64, answer: Answer, env: &mut Env<'_>) {
        self.enter(env);
        if let Some(place) = self.place() {
            place.engine.answered(number, answer);
        }
        self.leave(env);
    }

    pub(crate) fn connected(&mut self, server: usize) {
        self.roles.connected(node_of(store_of(server)), IpAddr::V4(Ipv4Addr::LOCALHOST));
    }

    pub(crate) fn disconnected(&mut self, server: usize) {
        self.roles.disconnected(node_of(store_of(server)));
    }

    pub(crate) fn receive(&mut self, from: Addr, message: Message, env: &mut Env<'_>) {
        self.enter(env);
        match (from, message) {
            (Addr::Server(server), Message::FromDisk(message)) => {
                count(&message, env.counts);
                self.roles.receive(node_of(store_of(server)), message);
            }
            (Addr::Client(client), Message::Remove { number, path }) => {
                let Ok(path) = NsPath::parse(path.as_bytes()) else { return };
                let outside = Arc::clone(&self.outside);
                let ctx = self.ns.context(Timestamp(1), &Actor::admin(), None);
                self.ns.change(Durability::Synced, ctx, Remove { path }, move |result| {
                    if let Some(result) = told(result.map(drop)) {
                        lock(&outside).removed.push((client, number, result));
                    }
                });
            }
            (Addr::Client(client), Message::Open { number, path, want, tried }) => {
                let Ok(path) = NsPath::parse(path.as_bytes()) else { return };
                self.open((client, number), path, &want, &tried, env);
            }
            _ => {}
        }
        self.leave(env);
    }

    fn open(&self, of: (usize, Number), path: NsPath, want: &Want, tried: &[StoreId], env: &mut Env<'_>) {
        let (client, number) = of;
        let tried = tried.iter().map(|store| host_of(*store)).collect();
        let from = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let open_request = OpenRequest { tried, ..OpenRequest::new(env.wall, path.clone(), from, Actor::admin()) };
        let (how, restarted) = match want {
            Want::Read => {
                let result = self.roles.open_read(&open_request, &path, false, None);
                return lock(&self.outside).opened.push(Opened { client, number, path, result });
            }
            Want::New { restarted } => (WriteMode::NewOnly, *restarted),
            Want::Update => (WriteMode::Update, false),
        };
        // Each client has its own principal. The administrator sends the request on its behalf.
        let pid = u32::try_from(client).unwrap_or(0) + 1;
        let own = ClientIdentity { principal: PrincipalId(pid), user: "sim".into(), pid, host: "here".into() };
        if how == WriteMode::Update {
            let was_open = self.ns.read(|read| namespace::find_writer(read, &own, &path));
            env.counts.reopened += u64::from(was_open.is_ok_and(|writers| !writers.is_empty()));
        }
        let op = OpenWrite { restarted, ..OpenWrite::new(path.clone(), how, own, BootId(1)) };
        let outside = Arc::clone(&self.outside);
        self.roles.open_write(open_request, op, move |result| {
            lock(&outside).opened.push(Opened { client, number, path, result });
        });
    }

    /// Prepares a call into the real manager.
    fn enter(&self, env: &Env<'_>) {
        let mut outside = lock(&self.outside);
        (outside.now, outside.wall) = (env.now, env.wall);
        drop(outside);
        if let Some(place) = self.place() {
            place.engine.tick(place.origin + env.now.0, env.reaches_database);
        }
    }

    /// Sends the messages that the manager has produced.
    fn leave(&mut self, env: &mut Env<'_>) {
        if self.planted == Some(Bug::FenceNotAwaited) {
            self.answer_fences();
        }
        let (told, opened, removed) = {
            let mut outside = lock(&self.outside);
            (
                std::mem::take(&mut outside.told),
                std::mem::take(&mut outside.opened),
                std::mem::take(&mut outside.removed),
            )
        };
        for (client, number, result) in removed {
            env.send(Addr::Client(client), Message::Removed { number, result });
        }
        for (node, mut message) in told {
            match &mut message {
                FromManager::Keys(keys) => {
                    let key = CapabilityKey::new(keys.id, &keys.secret);
                    match self.keys.get_mut(&node) {
                        Some(known) => known.rotate(key),
                        None => drop(self.keys.insert(node, CapabilityKeys::new(key))),
                    }
                }
                FromManager::Cluster(ToServer::Registered { registered, terms, .. }) => {
                    *terms = self.terms;
                    let before = self.boot_generations.insert(node, registered.boot_generation);
                    env.counts.booted += u64::from(before.is_some_and(|before| before != registered.boot_generation));
                }
                _ => {}
            }
            env.send(server_of_node(node), Message::FromManager(message));
        }
        for Opened { client, number, path, result } in opened {
            let result = match result.map(|redirect| self.read(redirect, path, env)) {
                Ok(Some(capability)) => Ok(capability),
                // No client can use this answer, so the client asks again.
                Ok(None) => Err(ErrorCode::Overloaded),
                // The outcome is unknown.
                Err(OpeningError::Names(NsError::Kv(_))) => continue,
                Err(error) => Err(error.code()),
            };
            env.send(Addr::Client(client), Message::Opened { number, result });
        }
    }

    /// A planted bug: the manager assumes that every fence is confirmed as soon as it is sent.
    fn answer_fences(&self) {
        let fences: Vec<_> = lock(&self.outside)
            .told
            .iter()
            .filter_map(|(node, message)| match message {
                FromManager::Cluster(ToServer::ToStore { store, message: ToStore::Fence(fence) }) => {
                    Some((*node, *store, *fence))
                }
                _ => None,
            })
            .collect();
        for (node, store, fence) in fences {
            let message = FromStore::Fenced(fence);
            self.roles.receive(node, FromDisk::Cluster(ToManager::OfStore { store, message }));
        }
    }

    /// Decodes a redirect. Clients here read the capability to learn to which server the redirect sends them.
    fn read(&mut self, redirect: Redirect, path: NsPath, env: &mut Env<'_>) -> Option<Capability> {
        let keys = self.keys.get(&redirect.node)?;
        let server = redirect.node;
        let wanted = CapabilityConditions {
            server,
            principal: None,
            path: PathHash::of(&path),
            rights: Rights::READ,
            now: env.wall,
        };
        let capability = SealedCapability::check(redirect.capability.as_bytes(), keys, &wanted).ok()?;
        let (replica, grant) = (ReplicaId::first(capability.object), node::grant_of(&capability)?);
        if let GrantRights::Write { .. } = grant.rights {
            let before = self.leads.insert(replica, grant.store);
            env.counts.taken_over += u64::from(before.is_some_and(|before| before != grant.store));
        }
        Some(Capability { sealed: redirect.capability, path, replica, grant })
    }
}

fn count(message: &FromDisk, counts: &mut Counts) {
    match message {
        FromDisk::Cluster(ToManager::OfStore { message: FromStore::Copied { result: Ok(()), .. }, .. }) => {
            counts.copied += 1;
        }
        FromDisk::Cluster(ToManager::OfStore { message: FromStore::Deleted { replicas }, .. }) => {
            counts.deleted += replicas.len() as u64;
        }
        _ => {}
    }
}

/// The answer to a change. `None` if the outcome is unknown.
fn told(result: Result<(), NsError>) -> Option<Result<(), ErrorCode>> {
    match result {
        Ok(()) => Some(Ok(())),
        Err(NsError::Kv(_)) => None,
        Err(error) => Some(Err(error.code())),
    }
}
