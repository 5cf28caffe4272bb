//! Rot, full disks, failed syncs.

use std::io::ErrorKind;

use disk::DiskOp;
use types::ErrorCode;

use super::basic::object_files;
use super::world::{World, bytes, new_replica, replica, small_config, with};
use crate::{PlantedBug, Reader, ReplicaState, StoreConfig, StoreError};

/// Reads everything in all ways. Returns whether all of it was right, or the error.
fn read_everything(reader: &Reader, expected: &[u8]) -> Result<bool, StoreError> {
    let mut buf = vec![0; expected.len()];
    reader.read(0, &mut buf)?;
    let mut framed = Vec::new();
    reader.read_pages(0, expected.len() as u32, &mut framed)?;
    let same = framed.chunks(4100).zip(expected.chunks(4096)).all(|(frame, page)| frame[4..] == *page);
    Ok(buf == expected && same)
}

/// Flips bits everywhere in the files of one replica; the store must fail or be right.
fn rot_everywhere(planted: Option<PlantedBug>) -> (u64, u64) {
    let (mut refused, mut served_wrong) = (0, 0);
    for (len, settled) in [(3000usize, false), (3000, true), (6000, true), (30_000, true)] {
        let content = bytes(5, len);
        let world = World::open(disk::SimDisk::new(1), with(planted)).unwrap();
        world.put(1, &content);
        if settled {
            world.store.tick().unwrap();
        }
        let paths = match (len > 8192, settled) {
            (true, _) => object_files(&world),
            (false, true) => vec![world.store.inner.segments.path(1)],
            (false, false) => {
                let disk: &dyn disk::Disk = &world.disk;
                let files = disk.list("journal").unwrap();
                files.into_iter().map(|file| format!("journal/{}", file.name)).collect()
            }
        };
        for path in paths {
            let step = if settled { 97 } else { 61 };
            for offset in (0..70_000).step_by(step) {
                if !world.disk.rot(&path, offset) {
                    break;
                }
                // The same bit twice: undone.
                match world.store.open_read(replica(1)).and_then(|reader| read_everything(&reader, &content)) {
                    Ok(true) => {}
                    Ok(false) => served_wrong += 1,
                    Err(e) => {
                        assert!(matches!(e.code(), ErrorCode::Checksum | ErrorCode::Damaged), "{e}");
                        refused += 1;
                    }
                }
                world.disk.rot(&path, offset);
            }
        }
    }
    (refused, served_wrong)
}

#[test]
fn no_damaged_page_is_served() {
    let (refused, served_wrong) = rot_everywhere(None);
    assert!(refused > 200, "only {refused} refused");
    assert_eq!(served_wrong, 0);
    let (_, served_wrong) = rot_everywhere(Some(PlantedBug::SkipCrc));
    assert!(served_wrong > 0, "the planted bug was not found");
}

#[test]
fn rot_is_reported_with_its_page_and_other_pages_are_read() {
    let world = World::new(1);
    let content = bytes(5, 40_000);
    world.put(1, &content);
    let path = object_files(&world).into_iter().find(|path| !path.ends_with(".crc")).unwrap();
    assert!(world.disk.rot(&path, 3 * 4096 + 17));
    let reader = world.store.open_read(replica(1)).unwrap();
    let mut buf = vec![0; 4096];
    assert_eq!(reader.read(2 * 4096, &mut buf).unwrap(), 4096);
    assert_eq!(buf, content[2 * 4096..3 * 4096]);
    for (at, len) in [(3 * 4096, 4096), (3 * 4096 + 1, 5), (0, 40_000)] {
        let mut buf = vec![7; len];
        let refused = reader.read(at, &mut buf);
        assert!(matches!(refused, Err(StoreError::Checksum { page: 3, .. })), "{refused:?}");
        assert!(buf.iter().all(|byte| *byte == 0 || *byte == 7), "bytes of a damaged page were handed out");
        let mut out = vec![1, 2];
        assert!(reader.read_pages(at, len as u32, &mut out).is_err());
        assert_eq!(out, [1, 2]);
    }
    assert!(matches!(world.store.verify(replica(1), &mut |_| true), Err(StoreError::Checksum { page: 3, .. })));
}

