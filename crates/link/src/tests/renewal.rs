//! Identities on disk, and their renewal.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use types::{ClusterId, NodeId};

use super::world::*;
use crate::*;

#[test]
fn an_authority_is_made_once_and_read_again() {
    let cluster = Cluster::new(3);
    let again = Authority::open(cluster.folder.path()).unwrap();
    assert_eq!((again.cluster(), again.fingerprint()), (ClusterId(3), cluster.authority.fingerprint()));
    let twice = Authority::create(cluster.folder.path(), ClusterId(4), now()).unwrap_err();
    assert!(twice.to_string().contains("is there already"), "{twice}");
    // Nodes from before and after recognise each other.
    let disk = Identity::issue(&again, NodeId(2), Roles::DISK, now(), DAY).unwrap();
    Link::up(&local_node_of(&disk), &cluster.node(1, Roles::MANAGER));
    let mode = fs::metadata(cluster.folder.path().join("authority")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(!format!("{again:?} {disk:?}").contains("key"), "{again:?} {disk:?}");
}

#[test]
fn a_certificate_is_renewed_before_it_expires() {
    let cluster = Cluster::new(1);
    let (manager, old) = (cluster.node(1, Roles::MANAGER), cluster.identity(2, Roles::DISK));
    assert!(!old.wants_renewal(now(), DAY));
    assert!(old.wants_renewal(now().plus(DAY * 2 / 3), DAY));
    let key = NewKey::draw().unwrap();
    let request = key.renewal(old.name()).unwrap();
    let answer = cluster.authority.renew(old.name(), &request, now().plus(DAY / 48), DAY).unwrap();
    let renewed = old.renewed(&key, &answer).unwrap();
    assert!(renewed.expires() > old.expires() && renewed.name() == old.name());
    // Existing connections stay up; new ones show the new certificate.
    let us = local_node_of(&old);
    let before = Link::up(&us, &manager);
    us.credentials.replace(&renewed).unwrap();
    let after = Link::up(&us, &manager);
    assert!(before.ask("still there").is_ok() && after.ask("hello").is_ok());
}

#[test]
fn a_renewal_answer_for_another_node_is_refused() {
    let (cluster, other) = (Cluster::new(1), Cluster::new(1));
    let (old, key) = (cluster.identity(2, Roles::DISK), NewKey::draw().unwrap());
    let request = key.renewal(old.name()).unwrap();
    let renew = |authority: &Authority| authority.renew(old.name(), &request, now(), DAY).unwrap();
    let answer = renew(&cluster.authority);
    assert!(old.renewed(&key, &answer).is_ok());
    assert!(old.renewed(&NewKey::draw().unwrap(), &answer).is_err(), "a certificate for another key");
    assert!(old.renewed(&key, &renew(&other.authority)).is_err(), "of another authority");
    assert!(cluster.identity(3, Roles::DISK).renewed(&key, &answer).is_err(), "for another node");
    assert!(old.renewed(&key, &answer[..answer.len() - 1]).is_err());
    assert!(local_node_of(&old).credentials.replace(&cluster.identity(3, Roles::DISK)).is_err());
    let elsewhere = NodeName { cluster: ClusterId(9), ..*old.name() };
    let request = key.renewal(&elsewhere).unwrap();
    assert!(cluster.authority.renew(&elsewhere, &request, now(), DAY).is_err());
}

#[test]
fn an_identity_with_exchanged_parts_is_refused() {
    let cluster = Cluster::new(1);
    let path = |name: &str| cluster.folder.path().join(name);
    cluster.identity(2, Roles::DISK).write(&path("two")).unwrap();
    cluster.identity(3, Roles::DISK).write(&path("three")).unwrap();
    let line = |file: &str, key: &str| {
        let text = fs::read_to_string(path(file)).unwrap();
        text.lines().find(|line| line.starts_with(key)).unwrap().to_owned()
    };
    for key in ["name", "expires", "key", "certificate"] {
        let text = fs::read_to_string(path("two")).unwrap();
        let wrong = if key == "expires" { "expires 4000000000".to_owned() } else { line("three", key) };
        let text = text.replace(&line("two", key), &wrong);
        let text = &text[..text.find("crc32c").unwrap()];
        let sum = types::Crc32c::of(text.as_bytes()).0;
        fs::write(path("two"), format!("{text}crc32c {sum:08x}\n")).unwrap();
        let error = Identity::read(&path("two")).unwrap_err().to_string();
        assert!(error.contains("do not belong together") && error.contains("weir token create"), "{key}: {error}");
        cluster.identity(2, Roles::DISK).write(&path("two")).unwrap();
    }
    assert!(Identity::read(&path("two")).is_ok());
}
