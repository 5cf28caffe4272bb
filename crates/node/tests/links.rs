//! Connections between nodes start, are lost, and come back, over real sockets.

#![allow(clippy::unwrap_used, clippy::panic)] // a test may fail this way

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use link::{
    Authority, Credentials, Identity, LinkError, Listener, LocalNode, Outgoing, PeerIdentity, Roles, Room, Settings,
};
use node::links::{Links, NotSent, Peer, Received, Receiver};
use parking_lot::{Condvar, Mutex};
use tempfile::TempDir;
use types::{ClusterId, NodeId, Timestamp};

/// Long enough for a busy machine, short enough for a person who waits for a failing test.
const SOON: Duration = Duration::from_secs(20);
const DAY: Duration = Duration::from_secs(86_400);

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Timestamp(i64::try_from(since.as_nanos()).unwrap())
}

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

    fn us(&self, node: u64, roles: Roles) -> LocalNode {
        let identity = Identity::issue(&self.authority, NodeId(node), roles, now(), DAY).unwrap();
        let settings = Settings {
            alive_every: Duration::from_millis(100),
            silence_max: Duration::from_millis(2500),
            close_time: Duration::from_millis(500),
            ..Settings::default()
        };
        LocalNode::new(Arc::new(Credentials::new(&identity).unwrap()), settings)
    }

    fn node(&self, node: u64, roles: Roles) -> Node {
        Node::start(self.us(node, roles), "127.0.0.1:0".parse().unwrap())
    }
}

/// The events that a node's receiver saw, in words.
#[derive(Default)]
struct Story {
    lines: Mutex<Vec<String>>,
    more: Condvar,
    unwanted: Mutex<Option<NodeId>>,
    /// Whoever holds it keeps messages from being handled.
    gate: Mutex<()>,
}

impl Story {
    fn add(&self, line: String) {
        self.lines.lock().push(line);
        self.more.notify_all();
    }

    fn lines(&self) -> Vec<String> {
        self.lines.lock().clone()
    }

    fn wait(&self, what: &str, is_so: impl Fn(&[String]) -> bool) {
        let until = Instant::now() + SOON;
        let mut lines = self.lines.lock();
        while !is_so(&lines) {
            assert!(!self.more.wait_until(&mut lines, until).timed_out(), "not {what}: {lines:?}");
        }
    }

    fn wait_for(&self, line: &str, times: usize) {
        let what = format!("{times} x {line}");
        self.wait(&what, |lines| lines.iter().filter(|seen| *seen == line).count() >= times);
    }

    /// The story of one node alternates: connected, messages, ended, connected again.
    fn assert_in_order(&self, of: u64) {
        let mut is_connected = false;
        for line in self.lines() {
            let Some(what) = line.strip_prefix(&format!("{of} ")) else { continue };
            match what {
                "connected" => assert!(!std::mem::replace(&mut is_connected, true), "{:?}", self.lines()),
                "ended" => assert!(std::mem::replace(&mut is_connected, false), "{:?}", self.lines()),
                _ => assert!(is_connected, "{:?}", self.lines()),
            }
        }
    }
}

impl Receiver for Story {
    fn admit(&self, peer: &PeerIdentity) -> Result<(), String> {
        match *self.unwanted.lock() == Some(peer.name.node) {
            true => Err(format!("node {} was removed", peer.name.node)),
            false => Ok(()),
        }
    }

    fn connected(&self, node: NodeId, _: &Peer) {
        self.add(format!("{node} connected"));
    }

    fn received(&self, node: NodeId, received: Received) {
        drop(self.gate.lock());
        match received {
            Received::OneWay { message, .. } => self.add(format!("{node} {}", String::from_utf8(message).unwrap())),
            Received::Request { message, bulk, responder } => {
                let bytes = bulk.bytes().to_vec();
                responder.answer(Outgoing::new([message, bytes].concat())).unwrap();
            }
        }
    }

    fn ended(&self, node: NodeId, _: &LinkError) {
        self.add(format!("{node} ended"));
    }
}

struct Node {
    us: LocalNode,
    links: Arc<Links>,
    story: Arc<Story>,
    address: SocketAddr,
}

