//! Who may commit.

use std::time::{Duration, Instant};

use kv::{Kv, KvError};

use crate::harness::{address, config, database, get, open, put};

#[test]
fn the_process_that_started_last_commits_and_the_other_stops() {
    let url = database();
    let first = open(&url);
    put(&first, "a", "1").unwrap();
    // It need not have committed anything yet.
    let second = open(&url);
    let said = put(&first, "a", "3").unwrap_err();
    assert!(matches!(&said, KvError::Stopped { reason } if reason.contains("another process")), "{said}");
    assert!(first.broken().unwrap().contains("another process"));
    put(&second, "b", "2").unwrap();
    assert!(put(&first, "a", "4").is_err(), "it stays so");
    let view = second.snapshot();
    assert_eq!((get(&*view, "a").unwrap(), get(&*view, "b").unwrap()), ("1".into(), "2".into()));
    put(&second, "c", "5").unwrap();
}

/// As after a failover to a replica that was behind: the rows of the last transactions are gone.
#[test]
fn a_database_that_comes_back_without_acknowledged_changes_is_noticed_and_closed() {
    let url = database();
    let server = postgres_server::shared();
    let kv = open(&url);
    for number in 0..5 {
        put(&kv, "a", &number.to_string()).unwrap();
    }
    server.psql(&url, "UPDATE weir.committers SET batch = batch - 2").unwrap();
    let name = url.rsplit('/').next().unwrap();
    let end = format!(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}' AND pid <> pg_backend_pid()"
    );
    server.psql("postgres", &end).unwrap();
    let said = put(&kv, "a", "9").unwrap_err();
    assert!(matches!(&said, KvError::Lost(reason) if reason.contains("has lost at least 2")), "{said:?}");
    let until = Instant::now() + Duration::from_secs(10);
    while kv.broken().is_none() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(kv.broken().unwrap().contains("has lost"));
    assert_ne!(get(&*kv.snapshot(), "a").unwrap(), "9");
    drop(kv);
    let refused = database::Postgres::open(&address(&url), "test", config()).err().unwrap().to_string();
    assert!(refused.contains("has lost at least 2"), "{refused}");
}
