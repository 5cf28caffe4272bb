//! A disk server admits only nodes that its manager has named. The tests use real sockets.

#![allow(clippy::unwrap_used, clippy::panic)] // a test may fail this way

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant, SystemTime};

use cluster::ProcessEpoch;
use cluster::message::ToServer;
use disk_server::{DiskNode, DiskSettings};
use link::{Authority, Credentials, Identity, LinkError, Listener, LocalNode, Outgoing, Roles, Room, Settings};
use node::links::{Buffer, Links, Peer, Received};
use node::{FromDisk, FromManager, ManagerAddress, Message, StoreAddress, StoreAddressPage};
use tempfile::TempDir;
use types::{BootId, ClusterId, NodeId, SessionId, StoreId, Timestamp};

const SOON: Duration = Duration::from_secs(20);
const OWN: NodeId = NodeId(2);

struct Cluster {
    _folder: TempDir,
    authority: Authority,
}

impl Cluster {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::create(folder.path(), ClusterId(1), now()).unwrap();
        Self { _folder: folder, authority }
    }

    fn us(&self, node: NodeId, roles: Roles) -> LocalNode {
        let identity = Identity::issue(&self.authority, node, roles, now(), Duration::from_secs(86_400)).unwrap();
        LocalNode::new(Arc::new(Credentials::new(&identity).unwrap()), Settings::default())
    }
}

fn now() -> Timestamp {
    SystemTime::now().into()
}

/// A disk server without stores.
struct Disk {
    links: Arc<Links>,
    node: DiskNode,
    address: SocketAddr,
}

impl Disk {
    fn new(cluster: &Cluster) -> Self {
        let links = Links::new(cluster.us(OWN, Roles::DISK));
        let settings = DiskSettings { node: OWN, process_epoch: ProcessEpoch(1), boot: BootId(1) };
        let node = DiskNode::start(settings, Vec::new(), &links).unwrap();
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        links.start(&listener, link::OtherServices::default(), None, node.receiver()).unwrap();
        Self { links, node, address: listener.address() }
    }

    /// Its manager names the disk servers. No node answers at their addresses.
    fn hears_of(&self, number: u64, nodes: &[u64]) {
        let way =
            |node: &u64| StoreAddress { store: StoreId(*node), node: NodeId(*node), nodes_at: "127.0.0.1:1".into() };
        let addresses = nodes.iter().map(way).collect();
        self.node.server().receive(FromManager::StoreAddresses(StoreAddressPage {
            number,
            page: 0,
            is_last: true,
            addresses,
        }));
    }

    /// A manager connects.
    fn met_by_manager(&self, us: &LocalNode) -> (Peer, Arc<Greeted>) {
        let ready = link::connect(us, self.address, link::Expect::default()).unwrap();
        let (peer, greeted) = (ready.peer().clone(), Arc::new(Greeted::default()));
        let handler = Arc::clone(&greeted);
        std::thread::spawn(move || ready.run(&*handler));
        (peer, greeted)
    }

    /// A node connects.
    fn met_by(&self, us: &LocalNode) -> Result<Peer, LinkError> {
        let ready = link::connect(us, self.address, link::Expect::default())?;
        let peer = ready.peer().clone();
        std::thread::spawn(move || ready.run(&Deaf));
        Ok(peer)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.links.stop("the test is over", SOON);
        self.node.stop();
    }
}

struct Deaf;

impl link::Handler for Deaf {
    type Buffer = Buffer;
    fn buffer(&self, _: &link::PeerIdentity, _: &link::IncomingHeader<'_>) -> Option<Buffer> {
        None
    }
    fn received(&self, _: &Peer, _: Received) {}
}

/// A manager that counts the greetings it gets.
#[derive(Default)]
struct Greeted(AtomicUsize);

