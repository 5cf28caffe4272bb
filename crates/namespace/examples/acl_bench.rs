//! Measures what ACLs cost: the same operations in a tree without ACLs and in one where every directory and file has an ACL with 8 named entries, and
//! every directory a default ACL with 8 as well. One JSON object a line.
//!
//!     acl_bench --dir DIR [--rounds N]
//!
//! Rounds alternate between the trees. The fastest round of each counts, because other work on the machine only makes rounds slower.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use disk::{Disk, RealDisk};
use journal::{Journal, JournalConfig, StreamId};
use kv::{Durability, Embedded, EmbeddedConfig, IndexConfig, JournaledIndex, Kv, LsmConfig, LsmEngine};
use namespace::{
    AclEdit, Actor, Chown, Commit, Committed, Completion, Mkdir, Namespace, NamespaceConfig, OpenWrite, Operation,
    SetAcl, WriteMode, parse_acl,
};
use types::{BootId, ClientIdentity, NsPath, PrincipalId, Timestamp};

const TREES: [&str; 2] = ["plain", "lists"];
const FILES: usize = 1_000;
/// Nobody's name is in front of the group that decides.
const ENTRIES: &str = "user:1:r,user:2:r,user:3:r,user:4:r,group:21:r,group:22:r,group:23:r,group:107:rwx";

fn path(text: &str) -> NsPath {
    NsPath::parse(text.as_bytes()).unwrap()
}

fn user() -> Actor {
    Actor::new(PrincipalId(7), Arc::from([PrincipalId(107)]))
}

fn change<O: Operation + Send + 'static>(ns: &Namespace, who: &Actor, op: O) -> O::Reply {
    ns.change_wait(Durability::Written, ns.context(Timestamp(5), who, None), op).unwrap()
}

fn make_file(ns: &Namespace, at: &str) {
    let client = ClientIdentity { principal: PrincipalId(7), ..ClientIdentity::default() };
    let open = OpenWrite { mode: 0o664, ..OpenWrite::new(path(at), WriteMode::NewOnly, client, BootId(1)) };
    let opened = change(ns, &user(), open);
    let content = Committed { len: 9, sums: None, mtime: None };
    change(ns, &user(), Commit { writer: opened.writer, content, completion: Completion::ByClient });
}

fn make_trees(ns: &Namespace) {
    let admin = Actor::admin();
    for tree in TREES {
        let top = format!("/{tree}");
        change(ns, &admin, Mkdir { path: path(&top), mode: 0o775, parents: false });
        let group = Some(PrincipalId(107));
        change(ns, &admin, Chown { path: path(&top), owner: None, group });
        change(ns, &admin, namespace::Chmod { path: path(&top), mode: 0o2775 });
        if tree == "lists" {
            let edit = || Some(AclEdit::Replace(parse_acl(ENTRIES, &|_, _| None).unwrap().access));
            change(ns, &admin, SetAcl { path: path(&top), access: edit(), default: edit() });
            // The owning group is no longer what lets the user in.
            change(ns, &admin, Chown { path: path(&top), owner: None, group: Some(PrincipalId(0)) });
        }
        change(ns, &admin, Mkdir { path: path(&format!("{top}/a/b")), mode: 0o775, parents: true });
        for number in 0..FILES {
            make_file(ns, &format!("{top}/a/b/file-{number}"));
        }
    }
    // The user owns the files, and must get in by the lists.
    for (tree, number) in TREES.into_iter().flat_map(|tree| (0..FILES).map(move |number| (tree, number))) {
        let at = path(&format!("/{tree}/a/b/file-{number}"));
        change(ns, &admin, Chown { path: at, owner: Some(PrincipalId(0)), group: None });
    }
}

/// Nanoseconds for each of `count`.
fn time(count: usize, mut run: impl FnMut(usize)) -> f64 {
    let begin = Instant::now();
    (0..count).for_each(&mut run);
    begin.elapsed().as_secs_f64() * 1e9 / count as f64
}

fn measure(row: &str, rounds: usize, one: &dyn Fn(&str, usize) -> f64) {
    let mut best = [f64::MAX; 2];
    for round in 0..rounds {
        for (tree, best) in TREES.iter().zip(&mut best) {
            *best = best.min(one(tree, round));
        }
    }
    let [plain, lists] = best;
    let more = (lists / plain - 1.0) * 100.0;
    println!(r#"{{"row":"{row}","unit":"ns","plain":{plain:.0},"lists":{lists:.0},"more_percent":{more:.1}}}"#);
}

fn run(dir: &Path, rounds: usize) {
    std::fs::create_dir_all(dir).unwrap();
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::open(dir).unwrap());
    let config = JournalConfig { streams: vec![StreamId::NAMESPACE], ..JournalConfig::default() };
    let (journal, _) = Journal::open(Arc::clone(&disk), "journal", config).unwrap();
    let engine = Box::new(LsmEngine::open(&dir.join("index"), LsmConfig::default()).unwrap());
    let streams = (StreamId::NAMESPACE, "checkpoint");
    let index = IndexConfig::default();
    let (index, _) = JournaledIndex::open(Arc::new(journal), streams.0, engine, disk, streams.1, index).unwrap();
    let embedded = Arc::new(Embedded::new(Arc::clone(&index), EmbeddedConfig::default()).unwrap());
    let kv: Arc<dyn Kv> = Arc::<Embedded>::clone(&embedded);
    let ns = Namespace::open(kv, Timestamp(1), NamespaceConfig::default()).unwrap();
    make_trees(&ns);
    let user = user();
    let paths =
        |tree: &str| -> Vec<NsPath> { (0..FILES).map(|number| path(&format!("/{tree}/a/b/file-{number}"))).collect() };
    let by_tree = TREES.map(paths);
    let of = |tree: &str| &by_tree[usize::from(tree == TREES[1])];
    measure("stat", rounds, &|tree, _| {
        let paths = of(tree);
        time(FILES, |n| drop(ns.read(|read| namespace::stat(read, &user, &paths[n % FILES])).unwrap()))
    });
    measure("open for reading", rounds, &|tree, _| {
        let paths = of(tree);
        time(FILES, |n| drop(ns.read(|read| namespace::open_read(read, &user, &paths[n % FILES], false)).unwrap()))
    });
    measure("list with attributes, each entry", rounds, &|tree, _| {
        let dir = ns.read(|read| namespace::lookup(read, &user, &path(&format!("/{tree}/a/b")))).unwrap().ino;
        time(1, |_| assert!(ns.read(|read| namespace::list(read, dir, None, FILES)).unwrap().more || rounds > 0))
            / FILES as f64
    });
    measure("new file, open and commit", rounds, &|tree, round| {
        time(20, |n| make_file(&ns, &format!("/{tree}/a/new-{round}-{n}")))
    });
    embedded.stop();
    index.close().unwrap();
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let value = |flag: &str| args.iter().position(|arg| arg == flag).and_then(|at| args.get(at + 1));
    let dir = Path::new(value("--dir").expect("--dir is needed")).join("acl");
    let rounds = value("--rounds").map_or(1_000, |rounds| rounds.parse().unwrap());
    let _ = std::fs::remove_dir_all(&dir);
    run(&dir, rounds);
    std::fs::remove_dir_all(&dir).unwrap();
}
