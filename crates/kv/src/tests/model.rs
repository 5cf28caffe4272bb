//! A LoggedIndex against a map: appends, sweeps, checkpoints, merges, trims and snapshots, with stops at any moment, on
//! simulated disks.

use disk::CrashReport;
use journal::Seq;
use rand::Rng;
use rand::rngs::SmallRng;

use super::world::{Kind, Map, OTHER, SurvivingEngine, World, compare_reads, content, crash_image, random_batch, rng};
use super::{PlantedBug, range_of_seeds};
use crate::{IndexStats, Rebuilt};

/// How often the test reached each case.
#[derive(Default, Debug)]
struct CaseCounts {
    crashes: u64,
    kills: u64,
    in_the_middle: u64,
    sweeps: u64,
    checkpoints: u64,
    rebuilt: u64,
    rebuilt_from_checkpoint: u64,
    trimmed: u64,
    replayed_onto_engine: u64,
    saved_engine_work: u64,
    faults: CrashReport,
}

impl CaseCounts {
    fn note(&mut self, stats: &IndexStats) {
        self.sweeps += stats.sweeps;
        self.checkpoints += stats.checkpoints;
        self.saved_engine_work += stats.versions_swept - stats.entries_applied;
    }
}

fn run(seed: u64, planted: Option<PlantedBug>, counts: &mut CaseCounts) -> Result<(), String> {
    let mut rng = rng(seed);
    let kind = if rng.random_bool(0.5) { Kind::Lost } else { Kind::Surviving(SurvivingEngine::new(4)) };
    let mut world = World::new(seed, kind, planted);
    let steps = rng.random_range(60..400);
    for step in 0..steps {
        // The power may fail during this step.
        let frozen = rng.random_bool(0.03);
        let mut now = world.sim.change_count();
        if frozen {
            let changes = rng.random_range(0..6);
            world.sim.freeze_after(changes);
            now += changes;
        }
        let (synced, written) = (world.synced, world.written);
        one_step(&mut world, &mut rng, step, counts)?;
        let image = frozen.then(|| world.sim.frozen()).flatten();
        if let Some(image) = image {
            counts.in_the_middle += 1;
            stop(&mut world, image, now, (synced, written), &mut rng, counts)?;
        } else if rng.random_bool(0.02) {
            stop_now(&mut world, &mut rng, counts)?;
        }
    }
    stop_now(&mut world, &mut rng, counts)
}

fn stop_now(world: &mut World, rng: &mut SmallRng, counts: &mut CaseCounts) -> Result<(), String> {
    let (image, now, least) = (world.sim.clone(), world.sim.change_count(), (world.synced, world.written));
    stop(world, image, now, least, rng, counts)
}

/// `least`: the records that must survive a power failure, and SIGKILL.
fn stop(
    world: &mut World,
    image: disk::SimDisk,
    now: u64,
    least: (Seq, Seq),
    rng: &mut SmallRng,
    counts: &mut CaseCounts,
) -> Result<(), String> {
    counts.note(&world.index.stats());
    let recovery = if rng.random_bool(0.7) {
        counts.crashes += 1;
        let image = crash_image(&image, rng, &mut counts.faults);
        world.stop(image, now, least.0, rng)?
    } else {
        counts.kills += 1;
        world.stop(image.kill(), now, least.1, rng)?
    };
    if recovery.rebuilt.is_some() {
        counts.rebuilt += 1;
        counts.rebuilt_from_checkpoint += u64::from(recovery.checkpoint > Seq(0));
    }
    counts.replayed_onto_engine += u64::from(recovery.rebuilt.is_none() && recovery.replayed > 0);
    match recovery.rebuilt {
        None | Some(Rebuilt::Empty) => {}
        Some(other) => return Err(format!("the engine had to be built again: {other:?}")),
    }
    if !recovery.damaged_checkpoints.is_empty() || recovery.checkpoint_renewed {
        return Err(format!("checkpoints were damaged by a stop: {recovery:?}"));
    }
    Ok(())
}

