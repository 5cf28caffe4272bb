//! Objects that move to groups with more stores.

#![allow(clippy::unwrap_used, clippy::panic)] // a test may fail this way

use std::sync::Arc;

use kv::{Durability, MemoryKv};
use namespace::{self as ns, Actor, Namespace, NamespaceConfig, NsError, Operation, WriteMode};
use types::{
    BootGeneration, BootId, ClientIdentity, ErrorCode, Group, GroupId, InSyncReplica, Ino, Member, NsPath, ObjectId,
    Placement, PrincipalId, StoreId, Timestamp,
};

const NARROW: GroupId = GroupId(7);
const WIDE: GroupId = GroupId(8);
const OTHER: GroupId = GroupId(9);

struct World(Arc<Namespace>);

impl World {
    /// Four stores; a group of the first two, one of the first three, and one of the last two.
    fn new() -> Self {
        let ns = Namespace::open(Arc::new(MemoryKv::new()), Timestamp(0), NamespaceConfig::default()).unwrap();
        let world = Self(ns);
        world.change(ns::FoundCluster { roles: 3, name: "m".into(), key: [0; 32] }).unwrap();
        for store in 1..=4 {
            let location = format!("s/r/h{store}").parse().unwrap();
            world.change(ns::PutStore { store: StoreId(store), node: ns::FIRST_NODE, location, class: None }).unwrap();
        }
        for (group, stores) in [(NARROW, &[1, 2][..]), (WIDE, &[1, 2, 3]), (OTHER, &[3, 4])] {
            let member = |store: &u64| Member { store: StoreId(*store), since: ObjectId(1), through: ObjectId(0) };
            let members = stores.iter().map(member).collect();
            world.change(ns::PutGroup { group: Group { group, epoch: 1, members } }).unwrap();
        }
        world
    }

    fn change<O: Operation + Send + 'static>(&self, op: O) -> Result<O::Reply, NsError> {
        let ctx = self.0.context(Timestamp(5), &Actor::admin(), None);
        self.0.change_wait(Durability::Synced, ctx, op)
    }

    fn open(&self, at: &str, how: WriteMode) -> ns::OpenedWrite {
        let in_sync = InSyncReplica { store: StoreId(1), boot_generation: BootGeneration(1) };
        let open = ns::OpenWrite::new(path(at), how, ClientIdentity::default(), BootId(1));
        let placement = Placement { group: NARROW, in_sync: vec![in_sync] };
        self.change(ns::OpenWrite { placement, ..open }).unwrap()
    }

    /// A file that the first store has, and the second misses.
    fn file(&self, at: &str) -> ns::WriterToken {
        let writer = self.open(at, WriteMode::NewOnly).writer;
        self.commit(writer, NARROW);
        writer
    }

    fn commit(&self, writer: ns::WriterToken, group: GroupId) {
        let content = ns::Committed { len: 10, sums: None, mtime: None };
        let commit = ns::Commit { writer, content, completion: ns::Completion::ByClient };
        self.change(ns::CommitPlaced { commit, group, by: StoreId(1), holders: vec![StoreId(1)] }).unwrap();
    }

    fn widen(&self, at: &str, to: GroupId) -> ns::WidenObject {
        let inode = self.0.read(|read| ns::stat(read, &Actor::admin(), &path(at))).unwrap();
        let content = *inode.content().unwrap();
        let at_rest = self.0.read(|read| ns::at_rest(read, content.group, content.object)).unwrap();
        ns::WidenObject { ino: inode.ino, object: content.object, state: at_rest.map_or(0, |now| now.state), to }
    }

    fn placed(&self, at: &str) -> (GroupId, Vec<u64>, Vec<u64>) {
        let inode = self.0.read(|read| ns::stat(read, &Actor::admin(), &path(at))).unwrap();
        let content = *inode.content().unwrap();
        let numbers = |stores: Vec<StoreId>| stores.into_iter().map(|store| store.0).collect();
        let (group, object) = (content.group, content.object);
        let holders = self.0.read(|read| ns::holders(read, group, object)).unwrap();
        let missing = self.0.read(|read| ns::missing_of(read, group, object)).unwrap();
        (group, numbers(holders), numbers(missing))
    }

    fn check(&self) {
        let mut found = Vec::new();
        self.0.read(|read| ns::check(read, &mut |finding| found.push(finding))).unwrap();
        assert_eq!(found, []);
    }
}

fn path(text: &str) -> NsPath {
    NsPath::parse(text.as_bytes()).unwrap()
}

#[test]
fn file_keeps_its_replicas_and_misses_those_of_the_further_stores() {
    let world = World::new();
    world.file("/f");
    assert_eq!(world.placed("/f"), (NARROW, vec![1], vec![2]));
    let request = world.widen("/f", WIDE);
    world.change(request).unwrap();
    assert_eq!(world.placed("/f"), (WIDE, vec![1], vec![2, 3]));
    assert_eq!(world.0.read(|read| ns::object_record(read, NARROW, request.object)).unwrap(), None);
    world.change(request).unwrap();
    assert_eq!(world.placed("/f"), (WIDE, vec![1], vec![2, 3]), "a repeated request changes nothing");
    world.check();
    // It is written in place, and removed, in its new group.
    let update = world.open("/f", WriteMode::Update);
    assert_eq!(update.group, WIDE);
    world.commit(update.writer, WIDE);
    world.change(ns::Remove { path: path("/f") }).unwrap();
    let due = world.0.read(|read| ns::due_deletions(read, None, 10)).unwrap();
    assert_eq!(due.iter().map(|due| due.group).collect::<Vec<_>>(), [WIDE]);
    world.check();
}

#[test]
fn nothing_moves_to_a_group_without_the_present_stores_or_after_a_change() {
    let world = World::new();
    world.file("/f");
    let stale = |request: ns::WidenObject| {
        assert_eq!(world.change(request).unwrap_err().code(), ErrorCode::Stale);
    };
    let request = world.widen("/f", WIDE);
    stale(ns::WidenObject { to: OTHER, ..request });
    stale(ns::WidenObject { to: GroupId(99), ..request });
    stale(ns::WidenObject { ino: Ino(999), ..request });
    stale(ns::WidenObject { object: ObjectId(999), ..request });
    let update = world.open("/f", WriteMode::Update);
    stale(request);
    world.commit(update.writer, NARROW);
    stale(request);
    // A store is joining the wider group.
    let join = ns::JoinGroup { group: WIDE, epoch: 1, store: StoreId(4), in_place_of: StoreId(3) };
    world.change(join).unwrap();
    stale(world.widen("/f", WIDE));
    assert_eq!(world.placed("/f").0, NARROW);
    let user = Actor::new(PrincipalId(5), Arc::from([PrincipalId(5)]));
    let ctx = world.0.context(Timestamp(5), &user, None);
    let denied = world.0.change_wait(Durability::Synced, ctx, request).unwrap_err();
    assert_eq!(denied.code(), ErrorCode::Denied);
    world.check();
}
