//! The scrub finds all data that the disk has lost. Concurrent changes do not mislead it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use disk::{Access, Disk, OpenOptions};
use types::ErrorCode;

use super::basic::LENGTHS;
use super::world::{World, bytes, new_replica, replica};
use crate::record::ByteLocation;
use crate::{Scrubbed, Scrubber, StoreError};

fn scrub(world: &World, object: u64) -> Result<Scrubbed, StoreError> {
    world.store.scrub(replica(object), &mut Scrubber::default(), &mut |_| true)
}

/// Settled replicas of all lengths.
fn filled() -> World {
    let world = World::new(1);
    for (object, len) in (1..).zip(LENGTHS) {
        world.put(object, &bytes(object, len));
    }
    for _ in 0..20 {
        world.store.tick().unwrap();
    }
    world
}

#[test]
fn intact_replicas_pass_before_and_after_settling() {
    let world = World::new(1);
    for (object, len) in (1..).zip(LENGTHS) {
        world.put(object, &bytes(object, len));
        assert_eq!(scrub(&world, object).unwrap(), Scrubbed::Whole(len as u64), "in the log, length {len}");
    }
    let world = filled();
    let mut scrubber = Scrubber::default();
    let mut read = 0;
    for (object, len) in (1..).zip(LENGTHS) {
        let mut pace = |bytes| {
            read += bytes;
            true
        };
        let scrubbed = world.store.scrub(replica(object), &mut scrubber, &mut pace).unwrap();
        assert_eq!(scrubbed, Scrubbed::Whole(len as u64), "length {len}");
    }
    assert!(read >= LENGTHS.iter().sum::<usize>() as u64, "all of it was read");
}

#[test]
fn any_rotten_byte_is_found() {
    let world = filled();
    let record = |object| world.store.inner.record(replica(object)).unwrap().unwrap();
    for (object, len) in (1..).zip(LENGTHS).filter(|(_, len)| *len > 0) {
        let (path, start, header) = match record(object).place {
            ByteLocation::Segment { segment, offset, header } => {
                (world.store.inner.segments.path(segment), offset, u64::from(header))
            }
            ByteLocation::Object => (world.store.inner.objects.path(replica(object)), 0, 0),
            other => panic!("length {len} lies in {other:?}"),
        };
        let len = len as u64;
        // The first and the last byte, one in between, and the header before a small replica.
        for at in [header, header + len / 2, header + len - 1, 20] {
            assert!(world.disk.rot(&path, start + at), "{path}");
            let error = scrub(&world, object).unwrap_err();
            assert!(
                matches!(error.code(), ErrorCode::Checksum | ErrorCode::Damaged),
                "length {len}, byte {at}: {error}"
            );
            assert!(world.disk.rot(&path, start + at));
            assert_eq!(scrub(&world, object).unwrap(), Scrubbed::Whole(len), "length {len}, byte {at}");
        }
    }
}

#[test]
fn the_scrub_finds_a_missing_file_and_skips_a_removed_replica() {
    let world = filled();
    let large = u64::try_from(LENGTHS.len()).unwrap();
    world.disk.remove(&world.store.inner.objects.path(replica(large))).unwrap();
    assert_eq!(scrub(&world, large).unwrap_err().code(), ErrorCode::Damaged);
    world.store.delete(replica(3)).unwrap();
    assert_eq!(scrub(&world, 3).unwrap(), Scrubbed::Busy);
    assert_eq!(scrub(&world, 4711).unwrap(), Scrubbed::Busy);
}

#[test]
fn a_damaged_replica_can_be_started_over() {
    for (object, len) in (1..).zip(LENGTHS).filter(|(_, len)| *len > 0) {
        let world = filled();
        let (path, at) = match world.store.inner.record(replica(object)).unwrap().unwrap().place {
            ByteLocation::Segment { segment, offset, header } => {
                (world.store.inner.segments.path(segment), offset + u64::from(header))
            }
            _ => (world.store.inner.objects.path(replica(object)), 0),
        };
        assert!(world.disk.rot(&path, at));
        scrub(&world, object).unwrap_err();
        let content = bytes(77, len + 5);
        let writer = world.store.recreate(replica(object), new_replica(None)).unwrap();
        writer.write(0, &content).unwrap();
        let completed = writer.complete().unwrap();
        drop(writer);
        world.journal.sync_to(completed.seq).unwrap();
        assert_eq!(world.read_all(object), content, "length {len}");
        for world in [world.killed(), world.power_lost()] {
            for _ in 0..20 {
                world.store.tick().unwrap();
            }
            assert_eq!(world.read_all(object), content, "length {len}");
            assert_eq!(scrub(&world, object).unwrap(), Scrubbed::Whole(content.len() as u64), "length {len}");
        }
    }
    let world = filled();
    let large = u64::try_from(LENGTHS.len()).unwrap();
    world.disk.remove(&world.store.inner.objects.path(replica(large))).unwrap();
    let writer = world.store.recreate(replica(large), new_replica(None)).unwrap();
    writer.write(0, b"new").unwrap();
    writer.complete().unwrap();
    assert_eq!(world.read_all(large), b"new");
}

