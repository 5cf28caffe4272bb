//! Databases with weir's tables, and short ways to use an engine.

use std::ops::ControlFlow;
use std::sync::mpsc;
use std::time::Duration;

use database::{DatabaseAddress, Postgres, PostgresConfig, Schema};
use kv::{Durability, Kv, KvError, OpOutcome, Read, ScanOrder, Txn, transact};

/// A database with weir's tables on the shared server.
pub fn database() -> String {
    let url = postgres_server::shared().database();
    init(&url);
    url
}

pub fn init(url: &str) {
    Schema::connect(&address(url)).unwrap().init(None).unwrap();
}

pub fn address(url: &str) -> DatabaseAddress {
    url.parse().unwrap()
}

pub fn config() -> PostgresConfig {
    let patience = Duration::from_secs(20);
    PostgresConfig { connections: 4, patience, readers_patience: patience, ..PostgresConfig::default() }
}

/// For one of several committers of different names: none of them knows what the others change.
pub fn among_others() -> PostgresConfig {
    PostgresConfig { cache_bytes: 0, ..config() }
}

pub fn open(url: &str) -> Postgres {
    Postgres::open(&address(url), "test", config()).unwrap()
}

pub fn put(kv: &dyn Kv, key: &str, value: &str) -> Result<(), KvError> {
    let (key, value) = (key.as_bytes().to_vec(), value.as_bytes().to_vec());
    transact(kv, Durability::Synced, move |txn| {
        txn.put(&key, &value);
        (OpOutcome::Commit, ())
    })
}

pub fn get(read: &dyn Read, key: &str) -> Option<String> {
    read.get(key.as_bytes()).unwrap().map(|value| String::from_utf8(value).unwrap())
}

pub fn keys(read: &dyn Read, start: &str, end: &str, order: ScanOrder, most: usize) -> Vec<String> {
    let mut found = Vec::new();
    read.scan(start.as_bytes(), end.as_bytes(), order, &mut |key, _| {
        found.push(String::from_utf8_lossy(key).into_owned());
        if found.len() >= most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
    .unwrap();
    found
}

/// Adds 1 to the number at `key`. An operation that reads failed leaves it alone.
pub fn add_one(txn: &mut dyn Txn, key: &[u8]) -> Result<u64, KvError> {
    let before = txn.get(key)?.map_or(0, |value| String::from_utf8(value).unwrap().parse::<u64>().unwrap());
    txn.put(key, (before + 1).to_string().as_bytes());
    Ok(before + 1)
}

/// Queues an operation that adds 1 to `key`. The receiver gets the result of the commit.
pub fn queue_add(kv: &dyn Kv, key: &str) -> mpsc::Receiver<Result<(), KvError>> {
    let (sender, receiver) = mpsc::channel();
    let key = key.as_bytes().to_vec();
    kv.submit(
        Durability::Synced,
        Box::new(move |txn| match add_one(txn, &key) {
            Ok(_) => OpOutcome::Commit,
            Err(_) => OpOutcome::Abort,
        }),
        Box::new(move |result| {
            let _ = sender.send(result);
        }),
    );
    receiver
}
