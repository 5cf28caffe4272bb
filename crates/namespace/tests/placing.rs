//! Where contents are in a cluster: who takes part in a writing, who holds what, who is owed a copy.

#![allow(clippy::unwrap_used, clippy::panic)] // a test may fail this way

use std::sync::Arc;

use kv::{Durability, MemoryKv};
use namespace::{self as ns, Actor, How, Namespace, NamespaceConfig, NsError, Operation};
use types::{
    BodyId, BootId, ClientIdentity, Era, ErrorCode, Group, GroupId, Member, NodeId, NodeRecord, NsPath, Participant,
    Placement, StoreId, Timestamp,
};

const GROUP: GroupId = GroupId(7);

fn path(text: &str) -> NsPath {
    NsPath::parse(text.as_bytes()).unwrap()
}

fn participant(store: u64) -> Participant {
    Participant { store: StoreId(store), era: Era(1) }
}

fn member(store: u64) -> Member {
    Member { store: StoreId(store), since: BodyId(1), through: BodyId(0) }
}

fn open(at: &str, how: How, participants: &[u64]) -> ns::OpenWrite {
    ns::OpenWrite {
        placement: Placement { group: GROUP, participants: participants.iter().map(|one| participant(*one)).collect() },
        ..ns::OpenWrite::new(path(at), how, ClientIdentity { user: "u".into(), pid: 1, host: "h".into() }, BootId(1))
    }
}

struct World(Arc<Namespace>);

impl World {
    fn new() -> Self {
        let ns = Namespace::open(Arc::new(MemoryKv::new()), Timestamp(0), NamespaceConfig::default()).unwrap();
        let world = Self(ns);
        world.change(ns::FoundCluster { roles: 3, name: "m".into(), key: [0; 32] }).unwrap();
        for store in 1..=4 {
            let place = format!("s/r/h{store}").parse().unwrap();
            world.change(ns::PutStore { store: StoreId(store), node: ns::FIRST_NODE, place, class: None }).unwrap();
        }
        let members = vec![member(1), member(2), member(3)];
        world.change(ns::PutGroup { group: Group { group: GROUP, epoch: 1, members } }).unwrap();
        world
    }

    fn change<O: Operation + Send + 'static>(&self, op: O) -> Result<O::Reply, NsError> {
        let ctx = self.0.context(Timestamp(5), &Actor::admin(), None);
        self.0.change_wait(Durability::Synced, ctx, op)
    }

    fn commit(&self, writer: ns::WriterToken, len: u64, holders: &[u64]) -> Result<ns::CommitReply, NsError> {
        let content = ns::Committed { len, sums: None, mtime: None };
        let commit = ns::Commit { writer, content, completion: ns::Completion::ByClient };
        let holders = holders.iter().copied().map(StoreId).collect();
        self.change(ns::CommitPlaced { commit, group: GROUP, holders })
    }

    fn holders(&self, body: BodyId) -> Vec<u64> {
        let holders = self.0.read(|read| ns::holders(read, GROUP, body)).unwrap();
        holders.into_iter().map(|store| store.0).collect()
    }
}

#[test]
fn who_did_not_take_part_to_the_end_is_owed_a_copy() {
    let world = World::new();
    let opened = world.change(open("/f", How::NewOnly, &[1, 2])).unwrap();
    assert_eq!((opened.group, opened.participants.len()), (GROUP, 2));
    // The second one dies; the third, who never took part, cannot be taken in.
    let place =
        |participants: Vec<Participant>| ns::PlaceWriter { writer: opened.writer, participants, takes_over: false };
    assert_eq!(world.change(place(vec![participant(1), participant(3)])).unwrap_err().code(), ErrorCode::Stale);
    assert_eq!(world.change(place(vec![participant(1)])).unwrap(), opened.writer);
    assert_eq!(world.change(place(vec![participant(1), participant(2)])).unwrap_err().code(), ErrorCode::Stale);
    let done = world.commit(opened.writer, 10, &[1]).unwrap();
    assert_eq!(world.commit(opened.writer, 10, &[1]).unwrap(), done, "the answer was lost");
    assert_eq!(
        world.commit(opened.writer, 11, &[1]).unwrap_err().code(),
        ErrorCode::Stale,
        "but nothing else was done"
    );
    assert_eq!(world.holders(opened.body), [1]);
    let owed = world.0.read(|read| ns::owed(read, GROUP, None, 10)).unwrap();
    assert_eq!(owed, [(opened.body, vec![StoreId(2), StoreId(3)])]);
    let copied = |state, store| ns::CopyDone { group: GROUP, body: opened.body, state, store: StoreId(store) };
    assert_eq!(world.change(copied(0, 2)).unwrap_err().code(), ErrorCode::Stale, "a copy of an older content");
    world.change(copied(1, 2)).unwrap();
    world.change(copied(1, 3)).unwrap();
    assert_eq!(world.holders(opened.body), [1, 2, 3]);
    assert_eq!(world.0.read(|read| ns::owed(read, GROUP, None, 10)).unwrap(), []);
}