#[test]
fn the_scrub_skips_unfinished_replicas_and_the_caller_may_stop_it() {
    let world = filled();
    let writer = world.create(1000, None);
    writer.write(0, &bytes(1, 100_000)).unwrap();
    assert_eq!(scrub(&world, 1000).unwrap(), Scrubbed::Busy);
    let large = u64::try_from(LENGTHS.len()).unwrap();
    let stopped = world.store.scrub(replica(large), &mut Scrubber::default(), &mut |_| false).unwrap();
    assert_eq!(stopped, Scrubbed::Stopped);
    let writer = world.store.reopen(replica(large)).unwrap();
    assert_eq!(scrub(&world, large).unwrap(), Scrubbed::Busy, "an update is under way");
    writer.complete().unwrap();
}

/// One thread changes replicas in place, settles, compacts and removes, while the other scrubs them.
#[test]
fn concurrent_changes_are_no_damage() {
    let world = World::new(3);
    for object in 1..=6 {
        world.put(object, &bytes(object, if object % 2 == 0 { 6_000 } else { 60_000 }));
    }
    let done = AtomicBool::new(false);
    let looks = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // AckPoint both have run often enough, however the machine divides its time.
            let mut rounds = 0..5_000u64;
            while let Some(round) = rounds.next().filter(|round| *round < 150 || looks.load(Ordering::Relaxed) < 200) {
                let object = round % 6 + 1;
                let writer = world.store.reopen(replica(object)).unwrap();
                writer.write(round * 37 % 5_000, &bytes(round, 900)).unwrap();
                let completed = writer.complete().unwrap();
                world.journal.sync_to(completed.seq).unwrap();
                world.put(100 + round, &bytes(round, 5_000));
                if round % 2 == 0 {
                    world.store.delete(replica(100 + round)).unwrap();
                }
                world.store.tick().unwrap();
            }
            done.store(true, Ordering::Relaxed);
        });
        let mut scrubber = Scrubber::default();
        while !done.load(Ordering::Relaxed) {
            for (replica, _) in world.store.replicas(None, 1000).unwrap() {
                world
                    .store
                    .scrub(replica, &mut scrubber, &mut |_| true)
                    .unwrap_or_else(|error| panic!("{replica}: {error}"));
                looks.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    assert!(looks.into_inner() >= 200);
    for object in 1..=6 {
        assert!(matches!(scrub(&world, object).unwrap(), Scrubbed::Whole(_)));
    }
}

#[test]
fn replicas_are_listed_newest_first_with_their_provenance() {
    let world = filled();
    let all: Vec<_> = (1..=LENGTHS.len() as u64).rev().map(replica).collect();
    let mut found = Vec::new();
    while let Some(page) =
        Some(world.store.replicas_before(found.last().copied(), 3).unwrap()).filter(|page| !page.is_empty())
    {
        found.extend(page);
    }
    assert_eq!(found, all);
    for replica in all {
        let provenance = world.store.provenance(replica).unwrap();
        assert_eq!(provenance.path_hint, b"/data/file", "{replica}");
        assert_eq!(provenance.file.is_some(), replica.object.0 != 1, "{replica}: a file of its own, or a segment");
    }
}

#[test]
fn the_scrub_skips_holes_and_finds_data_lost_in_them() {
    const LEN: u64 = 1 << 40;
    let world = World::new(1);
    // Bytes at the beginning, in the middle and at the end; no whole pages.
    let places: [(u64, usize); 3] = [(0, 5000), (LEN / 2 + 100, 300_000), (LEN - 77, 77)];
    let writer = world.create(1, None);
    for (offset, len) in places {
        writer.write(offset, &bytes(offset, len)).unwrap();
    }
    let completed = writer.complete().unwrap();
    world.journal.sync_to(completed.seq).unwrap();
    drop(writer);
    let began = std::time::Instant::now();
    let mut read = 0;
    let scrubbed = world.store.scrub(replica(1), &mut Scrubber::default(), &mut |bytes| {
        read += bytes;
        true
    });
    assert_eq!(scrubbed.unwrap(), Scrubbed::Whole(LEN));
    assert!(read < 16 << 20, "{read} bytes were read");
    let verified = world.store.verify(replica(1), &mut |_| true).unwrap();
    assert_eq!(verified.len, LEN);
    // The pages are gone from the file, as after a bad repair of its file system; their checksums exist.
    let path = world.store.inner.objects.path(replica(1));
    let file = world.disk.open(&path, OpenOptions { access: Access::ReadWrite, direct: false }).unwrap();
    file.set_len(LEN / 2).unwrap();
    file.set_len(LEN).unwrap();
    for refused in [scrub(&world, 1).map(|_| ()), world.store.verify(replica(1), &mut |_| true).map(|_| ())] {
        assert_eq!(refused.unwrap_err().code(), ErrorCode::Checksum);
    }
    // Their checksums are gone too: only the checksum of the whole reveals it.
    let options = OpenOptions { access: Access::ReadWrite, direct: false };
    let sums = world.disk.open(&format!("{path}.crc"), options).unwrap();
    let len = sums.len().unwrap();
    sums.set_len(len / 4).unwrap();
    sums.set_len(len).unwrap();
    for refused in [scrub(&world, 1).map(|_| ()), world.store.verify(replica(1), &mut |_| true).map(|_| ())] {
        assert_eq!(refused.unwrap_err().code(), ErrorCode::Damaged);
    }
    assert!(began.elapsed() < std::time::Duration::from_secs(20));
}
