//! A namespace that goes on after a restore from a backup: what the lost one may have handed out since never comes again.

#![allow(clippy::unwrap_used, clippy::panic)] // a test may fail this way

use std::sync::Arc;

use kv::{Durability, Kv, MemoryKv};
use namespace::{self as ns, Actor, Namespace, NamespaceConfig, NsError, Operation, WriteMode};
use types::{
    BootGeneration, BootId, ClientIdentity, ErrorCode, Group, GroupId, InSyncReplica, Incarnation, Ino, Member, NodeId,
    NsPath, ObjectId, Placement, PrincipalId, StoreId, Timestamp,
};

const GROUP: GroupId = GroupId(7);
const TAKEN: Timestamp = Timestamp(4);

struct World(Arc<Namespace>, Arc<dyn Kv>);

impl World {
    /// A cluster with three stores.
    fn new() -> Self {
        let world = Self::on(Arc::new(MemoryKv::new()));
        world.change(ns::FoundCluster { roles: 3, name: "m".into(), key: [0; 32] }).unwrap();
        for store in 1..=3 {
            let location = format!("s/r/h{store}").parse().unwrap();
            world.change(ns::PutStore { store: StoreId(store), node: ns::FIRST_NODE, location, class: None }).unwrap();
        }
        let member = |store| Member { store: StoreId(store), since: ObjectId(1), through: ObjectId(0) };
        let members = (1..=3).map(member).collect();
        world.change(ns::PutGroup { group: Group { group: GROUP, epoch: 1, members } }).unwrap();
        world
    }

    fn on(kv: Arc<dyn Kv>) -> Self {
        let ns = Namespace::open(Arc::clone(&kv), Timestamp(0), NamespaceConfig::default()).unwrap();
        Self(ns, kv)
    }

    /// Goes on as a restored namespace does.
    fn restored(self) -> Self {
        self.restored_at(Timestamp(5), 0)
    }

    fn restored_at(self, now: Timestamp, random: u64) -> Self {
        let (at_least, above_ino, above_object) = (Incarnation(1), Ino(1 << 40), ObjectId(1 << 44));
        self.change(ns::RaiseIncarnation { at_least, above_ino, above_object }).unwrap();
        let ctx = self.0.context(now, &Actor::admin(), None);
        self.0.change_wait(Durability::Synced, ctx, ns::ContinueRestored { taken: TAKEN, random }).unwrap();
        let writers: Vec<_> = self.writers().iter().map(|writer| (writer.key, writer.object)).collect();
        self.change(ns::DistrustWriters { writers }).unwrap();
        Self::on(self.1)
    }

