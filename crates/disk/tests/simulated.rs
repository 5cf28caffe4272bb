//! Behaviour of the simulated disk only: crashes, failures, full disks, rot.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::ErrorKind;
use std::sync::Arc;

use disk::{Access, AlignedBuf, CrashFaults, CrashReport, Disk, DiskFile, DiskOp, OpenOptions, SimDisk};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

fn open(disk: &SimDisk, path: &str, access: Access) -> Arc<dyn DiskFile> {
    disk.open(path, OpenOptions { access, direct: false }).unwrap()
}

fn content(disk: &SimDisk, path: &str) -> Option<Vec<u8>> {
    let len = disk.len_of(path).unwrap()?;
    let mut bytes = vec![0; usize::try_from(len).unwrap()];
    assert_eq!(open(disk, path, Access::Read).read_at(&mut bytes, 0).unwrap(), bytes.len());
    Some(bytes)
}

#[test]
fn synced_changes_survive_every_crash_and_others_reach_every_outcome() {
    let mut total = CrashReport::default();
    let mut names_seen = std::collections::BTreeSet::new();
    for seed in 0..500 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let disk = SimDisk::new(seed);
        disk.create_dir_all("d").unwrap();
        let file = open(&disk, "d/f", Access::CreateNew);
        file.write_at(&[1; 3000], 0).unwrap();
        file.sync_data().unwrap();
        disk.sync_dir("d").unwrap();
        disk.sync_dir("").unwrap();
        file.write_at(&[2; 3000], 3000).unwrap(); // shares a sector with durable bytes
        file.write_at(&[3; 512], 8192).unwrap();
        file.write_at(&[4; 2048], 1024).unwrap(); // over durable bytes
        open(&disk, "d/new", Access::CreateNew).write_at(&[5; 700], 0).unwrap();
        let (after, report) = disk.crash(&mut rng, CrashFaults::mixed());
        total.add(&report);
        let found = content(&after, "d/f").expect("its name was synced");
        assert!(found.len() >= 3000);
        for (i, byte) in found.iter().enumerate() {
            let possible: &[u8] = match i {
                0..1024 => &[1],
                1024..3000 => &[1, 4],
                3000..3072 => &[0, 2, 4],
                3072..6000 => &[0, 2],
                8192..8704 => &[0, 3],
                _ => &[0],
            };
            assert!(possible.contains(byte), "seed {seed}: {byte} at {i}");
        }
        for sector in found[1024..found.len().min(3072)].chunks(512) {
            assert!(sector[0] == sector[400], "seed {seed}: a sector came apart");
        }
        names_seen.insert(content(&after, "d/new").map(|c| c.len()));
        // The same moment after SIGKILL: everything exists, and a sync makes it durable.
        let killed = disk.kill();
        assert_eq!(content(&killed, "d/new").unwrap(), [5; 700]);
        open(&killed, "d/new", Access::ReadWrite).sync_data().unwrap();
        killed.sync_dir("d").unwrap();
        let (later, _) = killed.crash(&mut rng, CrashFaults::all_lost());
        assert_eq!(content(&later, "d/new").unwrap(), [5; 700]);
        assert_eq!(content(&later, "d/f").unwrap(), [1; 3000]);
    }
    assert_eq!(names_seen.into_iter().collect::<Vec<_>>(), [None, Some(0), Some(700)]);
    println!("{total:?}");
    let CrashReport { kept, lost, torn, zeroed, reordered, lengths_lost, names_kept, names_lost } = total;
    for count in [kept, lost, torn, zeroed, reordered, lengths_lost, names_kept, names_lost] {
        assert!(count > 50, "{total:?}");
    }
}

#[test]
fn a_rename_is_kept_or_undone_as_a_whole() {
    let mut seen = [0, 0];
    for seed in 0..100 {
        let disk = SimDisk::new(seed);
        for (name, byte) in [("a", b'a'), ("b", b'b')] {
            let file = open(&disk, name, Access::CreateNew);
            file.write_at(&[byte], 0).unwrap();
            file.sync_data().unwrap();
        }
        disk.sync_dir("").unwrap();
        disk.rename("a", "b").unwrap();
        let (after, _) = disk.crash(&mut SmallRng::seed_from_u64(seed), CrashFaults::mixed());
        match (content(&after, "a").as_deref(), content(&after, "b").as_deref()) {
            (None, Some(b"a")) => seen[0] += 1,
            (Some(b"a"), Some(b"b")) => seen[1] += 1,
            other => panic!("seed {seed}: {other:?}"),
        }
    }
    assert!(seen.iter().all(|n| *n > 10), "{seen:?}");
}

#[test]
fn a_sync_after_a_failed_one_succeeds_without_the_bytes() {
    let mut lost = 0;
    for seed in 0..50 {
        let disk = SimDisk::new(seed);
        let file = open(&disk, "f", Access::CreateNew);
        disk.sync_dir("").unwrap();
        file.write_at(&[0; 4096], 0).unwrap();
        file.sync_data().unwrap();
        file.write_at(&[1; 4096], 0).unwrap();
        disk.fail_next(DiskOp::Sync, 1, ErrorKind::Other);
        assert_eq!(file.sync_data().unwrap_err().op, DiskOp::Sync);
        file.sync_data().unwrap();
        // The page cache still shows it; a direct read may not.
        assert_eq!(content(&disk, "f").unwrap(), [1; 4096]);
        let mut direct = AlignedBuf::new(4096);
        let handle = disk.open("f", OpenOptions { access: Access::Read, direct: true }).unwrap();
        assert_eq!(handle.read_at(&mut direct, 0).unwrap(), 4096);
        let (after, _) = disk.crash(&mut SmallRng::seed_from_u64(seed), CrashFaults::all_lost());
        assert_eq!(content(&after, "f").unwrap(), direct[..]);
        if direct.contains(&0) {
            lost += 1;
        }
    }
    assert!(lost > 10, "{lost}");
}

