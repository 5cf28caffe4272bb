//! A store replaces a member of a group. From then on it counts as a holder of exactly the objects that it has received.

#![allow(clippy::unwrap_used)] // a test may fail this way

use std::sync::Arc;

use kv::{Durability, MemoryKv};
use namespace::{self as ns, Actor, Namespace, NamespaceConfig, NsError, Operation, WantedState, WriteMode};
use types::{
    BootGeneration, BootId, ClientIdentity, ErrorCode, Group, GroupId, InSyncReplica, Member, NsPath, ObjectId,
    Placement, StoreId, Timestamp,
};

const GROUP: GroupId = GroupId(7);

struct World(Arc<Namespace>);

impl World {
    /// Stores 1 to 4. The group has stores 1 and 2.
    fn new() -> Self {
        let ns = Namespace::open(Arc::new(MemoryKv::new()), Timestamp(0), NamespaceConfig::default()).unwrap();
        let world = Self(ns);
        world.change(ns::FoundCluster { roles: 3, name: "m".into(), key: [0; 32] }).unwrap();
        for store in 1..=4 {
            world.has_store(store);
        }
        let member = |store| Member { store: StoreId(store), since: ObjectId(1), through: ObjectId(0) };
        let group = Group { group: GROUP, epoch: 1, members: vec![member(1), member(2)] };
        world.change(ns::PutGroup { group }).unwrap();
        world
    }

    fn change<O: Operation + Send + 'static>(&self, op: O) -> Result<O::Reply, NsError> {
        let ctx = self.0.context(Timestamp(5), &Actor::admin(), None);
        self.0.change_wait(Durability::Synced, ctx, op)
    }

    fn has_store(&self, store: u64) {
        let location = format!("s/r/h{store}").parse().unwrap();
        let put = ns::PutStore { store: StoreId(store), node: ns::FIRST_NODE, location, class: None };
        self.change(put).unwrap();
    }

    fn wants(&self, store: u64, state: WantedState) {
        self.change(ns::SetStoreState { store: StoreId(store), state }).unwrap();
    }

    fn open(&self, path: &str) -> ns::OpenedWrite {
        self.open_on(path, [1, 2]).unwrap()
    }

    fn open_on(&self, path: &str, stores: [u64; 2]) -> Result<ns::OpenedWrite, NsError> {
        let in_sync_replica = |store| InSyncReplica { store: StoreId(store), boot_generation: BootGeneration(1) };
        self.change(ns::OpenWrite {
            placement: Placement { group: GROUP, in_sync: stores.map(in_sync_replica).to_vec() },
            ..ns::OpenWrite::new(
                NsPath::parse(path.as_bytes()).unwrap(),
                WriteMode::NewOnly,
                ClientIdentity { principal: types::PrincipalId(0), user: "u".into(), pid: 1, host: "h".into() },
                BootId(1),
            )
        })
    }

    fn close(&self, opened: &ns::OpenedWrite, holders: &[u64]) {
        let content = ns::Committed { len: 1, sums: None, mtime: None };
        let commit = ns::Commit { writer: opened.writer, content, completion: ns::Completion::ByClient };
        let holders = holders.iter().copied().map(StoreId).collect();
        let by = opened.in_sync[0].store;
        self.change(ns::CommitPlaced { commit, group: GROUP, by, holders }).unwrap();
    }

    fn files(&self, count: usize) -> Vec<ObjectId> {
        self.files_on(count, &[1, 2])
    }

    fn files_on(&self, count: usize, holders: &[u64]) -> Vec<ObjectId> {
        let file = |number| {
            let opened = self.open(&format!("/f{number}"));
            self.close(&opened, holders);
            opened.object
        };
        (0..count).map(file).collect()
    }

    fn holders(&self, object: ObjectId) -> Vec<u64> {
        let holders = self.0.read(|read| ns::holders(read, GROUP, object)).unwrap();
        holders.into_iter().map(|store| store.0).collect()
    }

    fn group(&self) -> Group {
        self.0.read(|read| ns::group(read, GROUP)).unwrap().unwrap()
    }

    fn stores(&self) -> Vec<u64> {
        self.group().members.iter().map(|member| member.store.0).collect()
    }

    fn is_current(&self, store: u64) -> bool {
        self.group().members.iter().any(|member| member.store.0 == store && member.is_current())
    }

    fn join(&self, store: u64, in_place_of: u64) -> Result<(), NsError> {
        let (epoch, store, in_place_of) = (self.group().epoch, StoreId(store), StoreId(in_place_of));
        self.change(ns::JoinGroup { group: GROUP, epoch, store, in_place_of })
    }

    fn fill(&self, store: u64) {
        self.change(ns::BackfillMember { group: GROUP, store: StoreId(store), pages: 1 }).unwrap();
    }

    fn leave(&self, store: u64) -> Result<(), NsError> {
        self.change(ns::LeaveGroup { group: GROUP, store: StoreId(store) })
    }

    fn missing(&self) -> Vec<(ObjectId, Vec<u64>)> {
        let missing = self.0.read(|read| ns::missing(read, GROUP, None, 10_000)).unwrap();
        let (mut in_pages, mut after) = (Vec::new(), None);
        loop {
            let page = self.0.read(|read| ns::missing_in_all_groups(read, after, 7)).unwrap();
            let Some((group, object, _)) = page.last() else { break };
            after = Some((*group, *object));
            in_pages.extend(page.into_iter().map(|(group, object, stores)| {
                assert_eq!(group, GROUP);
                (object, stores)
            }));
        }
        assert_eq!(in_pages, missing);
        missing
            .into_iter()
            .map(|(object, stores)| (object, stores.into_iter().map(|store| store.0).collect()))
            .collect()
    }

    fn copied(&self, object: ObjectId, store: u64) {
        self.change(ns::CopyDone { group: GROUP, object, state: 1, store: StoreId(store) }).unwrap();
    }
}

