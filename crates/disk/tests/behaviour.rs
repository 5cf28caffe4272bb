//! The same tests for both disks: the simulated one must behave like the real one.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{ErrorKind, IoSliceMut};
use std::sync::Arc;

use disk::{Access, AlignedBuf, Disk, DiskFile, DiskOp, OpenOptions, RealDisk, SimDisk};

/// Runs a test on a real directory and on a simulated disk. The directory lies in the build's output: /tmp may be a
/// tmpfs without direct I/O.
fn on_both(test: impl Fn(&dyn Disk)) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    test(&RealDisk::open(folder.path()).unwrap());
    test(&SimDisk::new(1));
}

fn open(disk: &dyn Disk, path: &str, access: Access) -> Arc<dyn DiskFile> {
    disk.open(path, OpenOptions { access, direct: false }).unwrap()
}

fn open_direct(disk: &dyn Disk, path: &str, access: Access) -> Arc<dyn DiskFile> {
    disk.open(path, OpenOptions { access, direct: true }).unwrap()
}

fn kind_of<T>(result: Result<T, disk::DiskError>) -> (DiskOp, ErrorKind) {
    let Err(e) = result else { panic!("it worked") };
    (e.op, e.source.kind())
}

#[test]
fn bytes_are_read_back_where_they_were_written() {
    on_both(|disk| {
        let file = open(disk, "a", Access::CreateNew);
        file.write_at(b"hello", 3).unwrap();
        file.write_at(b"j", 3).unwrap();
        assert_eq!(file.len().unwrap(), 8);
        let mut buf = [9; 16];
        assert_eq!(file.read_at(&mut buf, 0).unwrap(), 8);
        assert_eq!(&buf[..9], b"\0\0\0jello\x09");
        assert_eq!(file.read_at(&mut buf, 8).unwrap(), 0);
        assert_eq!(file.read_at(&mut buf, 1 << 40).unwrap(), 0);
        file.write_at(&[1; 10_000], 4090).unwrap();
        let mut buf = vec![0; 10_010];
        assert_eq!(file.read_at(&mut buf, 4085).unwrap(), 10_005);
        assert_eq!(buf[..5], [0; 5]);
        assert!(buf[5..10_005].iter().all(|b| *b == 1));
        file.sync_data().unwrap();
    });
}

#[test]
fn bytes_before_the_next_data_are_zeros() {
    on_both(|disk| {
        let file = open(disk, "holes", Access::CreateNew);
        file.set_len(64 << 20).unwrap();
        file.write_at(b"x", 40 << 20).unwrap();
        let there = 40 << 20;
        for offset in [0, 1 << 20, there - 1, there] {
            let next = file.next_data(offset).unwrap().unwrap();
            assert!((offset..=there).contains(&next), "{offset}: {next}");
        }
        for offset in [64 << 20, 1 << 40] {
            assert_eq!(file.next_data(offset).unwrap(), None);
        }
    });
    // A file system that knows its holes jumps there.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = open(&RealDisk::open(folder.path()).unwrap(), "holes", Access::CreateNew);
    file.set_len(1 << 43).unwrap();
    file.write_at(b"x", 1 << 42).unwrap();
    assert!(file.next_data(1 << 20).unwrap().unwrap() > (1 << 42) - (1 << 20));
    assert_eq!(file.next_data((1 << 42) + (1 << 20)).unwrap(), None);
}

#[test]
fn vectored_reads_fill_one_buffer_after_the_other() {
    on_both(|disk| {
        let file = open(disk, "v", Access::CreateNew);
        let bytes: Vec<u8> = (0..9000u32).map(|i| (i % 251) as u8).collect();
        file.write_at(&bytes, 0).unwrap();
        let (mut a, mut b, mut c) = (vec![0; 10], vec![0; 5000], vec![0; 5000]);
        let mut bufs = [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b), IoSliceMut::new(&mut c)];
        assert_eq!(file.read_vectored_at(&mut bufs, 100).unwrap(), 8900);
        assert_eq!(a, bytes[100..110]);
        assert_eq!(b, bytes[110..5110]);
        assert_eq!(c[..3890], bytes[5110..]);
        // More buffers than one system call takes.
        let mut many = vec![[0u8; 2]; 3000];
        let mut bufs: Vec<_> = many.iter_mut().map(|b| IoSliceMut::new(b)).collect();
        assert_eq!(file.read_vectored_at(&mut bufs, 0).unwrap(), 6000);
        assert_eq!(many.concat(), bytes[..6000]);
    });
}

