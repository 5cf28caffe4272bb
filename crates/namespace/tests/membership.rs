//! Membership of a cluster: tokens, nodes, stores.

#![allow(clippy::unwrap_used, clippy::panic)] // a test may fail this way

use std::sync::Arc;

use kv::{Durability, MemoryKv};
use namespace::{
    self as ns, Actor, FIRST_NODE, JoinNode, Namespace, NamespaceConfig, NsError, Operation, PutStore, StoreEntry,
    TokenEntry, WantedState,
};
use types::{ErrorCode, Group, GroupId, Member, NodeId, ObjectId, PrincipalId, StoreId, Timestamp};

const DAY: i64 = 86_400_000_000_000;

struct World(Arc<Namespace>);

impl World {
    /// A cluster with its first manager.
    fn new() -> Self {
        let world = Self(Namespace::open(Arc::new(MemoryKv::new()), Timestamp(0), NamespaceConfig::default()).unwrap());
        world.change(ns::FoundCluster { roles: 1, name: "mgr".into(), key: [1; 32] }).unwrap();
        world
    }

    fn change<O: Operation + Send + 'static>(&self, op: O) -> Result<O::Reply, NsError> {
        self.change_at(5, op)
    }

    fn change_at<O: Operation + Send + 'static>(&self, now: i64, op: O) -> Result<O::Reply, NsError> {
        let ctx = self.0.context(Timestamp(now), &Actor::admin(), None);
        self.0.change_wait(Durability::Synced, ctx, op)
    }

    fn token(&self, number: u8) -> TokenEntry {
        self.0.read(|read| ns::token(read, &[number; 16])).unwrap().unwrap()
    }

    fn make_token(&self, number: u8) -> TokenEntry {
        let token = token(number);
        self.change(ns::MakeToken { token: token.clone() }).unwrap();
        token
    }

    /// Joins with the token's present record.
    fn join(&self, number: u8, name: &str, key: u8) -> Result<NodeId, NsError> {
        self.change(join(self.token(number), name, key))
    }

    fn nodes(&self) -> Vec<(u64, String)> {
        let members = self.0.read(ns::members).unwrap();
        members.into_iter().map(|member| (member.node.0, member.name)).collect()
    }

    fn store(&self, store: u64) -> Option<StoreEntry> {
        self.0.read(|read| ns::store(read, StoreId(store))).unwrap()
    }

    /// Adds a disk server.
    fn disk(&self, number: u8) -> NodeId {
        self.make_token(number);
        self.join(number, &format!("disk{number}"), number).unwrap()
    }

    fn check(&self) {
        let mut found = Vec::new();
        self.0.read(|read| ns::check(read, &mut |finding| found.push(finding))).unwrap();
        assert_eq!(found, []);
    }
}

fn token(number: u8) -> TokenEntry {
    let expires = Timestamp(DAY);
    TokenEntry {
        id: [number; 16],
        hash: [number; 32],
        roles: 2,
        made: Timestamp(1),
        expires,
        uses_max: 1,
        used: Vec::new(),
    }
}

fn join(token: TokenEntry, name: &str, key: u8) -> JoinNode {
    JoinNode { token, roles: 2, name: name.into(), key: [key; 32] }
}

fn put(store: u64, node: NodeId, location: &str) -> PutStore {
    PutStore { store: StoreId(store), node, location: location.parse().unwrap(), class: Some("t1".parse().unwrap()) }
}

#[test]
fn token_lets_one_node_join_as_often_as_it_asks() {
    let world = World::new();
    let before = world.make_token(7);
    assert_eq!(world.join(7, "disk1", 1).unwrap(), NodeId(2));
    assert_eq!(world.join(7, "disk1", 1).unwrap(), NodeId(2), "the answer was lost, it asks again");
    assert_eq!(world.token(7).used, [(NodeId(2), [1; 32])]);
    // Two machines use one token, verified on the same record. One succeeds. The other must read again, and finds the token used.
    let second = world.change(join(before, "disk2", 2)).unwrap_err();
    assert_eq!(second.code(), ErrorCode::Stale, "{second}");
    assert_eq!(world.join(7, "disk2", 2).unwrap_err().code(), ErrorCode::Stale);
    assert_eq!(world.nodes(), [(1, "mgr".into()), (2, "disk1".into())]);
    world.check();
}

