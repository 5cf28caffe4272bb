//! Tokens and the keys that they are signed with.

use std::time::{Duration, Instant};

use authentication::{AuthenticationError, ErrorKind, FetchTimes, KeysError, Mechanism, Settings, WAITING_MAX};
use identity::{KeyRefusal, TokenError, TokenRights};
use serde_json::json;

use crate::issuer_server::{DISCOVERY, KEYS, Page};
use crate::world::{HERE, Key, World, logins, principal, refusal, status, wait_for};

#[test]
fn a_token_becomes_a_principal_with_groups_and_rights() {
    let world = World::new();
    let rsa = Key::rsa();
    world.server.publish(&[world.key.public("first"), rsa.public("second")]);
    let authenticator = world.authenticator();
    for token in [world.token(), rsa.token("second", &world.claims(1))] {
        let client = authenticator.token(token.as_bytes(), HERE).unwrap();
        assert_eq!(client.name.as_str(), "wlcg-ana");
        assert_eq!(client.groups.iter().map(|group| group.as_str()).collect::<Vec<_>>(), ["wlcg"]);
        assert_eq!(client.mechanism, Mechanism::Ztn);
        assert_eq!(client.expires.unwrap().secs(), crate::world::NOW + 3600);
        assert_eq!(client.credential, format!("a token of {} for `ana`, ID t1", world.server.url()));
        let Some(TokenRights::Scoped(scoped)) = client.rights else { panic!("{:?}", client.rights) };
        assert_eq!(scoped.scopes().len(), 1);
    }
    assert_eq!(world.server.all_asked(), [DISCOVERY, KEYS], "one fetch for both");
    assert_eq!(logins(&authenticator, Mechanism::Ztn), (2, 0));
    let status = status(&authenticator);
    assert_eq!((status.keys, status.fetches_succeeded, status.fetches_failed), (2, 1, 0));
    assert_eq!(status.keys_age, Some(Duration::ZERO));
}

#[test]
fn a_token_that_is_not_right_is_refused_with_the_reason() {
    let world = World::new();
    let authenticator = world.authenticator();
    let with = |claim: &str, value: serde_json::Value| {
        let mut claims = world.claims(1);
        claims[claim] = value;
        world.key.token("first", &claims)
    };
    let why = |token: &str| match refusal(&authenticator, token) {
        AuthenticationError::Token(error) => error,
        other => panic!("{other}"),
    };
    assert!(matches!(why(&with("exp", json!(crate::world::NOW))), TokenError::Expired { .. }));
    assert!(matches!(why(&with("iat", json!(crate::world::NOW + 61))), TokenError::NotYetValid { .. }));
    assert!(matches!(why(&with("aud", json!("https://other.example.org"))), TokenError::Audience { .. }));
    assert!(matches!(why(&with("iss", json!("https://other.example.org"))), TokenError::UnknownIssuer(_)));
    assert!(matches!(why(&Key::p256().token("first", &world.claims(1))), TokenError::Signature { .. }));
    assert!(matches!(why(&"x".repeat(100_000)), TokenError::TooLong(_)));
    assert!(matches!(why("secret"), TokenError::Parts(1)));
    let error = refusal(&authenticator, &with("sub", json!("not a name")));
    assert!(matches!(error, AuthenticationError::Refused(_)), "{error}");
    assert_eq!(error.kind(), ErrorKind::NotAllowed);
    let token = world.token();
    world.clock.pass(Duration::from_secs(3600));
    assert!(matches!(why(&token), TokenError::Expired { .. }));
    assert_eq!(logins(&authenticator, Mechanism::Ztn), (0, 9));
}

#[test]
fn tokens_are_accepted_only_if_they_are_offered() {
    let world = World::new();
    let settings = Settings { mechanisms: authentication::Mechanisms::parse(["unix"]).unwrap(), ..world.settings() };
    let authenticator = world.with(settings);
    assert_eq!(refusal(&authenticator, &world.token()), AuthenticationError::NotOffered(Mechanism::Ztn));
    assert!(world.server.all_asked().is_empty());
}

#[test]
fn a_new_key_is_fetched_once_and_an_old_one_is_revoked() {
    let world = World::new();
    let authenticator = world.authenticator();
    assert_eq!(principal(&authenticator, &world.token()).unwrap(), "wlcg-ana");
    let next = Key::p256();
    world.server.publish(&[next.public("next")]);
    let token = || next.token("next", &world.claims(1));
    // Not before the minute is over.
    let error = refusal(&authenticator, &token());
    assert!(matches!(error, AuthenticationError::Keys(KeysError::Refused(KeyRefusal::UnknownKey { .. }))), "{error}");
    assert!(error.to_string().contains("fetched again in 60 s"), "{error}");
    assert_eq!(error.kind(), ErrorKind::NotAuthenticated);
    world.clock.pass(Duration::from_secs(60));
    for _ in 0..3 {
        assert_eq!(principal(&authenticator, &token()).unwrap(), "wlcg-ana");
    }
    assert_eq!(world.server.asked(KEYS), 2);
    assert!(matches!(refusal(&authenticator, &world.token()), AuthenticationError::Keys(KeysError::Refused(_))));
    assert_eq!(world.server.asked(KEYS), 2);
}