#[test]
fn who_takes_over_fences_the_one_before() {
    let world = World::new();
    let opened = world.change(open("/f", How::NewOnly, &[1, 2])).unwrap();
    let over = ns::PlaceWriter { writer: opened.writer, participants: vec![participant(2)], takes_over: true };
    let writer = world.change(over).unwrap();
    assert_eq!(writer.epoch, opened.writer.epoch + 1);
    assert_eq!(world.commit(opened.writer, 10, &[1, 2]).unwrap_err().code(), ErrorCode::Stale);
    world.commit(writer, 10, &[2]).unwrap();
    assert_eq!(world.holders(opened.body), [2]);
}

#[test]
fn what_is_changed_in_place_is_changed_on_those_who_hold_it() {
    let world = World::new();
    let opened = world.change(open("/f", How::NewOnly, &[1, 2])).unwrap();
    world.commit(opened.writer, 10, &[1, 2]).unwrap();
    assert_eq!(world.change(open("/f", How::Update, &[3])).unwrap_err().code(), ErrorCode::Stale);
    let update = world.change(open("/f", How::Update, &[2, 3])).unwrap();
    assert_eq!((update.participants, update.group), (vec![participant(2)], GROUP));
    // Its writer goes away: what the others have is older.
    let interrupt = ns::Interrupt { writer: update.writer, kept_len: 10 };
    world.change(ns::InterruptPlaced { interrupt, holders: vec![StoreId(2)] }).unwrap();
    assert_eq!(world.holders(opened.body), [2]);
    world.change(ns::Remove { path: path("/f") }).unwrap();
    let due = world.0.read(|read| ns::due_deletions(read, None, 10)).unwrap();
    assert_eq!(due.iter().map(|due| (due.body, due.group)).collect::<Vec<_>>(), [(opened.body, GROUP)]);
    assert_eq!(world.0.read(|read| ns::owed(read, GROUP, None, 10)).unwrap(), [], "nobody is owed what goes");
}

#[test]
fn an_upload_keeps_its_group() {
    let world = World::new();
    let posc = ns::OpenWrite { posc: true, ..open("/f", How::NewOnly, &[2]) };
    let opened = world.change(posc).unwrap();
    world.commit(opened.writer, 3, &[2]).unwrap();
    let found = world.0.read(|read| ns::stat(read, &Actor::admin(), &path("/f"))).unwrap();
    assert_eq!(found.content().unwrap().group, GROUP);
    assert_eq!(world.holders(opened.body), [2]);
}

#[test]
fn a_group_changes_step_by_step() {
    let world = World::new();
    let group = |epoch, members| ns::PutGroup { group: Group { group: GROUP, epoch, members } };
    assert_eq!(world.change(group(1, vec![member(1)])).unwrap_err().code(), ErrorCode::Stale);
    assert_eq!(world.change(group(2, vec![])).unwrap_err().code(), ErrorCode::Invalid);
    let filling = Member { store: StoreId(4), since: BodyId(1 << 40), through: BodyId(0) };
    world.change(group(2, vec![member(1), filling])).unwrap();
    assert_eq!(world.holders(BodyId(9)), [1]);
    assert_eq!(world.holders(BodyId(1 << 41)), [1, 4]);
    let record = NodeRecord { node: NodeId(3), boot: BootId(8), era: Era(2) };
    world.change(ns::PutNode { record }).unwrap();
    assert_eq!(world.0.read(ns::nodes).unwrap(), [record]);
    let groups = world.0.read(|read| ns::groups(read, None, 10)).unwrap();
    assert_eq!(groups.iter().map(|group| group.epoch).collect::<Vec<_>>(), [2]);
}
