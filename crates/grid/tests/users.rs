//! Chains of users, from an authority to a certificate.

use std::time::Duration;

use grid::{CERTIFICATE_BYTES_MAX, CHAIN_MAX, GridError, Problem, Trust, Unreadable, verify_user};
use types::Timestamp;

use crate::der::*;
use crate::site::*;

fn unreadable(der: Vec<u8>) -> Unreadable {
    match verify_user(&[der], &Trust::default(), now()) {
        Err(GridError::Unreadable { position: 1, why }) => why,
        other => panic!("another result: {other:?}"),
    }
}

#[test]
fn a_user_is_known_by_a_certificate_of_a_trusted_authority() {
    let root = Holder::authority("/DC=ch/O=Root");
    let ana = root.user("/DC=ch/DC=cern/OU=People/CN=Ana Lee");
    let user = verify(&[&ana], &trust(&[&root])).unwrap();
    assert_eq!(user.subject.as_str(), "/DC=ch/DC=cern/OU=People/CN=Ana Lee");
    assert_eq!(user.not_after, Timestamp::from_secs(NOW + DAY));
    assert!(!user.limited && user.fqans.is_empty());
    assert_eq!(user.leaf_public_key, ana.key.public());
    // Whether the chain has the root as well makes no difference.
    assert_eq!(verify(&[&ana, &root], &trust(&[&root])), Ok(user));
}

#[test]
fn authorities_between_may_be_in_the_chain_in_any_order_or_in_the_directory() {
    let root = Holder::authority("/O=Root");
    let middle = root.below("/O=Middle");
    let low = middle.below("/O=Low");
    let ana = low.user("/O=x/CN=ana");
    let only_root = trust(&[&root]);
    let subject = verify(&[&ana, &middle, &low], &only_root).unwrap().subject;
    assert_eq!(subject.as_str(), "/O=x/CN=ana");
    verify(&[&ana, &low, &middle, &root], &only_root).unwrap();
    verify(&[&ana], &trust(&[&root, &middle, &low])).unwrap();
    verify(&[&ana, &low], &trust(&[&middle, &root])).unwrap();
    assert!(matches!(problem(&[&ana, &low], &only_root), Problem::UnknownIssuer(_)));
    // A directory without the root trusts nobody: an intermediate authority may be revoked.
    assert!(matches!(problem(&[&ana], &trust(&[&middle, &low])), Problem::UnknownIssuer(_)));
}

#[test]
fn a_stranger_is_refused() {
    let root = Holder::authority("/O=Root");
    let stranger = Holder::authority("/O=Stranger");
    let impostor = Holder::authority("/O=Root");
    let trust = trust(&[&root]);
    let of_stranger = stranger.user("/O=x/CN=ana");
    assert!(matches!(problem(&[&of_stranger], &trust), Problem::UnknownIssuer(_)));
    assert!(matches!(problem(&[&of_stranger, &stranger], &trust), Problem::UnknownIssuer(_)));
    let forged = impostor.user("/O=x/CN=ana");
    assert!(matches!(problem(&[&forged], &trust), Problem::Signature(_)));
    assert!(matches!(problem(&[&forged, &impostor], &trust), Problem::Signature(_)));
    // The name of an authority between is not enough either.
    let middle = root.below("/O=Middle");
    let forged = Holder::authority("/O=Middle").user("/O=x/CN=ana");
    assert!(matches!(problem(&[&forged, &middle], &trust), Problem::Signature(_)));
    // Nobody vouches for herself.
    let own = Holder::self_signed("/O=x/CN=ana", |plan| plan.extensions.clear());
    assert!(matches!(problem(&[&own], &trust), Problem::UnknownIssuer(_)));
}

#[test]
fn altered_bytes_are_refused() {
    let root = Holder::authority("/O=Root");
    let trust = trust(&[&root]);
    let ana = root.user("/O=x/CN=ana").der;
    for position in 0..ana.len() {
        let mut altered = ana.clone();
        altered[position] ^= 1;
        assert!(verify_user(&[altered], &trust, now()).is_err(), "byte {position} of {ana:02x?}");
    }
}

