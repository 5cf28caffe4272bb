//! Snapshots and what they cost.

use kv::{Chain, Durability, Follow, Kv, OpOutcome, Prefetch, ScanOrder, transact};

use crate::harness::{database, get, keys, open, put};

#[test]
fn a_snapshot_does_not_change() {
    let kv = open(&database());
    put(&kv, "a", "1").unwrap();
    let before = kv.snapshot();
    assert_eq!(get(&*before, "a").unwrap(), "1");
    put(&kv, "a", "2").unwrap();
    put(&kv, "b", "2").unwrap();
    assert_eq!(get(&*before, "b"), None);
    assert_eq!(keys(&*before, "", "z", ScanOrder::Ascending, 9), ["a"]);
    assert_eq!(get(&*kv.snapshot(), "a").unwrap(), "2");
    drop(before);
    assert_eq!(get(&*kv.snapshot(), "b").unwrap(), "2");
}

#[test]
fn a_long_scan_reads_everything_once_in_both_directions() {
    let kv = open(&database());
    let count = 10_000;
    transact(&kv, Durability::Synced, move |txn| {
        for number in 0..count {
            txn.put(format!("k{number:05}").as_bytes(), b"v");
        }
        (OpOutcome::Commit, ())
    })
    .unwrap();
    let expected: Vec<String> = (0..count).map(|number| format!("k{number:05}")).collect();
    let view = kv.snapshot();
    let up = keys(&*view, "a", "z", ScanOrder::Ascending, usize::MAX);
    assert_eq!(up, expected);
    let mut down = keys(&*view, "a", "z", ScanOrder::Descending, usize::MAX);
    down.reverse();
    assert_eq!(down, expected);
    assert_eq!(keys(&*view, "k00100", "k00103", ScanOrder::Descending, 9), ["k00102", "k00101", "k00100"]);
    assert_eq!(keys(&*view, "k9", "k1", ScanOrder::Ascending, 9), Vec::<String>::new());
    assert_eq!(keys(&*view, "k05000", "z", ScanOrder::Ascending, 2), ["k05000", "k05001"]);
}

/// A path of 6 names, and entries of the ids on it.
#[test]
fn a_chain_is_one_round_trip_for_readers_and_for_operations() {
    let kv = open(&database());
    let key = |prefix: &[u8], id: u64, end: &[u8]| [prefix, &id.to_be_bytes(), end].concat();
    let value = |id: u64| [b"..".as_slice(), &id.to_be_bytes(), b"rest"].concat();
    transact(&kv, Durability::Synced, move |txn| {
        for id in 0..6u64 {
            txn.put(&key(b"D", id, format!("name{id}").as_bytes()), &value(id + 1));
            txn.put(&key(b"I", id, b""), b"inode");
        }
        txn.put(&key(b"G", 3, &3u64.to_be_bytes()), b"group");
        txn.put(&key(b"D", 2, b"rest"), b"named by the value");
        for shard in 0..3u8 {
            txn.put(&key(b"A", 5, &[shard]), b"shard");
        }
        (OpOutcome::Commit, ())
    })
    .unwrap();
    let chain = || {
        let names = (0..7u64).map(|id| format!("name{id}").into_bytes()).collect();
        let follow = vec![
            Follow { after: 5, prefix: b"A".to_vec(), suffix: Vec::new(), most: Some(2), ..Follow::default() },
            Follow { after: 5, prefix: b"I".to_vec(), suffix: Vec::new(), most: None, ..Follow::default() },
            Follow { after: 4, prefix: b"Q".to_vec(), suffix: b"no".to_vec(), most: None, ..Follow::default() },
            // Two ids out of a value, and a name at its end.
            Follow { after: 3, ids_at: vec![2, 2], prefix: b"G".to_vec(), ..Follow::default() },
            Follow { after: 2, ids_at: vec![2], prefix: b"D".to_vec(), rest_at: Some(10), ..Follow::default() },
            Follow { after: 2, ids_at: vec![9], prefix: b"D".to_vec(), ..Follow::default() },
            Follow { after: 7, prefix: b"I".to_vec(), suffix: Vec::new(), most: None, ..Follow::default() },
        ];
        let chain = Chain { prefix: b"D".to_vec(), first: [0; 8], names, id_at: 2, follow };
        let end = b"M".to_vec();
        vec![
            Prefetch::Chain(chain),
            Prefetch::Key(b"mark".to_vec()),
            Prefetch::Range { start: b"L".to_vec(), end, most: 5 },
        ]
    };
    let check = move |read: &dyn kv::Read| -> Result<(), kv::KvError> {
        for id in 0..6u64 {
            assert_eq!(read.get(&key(b"D", id, format!("name{id}").as_bytes()))?, Some(value(id + 1)));
        }
        assert_eq!(read.get(&key(b"D", 6, b"name6"))?, None);
        assert_eq!(read.get(&key(b"I", 5, b""))?.unwrap(), b"inode");
        assert_eq!(read.get(&key(b"Q", 4, b"no"))?, None);
        assert_eq!(read.get(&key(b"G", 3, &3u64.to_be_bytes()))?.unwrap(), b"group");
        assert_eq!(read.get(&key(b"D", 2, b"rest"))?.unwrap(), b"named by the value");
        assert_eq!(read.get(b"mark")?, None);
        let mut shards = Vec::new();
        read.scan(&key(b"A", 5, b""), &key(b"A", 6, b""), ScanOrder::Ascending, &mut |key, _| {
            shards.push(key[9]);
            if shards.len() == 2 { std::ops::ControlFlow::Break(()) } else { std::ops::ControlFlow::Continue(()) }
        })?;
        assert_eq!(shards, [0, 1]);
        read.scan(b"L", b"M", ScanOrder::Descending, &mut |_, _| panic!("there are none"))
    };

    // Makes the connection.
    assert_eq!(get(&*kv.snapshot(), "a"), None);
    let before = kv.stats().round_trips;
    let view = kv.snapshot();
    view.prefetch(&chain).unwrap();
    check(&*view).unwrap();
    assert_eq!(kv.stats().round_trips - before, 1, "for a reader");
    view.prefetch(&chain).unwrap();
    assert_eq!(kv.stats().round_trips - before, 1, "what is known is not fetched again");
    drop(view);

    let before = kv.stats().round_trips;
    let ran = transact(&kv, Durability::Synced, move |txn| {
        let ran = txn.prefetch(&chain).and_then(|()| check(txn));
        txn.put(b"done", b"");
        (if ran.is_ok() { OpOutcome::Commit } else { OpOutcome::Abort }, ran)
    });
    ran.unwrap().unwrap();
    assert_eq!(kv.stats().round_trips - before, 2, "for an operation: one to read, one to commit");
}

