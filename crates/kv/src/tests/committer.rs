//! The committer: order, savepoints, group commit, failures, and durability of acknowledged operations.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use disk::{CrashReport, DiskOp, SimDisk};
use journal::Seq;
use parking_lot::Mutex;
use rand::Rng;

use super::world::{Kind, Map, content, crash_image, open, rng};
use super::{PlantedBug, seeds};
use crate::{Durability, Embedded, EmbeddedConfig, IndexConfig, Kv, KvError, OpOutcome, transact};

fn embedded(sim: &SimDisk, planted: Option<PlantedBug>) -> Embedded {
    let index = IndexConfig { background: true, sweep_interval: Duration::from_millis(3), ..IndexConfig::small() };
    let (_, index, ..) = open(sim, &Kind::Lost, &index).unwrap();
    Embedded::new(index, EmbeddedConfig { planted, ..EmbeddedConfig::default() }).unwrap()
}

fn put(kv: &dyn Kv, key: &str, value: &str, durability: Durability) -> Result<(), KvError> {
    let (key, value) = (key.to_owned(), value.to_owned());
    transact(kv, durability, move |txn| {
        txn.put(key.as_bytes(), value.as_bytes());
        (OpOutcome::Commit, ())
    })
}

/// Holds the committer in an operation until released, so that all operations submitted meanwhile are one batch.
fn hold(kv: &Embedded) -> impl FnOnce() + use<> {
    let (go, wait) = channel::<()>();
    let (entered, is_in) = channel::<()>();
    kv.submit(
        Durability::Written,
        Box::new(move |_| {
            entered.send(()).unwrap();
            let _ = wait.recv();
            OpOutcome::Abort
        }),
        Box::new(|_| {}),
    );
    is_in.recv().unwrap();
    move || drop(go)
}

#[test]
fn a_batch_has_one_record_and_one_sync_and_its_operations_see_each_other() {
    let sim = SimDisk::new(1);
    let kv = embedded(&sim, None);
    let done_batches = Arc::new(AtomicU64::new(0));
    let hook = Arc::clone(&done_batches);
    kv.on_batch_done(Arc::new(move || {
        hook.fetch_add(1, Ordering::SeqCst);
    }));
    put(&kv, "n", "0", Durability::Synced).unwrap();
    let go = hold(&kv);
    let (results, seen) = channel();
    for number in 0..100u64 {
        let results = results.clone();
        kv.submit(
            Durability::Synced,
            Box::new(|txn| {
                let value: u64 = String::from_utf8(txn.get(b"n").unwrap().unwrap()).unwrap().parse().unwrap();
                txn.put(b"n", (value + 1).to_string().as_bytes());
                OpOutcome::Commit
            }),
            Box::new(move |result| results.send((number, result.is_ok())).unwrap()),
        );
    }
    let (syncs, records) = (sim.data_sync_count(), kv.index().journal().stats().records);
    go();
    let answers: Vec<_> = seen.iter().take(100).collect();
    assert_eq!(answers, (0..100).map(|number| (number, true)).collect::<Vec<_>>(), "answered in order");
    assert_eq!(kv.snapshot().get(b"n").unwrap().as_deref(), Some(b"100".as_slice()));
    assert_eq!(kv.index().journal().stats().records - records, 1);
    assert!(sim.data_sync_count() - syncs <= 3, "{} syncs", sim.data_sync_count() - syncs);
    kv.stop();
    assert_eq!(
        (kv.stats().batches, kv.stats().largest_batch),
        (3, 100),
        "the first, the one that was held up, this one"
    );
    assert_eq!(done_batches.load(Ordering::SeqCst), 3, "the hook runs once a batch");
}

