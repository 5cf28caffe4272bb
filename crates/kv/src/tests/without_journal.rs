//! An index whose journal is lost: what the engine and the checkpoints still have.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use disk::{Disk, SimDisk};
use journal::{Beginning, Journal, JournalConfig, Seq, StreamId};

use super::fragile::Fragile;
use super::verify::{DIR, checkpoint_files, checkpointed};
use super::world::{Kind, Map, OTHER, content};
use crate::engine::{Applied, Engine};
use crate::{IndexConfig, JournaledIndex, KvError, WithoutJournal};

fn without_journal(sim: &SimDisk) -> WithoutJournal {
    WithoutJournal::open(StreamId::NAMESPACE, Arc::new(sim.clone()), DIR).unwrap()
}

/// The index at the start of a new journal.
fn opened_in_a_new_journal(sim: &SimDisk, engine: &Fragile) -> Map {
    let beginning = Beginning { first: Seq(1 << 30), segment: 9, incarnation: 77 };
    WithoutJournal::place(engine, Applied { seq: Seq((1 << 30) - 1), incarnation: 77 }).unwrap();
    let config = JournalConfig { streams: vec![StreamId::NAMESPACE, OTHER], ..JournalConfig::small() };
    Journal::begin(sim, "new", &config, &beginning).unwrap();
    for _ in 0..2 {
        let disk: Arc<dyn Disk> = Arc::new(sim.clone());
        let (journal, opened) = Journal::open(Arc::clone(&disk), "new", config.clone()).unwrap();
        let index_config = IndexConfig { journal_ended_at: Some(opened.last), ..IndexConfig::small() };
        let boxed = Box::new(engine.clone());
        let (_, recovery) =
            JournaledIndex::open(Arc::new(journal), StreamId::NAMESPACE, boxed, disk, DIR, index_config).unwrap();
        assert_eq!(recovery.rebuilt, None);
        assert!(recovery.checkpoint >= Seq((1 << 30) - 1), "a checkpoint in the new log's numbers was made");
    }
    content(&*engine.snapshot())
}

/// The contents restored from the checkpoints alone.
fn from_checkpoints(sim: &SimDisk) -> Map {
    let engine = Fragile::default();
    without_journal(sim).bring_up(&engine).unwrap();
    content(&*engine.snapshot())
}

#[test]
fn only_a_newer_checkpoint_fills_the_engine() {
    let world = checkpointed(31, Kind::Lost);
    let sim = world.sim.kill();
    let engine = Fragile::default();
    let standing = without_journal(&sim).standing(&engine);
    assert!(standing.engine == Seq::ZERO && standing.checkpoint > Seq::ZERO);
    let expected = from_checkpoints(&sim);
    assert!(!expected.is_empty());
    for _ in 0..2 {
        without_journal(&sim).bring_up(&engine).unwrap();
        assert_eq!(without_journal(&sim).standing(&engine).engine, standing.checkpoint);
        assert_eq!(content(&*engine.snapshot()), expected);
    }
    // With one record more than the checkpoint, it stays.
    let resets = engine.0.resets.load(Ordering::SeqCst);
    WithoutJournal::place(&engine, Applied { seq: standing.checkpoint.next(), incarnation: 1 }).unwrap();
    without_journal(&sim).bring_up(&engine).unwrap();
    assert_eq!(engine.0.resets.load(Ordering::SeqCst), resets);
    assert_eq!(opened_in_a_new_journal(&sim, &engine), expected);
}

#[test]
fn an_invalid_checkpoint_leaves_an_older_engine_unchanged() {
    let world = checkpointed(32, Kind::Lost);
    let sim = world.sim.kill();
    let expected = from_checkpoints(&sim);
    let engine = Fragile::default();
    without_journal(&sim).bring_up(&engine).unwrap();
    // As if it had been flushed shortly before the checkpoint was made.
    WithoutJournal::place(&engine, Applied { seq: Seq(1), incarnation: 1 }).unwrap();
    assert!(sim.rot(&checkpoint_files(&sim)[0], 100));
    without_journal(&sim).bring_up(&engine).unwrap();
    assert_eq!(content(&*engine.snapshot()), expected);
    assert!(checkpoint_files(&sim).iter().any(|path| path.ends_with(".damaged")), "it is kept under another name");
    assert_eq!(opened_in_a_new_journal(&sim, &engine), expected);
}

#[test]
fn an_invalid_checkpoint_without_an_engine_is_refused() {
    let world = checkpointed(33, Kind::Lost);
    let sim = world.sim.kill();
    assert!(sim.rot(&checkpoint_files(&sim)[0], 100));
    let engine = Fragile::default();
    let mut without_journal = without_journal(&sim);
    assert!(
        without_journal.standing(&engine).checkpoint > Seq::ZERO,
        "what is damaged is found when all of it is read"
    );
    assert!(matches!(without_journal.bring_up(&engine), Err(KvError::Damaged(_))));
    assert_eq!(engine.applied().seq, Seq::ZERO);
}