impl link::Handler for Greeted {
    type Buffer = Buffer;
    fn buffer(&self, _: &link::PeerIdentity, _: &link::IncomingHeader<'_>) -> Option<Buffer> {
        None
    }
    fn received(&self, _: &Peer, received: Received) {
        if let Received::OneWay { message, .. } = received
            && let Ok(Message::FromDisk(FromDisk::Hello(_))) = link::decode(&message)
        {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// Waits until the disk server has handled all that came on this connection: it looks at a request, which it answers none, after that.
fn heard_all_of(manager: &Peer) {
    let answer = manager.request(link::Call::new(Outgoing::new(Vec::new()))).unwrap().wait(SOON);
    assert!(matches!(answer, Err(link::CallError::Unanswered)), "{answer:?}");
}

fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let until = Instant::now() + SOON;
    while !is_so() {
        assert!(Instant::now() < until, "not {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn only_nodes_named_by_the_manager_are_admitted() {
    let cluster = Cluster::new();
    let (disk, other) = (Disk::new(&cluster), cluster.us(NodeId(5), Roles::DISK));
    let refused = disk.met_by(&other).unwrap_err();
    assert!(refused.to_string().contains("has not told node 2 that node 5 is in the cluster"), "{refused}");
    disk.met_by(&cluster.us(NodeId(1), Roles::MANAGER)).unwrap();
    disk.hears_of(1, &[2, 4]);
    assert!(disk.met_by(&other).is_err());
    // The node has just joined.
    disk.hears_of(2, &[2, 4, 5]);
    disk.met_by(&other).unwrap();
}

#[test]
fn the_other_servers_also_disconnect_a_removed_node() {
    let cluster = Cluster::new();
    let (disk, other) = (Disk::new(&cluster), cluster.us(NodeId(5), Roles::DISK));
    disk.hears_of(1, &[2, 5]);
    let peer = disk.met_by(&other).unwrap();
    wait_for("connected", || disk.links.peer(NodeId(5)).is_some());
    let manager = disk.met_by(&cluster.us(NodeId(1), Roles::MANAGER)).unwrap();
    disk.hears_of(2, &[2]);
    wait_for("cut off", || peer.ended().is_some());
    assert!(disk.met_by(&other).is_err());
    assert!(manager.ended().is_none());
}

#[test]
fn a_manager_that_grants_nothing_is_left_for_another_one() {
    let cluster = Cluster::new();
    let disk = Disk::new(&cluster);
    let (teller, told) = channel();
    disk.node.on_managers(Box::new(move |managers| teller.send(managers).unwrap()));
    let tells = |peer: &Peer, nodes_at: &str| {
        let managers = vec![ManagerAddress {
            node: NodeId(1),
            nodes_at: nodes_at.to_owned(),
            clients_at: Some((nodes_at.to_owned(), 1094)),
        }];
        let message = link::encode(&Message::FromManager(FromManager::Managers(managers))).unwrap();
        peer.tell(Outgoing::new(message), Room::Wait).unwrap();
    };
    let heard = || told.recv_timeout(SOON).unwrap()[0].nodes_at.clone();
    let grants = |peer: &Peer| {
        let renewed = ToServer::Renewed { session: SessionId(1), number: 1, wall: Timestamp(0) };
        let message = link::encode(&Message::FromManager(FromManager::Cluster(renewed))).unwrap();
        peer.tell(Outgoing::new(message), Room::Wait)
    };
    let count = |greeted: &Greeted| greeted.0.load(Ordering::SeqCst);
    let (first, of_first) = disk.met_by_manager(&cluster.us(NodeId(1), Roles::MANAGER));
    wait_for("greeted", || count(&of_first) == 1);
    tells(&first, "a:1");
    grants(&first).unwrap();
    assert_eq!(heard(), "a:1");
    // The first one still has its connection, and does not answer.
    let (second, of_second) = disk.met_by_manager(&cluster.us(NodeId(9), Roles::MANAGER));
    wait_for("greeted by the other", || count(&of_second) == 1);
    let granting = second.clone();
    let granting = std::thread::spawn(move || {
        while grants(&granting).is_ok() {
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    tells(&first, "old:1");
    heard_all_of(&first);
    tells(&second, "b:1");
    assert_eq!(heard(), "b:1", "the one that is followed");
    let before = count(&of_first);
    second.cut("it dies");
    wait_for("back", || count(&of_first) > before);
    granting.join().unwrap();
    // It does not change the addresses before it grants.
    tells(&first, "c:1");
    assert!(told.recv_timeout(Duration::from_millis(200)).is_err());
    grants(&first).unwrap();
    assert_eq!(heard(), "c:1");
    assert_eq!(disk.node.server().managers(), [("c:1".to_owned(), 1094)]);
}
