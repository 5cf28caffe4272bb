//! Random operations on the embedded engine, with power failures between and within operations. Afterwards the namespace has a state that the model
//! had at some moment. That moment is not before the last change that was answered as synced.

#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout
)]

use std::sync::Arc;

use crate::model::harness::{Both, Checked, World, seeds};
use crate::model::view::{compare, real};
use crate::model::{self, Model, Pairs};
use disk::Disk;
use disk::{CrashFaults, CrashReport, SimDisk};
use journal::{Journal, JournalConfig, Prepare, StreamId};
use kv::{
    Durability, Embedded, EmbeddedConfig, Engine, IndexConfig, JournaledIndex, Kv, LsmConfig, LsmEngine, MemoryEngine,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

struct Machine {
    disk: SimDisk,
    index: Arc<JournaledIndex>,
    embedded: Arc<Embedded>,
}

fn start(disk: SimDisk, engine: Box<dyn Engine>) -> Machine {
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let config = JournalConfig {
        segment_bytes: 256 << 10,
        streams: vec![StreamId::NAMESPACE],
        prepare: Prepare::Inline,
        incarnation: Some(7),
        ..JournalConfig::default()
    };
    let (journal, _) = Journal::open(Arc::clone(&shared), "journal", config).unwrap();
    let (index, _) = JournaledIndex::open(
        Arc::new(journal),
        StreamId::NAMESPACE,
        engine,
        shared,
        "checkpoint",
        IndexConfig::small(),
    )
    .unwrap();
    let embedded = Arc::new(Embedded::new(Arc::clone(&index), EmbeddedConfig::default()).unwrap());
    Machine { disk, index, embedded }
}

#[derive(Default)]
struct Tally {
    crashes: u64,
    within: u64,
    /// Crashes that lost unsynced changes, and crashes that kept some.
    went_back: u64,
    kept_more: u64,
    report: CrashReport,
}

/// After a crash: finds the moment of the model that the namespace shows, and continues from there.
fn take_up(world: &mut World, moments: &[Model], undone: Option<(Pairs, Vec<Both>)>, tally: &mut Tally) -> Checked {
    world.ns = model::harness::open_namespace(&world.kv, world.model.now, world.config);
    let snapshot = world.kv.snapshot();
    let seen = real(&*snapshot, 4, &[71, 72]);
    let mut errors = Vec::new();
    for (at, moment) in moments.iter().enumerate().rev() {
        let undone = undone.as_ref().filter(|_| at + 1 < moments.len());
        let mut pairs = undone.map_or(&world.pairs, |(pairs, _)| pairs).clone();
        match compare(&seen, &moment.view(), &mut pairs) {
            Ok(()) => {
                world.log.push(format!("took up moment {at} of {}, undone {}", moments.len(), undone.is_some()));
                tally.went_back += u64::from(at + 1 < moments.len());
                tally.kept_more += u64::from(at > 0);
                // Clients from after that moment still hold handles. So no other client gets their index.
                let (next, now, who) = (world.model.next, world.model.now, world.model.who.clone());
                world.model = Model { next, now, who, ..moment.clone() };
                world.pairs = pairs;
                if let Some((_, handles)) = undone {
                    world.handles.clone_from(handles);
                }
                drop(snapshot);
                return world.compare();
            }
            Err(error) => errors.push(error),
        }
    }
    Err(format!("after the crash it is like none of {} moments; the latest: {}", moments.len(), errors[0]))
}

/// The changes that the test takes as durable.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Believe {
    /// Changes that were answered as synced.
    Synced,
    /// Wrongly, also changes that were only written. The test must then notice a loss.
    Everything,
}

