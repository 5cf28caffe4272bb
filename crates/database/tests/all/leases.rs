//! The lease of a committer's place, and how another process takes it.

use std::time::{Duration, Instant};

use database::{DatabaseError, Holder, PlaceLease, PlaceWatch, Postgres, Standing, Vacancy};
use kv::{Kv, KvError};
use postgres_server::Proxy;

use crate::harness::{address, config, database, get, open, put, queue_add};

const SOON: Duration = Duration::from_secs(30);

fn watch(url: &str) -> PlaceWatch {
    PlaceWatch::new(&address(url), "test")
}

fn take(url: &str, vacancy: &Vacancy) -> Option<Postgres> {
    Postgres::open_if_free(&address(url), "test", config(), vacancy).unwrap()
}

fn free(standing: Standing) -> Vacancy {
    match standing {
        Standing::Free(vacancy) => vacancy,
        held @ Standing::Held { .. } => panic!("{held:?}"),
    }
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + SOON;
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Ends the connections with the database.
fn end_connections(url: &str) {
    let others = "datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()";
    let end = format!("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE {others}");
    let ended = postgres_server::shared().psql(url, &end).unwrap();
    assert!(ended.contains('t'), "{ended}");
}

/// Looks until the place is free.
fn wait_for(watch: &mut PlaceWatch) -> Vacancy {
    let until = Instant::now() + SOON;
    loop {
        if let Ok(Standing::Free(vacancy)) = watch.look() {
            return vacancy;
        }
        assert!(Instant::now() < until, "the place is never free");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// As when its machine is cut off.
#[test]
fn a_process_that_is_silent_loses_its_lease_and_then_its_place() {
    let (url, server) = (database(), postgres_server::shared());
    let proxy = Proxy::before(server.port());
    let first = open(&proxy.url(&url, server.port()));
    put(&first, "a", "1").unwrap();
    let mut watch = watch(&url);
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(1500) {
        assert!(matches!(watch.look().unwrap(), Standing::Held { .. }));
        assert!(first.lease().is_held());
        std::thread::sleep(Duration::from_millis(100));
    }
    proxy.set_down(true);
    end_connections(&url);
    let cut = Instant::now();
    let vacancy = wait_for(&mut watch);
    assert!(cut.elapsed() > Duration::from_secs(3), "{:?}", cut.elapsed());
    assert!(!first.lease().is_held(), "it stops before another one may begin");
    let second = take(&url, &vacancy).unwrap();
    assert!(second.lease().is_held());
    assert!(take(&url, &vacancy).is_none(), "of two only one gets it");
    put(&second, "a", "2").unwrap();
    // The first one is back, and nobody asks it for anything.
    proxy.set_down(false);
    wait_until("it does not notice", || matches!(first.end(), Some(DatabaseError::TakenOver(_))));
    assert!(matches!(put(&first, "a", "3"), Err(KvError::Stopped { .. })));
    assert!(!first.lease().is_held() && second.lease().is_held());
    assert_eq!(get(&*second.snapshot(), "a").unwrap(), "2");
    first.stop();
    assert!(matches!(watch.look().unwrap(), Standing::Held { .. }), "only its own place is given up");
}

/// The tables are locked for longer than a lease lasts, as by maintenance of the database, or as if its disk were slow.
#[test]
fn a_batch_that_reads_for_long_keeps_the_lease_and_the_place() {
    let (url, server) = (database(), postgres_server::shared());
    let kv = open(&url);
    server.psql(&url, "INSERT INTO weir.entries VALUES ('n', '41')").unwrap();
    let mut watch = watch(&url);
    std::thread::scope(|scope| {
        let lock = "BEGIN; LOCK TABLE weir.entries IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep(7); COMMIT";
        let locked = scope.spawn(|| server.psql(&url, lock));
        let count = "SELECT count(*) FROM pg_locks WHERE relation = 'weir.entries'::regclass AND NOT granted";
        let held = count.replace("NOT granted", "mode = 'AccessExclusiveLock'");
        wait_until("nobody locks it", || server.psql(&url, &held).unwrap() != "0");
        let added = queue_add(&kv, "n");
        wait_until("the batch does not wait", || server.psql(&url, count).unwrap() != "0");
        while !locked.is_finished() {
            assert!(matches!(watch.look().unwrap(), Standing::Held { .. }), "its place looks free");
            assert!(kv.lease().is_held());
            std::thread::sleep(Duration::from_millis(100));
        }
        locked.join().unwrap().unwrap();
        added.recv().unwrap().unwrap();
    });
    assert_eq!(get(&*kv.snapshot(), "n").unwrap(), "42");
    let stats = kv.stats();
    assert_eq!((stats.conflicts, stats.reconnected), (0, 0), "its sign of life collides with it");
    assert!(stats.longest_batch > Duration::from_secs(5), "{stats:?}");
}

#[test]
fn a_lease_comes_back_with_the_database_if_nobody_has_taken_the_place() {
    let (url, server) = (database(), postgres_server::shared());
    let proxy = Proxy::before(server.port());
    let kv = open(&proxy.url(&url, server.port()));
    put(&kv, "a", "1").unwrap();
    assert!(matches!(kv.lease(), PlaceLease::Held { left } if left <= Duration::from_secs(4)));
    proxy.set_down(true);
    end_connections(&url);
    wait_until("it does not lapse", || !kv.lease().is_held());
    assert!(kv.end().is_none(), "it waits");
    proxy.set_down(false);
    wait_until("it does not come back", || kv.lease().is_held());
    put(&kv, "a", "2").unwrap();
}

#[test]
fn a_place_that_was_given_up_is_taken_at_once_and_the_others_learn_who_has_it() {
    let url = database();
    let mut watch = watch(&url);
    let nobody = free(watch.look().unwrap());
    let first = take(&url, &nobody).unwrap();
    assert!(take(&url, &nobody).is_none());
    put(&first, "a", "1").unwrap();
    let holder = Holder { node: 1, for_nodes: "mgr1:1095".into(), for_clients: "mgr1:1094".into() };
    first.set_holder(&holder);
    let says = |standing: &Standing, wanted: &Option<Holder>| matches!(standing, Standing::Held { holder, .. } if holder == wanted);
    let told = Some(holder);
    wait_until("the holder is not told", || says(&watch.look().unwrap(), &told));
    first.stop();
    assert!(!first.lease().is_held());
    let given_up = free(watch.look().unwrap());
    let second = take(&url, &given_up).unwrap();
    assert!(says(&watch.look().unwrap(), &None), "it has not said who it is, and is not the first one");
    put(&second, "b", "2").unwrap();
    assert_eq!(get(&*second.snapshot(), "a").unwrap(), "1");
}

#[test]
fn a_place_that_has_changed_since_the_look_is_not_taken() {
    let (url, server) = (database(), postgres_server::shared());
    drop(open(&url));
    let mut watch = watch(&url);
    for change in ["process = '\\x05'", "fence = fence + 1", "batch = batch + 1", "beat = beat + 1"] {
        server.psql(&url, "UPDATE weir.committers SET process = ''").unwrap();
        let seen = free(watch.look().unwrap());
        server.psql(&url, &format!("UPDATE weir.committers SET {change}")).unwrap();
        assert!(take(&url, &seen).is_none(), "{change}");
    }
}

#[test]
fn a_process_that_waits_notices_lost_changes_and_closes_the_database() {
    let (url, server) = (database(), postgres_server::shared());
    let kv = open(&url);
    put(&kv, "a", "1").unwrap();
    let mut watch = watch(&url);
    watch.look().unwrap();
    kv.stop();
    server.psql(&url, "UPDATE weir.committers SET batch = batch - 1").unwrap();
    let said = watch.look().unwrap_err();
    assert!(matches!(&said, DatabaseError::LostTransactions(reason) if reason.contains("at least 1")), "{said}");
    let refused = Postgres::open(&address(&url), "test", config()).err().unwrap().to_string();
    assert!(refused.contains("has lost at least 1"), "{refused}");
    assert!(matches!(watch.look(), Err(DatabaseError::LostTransactions(_) | DatabaseError::Schema(_))));
}

/// As `weir db continue --after-restore` does it.
#[test]
fn a_database_that_was_closed_and_opened_again_is_not_closed_for_what_was_seen_before() {
    let (url, server) = (database(), postgres_server::shared());
    let kv = open(&url);
    put(&kv, "a", "1").unwrap();
    kv.stop();
    let mut watch = watch(&url);
    watch.look().unwrap();
    server
        .psql(
            &url,
            "UPDATE weir.committers SET batch = batch - 1; UPDATE weir.schema SET closed = 'it is being mended'",
        )
        .unwrap();
    let said = watch.look().unwrap_err();
    assert!(matches!(&said, DatabaseError::Schema(why) if why.contains("it is being mended")), "{said}");
    server.psql(&url, "UPDATE weir.schema SET closed = NULL").unwrap();
    let vacancy = free(watch.look().unwrap());
    assert!(take(&url, &vacancy).is_some());
}

/// Only the row was set back, and the connection is still there.
#[test]
fn an_idle_process_notices_lost_changes() {
    let (url, server) = (database(), postgres_server::shared());
    let kv = open(&url);
    put(&kv, "a", "1").unwrap();
    server.psql(&url, "UPDATE weir.committers SET batch = batch - 1").unwrap();
    wait_until("it does not notice", || kv.end().is_some());
    assert!(matches!(kv.end(), Some(DatabaseError::LostTransactions(_))), "{:?}", kv.end());
    wait_until("its lease goes on", || !kv.lease().is_held());
    assert!(watch(&url).look().unwrap_err().to_string().contains("has lost"), "it is closed");
}

/// The new one may lead to a server that is behind.
#[test]
fn silence_counts_on_one_connection_only() {
    let (url, server) = (database(), postgres_server::shared());
    drop(open(&url));
    server.psql(&url, "UPDATE weir.committers SET process = '\\x05'").unwrap();
    let mut watch = watch(&url);
    let mut quiet = || match watch.look().unwrap() {
        Standing::Held { quiet, .. } => quiet,
        Standing::Free(vacancy) => panic!("{vacancy:?}"),
    };
    assert_eq!(quiet(), Duration::ZERO);
    assert!(quiet() > Duration::ZERO);
    end_connections(&url);
    assert_eq!(quiet(), Duration::ZERO);
}

#[test]
fn a_watch_goes_on_after_its_connection_was_ended() {
    let (url, server) = (database(), postgres_server::shared());
    let proxy = Proxy::before(server.port());
    let kv = open(&url);
    let mut watch = watch(&proxy.url(&url, server.port()));
    watch.look().unwrap();
    proxy.set_down(true);
    end_connections(&url);
    assert!(matches!(watch.look(), Err(DatabaseError::Unavailable { .. })));
    proxy.set_down(false);
    wait_until("it is not back", || matches!(watch.look(), Ok(Standing::Held { .. })));
    drop(kv);
}
