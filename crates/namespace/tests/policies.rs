//! Policies of directories: who may set them, which directories inherit them, and when they go.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::cell::Cell;
use std::sync::Arc;

use kv::{Durability, Kv, KvError, MemoryKv, OpOutcome, Read, ScanOrder, transact};
use namespace::{self as ns, Actor, Namespace, NamespaceConfig, NsError, Operation, policy_of};
use types::{ErrorCode, Ino, NsPath, Policy, PrincipalId, Timestamp};

struct World {
    kv: Arc<dyn Kv>,
    ns: Arc<Namespace>,
}

fn path(text: &str) -> NsPath {
    NsPath::parse(text.as_bytes()).unwrap()
}

fn policy(text: &str) -> Policy {
    text.parse().unwrap()
}

impl World {
    /// A world with these directories.
    fn with(dirs: &[&str]) -> Self {
        let kv: Arc<dyn Kv> = Arc::new(MemoryKv::new());
        let ns = Namespace::open(Arc::clone(&kv), Timestamp(1), NamespaceConfig::default()).unwrap();
        let world = Self { kv, ns };
        for dir in dirs {
            world.admin(ns::Mkdir { path: path(dir), mode: 0o777, parents: true }).unwrap();
        }
        world
    }

    fn change<O: Operation + Send + 'static>(&self, actor: &Actor, op: O) -> Result<O::Reply, NsError> {
        self.ns.change_wait(Durability::Synced, self.ns.context(Timestamp(5), actor, None), op)
    }

    fn admin<O: Operation + Send + 'static>(&self, op: O) -> Result<O::Reply, NsError> {
        self.change(&Actor::admin(), op)
    }

    fn set(&self, dir: &str, text: &str) {
        self.admin(ns::SetPolicy { path: path(dir), policy: policy(text) }).unwrap();
    }

    fn ino(&self, dir: &str) -> Ino {
        self.ns.read(|read| ns::stat(read, &Actor::admin(), &path(dir))).unwrap().ino
    }

    /// The policy that applies in `dir`, and the path on which it was set.
    fn policy(&self, dir: &str) -> Option<(String, String)> {
        self.ns
            .read(|read| {
                let Some(found) = policy_of(read, self.ino(dir))? else { return Ok(None) };
                let from = String::from_utf8(ns::path_of(read, found.from)?).unwrap();
                Ok(Some((found.policy.to_string(), from)))
            })
            .unwrap()
    }

    fn set_on(&self, dir: &str) -> Option<String> {
        self.policy(dir).map(|(_, from)| from)
    }

    fn findings(&self) -> Vec<String> {
        let mut findings = Vec::new();
        ns::check(&*self.kv.snapshot(), &mut |finding| findings.push(finding.what)).unwrap();
        findings
    }
}

fn remove(dir: &str) -> ns::RemovePolicy {
    ns::RemovePolicy { path: path(dir) }
}

#[test]
fn nearest_policy_upwards_applies() {
    let w = World::with(&["/run/raw/day1", "/home"]);
    assert_eq!(w.policy("/run/raw/day1"), None);
    w.set("/run", "replica(2)");
    w.set("/run/raw", "stripe(4, 4MiB)");
    let raw = ("stripe(4, 4MiB) replica(1) spread=host".to_owned(), "/run/raw".to_owned());
    assert_eq!(w.policy("/run/raw/day1"), Some(raw.clone()), "as a whole, not mixed with that of /run");
    assert_eq!(w.policy("/run/raw"), Some(raw));
    assert_eq!(w.set_on("/run").as_deref(), Some("/run"));
    assert_eq!(w.policy("/home"), None);
    w.set("/", "replica(3)");
    assert_eq!(w.set_on("/home").as_deref(), Some("/"));
    w.set("/run/raw", "replica(1) near=client");
    assert_eq!(w.policy("/run/raw/day1").unwrap().0, "replica(1) spread=host near=client", "the new one counts");
    w.admin(remove("/run/raw")).unwrap();
    assert_eq!(w.set_on("/run/raw/day1").as_deref(), Some("/run"));
    assert_eq!(w.admin(remove("/run/raw")).unwrap_err().code(), ErrorCode::NotFound, "it inherits one, but has none");
    assert_eq!(w.findings(), [""; 0]);
}