fn one_step(world: &mut World, rng: &mut SmallRng, step: u64, counts: &mut CaseCounts) -> Result<(), String> {
    match rng.random_range(0..20) {
        0..=10 => {
            for _ in 0..rng.random_range(1..12) {
                let seq = world.append(random_batch(rng, step));
                if rng.random_bool(0.2) {
                    world.journal.write_to(seq).unwrap();
                    world.written = seq;
                }
            }
        }
        11 | 12 => {
            let seq = world.journal.appended();
            world.journal.sync_to(seq).unwrap();
            (world.synced, world.written) = (seq, seq);
        }
        13 | 14 => {
            world.index.sweep_now().unwrap();
        }
        15 => {
            let before = world.journal.oldest();
            world.index.checkpoint_now().map_err(|error| error.to_string())?;
            counts.trimmed += u64::from(world.journal.oldest() > before);
        }
        16 => {
            // Another stream fills segments too.
            for _ in 0..rng.random_range(1..8) {
                world.journal.append(OTHER, &[&vec![7; rng.random_range(0..9000)]]).unwrap();
            }
            world.journal.set_trim(OTHER, world.journal.appended()).unwrap();
        }
        17 | 18 => compare_reads(&*world.index.snapshot(), &world.model(), rng)?,
        _ => {
            // A snapshot does not change while everything continues.
            let snapshot = world.index.shared.snapshot();
            let model = world.model();
            for _ in 0..rng.random_range(1..6) {
                world.append(random_batch(rng, step));
                if rng.random_bool(0.5) {
                    world.index.sweep_now().unwrap();
                }
                compare_reads(&snapshot, &model, rng)?;
            }
            if content(&snapshot) != model {
                return Err("a snapshot has changed".into());
            }
        }
    }
    Ok(())
}

#[test]
fn an_index_equals_its_journal() {
    let mut counts = CaseCounts::default();
    let range = range_of_seeds(80);
    let count = range.end - range.start;
    for seed in range {
        if let Err(what) = run(seed, None, &mut counts) {
            panic!("WEIR_SEED={seed} WEIR_SEEDS=1: {what}");
        }
    }
    println!("{count} seeds: {counts:#?}");
    assert!(
        counts.rebuilt_from_checkpoint > count / 8
            && counts.trimmed > count / 8
            && counts.replayed_onto_engine > count / 2
            && counts.in_the_middle > count / 4
    );
    assert!(counts.saved_engine_work > counts.sweeps, "sweeps coalesce");
}

/// The seed that finds a planted bug.
fn found_by(planted: PlantedBug) -> Option<(u64, String)> {
    let mut counts = CaseCounts::default();
    (0..300).find_map(|seed| run(seed, Some(planted), &mut counts).err().map(|what| (seed, what)))
}

#[test]
fn planted_bugs_are_found() {
    let bugs = [
        PlantedBug::TrimTooEarly,
        PlantedBug::ApplyBeforeDurable,
        PlantedBug::LoseTombstoneInMerge,
        PlantedBug::CacheNotInvalidated,
    ];
    for planted in bugs {
        let (seed, what) = found_by(planted).unwrap_or_else(|| panic!("{planted:?} was not found"));
        println!("{planted:?}: found by seed {seed}: {what}");
    }
}

#[test]
fn many_generations_are_scanned_as_one() {
    let mut rng = rng(99);
    let mut world = World::new(1, Kind::Lost, None);
    let mut swept = Map::new();
    for round in 0..30 {
        for _ in 0..rng.random_range(1..20) {
            world.append(random_batch(&mut rng, round));
        }
        world.index.shared.seal(&mut world.index.shared.appender.lock());
        if round == 9 {
            world.index.sweep_now().unwrap();
            swept = world.model();
        }
        for _ in 0..20 {
            compare_reads(&*world.index.snapshot(), &world.model(), &mut rng).unwrap();
        }
    }
    assert!(world.index.shared.view.read().generations.len() > 15 && swept != world.model());
}
