//! Checkpoints: kept or undone as one, at any stop.

use disk::{CrashFaults, SimDisk};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::world::{World, bytes, replica, with};
use crate::{PlantedBug, ReplicaState, StoreConfig, StoreError, Writer};

const OBJECT: u64 = 1;
/// The longest replica of the tests.
const LEN_MAX: usize = 60_000;

/// The bytes of a replica; of an unfinished one, which bytes are written.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Content {
    bytes: Vec<u8>,
    written: Option<Vec<(u64, u64)>>,
}

fn content(world: &World, writer: &Writer) -> Content {
    let mut bytes = vec![0; writer.len() as usize];
    assert_eq!(writer.read(0, &mut bytes).unwrap(), bytes.len());
    let written = match world.store.status(writer.replica()).unwrap().unwrap().state {
        ReplicaState::BeingWritten { written, .. } => Some(written),
        _ => None,
    };
    Content { bytes, written }
}

fn update(len: usize) -> (World, std::sync::Arc<Writer>, Vec<u8>) {
    let world = World::new(1);
    let old = bytes(1, len);
    world.put(OBJECT, &old);
    let writer = world.store.reopen(replica(OBJECT)).unwrap();
    (world, writer, old)
}

#[test]
fn a_rollback_restores_the_earlier_state() {
    for len in [0, 100, 5_000, 9_000, 40_000] {
        let (world, writer, old) = update(len);
        assert!(!writer.roll_back().unwrap());
        writer.begin_checkpoint().unwrap();
        writer.write(len as u64 / 2, &bytes(2, 9_000)).unwrap();
        writer.write(20_000, &bytes(3, 8_192)).unwrap();
        writer.truncate(len as u64 / 3).unwrap();
        writer.write(4_096, &bytes(4, 4_096)).unwrap();
        writer.sync().unwrap();
        assert!(writer.roll_back().unwrap());
        assert_eq!(content(&world, &writer).bytes, old);
        let completed = writer.complete().unwrap();
        assert_eq!(completed.adler32, types::Adler32::of(&old));
        assert_eq!(world.read_all(OBJECT), old);
        world.store.verify(replica(OBJECT), &mut |_| true).unwrap();
    }
}

#[test]
fn a_committed_checkpoint_stays_and_a_later_one_undoes_only_its_changes() {
    let (world, writer, _) = update(9_000);
    writer.begin_checkpoint().unwrap();
    writer.write(100, &[7; 100]).unwrap();
    writer.commit_checkpoint().unwrap();
    let kept = content(&world, &writer);
    writer.begin_checkpoint().unwrap();
    writer.write(150, &[8; 100]).unwrap();
    writer.truncate(0).unwrap();
    let world = world.power_lost();
    let writer = world.store.reopen(replica(OBJECT)).unwrap();
    assert_eq!(content(&world, &writer), kept);
    assert!(writer.checkpoint().unwrap().is_none(), "a stop ends it");
}

#[test]
fn the_end_of_an_open_write_undoes_its_checkpoint() {
    for interrupt in [false, true] {
        let (world, writer, old) = update(9_000);
        writer.begin_checkpoint().unwrap();
        writer.write(0, &[7; 20_000]).unwrap();
        if interrupt {
            assert_eq!(world.store.interrupt(replica(OBJECT)).unwrap().len, 9_000);
        } else {
            assert_eq!(writer.complete().unwrap().len, 9_000);
        }
        assert_eq!(world.read_all(OBJECT), old);
    }
}

#[test]
fn readers_never_see_changes_that_may_be_undone() {
    let world = World::new(1);
    let writer = world.create(OBJECT, None);
    writer.write(0, &bytes(1, 10_000)).unwrap();
    writer.sync().unwrap();
    let reader = world.store.open_read(replica(OBJECT)).unwrap();
    writer.begin_checkpoint().unwrap();
    writer.write(10_000, &bytes(2, 20_000)).unwrap();
    writer.sync().unwrap();
    assert_eq!(reader.len(), 10_000);
    writer.commit_checkpoint().unwrap();
    assert_eq!(reader.len(), 30_000);
}

#[test]
fn misuse_and_oversized_checkpoints_are_refused_without_changes() {
    let (world, writer, old) = update(59_000);
    assert!(matches!(writer.commit_checkpoint(), Err(StoreError::NoCheckpoint { .. })));
    assert!(writer.checkpoint().unwrap().is_none());
    writer.begin_checkpoint().unwrap();
    assert!(matches!(writer.begin_checkpoint(), Err(StoreError::CheckpointOpen { .. })));
    // The bytes after the old end cost nothing.
    writer.write(60 << 10, &bytes(2, 60 << 10)).unwrap();
    assert_eq!(writer.checkpoint().unwrap().unwrap().used, 0);
    writer.write(1, &[1; 4096]).unwrap();
    writer.write(2, &[2; 4096]).unwrap();
    let size = writer.checkpoint().unwrap().unwrap();
    assert_eq!((size.used, size.max), (8192, 48 << 10));
    let before = content(&world, &writer);
    assert!(matches!(writer.write(0, &[3; 50_000]), Err(StoreError::CheckpointFull { .. })));
    assert!(matches!(writer.truncate(3), Err(StoreError::CheckpointFull { .. })));
    assert_eq!(content(&world, &writer), before);
    assert!(writer.roll_back().unwrap());
    assert_eq!(content(&world, &writer).bytes, old);
}

