//! Locations of objects in a cluster: in-sync replicas of an open write, holders of an object, missing replicas.

#![allow(clippy::unwrap_used, clippy::panic)] // a test may fail this way

use std::sync::Arc;

use kv::{Durability, Kv, MemoryKv, OpOutcome, transact};
use namespace::{self as ns, Actor, Namespace, NamespaceConfig, NsError, Operation, WriteMode};
use types::{
    BootGeneration, BootId, ClientIdentity, ErrorCode, Group, GroupId, InSyncReplica, Member, NodeId, NodeRecord,
    NsPath, ObjectId, Placement, StoreId, Timestamp,
};

const GROUP: GroupId = GroupId(7);

fn path(text: &str) -> NsPath {
    NsPath::parse(text.as_bytes()).unwrap()
}

fn in_sync_replica(store: u64) -> InSyncReplica {
    InSyncReplica { store: StoreId(store), boot_generation: BootGeneration(1) }
}

fn member(store: u64) -> Member {
    Member { store: StoreId(store), since: ObjectId(1), through: ObjectId(0) }
}

fn open(at: &str, how: WriteMode, in_sync: &[u64]) -> ns::OpenWrite {
    ns::OpenWrite {
        placement: Placement { group: GROUP, in_sync: in_sync.iter().map(|one| in_sync_replica(*one)).collect() },
        ..ns::OpenWrite::new(
            path(at),
            how,
            ClientIdentity { principal: types::PrincipalId(0), user: "u".into(), pid: 1, host: "h".into() },
            BootId(1),
        )
    }
}

struct World(Arc<Namespace>, Arc<dyn Kv>);

impl World {
    /// Of the four stores, each of the first `disks` belongs to its own disk server, and the others to the manager.
    fn with_disks(disks: u8) -> (Self, Vec<NodeId>) {
        let kv: Arc<dyn Kv> = Arc::new(MemoryKv::new());
        let ns = Namespace::open(Arc::clone(&kv), Timestamp(0), NamespaceConfig::default()).unwrap();
        let world = Self(ns, kv);
        world.change(ns::FoundCluster { roles: 3, name: "m".into(), key: [0; 32] }).unwrap();
        let nodes = (1..=disks).map(|number| world.disk(number, u64::from(number))).collect();
        for store in u64::from(disks) + 1..=4 {
            let location = format!("s/r/h{store}").parse().unwrap();
            world.change(ns::PutStore { store: StoreId(store), node: ns::FIRST_NODE, location, class: None }).unwrap();
        }
        let members = vec![member(1), member(2), member(3)];
        world.change(ns::PutGroup { group: Group { group: GROUP, epoch: 1, members } }).unwrap();
        (world, nodes)
    }

    fn new() -> Self {
        Self::with_disks(0).0
    }

    fn change<O: Operation + Send + 'static>(&self, op: O) -> Result<O::Reply, NsError> {
        let ctx = self.0.context(Timestamp(5), &Actor::admin(), None);
        self.0.change_wait(Durability::Synced, ctx, op)
    }

    fn commit(&self, writer: ns::WriterToken, len: u64, holders: &[u64]) -> Result<ns::CommitReply, NsError> {
        let content = ns::Committed { len, sums: None, mtime: None };
        let commit = ns::Commit { writer, content, completion: ns::Completion::ByClient };
        let (by, holders) = (StoreId(holders[0]), holders.iter().copied().map(StoreId).collect());
        self.change(ns::CommitPlaced { commit, group: GROUP, by, holders })
    }

    /// Adds a disk server that joins with the token of this number, with one store.
    fn disk(&self, token: u8, store: u64) -> NodeId {
        let (id, key, expires) = ([token; 16], [token; 32], Timestamp(100));
        let token =
            ns::TokenEntry { id, hash: key, roles: 2, made: Timestamp(1), expires, uses_max: 1, used: Vec::new() };
        self.change(ns::MakeToken { token: token.clone() }).unwrap();
        let node = self.change(ns::JoinNode { token, roles: 2, name: "disk".into(), key }).unwrap();
        let location = "site/rack/host".parse().unwrap();
        self.change(ns::PutStore { store: StoreId(store), node, location, class: None }).unwrap();
        node
    }

    /// A node reports its boot generation.
    fn begins(&self, node: NodeId, boot_generation: u32) {
        self.change(ns::PutNode {
            record: NodeRecord {
                node,
                boot: BootId(u128::from(boot_generation)),
                boot_generation: BootGeneration(boot_generation),
            },
        })
        .unwrap();
    }

    fn interrupt(
        &self,
        writer: ns::WriterToken,
        by: Option<u64>,
        holders: &[u64],
    ) -> Result<ns::InterruptReply, NsError> {
        let (by, holders) = (by.map(StoreId), holders.iter().copied().map(StoreId).collect());
        self.change(ns::InterruptPlaced { interrupt: ns::Interrupt { writer, kept_len: 5 }, by, holders })
    }

    fn holders(&self, object: ObjectId) -> Vec<u64> {
        let holders = self.0.read(|read| ns::holders(read, GROUP, object)).unwrap();
        holders.into_iter().map(|store| store.0).collect()
    }
}