#[test]
fn certificates_count_between_their_times() {
    let root = Holder::authority("/O=Root");
    let trust = trust(&[&root]);
    let with = |from: i64, to: i64| root.issue("/CN=ana", |plan| plan.times = (from, to));
    let skew = i64::try_from(identity::CLOCK_SKEW.as_secs()).unwrap();
    verify(&[&with(NOW + skew, NOW + DAY)], &trust).unwrap();
    let early = problem(&[&with(NOW + skew + 1, NOW + DAY)], &trust);
    assert_eq!(early, Problem::NotYetValid { from: NOW + skew + 1, now: NOW });
    let user = verify(&[&with(NOW - DAY, NOW + 1)], &trust).unwrap();
    assert_eq!(user.not_after, Timestamp::from_secs(NOW + 1));
    let ended = problem(&[&with(NOW - DAY, NOW)], &trust);
    assert_eq!(ended, Problem::Expired { ended: NOW, now: NOW });
}

#[test]
fn every_certificate_of_the_path_must_be_valid() {
    let ended = |plan: &mut Plan| plan.times = (NOW - DAY, NOW - 1);
    let root = Holder::self_signed("/O=Root", ended);
    assert!(matches!(problem(&[&root.user("/CN=ana")], &trust(&[&root])), Problem::Expired { .. }));
    let root = Holder::authority("/O=Root");
    let middle = root.issue("/O=Middle", |plan| {
        plan.extensions = vec![basic_constraints(true, None)];
        ended(plan);
    });
    assert!(matches!(problem(&[&middle.user("/CN=ana"), &middle], &trust(&[&root])), Problem::Expired { .. }));
    let middle = root.issue("/O=Middle", |plan| {
        plan.extensions = vec![basic_constraints(true, None)];
        plan.times.1 = NOW + 5;
    });
    let user = verify(&[&middle.user("/CN=ana"), &middle], &trust(&[&root])).unwrap();
    assert_eq!(user.not_after, now().plus(Duration::from_secs(5)));
}

#[test]
fn only_authorities_may_issue() {
    let root = Holder::authority("/O=Root");
    let trust = trust(&[&root]);
    let issuer_with = |extensions: Vec<Vec<u8>>| {
        let middle = root.issue("/O=Middle", |plan| plan.extensions = extensions);
        problem(&[&middle.user("/CN=ana"), &middle], &trust)
    };
    assert!(matches!(issuer_with(vec![]), Problem::IssuerIsNoAuthority(_)));
    assert!(matches!(issuer_with(vec![basic_constraints(false, None)]), Problem::IssuerIsNoAuthority(_)));
    let usage = vec![basic_constraints(true, None), key_usage(0x80)];
    assert!(matches!(issuer_with(usage), Problem::IssuerMustNotSign(_)));
    // That the directory has it does not make it an authority.
    let silent = root.issue("/O=Silent", |plan| plan.extensions.clear());
    let both = crate::site::trust(&[&root, &silent]);
    assert!(matches!(problem(&[&silent.user("/CN=ana")], &both), Problem::IssuerIsNoAuthority(_)));
    // A user signs for another one.
    let ana = root.user("/O=x/CN=ana");
    assert!(matches!(problem(&[&ana.user("/O=x/CN=root"), &ana], &trust), Problem::IssuerIsNoAuthority(_)));
    // An authority is no user.
    assert_eq!(problem(&[&root.below("/O=Middle")], &trust), Problem::Authority);
}