/// A batch of three is answered by the responder, and one that comes alone by the committer; but only once all earlier
/// ones are answered.
#[test]
fn an_operation_that_comes_alone_is_answered_after_all_earlier_ones() {
    let sim = SimDisk::new(1);
    let kv = embedded(&sim, None);
    let (answers, seen) = channel();
    let (go_on, held) = channel::<()>();
    let mut held = Some(held);
    let mut answered_by = |number: u64| {
        let (answers, held) = (answers.clone(), if number == 1 { held.take() } else { None });
        let done = move |_: Result<(), KvError>| {
            if let Some(held) = held {
                let _ = held.recv();
            }
            answers.send((number, std::thread::current().name().unwrap_or("").to_owned())).unwrap();
        };
        kv.submit(
            Durability::Written,
            Box::new(move |txn| {
                txn.put(b"n", number.to_string().as_bytes());
                OpOutcome::Commit
            }),
            Box::new(done),
        );
    };
    let go = hold(&kv);
    (1..=3).for_each(&mut answered_by);
    go();
    // It is committed while the first answer of the batch before is held up.
    answered_by(4);
    while kv.snapshot().get(b"n").unwrap().as_deref() != Some(b"4".as_slice()) {
        std::thread::yield_now();
    }
    std::thread::sleep(Duration::from_millis(20));
    assert!(seen.try_recv().is_err(), "an answer has passed an earlier one");
    drop(go_on);
    let order: Vec<_> = seen.iter().take(4).map(|(number, _)| number).collect();
    assert_eq!(order, [1, 2, 3, 4]);
    // With nothing else to do, the committer needs no other thread to answer.
    let alone = || {
        answered_by(5);
        seen.recv_timeout(Duration::from_secs(10)).unwrap().1
    };
    assert!(std::iter::repeat_with(alone).take(100).any(|thread| thread == "committer"));
    kv.stop();
}

/// Whichever thread answers, a completion cannot end it, not even by what its panic contains.
#[test]
fn a_completion_that_panics_ends_no_thread() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("again");
        }
    }
    let sim = SimDisk::new(1);
    let kv = embedded(&sim, None);
    for count in [1, 5] {
        let go = hold(&kv);
        for _ in 0..count {
            let explode = Box::new(|_| std::panic::panic_any(Bomb));
            kv.submit(Durability::Written, Box::new(|_| OpOutcome::Abort), explode);
        }
        go();
        put(&kv, "n", "1", Durability::Synced).unwrap();
    }
    assert_eq!(kv.broken(), None);
    kv.stop();
}

#[test]
fn operations_that_abort_or_panic_change_nothing() {
    let sim = SimDisk::new(1);
    let kv = embedded(&sim, None);
    let go = hold(&kv);
    let (results, seen) = channel();
    for kind in 0..5 {
        let results = results.clone();
        kv.submit(
            Durability::Synced,
            Box::new(move |txn| {
                txn.put(format!("key{kind}").as_bytes(), b"value");
                txn.put(b"shared", format!("{kind}").as_bytes());
                match kind {
                    1 => OpOutcome::Abort,
                    2 => panic!("planted"),
                    3 => {
                        txn.put(&[b'k'; 5000], b"");
                        OpOutcome::Commit
                    }
                    _ => OpOutcome::Commit,
                }
            }),
            Box::new(move |result| results.send(result).unwrap()),
        );
    }
    go();
    let answers: Vec<_> = seen.iter().take(5).collect();
    assert!(matches!(&answers[2], Err(KvError::Panicked(what)) if what == "planted"), "{answers:?}");
    assert!(matches!(&answers[3], Err(KvError::TooLarge { .. })), "{answers:?}");
    assert!(answers[0].is_ok() && answers[1].is_ok() && answers[4].is_ok(), "{answers:?}");
    let expected: Map = [("key0", "value"), ("key4", "value"), ("shared", "4")]
        .map(|(key, value)| (key.as_bytes().to_vec(), value.as_bytes().to_vec()))
        .into();
    assert_eq!(content(&*kv.snapshot()), expected);
    assert_eq!((kv.stats().panicked, kv.stats().aborted), (1, 2));
}

#[test]
fn a_failed_sync_refuses_all_operations_and_shows_none() {
    let sim = SimDisk::new(1);
    let kv = embedded(&sim, None);
    put(&kv, "before", "1", Durability::Synced).unwrap();
    sim.fail_next(DiskOp::Sync, 1, std::io::ErrorKind::Other);
    let failed = put(&kv, "lost", "1", Durability::Synced);
    assert!(matches!(failed, Err(KvError::Stopped { .. })), "{failed:?}");
    for durability in [Durability::Synced, Durability::Written] {
        let after = put(&kv, "after", "1", durability);
        assert!(matches!(after, Err(KvError::Stopped { .. })), "{after:?}");
    }
    assert_eq!(content(&*kv.snapshot()).into_keys().collect::<Vec<_>>(), [b"before".to_vec()]);
}

