//! The cache of keys: when it fetches, what it uses, whom it refuses.

use std::sync::Arc;
use std::time::Duration;

use identity::{
    CacheTimes, CacheTimesError, FETCH_TIME_MAX, FetchNumber, IssuerSettings, IssuerUrl, Issuers, KeyAnswer, KeyCache,
    KeyRefusal, KeySet, WAIT_TIME_MAX,
};
use proptest::prelude::*;
use serde_json::json;

use crate::common::{ISSUER, base64, key_set, key_set_of, settings};

const TIMES: CacheTimes = CacheTimes {
    refresh: Duration::from_secs(6 * 3600),
    keep: Duration::from_secs(48 * 3600),
    fetch_interval: Duration::from_secs(60),
};

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn issuers(urls: &[&str]) -> Issuers {
    Issuers::new(urls.iter().map(|url| IssuerSettings { url: (*url).into(), ..settings() }).collect()).unwrap()
}

fn cache() -> KeyCache {
    KeyCache::new(TIMES, &issuers(&[ISSUER])).unwrap()
}

fn key(id: &str) -> serde_json::Value {
    json!({"kty": "OKP", "crv": "Ed25519", "kid": id, "x": base64([1; 32])})
}

fn keys(ids: &[&str]) -> KeySet {
    key_set(ids.iter().map(|id| key(id)).collect())
}

/// The number of the fetch that a token begins.
fn fetch(cache: &mut KeyCache, id: &str, at: Duration) -> FetchNumber {
    match cache.answer(ISSUER, id, at) {
        KeyAnswer::Fetch(number) | KeyAnswer::Use { refresh: Some(number), .. } => number,
        other => panic!("{other:?} at {at:?}"),
    }
}

/// The number of the only fetch that is due.
fn due(cache: &mut KeyCache, at: Duration) -> FetchNumber {
    match cache.due(at, 10)[..] {
        [(_, number)] => number,
        ref other => panic!("{other:?} at {at:?}"),
    }
}

/// A cache whose keys were fetched at `at`.
fn filled(at: Duration, ids: &[&str]) -> KeyCache {
    let mut cache = cache();
    let number = fetch(&mut cache, "a", at);
    cache.fetched(number, keys(ids), at);
    cache
}

/// The answer that lets these keys be used, and begins no fetch.
fn used(ids: &[&str]) -> KeyAnswer {
    KeyAnswer::Use { keys: Arc::new(keys(ids)), refresh: None }
}

#[test]
fn the_defaults_are_those_that_the_profile_recommends() {
    assert_eq!(CacheTimes::default(), TIMES);
}

#[test]
fn times_that_break_the_promises_are_refused() {
    let refused = |times: CacheTimes| KeyCache::new(times, &issuers(&[ISSUER])).map(|_| ());
    assert_eq!(refused(CacheTimes { fetch_interval: s(0), ..TIMES }), Err(CacheTimesError::NoInterval));
    let order = |fetch_interval_s, refresh_s, keep_s| {
        let times = CacheTimes { refresh: s(refresh_s), keep: s(keep_s), fetch_interval: s(fetch_interval_s) };
        (refused(times), Err(CacheTimesError::Order { fetch_interval_s, refresh_s, keep_s }))
    };
    for (found, wanted) in [order(60, 7200, 3600), order(7200, 3600, 7200), order(60, 0, 0)] {
        assert_eq!(found, wanted);
    }
    assert_eq!(order(60, 60, 60).0, Ok(()));
}

#[test]
fn the_first_token_fetches_and_those_beside_it_wait() {
    let mut cache = cache();
    let number = fetch(&mut cache, "a", s(0));
    for _ in 0..100 {
        assert_eq!(cache.answer(ISSUER, "a", s(1)), KeyAnswer::Wait);
    }
    cache.fetched(number, keys(&["a", "b"]), s(2));
    assert_eq!(cache.answer(ISSUER, "b", s(2)), used(&["a", "b"]));
}

