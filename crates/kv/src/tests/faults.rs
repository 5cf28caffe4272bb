//! Faults that must lose nothing: a full disk, a missing journal, a thread's panic, files of a newer weir.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use disk::{Access, Disk, OpenOptions, SimDisk};
use journal::{Journal, JournalConfig, Seq, StreamId};

use super::fragile::Fragile;
use super::verify::{DIR, checkpoint_files, checkpointed};
use super::world::{Kind, OTHER, SurvivingEngine, World, content, open, random_batch, rng};
use crate::engine::Engine;
use crate::{Batch, IndexConfig, JournaledIndex, KvError, Rebuilt, Recovery};

type Opened = Result<(Arc<JournaledIndex>, Recovery), KvError>;

fn open_on(sim: &SimDisk, engine: &Fragile, config: &IndexConfig) -> Opened {
    let disk: Arc<dyn Disk> = Arc::new(sim.clone());
    let log = JournalConfig { streams: vec![StreamId::NAMESPACE, OTHER], ..JournalConfig::small() };
    let (journal, _) = Journal::open(Arc::clone(&disk), "journal", log).unwrap();
    let engine = Box::new(engine.clone());
    JournaledIndex::open(Arc::new(journal), StreamId::NAMESPACE, engine, disk, DIR, config.clone())
}

#[test]
fn an_engine_without_its_journal_is_refused_and_kept() {
    let mut rng = rng(3);
    let mut world = World::new(3, Kind::Surviving(SurvivingEngine::new(1)), None);
    for step in 0..20 {
        world.append(random_batch(&mut rng, step));
    }
    world.index.sweep_now().unwrap();
    let sim = world.sim.kill();
    for entry in sim.list("journal").unwrap() {
        sim.remove(&format!("journal/{}", entry.name)).unwrap();
    }
    for _ in 0..2 {
        let refused = open(&sim, &world.kind, &IndexConfig::small()).err().expect("refused");
        assert!(refused.contains("another journal") && refused.contains("not mounted"), "{refused}");
        let Kind::Surviving(engine) = &world.kind else { unreachable!() };
        assert_eq!(content(&*engine.snapshot()), world.model(), "the last copy is still there");
    }
    let config = IndexConfig { follow_shorter_journal: true, ..IndexConfig::small() };
    let (_, _, recovery, _) = open(&sim, &world.kind, &config).unwrap();
    assert_eq!(recovery.rebuilt, Some(Rebuilt::OtherJournal));
}

#[test]
fn a_repaired_journal_is_still_the_engines_journal() {
    let mut rng = rng(4);
    let mut world = World::new(4, Kind::Lost, None);
    let engine = Fragile::default();
    (world.index, _) = open_on(&world.sim.kill(), &engine, &IndexConfig::small()).unwrap();
    world.journal = Arc::clone(world.index.journal());
    for step in 0..60 {
        world.append(random_batch(&mut rng, step));
    }
    world.index.sweep_now().unwrap();
    assert!(engine.applied().seq > Seq(1));
    // Another journal on the same disk: the same records, the last one rotten, cut by a repair.
    let sim = SimDisk::new(4);
    let log = JournalConfig { incarnation: Some(world.journal.incarnation()), ..JournalConfig::small() };
    let (journal, _) = Journal::open(Arc::new(sim.clone()), "journal", log.clone()).unwrap();
    for _ in 0..3 {
        journal.append(StreamId::NAMESPACE, &[&Batch::new().encode().unwrap()]).unwrap();
    }
    let rotten = journal.append(StreamId::NAMESPACE, &[b"rotten"]).unwrap().location;
    journal.mark_synced().unwrap();
    drop(journal);
    assert!(sim.rot(&format!("journal/{:016x}.wseg", rotten.segment), rotten.offset));
    Journal::repair(&sim, "journal", &log).unwrap().unwrap();
    let (_, recovery) = open_on(&sim, &engine, &IndexConfig::small()).unwrap();
    assert_eq!(recovery.rebuilt, Some(Rebuilt::OtherJournal));
}

#[test]
fn a_full_disk_during_replay_keeps_the_engine() {
    for refusal in [KvError::NoSpace, KvError::Io("told so".into())] {
        let world = checkpointed(21, Kind::Lost);
        let sim = world.sim.kill();
        let engine = Fragile::default();
        open_on(&sim, &engine, &IndexConfig::small()).unwrap();
        let (applied, resets) = (engine.applied(), engine.0.resets.load(Ordering::SeqCst));
        // The journal is ahead of the engine.
        let (journal, _) = Journal::open(Arc::new(sim.clone()), "journal", JournalConfig::small()).unwrap();
        journal.append(StreamId::NAMESPACE, &[&Batch::new().encode().unwrap()]).unwrap();
        journal.mark_synced().unwrap();
        drop(journal);
        *engine.0.refusal.lock() = Some(refusal.clone());
        let refused = open_on(&sim, &engine, &IndexConfig::small()).err().expect("refused");
        assert_eq!(refused.code(), refusal.code(), "{refused}");
        assert_eq!((engine.applied(), engine.0.resets.load(Ordering::SeqCst)), (applied, resets));
        *engine.0.refusal.lock() = None;
        let (index, recovery) = open_on(&sim, &engine, &IndexConfig::small()).unwrap();
        assert_eq!(recovery.rebuilt, None);
        assert_eq!(content(&*index.snapshot()), world.model());
    }
}