#[test]
fn store_that_dropped_out_of_sync_misses_a_replica_at_the_end() {
    let world = World::new();
    let opened = world.change(open("/f", WriteMode::NewOnly, &[1, 2])).unwrap();
    assert_eq!((opened.group, opened.in_sync.len()), (GROUP, 2));
    // The second store fails. The third was never in sync and cannot be added.
    let location = |in_sync: Vec<InSyncReplica>| ns::SetInSyncReplicas {
        writer: opened.writer,
        in_sync,
        takes_over: false,
        is_ending: false,
    };
    assert_eq!(
        world.change(location(vec![in_sync_replica(1), in_sync_replica(3)])).unwrap_err().code(),
        ErrorCode::Stale
    );
    assert_eq!(world.change(location(vec![in_sync_replica(1)])).unwrap(), opened.writer);
    assert_eq!(
        world.change(location(vec![in_sync_replica(1), in_sync_replica(2)])).unwrap_err().code(),
        ErrorCode::Stale
    );
    let done = world.commit(opened.writer, 10, &[1]).unwrap();
    assert_eq!(world.commit(opened.writer, 10, &[1]).unwrap(), done, "the answer was lost");
    assert_eq!(
        world.commit(opened.writer, 11, &[1]).unwrap_err().code(),
        ErrorCode::Stale,
        "but nothing else was done"
    );
    assert_eq!(world.holders(opened.object), [1]);
    let missing = world.0.read(|read| ns::missing(read, GROUP, None, 10)).unwrap();
    assert_eq!(missing, [(opened.object, vec![StoreId(2), StoreId(3)])]);
    let copied = |state, store| ns::CopyDone { group: GROUP, object: opened.object, state, store: StoreId(store) };
    assert_eq!(world.change(copied(0, 2)).unwrap_err().code(), ErrorCode::Stale, "a copy of an older content");
    world.change(copied(1, 2)).unwrap();
    world.change(copied(1, 3)).unwrap();
    assert_eq!(world.holders(opened.object), [1, 2, 3]);
    assert_eq!(world.0.read(|read| ns::missing(read, GROUP, None, 10)).unwrap(), []);
}

#[test]
fn damaged_replica_is_missing_unless_it_may_be_the_last() {
    let world = World::new();
    let opened = world.change(open("/f", WriteMode::NewOnly, &[1, 2])).unwrap();
    let damaged = |store, source, state| ns::MissDamaged {
        group: GROUP,
        object: opened.object,
        state,
        store: StoreId(store),
        source: StoreId(source),
    };
    let is_stale = |op| assert_eq!(world.change(op).unwrap_err().code(), ErrorCode::Stale, "{op:?}");
    is_stale(damaged(1, 2, 1));
    world.commit(opened.writer, 10, &[1, 2]).unwrap();
    is_stale(damaged(1, 1, 1));
    is_stale(damaged(1, 3, 1)); // store 3 has not got it yet
    is_stale(damaged(3, 1, 1));
    is_stale(damaged(1, 4, 1)); // store 4 is in another group
    is_stale(damaged(1, 2, 0)); // an older content
    world.change(damaged(1, 2, 1)).unwrap();
    assert_eq!(world.holders(opened.object), [2]);
    // The other one is found damaged as well, and is the last.
    is_stale(damaged(2, 1, 1));
    is_stale(damaged(1, 2, 1));
    world.change(ns::CopyDone { group: GROUP, object: opened.object, state: 1, store: StoreId(1) }).unwrap();
    assert_eq!(world.holders(opened.object), [1, 2]);
    world.change(ns::SetStoreState { store: StoreId(2), state: ns::WantedState::Lost }).unwrap();
    is_stale(damaged(1, 2, 1)); // a store that was removed as lost does not come back
}