#[test]
fn token_for_several_nodes_lets_in_so_many_and_no_more() {
    let world = World::new();
    let made = TokenEntry { uses_max: 3, ..token(7) };
    world.change(ns::MakeToken { token: made.clone() }).unwrap();
    assert_eq!(world.token(7), made);
    for (number, node) in [(1, 2), (2, 3), (1, 2), (2, 3), (3, 4)] {
        assert_eq!(world.join(7, &format!("disk{number}"), number).unwrap(), NodeId(node), "disk {number}");
    }
    assert_eq!(world.token(7).used, [(NodeId(2), [1; 32]), (NodeId(3), [2; 32]), (NodeId(4), [3; 32])]);
    assert_eq!(world.join(7, "disk4", 4).unwrap_err().code(), ErrorCode::Stale, "it is used up");
    assert_eq!(world.join(7, "disk2", 2).unwrap(), NodeId(3), "whoever has joined may ask again");
    assert_eq!(world.nodes().len(), 4);
    world.check();
}

#[test]
fn token_that_is_not_used_up_can_be_removed() {
    let world = World::new();
    world.change(ns::MakeToken { token: TokenEntry { uses_max: 2, ..token(7) } }).unwrap();
    let before = world.token(7);
    let node = world.join(7, "disk1", 1).unwrap();
    // Verified on the record before the other node joined.
    assert_eq!(world.change(join(before, "disk2", 2)).unwrap_err().code(), ErrorCode::Stale);
    world.change(ns::RemoveToken { id: [7; 16] }).unwrap();
    assert_eq!(world.0.read(|read| ns::token(read, &[7; 16])).unwrap(), None);
    assert_eq!(world.nodes(), [(1, "mgr".into()), (node.0, "disk1".into())], "a node that has joined stays");
}

#[test]
fn number_of_uses_of_a_token_is_limited() {
    let world = World::new();
    for uses_max in [0, ns::TOKEN_USES_MAX + 1] {
        let refused = world.change(ns::MakeToken { token: TokenEntry { uses_max, ..token(7) } }).unwrap_err();
        assert_eq!(refused.code(), ErrorCode::TooMany, "{uses_max}: {refused}");
    }
    world.change(ns::MakeToken { token: TokenEntry { uses_max: ns::TOKEN_USES_MAX, ..token(7) } }).unwrap();
    for number in 0..=ns::TOKEN_USES_MAX {
        let mut request = join(world.token(7), "disk", 0);
        request.key[..2].copy_from_slice(&number.to_be_bytes());
        assert_eq!(world.change(request).is_ok(), number < ns::TOKEN_USES_MAX, "{number}");
    }
    assert_eq!(world.token(7).used.len(), usize::from(ns::TOKEN_USES_MAX));
}

#[test]
fn used_token_cannot_be_removed() {
    let world = World::new();
    world.make_token(7);
    let node = world.join(7, "disk1", 1).unwrap();
    let late = world.change(ns::RemoveToken { id: [7; 16] }).unwrap_err();
    assert_eq!(late.code(), ErrorCode::Stale, "{late}");
    assert_eq!(world.token(7).used, [(node, [1; 32])]);
    // A removed node cannot join again with it.
    world.change(ns::RemoveMember { node }).unwrap();
    assert_eq!(world.join(7, "disk1", 1).unwrap_err().code(), ErrorCode::NotFound);
}

#[test]
fn number_of_stores_of_a_node_is_limited_for_new_and_moved_stores() {
    let world = World::new();
    let (one, two) = (world.disk(1), world.disk(2));
    for store in 0..ns::STORES_OF_NODE_MAX as u64 {
        world.change(put(store + 1, one, "cern/r1/h1")).unwrap();
    }
    let more = world.change(put(5000, one, "cern/r1/h1")).unwrap_err();
    assert!(matches!(more, NsError::TooMany { bound: 1024, .. }), "{more}");
    world.change(put(7, one, "cern/r2/h1")).unwrap();
    world.change(put(5000, two, "cern/r1/h1")).unwrap();
    // The store of a removed node.
    world.change(ns::RemoveMember { node: two }).unwrap();
    assert!(matches!(world.change(put(5000, one, "cern/r1/h1")), Err(NsError::TooMany { .. })));
    world.change(ns::RemoveStore { store: StoreId(7) }).unwrap();
    world.change(put(5000, one, "cern/r1/h1")).unwrap();
}

