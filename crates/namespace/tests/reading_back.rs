//! A right to write includes none to read, whether a mode, an ACL or a credential gives it.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use kv::{Durability, Kv, MemoryKv};
use namespace::{self as ns, Actor, Namespace, NamespaceConfig, NsError, OpenKind, Operation, PathLimits, WriteMode};
use types::{BootId, ClientIdentity, NsPath, PathOperation, PrincipalId, Timestamp};

const OWNER: u32 = 7;
const OTHER: u32 = 8;

#[derive(Debug)]
struct Only(&'static [PathOperation], &'static str);

impl PathLimits for Only {
    fn permit(&self, operation: PathOperation, path: &NsPath) -> Result<(), String> {
        let is_below = path.as_bytes().starts_with(self.1.as_bytes());
        let is_permitted = self.0.contains(&operation) && is_below;
        if is_permitted { Ok(()) } else { Err(format!("the credential does not {operation}")) }
    }
}

struct World(Arc<Namespace>);

fn path(text: &str) -> NsPath {
    NsPath::parse(text.as_bytes()).unwrap()
}

fn actor(id: u32) -> Actor {
    Actor::new(PrincipalId(id), Arc::from([]))
}

fn limited(id: u32, may: &'static [PathOperation]) -> Actor {
    Actor { limits: Some(Arc::new(Only(may, "/d"))), ..actor(id) }
}

impl World {
    /// The file `/d/f` of the owner, which others may only write.
    fn new() -> Self {
        let kv: Arc<dyn Kv> = Arc::new(MemoryKv::new());
        let world = Self(Namespace::open(kv, Timestamp(1), NamespaceConfig::default()).unwrap());
        world.change(&Actor::admin(), ns::Mkdir { path: path("/d"), mode: 0o777, parents: false }).unwrap();
        let opened = world.opens(&actor(OWNER), "/d/f", WriteMode::NewOnly, 1);
        world.closes(&opened);
        world.change(&actor(OWNER), ns::Chmod { path: path("/d/f"), mode: 0o602 }).unwrap();
        world
    }

    fn change<O: Operation + Send + 'static>(&self, who: &Actor, op: O) -> Result<O::Reply, NsError> {
        self.0.change_wait(Durability::Synced, self.0.context(Timestamp(5), who, None), op)
    }

    fn opens(&self, who: &Actor, at: &str, how: WriteMode, pid: u32) -> ns::OpenedWrite {
        self.tries(who, at, how, pid).unwrap()
    }

    fn tries(&self, who: &Actor, at: &str, how: WriteMode, pid: u32) -> Result<ns::OpenedWrite, NsError> {
        let client = ClientIdentity { principal: who.principal, user: "u".into(), pid, host: "h".into() };
        self.change(who, ns::OpenWrite::new(path(at), how, client, BootId(1)))
    }

    fn closes(&self, opened: &ns::OpenedWrite) {
        let content = ns::Committed { len: 5, sums: None, mtime: None };
        let commit = ns::Commit { writer: opened.writer, content, completion: ns::Completion::ByClient };
        self.change(&Actor::admin(), commit).unwrap();
    }

    fn reads(&self, who: &Actor, at: &str, opened: &ns::OpenedWrite) -> Result<(), NsError> {
        self.0.read(|read| ns::permit_reading_back(read, who, &path(at), opened, None))
    }
}

#[test]
fn a_mode_that_lets_others_write_lets_them_read_nothing() {
    let w = World::new();
    let opened = w.opens(&actor(OTHER), "/d/f", WriteMode::Update, 2);
    assert_eq!(opened.kind, OpenKind::Update);
    let denied = w.reads(&actor(OTHER), "/d/f", &opened).unwrap_err().to_string();
    assert!(denied.contains("gives others no r"), "{denied}");
    assert!(w.reads(&actor(OWNER), "/d/f", &opened).is_ok() && w.reads(&Actor::admin(), "/d/f", &opened).is_ok());
    w.change(&actor(OWNER), ns::Chmod { path: path("/d/f"), mode: 0o606 }).unwrap();
    w.reads(&actor(OTHER), "/d/f", &opened).unwrap();
}

