//! Checkpoint files that rot, before they count and afterwards.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use disk::{CrashReport, Disk, SimDisk};
use journal::{Journal, JournalConfig, Seq, StreamId};
use rand::Rng;

use super::fragile::Fragile;
use super::world::{Kind, OTHER, SurvivingEngine, World, content, crash_image, open, random_batch, rng};
use super::{BeforeVerify, PlantedBug, seeds};
use crate::engine::Engine;
use crate::{IndexConfig, JournaledIndex, KvError, Rebuilt};

/// A world whose checkpoint files sometimes rot just after they were written.
fn rotting(seed: u64, planted: Option<PlantedBug>) -> Result<u64, String> {
    let mut rng = rng(seed);
    let mut world = World::new(seed, Kind::Lost, planted);
    let sim = world.sim.clone();
    let random: Vec<u64> = (0..64).map(|_| rng.random()).collect();
    let count = Arc::new(AtomicUsize::new(0));
    let hook = move |path: &str| {
        let call = count.fetch_add(1, Ordering::SeqCst);
        if call % 3 == 1 {
            let len = sim.len_of(path).unwrap().unwrap();
            assert!(sim.rot(path, random[call % random.len()] % len));
        }
    };
    world.index.shared.checkpoints.lock().before_verify = BeforeVerify(Some(Arc::new(hook)));
    for step in 0..200 {
        for _ in 0..6 {
            world.append(random_batch(&mut rng, step));
        }
        world.index.sweep_now().unwrap();
        // A refused file is an error of this call only.
        let _ = world.index.checkpoint_now();
    }
    world.journal.sync_to(world.journal.appended()).unwrap();
    let refused = world.index.stats().checkpoints_refused;
    world.index.verify_checkpoints().map_err(|error| error.to_string())?;
    let (image, last) = (world.sim.kill(), world.journal.appended());
    let now = world.sim.change_count();
    world.stop(image, now, last, &mut rng)?;
    Ok(refused)
}

#[test]
fn a_checkpoint_that_fails_verification_does_not_count() {
    let mut refused = 0;
    for seed in 0..seeds(25) {
        refused += rotting(seed, None).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
    }
    println!("{refused} files refused");
    assert!(refused > 20);
}

#[test]
fn skipping_the_verification_is_found() {
    let found =
        (0..25).find_map(|seed| rotting(seed, Some(PlantedBug::SkipCheckpointVerify)).err().map(|what| (seed, what)));
    println!("SkipCheckpointVerify: {:?}", found.expect("it was not found"));
}

/// A world with checkpoints; everything is durable.
pub(super) fn checkpointed(seed: u64, kind: Kind) -> World {
    let mut rng = rng(seed);
    let mut world = World::new(seed, kind, None);
    for step in 0..150 {
        for _ in 0..8 {
            world.append(random_batch(&mut rng, step));
        }
        world.index.sweep_now().unwrap();
        world.index.checkpoint_now().unwrap();
        world.journal.set_trim(OTHER, world.journal.appended()).unwrap();
    }
    world.journal.sync_to(world.journal.appended()).unwrap();
    assert!(world.journal.oldest() > Seq(1), "the log was trimmed");
    world
}

pub(super) const DIR: &str = "namespace/checkpoint";

pub(super) fn checkpoint_files(sim: &SimDisk) -> Vec<String> {
    sim.list(DIR).unwrap().into_iter().map(|entry| format!("{DIR}/{}", entry.name)).collect()
}

