//! The engine on disk: after SIGKILL or damage it holds a prefix of its steps, or nothing.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use journal::Seq;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::{child, seeds};
use crate::engine::{Applied, Engine, Entry, EntrySource};
use crate::{KvError, LsmConfig, LsmEngine, Read, ScanOrder};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn small() -> LsmConfig {
    LsmConfig { cache_bytes: 1 << 20, memtable_bytes: 48 << 10, table_bytes: 64 << 10, ..LsmConfig::default() }
}

/// The changes of a step; always the same for one number.
fn step(number: u64) -> BTreeMap<Vec<u8>, Option<Vec<u8>>> {
    let mut rng = SmallRng::seed_from_u64(number);
    (0..rng.random_range(1..60))
        .map(|_| {
            let key = format!("key-{:05}", rng.random_range(0..3000u32)).into_bytes();
            let value = rng.random_bool(0.7).then(|| {
                let mut value = format!("{number}-").into_bytes();
                value.resize(rng.random_range(10..300), b'v');
                value
            });
            (key, value)
        })
        .collect()
}

struct Step(std::collections::btree_map::IntoIter<Vec<u8>, Option<Vec<u8>>>, Option<(Vec<u8>, Option<Vec<u8>>)>);

impl EntrySource for Step {
    fn next(&mut self) -> Result<Option<Entry<'_>>, KvError> {
        self.1 = self.0.next();
        Ok(self.1.as_ref().map(|(key, value)| (key.as_slice(), value.as_deref())))
    }
}

fn apply(engine: &LsmEngine, number: u64) {
    let mut source = Step(step(number).into_iter(), None);
    engine.apply(&mut source, Applied { seq: Seq(number), incarnation: 7 }).unwrap();
}

/// The state after all steps up to `number`, computed from the cached one.
fn model_at(cache: &mut (u64, Model), number: u64) -> &Model {
    if cache.0 > number {
        *cache = Default::default();
    }
    for number in cache.0 + 1..=number {
        for (key, value) in step(number) {
            match value {
                Some(value) => cache.1.insert(key, value),
                None => cache.1.remove(&key),
            };
        }
    }
    cache.0 = number;
    &cache.1
}

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

fn content(read: &dyn Read, order: ScanOrder) -> Result<Pairs, KvError> {
    let mut entries = Vec::new();
    read.scan(b"", b"\xff", order, &mut |key, value| {
        entries.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    })?;
    Ok(entries)
}

fn assert_is(engine: &LsmEngine, model: &Model, context: &str) {
    let snapshot = engine.snapshot();
    let expected: Vec<_> = model.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    let mut found = content(&*snapshot, ScanOrder::Ascending).unwrap();
    assert!(found == expected, "{context}: {} entries, expected {}", found.len(), expected.len());
    found.reverse();
    assert_eq!(content(&*snapshot, ScanOrder::Descending).unwrap(), found, "{context}");
    for number in (0..3000).step_by(97) {
        let key = format!("key-{number:05}").into_bytes();
        assert_eq!(snapshot.get(&key).unwrap(), model.get(&key).cloned(), "{context}");
    }
}

#[test]
fn steps_are_atomic_and_old_snapshots_do_not_change() {
    let dir = tempfile::tempdir().unwrap();
    let engine = LsmEngine::open(dir.path(), small()).unwrap();
    let mut cache = Default::default();
    let mut held = Vec::new();
    for number in 1..=400 {
        apply(&engine, number);
        if number % 40 == 0 {
            held.push((number, engine.snapshot()));
        }
    }
    assert!(engine.flushed().seq > Seq(100), "flushes happen by themselves: {:?}", engine.flushed());
    for (number, snapshot) in held {
        let expected: Vec<_> = model_at(&mut cache, number).clone().into_iter().collect();
        assert_eq!(content(&*snapshot, ScanOrder::Ascending).unwrap(), expected, "as of {number}");
    }
    assert_is(&engine, model_at(&mut cache, 400), "at the end");
}

#[test]
fn new_values_win_over_old_ones_after_reopening() {
    // fjall 3.1 without its journal fails this: it restarts numbers at 0.
    let dir = tempfile::tempdir().unwrap();
    let mut cache = Default::default();
    for round in 0..10u64 {
        let engine = LsmEngine::open(dir.path(), small()).unwrap();
        assert_eq!((engine.set_aside(), engine.applied().seq), (None, Seq(round * 30)));
        assert_is(&engine, model_at(&mut cache, round * 30), "reopened");
        for number in round * 30 + 1..=round * 30 + 30 {
            apply(&engine, number);
        }
        assert_is(&engine, model_at(&mut cache, round * 30 + 30), "after more steps");
        engine.flush().unwrap();
        engine.close();
    }
}