#[test]
fn a_credential_to_change_files_reads_none() {
    let w = World::new();
    let changes = limited(OWNER, &[PathOperation::ModifyFile, PathOperation::Stat]);
    let opened = w.opens(&changes, "/d/f", WriteMode::Update, 2);
    let denied = w.reads(&changes, "/d/f", &opened).unwrap_err().to_string();
    assert!(denied.contains("the credential does not read"), "{denied}");
    // The administrator has limits, too.
    assert!(w.reads(&limited(0, &[PathOperation::ModifyFile]), "/d/f", &opened).is_err());
    let both = limited(OWNER, &[PathOperation::ModifyFile, PathOperation::Stat, PathOperation::Read]);
    w.reads(&both, "/d/f", &opened).unwrap();
    // The file has moved to where the credential does not reach.
    w.closes(&opened);
    let opened = w.opens(&both, "/d/f", WriteMode::Update, 3);
    w.change(&Actor::admin(), ns::Mkdir { path: path("/e"), mode: 0o777, parents: false }).unwrap();
    w.change(&Actor::admin(), ns::Rename { from: path("/d/f"), to: path("/e/f"), replace: false }).unwrap();
    assert!(w.reads(&both, "/d/f", &opened).is_err());
    w.reads(&actor(OWNER), "/d/f", &opened).unwrap();
}

#[test]
fn what_a_client_makes_it_reads_back_until_it_returns() {
    let w = World::new();
    let creates = limited(OTHER, &[PathOperation::CreateFile]);
    let opened = w.opens(&creates, "/d/new", WriteMode::NewOnly, 2);
    w.reads(&creates, "/d/new", &opened).unwrap();
    // Another client of the principal may have written it, for all that its name says.
    let again = w.opens(&creates, "/d/new", WriteMode::Update, 2);
    assert_eq!(again.kind, OpenKind::Resumed(None));
    assert!(w.reads(&creates, "/d/new", &again).is_err());
    // A replacement begins empty.
    let opened = w.opens(&actor(OTHER), "/d/f", WriteMode::Replace, 3);
    assert!(matches!(opened.kind, OpenKind::Upload(_)));
    w.reads(&actor(OTHER), "/d/f", &opened).unwrap();
    // It returns to its own upload, whatever the mode of the replaced file is.
    let again = w.opens(&actor(OTHER), "/d/f", WriteMode::Update, 3);
    assert!(matches!(again.kind, OpenKind::Resumed(Some(_))));
    w.reads(&actor(OTHER), "/d/f", &again).unwrap();
    let replaces = limited(OTHER, &[PathOperation::ModifyFile]);
    assert!(w.reads(&replaces, "/d/f", &again).is_err());
}

#[test]
fn a_file_that_is_gone_is_not_read_back() {
    let w = World::new();
    let opened = w.opens(&actor(OWNER), "/d/f", WriteMode::Update, 2);
    w.change(&Actor::admin(), ns::Remove { path: path("/d/f") }).unwrap();
    let gone = w.reads(&actor(OTHER), "/d/f", &opened);
    assert!(gone.is_err(), "{gone:?}");
}

#[test]
fn units_are_read_back_by_whoever_may_read_back_their_file() {
    let w = World::new();
    // A unit is made with its file, so that its first open goes on already.
    let unit = |file: &ns::OpenedWrite| ns::OpenedWrite { kind: OpenKind::Resumed(None), ..file.clone() };
    let reads = |who: &Actor, at: &str, file: &ns::OpenedWrite| {
        w.0.read(|read| ns::permit_reading_back(read, who, &path(at), &unit(file), Some(file.writer)))
    };
    let new = w.opens(&actor(OTHER), "/d/new", WriteMode::NewOnly, 2);
    w.change(&actor(OTHER), ns::Chmod { path: path("/d/new"), mode: 0o200 }).unwrap();
    reads(&actor(OTHER), "/d/new", &new).unwrap();
    assert!(reads(&actor(OWNER), "/d/new", &new).is_err());
    // A replacement has no inode yet, and the one that it replaces may go away.
    let replacing = w.opens(&actor(OTHER), "/d/f", WriteMode::Replace, 3);
    assert!(matches!(replacing.kind, OpenKind::Upload(_)));
    reads(&actor(OTHER), "/d/f", &replacing).unwrap();
    w.change(&Actor::admin(), ns::Remove { path: path("/d/f") }).unwrap();
    reads(&actor(OTHER), "/d/f", &replacing).unwrap();
    // An update gives no right to read.
    let w = World::new();
    let update = w.opens(&actor(OTHER), "/d/f", WriteMode::Update, 4);
    let denied = w
        .0
        .read(|read| ns::permit_reading_back(read, &actor(OTHER), &path("/d/f"), &unit(&update), Some(update.writer)));
    assert!(denied.unwrap_err().to_string().contains("gives others no r"));
}
