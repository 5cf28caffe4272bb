//! How a manager handles messages of disk servers, without connections. The test supplies its clock and its connections.

#![allow(clippy::unwrap_used, clippy::panic)] // a test may fail this way

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use cluster::message::{CopyFailure, FromStore, ToManager, ToServer, ToStore};
use cluster::placement::StoreState;
use cluster::{Presence, ProcessEpoch, Register, Time};
use kv::{Kv, MemoryKv};
use manager::{Manager, ManagerSettings, MemberError, OpenRequest, OpeningError, World as Outside};
use namespace::{
    Actor, Durability, FoundCluster, JoinNode, MakeToken, Namespace, NamespaceConfig, OpenWrite, OpenedWrite,
    Operation, PutGroup, PutStore, SetAddresses, TokenEntry, WriteMode,
};
use node::{
    ClaimResult, FromDisk, FromManager, Hello, OpenWriteAction, OpenWriteAnswer, OpenWriteRequest, StoreAddressPage,
    StoreReport,
};
use parking_lot::Mutex;
use types::{
    BootGeneration, BootId, ClientIdentity, ErrorCode, Group, GroupId, InSyncReplica, Member, NodeId, NsPath, ObjectId,
    Placement, PrincipalId, RequestNumber, SessionId, StoreId, Timestamp, WriterToken,
};

mod audit;
mod changed_meanwhile;
mod lease;
mod restored;
mod standby;
mod striped;

const GROUP: GroupId = GroupId(7);

/// What the manager gets from outside, and the messages it has sent.
#[derive(Default)]
struct Told {
    now: Mutex<Time>,
    /// The seconds by which the clock was set back.
    set_back: Mutex<i64>,
    sent: Mutex<Vec<(NodeId, FromManager)>>,
    cut: Mutex<Vec<NodeId>>,
    /// Another manager may have taken over.
    has_no_lease: Mutex<bool>,
    has_lost_place: Mutex<bool>,
    /// Nodes to which messages cannot be sent.
    full: Mutex<BTreeSet<NodeId>>,
}

struct World(Arc<Told>);

impl Outside for World {
    fn now(&self) -> Time {
        *self.0.now.lock()
    }
    fn wall(&self) -> Timestamp {
        Timestamp(1_000_000_000 * (1_800_000_000 - *self.0.set_back.lock()))
    }
    fn random(&self) -> u64 {
        4 | 1 << 62
    }
    fn secret(&self) -> Option<[u8; 32]> {
        Some([9; 32])
    }
    fn has_lease(&self) -> bool {
        !*self.0.has_no_lease.lock()
    }
    fn has_lost_place(&self) -> bool {
        *self.0.has_lost_place.lock()
    }
    fn is_up(&self, _: NodeId) -> bool {
        true
    }
    fn send(&self, to: NodeId, message: FromManager) -> bool {
        let is_sent = !self.0.full.lock().contains(&to);
        if is_sent {
            self.0.sent.lock().push((to, message));
        }
        is_sent
    }
    fn cut(&self, node: NodeId, _: &str) {
        self.0.cut.lock().push(node);
    }
}

struct Cluster {
    namespace: Arc<Namespace>,
    told: Arc<Told>,
    manager: Arc<Manager>,
}

impl Cluster {
    /// A cluster with a manager and no disk server.
    fn new() -> Self {
        Self::on(Arc::new(MemoryKv::new()))
    }

    /// The same, on these keys.
    fn on(kv: Arc<impl Kv + 'static>) -> Self {
        let namespace = Namespace::open(kv, Timestamp(0), NamespaceConfig::default()).unwrap();
        change(&namespace, FoundCluster { roles: 1, name: "mgr".into(), key: [0; 32] });
        let told = Arc::new(Told::default());
        let world = Box::new(World(Arc::clone(&told)));
        let manager = Manager::start(Arc::clone(&namespace), ManagerSettings::default(), world).unwrap();
        Self { namespace, told, manager }
    }

    /// A node joins, and registers a store with the same number.
    fn joins(&self, number: u8) -> NodeId {
        let (id, key, expires) = ([number; 16], [number; 32], Timestamp(i64::MAX));
        let token = TokenEntry { id, hash: key, roles: 2, made: Timestamp(1), expires, uses_max: 1, used: Vec::new() };
        change(&self.namespace, MakeToken { token: token.clone() });
        let node = change(&self.namespace, JoinNode { token, roles: 2, name: format!("disk{number}"), key });
        let (for_nodes, for_clients) = (vec![format!("disk{number}:2")], vec![format!("disk{number}:1")]);
        change(&self.namespace, SetAddresses { node, for_nodes, for_clients });
        self.has_store(node, u64::from(number));
        node
    }

    fn has_store(&self, node: NodeId, store: u64) {
        let location = format!("site/rack/host{store}").parse().unwrap();
        change(&self.namespace, PutStore { store: StoreId(store), node, location, class: None });
    }

    /// A node connects.
    fn comes(&self, node: NodeId) {
        self.comes_with(node, ObjectId(0));
    }

    /// A node connects, and reports this highest object number.
    fn comes_with(&self, node: NodeId, newest: ObjectId) {
        self.manager.connected(node, std::net::Ipv4Addr::LOCALHOST.into());
        self.manager.receive(node, FromDisk::Hello(Hello { key: 0, stores: Vec::new(), newest }));
    }

    fn registers(&self, node: NodeId) -> Option<SessionId> {
        self.boots(node, 1)
    }

    /// A node starts; its process and its kernel both have this run number.
    fn boots(&self, node: NodeId, run: u8) -> Option<SessionId> {
        let request = Register { node, process_epoch: ProcessEpoch(run.into()), boot: BootId(run.into()), number: 1 };
        self.manager.receive(node, FromDisk::Cluster(ToManager::Register(request)));
        session_in(&self.sent(node))
    }

    /// A node reports stores with free space.
    fn reports(&self, node: NodeId, stores: &[u64]) {
        let report = |store: &u64| StoreReport {
            store: StoreId(*store),
            capacity: 1 << 40,
            reserve: 0,
            free: 1 << 40,
            load_permille: 0,
        };
        self.manager.receive(node, FromDisk::Report(stores.iter().map(report).collect()));
    }

    /// The manager is killed and starts again.
    fn restart_manager(&mut self) {
        self.restart_manager_as(namespace::FIRST_NODE);
    }

    fn restart_manager_as(&mut self, node: NodeId) {
        let world = Box::new(World(Arc::clone(&self.told)));
        let settings = ManagerSettings { node, ..ManagerSettings::default() };
        self.manager = Manager::start(Arc::clone(&self.namespace), settings, world).unwrap();
    }

    fn disk(&self, number: u8) -> (NodeId, SessionId) {
        let node = self.joins(number);
        self.comes(node);
        (node, self.registers(node).unwrap())
    }

    /// Messages to a node since the last call.
    fn sent(&self, to: NodeId) -> Vec<FromManager> {
        let mut sent = self.told.sent.lock();
        sent.extract_if(.., |(node, _)| *node == to).map(|(_, message)| message).collect()
    }

    /// The nodes in the last address list of a node.
    fn addresses(&self, to: NodeId) -> Option<Vec<u64>> {
        let page = |message: FromManager| match message {
            FromManager::StoreAddresses(page) => Some(page),
            _ => None,
        };
        let last: StoreAddressPage = self.sent(to).into_iter().rev().find_map(page)?;
        assert!(last.is_last && last.page == 0);
        Some(last.addresses.iter().map(|way| way.node.0).collect())
    }

    fn passes(&self, secs: u64) {
        let mut now = self.told.now.lock();
        *now = *now + Duration::from_secs(secs);
    }

    /// A client writes a file on these stores of a group of three. The first is the primary.
    fn writes(&self, stores: &[u64]) -> OpenedWrite {
        self.groups(&[1, 2, 3]);
        self.opens("/f", stores)
    }

    fn groups(&self, stores: &[u64]) {
        let member = |store: &u64| Member { store: StoreId(*store), since: ObjectId(1), through: ObjectId(0) };
        let members = stores.iter().map(member).collect();
        change(&self.namespace, PutGroup { group: Group { group: GROUP, epoch: 1, members } });
    }

    fn opens(&self, path: &str, stores: &[u64]) -> OpenedWrite {
        let client = ClientIdentity { principal: PrincipalId(0), user: "u".into(), pid: 1, host: "h".into() };
        let open = OpenWrite::new(NsPath::parse(path.as_bytes()).unwrap(), WriteMode::NewOnly, client, BootId(1));
        let placement = Placement { group: GROUP, in_sync: in_sync(stores) };
        change(&self.namespace, OpenWrite { placement, ..open })
    }

    /// A client opens a file for a change in place. The receiver gets the node of the redirect.
    fn updates(&self, path: &str) -> std::sync::mpsc::Receiver<Result<NodeId, OpeningError>> {
        self.updates_as(path, None)
    }

    /// The same, for this open write alone.
    fn updates_as(
        &self,
        path: &str,
        only: Option<WriterToken>,
    ) -> std::sync::mpsc::Receiver<Result<NodeId, OpeningError>> {
        let path = NsPath::parse(path.as_bytes()).unwrap();
        let open_request =
            OpenRequest::new(Timestamp(1), path.clone(), std::net::Ipv4Addr::LOCALHOST.into(), Actor::admin());
        let client = ClientIdentity { principal: PrincipalId(0), user: "u".into(), pid: 1, host: "h".into() };
        let op = OpenWrite { only, ..OpenWrite::new(path, WriteMode::Update, client, BootId(1)) };
        let (sender, receiver) = std::sync::mpsc::channel();
        // The receiver may be gone.
        self.manager.open_write(open_request, op, move |result| drop(sender.send(result.map(|to| to.node))));
        receiver
    }

