//! What is known without asking the database.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use database::{Postgres, PostgresConfig};
use kv::{Chain, Durability, Follow, Kv, KvError, OpOutcome, Prefetch, Read, ScanOrder, transact};
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
    assert_eq!(range(&kv), ["k2", "k3", "k3a", "k4"]);
    assert_eq!(get(&*kv.cached_snapshot(), "k7").unwrap(), "1");
    assert_eq!(get(&*kv.cached_snapshot(), "absent"), None);
    assert_eq!(kv.stats().round_trips, before);
    // The database itself, for whoever cannot begin anew.
    assert_eq!(get(&*kv.snapshot(), "k7").unwrap(), "1");
    assert!(kv.stats().round_trips > before);
}

/// The chain `D`, 8 bytes, `a`, and then `b`: each value is the number of the next directory. What the last one leads to is nowhere.
fn a_path() -> Chain {
    let follow = Follow { after: 2, prefix: b"W".to_vec(), ..Follow::default() };
    let some = Follow { after: 2, prefix: b"A".to_vec(), most: Some(3), ..Follow::default() };
    let names = vec![b"a".to_vec(), b"b".to_vec()];
    Chain { prefix: b"D".to_vec(), first: [b'0'; 8], names, id_at: 0, follow: vec![follow, some] }
}

#[test]
fn what_is_announced_and_not_read_is_not_fetched() {
    let kv = open(&database());
    for (key, value) in [("D00000000a", "11111111"), ("D11111111b", "22222222"), ("x", "1"), ("y", "1")] {
        put(&kv, key, value).unwrap();
    }
    // Makes the connection.
    assert_eq!(get(&*kv.snapshot(), "x").unwrap(), "1");
    let announced = || vec![Prefetch::Chain(a_path()), Prefetch::Key(b"p".to_vec()), Prefetch::Key(b"q".to_vec())];
    let read_path = |read: &dyn Read| {
        assert_eq!(get(read, "D00000000a").unwrap(), "11111111");
        assert_eq!(get(read, "D11111111b").unwrap(), "22222222");
    };
    let before = kv.stats().round_trips;
    let view = kv.cached_snapshot();
    view.prefetch(&announced).unwrap();
    read_path(&*view);
    assert_eq!(kv.stats().round_trips, before);
    // The first entry that is not known brings everything else.
    for absent in ["p", "q", "W22222222", "A22222222s"] {
        assert_eq!(get(&*view, absent), None);
    }
    read_path(&*view);
    assert_eq!(kv.stats().round_trips, before + 1);
    drop(view);

    let runs = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&runs);
    let unknown = || vec![Prefetch::Chain(a_path()), Prefetch::Key(b"r".to_vec()), Prefetch::Key(b"s".to_vec())];
    transact(&kv, Durability::Synced, move |txn| {
        counted.fetch_add(1, Ordering::SeqCst);
        let read = txn.prefetch(&unknown).and_then(|()| txn.get(b"D11111111b"));
        if let Ok(Some(_)) = read {
            txn.put(b"D11111111b", b"33333333");
        }
        (OpOutcome::Commit, ())
    })
    .unwrap();
    assert_eq!(runs.load(Ordering::SeqCst), 1, "nothing was missing");
    assert_eq!(get(&*kv.snapshot(), "D11111111b").unwrap(), "33333333");
    let (before, counted) = (kv.stats().round_trips, Arc::clone(&runs));
    transact(&kv, Durability::Synced, move |txn| {
        counted.fetch_add(1, Ordering::SeqCst);
        let read = txn.prefetch(&unknown).and_then(|()| Ok((txn.get(b"r")?, txn.get(b"s")?)));
        if matches!(read, Ok((None, None))) {
            txn.put(b"r", b"1");
        }
        (OpOutcome::Commit, ())
    })
    .unwrap();
    assert_eq!(runs.load(Ordering::SeqCst), 1 + 2, "what was announced came at once");
    assert_eq!(kv.stats().round_trips - before, 2);
    assert_eq!(get(&*kv.snapshot(), "r").unwrap(), "1");
}

/// Somebody else reads what was announced just before the operation does.
#[test]
fn an_operation_goes_on_that_lacks_something_else_than_it_has_announced() {
    let kv = Arc::new(open(&database()));
    put(&*kv, "x", "1").unwrap();
    let (other, runs) = (Arc::downgrade(&kv), AtomicU64::new(0));
    let read = transact(&*kv, Durability::Synced, move |txn| {
        runs.fetch_add(1, Ordering::SeqCst);
        let read = txn.prefetch(&|| vec![Prefetch::Key(b"p".to_vec())]).and_then(|()| {
            assert_eq!(get(&*other.upgrade().unwrap().cached_snapshot(), "p"), None);
            Ok((txn.get(b"p")?, txn.get(b"x")?, txn.get(b"q")?, runs.load(Ordering::SeqCst)))
        });
        (OpOutcome::Abort, read)
    });
    assert_eq!(read.unwrap().unwrap(), (None, Some(b"1".to_vec()), None, 2));
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
