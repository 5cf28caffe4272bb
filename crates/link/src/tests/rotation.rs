//! The authority's key is replaced: who trusts whom before, during and after.

use std::fs;

use types::NodeId;

use super::world::*;
use crate::admin::{AdminId, AdminIdentity, AdminName};
use crate::verify::Verifier;
use crate::*;

/// Asks for a certificate for this node, as over an existing connection.
fn renewed(authority: &Authority, identity: &Identity) -> Result<Identity, IdentityError> {
    let key = NewKey::draw().unwrap();
    let request = key.renewal(identity.name()).unwrap();
    identity.renewed(&key, &authority.renew(identity.name(), &request, now(), DAY).unwrap())
}

fn meet(one: &Identity, other: &Identity) -> bool {
    // What each side thinks of the other, in both directions.
    let accepts = |judge: &Identity, judged: &Identity| {
        let verifier = Verifier::of(judge.name().cluster, judge.authority().anchors()).unwrap();
        let chain = judged.chain();
        verifier.check(&chain[0], &chain[1..], now()).is_ok()
    };
    let (there, back) = (accepts(one, other), accepts(other, one));
    assert_eq!(there, back, "one side lets the other in, and the other does not");
    there
}

#[test]
fn nodes_move_one_by_one_and_all_know_each_other() {
    let cluster = Cluster::new(1);
    let old: Vec<Identity> = (1..4).map(|node| cluster.identity(node, Roles::DISK)).collect();
    cluster.authority.rotate(now()).unwrap();
    let new: Vec<Identity> = old.iter().map(|one| renewed(&cluster.authority, one).unwrap()).collect();
    for (one, other) in [(&old[0], &new[1]), (&new[0], &new[1]), (&old[0], &old[1])] {
        assert!(meet(one, other));
    }
    Link::up(&local_node_of(&old[0]), &Node::start(local_node_of(&new[1]), None));
    let link = Link::up(&local_node_of(&new[0]), &Node::start(local_node_of(&old[1]), None));
    assert_eq!(link.peer.identity().authority, Some(old[1].authority().fingerprint()));

    cluster.authority.retire().unwrap();
    let set = cluster.authority.set();
    let after: Vec<Identity> = new.iter().map(|one| one.trusting(set.clone()).unwrap()).collect();
    assert!(meet(&after[0], &after[1]) && meet(&after[0], &new[1]), "a node that has not heard of the end yet");
    assert!(!meet(&after[0], &old[1]), "a node that was away all the time");
    assert!(renewed(&cluster.authority, &old[0]).is_err(), "nobody vouches for the new one any more");
}

#[test]
fn a_thief_of_the_old_key_is_out_after_the_end() {
    let cluster = Cluster::new(1);
    let copy = tempfile::tempdir().unwrap();
    fs::copy(cluster.folder.path().join("authority"), copy.path().join("authority")).unwrap();
    let stolen = Authority::open(copy.path()).unwrap();
    let honest = cluster.identity(2, Roles::DISK);
    cluster.authority.rotate(now()).unwrap();
    let honest = renewed(&cluster.authority, &honest).unwrap().trusting(cluster.authority.set()).unwrap();
    cluster.authority.retire().unwrap();
    let honest = honest.trusting(cluster.authority.set()).unwrap();
    let forged = Identity::issue(&stolen, NodeId(1), Roles::MANAGER, now(), DAY).unwrap();
    assert!(!meet(&honest, &forged));
    // Nor with a succession of its own.
    stolen.rotate(now()).unwrap();
    let forged = Identity::issue(&stolen, NodeId(1), Roles::MANAGER, now(), DAY).unwrap();
    assert!(!meet(&honest, &forged));
    assert!(honest.trusting(stolen.set()).is_err() && renewed(&stolen, &honest).is_err());
}

