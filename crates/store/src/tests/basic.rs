//! The store without faults.

use types::{Adler32, Crc32c};

use super::world::{World, bytes, replica};
use crate::{ReplicaState, StoreError};

/// Lengths around the boundaries of pages and of small replicas.
pub(super) const LENGTHS: [usize; 14] =
    [0, 1, 100, 4095, 4096, 4097, 8191, 8192, 8193, 12_288, 20_000, 65_536, 65_537, 200_001];

#[test]
fn replicas_of_all_sizes_survive_settling_and_stops() {
    let mut world = World::new(1);
    for (object, len) in (1..).zip(LENGTHS) {
        world.put(object, &bytes(object, len));
    }
    for round in 0..4 {
        for (object, len) in (1..).zip(LENGTHS) {
            let expected = bytes(object, len);
            assert_eq!(world.read_all(object), expected, "round {round}, length {len}");
            let status = world.store.status(replica(object)).unwrap().unwrap();
            let sums = (Adler32::of(&expected), Crc32c::of(&expected));
            assert_eq!(status.state, ReplicaState::Complete { adler32: sums.0, crc32c: sums.1 }, "length {len}");
            let verified = world.store.verify(replica(object), &mut |_| true).unwrap();
            assert_eq!((verified.len, verified.adler32, verified.crc32c), (len as u64, sums.0, sums.1));
        }
        world = match round {
            0 => world.killed(),
            1 => world.power_lost(),
            _ => world,
        };
        world.store.tick().unwrap();
        world.index.sweep_now().unwrap();
        world.index.checkpoint_now().unwrap();
    }
    assert_eq!(world.store.replicas(None, 100).unwrap().len(), LENGTHS.len());
    assert_eq!(
        world.store.replicas(Some(replica(3)), 2).unwrap().iter().map(|p| p.0).collect::<Vec<_>>(),
        [replica(4), replica(5)]
    );
}

#[test]
fn chunks_may_arrive_in_any_order_and_unaligned() {
    for (seed, chunk) in [(1u64, 4096usize), (2, 1000), (3, 10_000), (4, 8192), (5, 333)] {
        let world = World::new(seed);
        let content = bytes(seed, 60_000);
        let writer = world.create(1, None);
        let mut offsets: Vec<usize> = (0..content.len()).step_by(chunk).collect();
        // Swap neighbours, as parallel chunks arrive.
        for pair in offsets.chunks_mut(2) {
            pair.reverse();
        }
        for at in offsets {
            writer.write(at as u64, &content[at..content.len().min(at + chunk)]).unwrap();
        }
        let mut back = vec![0; content.len()];
        assert_eq!(writer.read(0, &mut back).unwrap(), content.len());
        assert_eq!(back, content, "chunk {chunk}");
        assert!(!writer.gaps());
        let completed = writer.complete().unwrap();
        assert_eq!(
            (completed.adler32, completed.crc32c),
            (Adler32::of(&content), Crc32c::of(&content)),
            "chunk {chunk}"
        );
        assert_eq!(world.read_all(1), content);
    }
}

#[test]
fn gaps_are_zeros() {
    for end in [7_000u64, 70_000] {
        let world = World::new(end);
        let writer = world.create(1, None);
        writer.write(end - 10, b"0123456789").unwrap();
        assert!(writer.gaps());
        writer.truncate(end + 5000).unwrap();
        let completed = writer.complete().unwrap();
        let mut expected = vec![0; end as usize + 5000];
        expected[end as usize - 10..end as usize].copy_from_slice(b"0123456789");
        assert_eq!(world.read_all(1), expected);
        assert_eq!((completed.adler32, completed.crc32c), (Adler32::of(&expected), Crc32c::of(&expected)));
    }
}

#[test]
fn readers_of_an_unfinished_replica_see_its_growing_durable_prefix() {
    for step in [1000usize, 8192, 9000] {
        let world = World::new(1);
        let content = bytes(1, step * 5);
        let writer = world.create(1, None);
        let reader = world.store.open_read(replica(1)).unwrap();
        for part in 0..5 {
            let at = part * step;
            writer.write(at as u64, &content[at..at + step]).unwrap();
            assert_eq!(reader.len(), at as u64);
            assert_eq!(writer.sync().unwrap(), (at + step) as u64);
            let mut back = vec![0; content.len()];
            assert_eq!(reader.read(0, &mut back).unwrap(), at + step);
            assert_eq!(back[..at + step], content[..at + step]);
        }
        writer.complete().unwrap();
        let mut back = vec![0; content.len()];
        assert_eq!(reader.read(0, &mut back).unwrap(), content.len());
        assert_eq!(back, content);
    }
}