#[test]
fn new_primary_fences_the_old_one() {
    let world = World::new();
    let opened = world.change(open("/f", WriteMode::NewOnly, &[1, 2])).unwrap();
    let over = ns::SetInSyncReplicas {
        writer: opened.writer,
        in_sync: vec![in_sync_replica(2)],
        takes_over: true,
        is_ending: false,
    };
    let writer = world.change(over).unwrap();
    assert_eq!(writer.epoch, opened.writer.epoch + 1);
    assert_eq!(world.commit(opened.writer, 10, &[1, 2]).unwrap_err().code(), ErrorCode::Stale);
    world.commit(writer, 10, &[2]).unwrap();
    assert_eq!(world.holders(opened.object), [2]);
}

/// The replicas lose what is behind their first gap, and the client would not send it again.
#[test]
fn a_client_does_not_return_to_an_open_write_that_is_being_ended() {
    let world = World::new();
    let opened = world.change(open("/f", WriteMode::NewOnly, &[1, 2])).unwrap();
    let returns = || open("/f", WriteMode::Update, &[1, 2]);
    let both = [1, 2].map(in_sync_replica).to_vec();
    let place = |writer, is_ending| {
        let in_sync = both.clone();
        world.change(ns::SetInSyncReplicas { writer, in_sync, takes_over: false, is_ending })
    };
    let back = world.change(returns()).unwrap();
    assert_eq!(back.writer.epoch, opened.writer.epoch + 1);
    assert_eq!(place(opened.writer, true).unwrap_err().code(), ErrorCode::Stale, "its client has come back");
    assert_eq!(place(back.writer, true).unwrap(), back.writer);
    assert_eq!(place(back.writer, true).unwrap(), back.writer, "the answer was lost");
    assert_eq!(place(back.writer, false).unwrap(), back.writer);
    // The last one repeats a numbered request.
    for (restarted, only) in [(false, None), (true, None), (false, Some(back.writer))] {
        let refused = world.change(ns::OpenWrite { restarted, only, ..returns() }).unwrap_err();
        assert_eq!((refused.code(), refused.to_string().contains("is being ended")), (ErrorCode::Stale, true));
    }
    // Its primary is gone, and the manager has another store end it.
    let ender = world.change(ns::OpenWrite { only: Some(back.writer), ends: true, ..returns() }).unwrap();
    assert_eq!(ender.writer.epoch, back.writer.epoch + 1);
    assert!(world.change(returns()).is_err());
    let other = world.change(open("/g", WriteMode::NewOnly, &[1, 2])).unwrap();
    let at_g = || open("/g", WriteMode::Update, &[1, 2]);
    world.change(ns::OpenWrite { only: Some(other.writer), ends: true, ..at_g() }).unwrap();
    assert!(world.change(at_g()).is_err(), "the manager ends it");
    assert_eq!(world.interrupt(ender.writer, Some(1), &[1, 2]).unwrap(), ns::InterruptReply::Marked);
    assert_eq!(world.holders(opened.object), [1, 2]);
    // A client that starts again needs nothing of it.
    let anew = world.change(ns::OpenWrite { restarted: true, ..open("/f", WriteMode::NewOnly, &[1, 2]) }).unwrap();
    assert_ne!(anew.object, opened.object);
}