#[test]
fn what_is_cached_is_read_without_the_disk() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let disks: [(bool, Box<dyn Disk>); 2] =
        [(true, Box::new(RealDisk::open(folder.path()).unwrap())), (false, Box::new(SimDisk::new(1)))];
    for (is_real, disk) in disks {
        let disk = &*disk;
        let file = open(disk, "cached", Access::CreateNew);
        let data: Vec<u8> = (0..100_000_u32).map(|at| (at / 7).to_le_bytes()[0]).collect();
        file.write_at(&data, 0).unwrap();
        // A simulated disk cannot tell.
        let mut buf = vec![0; 9000];
        let cached = file.read_cached_at(&mut buf, 95_000).unwrap();
        assert!(cached == Some(5000) || !is_real && cached.is_none(), "{cached:?}");
        assert!(cached.is_none() || buf[..5000] == data[95_000..]);
        file.sync_data().unwrap();
        file.drop_cache(0, 0);
        assert_eq!(file.read_cached_at(&mut buf, 5000).unwrap(), None);
        file.will_read(5000, 9000);
        file.will_read(1 << 50, 1 << 20);
        file.will_read(u64::MAX, u64::MAX);
        file.will_read(0, 0);
        assert_eq!(file.read_at(&mut buf, 5000).unwrap(), 9000);
        assert_eq!(buf, data[5000..14_000]);
        let cached = file.read_cached_at(&mut buf, 5000).unwrap();
        assert!(cached == Some(9000) || !is_real && cached.is_none(), "{cached:?}");
    }
}

#[test]
fn a_read_tells_whether_it_waited() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let disks: [(bool, Box<dyn Disk>); 2] =
        [(true, Box::new(RealDisk::open(folder.path()).unwrap())), (false, Box::new(SimDisk::new(1)))];
    for (is_real, disk) in disks {
        let file = open(&*disk, "waits", Access::CreateNew);
        let data: Vec<u8> = (0..100_000_u32).map(|at| (at / 7).to_le_bytes()[0]).collect();
        file.write_at(&data, 0).unwrap();
        let fetch = |offset: usize| {
            let (mut one, mut two) = ([0; 3000], [0; 7000]);
            let mut bufs = [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)];
            let fetched = file.fetch_vectored_at(&mut bufs, offset as u64).unwrap();
            // Behind the end of the file, the caller fills them with zeros.
            assert_eq!(bufs.map(|buf| buf.len()), [3000, 7000]);
            let end = (offset + 10_000).min(data.len());
            assert_eq!([&one[..], &two[..]].concat()[..fetched.bytes], data[offset.min(end)..end], "at {offset}");
            fetched.waited
        };
        assert!(!fetch(0));
        // At the end of the file there is nothing to wait for.
        assert!(!fetch(95_000) && !fetch(200_000));
        file.sync_data().unwrap();
        file.drop_cache(0, 0);
        // A simulated disk cannot tell.
        assert_eq!(fetch(5000), is_real);
        assert!(!fetch(5000));
    }
}

#[test]
fn direct_files_take_aligned_calls_only() {
    on_both(|disk| {
        let file = open_direct(disk, "d", Access::CreateNew);
        let mut buf = AlignedBuf::new(8192);
        buf.fill(7);
        file.write_at(&buf, 4096).unwrap();
        if !file.is_direct() {
            return; // without direct I/O only the fallback can be tested
        }
        assert_eq!(kind_of(file.write_at(&buf[..100], 0)), (DiskOp::Write, ErrorKind::InvalidInput));
        assert_eq!(kind_of(file.write_at(&buf, 100)), (DiskOp::Write, ErrorKind::InvalidInput));
        assert_eq!(kind_of(file.write_at(&buf[512..4608], 8192 + 17)), (DiskOp::Write, ErrorKind::InvalidInput));
        assert_eq!(kind_of(file.read_at(&mut buf[..100], 4097)), (DiskOp::Read, ErrorKind::InvalidInput));
        // An ordinary handle makes an unaligned length; a direct read then ends early.
        open(disk, "d", Access::ReadWrite).write_at(b"tail", 12_288).unwrap();
        let mut buf = AlignedBuf::new(16_384);
        assert_eq!(file.read_at(&mut buf, 4096).unwrap(), 8196);
        assert_eq!(&buf[8190..8196], b"\x07\x07tail");
    });
}

#[test]
fn reserving_space_keeps_the_length() {
    on_both(|disk| {
        let file = open(disk, "r", Access::CreateNew);
        file.write_at(b"abc", 0).unwrap();
        file.allocate(0, 1 << 20).unwrap();
        file.allocate(0, 0).unwrap();
        assert_eq!(file.len().unwrap(), 3);
        file.set_len(10_000).unwrap();
        let mut buf = [1; 4];
        assert_eq!(file.read_at(&mut buf, 9998).unwrap(), 2);
        assert_eq!(buf, [0, 0, 1, 1]);
        file.set_len(1).unwrap();
        file.set_len(3).unwrap();
        assert_eq!(file.read_at(&mut buf, 0).unwrap(), 3);
        assert_eq!(&buf[..3], b"a\0\0");
        file.drop_cache(0, 1 << 20);
    });
}