#[test]
fn pages_are_framed_in_the_format_of_pgread() {
    for len in [5000usize, 50_001] {
        let world = World::new(1);
        let content = bytes(9, len);
        world.put(1, &content);
        let reader = world.store.open_read(replica(1)).unwrap();
        for (offset, wanted) in
            [(0, len), (0, 4096), (4096, 4096), (1, 10), (100, 5000), (4000, 200), (4999, 9999), (len, 5)]
        {
            let mut out = b"before".to_vec();
            let got = reader.read_pages(offset as u64, wanted as u32, &mut out).unwrap();
            let mut expected = b"before".to_vec();
            let (mut at, end) = (offset, len.min(offset + wanted));
            assert_eq!(got, end.saturating_sub(offset));
            while at < end {
                let stop = end.min((at / 4096 + 1) * 4096);
                expected.extend_from_slice(&Crc32c::of(&content[at..stop]).0.to_be_bytes());
                expected.extend_from_slice(&content[at..stop]);
                at = stop;
            }
            assert_eq!(out, expected, "{offset} {wanted} of {len}");
        }
    }
}

#[test]
fn complete_replicas_are_updated_in_place_and_truncated() {
    for len in [3000usize, 50_000] {
        let mut world = World::new(1);
        let mut content = bytes(1, len);
        world.put(1, &content);
        world.store.tick().unwrap();
        for (round, (at, part)) in [(10, 50), (4000, 9000), (len - 5, 100), (0, 4096)].into_iter().enumerate() {
            let new = bytes(100 + round as u64, part);
            let reader = world.store.open_read(replica(1)).unwrap();
            let writer = world.store.reopen(replica(1)).unwrap();
            assert_eq!(world.store.status(replica(1)).unwrap().unwrap().state, ReplicaState::Dirty);
            writer.write(at as u64, &new).unwrap();
            content.resize(content.len().max(at + part), 0);
            content[at..at + part].copy_from_slice(&new);
            if round == 2 {
                content.truncate(content.len() - 1500);
                writer.truncate(content.len() as u64).unwrap();
                content.resize(content.len() + 700, 0);
                writer.truncate(content.len() as u64).unwrap();
            }
            let mut back = vec![0; content.len()];
            assert_eq!(reader.read(0, &mut back).unwrap(), content.len());
            assert_eq!(back, content, "round {round}");
            let completed = writer.complete().unwrap();
            assert_eq!((completed.adler32, completed.crc32c), (Adler32::of(&content), Crc32c::of(&content)), "{round}");
            world.journal.sync_to(completed.seq).unwrap();
            assert!(matches!(writer.write(0, b"late"), Err(StoreError::Closed { .. })));
            drop((reader, writer));
            assert_eq!(world.read_all(1), content, "round {round}");
            world = if round % 2 == 0 { world.power_lost() } else { world };
            assert_eq!(world.read_all(1), content, "round {round}");
            world.store.tick().unwrap();
        }
    }
}

#[test]
fn an_interrupted_replica_keeps_its_prefix_and_can_be_resumed() {
    for len in [3000usize, 50_000] {
        let world = World::new(1);
        let content = bytes(1, len);
        let writer = world.create(1, Some(2 * len as u64));
        writer.write(0, &content[..len / 2]).unwrap();
        writer.write(len as u64, &content[..10]).unwrap();
        assert_eq!(world.store.interrupt(replica(1)).unwrap().len, len as u64 / 2);
        assert!(matches!(writer.write(0, b"late"), Err(StoreError::Closed { .. })));
        world.journal.sync_to(world.journal.appended()).unwrap();
        let world = world.power_lost();
        let status = world.store.status(replica(1)).unwrap().unwrap();
        assert_eq!((status.state, status.len), (ReplicaState::Interrupted, len as u64 / 2));
        assert_eq!(world.read_all(1), content[..len / 2]);
        let writer = world.store.reopen(replica(1)).unwrap();
        writer.write(len as u64 / 2, &content[len / 2..]).unwrap();
        let completed = writer.complete().unwrap();
        assert_eq!((completed.len, completed.crc32c), (len as u64, Crc32c::of(&content)));
        assert_eq!(world.read_all(1), content);
    }
}

#[test]
fn removal_keeps_only_open_readers() {
    let mut world = World::new(1);
    for (object, len) in [(1, 3000), (2, 50_000), (3, 3000), (4, 50_000)] {
        world.put(object, &bytes(object, len));
    }
    let writer = world.create(5, Some(100_000));
    writer.write(0, &bytes(5, 20_000)).unwrap();
    world.store.tick().unwrap();
    let readers: Vec<_> = (1..=2).map(|object| world.store.open_read(replica(object)).unwrap()).collect();
    for object in 1..=5 {
        world.store.delete(replica(object)).unwrap();
        world.store.delete(replica(object)).unwrap();
        assert_eq!(world.store.status(replica(object)).unwrap(), None);
        assert!(matches!(world.store.open_read(replica(object)), Err(StoreError::NotFound { .. })));
        assert!(matches!(world.store.reopen(replica(object)), Err(StoreError::NotFound { .. })));
    }
    assert!(matches!(writer.write(0, b"x"), Err(StoreError::Closed { .. })));
    world.journal.sync_to(world.journal.appended()).unwrap();
    for _ in 0..3 {
        world.store.tick().unwrap();
    }
    for (reader, (object, len)) in readers.iter().zip([(1, 3000), (2, 50_000)]) {
        let mut back = vec![0; len];
        assert_eq!(reader.read(0, &mut back).unwrap(), len);
        assert_eq!(back, bytes(object, len));
    }
    drop((readers, writer));
    assert_eq!(object_files(&world), Vec::<String>::new());
    world = world.power_lost();
    assert_eq!(world.store.replicas(None, 10).unwrap(), []);
    for object in 1..=5 {
        let again = world.store.create(replica(object), super::world::new_replica(None));
        assert!(matches!(again, Err(StoreError::ObjectUsed { .. })));
    }
}

