//! Rebuilding the index from the files of replicas.

use disk::{CrashFaults, Disk as _, SimDisk};
use kv::IndexConfig;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::basic::LENGTHS;
use super::world::{World, bytes, new_replica, replica, small_config, with};
use crate::{PlantedBug, Rebuilt, Store, StoreError};

/// Replaces journal and index beside the same files.
fn lose_journal_and_index(disk: &SimDisk) {
    for folder in ["journal", "checkpoint"] {
        for file in disk.list(folder).unwrap_or_default() {
            disk.remove(&format!("{folder}/{}", file.name)).unwrap();
        }
    }
}

fn rebuild(disk: &SimDisk) -> Rebuilt {
    let empty = IndexConfig { begin_empty: true, ..IndexConfig::small() };
    let (shared, journal, index) = World::parts(disk, empty).unwrap();
    Store::rebuild_index(shared, "store", journal, index).unwrap()
}

#[test]
fn an_index_is_rebuilt_from_segments_and_sidecars() {
    let world = World::new(1);
    for (object, len) in (1..).zip(LENGTHS).skip(1) {
        world.put(object, &bytes(object, len));
    }
    let writer = world.store.reopen(replica(13)).unwrap();
    writer.write(5, b"changed").unwrap();
    let completed = writer.complete().unwrap();
    world.journal.sync_to(completed.seq).unwrap();
    world.store.tick().unwrap();
    world.journal.close().unwrap();
    let disk = world.disk.kill();
    lose_journal_and_index(&disk);
    let refused = World::open(disk.clone(), small_config()).map(|_| ());
    assert!(matches!(refused, Err(StoreError::IndexLost)), "{refused:?}");
    let rebuilt = rebuild(&disk);
    assert_eq!((rebuilt.small, rebuilt.large, rebuilt.unreadable), (7, 6, vec![]));
    let world = World::open(disk, small_config()).unwrap();
    for (object, len) in (1..).zip(LENGTHS).skip(1) {
        let mut expected = bytes(object, len);
        if object == 13 {
            expected[5..12].copy_from_slice(b"changed");
        }
        assert_eq!(world.read_all(object), expected);
        world.store.verify(replica(object), &mut |_| true).unwrap();
    }
    assert!(matches!(world.store.create(replica(2), new_replica(None)), Err(StoreError::ObjectUsed { .. })));
    world.put(50, b"new");
}

/// A power failure interrupted the move of a small replica: the copy in the newer segment has its header but not its
/// bytes.
#[test]
fn a_rebuilt_index_prefers_the_valid_copy() {
    let world = World::new(1);
    for object in 1..=20 {
        world.put(object, &bytes(object, 3000));
    }
    world.store.tick().unwrap();
    let path = |number| world.store.inner.segments.path(number);
    let segments: Vec<u64> = world.store.inner.records.lock().keys().copied().collect();
    let highest = segments.iter().copied().max().unwrap();
    world.journal.close().unwrap();
    let disk = world.disk.kill();
    for (number, copy) in segments.iter().zip(highest + 1..) {
        let old = disk.open(&path(*number), disk::OpenOptions { access: disk::Access::Read, direct: false }).unwrap();
        let mut content = vec![0; usize::try_from(old.len().unwrap()).unwrap()];
        old.read_at(&mut content, 0).unwrap();
        let header = crate::segment::file_header(copy);
        content[..header.len()].copy_from_slice(&header);
        crate::segment::scan(&*old, crate::segment::FILE_HEADER, old.len().unwrap(), &mut |offset, found| {
            let end = offset + u64::from(found.header) + found.record.len;
            content[usize::try_from(end).unwrap() - 1] ^= 1;
            Ok(())
        })
        .unwrap();
        let torn =
            disk.open(&path(copy), disk::OpenOptions { access: disk::Access::CreateNew, direct: false }).unwrap();
        torn.write_at(&content, 0).unwrap();
        torn.sync_data().unwrap();
    }
    lose_journal_and_index(&disk);
    let rebuilt = rebuild(&disk);
    assert_eq!((rebuilt.small, rebuilt.unreadable), (20, vec![]));
    let world = World::open(disk, small_config()).unwrap();
    for object in 1..=20 {
        assert_eq!(world.read_all(object), bytes(object, 3000));
    }
}

