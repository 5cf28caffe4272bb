//! The cache of keys: when it fetches, what it uses, whom it refuses.

use std::sync::Arc;
use std::time::Duration;

use identity::{CacheTimes, FETCH_TIME_MAX, Issuers, KeyAnswer, KeyCache, KeyRefusal, KeySet};
use proptest::prelude::*;
use serde_json::json;

use crate::common::{ISSUER, base64, key_set, settings};

const TIMES: CacheTimes = CacheTimes {
    refresh: Duration::from_secs(6 * 3600),
    keep: Duration::from_secs(48 * 3600),
    fetch_interval: Duration::from_secs(60),
};

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn cache() -> KeyCache {
    KeyCache::new(TIMES, &Issuers::new(vec![settings()]).unwrap())
}

fn keys(ids: &[&str]) -> KeySet {
    key_set(ids.iter().map(|id| json!({"kty": "OKP", "crv": "Ed25519", "kid": id, "x": base64([1; 32])})).collect())
}

/// A cache whose keys were fetched at `at`.
fn filled(at: Duration, ids: &[&str]) -> KeyCache {
    let mut cache = cache();
    assert_eq!(cache.answer(ISSUER, "a", at), KeyAnswer::Fetch);
    cache.fetched(ISSUER, keys(ids), at);
    cache
}

fn used(ids: &[&str], refresh: bool) -> KeyAnswer {
    KeyAnswer::Use { keys: Arc::new(keys(ids)), refresh }
}

#[test]
fn the_defaults_are_those_that_the_profile_recommends() {
    assert_eq!(CacheTimes::default(), TIMES);
}

#[test]
fn the_first_token_fetches_and_those_beside_it_wait() {
    let mut cache = cache();
    assert_eq!(cache.answer(ISSUER, "a", s(0)), KeyAnswer::Fetch);
    for _ in 0..100 {
        assert_eq!(cache.answer(ISSUER, "a", s(1)), KeyAnswer::Wait);
    }
    cache.fetched(ISSUER, keys(&["a", "b"]), s(2));
    assert_eq!(cache.answer(ISSUER, "b", s(2)), used(&["a", "b"], false));
}

#[test]
fn an_unknown_issuer_costs_nothing() {
    let mut cache = cache();
    let refused = cache.answer("https://other.example", "a", s(0));
    assert_eq!(refused, KeyAnswer::Refuse(KeyRefusal::UnknownIssuer("https://other.example".into())));
    assert_eq!(cache.due(s(0)).len(), 1, "only the configured one");
    cache.fetched("https://other.example", keys(&["a"]), s(0));
    assert!(matches!(cache.answer("https://other.example", "a", s(1)), KeyAnswer::Refuse(_)));
}

#[test]
fn a_new_key_is_found_by_one_fetch() {
    let mut cache = filled(s(0), &["a"]);
    assert_eq!(cache.answer(ISSUER, "new", s(100)), KeyAnswer::Fetch);
    assert_eq!(cache.answer(ISSUER, "a", s(101)), used(&["a"], false), "known keys are used meanwhile");
    assert_eq!(cache.answer(ISSUER, "new", s(101)), KeyAnswer::Wait);
    cache.fetched(ISSUER, keys(&["a", "new"]), s(102));
    assert_eq!(cache.answer(ISSUER, "new", s(102)), used(&["a", "new"], false));
}

#[test]
fn a_flood_of_unknown_keys_costs_one_fetch_in_each_interval() {
    let mut cache = filled(s(0), &["a"]);
    let mut fetches = 0;
    for millisecond in (0..600_000).step_by(7) {
        let now = Duration::from_millis(millisecond);
        match cache.answer(ISSUER, &format!("forged {millisecond}"), now) {
            KeyAnswer::Fetch => {
                fetches += 1;
                cache.fetched(ISSUER, keys(&["a"]), now);
            }
            KeyAnswer::Refuse(KeyRefusal::UnknownKey { again_s, .. }) => assert!(again_s <= 60, "{again_s}"),
            other => panic!("{other:?}"),
        }
        assert_eq!(cache.answer(ISSUER, "a", now), used(&["a"], false), "honest tokens are not disturbed");
    }
    assert_eq!(fetches, 9, "at 60 s, 120 s … 540 s");
}