#[test]
fn joining_store_misses_everything_page_by_page_and_the_replaced_one_leaves_last() {
    let world = World::new();
    let objects = world.files(600);
    world.join(3, 2).unwrap();
    assert_eq!(world.stores(), [1, 2, 3]);
    assert!(objects.iter().all(|object| world.holders(*object) == [1, 2]), "it has nothing yet");
    assert_eq!(world.leave(2).unwrap_err().code(), ErrorCode::Busy);
    let mut pages = 0;
    while !world.is_current(3) {
        world.fill(3);
        pages += 1;
        assert!(
            objects.iter().all(|object| world.holders(*object) == [1, 2]),
            "a store with a missing replica is no holder"
        );
    }
    assert_eq!((pages, world.missing().len()), (3, 600));
    world.fill(3);
    assert_eq!(world.missing().len(), 600, "asked for too often");
    assert_eq!(world.leave(2).unwrap_err().code(), ErrorCode::Busy);
    for object in &objects[1..] {
        world.copied(*object, 3);
    }
    assert_eq!(world.leave(2).unwrap_err().code(), ErrorCode::Busy, "one is on the way");
    world.copied(objects[0], 3);
    world.leave(2).unwrap();
    world.leave(2).unwrap();
    assert_eq!(world.stores(), [1, 3]);
    assert!(objects.iter().all(|object| world.holders(*object) == [1, 3]));
}

#[test]
fn open_write_from_before_the_join_gets_a_missing_replica_at_its_end_before_or_after_the_backfill() {
    for fills_first in [false, true] {
        let world = World::new();
        let before = world.open("/before");
        world.join(3, 2).unwrap();
        if fills_first {
            world.fill(3);
            assert!(world.is_current(3));
        }
        world.close(&before, &[1]);
        assert!(!world.holders(before.object).contains(&3), "{fills_first}");
        // A write that starts after the join, by a client that knew the earlier group.
        let after = world.open("/after");
        world.close(&after, &[1, 2]);
        assert!(!world.holders(after.object).contains(&3));
        world.fill(3);
        assert!(world.is_current(3));
        assert_eq!(world.missing(), [(before.object, vec![2, 3]), (after.object, vec![3])]);
        world.copied(before.object, 3);
        world.copied(after.object, 3);
        assert_eq!(world.holders(before.object), [1, 3]);
        // The leaving store never gets its missing replicas.
        world.leave(2).unwrap();
        assert_eq!((world.missing(), world.stores()), (Vec::new(), vec![1, 3]));
    }
}

#[test]
fn objects_that_the_leaving_store_lacks_too_do_not_hold_it_up() {
    let world = World::new();
    let objects = world.files_on(600, &[1]);
    world.join(3, 2).unwrap();
    while !world.is_current(3) {
        world.fill(3);
    }
    world.leave(2).unwrap();
    assert_eq!(world.missing(), objects.into_iter().map(|object| (object, vec![3])).collect::<Vec<_>>());
}