#[test]
fn names_are_made_renamed_and_removed() {
    on_both(|disk| {
        disk.create_dir_all("objects/ab/cd").unwrap();
        disk.create_dir_all("objects/ab/cd").unwrap();
        open(disk, "objects/ab/cd/one", Access::CreateNew).write_at(b"1", 0).unwrap();
        assert_eq!(
            kind_of(disk.open("objects/ab/cd/one", OpenOptions { access: Access::CreateNew, direct: true })),
            (DiskOp::Create, ErrorKind::AlreadyExists)
        );
        assert_eq!(
            kind_of(disk.open("objects/none", OpenOptions { access: Access::ReadWrite, direct: false })),
            (DiskOp::Open, ErrorKind::NotFound)
        );
        assert_eq!(kind_of(disk.remove("objects/none")), (DiskOp::Remove, ErrorKind::NotFound));
        let held = open(disk, "objects/ab/cd/one", Access::Read);
        assert!(held.write_at(b"x", 0).is_err(), "it was opened for reading");
        open(disk, "two", Access::CreateNew).write_at(b"22", 0).unwrap();
        disk.rename("two", "objects/ab/cd/one").unwrap();
        assert_eq!(disk.len_of("two").unwrap(), None);
        assert_eq!(disk.len_of("objects/ab/cd/one").unwrap(), Some(2));
        let mut buf = [0];
        assert_eq!((held.read_at(&mut buf, 0).unwrap(), buf), (1, *b"1"), "the old one lives on in its handle");
        disk.sync_dir("objects/ab/cd").unwrap();
        disk.sync_dir("").unwrap();
        open(disk, "objects/a file", Access::CreateNew);
        let names: Vec<_> = disk.list("objects").unwrap().into_iter().map(|e| (e.name, e.is_dir)).collect();
        assert_eq!(names, [("a file".to_owned(), false), ("ab".to_owned(), true)]);
        disk.remove("objects/ab/cd/one").unwrap();
        assert!(disk.list("objects/ab/cd").unwrap().is_empty());
        assert_eq!(kind_of(disk.list("none")), (DiskOp::List, ErrorKind::NotFound));
        assert_eq!(kind_of(disk.create_dir_all("objects/a file/x")).1, ErrorKind::NotADirectory);
        let space = disk.space().unwrap();
        assert!(space.free > 0 && space.free <= space.total);
    });
}

/// What a disk does that is mounted over a part: its path names another directory.
#[test]
fn all_operations_lead_to_the_parts_that_are_kept() {
    let temp = tempfile::tempdir().unwrap();
    let disk = RealDisk::open(temp.path()).unwrap();
    disk.create_dir_all("store/objects").unwrap();
    disk.root().keep(&["store", "store/objects"]);
    std::fs::rename(temp.path().join("store"), temp.path().join("moved")).unwrap();
    std::fs::create_dir_all(temp.path().join("store/objects")).unwrap();

    let new = OpenOptions { access: Access::CreateNew, direct: false };
    disk.open("store/RUNS", new).unwrap().write_at(b"7", 0).unwrap();
    disk.open("store/objects/a", new).unwrap();
    disk.create_dir_all("store/objects/x/y").unwrap();
    disk.rename("store/objects/a", "store/objects/x/y/b").unwrap();
    disk.rename("store/RUNS", "store/objects/c").unwrap();
    disk.open("store/objects/d", new).unwrap();
    disk.remove("store/objects/d").unwrap();
    for dir in ["", "store", "store/objects", "store/objects/x/y"] {
        disk.sync_dir(dir).unwrap();
    }
    let names = |path: &str| disk.list(path).unwrap().into_iter().map(|entry| entry.name).collect::<Vec<_>>();
    assert_eq!((names("store"), names("store/objects")), (vec!["objects".to_owned()], vec!["c".into(), "x".into()]));
    assert_eq!(names("store/objects/x/y"), ["b"]);
    assert_eq!((disk.len_of("store/objects/c").unwrap(), disk.len_of("store/RUNS").unwrap()), (Some(1), None));
    assert!(temp.path().join("moved/objects/x/y/b").exists());
    assert_eq!(std::fs::read_dir(temp.path().join("store/objects")).unwrap().count(), 0);
}