#[test]
fn a_full_disk_refuses_puts_and_accepts_urgent_deletions() {
    let sim = SimDisk::new(1);
    let kv = embedded(&sim, None);
    for number in 0..20 {
        put(&kv, &format!("key{number}"), "value", Durability::Synced).unwrap();
    }
    sim.set_free(0);
    let filler = "x".repeat(8000);
    let refused = (0..200).find_map(|number| put(&kv, &format!("big{number}"), &filler, Durability::Synced).err());
    assert!(matches!(refused, Some(KvError::NoSpace)), "{refused:?}");
    // In one batch with a put that fails.
    let go = hold(&kv);
    let (results, seen) = channel();
    let refused = results.clone();
    let filler = filler.clone();
    kv.submit(
        Durability::Synced,
        Box::new(move |txn| {
            txn.put(b"key4", filler.as_bytes());
            OpOutcome::Commit
        }),
        Box::new(move |result| refused.send((0, result)).unwrap()),
    );
    kv.submit_urgent(
        Durability::Synced,
        Box::new(|txn| {
            txn.delete(b"key3");
            OpOutcome::Commit
        }),
        Box::new(move |result| results.send((1, result)).unwrap()),
    );
    go();
    let answers: Vec<_> = seen.iter().take(2).collect();
    assert!(matches!(answers[0], (0, Err(KvError::NoSpace))), "{answers:?}");
    assert!(matches!(answers[1], (1, Ok(()))), "{answers:?}");
    assert_eq!(kv.snapshot().get(b"key3").unwrap(), None);
    assert_eq!(kv.snapshot().get(b"key4").unwrap().as_deref(), Some(b"value".as_slice()));
    assert!(kv.stats().no_space >= 2);
    // Space becomes free.
    sim.set_free(1 << 30);
    kv.index().journal().prepare().unwrap();
    put(&kv, "again", "1", Durability::Synced).unwrap();
    let expected = content(&*kv.snapshot());
    kv.stop();
    let (_, index, ..) = open(&sim.kill(), &Kind::Lost, &IndexConfig::small()).unwrap();
    assert_eq!(content(&*index.snapshot()), expected);
}

#[test]
fn completions_may_submit_even_when_the_queue_is_full() {
    let sim = SimDisk::new(1);
    let (_, index, ..) = open(&sim, &Kind::Lost, &IndexConfig::small()).unwrap();
    let config = EmbeddedConfig { queue_max: 2, batch_ops_max: 2, ..EmbeddedConfig::default() };
    let kv = Arc::new(Embedded::new(index, config).unwrap());
    let (finished, wait) = channel();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (kv, finished) = (Arc::clone(&kv), finished.clone());
            scope.spawn(move || {
                for number in 0..100 {
                    let (again, finished) = (Arc::clone(&kv), finished.clone());
                    let op = move |kv: &Embedded, key: String, done: crate::OpDone| {
                        kv.submit(
                            Durability::Written,
                            Box::new(move |txn| {
                                txn.put(key.as_bytes(), b"");
                                OpOutcome::Commit
                            }),
                            done,
                        );
                    };
                    let followed = Box::new(move |_| {
                        op(&again, format!("{thread}/{number}/b"), Box::new(move |_| finished.send(()).unwrap()));
                    });
                    op(&kv, format!("{thread}/{number}/a"), followed);
                }
            });
        }
    });
    for _ in 0..400 {
        wait.recv_timeout(Duration::from_secs(20)).expect("all are answered");
    }
    assert_eq!(content(&*kv.snapshot()).len(), 800);
}

#[test]
fn after_a_stop_every_operation_is_answered() {
    let sim = SimDisk::new(1);
    let kv = embedded(&sim, None);
    let (results, seen) = channel();
    for _ in 0..50 {
        let results = results.clone();
        kv.submit(Durability::Synced, Box::new(|_| OpOutcome::Abort), Box::new(move |r| results.send(r).unwrap()));
    }
    kv.stop();
    assert!(seen.iter().take(50).all(|result| result.is_ok()));
    assert!(matches!(put(&kv, "k", "v", Durability::Written), Err(KvError::Stopped { .. })));
}

