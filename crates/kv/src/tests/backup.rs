//! Backups: full ones and deltas restore the index. The checkpoint changes meanwhile. Torn backups are refused.

use std::sync::Arc;

use disk::{Disk, SimDisk};
use journal::{Journal, JournalConfig, Seq, StreamId};
use rand::rngs::SmallRng;

use super::seeds;
use super::world::{Kind, Map, OTHER, World, content, random_batch, rng};
use crate::{
    BackupHead, BackupJournal, IndexConfig, JournaledIndex, KvError, MemoryEngine, read_backup, restore_backups,
};

const STREAM: StreamId = StreamId::NAMESPACE;

/// A backup in a file, and the index at the time of the backup.
struct Taken {
    head: BackupHead,
    file: String,
    state: Map,
}

fn append(world: &mut World, batches: u64, rng: &mut SmallRng) {
    for mark in 0..batches {
        world.append(random_batch(rng, mark));
    }
}

/// Some changes and background work.
fn step(world: &mut World, rng: &mut SmallRng) {
    append(world, 8, rng);
    world.index.sweep_now().unwrap();
    world.index.checkpoint_now().unwrap();
    world.journal.set_trim(OTHER, world.journal.appended()).unwrap();
}

fn write(disk: &SimDisk, name: &str, bytes: &[u8]) {
    let options = disk::OpenOptions { access: disk::Access::CreateNew, direct: false };
    disk.open(name, options).unwrap().write_at(bytes, 0).unwrap();
}

fn take(world: &World, target: &SimDisk, since: Option<(Seq, u64)>, number: usize) -> Taken {
    let state = content(&*world.index.snapshot());
    let backup = world.index.backup(since).unwrap();
    let head = backup.head();
    let mut bytes = Vec::new();
    backup.write_to(&mut bytes).unwrap();
    let file = format!("backup-{number}");
    write(target, &file, &bytes);
    let (found, totals) = read_backup(target, &file).unwrap();
    assert_eq!((found, totals.bytes), (head, bytes.len() as u64));
    Taken { head, file, state }
}

/// The contents restored from a chain, as an opening after a restore reads them.
fn restored(target: &SimDisk, chain: &[String], upto: Seq) -> Result<Map, KvError> {
    restored_with(target, chain, None, upto)
}

fn restored_with(
    target: &SimDisk,
    chain: &[String],
    followed: Option<BackupJournal<'_>>,
    upto: Seq,
) -> Result<Map, KvError> {
    let disk = SimDisk::new(9);
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    restore_backups((target, chain), followed, STREAM, Arc::clone(&shared), "checkpoint", upto)?;
    let config = JournalConfig { streams: vec![STREAM], ..JournalConfig::small() };
    let beginning = journal::Beginning { first: upto.next(), segment: 1, incarnation: 5 };
    Journal::begin(&disk, "journal", &config, &beginning).unwrap();
    let (journal, _) = Journal::open(Arc::clone(&shared), "journal", config).unwrap();
    let engine = Box::new(MemoryEngine::new());
    let (index, _) =
        JournaledIndex::open(Arc::new(journal), STREAM, engine, shared, "checkpoint", IndexConfig::small())?;
    Ok(content(&*index.snapshot()))
}

#[test]
fn the_journal_advances_a_backup_to_any_later_record() {
    for seed in 0..seeds(10) {
        let mut rng = rng(seed);
        let mut world = World::new(seed, Kind::Lost, None);
        let target = SimDisk::new(seed);
        step(&mut world, &mut rng);
        let taken = take(&world, &target, None, 0);
        let mut states = vec![(taken.head.upto, taken.state)];
        for mark in 0..20 {
            world.append(random_batch(&mut rng, mark));
            states.push((world.journal.appended(), content(&*world.index.snapshot())));
        }
        let end = world.journal.appended();
        world.journal.sync_to(end).unwrap();
        let chain = [taken.file];
        for (until, state) in states {
            let followed = Some(BackupJournal { log: &world.journal, until });
            assert_eq!(restored_with(&target, &chain, followed, end).unwrap(), state, "seed {seed}, record {until}");
        }
        let past = BackupJournal { log: &world.journal, until: end.next() };
        let refused = restored_with(&target, &chain, Some(past), end);
        assert!(matches!(refused, Err(KvError::Damaged(_))), "there is no such record: {refused:?}");
    }
}