#[test]
fn a_full_disk_refuses_new_data_and_keeps_the_old() {
    let world = World::new(1);
    for object in 1..=3 {
        world.put(object, &bytes(object, 20_000));
    }
    let writer = world.create(10, Some(9_000));
    writer.write(0, &bytes(10, 8192)).unwrap();
    world.disk.set_free(0);
    world.store.tick().unwrap();
    let refused = writer.write(8192, &bytes(11, 20_000));
    assert!(matches!(refused, Err(StoreError::NoSpace { .. })), "{refused:?}");
    // Deletions continue.
    for object in 1..=3 {
        world.store.delete(replica(object)).unwrap();
    }
    world.journal.sync_to(world.journal.appended()).unwrap();
    world.store.tick().unwrap();
    assert!(object_files(&world).iter().all(|path| path.contains("000a.")), "{:?}", object_files(&world));
    world.disk.set_free(1 << 30);
    writer.write(8192, &bytes(11, 20_000)).unwrap();
    let completed = writer.complete().unwrap();
    world.journal.sync_to(completed.seq).unwrap();
    let world = world.power_lost();
    let expected = [bytes(10, 8192), bytes(11, 20_000)].concat();
    assert_eq!(world.read_all(10), expected);
}

#[test]
fn the_floor_refuses_before_the_disk_is_full() {
    let disk = disk::SimDisk::new(1);
    let world = World::open(disk.clone(), StoreConfig { floor: Some(1 << 20), ..small_config() }).unwrap();
    let writer = world.create(1, None);
    disk.set_free((1 << 20) + 50_000);
    assert!(!world.store.space().unwrap().floor_reached);
    writer.write(0, &bytes(1, 30_000)).unwrap();
    assert!(matches!(writer.write(30_000, &bytes(1, 40_000)), Err(StoreError::NoSpace { floor: 1_048_576, .. })));
    disk.set_free(1 << 19);
    assert!(world.store.space().unwrap().floor_reached);
    let refused = world.store.create(replica(2), new_replica(None)).map(|_| ());
    assert!(matches!(refused, Err(StoreError::NoSpace { .. })), "{refused:?}");
    disk.set_free(1 << 30);
    writer.write(30_000, &bytes(1, 40_000)).unwrap();
    world.store.create(replica(2), new_replica(None)).unwrap();
}

#[test]
fn a_failed_sync_stops_the_writer_and_keeps_durable_bytes() {
    for seed in 0..20 {
        let world = World::new(seed);
        let content = bytes(1, 60_000);
        let writer = world.create(1, Some(100_000));
        writer.write(0, &content[..30_000]).unwrap();
        assert_eq!(writer.sync().unwrap(), 30_000);
        writer.write(30_000, &content[30_000..]).unwrap();
        world.disk.fail_next(DiskOp::Sync, 1, ErrorKind::Other);
        assert!(writer.sync().is_err());
        for refused in [writer.write(60_000, b"more"), writer.sync().map(|_| ()), writer.complete().map(|_| ())] {
            assert!(matches!(refused, Err(StoreError::Failed { .. })), "{refused:?}");
        }
        assert_eq!(writer.durable_prefix(), 30_000);
        let refused = world.store.interrupt_sound(replica(1));
        assert!(matches!(refused, Err(StoreError::Failed { .. })), "{refused:?}");
        let kept = world.store.interrupt(replica(1)).unwrap().len;
        assert!((30_000..=60_000).contains(&kept), "{kept}");
        world.journal.sync_to(world.journal.appended()).unwrap();
        let world = world.power_lost();
        let status = world.store.status(replica(1)).unwrap().unwrap();
        assert_eq!((status.len, status.state), (kept, ReplicaState::Interrupted));
        assert_eq!(world.read_all(1), content[..kept as usize], "seed {seed}");
    }
}