    /// A file of stores 1 and 2 is written, and `holders` have all of it.
    fn has_file(&self, path: &str, holders: &[u64]) {
        self.has_file_with(path, holders, None);
    }

    fn has_file_with(&self, path: &str, holders: &[u64], sums: Option<namespace::Sums>) {
        let content = namespace::Committed { len: 1, sums, mtime: None };
        let writer = self.opens(path, holders).writer;
        let commit = namespace::Commit { writer, content, completion: namespace::Completion::ByClient };
        let holders = holders.iter().copied().map(StoreId).collect();
        change(&self.namespace, namespace::CommitPlaced { commit, group: GROUP, by: StoreId(1), holders });
    }

    fn says(&self, node: NodeId, store: u64, message: FromStore) -> Vec<FromManager> {
        self.sent(node);
        let store = StoreId(store);
        self.manager.receive(node, FromDisk::Cluster(ToManager::OfStore { store, message }));
        self.sent(node)
    }

    fn writers(&self) -> Vec<WriterToken> {
        let writers = self.namespace.read(|read| namespace::writers(read, None, 10)).unwrap();
        writers.iter().map(namespace::WriterRecord::token).collect()
    }
}

/// In-sync replicas on the nodes that came first, in this order.
fn in_sync(stores: &[u64]) -> Vec<InSyncReplica> {
    let boot_generation = |store: u64| BootGeneration(u32::try_from(store).unwrap());
    stores
        .iter()
        .map(|store| InSyncReplica { store: StoreId(*store), boot_generation: boot_generation(*store) })
        .collect()
}

fn change<O: Operation + Send + 'static>(namespace: &Namespace, op: O) -> O::Reply {
    let ctx = namespace.context(Timestamp(1), &Actor::admin(), None);
    namespace.change_wait(Durability::Synced, ctx, op).unwrap()
}

fn session_in(sent: &[FromManager]) -> Option<SessionId> {
    sent.iter().find_map(|message| match message {
        FromManager::Cluster(ToServer::Registered { registered, .. }) => Some(registered.session),
        _ => None,
    })
}

fn refusal(sent: &[FromManager]) -> Option<ErrorCode> {
    sent.iter().find_map(|message| match message {
        FromManager::Cluster(ToServer::ToStore {
            message: ToStore::Placed { result, .. } | ToStore::Ended { result, .. },
            ..
        }) => result.err(),
        _ => None,
    })
}

#[test]
fn objects_newer_than_the_namespace_are_reported_and_their_numbers_not_reused() {
    let cluster = Cluster::new();
    let [first, second, damaged] = [1, 2, 3].map(|number| cluster.joins(number));
    let is_older = || cluster.manager.status_view().unwrap().is_older_than_stores;
    let next = || cluster.namespace.ids().next_object().unwrap();
    let ours = next();
    cluster.comes_with(first, ours);
    cluster.comes_with(damaged, ObjectId(u64::MAX));
    assert!(!is_older());
    // All numbers that it could have been given are in a range of 2^20.
    let of_others = ObjectId(1 << 30);
    cluster.comes_with(first, of_others);
    assert!(is_older());
    let above = next();
    assert!(above > of_others);
    cluster.comes_with(second, ObjectId(of_others.0 + 1));
    assert!(next().0 == above.0 + 1, "nothing of that is to be handed out");
}

#[test]
fn a_removed_node_is_disconnected_and_cannot_return() {
    let cluster = Cluster::new();
    let (gone, _) = cluster.disk(1);
    let (stays, _) = cluster.disk(2);
    cluster.passes(100);
    cluster.manager.remove_node("disk1", false).unwrap();
    assert_eq!(*cluster.told.cut.lock(), [gone]);
    assert_eq!(cluster.addresses(stays), Some(vec![stays.0]), "the others are told at once");
    // Its connection was accepted before.
    cluster.comes(gone);
    assert_eq!(cluster.registers(gone), None);
    assert!(cluster.sent(gone).is_empty() && cluster.told.cut.lock().len() > 1);
    cluster.passes(1);
    cluster.manager.tick();
    assert_eq!(cluster.registers(gone), None);
    assert!(cluster.registers(stays).is_some());
}

#[test]
fn a_node_that_is_there_is_cut_off_and_removed_when_its_lease_has_ended() {
    let mut cluster = Cluster::new();
    let (stolen, session) = cluster.disk(1);
    let (stays, _) = cluster.disk(2);
    let renews = |cluster: &Cluster| {
        let renew = ToManager::Renew { node: stolen, session, number: 2 };
        cluster.manager.receive(stolen, FromDisk::Cluster(renew));
        cluster.sent(stolen)
    };
    let is_listed =
        |cluster: &Cluster| cluster.manager.status_view().unwrap().nodes.iter().any(|one| one.node == stolen);
    assert!(matches!(cluster.manager.remove_node("disk1", false), Err(MemberError::IsThere { .. })));
    assert!(cluster.told.cut.lock().is_empty());

    let lease = match cluster.manager.remove_node("disk1", true) {
        Err(MemberError::IsCutOff { lease, .. }) => lease,
        other => panic!("{other:?}"),
    };
    assert!(lease > Duration::ZERO && lease < Duration::from_secs(60), "out within a minute: {lease:?}");
    assert_eq!(*cluster.told.cut.lock(), [stolen]);
    // Whoever has its key connects at once, and tries everything that keeps a node in.
    cluster.sent(stolen);
    cluster.comes(stolen);
    let cut = cluster.told.cut.lock().clone();
    assert!(cut.len() > 1 && cut.iter().all(|node| *node == stolen), "{cut:?}");
    let is_secret = |one: &FromManager| matches!(one, FromManager::Keys(_));
    assert!(!cluster.sent(stolen).iter().any(is_secret), "it gets no key for capabilities");
    assert_eq!(cluster.registers(stolen), None);
    let answers = renews(&cluster);
    let is_refusal = |one: &FromManager| matches!(one, FromManager::Cluster(ToServer::NoSession { .. }));
    assert!(answers.iter().all(is_refusal), "{answers:?}");
    // Its lease may still run, so it is not removed yet.
    assert!(matches!(cluster.manager.remove_node("disk1", true), Err(MemberError::IsCutOff { .. })));
    assert!(is_listed(&cluster));
    {
        let mut now = cluster.told.now.lock();
        *now = *now + lease;
    }
    cluster.manager.remove_node("disk1", true).unwrap();
    assert!(!is_listed(&cluster));
    assert_eq!(cluster.addresses(stays), Some(vec![stays.0]), "the others are told at once");
    cluster.comes(stolen);
    assert_eq!(cluster.registers(stolen), None);
    assert!(cluster.sent(stolen).iter().all(is_refusal));
    cluster.restart_manager();
    cluster.passes(100);
    cluster.comes(stolen);
    assert_eq!(cluster.registers(stolen), None);
}