/// Only the index and its checkpoints are lost; the trimmed journal exists.
fn lose_index(disk: &SimDisk) {
    for file in disk.list("checkpoint").unwrap() {
        disk.remove(&format!("checkpoint/{}", file.name)).unwrap();
    }
}

/// One round of all background work.
fn upkeep(world: &World) {
    // Later checks find the damage of a planted bug.
    let _ = world.store.tick();
    world.journal.sync_to(world.journal.appended()).unwrap();
    world.index.sweep_now().unwrap();
    world.index.checkpoint_now().unwrap();
}

/// A power failure somewhere in compaction, then the loss of the index. Returns whether the journal had been trimmed,
/// and the missing replicas.
fn lose_index_in_compaction(seed: u64, planted: Option<PlantedBug>) -> (bool, Vec<u64>) {
    let mut rng = SmallRng::seed_from_u64(seed);
    let world = World::open(SimDisk::new(seed), with(planted)).unwrap();
    let len = |object: u64| 500 + usize::try_from(object).unwrap() * 37 % 6000;
    let large = |object: u64| object.is_multiple_of(10);
    for object in 1..=80 {
        world.put(object, &bytes(object, if large(object) { 30_000 } else { len(object) }));
        if object % 8 == 0 {
            upkeep(&world);
        }
    }
    world.disk.freeze_after(rng.random_range(1..160));
    for object in (1..=80).filter(|object| object % 3 != 0) {
        world.store.delete(replica(object)).unwrap();
        if object % 8 == 0 {
            upkeep(&world);
        }
    }
    (0..4).for_each(|_| upkeep(&world));
    let frozen = world.disk.frozen().unwrap_or_else(|| world.disk.clone());
    let (disk, _) = frozen.crash(&mut rng, CrashFaults::mixed());
    lose_index(&disk);
    let empty = IndexConfig { begin_empty: true, ..IndexConfig::small() };
    let Ok((shared, journal, index)) = World::parts(&disk, empty) else { return (false, vec![0]) };
    let trimmed = journal.oldest() > journal::Seq(1);
    Store::rebuild_index(shared, "store", journal, index).unwrap();
    let world = World::open(disk.kill(), crate::StoreConfig { clear_away: false, ..small_config() }).unwrap();
    let missing = (1..=80).filter(|object| {
        object % 3 == 0
            && (world.store.verify(replica(*object), &mut |_| true).is_err() || {
                let expected = bytes(*object, if large(*object) { 30_000 } else { len(*object) });
                world.read_all(*object) != expected
            })
    });
    (trimmed, missing.collect())
}

#[test]
fn a_power_failure_in_compaction_and_a_lost_index_lose_nothing() {
    let mut trimmed = 0;
    for seed in 0..60 {
        let (was_trimmed, missing) = lose_index_in_compaction(seed, None);
        assert_eq!(missing, Vec::<u64>::new(), "seed {seed}");
        trimmed += u64::from(was_trimmed);
    }
    assert!(trimmed > 40, "the log had been trimmed in {trimmed} of 60");
}

#[test]
fn planted_settle_before_segment_sync_is_found_by_a_rebuild() {
    let found =
        (0..60).find(|seed| !lose_index_in_compaction(*seed, Some(PlantedBug::SettleBeforeSegmentSync)).1.is_empty());
    println!("found with seed {found:?}");
    assert!(found.is_some());
}

#[test]
fn removals_in_the_journal_stay_in_force() {
    let world = World::new(1);
    for object in 1..=20 {
        world.put(object, &bytes(object, 3000));
    }
    (0..4).for_each(|_| upkeep(&world));
    world.store.delete(replica(7)).unwrap();
    world.journal.sync_to(world.journal.appended()).unwrap();
    let disk = world.disk.kill();
    lose_index(&disk);
    rebuild(&disk);
    let world = World::open(disk, small_config()).unwrap();
    assert_eq!(world.store.status(replica(7)).unwrap(), None);
    assert_eq!(world.read_all(8), bytes(8, 3000));
}

