//! Why a token is accepted or refused, step by step.

use authentication::{Authenticator, Mechanism, Report};
use serde_json::json;

use crate::world::{HERE, Key, World, logins};

fn report(authenticator: &Authenticator, token: &str) -> Report {
    let report = authenticator.explain_token(token.as_bytes(), None);
    let text = format!("{report} {report:?}");
    for part in token.split('.').filter(|part| part.len() > 8) {
        assert!(!text.contains(part), "the report contains a part of the token: {text}");
    }
    report
}

#[test]
fn an_accepted_token_passes_all_steps() {
    let world = World::new();
    let authenticator = world.authenticator();
    let report = report(&authenticator, &world.token());
    let url = world.server.url();
    let expected = format!(
        "ok    mechanism  tokens are accepted (ztn)
ok    token      signed with ES256 and the key `first`
                 iss: {url}
                 sub: ana
                 aud: https://se.example.org
                 exp: 1800003600
                 iat: 1800000000
                 scope: storage.read:/
                 wlcg.ver: 1.0
                 jti: t1
ok    issuer     {url}, trusted
ok    key        one of 1 that the issuer published 0 s ago
ok    signature  ES256, valid
ok    claims     the WLCG profile, expires at 1800003600
ok    identity   principal wlcg-ana, groups wlcg, by [[identity]] number 1 (issuer = \"{url}\")
ok    rights     storage.read:/, with paths below `base_paths`, where the permissions of the principal allow it too
"
    );
    assert_eq!(report.to_string(), expected);
    assert_eq!(report.result, authenticator.token(world.token().as_bytes(), HERE));
    assert_eq!(logins(&authenticator, Mechanism::Ztn), (1, 0), "an explanation is not a login");
}

#[test]
fn a_refused_token_fails_at_the_step_that_refuses_it() {
    let world = World::new();
    let authenticator = world.authenticator();
    let with = |claim: &str, value: serde_json::Value| {
        let mut claims = world.claims(1);
        claims[claim] = value;
        world.key.token("first", &claims)
    };
    for (token, step) in [
        ("no token".to_owned(), "token"),
        (with("iss", json!("https://b.example")), "issuer"),
        (world.key.token("other", &world.claims(1)), "key"),
        (Key::p256().token("first", &world.claims(1)), "signature"),
        (Key::rsa().token("first", &world.claims(1)), "signature"),
        (with("aud", json!("x")), "claims"),
        (with("exp", json!(1)), "claims"),
        (with("sub", json!("a b")), "identity"),
    ] {
        let report = report(&authenticator, &token);
        let (last, before) = report.steps.split_last().unwrap();
        assert_eq!(last.name, step, "{report}");
        assert!(before.iter().all(|step| step.outcome.is_ok()), "{report}");
        let error = report.result.as_ref().unwrap_err();
        assert_eq!(last.outcome, Err(error.to_string()));
        assert!(report.to_string().contains(&format!("FAIL  {step}")), "{report}");
    }
}
