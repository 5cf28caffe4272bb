//! Lost connections, lost answers, and servers that die.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use database::{Postgres, PostgresConfig};
use kv::{Durability, Kv, KvError, OpOutcome, transact};
use postgres_server::{Fault, PostgresServer, Proxy, StopMode};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::harness::{add_one, address, config, database, get, init, put, queue_add};

/// An engine whose connections pass a proxy. Changes wait so long for the database.
fn behind_proxy(patience: Duration) -> (Proxy, Postgres) {
    let server = postgres_server::shared();
    let url = database();
    let proxy = Proxy::before(server.port());
    let config = PostgresConfig { patience, ..config() };
    let kv = Postgres::open(&address(&proxy.url(&url, server.port())), "test", config).unwrap();
    (proxy, kv)
}

/// Whatever happens to the commit, each operation takes effect once.
#[test]
fn an_operation_whose_answer_is_lost_is_done_once() {
    let (proxy, kv) = behind_proxy(config().patience);
    for (number, fault) in [Fault::BeforeCommit, Fault::LoseAnswer, Fault::Late].into_iter().cycle().take(9).enumerate()
    {
        proxy.plan(fault);
        queue_add(&kv, "n").recv().unwrap().unwrap();
        assert_eq!(get(&*kv.snapshot(), "n").unwrap(), (number + 1).to_string(), "after {fault:?}");
    }
    assert_eq!(proxy.happened(), 9);
    // A late commit cannot arrive any more.
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(get(&*kv.snapshot(), "n").unwrap(), "9");
    assert_eq!(kv.stats().answers_lost, 9);
}

#[test]
fn faults_at_random_under_load_lose_and_repeat_nothing() {
    let (proxy, kv) = behind_proxy(config().patience);
    let done = AtomicU64::new(0);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (kv, done, is_over) = (&kv, &done, &is_over);
            scope.spawn(move || {
                while !is_over.load(Ordering::SeqCst) {
                    let own = format!("own{thread}");
                    transact(kv, Durability::Synced, move |txn| {
                        let ran = add_one(txn, b"all").and_then(|_| add_one(txn, own.as_bytes()));
                        (if ran.is_ok() { OpOutcome::Commit } else { OpOutcome::Abort }, ())
                    })
                    .unwrap();
                    done.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        let mut random = StdRng::seed_from_u64(5);
        for _ in 0..12 {
            proxy.plan([Fault::BeforeCommit, Fault::LoseAnswer, Fault::Late][random.random_range(0..3)]);
            std::thread::sleep(Duration::from_millis(random.random_range(50..400)));
        }
        is_over.store(true, Ordering::SeqCst);
    });
    let done = done.load(Ordering::SeqCst);
    let view = kv.snapshot();
    assert_eq!(get(&*view, "all").unwrap(), done.to_string());
    let own: u64 = (0..4).map(|thread| get(&*view, &format!("own{thread}")).unwrap().parse::<u64>().unwrap()).sum();
    assert_eq!(own, done);
    assert!(proxy.happened() > 5, "{} faults happened", proxy.happened());
}

/// Nobody knows whether the change was made, and the database does not come back in time: the caller is told so.
#[test]
fn a_lost_answer_without_a_database_is_said_to_be_unknown() {
    let (proxy, kv) = behind_proxy(Duration::from_millis(500));
    put(&kv, "n", "0").unwrap();
    proxy.plan(Fault::LoseAnswer);
    proxy.set_down(true);
    let said = queue_add(&kv, "n").recv().unwrap();
    assert!(matches!(said, Err(KvError::MaybeCommitted)), "{said:?}");
    let said = queue_add(&kv, "n").recv().unwrap();
    assert!(matches!(said, Err(KvError::Unavailable(_))), "{said:?}");
    proxy.set_down(false);
    queue_add(&kv, "n").recv().unwrap().unwrap();
    assert_eq!(get(&*kv.snapshot(), "n").unwrap(), "2", "the unknown one and the last one");
}

#[test]
fn a_server_that_is_killed_or_restarted_loses_nothing_that_was_acknowledged() {
    let server = PostgresServer::start().unwrap();
    let url = server.database();
    init(&url);
    let kv = Postgres::open(&address(&url), "test", config()).unwrap();
    let done = AtomicU64::new(0);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !is_over.load(Ordering::SeqCst) {
                    queue_add(&kv, "n").recv().unwrap().unwrap();
                    done.fetch_add(1, Ordering::SeqCst);
                    // Readers wait for the server, too.
                    assert!(get(&*kv.snapshot(), "n").is_some());
                }
            });
        }
        // Until the load goes on again, however slow the machine is.
        let go_on = || {
            let (before, began) = (done.load(Ordering::SeqCst), std::time::Instant::now());
            while done.load(Ordering::SeqCst) < before + 6 && began.elapsed() < Duration::from_secs(60) {
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        go_on();
        server.kill().unwrap();
        server.start_again().unwrap();
        go_on();
        server.terminate_backends().unwrap();
        go_on();
        server.stop(StopMode::Fast).unwrap();
        server.start_again().unwrap();
        go_on();
        is_over.store(true, Ordering::SeqCst);
    });
    assert_eq!(get(&*kv.snapshot(), "n").unwrap(), done.load(Ordering::SeqCst).to_string());
    assert!(kv.stats().reconnected >= 3, "{:?}", kv.stats());
}

#[test]
fn a_transaction_that_an_administrator_ends_runs_again() {
    let server = PostgresServer::start().unwrap();
    let url = server.database();
    init(&url);
    let kv = Postgres::open(&address(&url), "test", config()).unwrap();
    for number in 1..=5 {
        server.terminate_backends().unwrap();
        queue_add(&kv, "n").recv().unwrap().unwrap();
        assert_eq!(get(&*kv.snapshot(), "n").unwrap(), number.to_string());
    }
}

/// Connecting works, and each connection breaks at the batch: the callers must be told at last.
#[test]
fn a_batch_that_breaks_every_connection_is_given_up() {
    let (proxy, kv) = behind_proxy(Duration::from_secs(1));
    put(&kv, "n", "0").unwrap();
    proxy.plan_always(Fault::BeforeCommit);
    let said = queue_add(&kv, "n").recv_timeout(Duration::from_secs(60)).expect("it waits for ever");
    assert!(matches!(said, Err(KvError::Unavailable(_))), "{said:?}");
    assert!(kv.outage().is_some());
    proxy.plan(Fault::None);
    queue_add(&kv, "n").recv().unwrap().unwrap();
    assert_eq!(get(&*kv.snapshot(), "n").unwrap(), "1");
}

/// An account that may not change entries is no outage.
#[test]
fn a_change_that_the_account_may_not_make_is_refused_at_once() {
    let server = postgres_server::shared();
    let url = database();
    let kv = Postgres::open(&address(&url), "test", config()).unwrap();
    put(&kv, "n", "0").unwrap();
    server
        .psql(&url, "CREATE FUNCTION weir.no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE insufficient_privilege; END $$;
             CREATE TRIGGER no BEFORE INSERT ON weir.entries EXECUTE FUNCTION weir.no()")
        .unwrap();
    let began = std::time::Instant::now();
    let said = put(&kv, "n", "1").unwrap_err();
    assert!(matches!(said, KvError::Unavailable(_)), "{said:?}");
    assert!(began.elapsed() < Duration::from_secs(10));
    server.psql(&url, "DROP TRIGGER no ON weir.entries").unwrap();
    put(&kv, "n", "2").unwrap();
}