#[test]
fn an_engine_is_not_replaced_by_an_invalid_checkpoint() {
    let world = checkpointed(22, Kind::Lost);
    let sim = world.sim.kill();
    let engine = Fragile::default();
    open_on(&sim, &engine, &IndexConfig::small()).unwrap();
    let resets = engine.0.resets.load(Ordering::SeqCst);
    let (journal, _) = Journal::open(Arc::new(sim.clone()), "journal", JournalConfig::small()).unwrap();
    journal.append(StreamId::NAMESPACE, &[&Batch::new().encode().unwrap()]).unwrap();
    journal.mark_synced().unwrap();
    drop(journal);
    assert!(sim.rot(&checkpoint_files(&sim)[0], 100));
    *engine.0.refusal.lock() = Some(KvError::Damaged("told so".into()));
    for _ in 0..2 {
        let refused = open_on(&sim, &engine, &IndexConfig::small()).err().expect("refused");
        assert!(refused.to_string().contains("checkpoint"), "{refused}");
    }
    assert_eq!(engine.0.resets.load(Ordering::SeqCst), resets);
    assert_eq!(content(&*engine.snapshot()), world.model());
}

#[test]
fn a_rotten_checkpoint_is_replaced_from_the_engine() {
    let mut rng = rng(23);
    let mut world = checkpointed(23, Kind::Surviving(SurvivingEngine::new(1)));
    let base = checkpoint_files(&world.sim).into_iter().find(|path| path.contains("base")).unwrap();
    let at = world.sim.len_of(&base).unwrap().unwrap() / 2;
    assert!(world.sim.rot(&base, at));
    let (mut failed, mut deltas) = (0, 0);
    for step in 200..500 {
        for _ in 0..8 {
            world.append(random_batch(&mut rng, step));
        }
        world.index.sweep_now().unwrap();
        let oldest = world.journal.oldest();
        if world.index.checkpoint_now().is_err() {
            failed += 1;
            assert_eq!(world.journal.oldest(), oldest, "nothing is trimmed by a checkpoint that is known to be bad");
        }
        world.journal.set_trim(OTHER, world.journal.appended()).unwrap();
        deltas = deltas.max(checkpoint_files(&world.sim).len());
    }
    assert_eq!((failed, world.index.stats().checkpoints_renewed), (1, 1));
    assert!(deltas <= 8, "{deltas} files");
    assert!(checkpoint_files(&world.sim).contains(&format!("{base}.damaged")));
    world.index.verify_checkpoints().unwrap();
    let sim = world.sim.kill();
    let (_, index, ..) = open(&sim, &Kind::Lost, &IndexConfig::small()).unwrap();
    assert_eq!(content(&*index.snapshot()), world.model());
}

#[test]
fn a_rotten_checkpoint_and_a_damaged_engine_prevent_trimming() {
    let world = checkpointed(24, Kind::Lost);
    let sim = world.sim.kill();
    let engine = Fragile::default();
    let (index, _) = open_on(&sim, &engine, &IndexConfig::small()).unwrap();
    let base = checkpoint_files(&sim).into_iter().find(|path| path.contains("base")).unwrap();
    assert!(sim.rot(&base, 100));
    assert!(index.verify_checkpoints().is_err(), "a scrub finds it");
    *engine.0.damaged.lock() = Some("told so".into());
    let oldest = index.journal().oldest();
    let mut rng = rng(24);
    for step in 0..100 {
        index.append(&random_batch(&mut rng, step)).unwrap();
        let refused = index.checkpoint_now().expect_err("neither is whole");
        assert!(refused.to_string().contains("damaged too"), "{refused}");
    }
    assert_eq!(index.journal().oldest(), oldest);
    *engine.0.damaged.lock() = None;
    index.checkpoint_now().unwrap();
    index.verify_checkpoints().unwrap();
}

