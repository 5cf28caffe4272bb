//! Which nodes may connect, and which reasons the others get.

use std::time::Duration;

use types::NodeId;

use super::world::*;
use crate::hello::Expect;
use crate::*;

#[test]
fn nodes_of_a_cluster_recognise_each_other() {
    let cluster = Cluster::new(1);
    let (manager, disk) = (cluster.node(1, Roles::MANAGER), cluster.us(2, Roles::DISK));
    let expect = Expect { node: Some(NodeId(1)), role: Some(Role::Manager) };
    let link = Link::try_up(&disk, &manager, expect).unwrap();
    let identity = link.peer.identity();
    assert_eq!(identity.name, manager.us.credentials.name());
    assert_eq!(
        (identity.version, &*identity.software),
        (Versions::SPOKEN.newest, concat!("weir ", env!("CARGO_PKG_VERSION")))
    );
    assert_eq!(link.ask("hello").unwrap().message, b"hello");
    manager.seen().wait_for("connected node 2 (disk, 127.0.0.1:");
}

#[test]
fn a_node_of_another_cluster_is_refused_on_both_sides() {
    let (ours, theirs) = (Cluster::new(0xaaaa), Cluster::new(0xbbbb));
    let (manager, stranger) = (ours.node(1, Roles::MANAGER), theirs.us(2, Roles::DISK));
    // The connecting side finds out first.
    let error = Link::try_up(&stranger, &manager, Expect::default()).err().unwrap();
    let CloseCause::Certificate(CertificateProblem::OtherCluster { theirs: shown, ours: own }) = error.why else {
        panic!("{error}")
    };
    assert_eq!((shown.0, own.0), (0xaaaa, 0xbbbb));
    // If it does not check, the other side finds out.
    let blind = blind(&theirs.identity(2, Roles::DISK), &ours);
    let error = Link::try_up(&blind, &manager, Expect::default()).err().unwrap();
    assert!(
        matches!(error.why, CloseCause::OurCertificate(_)) && error.to_string().contains("compare `cluster`"),
        "{error}"
    );
    assert!(manager.seen().lines().is_empty(), "nobody came in");
}

/// A node that shows `identity` but trusts the nodes of `cluster`.
fn blind(identity: &Identity, cluster: &Cluster) -> LocalNode {
    let us = local_node_of(identity);
    let believes = cluster.us(99, Roles::DISK);
    let mut client = (*believes.credentials.current().client).clone();
    client.client_auth_cert_resolver = us.credentials.current().client.client_auth_cert_resolver.clone();
    us.credentials.show_as(client);
    us
}

#[test]
fn a_new_authority_of_the_same_cluster_is_not_trusted() {
    let (old, new) = (Cluster::new(7), Cluster::new(7));
    let manager = new.node(1, Roles::MANAGER);
    let error = Link::try_up(&old.us(2, Roles::DISK), &manager, Expect::default()).err().unwrap();
    assert!(matches!(error.why, CloseCause::Certificate(CertificateProblem::UnknownAuthority)), "{error}");
    let blind = blind(&old.identity(2, Roles::DISK), &new);
    let error = Link::try_up(&blind, &manager, Expect::default()).err().unwrap();
    assert!(matches!(error.why, CloseCause::OurCertificate(rustls::AlertDescription::UnknownCA)), "{error}");
}

#[test]
fn both_sides_report_an_expired_certificate() {
    let cluster = Cluster::new(1);
    let long_ago = types::Timestamp::from_secs(now().secs() - 10 * 86_400);
    let expired = Identity::issue(&cluster.authority, NodeId(2), Roles::DISK, long_ago, DAY).unwrap();
    let manager = cluster.node(1, Roles::MANAGER);
    let error = Link::try_up(&local_node_of(&expired), &manager, Expect::default()).err().unwrap();
    assert!(matches!(error.why, CloseCause::OurCertificate(rustls::AlertDescription::CertificateExpired)), "{error}");
    assert!(error.to_string().contains("join again with a new token"), "{error}");
    // And the other way round: a server whose certificate has expired.
    let away = Node::start(local_node_of(&expired), None);
    let error = Link::try_up(&cluster.us(3, Roles::DISK), &away, Expect::default()).err().unwrap();
    let CloseCause::Certificate(CertificateProblem::Expired { ago }) = error.why else { panic!("{error}") };
    assert!(ago > 8 * DAY && ago < 10 * DAY, "{ago:?}");
}