#[test]
fn leaving_store_stays_while_it_has_the_only_source_of_a_missing_replica() {
    let world = World::new();
    let opened = world.open("/f");
    world.close(&opened, &[2]);
    world.join(3, 2).unwrap();
    world.fill(3);
    world.copied(opened.object, 3);
    assert_eq!(world.leave(2).unwrap_err().code(), ErrorCode::Busy, "its replica on the other store is still missing");
    assert_eq!(world.holders(opened.object), [2, 3]);
}

#[test]
fn objects_on_no_store_and_missing_replicas_of_other_leaving_stores_hold_up_nobody() {
    let world = World::new();
    let (nowhere, on_one) = (world.open("/nowhere"), world.open("/on-one"));
    world.close(&nowhere, &[]);
    world.close(&on_one, &[2]);
    // Both stores leave. The object that only store 2 has is copied to the stores that stay. The missing replica on store 1 does not matter.
    world.join(3, 2).unwrap();
    world.join(4, 1).unwrap();
    world.fill(3);
    world.fill(4);
    assert_eq!(world.leave(2).unwrap_err().code(), ErrorCode::Busy);
    world.copied(on_one.object, 3);
    assert_eq!(world.leave(2).unwrap_err().code(), ErrorCode::Busy, "its replica on the fourth store is still missing");
    world.copied(on_one.object, 4);
    world.leave(2).unwrap();
    world.leave(1).unwrap();
    assert_eq!((world.stores(), world.holders(on_one.object).len()), (vec![4, 3], 2));
    assert_eq!(world.missing(), [(nowhere.object, vec![3, 4])]);
}

#[test]
fn leaving_store_does_not_wait_for_a_replica_missing_on_a_lost_store() {
    let world = World::new();
    let opened = world.open("/f");
    world.join(3, 1).unwrap();
    world.fill(3);
    world.close(&opened, &[1]);
    world.copied(opened.object, 3);
    assert_eq!(world.missing(), [(opened.object, vec![2])]);
    assert_eq!(world.leave(1).unwrap_err().code(), ErrorCode::Busy, "its replica on the second store is missing");
    world.wants(2, WantedState::Lost);
    world.leave(1).unwrap();
    assert_eq!((world.stores(), world.holders(opened.object)), (vec![3, 2], vec![3]));
    world.join(1, 2).unwrap();
    world.fill(1);
    assert_eq!(world.missing(), [(opened.object, vec![2, 1])]);
    world.copied(opened.object, 1);
    world.leave(2).unwrap();
    assert_eq!((world.stores(), world.missing()), (vec![3, 1], Vec::new()));
}

#[test]
fn objects_lost_with_one_store_do_not_hold_up_a_draining_store() {
    let world = World::new();
    let (lost, both, on_one) = (world.open("/lost"), world.open("/both"), world.open("/on-one"));
    world.close(&lost, &[2]);
    world.close(&both, &[1, 2]);
    world.close(&on_one, &[1]);
    world.wants(2, WantedState::Lost);
    world.wants(1, WantedState::Draining);
    for (joins, leaves) in [(3, 2), (4, 1)] {
        world.join(joins, leaves).unwrap();
        world.fill(joins);
    }
    for joined in [3, 4] {
        assert_eq!(world.leave(1).unwrap_err().code(), ErrorCode::Busy, "replicas on {joined} are missing");
        world.copied(both.object, joined);
        world.copied(on_one.object, joined);
    }
    world.leave(1).unwrap();
    // The record still names the lost store as the holder.
    assert_eq!(world.leave(2).unwrap_err().code(), ErrorCode::Busy);
    assert_eq!((world.holders(lost.object), world.holders(on_one.object)), (vec![2], vec![4, 3]));
    assert_eq!(world.missing(), [(lost.object, vec![3, 4]), (on_one.object, vec![2])]);
}

#[test]
fn objects_lost_with_one_store_do_not_hold_up_another_lost_store() {
    let world = World::new();
    let give_up = |store| world.wants(store, WantedState::Lost);
    let lost = world.open("/lost");
    world.close(&lost, &[2]);
    give_up(2);
    world.join(3, 2).unwrap();
    // The replacement is lost too, before it received anything.
    give_up(3);
    world.join(4, 3).unwrap();
    world.fill(4);
    assert_eq!((world.stores(), world.holders(lost.object)), (vec![1, 2, 4], vec![2]));
    // The same holds for a replacement that has received everything.
    give_up(4);
    world.has_store(5);
    world.join(5, 4).unwrap();
    world.fill(5);
    world.leave(4).unwrap();
    assert_eq!((world.stores(), world.holders(lost.object)), (vec![1, 2, 5], vec![2]));
}

