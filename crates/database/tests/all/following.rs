//! Reading what another process changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use database::{Postgres, PostgresConfig, PostgresReader, Question, Schema};
use kv::{Durability, Kv, KvError, OpOutcome, ScanOrder, transact};
use postgres_server::Proxy;

use crate::harness::{address, config, database, get, keys, open, put, queue_add};

fn reader(url: &str) -> PostgresReader {
    let config = PostgresConfig { readers_patience: Duration::from_millis(500), ..config() };
    PostgresReader::new(&address(url), "test", &config)
}

fn sql(url: &str, statement: &str) {
    postgres_server::shared().psql(url, statement).unwrap();
}

#[test]
fn everything_that_was_acknowledged_is_seen() {
    let url = database();
    let (kv, reader) = (open(&url), reader(&url));
    for turn in 0..20 {
        let before = reader.snapshot();
        assert_eq!(get(&*before, "n"), (turn > 0).then(|| (turn - 1).to_string()));
        put(&kv, "n", &turn.to_string()).unwrap();
        assert_eq!(get(&*reader.snapshot(), "n").unwrap(), turn.to_string());
        put(&kv, &format!("k{turn:02}"), "1").unwrap();
        assert!(!keys(&*before, "k", "l", ScanOrder::Ascending, 99).contains(&format!("k{turn:02}")), "of one state");
    }
    assert_eq!(keys(&*reader.cached_snapshot(), "k", "l", ScanOrder::Ascending, 99).len(), 20);
    let refused = transact(&reader, Durability::Synced, |_| (OpOutcome::Commit, ()));
    assert!(matches!(refused, Err(KvError::Stopped { .. })), "{refused:?}");
    assert!(reader.round_trips() > 0);
}

/// For example an old primary that nobody has stopped yet.
#[test]
fn a_server_that_lacks_what_was_seen_is_not_read_from() {
    let url = database();
    let kv = open(&url);
    put(&kv, "n", "1").unwrap();
    let reader = reader(&url);
    assert_eq!(get(&*reader.snapshot(), "n").unwrap(), "1");
    kv.stop();
    // On the connection that is there, and on a new one.
    for _ in 0..2 {
        sql(&url, "UPDATE weir.committers SET batch = batch - 1");
        let read = reader.snapshot().get(b"n");
        assert!(matches!(read, Err(KvError::Unavailable(_))), "{read:?}");
        sql(&url, "UPDATE weir.committers SET batch = batch + 1");
        assert_eq!(get(&*reader.snapshot(), "n").unwrap(), "1", "it is no longer behind");
    }
    assert!(Schema::connect(&address(&url)).unwrap().check().is_ok(), "whoever makes the changes judges that");
}

#[test]
fn a_database_that_is_closed_is_not_read() {
    let url = database();
    let kv = open(&url);
    put(&kv, "n", "1").unwrap();
    drop(kv);
    sql(&url, "UPDATE weir.schema SET closed = 'a test'");
    let read = reader(&url).snapshot().get(b"n");
    assert!(read.is_err(), "{read:?}");
}

/// A reader that asks `kv` what has changed, as long as that answers.
fn follower(url: &str, kv: &Arc<Postgres>) -> (PostgresReader, Arc<AtomicBool>) {
    let (reader, kv, answers) = (reader(url), Arc::downgrade(kv), Arc::new(AtomicBool::new(true)));
    let asked = Arc::clone(&answers);
    reader.ask_with(Box::new(move |question| {
        let kv = kv.upgrade().filter(|_| asked.load(Ordering::SeqCst))?;
        kv.tell_changes(question)
    }));
    (reader, answers)
}

/// A process that commits, and reaches its database by a proxy; two readers that ask it; and the first value of `n`.
fn behind_a_proxy(n: &str) -> (Proxy, Arc<Postgres>, [PostgresReader; 2]) {
    let server = postgres_server::shared();
    let url = database();
    let proxy = Proxy::before(server.port());
    let kv = Arc::new(Postgres::open(&address(&proxy.url(&url, server.port())), "test", config()).unwrap());
    put(&*kv, "n", n).unwrap();
    let readers = [follower(&url, &kv).0, follower(&url, &kv).0];
    (proxy, kv, readers)
}

#[test]
fn what_was_read_once_is_read_without_the_database_and_is_never_old() {
    let url = database();
    let kv = Arc::new(open(&url));
    put(&*kv, "a", "1").unwrap();
    put(&*kv, "k1", "1").unwrap();
    let (reader, answers) = follower(&url, &kv);
    let range = || keys(&*reader.cached_snapshot(), "k", "l", ScanOrder::Ascending, 99);
    let read = |key: &str| get(&*reader.cached_snapshot(), key);
    assert_eq!((read("a").unwrap().as_str(), read("absent"), range().len()), ("1", None, 1));
    let before = reader.round_trips();
    for turn in 2..20 {
        assert_eq!((read("absent"), range().len()), (None, turn - 1));
        put(&*kv, "a", &turn.to_string()).unwrap();
        put(&*kv, &format!("k{turn}"), "1").unwrap();
        assert_eq!(read("a").unwrap(), turn.to_string());
    }
    assert_eq!(reader.round_trips(), before, "nothing was asked of the database");
    put(&*kv, "absent", "1").unwrap();
    assert_eq!(read("absent").unwrap(), "1");
    assert_eq!(reader.round_trips(), before);
    // Nobody says what has changed, so nothing of what is known is used.
    answers.store(false, Ordering::SeqCst);
    put(&*kv, "a", "x").unwrap();
    assert_eq!(read("a").unwrap(), "x");
    assert!(reader.round_trips() > before);
    answers.store(true, Ordering::SeqCst);
    put(&*kv, "a", "y").unwrap();
    let before = reader.round_trips();
    assert_eq!((read("a").unwrap().as_str(), reader.round_trips()), ("y", before));
}