#[test]
fn tokens_wait_only_while_a_fetch_is_young() {
    let mut cache = filled(s(0), &["a"]);
    let number = fetch(&mut cache, "new", s(100));
    let nearly = s(100) + WAIT_TIME_MAX - Duration::from_millis(1);
    assert_eq!(cache.answer(ISSUER, "new", nearly), KeyAnswer::Wait);
    for since_s in WAIT_TIME_MAX.as_secs()..FETCH_TIME_MAX.as_secs() {
        let slow = KeyRefusal::FetchSlow { issuer: ISSUER.into(), key_id: "new".into(), since_s };
        assert_eq!(cache.answer(ISSUER, "new", s(100 + since_s)), KeyAnswer::Refuse(slow));
        assert_eq!(cache.answer(ISSUER, "a", s(100 + since_s)), used(&["a"]), "known keys are used meanwhile");
    }
    cache.fetched(number, keys(&["a", "new"]), s(159));
    assert_eq!(cache.answer(ISSUER, "new", s(159)), used(&["a", "new"]), "the fetch may take that long");
}

#[test]
fn an_unknown_issuer_costs_nothing() {
    const OTHER: &str = "https://other.example";
    let mut cache = cache();
    let refused = cache.answer(OTHER, "a", s(0));
    assert_eq!(refused, KeyAnswer::Refuse(KeyRefusal::UnknownIssuer(OTHER.into())));
    let number = due(&mut cache, s(0));
    cache.fetched(number, key_set_of(&IssuerUrl::parse(OTHER).unwrap(), vec![key("a")]), s(0));
    cache.failed(OTHER, number, "failed");
    assert!(matches!(cache.answer(OTHER, "a", s(1)), KeyAnswer::Refuse(_)));
    assert_eq!(cache.answer(ISSUER, "a", s(1)), KeyAnswer::Wait, "the fetch of the configured one goes on");
}

#[test]
fn a_new_key_is_found_by_one_fetch() {
    let mut cache = filled(s(0), &["a"]);
    let number = fetch(&mut cache, "new", s(100));
    assert_eq!(cache.answer(ISSUER, "a", s(101)), used(&["a"]), "known keys are used meanwhile");
    assert_eq!(cache.answer(ISSUER, "new", s(101)), KeyAnswer::Wait);
    cache.fetched(number, keys(&["a", "new"]), s(102));
    assert_eq!(cache.answer(ISSUER, "new", s(102)), used(&["a", "new"]));
}

#[test]
fn a_flood_of_unknown_keys_costs_one_fetch_in_each_interval() {
    let mut cache = filled(s(0), &["a"]);
    let mut fetches = 0;
    for millisecond in (0..600_000).step_by(7) {
        let now = Duration::from_millis(millisecond);
        match cache.answer(ISSUER, &format!("forged {millisecond}"), now) {
            KeyAnswer::Fetch(number) => {
                fetches += 1;
                cache.fetched(number, keys(&["a"]), now);
            }
            KeyAnswer::Refuse(KeyRefusal::UnknownKey { again_s, .. }) => assert!(again_s <= 60, "{again_s}"),
            other => panic!("{other:?}"),
        }
        assert_eq!(cache.answer(ISSUER, "a", now), used(&["a"]), "honest tokens are not disturbed");
    }
    assert_eq!(fetches, 9, "at 60 s, 120 s … 540 s");
}

#[test]
fn a_flood_at_an_issuer_that_hangs_waits_for_a_small_part_of_the_time() {
    let mut cache = cache();
    let (mut waits, mut all) = (0, 0);
    for millisecond in (0..600_000).step_by(100) {
        let answer = cache.answer(ISSUER, &format!("forged {millisecond}"), Duration::from_millis(millisecond));
        all += 1;
        waits += u32::from(matches!(answer, KeyAnswer::Wait | KeyAnswer::Fetch(_)));
    }
    assert_eq!(waits, all / 12, "5 s of each 60 s");
}