#[test]
fn a_checkpoint_without_an_end_does_not_block_trimming() {
    let (world, writer, old) = update(40_000);
    writer.begin_checkpoint().unwrap();
    writer.write(5_000, &[9; 10_000]).unwrap();
    let mut most = 0;
    for object in 2..200 {
        world.put(object, &bytes(object, 8_000));
        world.store.tick().unwrap();
        world.index.sweep_now().unwrap();
        world.index.checkpoint_now().unwrap();
        most = most.max(world.journal.retained_bytes());
    }
    assert!(most < 1 << 20, "{most} bytes of log");
    let world = world.killed();
    let writer = world.store.reopen(replica(OBJECT)).unwrap();
    assert_eq!(content(&world, &writer).bytes, old);
}

/// How often a run reached each case, to show that it tested anything.
#[derive(Default, Debug)]
struct Counts {
    stops: u64,
    open: u64,
    in_commit: u64,
    undone_there: u64,
    kept_there: u64,
    in_recovery: u64,
    renewed: u64,
    full: u64,
}

/// So little journal that checkpoints are often written again.
fn config(planted: Option<PlantedBug>) -> StoreConfig {
    StoreConfig { snapshot_after_bytes: 16 << 10, ..with(planted) }
}

struct Run {
    world: World,
    rng: SmallRng,
    planted: Option<PlantedBug>,
    next_object: u64,
    counts: Counts,
}

impl Run {
    fn new(seed: u64, planted: Option<PlantedBug>) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let world = World::open(SimDisk::new(rng.random()), config(planted)).unwrap();
        let old = bytes(seed, [0, 3_000, 8_192, 20_000, 50_000][rng.random_range(0..5)]);
        if rng.random() {
            world.put(OBJECT, &old);
        } else {
            world.create(OBJECT, None).write(0, &old).unwrap();
        }
        Self { world, rng, planted, next_object: 2, counts: Counts::default() }
    }

    /// Makes a change, or runs other work of the store. Returns false when the disk has stopped.
    fn step(&mut self, writer: &Writer, now: &mut Vec<u8>) {
        match self.rng.random_range(0..20) {
            0..11 => {
                let at = match self.rng.random_range(0..3) {
                    0 => now.len(),
                    1 => now.len() / 4096 * 4096,
                    _ => self.rng.random_range(0..now.len() + 5_000),
                };
                let size = [1, 4096, 8192, 5_000, 12_288, 20_000][self.rng.random_range(0..6)];
                if at + size > LEN_MAX {
                    return;
                }
                let data = bytes(self.rng.random(), size);
                match writer.write(at as u64, &data) {
                    Ok(()) => {
                        now.resize(now.len().max(at + size), 0);
                        now[at..at + size].copy_from_slice(&data);
                    }
                    Err(StoreError::CheckpointFull { .. }) => self.counts.full += 1,
                    Err(e) => panic!("{e}"),
                }
            }
            11..14 => {
                let len = self.rng.random_range(0..(now.len() + 2_000).min(LEN_MAX));
                match writer.truncate(len as u64) {
                    Ok(()) => now.resize(len, 0),
                    Err(StoreError::CheckpointFull { .. }) => self.counts.full += 1,
                    Err(e) => panic!("{e}"),
                }
            }
            14 => {
                writer.sync().unwrap();
            }
            15..18 => {
                self.world.put(self.next_object, &bytes(self.next_object, 30_000));
                self.next_object += 1;
            }
            18 => self
                .world
                .store
                .inner
                .snapshot(&self.world.store.inner.find(replica(OBJECT)).unwrap().unwrap())
                .unwrap(),
            _ => {
                let hold = || self.world.store.inner.holds.lock().of(replica(OBJECT));
                let before = hold();
                self.world.store.tick().unwrap();
                self.world.index.sweep_now().unwrap();
                self.world.index.checkpoint_now().unwrap();
                self.counts.renewed += u64::from(hold() > before);
            }
        }
    }

    /// The contents after a stop of `disk`, perhaps with more stops during recovery.
    fn recover(&mut self, mut disk: SimDisk) -> Content {
        self.counts.stops += 1;
        let faults = if self.rng.random_bool(0.2) { CrashFaults::all_lost() } else { CrashFaults::mixed() };
        if self.rng.random() {
            disk = disk.crash(&mut self.rng, faults).0;
        }
        while self.rng.random_bool(0.3) {
            disk.freeze_after(self.rng.random_range(0..30));
            let _ = World::open(disk.clone(), config(self.planted));
            let Some(frozen) = disk.frozen() else { break };
            self.counts.in_recovery += 1;
            disk = if self.rng.random() { frozen } else { frozen.crash(&mut self.rng, faults).0 };
        }
        self.world = World::open(disk, config(self.planted)).unwrap();
        let writer = self.world.store.reopen(replica(OBJECT)).unwrap();
        assert!(writer.checkpoint().unwrap().is_none());
        content(&self.world, &writer)
    }

    /// Runs one checkpoint, stopped anywhere or not at all.
    fn checkpoint(&mut self) {
        let writer = self.world.store.reopen(replica(OBJECT)).unwrap();
        writer.sync().unwrap();
        let base = content(&self.world, &writer);
        let stops = self.rng.random_bool(0.7);
        if stops {
            self.world.disk.freeze_after(self.rng.random_range(0..80));
        }
        writer.begin_checkpoint().unwrap();
        let mut now = base.bytes.clone();
        for _ in 0..self.rng.random_range(0..12) {
            self.step(&writer, &mut now);
            if let Some(frozen) = self.world.disk.frozen() {
                self.counts.open += 1;
                assert_eq!(self.recover(frozen), base, "stopped within a checkpoint");
                return;
            }
        }
        let changed = content(&self.world, &writer);
        assert_eq!(changed.bytes, now);
        let (ended, expected) = match self.rng.random_range(0..4) {
            0 | 1 => (writer.commit_checkpoint().map(|()| true), changed),
            2 => (writer.roll_back(), base.clone()),
            _ => {
                let len = writer.complete().map(|completed| completed.len as usize);
                (len.map(|len| len == base.bytes.len()), base.clone())
            }
        };
        assert!(ended.unwrap());
        if let Some(frozen) = self.world.disk.frozen() {
            let found = self.recover(frozen);
            if expected != base {
                self.counts.in_commit += 1;
                self.counts.undone_there += u64::from(found == base);
                self.counts.kept_there += u64::from(found == expected);
            }
            let ended = |of: &Content| found.bytes == of.bytes && (found.written.is_none() || found == *of);
            assert!(ended(&base) || ended(&expected), "stopped at the end of a checkpoint: neither nor");
            return;
        }
        let disk = self.world.disk.kill();
        let found = self.recover(disk);
        assert_eq!(found.bytes, expected.bytes, "stopped after the end of a checkpoint");
        assert!(found.written.is_none() || expected.written.is_none() || found == expected);
    }
}

