//! Clients of which nothing is known but what they say, and where they are.

use std::net::IpAddr;

use authentication::{AuthenticationError, Authenticator, ErrorKind, Mechanism, Mechanisms, Settings};

use crate::world::{World, logins, mapping};

const RULES: &str = "
    [[identity]]
    local_user = 'root'
    refuse = true
    [[identity]]
    local_user = 'daq'
    principal = 'recorder'
    groups = ['daq']
    [[identity]]
    local_user = '*'
    principal = '{user}'
    groups = ['local', '{groups}']
    [[identity]]
    host = '*.example.org'
    principal = 'farm'
    [[identity]]
    host = '10.1.2.3'
    principal = 'one'
";

fn authenticator(mechanisms: &[&str]) -> Authenticator {
    let settings = Settings {
        mechanisms: Mechanisms::parse(mechanisms.iter().copied()).unwrap(),
        mapping: mapping(RULES),
        trusted_networks: vec!["10.1.0.0/16".parse().unwrap(), "2001:db8::/32".parse().unwrap()],
        ..Settings::default()
    };
    World::new().with(settings)
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn a_local_user_is_believed_on_this_machine_and_in_trusted_networks_only() {
    let authenticator = authenticator(&["unix"]);
    for peer in ["127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1", "10.1.2.3", "::ffff:10.1.2.3", "2001:db8::5"] {
        assert_eq!(authenticator.unix("ana", &[], ip(peer)).unwrap().name.as_str(), "ana", "{peer}");
        authenticator.check_mechanism(Mechanism::Unix, ip(peer)).unwrap();
    }
    for peer in ["10.2.0.1", "192.0.2.1", "::", "0.0.0.0", "2001:db9::5", "::ffff:192.0.2.1"] {
        let error = authenticator.unix("ana", &[], ip(peer)).unwrap_err();
        assert!(matches!(error, AuthenticationError::Peer { mechanism: Mechanism::Unix, .. }), "{error}");
        assert_eq!(authenticator.check_mechanism(Mechanism::Unix, ip(peer)), Err(error));
    }
    let error = authenticator.unix("ana", &[], ip("::ffff:192.0.2.1")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "clients at 192.0.2.1 cannot authenticate by unix: it proves nothing, so it is for this machine and `trusted_networks` only"
    );
    assert_eq!(error.kind(), ErrorKind::NotAuthenticated);
    assert_eq!(logins(&authenticator, Mechanism::Unix), (7, 7));
}

#[test]
fn groups_that_a_client_names_count_where_a_rule_takes_them() {
    let authenticator = authenticator(&["unix"]);
    let groups = |login: &str, groups: &[&str]| {
        let client = authenticator.unix(login, groups, ip("::1"))?;
        assert_eq!((client.rights, client.expires), (None, None));
        Ok(client.groups.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
    };
    assert_eq!(groups("ana", &["atlas", "staff"]), Ok("local atlas staff".into()));
    assert_eq!(groups("daq", &["atlas"]), Ok("daq".into()));
    let kind = |result: Result<String, AuthenticationError>| result.unwrap_err().kind();
    assert_eq!(kind(groups("ana", &["admin"])), ErrorKind::NotAllowed);
    assert_eq!(kind(groups("root", &[])), ErrorKind::NotAllowed);
    assert_eq!(kind(groups("a b", &[])), ErrorKind::NotAuthenticated);
    assert_eq!(kind(groups("ana", &["a b"])), ErrorKind::NotAuthenticated);
    assert_eq!(groups("ana", &["x"; 65]), Err(AuthenticationError::TooManyGroups(65)));
}

#[test]
fn a_user_of_this_machine_loses_nothing_by_a_group_that_has_no_proper_name() {
    let authenticator = authenticator(&[]);
    let groups = ["atlas", "domain users", "", "gr\u{fc}n", "staff"].map(str::to_owned);
    let found = authenticator.local_user("ana", &groups).unwrap();
    assert_eq!(found.groups.iter().map(|group| group.as_str()).collect::<Vec<_>>(), ["local", "atlas", "staff"]);
    assert_eq!(authenticator.local_user("a b", &[]).unwrap_err().kind(), ErrorKind::NotAuthenticated);
}

#[test]
fn a_host_is_known_by_its_name_or_its_address() {
    let authenticator = authenticator(&["host"]);
    let name =
        |name: Option<&str>, peer: &str| authenticator.host(name, ip(peer)).map(|client| client.name.to_string());
    assert_eq!(name(Some("W1.example.org"), "10.1.0.1").unwrap(), "farm");
    assert_eq!(name(None, "::ffff:10.1.2.3").unwrap(), "one");
    assert_eq!(name(None, "10.1.2.4").unwrap_err().kind(), ErrorKind::NotAllowed);
    assert!(matches!(name(Some("w1.example.org"), "10.2.0.1"), Err(AuthenticationError::Peer { .. })));
    assert!(name(Some("a b"), "::1").is_err());
    assert_eq!(authenticator.unix("ana", &[], ip("::1")), Err(AuthenticationError::NotOffered(Mechanism::Unix)));
    assert!(authenticator.check_mechanism(Mechanism::Unix, ip("::1")).is_err());
}

#[test]
fn a_proof_counts_from_everywhere() {
    let world = World::new();
    let authenticator = world.authenticator();
    authenticator.check_mechanism(Mechanism::Ztn, ip("192.0.2.1")).unwrap();
    let offered: Vec<Mechanism> = authenticator.mechanisms().iter().collect();
    assert_eq!(offered, [Mechanism::Ztn, Mechanism::Unix, Mechanism::Host]);
}