#[test]
fn each_step_is_in_the_file_before_it_counts() {
    let cluster = Cluster::new(1);
    let open = || Authority::open(cluster.folder.path()).unwrap();
    let before = open().set();
    assert!(cluster.authority.retire().unwrap_err().to_string().contains("weir admin authority rotate"));
    cluster.authority.note_renewed(NodeId(9)).unwrap();
    let began = now();
    cluster.authority.rotate(began).unwrap();
    assert!(cluster.authority.rotate(now()).unwrap_err().to_string().contains("weir admin authority retire"));
    assert_eq!((open().set(), open().replacement()), (cluster.authority.set(), cluster.authority.replacement()));
    assert_eq!(open().set().previous(), Some(before.fingerprint()));
    for node in [3, 2, 3] {
        cluster.authority.note_renewed(NodeId(node)).unwrap();
    }
    let replacement = open().replacement().unwrap();
    assert_eq!(replacement.began, began);
    assert_eq!(replacement.renewed.into_iter().collect::<Vec<_>>(), [NodeId(2), NodeId(3)]);
    // A manager that starts again signs with the same new key.
    let node = Identity::issue(&open(), NodeId(2), Roles::DISK, now(), DAY).unwrap();
    assert!(meet(&node, &cluster.identity(3, Roles::DISK)));
    cluster.authority.retire().unwrap();
    assert_eq!((open().set().previous(), open().replacement()), (None, None));
    assert!(open().set() != before && open().fingerprint() == cluster.authority.fingerprint());
}

#[test]
fn an_identity_keeps_what_it_trusts_and_refuses_other_successions() {
    let (cluster, other) = (Cluster::new(1), Cluster::new(1));
    let old = cluster.identity(2, Roles::DISK);
    for one in [&cluster, &other] {
        one.authority.rotate(now()).unwrap();
    }
    let new = renewed(&cluster.authority, &old).unwrap();
    let path = cluster.folder.path().join("node");
    new.write(&path).unwrap();
    assert_eq!(Identity::read(&path).unwrap().authority(), &cluster.authority.set());
    assert!(renewed(&other.authority, &old).is_err() && new.trusting(other.authority.set()).is_err());
    // A voucher of another authority proves nothing.
    let (ours, theirs) = (cluster.authority.set(), other.authority.set());
    let (previous, _) = ours.predecessor().unwrap();
    let (_, voucher) = theirs.predecessor().unwrap();
    let mixed = AuthoritySet::following(ours.current().clone(), voucher.clone(), previous.clone());
    assert!(new.trusting(mixed).is_err());
}

#[test]
fn a_cluster_that_is_restored_to_before_the_rotation_takes_its_nodes_back() {
    let cluster = Cluster::new(1);
    let copy = tempfile::tempdir().unwrap();
    fs::copy(cluster.folder.path().join("authority"), copy.path().join("authority")).unwrap();
    let node = cluster.identity(2, Roles::DISK);
    cluster.authority.rotate(now()).unwrap();
    let node = renewed(&cluster.authority, &node).unwrap();
    let restored = Authority::open(copy.path()).unwrap();
    let manager = Identity::issue(&restored, NodeId(1), Roles::MANAGER, now(), DAY).unwrap();
    assert!(meet(&manager, &node));
    let back = renewed(&restored, &node).unwrap();
    assert_eq!(back.authority(), &restored.set());
    // And a second rotation from there.
    restored.rotate(now()).unwrap();
    assert!(renewed(&restored, &node).is_ok() && renewed(&restored, &back).is_ok());
}

