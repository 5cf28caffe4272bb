//! Replicas that are started over in the place of their remains.

use std::sync::Arc;

use disk::{Access, Disk, OpenOptions};
use types::Incarnation;

use super::world::{World, bytes, new_replica, replica};
use crate::{NewReplica, StoreError, Writer};

fn restarted(world: &World, object: u64) -> Arc<Writer> {
    world.store.recreate(replica(object), new_replica(None)).unwrap()
}

fn give(world: &World, object: u64, content: &[u8]) {
    let writer = restarted(world, object);
    writer.write(0, content).unwrap();
    let completed = writer.complete().unwrap();
    world.journal.sync_to(completed.seq).unwrap();
}

/// Small ones, and one with its own file.
const SIZES: [usize; 3] = [0, 3000, 50_000];

#[test]
fn a_removed_replica_can_be_started_over() {
    for (before, after) in SIZES.into_iter().flat_map(|before| SIZES.map(|after| (before, after))) {
        for settles in [false, true] {
            let world = World::new(1);
            world.put(1, &bytes(1, before));
            world.store.delete(replica(1)).unwrap();
            if settles {
                world.journal.sync_to(world.journal.appended()).unwrap();
                world.store.tick().unwrap();
            }
            assert!(world.store.create(replica(1), new_replica(None)).is_err());
            give(&world, 1, &bytes(2, after));
            assert_eq!(world.read_all(1), bytes(2, after), "{before} {after}");
            world.store.tick().unwrap();
            assert_eq!(world.read_all(1), bytes(2, after), "{before} {after}");
            for world in [world.killed(), world.power_lost()] {
                assert_eq!(world.recovery.unexplained, [] as [String; 0]);
                world.store.tick().unwrap();
                assert_eq!(world.read_all(1), bytes(2, after), "{before} {after}");
                world.store.delete(replica(1)).unwrap();
                world.journal.sync_to(world.journal.appended()).unwrap();
                assert!(world.killed().store.status(replica(1)).unwrap().is_none());
            }
        }
    }
}

#[test]
fn a_restarted_replica_is_not_mistaken_for_the_removed_one() {
    for (before, after) in SIZES.into_iter().flat_map(|before| SIZES.map(|after| (before, after))) {
        let world = World::new(1);
        world.create(1, None).write(0, &bytes(1, before)).unwrap();
        world.store.delete(replica(1)).unwrap();
        let writer = restarted(&world, 1);
        writer.write(0, &bytes(2, after)).unwrap();
        assert_eq!(writer.sync().unwrap(), after as u64);
        for world in [world.killed(), world.power_lost()] {
            // Twice: the cleanup of the first opening must not remove the new files.
            world.journal.sync_to(world.journal.appended()).unwrap();
            world.store.tick().unwrap();
            let world = world.killed();
            world.store.tick().unwrap();
            assert_eq!(world.read_by_writer(1), bytes(2, after), "{before} {after}");
        }
    }
}

#[test]
fn files_without_a_record_make_room_for_a_restarted_replica() {
    let other = World::new(1);
    other.put(1, &bytes(1, 50_000));
    let world = World::new(2);
    let disk = &world.disk;
    for path in
        [other.store.inner.objects.path(replica(1)), format!("{}.crc", other.store.inner.objects.path(replica(1)))]
    {
        let from = other.disk.open(&path, OpenOptions { access: Access::Read, direct: false }).unwrap();
        let mut content = vec![0; from.len().unwrap() as usize];
        from.read_at(&mut content, 0).unwrap();
        disk.create_dir_all(path.rsplit_once('/').unwrap().0).unwrap();
        let to = disk.open(&path, OpenOptions { access: Access::CreateNew, direct: false }).unwrap();
        to.write_at(&content, 0).unwrap();
        to.sync_data().unwrap();
    }
    assert!(matches!(world.store.create(replica(1), new_replica(None)), Err(StoreError::FileThere { .. })));
    give(&world, 1, &bytes(2, 20_000));
    for world in [world.killed(), world.power_lost()] {
        assert_eq!(world.recovery.unexplained, [] as [String; 0]);
        assert_eq!(world.read_all(1), bytes(2, 20_000));
    }
}

#[test]
fn a_known_replica_is_truncated_and_an_older_namespace_refused() {
    let world = World::new(1);
    world.put(1, &bytes(1, 50_000));
    let older = NewReplica { incarnation: Incarnation(0), ..new_replica(None) };
    assert!(matches!(world.store.recreate(replica(9), older), Err(StoreError::StaleIncarnation { .. })));
    give(&world, 1, &bytes(2, 10_000));
    assert_eq!(world.read_all(1), bytes(2, 10_000));
    // Half of an abandoned copy is not complete after a stop.
    let writer = restarted(&world, 1);
    writer.write(0, &bytes(3, 100)).unwrap();
    drop(writer);
    let world = world.killed();
    let status = world.store.status(replica(1)).unwrap().unwrap();
    assert!(!matches!(status.state, crate::ReplicaState::Complete { .. }), "{status:?}");
}

#[test]
fn a_late_number_among_many_gaps_does_not_count_as_used() {
    let world = World::new(1);
    // Like in a cluster: every other number belongs to another store.
    for object in (2..5000).step_by(2) {
        drop(world.create(object, None));
    }
    let refused =
        |object| matches!(world.store.create(replica(object), new_replica(None)), Err(StoreError::ObjectUsed { .. }));
    assert!(refused(4998) && refused(4), "what is there is not made again");
    let writer = world.create(3, None);
    writer.write(0, &bytes(3, 20_000)).unwrap();
    writer.sync().unwrap();
    for world in [world.killed(), world.power_lost()] {
        assert_eq!(world.read_by_writer(3), bytes(3, 20_000));
        world.store.tick().unwrap();
        assert_eq!(world.killed().read_by_writer(3), bytes(3, 20_000));
    }
}

#[test]
fn a_reader_learns_that_its_replica_was_started_over() {
    for size in [3000, 50_000] {
        let world = World::new(1);
        world.put(1, &bytes(1, size));
        let reader = world.store.open_read(replica(1)).unwrap();
        let writer = restarted(&world, 1);
        assert!(reader.is_started_over());
        // Nobody takes the part that is there for the whole.
        writer.write(0, &bytes(2, size / 2)).unwrap();
        assert_eq!(reader.len(), size as u64);
        writer.write(0, &bytes(2, size)).unwrap();
        let completed = writer.complete().unwrap();
        world.journal.sync_to(completed.seq).unwrap();
        assert!(reader.is_started_over());
        assert!(!world.store.open_read(replica(1)).unwrap().is_started_over());
    }
}