fn run(
    seed: u64,
    steps: u64,
    believe: Believe,
    mut engine: impl FnMut() -> Box<dyn Engine>,
    tally: &mut Tally,
) -> Checked {
    let mut rng = SmallRng::seed_from_u64(seed ^ 0xc4a5);
    let mut machine = start(SimDisk::new(seed), engine());
    let kv: Arc<dyn Kv> = Arc::<Embedded>::clone(&machine.embedded);
    let mut world = World::new(kv, seed, false);
    // The model at each moment to which a crash may go back. The first is durable.
    let mut moments = vec![world.model.clone()];
    for _ in 0..steps {
        let synced = rng.random_ratio(1, 4);
        world.durability = if synced { Durability::Synced } else { Durability::Written };
        let crash_within = rng.random_ratio(1, 12);
        if crash_within {
            machine.disk.freeze_after(rng.random_range(0..4));
        }
        let before = world.model.view();
        let runs = world.ns.session();
        let told_before = (world.pairs.clone(), world.handles.clone());
        world.step().and_then(|()| world.compare()).map_err(|error| {
            let from = world.log.len().saturating_sub(16);
            format!("step {}: {error}\n{}", world.steps, world.log[from..].join("\n"))
        })?;
        moments.push(world.model.clone());
        match rng.random_range(0..40) {
            0 => drop(machine.index.sweep_now().map_err(|error| error.to_string())?),
            1 => drop(machine.index.checkpoint_now().map_err(|error| error.to_string())?),
            _ => {}
        }
        let frozen = machine.disk.frozen();
        let crash_after = rng.random_ratio(1, 25);
        // If the power failure undid this step, no client saw its answer.
        let undone = frozen.is_some().then_some(told_before);
        if let Some(disk) = frozen.or_else(|| crash_after.then(|| machine.disk.clone())) {
            world.log.push(format!("crash: within {}, after {crash_after}", undone.is_some()));
            tally.crashes += 1;
            tally.within += u64::from(!crash_after);
            let faults = if rng.random() { CrashFaults::mixed() } else { CrashFaults::all_lost() };
            let (disk, report) = disk.crash(&mut rng, faults);
            tally.report.add(&report);
            machine.embedded.stop();
            drop(machine);
            machine = start(disk, engine());
            world.kv = Arc::<Embedded>::clone(&machine.embedded);
            take_up(&mut world, &moments, undone, tally)?;
            moments = vec![world.model.clone()];
        } else if believe == Believe::Everything || synced && world.model.view() != before {
            // The change was answered as synced: no crash may go back behind it.
            moments.drain(..moments.len() - 1);
        } else if world.ns.session() != runs {
            // The namespace was reopened, which syncs, and then the step was made.
            moments.drain(..moments.len() - 2);
        }
    }
    machine.embedded.stop();
    Ok(())
}

fn tell(tally: &Tally) {
    println!(
        "{} crashes ({} within an operation); {} lost something not synced, {} kept something not synced; {:?}",
        tally.crashes, tally.within, tally.went_back, tally.kept_more, tally.report
    );
}

#[test]
fn power_failure_loses_nothing_that_was_answered_as_synced() {
    let seeds = seeds(12);
    println!("seeds 0..{seeds}, 300 steps each, the engine lost at each crash");
    let mut tally = Tally::default();
    for seed in 0..seeds {
        let result = run(seed, 300, Believe::Synced, || Box::new(MemoryEngine::new()), &mut tally);
        assert_eq!(result, Ok(()), "seed {seed}");
    }
    tell(&tally);
    // The cases that the test is for did happen.
    assert!(tally.crashes > seeds * 8 && tally.within > seeds && tally.went_back > 0 && tally.kept_more > 0);
    assert!(tally.report.lost > 0 && tally.report.torn > 0);
}

#[test]
fn power_failure_loses_nothing_synced_when_the_engines_files_stay() {
    let seeds = seeds(3).min(20);
    let mut tally = Tally::default();
    for seed in 1_000..1_000 + seeds {
        let folder = tempfile::tempdir().unwrap();
        let engine = || -> Box<dyn Engine> { Box::new(LsmEngine::open(folder.path(), LsmConfig::default()).unwrap()) };
        let result = run(seed, 200, Believe::Synced, engine, &mut tally);
        assert_eq!(result, Ok(()), "seed {seed}");
    }
    tell(&tally);
    assert!(tally.crashes > seeds * 4);
}

#[test]
fn a_loss_is_noticed() {
    let mut tally = Tally::default();
    let noticed = (0..10).any(|seed| {
        run(seed, 300, Believe::Everything, || Box::new(MemoryEngine::new()), &mut tally)
            .is_err_and(|error| error.contains("like none of"))
    });
    assert!(noticed, "a test that takes written for synced must see that changes are gone");
}