/// Several threads commit while images of crashes are taken. An image must contain every operation that was answered
/// before it, complete, and without a gap for each thread.
fn crash_while_committing(seed: u64, planted: Option<PlantedBug>, faults: &mut CrashReport) -> Result<u64, String> {
    let mut rng = rng(seed);
    let sim = SimDisk::new(seed);
    let kv = Arc::new(embedded(&sim, planted));
    let answered = Arc::new(Mutex::new(BTreeMap::<u64, u64>::new()));
    let stop = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = (0..4u64)
        .map(|thread| {
            let (kv, answered, stop) = (Arc::clone(&kv), Arc::clone(&answered), Arc::clone(&stop));
            std::thread::spawn(move || {
                for number in 1.. {
                    if stop.load(Ordering::SeqCst) {
                        return;
                    }
                    let synced = number % 3 != 0;
                    let durability = if synced { Durability::Synced } else { Durability::Written };
                    let result = transact(&*kv, durability, move |txn| {
                        let expected = (number > 1).then(|| (number - 1).to_string().into_bytes());
                        assert_eq!(txn.get(format!("t{thread}").as_bytes()).unwrap(), expected);
                        txn.put(format!("t{thread}").as_bytes(), number.to_string().as_bytes());
                        txn.put(format!("n{thread}/{number:06}").as_bytes(), b"");
                        // A short-lived key.
                        txn.delete(format!("w{thread}/{:06}", number - 1).as_bytes());
                        txn.put(format!("w{thread}/{number:06}").as_bytes(), b"");
                        (OpOutcome::Commit, ())
                    });
                    result.unwrap();
                    if synced {
                        answered.lock().insert(thread, number);
                    }
                }
            })
        })
        .collect();
    let mut images = Vec::new();
    for _ in 0..4 {
        std::thread::sleep(Duration::from_micros(rng.random_range(200..3000)));
        let before = answered.lock().clone();
        images.push((before, crash_image(&sim, &mut rng, faults)));
    }
    stop.store(true, Ordering::SeqCst);
    for thread in threads {
        thread.join().map_err(|_| "a thread has failed".to_owned())?;
    }
    kv.stop();
    let mut operations = 0;
    for (answered, image) in images {
        let (journal, index, ..) = open(&image, &Kind::Lost, &IndexConfig::small())?;
        assert!(journal.durable() >= Seq(0));
        let map = content(&*index.snapshot());
        let number_of = |key: String| -> u64 {
            map.get(key.as_bytes()).map_or(0, |value| String::from_utf8_lossy(value).parse().unwrap())
        };
        for thread in 0..4 {
            let (found, least) = (number_of(format!("t{thread}")), answered.get(&thread).copied().unwrap_or(0));
            if found < least {
                return Err(format!("thread {thread}: {least} was answered, {found} is there"));
            }
            let count = |from: String, to: String| map.range(from.into_bytes()..to.into_bytes()).count() as u64;
            let (numbers, marks) = (
                count(format!("n{thread}/"), format!("n{thread}0")),
                count(format!("w{thread}/"), format!("w{thread}0")),
            );
            if (numbers, marks) != (found, u64::from(found > 0)) {
                return Err(format!("thread {thread} at {found}: {numbers} numbers, {marks} marks"));
            }
            operations += found;
        }
    }
    Ok(operations)
}

#[test]
fn answered_operations_survive_a_crash() {
    let (mut faults, mut operations) = (CrashReport::default(), 0);
    let count = seeds(60);
    for seed in 0..count {
        operations +=
            crash_while_committing(seed, None, &mut faults).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
    }
    println!("{count} seeds, {operations} operations seen after crashes: {faults:?}");
    assert!(operations > count * 20);
}

#[test]
fn acknowledging_before_the_sync_is_found() {
    let mut faults = CrashReport::default();
    let found = (0..100).find_map(|seed| {
        crash_while_committing(seed, Some(PlantedBug::AcknowledgeBeforeSync), &mut faults)
            .err()
            .map(|what| (seed, what))
    });
    println!("AcknowledgeBeforeSync: {:?}", found.expect("it was not found"));
}

