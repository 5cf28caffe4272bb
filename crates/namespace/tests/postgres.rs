//! Random operations against the plain model, on the engine `postgres`, with a real server: with lost connections, lost answers and commits that arrive
//! late, and beside another program whose transactions collide with the namespace's.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use database::{Postgres, PostgresConfig, Schema};
use kv::{Durability, Kv, KvError, OpOutcome, ScanOrder, Txn, transact};
use postgres_server::{Fault, Proxy, shared};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use namespace::{self as ns, Actor, Namespace, NamespaceConfig};
use types::{
    BootGeneration, BootId, ClientIdentity, Group, GroupId, InSyncReplica, Member, NsPath, ObjectId, Placement,
    PrincipalId, StoreId, Timestamp,
};

use crate::model::harness::{World, seeds};

const STEPS: u64 = 400;
/// A comparison with the model reads everything, entry by entry. The answers of each step are compared in any case.
const STEPS_BETWEEN_COMPARISONS: u64 = 20;

fn database() -> String {
    let url = shared().database();
    Schema::connect(&url.parse().unwrap()).unwrap().init(None).unwrap();
    url
}

fn config() -> PostgresConfig {
    PostgresConfig { connections: 4, retries_max: 1000, batch_ops_max: 16, ..PostgresConfig::default() }
}

fn open(url: &str, name: &str, config: PostgresConfig) -> Arc<Postgres> {
    Arc::new(Postgres::open(&url.parse().unwrap(), name, config).unwrap())
}

/// One step. Panics if its answer, or sometimes the whole state, is not the model's.
fn go_on(world: &mut World, seed: u64, step: u64) {
    let compared = world.step().and_then(|()| {
        if step % STEPS_BETWEEN_COMPARISONS == STEPS_BETWEEN_COMPARISONS - 1 { world.compare() } else { Ok(()) }
    });
    if let Err(error) = compared {
        let from = world.log.len().saturating_sub(12);
        panic!("seed {seed}, step {step}: {error}\n{}", world.log[from..].join("\n"));
    }
}

#[test]
fn every_step_matches_the_model_whatever_happens_to_connections() {
    let (mut oks, mut happened) = (0, 0);
    for seed in 0..seeds(2) {
        let proxy = Proxy::before(shared().port());
        let kv = open(&proxy.url(&database(), shared().port()), "manager", config());
        let mut world = World::new(Arc::clone(&kv) as Arc<dyn Kv>, seed, true);
        let mut random = StdRng::seed_from_u64(seed);
        for step in 0..STEPS {
            if step % 8 == 0 {
                proxy.plan([Fault::BeforeCommit, Fault::LoseAnswer, Fault::Late][random.random_range(0..3)]);
            }
            go_on(&mut world, seed, step);
        }
        oks += world.oks;
        happened += u64::from(proxy.happened());
        assert_eq!(kv.stats().answers_lost, u64::from(proxy.happened()));
        assert_eq!(world.lost_answers, 0, "the database always says what happened");
    }
    println!("{oks} changes and reads, {happened} faults");
    assert!(oks > seeds(2) * STEPS / 4 && happened > seeds(2) * 10, "{oks} changes and reads, {happened} faults");
}

/// Reads some entries and writes them again as they are: it changes nothing, and collides with everybody.
fn rewrite(txn: &mut dyn Txn, from: &[u8]) -> Result<(), KvError> {
    let mut found = Vec::new();
    txn.scan(from, &[0xfe], ScanOrder::Ascending, &mut |key, value| {
        found.push((key.to_vec(), value.to_vec()));
        if found.len() < 5 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    for (key, value) in found {
        txn.put(&key, &value);
    }
    Ok(())
}

#[test]
fn every_step_matches_the_model_beside_transactions_that_collide() {
    let url = database();
    // Neither knows what the other changes.
    let config = PostgresConfig { cache_bytes: 0, ..config() };
    let kv = open(&url, "manager", config.clone());
    let other = open(&url, "other", config);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = StdRng::seed_from_u64(1);
            while !is_over.load(Ordering::SeqCst) {
                let letter = b"ADIQRTW"[random.random_range(0..7)];
                let _ = transact(&*other, Durability::Synced, move |txn| {
                    let ran = rewrite(txn, &[letter]);
                    (if ran.is_ok() { OpOutcome::Commit } else { OpOutcome::Abort }, ())
                });
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let mut world = World::new(Arc::clone(&kv) as Arc<dyn Kv>, 7, true);
        let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for step in 0..STEPS {
                go_on(&mut world, 7, step);
            }
        }));
        is_over.store(true, Ordering::SeqCst);
        if let Err(panic) = ran {
            std::panic::resume_unwind(panic);
        }
    });
    let conflicts = kv.stats().conflicts;
    println!("{conflicts} collisions of the namespace, {} of the other", other.stats().conflicts);
    assert!(conflicts > 10, "{conflicts} collisions");
}

