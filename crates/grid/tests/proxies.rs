//! Proxy certificates (RFC 3820).

use grid::Problem;

use crate::der::*;
use crate::site::*;

impl Here {
    fn refused(&self, change: impl FnOnce(&mut Plan)) -> Problem {
        problem(&[&self.ana.proxy_with(change), &self.ana], &self.trust)
    }
}

#[test]
fn a_proxy_is_its_user() {
    let Here { trust, ana } = here();
    let proxy = ana.proxy_with(|plan| plan.times.1 = NOW + 60);
    let user = verify(&[&proxy, &ana], &trust).unwrap();
    assert_eq!(user.subject.as_str(), "/O=x/CN=ana");
    assert_eq!(user.not_after.secs(), NOW + 60);
    assert_eq!(user.leaf_public_key, proxy.key.public());
    assert!(!user.limited);
    let again = proxy.proxy();
    assert_eq!(verify(&[&again, &ana, &proxy], &trust).unwrap().subject.as_str(), "/O=x/CN=ana");
    // Without the user's certificate nobody vouches for the proxy.
    assert!(matches!(problem(&[&proxy], &trust), Problem::UnknownIssuer(_)));
    assert!(matches!(problem(&[&again, &ana], &trust), Problem::UnknownIssuer(_)));
}

#[test]
fn a_proxy_needs_the_key_of_its_issuer() {
    let Here { trust, ana } = here();
    let other = Holder::self_signed("/O=x/CN=ana", |_| ());
    assert!(matches!(problem(&[&other.proxy(), &ana], &trust), Problem::Signature(_)));
    assert!(matches!(problem(&[&other.proxy().proxy(), &other.proxy(), &ana], &trust), Problem::Signature(_)));
}

#[test]
fn times_of_proxies_count() {
    let here = here();
    assert!(matches!(here.refused(|plan| plan.times.1 = NOW), Problem::Expired { .. }));
    assert!(matches!(here.refused(|plan| plan.times.0 = NOW + 3600), Problem::NotYetValid { .. }));
    let ended = here.ana.proxy_with(|plan| plan.times.1 = NOW);
    let below = ended.proxy();
    assert!(matches!(problem(&[&below, &ended, &here.ana], &here.trust), Problem::Expired { .. }));
}

#[test]
fn the_subject_of_a_proxy_is_its_issuers_with_one_name() {
    let here = here();
    let subject = |subject: Vec<u8>| here.refused(|plan| plan.subject = subject);
    let wrong = |problem: Problem| matches!(problem, Problem::ProxySubject(_));
    assert!(wrong(subject(name("/O=x/CN=bob/CN=1"))), "another user");
    assert!(wrong(subject(name("/O=x/CN=ana"))), "nothing added");
    assert!(wrong(subject(name("/O=x/CN=ana/CN=1/CN=2"))), "two names");
    assert!(wrong(subject(name("/O=x/CN=ana/OU=1"))), "not a CN");
    assert!(wrong(subject(name("/O=x/CN=root"))), "replaced");
    // The proxy of a proxy continues that one's subject.
    let proxy = here.ana.proxy();
    let other = proxy.proxy_with(|plan| plan.subject = name("/O=x/CN=bob/CN=1/CN=2"));
    assert!(wrong(problem(&[&other, &proxy, &here.ana], &here.trust)));
    // Two attributes in one part.
    let two = set(&[sequence(&[oid("2.5.4.3"), utf8("1")]), sequence(&[oid("2.5.4.11"), utf8("b")])]);
    let start = name("/O=x/CN=ana");
    assert!(wrong(subject(element(0x30, &[&start[2..], &two].concat()))));
}

#[test]
fn limited_proxies_stay_limited() {
    let Here { trust, ana } = here();
    let limited = ana.proxy_with(|plan| plan.extensions = vec![proxy_info(LIMITED, None)]);
    assert!(verify(&[&limited, &ana], &trust).unwrap().limited);
    let full = limited.proxy();
    assert!(verify(&[&full, &limited, &ana], &trust).unwrap().limited);
    let full = ana.proxy();
    let limited = full.proxy_with(|plan| plan.extensions = vec![proxy_info(LIMITED, None)]);
    assert!(verify(&[&limited, &full, &ana], &trust).unwrap().limited);
    assert!(!verify(&[&full, &ana], &trust).unwrap().limited);
}