#[test]
fn a_failing_issuer_is_not_asked_more_often() {
    let mut cache = cache();
    let mut fetches = 0;
    for second in 0..600 {
        match cache.answer(ISSUER, "a", s(second)) {
            KeyAnswer::Fetch(number) => {
                fetches += 1;
                cache.failed(ISSUER, number, "connection refused");
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
                assert!(refresh.is_none() || second >= TIMES.refresh.as_secs(), "refreshed early, at {second}");
                if let Some(number) = refresh {
                    refreshes += 1;
                    cache.failed(ISSUER, number, "timed out");
                }
            }
            other => panic!("{other:?} at {second}"),
        }
    }
    assert_eq!(refreshes, (keep - TIMES.refresh.as_secs()) / 60, "one attempt a minute");
    let number = fetch(&mut cache, "a", s(keep));
    cache.failed(ISSUER, number, "timed out");
    assert!(matches!(cache.answer(ISSUER, "a", s(keep + 1)), KeyAnswer::Refuse(KeyRefusal::IssuerAway { .. })));
    let number = fetch(&mut cache, "a", s(keep + 60));
    cache.fetched(number, keys(&["a"]), s(keep + 61));
    assert_eq!(cache.answer(ISSUER, "a", s(keep + 61)), used(&["a"]));
    assert_eq!(cache.failure(ISSUER), None);
}

#[test]
fn a_refresh_replaces_all_keys_so_that_a_revoked_one_is_gone() {
    let mut cache = filled(s(0), &["a", "revoked"]);
    let later = TIMES.refresh;
    let number = fetch(&mut cache, "revoked", later);
    assert_eq!(cache.answer(ISSUER, "revoked", later), used(&["a", "revoked"]), "one token begins the refresh");
    cache.fetched(number, keys(&["a"]), later + s(1));
    let refused = cache.answer(ISSUER, "revoked", later + s(2));
    assert!(matches!(refused, KeyAnswer::Refuse(KeyRefusal::UnknownKey { age_s: 1, again_s: 58, .. })), "{refused:?}");
    let number = fetch(&mut cache, "revoked", later + s(60));
    cache.fetched(number, keys(&[]), later + s(61));
    assert!(matches!(cache.answer(ISSUER, "a", later + s(61)), KeyAnswer::Refuse(KeyRefusal::UnknownKey { .. })));
}

#[test]
fn a_key_that_is_published_and_cannot_be_used_is_told_apart() {
    let mut cache = cache();
    let number = fetch(&mut cache, "a", s(0));
    cache.fetched(number, key_set(vec![json!({"kty": "oct", "kid": "a", "k": "AAAA"})]), s(0));
    let unusable = KeyRefusal::UnusableKey { issuer: ISSUER.into(), key_id: "a".into(), why: "it is symmetric" };
    assert_eq!(cache.answer(ISSUER, "a", s(1)), KeyAnswer::Refuse(unusable));
    assert!(matches!(cache.answer(ISSUER, "b", s(1)), KeyAnswer::Refuse(KeyRefusal::UnknownKey { .. })));
    let number = fetch(&mut cache, "a", s(60));
    cache.fetched(number, keys(&["a"]), s(60));
    assert_eq!(cache.answer(ISSUER, "a", s(60)), used(&["a"]), "the issuer may have corrected it");
}

#[test]
fn a_fetch_that_nobody_reports_is_given_up() {
    let mut cache = cache();
    let first = fetch(&mut cache, "a", s(0));
    let slow = cache.answer(ISSUER, "a", FETCH_TIME_MAX - s(1));
    assert!(matches!(slow, KeyAnswer::Refuse(KeyRefusal::FetchSlow { since_s: 59, .. })), "{slow:?}");
    assert_ne!(fetch(&mut cache, "a", FETCH_TIME_MAX), first);
    assert!(cache.failure(ISSUER).unwrap().contains("did not end"));
}