/// The committer's cache must agree with the index, also right after it was cleared, rolled back, aborted or swept.
/// Each operation reads two of a few keys, moves an amount between them, and deletes an empty one.
#[test]
fn the_committers_cache_agrees_with_the_index() {
    for seed in 0..seeds(10) {
        let sim = SimDisk::new(seed);
        let cache_bytes = [0, 2048, 16 << 10, 1 << 20][(seed % 4) as usize];
        let sweep_interval = Duration::from_millis(1);
        let index = IndexConfig { background: true, sweep_interval, cache_bytes, ..IndexConfig::small() };
        let (_, index, ..) = open(&sim, &Kind::Lost, &index).unwrap();
        let kv = Embedded::new(index, EmbeddedConfig::default()).unwrap();
        let keys: Vec<String> = (0..20).map(|n| format!("account-{n:02}")).collect();
        for key in &keys {
            put(&kv, key, "100", Durability::Written).unwrap();
        }
        let mut rng = rng(seed);
        for _ in 0..2_000 {
            let (from, to) = (keys[rng.random_range(0..20)].clone(), keys[rng.random_range(0..20)].clone());
            let (outcome, undone) = (rng.random_range(0..4u8), rng.random_bool(0.3));
            let op = move |txn: &mut dyn crate::Txn| {
                let amount = |txn: &dyn crate::Txn, key: &str| -> u64 {
                    let value = txn.get(key.as_bytes()).unwrap();
                    value.map_or(0, |value| String::from_utf8(value).unwrap().parse().unwrap())
                };
                let set = |txn: &mut dyn crate::Txn, key: &str, amount: u64| match amount {
                    0 => txn.delete(key.as_bytes()),
                    _ => txn.put(key.as_bytes(), amount.to_string().as_bytes()),
                };
                if undone {
                    let savepoint = txn.savepoint();
                    set(txn, &from, 1_000_000);
                    txn.rollback_to(savepoint);
                }
                let moved = amount(txn, &from).min(30);
                let left = amount(txn, &from) - moved;
                set(txn, &from, left);
                let sum = amount(txn, &to) + moved;
                set(txn, &to, sum);
                if outcome == 0 { OpOutcome::Abort } else { OpOutcome::Commit }
            };
            kv.submit(Durability::Written, Box::new(op), Box::new(|result| result.unwrap()));
        }
        kv.stop();
        let total: u64 = content(&*kv.snapshot())
            .iter()
            .filter(|(key, _)| key.starts_with(b"account-"))
            .map(|(_, value)| String::from_utf8(value.clone()).unwrap().parse::<u64>().unwrap())
            .sum();
        assert_eq!(total, 2_000, "seed {seed}, {cache_bytes} bytes remembered");
    }
}

/// Threads read while the committer changes keys. All keys of a snapshot are of one batch, and never older than an
/// earlier answer to the same thread.
#[test]
fn cached_reads_never_mix_states_or_go_back() {
    const KEYS: u32 = 40;
    let name = |n: u32| format!("key-{n:02}").into_bytes();
    let config = IndexConfig { background: true, sweep_interval: Duration::from_millis(1), ..IndexConfig::small() };
    let (_, index, ..) = open(&SimDisk::new(7), &Kind::Lost, &config).unwrap();
    let kv = Embedded::new(index, EmbeddedConfig::default()).unwrap();
    let set_all = |value: u64| {
        let op = move |txn: &mut dyn crate::Txn| {
            (0..KEYS).for_each(|n| txn.put(&name(n), &value.to_be_bytes()));
            OpOutcome::Commit
        };
        kv.submit(Durability::Synced, Box::new(op), Box::new(|result| result.unwrap()));
    };
    set_all(0);
    transact(&kv, Durability::Synced, |_| (OpOutcome::Abort, ())).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let looks: u64 = std::thread::scope(|scope| {
        let look = |salt: u32| {
            let (mut latest, mut looks) = (0, 0);
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let snapshot = kv.snapshot();
                let value = |n: u32| snapshot.get(&name(n % KEYS)).unwrap().unwrap();
                let first = value(salt);
                assert!((1..10).all(|n| value(salt + n * (1 + salt)) == first), "two states in one snapshot");
                let number = u64::from_be_bytes(first.try_into().unwrap());
                assert!(number >= latest, "{number} after {latest}");
                (latest, looks) = (number, looks + 1);
            }
            assert!(latest > 0, "nothing was seen to change");
            looks
        };
        let readers: Vec<_> = (0..3).map(|salt| scope.spawn(move || look(salt))).collect();
        for value in 1..=3_000 {
            set_all(value);
        }
        transact(&kv, Durability::Synced, |_| (OpOutcome::Abort, ())).unwrap();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        readers.into_iter().map(|reader| reader.join().unwrap()).sum()
    });
    println!("{looks} looks");
    let last = kv.snapshot().get(&name(3)).unwrap().unwrap();
    assert_eq!(last, 3_000_u64.to_be_bytes());
}