#[test]
fn removed_token_lets_no_node_join() {
    let world = World::new();
    let token = world.make_token(7);
    world.change(ns::RemoveToken { id: [7; 16] }).unwrap();
    assert_eq!(world.change(join(token, "disk1", 1)).unwrap_err().code(), ErrorCode::Stale);
    assert_eq!(world.change(ns::RemoveToken { id: [7; 16] }).unwrap_err().code(), ErrorCode::NotFound);
    assert_eq!(world.nodes().len(), 1);
}

#[test]
fn tokens_are_unique_and_forgotten_a_month_after_their_end() {
    let world = World::new();
    let first = world.make_token(1);
    assert_eq!(world.change(ns::MakeToken { token: first }).unwrap_err().code(), ErrorCode::Exists);
    let later = |number, now| world.change_at(now, ns::MakeToken { token: token(number) }).unwrap();
    later(2, 31 * DAY);
    let kept = || world.0.read(ns::tokens).unwrap().into_iter().map(|token| token.id[0]).collect::<Vec<_>>();
    assert_eq!(kept(), [1, 2]);
    later(3, 31 * DAY + 1);
    assert_eq!(kept(), [3], "both ended after the first day");
}

#[test]
fn node_numbers_are_never_reused() {
    let world = World::new();
    assert_eq!([world.disk(1), world.disk(2)], [NodeId(2), NodeId(3)]);
    world.change(ns::RemoveMember { node: NodeId(3) }).unwrap();
    assert_eq!(world.disk(3), NodeId(4));
    assert_eq!(world.nodes(), [(1, "mgr".into()), (2, "disk1".into()), (4, "disk3".into())]);
    assert_eq!(world.change(ns::RemoveMember { node: NodeId(3) }).unwrap_err().code(), ErrorCode::NotFound);
}

#[test]
fn the_first_manager_is_the_first_node_however_often_it_starts() {
    let world = World::new();
    world.disk(1);
    world.change(ns::FoundCluster { roles: 3, name: "renamed".into(), key: [9; 32] }).unwrap();
    let first = world.0.read(|read| ns::member(read, FIRST_NODE)).unwrap().unwrap();
    assert_eq!((first.name.as_str(), first.roles, first.key, first.joined), ("renamed", 3, [9; 32], Timestamp(5)));
    assert_eq!(world.disk(2), NodeId(3));
}

#[test]
fn store_belongs_to_one_node() {
    let world = World::new();
    let (one, two) = (world.disk(1), world.disk(2));
    world.change(put(77, one, "cern/r1/h1")).unwrap();
    let refused = world.change(put(77, two, "cern/r1/h2")).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::Exists);
    assert!(refused.to_string().contains("store 77 is at node 2 (disk1) already"), "{refused}");
    assert_eq!(world.store(77).unwrap().node, one);
    let stranger = world.change(put(78, NodeId(9), "cern/r1/h1")).unwrap_err();
    assert!(stranger.to_string().contains("9: no such node of this cluster"), "{stranger}");
    world.check();
}

#[test]
fn wanted_state_of_a_store_survives_restarts_of_its_node() {
    let world = World::new();
    let one = world.disk(1);
    world.change(put(77, one, "cern/r1/h1")).unwrap();
    for state in [WantedState::ReadOnly, WantedState::Online, WantedState::Draining, WantedState::Lost] {
        world.change(ns::SetStoreState { store: StoreId(77), state }).unwrap();
        assert_eq!(world.store(77).unwrap().state, state);
    }
    world.change(PutStore { class: None, ..put(77, one, "cern/r2/h1") }).unwrap();
    let store = world.store(77).unwrap();
    assert_eq!((store.state, store.location.as_str(), store.class), (WantedState::Lost, "cern/r2/h1", None));
    let unknown = ns::SetStoreState { store: StoreId(78), state: WantedState::Online };
    assert_eq!(world.change(unknown).unwrap_err().code(), ErrorCode::NotFound);
}

