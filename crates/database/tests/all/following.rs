//! Reading what another process changes.

use std::time::Duration;

use database::{PostgresConfig, PostgresReader, Schema};
use kv::{Durability, Kv as _, KvError, OpOutcome, ScanOrder, transact};

use crate::harness::{address, config, database, get, keys, open, put};

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