#[test]
fn rot_in_a_checkpoint_is_never_returned_as_data() {
    let (mut refused, mut renewed, mut unread) = (0, 0, 0);
    let world = checkpointed(5, Kind::Lost);
    let mut rng = rng(6);
    for seed in 0..seeds(200) {
        let sim = world.sim.kill();
        let files = checkpoint_files(&sim);
        let path = &files[rng.random_range(0..files.len())];
        let len = sim.len_of(path).unwrap().unwrap();
        assert!(sim.rot(path, rng.random_range(0..len)));
        // The engine is lost as well: the contents are gone, and the opening must report that.
        match open(&sim, &Kind::Lost, &IndexConfig::small()) {
            Err(what) => {
                assert!(what.contains("checkpoint"), "seed {seed}: {what}");
                refused += 1;
            }
            Ok(_) => panic!("seed {seed}: rot in {path} went unnoticed"),
        }
    }
    // With the engine alive nothing is lost. Opening checks headers and footers.
    let mut world = checkpointed(7, Kind::Surviving(SurvivingEngine::new(1)));
    world.index.sweep_now().unwrap();
    for _ in 0..40 {
        let sim = world.sim.kill();
        let files = checkpoint_files(&sim);
        let path = &files[rng.random_range(0..files.len())];
        let len = sim.len_of(path).unwrap().unwrap();
        assert!(sim.rot(path, rng.random_range(0..64u64).min(len - 1)));
        let (_, index, recovery, _) = open(&sim, &world.kind, &IndexConfig::small()).unwrap();
        assert_eq!(recovery.damaged_checkpoints.len(), 1);
        assert_eq!(content(&*index.snapshot()), world.model());
        if recovery.checkpoint_renewed {
            renewed += 1;
            index.verify_checkpoints().unwrap();
            // The new checkpoint restores a lost engine.
            drop(index);
            let (_, index, ..) = open(&sim, &Kind::Lost, &IndexConfig::small()).unwrap();
            assert_eq!(content(&*index.snapshot()), world.model());
        } else {
            unread += 1;
        }
    }
    world.kind = Kind::Lost;
    println!("refused {refused}; renewed from the engine {renewed}, not needed {unread}");
    assert!(renewed > 10);
}

#[test]
fn an_engine_takes_no_changes_until_its_rebuild_succeeds() {
    let mut world = checkpointed(9, Kind::Lost);
    let sim = world.sim.kill();
    let engine = Fragile::default();
    let disk: Arc<dyn Disk> = Arc::new(sim.clone());
    let config = JournalConfig { streams: vec![StreamId::NAMESPACE, OTHER], ..JournalConfig::small() };
    let (journal, _) = Journal::open(Arc::clone(&disk), "journal", config).unwrap();
    let (index, _) = JournaledIndex::open(
        Arc::new(journal),
        StreamId::NAMESPACE,
        Box::new(engine.clone()),
        disk,
        DIR,
        IndexConfig::small(),
    )
    .unwrap();
    world.index = index;
    let mut rng = rng(9);
    world.append(random_batch(&mut rng, 1000));
    world.index.sweep_now().unwrap();
    world.append(random_batch(&mut rng, 1001));

    let files = checkpoint_files(&sim);
    assert!(sim.rot(&files[0], 100));
    *engine.0.damaged.lock() = Some("told so".into());
    let applied = engine.applied();
    for _ in 0..2 {
        assert!(matches!(world.index.heal_now(), Err(KvError::Lost(_))));
        assert!(world.index.sweep_now().is_err() && world.index.checkpoint_now().is_err());
        assert_eq!(engine.applied(), applied, "nothing is discarded before the checkpoint is verified");
        assert_eq!(content(&*world.index.snapshot()), world.model(), "readers have the old one");
        world.append(random_batch(&mut rng, 1002));
    }
    assert!(sim.rot(&files[0], 100), "the same bit again: as it was");
    assert!(world.index.heal_now().unwrap());
    assert!(world.index.sweep_now().unwrap());
    assert_eq!(content(&*world.index.snapshot()), world.model());
    assert_eq!(content(&*engine.snapshot()), world.model());
}

#[test]
fn a_missing_journal_is_detected() {
    let world = checkpointed(8, Kind::Lost);
    let sim = world.sim.kill();
    for entry in sim.list("journal").unwrap() {
        sim.remove(&format!("journal/{}", entry.name)).unwrap();
    }
    let error = open(&sim, &Kind::Lost, &IndexConfig::small()).err().expect("refused");
    assert!(error.contains("the journal ends with"), "{error}");
}