#[test]
fn a_connection_is_judged_by_what_was_shown_at_its_beginning() {
    let cluster = Cluster::new(1);
    let copy = tempfile::tempdir().unwrap();
    fs::copy(cluster.folder.path().join("authority"), copy.path().join("authority")).unwrap();
    let stolen = Authority::open(copy.path()).unwrap();
    let (before, old) = (cluster.authority.set(), cluster.identity(2, Roles::DISK));
    cluster.authority.rotate(now()).unwrap();
    let (both, new) = (cluster.authority.set(), renewed(&cluster.authority, &old).unwrap());
    cluster.authority.retire().unwrap();
    let after = cluster.authority.set();
    // A thief makes a successor of the old authority, too.
    stolen.rotate(now()).unwrap();
    let forged = Identity::issue(&stolen, NodeId(2), Roles::DISK, now(), DAY).unwrap();
    let trust = |identity: &Identity, others: std::ops::Range<usize>| {
        let chain = identity.chain();
        let shown = ShownChain::of(&chain[0], &chain[others]);
        [&before, &both, &after].map(|set| shown.is_trusted_by(set))
    };
    assert_eq!(trust(&new, 1..4), [true; 3], "a manager that was restored to before the rotation lets it in");
    assert_eq!(trust(&new, 1..2), [false, true, true]);
    // The same without the authority, or with another certificate of its key in its place.
    for others in [1..2, 0..0] {
        assert_eq!(trust(&old, others), [true, true, false]);
    }
    for others in [1..4, 2..4, 2..3] {
        assert_eq!(trust(&forged, others), [true, true, false]);
    }
    assert_eq!(trust(&forged, 1..2), [false; 3]);
}

#[test]
fn a_dropped_authority_does_not_come_back_with_a_backup() {
    let cluster = Cluster::new(1);
    let old = cluster.identity(2, Roles::DISK);
    cluster.authority.rotate(now()).unwrap();
    let copy = tempfile::tempdir().unwrap();
    fs::copy(cluster.folder.path().join("authority"), copy.path().join("authority")).unwrap();
    let node = renewed(&cluster.authority, &old).unwrap();
    cluster.authority.retire().unwrap();
    let node = node.trusting(cluster.authority.set()).unwrap();
    let restored = Authority::open(copy.path()).unwrap();
    let again = renewed(&restored, &node).unwrap();
    assert_eq!(again.authority(), node.authority());
    let manager = Identity::issue(&restored, NodeId(1), Roles::MANAGER, now(), DAY).unwrap();
    assert!(meet(&manager, &node) && meet(&manager, &again));
}

