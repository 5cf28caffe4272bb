//! Files without a record: an older index was restored, or a power failure lost the record.

use disk::{Access, Disk, OpenOptions, SimDisk};

use super::world::{World, bytes, new_replica, replica, small_config};
use crate::{StoreConfig, StoreError};

fn files_below(disk: &dyn Disk, dir: &str, out: &mut Vec<String>) {
    for entry in disk.list(dir).unwrap() {
        let path = format!("{dir}/{}", entry.name);
        if entry.is_dir { files_below(disk, &path, out) } else { out.push(path) }
    }
}

fn content(disk: &dyn Disk, path: &str) -> Vec<u8> {
    let file = disk.open(path, OpenOptions { access: Access::Read, direct: false }).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    bytes
}

/// A disk with a new journal and index, whose store has the files of `replicas` (and of an unfinished one, number 3).
fn with_files_of_an_older_index() -> (SimDisk, Vec<(String, Vec<u8>)>) {
    let other = World::new(1);
    other.put(1, &bytes(1, 50_000));
    other.put(2, &bytes(2, 3000));
    other.store.tick().unwrap();
    other.create(3, Some(30_000)).write(0, &bytes(3, 20_000)).unwrap();
    let disk = World::new(2).disk.kill();
    let mut paths = Vec::new();
    files_below(&other.disk, "store", &mut paths);
    let mut files = Vec::new();
    for path in paths {
        let bytes = content(&other.disk, &path);
        disk.create_dir_all(path.rsplit_once('/').unwrap().0).unwrap();
        let file = disk.open(&path, OpenOptions { access: Access::CreateNew, direct: false }).unwrap();
        file.write_at(&bytes, 0).unwrap();
        files.push((path, bytes));
    }
    assert_eq!(files.len(), 5);
    (disk, files)
}

#[test]
fn files_of_finished_replicas_are_never_removed() {
    let (disk, files) = with_files_of_an_older_index();
    let look = StoreConfig { clear_away: false, ..small_config() };
    let world = World::open(disk, look).unwrap();
    let unexplained = world.recovery.unexplained.clone();
    assert_eq!(unexplained, ["store/segments/0000000000000001", "store/objects/00/00/0000000000000001.0"]);
    assert_eq!((world.recovery.orphans_removed, world.recovery.orphans_left), (0, 2));
    for (path, bytes) in &files {
        assert_eq!(content(&world.disk, path), *bytes, "{path} was changed by a look");
    }
    let world = world.killed();
    assert_eq!(world.recovery.unexplained, unexplained);
    assert_eq!((world.recovery.orphans_removed, world.recovery.orphans_left), (2, 0));
    // Its number is refused. A request for it, or its removal, does not damage it. New small replicas go elsewhere.
    let refused = world.store.create(replica(1), new_replica(None)).map(|_| ());
    assert!(matches!(refused, Err(StoreError::FileThere { .. })), "{refused:?}");
    world.store.delete(replica(1)).unwrap();
    world.put(7, &bytes(7, 4000));
    world.journal.sync_to(world.journal.appended()).unwrap();
    world.store.tick().unwrap();
    let world = world.killed();
    assert_eq!(world.read_all(7), bytes(7, 4000));
    for (path, bytes) in files.iter().filter(|(path, _)| !path.contains("0003.")) {
        assert_eq!(content(&world.disk, path), *bytes, "{path} was changed");
    }
}

#[test]
fn the_end_of_a_segment_is_kept_if_it_has_the_only_copy() {
    for in_journal in [false, true] {
        let world = World::new(1);
        world.put(1, &bytes(1, 3000));
        world.store.tick().unwrap();
        let path = world.store.inner.segments.path(1);
        let before = content(&world.disk, &path);
        // The earlier index, and a segment that has grown.
        let disk = world.disk.kill();
        world.put(2, &bytes(2, 3000));
        world.store.tick().unwrap();
        let after = content(&world.disk, &path);
        assert!(after.len() > before.len() + 3000);
        if in_journal {
            let world = World::open(disk.clone(), small_config()).unwrap();
            world.put(2, &bytes(2, 3000));
        }
        let file = disk.open(&path, OpenOptions { access: Access::ReadWrite, direct: false }).unwrap();
        file.write_at(&after, 0).unwrap();
        let world = World::open(disk, small_config()).unwrap();
        assert_eq!(world.recovery.unexplained.len(), usize::from(!in_journal), "{:?}", world.recovery.unexplained);
        world.put(9, &bytes(9, 2000));
        world.store.tick().unwrap();
        let kept = content(&world.disk, &path);
        assert_eq!(kept == after, !in_journal, "{in_journal}");
        assert_eq!(world.read_all(9), bytes(9, 2000));
        assert_eq!(world.read_all(1), bytes(1, 3000));
    }
}