#[test]
fn a_late_report_changes_nothing() {
    let mut cache = cache();
    let first = fetch(&mut cache, "a", s(0));
    let second = fetch(&mut cache, "a", FETCH_TIME_MAX);
    cache.failed(ISSUER, first, "timed out");
    assert_eq!(cache.answer(ISSUER, "a", FETCH_TIME_MAX), KeyAnswer::Wait, "the second fetch is still under way");
    cache.fetched(second, keys(&["a"]), FETCH_TIME_MAX + s(1));
    cache.fetched(first, keys(&["a", "revoked"]), FETCH_TIME_MAX + s(2));
    assert_eq!(cache.answer(ISSUER, "a", FETCH_TIME_MAX + s(2)), used(&["a"]), "an older document does not win");
    cache.failed(ISSUER, second, "failed");
    assert_eq!(cache.failure(ISSUER), None, "a fetch is reported once");
    // Nor does a report from before the issuer was removed and added again.
    cache.set_issuers(&issuers(&[]));
    cache.set_issuers(&issuers(&[ISSUER]));
    let third = fetch(&mut cache, "a", FETCH_TIME_MAX + s(3));
    cache.fetched(second, keys(&["a"]), FETCH_TIME_MAX + s(3));
    assert_eq!(cache.answer(ISSUER, "a", FETCH_TIME_MAX + s(3)), KeyAnswer::Wait);
    cache.fetched(third, keys(&["a"]), FETCH_TIME_MAX + s(4));
    assert_eq!(cache.answer(ISSUER, "a", FETCH_TIME_MAX + s(4)), used(&["a"]));
}

#[test]
fn an_issuer_is_never_asked_twice_at_once() {
    let often = CacheTimes { fetch_interval: s(5), ..TIMES };
    let mut cache = KeyCache::new(often, &issuers(&[ISSUER])).unwrap();
    let number = fetch(&mut cache, "a", s(0));
    cache.fetched(number, keys(&["a"]), s(0));
    let later = TIMES.refresh;
    fetch(&mut cache, "a", later);
    assert_eq!(cache.answer(ISSUER, "a", later + s(30)), used(&["a"]), "that fetch may still be under way");
    let other = cache.answer(ISSUER, "b", later + s(30));
    assert!(matches!(other, KeyAnswer::Refuse(KeyRefusal::FetchSlow { .. })), "{other:?}");
    assert_eq!(cache.due(later + s(30), 10).len(), 0);
    fetch(&mut cache, "a", later + FETCH_TIME_MAX);
}

#[test]
fn keys_are_due_before_any_token_needs_them() {
    let mut cache = cache();
    let number = due(&mut cache, s(0));
    assert_eq!(cache.due(s(0), 10).len(), 0, "each is named once");
    assert_eq!(cache.answer(ISSUER, "a", s(0)), KeyAnswer::Wait);
    cache.fetched(number, keys(&["a"]), s(1));
    assert_eq!(cache.due(TIMES.refresh, 10).len(), 0);
    let number = due(&mut cache, s(1) + TIMES.refresh);
    cache.failed(ISSUER, number, "timed out");
    assert_eq!(cache.due(s(60) + TIMES.refresh, 10).len(), 0);
    due(&mut cache, s(61) + TIMES.refresh);
}

#[test]
fn due_fetches_begin_a_few_at_a_time_and_none_is_forgotten() {
    let urls: Vec<String> = (0..10).map(|number| format!("https://i{number}.example")).collect();
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    let mut cache = KeyCache::new(TIMES, &issuers(&urls)).unwrap();
    assert_eq!(cache.due(s(0), 0), []);
    let mut asked = Vec::new();
    for second in 0..240 {
        let begun = cache.due(s(second), 3);
        assert!(begun.len() <= 3);
        for (url, number) in begun {
            // All of them fail, so those that failed are due again after a minute.
            cache.failed(url.as_str(), number, "timed out");
            asked.push((second / 60, url.to_string()));
        }
    }
    asked.sort();
    let each: Vec<(u64, String)> =
        (0..4).flat_map(|minute| urls.iter().map(move |url| (minute, (*url).to_owned()))).collect();
    assert_eq!(asked, each);
    // With room for less than what is due, the one that waits longest goes first.
    let mut order = Vec::new();
    for minute in 10..20 {
        for (url, number) in cache.due(s(minute * 60), 1) {
            cache.failed(url.as_str(), number, "timed out");
            order.push(url.to_string());
        }
    }
    order.sort();
    assert_eq!(order, urls);
}