/// Applies steps until it is killed.
#[test]
fn child_applies_steps() {
    let Some(dir) = child::dir("lsm") else { return };
    let engine = LsmEngine::open(&dir, small()).unwrap();
    for number in engine.applied().seq.0 + 1.. {
        apply(&engine, number);
    }
}

#[test]
fn after_sigkill_the_engine_has_a_prefix_of_the_steps() {
    let dir = tempfile::tempdir().unwrap();
    let mut cache = Default::default();
    let mut rng = SmallRng::seed_from_u64(1);
    let (mut reached, mut kept) = (0, 0);
    let rounds = seeds(12);
    for _ in 0..rounds {
        let child = child::start("tests::lsm::child_applies_steps", "lsm", dir.path());
        std::thread::sleep(Duration::from_millis(rng.random_range(30..250)));
        child.kill();
        let engine = LsmEngine::open(dir.path(), small()).unwrap();
        assert_eq!(engine.set_aside(), None, "after SIGKILL it opens");
        let applied = engine.applied().seq.0;
        assert!(applied >= reached, "a flushed step was lost: {applied} after {reached}");
        kept += u64::from(applied > reached);
        reached = applied;
        assert_is(&engine, model_at(&mut cache, applied), "after SIGKILL");
    }
    println!("{rounds} kills, {reached} steps survived, progress in {kept}");
    assert!(kept > rounds / 4 && reached > 50);
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

fn damage(path: &Path, rng: &mut SmallRng) -> &'static str {
    let mut bytes = std::fs::read(path).unwrap();
    let at = rng.random_range(0..bytes.len().max(1));
    match rng.random_range(0..6) {
        0 => {
            std::fs::remove_file(path).unwrap();
            return "removed";
        }
        1 => bytes.truncate(at),
        2 => bytes.clear(),
        3 => bytes.iter_mut().skip(at).take(4096).for_each(|byte| *byte = 0),
        4 => bytes.iter_mut().for_each(|byte| *byte = rng.random()),
        _ => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << rng.random_range(0..8);
            }
        }
    }
    std::fs::write(path, bytes).unwrap();
    "changed"
}

#[test]
fn damaged_files_are_detected_and_never_give_wrong_values() {
    let (mut refused, mut noticed, mut unhurt) = (0, 0, 0);
    for seed in 0..seeds(32) {
        let mut rng = SmallRng::seed_from_u64(seed);
        let dir = tempfile::tempdir().unwrap();
        let mut cache = Default::default();
        let engine = LsmEngine::open(dir.path(), small()).unwrap();
        (1..=60).for_each(|number| apply(&engine, number));
        engine.flush().unwrap();
        drop(engine);
        let all = files(dir.path());
        let largest = all.iter().max_by_key(|path| std::fs::metadata(path).unwrap().len()).unwrap();
        let (victim, how) = if seed % 2 == 0 {
            // Most likely a bit of an entry.
            let mut bytes = std::fs::read(largest).unwrap();
            let at = rng.random_range(0..bytes.len());
            bytes[at] ^= 0x10;
            std::fs::write(largest, bytes).unwrap();
            (largest, "rotten")
        } else {
            let victim = &all[rng.random_range(0..all.len())];
            (victim, damage(victim, &mut rng))
        };
        let context = format!("seed {seed}: {} {how}", victim.display());

        let engine = LsmEngine::open(dir.path(), small()).unwrap();
        if engine.set_aside().is_some() {
            refused += 1;
            assert_eq!((engine.applied().seq, engine.is_empty().unwrap()), (Seq(0), true), "{context}");
            continue;
        }
        let applied = engine.applied().seq.0;
        match content(&*engine.snapshot(), ScanOrder::Ascending) {
            Ok(found) => {
                let expected: Vec<_> = model_at(&mut cache, applied).clone().into_iter().collect();
                assert!(found == expected, "{context}: wrong content at {applied}");
                unhurt += 1;
            }
            Err(KvError::Damaged(_)) => {
                noticed += 1;
                assert!(engine.damaged().is_some(), "{context}");
                drop(engine);
                let engine = LsmEngine::open(dir.path(), small()).unwrap();
                assert!(engine.set_aside().is_some() && engine.applied().seq == Seq(0), "{context}");
            }
            Err(error) => panic!("{context}: {error}"),
        }
    }
    println!("refused at opening: {refused}, noticed while reading: {noticed}, unhurt: {unhurt}");
    assert!(refused > 3 && noticed > 3);
}