#[test]
fn a_certificate_of_the_future_means_a_wrong_clock() {
    let cluster = Cluster::new(1);
    let ahead = Identity::issue(&cluster.authority, NodeId(2), Roles::DISK, now().plus(DAY), DAY).unwrap();
    let node = Node::start(local_node_of(&ahead), None);
    let error = Link::try_up(&cluster.us(3, Roles::DISK), &node, Expect::default()).err().unwrap();
    assert!(matches!(error.why, CloseCause::Certificate(CertificateProblem::NotYet { .. })), "{error}");
    assert!(error.to_string().contains("a clock is wrong"), "{error}");
    // Clocks may differ by up to an hour.
    let little = Identity::issue(&cluster.authority, NodeId(2), Roles::DISK, now().plus(DAY / 48), DAY).unwrap();
    Link::up(&cluster.us(3, Roles::DISK), &Node::start(local_node_of(&little), None));
}

#[test]
fn both_sides_report_an_unexpected_role_or_node() {
    let cluster = Cluster::new(1);
    let (disk, other) = (cluster.node(2, Roles::DISK), cluster.us(3, Roles::DISK));
    let wrong_role = Expect { node: None, role: Some(Role::Manager) };
    let error = Link::try_up(&other, &disk, wrong_role).err().unwrap();
    assert!(error.to_string().contains("node 2 is a disk server, and a manager server is wanted"), "{error}");
    let wrong_node = Expect { node: Some(NodeId(5)), role: None };
    let error = Link::try_up(&other, &disk, wrong_node).err().unwrap();
    assert!(error.to_string().contains("there is node 2, and node 5 is wanted"), "{error}");
}

#[test]
fn a_node_cannot_claim_more_than_its_certificate_says() {
    let cluster = Cluster::new(1);
    let (manager, disk) = (cluster.node(1, Roles::MANAGER), cluster.us(2, Roles::DISK));
    for boast in [
        NodeName { roles: Roles::MANAGER, ..disk.credentials.name() },
        NodeName { node: NodeId(1), ..disk.credentials.name() },
    ] {
        let mut rogue = Rogue::connect(&disk, &manager);
        let hello =
            Hello { versions: Versions::SPOKEN, name: boast, requests_max: 1, bytes_max: 1, software: String::new() };
        rogue.send(&hello.to_bytes());
        let mut answer = [0; HELLO_BYTES + 4];
        assert!(rogue.halves.reading.fill(&mut answer, soon()).unwrap());
        let length = usize::from(u16::from_le_bytes([answer[HELLO_BYTES + 2], answer[HELLO_BYTES + 3]]));
        let mut reason = vec![0; length];
        rogue.halves.reading.fill(&mut reason, soon()).unwrap();
        let reason = String::from_utf8(reason).unwrap();
        assert_eq!(answer[HELLO_BYTES], 1);
        assert!(reason.contains(&format!("says that it is {boast}")), "{reason}");
    }
}

#[test]
fn a_certificate_with_two_names_is_refused() {
    use rcgen::{CertificateParams, KeyPair, PKCS_ED25519, SanType};
    let names = ["weir:00000000000000000000000000000001:2:disk", "weir:00000000000000000000000000000001:1:manager"];
    let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
    let certificate = |names: &[&str], dns: &[&str]| {
        let mut params = CertificateParams::default();
        params.subject_alt_names = names.iter().map(|name| SanType::URI((*name).try_into().unwrap())).collect();
        params.subject_alt_names.extend(dns.iter().map(|name| SanType::DnsName((*name).try_into().unwrap())));
        params.self_signed(&key).unwrap().der().clone()
    };
    assert!(crate::verify::name_of(&certificate(&names[..1], &[])).is_some());
    assert_eq!(crate::verify::name_of(&certificate(&names, &[])), None);
    assert_eq!(crate::verify::name_of(&certificate(&names[..1], &["a.b"])), None);
    assert_eq!(crate::verify::name_of(&certificate(&[], &["a.b"])), None);
    assert_eq!(crate::verify::name_of(&certificate(&["https://weir"], &[])), None);
}

#[test]
fn a_removed_node_gets_the_reason() {
    let cluster = Cluster::new(1);
    let manager = cluster.node(1, Roles::MANAGER);
    *manager.answers.unwanted.lock() = Some(NodeId(2));
    let error = Link::try_up(&cluster.us(2, Roles::DISK), &manager, Expect::default()).err().unwrap();
    let CloseCause::Refused(reason) = &error.why else { panic!("{error}") };
    assert_eq!(reason, "node 2 was removed from the cluster");
    Link::up(&cluster.us(3, Roles::DISK), &manager);
}

