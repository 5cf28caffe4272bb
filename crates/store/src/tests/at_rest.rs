//! Short reads of one state of a large replica.

use std::sync::Arc;

use super::world::{World, bytes, replica, small_config, with};
use crate::{AtRest, FreshMemory, PlantedBug, RecentPages, StoreConfig, StoreError};

const LEN: usize = 300_001;

/// The result of a short read; `None` if the reader must be used.
fn read(at_rest: &AtRest, offset: usize, len: usize) -> Option<Vec<u8>> {
    let mut room = vec![0xaa; len + AtRest::MARGIN];
    let there = at_rest.read(offset as u64, len, &mut room, || ()).unwrap();
    room.truncate(len);
    there.then_some(room)
}

fn object_file(world: &World) -> String {
    world.store.inner.objects.path(replica(1))
}

#[test]
fn ranges_at_any_offset_read_as_written() {
    // With and without room for known checksums.
    for known_sums_bytes_max in [1 << 20, 0] {
        let config = StoreConfig { known_sums_bytes_max, ..small_config() };
        let world = World::open(disk::SimDisk::new(1), config).unwrap();
        let content = bytes(1, LEN);
        world.put(1, &content);
        let at_rest = world.store.open_read(replica(1)).unwrap().at_rest().unwrap().unwrap();
        assert_eq!(at_rest.len(), LEN as u64);
        for offset in [0, 1, 4095, 4096, 8191, 100_000, LEN - 4097, LEN - 1] {
            for len in [1, 2, 4096, 8192, AtRest::READ_MAX].into_iter().filter(|len| offset + len <= LEN) {
                assert_eq!(
                    read(&at_rest, offset, len).as_deref(),
                    Some(&content[offset..offset + len]),
                    "{len} at {offset}"
                );
            }
        }
        assert_eq!(read(&at_rest, LEN - 10, 10).as_deref(), Some(&content[LEN - 10..]));
        // After the end, or too long: not supported.
        assert_eq!((read(&at_rest, LEN - 10, 11), read(&at_rest, 0, AtRest::READ_MAX + 1)), (None, None));
        assert!(!at_rest.read(u64::MAX, 1, &mut [0; 1 + AtRest::MARGIN], || ()).unwrap());
    }
}

#[test]
fn who_waits_for_the_disk_is_told_before() {
    let recent = Arc::new(RecentPages::new(2 << 20, FreshMemory::AtOnce));
    let config = StoreConfig { recent: Some(Arc::clone(&recent)), ..small_config() };
    let world = World::open(disk::SimDisk::new(1), config).unwrap();
    let content = bytes(1, LEN);
    world.put(1, &content);
    recent.forget_all();
    let reader = world.store.open_read(replica(1)).unwrap();
    let at_rest = reader.at_rest().unwrap().unwrap();
    let mut told = 0;
    let mut room = vec![0; 100 + AtRest::MARGIN];
    // What is announced may be anything.
    let announced = [(5000, 100), (0, 0), (LEN as u64 - 1, 9000), (u64::MAX, usize::MAX), (5000, 8192), (0, LEN)];
    assert!(
        at_rest.read(5000, 100, &mut room, || at_rest.will_read(announced.into_iter().inspect(|_| told += 1))).unwrap()
    );
    assert_eq!(told, announced.len());
    assert!(!reader.has_waited(), "a simulated disk cannot tell");
    assert_eq!(room[..100], content[5000..5100]);
    assert!(!at_rest.read(0, AtRest::READ_MAX + 1, &mut room, || panic!("it reads nothing")).unwrap());
}

#[test]
fn rot_in_any_touched_page_is_found() {
    let world = World::new(1);
    let content = bytes(1, LEN);
    world.put(1, &content);
    let reader = world.store.open_read(replica(1)).unwrap();
    let at_rest = reader.at_rest().unwrap().unwrap();
    assert!(read(&at_rest, 5000, 8192).is_some(), "the sums are known from here on");
    // Outside the requested range, but in its first or last page.
    for rotten in [4096, 4999, 5000, 13_191, 13_192, 16_383] {
        assert!(world.disk.rot(&object_file(&world), rotten));
        assert_eq!(read(&at_rest, 5000, 8192), None, "at {rotten}");
        let refused = reader.read(5000, &mut [0; 8192]).unwrap_err();
        assert!(matches!(refused, StoreError::Checksum { .. }), "{refused}");
        assert!(world.disk.rot(&object_file(&world), rotten), "the same bit again: undone");
    }
    assert!(read(&at_rest, 5000, 8192).is_some());
    // Only the comparison finds it.
    let careless = World::open(world.disk.kill(), with(Some(PlantedBug::SkipCrc))).unwrap();
    careless.disk.rot(&object_file(&careless), 5000);
    let at_rest = careless.store.open_read(replica(1)).unwrap().at_rest().unwrap().unwrap();
    assert!(read(&at_rest, 5000, 8192).is_some_and(|found| found != content[5000..13_192]));
}

#[test]
fn short_reads_of_overwritten_bytes_are_left_to_the_reader() {
    let world = World::new(1);
    let content = bytes(1, LEN);
    world.put(1, &content);
    let reader = world.store.open_read(replica(1)).unwrap();
    let before = reader.at_rest().unwrap().unwrap();
    assert!(read(&before, 0, 8192).is_some());
    let writer = world.store.reopen(replica(1)).unwrap();
    let new = bytes(2, 8192);
    writer.write(0, &new).unwrap();
    assert!(reader.at_rest().unwrap().is_none(), "somebody writes to it");
    let completed = writer.complete().unwrap();
    world.journal.sync_to(completed.seq).unwrap();
    assert_eq!(read(&before, 0, 8192), None);
    let mut now = vec![0; 8192];
    assert_eq!(reader.read(0, &mut now).unwrap(), 8192);
    assert_eq!(now, new);
    let after = reader.at_rest().unwrap().unwrap();
    assert_eq!(read(&after, 0, 8192), Some(new));
    assert_eq!(read(&after, 8192, 100).as_deref(), Some(&content[8192..8292]));
    // Small replicas have no pages of their own.
    world.put(2, b"small");
    assert!(world.store.open_read(replica(2)).unwrap().at_rest().unwrap().is_none());
}
