//! What nodes and their manager settle before they exchange other messages: tokens, registration and certificates. The tests use a real namespace and
//! real sockets.

#![allow(clippy::unwrap_used, clippy::panic)] // a test may fail this way

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use kv::MemoryKv;
use link::{
    Authority, Credentials, Identity, JoinService, JoinToken, Joined, LinkError, Listener, LocalNode, NewKey,
    PeerIdentity, Roles, Settings, TokenError, TokenRequest, TokenStore as _,
};
use manager::administrators::Administrators;
use manager::registration::{ManagerRegistration, Shares};
use manager::tokens::Tokens;
use manager::{OtherManagers, StoredFiles, other_managers};
use namespace::{Actor, Durability, FoundCluster, Namespace, NamespaceConfig, RemoveMember};
use node::links::{Links, Peer, Received, Receiver, RegistrationHandler as _};
use node::registration::{self, Registration, RegistrationError, StoreClaim};
use node::renewal::{CertificateRenewal, Move};
use node::{ChangedEntries, ChangedEntry, Changes, ClusterState, Committed, SpaceState};
use tempfile::TempDir;
use types::{ClusterId, NodeId, ObjectId, StoreId, Timestamp};

const SOON: Duration = Duration::from_secs(20);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);

fn now() -> Timestamp {
    SystemTime::now().into()
}

struct Quiet;

impl Receiver for Quiet {
    fn connected(&self, _: NodeId, _: &Peer) {}
    fn received(&self, _: NodeId, _: Received) {}
    fn ended(&self, _: NodeId, _: &LinkError) {}
}

/// A cluster with its first manager, which accepts joining nodes.
struct Cluster {
    folder: TempDir,
    kv: Arc<MemoryKv>,
    authority: Arc<Authority>,
    namespace: Arc<Namespace>,
    tokens: Tokens,
    others: OtherManagers,
    may_grant: Arc<AtomicBool>,
    links: Arc<Links>,
    address: SocketAddr,
}