#[test]
fn only_the_primary_can_end_an_open_write() {
    let (world, nodes) = World::with_disks(3);
    nodes.into_iter().for_each(|node| world.begins(node, 1));
    let opened = world.change(open("/f", WriteMode::NewOnly, &[1, 2])).unwrap();
    let refused = |result: Result<(), NsError>| assert_eq!(result.unwrap_err().code(), ErrorCode::Stale);
    for other in [2, 3, 4] {
        refused(world.commit(opened.writer, 10, &[other, 1]).map(drop));
        refused(world.interrupt(opened.writer, Some(other), &[1]).map(drop));
    }
    // No other store becomes the primary without taking over.
    for in_sync in [vec![in_sync_replica(2)], vec![in_sync_replica(2), in_sync_replica(1)]] {
        refused(
            world
                .change(ns::SetInSyncReplicas { writer: opened.writer, in_sync, takes_over: false, is_ending: false })
                .map(drop),
        );
    }
    assert_eq!(world.0.read(|read| ns::writers(read, None, 10)).unwrap()[0].placement.in_sync.len(), 2);
    // A store that was not in sync misses a replica, even if the request names it as a holder.
    world.commit(opened.writer, 10, &[1, 2, 3]).unwrap();
    assert_eq!(world.holders(opened.object), [1, 2]);
}

#[test]
fn manager_ends_any_open_write_and_an_in_sync_replica_ends_one_after_all_have_restarted() {
    let (world, nodes) = World::with_disks(3);
    nodes.iter().for_each(|node| world.begins(*node, 1));
    let opened = world.change(open("/f", WriteMode::NewOnly, &[1, 2])).unwrap();
    world.begins(nodes[0], 2);
    assert_eq!(world.interrupt(opened.writer, Some(2), &[2]).unwrap_err().code(), ErrorCode::Stale, "it takes over");
    world.begins(nodes[1], 2);
    assert_eq!(world.interrupt(opened.writer, Some(3), &[3]).unwrap_err().code(), ErrorCode::Stale, "it took no part");
    assert_eq!(world.interrupt(opened.writer, Some(2), &[2, 3]).unwrap(), ns::InterruptReply::Marked);
    assert_eq!(world.holders(opened.object), [2]);
    // The same if one has a new boot generation, and the other is removed as lost.
    let again = |path| ns::OpenWrite {
        placement: Placement {
            group: GROUP,
            in_sync: [1, 2]
                .map(|store| InSyncReplica { store: StoreId(store), boot_generation: BootGeneration(2) })
                .to_vec(),
        },
        ..open(path, WriteMode::NewOnly, &[])
    };
    let opened = world.change(again("/h")).unwrap();
    world.begins(nodes[1], 3);
    assert_eq!(world.interrupt(opened.writer, Some(2), &[2]).unwrap_err().code(), ErrorCode::Stale, "it takes over");
    world.change(ns::SetStoreState { store: StoreId(1), state: ns::WantedState::Lost }).unwrap();
    assert_eq!(world.interrupt(opened.writer, Some(2), &[2]).unwrap(), ns::InterruptReply::Marked);
    let opened = world.change(open("/g", WriteMode::NewOnly, &[1, 2])).unwrap();
    assert_eq!(world.interrupt(opened.writer, None, &[]).unwrap(), ns::InterruptReply::Marked);
}

#[test]
fn a_file_whose_change_is_on_lost_stores_alone_does_not_become_empty() {
    let world = World::new();
    let opened = world.change(open("/f", WriteMode::NewOnly, &[1, 2])).unwrap();
    world.commit(opened.writer, 10, &[1, 2]).unwrap();
    let changed = world.change(open("/f", WriteMode::Update, &[1])).unwrap();
    let interrupt = ns::Interrupt { writer: changed.writer, kept_len: 0 };
    let reply = world.change(ns::InterruptPlaced { interrupt, by: None, holders: Vec::new() }).unwrap();
    assert_eq!((reply, world.holders(opened.object)), (ns::InterruptReply::Marked, vec![]));
    let inode = world.0.read(|read| ns::stat(read, &Actor::admin(), &path("/f"))).unwrap();
    assert_eq!(inode.content().unwrap().len, 10);
}