#[test]
fn both_sides_report_versions_without_a_common_one() {
    let cluster = Cluster::new(1);
    for (ours, theirs, upgrade) in [((1, 1), (2, 3), "upgrade node 2"), ((2, 3), (1, 1), "upgrade node 1")] {
        let speaks = |us: LocalNode, (oldest, newest)| LocalNode { versions: Versions { oldest, newest }, ..us };
        let manager = Node::start(speaks(cluster.us(1, Roles::MANAGER), theirs), None);
        let error = Link::try_up(&speaks(cluster.us(2, Roles::DISK), ours), &manager, Expect::default()).err().unwrap();
        assert!(matches!(error.why, CloseCause::Hello(HelloProblem::Version { .. })), "{error}");
        let text = error.to_string();
        assert!(text.contains("version 1") && text.contains("versions 2 to 3") && text.contains(upgrade), "{text}");
        assert!(manager.seen().lines().is_empty());
    }
    // One common version is enough.
    let newer = LocalNode {
        versions: Versions { oldest: 1, newest: Versions::SPOKEN.newest },
        ..cluster.us(1, Roles::MANAGER)
    };
    let link = Link::up(&cluster.us(2, Roles::DISK), &Node::start(newer, None));
    assert_eq!(link.peer.identity().version, Versions::SPOKEN.newest);
}

#[test]
fn both_sides_name_the_older_of_two_builds() {
    let cluster = Cluster::new(1);
    let ours = Versions::SPOKEN;
    for number in [ours.newest - 1, ours.newest + 1] {
        let other = Versions { oldest: number, newest: number };
        // A disk server of this build at a manager of another, and the reverse. The connecting side reads the reason,
        // and the listening side sends it.
        for (of_manager, of_disk) in [(other, ours), (ours, other)] {
            let manager = Node::start(LocalNode { versions: of_manager, ..cluster.us(1, Roles::MANAGER) }, None);
            let disk = LocalNode { versions: of_disk, ..cluster.us(2, Roles::DISK) };
            let dialed = Link::try_up(&disk, &manager, Expect::default()).err().unwrap().to_string();
            let heard = Rogue::connect(&disk, &manager).verdict_on(&disk);
            let behind = if of_manager.newest < of_disk.newest { 1 } else { 2 };
            for part in [
                "node 1 (weir ".to_owned(),
                format!("speaks {of_manager} of the protocol"),
                "node 2 (weir ".to_owned(),
                format!("speaks {of_disk}"),
                format!("upgrade node {behind}"),
            ] {
                assert!(dialed.contains(&part) || part.contains("of the protocol"), "{dialed:?} without {part:?}");
                assert!(heard.contains(&part), "{heard:?} without {part:?}");
            }
        }
    }
}

#[test]
fn unreachable_silent_and_foreign_servers_are_reported() {
    let cluster = Cluster::new(1);
    let us = cluster.us(2, Roles::DISK);
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = nobody.local_addr().unwrap();
    // A server that accepts and stays silent.
    let impatient =
        LocalNode { settings: Settings { connect_time: Duration::from_millis(200), ..quick() }, ..us.clone() };
    let error = connect::<Vec<u8>>(&impatient, address, Expect::default()).unwrap_err();
    assert!(
        matches!(error.why, CloseCause::Slow { .. }) && error.to_string().contains(&address.to_string()),
        "{error}"
    );
    // A server of another protocol.
    let other = std::thread::spawn(move || {
        use std::io::{Read as _, Write as _};
        let (mut first, _) = nobody.accept().unwrap();
        let (mut second, _) = nobody.accept().unwrap();
        second.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
        let _ = second.read(&mut [0; 1000]);
        let _ = first.read(&mut [0; 1000]);
    });
    let error = connect::<Vec<u8>>(&us, address, Expect::default()).unwrap_err();
    assert!(
        matches!(error.why, CloseCause::Tls(_)) && error.to_string().contains("is this the address of a weir node"),
        "{error}"
    );
    other.join().unwrap();
    let error = connect::<Vec<u8>>(&us, address, Expect::default()).unwrap_err();
    assert!(matches!(error.why, CloseCause::Connect(_)), "{error}");
}
