//! Changes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use database::{Postgres, PostgresConfig};
use kv::{Durability, Kv, KvError, OpOutcome, ScanOrder, transact};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::harness::{add_one, address, among_others, database, get, keys, open, put, queue_add};

#[test]
fn a_transaction_sees_its_own_writes_and_a_savepoint_undoes_them() {
    let kv = open(&database());
    put(&kv, "b", "1").unwrap();
    put(&kv, "d", "2").unwrap();
    let seen = transact(&kv, Durability::Synced, |txn| {
        let run = |txn: &mut dyn kv::Txn| -> Result<_, KvError> {
            txn.get(b"b")?;
            txn.put(b"c", b"3");
            txn.delete(b"b");
            let mark = txn.savepoint();
            txn.put(b"e", b"4");
            txn.delete(b"d");
            let mut all = Vec::new();
            txn.scan(b"a", b"z", ScanOrder::Descending, &mut |key, _| {
                all.push(key[0]);
                std::ops::ControlFlow::Continue(())
            })?;
            txn.rollback_to(mark);
            Ok(all)
        };
        let ran = run(txn);
        (if ran.is_ok() { OpOutcome::Commit } else { OpOutcome::Abort }, ran)
    });
    assert_eq!(seen.unwrap().unwrap(), b"ec");
    assert_eq!(keys(&*kv.snapshot(), "a", "z", ScanOrder::Ascending, 9), ["c", "d"]);
}

#[test]
fn an_operation_that_aborts_or_panics_changes_nothing_and_the_others_of_its_batch_do() {
    let kv = open(&database());
    type Results = Vec<(u32, Result<(), KvError>)>;
    let results: Arc<Mutex<Results>> = Arc::default();
    for number in 0..6u32 {
        let results = Arc::clone(&results);
        kv.submit(
            Durability::Synced,
            Box::new(move |txn| {
                txn.put(format!("k{number}").as_bytes(), b"v");
                match number % 3 {
                    0 => OpOutcome::Commit,
                    1 => OpOutcome::Abort,
                    _ => panic!("on purpose"),
                }
            }),
            Box::new(move |result| results.lock().unwrap().push((number, result))),
        );
    }
    kv.stop();
    let kv_results = results.lock().unwrap();
    assert_eq!(kv_results.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5], "in order");
    for (number, result) in kv_results.iter() {
        assert_eq!(matches!(result, Err(KvError::Panicked(_))), number % 3 == 2, "{number}: {result:?}");
    }
    assert_eq!(keys(&*kv.snapshot(), "a", "z", ScanOrder::Ascending, 9), ["k0", "k3"]);
}

/// Many operations at once: the result of each run that counts must fit the one before.
#[test]
fn operations_of_one_thread_run_in_order_and_in_few_round_trips() {
    let kv = open(&database());
    put(&kv, "n", "0").unwrap();
    assert_eq!(get(&*kv.snapshot(), "n").unwrap(), "0");
    let before = kv.stats();
    let waiting: Vec<_> = (0..500).map(|_| queue_add(&kv, "n")).collect();
    for one in waiting {
        one.recv().unwrap().unwrap();
    }
    assert_eq!(get(&*kv.snapshot(), "n").unwrap(), "500");
    let after = kv.stats();
    let batches = after.batches - before.batches;
    assert_eq!(after.committed - before.committed, 500);
    assert!(batches < 100, "{batches} batches");
    // One to read and one to commit, and the snapshot's.
    assert_eq!(after.round_trips - before.round_trips, 2 * batches + 1);
}