#[test]
fn a_full_disk_refuses_and_recovers() {
    let disk = SimDisk::new(0);
    disk.set_free(3 * 4096);
    let file = open(&disk, "f", Access::CreateNew);
    file.allocate(0, 8192).unwrap();
    assert_eq!(disk.space().unwrap().free, 4096);
    assert_eq!(file.allocate(8192, 8192).unwrap_err().source.kind(), ErrorKind::StorageFull);
    file.write_at(&[1; 8192], 0).unwrap();
    assert_eq!(disk.space().unwrap().free, 4096, "the reserved space was used");
    assert_eq!(file.write_at(&[1; 8192], 8192).unwrap_err().source.kind(), ErrorKind::StorageFull);
    assert_eq!(file.len().unwrap(), 12_288, "what fitted was written");
    file.set_len(4096).unwrap();
    assert_eq!(disk.space().unwrap().free, 8192);
    disk.remove("f").unwrap();
    assert_eq!(disk.space().unwrap().free, 8192, "held open");
    drop(file);
    assert_eq!(disk.space().unwrap().free, 3 * 4096);
}

#[test]
fn planned_failures_hit_the_planned_calls() {
    let disk = SimDisk::new(7);
    let file = open(&disk, "f", Access::CreateNew);
    disk.fail_next(DiskOp::Write, 2, ErrorKind::Other);
    file.write_at(&[1; 10], 0).unwrap();
    assert!(file.write_at(&[1; 10], 10).is_err());
    file.write_at(&[1; 10], 20).unwrap();
    let before = disk.sync_count();
    file.sync_data().unwrap();
    disk.sync_dir("").unwrap();
    assert_eq!((disk.sync_count() - before, disk.data_sync_count()), (2, 1));
    assert!(disk.rot("f", 25) && !disk.rot("f", 1000) && !disk.rot("none", 0));
    assert_eq!(content(&disk, "f").unwrap()[25], 0);
}

#[test]
fn rewriting_an_unreadable_page_makes_it_readable() {
    let disk = SimDisk::new(0);
    let file = disk.open("f", OpenOptions { access: Access::CreateNew, direct: false }).unwrap();
    file.write_at(&[7; 12_288], 0).unwrap();
    assert!(disk.make_unreadable("f", 5000) && !disk.make_unreadable("g", 0));
    let mut buf = [0; 4096];
    for offset in [1, 4096, 8191] {
        assert_eq!(file.read_at(&mut buf, offset).unwrap_err().source.raw_os_error(), Some(5));
    }
    file.read_at(&mut buf, 0).unwrap();
    file.read_at(&mut buf, 8192).unwrap();
    assert!(file.write_at(&[8; 4096], 100).is_err());
    file.sync_data().unwrap();
    disk.sync_dir("").unwrap();
    let (after, _) = disk.crash(&mut SmallRng::seed_from_u64(0), CrashFaults::mixed());
    assert!(open(&after, "f", Access::Read).read_at(&mut buf, 5000).is_err(), "it stays so");
    file.write_at(&[8; 4096], 4096).unwrap();
    file.read_at(&mut buf, 4096).unwrap();
    assert_eq!(buf, [8; 4096]);
}

#[test]
fn a_planned_function_runs_inside_a_call() {
    let disk = SimDisk::new(0);
    let file = disk.open("f", OpenOptions { access: Access::CreateNew, direct: false }).unwrap();
    let other = disk.clone();
    disk.call_next(DiskOp::Sync, 2, move || {
        other.open("g", OpenOptions { access: Access::CreateNew, direct: false }).unwrap();
    });
    file.sync_data().unwrap();
    assert_eq!(disk.len_of("g").unwrap(), None);
    file.sync_data().unwrap();
    assert_eq!(disk.len_of("g").unwrap(), Some(0));
}

#[test]
fn the_disk_can_be_copied_between_two_calls() {
    let disk = SimDisk::new(0);
    let file = open(&disk, "f", Access::CreateNew);
    disk.freeze_after(2);
    for i in 0..5u8 {
        file.write_at(&[i + 1], u64::from(i)).unwrap();
        assert_eq!(disk.frozen().is_some(), i == 1);
    }
    disk.freeze_after(0);
    assert_eq!(content(&disk.frozen().unwrap(), "f").unwrap(), [1, 2, 3, 4, 5]);
}

#[test]
fn many_random_changes_match_a_plain_buffer() {
    let mut rng = SmallRng::seed_from_u64(3);
    let disk = SimDisk::new(3);
    let file = open(&disk, "f", Access::CreateNew);
    let mut model: Vec<u8> = Vec::new();
    for _ in 0..2000 {
        let offset = rng.random_range(0..20_000usize);
        match rng.random_range(0..10) {
            0 => {
                model.resize(offset, 0);
                file.set_len(offset as u64).unwrap();
            }
            1 => file.sync_data().unwrap(),
            _ => {
                let bytes = vec![rng.random(); rng.random_range(0..9000)];
                file.write_at(&bytes, offset as u64).unwrap();
                if !bytes.is_empty() || model.len() < offset {
                    model.resize(model.len().max(offset + bytes.len()), 0);
                }
                model[offset..offset + bytes.len()].copy_from_slice(&bytes);
            }
        }
        assert!(content(&disk, "f").unwrap() == model);
    }
    file.sync_data().unwrap();
    disk.sync_dir("").unwrap();
    let (after, report) = disk.crash(&mut rng, CrashFaults::all_lost());
    assert_eq!(report, CrashReport::default());
    assert!(content(&after, "f").unwrap() == model);
}