#[test]
fn policies_are_listed_in_pages() {
    let w = World::with(&["/a/b", "/c", "/d"]);
    for (dir, text) in [("/d", "replica(4)"), ("/", "replica(1)"), ("/a/b", "replica(2)"), ("/c", "replica(3)")] {
        w.set(dir, text);
    }
    w.admin(remove("/c")).unwrap();
    let (mut after, mut found) = (None, Vec::new());
    loop {
        let part = w.ns.read(|read| ns::policies(read, after, 2)).unwrap();
        assert!(part.len() <= 2);
        let Some(last) = part.last() else { break };
        after = Some(last.from);
        found.extend(part.into_iter().map(|one| (one.from, one.policy)));
    }
    let of = |dir: &str, text: &str| (w.ino(dir), policy(text));
    assert_eq!(found, [of("/", "replica(1)"), of("/a/b", "replica(2)"), of("/d", "replica(4)")]);
    let own = |dir: &str| w.ns.read(|read| ns::own_policy(read, w.ino(dir))).unwrap();
    assert_eq!((own("/d"), own("/a")), (Some(policy("replica(4)")), None), "what is inherited is not its own");
}

#[test]
fn only_the_administrator_changes_policies() {
    let w = World::with(&["/d"]);
    let owner = Actor::new(PrincipalId(5), Arc::from([PrincipalId(5)]));
    w.admin(ns::Chown { path: path("/d"), owner: Some(PrincipalId(5)), group: None }).unwrap();
    let error = w.change(&owner, ns::SetPolicy { path: path("/d"), policy: policy("replica(2)") }).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Denied, "{error}");
    w.set("/d", "replica(2)");
    assert_eq!(w.change(&owner, remove("/d")).unwrap_err().code(), ErrorCode::Denied);
    assert_eq!(w.set_on("/d").as_deref(), Some("/d"));
}

#[test]
fn a_policy_belongs_to_a_directory() {
    let w = World::with(&["/d"]);
    w.admin(ns::Symlink { path: path("/link"), target: b"d".to_vec() }).unwrap();
    w.admin(ns::Symlink { path: path("/dangling"), target: b"nowhere".to_vec() }).unwrap();
    w.admin(ns::SetPolicy { path: path("/link"), policy: policy("replica(2)") }).unwrap();
    assert_eq!(w.set_on("/d").as_deref(), Some("/d"), "a link leads to its directory");
    let code = |at: &str| w.admin(ns::SetPolicy { path: path(at), policy: Policy::default() }).unwrap_err().code();
    assert_eq!(code("/dangling"), ErrorCode::NotFound);
    let open =
        ns::OpenWrite::new(path("/file"), ns::WriteMode::NewOnly, types::ClientIdentity::default(), types::BootId(1));
    let file = w.admin(open).unwrap();
    assert_eq!(code("/file"), ErrorCode::NotDirectory);
    assert!(w.ns.read(|read| policy_of(read, file.ino)).is_err(), "asked for by the directory, not by the file");
}

#[test]
fn moved_directory_keeps_its_policy_and_inherits_from_its_new_parent() {
    let w = World::with(&["/a/own/sub", "/a/none/sub", "/b"]);
    w.set("/a", "replica(2)");
    w.set("/b", "replica(3)");
    w.set("/a/own", "replica(4)");
    for name in ["own", "none"] {
        let rename = ns::Rename { from: path(&format!("/a/{name}")), to: path(&format!("/b/{name}")), replace: false };
        w.admin(rename).unwrap();
    }
    assert_eq!(w.set_on("/b/own/sub").as_deref(), Some("/b/own"));
    assert_eq!(w.set_on("/b/none/sub").as_deref(), Some("/b"));
}

#[test]
fn policy_is_removed_with_its_directory() {
    let w = World::with(&["/a", "/b", "/c", "/d"]);
    for dir in ["/a", "/b", "/c"] {
        w.set(dir, "replica(2)");
    }
    w.admin(ns::Rmdir { path: path("/a") }).unwrap();
    w.admin(ns::Rename { from: path("/d"), to: path("/b"), replace: true }).unwrap();
    w.admin(ns::RemoveAny { path: path("/c") }).unwrap();
    assert_eq!(w.policy("/b"), None, "the directory that came has none");
    let mut left = 0;
    let count = &mut |_: &[u8], _: &[u8]| {
        left += 1;
        std::ops::ControlFlow::Continue(())
    };
    w.kv.snapshot().scan(b"P", b"Q", ScanOrder::Ascending, count).unwrap();
    assert_eq!((left, w.findings()), (0, vec![]));
}

