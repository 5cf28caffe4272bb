//! Who may act as an administrator: neither a node, nor an administrator as a node.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rand::{RngCore as _, SeedableRng as _};
use types::{ClusterId, Timestamp};

use super::world::*;
use crate::admin::*;
use crate::channel;
use crate::credentials::{ADMIN_PROTOCOL, INVITE_PROTOCOL, NODE_PROTOCOL};
use crate::hello::Expect;
use crate::*;

/// Keeps one invitation, and answers each connection with the line that it got.
struct TestStore {
    record: Mutex<Option<AdminRecord>>,
    served: Mutex<Vec<AdminName>>,
    /// While this is set, connections stay those of strangers.
    doubts: AtomicBool,
}

impl AdminStore for TestStore {
    fn redeem(
        &self,
        presented: &PresentedInvitation,
        key: &[u8; 32],
        now: Timestamp,
    ) -> Result<AdminGrant, AdminError> {
        let mut kept = self.record.lock();
        let record = check_invitation(kept.as_ref(), presented, key, now)?.clone();
        *kept = Some(AdminRecord { key: Some(*key), ..record.clone() });
        Ok(AdminGrant { validity: record.validity(now, ADMIN_VALIDITY), name: record.name, role: record.role })
    }
}

impl AdminHandler for TestStore {
    fn serve(&self, who: AdminName, stream: AdminStream, stranger: UnidentifiedConnection) {
        self.served.lock().push(who);
        while self.doubts.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(10));
        }
        drop(stranger);
        answer(stream);
    }

    fn serve_with_token(&self, stream: AdminStream, stranger: UnidentifiedConnection) {
        drop(stranger);
        answer(stream);
    }

    /// Answers with the value of the connection.
    fn serve_with_certificate(&self, mut stream: AdminStream, stranger: UnidentifiedConnection) {
        drop(stranger);
        let binding = stream.binding().unwrap();
        let _ = stream.write_all(&binding);
        stream.end();
    }
}

fn answer(mut stream: AdminStream) {
    stream.read_within(Duration::from_secs(1));
    let mut line = Vec::new();
    let mut byte = [0];
    while line.last() != Some(&b'\n') && line.len() < 100 && matches!(stream.read(&mut byte), Ok(1)) {
        line.push(byte[0]);
    }
    let _ = stream.write_all(&line.repeat(1000));
    stream.end();
}

struct Site {
    cluster: Cluster,
    store: Arc<TestStore>,
    manager: Node,
}

impl Site {
    fn new() -> Self {
        let cluster = Cluster::new(1);
        let store =
            Arc::new(TestStore { record: Mutex::new(None), served: Mutex::default(), doubts: AtomicBool::new(false) });
        let service = AdminService {
            authority: Arc::clone(&cluster.authority),
            store: Arc::clone(&store) as _,
            handler: Arc::clone(&store) as _,
            on_admission: Arc::new(|_| ()),
        };
        let others = OtherServices { join: None, admin: Some(Arc::new(service)) };
        let manager = Node::start_with(cluster.us(1, Roles::MANAGER), others);
        Self { cluster, store, manager }
    }

    fn address(&self) -> String {
        self.manager.address().to_string()
    }

    fn invite(&self, valid: Duration) -> Invitation {
        let authority = self.cluster.authority.fingerprint();
        let (invitation, hash) = Invitation::make(vec![self.address()], authority, now().plus(valid)).unwrap();
        *self.store.record.lock() = Some(AdminRecord {
            id: invitation.id,
            name: "alice".into(),
            role: AdminRole::Operator,
            invited: now(),
            invited_by: "root".into(),
            hash,
            invitation_ends: invitation.expires,
            access_ends: None,
            key: None,
            certificate_ends: None,
            revoked: None,
        });
        Invitation::parse(&invitation.text().unwrap()).unwrap()
    }

    fn issued(&self, now: Timestamp, validity: Duration) -> AdminIdentity {
        let subject = AdminName { cluster: ClusterId(1), id: AdminId([7; 16]) };
        AdminIdentity::issue(&self.cluster.authority, subject, vec![self.address()], now, validity).unwrap()
    }