/// It would send only what was not acknowledged.
#[test]
fn a_client_whose_change_may_be_lost_is_told_when_it_returns() {
    let (world, nodes) = World::with_disks(3);
    nodes.iter().for_each(|node| world.begins(*node, 1));
    let opened = world.change(open("/f", WriteMode::NewOnly, &[1, 2])).unwrap();
    world.commit(opened.writer, 10, &[1, 2]).unwrap();
    let returns = || ns::OpenWrite { restarted: true, ..open("/f", WriteMode::Update, &[1, 2]) };
    for are_lost in [false, true] {
        let changed = world.change(returns()).unwrap();
        if are_lost {
            nodes.iter().for_each(|node| world.begins(*node, 2));
        }
        let by = if are_lost { 2 } else { 1 };
        world.interrupt(changed.writer, Some(by), &[1, 2]).unwrap();
        let back = world.change(returns());
        assert_eq!(back.as_ref().is_err_and(|error| error.to_string().contains("may be lost")), are_lost, "{back:?}");
        if let Ok(back) = back {
            world.commit(back.writer, 10, &[1, 2]).unwrap();
        }
    }
    let client = ClientIdentity { pid: 2, ..returns().client };
    world.change(ns::OpenWrite { client, ..open("/f", WriteMode::Update, &[1, 2]) }).unwrap();
}

#[test]
fn in_sync_replicas_are_distinct_and_fit_into_a_record() {
    let world = World::new();
    let twice = world.change(open("/f", WriteMode::NewOnly, &[1, 2, 1])).unwrap_err();
    assert_eq!(twice.code(), ErrorCode::Invalid, "{twice}");
    let many: Vec<u64> = (1..=33).collect();
    let placement = Placement { group: GroupId(99), in_sync: many.iter().map(|one| in_sync_replica(*one)).collect() };
    let many = world.change(ns::OpenWrite { placement, ..open("/f", WriteMode::NewOnly, &[]) }).unwrap_err();
    assert!(matches!(many, NsError::TooMany { bound: 32, .. }), "{many}");
    let opened = world.change(open("/f", WriteMode::NewOnly, &[1, 2])).unwrap();
    let in_sync = [in_sync_replica(1)].into_iter().chain(std::iter::repeat_n(in_sync_replica(2), 40)).collect();
    let often = ns::SetInSyncReplicas { writer: opened.writer, in_sync, takes_over: false, is_ending: false };
    assert_eq!(world.change(often).unwrap_err().code(), ErrorCode::Invalid);
    let writers = world.0.read(|read| ns::writers(read, None, 10)).unwrap();
    assert_eq!(writers[0].placement.in_sync, [in_sync_replica(1), in_sync_replica(2)]);
}