#[test]
fn a_newer_weirs_checkpoint_is_refused_and_nothing_changes() {
    let world = checkpointed(25, Kind::Lost);
    // The format's version, its features, the kind.
    for at in [8usize, 16, 12] {
        let sim = world.sim.kill();
        let newer = checkpoint_files(&sim).last().unwrap().clone();
        let file = sim.open(&newer, OpenOptions { access: Access::ReadWrite, direct: false }).unwrap();
        let mut header = vec![0; 64];
        file.read_at(&mut header, 0).unwrap();
        header[at] ^= 0x40;
        let sum = types::Crc32c::of(&header[..60]).0;
        header[60..].copy_from_slice(&sum.to_le_bytes());
        file.write_at(&header, 0).unwrap();
        file.sync_data().unwrap();
        // The directory also has a damaged file and an unfinished one.
        assert!(sim.rot(&checkpoint_files(&sim)[0], 1));
        let half = OpenOptions { access: Access::CreateNew, direct: false };
        sim.open(&format!("{DIR}/half.ckpt.tmp"), half).unwrap();
        let before = checkpoint_files(&sim);
        assert!(before.len() > 2);
        let refused = open_on(&sim, &Fragile::default(), &IndexConfig::small()).err().expect("refused");
        assert!(matches!(&refused, KvError::Unsupported(what) if what.contains(&newer)), "{refused}");
        assert!(refused.to_string().contains("newer weir"));
        assert_eq!(checkpoint_files(&sim), before);
    }
}

/// An index with threads over an engine that fails on request.
fn threaded(engine: &Fragile) -> Arc<JournaledIndex> {
    let config = IndexConfig {
        background: true,
        sweep_interval: Duration::from_millis(5),
        overlay_bytes_max: 64 << 10,
        room_wait_max: Duration::from_secs(60),
        ..IndexConfig::small()
    };
    open_on(&SimDisk::new(1), engine, &config).unwrap().0
}

fn until(what: &str, done: impl Fn() -> bool) {
    let limit = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < limit, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn appends_fail_at_once_when_a_full_disk_stops_sweeps() {
    let engine = Fragile::default();
    let index = threaded(&engine);
    *engine.0.refusal.lock() = Some(KvError::NoSpace);
    let mut rng = rng(1);
    let began = Instant::now();
    let refused = (0..).find_map(|step| index.append(&random_batch(&mut rng, step)).err()).unwrap();
    assert!(matches!(refused, KvError::NoSpace), "{refused}");
    index.append_urgent(&random_batch(&mut rng, 0)).unwrap();
    for step in 0..20 {
        assert!(matches!(index.append(&random_batch(&mut rng, step)), Err(KvError::NoSpace)));
    }
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    *engine.0.refusal.lock() = None;
    until("it goes on when there is space", || index.append(&random_batch(&mut sweeper_rng(), 1)).is_ok());
}

fn sweeper_rng() -> rand::rngs::SmallRng {
    rng(2)
}

#[test]
fn a_panic_in_the_sweeper_is_counted_and_the_next_step_runs() {
    let engine = Fragile::default();
    let index = threaded(&engine);
    engine.0.panics.store(2, Ordering::SeqCst);
    let mut batch = Batch::new();
    batch.put(b"key", b"value");
    index.append(&batch).unwrap();
    until("its trouble is seen", || index.stats().trouble.is_some_and(|what| what.contains("told so")));
    until("it is swept in the end", || engine.snapshot().get(b"key").unwrap().is_some());
    until("the trouble is over", || index.stats().trouble.is_none());
    assert_eq!(index.stats().panics, 2);
    index.close().unwrap();
}

/// Freeing a generation takes milliseconds. The last reader may be the committer, and must not do it.
#[test]
fn readers_leave_freeing_to_the_sweeper() {
    let mut world = World::new(5, Kind::Lost, None);
    let put = |world: &mut World, key: &str| {
        let mut batch = Batch::new();
        batch.put(key.as_bytes(), b"value");
        let seq = world.append(batch);
        world.index.journal().sync_to(seq).unwrap();
    };
    put(&mut world, "a");
    let snapshot = world.index.latest();
    assert_eq!(snapshot.view.generations.len(), 1);
    let generation = Arc::downgrade(&snapshot.view.generations[0]);
    assert!(world.index.sweep_now().unwrap());
    drop(snapshot);
    assert!(generation.upgrade().is_some(), "the last reader has freed it");
    put(&mut world, "b");
    assert!(world.index.sweep_now().unwrap());
    assert!(generation.upgrade().is_none(), "nobody frees it");
}

#[test]
fn swept_changes_are_flushed_after_the_interval() {
    let engine = SurvivingEngine::new(usize::MAX);
    let mut world = World::new(6, Kind::Surviving(engine.clone()), None);
    let mut batch = Batch::new();
    batch.put(b"a", b"value");
    let seq = world.append(batch);
    world.index.journal().sync_to(seq).unwrap();
    assert!(world.index.sweep_now().unwrap());
    let shared = &world.index.shared;
    shared.flush_if_due().unwrap();
    assert!(engine.flushed().seq < seq, "not at once");
    let long_ago = std::time::Instant::now().checked_sub(world.config.flush_interval).unwrap();
    shared.sweeping.lock().unflushed_since = Some(long_ago);
    shared.flush_if_due().unwrap();
    assert_eq!(engine.flushed().seq, seq);
}