#[test]
fn sole_holder_that_was_lost_before_its_backfill_ended_stays_on_record() {
    let world = World::new();
    let objects = world.files(300);
    world.join(3, 2).unwrap();
    world.fill(3);
    let opened = world.open_on("/alone", [3, 1]).unwrap();
    world.close(&opened, &[3]);
    for store in [1, 3] {
        // No remaining member misses the object: a member that is lost too does not count.
        world.wants(store, WantedState::Lost);
    }
    assert_eq!(world.join(4, 3).unwrap_err().code(), ErrorCode::Busy);
    // The backfill records its missing replicas to the end. Then it can be replaced like any other member.
    world.fill(3);
    assert!(world.is_current(3));
    world.join(4, 3).unwrap();
    world.fill(4);
    world.fill(4);
    assert_eq!((world.stores(), world.is_current(4)), (vec![1, 2, 3, 4], true));
    assert_eq!(world.leave(3).unwrap_err().code(), ErrorCode::Busy);
    assert_eq!(world.holders(opened.object), [3]);
    objects.iter().for_each(|object| world.copied(*object, 4));
    assert_eq!(world.leave(3).unwrap_err().code(), ErrorCode::Busy);
    // Suppose the store comes back all the same.
    for store in [1, 2, 4] {
        world.copied(opened.object, store);
    }
    world.leave(3).unwrap();
}

#[test]
fn missing_replicas_of_a_store_that_left_are_forgiven_in_several_changes() {
    let world = World::new();
    let give_up = |store| world.wants(store, WantedState::Lost);
    // More than one change forgives.
    let count = 9000;
    let objects = world.files_on(count, &[1]);
    give_up(2);
    world.join(3, 2).unwrap();
    while !world.is_current(3) {
        world.fill(3);
    }
    objects.iter().for_each(|object| world.copied(*object, 3));
    world.leave(2).unwrap();
    assert_eq!(world.stores(), [1, 3]);
    let left = world.missing();
    let mut findings = 0;
    world.0.read(|read| ns::check(read, &mut |_| findings += 1)).unwrap();
    assert_eq!(findings, 0);
    assert!(!left.is_empty() && left.len() < count, "{}", left.len());
    assert!(objects.iter().all(|object| world.holders(*object) == [1, 3]));
    for page in left.chunks(ns::DropMissingReplicas::OBJECTS_MAX) {
        let objects = page.iter().map(|(object, _)| *object).collect();
        world.change(ns::DropMissingReplicas { group: GROUP, objects }).unwrap();
    }
    assert_eq!(world.missing(), []);
    assert!(objects.iter().all(|object| world.holders(*object) == [1, 3]));
}

#[test]
fn store_lost_during_its_backfill_does_not_count_as_a_holder() {
    let world = World::new();
    let objects = world.files(300);
    world.join(3, 2).unwrap();
    world.fill(3);
    world.copied(objects[0], 3);
    let opened = world.open_on("/alone", [3, 1]).unwrap();
    world.close(&opened, &[3]);
    assert_eq!(
        world.holders(opened.object),
        [3],
        "it has every object written from now on, whether the backfill has ended or not"
    );
    assert_eq!(world.join(4, 3).unwrap_err().code(), ErrorCode::Busy, "it may have something alone");
    world.copied(opened.object, 1);
    world.copied(opened.object, 2);
    world.join(4, 3).unwrap();
    assert_eq!((world.stores(), world.missing()), (vec![1, 2, 4], Vec::new()));
    assert!(objects.iter().all(|object| world.holders(*object) == [1, 2]));
}

#[test]
fn only_an_online_store_joins_and_only_once() {
    let world = World::new();
    world.wants(3, WantedState::ReadOnly);
    assert_eq!(world.join(3, 2).unwrap_err().code(), ErrorCode::Stale);
    assert_eq!(world.join(1, 2).unwrap_err().code(), ErrorCode::Stale);
    assert_eq!(world.join(9, 2).unwrap_err().code(), ErrorCode::Stale);
    let stale = ns::JoinGroup { group: GROUP, epoch: 5, store: StoreId(4), in_place_of: StoreId(2) };
    assert_eq!(world.change(stale).unwrap_err().code(), ErrorCode::Stale);
    world.join(4, 2).unwrap();
    assert_eq!(world.leave(1).unwrap_err().code(), ErrorCode::Stale, "nobody has taken its place");
}