/// What `tests/round_trips.rs` counts on an engine that imitates a network, once more on the real one: with its commit, and with nothing known.
#[test]
fn round_trips_of_the_commonest_operations() {
    let kv = open(&database(), "manager", config());
    let ns = Namespace::open(Arc::clone(&kv) as Arc<dyn Kv>, Timestamp(1), NamespaceConfig::default()).unwrap();
    let admin = Actor::admin();
    let path = |text: &str| NsPath::parse(text.as_bytes()).unwrap();
    let trips = |before: u64| kv.stats().round_trips - before;
    let client = || ClientIdentity { principal: PrincipalId(0), user: "u".into(), pid: 1, host: "h".into() };
    let ctx = || ns.context(Timestamp(2), &admin, None);
    let mkdir = ns::Mkdir { path: path("/a/b/c/d/e"), mode: 0o755, parents: true };
    ns.change_wait(Durability::Synced, ctx(), mkdir).unwrap();
    // Makes the connection for readers.
    ns.read(|read| ns::stat(read, &admin, &NsPath::root())).unwrap();

    let file = "/a/b/c/d/e/file";
    let before = trips(0);
    let open = ns::OpenWrite::new(path(file), ns::WriteMode::NewOnly, client(), BootId(1));
    ns.change_wait(Durability::Synced, ctx(), open).unwrap();
    assert_eq!(trips(before), 2, "create");
    let before = trips(0);
    ns.read(|read| ns::stat(read, &admin, &path(file))).unwrap();
    assert_eq!(trips(before), 1, "stat");
    let before = trips(0);
    ns.read(|read| ns::open_read(read, &admin, &path(file), false)).unwrap();
    assert_eq!(trips(before), 1, "open for reading, a path of 6 names");
    let before = trips(0);
    let rename = ns::Rename { from: path(file), to: path("/a/b/other"), replace: false };
    ns.change_wait(Durability::Synced, ctx(), rename).unwrap();
    assert_eq!(trips(before), 2, "rename");
}

/// What a manager has written itself it reads without asking the database, though it announces more than there is.
#[test]
fn what_this_manager_has_written_is_read_without_a_round_trip() {
    let url = database();
    let kv = open(&url, "manager", config());
    let ns = Namespace::open(Arc::clone(&kv) as Arc<dyn Kv>, Timestamp(1), NamespaceConfig::default()).unwrap();
    let admin = Actor::admin();
    let path = |text: &str| NsPath::parse(text.as_bytes()).unwrap();
    let client = ClientIdentity { principal: PrincipalId(0), user: "u".into(), pid: 1, host: "h".into() };
    let ctx = || ns.context(Timestamp(2), &admin, None);
    let (group, store) = (GroupId(7), StoreId(1));
    let change = Durability::Synced;
    ns.change_wait(change, ctx(), ns::FoundCluster { roles: 3, name: "m".into(), key: [0; 32] }).unwrap();
    let location = "s/r/h".parse().unwrap();
    ns.change_wait(change, ctx(), ns::PutStore { store, node: ns::FIRST_NODE, location, class: None }).unwrap();
    let members = vec![Member { store, since: ObjectId(1), through: ObjectId(0) }];
    ns.change_wait(change, ctx(), ns::PutGroup { group: Group { group, epoch: 1, members } }).unwrap();
    ns.change_wait(change, ctx(), ns::Mkdir { path: path("/a/b"), mode: 0o755, parents: true }).unwrap();
    let placement = Placement { group, in_sync: vec![InSyncReplica { store, boot_generation: BootGeneration(1) }] };
    let new = ns::OpenWrite::new(path("/a/b/file"), ns::WriteMode::NewOnly, client.clone(), BootId(1));
    let writer = ns.change_wait(change, ctx(), ns::OpenWrite { placement, ..new }).unwrap().writer;
    let sums = ns::Sums { adler32: types::Adler32(1), crc32c: types::Crc32c(2) };
    let content = ns::Committed { len: 10, sums: Some(sums), mtime: None };
    let commit = ns::Commit { writer, content, completion: ns::Completion::ByClient };
    ns.change_wait(change, ctx(), ns::CommitPlaced { commit, group, by: store, holders: vec![store] }).unwrap();

    let before = kv.stats().round_trips;
    let opened = |read: &dyn ns::Read| {
        let content = *ns::open_read(read, &admin, &path("/a/b/file"), false)?.content().unwrap();
        ns::object_record(read, content.group, content.object)?.unwrap();
        assert_eq!(ns::holders(read, content.group, content.object)?, [store]);
        ns::missing_of(read, content.group, content.object)
    };
    assert_eq!(ns.read_cached(opened).unwrap(), []);
    assert_eq!(kv.stats().round_trips - before, 0, "open for reading");
    ns.read_cached(|read| ns::stat(read, &admin, &path("/a/b/file"))).unwrap();
    assert_eq!(kv.stats().round_trips - before, 0, "stat");
    drop(ns);
    kv.stop();
    // A manager that has just started. Nobody knows the names of new files: only the open itself looks them up, together with others.
    let kv = open(&url, "manager", config());
    let ns = Namespace::open(Arc::clone(&kv) as Arc<dyn Kv>, Timestamp(3), NamespaceConfig::default()).unwrap();
    let policy_for = |name: &str, how| {
        let new = ns::OpenWrite::new(path(&format!("/a/b/{name}")), how, client.clone(), BootId(1));
        let before = kv.stats().round_trips;
        ns.read_cached(|read| ns::policy_for_new(read, &admin, &new)).unwrap();
        kv.stats().round_trips - before
    };
    policy_for("1", ns::WriteMode::NewOnly);
    assert_eq!(policy_for("2", ns::WriteMode::NewOnly), 0, "where a new file goes");
    assert!(policy_for("3", ns::WriteMode::Replace) > 0, "what is replaced must be known");
}