impl Node {
    fn start(us: LocalNode, address: SocketAddr) -> Self {
        // The ending thread of a connection may still have the socket.
        let until = Instant::now() + SOON;
        let listener = loop {
            match Listener::bind(address) {
                Ok(listener) => break listener,
                Err(error) => assert!(Instant::now() < until, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        let (links, story) = (Links::new(us.clone()), Arc::new(Story::default()));
        links.start(&listener, link::OtherServices::default(), None, Arc::clone(&story) as Arc<dyn Receiver>).unwrap();
        Self { us, links, story, address: listener.address() }
    }

    fn number(&self) -> u64 {
        self.us.credentials.name().node.0
    }

    fn keep(&self, other: &Node) {
        self.links.keep(NodeId(other.number()), &other.address.to_string());
    }

    fn tell(&self, node: u64, text: &str) -> Result<(), NotSent> {
        self.links.tell(NodeId(node), Outgoing::new(text.as_bytes().to_vec()), Room::Wait)
    }

    fn restart(&mut self) {
        self.links.stop("it is restarted", SOON);
        let story = Arc::clone(&self.story);
        *self = Self::start(self.us.clone(), self.address);
        drop(story);
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.links.stop("the test is over", SOON);
    }
}

#[test]
fn messages_of_one_thread_arrive_in_order() {
    let cluster = Cluster::new();
    let (manager, disk) = (cluster.node(1, Roles::MANAGER), cluster.node(2, Roles::DISK));
    assert!(matches!(disk.tell(1, "too early"), Err(NotSent::NotConnected(NodeId(1)))));
    disk.links.keep_manager(&manager.address.to_string());
    disk.story.wait_for("1 connected", 1);
    manager.story.wait_for("2 connected", 1);
    for number in 0..5000 {
        disk.tell(1, &number.to_string()).unwrap();
        manager.tell(2, &number.to_string()).unwrap();
    }
    for (node, from) in [(&manager, 2), (&disk, 1)] {
        node.story.wait_for(&format!("{from} 4999"), 1);
        let told: Vec<String> = (0..5000).map(|number| format!("{from} {number}")).collect();
        assert_eq!(node.story.lines()[1..], told);
    }
}

#[test]
fn a_request_is_answered_with_its_bulk() {
    let cluster = Cluster::new();
    let (manager, disk) = (cluster.node(1, Roles::MANAGER), cluster.node(2, Roles::DISK));
    disk.keep(&manager);
    manager.story.wait_for("2 connected", 1);
    let (sender, receiver) = std::sync::mpsc::channel();
    let outgoing = Outgoing::new(b"what".to_vec()).with_bulk(Arc::new(b" and more".to_vec()));
    let then = move |answer: Result<node::links::Answer, _>| sender.send(answer.unwrap().message).unwrap();
    manager.links.request_then(NodeId(2), node::links::Call::new(outgoing), Room::Wait, then).unwrap();
    assert_eq!(receiver.recv_timeout(SOON).unwrap(), b"what and more");
}

#[test]
fn a_returning_node_is_reconnected_and_the_receiver_is_told() {
    let cluster = Cluster::new();
    let (mut manager, disk) = (cluster.node(1, Roles::MANAGER), cluster.node(2, Roles::DISK));
    disk.keep(&manager);
    for round in 1..=3 {
        disk.story.wait_for("1 connected", round);
        manager.story.wait_for("2 connected", 1);
        disk.tell(1, "hello").unwrap();
        manager.story.wait_for("2 hello", 1);
        manager.restart();
        disk.story.wait_for("1 ended", round);
    }
    disk.story.wait_for("1 connected", 4);
    disk.story.assert_in_order(1);
}

#[test]
fn an_absent_node_is_dialed_until_it_appears() {
    let cluster = Cluster::new();
    let disk = cluster.node(2, Roles::DISK);
    let free = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap().address();
    disk.links.keep_manager(&free.to_string());
    std::thread::sleep(Duration::from_millis(400));
    assert_eq!(disk.links.connected(), []);
    let began = Instant::now();
    let _manager = Node::start(cluster.us(1, Roles::MANAGER), free);
    disk.story.wait_for("1 connected", 1);
    assert!(began.elapsed() < Duration::from_secs(5), "pauses have an end: {:?}", began.elapsed());
}

#[test]
fn managers_are_kept_as_the_last_list_says() {
    let cluster = Cluster::new();
    let (first, second) = (cluster.node(1, Roles::MANAGER), cluster.node(9, Roles::MANAGER));
    let disk = cluster.node(2, Roles::DISK);
    let at = |node: &Node| node.address.to_string();
    // Another address of the same manager.
    let also_first = format!("localhost:{}", first.address.port());
    disk.links.keep_managers(&[(at(&first), None)]);
    disk.story.wait_for("1 connected", 1);
    disk.links.keep_managers(&[(at(&first), None), (also_first.clone(), Some(NodeId(1))), (at(&second), None)]);
    disk.story.wait_for("9 connected", 1);
    // Those that are not listed any more are not dialed again, and a connection that is there stays.
    disk.links.keep_managers(&[(also_first, Some(NodeId(1)))]);
    disk.links.reopen("each is opened again if it is needed");
    disk.story.wait_for("1 connected", 2);
    disk.story.wait_for("9 ended", 1);
    let lines = disk.story.lines();
    assert_eq!(lines.iter().filter(|line| *line == "9 connected").count(), 1, "{lines:?}");
    assert_eq!(lines.iter().filter(|line| *line == "1 connected").count(), 2, "{lines:?}");
    disk.story.assert_in_order(1);
}

#[test]
fn when_two_nodes_dial_each_other_one_connection_stays() {
    let cluster = Cluster::new();
    for _ in 0..20 {
        let (low, high) = (cluster.node(3, Roles::DISK), cluster.node(8, Roles::DISK));
        std::thread::scope(|scope| {
            scope.spawn(|| low.keep(&high));
            scope.spawn(|| high.keep(&low));
        });
        low.story.wait_for("8 connected", 1);
        high.story.wait_for("3 connected", 1);
        // Messages are sent again and again. Each node receives one in the end, and from then on all.
        let until = Instant::now() + SOON;
        let mut steady = 0;
        while steady < 20 {
            assert!(Instant::now() < until, "{:?}\n{:?}", low.story.lines(), high.story.lines());
            let before = (low.links.peer(NodeId(8)), high.links.peer(NodeId(3)));
            std::thread::sleep(Duration::from_millis(10));
            let after = (low.links.peer(NodeId(8)), high.links.peer(NodeId(3)));
            let same = |(before, after): (&Option<Peer>, &Option<Peer>)| match (before, after) {
                (Some(before), Some(after)) => before.is_same_connection(after),
                _ => false,
            };
            steady = if same((&before.0, &after.0)) && same((&before.1, &after.1)) { steady + 1 } else { 0 };
        }
        low.tell(8, "from below").unwrap();
        high.tell(3, "from above").unwrap();
        high.story.wait_for("3 from below", 1);
        low.story.wait_for("8 from above", 1);
        low.story.assert_in_order(8);
        high.story.assert_in_order(3);
    }
}

/// A connection of `us` with `node` that no `Links` knows of.
fn stray(us: &LocalNode, node: &Node) -> Result<Peer, LinkError> {
    let ready = link::connect(us, node.address, link::Expect::default())?;
    let peer = ready.peer().clone();
    struct Deaf;
    impl link::Handler for Deaf {
        type Buffer = node::links::Buffer;
        fn buffer(&self, _: &PeerIdentity, _: &link::IncomingHeader<'_>) -> Option<Self::Buffer> {
            None
        }
        fn received(&self, _: &Peer, _: Received) {}
    }
    std::thread::spawn(move || ready.run(&Deaf));
    Ok(peer)
}

#[test]
fn a_second_connection_from_the_same_node_replaces_the_first() {
    let cluster = Cluster::new();
    let (node, other) = (cluster.node(1, Roles::DISK), cluster.us(2, Roles::DISK));
    let first = stray(&other, &node).unwrap();
    node.story.wait_for("2 connected", 1);
    first.tell(Outgoing::new(b"first".to_vec()), Room::Wait).unwrap();
    node.story.wait_for("2 first", 1);
    let second = stray(&other, &node).unwrap();
    node.story.wait_for("2 connected", 2);
    second.tell(Outgoing::new(b"second".to_vec()), Room::Wait).unwrap();
    node.story.wait_for("2 second", 1);
    assert_eq!(node.story.lines(), ["2 connected", "2 first", "2 ended", "2 connected", "2 second"]);
    // The node is done with the first connection. Its other side may learn of that later.
    let until = Instant::now() + SOON;
    while first.ended().is_none() {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(second.ended().is_none());
}

#[test]
fn the_connection_that_the_lower_number_dialed_stays() {
    let cluster = Cluster::new();
    let (low, high) = (cluster.node(1, Roles::DISK), cluster.node(2, Roles::DISK));
    low.keep(&high);
    high.story.wait_for("1 connected", 1);
    low.story.wait_for("2 connected", 1);
    // The node with the higher number dials all the same, and learns why it is refused.
    let refused = stray(&high.us, &low).unwrap_err();
    assert!(refused.to_string().contains("has a connection with node 2 already"), "{refused}");
    // The other way round: the connection that the higher node dialed gives way.
    let (low, high) = (cluster.node(1, Roles::DISK), cluster.node(2, Roles::DISK));
    high.keep(&low);
    high.story.wait_for("1 connected", 1);
    let dialed = stray(&low.us, &high).unwrap();
    high.story.wait_for("1 connected", 2);
    assert_eq!(high.story.lines(), ["1 connected", "1 ended", "1 connected"]);
    assert!(dialed.ended().is_none());
}

#[test]
fn messages_that_had_arrived_count_unless_their_sender_is_expelled() {
    let cluster = Cluster::new();
    let (one, two) = (cluster.node(1, Roles::MANAGER), cluster.node(2, Roles::DISK));
    two.keep(&one);
    for is_expelled in [false, true] {
        one.story.wait("connected", |lines| lines.last().is_some_and(|line| line == "2 connected"));
        two.story.wait("connected", |lines| lines.last().is_some_and(|line| line == "1 connected"));
        let before = one.story.lines().len();
        let gate = one.story.gate.lock();
        for text in ["a", "b", "c"] {
            two.tell(1, text).unwrap();
        }
        std::thread::sleep(Duration::from_millis(500));
        if is_expelled {
            one.links.expel(NodeId(2), "it was removed");
        } else {
            one.links.peer(NodeId(2)).unwrap().cut("for a new one");
        }
        drop(gate);
        one.story.wait("ended", |lines| lines[before..].contains(&"2 ended".to_owned()));
        let lines = one.story.lines()[before..].to_vec();
        let got: Vec<&str> = lines.iter().map(String::as_str).take_while(|line| *line != "2 ended").collect();
        let expected: &[&str] = if is_expelled { &["2 a"] } else { &["2 a", "2 b", "2 c"] };
        assert_eq!(got, expected);
    }
}

#[test]
fn a_forgotten_node_is_no_longer_dialed() {
    let cluster = Cluster::new();
    let (one, two) = (cluster.node(1, Roles::DISK), cluster.node(2, Roles::DISK));
    one.keep(&two);
    one.story.wait_for("2 connected", 1);
    two.story.wait_for("1 connected", 1);
    one.links.forget(NodeId(2));
    two.story.wait_for("1 ended", 1);
    one.story.wait_for("2 ended", 1);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(two.story.lines(), ["1 connected", "1 ended"]);
    one.keep(&two);
    two.story.wait_for("1 connected", 2);
}

#[test]
fn a_node_forgotten_during_a_dial_is_not_connected() {
    let cluster = Cluster::new();
    let (one, two) = (cluster.node(1, Roles::DISK), cluster.node(2, Roles::DISK));
    for pause in 0..300 {
        one.keep(&two);
        std::thread::sleep(Duration::from_micros(pause * 10));
        one.links.forget(NodeId(2));
        // A dial in progress has succeeded by now, or will not.
        std::thread::sleep(Duration::from_millis(4));
        let until = Instant::now() + SOON;
        while !one.links.connected().is_empty() || !two.links.connected().is_empty() {
            assert!(Instant::now() < until, "forgotten {} us later: {:?}", pause * 10, one.story.lines());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn unknown_and_refused_nodes_are_not_admitted() {
    let (cluster, other) = (Cluster::new(), Cluster::new());
    let (one, two) = (cluster.node(1, Roles::MANAGER), cluster.node(2, Roles::DISK));
    *one.story.unwanted.lock() = Some(NodeId(2));
    let refused = stray(&two.us, &one).unwrap_err();
    assert!(refused.to_string().contains("node 2 was removed"), "{refused}");
    // From another cluster's authority, though the cluster's number is the same.
    assert!(stray(&other.us(3, Roles::DISK), &one).is_err());
    // An unexpected node answers at this address.
    two.links.keep(NodeId(7), &one.address.to_string());
    // The node's own identity, on a second machine.
    let twin = stray(&one.us, &one).unwrap_err();
    assert!(twin.to_string().contains("this is node 1, too"), "{twin}");
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(one.story.lines(), Vec::<String>::new());
}