/// A sync of a replica fails, and so does recording the failure; then comes a kill. Returns whether the opening counted
/// every loss exactly once.
fn losses_found_are_counted(planted: Option<PlantedBug>) -> (u64, bool) {
    let (mut found, mut counted) = (0, true);
    for seed in 0..30 {
        let world = World::new(seed);
        let content = bytes(1, 61_440);
        let writer = world.create(1, Some(100_000));
        writer.write(0, &content[..28_672]).unwrap();
        writer.sync().unwrap();
        writer.write(28_672, &content[28_672..]).unwrap();
        let before = world.journal.losses();
        world.disk.fail_next(DiskOp::Rename, 1, ErrorKind::Other);
        world.disk.fail_next_under(DiskOp::Sync, "store", 1, ErrorKind::Other);
        assert!(writer.sync().is_err() && world.journal.has_failed() && world.journal.poisoned().is_none());
        let world = World::open(world.disk.kill(), with(planted)).unwrap();
        let losses = world.journal.losses();
        if world.recovery.bytes_dropped > 0 {
            found += 1;
            counted &= losses > before;
        } else {
            assert_eq!((losses, world.read_by_writer(1)), (before, content), "seed {seed}");
        }
        // The remains are recorded as complete: the loss is neither found again nor forgotten.
        let again = world.killed();
        assert_eq!((again.recovery.bytes_dropped, again.journal.losses()), (0, losses), "seed {seed}");
    }
    (found, counted)
}

#[test]
fn data_missing_at_recovery_counts_as_a_loss() {
    let (found, counted) = losses_found_are_counted(None);
    assert!(found > 5 && counted, "{found}");
    assert!(!losses_found_are_counted(Some(PlantedBug::ForgetLoss)).1, "the planted bug was not found");
}

#[test]
fn the_next_opening_reports_a_failed_sync_even_of_a_removed_replica() {
    for interrupted in [false, true] {
        let world = World::new(3);
        let writer = world.create(1, Some(100_000));
        writer.write(0, &bytes(1, 60_000)).unwrap();
        world.disk.fail_next_under(DiskOp::Sync, "store", 2, ErrorKind::Other);
        assert!(writer.sync().is_err());
        if interrupted {
            world.store.interrupt(replica(1)).unwrap();
            world.journal.sync_to(world.journal.appended()).unwrap();
        }
        let before = world.journal.losses();
        let world = world.killed();
        assert_eq!(world.journal.losses(), before + 1 + u64::from(world.recovery.bytes_dropped > 0));
        let losses = world.journal.losses();
        assert_eq!(world.killed().journal.losses(), losses, "it is told once");
    }
}

#[test]
fn too_many_written_ranges_are_refused_with_a_reason() {
    let world = World::new(1);
    let writer = world.create(1, Some(10_000_000));
    for part in 0..64u64 {
        writer.write(part * 10_000, b"x").unwrap();
    }
    assert!(matches!(writer.write(5_000_000, b"x"), Err(StoreError::TooManyRanges { limit: 64, .. })));
    writer.write(1, &bytes(1, 639_999)).unwrap();
    writer.write(5_000_000, b"x").unwrap();
}

#[test]
fn an_older_namespace_is_refused() {
    let world = World::new(1);
    let newer = crate::NewReplica { incarnation: types::Incarnation(2), ..new_replica(None) };
    world.store.create(replica(1), newer).unwrap();
    let refused = world.store.create(replica(2), new_replica(None)).map(|_| ());
    assert!(matches!(refused, Err(StoreError::StaleIncarnation { .. })), "{refused:?}");
    world.journal.sync_to(world.journal.appended()).unwrap();
    let world = world.power_lost();
    let refused = world.store.create(replica(2), new_replica(None)).map(|_| ());
    assert!(matches!(refused, Err(StoreError::StaleIncarnation { .. })), "{refused:?}");
}

#[test]
fn the_close_of_a_small_replica_costs_one_sync() {
    let world = World::new(1);
    world.put(1, b"first");
    let before = world.disk.sync_count();
    world.put(2, &bytes(2, 4096));
    assert_eq!(world.disk.sync_count() - before, 1);
    let before = world.disk.sync_count();
    let writer = world.create(3, Some(50_000));
    writer.write(0, &bytes(3, 50_000)).unwrap();
    writer.complete().unwrap();
    // Three parent directories, once in a run; then data, sidecar and directory of each replica.
    assert_eq!(world.disk.sync_count() - before, 3 + 3);
    let before = world.disk.sync_count();
    world.put(4, &bytes(4, 50_000));
    assert_eq!(world.disk.sync_count() - before, 3 + 1);
}
