//! A new machine becomes a node, once per token.

use std::collections::HashMap;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use parking_lot::Mutex;
use types::{ClusterId, NodeId, Timestamp};

use super::world::*;
use crate::token::{Admission, check};
use crate::*;

/// Tokens and the next number, as a manager keeps them in its namespace.
#[derive(Default)]
struct Tokens {
    kept: Mutex<(HashMap<TokenId, TokenRecord>, u64)>,
}

impl TokenStore for Tokens {
    fn take(&self, presented: &PresentedToken, wish: &TokenRequest, now: Timestamp) -> Result<Joined, TakeError> {
        let mut kept = self.kept.lock();
        let (records, next) = &mut *kept;
        match check(records.get(&presented.id), presented, wish, now)? {
            // Whatever roles it requests now.
            Admission::Again(node) => Ok(Joined { node, roles: Roles::DISK }),
            Admission::New => {
                *next += 1;
                let node = NodeId(100 + *next);
                records.get_mut(&presented.id).unwrap().used.push(TokenUse { node, key: wish.key });
                Ok(Joined { node, roles: wish.roles })
            }
        }
    }
}

struct Site {
    cluster: Cluster,
    tokens: Arc<Tokens>,
    manager: Node,
}

impl Site {
    fn new() -> Self {
        let (cluster, tokens) = (Cluster::new(1), Arc::new(Tokens::default()));
        let door = JoinService {
            authority: Arc::clone(&cluster.authority),
            tokens: Arc::clone(&tokens) as _,
            validity: DAY,
            on_admission: Arc::new(|_| ()),
        };
        let manager = Node::start(cluster.us(1, Roles::MANAGER), Some(door));
        Self { cluster, tokens, manager }
    }

    fn token(&self, lifetime: Duration) -> JoinToken {
        self.token_at(vec![self.manager.address().to_string()], now().plus(lifetime))
    }

    fn token_at(&self, addresses: Vec<String>, expires: Timestamp) -> JoinToken {
        let made = JoinToken::make(addresses, self.cluster.authority.fingerprint(), Roles::DISK, expires, 1).unwrap();
        self.tokens.kept.lock().0.insert(made.1.id, made.1);
        // The text as it arrives at the new machine.
        JoinToken::parse(&made.0.text().unwrap()).unwrap()
    }
}

fn join_with(token: &JoinToken) -> Result<Identity, JoinError> {
    join(token, &NewKey::draw().unwrap(), Roles::DISK, "disk1", &quick())
}

/// A manager that announces `versions`. The thread returns whether it then received anything.
fn manager_of(us: LocalNode, versions: Versions) -> (String, std::thread::JoinHandle<bool>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let thread = std::thread::spawn(move || {
        let (socket, _) = listener.accept().unwrap();
        let config = Arc::clone(&us.credentials.current().server);
        let (mut halves, _) = crate::channel::accept(socket, config, soon(), SOON).unwrap();
        let mut challenge = b"weirjoin".to_vec();
        challenge.extend(versions.oldest.to_le_bytes());
        challenge.extend(versions.newest.to_le_bytes());
        challenge.resize(44, 7);
        halves.writing.send(&[&challenge]).unwrap();
        matches!(halves.reading.fill(&mut [0; 4], soon()), Ok(true))
    });
    (address, thread)
}

#[test]
fn a_manager_of_another_version_is_told_nothing() {
    let site = Site::new();
    let ours = Versions::SPOKEN.newest;
    for other in [ours - 1, ours + 1] {
        let versions = Versions { oldest: other, newest: other };
        let (address, manager) = manager_of(site.cluster.us(1, Roles::MANAGER), versions);
        let said = join_with(&site.token_at(vec![address], now().plus(DAY))).unwrap_err().to_string();
        for part in [
            format!("speaks version {other} of the protocol between nodes"),
            format!("this node version {ours}"),
            "install the manager's version of weir here".to_owned(),
        ] {
            assert!(said.contains(&part), "{said:?} without {part:?}");
        }
        assert!(!manager.join().unwrap(), "it has heard the token's secret");
    }
    // One common version is enough to send the request.
    let both = Versions { oldest: ours, newest: ours + 1 };
    let (address, manager) = manager_of(site.cluster.us(1, Roles::MANAGER), both);
    assert!(join_with(&site.token_at(vec![address], now().plus(DAY))).is_err());
    assert!(manager.join().unwrap());
}

