//! Tests of a single node in memory, through a front end with a line protocol.

#![allow(clippy::unwrap_used, clippy::panic)] // a test may fail this way

mod line;

use std::sync::Arc;
use std::time::{Duration, Instant};

use disk::{Disk, SimDisk};
use journal::{Journal, JournalConfig, StreamId};
use kv::{Embedded, EmbeddedConfig, IndexConfig, JournaledIndex, MemoryEngine};
use line::{Connection, client};
use namespace::{Namespace, NamespaceConfig};
use service::{Config, Principal, Rights, Role, Service};
use store::{Store, StoreConfig};
use types::{BootId, Crc32c, PrincipalId, Timestamp};

const GRACE: Duration = Duration::from_millis(400);

struct Node {
    service: Arc<Service>,
    embedded: Arc<Embedded>,
}

impl Node {
    fn new() -> Self {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(7));
        let (journal, _) = Journal::open(Arc::clone(&disk), "journal", JournalConfig::default()).unwrap();
        let journal = Arc::new(journal);
        let index = |stream, dir: &str| {
            let engine = Box::new(MemoryEngine::new());
            let config = IndexConfig::default();
            JournaledIndex::open(Arc::clone(&journal), stream, engine, Arc::clone(&disk), dir, config).unwrap().0
        };
        let names = index(StreamId::NAMESPACE, "namespace/checkpoint");
        let records = index(StreamId::STORE_INDEX, "store/checkpoint") as Arc<dyn store::RecordIndex>;
        let embedded = Arc::new(Embedded::new(names, EmbeddedConfig::default()).unwrap());
        let kv = Arc::clone(&embedded) as Arc<dyn kv::Kv>;
        let namespace = Namespace::open(kv, Timestamp::from_secs(1_700_000_000), NamespaceConfig::default()).unwrap();
        let config = StoreConfig { floor: Some(0), ..StoreConfig::default() };
        let (store, _) = Store::open(disk, "store", journal, records, config).unwrap();
        let mut config = Config::new(BootId(1));
        config.times.grace = GRACE;
        config.times.keeper = Duration::from_millis(20);
        let service = Service::start(config, Role::Alone { namespace, store }).unwrap();
        Self { service, embedded }
    }

    fn connect(&self, pid: u32) -> Connection {
        self.connect_as(&Principal::admin(), pid)
    }

    fn connect_as(&self, principal: &Principal, pid: u32) -> Connection {
        Connection::new(&self.service, principal, client("ana", pid))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.service.stop();
        self.embedded.stop();
    }
}

#[test]
fn files_are_made_read_listed_renamed_and_removed() {
    let node = Node::new();
    let mut ana = node.connect(1);
    assert_eq!(ana.ask("mkdir /d"), "ok");
    for name in ["a", "b", "c"] {
        assert_eq!(ana.ask(&format!("create f /d/{name}")), "ok 0");
        assert_eq!(ana.ask("write f 0 hello"), "ok");
        assert_eq!(ana.ask("write f 5 -world"), "ok");
        assert_eq!(ana.ask("close f"), "ok");
    }
    assert_eq!(ana.ask("list /d"), "ok a,b,c");
    assert_eq!(ana.ask("stat /d/b"), "ok 11 644");
    assert_eq!(ana.ask("open r /d/b"), "ok 11");
    assert_eq!(ana.ask("read r 6 100"), "ok world");
    assert!(ana.ask("write r 0 x").starts_with("error Denied /d/b is open for reading only"));
    assert_eq!(ana.ask("checksum /d/b"), format!("ok {:08x}", Crc32c::of(b"hello-world").0));
    assert_eq!(ana.ask("rename /d/b /d/e"), "ok");
    assert_eq!(ana.ask("read r 0 5"), "ok hello", "the handle stays on its content");
    assert_eq!(ana.ask("close r"), "ok");
    assert_eq!(ana.ask("remove /d/a"), "ok");
    assert_eq!(ana.ask("list /d"), "ok c,e");
    assert!(ana.ask("open r /d/a").starts_with("error NotFound"));
    assert!(ana.ask("create f /d/c").starts_with("error Exists"));
    assert!(ana.ask("close f").starts_with("error Stale"), "{}", ana.ask("close f"));
}

#[test]
fn a_writer_that_returns_within_the_grace_period_continues() {
    let node = Node::new();
    let mut ana = node.connect(1);
    assert_eq!(ana.ask("create f /a"), "ok 0");
    assert_eq!(ana.ask("write f 0 half"), "ok");
    ana.hang_up();
    let mut again = node.connect(1);
    assert_eq!(again.ask("update f /a"), "ok 4");
    assert_eq!(again.ask("write f 4 -whole"), "ok");
    assert_eq!(again.ask("close f"), "ok");
    assert_eq!(again.ask("open r /a"), "ok 10");
    assert_eq!(again.ask("read r 0 10"), "ok half-whole");
}

#[test]
fn a_writer_that_does_not_return_leaves_an_interrupted_file() {
    let node = Node::new();
    let mut ana = node.connect(1);
    assert_eq!(ana.ask("create f /a"), "ok 0");
    assert_eq!(ana.ask("write f 0 half"), "ok");
    ana.hang_up();
    let mut other = node.connect(2);
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let answer = other.ask("open r /a");
        if answer.starts_with("error Interrupted") {
            break;
        }
        assert!(Instant::now() < end, "{answer}");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(other.ask("checksum /a").starts_with("error InProgress"));
    assert_eq!(other.ask("remove /a"), "ok");
}

#[test]
fn another_principal_is_not_the_writer_even_with_the_same_client_name() {
    let node = Node::new();
    let mut ana = node.connect(1);
    assert_eq!(ana.ask("mkdir /d"), "ok");
    assert_eq!(ana.ask("create f /d/a"), "ok 0");
    assert_eq!(ana.ask("write f 0 mine"), "ok");
    assert_eq!(ana.ask("chmod /d/a 666"), "ok");
    let eve = Principal { id: PrincipalId(0), groups: Principal::admin().groups, rights: Rights::ReadOnly };
    let mut reader = node.connect_as(&eve, 3);
    assert!(reader.ask("update f /d/a").starts_with("error Denied"));
    assert!(reader.ask("remove /d/a").starts_with("error Denied"));
    assert_eq!(reader.ask("list /d"), "ok a");
    // The same user, process and host, but another principal.
    let mallory = Principal { id: PrincipalId(77), groups: [PrincipalId(77)].into(), rights: Rights::Full };
    let mut thief = node.connect_as(&mallory, 1);
    let taken = thief.ask("update f /d/a");
    assert!(taken.starts_with("error") && !taken.contains("Denied"), "the file's bits would let it: {taken}");
    assert_eq!(ana.ask("write f 4 -still"), "ok", "its handle was not fenced");
    assert_eq!(ana.ask("close f"), "ok");
    assert_eq!(ana.ask("open r /d/a"), "ok 10");
}