#[test]
fn damaged_writer_record_does_not_hide_later_ones() {
    let world = World::new();
    for name in ["/a", "/b", "/c"] {
        world.change(open(name, WriteMode::NewOnly, &[1, 2])).unwrap();
    }
    let all = world.0.read(|read| ns::writers(read, None, 10)).unwrap();
    let damaged = (all[1].key, all[1].object);
    let key = [&b"W"[..], &damaged.0.0.to_be_bytes(), &damaged.1.0.to_be_bytes()].concat();
    transact(&*world.1, Durability::Synced, move |txn| {
        txn.put(&key, b"\x02torn");
        (OpOutcome::Commit, ())
    })
    .unwrap();
    assert_eq!(world.0.read(|read| ns::writers(read, None, 10)).unwrap_err().code(), ErrorCode::Damaged);
    for limit in [1, 2, 3] {
        let (mut found, mut torn, mut after) = (Vec::new(), Vec::new(), None);
        loop {
            let page = world.0.read(|read| ns::writers_page(read, after, limit)).unwrap();
            found.extend(page.writers.iter().map(|writer| writer.object));
            torn.extend(page.damaged.iter().map(|(of, _)| *of));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!((found, torn), (vec![all[0].object, all[2].object], vec![damaged]), "{limit} at a time");
    }
}

#[test]
fn in_place_change_happens_on_the_holders() {
    let world = World::new();
    let opened = world.change(open("/f", WriteMode::NewOnly, &[1, 2])).unwrap();
    world.commit(opened.writer, 10, &[1, 2]).unwrap();
    assert_eq!(world.change(open("/f", WriteMode::Update, &[3])).unwrap_err().code(), ErrorCode::Stale);
    let update = world.change(open("/f", WriteMode::Update, &[2, 3])).unwrap();
    assert_eq!((update.in_sync, update.group), (vec![in_sync_replica(2)], GROUP));
    // Its writer goes away. The other stores have an older generation.
    let interrupt = ns::Interrupt { writer: update.writer, kept_len: 10 };
    world.change(ns::InterruptPlaced { interrupt, by: Some(StoreId(2)), holders: vec![StoreId(2)] }).unwrap();
    assert_eq!(world.holders(opened.object), [2]);
    world.change(ns::Remove { path: path("/f") }).unwrap();
    let due = world.0.read(|read| ns::due_deletions(read, None, 10)).unwrap();
    assert_eq!(due.iter().map(|due| (due.object, due.group)).collect::<Vec<_>>(), [(opened.object, GROUP)]);
    assert_eq!(
        world.0.read(|read| ns::missing(read, GROUP, None, 10)).unwrap(),
        [],
        "a removed object has no missing replicas"
    );
}

#[test]
fn an_upload_keeps_its_group() {
    let world = World::new();
    let posc = ns::OpenWrite { posc: true, ..open("/f", WriteMode::NewOnly, &[2]) };
    let opened = world.change(posc).unwrap();
    world.commit(opened.writer, 3, &[2]).unwrap();
    let found = world.0.read(|read| ns::stat(read, &Actor::admin(), &path("/f"))).unwrap();
    assert_eq!(found.content().unwrap().group, GROUP);
    assert_eq!(world.holders(opened.object), [2]);
}

#[test]
fn a_group_changes_step_by_step() {
    let world = World::new();
    let group = |epoch, members| ns::PutGroup { group: Group { group: GROUP, epoch, members } };
    assert_eq!(world.change(group(1, vec![member(1)])).unwrap_err().code(), ErrorCode::Stale);
    assert_eq!(world.change(group(2, vec![])).unwrap_err().code(), ErrorCode::Invalid);
    let backfill = Member { store: StoreId(4), since: ObjectId(1 << 40), through: ObjectId(0) };
    world.change(group(2, vec![member(1), backfill])).unwrap();
    assert_eq!(world.holders(ObjectId(9)), [1]);
    assert_eq!(world.holders(ObjectId(1 << 41)), [1, 4]);
    let of = |node| NodeRecord { node, boot: BootId(8), boot_generation: BootGeneration(2) };
    let record = of(world.disk(1, 5));
    world.change(ns::PutNode { record }).unwrap();
    assert_eq!(world.0.read(ns::nodes).unwrap(), [record]);
    let stranger = world.change(ns::PutNode { record: of(NodeId(9)) }).unwrap_err();
    assert_eq!(stranger.code(), ErrorCode::NotFound);
    world.change(ns::RemoveMember { node: record.node }).unwrap();
    assert_eq!(world.0.read(ns::nodes).unwrap(), [record], "no other node has its boot generation");
    let groups = world.0.read(|read| ns::groups(read, None, 10)).unwrap();
    assert_eq!(groups.iter().map(|group| group.epoch).collect::<Vec<_>>(), [2]);
}

#[test]
fn a_file_that_is_closed_meanwhile_is_not_changed_without_replicas() {
    let world = World::new();
    let opened = world.change(open("/f", WriteMode::NewOnly, &[1, 2])).unwrap();
    let other = ClientIdentity { principal: types::PrincipalId(0), user: "other".into(), pid: 2, host: "h".into() };
    // A manager that sees the open write expects a refusal, so it names no replicas.
    let update = ns::OpenWrite { client: other, ..open("/f", WriteMode::Update, &[]) };
    assert_eq!(world.change(update.clone()).unwrap_err().code(), ErrorCode::Busy);
    world.commit(opened.writer, 5, &[1, 2]).unwrap();
    assert_eq!(world.change(update).unwrap_err().code(), ErrorCode::Stale, "it asks again");
    assert_eq!(world.0.read(|read| ns::stat(read, &Actor::admin(), &path("/f"))).unwrap().len(), 5);
}