#[test]
fn store_that_a_group_uses_cannot_be_removed() {
    let world = World::new();
    let one = world.disk(1);
    world.change(put(77, one, "cern/r1/h1")).unwrap();
    let members = vec![Member { store: StoreId(77), since: ObjectId(1), through: ObjectId(0) }];
    world.change(ns::PutGroup { group: Group { group: GroupId(4), epoch: 1, members } }).unwrap();
    let counted_on = world.change(ns::RemoveStore { store: StoreId(77) }).unwrap_err();
    assert!(counted_on.to_string().contains("group 4 depends on it"), "{counted_on}");
    let members = vec![Member { store: StoreId(78), since: ObjectId(1), through: ObjectId(0) }];
    let put_group = ns::PutGroup { group: Group { group: GroupId(4), epoch: 2, members } };
    assert_eq!(world.change(put_group.clone()).unwrap_err().code(), ErrorCode::Stale, "there is no such store");
    world.change(put(78, one, "cern/r1/h1")).unwrap();
    world.change(put_group).unwrap();
    world.change(ns::RemoveStore { store: StoreId(77) }).unwrap();
    assert_eq!(world.store(77), None);
    assert_eq!(world.change(ns::RemoveStore { store: StoreId(77) }).unwrap_err().code(), ErrorCode::NotFound);
    world.check();
}

#[test]
fn store_of_a_removed_node_goes_to_the_node_that_brings_it_back() {
    let world = World::new();
    let (one, two) = (world.disk(1), world.disk(2));
    world.change(put(77, one, "cern/r1/h1")).unwrap();
    world.change(ns::SetStoreState { store: StoreId(77), state: WantedState::ReadOnly }).unwrap();
    world.change(ns::RemoveMember { node: one }).unwrap();
    assert_eq!(world.store(77).unwrap().node, one, "it is not forgotten with its node");
    world.change(put(77, two, "cern/r1/h2")).unwrap();
    let store = world.store(77).unwrap();
    assert_eq!((store.node, store.state), (two, WantedState::ReadOnly));
    world.check();
}

#[test]
fn addresses_are_kept_within_bounds() {
    let world = World::new();
    let one = world.disk(1);
    let addresses = |count: usize, len: usize| vec!["x".repeat(len); count];
    let set = |for_nodes: Vec<String>, for_clients: Vec<String>| {
        world.change(ns::SetAddresses { node: one, for_nodes, for_clients })
    };
    set(addresses(16, 255), addresses(1, 3)).unwrap();
    assert_eq!(set(addresses(17, 1), vec![]).unwrap_err().code(), ErrorCode::TooMany);
    assert_eq!(set(vec![], addresses(1, 256)).unwrap_err().code(), ErrorCode::TooLarge);
    let member = world.0.read(|read| ns::member(read, one)).unwrap().unwrap();
    assert_eq!((member.for_nodes.len(), member.for_clients), (16, vec!["xxx".to_owned()]));
    let name = JoinNode { name: "n".repeat(256), ..join(world.make_token(9), "", 9) };
    assert_eq!(world.change(name).unwrap_err().code(), ErrorCode::TooLarge);
    assert_eq!(world.join(9, "", 9).unwrap_err().code(), ErrorCode::Invalid);
}

#[test]
fn a_node_that_is_cut_off_stays_so_until_it_is_removed() {
    let world = World::new();
    let join = |number: u8| world.change(join(world.make_token(number), "disk", number)).unwrap();
    let (one, two) = (join(1), join(2));
    let cut_off = || world.0.read(ns::cut_off).unwrap().into_iter().collect::<Vec<_>>();
    assert!(cut_off().is_empty());
    for node in [two, one, two, FIRST_NODE] {
        world.change(ns::CutOffMember { node }).unwrap();
    }
    assert_eq!(cut_off(), [FIRST_NODE, one, two], "any node may be a standby manager");
    assert_eq!(world.change(ns::CutOffMember { node: NodeId(99) }).unwrap_err().code(), ErrorCode::NotFound);
    world.change(ns::RemoveMember { node: one }).unwrap();
    assert_eq!(cut_off(), [FIRST_NODE, two]);
    world.change(ns::RemoveMember { node: two }).unwrap();
    assert_eq!(cut_off(), [FIRST_NODE]);
}

#[test]
fn only_the_administrator_changes_the_membership() {
    let world = World::new();
    let user = Actor::new(PrincipalId(5), Arc::from([PrincipalId(5)]));
    let ctx = || world.0.context(Timestamp(5), &user, None);
    let make = ns::MakeToken { token: token(1) };
    assert_eq!(world.0.change_wait(Durability::Synced, ctx(), make).unwrap_err().code(), ErrorCode::Denied);
    let remove = ns::RemoveMember { node: FIRST_NODE };
    assert_eq!(world.0.change_wait(Durability::Synced, ctx(), remove).unwrap_err().code(), ErrorCode::Denied);
}