#[test]
fn a_new_machine_joins_and_connects_as_a_node() {
    let site = Site::new();
    let identity = join_with(&site.token(DAY)).unwrap();
    assert_eq!(identity.name().to_string(), "weir:00000000000000000000000000000001:101:disk");
    // It is still the same node after a restart.
    let path = site.cluster.folder.path().join("disk1/identity");
    identity.write(&path).unwrap();
    let us = local_node_of(&Identity::read(&path).unwrap());
    let link = Link::up(&us, &site.manager);
    assert_eq!(link.ask("hello").unwrap().message, b"hello");
    site.manager.seen().wait_for("connected node 101 (disk");
}

#[test]
fn only_one_of_two_nodes_with_one_token_joins() {
    let site = Site::new();
    for _ in 0..5 {
        let token = site.token(DAY);
        let start = Barrier::new(4);
        let results: Vec<_> = std::thread::scope(|scope| {
            let race = || {
                start.wait();
                join_with(&token)
            };
            let racing: Vec<_> = (0..4).map(|_| scope.spawn(race)).collect();
            racing.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
        for error in results.into_iter().filter_map(Result::err) {
            let JoinError::Refused { reason, .. } = error else { panic!("{error}") };
            assert!(
                reason.contains("was used already, by node 10") && reason.contains("weir token create"),
                "{reason}"
            );
        }
    }
}

#[test]
fn a_repeated_request_gets_the_same_node_number() {
    let site = Site::new();
    let (token, key) = (site.token(DAY), NewKey::draw().unwrap());
    let ask = || join(&token, &key, Roles::DISK, "disk1", &quick()).unwrap();
    assert_eq!(ask().name(), ask().name());
}

#[test]
fn an_expired_token_is_refused_with_its_age() {
    let site = Site::new();
    let token = site.token_at(vec![site.manager.address().to_string()], Timestamp::from_secs(now().secs() - 3600));
    let JoinError::Refused { reason, .. } = join_with(&token).unwrap_err() else { panic!() };
    assert!(reason.contains("expired 60 min") && reason.contains("weir token create"), "{reason}");
}

#[test]
fn a_token_is_valid_only_for_its_roles() {
    let site = Site::new();
    let refused = join(&site.token(DAY), &NewKey::draw().unwrap(), Roles::MANAGER, "more", &quick()).unwrap_err();
    assert!(refused.to_string().contains("lets a node join as disk, not as manager"), "{refused}");
}

#[test]
fn a_token_of_another_cluster_does_not_reveal_its_secret() {
    let (site, other) = (Site::new(), Cluster::new(2));
    let token = JoinToken { authority: other.authority.fingerprint(), ..site.token(DAY) };
    let JoinError::Unreachable(errors) = join_with(&token).unwrap_err() else { panic!() };
    assert!(
        matches!(errors[0].why, CloseCause::Certificate(CertificateProblem::OtherAuthority { .. })),
        "{}",
        errors[0]
    );
    assert!(site.tokens.kept.lock().0.values().all(|record| record.used.is_empty()));
}

/// A node that knows its cluster, and has a token of another one.
#[test]
fn a_manager_of_another_cluster_than_the_expected_one_sees_no_token() {
    let site = Site::new();
    let token = site.token(DAY);
    let join = |cluster| join_cluster(cluster, &token, &NewKey::draw().unwrap(), Roles::DISK, "disk1", &quick());
    let ours = site.cluster.authority.cluster();
    let refused = join(ClusterId(ours.0 + 1)).unwrap_err();
    assert!(matches!(&refused, JoinError::OtherCluster { found, .. } if **found == ours), "{refused}");
    assert!(site.tokens.kept.lock().0.values().all(|record| record.used.is_empty()), "{refused}");
    assert_eq!(join(ours).unwrap().name().cluster, ours);
}

#[test]
fn a_disk_server_sees_no_secrets_and_lets_no_node_join() {
    let site = Site::new();
    let disk = site.cluster.node(5, Roles::DISK);
    let token = site.token_at(vec![disk.address().to_string()], now().plus(DAY));
    let error = join_with(&token).unwrap_err().to_string();
    assert!(error.contains("is node 5, which is no manager"), "{error}");
    // The next address is tried.
    let both = vec!["127.0.0.1:1".into(), disk.address().to_string(), site.manager.address().to_string()];
    join_with(&site.token_at(both, now().plus(DAY))).unwrap();
    // A manager without a door (perhaps stopping) lets no node join either.
    let closed = site.cluster.node(6, Roles::MANAGER);
    let token = site.token_at(vec![closed.address().to_string()], now().plus(DAY));
    assert!(matches!(join_with(&token), Err(JoinError::Unreachable(_))));
}

/// What a new machine, and the listener, get from a manager that is asked with `token`.
fn at_the_door(site: &Site, token: &JoinToken) -> (Result<Identity, JoinError>, Result<(), CloseCause>) {
    let door = JoinService {
        authority: Arc::clone(&site.cluster.authority),
        tokens: Arc::clone(&site.tokens) as _,
        validity: DAY,
        on_admission: Arc::new(|_| ()),
    };
    let us = site.cluster.us(1, Roles::MANAGER);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let token = JoinToken { addresses: vec![listener.local_addr().unwrap().to_string()], ..token.clone() };
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| {
            let (socket, address) = listener.accept().unwrap();
            let config = Arc::clone(&us.credentials.current().server);
            let (halves, _) = crate::channel::accept(socket, config, soon(), SOON).unwrap();
            crate::join::serve(&door, halves, address, soon())
        });
        let got = join_with(&token);
        (got, serving.join().unwrap())
    })
}

