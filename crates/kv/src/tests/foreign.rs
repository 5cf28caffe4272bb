//! An index that a run on another directory wrote, beside the journal of this one; and an engine whose path names another directory.

use std::path::Path;
use std::sync::Arc;

use disk::SimDisk;
use journal::Seq;

use super::verify::{DIR, checkpoint_files, checkpointed};
use super::world::{Kind, SurvivingEngine, World, content, open, random_batch, rng};
use crate::engine::{Applied, Engine, Entry, EntrySource};
use crate::{IndexConfig, JournalOwner, KvError, LsmConfig, LsmEngine, Rebuilt, ScanOrder};

/// A world without a checkpoint, with an engine that has `steps` batches.
fn young(seed: u64, steps: u64) -> World {
    let mut rng = rng(seed);
    let mut world = World::new(seed, Kind::Surviving(SurvivingEngine::new(1)), None);
    for step in 0..steps {
        world.append(random_batch(&mut rng, step));
    }
    world.index.sweep_now().unwrap();
    world
}

fn with(journal_owner: JournalOwner) -> IndexConfig {
    IndexConfig { journal_owner, ..IndexConfig::small() }
}

fn engine_of(world: &World) -> &SurvivingEngine {
    let Kind::Surviving(engine) = &world.kind else { unreachable!() };
    engine
}

fn refused(sim: &SimDisk, other: &World, owner: JournalOwner) -> String {
    let refused = open(sim, &other.kind, &with(owner)).err().expect("refused");
    assert!(refused.contains("nothing was changed"), "{refused}");
    assert_eq!(content(&*engine_of(other).snapshot()), other.model(), "the index is still there");
    refused
}

#[test]
fn an_index_of_another_run_is_built_again_if_the_journal_is_known_to_be_the_directorys() {
    // The other run was shorter or longer than this one's.
    for steps in [5, 60] {
        let (world, other) = (young(1, 20), young(2, steps));
        let sim = world.sim.kill();
        assert!(refused(&sim, &other, JournalOwner::Unknown).contains("move namespace/index away"));
        let foreign = refused(&sim, &other, JournalOwner::AnotherDirectory);
        assert!(foreign.contains("put the journal back") && !foreign.contains("move"), "{foreign}");
        let (_, index, recovery, _) = open(&sim, &other.kind, &with(JournalOwner::ThisDirectory)).unwrap();
        assert_eq!(recovery.rebuilt, Some(Rebuilt::OtherRun));
        assert_eq!(content(&*index.snapshot()), world.model());
    }
}

#[test]
fn a_checkpoint_shows_whose_the_journal_is() {
    let world = checkpointed(3, Kind::Lost);
    let other = young(4, 30);
    let sim = world.sim.kill();
    let (_, index, recovery, _) = open(&sim, &other.kind, &with(JournalOwner::Unknown)).unwrap();
    assert_eq!(recovery.rebuilt, Some(Rebuilt::OtherRun));
    assert_eq!(content(&*index.snapshot()), world.model());
}

#[test]
fn an_index_and_a_checkpoint_of_another_run_are_not_mixed_with_the_journal() {
    // Long enough that the checkpoint ends within this journal's numbers.
    let other = checkpointed(6, Kind::Surviving(SurvivingEngine::new(1)));
    other.index.sweep_now().unwrap();
    let world = young(5, 3000);
    let sim = world.sim.kill();
    for path in checkpoint_files(&other.sim) {
        let bytes = read(&other.sim, &path);
        disk::replace_file(&sim, &path, &bytes).unwrap();
    }
    for owner in [JournalOwner::ThisDirectory, JournalOwner::Unknown] {
        let why = refused(&sim, &other, owner);
        assert!(owner == JournalOwner::Unknown || why.contains(&format!("checkpoint in {DIR}")), "{why}");
    }
}