    fn asked(&self, identity: &AdminIdentity) -> std::io::Result<String> {
        let stream = connect_admin(identity, &self.address(), &quick(), SOON);
        let mut stream = stream.map_err(|error| std::io::Error::other(error.to_string()))?;
        stream.write_all(b"hello\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }
}

fn redeemed(invitation: &Invitation, managers: &[String]) -> Result<AdminIdentity, RedeemError> {
    redeem(invitation, &NewKey::draw().unwrap(), managers, &quick())
}

#[test]
fn an_invited_person_connects_with_a_certificate_of_the_cluster() {
    let site = Site::new();
    let invitation = site.invite(DAY);
    let identity = redeemed(&invitation, &invitation.addresses).unwrap();
    assert_eq!((identity.name(), identity.role()), ("alice", AdminRole::Operator));
    assert_eq!(identity.subject().id, invitation.id);
    // It is kept in a file that only its owner can read.
    let path = site.cluster.folder.path().join("contexts/one");
    identity.write(&path).unwrap();
    let identity = AdminIdentity::read(&path).unwrap();
    assert_eq!(site.asked(&identity).unwrap(), "hello\n".repeat(1000));
    assert_eq!(*site.store.served.lock(), [*identity.subject()]);
    // Another key gets nothing for the same invitation.
    let error = redeemed(&invitation, &invitation.addresses).unwrap_err().to_string();
    assert!(error.contains("redeemed already") && error.contains("weir admin revoke alice"), "{error}");
    let late = site.invite(Duration::ZERO);
    let error = redeemed(&late, &late.addresses).unwrap_err().to_string();
    assert!(error.contains("expired"), "{error}");
}

#[test]
fn a_renewed_certificate_is_for_the_same_administrator_and_a_new_key() {
    let site = Site::new();
    let identity = site.issued(now(), DAY);
    assert!(!identity.wants_renewal(now()) && identity.wants_renewal(now().plus(DAY * 3 / 4)));
    let key = NewKey::draw().unwrap();
    let request = key.admin_renewal(identity.subject()).unwrap();
    let answer = site.cluster.authority.renew_admin(identity.subject(), &request, now(), DAY * 2).unwrap();
    let renewed = identity.renewed(&key, &answer, now()).unwrap();
    assert!(renewed.expires() > identity.expires());
    assert_eq!(site.asked(&renewed).unwrap(), "hello\n".repeat(1000));
    assert!(identity.renewed(&NewKey::draw().unwrap(), &answer, now()).is_err(), "of another key");
    let other = AdminName { id: AdminId([8; 16]), ..*identity.subject() };
    assert!(site.cluster.authority.renew_admin(&other, &request, now(), DAY).is_err(), "of somebody else");
}

/// What a node gets that connects as an administrator, with any certificate.
fn end_of(site: &Site, us: &LocalNode, protocol: &[u8]) -> Vec<u8> {
    let mut client = (*us.credentials.current().client).clone();
    client.alpn_protocols = vec![protocol.to_vec()];
    let socket = TcpStream::connect(site.manager.address()).unwrap();
    let (mut halves, _) = channel::connect(socket, client.into(), soon(), SOON).unwrap();
    let _ = halves.writing.send(&[b"{\"ask\":\"status\"}\n"]);
    let mut got = vec![0; 1000];
    let n = halves.reading.read_some(&mut got, soon()).unwrap_or(0);
    got.truncate(n);
    got
}

#[test]
fn a_node_is_no_administrator() {
    let site = Site::new();
    for roles in [Roles::MANAGER, Roles::DISK, Roles::BOTH] {
        assert_eq!(end_of(&site, &site.cluster.us(2, roles), ADMIN_PROTOCOL), b"");
    }
    assert!(site.store.served.lock().is_empty());
    // Without a certificate nobody gets in, either.
    let plain = crate::credentials::joining(site.cluster.authority.fingerprint(), ADMIN_PROTOCOL).unwrap();
    let socket = TcpStream::connect(site.manager.address()).unwrap();
    let (mut halves, _) = channel::connect(socket, plain, soon(), SOON).unwrap();
    assert!(!matches!(halves.reading.fill(&mut [0; 1], soon()), Ok(true)));
    assert!(site.store.served.lock().is_empty());
}

#[test]
fn an_administrator_is_no_node() {
    let site = Site::new();
    let identity = site.issued(now(), DAY);
    let mut client = (*identity.client().unwrap()).clone();
    client.alpn_protocols = vec![NODE_PROTOCOL.to_vec()];
    // Its certificate under a node's hello.
    let us = site.cluster.us(2, Roles::DISK);
    us.credentials.show_as(client);
    let error = Link::try_up(&us, &site.manager, Expect::default()).err().unwrap();
    assert!(site.manager.seen().lines().is_empty(), "{error}");
    // As a server, too: nodes that dial it refuse it, and so does the manager's join.
    let problem = crate::verify::Verifier::of(ClusterId(1), [site.cluster.authority.set().current()]).unwrap().check(
        &identity.certificate_for_tests(),
        &[],
        now(),
    );
    assert_eq!(problem, Err(CertificateProblem::NoNode));
    // And a node of the cluster still gets in.
    assert!(Link::up(&site.cluster.us(3, Roles::DISK), &site.manager).ask("hello").is_ok());
}

#[test]
fn certificates_that_are_not_valid_are_refused() {
    let site = Site::new();
    let long_ago = Timestamp::from_secs(now().secs() - 10 * 86_400);
    let error = site.asked(&site.issued(long_ago, DAY)).unwrap_err();
    assert!(error.to_string().contains("expired"), "{error}");
    // Of the same name, but of another authority. Such a client trusts this manager only if it lies to itself.
    let other = Cluster::new(1);
    let subject = AdminName { cluster: ClusterId(1), id: AdminId([7; 16]) };
    let stranger = AdminIdentity::issue(&other.authority, subject, vec![site.address()], now(), DAY).unwrap();
    let error = site.asked(&stranger).unwrap_err();
    assert!(error.to_string().contains("not made by this cluster's authority"), "{error}");
    let mut client = (*site.issued(now(), DAY).client().unwrap()).clone();
    client.client_auth_cert_resolver = stranger.client().unwrap().client_auth_cert_resolver.clone();
    let socket = TcpStream::connect(site.manager.address()).unwrap();
    let (mut halves, _) = channel::connect(socket, client.into(), soon(), SOON).unwrap();
    assert!(!matches!(halves.reading.fill(&mut [0; 1], soon()), Ok(true)));
    assert!(site.store.served.lock().is_empty());
}

#[test]
fn a_disk_server_serves_no_administrators_and_gets_no_secret() {
    let site = Site::new();
    let disk = site.cluster.node(2, Roles::DISK);
    let identity = site.issued(now(), DAY);
    let error = connect_admin(&identity, &disk.address().to_string(), &quick(), SOON).unwrap_err().to_string();
    assert!(error.contains("which is no manager"), "{error}");
    let invitation = site.invite(DAY);
    let error = redeemed(&invitation, &[disk.address().to_string()]).unwrap_err().to_string();
    assert!(error.contains("which is no manager"), "{error}");
    // A manager of another cluster does not get it, either.
    let other = Cluster::new(2).node(1, Roles::MANAGER);
    let error = redeemed(&invitation, &[other.address().to_string()]).unwrap_err().to_string();
    assert!(error.contains("not the one that"), "{error}");
    assert!(redeemed(&invitation, &[site.address()]).is_ok(), "it was not used up");
}

/// The answer to a token that is sent with the trust in `authority`.
fn asked_with_token(address: String, authority: Fingerprint) -> Result<String, LinkError> {
    let trusted = TrustedCluster { authority, managers: vec![address.clone()] };
    let mut stream = connect_with_token(&trusted, &address, &Settings::default(), Duration::from_secs(5))?;
    stream.write_all(b"token\n").unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    Ok(said)
}

#[test]
fn a_token_is_shown_to_managers_of_the_right_cluster_alone() {
    let site = Site::new();
    let authority = site.cluster.authority.fingerprint();
    assert_eq!(authority.to_string().parse(), Ok(authority));
    for wrong in ["", "00", &"g".repeat(64), &"+".repeat(64), &authority.to_string()[1..]] {
        assert!(wrong.parse::<Fingerprint>().is_err(), "{wrong}");
    }
    assert_eq!(asked_with_token(site.address(), authority).unwrap(), "token\n".repeat(1000));
    assert!(site.store.served.lock().is_empty(), "it is nobody with a certificate");
    let other = asked_with_token(site.address(), Fingerprint([1; 32])).unwrap_err();
    assert!(other.to_string().contains("leads to another cluster"), "{other}");
    let disk = site.cluster.node(2, Roles::DISK);
    let disk = asked_with_token(disk.address().to_string(), authority).unwrap_err();
    assert!(disk.to_string().contains("which is no manager"), "{disk}");
}

#[test]
fn a_manager_of_another_version_says_that_it_does_not_know_the_login() {
    let site = Site::new();
    let plain = crate::credentials::joining(site.cluster.authority.fingerprint(), b"weir-admin-later-9").unwrap();
    let socket = TcpStream::connect(site.manager.address()).unwrap();
    let why = channel::connect(socket, plain, soon(), SOON).map(drop).unwrap_err();
    assert!(matches!(why, CloseCause::UnknownKind), "{why}");
}

#[test]
fn both_ends_of_a_connection_know_a_value_that_no_other_connection_has() {
    let site = Site::new();
    let connect = |address: &str, authority| {
        let trusted = TrustedCluster { authority, managers: vec![address.to_owned()] };
        connect_with_certificate(&trusted, address, &Settings::default(), SOON)
    };
    let (authority, mut values) = (site.cluster.authority.fingerprint(), Vec::new());
    for _ in 0..3 {
        let mut stream = connect(&site.address(), authority).unwrap();
        let mut said = Vec::new();
        stream.read_to_end(&mut said).unwrap();
        assert_eq!(said, stream.binding().unwrap());
        assert!(!values.contains(&said), "the value of another connection");
        values.push(said);
    }
    assert!(
        connect(&site.address(), Fingerprint([1; 32])).unwrap_err().to_string().contains("leads to another cluster")
    );
    let disk = site.cluster.node(2, Roles::DISK);
    let disk = connect(&disk.address().to_string(), authority).unwrap_err();
    assert!(disk.to_string().contains("which is no manager"), "{disk}");
}

#[test]
fn hostile_bytes_with_an_invitation_do_no_harm() {
    let site = Site::new();
    let mut random = vec![0; 3000];
    rand::rngs::StdRng::seed_from_u64(5).fill_bytes(&mut random);
    let long = [&60_000u32.to_le_bytes()[..], &random].concat();
    let unsigned = [&3000u32.to_le_bytes()[..], &random].concat();
    for sent in [&b""[..], b"\0\0\0\0", b"\xff\xff\xff\xff", &long, &unsigned, &random[..3]] {
        let plain = crate::credentials::joining(site.cluster.authority.fingerprint(), INVITE_PROTOCOL).unwrap();
        let socket = TcpStream::connect(site.manager.address()).unwrap();
        let (mut halves, _) = channel::connect(socket, plain, soon(), SOON).unwrap();
        let mut challenge = [0; 40];
        assert!(halves.reading.fill(&mut challenge, soon()).unwrap());
        assert!(challenge.starts_with(b"weiradmn"));
        let _ = halves.writing.send(&[sent]);
        halves.writing.end();
        assert!(!matches!(halves.reading.fill(&mut [0; 1], soon()), Ok(true)), "{sent:?}");
    }
    let invitation = site.invite(DAY);
    assert!(redeemed(&invitation, &invitation.addresses).is_ok());
}

#[test]
fn a_connection_counts_among_strangers_until_its_administrator_may_act() {
    let site = Site::new();
    site.store.doubts.store(true, Ordering::SeqCst);
    let identity = site.issued(now(), DAY);
    let stream = connect_admin(&identity, &site.address(), &quick(), SOON).unwrap();
    let until = Instant::now() + SOON;
    let wait_for = |is_so: &dyn Fn() -> bool| {
        while !is_so() {
            assert!(Instant::now() < until, "{} strangers", site.manager.listener.unidentified());
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    wait_for(&|| !site.store.served.lock().is_empty());
    assert_eq!(site.manager.listener.unidentified(), 1);
    site.store.doubts.store(false, Ordering::SeqCst);
    wait_for(&|| site.manager.listener.unidentified() == 0);
    drop(stream);
}

/// What an invited person, and the listener, get from a manager that is asked with `invitation`.
fn served_once(site: &Site, invitation: &Invitation) -> (Result<AdminIdentity, RedeemError>, Result<(), CloseCause>) {
    let service = AdminService {
        authority: Arc::clone(&site.cluster.authority),
        store: Arc::clone(&site.store) as _,
        handler: Arc::clone(&site.store) as _,
        on_admission: Arc::new(|_| ()),
    };
    let us = site.cluster.us(1, Roles::MANAGER);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| {
            let (socket, address) = listener.accept().unwrap();
            let config = Arc::clone(&us.credentials.current().server);
            let (halves, _) = channel::accept(socket, config, soon(), SOON).unwrap();
            serve_redeem(&service, halves, address, soon())
        });
        let got = redeemed(invitation, std::slice::from_ref(&address));
        (got, serving.join().unwrap())
    })
}

#[test]
fn only_what_needs_the_secret_is_not_left_to_the_listener() {
    let site = Site::new();
    let (invitation, other) = (site.invite(DAY), site.invite(DAY));
    // The record is that of the second invitation: this cluster does not know the first one.
    let (refused, said) = served_once(&site, &invitation);
    assert!(refused.unwrap_err().to_string().contains("does not know the invitation"));
    let said = said.unwrap_err();
    assert!(matches!(&said, CloseCause::Misbehaved(why) if why.contains(&invitation.id.to_string())), "{said}");
    let (welcome, said) = served_once(&site, &other);
    assert!(welcome.is_ok() && said.is_ok());
    let (refused, said) = served_once(&site, &other);
    assert!(refused.unwrap_err().to_string().contains("redeemed already") && said.is_ok());
}

#[test]
fn the_same_key_redeems_an_invitation_again() {
    let site = Site::new();
    let invitation = site.invite(DAY);
    let path = site.cluster.folder.path().join("contexts/.key");
    let again = || redeem(&invitation, &key_to_redeem(&path).unwrap(), &invitation.addresses, &quick());
    let lost = again().unwrap();
    assert_eq!(again().unwrap().subject(), lost.subject());
    std::fs::remove_file(&path).unwrap();
    assert!(again().unwrap_err().to_string().contains("redeemed already"));
}