#[test]
fn a_flood_of_unknown_keys_costs_the_issuer_one_fetch() {
    let world = World::new();
    let authenticator = world.authenticator();
    principal(&authenticator, &world.token()).unwrap();
    world.clock.pass(Duration::from_secs(100));
    std::thread::scope(|scope| {
        for thread in 0..16 {
            let (authenticator, world) = (&authenticator, &world);
            scope.spawn(move || {
                for number in 0..20 {
                    let token = world.key.token(&format!("unknown-{thread}-{number}"), &world.claims(1));
                    refusal(authenticator, &token);
                    principal(authenticator, &world.token()).unwrap();
                }
            });
        }
    });
    assert_eq!(world.server.asked(KEYS), 2);
    assert_eq!(logins(&authenticator, Mechanism::Ztn), (321, 320));
}

fn quick(world: &World, total: u64, wait: u64) -> Settings {
    let millis = Duration::from_millis;
    Settings {
        fetch: FetchTimes { connect: millis(total), total: millis(total), wait: millis(wait) },
        ..world.settings()
    }
}

#[test]
fn only_so_many_clients_wait_for_an_issuer() {
    let world = World::new();
    world.server.put(KEYS, Page::Hang);
    let authenticator = world.with(quick(&world, 4000, 8000));
    let token = world.token();
    std::thread::scope(|scope| {
        let waiting: Vec<_> = (0..WAITING_MAX).map(|_| scope.spawn(|| refusal(&authenticator, &token))).collect();
        wait_for("the wait of all", || status(&authenticator).waiting == WAITING_MAX);
        let begun = Instant::now();
        let error = refusal(&authenticator, &token);
        assert!(matches!(error, AuthenticationError::Keys(KeysError::Busy(_))), "{error}");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(begun.elapsed() < Duration::from_secs(2));
        for thread in waiting {
            let error = thread.join().unwrap();
            assert!(matches!(error, AuthenticationError::Keys(KeysError::Away { .. })), "{error}");
        }
    });
    assert_eq!(status(&authenticator).waiting, 0);
    assert_eq!(world.server.asked(KEYS), 1);
}

#[test]
fn a_client_waits_no_longer_than_it_should() {
    let world = World::new();
    world.server.put(DISCOVERY, Page::Hang);
    let authenticator = world.with(quick(&world, 5000, 200));
    let begun = Instant::now();
    let error = refusal(&authenticator, &world.token());
    assert!(matches!(error, AuthenticationError::Keys(KeysError::Slow { .. })), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(3));
    // The fetch that goes on is not begun again.
    refusal(&authenticator, &world.token());
    assert_eq!(world.server.all_asked(), [DISCOVERY]);
}

#[test]
fn a_refresh_holds_nobody_up() {
    let world = World::new();
    let authenticator = world.with(quick(&world, 5000, 8000));
    principal(&authenticator, &world.token()).unwrap();
    world.server.put(DISCOVERY, Page::Hang);
    world.clock.hours(6);
    let begun = Instant::now();
    for _ in 0..10 {
        assert_eq!(principal(&authenticator, &world.token()).unwrap(), "wlcg-ana");
    }
    assert!(begun.elapsed() < Duration::from_secs(3));
    wait_for("the refresh", || world.server.asked(DISCOVERY) == 2);
}

#[test]
fn an_issuer_may_be_away_for_two_days() {
    let world = World::new();
    let authenticator = world.authenticator();
    principal(&authenticator, &world.token()).unwrap();
    world.server.set_away(true);
    world.clock.hours(24);
    principal(&authenticator, &world.token()).unwrap();
    wait_for("the failed refresh", || status(&authenticator).fetches_failed == 1);
    assert!(status(&authenticator).failure.unwrap().contains(DISCOVERY));
    world.clock.pass(Duration::from_secs(24 * 3600 - 1));
    principal(&authenticator, &world.token()).unwrap();
    wait_for("the second refresh", || status(&authenticator).fetches_failed == 2);
    assert_eq!(status(&authenticator).keys_age, Some(Duration::from_secs(48 * 3600 - 1)));
    world.clock.pass(Duration::from_secs(1));
    let error = refusal(&authenticator, &world.token());
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("the next attempt is in 59 s"), "{error}");
    world.server.set_away(false);
    assert_eq!(refusal(&authenticator, &world.token()), error, "not before the minute is over");
    world.clock.pass(Duration::from_secs(60));
    assert_eq!(principal(&authenticator, &world.token()).unwrap(), "wlcg-ana");
    assert_eq!(status(&authenticator).failure, None);
}

#[test]
fn keys_are_there_before_the_first_token_and_stay_fresh() {
    let world = World::new();
    let authenticator = world.authenticator();
    let refresher = authenticator.keep_keys_fresh().unwrap();
    wait_for("the first fetch", || status(&authenticator).keys == 1);
    drop(refresher);
    assert_eq!(status(&authenticator).fetches_succeeded, 1);
    world.clock.hours(5);
    authenticator.fetch_due_keys();
    world.clock.hours(1);
    authenticator.fetch_due_keys();
    wait_for("the refresh", || status(&authenticator).fetches_succeeded == 2);
    authenticator.fetch_due_keys();
    assert_eq!(world.server.asked(KEYS), 2);
}
