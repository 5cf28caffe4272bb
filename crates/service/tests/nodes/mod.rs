//! The nodes that the tests ask: a single one, and a cluster in one process. Services, decisions and the connections
//! between nodes are real ones; the disks are simulated.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use cluster::ProcessEpoch;
use disk::{Disk, SimDisk};
use disk_server::{DiskNode, DiskSettings, StoreAt};
use journal::{Journal, JournalConfig, StreamId};
use kv::{Embedded, EmbeddedConfig, IndexConfig, JournaledIndex, MemoryEngine};
use link::{Authority, Credentials, Identity, Listener, LocalNode, Roles, Settings};
use manager::registration::ManagerRegistration;
use manager::{ManagerNode, ManagerSettings, PlaceChecks};
use namespace::{
    Actor, Durability, FIRST_NODE, FoundCluster, JoinNode, MakeToken, Namespace, NamespaceConfig, Operation, SetPolicy,
    TokenEntry,
};
use node::links::Links;
use node::registration::{Registration, StoreClaim, register};
use service::{Config, Principal, PutsTogether, Role, Service};
use store::{Store, StoreConfig};
use types::{BootId, ClusterId, Layout, NodeId, NsPath, Policy, ReplicaId, StoreId, Stripe, Timestamp};

use crate::line::client;
use crate::line::client::{Client, Network};
use crate::line::striper::LineStriper;

/// How long a writer may take to return.
pub const GRACE: Duration = Duration::from_millis(400);
/// How long certificates and tokens are valid.
const VALIDITY: Duration = Duration::from_secs(3600);
/// Where clients begin.
const HOME: &str = "home:1";

/// Stops a node.
type Stop = Box<dyn FnOnce()>;

/// Running nodes.
pub struct Nodes {
    network: Arc<Network>,
    stores: Vec<Arc<Store>>,
    names: Arc<Namespace>,
    is_cluster: bool,
    /// Stops everything, the last one first.
    stops: Vec<Stop>,
}

