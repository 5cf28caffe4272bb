//! What is known without asking the database.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use database::{Postgres, PostgresConfig};
use kv::{Kv, KvError, ScanOrder};
use postgres_server::Proxy;

use crate::harness::{address, config, database, get, keys, open, put, queue_add};

/// How long something may take to be noticed.
const SOON: Duration = Duration::from_secs(20);

#[test]
fn what_was_written_or_read_is_read_without_the_database() {
    let kv = open(&database());
    for number in 0..10 {
        put(&kv, &format!("k{number}"), "1").unwrap();
    }
    let range = |kv: &Postgres| keys(&*kv.cached_snapshot(), "k2", "k5", ScanOrder::Ascending, 99);
    assert_eq!(range(&kv), ["k2", "k3", "k4"], "from the database");
    assert_eq!(get(&*kv.cached_snapshot(), "absent"), None);
    put(&kv, "k3a", "1").unwrap();
    let before = kv.stats().round_trips;
    // A beat of the committer is a round trip, too, so the smallest of several counts.
    let trips = (0..5).map(|_| {
        let before = kv.stats().round_trips;
        assert_eq!(range(&kv), ["k2", "k3", "k3a", "k4"]);
        assert_eq!(get(&*kv.cached_snapshot(), "k7").unwrap(), "1");
        assert_eq!(get(&*kv.cached_snapshot(), "absent"), None);
        kv.stats().round_trips - before
    });
    assert_eq!(trips.min(), Some(0), "{before}");
    // The database itself, for whoever cannot begin anew.
    assert_eq!(get(&*kv.snapshot(), "k7").unwrap(), "1");
    assert!(kv.stats().round_trips > before);
}

#[test]
fn a_reader_whose_view_has_changed_begins_anew() {
    let kv = open(&database());
    put(&kv, "a", "1").unwrap();
    put(&kv, "b", "1").unwrap();
    let view = kv.cached_snapshot();
    assert_eq!(get(&*view, "a").unwrap(), "1");
    // Nobody has asked for this key before, so the database is asked. What was read before is still so.
    put(&kv, "b", "2").unwrap();
    assert_eq!(get(&*view, "x"), None);
    assert_eq!(get(&*view, "b").unwrap(), "2", "as of the transaction");
    assert!(!view.is_mixed());
    let view = kv.cached_snapshot();
    assert_eq!(get(&*view, "a").unwrap(), "1");
    put(&kv, "a", "2").unwrap();
    assert!(matches!(view.get(b"y"), Err(KvError::Conflict { .. })));
    assert!(view.is_mixed());
    let view = kv.cached_snapshot();
    assert_eq!(get(&*view, "a").unwrap(), "2");
    put(&kv, "a", "3").unwrap();
    assert!(matches!(view.get(b"a"), Ok(Some(value)) if value == b"2"), "a view does not change");
}

/// Readers with and without the database, on several threads: whoever begins after another has seen a value sees it, or a later one.
#[test]
fn nobody_sees_an_earlier_state_after_a_later_one() {
    let kv = open(&database());
    put(&kv, "n", "0").unwrap();
    let (seen, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let cached = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (kv, seen, is_over, cached) = (&kv, &seen, &is_over, &cached);
            scope.spawn(move || {
                while !is_over.load(Ordering::SeqCst) {
                    let before = seen.load(Ordering::SeqCst);
                    let view = if thread % 2 == 0 { kv.cached_snapshot() } else { kv.snapshot() };
                    let trips = kv.stats().round_trips;
                    let value = get(&*view, "n").unwrap().parse::<u64>().unwrap();
                    assert!(value >= before, "{before} was seen, and then {value}");
                    seen.fetch_max(value, Ordering::SeqCst);
                    cached.fetch_add(u64::from(kv.stats().round_trips == trips), Ordering::SeqCst);
                }
            });
        }
        for number in 1..=200 {
            queue_add(&kv, "n").recv().unwrap().unwrap();
            // What was acknowledged is seen from now on.
            seen.fetch_max(number, Ordering::SeqCst);
        }
        is_over.store(true, Ordering::SeqCst);
    });
    assert!(cached.load(Ordering::SeqCst) > 0, "the cache was never used");
}

#[test]
fn without_the_lease_readers_ask_the_database() {
    let server = postgres_server::shared();
    let url = database();
    let proxy = Proxy::before(server.port());
    let config = PostgresConfig { readers_patience: Duration::from_millis(100), ..config() };
    let kv = Postgres::open(&address(&proxy.url(&url, server.port())), "test", config).unwrap();
    put(&kv, "a", "1").unwrap();
    proxy.set_down(true);
    let name = url.rsplit('/').next().unwrap();
    let end = format!(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}' AND pid <> pg_backend_pid()"
    );
    server.psql("postgres", &end).unwrap();
    assert_eq!(get(&*kv.cached_snapshot(), "a").unwrap(), "1", "nobody else can have changed it yet");
    let begun = Instant::now();
    while kv.lease().is_held() {
        assert!(begun.elapsed() < SOON, "the lease does not end");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(matches!(kv.cached_snapshot().get(b"a"), Err(KvError::Unavailable(_))));
    proxy.set_down(false);
    while !kv.lease().is_held() {
        assert!(begun.elapsed() < SOON, "the lease does not come back");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(get(&*kv.cached_snapshot(), "a").unwrap(), "1");
}
