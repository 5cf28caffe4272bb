//! Each record has the snapshot epoch of its last change.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use std::sync::Arc;

use kv::{Durability, Kv, MemoryKv, OpOutcome, transact};
use namespace::{self as ns, Actor, Namespace, NamespaceConfig, Operation, WriteMode};
use types::{BootId, ClientIdentity, NsPath, SnapshotEpoch, Timestamp};

struct World {
    kv: Arc<MemoryKv>,
    ns: Arc<Namespace>,
}

fn path(text: &str) -> NsPath {
    NsPath::parse(text.as_bytes()).unwrap()
}

impl World {
    /// Makes a change in a snapshot epoch that the namespace itself does not know yet: this version has no snapshots.
    fn in_epoch<O: Operation + Clone + Send + 'static>(&self, epoch: u64, op: O) -> O::Reply {
        let ctx = self.ns.context(Timestamp(5_000), &Actor::admin(), None);
        let ctx = ns::Context { epoch: SnapshotEpoch(epoch), ..ctx };
        transact(&*self.kv, Durability::Synced, move |txn| (OpOutcome::Commit, op.run(txn, &ctx))).unwrap().unwrap()
    }

    fn epochs<const N: usize>(&self, of: [&str; N]) -> [u64; N] {
        let stat = |at| self.ns.read(|read| ns::stat_no_follow(read, &Actor::admin(), &path(at)));
        of.map(|at| stat(at).unwrap().changed_epoch.0)
    }

    fn findings(&self) -> Vec<String> {
        let mut findings = Vec::new();
        ns::check(&*self.kv.snapshot(), &mut |finding| findings.push(finding.what)).unwrap();
        findings
    }
}

#[test]
fn record_has_the_epoch_of_its_last_change() {
    let kv = Arc::new(MemoryKv::new());
    let ns = Namespace::open(Arc::<MemoryKv>::clone(&kv), Timestamp(1), NamespaceConfig::default()).unwrap();
    let world = World { kv, ns };
    world.in_epoch(0, ns::Mkdir { path: path("/d/e"), mode: 0o755, parents: true });
    world.in_epoch(0, ns::Symlink { path: path("/d/l"), target: b"f".to_vec() });
    let open = ns::OpenWrite::new(path("/d/f"), WriteMode::NewOnly, ClientIdentity::default(), BootId(1));
    let file = world.in_epoch(0, open.clone());
    let content = ns::Committed { len: 10, sums: None, mtime: None };
    let close = ns::Commit { writer: file.writer, content, completion: ns::Completion::ByClient };
    world.in_epoch(0, close);
    assert_eq!(world.epochs(["/", "/d", "/d/e", "/d/f", "/d/l"]), [0; 5]);
    assert_eq!(world.findings(), Vec::<String>::new());

    // Every change of a record updates its epoch. Other operations leave it.
    let chmod = |at| ns::Chmod { path: path(at), mode: 0o700 };
    world.in_epoch(3, chmod("/d/f"));
    assert_eq!(world.epochs(["/d", "/d/e", "/d/f", "/d/l"]), [0, 0, 3, 0]);
    world.in_epoch(4, ns::Rename { from: path("/d/l"), to: path("/d/e/l"), replace: false });
    world.in_epoch(5, chmod("/d/e"));
    assert_eq!(world.epochs(["/d", "/d/e", "/d/f", "/d/e/l"]), [0, 5, 3, 4]);
    world.in_epoch(6, ns::Link { existing: path("/d/f"), new: path("/d/g") });
    assert_eq!(world.epochs(["/d/f", "/d/g"]), [6, 6]);
    let update = ns::OpenWrite { how: WriteMode::Update, ..open };
    let update = world.in_epoch(7, update);
    assert_eq!(world.epochs(["/d/f"]), [7]);
    world.in_epoch(8, ns::Commit { writer: update.writer, ..close });
    assert_eq!(world.epochs(["/d/f"]), [8]);
    world.in_epoch(9, ns::Mkdir { path: path("/d/new"), mode: 0o755, parents: false });
    assert_eq!(world.epochs(["/d", "/d/new"]), [0, 9]);

    // Only epoch 0 has begun. The check reports each of the others as impossible.
    assert_eq!(world.findings(), ["it was changed in a snapshot epoch that has not begun"; 4]);
}
