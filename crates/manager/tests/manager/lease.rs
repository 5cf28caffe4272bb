//! A manager that may have lost its database to another one.

use namespace::{CutOffMember, FIRST_NODE, RemoveMember};

use super::*;

impl Cluster {
    /// Another manager joins, and this one knows nothing of it yet.
    fn manager_joins(&self, number: u8) -> NodeId {
        let (id, key, expires) = ([number; 16], [number; 32], Timestamp(i64::MAX));
        let token = TokenEntry { id, hash: key, roles: 1, made: Timestamp(1), expires, uses_max: 1, used: Vec::new() };
        change(&self.namespace, MakeToken { token: token.clone() });
        change(&self.namespace, JoinNode { token, roles: 1, name: format!("mgr{number}"), key })
    }

    /// The manager reads the lists.
    fn looks(&self) {
        self.passes(2);
        self.manager.tick();
    }

    fn loses_lease(&self, is_lost: bool) {
        *self.told.has_no_lease.lock() = is_lost;
    }

    /// The answer to a request for a longer session.
    fn renews(&self, node: NodeId, session: SessionId) -> Option<bool> {
        self.sent(node);
        self.manager.receive(node, FromDisk::Cluster(ToManager::Renew { node, session, number: 2 }));
        self.sent(node).into_iter().find_map(|message| match message {
            FromManager::Cluster(ToServer::Renewed { .. }) => Some(true),
            FromManager::Cluster(ToServer::NoSession { .. }) => Some(false),
            _ => None,
        })
    }
}

#[test]
fn without_its_lease_a_manager_grants_nothing_until_it_is_back() {
    let cluster = Cluster::new();
    let (node, session) = cluster.disk(1);
    cluster.manager_joins(9);
    cluster.looks();
    assert_eq!(cluster.renews(node, session), Some(true));
    cluster.loses_lease(true);
    assert_eq!(cluster.renews(node, session), None, "neither granted nor ended");
    let other = cluster.joins(2);
    cluster.comes(other);
    assert_eq!(cluster.registers(other), None);
    assert!(!cluster.manager.may_grant());
    // The session has not ended meanwhile.
    cluster.loses_lease(false);
    assert_eq!(cluster.renews(node, session), Some(true));
    assert!(cluster.registers(other).is_some());
    // What was not granted has not extended it.
    cluster.loses_lease(true);
    for _ in 0..6 {
        cluster.passes(1);
        assert_eq!(cluster.renews(node, session), None);
    }
    cluster.loses_lease(false);
    assert_eq!(cluster.renews(node, session), Some(false));
}

#[test]
fn a_manager_that_is_alone_needs_no_lease() {
    let mut cluster = Cluster::new();
    let (node, session) = cluster.disk(1);
    cluster.loses_lease(true);
    assert_eq!(cluster.renews(node, session), Some(true));
    assert!(!cluster.manager.other_managers().exist());
    let second = cluster.manager_joins(9);
    cluster.looks();
    assert!(!cluster.manager.may_grant());
    change(&cluster.namespace, RemoveMember { node: second });
    cluster.looks();
    assert!(cluster.manager.may_grant());
    // A manager that starts knows the others at once.
    cluster.manager_joins(8);
    cluster.restart_manager();
    assert!(!cluster.manager.may_grant());
}

/// A command has taken the place, say, or the same directory runs elsewhere.
#[test]
fn a_manager_that_is_alone_and_has_lost_its_place_grants_nothing() {
    let cluster = Cluster::new();
    let (node, session) = cluster.disk(1);
    cluster.loses_lease(true);
    *cluster.told.has_lost_place.lock() = true;
    assert!(!cluster.manager.other_managers().exist() && !cluster.manager.may_grant());
    assert_eq!(cluster.renews(node, session), None);
}

#[test]
fn another_manager_than_the_first_removes_the_first_one_and_never_itself() {
    let mut cluster = Cluster::new();
    let second = cluster.manager_joins(9);
    // By the first one, before it failed.
    change(&cluster.namespace, CutOffMember { node: second });
    change(&cluster.namespace, CutOffMember { node: FIRST_NODE });
    cluster.restart_manager_as(second);
    cluster.passes(60);
    cluster.looks();
    let members = cluster.namespace.read(namespace::members).unwrap();
    assert_eq!(members.into_iter().map(|member| member.node).collect::<Vec<_>>(), [second]);
    assert!(matches!(cluster.manager.remove_node("mgr9", true), Err(MemberError::IsManager(_))));
}