impl Nodes {
    /// A single node.
    pub fn alone() -> Self {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(7));
        let journal = journal_on(&disk);
        let names = index_on(&disk, &journal, StreamId::NAMESPACE, "namespace/checkpoint");
        let embedded = Arc::new(Embedded::new(names, EmbeddedConfig::default()).unwrap());
        let kv = Arc::clone(&embedded) as Arc<dyn kv::Kv>;
        let namespace = Namespace::open(kv, now(), NamespaceConfig::default()).unwrap();
        let store = store_on(disk, journal);
        let stop = move || embedded.stop();
        let nobody = Arc::new(Network::new());
        Self { network: nobody, stores: vec![store], names: namespace, is_cluster: false, stops: vec![Box::new(stop)] }
            .served()
    }

    /// Starts the service of a single node.
    fn served(mut self) -> Self {
        let (namespace, store) = (Arc::clone(&self.names), Arc::clone(&self.stores[0]));
        let service = start(Role::Alone { namespace, store }, None);
        self.network = Arc::new([(HOME.to_owned(), Arc::clone(&service))].into());
        self.stops.push(Box::new(move || {
            service.stop();
        }));
        self
    }

    /// The service of the node with the names.
    #[allow(dead_code)] // not in each test that uses this module
    pub fn service(&self) -> &Arc<Service> {
        &self.network[HOME]
    }

    /// Whether they are a cluster.
    pub fn is_cluster(&self) -> bool {
        self.is_cluster
    }

    /// Makes a change that no front end offers, as the administrator.
    #[allow(dead_code)] // not all tests that share this need it
    pub fn change<O: Operation + Send + 'static>(&self, op: O) -> O::Reply {
        change(&self.names, op)
    }

    /// The server of a single node has stopped and started again. Between that, `meanwhile` happens to the only object in its store.
    pub fn restarted(mut self, meanwhile: impl Fn(&Store, ReplicaId)) -> Self {
        self.stops.pop().unwrap()();
        let store = Arc::clone(&self.stores[0]);
        let replicas = store.replicas(None, usize::MAX).unwrap();
        let [(replica, _)] = replicas.as_slice() else { panic!("there are {} objects", replicas.len()) };
        meanwhile(&store, *replica);
        self.served()
    }

    /// A cluster of a manager and `disk_servers` disk servers with a store each. Files have two replicas, and both are
    /// in sync.
    pub fn cluster(disk_servers: u8) -> Self {
        Self::with_layout(disk_servers, Layout::new(2, 2, None).unwrap())
    }

    /// The same, where files have two stripe units with one replica each.
    pub fn striped(disk_servers: u8) -> Self {
        Self::with_layout(disk_servers, Layout::new(1, 1, Some(Stripe::new(2, 64 << 10).unwrap())).unwrap())
    }

    fn with_layout(disk_servers: u8, layout: Layout) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Arc::new(Authority::create(folder.path(), ClusterId(1), now()).unwrap());
        let namespace = Namespace::open(Arc::new(kv::MemoryKv::new()), now(), NamespaceConfig::default()).unwrap();
        change(&namespace, FoundCluster { roles: Roles::MANAGER.bits(), name: "manager".into(), key: [0; 32] });
        let policy = Policy::new(layout);
        change(&namespace, SetPolicy { path: NsPath::root(), policy });

        let links = links_of(&authority, FIRST_NODE, Roles::MANAGER);
        let place = PlaceChecks { has_lease: Box::new(|| true), is_lost: Box::new(|| false) };
        let manager = ManagerNode::start(Arc::clone(&namespace), ManagerSettings::default(), &links, place).unwrap();
        manager.manager().set_clients_at(HOME);
        let service = start(Role::Manager(Arc::clone(manager.manager())), None);
        let registration = ManagerRegistration::new(
            Arc::clone(&namespace),
            Arc::clone(&authority),
            VALIDITY,
            Box::new(now),
            Box::new(|| true),
        );
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        links
            .start(&listener, link::OtherServices::default(), Some(Arc::new(registration)), manager.receiver())
            .unwrap();
        let manager_at = listener.address().to_string();
        let mut network = HashMap::from([(HOME.to_owned(), Arc::clone(&service))]);
        let stop_manager = move || {
            links.stop("the test is over", Duration::from_secs(3));
            service.stop();
            manager.stop();
        };
        let mut stops: Vec<Stop> = vec![Box::new(stop_manager)];
        let (mut stores, known) = (Vec::new(), Arc::new(OnceLock::new()));
        for number in 1..=disk_servers {
            let (at, service, store, stop) = disk_server(number, &namespace, (&authority, &manager_at), &known);
            network.insert(at, service);
            stores.push(store);
            stops.push(stop);
        }
        let network = Arc::new(network);
        let _ = known.set(Arc::clone(&network));
        Self { network, stores, names: namespace, is_cluster: true, stops }
    }

    /// The number of objects on all stores.
    pub fn objects(&self) -> usize {
        self.stores.iter().map(|store| store.replicas(None, usize::MAX).unwrap().len()).sum()
    }

    /// Waits until the stores have this number of objects. A new object that is not yet deleted counts.
    pub fn wait_for_objects(&self, wanted: usize) {
        let end = Instant::now() + Duration::from_secs(20);
        while self.objects() != wanted {
            assert!(Instant::now() < end, "{} objects, and {wanted} are expected", self.objects());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// A client process of the administrator.
    pub fn connect(&self, pid: u32) -> Client {
        self.connect_as(&Principal::admin(), pid)
    }

    /// A client process of this principal. Its user name and its host are always the same.
    pub fn connect_as(&self, principal: &Principal, pid: u32) -> Client {
        Client::new(&self.network, HOME, principal, client("ana", pid))
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        while let Some(stop) = self.stops.pop() {
            stop();
        }
    }
}

/// Starts a disk server that has just joined. Returns the address that redirects name, its service, and how to stop it.
fn disk_server(
    number: u8,
    namespace: &Namespace,
    (authority, manager_at): (&Authority, &str),
    network: &Arc<OnceLock<Arc<Network>>>,
) -> (String, Arc<Service>, Arc<Store>, Stop) {
    let (key, expires) = ([number; 32], now().plus(VALIDITY));
    let roles = Roles::DISK.bits();
    let token = TokenEntry { id: [number; 16], hash: key, roles, made: now(), expires, uses_max: 1, used: Vec::new() };
    change(namespace, MakeToken { token: token.clone() });
    let node = change(namespace, JoinNode { token, roles, name: format!("disk{number}"), key });

    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(number.into()));
    let journal = journal_on(&disk);
    let store_id = StoreId(number.into());
    let links = links_of(authority, node, Roles::DISK);
    let settings = DiskSettings { node, process_epoch: ProcessEpoch(1), boot: BootId(1) };
    let store = store_on(disk, journal);
    let stores = vec![StoreAt { store_id, store: Arc::clone(&store) }];
    let disk_node = DiskNode::start(settings, stores, &links).unwrap();
    let striper = LineStriper { network: Arc::clone(network), home: HOME };
    let service = start(Role::Disk(Arc::clone(disk_node.server())), Some(PutsTogether(Arc::new(striper))));
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    links.start(&listener, link::OtherServices::default(), None, disk_node.receiver()).unwrap();
    links.keep_manager(manager_at);

    let at = format!("disk{number}:1");
    let claim = StoreClaim { store: store_id, location: format!("site/rack/disk{number}"), class: None };
    let (for_nodes, for_clients) = (vec![listener.address().to_string()], vec![at.clone(), format!("http://{at}")]);
    let registration = Registration { run: 1, for_nodes, for_clients, stores: vec![claim] };
    while links.peer(FIRST_NODE).is_none() {
        std::thread::sleep(Duration::from_millis(5));
    }
    register(&links, FIRST_NODE, &registration).unwrap();
    let its = Arc::clone(&service);
    let stop = move || {
        links.stop("the test is over", Duration::from_secs(3));
        its.stop();
        disk_node.stop();
    };
    (at, service, store, Box::new(stop))
}

