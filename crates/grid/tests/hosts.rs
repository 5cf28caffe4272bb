//! Certificates of hosts.

use grid::{GridError, Problem, verify_host};

use crate::der::*;
use crate::site::*;

fn dns(host: &str) -> Vec<u8> {
    element(0x82, host.as_bytes())
}

#[test]
fn a_host_is_known_by_its_names() {
    let root = Holder::authority("/O=Root");
    let trust = trust(&[&root]);
    let check = |holders: &[&Holder], host: &str| match verify_host(&chain(holders), &trust, host, now()) {
        Ok(host) => {
            assert_eq!(host.public_key, holders[0].key.public());
            None
        }
        Err(GridError::Certificate { why, .. }) => Some(why),
        Err(other) => panic!("{other}"),
    };
    let with = |line: &str, names: &[Vec<u8>]| {
        root.issue(line, |plan| {
            plan.extensions = if names.is_empty() { vec![] } else { vec![alternative_names(names)] };
        })
    };
    let other = |problem| matches!(problem, Some(Problem::Host { .. }));
    let alternative = with("/CN=x.example.org", &[dns("a.example.org"), element(0x87, &[10, 0, 0, 1])]);
    assert_eq!(check(&[&alternative], "a.example.org"), None);
    assert_eq!(check(&[&alternative], "10.0.0.1"), None);
    assert!(other(check(&[&alternative], "b.example.org")));
    assert!(other(check(&[&alternative], "x.example.org")), "the subject does not count beside other names");
    for line in ["/CN=a.example.org", "/CN=host//a.example.org", "/CN=x/CN=a.example.org"] {
        assert_eq!(check(&[&with(line, &[])], "a.example.org"), None, "{line}");
    }
    assert!(other(check(&[&with("/CN=a.example.org/CN=x", &[])], "a.example.org")));
    assert!(other(check(&[&with("/O=x", &[])], "a.example.org")));
    let email = with("/CN=a.example.org", &[element(0x81, b"a@b.org")]);
    assert_eq!(check(&[&email], "a.example.org"), None);
    let client = root.issue("/CN=a.example.org", |plan| {
        plan.extensions = vec![extended_key_usage(&["1.3.6.1.5.5.7.3.2"])];
    });
    assert_eq!(check(&[&client], "a.example.org"), Some(Problem::Purpose("servers")));
    let host = with("/CN=a.example.org", &[]);
    assert!(matches!(check(&[&host.proxy(), &host], "a.example.org"), Some(Problem::ProxyMisplaced(_))));
    let ended = root.issue("/CN=a.example.org", |plan| plan.times.1 = NOW);
    assert!(matches!(check(&[&ended], "a.example.org"), Some(Problem::Expired { .. })));
    let forged = Holder::authority("/O=Root").user("/CN=a.example.org");
    assert!(matches!(check(&[&forged], "a.example.org"), Some(Problem::Signature(_))));
}