#[test]
fn readers_wait_for_a_connection_and_give_up_with_the_reason() {
    let url = database();
    let config = database::PostgresConfig {
        connections: 1,
        readers_patience: std::time::Duration::from_millis(200),
        ..crate::harness::config()
    };
    let kv = database::Postgres::open(&crate::harness::address(&url), "test", config).unwrap();
    let first = kv.snapshot();
    assert_eq!(get(&*first, "a"), None);
    let said = kv.snapshot().get(b"a").unwrap_err().to_string();
    assert!(said.contains("database.connections"), "{said}");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| kv.snapshot().get(b"a"));
        std::thread::sleep(std::time::Duration::from_millis(50));
        drop(first);
        assert_eq!(waiting.join().unwrap().unwrap(), None);
    });
}

/// As with a `max_connections` that is too low: readers share the connections that there are.
#[test]
fn readers_share_the_connections_that_the_database_has_room_for() {
    let (url, server) = (database(), postgres_server::shared());
    let name = url.rsplit('/').next().unwrap().to_owned();
    // The committer and the watch have two of them.
    let role = format!("CREATE ROLE few_{name} LOGIN PASSWORD 'secret' CONNECTION LIMIT 4");
    server.psql("postgres", &role).unwrap();
    let address = crate::harness::address(&url);
    database::Schema::connect(&address).unwrap().init(Some(&format!("few_{name}"))).unwrap();
    let theirs = crate::harness::address(&server.url_of(&format!("few_{name}"), "secret", &name));
    let config = database::PostgresConfig {
        connections: 8,
        readers_patience: std::time::Duration::from_secs(2),
        ..crate::harness::config()
    };
    let kv = database::Postgres::open(&theirs, "test", config).unwrap();
    let count = format!("SELECT count(*) FROM pg_stat_activity WHERE usename = 'few_{name}'");
    let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while server.psql(&url, &count).unwrap() != "2" {
        assert!(std::time::Instant::now() < until, "the watch does not connect");
    }
    let (first, second) = (kv.snapshot(), kv.snapshot());
    assert_eq!((get(&*first, "a"), get(&*second, "a")), (None, None));
    let said = kv.snapshot().get(b"a").unwrap_err().to_string();
    assert!(said.contains("room for 2 connections") && said.contains("max_connections"), "{said}");
    std::thread::scope(|scope| {
        let waiting: Vec<_> = (0..4).map(|_| scope.spawn(|| kv.snapshot().get(b"a"))).collect();
        std::thread::sleep(std::time::Duration::from_millis(50));
        drop(first);
        for waiting in waiting {
            assert_eq!(waiting.join().unwrap().unwrap(), None);
        }
    });
    assert!(kv.outage().is_none());
}