#[test]
fn many_nodes_fit_in_the_file() {
    let cluster = Cluster::new(1);
    cluster.authority.rotate(now()).unwrap();
    let path = cluster.folder.path().join("authority");
    for node in [9, 2, 3, 5, 4] {
        cluster.authority.note_renewed(NodeId(node)).unwrap();
    }
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains("renewed nodes 2-5 9\n"), "{text}");
    let with = |nodes: &str| {
        let text = text.replace("nodes 2-5 9", nodes);
        let lines = &text[..text.rfind("crc32c").unwrap()];
        fs::write(&path, format!("{lines}crc32c {:08x}\n", types::Crc32c::of(lines.as_bytes()).0)).unwrap();
        Authority::open(cluster.folder.path()).map(|authority| authority.replacement().unwrap().renewed)
    };
    assert_eq!(with("nodes 2-5 9").unwrap(), [2, 3, 4, 5, 9].map(NodeId).into());
    // As it was written once.
    assert_eq!(with("nodes 2 3 9").unwrap(), [2, 3, 9].map(NodeId).into());
    let many = with("nodes 2-20001").unwrap();
    assert_eq!(many.len(), 20_000);
    let authority = Authority::open(cluster.folder.path()).unwrap();
    authority.note_renewed(NodeId(20_002)).unwrap();
    let open = Authority::open(cluster.folder.path()).unwrap();
    assert_eq!(open.replacement().unwrap().renewed.len(), 20_001);
    for wrong in ["nodes 5-2", "nodes 2-", "nodes -2", "nodes 2-3-4", "nodes 0-18446744073709551615", "nodes x"] {
        assert!(with(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn administrators_move_when_they_renew() {
    let cluster = Cluster::new(1);
    let subject = AdminName { cluster: cluster.authority.cluster(), id: AdminId([5; 16]) };
    let old = AdminIdentity::issue(&cluster.authority, subject, vec!["m:1".into()], now(), DAY).unwrap();
    let renew = |authority: &Authority, identity: &AdminIdentity| {
        let key = NewKey::draw().unwrap();
        let request = key.admin_renewal(&subject).unwrap();
        identity.renewed(&key, &authority.renew_admin(&subject, &request, now(), DAY).unwrap(), now())
    };
    let other = Cluster::new(1);
    other.authority.rotate(now()).unwrap();
    cluster.authority.rotate(now()).unwrap();
    let new = renew(&cluster.authority, &old).unwrap();
    assert_eq!(new.authority(), cluster.authority.fingerprint());
    assert!(renew(&other.authority, &old).is_err() && renew(&other.authority, &new).is_err());
    assert_eq!(renew(&cluster.authority, &new).unwrap().authority(), new.authority(), "once more before the end");
    cluster.authority.retire().unwrap();
    assert!(renew(&cluster.authority, &new).is_ok() && renew(&cluster.authority, &old).is_err());
}

/// A copy of the authority at another manager.
fn received(cluster: &Cluster, known: &AuthoritySet) -> (tempfile::TempDir, Result<Authority, AuthorityError>) {
    let folder = tempfile::tempdir().unwrap();
    let bytes = cluster.authority.to_secret_bytes();
    let copy = Authority::receive(folder.path(), cluster.authority.cluster(), known, bytes);
    (folder, copy)
}

#[test]
fn another_manager_follows_each_change_of_the_authority() {
    let cluster = Cluster::new(1);
    let known = cluster.authority.set();
    let (folder, copy) = received(&cluster, &known);
    let copy = copy.unwrap();
    assert!(!copy.follow(cluster.authority.to_secret_bytes()).unwrap(), "no news");
    let before = cluster.authority.to_secret_bytes();
    cluster.authority.rotate(now()).unwrap();
    cluster.authority.note_renewed(NodeId(7)).unwrap();
    assert!(copy.follow(cluster.authority.to_secret_bytes()).unwrap());
    assert_eq!((copy.set(), copy.replacement()), (cluster.authority.set(), cluster.authority.replacement()));
    // A manager that was offline meanwhile, and is active.
    assert!(matches!(copy.follow(before).unwrap_err(), AuthorityError::Earlier));
    assert_eq!(copy.set(), cluster.authority.set());
    cluster.authority.retire().unwrap();
    assert!(copy.follow(cluster.authority.to_secret_bytes()).unwrap());
    // It signs as the first one does, also after a restart.
    let again = Authority::open(folder.path()).unwrap();
    for one in [&copy, &again] {
        let issued = Identity::issue(one, NodeId(5), Roles::DISK, now(), DAY).unwrap();
        assert!(meet(&issued, &cluster.identity(6, Roles::DISK)));
    }
}

#[test]
fn another_manager_takes_no_authority_that_it_cannot_trust() {
    let (cluster, strange) = (Cluster::new(1), Cluster::new(1));
    let refused = |error: AuthorityError| matches!(error, AuthorityError::NotOurs);
    assert!(refused(received(&cluster, &strange.authority.set()).1.unwrap_err()), "of the same cluster's number alone");
    let (_folder, copy) = received(&cluster, &cluster.authority.set());
    let copy = copy.unwrap();
    let before = copy.set();
    assert!(refused(copy.follow(strange.authority.to_secret_bytes()).unwrap_err()));
    assert!(refused(copy.follow(Cluster::new(2).authority.to_secret_bytes()).unwrap_err()));
    let mut damaged = cluster.authority.to_secret_bytes();
    damaged[40] ^= 1;
    assert!(copy.follow(damaged).is_err() && copy.follow(Vec::new()).is_err());
    // It was away for two replacements, so nobody vouches for the present one.
    for _ in 0..2 {
        cluster.authority.rotate(now()).unwrap();
        cluster.authority.retire().unwrap();
    }
    assert!(refused(copy.follow(cluster.authority.to_secret_bytes()).unwrap_err()));
    assert_eq!(copy.set(), before);
}
