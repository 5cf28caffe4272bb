//! Who may commit.

use std::time::{Duration, Instant};

use database::{Copying, DatabaseError, Holder, Postgres};
use kv::{Kv, KvError};
use postgres_server::Proxy;

use crate::harness::{address, config, database, get, open, put};

/// As if the process had given its place up.
fn give_up(url: &str) {
    postgres_server::shared().psql(url, "UPDATE weir.committers SET process = '', fence = fence + 1").unwrap();
}

#[test]
fn nobody_takes_the_place_from_a_process_that_lives() {
    let url = database();
    let first = open(&url);
    put(&first, "a", "1").unwrap();
    first.set_holder(&Holder { node: 7, for_nodes: "mgr7:1095".into(), for_clients: "mgr7:1094".into() });
    let began = Instant::now();
    let said = Postgres::open(&address(&url), "test", config()).err().unwrap();
    assert!(matches!(said, DatabaseError::InUse(_)), "{said}");
    assert!(began.elapsed() < Duration::from_secs(4), "the sign of life came after a second");
    let closing = Copying::connect(&address(&url)).unwrap().begin_repair("a repair").unwrap_err();
    assert!(matches!(&closing, DatabaseError::InUse(why) if why.contains("node 7, at mgr7:1095")), "{closing}");
    put(&first, "a", "2").unwrap();
    assert!(first.lease().is_held());
}

/// A process that stands still, or is cut off, may act as long as it has its lease.
#[test]
fn a_command_waits_until_a_silent_process_has_no_lease() {
    let (url, server) = (database(), postgres_server::shared());
    let proxy = Proxy::before(server.port());
    let first = open(&proxy.url(&url, server.port()));
    put(&first, "a", "1").unwrap();
    proxy.set_down(true);
    let name = url.rsplit('/').next().unwrap();
    let end = format!(
        "SELECT count(*) FROM (SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = '{name}') ended"
    );
    server.psql("postgres", &end).unwrap();
    assert!(first.lease().is_held());
    Copying::connect(&address(&url)).unwrap().begin_repair("a repair").unwrap();
    assert!(!first.lease().is_held(), "it may still act");
    proxy.set_down(false);
    let said = put(&first, "a", "2").unwrap_err();
    assert!(matches!(said, KvError::Stopped { .. }), "{said}");
}

#[test]
fn the_process_that_started_last_commits_and_the_other_stops() {
    let url = database();
    let first = open(&url);
    put(&first, "a", "1").unwrap();
    give_up(&url);
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
/// The manager need not commit anything to notice it: a reader's new connection does.
#[test]
fn a_reader_notices_a_database_without_acknowledged_changes() {
    let url = database();
    let server = postgres_server::shared();
    let kv = open(&url);
    put(&kv, "a", "1").unwrap();
    server.psql(&url, "UPDATE weir.committers SET batch = batch - 1").unwrap();
    // What the manager has in its memory lacks nothing.
    assert!(matches!(kv.snapshot().get(b"b"), Err(KvError::Lost(_))));
    assert!(!kv.lease().is_held(), "who knows of the loss sees no lease any more");
    assert!(kv.broken().unwrap().contains("has lost"));
    // The process ends without another change, and the next one must not start as if nothing had happened.
    kv.stop();
    drop(kv);
    let refused = database::Postgres::open(&address(&url), "test", config()).err().unwrap().to_string();
    assert!(refused.contains("has lost at least 1"), "{refused}");
}

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
    // Its sign of life may have noticed it before.
    let is_it =
        matches!(&said, KvError::Lost(reason) | KvError::Stopped { reason } if reason.contains("has lost at least 2"));
    assert!(is_it, "{said:?}");
    let until = Instant::now() + Duration::from_secs(10);
    while (kv.broken().is_none() || kv.lease().is_held()) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(kv.broken().unwrap().contains("has lost"));
    // Readers get no state that lacks changes, and nothing was changed.
    let reading = kv.snapshot().get(b"a");
    assert!(matches!(&reading, Err(KvError::Lost(_))), "{reading:?}");
    let change = server.psql(&url, "SELECT count(*) FROM weir.entries WHERE value = '9'").unwrap();
    assert_eq!(change, "0");
    drop(kv);
    let refused = database::Postgres::open(&address(&url), "test", config()).err().unwrap().to_string();
    assert!(refused.contains("has lost at least 2"), "{refused}");
}