#[test]
fn the_number_of_authorities_below_one_is_limited() {
    let with = |length: u64, plan: &mut Plan| plan.extensions = vec![basic_constraints(true, Some(length))];
    let root = Holder::self_signed("/O=Root", |plan| with(1, plan));
    let trust = trust(&[&root]);
    let middle = root.below("/O=Middle");
    verify(&[&middle.user("/CN=ana"), &middle], &trust).unwrap();
    let low = middle.below("/O=Low");
    let too_many = problem(&[&low.user("/CN=ana"), &low, &middle], &trust);
    assert_eq!(too_many, Problem::PathLength { below: 2, allowed: 1 });
    // One that has issued itself a new key does not count (RFC 5280, section 6.1.4, l).
    let renewed = middle.issue("/O=Middle", |plan| with(0, plan));
    verify(&[&renewed.user("/CN=ana"), &renewed, &middle], &trust).unwrap();
    let none = root.issue("/O=None", |plan| with(0, plan));
    verify(&[&none.user("/CN=ana"), &none], &trust).unwrap();
    let below = none.below("/O=Low");
    assert!(matches!(problem(&[&below.user("/CN=ana"), &below, &none], &trust), Problem::PathLength { .. }));
}

#[test]
fn a_certificate_is_for_what_it_says() {
    let root = Holder::authority("/O=Root");
    let trust = trust(&[&root]);
    let with = |extensions: Vec<Vec<u8>>| root.issue("/CN=ana", |plan| plan.extensions = extensions);
    verify(&[&with(vec![extended_key_usage(&["1.3.6.1.5.5.7.3.1", "1.3.6.1.5.5.7.3.2"])])], &trust).unwrap();
    verify(&[&with(vec![extended_key_usage(&["2.5.29.37.0"])])], &trust).unwrap();
    let server = with(vec![extended_key_usage(&["1.3.6.1.5.5.7.3.1"])]);
    assert_eq!(problem(&[&server], &trust), Problem::Purpose("clients"));
    assert_eq!(problem(&[&with(vec![key_usage(0x20)])], &trust), Problem::MustNotSign);
    // What a user's certificate is not for, a proxy cannot be.
    assert_eq!(problem(&[&server.proxy(), &server], &trust), Problem::Purpose("clients"));
    let ana = root.user("/CN=ana");
    let proxy = ana.proxy_with(|plan| plan.extensions.push(extended_key_usage(&["1.3.6.1.5.5.7.3.1"])));
    assert_eq!(problem(&[&proxy, &ana], &trust), Problem::Purpose("clients"));
}

#[test]
fn extensions_that_are_not_known_are_refused_if_critical() {
    let root = Holder::authority("/O=Root");
    let trust = trust(&[&root]);
    let with = |extension: Vec<u8>| root.issue("/CN=ana", |plan| plan.extensions = vec![extension]);
    verify(&[&with(extension("1.2.3.4", false, b"x"))], &trust).unwrap();
    let critical = with(extension("1.2.3.4", true, b"x"));
    assert_eq!(unreadable(critical.der), Unreadable::Critical("1.2.3.4".into()));
    // policyConstraints, inhibitAnyPolicy: known, and not followed.
    let policy = with(extension("2.5.29.36", true, &sequence(&[element(0x80, &[0])])));
    assert_eq!(unreadable(policy.der), Unreadable::Critical("2.5.29.36".into()));
    let policy = with(extension("2.5.29.54", true, &integer(0)));
    assert_eq!(unreadable(policy.der), Unreadable::Critical("2.5.29.54".into()));
    let twice = root.issue("/CN=ana", |plan| plan.extensions = vec![key_usage(0x80), key_usage(0x20)]);
    assert_eq!(unreadable(twice.der), Unreadable::Twice("2.5.29.15".into()));
    for id in ["2.5.29.15", "2.5.29.17", "2.5.29.19", "2.5.29.30", "2.5.29.37"] {
        assert_eq!(unreadable(with(extension(id, false, b"x")).der), Unreadable::Extension(id.into()));
    }
}