#[test]
fn every_state_is_restored_from_its_chain() {
    let (mut deltas, mut fulls) = (0, 0);
    for seed in 0..seeds(10) {
        let mut rng = rng(seed);
        let mut world = World::new(seed, Kind::Lost, None);
        let target = SimDisk::new(seed);
        let mut taken: Vec<Taken> = Vec::new();
        for number in 0..60 {
            step(&mut world, &mut rng);
            if number % 4 == 3 {
                let since = taken.last().map(|last| (last.head.upto, last.head.incarnation));
                let number = taken.len();
                taken.push(take(&world, &target, since, number));
            }
        }
        let mut chain = Vec::new();
        for one in &taken {
            match one.head.after {
                None => {
                    fulls += 1;
                    chain.clear();
                }
                Some(_) => deltas += 1,
            }
            chain.push(one.file.clone());
            assert!(restored(&target, &chain, one.head.upto).unwrap() == one.state, "seed {seed}: {}", one.file);
        }
    }
    assert!(deltas > 20 && fulls > 10, "{deltas} deltas, {fulls} fulls");
}

#[test]
fn a_backup_cannot_follow_another_incarnation_or_a_future_record() {
    let mut world = World::new(1, Kind::Lost, None);
    let mut rng = rng(1);
    append(&mut world, 20, &mut rng);
    let (last, log) = (world.journal.appended(), world.journal.incarnation());
    assert_eq!(world.index.backup(Some((last, log))).unwrap().head().after, Some(last));
    assert_eq!(world.index.backup(Some((last, log ^ 1))).unwrap().head().after, None);
    assert_eq!(world.index.backup(Some((Seq(last.0 + 1_000), log))).unwrap().head().after, None);
}

#[test]
fn files_in_use_survive_a_merge_of_the_checkpoint() {
    let mut world = World::new(4, Kind::Lost, None);
    let mut rng = rng(4);
    append(&mut world, 30, &mut rng);
    let state = content(&*world.index.snapshot());
    let slow = world.index.backup(None).unwrap();
    let head = slow.head();
    for _ in 0..200 {
        step(&mut world, &mut rng);
    }
    let mut bytes = Vec::new();
    slow.write_to(&mut bytes).unwrap();
    let target = SimDisk::new(1);
    write(&target, "slow", &bytes);
    assert!(restored(&target, &["slow".to_owned()], head.upto).unwrap() == state);
    // The pinned files are removed afterwards.
    let sim = world.sim.clone();
    let gone =
        || sim.list("namespace/checkpoint").unwrap().iter().filter(|entry| entry.name.ends_with(".gone.tmp")).count();
    assert!(gone() > 0, "nothing was replaced meanwhile");
    for _ in 0..100 {
        step(&mut world, &mut rng);
    }
    assert_eq!(gone(), 0);
}

#[test]
fn torn_and_damaged_backups_and_gaps_are_refused() {
    let mut world = World::new(2, Kind::Lost, None);
    let mut rng = rng(2);
    let target = SimDisk::new(2);
    let mut taken: Vec<Taken> = Vec::new();
    for number in 0..3 {
        append(&mut world, if number == 0 { 200 } else { 20 }, &mut rng);
        let since = taken.last().map(|last| (last.head.upto, last.head.incarnation));
        taken.push(take(&world, &target, since, number));
    }
    let [full, middle, last] = taken.as_slice() else { panic!("three") };
    assert!(full.head.after.is_none() && middle.head.after.is_some() && last.head.after.is_some());
    for chain in [vec![&middle.file], vec![&full.file, &last.file], vec![&full.file, &full.file], vec![]] {
        let chain: Vec<String> = chain.into_iter().cloned().collect();
        assert!(restored(&target, &chain, last.head.upto).is_err(), "{chain:?}");
    }
    let bytes = |file: &str| {
        let mut bytes = vec![0; usize::try_from(target.len_of(file).unwrap().unwrap()).unwrap()];
        let options = disk::OpenOptions { access: disk::Access::Read, direct: false };
        target.open(file, options).unwrap().read_at(&mut bytes, 0).unwrap();
        bytes
    };
    let whole = bytes(&full.file);
    for (number, end) in (0..whole.len()).step_by(whole.len() / 50 + 1).enumerate() {
        write(&target, &format!("torn-{number}"), &whole[..end]);
        assert!(read_backup(&target, &format!("torn-{number}")).is_err(), "{end} of {}", whole.len());
        let mut changed = whole.clone();
        changed[end] ^= 1;
        write(&target, &format!("changed-{number}"), &changed);
        assert!(read_backup(&target, &format!("changed-{number}")).is_err(), "byte {end}");
    }
}