#[test]
fn a_node_that_was_cut_off_is_removed_although_nobody_asks_again() {
    let cluster = Cluster::new();
    let (stolen, _) = cluster.disk(1);
    let shown = |cluster: &Cluster| {
        let nodes = cluster.manager.status_view().unwrap().nodes;
        nodes.into_iter().find(|one| one.node == stolen).map(|one| one.is_being_removed)
    };
    assert_eq!(shown(&cluster), Some(false));
    let lease = match cluster.manager.remove_node("disk1", true) {
        Err(MemberError::IsCutOff { lease, .. }) => lease,
        other => panic!("{other:?}"),
    };
    cluster.manager.tick();
    assert_eq!(shown(&cluster), Some(true));
    {
        let mut now = cluster.told.now.lock();
        *now = *now + lease + Duration::from_secs(1);
    }
    for _ in 0..200 {
        cluster.manager.tick();
        if shown(&cluster).is_none() {
            cluster.comes(stolen);
            return assert_eq!(cluster.registers(stolen), None);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("it is still there: {:?}", shown(&cluster));
}

#[test]
fn a_node_that_was_cut_off_stays_out_after_a_restart_of_the_manager() {
    let mut cluster = Cluster::new();
    let (stolen, _) = cluster.disk(1);
    assert!(matches!(cluster.manager.remove_node("disk1", true), Err(MemberError::IsCutOff { .. })));
    // The manager is killed at once.
    cluster.restart_manager();
    cluster.comes(stolen);
    assert_eq!(cluster.registers(stolen), None);
    let nodes = cluster.manager.status_view().unwrap().nodes;
    assert_eq!(nodes.iter().find(|one| one.node == stolen).map(|one| one.is_being_removed), Some(true));
    cluster.passes(100);
    for _ in 0..200 {
        cluster.manager.tick();
        if cluster.manager.status_view().unwrap().nodes.iter().all(|one| one.node != stolen) {
            cluster.comes(stolen);
            return assert_eq!(cluster.registers(stolen), None);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("it is still there");
}

/// An engine that cannot be read after a change, if it is told so.
#[derive(Default)]
struct UnreadableKv {
    kv: MemoryKv,
    breaks: Mutex<bool>,
    is_broken: Mutex<bool>,
}

struct Unreadable;

impl kv::Read for Unreadable {
    fn get(&self, _: &[u8]) -> Result<Option<Vec<u8>>, kv::KvError> {
        Err(kv::KvError::Io("the disk is away".into()))
    }

    fn scan(&self, _: &[u8], _: &[u8], _: kv::ScanOrder, _: kv::Visit<'_>) -> Result<(), kv::KvError> {
        Err(kv::KvError::Io("the disk is away".into()))
    }
}

impl Kv for UnreadableKv {
    fn snapshot(&self) -> Box<dyn kv::Read + Send + '_> {
        match *self.is_broken.lock() {
            true => Box::new(Unreadable),
            false => self.kv.snapshot(),
        }
    }

    fn submit(&self, durability: Durability, op: kv::Op, done: kv::OpDone) {
        *self.is_broken.lock() |= *self.breaks.lock();
        self.kv.submit(durability, op, done);
    }
}

impl UnreadableKv {
    fn set(&self, breaks: bool) {
        *self.breaks.lock() = breaks;
        *self.is_broken.lock() = false;
    }
}

#[test]
fn a_removal_that_is_recorded_counts_although_it_cannot_be_read() {
    let kv = Arc::new(UnreadableKv::default());
    let cluster = Cluster::on(Arc::clone(&kv));
    let (stolen, _) = cluster.disk(1);
    let (gone, _) = cluster.disk(2);
    kv.set(true);
    let cut = cluster.manager.remove_node("disk1", true);
    assert!(matches!(cut, Err(MemberError::IsCutOff { .. })), "{cut:?}");
    assert_eq!(*cluster.told.cut.lock(), [stolen]);
    kv.set(false);
    cluster.comes(stolen);
    assert_eq!(cluster.registers(stolen), None);
    cluster.passes(100);
    cluster.told.cut.lock().clear();
    kv.set(true);
    cluster.manager.remove_node("disk2", false).unwrap();
    assert_eq!(*cluster.told.cut.lock(), [gone]);
    kv.set(false);
    cluster.comes(gone);
    assert_eq!(cluster.registers(gone), None);
    cluster.manager.tick();
    assert!(cluster.manager.status_view().unwrap().nodes.iter().all(|one| one.node != gone));
    assert_eq!(cluster.registers(gone), None);
}

#[test]
fn a_node_is_never_both_removed_and_online() {
    let cluster = Cluster::new();
    let (node, _) = cluster.disk(1);
    for _ in 0..20 {
        cluster.passes(100);
        let (removed, session) = std::thread::scope(|scope| {
            let removing = scope.spawn(|| cluster.manager.remove_node("disk1", false));
            let session = cluster.registers(node);
            (removing.join().unwrap(), session)
        });
        let presence = cluster.manager.status_view().unwrap().nodes.iter().find(|one| one.node == node).cloned();
        match removed {
            Ok(()) => return assert!(session.is_none() && presence.is_none(), "{session:?}"),
            Err(MemberError::IsThere { .. }) => assert_eq!(presence.unwrap().presence, Some(Presence::Online)),
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn keys_of_capabilities_rotate_while_a_server_stays_connected() {
    let cluster = Cluster::new();
    let (node, session) = cluster.disk(1);
    let keys = |cluster: &Cluster| {
        let id = |message: FromManager| match message {
            FromManager::Keys(keys) => Some(keys.id),
            _ => None,
        };
        cluster.sent(node).into_iter().filter_map(id).collect::<Vec<u32>>()
    };
    let first = {
        cluster.comes(node);
        *keys(&cluster).last().unwrap()
    };
    let lives = |secs: u64| {
        for _ in 0..secs {
            cluster.lives(&[(node, session)], 1);
            cluster.manager.tick();
        }
    };
    lives(3590);
    assert_eq!(keys(&cluster), []);
    // The first one cannot be sent.
    cluster.told.full.lock().insert(node);
    lives(20);
    cluster.told.full.lock().clear();
    lives(5);
    assert_eq!(keys(&cluster), [first + 1], "once, although it is tried each second");
    lives(3590);
    assert_eq!(keys(&cluster), []);
    lives(30);
    assert_eq!(keys(&cluster), [first + 2]);
}

#[test]
fn messages_of_nonmembers_are_ignored() {
    let cluster = Cluster::new();
    let stranger = NodeId(77);
    cluster.comes(stranger);
    assert_eq!(cluster.registers(stranger), None);
    assert!(cluster.told.cut.lock().contains(&stranger) && cluster.sent(stranger).is_empty());
}

#[test]
fn a_joining_node_is_heard_at_once_and_announced_to_the_others() {
    let cluster = Cluster::new();
    let (first, _) = cluster.disk(1);
    let (second, _) = cluster.disk(2);
    cluster.passes(2);
    cluster.manager.tick();
    assert_eq!(cluster.addresses(first), Some(vec![first.0, second.0]));
    // A message that could not be sent is sent later.
    cluster.told.full.lock().insert(first);
    let third = cluster.joins(3);
    cluster.passes(2);
    cluster.manager.tick();
    assert_eq!(cluster.addresses(first), None);
    cluster.told.full.lock().clear();
    cluster.passes(2);
    cluster.manager.tick();
    assert_eq!(cluster.addresses(first), Some(vec![first.0, second.0, third.0]));
    cluster.passes(2);
    cluster.manager.tick();
    assert_eq!(cluster.addresses(first), None, "and not again and again");
}

#[test]
fn disk_servers_are_told_the_addresses_of_all_managers() {
    let cluster = Cluster::new();
    let node = cluster.joins(2);
    let told = |cluster: &Cluster| {
        let managers = |message: FromManager| match message {
            FromManager::Managers(managers) => Some(managers),
            _ => None,
        };
        let last = cluster.sent(node).into_iter().filter_map(managers).next_back()?;
        Some(last.iter().map(|manager| format!("{} {}", manager.node, manager.nodes_at)).collect::<Vec<_>>().join(", "))
    };
    let is_at = |node: NodeId, nodes_at: &str| {
        let (for_nodes, for_clients) = (vec![nodes_at.to_owned()], vec!["m:1094".to_owned()]);
        change(&cluster.namespace, SetAddresses { node, for_nodes, for_clients });
    };
    let look = || {
        cluster.passes(2);
        cluster.manager.tick();
    };
    cluster.comes(node);
    look();
    assert_eq!(told(&cluster), None, "no manager has said where it is");
    is_at(namespace::FIRST_NODE, "m1:1");
    look();
    assert_eq!(told(&cluster).as_deref(), Some("1 m1:1"), "after a change");
    look();
    assert_eq!(told(&cluster), None, "once");
    let (id, key, expires) = ([9; 16], [9; 32], Timestamp(i64::MAX));
    let token = TokenEntry { id, hash: key, roles: 1, made: Timestamp(1), expires, uses_max: 1, used: Vec::new() };
    change(&cluster.namespace, MakeToken { token: token.clone() });
    let second = change(&cluster.namespace, JoinNode { token, roles: 1, name: "m2".into(), key });
    is_at(second, "m2:1");
    look();
    let all = format!("1 m1:1, {second} m2:1");
    assert_eq!(told(&cluster).as_ref(), Some(&all), "and no disk server");
    cluster.manager.disconnected(node);
    cluster.comes(node);
    assert_eq!(told(&cluster), Some(all), "with the greeting");
    assert_eq!(cluster.manager.managers().len(), 2);
    assert_eq!(cluster.manager.managers()[0].clients_at, Some(("m".to_owned(), 1094)));
    // A manager has no files, so its address for clients is not that of a disk server.
    is_at(node, "d:1");
    assert!(cluster.manager.managers().iter().all(|manager| manager.node != node));
}

#[test]
fn addresses_of_ten_thousand_stores_are_sent_in_pages_that_fit() {
    let cluster = Cluster::new();
    let mut nodes = Vec::new();
    for number in 1..=11 {
        let node = cluster.joins(number);
        let at = format!("{}:1", "h".repeat(240));
        change(&cluster.namespace, SetAddresses { node, for_nodes: vec![at], for_clients: vec!["h:1".into()] });
        (1..=920).for_each(|store| cluster.has_store(node, u64::from(number) << 48 | store));
        nodes.push(node);
    }
    cluster.comes(nodes[0]);
    let page = |message: FromManager| match message {
        FromManager::StoreAddresses(page) => Some(page),
        _ => None,
    };
    cluster.passes(2);
    cluster.manager.tick();
    let pages: Vec<StoreAddressPage> = cluster.sent(nodes[0]).into_iter().filter_map(page).collect();
    let last = pages.last().unwrap().number;
    let pages: Vec<StoreAddressPage> = pages.into_iter().filter(|page| page.number == last).collect();
    assert!(pages.iter().zip(0..).all(|(page, number)| page.page == number));
    assert_eq!(pages.iter().filter(|page| page.is_last).count(), 1);
    assert_eq!(pages.iter().map(|page| page.addresses.len()).sum::<usize>(), 11 * 921);
    for page in pages {
        link::encode(&node::Message::FromManager(FromManager::StoreAddresses(page))).unwrap();
    }
}

#[test]
fn a_store_speaks_only_for_its_own_open_writes() {
    let cluster = Cluster::new();
    let disks: Vec<(NodeId, SessionId)> = (1..=3).map(|number| cluster.disk(number)).collect();
    let opened = cluster.writes(&[1, 2]);
    let (replica, writer) = (opened.replica, opened.writer);
    let whole = cluster::replication::ObjectDigest { len: 5, crc32c: types::Crc32c(1), adler32: types::Adler32(2) };
    for other in [2, 3] {
        let (node, session) = disks[other - 1];
        let other = other as u64;
        for named in [in_sync(&[1]), in_sync(&[other])] {
            let location = FromStore::Place { session, replica, writer, in_sync: named, is_ending: false, request: 1 };
            assert_eq!(refusal(&cluster.says(node, other, location)), Some(ErrorCode::Stale));
        }
        let holders = vec![StoreId(other)];
        let (mtime, by) = (None, cluster::message::ClosedBy::Client { request: None });
        let commit = FromStore::Commit { replica, group: GROUP, writer, whole, holders, mtime, by, request: 2 };
        assert_eq!(refusal(&cluster.says(node, other, commit)), Some(ErrorCode::Stale));
        let interrupt = FromStore::Interrupt { replica, writer, kept_len: 0, holders: Vec::new(), request: 3 };
        assert_eq!(refusal(&cluster.says(node, other, interrupt)), Some(ErrorCode::Stale));
    }
    assert_eq!(cluster.writers(), [writer]);
    (1..).zip(&disks).for_each(|(number, (node, _))| cluster.reports(*node, &[number]));
    // These nodes say that they do not lead the open write, and say so again after more than a grace period. True if the manager
    // then ends it.
    let is_taken_on_by = |those: &[(NodeId, SessionId)]| {
        let say = || {
            for (node, _) in those {
                cluster.manager.receive(*node, FromDisk::Leads { asked: vec![writer], led: Vec::new() });
            }
        };
        say();
        for _ in 0..100 {
            cluster.passes(1);
            for (node, session) in &disks {
                let renew = ToManager::Renew { node: *node, session: *session, number: 2 };
                cluster.manager.receive(*node, FromDisk::Cluster(renew));
            }
            cluster.manager.tick();
        }
        say();
        // A thread of its own changes the namespace.
        std::thread::sleep(Duration::from_millis(200));
        // The third store holds the file as far as is known, and must not show it meanwhile.
        cluster.sent(disks[2].0).iter().any(is_fence)
    };
    assert!(!is_taken_on_by(&disks[1..]), "nobody is believed about what he does not lead");
    assert!(is_taken_on_by(&disks[..1]));
    let writer = cluster.writers()[0];
    let (node, session) = disks[0];
    let location = FromStore::Place { session, replica, writer, in_sync: in_sync(&[1]), is_ending: false, request: 1 };
    assert_eq!(refusal(&cluster.says(node, 1, location)), None);
    let holders = vec![StoreId(1), StoreId(3)];
    let (mtime, by) = (None, cluster::message::ClosedBy::Client { request: None });
    let commit = FromStore::Commit { replica, group: GroupId(99), writer, whole, holders, mtime, by, request: 2 };
    assert_eq!(refusal(&cluster.says(node, 1, commit)), None);
    assert!(cluster.writers().is_empty());
    let holders = cluster.namespace.read(|read| namespace::holders(read, GROUP, opened.object)).unwrap();
    assert_eq!(holders, [StoreId(1)], "what it says of a store that took no part does not count");
}

#[test]
fn only_the_primary_can_have_stores_fenced() {
    let cluster = Cluster::new();
    let disks: Vec<(NodeId, SessionId)> = (1..=3).map(|number| cluster.disk(number)).collect();
    let opened = cluster.writes(&[1, 2]);
    let whole = cluster::replication::ObjectDigest { len: 5, crc32c: types::Crc32c(1), adler32: types::Adler32(2) };
    let (mtime, by, holders) =
        (None, cluster::message::ClosedBy::Client { request: None }, vec![StoreId(1), StoreId(2)]);
    let (replica, writer) = (opened.replica, opened.writer);
    let commit = FromStore::Commit { replica, group: GROUP, writer, whole, holders, mtime, by, request: 2 };
    assert_eq!(refusal(&cluster.says(disks[0].0, 1, commit)), None);
    // The file is changed in place, so a store that is left out is fenced.
    let client = ClientIdentity { principal: PrincipalId(0), user: "u".into(), pid: 1, host: "h".into() };
    let open = OpenWrite::new(NsPath::parse(b"/f").unwrap(), WriteMode::Update, client, BootId(1));
    let placement = Placement { group: GROUP, in_sync: in_sync(&[1, 2]) };
    let writer = change(&cluster.namespace, OpenWrite { placement, ..open }).writer;
    let are_fenced = || {
        let sent = std::mem::take(&mut *cluster.told.sent.lock());
        sent.iter().any(|(_, message)| is_fence(message))
    };
    let location = |by: usize, replica, named: &[u64]| {
        let (node, session) = disks[by - 1];
        let message =
            FromStore::Place { session, replica, writer, in_sync: in_sync(named), is_ending: false, request: 1 };
        cluster.manager.receive(node, FromDisk::Cluster(ToManager::OfStore { store: StoreId(by as u64), message }));
    };
    are_fenced();
    location(2, replica, &[2]);
    location(3, replica, &[3]);
    location(1, types::ReplicaId::first(ObjectId(1 << 40)), &[1]);
    assert!(!are_fenced());
    location(1, replica, &[1]);
    assert!(are_fenced());
}

fn is_fence(message: &FromManager) -> bool {
    matches!(message, FromManager::Cluster(ToServer::ToStore { message: ToStore::Fence(_), .. }))
}

/// The copies that a node was ordered to make.
fn copies(sent: &[FromManager]) -> Vec<(StoreId, cluster::CopyId)> {
    let copy = |message: &FromManager| match message {
        FromManager::Cluster(ToServer::ToStore { store, message: ToStore::Copy { copy, .. }, .. }) => {
            Some((*store, *copy))
        }
        _ => None,
    };
    sent.iter().filter_map(copy).collect()
}

#[test]
fn copies_ordered_before_a_restart_do_not_block_other_copies() {
    let mut cluster = Cluster::new();
    let nodes: Vec<NodeId> = (1..=3).map(|number| cluster.joins(number)).collect();
    let opened = cluster.writes(&[1]);
    // A new manager reads the groups that an earlier one made.
    cluster.restart_manager();
    nodes.iter().for_each(|node| cluster.comes(*node));
    let mut disks: Vec<(NodeId, SessionId)> =
        nodes.iter().map(|node| (*node, cluster.registers(*node).unwrap())).collect();
    let (replica, writer, holders) = (opened.replica, opened.writer, vec![StoreId(1)]);
    let whole = cluster::replication::ObjectDigest { len: 5, crc32c: types::Crc32c(1), adler32: types::Adler32(2) };
    let (mtime, by) = (None, cluster::message::ClosedBy::Client { request: None });
    let commit = FromStore::Commit { replica, group: GROUP, writer, whole, holders, mtime, by, request: 1 };
    assert_eq!(refusal(&cluster.says(disks[0].0, 1, commit)), None);
    let pass = |disks: &[(NodeId, SessionId)], secs: u64| {
        for _ in 0..10 * secs {
            let mut now = cluster.told.now.lock();
            *now = *now + Duration::from_millis(100);
            drop(now);
            for (node, session) in disks {
                let renew = ToManager::Renew { node: *node, session: *session, number: 2 };
                cluster.manager.receive(*node, FromDisk::Cluster(renew));
            }
            cluster.manager.tick();
        }
    };
    (1..).zip(&disks).for_each(|(number, (node, _))| cluster.reports(*node, &[number]));
    pass(&disks, 1);
    let ordered = copies(&cluster.sent(disks[1].0));
    assert_eq!(ordered.len(), 1);
    // If the answer was lost, the order is repeated. It is not a new copy.
    pass(&disks, 11);
    assert_eq!(copies(&cluster.sent(disks[1].0)), ordered);
    // A restarted server knows of no copy.
    let request = Register { node: disks[1].0, process_epoch: ProcessEpoch(2), boot: BootId(1), number: 3 };
    cluster.manager.receive(disks[1].0, FromDisk::Cluster(ToManager::Register(request)));
    disks[1].1 = session_in(&cluster.sent(disks[1].0)).unwrap();
    pass(&disks, 20);
    let anew = copies(&cluster.sent(disks[1].0));
    assert!(anew.first().is_some_and(|(store, copy)| *store == StoreId(2) && *copy > ordered[0].1), "{anew:?}");
}

#[test]
fn capability_time_advances_whatever_is_done_to_the_clock() {
    let cluster = Cluster::new();
    let (node, session) = cluster.disk(1);
    let said = || {
        let renew = ToManager::Renew { node, session, number: 2 };
        cluster.manager.receive(node, FromDisk::Cluster(renew));
        let wall = |message: FromManager| match message {
            FromManager::Cluster(ToServer::Renewed { wall, .. }) => Some(wall),
            _ => None,
        };
        cluster.sent(node).into_iter().find_map(wall).unwrap()
    };
    let before = said();
    assert_eq!(before, Timestamp(1_800_000_000_000_000_000));
    cluster.passes(3);
    *cluster.told.set_back.lock() = 3600;
    assert_eq!(said(), before.plus(Duration::from_secs(3)), "what had ended would be good again");
}

#[test]
fn a_store_missing_from_its_online_node_is_not_waited_for() {
    let cluster = Cluster::new();
    let (node, _) = cluster.disk(1);
    for number in 2..=3 {
        cluster.disk(number);
    }
    let opened = cluster.writes(&[1]);
    let whole = cluster::replication::ObjectDigest { len: 5, crc32c: types::Crc32c(1), adler32: types::Adler32(2) };
    let (mtime, by) = (None, cluster::message::ClosedBy::Client { request: None });
    let (replica, writer, holders) = (opened.replica, opened.writer, vec![StoreId(1)]);
    let commit = FromStore::Commit { replica, group: GROUP, writer, whole, holders, mtime, by, request: 1 };
    assert_eq!(refusal(&cluster.says(node, 1, commit)), None);
    let path = NsPath::parse(b"/f").unwrap();
    let from = std::net::Ipv4Addr::LOCALHOST.into();
    let open_request = OpenRequest::new(Timestamp(1), path.clone(), from, Actor::admin());
    let open = || cluster.manager.open_read(&open_request, &path, false, None);
    let report = |stores: &[u64]| cluster.reports(node, stores);
    report(&[1]);
    assert_eq!(open().unwrap().node, node);
    report(&[]);
    assert!(matches!(open(), Err(OpeningError::NoCopy(_))), "it may be so for good: {:?}", open());
    report(&[1]);
    assert_eq!(open().unwrap().node, node);
}

#[test]
fn a_disk_that_moves_between_nodes_is_waited_for_and_keeps_only_durable_bytes() {
    let cluster = Cluster::new();
    let disks: Vec<(NodeId, SessionId)> = (1..=3).map(|number| cluster.disk(number)).collect();
    let opened = cluster.writes(&[1, 2]);
    let reopened = || cluster.updates_as("/f", Some(opened.writer)).recv().unwrap();
    let interrupted = || {
        let (node, store) = (disks[1].0, 2);
        let interrupt = FromStore::Interrupt {
            replica: opened.replica,
            writer: opened.writer,
            kept_len: 0,
            holders: vec![StoreId(store)],
            request: 3,
        };
        refusal(&cluster.says(node, store, interrupt))
    };
    // The first store has all acknowledged bytes on disk or in memory. The second one's server has restarted.
    cluster.passes(100);
    assert!(cluster.boots(disks[1].0, 2).is_some());
    cluster.manager.remove_node("disk1", false).unwrap();
    assert!(matches!(reopened(), Err(OpeningError::Wait { .. })), "{:?}", reopened());
    assert_eq!(interrupted(), Some(ErrorCode::Stale), "it would be ended with what was synced");
    // The disk comes back in another machine, which comes for the first time, as the earlier one did.
    let node = cluster.joins(4);
    cluster.comes(node);
    cluster.has_store(node, 1);
    assert!(cluster.registers(node).is_some());
    cluster.passes(2);
    cluster.manager.tick();
    assert!(matches!(reopened(), Err(OpeningError::Lost)), "{:?}", reopened());
    assert_eq!(interrupted(), None);
    assert!(cluster.writers().is_empty());
}

#[test]
fn no_change_in_place_only_on_a_store_removed_as_lost() {
    let mut cluster = Cluster::new();
    let nodes: Vec<NodeId> = (1..=2).map(|number| cluster.disk(number).0).collect();
    cluster.groups(&[1, 2]);
    cluster.has_file("/f", &[1, 2]);
    cluster.restart_manager();
    let is_there = |store: u64| {
        let node = nodes[usize::try_from(store - 1).unwrap()];
        cluster.comes(node);
        cluster.reports(node, &[store]);
        assert!(cluster.registers(node).is_some());
    };
    let opens = || cluster.updates("/f");
    is_there(1);
    cluster.manager.remove_lost_store(StoreId(1), true).unwrap();
    // The other store is away, and has the whole file too. After the change its replica would be missing, with a store that is about to go as the
    // only source.
    let refused = opens().try_recv().unwrap();
    assert!(matches!(&refused, Err(OpeningError::Wait { .. })), "{refused:?}");
    assert!(refused.unwrap_err().to_string().contains("host2"), "that one is waited for");
    assert!(cluster.writers().is_empty());
    is_there(2);
    cluster.sent(nodes[0]);
    let opened = opens();
    assert!(opened.try_recv().is_err(), "who does not take part stops to show it first");
    assert!(cluster.sent(nodes[0]).iter().any(is_fence));
    // If no other store has the file, there is nothing to wait for.
    let mut alone = Cluster::new();
    let (node, _) = alone.disk(1);
    alone.groups(&[1]);
    alone.has_file("/f", &[1]);
    alone.restart_manager();
    alone.comes(node);
    alone.reports(node, &[1]);
    assert!(alone.registers(node).is_some());
    alone.manager.remove_lost_store(StoreId(1), true).unwrap();
    assert_eq!(alone.updates("/f").recv().unwrap().unwrap(), node);
}

#[test]
fn a_store_that_left_a_group_is_fenced_before_a_change_even_after_a_manager_restart() {
    for drains in [true, false] {
        let mut cluster = Cluster::new();
        let nodes: Vec<NodeId> = (1..=2).map(|number| cluster.disk(number).0).collect();
        cluster.groups(&[1, 2]);
        cluster.has_file("/f", &[1, 2]);
        if drains {
            cluster.manager.drain_store(StoreId(2)).unwrap();
        } else {
            cluster.manager.remove_lost_store(StoreId(2), true).unwrap();
        }
        // The store leaves, and the manager that saw this is killed. A client may still read there with a capability of that manager.
        let stays = Member { store: StoreId(1), since: ObjectId(1), through: ObjectId(0) };
        change(&cluster.namespace, PutGroup { group: Group { group: GROUP, epoch: 2, members: vec![stays] } });
        cluster.restart_manager();
        for (store, node) in (1..).zip(&nodes) {
            cluster.comes(*node);
            cluster.reports(*node, &[store]);
            assert!(cluster.registers(*node).is_some());
        }
        cluster.sent(nodes[1]);
        let _opened = cluster.updates("/f");
        assert!(cluster.sent(nodes[1]).iter().any(is_fence), "{drains}");
    }
}

#[test]
fn lost_files_do_not_delay_repair_of_the_others() {
    let mut cluster = Cluster::new();
    let nodes: Vec<NodeId> = (1..=3).map(|number| cluster.disk(number).0).collect();
    cluster.groups(&[1, 2]);
    // More missing replicas than one step handles.
    (0..2 * cluster::backfill::MISSING_AT_A_TIME).for_each(|number| cluster.has_file(&format!("/lost{number}"), &[1]));
    cluster.has_file("/both", &[1, 2]);
    cluster.restart_manager();
    for (store, node) in (1..).zip(&nodes) {
        cluster.comes(*node);
        cluster.reports(*node, &[store]);
    }
    cluster.manager.remove_lost_store(StoreId(1), true).unwrap();
    let third = || {
        let group = cluster.namespace.read(|read| namespace::group(read, GROUP)).unwrap().unwrap();
        group.members.into_iter().find(|member| member.store == StoreId(3))
    };
    let until = std::time::Instant::now() + Duration::from_secs(20);
    while !third().is_some_and(|member| member.is_current()) {
        assert!(std::time::Instant::now() < until, "{:?} {:?}", third(), cluster.manager.repair_view());
        cluster.passes(1);
        for node in &nodes[1..] {
            cluster.boots(*node, 1);
        }
        cluster.manager.tick();
        // A thread of its own changes the namespace.
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_copy_is_followed_by_the_next_one_at_once() {
    let (cluster, nodes, sessions) = missing_replicas(40);
    // One step finds them, and the next one starts to copy.
    cluster.passes(1);
    cluster.manager.tick();
    cluster.manager.tick();
    let (mut made, until) = (0, std::time::Instant::now() + Duration::from_secs(20));
    while made < 40 {
        assert!(std::time::Instant::now() < until, "{made}");
        for (store, copy) in copies(&cluster.sent(nodes[1])) {
            made += 1;
            let message = FromStore::Copied { session: sessions[1], copy, result: Ok(()) };
            cluster.manager.receive(nodes[1], FromDisk::Cluster(ToManager::OfStore { store, message }));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// So many files whose second replica is missing. Both disk servers are in session.
fn missing_replicas(count: u64) -> (Cluster, Vec<NodeId>, Vec<SessionId>) {
    files_on(count, &[1])
}

/// So many files of stores 1 and 2 that these stores hold. Both disk servers are in session.
fn files_on(count: u64, holders: &[u64]) -> (Cluster, Vec<NodeId>, Vec<SessionId>) {
    let mut cluster = Cluster::new();
    let nodes: Vec<NodeId> = (1..=2).map(|number| cluster.joins(number)).collect();
    cluster.groups(&[1, 2]);
    (0..count).for_each(|number| cluster.has_file(&format!("/f{number}"), holders));
    cluster.restart_manager();
    let session = |(store, node): (u64, &NodeId)| {
        cluster.comes(*node);
        let session = cluster.registers(*node).unwrap();
        cluster.reports(*node, &[store]);
        session
    };
    let sessions: Vec<SessionId> = (1..).zip(&nodes).map(session).collect();
    (cluster, nodes, sessions)
}

impl Cluster {
    /// Lets time pass, with renewed sessions. A second at a time, as a lease allows.
    fn lives(&self, nodes: &[(NodeId, SessionId)], secs: u64) {
        for _ in 0..secs {
            self.passes(1);
            for (node, session) in nodes {
                let renew = ToManager::Renew { node: *node, session: *session, number: 2 };
                self.manager.receive(*node, FromDisk::Cluster(renew));
            }
            self.manager.tick();
            self.manager.tick();
        }
    }

    /// The copies that a node has been ordered to make end in this way.
    fn end_copies(&self, node: NodeId, session: SessionId, result: Result<(), CopyFailure>) -> usize {
        let ordered = copies(&self.sent(node));
        for (store, copy) in &ordered {
            let message = FromStore::Copied { session, copy: *copy, result };
            self.manager.receive(node, FromDisk::Cluster(ToManager::OfStore { store: *store, message }));
        }
        ordered.len()
    }

    /// Waits for what other threads do.
    fn until(&self, what: impl Fn(&manager::RepairView) -> bool) {
        let until = std::time::Instant::now() + Duration::from_secs(20);
        while !what(&self.manager.repair_view().unwrap()) {
            assert!(std::time::Instant::now() < until, "{:?}", self.manager.repair_view());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn a_failure_is_shown_with_its_reason_until_the_replica_is_made() {
    let (cluster, nodes, sessions) = missing_replicas(2);
    let both: Vec<(NodeId, SessionId)> = nodes.iter().copied().zip(sessions.iter().copied()).collect();
    cluster.lives(&both, 1);
    assert_eq!(cluster.end_copies(nodes[1], sessions[1], Err(CopyFailure::Source(ErrorCode::Damaged))), 2);
    let view = cluster.manager.repair_view().unwrap();
    assert_eq!((view.missing.count, view.progress.missing_bytes.count, view.progress.failed), (2, 2, 2));
    let failed = view.progress.last_failed.unwrap();
    assert!(failed.path.as_deref().is_some_and(|path| path.starts_with("/f")), "{failed:?}");
    assert_eq!(failed.why, "the source store cannot provide it: bytes on its disk are damaged");
    assert!(failed.from.starts_with("store 1 ") && failed.to.starts_with("store 2 "), "{failed:?}");
    assert_eq!(cluster.manager.status_view().unwrap().repair.failed, 2);
    // The next attempts succeed.
    cluster.lives(&both, 12);
    assert_eq!(cluster.end_copies(nodes[1], sessions[1], Ok(())), 2);
    cluster.until(|view| view.missing.count == 0);
    cluster.until(|view| view.progress.failed == 0);
    let progress = cluster.manager.repair_view().unwrap().progress;
    assert_eq!((progress.failed, progress.last_failed, progress.missing_bytes.count), (0, None, 0));
    assert!(progress.bytes_per_second.is_some() && progress.seconds_left.is_none(), "{:?}", progress.bytes_per_second);
}

#[test]
fn a_failure_is_not_shown_any_more_when_the_file_is_gone() {
    let (cluster, nodes, sessions) = missing_replicas(2);
    let both: Vec<(NodeId, SessionId)> = nodes.iter().copied().zip(sessions.iter().copied()).collect();
    cluster.lives(&both, 1);
    assert_eq!(cluster.end_copies(nodes[1], sessions[1], Err(CopyFailure::SourceSilent)), 2);
    let path = NsPath::parse(b"/f0").unwrap();
    change(&cluster.namespace, namespace::Remove { path });
    cluster.lives(&both, 12);
    let progress = cluster.manager.repair_view().unwrap().progress;
    assert_eq!((progress.failed, progress.last_failed.unwrap().path.as_deref()), (1, Some("/f1")));
}

#[test]
fn a_copy_of_a_server_that_went_away_is_a_failure_until_it_is_made() {
    let (cluster, nodes, sessions) = missing_replicas(2);
    let both: Vec<(NodeId, SessionId)> = nodes.iter().copied().zip(sessions.iter().copied()).collect();
    cluster.lives(&both, 1);
    assert_eq!(copies(&cluster.sent(nodes[1])).len(), 2);
    cluster.lives(&both[..1], 60);
    let progress = cluster.manager.repair_view().unwrap().progress;
    assert_eq!(progress.failed, 2);
    assert_eq!(progress.last_failed.unwrap().why, "the session of the target store's server has ended");
}

#[test]
fn a_repeated_request_of_another_principal_gets_no_redirect_to_an_open_write() {
    let cluster = Cluster::new();
    let (disk, _) = cluster.disk(1);
    cluster.groups(&[1]);
    let path = NsPath::parse(b"/f").unwrap();
    let client = |id| ClientIdentity { principal: PrincipalId(id), user: "u".into(), pid: 1, host: "h".into() };
    let placement = Placement { group: GROUP, in_sync: in_sync(&[1]) };
    let open = OpenWrite::new(path.clone(), WriteMode::NewOnly, client(5), BootId(1));
    let opened = change(&cluster.namespace, OpenWrite { mode: 0o666, placement, ..open });
    let ask = |actor: u32, client, restarted| {
        let actor = Actor::new(PrincipalId(actor), Arc::from([PrincipalId(100)]));
        let open_request = OpenRequest::new(Timestamp(1), path.clone(), std::net::Ipv4Addr::LOCALHOST.into(), actor);
        let how = if restarted { WriteMode::Replace } else { WriteMode::Update };
        let op = OpenWrite { restarted, ..OpenWrite::new(path.clone(), how, client, BootId(1)) };
        let (sender, receiver) = std::sync::mpsc::channel();
        cluster.manager.open_write(open_request, op, move |result| drop(sender.send(result.map(|to| to.node))));
        receiver.recv_timeout(Duration::from_secs(10)).unwrap()
    };
    cluster.sent(disk);
    assert_eq!(ask(6, client(6), false).unwrap_err().code(), ErrorCode::Busy);
    for restarted in [false, true] {
        assert_eq!(ask(6, client(5), restarted).unwrap_err().code(), ErrorCode::Denied, "{restarted}");
    }
    // No store was fenced for that, and the open write is unchanged.
    assert!(!cluster.sent(disk).iter().any(is_fence));
    assert_eq!(cluster.writers(), [opened.writer]);
    // The file's own client is recognised: it waits for the store that has its bytes.
    let waits = ask(5, client(5), false).unwrap_err().to_string();
    assert!(waits.contains("the in-sync stores are away"), "{waits}");
}

impl Cluster {
    /// A node asks about an open write. Returns the manager's answer.
    fn asks(&self, node: NodeId, writer: WriterToken, action: OpenWriteAction) -> Result<(), ErrorCode> {
        self.sent(node);
        self.manager.receive(node, FromDisk::OpenWrite(OpenWriteRequest { number: 5, writer, action }));
        let answer = self.sent(node).into_iter().find_map(|message| match message {
            FromManager::OpenWrite(OpenWriteAnswer { number: 5, result }) => Some(result.map(drop)),
            _ => None,
        });
        answer.unwrap().map_err(|refusal| refusal.code)
    }

    fn begins_numbering(&self, principal: u32) -> SessionId {
        let principal = PrincipalId(principal);
        let client = ClientIdentity { principal, user: "u".into(), pid: 1, host: "h".into() };
        change(&self.namespace, namespace::OpenSession { client })
    }

    fn commits(&self, node: NodeId, writer: WriterToken, number: Option<RequestNumber>) -> Option<ErrorCode> {
        let whole =
            cluster::replication::ObjectDigest { len: 1, crc32c: types::Crc32c::of(b"x"), adler32: types::Adler32(0) };
        let message = FromStore::Commit {
            replica: types::ReplicaId::first(writer.object),
            group: GROUP,
            writer,
            whole,
            holders: vec![StoreId(1), StoreId(2)],
            mtime: None,
            by: cluster::message::ClosedBy::Client { request: number },
            request: 1,
        };
        refusal(&self.says(node, 1, message))
    }
}

#[test]
fn a_close_is_announced_with_its_number_and_refused_before_it_begins_if_that_cannot_be_used() {
    let cluster = Cluster::new();
    let nodes = [1, 2, 3].map(|number| cluster.disk(number).0);
    cluster.groups(&[1, 2, 3]);
    let [f, g] = ["/f", "/g"].map(|path| cluster.opens(path, &[1, 2]).writer);
    let session = cluster.begins_numbering(0);
    let number = |number| RequestNumber { session, number };
    let announces = |writer, number| cluster.asks(nodes[0], writer, OpenWriteAction::Close(number));
    let of_another = RequestNumber { session: cluster.begins_numbering(9), number: 1 };
    assert_eq!(announces(f, number(0)), Err(ErrorCode::Invalid));
    assert_eq!(announces(f, RequestNumber { session: SessionId(9_999), number: 1 }), Err(ErrorCode::Stale));
    let writers_number = cluster.namespace.read(|read| namespace::writer_of(read, f.key, f.object)).unwrap().unwrap();
    assert_eq!(writers_number.client.principal, PrincipalId(0), "the administrator may use every session");
    assert_eq!(announces(f, of_another), Ok(()));
    assert!(!cluster.manager.is_closing(number(1)).unwrap());

    assert_eq!(announces(f, number(1)), Ok(()));
    assert_eq!(announces(f, number(1)), Ok(()), "the answer was lost");
    assert!(cluster.manager.is_closing(number(1)).unwrap());
    assert!(!cluster.manager.is_closing(of_another).unwrap(), "an open write closes once");
    assert_eq!(announces(g, number(1)), Err(ErrorCode::Invalid), "it closes another file at this moment");
    assert_eq!(cluster.commits(nodes[0], f, Some(number(1))), None);
    assert!(!cluster.manager.is_closing(number(1)).unwrap());
    assert_eq!(announces(g, number(1)), Err(ErrorCode::Invalid), "it has closed another file");
    assert_eq!(announces(g, number(2)), Ok(()));
    assert_eq!(cluster.writers(), [g], "nothing has ended that was refused");

    // Its client has opened the file again: the announced close does not come any more.
    let client = ClientIdentity { principal: PrincipalId(0), user: "u".into(), pid: 1, host: "h".into() };
    let again = OpenWrite::new(NsPath::parse(b"/g").unwrap(), WriteMode::Update, client, BootId(1));
    let placement = Placement { group: GROUP, in_sync: in_sync(&[1, 2]) };
    assert!(change(&cluster.namespace, OpenWrite { placement, ..again }).writer.epoch > g.epoch);
    assert!(!cluster.manager.is_closing(number(2)).unwrap());
}

#[test]
fn only_the_server_that_leads_an_open_write_can_have_it_discarded() {
    let cluster = Cluster::new();
    let nodes = [1, 2, 3].map(|number| cluster.disk(number).0);
    let opened = cluster.writes(&[1, 2]);
    let writer = opened.writer;
    assert_eq!(cluster.asks(nodes[1], writer, OpenWriteAction::Discard), Err(ErrorCode::Stale));
    let fenced = WriterToken { epoch: writer.epoch + 1, ..writer };
    assert_eq!(cluster.asks(nodes[0], fenced, OpenWriteAction::Discard), Err(ErrorCode::Stale));
    assert_eq!(cluster.writers(), [writer]);
    assert_eq!(cluster.asks(nodes[0], writer, OpenWriteAction::Discard), Ok(()));
    assert!(cluster.writers().is_empty());
    let due = cluster.namespace.read(|read| namespace::due_deletions(read, None, 10)).unwrap();
    assert_eq!(due.iter().map(|due| due.object).collect::<Vec<_>>(), [opened.object]);
    let path = NsPath::parse(b"/f").unwrap();
    let gone = cluster.namespace.read(|read| namespace::stat(read, &Actor::admin(), &path));
    assert_eq!(gone.unwrap_err().code(), ErrorCode::NotFound);
}

#[test]
fn the_primary_decides_about_an_open_write_that_is_in_the_way() {
    let cluster = Cluster::new();
    let (disk, _) = cluster.disk(1);
    cluster.reports(disk, &[1]);
    cluster.groups(&[1]);
    let opened = cluster.opens("/f", &[1]);
    let path = NsPath::parse(b"/f").unwrap();
    let ask = |principal: u32, resume| {
        let client = ClientIdentity { principal: PrincipalId(0), user: "u".into(), pid: 2, host: "h".into() };
        let actor = Actor::new(PrincipalId(principal), Arc::from([PrincipalId(0)]));
        let client = ClientIdentity { principal: PrincipalId(principal), ..client };
        let open_request = OpenRequest::new(Timestamp(1), path.clone(), std::net::Ipv4Addr::LOCALHOST.into(), actor);
        let op = OpenWrite { resume, ..OpenWrite::new(path.clone(), WriteMode::Update, client, BootId(1)) };
        let (sender, receiver) = std::sync::mpsc::channel();
        cluster.manager.open_write(open_request, op, move |result| drop(sender.send(result.map(|to| to.node))));
        let end = std::time::Instant::now() + Duration::from_secs(10);
        loop {
            let claim = cluster.sent(disk).into_iter().find_map(|message| match message {
                FromManager::Claim(claim) => Some(claim),
                _ => None,
            });
            if let Some(claim) = claim {
                assert_eq!((claim.writer, claim.principal), (opened.writer, PrincipalId(principal)));
                assert_eq!(claim.takes_over, resume.is_some());
                return (claim.number, receiver);
            }
            assert!(std::time::Instant::now() < end, "the primary is not asked");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    let told = |(number, receiver): (u64, std::sync::mpsc::Receiver<Result<NodeId, OpeningError>>), found| {
        cluster.manager.receive(disk, FromDisk::Claimed { number, found });
        receiver.recv_timeout(Duration::from_secs(10)).unwrap().unwrap_err()
    };
    let goes_on = Some(namespace::Resume::Visible);
    let ending = told(ask(0, goes_on), ClaimResult::Ending);
    assert!(matches!(ending, OpeningError::Wait { .. }), "the client asks again: {ending}");
    let stays = told(ask(0, None), ClaimResult::Stays("it is being written by u.1@h\u{1b}".to_owned()));
    assert_eq!(stays.code(), ErrorCode::Busy);
    assert!(
        stays.to_string().starts_with("it is being written by u.1@h") && !stays.to_string().contains('\u{1b}'),
        "{stays}"
    );
    // Its server has restarted, so nobody is connected to it. Only its own principal need not wait.
    let ended = told(ask(0, goes_on), ClaimResult::Unknown);
    assert!(matches!(ended, OpeningError::Wait { .. }), "{ended}");
    assert_eq!(told(ask(0, None), ClaimResult::Unknown).code(), ErrorCode::Busy);
    // A primary that does not answer keeps nobody waiting.
    let (_, receiver) = ask(0, goes_on);
    cluster.passes(6);
    cluster.manager.tick();
    assert_eq!(receiver.recv_timeout(Duration::from_secs(10)).unwrap().unwrap_err().code(), ErrorCode::Busy);
}

impl Cluster {
    pub(crate) fn object(&self, path: &str) -> ObjectId {
        let path = NsPath::parse(path.as_bytes()).unwrap();
        let inode = self.namespace.read(|read| namespace::stat(read, &Actor::admin(), &path)).unwrap();
        inode.content().unwrap().object
    }

    fn holders(&self, object: ObjectId) -> Vec<u64> {
        let holders = self.namespace.read(|read| namespace::holders(read, GROUP, object)).unwrap();
        holders.into_iter().map(|store| store.0).collect()
    }

    fn is_marked(&self, path: &str, object: ObjectId) -> bool {
        let path = NsPath::parse(path.as_bytes()).unwrap();
        let mark = self.namespace.read(|read| {
            let ino = namespace::stat(read, &Actor::admin(), &path)?.ino;
            namespace::xattr_of(read, ino, namespace::DAMAGED_MARK)
        });
        mark.unwrap().is_some_and(|mark| namespace::is_damage_mark_of(&mark, object))
    }

    /// A node reports replicas of a store as damaged, or as whole again.
    fn reports_damage(&self, node: NodeId, store: u64, damaged: &[ObjectId], whole: &[ObjectId]) {
        let replicas = |objects: &[ObjectId]| objects.iter().copied().map(types::ReplicaId::first).collect();
        let report = node::DamageReport { store: StoreId(store), damaged: replicas(damaged), whole: replicas(whole) };
        self.manager.receive(node, FromDisk::Damage(report));
    }

    /// Damaged replicas: those that are repaired, that wait, and that have no other; and those that were repaired.
    fn damage(&self) -> [u64; 4] {
        let counts = self.manager.status_view().unwrap().damaged;
        [counts.repairing, counts.waiting, counts.no_other, counts.repaired]
    }

    fn until_damage(&self, expected: [u64; 4]) {
        let until = std::time::Instant::now() + Duration::from_secs(20);
        while self.damage() != expected {
            assert!(std::time::Instant::now() < until, "{:?} instead of {expected:?}", self.damage());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn a_damaged_replica_is_copied_again_and_the_last_one_stays() {
    let (cluster, nodes, sessions) = files_on(2, &[1, 2]);
    let both: Vec<(NodeId, SessionId)> = nodes.iter().copied().zip(sessions.iter().copied()).collect();
    let object = cluster.object("/f0");
    cluster.reports_damage(nodes[1], 1, &[object], &[]);
    assert_eq!((cluster.damage(), cluster.holders(object)), ([0; 4], vec![1, 2]), "another node's store");
    cluster.reports_damage(nodes[0], 1, &[object, ObjectId(1 << 40)], &[]);
    cluster.until_damage([1, 0, 0, 0]);
    assert_eq!(cluster.holders(object), [2]);
    assert_eq!(cluster.holders(cluster.object("/f1")), [1, 2]);
    // The other replica is damaged as well. It is the last one.
    cluster.reports_damage(nodes[1], 2, &[object], &[]);
    cluster.until_damage([1, 0, 1, 0]);
    assert_eq!(cluster.holders(object), [2]);
    let until = std::time::Instant::now() + Duration::from_secs(20);
    while !cluster.is_marked("/f0", object) {
        assert!(std::time::Instant::now() < until);
        std::thread::sleep(Duration::from_millis(1));
    }
    // It is written well somewhere else, or read well after all.
    cluster.lives(&both, 2);
    assert_eq!(cluster.end_copies(nodes[0], sessions[0], Ok(())), 1);
    cluster.until(|view| view.missing.count == 0);
    cluster.lives(&both, 2);
    cluster.until_damage([0, 0, 1, 1]);
    assert_eq!(cluster.holders(object), [1, 2]);
    let until = std::time::Instant::now() + Duration::from_secs(20);
    while cluster.is_marked("/f0", object) {
        assert!(std::time::Instant::now() < until, "an intact replica is there");
        std::thread::sleep(Duration::from_millis(1));
    }
    // Its next report finds the other one intact.
    cluster.reports_damage(nodes[1], 2, &[object], &[]);
    cluster.until_damage([1, 0, 0, 1]);
    assert_eq!(cluster.holders(object), [1]);
}

#[test]
fn damage_is_known_again_after_a_restart_and_forgotten_when_it_is_not_reported() {
    let (mut cluster, nodes, sessions) = files_on(1, &[1, 2]);
    let object = cluster.object("/f0");
    cluster.reports_damage(nodes[0], 1, &[object], &[]);
    cluster.until_damage([1, 0, 0, 0]);
    cluster.restart_manager();
    let both: Vec<(NodeId, SessionId)> = (1..)
        .zip(&nodes)
        .map(|(store, node)| {
            cluster.comes(*node);
            let session = cluster.registers(*node).unwrap();
            cluster.reports(*node, &[store]);
            (*node, session)
        })
        .collect();
    assert_eq!((cluster.damage(), cluster.holders(object)), ([0; 4], vec![2]), "it is on record");
    cluster.reports_damage(nodes[0], 1, &[object], &[]);
    assert_eq!(cluster.damage(), [1, 0, 0, 0]);
    cluster.reports_damage(nodes[1], 2, &[object], &[]);
    assert_eq!(cluster.damage(), [1, 0, 1, 0]);
    cluster.reports_damage(nodes[1], 2, &[], &[object]);
    assert_eq!(cluster.damage(), [1, 0, 0, 0]);
    cluster.reports_damage(nodes[1], 2, &[object], &[]);
    cluster.lives(&both, 610);
    assert_eq!(cluster.damage(), [1, 0, 0, 0], "the server of the other is silent about it");
    assert_eq!(sessions.len(), 2);
}

#[test]
fn damage_waits_for_a_store_that_is_offline() {
    let (cluster, nodes, sessions) = files_on(1, &[1, 2]);
    let both: Vec<(NodeId, SessionId)> = nodes.iter().copied().zip(sessions.iter().copied()).collect();
    let object = cluster.object("/f0");
    cluster.lives(&both[..1], 60);
    cluster.reports_damage(nodes[0], 1, &[object], &[]);
    assert_eq!((cluster.damage(), cluster.holders(object)), ([0, 1, 0, 0], vec![1, 2]));
    assert!(!cluster.is_marked("/f0", object), "an offline store has it intact");
    cluster.comes(nodes[1]);
    cluster.boots(nodes[1], 2).unwrap();
    cluster.reports(nodes[1], &[2]);
    cluster.reports_damage(nodes[0], 1, &[object], &[]);
    cluster.until_damage([1, 0, 0, 0]);
}

#[test]
fn a_store_with_a_damaged_replica_shows_it_no_more_before_the_file_is_changed() {
    let (cluster, nodes, _) = files_on(1, &[1, 2]);
    let object = cluster.object("/f0");
    cluster.reports_damage(nodes[0], 1, &[object], &[]);
    cluster.until_damage([1, 0, 0, 0]);
    cluster.sent(nodes[0]);
    let opened = cluster.updates("/f0");
    assert!(cluster.sent(nodes[0]).iter().any(is_fence), "a reader that has it open there would see the older bytes");
    assert!(opened.try_recv().is_err(), "it waits for the store");
}

#[test]
fn a_file_is_not_changed_on_a_damaged_replica_while_the_intact_one_is_away() {
    let (cluster, nodes, sessions) = files_on(1, &[1, 2]);
    let object = cluster.object("/f0");
    let update = || {
        let opened = cluster.updates("/f0");
        cluster.manager.tick();
        opened.recv_timeout(Duration::from_secs(20)).unwrap()
    };
    cluster.lives(&[(nodes[0], sessions[0])], 8);
    cluster.reports_damage(nodes[0], 1, &[object], &[]);
    assert_eq!(cluster.damage(), [0, 1, 0, 0], "it waits for the second server");
    let refused = update().unwrap_err();
    assert!(matches!(&refused, OpeningError::Wait { why, .. } if why.contains("intact")), "{refused:?}");
    cluster.lives(&[(nodes[0], sessions[0])], 60);
    cluster.reports_damage(nodes[0], 1, &[object], &[]);
    let refused = update().unwrap_err();
    assert!(matches!(refused, OpeningError::OnlyDamaged { .. }), "{refused:?}");
    assert_eq!(cluster.holders(object), [1, 2], "the intact replica counts still");
    // Nobody has it intact: then the file can be changed where it is.
    cluster.comes(nodes[1]);
    cluster.registers(nodes[1]).unwrap();
    cluster.reports(nodes[1], &[2]);
    cluster.reports_damage(nodes[1], 2, &[object], &[]);
    cluster.reports_damage(nodes[0], 1, &[object], &[]);
    assert!(update().is_ok());
}

#[test]
fn a_reader_that_has_tried_all_others_is_sent_to_a_damaged_replica() {
    let (cluster, nodes, _) = files_on(1, &[1, 2]);
    let sums = namespace::Sums { adler32: types::Adler32(1), crc32c: types::Crc32c(2) };
    cluster.has_file_with("/summed", &[1, 2], Some(sums));
    let object = cluster.object("/summed");
    cluster.reports_damage(nodes[0], 1, &[object, cluster.object("/f0")], &[]);
    cluster.until_damage([2, 0, 0, 0]);
    let from = std::net::Ipv4Addr::LOCALHOST.into();
    let open_with = |path: &str, tried: &[&str], wants_another: bool| {
        let path = NsPath::parse(path.as_bytes()).unwrap();
        let mut open_request = OpenRequest::new(Timestamp(1), path.clone(), from, Actor::admin());
        open_request.tried = tried.iter().map(|host| (*host).to_owned()).collect();
        open_request.wants_another = wants_another;
        cluster.manager.open_read(&open_request, &path, false, None).unwrap().node
    };
    let open = |path: &str, tried: &[&str]| open_with(path, tried, false);
    assert_eq!(open("/summed", &[]), nodes[1]);
    assert_eq!(open("/summed", &["disk2"]), nodes[0], "its other pages are good");
    assert_eq!(open("/summed", &["disk1", "disk2"]), nodes[1], "all were tried");
    assert_eq!(open_with("/summed", &["disk2"], true), nodes[1], "the good one is in use, and stays better");
    assert_eq!(open("/f0", &["disk2"]), nodes[1], "nobody knows whether a page without a damage there is right");
}

impl Cluster {
    /// The server for another connection of a client at `location` to `/f0`, which it reads at the servers in `used`.
    fn another_for(&self, location: &str, used: &[&str]) -> NodeId {
        let path = NsPath::parse(b"/f0").unwrap();
        let mut open_request = OpenRequest::new(Timestamp(1), path.clone(), [192, 0, 2, 1].into(), Actor::admin());
        open_request.location = location.parse().ok();
        open_request.tried = used.iter().map(|host| (*host).to_owned()).collect();
        open_request.wants_another = true;
        self.manager.open_read(&open_request, &path, false, None).unwrap().node
    }
}

#[test]
fn a_reader_that_wants_another_server_gets_one_if_there_is_one() {
    let (cluster, nodes, _) = files_on(1, &[1, 2]);
    for location in ["", "site/rack/host9", "site/other/host9"].repeat(4) {
        let open = |used: &[&str]| cluster.another_for(location, used);
        assert_eq!((open(&["disk1"]), open(&["disk2"])), (nodes[1], nodes[0]), "{location}");
        assert!(nodes.contains(&open(&["disk1", "disk2"])), "there is no third one");
    }
}

#[test]
fn a_reader_that_wants_another_server_gets_none_that_is_farther_away() {
    let (cluster, nodes, _) = files_on(1, &[1, 2]);
    let open = |location: &str, used: &[&str]| cluster.another_for(location, used);
    for used in ["disk1", "disk2"] {
        assert_eq!(open("site/rack/host1", &[used]), nodes[0], "its own host has one, {used}");
        assert_eq!(open("site/rack/host2", &[used]), nodes[1], "its own host has one, {used}");
    }
    let location = "far/rack/host2".parse().unwrap();
    change(&cluster.namespace, PutStore { store: StoreId(2), node: nodes[1], location, class: None });
    cluster.manager.tick();
    for used in [&["disk1"][..], &["disk2"], &["disk1", "disk2"]] {
        assert_eq!(open("site/other/host9", used), nodes[0], "the other one is at another site, {used:?}");
        assert_eq!(open("far/other/host9", used), nodes[1], "the other one is at another site, {used:?}");
    }
    assert_eq!(open("third/rack/host9", &["disk1"]), nodes[1], "both are equally far");
}

#[test]
fn a_reader_that_wants_another_server_gets_none_in_trouble() {
    let (cluster, nodes, sessions) = files_on(1, &[1, 2]);
    let (first, both) = ((nodes[0], sessions[0]), [(nodes[0], sessions[0]), (nodes[1], sessions[1])]);
    let another = |what: &str| {
        for used in [&["disk1"][..], &["disk2"], &["disk1", "disk2"]] {
            assert_eq!(cluster.another_for("", used), nodes[0], "{what}, {used:?}");
        }
    };
    let is = |state: StoreState| cluster.manager.stores_view().unwrap()[1].state == state;
    for _ in 0..10 {
        if !is(StoreState::Suspect) {
            cluster.lives(&[first], 1);
        }
    }
    assert!(is(StoreState::Suspect));
    another("suspect");
    cluster.lives(&both, 2);
    assert!(is(StoreState::Online));
    assert_eq!(cluster.another_for("", &["disk1"]), nodes[1]);
    cluster.manager.drain_store(StoreId(2)).unwrap();
    assert!(is(StoreState::Draining));
    another("draining");
    // The other one is no better now.
    cluster.manager.drain_store(StoreId(1)).unwrap();
    assert_eq!((cluster.another_for("", &["disk1"]), cluster.another_for("", &["disk2"])), (nodes[1], nodes[0]));
}

#[test]
fn a_file_that_cannot_be_placed_names_the_stores_that_are_not_online() {
    let (cluster, nodes, sessions) = files_on(1, &[1, 2]);
    let policy = "replica(2)".parse().unwrap();
    change(&cluster.namespace, namespace::SetPolicy { path: NsPath::root(), policy });
    // A minute without the second server: it is not waited for any more.
    cluster.lives(&[(nodes[0], sessions[0])], 60);
    cluster.reports(nodes[0], &[1]);
    let path = NsPath::parse(b"/new").unwrap();
    let open_request =
        OpenRequest::new(Timestamp(1), path.clone(), std::net::Ipv4Addr::LOCALHOST.into(), Actor::admin());
    let client = ClientIdentity { principal: PrincipalId(0), user: "u".into(), pid: 1, host: "h".into() };
    let (sender, receiver) = std::sync::mpsc::channel();
    let op = OpenWrite::new(path, WriteMode::NewOnly, client, BootId(1));
    cluster.manager.open_write(open_request, op, move |result| drop(sender.send(result.map(|to| to.node))));
    let refused = receiver.recv().unwrap().unwrap_err();
    assert_eq!(refused.code(), ErrorCode::Unavailable);
    let words = refused.to_string();
    assert!(words.contains("not online: ") && words.contains("site/rack/host2"), "{words}");
}