#[test]
fn malformed_certificates_are_refused() {
    let root = Holder::authority("/O=Root");
    let ana = root.user("/CN=ana").der;
    assert_eq!(unreadable(b"x".to_vec()), Unreadable::NotX509);
    assert_eq!(unreadable(ana[..ana.len() - 1].to_vec()), Unreadable::NotX509);
    assert_eq!(unreadable([&ana[..], b"xy"].concat()), Unreadable::Behind(2));
    let with = |change: fn(&mut Plan)| root.issue("/CN=ana", change).der;
    assert_eq!(unreadable(with(|plan| plan.serial = vec![1; 21])), Unreadable::Serial);
    assert_eq!(
        unreadable(with(|plan| plan.outer_algorithm = sequence(&[oid("1.2.840.10045.4.3.3")]))),
        Unreadable::TwoAlgorithms
    );
    let old = with(|plan| {
        plan.version = 0;
        plan.extensions = vec![key_usage(0x80)];
    });
    assert_eq!(unreadable(old), Unreadable::Version);
}

#[test]
fn broken_and_unknown_signatures_are_refused() {
    let root = Holder::authority("/O=Root");
    let trust = trust(&[&root]);
    let with = |algorithm: &str| {
        let ana = root.issue("/CN=ana", |plan| {
            plan.inner_algorithm = sequence(&[oid(algorithm)]);
            plan.outer_algorithm = plan.inner_algorithm.clone();
        });
        problem(&[&ana], &trust)
    };
    assert_eq!(with("1.2.840.10045.4.1"), Problem::BrokenAlgorithm("SHA-1"));
    assert_eq!(with("1.2.840.113549.1.1.5"), Problem::BrokenAlgorithm("SHA-1"));
    assert_eq!(with("1.2.840.113549.1.1.4"), Problem::BrokenAlgorithm("MD5"));
    assert_eq!(with("1.2.3.4"), Problem::UnknownAlgorithm("1.2.3.4".into()));
    // The algorithm of another kind of key.
    assert!(matches!(with("1.2.840.113549.1.1.11"), Problem::Signature(_)));
    assert!(matches!(with("1.3.101.112"), Problem::Signature(_)));
}

#[test]
fn keys_that_are_too_short_or_unknown_are_refused() {
    let root = Holder::authority("/O=Root");
    let trust = trust(&[&root]);
    let with = |public: Vec<u8>| problem(&[&root.issue("/CN=ana", |plan| plan.public = public)], &trust);
    let rsa = |modulus: &[u8]| {
        let algorithm = sequence(&[oid("1.2.840.113549.1.1.1"), element(5, &[])]);
        sequence(&[algorithm, bits(&sequence(&[element(2, modulus), integer(65_537)]))])
    };
    assert_eq!(with(rsa(&[0x7f; 128])), Problem::ShortKey(1023));
    assert_eq!(with(rsa(&[0x7f; 256])), Problem::ShortKey(2047));
    assert_eq!(with(rsa(&[0x7f; 1025])), Problem::UnknownKey);
    let curve = sequence(&[sequence(&[oid("1.2.840.10045.2.1"), oid("1.3.132.0.35")]), bits(&[4; 133])]);
    assert_eq!(with(curve), Problem::UnknownKey);
    assert_eq!(with(sequence(&[sequence(&[oid("1.2.3")]), bits(&[4; 65])])), Problem::UnknownKey);
    verify(&[&root.issue("/CN=ana", |plan| plan.public = rsa(&[&[0, 0x80], &[1; 255][..]].concat()))], &trust).unwrap();
}

#[test]
fn chains_have_a_limited_length() {
    let root = Holder::authority("/O=Root");
    let trust = trust(&[&root]);
    assert_eq!(verify(&[], &trust), Err(GridError::Empty));
    let ana = root.user("/CN=ana");
    verify(&[&ana; CHAIN_MAX], &trust).unwrap();
    assert_eq!(verify(&[&ana; CHAIN_MAX + 1], &trust), Err(GridError::TooMany(CHAIN_MAX + 1)));
    let long = root.issue("/CN=ana", |plan| {
        plan.extensions = vec![extension("1.2.3", false, &vec![0; CERTIFICATE_BYTES_MAX])];
    });
    assert!(matches!(verify(&[&ana, &long], &trust), Err(GridError::TooLong { position: 2, .. })));
}