#[test]
fn records_after_an_unreadable_one_are_found_and_user_data_is_not_mistaken_for_one() {
    let world = World::new(1);
    for object in 1..=6 {
        world.put(object, &bytes(object, 3000));
    }
    // A user stores a copy of a segment, in which replica 6 has other bytes.
    let mut record = world.store.inner.record(replica(6)).unwrap().unwrap();
    record.generation = 9;
    record.crc32c = types::Crc32c::of(&bytes(60, 3000));
    record.adler32 = types::Adler32::of(&bytes(60, 3000));
    record.page_crcs = vec![record.crc32c.0];
    let forged = [crate::segment::record_header(replica(6), &record, b""), bytes(60, 3000)].concat();
    world.put(7, &forged);
    (0..4).for_each(|_| upkeep(&world));
    let offset = |object| match world.store.inner.record(replica(object)).unwrap().unwrap().place {
        crate::record::ByteLocation::Segment { segment: 1, offset, .. } => offset,
        place => panic!("{place:?}"),
    };
    let (third, last) = (offset(3), offset(7));
    let disk = world.disk.kill();
    for at in [third, last] {
        assert!(disk.rot("store/segments/0000000000000001", at + 20));
    }
    lose_journal_and_index(&disk);
    let rebuilt = rebuild(&disk);
    assert_eq!((rebuilt.small, rebuilt.unreadable.len()), (5, 2), "{rebuilt:?}");
    let world = World::open(disk, small_config()).unwrap();
    for object in [1, 2, 4, 5, 6] {
        assert_eq!(world.read_all(object), bytes(object, 3000), "{object}");
    }
    assert_eq!(world.store.status(replica(3)).unwrap(), None);
}

#[test]
fn an_empty_replica_is_restored() {
    let world = World::new(1);
    world.put(1, &bytes(1, 10));
    (0..4).for_each(|_| upkeep(&world));
    let made = |object| world.store.restore_empty(replica(object), types::Incarnation(1), false).unwrap();
    assert_eq!((made(2), made(2), made(1)), (true, false, false));
    world.journal.sync_to(world.journal.appended()).unwrap();
    let world = world.killed();
    assert_eq!((world.read_all(2), world.read_all(1)), (vec![], bytes(1, 10)));
    // It was truncated to nothing, and its earlier bytes were found.
    assert!(world.store.restore_empty(replica(1), types::Incarnation(1), true).unwrap());
    world.journal.sync_to(world.journal.appended()).unwrap();
    assert_eq!(world.killed().read_all(1), b"");
    assert_eq!(world.store.verify(replica(2), &mut |_| true).unwrap().len, 0);
}

/// A disk with one unreadable page, and a user's file that looks like a record of a later weir.
#[test]
fn the_rebuild_continues_after_an_unreadable_page() {
    let world = World::new(1);
    let text = [b"WEIRPIEC\x07\x00".to_vec(), bytes(1, 2000)].concat();
    for object in 1..=6 {
        world.put(object, &text);
    }
    world.put(7, &bytes(7, 20_000));
    (0..4).for_each(|_| upkeep(&world));
    let disk = world.disk.kill();
    assert!(disk.rot("store/segments/0000000000000001", 64 + 10), "a bit of a version");
    assert!(disk.make_unreadable("store/segments/0000000000000001", 5000));
    lose_journal_and_index(&disk);
    let rebuilt = rebuild(&disk);
    // The first is damaged, and those from the second to the fourth have bytes in the unreadable page.
    assert_eq!((rebuilt.small, rebuilt.large, rebuilt.unreadable.len()), (2, 1, 1), "{rebuilt:?}");
    let world = World::open(disk, crate::StoreConfig { clear_away: false, ..small_config() }).unwrap();
    assert_eq!((world.read_all(6), world.read_all(7)), (text, bytes(7, 20_000)));
}

/// If the index may have lost records, no segment is removed, however little of it is live.
#[test]
fn no_segment_is_compacted_if_nothing_may_be_removed() {
    let config = || crate::StoreConfig { clear_away: false, ..small_config() };
    let world = World::open(SimDisk::new(1), config()).unwrap();
    for object in 1..=40 {
        world.put(object, &bytes(object, 3000));
        world.store.tick().unwrap();
    }
    for object in 1..=39 {
        world.store.delete(replica(object)).unwrap();
    }
    (0..4).for_each(|_| upkeep(&world));
    assert!(world.disk.len_of("store/segments/0000000000000001").unwrap().is_some());
    let world = World::open(world.disk.kill(), small_config()).unwrap();
    (0..4).for_each(|_| upkeep(&world));
    assert_eq!(world.disk.len_of("store/segments/0000000000000001").unwrap(), None, "otherwise it goes");
}