fn start(role: Role, striper: Option<PutsTogether>) -> Arc<Service> {
    let mut config = Config { striper, ..Config::new(BootId(1)) };
    config.times.grace = GRACE;
    config.times.keeper = Duration::from_millis(20);
    Service::start(config, role).unwrap()
}

fn links_of(authority: &Authority, node: NodeId, roles: Roles) -> Arc<Links> {
    let identity = Identity::issue(authority, node, roles, now(), VALIDITY).unwrap();
    Links::new(LocalNode::new(Arc::new(Credentials::new(&identity).unwrap()), Settings::default()))
}

fn journal_on(disk: &Arc<dyn Disk>) -> Arc<Journal> {
    Arc::new(Journal::open(Arc::clone(disk), "journal", JournalConfig::default()).unwrap().0)
}

fn index_on(disk: &Arc<dyn Disk>, journal: &Arc<Journal>, stream: StreamId, dir: &str) -> Arc<JournaledIndex> {
    let (journal, engine, config) = (Arc::clone(journal), Box::new(MemoryEngine::new()), IndexConfig::default());
    JournaledIndex::open(journal, stream, engine, Arc::clone(disk), dir, config).unwrap().0
}

fn store_on(disk: Arc<dyn Disk>, journal: Arc<Journal>) -> Arc<Store> {
    let records = index_on(&disk, &journal, StreamId::STORE_INDEX, "store/checkpoint");
    let config = StoreConfig { floor: Some(0), ..StoreConfig::default() };
    Store::open(disk, "store", journal, records as Arc<dyn store::RecordIndex>, config).unwrap().0
}

fn change<O: Operation + Send + 'static>(namespace: &Namespace, op: O) -> O::Reply {
    let ctx = namespace.context(now(), &Actor::admin(), None);
    namespace.change_wait(Durability::Synced, ctx, op).unwrap()
}

fn now() -> Timestamp {
    SystemTime::now().into()
}