#[test]
fn changed_settings_keep_the_keys_of_issuers_that_stay() {
    const OTHER: &str = "https://other.example";
    let mut cache = filled(s(0), &["a"]);
    cache.set_issuers(&issuers(&[ISSUER, OTHER]));
    assert_eq!(cache.answer(ISSUER, "a", s(1)), used(&["a"]));
    assert!(matches!(cache.answer(OTHER, "a", s(1)), KeyAnswer::Fetch(_)));
    cache.set_issuers(&issuers(&[OTHER]));
    assert!(matches!(cache.answer(ISSUER, "a", s(2)), KeyAnswer::Refuse(KeyRefusal::UnknownIssuer(_))));
    cache.set_issuers(&issuers(&[ISSUER]));
    let back = cache.answer(ISSUER, "a", s(2));
    assert!(matches!(back, KeyAnswer::Fetch(_)), "an issuer that comes back begins without keys: {back:?}");
}

#[derive(Clone, Debug)]
enum Event {
    Pass(u64),
    Ask(bool),
    Due,
    /// Whether the fetch succeeded, and how many fetches began after it.
    Report(bool, usize),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        (0_u64..90_000).prop_map(|milliseconds| Event::Pass(milliseconds * 3)),
        Just(Event::Pass(3 * 3600 * 1000)),
        any::<bool>().prop_map(Event::Ask),
        any::<bool>().prop_map(Event::Ask),
        Just(Event::Due),
        (any::<bool>(), 0_usize..3).prop_map(|(good, back)| Event::Report(good, back)),
    ];
    prop::collection::vec(event, 0..300)
}

proptest! {
    /// The promises of the machine, whatever happens in whatever order.
    #[test]
    fn fetches_are_apart_and_old_keys_are_not_used(events in events()) {
        let mut cache = cache();
        let mut now = Duration::ZERO;
        // When each fetch began, and whether it was reported.
        let mut begun: Vec<(FetchNumber, Duration, bool)> = Vec::new();
        let mut fetched: Option<Duration> = None;
        for event in events {
            let since = begun.last().map(|(_, at, _)| now - *at);
            let fetch = match event {
                Event::Pass(milliseconds) => {
                    now += Duration::from_millis(milliseconds);
                    None
                }
                Event::Ask(known) => match cache.answer(ISSUER, if known { "a" } else { "forged" }, now) {
                    KeyAnswer::Use { refresh, .. } => {
                        prop_assert!(known, "a forged key is never used");
                        prop_assert!(now - fetched.unwrap() < TIMES.keep);
                        refresh
                    }
                    KeyAnswer::Fetch(number) => Some(number),
                    KeyAnswer::Wait => {
                        prop_assert!(since.unwrap() < WAIT_TIME_MAX, "nobody waits for a slow fetch");
                        prop_assert!(!begun.last().unwrap().2, "nobody waits for a fetch that has ended");
                        None
                    }
                    KeyAnswer::Refuse(_) => {
                        prop_assert!(since.is_some_and(|since| since < TIMES.fetch_interval), "refused without asking");
                        None
                    }
                },
                Event::Due => cache.due(now, 1).first().map(|(_, number)| *number),
                Event::Report(good, back) => {
                    if let Some(at) = begun.len().checked_sub(1 + back) {
                        let latest = at + 1 == begun.len();
                        let (number, _, reported) = &mut begun[at];
                        if good {
                            cache.fetched(*number, keys(&["a"]), now);
                            if latest && !*reported {
                                fetched = Some(now);
                            }
                        } else {
                            cache.failed(ISSUER, *number, "failed");
                        }
                        *reported = true;
                    }
                    None
                }
            };
            if let Some(number) = fetch {
                prop_assert!(since.is_none_or(|since| since >= TIMES.fetch_interval), "two fetches too close");
                prop_assert!(begun.iter().all(|(earlier, _, _)| *earlier != number), "a number comes once");
                begun.push((number, now, false));
            }
        }
    }
}