#[test]
fn many_authorities_of_one_name_cost_little() {
    let roots: Vec<_> = (0..60).map(|_| Holder::authority("/O=Root")).collect();
    let ana = roots[59].user("/CN=ana");
    let few: Vec<_> = roots[20..].iter().collect();
    verify(&[&ana], &trust(&few)).unwrap();
    let all: Vec<_> = roots.iter().collect();
    assert_eq!(verify(&[&ana], &trust(&all)), Err(GridError::TooManySignatures));
}

#[test]
fn subjects_must_be_clear() {
    let root = Holder::authority("/O=Root");
    let trust = trust(&[&root]);
    let with = |subject: Vec<u8>| verify(&[&root.issue("/CN=x", |plan| plan.subject = subject)], &trust);
    let one = |kind: &str, tag: u8, value: &[u8]| sequence(&[set(&[sequence(&[oid(kind), element(tag, value)])])]);
    let subject = |result: Result<grid::GridUser, GridError>| result.unwrap().subject.as_str().to_owned();
    assert_eq!(subject(with(one("2.5.4.3", 0x13, b"host/a.example.org"))), "/CN=host/a.example.org");
    assert_eq!(subject(with(one("2.5.4.3", 0x1e, b"\0A\0\xe9"))), "/CN=Aé", "BMPString");
    assert_eq!(subject(with(one("2.5.4.3", 0x14, b"Ana"))), "/CN=Ana", "TeletexString");
    assert_eq!(subject(with(one("1.2.3.4", 0x0c, b"Ana"))), "/1.2.3.4=Ana");
    let both = set(&[sequence(&[oid("2.5.4.3"), utf8("a")]), sequence(&[oid("2.5.4.11"), utf8("b")])]);
    assert_eq!(subject(with(sequence(&[both]))), "/CN=a/OU=b");
    let refused = |result: Result<grid::GridUser, GridError>| {
        matches!(result, Err(GridError::Certificate { why: Problem::Subject(_), .. }))
    };
    assert!(refused(with(sequence(&[]))), "empty");
    assert!(refused(with(one("2.5.4.3", 0x0c, b"ana/CN=root"))), "looks like two attributes");
    assert!(refused(with(one("2.5.4.3", 0x0c, b"ana\n"))), "a control character");
    assert!(refused(with(one("2.5.4.3", 0x0c, b"ana\0x"))), "a NUL");
    assert!(refused(with(one("2.5.4.3", 0x14, b"An\xe1"))), "TeletexString outside ASCII");
    assert!(refused(with(one("2.5.4.3", 0x02, b"1"))), "no text");
    assert!(refused(with(one("2.5.4.3", 0x0c, &[b'a'; 3000]))), "too long");
}

#[test]
fn names_of_issuers_may_be_written_in_another_way() {
    let root = Holder::authority("/DC=ch/O=Root  CA");
    let trust = trust(&[&root]);
    let ana = root.issue("/CN=ana", |plan| plan.issuer = name("/DC=CH/O=root ca"));
    verify(&[&ana], &trust).unwrap();
    let other = root.issue("/CN=ana", |plan| plan.issuer = name("/DC=CH/O=rootca"));
    assert!(matches!(problem(&[&other], &trust), Problem::UnknownIssuer(_)));
}

/// Servers sign for anybody with the keys of hosts.
#[test]
fn hosts_are_no_users() {
    let root = Holder::authority("/O=Root");
    let trust = trust(&[&root]);
    let with = |names: &[Vec<u8>]| {
        root.issue("/CN=ana", |plan| plan.extensions = vec![basic_constraints(false, None), alternative_names(names)])
    };
    let (mail, host) = (element(0x81, b"a@example.org"), element(0x82, b"a.example.org"));
    verify(&[&with(std::slice::from_ref(&mail))], &trust).unwrap();
    let address = element(0x87, &[10, 0, 0, 1]);
    for (names, shown) in [(vec![mail, host], "a.example.org"), (vec![address], "an address")] {
        let holder = with(&names);
        assert_eq!(problem(&[&holder], &trust), Problem::HostCertificate(shown.into()));
        assert_eq!(problem(&[&holder.proxy(), &holder], &trust), Problem::HostCertificate(shown.into()));
    }
}