fn read(sim: &SimDisk, path: &str) -> Vec<u8> {
    use disk::{Access, Disk as _, OpenOptions};
    let mut bytes = vec![0; usize::try_from(sim.len_of(path).unwrap().unwrap()).unwrap()];
    sim.open(path, OpenOptions { access: Access::Read, direct: false }).unwrap().read_at(&mut bytes, 0).unwrap();
    bytes
}

/// I2 stays: an index of this journal that is ahead of it proves that records are missing.
#[test]
fn an_index_of_the_same_journal_that_is_ahead_of_it_is_still_damage() {
    let mut world = young(7, 5);
    let early = world.sim.kill();
    let mut rng = rng(8);
    for step in 0..50 {
        world.append(random_batch(&mut rng, step));
    }
    world.index.sweep_now().unwrap();
    for owner in [JournalOwner::ThisDirectory, JournalOwner::Unknown, JournalOwner::AnotherDirectory] {
        let refused = open(&early, &world.kind, &with(owner)).err().expect("refused");
        assert!(refused.contains("records are missing"), "{refused}");
    }
}

struct Changes(Vec<(String, String)>, Option<(String, String)>);

impl EntrySource for Changes {
    fn next(&mut self) -> Result<Option<Entry<'_>>, KvError> {
        self.1 = self.0.pop();
        Ok(self.1.as_ref().map(|(key, value)| (key.as_bytes(), Some(value.as_bytes()))))
    }
}

fn apply(engine: &LsmEngine, step: u64) {
    let mut changes: Vec<_> = (0..200).map(|n| (format!("key-{n:04}"), format!("step {step}").repeat(20))).collect();
    changes.reverse();
    engine.apply(&mut Changes(changes, None), Applied { seq: Seq(step), incarnation: 1 }).unwrap();
    engine.flush().unwrap();
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(folder).unwrap().map(|name| name.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// What a disk does that is mounted over the directory: the path names another directory.
#[test]
fn an_engine_writes_to_the_directory_that_it_opened_whatever_its_path_names() {
    let temp = tempfile::tempdir().unwrap();
    let (path, moved) = (temp.path().join("index"), temp.path().join("moved"));
    let config = LsmConfig { flushed_runs: 2, ..LsmConfig::default() };
    let engine = LsmEngine::open(&path, config).unwrap();
    apply(&engine, 1);
    std::fs::rename(&path, &moved).unwrap();
    // Another run's index.
    let other = LsmEngine::open(&path, config).unwrap();
    apply(&other, 7);
    other.close();
    drop(other);
    let before = (names(&path), names(&path.join("live/tables")));

    let old = engine.snapshot();
    for step in 2..40 {
        apply(&engine, step);
    }
    let value = |engine: &dyn Engine| engine.snapshot().get(b"key-0100").unwrap().unwrap();
    assert_eq!(value(&engine), b"step 39".repeat(20));
    engine.reset("for the test").unwrap();
    apply(&engine, 40);
    engine.rebuilt();
    engine.close();
    drop(engine);
    // A reader may be the last user of tables and remove their files.
    assert_eq!(old.get(b"key-0100").unwrap().unwrap(), b"step 1".repeat(20));
    drop(old);

    assert_eq!((names(&path), names(&path.join("live/tables"))), before);
    assert_eq!(names(&moved), ["live", "live-1", "live.unusable"]);
    let other = LsmEngine::open(&path, config).unwrap();
    assert_eq!((other.set_aside(), other.applied().seq, value(&other)), (None, Seq(7), b"step 7".repeat(20)));
    let again = LsmEngine::open(&moved, config).unwrap();
    assert_eq!((again.set_aside(), again.applied().seq, value(&again)), (None, Seq(40), b"step 40".repeat(20)));
    let mut count = 0;
    let mut visit = |_: &[u8], _: &[u8]| {
        count += 1;
        std::ops::ControlFlow::Continue(())
    };
    Arc::clone(&again.snapshot()).scan(&[], &[0xfe], ScanOrder::Ascending, &mut visit).unwrap();
    assert_eq!(count, 200);
}