#[test]
fn an_engine_ahead_of_its_journal_is_damage_without_a_repair() {
    let mut rng = rng(12);
    let mut world = World::new(12, Kind::Surviving(SurvivingEngine::new(1)), None);
    for step in 0..20 {
        world.append(random_batch(&mut rng, step));
    }
    world.journal.sync_to(world.journal.appended()).unwrap();
    let (short, shorter) = (world.sim.kill(), world.model());
    let batch = random_batch(&mut rng, 21);
    world.append(batch);
    world.index.sweep_now().unwrap();
    // The journal as it was one record earlier. The mark that opening writes gets that record's number.
    let refused = open(&short.kill(), &world.kind, &IndexConfig::small());
    assert!(refused.is_ok(), "without being told how the log ended it cannot be seen");
    let (_, opened) = Journal::open(Arc::new(short.kill()), "journal", JournalConfig::small()).unwrap();
    let config = IndexConfig { journal_ended_at: Some(opened.last), ..IndexConfig::small() };
    let refused = open(&short.kill(), &world.kind, &config).err().expect("refused");
    assert!(refused.contains("records are missing"), "{refused}");
    let config = IndexConfig { follow_shorter_journal: true, ..config };
    let (_, index, recovery, _) = open(&short.kill(), &world.kind, &config).unwrap();
    assert_eq!(recovery.rebuilt, Some(Rebuilt::AheadOfJournal));
    assert_eq!(content(&*index.snapshot()), shorter);
}

/// The contents of an index whose checkpoint and engine were lost, and whose journal was trimmed.
#[test]
fn an_index_can_start_with_the_remaining_journal() {
    for seed in 0..seeds(20) {
        let mut rng = rng(seed);
        let mut world = World::new(seed, Kind::Lost, None);
        for step in 0..150 {
            for _ in 0..6 {
                world.append(random_batch(&mut rng, step));
            }
            world.journal.sync_to(world.journal.appended()).unwrap();
            world.index.sweep_now().unwrap();
            world.index.checkpoint_now().unwrap();
            world.journal.set_trim(OTHER, world.journal.durable()).unwrap();
        }
        world.journal.sync_to(world.journal.appended()).unwrap();
        let last = world.journal.appended();
        let disk = world.sim.kill();
        for entry in disk.list("namespace/checkpoint").unwrap() {
            disk.remove(&format!("namespace/checkpoint/{}", entry.name)).unwrap();
        }
        let empty = IndexConfig { begin_empty: true, ..IndexConfig::small() };
        let refused = open(&disk, &Kind::Lost, &IndexConfig::small()).map(drop).unwrap_err();
        assert!(refused.contains("cannot be built again"), "{seed}: {refused}");
        // It starts over after an interruption anywhere.
        disk.freeze_after(rng.random_range(1..60));
        drop(open(&disk, &Kind::Lost, &empty).unwrap());
        let disk = disk.frozen().map_or(disk, |frozen| crash_image(&frozen, &mut rng, &mut CrashReport::default()));
        let (journal, index, recovery, _) = open(&disk, &Kind::Lost, &empty).unwrap();
        assert_eq!(recovery.rebuilt, Some(Rebuilt::BegunEmpty), "{seed}");
        let oldest = journal.oldest();
        assert!(oldest > Seq(1), "{seed}: nothing was trimmed");
        let kept: Vec<_> = world.history.iter().filter(|(seq, _)| *seq >= oldest).cloned().collect();
        assert_eq!(content(&*index.snapshot()), super::world::model_of(&kept, last), "{seed}");
        // From then on it works like any other index.
        drop((journal, index));
        let (_, index, recovery, _) = open(&disk.kill(), &Kind::Lost, &IndexConfig::small()).unwrap();
        assert_eq!(content(&*index.snapshot()), super::world::model_of(&kept, last), "{seed}");
        assert_eq!(recovery.rebuilt, Some(Rebuilt::Empty), "{seed}: from the base that was made");
    }
}