#[test]
fn the_number_of_proxies_below_one_is_limited() {
    let Here { trust, ana } = here();
    let with = |length: u64, plan: &mut Plan| plan.extensions = vec![proxy_info(INHERIT_ALL, Some(length))];
    let none = ana.proxy_with(|plan| with(0, plan));
    verify(&[&none, &ana], &trust).unwrap();
    let below = none.proxy();
    let too_many = problem(&[&below, &none, &ana], &trust);
    assert_eq!(too_many, Problem::ProxyPathLength { below: 1, allowed: 0 });
    let one = ana.proxy_with(|plan| with(1, plan));
    let first = one.proxy_with(|plan| with(7, plan));
    verify(&[&first, &one, &ana], &trust).unwrap();
    let second = first.proxy();
    let too_many = problem(&[&second, &first, &one, &ana], &trust);
    assert_eq!(too_many, Problem::ProxyPathLength { below: 2, allowed: 1 });
}

#[test]
fn rights_in_other_languages_are_refused() {
    let here = here();
    let policy = |language: &str, policy: Option<&[u8]>| {
        here.refused(|plan| plan.extensions = vec![proxy_info_with(language, None, policy, true)])
    };
    assert_eq!(policy(INDEPENDENT, None), Problem::ProxyIndependent);
    assert_eq!(policy("1.3.6.1.5.5.7.21.0", None), Problem::ProxyPolicy("1.3.6.1.5.5.7.21.0".into()));
    assert_eq!(policy("1.2.3", Some(b"x")), Problem::ProxyPolicy("1.2.3".into()));
    assert_eq!(policy(INHERIT_ALL, Some(b"x")), Problem::ProxyPolicyText);
    // One of them in the middle of a chain.
    let middle = here.ana.proxy_with(|plan| plan.extensions = vec![proxy_info(INDEPENDENT, None)]);
    assert_eq!(problem(&[&middle.proxy(), &middle, &here.ana], &here.trust), Problem::ProxyIndependent);
}

#[test]
fn what_a_proxy_must_not_be_is_refused() {
    let here = here();
    let with = |added: Vec<u8>| {
        here.refused(|plan| {
            plan.extensions.retain(|extension| extension[..] != key_usage(0x80)[..]);
            plan.extensions.push(added);
        })
    };
    assert_eq!(with(basic_constraints(true, None)), Problem::ProxyAuthority);
    assert_eq!(with(alternative_names(&[element(0x82, b"a.example.org")])), Problem::ProxyAlternativeNames);
    let issuer_names = extension("2.5.29.18", false, &sequence(&[element(0x82, b"a.example.org")]));
    assert_eq!(with(issuer_names), Problem::ProxyAlternativeNames);
    assert_eq!(with(key_usage(0x84)), Problem::ProxyKeyUsage);
    assert_eq!(with(key_usage(0xc0)), Problem::ProxyKeyUsage);
    assert_eq!(with(key_usage(0x20)), Problem::MustNotSign);
    let flag =
        |critical| here.refused(|plan| plan.extensions = vec![proxy_info_with(INHERIT_ALL, None, None, critical)]);
    assert_eq!(flag(false), Problem::ProxyNotCritical);
    let info = |value: &[u8]| here.refused(|plan| plan.extensions = vec![extension("1.3.6.1.5.5.7.1.14", true, value)]);
    assert_eq!(info(b"x"), Problem::ProxyInfo);
    assert_eq!(info(&sequence(&[])), Problem::ProxyInfo);
    assert_eq!(info(&sequence(&[element(2, &[0xff]), sequence(&[oid(INHERIT_ALL)])])), Problem::ProxyInfo);
    assert_eq!(info(&sequence(&[sequence(&[oid(INHERIT_ALL)]), integer(1)])), Problem::ProxyInfo);
}

#[test]
fn users_who_must_not_sign_have_no_proxies() {
    let root = Holder::authority("/O=Root");
    let ana = root.issue("/O=x/CN=ana", |plan| plan.extensions = vec![key_usage(0x20)]);
    assert_eq!(problem(&[&ana.proxy(), &ana], &trust(&[&root])), Problem::MustNotSign);
}

#[test]
fn authorities_have_no_proxies() {
    let root = Holder::authority("/O=Root");
    let middle = root.below("/O=Middle");
    assert_eq!(problem(&[&middle.proxy(), &middle], &trust(&[&root])), Problem::Authority);
    assert!(verify(&[&root.proxy(), &root], &trust(&[&root])).is_err());
}

#[test]
fn legacy_proxies_are_refused() {
    let here = here();
    for common_name in ["proxy", "limited proxy"] {
        let legacy =
            here.ana.issue("/CN=unused", |plan| plan.subject = with_common_name(&here.ana.subject, common_name));
        let why = problem(&[&legacy, &here.ana], &here.trust);
        assert_eq!(why, Problem::LegacyProxy("of the Globus Toolkit 2"));
    }
    let draft = extension("1.3.6.1.4.1.3536.1.222", true, &sequence(&[sequence(&[oid(INHERIT_ALL)])]));
    let why = here.refused(|plan| plan.extensions = vec![draft]);
    assert_eq!(why, Problem::LegacyProxy("of the Globus Toolkit 3"));
}