#[test]
fn a_new_replica_survives_a_kill_once_it_is_in_the_kernel() {
    let world = World::new(1);
    let (first, _second) = (world.create(1, None), world.create(2, None));
    let begun = |world: &World| [1, 2, 3].map(|object| world.store.has_begun(replica(object).object));
    assert_eq!(begun(&world), [true, true, false]);
    assert_eq!(begun(&world.killed()), [false; 3]);
    first.write(0, b"x").unwrap();
    let killed = world.killed();
    assert_eq!(begun(&killed), [true, true, false], "in the log's order");
    killed.store.delete(replica(1)).unwrap();
    killed.journal.sync_to(killed.journal.appended()).unwrap();
    let removed = killed.power_lost();
    assert_eq!((begun(&removed), removed.store.status(replica(1)).unwrap()), ([true, true, false], None));
}

pub(crate) fn object_files(world: &World) -> Vec<String> {
    let mut files = Vec::new();
    world
        .store
        .inner
        .visit_objects(&mut |path, _, _| {
            files.push(path.to_owned());
            Ok(())
        })
        .unwrap();
    files
}

#[test]
fn space_of_the_journal_and_of_segments_is_freed() {
    let world = World::new(1);
    let long = world.create(1_000_000, Some(1 << 20));
    for object in 1..=400 {
        world.put(object, &bytes(object, 3000));
        long.write((object - 1) * 1000, &bytes(object, 1000)).unwrap();
        if object > 20 {
            world.store.delete(replica(object - 20)).unwrap();
        }
        if object % 10 == 0 {
            world.store.tick().unwrap();
            world.index.sweep_now().unwrap();
            world.index.checkpoint_now().unwrap();
        }
    }
    for _ in 0..20 {
        world.store.tick().unwrap();
        world.index.sweep_now().unwrap();
        world.index.checkpoint_now().unwrap();
    }
    assert!(world.journal.retained_bytes() < 600 << 10, "{} bytes of log", world.journal.retained_bytes());
    let segments = world.store.inner.records.lock().clone();
    assert!(segments.len() <= 4, "{segments:?}");
    for object in 381..=400 {
        assert_eq!(world.read_all(object), bytes(object, 3000));
    }
    let world = world.killed();
    let writer = world.store.reopen(replica(1_000_000)).unwrap();
    let mut back = vec![0; 400_000];
    assert_eq!(writer.read(0, &mut back).unwrap(), 400_000);
    assert_eq!(back, (1..=400).flat_map(|object| bytes(object, 1000)).collect::<Vec<_>>());
}

#[test]
fn long_writes_overlap_with_their_sums() {
    let world = World::new(1);
    let content = bytes(3, (9 << 20) + 5000);
    let mut aligned = disk::AlignedBuf::new(content.len());
    aligned.copy_from_slice(&content);
    let shifted = [vec![0], content.clone()].concat();
    for (object, data) in [(1, &aligned[..]), (2, &shifted[1..])] {
        let writer = world.create(object, Some(content.len() as u64));
        writer.write(0, data).unwrap();
        let completed = writer.complete().unwrap();
        assert_eq!((completed.adler32, completed.crc32c), (Adler32::of(&content), Crc32c::of(&content)));
        assert_eq!(world.read_all(object), content);
    }
    for (object, data, nth) in [(3, &aligned[..], 1), (4, &shifted[1..], 3)] {
        let writer = world.create(object, None);
        writer.write(0, &data[..100_000]).unwrap();
        world.disk.fail_next(disk::DiskOp::Write, nth, std::io::ErrorKind::Other);
        assert!(writer.write(102_400, &data[..4 << 20]).is_err());
        writer.write(200_000, b"after").unwrap();
        let mut expected = content[..100_000].to_vec();
        expected.resize(200_000, 0);
        expected.extend_from_slice(b"after");
        writer.complete().unwrap();
        assert_eq!(world.read_all(object), expected, "what a failed write left is not shown");
    }
}

#[test]
fn several_threads_may_write_one_replica() {
    let world = World::new(1);
    let content = bytes(1, 300_000);
    let writer = world.create(1, Some(300_000));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (writer, content, world) = (&writer, &content, &world);
            scope.spawn(move || {
                for at in (thread * 7000..300_000).step_by(28_000) {
                    writer.write(at as u64, &content[at..300_000.min(at + 7000)]).unwrap();
                    if thread == 0 {
                        world.store.tick().unwrap();
                    }
                }
            });
        }
    });
    writer.complete().unwrap();
    assert_eq!(world.read_all(1), content);
}