#[test]
fn member_with_an_open_write_stays_and_a_store_that_left_gets_no_new_writes() {
    let world = World::new();
    world.files(3);
    let opened = world.open("/slow");
    world.join(3, 2).unwrap();
    world.fill(3);
    for object in world.missing().into_iter().map(|(object, _)| object).collect::<Vec<_>>() {
        world.copied(object, 3);
    }
    let refused = world.leave(2).unwrap_err();
    assert!(refused.to_string().contains("it has an open write"), "{refused}");
    // A writer in another group would not matter.
    world.close(&opened, &[1, 2]);
    for object in world.missing().into_iter().map(|(object, _)| object).collect::<Vec<_>>() {
        world.copied(object, 3);
    }
    // The client chose store 2 before it left, and opens afterwards.
    world.leave(2).unwrap();
    assert_eq!(world.open_on("/late", [1, 2]).unwrap_err().code(), ErrorCode::Stale);
    world.open_on("/late", [1, 3]).unwrap();
}

#[test]
fn no_group_gets_a_draining_store_and_a_lost_store_stays_lost() {
    let world = World::new();
    let set = |store, state| world.change(ns::SetStoreState { store: StoreId(store), state });
    let make = |number| {
        let member = |store| Member { store: StoreId(store), since: ObjectId(1), through: ObjectId(0) };
        let group = Group { group: GroupId(number), epoch: 1, members: vec![member(3), member(4)] };
        world.change(ns::PutGroup { group })
    };
    set(3, ns::WantedState::Draining).unwrap();
    assert_eq!(make(70).unwrap_err().code(), ErrorCode::Stale);
    set(3, ns::WantedState::Online).unwrap();
    make(70).unwrap();
    set(4, ns::WantedState::Lost).unwrap();
    assert_eq!(set(4, ns::WantedState::Online).unwrap_err().code(), ErrorCode::Invalid);
    assert_eq!(make(71).unwrap_err().code(), ErrorCode::Stale);
}

#[test]
fn members_that_have_the_only_replicas_stay_even_when_replaced() {
    let world = World::new();
    let opened = world.open("/f");
    world.close(&opened, &[1, 2]);
    world.join(3, 1).unwrap();
    world.join(4, 2).unwrap();
    world.fill(3);
    world.fill(4);
    // No remaining member misses the object: the replacements will leave too, and no other store can replace them.
    for store in [3, 4] {
        world.wants(store, WantedState::Draining);
    }
    for store in [1, 2] {
        assert_eq!(world.leave(store).unwrap_err().code(), ErrorCode::Busy, "{store}");
    }
    world.copied(opened.object, 3);
    world.leave(1).unwrap();
    world.leave(2).unwrap();
    assert_eq!((world.stores(), world.holders(opened.object)), (vec![3, 4], vec![3]));
}

#[test]
fn partly_backfilled_store_keeps_its_place_if_it_may_have_the_only_replica() {
    let world = World::new();
    world.files(300);
    let give_up = |store| world.wants(store, WantedState::Lost);
    give_up(1);
    world.join(3, 1).unwrap();
    world.fill(3);
    let copied: Vec<ObjectId> = world.missing().into_iter().map(|(object, _)| object).collect();
    assert!(!copied.is_empty());
    for object in &copied {
        world.copied(*object, 3);
    }
    // Now only store 3 has the copied objects, and no missing replica shows that.
    give_up(2);
    world.join(4, 2).unwrap();
    world.wants(3, WantedState::Draining);
    world.has_store(5);
    assert_eq!(world.join(5, 3).unwrap_err().code(), ErrorCode::Busy);
    assert!(world.holders(copied[0]).contains(&3));
    // A store removed as lost is replaced all the same: nobody can read from it.
    give_up(3);
    world.join(5, 3).unwrap();
}

#[test]
fn last_member_that_is_not_lost_cannot_leave() {
    let world = World::new();
    let opened = world.open("/f");
    world.close(&opened, &[1, 2]);
    for (joins, leaves) in [(3, 1), (4, 2)] {
        world.join(joins, leaves).unwrap();
        world.fill(joins);
        world.copied(opened.object, joins);
    }
    world.wants(3, WantedState::Lost);
    world.leave(1).unwrap();
    world.wants(4, WantedState::Lost);
    assert_eq!(world.leave(2).unwrap_err().code(), ErrorCode::Busy, "it is the last that is there");
}

