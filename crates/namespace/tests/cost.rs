//! The cost of operations matches docs/reference/formats.md: the test counts every get and put.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use std::cell::Cell;
use std::sync::{Arc, Mutex};

use kv::{Durability, Kv, KvError, MemoryKv, Op, OpDone, Read, Savepoint, ScanOrder, Txn, Visit};
use namespace::{self as ns, Actor, Namespace, NamespaceConfig, Operation, WriteMode};
use types::{BootId, ClientIdentity, NsPath, Timestamp};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Cost {
    gets: u32,
    puts: u32,
    scans: u32,
}

struct Counting<'a> {
    inner: &'a mut dyn Txn,
    cost: Cell<Cost>,
}

impl Counting<'_> {
    fn add(&self, gets: u32, puts: u32, scans: u32) {
        let cost = self.cost.get();
        self.cost.set(Cost { gets: cost.gets + gets, puts: cost.puts + puts, scans: cost.scans + scans });
    }
}

impl Read for Counting<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        self.add(1, 0, 0);
        self.inner.get(key)
    }
    fn scan(&self, start: &[u8], end: &[u8], order: ScanOrder, visit: Visit<'_>) -> Result<(), KvError> {
        self.add(0, 0, 1);
        self.inner.scan(start, end, order, visit)
    }
}

impl Txn for Counting<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) {
        self.add(0, 1, 0);
        self.inner.put(key, value);
    }
    fn delete(&mut self, key: &[u8]) {
        self.add(0, 1, 0);
        self.inner.delete(key);
    }
    fn savepoint(&mut self) -> Savepoint {
        self.inner.savepoint()
    }
    fn rollback_to(&mut self, savepoint: Savepoint) {
        self.inner.rollback_to(savepoint);
    }
}

#[derive(Default)]
struct CountingKv {
    inner: MemoryKv,
    last: Arc<Mutex<Cost>>,
}

impl Kv for CountingKv {
    fn snapshot(&self) -> Box<dyn Read + Send + '_> {
        self.inner.snapshot()
    }
    fn submit(&self, durability: Durability, mut op: Op, done: OpDone) {
        let last = Arc::clone(&self.last);
        let counted: Op = Box::new(move |txn| {
            let mut counting = Counting { inner: txn, cost: Cell::default() };
            let outcome = op(&mut counting);
            *last.lock().unwrap() = counting.cost.get();
            outcome
        });
        self.inner.submit(durability, counted, done);
    }
}

struct World {
    ns: Arc<Namespace>,
    last: Arc<Mutex<Cost>>,
}

impl World {
    fn cost<O: Operation + Send + 'static>(&self, op: O) -> (O::Reply, (u32, u32, u32)) {
        let ctx = self.ns.context(Timestamp(5), &Actor::admin(), None);
        let reply = self.ns.change_wait(Durability::Synced, ctx, op).unwrap();
        let cost = *self.last.lock().unwrap();
        (reply, (cost.gets, cost.puts, cost.scans))
    }
}

fn path(text: &str) -> NsPath {
    NsPath::parse(text.as_bytes()).unwrap()
}

fn open(at: &str, how: WriteMode) -> ns::OpenWrite {
    ns::OpenWrite::new(path(at), how, ClientIdentity::default(), BootId(1))
}

fn commit(writer: ns::WriterToken, len: u64) -> ns::Commit {
    let content = ns::Committed { len, sums: None, mtime: None };
    ns::Commit { writer, content, completion: ns::Completion::ByClient }
}

#[test]
fn gets_puts_and_scans_are_as_documented() {
    let kv = Arc::new(CountingKv::default());
    let last = Arc::clone(&kv.last);
    let ns = Namespace::open(kv, Timestamp(1), NamespaceConfig::default()).unwrap();
    let w = World { ns, last };
    assert_eq!(w.cost(ns::Mkdir { path: path("/d"), mode: 0o755, parents: false }).1, (6, 6, 0), "mkdir");
    let (new, cost) = w.cost(open("/d/f", WriteMode::NewOnly));
    assert_eq!(cost, (8, 7, 0), "open, new file");
    assert_eq!(w.cost(commit(new.writer, 10)).1, (7, 7, 0), "commit of a new file");
    let (over, cost) = w.cost(open("/d/f", WriteMode::Replace));
    assert_eq!(cost, (7, 2, 0), "open over an existing file");
    assert_eq!(w.cost(commit(over.writer, 20)).1, (9, 10, 0), "commit of an overwrite");
    let (update, cost) = w.cost(open("/d/f", WriteMode::Update));
    assert_eq!(cost, (9, 2, 1), "open for update");
    assert_eq!(w.cost(commit(update.writer, 20)).1, (3, 3, 0), "commit of an update that keeps the length");
    assert_eq!(w.cost(ns::Remove { path: path("/d/f") }).1, (9, 8, 0), "remove");
    let edit = || ns::parse_acl("user:6:rwx,group:7:r", &|_, _| None).unwrap().access;
    let set = |access, default| ns::SetAcl { path: path("/d"), access, default };
    assert_eq!(w.cost(set(Some(ns::AclEdit::Modify(edit())), None)).1, (3, 2, 0), "change the ACL of a directory");
    assert_eq!(w.cost(open("/d/g", WriteMode::NewOnly)).1, (8, 7, 0), "open, new file in a directory with an ACL");
    assert_eq!(w.cost(set(None, Some(ns::AclEdit::Modify(edit())))).1, (3, 2, 0), "give a default ACL");
    let (new, cost) = w.cost(open("/d/h", WriteMode::NewOnly));
    assert_eq!(cost, (9, 7, 0), "open, new file in a directory with a default ACL");
    assert_eq!(w.cost(commit(new.writer, 10)).1, (7, 7, 0), "commit of a new file with an ACL");
    // With a quota: an open reserves with the same three records, and a commit gives back with them.
    let hard = Some(Some(1 << 40));
    let of = ns::QuotaOf::Tree;
    let [soft_bytes, hard_files, soft_files] = [None; 3];
    let limit = ns::SetQuota { path: path("/"), of, hard_bytes: hard, soft_bytes, hard_files, soft_files, grace: None };
    w.cost(limit);
    let (new, cost) = w.cost(open("/d/i", WriteMode::NewOnly));
    assert_eq!(cost, (9, 7, 0), "open, new file in a tree with a quota");
    assert_eq!(w.cost(commit(new.writer, 10)).1, (7, 7, 0), "commit of a new file in a tree with a quota");
    let name = |text: &str| types::PrincipalName::parse(types::PrincipalKind::User, text).unwrap();
    let names = || ["ann", "bob", "eve"].map(|text| (types::PrincipalKind::User, name(text))).to_vec();
    assert_eq!(w.cost(ns::NamePrincipals { names: names() }).1, (4, 7, 0), "name three new users");
    assert_eq!(w.cost(ns::NamePrincipals { names: names() }).1, (4, 0, 0), "ask for three users by a change");
    let rename = ns::RenamePrincipal { kind: types::PrincipalKind::User, from: name("ann"), to: name("amy") };
    assert_eq!(w.cost(rename).1, (2, 3, 0), "rename a user");
}