impl Cluster {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Authority::create(folder.path(), ClusterId(1), now()).unwrap();
        let kv = Arc::new(MemoryKv::new());
        let namespace = Namespace::open(Arc::clone(&kv) as _, now(), NamespaceConfig::default()).unwrap();
        let found = FoundCluster { roles: 1, name: "mgr".into(), key: [0; 32] };
        namespace.change_wait(Durability::Synced, namespace.context(now(), &Actor::admin(), None), found).unwrap();
        drop(namespace);
        Self::start(folder, kv)
    }

    /// Starts the manager with what an earlier one has left.
    fn start(folder: TempDir, kv: Arc<MemoryKv>) -> Self {
        let authority = Arc::new(Authority::open(folder.path()).unwrap());
        let namespace = Namespace::open(Arc::clone(&kv) as _, now(), NamespaceConfig::default()).unwrap();
        let others = OtherManagers::default();
        let tokens = Tokens::new(Arc::clone(&namespace), others.clone());
        let identity = Identity::issue(&authority, NodeId(1), Roles::MANAGER, now(), DAY).unwrap();
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let links = Links::new(us(&identity));
        let join = JoinService {
            authority: Arc::clone(&authority),
            tokens: Arc::new(tokens.clone()),
            validity: DAY,
            on_admission: Arc::new(|_| ()),
        };
        let may_grant = Arc::new(AtomicBool::new(true));
        let asked = Arc::clone(&may_grant);
        let registration = ManagerRegistration::new(
            Arc::clone(&namespace),
            Arc::clone(&authority),
            2 * DAY,
            Box::new(now),
            Box::new(move || asked.load(Ordering::Relaxed)),
        );
        let services = link::OtherServices { join: Some(Arc::new(join)), admin: None };
        links.start(&listener, services, Some(Arc::new(registration)), Arc::new(Quiet)).unwrap();
        let address = listener.address();
        Self { folder, kv, authority, namespace, tokens, others, may_grant, links, address }
    }

    fn restart(&mut self) {
        self.links.stop("the manager starts again", SOON);
        let folder = std::mem::replace(&mut self.folder, tempfile::tempdir().unwrap());
        *self = Self::start(folder, Arc::clone(&self.kv));
    }

    fn token(&self, roles: Roles) -> JoinToken {
        self.token_for(roles, 1)
    }

    /// A token for `uses` nodes.
    fn token_for(&self, roles: Roles, uses: u16) -> JoinToken {
        let addresses = vec![self.address.to_string()];
        let text = self.tokens.make(addresses, self.authority.fingerprint(), roles, uses, HOUR, now()).unwrap();
        JoinToken::parse(&text).unwrap()
    }

    fn disk(&self, name: &str) -> Identity {
        link::join(&self.token(Roles::DISK), &NewKey::draw().unwrap(), Roles::DISK, name, &Settings::default()).unwrap()
    }

    /// The manager's registration, for requests that arrive on no connection.
    fn desk(&self) -> ManagerRegistration {
        let (namespace, authority) = (Arc::clone(&self.namespace), Arc::clone(&self.authority));
        ManagerRegistration::new(namespace, authority, DAY, Box::new(now), Box::new(|| true))
    }

    /// The node with this identity, as the manager sees it on a connection.
    fn peer_of(&self, identity: &Identity) -> PeerIdentity {
        let (_node, until) = (Disk::new(self, us(identity)), Instant::now() + SOON);
        loop {
            let found = self.links.connected().into_iter().find(|peer| peer.name == *identity.name());
            match found {
                Some(peer) => return peer,
                None => assert!(Instant::now() < until, "it is not connected"),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn remove(&self, node: NodeId) {
        let ctx = self.namespace.context(now(), &Actor::admin(), None);
        self.namespace.change_wait(Durability::Synced, ctx, RemoveMember { node }).unwrap();
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.links.stop("the test is over", SOON);
    }
}

fn us(identity: &Identity) -> LocalNode {
    LocalNode::new(Arc::new(Credentials::new(identity).unwrap()), Settings::default())
}

/// A disk server that is connected to its manager.
struct Disk(Arc<Links>);

impl Disk {
    fn new(cluster: &Cluster, us: LocalNode) -> Self {
        let links = Links::new(us);
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        links.start(&listener, link::OtherServices::default(), None, Arc::new(Quiet)).unwrap();
        links.keep_manager(&cluster.address.to_string());
        let until = Instant::now() + SOON;
        while links.peer(NodeId(1)).is_none() {
            assert!(Instant::now() < until, "it is not connected");
            std::thread::sleep(Duration::from_millis(5));
        }
        Self(links)
    }

    fn register(&self, registration: &Registration) -> Result<(), RegistrationError> {
        registration::register(&self.0, NodeId(1), registration)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.0.stop("the test is over", SOON);
    }
}

fn with_store(store: u64, location: &str) -> Registration {
    let claim = StoreClaim { store: StoreId(store), location: location.into(), class: Some("t1".into()) };
    Registration {
        run: 1,
        for_nodes: vec!["127.0.0.1:5".into()],
        for_clients: vec!["127.0.0.1:6".into()],
        stores: vec![claim],
    }
}

#[test]
fn nodes_join_with_tokens_that_the_namespace_keeps() {
    let cluster = Cluster::new();
    let identity = cluster.disk("disk1");
    assert_eq!((identity.name().node, identity.name().roles), (NodeId(2), Roles::DISK));
    let member = cluster.namespace.read(|read| namespace::member(read, NodeId(2))).unwrap().unwrap();
    assert_eq!((member.name.as_str(), member.roles), ("disk1", Roles::DISK.bits()));
    // A second node uses a spent token, and another node wants a role that its token does not allow.
    let (token, key) = (cluster.token(Roles::DISK), NewKey::draw().unwrap());
    let wish = |key: &NewKey, roles| TokenRequest { roles, name: "disk2".into(), key: key.public() };
    let take =
        |wish: &TokenRequest, at| cluster.tokens.take(&token.presented(), wish, at).map_err(|error| error.to_string());
    assert!(take(&wish(&key, Roles::MANAGER), now()).unwrap_err().contains("as disk, not as manager"));
    assert!(take(&wish(&key, Roles::DISK), now().plus(2 * HOUR)).unwrap_err().contains("expired"));
    let joined = Joined { node: NodeId(3), roles: Roles::DISK };
    assert_eq!(take(&wish(&key, Roles::DISK), now()), Ok(joined));
    assert_eq!(take(&wish(&key, Roles::DISK), now()), Ok(joined), "its answer was lost");
    let other = NewKey::draw().unwrap();
    assert!(take(&wish(&other, Roles::DISK), now()).unwrap_err().contains("was used already, by node 3"));
}

#[test]
fn a_repeated_join_gets_the_same_node_until_that_is_removed() {
    let cluster = Cluster::new();
    let (token, key) = (cluster.token(Roles::BOTH), NewKey::draw().unwrap());
    let take = |roles| {
        let wish = TokenRequest { roles, name: "disk1".into(), key: key.public() };
        cluster.tokens.take(&token.presented(), &wish, now())
    };
    let joined = Joined { node: NodeId(2), roles: Roles::DISK };
    assert_eq!(take(Roles::DISK), Ok(joined));
    assert_eq!(take(Roles::BOTH), Ok(joined), "the token would have let it be more");
    cluster.remove(NodeId(2));
    let removed = take(Roles::DISK).unwrap_err();
    assert!(removed.to_string().contains("used by node 2, which was removed from this cluster"), "{removed}");
}

#[test]
fn a_token_in_use_by_a_joining_node_is_not_revoked() {
    let cluster = Cluster::new();
    for number in 0..20 {
        let token = cluster.token(Roles::DISK);
        let (joined, revoked) = std::thread::scope(|scope| {
            let join = scope.spawn(|| {
                let wish = TokenRequest { roles: Roles::DISK, name: "d".into(), key: NewKey::draw().unwrap().public() };
                cluster.tokens.take(&token.presented(), &wish, now())
            });
            let revoked = cluster.tokens.revoke(&token.presented().id.to_string(), now());
            (join.join().unwrap(), revoked)
        });
        assert!(joined.is_ok() != revoked.is_ok(), "{number}: {joined:?}, {revoked:?}");
    }
}

#[test]
fn one_token_admits_one_of_many_machines() {
    let cluster = Cluster::new();
    let token = cluster.token(Roles::DISK);
    let results: Vec<_> = std::thread::scope(|scope| {
        let join = |_| {
            let (tokens, token) = (cluster.tokens.clone(), token.clone());
            scope.spawn(move || {
                let wish = TokenRequest { roles: Roles::DISK, name: "d".into(), key: NewKey::draw().unwrap().public() };
                tokens.take(&token.presented(), &wish, now())
            })
        };
        let threads: Vec<_> = (0..8).map(join).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let used = |error: &link::TakeError| matches!(error, link::TakeError::Token(TokenError::Used { nodes, .. }) if nodes.0 == [NodeId(2)]);
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1, "{results:?}");
    assert_eq!(results.iter().filter(|result| result.as_ref().is_err_and(used)).count(), 7, "{results:?}");
    assert_eq!(cluster.namespace.read(namespace::members).unwrap().len(), 2);
}

#[test]
fn one_token_admits_as_many_of_many_machines_as_it_is_for() {
    let cluster = Cluster::new();
    let token = cluster.token_for(Roles::DISK, 20);
    let start = std::sync::Barrier::new(40);
    let results: Vec<_> = std::thread::scope(|scope| {
        let join = |_| {
            let (tokens, token, start) = (cluster.tokens.clone(), token.clone(), &start);
            scope.spawn(move || {
                let wish = TokenRequest { roles: Roles::DISK, name: "d".into(), key: NewKey::draw().unwrap().public() };
                start.wait();
                tokens.take(&token.presented(), &wish, now())
            })
        };
        let threads: Vec<_> = (0..40).map(join).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let used = |error: &link::TakeError| matches!(error, link::TakeError::Token(TokenError::Used { .. }));
    assert_eq!(results.iter().filter(|result| result.as_ref().is_err_and(used)).count(), 20, "{results:?}");
    let mut nodes: Vec<u64> = results.iter().filter_map(|result| Some(result.as_ref().ok()?.node.0)).collect();
    nodes.sort_unstable();
    assert_eq!(nodes, (2..22).collect::<Vec<_>>(), "each got a number of its own");
    let shown = cluster.tokens.list(now()).unwrap().remove(0);
    assert_eq!((shown.uses, shown.used_by.len()), (20, 20));
    assert!(cluster.tokens.revoke(&shown.id, now()).is_err(), "it is used up");
}

#[test]
fn a_disk_server_registers_its_addresses_and_stores() {
    let cluster = Cluster::new();
    let disk = Disk::new(&cluster, us(&cluster.disk("disk1")));
    disk.register(&with_store(77, "cern/r1/d1")).unwrap();
    disk.register(&with_store(77, "cern/r2/d1")).unwrap();
    let store = cluster.namespace.read(|read| namespace::store(read, StoreId(77))).unwrap().unwrap();
    assert_eq!((store.node, store.location.as_str()), (NodeId(2), "cern/r2/d1"));
    let member = cluster.namespace.read(|read| namespace::member(read, NodeId(2))).unwrap().unwrap();
    assert_eq!((member.for_nodes, member.for_clients), (vec!["127.0.0.1:5".into()], vec!["127.0.0.1:6".to_owned()]));
    let nowhere = disk.register(&with_store(78, "cern")).unwrap_err();
    assert!(nowhere.to_string().contains("`cern` is not a location"), "{nowhere}");
    let one = with_store(1, "a/b/c").stores;
    let many = Registration { stores: one.into_iter().cycle().take(1025).collect(), ..with_store(1, "a/b/c") };
    assert!(matches!(disk.register(&many), Err(RegistrationError::Refused { .. })));
}

#[test]
fn a_registered_address_must_be_valid() {
    let cluster = Cluster::new();
    let disk = Disk::new(&cluster, us(&cluster.disk("disk1")));
    for good in ["ds1.example.org:1095", "[2001:db8::1]:1", "10.0.0.1:65535"] {
        disk.register(&Registration { for_clients: vec![good.into()], ..with_store(77, "a/b/c") }).unwrap();
    }
    for wrong in [
        "ds1",
        "ds1:",
        ":5",
        "ds1:0",
        "ds1:65536",
        "ds1:+5",
        "ds 1:5",
        "a\u{1b}[2J:5",
        "::1:5",
        "[x]:5",
        "a/b:5",
        "ä:5",
    ] {
        let node = Registration { for_nodes: vec![wrong.into()], ..with_store(77, "a/b/c") };
        let client = Registration { for_clients: vec![wrong.into()], ..with_store(77, "a/b/c") };
        for registration in [node, client] {
            let refused = disk.register(&registration).unwrap_err();
            assert!(
                matches!(&refused, RegistrationError::Refused { reason, .. } if reason.contains("host:port")),
                "{refused}"
            );
            assert!(!refused.to_string().contains('\u{1b}'), "{refused}");
        }
    }
}

#[test]
fn a_store_that_another_node_has_is_refused_with_its_name() {
    let cluster = Cluster::new();
    let one = Disk::new(&cluster, us(&cluster.disk("disk1")));
    let two = Disk::new(&cluster, us(&cluster.disk("disk2")));
    one.register(&with_store(77, "cern/r1/d1")).unwrap();
    let refused = two.register(&with_store(77, "cern/r1/d2")).unwrap_err();
    assert!(refused.to_string().contains("store 77 is at node 2 (disk1) already"), "{refused}");
    two.register(&with_store(78, "cern/r1/d2")).unwrap();
}

#[test]
fn of_two_processes_with_one_identity_only_one_stays() {
    let cluster = Cluster::new();
    let disk = Disk::new(&cluster, us(&cluster.disk("disk1")));
    let of_run = |run| disk.register(&Registration { run, ..with_store(77, "cern/r1/d1") });
    // The server restarts again and again, and reconnects in each run.
    for run in [1, 1, 2, 2, 2, 3] {
        of_run(run).unwrap();
    }
    let twin = of_run(2).unwrap_err();
    assert!(twin.to_string().contains("another process runs as node 2"), "{twin}");
    of_run(3).unwrap();
}

#[test]
fn a_removed_node_is_told_so_and_stays_out() {
    let cluster = Cluster::new();
    let identity = cluster.disk("disk1");
    drop(Disk::new(&cluster, us(&identity)));
    cluster.remove(NodeId(2));
    let refused = link::connect::<Vec<u8>>(&us(&identity), cluster.address, link::Expect::default()).unwrap_err();
    assert!(refused.to_string().contains("node 2 is not in this cluster any more"), "{refused}");
}

#[test]
fn a_node_removed_while_connected_can_no_longer_register() {
    let cluster = Cluster::new();
    let identity = cluster.disk("disk1");
    let disk = Disk::new(&cluster, us(&identity));
    let request = NewKey::draw().unwrap().renewal(identity.name()).unwrap();
    registration::renew(&disk.0, NodeId(1), &request).unwrap();
    cluster.remove(NodeId(2));
    let refused = registration::renew(&disk.0, NodeId(1), &request).unwrap_err();
    assert!(refused.to_string().contains("node 2 is not in this cluster any more"), "{refused}");
    assert!(matches!(disk.register(&with_store(77, "a/b/c")), Err(RegistrationError::Refused { .. })));
}

#[test]
fn the_manager_renews_a_certificate_and_the_node_keeps_it() {
    let cluster = Cluster::new();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("identity");
    let identity = cluster.disk("disk1");
    identity.write(&path).unwrap();
    let (before, name) = (identity.expires(), *identity.name());
    let disk = Disk::new(&cluster, us(&identity));
    let links = Arc::clone(&disk.0);
    let sign = move |request: &[u8]| registration::renew(&links, NodeId(1), request).map_err(|error| error.to_string());
    let credentials = Arc::clone(&disk.0.us().credentials);
    // A day is more than a third of two days.
    let (validity, clock) = (2 * DAY, Box::new(now));
    let file = path.clone();
    let keep = Box::new(move |identity: &Identity| identity.write(&file).map_err(|error| error.to_string()));
    let (sign, trusted, moved) = (Box::new(sign), Box::new(|| Ok(None)), Box::new(|_| ()));
    let mut renewing = CertificateRenewal { identity, keep, credentials, validity, clock, sign, trusted, moved };
    assert_eq!(renewing.look(), Ok(false));
    renewing.clock = Box::new(|| now().plus(HOUR * 9));
    assert_eq!(renewing.look(), Ok(true));
    let kept = Identity::read(&path).unwrap();
    assert!(kept.expires() > before && *kept.name() == name);
    // Nobody signs, so the node keeps its certificate.
    renewing.clock = Box::new(|| now().plus(47 * HOUR));
    renewing.sign = Box::new(|_| Err("no manager is connected".into()));
    assert_eq!(renewing.look(), Err("no manager is connected".into()));
    assert_eq!(Identity::read(&path).unwrap().expires(), kept.expires());
    // New connections use the renewed certificate.
    disk.0.peer(NodeId(1)).unwrap().cut("for a new one");
    let until = Instant::now() + SOON;
    while disk.0.peer(NodeId(1)).is_none() {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(5));
    }
    disk.register(&with_store(77, "cern/r1/d1")).unwrap();
}

/// The renewal of a connected disk server.
fn renewal(disk: &Disk, identity: Identity, path: std::path::PathBuf) -> CertificateRenewal {
    let (signing, asking, moving) = (Arc::clone(&disk.0), Arc::clone(&disk.0), Arc::clone(&disk.0));
    let words = |error: RegistrationError| error.to_string();
    CertificateRenewal {
        identity,
        keep: Box::new(move |identity| identity.write(&path).map_err(|error| error.to_string())),
        credentials: Arc::clone(&disk.0.us().credentials),
        validity: DAY,
        clock: Box::new(now),
        sign: Box::new(move |request| registration::renew(&signing, NodeId(1), request).map_err(words)),
        trusted: Box::new(move || registration::authorities(&asking, NodeId(1)).map(Some).map_err(words)),
        moved: Box::new(move |one| match one {
            Move::Joined => moving.reopen("the authority was replaced"),
            Move::Alone(_) => drop(moving.cut_strangers()),
        }),
    }
}

/// The identity once more, from its file.
fn written(identity: &Identity, path: &std::path::Path) -> Identity {
    identity.write(path).unwrap();
    Identity::read(path).unwrap()
}

/// Waits until `is_so`.
fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let until = Instant::now() + SOON;
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn nodes_move_to_a_new_authority_and_then_drop_the_old_one() {
    let cluster = Cluster::new();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("identity");
    let (identity, token) = (cluster.disk("disk1"), cluster.token(Roles::DISK));
    let old = cluster.authority.fingerprint();
    // Whoever has the old key could have made this certificate, too.
    let stolen = cluster.disk("disk3");
    let disk = Disk::new(&cluster, us(&identity));
    let mut renewing = renewal(&disk, written(&identity, &path), path.clone());
    assert_eq!(renewing.look(), Ok(false), "nothing is replaced");
    let manager_renews = || {
        let identity = Identity::issue(&cluster.authority, NodeId(1), Roles::MANAGER, now(), DAY).unwrap();
        cluster.links.us().credentials.replace(&identity).unwrap();
    };
    cluster.authority.rotate(now()).unwrap();
    manager_renews();
    let new = cluster.authority.fingerprint();
    let renewed = || cluster.authority.replacement().unwrap().renewed.into_iter().collect::<Vec<_>>();
    assert_eq!(renewing.look(), Ok(true));
    let kept = Identity::read(&path).unwrap();
    assert_eq!((kept.authority().fingerprint(), kept.authority().previous()), (new, Some(old)));
    assert!(renewed().is_empty(), "it has not shown the new certificate yet");
    let shown = || cluster.links.connected().first().and_then(|peer| peer.authority);
    wait_until("it connects again", || shown() == Some(new) && disk.0.peer(NodeId(1)).is_some());
    assert_eq!(renewing.look(), Ok(false));
    assert_eq!(renewed(), [NodeId(2)]);
    // A token of before the rotation still works.
    let joined = link::join(&token, &NewKey::draw().unwrap(), Roles::DISK, "disk2", &Settings::default()).unwrap();
    assert_eq!(joined.authority().fingerprint(), new);
    // Somebody with the old key makes a certificate for the node that has moved: it gets none of the new authority.
    let thief = Disk::new(&cluster, us(&identity));
    let request = NewKey::draw().unwrap().renewal(identity.name()).unwrap();
    let refused = registration::renew(&thief.0, NodeId(1), &request).unwrap_err().to_string();
    assert!(refused.contains("has a certificate of the new authority already"), "{refused}");
    drop(thief);
    wait_until("the node is back", || shown() == Some(new) && disk.0.peer(NodeId(1)).is_some());

    let thief = Disk::new(&cluster, us(&stolen));
    assert!(cluster.links.cut_strangers().is_empty(), "both authorities are trusted");
    cluster.authority.retire().unwrap();
    // The manager still shows a certificate of before, and the connections are still there.
    let request = NewKey::draw().unwrap().renewal(stolen.name()).unwrap();
    let refused = registration::renew(&thief.0, NodeId(1), &request).unwrap_err().to_string();
    assert!(refused.contains("authority that the cluster has replaced"), "{refused}");
    let connected = link::connect::<node::links::Buffer>(&us(&stolen), cluster.address, link::Expect::default());
    let refused = connected.map(drop).unwrap_err().to_string();
    assert!(refused.contains("authority that the cluster has replaced"), "{refused}");
    manager_renews();
    assert_eq!(cluster.links.cut_strangers(), [stolen.name().node], "the node that has moved stays connected");
    drop(thief);
    assert_eq!(renewing.look(), Ok(true));
    let kept = Identity::read(&path).unwrap();
    assert_eq!((kept.authority().fingerprint(), kept.authority().previous()), (new, None));
    assert_eq!(renewing.look(), Ok(false));
    // What was made with the old key opens nothing any more.
    let refused = link::connect::<node::links::Buffer>(&us(&identity), cluster.address, link::Expect::default());
    assert!(refused.is_err());
}

#[test]
fn a_manager_that_is_restored_to_before_the_rotation_keeps_the_nodes_connected() {
    let cluster = Cluster::new();
    let copy = tempfile::tempdir().unwrap();
    std::fs::copy(cluster.folder.path().join("authority"), copy.path().join("authority")).unwrap();
    let old = cluster.disk("disk1");
    cluster.authority.rotate(now()).unwrap();
    let key = NewKey::draw().unwrap();
    let answer = cluster.authority.renew(old.name(), &key.renewal(old.name()).unwrap(), now(), DAY).unwrap();
    let moved = old.renewed(&key, &answer).unwrap();
    let restored = Cluster::start(copy, Arc::clone(&cluster.kv));
    let disk = Disk::new(&restored, us(&moved));
    assert!(restored.links.cut_strangers().is_empty() && disk.0.cut_strangers().is_empty());
    // It follows the manager.
    let path = restored.folder.path().join("identity");
    let mut renewing = renewal(&disk, written(&moved, &path), path.clone());
    assert_eq!(renewing.look(), Ok(true));
    assert_eq!(Identity::read(&path).unwrap().authority(), &restored.authority.set());
}

#[test]
fn a_certificate_for_other_roles_or_for_the_manager_is_not_renewed() {
    let cluster = Cluster::new();
    let identity = cluster.disk("disk1");
    let forged = |node: u64, roles| Identity::issue(&cluster.authority, NodeId(node), roles, now(), DAY).unwrap();
    let admit = |identity: &Identity| {
        let connected = link::connect::<node::links::Buffer>(&us(identity), cluster.address, link::Expect::default());
        connected.map(drop).map_err(|error| error.to_string())
    };
    let refused = admit(&forged(2, Roles::MANAGER)).unwrap_err();
    assert!(refused.contains("did not join as"), "{refused}");
    let refused = admit(&forged(1, Roles::MANAGER)).unwrap_err();
    assert!(refused.contains("this is node 1, too"), "{refused}");
    admit(&forged(2, Roles::DISK)).unwrap();
    // Nor would a manager renew the certificate of its own number for somebody else.
    let disk = Disk::new(&cluster, us(&identity));
    let manager = disk.0.connected().remove(0);
    let desk = ManagerRegistration::new(
        Arc::clone(&cluster.namespace),
        Arc::clone(&cluster.authority),
        DAY,
        Box::new(now),
        Box::new(|| true),
    );
    let request = registration::Request::Renew(NewKey::draw().unwrap().renewal(&manager.name).unwrap());
    let answer = desk.answer(&manager, &link::encode(&request).unwrap()).unwrap();
    match link::decode(&answer).unwrap() {
        registration::Reply::Refused(reason) => assert!(reason.contains("signs its own certificate"), "{reason}"),
        _ => panic!("it was renewed"),
    }
}

#[test]
fn a_node_that_is_cut_off_does_not_come_back_after_a_restart() {
    let mut cluster = Cluster::new();
    let identity = cluster.disk("disk1");
    let disk = Disk::new(&cluster, us(&identity));
    let ctx = cluster.namespace.context(now(), &Actor::admin(), None);
    cluster.namespace.change_wait(Durability::Synced, ctx, namespace::CutOffMember { node: NodeId(2) }).unwrap();
    drop(disk);
    for _ in 0..2 {
        let connected = link::connect::<node::links::Buffer>(&us(&identity), cluster.address, link::Expect::default());
        let refused = connected.map(drop).unwrap_err().to_string();
        assert!(refused.contains("is being removed"), "{refused}");
        cluster.restart();
    }
}

#[test]
fn only_managers_get_the_files_that_all_managers_have() {
    let cluster = Cluster::new();
    let identity = |roles| {
        link::join(&cluster.token(roles), &NewKey::draw().unwrap(), roles, "node", &Settings::default()).unwrap()
    };
    let (disk, standby) = (identity(Roles::DISK), identity(Roles::MANAGER));
    let stored = Arc::new(StoredFiles::default());
    let administrators = Arc::new(Administrators::new(Vec::new(), Box::new(|_| Ok(()))));
    let state = ClusterState {
        committed: Committed::default(),
        clock: Timestamp(1),
        nodes: Vec::new(),
        absent: Vec::new(),
        loads: Vec::new(),
        fenced: Vec::new(),
        lengths: vec![(ObjectId(5), 7)],
        space: SpaceState::default(),
    };
    let shown = state.clone();
    let desk = cluster.desk();
    let changes = |since: Committed, seen: Committed| {
        let entry = ChangedEntry { key: vec![1], now: None };
        let changed = ChangedEntries { committed: since, entries: Some(vec![entry]) };
        let answer = if seen.batch > since.batch { Changes::Later } else { Changes::Entries(changed) };
        (since.fence > 0).then_some(answer)
    };
    let sharing = desk.sharing(Shares {
        administrators: Arc::clone(&administrators),
        stored: Arc::clone(&stored),
        state: Box::new(move || shown.clone()),
        changes: Box::new(changes),
    });
    let ask_changes = |peer: &PeerIdentity, fence| {
        let (since, seen) = (Committed { fence, batch: 7 }, Committed { fence, batch: 8 });
        let request = link::encode(&registration::Request::Changes { since, seen }).unwrap();
        match link::decode(&sharing.answer(peer, &request).unwrap()).unwrap() {
            registration::Reply::Changes(changes) => Ok(changes),
            registration::Reply::Refused(reason) => Err(reason),
            _ => panic!("another answer"),
        }
    };
    let refused = ask_changes(&cluster.peer_of(&disk), 1).unwrap_err();
    assert!(refused.contains("only managers"), "{refused}");
    let refused = ask_changes(&cluster.peer_of(&standby), 0).unwrap_err();
    assert!(refused.contains("lost touch with its database"), "{refused}");
    assert_eq!(ask_changes(&cluster.peer_of(&standby), 1), Ok(Changes::Later));
    let ask_state = |peer: &PeerIdentity| {
        let request = link::encode(&registration::Request::ClusterState).unwrap();
        match link::decode(&sharing.answer(peer, &request).unwrap()).unwrap() {
            registration::Reply::ClusterState(state) => Ok(state),
            registration::Reply::Refused(reason) => Err(reason),
            _ => panic!("another answer"),
        }
    };
    let refused = ask_state(&cluster.peer_of(&disk)).unwrap_err();
    assert!(refused.contains("only managers"), "{refused}");
    assert_eq!(ask_state(&cluster.peer_of(&standby)), Ok(state));
    let ask = |desk: &ManagerRegistration, peer: &PeerIdentity, known| {
        let request = link::encode(&registration::Request::ManagerFiles { known }).unwrap();
        match link::decode(&desk.answer(peer, &request).unwrap()).unwrap() {
            registration::Reply::ManagerFiles(files) => Ok(files),
            registration::Reply::Refused(reason) => Err(reason),
            _ => panic!("another answer"),
        }
    };
    let refused = ask(&sharing, &cluster.peer_of(&disk), [0; 32]).unwrap_err();
    assert!(refused.contains("only managers"), "{refused}");
    let manager = cluster.peer_of(&standby);
    let refused = ask(&cluster.desk(), &manager, [0; 32]).unwrap_err();
    assert!(refused.contains("data directory"), "{refused}");
    let files = ask(&sharing, &manager, [0; 32]).unwrap().unwrap();
    assert_eq!(files.authority, cluster.authority.to_secret_bytes());
    let digest = files.digest();
    let lacking = |is_up| {
        let members = cluster.namespace.read(namespace::members).unwrap();
        stored.lacking(digest, other_managers(&members, NodeId(1)), |_| is_up).len()
    };
    assert_eq!(lacking(true), 1);
    assert_eq!(ask(&sharing, &manager, digest.unwrap()).unwrap(), None);
    assert_eq!((lacking(true), lacking(false)), (0, 1));
    // A certificate that a thief of the authority has made for a disk server's number.
    let forged = PeerIdentity { name: link::NodeName { node: disk.name().node, ..manager.name }, ..manager.clone() };
    let refused = ask(&sharing, &forged, [0; 32]).unwrap_err();
    assert!(refused.contains("did not join as"), "{refused}");
    cluster.remove(standby.name().node);
    let refused = ask(&sharing, &manager, [0; 32]).unwrap_err();
    assert!(refused.contains("not in this cluster"), "{refused}");
}

#[test]
fn without_the_lease_no_node_is_admitted() {
    let cluster = Cluster::new();
    let identity = cluster.disk("disk1");
    let connect = || link::connect::<Vec<u8>>(&us(&identity), cluster.address, link::Expect::default()).map(drop);
    cluster.may_grant.store(false, Ordering::Relaxed);
    let refused = connect().unwrap_err().to_string();
    assert!(refused.contains("has lost touch with its database, and another one may have taken over"), "{refused}");
    cluster.may_grant.store(true, Ordering::Relaxed);
    connect().unwrap();
}

#[test]
fn a_manager_that_joins_counts_as_another_one() {
    let cluster = Cluster::new();
    let joins = |roles, name| {
        let token = cluster.token(roles);
        link::join(&token, &NewKey::draw().unwrap(), roles, name, &Settings::default()).unwrap()
    };
    joins(Roles::DISK, "disk1");
    assert!(!cluster.others.exist());
    joins(Roles::MANAGER, "mgr2");
    assert!(cluster.others.exist());
}