fn runs(planted: Option<PlantedBug>, seeds: std::ops::Range<u64>) -> Counts {
    let mut counts = Counts::default();
    for seed in seeds {
        let run = std::panic::catch_unwind(|| {
            let mut run = Run::new(seed, planted);
            (0..8).for_each(|_| run.checkpoint());
            run.counts
        });
        let found = run.unwrap_or_else(|panic| {
            println!("seed {seed}");
            std::panic::resume_unwind(panic)
        });
        counts.stops += found.stops;
        counts.open += found.open;
        counts.in_commit += found.in_commit;
        counts.undone_there += found.undone_there;
        counts.kept_there += found.kept_there;
        counts.in_recovery += found.in_recovery;
        counts.renewed += found.renewed;
        counts.full += found.full;
    }
    counts
}

fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

#[test]
fn a_checkpoint_is_all_or_nothing_at_any_stop() {
    let first = from_environment("WEIR_SEED", 0);
    let counts = runs(None, first..first + from_environment("WEIR_SEEDS", 200));
    println!("{counts:?}");
    for (what, count) in [
        ("stops", counts.stops),
        ("stops within a checkpoint", counts.open),
        ("stops in a commit", counts.in_commit),
        ("undone there", counts.undone_there),
        ("kept there", counts.kept_there),
        ("stops in recovery", counts.in_recovery),
        ("renewed", counts.renewed),
        ("too large", counts.full),
    ] {
        assert!(count > 0, "{what}: never");
    }
}

#[test]
fn planted_bugs_of_checkpoints_are_found() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let missed: Vec<PlantedBug> =
        [PlantedBug::ForgetUndo, PlantedBug::CommitBeforeSync, PlantedBug::OverwriteBeforeJournal]
            .into_iter()
            .filter(|planted| {
                !(0..200).any(|seed| std::panic::catch_unwind(|| runs(Some(*planted), seed..seed + 1)).is_err())
            })
            .collect();
    std::panic::set_hook(hook);
    assert!(missed.is_empty(), "{missed:?}");
}

#[test]
fn a_truncation_under_a_checkpoint_keeps_its_space() {
    let (world, writer, old) = update(40_000);
    writer.begin_checkpoint().unwrap();
    writer.truncate(100).unwrap();
    writer.sync().unwrap();
    let files = world.store.inner.objects.open(replica(OBJECT), disk::Access::Read).unwrap().unwrap();
    assert!(files.data.len().unwrap() >= 40_000, "the space that rolling back needs is still the file's");
    assert!(writer.roll_back().unwrap());
    assert_eq!(content(&world, &writer).bytes, old);
}