    fn change<O: Operation + Send + 'static>(&self, op: O) -> Result<O::Reply, NsError> {
        let ctx = self.0.context(Timestamp(5), &Actor::admin(), None);
        self.0.change_wait(Durability::Synced, ctx, op)
    }

    fn writers(&self) -> Vec<ns::WriterRecord> {
        self.0.read(|read| ns::writers(read, None, 100)).unwrap()
    }

    fn join(&self, number: u8) -> Result<NodeId, NsError> {
        let token = self.0.read(|read| ns::token(read, &[number; 16]))?;
        let token = token.ok_or_else(|| NsError::NotFound("it".into(), "token"))?;
        self.change(ns::JoinNode { token, roles: 2, name: "disk".into(), key: [number; 32] })
    }

    fn open(&self, at: &str, how: WriteMode) -> ns::OpenedWrite {
        let in_sync = [1, 2].map(|store| InSyncReplica { store: StoreId(store), boot_generation: BootGeneration(1) });
        let open = ns::OpenWrite::new(path(at), how, ClientIdentity::default(), BootId(1));
        let placement = Placement { group: GROUP, in_sync: in_sync.to_vec() };
        self.change(ns::OpenWrite { placement, ..open }).unwrap()
    }

    fn file(&self, at: &str) -> ObjectId {
        let opened = self.open(at, WriteMode::NewOnly);
        self.commit(opened.writer);
        opened.writer.object
    }

    fn commit(&self, writer: ns::WriterToken) {
        let content = ns::Committed { len: 10, sums: None, mtime: None };
        let commit = ns::Commit { writer, content, completion: ns::Completion::ByClient };
        let holders = [1, 2, 3].map(StoreId).to_vec();
        self.change(ns::CommitPlaced { commit, group: GROUP, by: StoreId(1), holders }).unwrap();
    }

    fn holders(&self, object: ObjectId) -> Vec<u64> {
        let holders = self.0.read(|read| ns::holders(read, GROUP, object)).unwrap();
        holders.into_iter().map(|store| store.0).collect()
    }

    fn record(&self) -> Option<ns::RestoredRecord> {
        self.0.read(ns::restored).unwrap()
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

fn token(number: u8) -> ns::MakeToken {
    let (id, hash, made, expires) = ([number; 16], [number; 32], Timestamp(1), Timestamp(100));
    ns::MakeToken { token: ns::TokenEntry { id, hash, roles: 2, made, expires, uses_max: 1, used: Vec::new() } }
}

#[test]
fn numbers_of_nodes_and_sessions_that_may_be_in_use_are_left_out() {
    let world = World::new();
    world.change(token(1)).unwrap();
    assert_eq!(world.join(1).unwrap(), NodeId(2));
    let session = world.change(ns::OpenSession { client: ClientIdentity::default() }).unwrap();
    let world = world.restored();
    world.change(token(2)).unwrap();
    // A node that joined after the backup still has a valid certificate with its number.
    assert!(world.join(2).unwrap() > NodeId(1000));
    let later = world.change(ns::OpenSession { client: ClientIdentity::default() }).unwrap();
    assert!(later.0 > session.0 + 1000, "{session} {later}");
    world.check();
}

#[test]
fn two_lives_of_one_backup_number_nodes_and_sessions_differently() {
    let life = |secs: i64, random: u64| {
        let world = World::new().restored_at(Timestamp(secs * 1_000_000_000), random);
        world.change(token(1)).unwrap();
        let session = world.change(ns::OpenSession { client: ClientIdentity::default() }).unwrap();
        (world.join(1).unwrap().0, session.0)
    };
    let (one, two) = (life(1_800_000_000, 3), life(1_800_000_001, 5_000_000));
    assert!(two.0 - one.0 >= 1000, "{one:?} {two:?}");
    assert!(two.1 - one.1 >= 1_000_000, "{one:?} {two:?}");
    assert!(life(1_800_000_000, u64::MAX).1 < 1 << 31, "there is room for further restores");
}

#[test]
fn unused_tokens_of_the_backup_let_nobody_join() {
    let world = World::new();
    world.change(token(1)).unwrap();
    world.join(1).unwrap();
    world.change(token(2)).unwrap();
    let world = world.restored();
    assert_eq!(world.join(2).unwrap_err().code(), ErrorCode::NotFound, "it may have been used or revoked since");
    assert_eq!(world.join(1).unwrap(), NodeId(2), "the node that used it asks once more");
}

#[test]
fn open_writes_of_the_backup_cannot_go_on_as_if_their_stores_had_everything() {
    let world = World::new();
    let before = world.open("/f", WriteMode::NewOnly);
    let world = world.restored();
    let [writer] = &world.writers()[..] else { panic!("one writer") };
    assert!(writer.epoch > before.writer.epoch + 1000);
    let generations: Vec<_> = writer.placement.in_sync.iter().map(|one| one.boot_generation.0).collect();
    assert_eq!(generations, [0, 0], "a generation that no node ever has");
    // The primary of the time before does not end it.
    let commit = ns::Commit {
        writer: before.writer,
        content: ns::Committed { len: 10, sums: None, mtime: None },
        completion: ns::Completion::ByClient,
    };
    let commit = ns::CommitPlaced { commit, group: GROUP, by: StoreId(1), holders: vec![StoreId(1)] };
    assert_eq!(world.change(commit).unwrap_err().code(), ErrorCode::Stale);
    world.check();
}

#[test]
fn epochs_of_later_writers_are_above_all_that_may_have_been_used() {
    let world = World::new();
    world.file("/f");
    let world = world.restored();
    let update = world.open("/f", WriteMode::Update);
    assert!(update.writer.epoch > 1000, "{}", update.writer.epoch);
    let again = world.open("/f", WriteMode::Update);
    assert_eq!(again.writer.epoch, update.writer.epoch + 1);
    world.commit(again.writer);
    let once = world.record().unwrap();
    let world = world.restored();
    assert!(world.record().unwrap().epochs > once.epochs, "a second restore leaves out as many again");
    assert!(world.open("/f", WriteMode::Update).writer.epoch > again.writer.epoch + 1000);
    world.check();
}

#[test]
fn the_mark_holds_what_the_lost_namespace_may_have_made_until_it_is_accepted() {
    let world = World::new();
    let old = world.file("/old");
    assert_eq!(world.record(), None);
    let world = world.restored();
    let new = world.file("/new");
    let record = world.record().unwrap();
    assert_eq!((record.taken, record.restored), (TAKEN, Timestamp(5)));
    assert!(record.holds(old) && record.holds(ObjectId(1 << 44)) && !record.holds(new));
    world.change(ns::AcceptRestored).unwrap();
    let accepted = world.record().unwrap();
    assert!(!accepted.holds(old));
    assert_eq!(accepted, ns::RestoredRecord { is_held: false, ..record }, "the epochs stay above");
    world.check();
}

#[test]
fn absent_replicas_are_missing_from_then_on() {
    let world = World::new();
    let [one, two] = ["/one", "/two"].map(|at| world.file(at));
    let world = world.restored();
    let absent = vec![(one, StoreId(2)), (one, StoreId(2)), (one, StoreId(9)), (ObjectId(77), StoreId(1))];
    world.change(ns::RecordAbsent { group: GROUP, absent }).unwrap();
    assert_eq!([world.holders(one), world.holders(two)], [vec![1], vec![1, 2]]);
    let absent = vec![(one, StoreId(1))];
    world.change(ns::RecordAbsent { group: GROUP, absent }).unwrap();
    assert_eq!(world.holders(one), [] as [u64; 0]);
    world.change(ns::RecordAbsent { group: GroupId(99), absent: vec![(one, StoreId(1))] }).unwrap();
    let absent = vec![(one, StoreId(1)); ns::RecordAbsent::REPLICAS_MAX + 1];
    assert_eq!(world.change(ns::RecordAbsent { group: GROUP, absent }).unwrap_err().code(), ErrorCode::TooMany);
    world.change(ns::AcceptRestored).unwrap();
    world.change(ns::RecordAbsent { group: GROUP, absent: vec![(two, StoreId(1))] }).unwrap();
    assert_eq!(world.holders(two), [1, 2], "replicas may have moved since the stores were asked");
    world.check();
}

#[test]
fn only_the_administrator_goes_on_after_a_restore() {
    let world = World::new();
    let user = Actor::new(PrincipalId(5), Arc::from([PrincipalId(5)]));
    let denied = |error: NsError| assert_eq!(error.code(), ErrorCode::Denied);
    let ctx = || world.0.context(Timestamp(5), &user, None);
    let wait = Durability::Synced;
    denied(world.0.change_wait(wait, ctx(), ns::ContinueRestored { taken: TAKEN, random: 0 }).unwrap_err());
    denied(world.0.change_wait(wait, ctx(), ns::DistrustWriters { writers: Vec::new() }).unwrap_err());
    denied(world.0.change_wait(wait, ctx(), ns::AcceptRestored).unwrap_err());
    denied(world.0.change_wait(wait, ctx(), ns::RecordAbsent { group: GROUP, absent: Vec::new() }).unwrap_err());
}