#[test]
fn every_flipped_bit_in_the_table_list_is_detected() {
    let dir = tempfile::tempdir().unwrap();
    let engine = LsmEngine::open(dir.path(), small()).unwrap();
    for number in 1..=8 {
        apply(&engine, number);
        engine.flush().unwrap();
    }
    drop(engine);
    let current = std::fs::read(dir.path().join("live/current")).unwrap();
    let number = u64::from_le_bytes(current[..8].try_into().unwrap());
    let mut rng = SmallRng::seed_from_u64(1);
    for name in [format!("live/v{number}"), "live/current".to_owned()] {
        let bytes = std::fs::read(dir.path().join(&name)).unwrap();
        for _ in 0..40 {
            let copy = tempfile::tempdir().unwrap();
            for file in files(dir.path()) {
                let to = copy.path().join(file.strip_prefix(dir.path()).unwrap());
                std::fs::create_dir_all(to.parent().unwrap()).unwrap();
                std::fs::copy(&file, to).unwrap();
            }
            let (mut bytes, bit) = (bytes.clone(), rng.random_range(0..bytes.len() * 8));
            bytes[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(copy.path().join(&name), bytes).unwrap();
            let engine = LsmEngine::open(copy.path(), small()).unwrap();
            assert!(engine.set_aside().is_some(), "bit {bit} of {name}");
        }
    }
}

/// The engine as if only that directory existed.
fn only(dir: &Path, folder: &str) -> (tempfile::TempDir, LsmEngine) {
    let copy = tempfile::tempdir().unwrap();
    let from = dir.join(folder);
    for file in files(&from) {
        let to = copy.path().join("live").join(file.strip_prefix(&from).unwrap());
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(&file, to).unwrap();
    }
    let engine = LsmEngine::open(copy.path(), small()).unwrap();
    (copy, engine)
}

fn folders(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let mut names: Vec<String> =
        entries.filter(|entry| entry.path().is_dir()).map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn the_old_contents_stay_until_the_engine_is_rebuilt() {
    let dir = tempfile::tempdir().unwrap();
    let mut cache = Default::default();
    let engine = LsmEngine::open(dir.path(), small()).unwrap();
    (1..=60).for_each(|number| apply(&engine, number));
    engine.flush().unwrap();
    engine.reset("told so").unwrap();
    drop(engine);
    // Several starts that never fill it.
    for _ in 0..3 {
        let engine = LsmEngine::open(dir.path(), small()).unwrap();
        assert_eq!((engine.applied().seq, engine.is_empty().unwrap()), (Seq(0), true));
        engine.reset("again").unwrap();
        drop(engine);
        assert_eq!(folders(dir.path()).len(), 2, "{:?}", folders(dir.path()));
        assert_is(&only(dir.path(), "live").1, model_at(&mut cache, 60), "the last copy");
    }
    // One more start fills it; the next one may then remove the old contents.
    let engine = LsmEngine::open(dir.path(), small()).unwrap();
    for round in 0..3 {
        (1..=70 + round).for_each(|number| apply(&engine, number));
        engine.flush().unwrap();
        engine.rebuilt();
        assert_eq!(folders(dir.path()).len(), 2, "{:?}", folders(dir.path()));
        assert_is(&engine, model_at(&mut cache, 70 + round), "built again");
        if round < 2 {
            engine.reset("once more").unwrap();
            assert_eq!(folders(dir.path()).len(), 3);
        }
    }
    drop(engine);
    let engine = LsmEngine::open(dir.path(), small()).unwrap();
    assert_eq!(engine.set_aside(), None);
    assert_is(&engine, model_at(&mut cache, 72), "the one that was built last");
}

#[test]
fn readers_keep_their_state_after_a_reset() {
    let dir = tempfile::tempdir().unwrap();
    let mut cache = Default::default();
    let engine = LsmEngine::open(dir.path(), LsmConfig { cache_bytes: 0, open_files: 16, ..small() }).unwrap();
    (1..=200).for_each(|number| apply(&engine, number));
    engine.flush().unwrap();
    let before = engine.snapshot();
    engine.reset("told so").unwrap();
    (1..=50).for_each(|number| apply(&engine, number));
    engine.flush().unwrap();
    let expected: Vec<_> = model_at(&mut cache, 200).clone().into_iter().collect();
    assert!(content(&*before, ScanOrder::Ascending).unwrap() == expected);
    drop(before);
    assert_eq!(engine.damaged(), None);
    drop(engine);
    let engine = LsmEngine::open(dir.path(), small()).unwrap();
    assert_eq!((engine.set_aside(), engine.applied().seq), (None, Seq(50)));
    assert_is(&engine, model_at(&mut cache, 50), "the new one");
}