#[test]
fn two_committers_lose_no_update_however_often_they_collide() {
    let url = database();
    let config = PostgresConfig { retries_max: 200, batch_ops_max: 8, ..among_others() };
    let engines: Vec<Arc<Postgres>> = ["a", "b", "c"]
        .iter()
        .map(|name| Arc::new(Postgres::open(&address(&url), name, config.clone()).unwrap()))
        .collect();
    let failed = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for engine in &engines {
            for thread in 0..4 {
                let failed = &failed;
                scope.spawn(move || {
                    for number in 0..25 {
                        let done = transact(&**engine, Durability::Synced, move |txn| {
                            // Two counters in different order: the sum of both is the number of operations.
                            let (first, second) = if (thread + number) % 2 == 0 { ("x", "y") } else { ("y", "x") };
                            let ran = add_one(txn, first.as_bytes()).and_then(|_| add_one(txn, second.as_bytes()));
                            (if ran.is_ok() { OpOutcome::Commit } else { OpOutcome::Abort }, ())
                        });
                        if done.is_err() {
                            failed.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        }
    });
    let done = 300 - failed.load(Ordering::Relaxed);
    let view = engines[0].snapshot();
    assert_eq!(get(&*view, "x").unwrap(), done.to_string());
    assert_eq!(get(&*view, "y").unwrap(), done.to_string());
    let conflicts: u64 = engines.iter().map(|engine| engine.stats().conflicts).sum();
    assert!(conflicts > 0, "the test did not test anything");
    assert!(done > 250, "{done} of 300 got through");
}

/// Write skew: each operation takes a seat only if it saw that the other one is free. Anything below SERIALIZABLE would let both.
#[test]
fn two_committers_do_not_both_decide_on_what_the_other_changes() {
    let url = database();
    let [one, two] = ["test", "other"].map(|name| Postgres::open(&address(&url), name, among_others()).unwrap());
    for round in 0..40 {
        let take = |kv: &Postgres, mine: String, other: String| {
            transact(kv, Durability::Synced, move |txn| {
                let ran = txn.get(other.as_bytes());
                match &ran {
                    Ok(None) => txn.put(mine.as_bytes(), b"taken"),
                    Ok(Some(_)) | Err(_) => return (OpOutcome::Abort, ran.is_ok()),
                }
                (OpOutcome::Commit, true)
            })
        };
        let (left, right) = (format!("{round} left"), format!("{round} right"));
        std::thread::scope(|scope| {
            let first = scope.spawn(|| take(&one, left.clone(), right.clone()));
            let second = scope.spawn(|| take(&two, right.clone(), left.clone()));
            assert!(first.join().unwrap().unwrap() && second.join().unwrap().unwrap());
        });
        let view = one.snapshot();
        let taken = [&left, &right].iter().filter(|key| get(&*view, key).is_some()).count();
        assert_eq!(taken, 1, "round {round}");
    }
}

/// Random operations against a map.
#[test]
fn random_operations_leave_what_a_map_would_have() {
    let kv = open(&database());
    let mut model: BTreeMap<String, String> = BTreeMap::new();
    let mut random = StdRng::seed_from_u64(11);
    for _ in 0..150 {
        let key = |random: &mut StdRng| format!("k{:02}", random.random_range(0..40));
        let (target, from, until) = (key(&mut random), key(&mut random), key(&mut random));
        let kind = random.random_range(0..4);
        let order = if random.random() { ScanOrder::Ascending } else { ScanOrder::Descending };
        let (in_op, start, end) = (target.clone(), from.clone(), until.clone());
        // Puts the keys of a range into an entry, so that scans count.
        let ran = transact(&kv, Durability::Synced, move |txn| {
            let result = (|| -> Result<(), KvError> {
                match kind {
                    0 => txn.delete(in_op.as_bytes()),
                    _ => {
                        let mut seen = Vec::new();
                        txn.scan(start.as_bytes(), end.as_bytes(), order, &mut |key, _| {
                            seen.push(String::from_utf8_lossy(key).into_owned());
                            if seen.len() == kind + 2 {
                                std::ops::ControlFlow::Break(())
                            } else {
                                std::ops::ControlFlow::Continue(())
                            }
                        })?;
                        txn.put(in_op.as_bytes(), seen.join(",").as_bytes());
                    }
                }
                Ok(())
            })();
            (if result.is_ok() { OpOutcome::Commit } else { OpOutcome::Abort }, result)
        });
        ran.unwrap().unwrap();
        if kind == 0 {
            model.remove(&target);
        } else {
            let in_range = model.keys().filter(|key| (from.clone()..until.clone()).contains(*key)).cloned();
            let mut seen: Vec<String> = in_range.collect();
            if order == ScanOrder::Descending {
                seen.reverse();
            }
            seen.truncate(kind + 2);
            model.insert(target, seen.join(","));
        }
    }
    let view = kv.snapshot();
    let found = keys(&*view, "a", "z", ScanOrder::Ascending, usize::MAX);
    assert_eq!(found, model.keys().cloned().collect::<Vec<_>>());
    for (key, value) in &model {
        assert_eq!(get(&*view, key).as_ref(), Some(value));
    }
}

#[test]
fn what_is_too_large_is_refused_alone() {
    let kv = open(&database());
    let good = put(&kv, "a", "1");
    let long = "x".repeat(kv::KEY_MAX + 1);
    assert!(matches!(put(&kv, &long, "1"), Err(KvError::TooLarge { .. })));
    assert!(good.is_ok());
    assert!(matches!(put(&kv, "", "1"), Err(KvError::BadKey)));
    // Every byte value in keys and values.
    let all: Vec<u8> = (0..=255u8).map(|byte| byte.wrapping_add(1)).collect();
    let (key, value) = (all.clone(), all.clone());
    transact(&kv, Durability::Synced, move |txn| {
        txn.put(&key, &value);
        (OpOutcome::Commit, ())
    })
    .unwrap();
    assert_eq!(kv.snapshot().get(&all).unwrap().unwrap(), all);
}