#[test]
fn only_what_needs_the_secret_is_not_left_to_the_listener() {
    let site = Site::new();
    let token = site.token(DAY);
    let removed = site.token(DAY);
    site.tokens.kept.lock().0.remove(&removed.id);
    let (refused, said) = at_the_door(&site, &removed);
    assert!(refused.unwrap_err().to_string().contains("is not known to this cluster"));
    let said = said.unwrap_err();
    assert!(matches!(&said, CloseCause::Misbehaved(why) if why.contains(&removed.id.to_string())), "{said}");
    let (welcome, said) = at_the_door(&site, &token);
    assert!(welcome.is_ok() && said.is_ok());
    let (refused, said) = at_the_door(&site, &token);
    assert!(refused.unwrap_err().to_string().contains("was used already") && said.is_ok());
}

#[test]
fn a_key_without_proof_of_possession_gets_no_certificate() {
    let site = Site::new();
    let (token, key) = (site.token(DAY), NewKey::draw().unwrap());
    let stolen = NewKey::draw().unwrap().public();
    let wish = TokenRequest { roles: Roles::DISK, name: "thief".into(), key: stolen };
    let verdict = crate::join::ask_for(&token, &key, &wish, &site.manager.address().to_string(), &quick()).unwrap();
    assert!(verdict.unwrap_err().contains("not signed with the key that it is for"));
    assert!(site.tokens.kept.lock().0[&token.id].used.is_empty());
}

#[test]
fn only_valid_names_may_join() {
    let site = Site::new();
    for name in ["", &"x".repeat(256)] {
        let error = join(&site.token(DAY), &NewKey::draw().unwrap(), Roles::DISK, name, &quick()).unwrap_err();
        assert!(matches!(error, JoinError::Name(_)), "{error}");
    }
}