#[test]
fn after_another_process_has_taken_the_place_nothing_that_was_known_counts() {
    let url = database();
    let first = Arc::new(open(&url));
    put(&*first, "a", "1").unwrap();
    let (reader, _) = follower(&url, &first);
    assert_eq!(get(&*reader.cached_snapshot(), "a").unwrap(), "1");
    let question = Question { since: (0, 0), seen: (0, 0) };
    let old = first.tell_changes(question).unwrap();
    first.stop();
    assert_eq!(first.tell_changes(question), None, "it has no lease any more");
    let second = Arc::new(open(&url));
    put(&*second, "a", "2").unwrap();
    assert_eq!(get(&*reader.cached_snapshot(), "a").unwrap(), "2", "the first one does not answer");
    let asked = Arc::clone(&second);
    reader.ask_with(Box::new(move |question| asked.tell_changes(question)));
    assert_eq!(get(&*reader.cached_snapshot(), "a").unwrap(), "2");
    put(&*second, "a", "3").unwrap();
    assert_eq!(get(&*reader.cached_snapshot(), "a").unwrap(), "3");
    // A late answer of the first one.
    reader.ask_with(Box::new(move |_| Some(old.clone())));
    assert_eq!(get(&*reader.cached_snapshot(), "a").unwrap(), "3");
}

/// Readers of the process that commits, and of two others, with and without the database. The answers to commits come late: a change is in the database for
/// a while before it is acknowledged. Whoever begins after another has seen a value sees it, or a later one.
#[test]
fn no_process_shows_an_earlier_state_after_another_has_shown_a_later_one() {
    let (proxy, kv, [reader, other]) = behind_a_proxy("0");
    proxy.set_late(Duration::from_millis(20));
    let (seen, is_over, cached) = (AtomicU64::new(0), AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let (kv, reader, other) = (&kv, &reader, &other);
            let (seen, is_over, cached) = (&seen, &is_over, &cached);
            scope.spawn(move || {
                while !is_over.load(Ordering::SeqCst) {
                    let before = seen.load(Ordering::SeqCst);
                    let trips = reader.round_trips();
                    let view = match thread {
                        0 => kv.cached_snapshot(),
                        1 => kv.snapshot(),
                        2 => reader.snapshot(),
                        3 => other.cached_snapshot(),
                        _ => reader.cached_snapshot(),
                    };
                    let value = get(&*view, "n").unwrap().parse::<u64>().unwrap();
                    assert!(value >= before, "{before} was seen, and then {value} by reader {thread}");
                    seen.fetch_max(value, Ordering::SeqCst);
                    cached.fetch_add(u64::from(thread > 3 && reader.round_trips() == trips), Ordering::SeqCst);
                }
            });
        }
        let until = Instant::now() + Duration::from_secs(3);
        for number in 1.. {
            queue_add(&*kv, "n").recv().unwrap().unwrap();
            // What was acknowledged is seen from now on.
            seen.fetch_max(number, Ordering::SeqCst);
            if Instant::now() > until {
                break;
            }
        }
        is_over.store(true, Ordering::SeqCst);
    });
    assert!(seen.load(Ordering::SeqCst) > 20 && cached.load(Ordering::SeqCst) > 0, "{seen:?}, {cached:?}");
}

#[test]
fn what_a_reader_has_seen_before_it_was_acknowledged_is_known_to_all() {
    let (proxy, kv, [reader, other]) = behind_a_proxy("1");
    let read = |kv: &dyn Kv| get(&*kv.cached_snapshot(), "n").unwrap();
    assert_eq!((read(&*kv), read(&reader), read(&other)), ("1".into(), "1".into(), "1".into()));
    for (late, shown) in [&reader as &dyn Kv, &*kv].into_iter().enumerate() {
        // Each answer to a commit takes two seconds: less than the lease.
        let (before, after) = ((late + 1).to_string(), (late + 2).to_string());
        proxy.set_late(Duration::from_secs(2));
        let committed = {
            let (sender, committed) = std::sync::mpsc::channel();
            let (writer, value) = (Arc::clone(&kv), after.clone());
            std::thread::spawn(move || sender.send(put(&*writer, "n", &value)));
            committed
        };
        let until = Instant::now() + Duration::from_secs(1);
        while get(&*shown.snapshot(), "n").unwrap() == before {
            assert!(Instant::now() < until, "the change does not come to the database");
        }
        assert_eq!((read(&other), read(&reader), read(&*kv)), (after.clone(), after.clone(), after.clone()));
        assert!(committed.try_recv().is_err(), "it was acknowledged too early for this test");
        committed.recv().unwrap().unwrap();
        proxy.set_late(Duration::ZERO);
        assert_eq!((read(&other), read(&reader), read(&*kv)), (after.clone(), after.clone(), after));
        let (of_reader, of_kv) = (reader.round_trips(), kv.stats().round_trips);
        assert_eq!(read(&reader), read(&*kv));
        assert_eq!((reader.round_trips(), kv.stats().round_trips), (of_reader, of_kv), "memory is used again");
    }
}
