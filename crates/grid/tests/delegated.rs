//! Proxies that users delegate to a service.

use grid::{CHAIN_MAX, GridError, GridUser, Problem, TrustMaterial, verify_delegated};
use types::Timestamp;

use crate::site::*;

impl Here {
    /// What follows if the user presents `presented` and sends `new`.
    fn delegated(&self, new: &Holder, presented: &[&Holder]) -> Result<GridUser, GridError> {
        verify_delegated(&new.der, &chain(presented), &new.key.public(), &self.trust, now())
    }

    fn problem(&self, new: &Holder, presented: &[&Holder]) -> Problem {
        match self.delegated(new, presented) {
            Err(GridError::Certificate { why, .. }) => why,
            other => panic!("another result: {other:?}"),
        }
    }
}

#[test]
fn a_proxy_of_what_was_presented_is_the_user() {
    let here = here();
    let ends = |plan: &mut Plan| plan.times.1 = NOW + 60;
    let user = here.delegated(&here.ana.proxy_with(ends), &[&here.ana]).unwrap();
    assert_eq!((user.subject.as_str(), user.not_after.secs(), user.limited), ("/O=x/CN=ana", NOW + 60, false));
    assert_eq!((user.proxies, verify(&[&here.ana], &here.trust).unwrap().proxies), (1, 0));
    let proxy = here.ana.proxy_with(|plan| plan.times.1 = NOW + 30);
    let user = here.delegated(&proxy.proxy(), &[&proxy, &here.ana]).unwrap();
    assert_eq!((user.not_after.secs(), user.proxies), (NOW + 30, 2), "as long as what it was made of");
    // What a limited one makes is limited.
    let limited = here.ana.proxy_with(|plan| plan.extensions[0] = proxy_info(LIMITED, None));
    assert!(here.delegated(&limited.proxy(), &[&limited, &here.ana]).unwrap().limited);
}

#[test]
fn it_must_be_for_the_key_that_was_made() {
    let here = here();
    let (new, other) = (here.ana.proxy(), here.ana.proxy());
    let why = verify_delegated(&new.der, &chain(&[&here.ana]), &other.key.public(), &here.trust, now()).unwrap_err();
    assert!(matches!(why, GridError::Certificate { why: Problem::ProxyKey, .. }), "{why}");
}

#[test]
fn it_must_be_signed_with_the_key_that_was_shown() {
    let here = here();
    let bob = Holder::authority("/O=Root").user("/O=x/CN=bob");
    assert!(matches!(here.problem(&bob.proxy(), &[&here.ana]), Problem::ProxyIssuer(_)), "another user's");
    // The user has logged in with the proxy, not with the certificate.
    let proxy = here.ana.proxy();
    assert!(matches!(here.problem(&here.ana.proxy(), &[&proxy, &here.ana]), Problem::ProxyIssuer(_)));
    // The same name and another key.
    let forged = Holder::self_signed("/O=x/CN=ana", |_| ());
    assert!(matches!(here.problem(&forged.proxy(), &[&here.ana]), Problem::Signature(_)));
    // It adds nothing, or another name.
    let other = here.ana.proxy_with(|plan| plan.subject = name("/O=x/CN=bob/CN=1"));
    assert!(matches!(here.problem(&other, &[&here.ana]), Problem::ProxySubject(_)));
    let user = here.ana.proxy_with(|plan| plan.extensions = vec![key_usage(0x80)]);
    assert!(matches!(here.problem(&user, &[&here.ana]), Problem::NoProxy));
}

#[test]
fn it_keeps_to_lengths_and_times() {
    let here = here();
    let last = here.ana.proxy_with(|plan| plan.extensions[0] = proxy_info(INHERIT_ALL, Some(0)));
    assert!(matches!(
        here.problem(&last.proxy(), &[&last, &here.ana]),
        Problem::ProxyPathLength { below: 1, allowed: 0 }
    ));
    let ended = here.ana.proxy_with(|plan| plan.times.1 = NOW);
    assert!(matches!(here.problem(&ended, &[&here.ana]), Problem::Expired { .. }));
    let independent = here.ana.proxy_with(|plan| plan.extensions[0] = proxy_info(INDEPENDENT, None));
    assert!(matches!(here.problem(&independent, &[&here.ana]), Problem::ProxyIndependent));
    // A chain that is full has no room for one more.
    let mut proxies = vec![here.ana.proxy()];
    while proxies.len() < CHAIN_MAX - 1 {
        let next = proxies[0].proxy();
        proxies.insert(0, next);
    }
    let mut presented: Vec<&Holder> = proxies.iter().collect();
    presented.push(&here.ana);
    assert_eq!(here.delegated(&proxies[0].proxy(), &presented), Err(GridError::TooMany(CHAIN_MAX + 1)));
    // A stranger's chain is none at all.
    let stranger = Holder::authority("/O=Stranger").user("/O=x/CN=ana");
    assert!(matches!(here.problem(&stranger.proxy(), &[&stranger]), Problem::UnknownIssuer(_)));
    assert_eq!(verify_delegated(&here.ana.proxy().der, &[], &[], &here.trust, now()), Err(GridError::Empty));
}

/// What XRootD before 5.6 signs. The files are those of the tests of the handshake.
#[test]
fn a_signature_with_sha1_is_taken_for_the_new_key_alone() {
    let der = |name: &str| {
        let path = format!("{}/../gsi/tests/data/{name}.pem", env!("CARGO_MANIFEST_DIR"));
        grid::certificates_from_pem(&std::fs::read(path).unwrap()).unwrap().remove(0)
    };
    let material = TrustMaterial { authorities: vec![file("ca", &der("ca"))], ..TrustMaterial::default() };
    let (trust, now) = (grid::Trust::new(&material), Timestamp::from_secs(1_800_000_000));
    let (ana, proxy, key) = (der("user"), der("sha1proxy"), der("oneproxy"));
    // Both proxies of the tests have one key.
    let (_, parsed) = x509_parser::parse_x509_certificate(&key).unwrap();
    let key = parsed.public_key().raw;
    let user = verify_delegated(&proxy, std::slice::from_ref(&ana), key, &trust, now).unwrap();
    assert_eq!(user.subject.as_str(), "/DC=org/DC=example/CN=ana");
    // At a login, or further up in the chain, it is broken.
    let broken = |result: Result<GridUser, GridError>| {
        assert!(
            matches!(result, Err(GridError::Certificate { why: Problem::BrokenAlgorithm("SHA-1"), .. })),
            "{result:?}"
        );
    };
    broken(grid::verify_user(&[proxy.clone(), ana.clone()], &trust, now));
    // Another signature under the same name of an algorithm.
    let mut forged = proxy.clone();
    *forged.last_mut().unwrap() ^= 1;
    let why = verify_delegated(&forged, std::slice::from_ref(&ana), key, &trust, now).unwrap_err();
    assert!(matches!(why, GridError::Certificate { why: Problem::Signature(_), .. }), "{why}");
    // The chain of it is no better as a start.
    let below = Holder::self_signed("/O=x", |_| ());
    assert!(verify_delegated(&below.der, &[proxy, ana], &below.key.public(), &trust, now).is_err());
}