#[test]
fn check_finds_policies_without_a_directory_and_damaged_ones() {
    let w = World::with(&["/d"]);
    w.set("/d", "replica(2)");
    let put = |key: Vec<u8>, value: &'static [u8]| {
        let key = [b"P".as_slice(), &key].concat();
        transact(&*w.kv, Durability::Synced, move |txn| {
            txn.put(&key, value);
            (OpOutcome::Commit, ())
        })
        .unwrap();
    };
    let dir = w.ino("/d").0;
    put(9_999_u64.to_be_bytes().to_vec(), &[2, 1, 1, 1, 0]);
    assert_eq!(w.findings(), ["a policy of a directory that is not there"]);
    put(dir.to_be_bytes().to_vec(), &[2, 0, 0, 1, 0]);
    let findings = w.findings();
    assert!(findings.len() == 2 && findings[0].contains("layout in it is not valid"), "{findings:?}");
    let error = w.ns.read(|read| policy_of(read, Ino(dir))).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Damaged, "nothing is guessed: {error}");
    w.admin(remove("/d")).unwrap();
    assert_eq!(w.policy("/d"), None, "it can be taken away");
    put([dir.to_be_bytes().as_slice(), b"x"].concat(), &[2, 1, 1, 1, 0]);
    assert!(w.findings()[0].contains("more in the key"));
}

/// Counts gets.
struct Counting<'a> {
    read: &'a dyn Read,
    gets: Cell<u32>,
}

impl Read for Counting<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        self.gets.set(self.gets.get() + 1);
        self.read.get(key)
    }
    fn scan(
        &self,
        start: &[u8],
        end: &[u8],
        order: ScanOrder,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> std::ops::ControlFlow<()>,
    ) -> Result<(), KvError> {
        self.read.scan(start, end, order, visit)
    }
}

#[test]
fn finding_a_policy_costs_two_gets_for_each_directory_on_the_way() {
    let w = World::with(&["/a/b/c/d"]);
    let gets = || {
        let snapshot = w.kv.snapshot();
        let counting = Counting { read: &*snapshot, gets: Cell::new(0) };
        policy_of(&counting, w.ino("/a/b/c/d")).unwrap();
        counting.gets.get()
    };
    assert_eq!(gets(), 10, "nobody has one: four directories and the root");
    w.set("/a/b", "replica(2)");
    assert_eq!(gets(), 6);
    w.set("/a/b/c/d", "replica(2)");
    assert_eq!(gets(), 2);
}

#[test]
fn root_gets_a_default_once_and_only_if_it_has_none() {
    let give = || ns::GiveDefaultPolicy { policy: policy("replica(2)"), hosts: 2 };
    let is_given = |world: &World| world.ns.read(ns::is_policy_given).unwrap();
    let world = World::with(&["/d"]);
    assert!(!is_given(&world) && world.admin(give()).unwrap());
    assert_eq!(world.policy("/d"), Some(("replica(2) sync=2 spread=host".into(), "/".into())));
    assert!(is_given(&world));
    assert!(!world.admin(give()).unwrap(), "a manager that starts again");
    // Whoever removes or changes it has the last word.
    world.admin(ns::RemovePolicy { path: path("/") }).unwrap();
    assert!(!world.admin(give()).unwrap() && !is_given(&world));
    assert_eq!(world.policy("/d"), None);
    world.set("/", "replica(3)");
    assert!(!world.admin(give()).unwrap() && !is_given(&world));
    // A policy that was set before stays, also for ever.
    let world = World::with(&["/d"]);
    world.set("/", "replica(1) near=client");
    assert!(!world.admin(give()).unwrap());
    assert_eq!(world.policy("/").unwrap().0, "replica(1) spread=host near=client");
    world.admin(ns::RemovePolicy { path: path("/") }).unwrap();
    assert!(!world.admin(give()).unwrap());
    let user = Actor::new(PrincipalId(5), Arc::from([PrincipalId(5)]));
    assert_eq!(world.change(&user, give()).unwrap_err().code(), ErrorCode::Denied);
}