#[test]
fn a_failing_issuer_is_not_asked_more_often() {
    let mut cache = cache();
    let mut fetches = 0;
    for second in 0..600 {
        match cache.answer(ISSUER, "a", s(second)) {
            KeyAnswer::Fetch => {
                fetches += 1;
                cache.failed(ISSUER, "connection refused");
            }
            KeyAnswer::Refuse(KeyRefusal::IssuerAway { why, again_s, .. }) => {
                assert_eq!(why, "connection refused");
                assert_eq!(again_s, 60 - second % 60);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(fetches, 10);
    assert_eq!(cache.failure(ISSUER), Some("connection refused"));
}

#[test]
fn keys_stay_in_use_while_the_issuer_is_away_and_no_longer_than_stated() {
    let mut cache = filled(s(0), &["a"]);
    let keep = TIMES.keep.as_secs();
    let mut refreshes = 0;
    for second in (0..keep).step_by(10) {
        match cache.answer(ISSUER, "a", s(second)) {
            KeyAnswer::Use { refresh, .. } => {
                assert!(!refresh || second >= TIMES.refresh.as_secs(), "refreshed early, at {second}");
                if refresh {
                    refreshes += 1;
                    cache.failed(ISSUER, "timed out");
                }
            }
            other => panic!("{other:?} at {second}"),
        }
    }
    assert_eq!(refreshes, (keep - TIMES.refresh.as_secs()) / 60, "one attempt a minute");
    assert_eq!(cache.answer(ISSUER, "a", s(keep)), KeyAnswer::Fetch, "the keys are too old now");
    cache.failed(ISSUER, "timed out");
    assert!(matches!(cache.answer(ISSUER, "a", s(keep + 1)), KeyAnswer::Refuse(KeyRefusal::IssuerAway { .. })));
    assert_eq!(cache.answer(ISSUER, "a", s(keep + 60)), KeyAnswer::Fetch);
    cache.fetched(ISSUER, keys(&["a"]), s(keep + 61));
    assert_eq!(cache.answer(ISSUER, "a", s(keep + 61)), used(&["a"], false));
    assert_eq!(cache.failure(ISSUER), None);
}

#[test]
fn a_refresh_replaces_all_keys_so_that_a_revoked_one_is_gone() {
    let mut cache = filled(s(0), &["a", "revoked"]);
    let later = TIMES.refresh;
    assert_eq!(cache.answer(ISSUER, "revoked", later), used(&["a", "revoked"], true), "one token begins the refresh");
    assert_eq!(cache.answer(ISSUER, "revoked", later), used(&["a", "revoked"], false), "and others do not");
    cache.fetched(ISSUER, keys(&["a"]), later + s(1));
    let refused = cache.answer(ISSUER, "revoked", later + s(2));
    assert!(matches!(refused, KeyAnswer::Refuse(KeyRefusal::UnknownKey { age_s: 1, again_s: 58, .. })), "{refused:?}");
    cache.fetched(ISSUER, KeySet::default(), later + s(3));
    assert!(matches!(cache.answer(ISSUER, "a", later + s(3)), KeyAnswer::Refuse(KeyRefusal::UnknownKey { .. })));
}

#[test]
fn a_fetch_that_nobody_reports_is_given_up() {
    let mut cache = cache();
    assert_eq!(cache.answer(ISSUER, "a", s(0)), KeyAnswer::Fetch);
    assert_eq!(cache.answer(ISSUER, "a", FETCH_TIME_MAX - s(1)), KeyAnswer::Wait);
    assert_eq!(cache.answer(ISSUER, "a", FETCH_TIME_MAX), KeyAnswer::Fetch);
    assert!(cache.failure(ISSUER).unwrap().contains("did not end"));
}

#[test]
fn an_issuer_is_never_asked_twice_at_once() {
    let often = CacheTimes { fetch_interval: s(5), ..TIMES };
    let mut cache = KeyCache::new(often, &Issuers::new(vec![settings()]).unwrap());
    assert_eq!(cache.answer(ISSUER, "a", s(0)), KeyAnswer::Fetch);
    cache.fetched(ISSUER, keys(&["a"]), s(0));
    let later = TIMES.refresh;
    assert_eq!(cache.answer(ISSUER, "a", later), used(&["a"], true));
    assert_eq!(cache.answer(ISSUER, "a", later + s(30)), used(&["a"], false), "that fetch may still be under way");
    assert_eq!(cache.answer(ISSUER, "b", later + s(30)), KeyAnswer::Wait);
    assert_eq!(cache.due(later + s(30)).len(), 0);
    assert_eq!(cache.answer(ISSUER, "a", later + FETCH_TIME_MAX), used(&["a"], true));
}

#[test]
fn keys_are_due_before_any_token_needs_them() {
    let mut cache = cache();
    assert_eq!(cache.due(s(0)).len(), 1);
    assert_eq!(cache.due(s(0)).len(), 0, "each is named once");
    assert_eq!(cache.answer(ISSUER, "a", s(0)), KeyAnswer::Wait);
    cache.fetched(ISSUER, keys(&["a"]), s(1));
    assert_eq!(cache.due(TIMES.refresh).len(), 0);
    assert_eq!(cache.due(s(1) + TIMES.refresh).len(), 1);
    cache.failed(ISSUER, "timed out");
    assert_eq!(cache.due(s(60) + TIMES.refresh).len(), 0);
    assert_eq!(cache.due(s(61) + TIMES.refresh).len(), 1, "again after the interval");
}

#[test]
fn changed_settings_keep_the_keys_of_issuers_that_stay() {
    let mut cache = filled(s(0), &["a"]);
    let other = identity::IssuerSettings { url: "https://other.example".into(), ..settings() };
    cache.set_issuers(&Issuers::new(vec![settings(), other.clone()]).unwrap());
    assert_eq!(cache.answer(ISSUER, "a", s(1)), used(&["a"], false));
    assert_eq!(cache.answer("https://other.example", "a", s(1)), KeyAnswer::Fetch);
    cache.set_issuers(&Issuers::new(vec![other]).unwrap());
    assert!(matches!(cache.answer(ISSUER, "a", s(2)), KeyAnswer::Refuse(KeyRefusal::UnknownIssuer(_))));
    cache.set_issuers(&Issuers::new(vec![settings()]).unwrap());
    assert_eq!(cache.answer(ISSUER, "a", s(2)), KeyAnswer::Fetch, "an issuer that comes back begins without keys");
}

#[derive(Clone, Debug)]
enum Event {
    Pass(u64),
    Ask(bool),
    Due,
    Report(bool),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        (0_u64..90_000).prop_map(|milliseconds| Event::Pass(milliseconds * 3)),
        Just(Event::Pass(3 * 3600 * 1000)),
        any::<bool>().prop_map(Event::Ask),
        any::<bool>().prop_map(Event::Ask),
        Just(Event::Due),
        any::<bool>().prop_map(Event::Report),
    ];
    prop::collection::vec(event, 0..300)
}

proptest! {
    /// The promises of the machine, whatever happens in whatever order.
    #[test]
    fn fetches_are_apart_and_old_keys_are_not_used(events in events()) {
        let mut cache = cache();
        let mut now = Duration::ZERO;
        let mut begun: Option<Duration> = None;
        let mut fetched: Option<Duration> = None;
        for event in events {
            let fetch = match event {
                Event::Pass(milliseconds) => {
                    now += Duration::from_millis(milliseconds);
                    false
                }
                Event::Ask(known) => match cache.answer(ISSUER, if known { "a" } else { "forged" }, now) {
                    KeyAnswer::Use { refresh, .. } => {
                        prop_assert!(known, "a forged key is never used");
                        prop_assert!(now - fetched.unwrap() < TIMES.keep);
                        refresh
                    }
                    KeyAnswer::Fetch => true,
                    KeyAnswer::Wait => {
                        prop_assert!(now - begun.unwrap() < FETCH_TIME_MAX, "nobody waits for a lost fetch");
                        false
                    }
                    KeyAnswer::Refuse(_) => {
                        prop_assert!(begun.is_some_and(|begun| now - begun < TIMES.fetch_interval), "refused without asking");
                        false
                    }
                },
                Event::Due => !cache.due(now).is_empty(),
                Event::Report(good) => {
                    if good {
                        cache.fetched(ISSUER, keys(&["a"]), now);
                        fetched = Some(now);
                    } else {
                        cache.failed(ISSUER, "failed");
                    }
                    false
                }
            };
            if fetch {
                prop_assert!(begun.is_none_or(|begun| now - begun >= TIMES.fetch_interval), "two fetches too close");
                begun = Some(now);
            }
        }
    }
}