#[test]
fn store_drained_before_its_backfill_ended_keeps_its_place_if_it_has_the_only_replica() {
    let world = World::new();
    let old = world.files(300)[0];
    world.join(3, 2).unwrap();
    world.fill(3);
    world.join(4, 1).unwrap();
    let opened = world.open_on("/alone", [3, 2]).unwrap();
    world.close(&opened, &[3]);
    world.wants(4, WantedState::Draining);
    world.wants(3, WantedState::Draining);
    assert!(!world.is_current(3) && !world.is_current(4));
    world.has_store(5);
    assert_eq!(world.join(5, 3).unwrap_err().code(), ErrorCode::Busy, "nobody else has what was written there");
    world.join(5, 4).unwrap();
    assert_eq!((world.stores(), world.holders(old)), (vec![1, 5, 2, 3], vec![1, 2]));
}

/// An interrupted upload that would have replaced a file, with kept bytes.
fn kept_upload(world: &World) -> ObjectId {
    let file = world.open("/f");
    world.close(&file, &[1, 2]);
    let replacing = world.change(ns::OpenWrite {
        placement: Placement {
            group: GROUP,
            in_sync: [1, 2]
                .map(|store| InSyncReplica { store: StoreId(store), boot_generation: BootGeneration(1) })
                .to_vec(),
        },
        ..ns::OpenWrite::new(
            NsPath::parse(b"/f").unwrap(),
            WriteMode::Replace,
            ClientIdentity { principal: types::PrincipalId(0), user: "u".into(), pid: 1, host: "h".into() },
            BootId(1),
        )
    });
    let replacing = replacing.unwrap();
    let interrupt = ns::Interrupt { writer: replacing.writer, kept_len: 1 };
    world
        .change(ns::InterruptPlaced { interrupt, by: Some(StoreId(1)), holders: vec![StoreId(1), StoreId(2)] })
        .unwrap();
    replacing.object
}

#[test]
fn kept_hidden_upload_is_missing_also_after_many_later_writes() {
    let world = World::new();
    let kept = kept_upload(&world);
    world.join(3, 2).unwrap();
    // The page has the last missing objects together with many later ones.
    world.files(300);
    world.fill(3);
    assert!(world.is_current(3));
    assert!(
        world.missing().iter().any(|(object, missing)| *object == kept && missing.contains(&3)),
        "{:?}",
        world.missing()
    );
}

#[test]
fn kept_hidden_upload_is_missing_also_when_a_page_ends_with_the_last_object() {
    for before in 250..260 {
        let world = World::new();
        let kept = kept_upload(&world);
        world.files(before);
        world.join(3, 2).unwrap();
        while !world.is_current(3) {
            world.fill(3);
        }
        assert!(world.missing().iter().any(|(object, missing)| *object == kept && missing.contains(&3)), "{before}");
    }
}

#[test]
fn leaving_members_do_not_count_as_replicas_of_a_new_object() {
    let world = World::new();
    let member = |store| Member { store: StoreId(store), since: ObjectId(1), through: ObjectId(0) };
    world.change(ns::PutGroup { group: Group { group: GroupId(8), epoch: 1, members: vec![member(1)] } }).unwrap();
    let join = ns::JoinGroup { group: GroupId(8), epoch: 1, store: StoreId(2), in_place_of: StoreId(1) };
    world.change(join).unwrap();
    let open = |path: &str, stores: &[u64]| {
        let in_sync = stores
            .iter()
            .map(|store| InSyncReplica { store: StoreId(*store), boot_generation: BootGeneration(1) })
            .collect();
        world.change(ns::OpenWrite {
            placement: Placement { group: GroupId(8), in_sync },
            ..ns::OpenWrite::new(
                NsPath::parse(path.as_bytes()).unwrap(),
                WriteMode::NewOnly,
                ClientIdentity { principal: types::PrincipalId(0), user: "u".into(), pid: 1, host: "h".into() },
                BootId(1),
            )
        })
    };
    assert_eq!(open("/two", &[1, 2]).unwrap_err().code(), ErrorCode::Stale, "one copy would be left of it");
    open("/one", &[2]).unwrap();
}
