//! First reads: all bytes as written, past the page cache, once for each replica, and the memory is there for what is written.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use types::PAGE_SIZE;

use super::world::{World, bytes, replica, small_config};
use crate::first_read::ReadBefore;
use crate::{FreshMemory, Reader, RecentPages, RecentStats, StoreConfig, StoreError};

const MIB: usize = 1 << 20;
const LEN: usize = 9 * MIB + 5000;
/// The blocks that all first reads may have are a quarter of this: those of two.
const MEMORY: u64 = 256 << 20;

fn world(memory: u64) -> (World, Arc<RecentPages>) {
    world_with(RecentPages::new(memory, FreshMemory::AtOnce))
}

fn world_with(recent: RecentPages) -> (World, Arc<RecentPages>) {
    let recent = Arc::new(recent);
    let config = StoreConfig { recent: Some(Arc::clone(&recent)), first_read_min: LEN as u64, ..small_config() };
    let world = World::open(disk::SimDisk::new(1), config).unwrap();
    for object in 1..4 {
        world.put(object, &bytes(object, LEN));
    }
    recent.forget_all();
    (world, recent)
}

fn reader(world: &World, object: u64) -> Arc<Reader> {
    world.store.open_read(replica(object)).unwrap()
}

/// Bytes fetched, from memory, and from files, since `before`.
fn since(recent: &RecentPages, before: RecentStats) -> [u64; 3] {
    let now = recent.stats();
    let fetched = now.fetched_bytes - before.fetched_bytes;
    [fetched, now.served_bytes - before.served_bytes, now.missed_bytes - before.missed_bytes]
}

#[test]
fn a_first_read_has_all_bytes_and_reads_each_once() {
    let (world, recent) = world(MEMORY);
    let (data, before) = (bytes(1, LEN), recent.stats());
    let first = reader(&world, 1);
    let mut back = vec![0; LEN];
    assert_eq!(first.read(0, &mut back[..MIB + 3]).unwrap(), MIB + 3);
    assert_eq!(since(&recent, before)[0], 0, "it has not begun");
    assert!(first.begin_first_read(MIB as u64 + 3));
    let mut at = MIB + 3;
    for (number, step) in (0..).zip([100, 700_000, 3 * MIB + 77, 5, MIB].iter().cycle()) {
        // Some blocks are fetched ahead, by another thread.
        if number % 2 == 0 {
            let ahead = (at as u64 / Reader::FETCH_BYTES + 1) * Reader::FETCH_BYTES;
            std::thread::scope(|scope| scope.spawn(|| first.fetch_ahead(ahead)).join().unwrap());
        }
        let end = (at + step).min(LEN);
        assert_eq!(first.read(at as u64, &mut back[at..end]).unwrap(), end - at);
        at = end;
        if at == LEN {
            break;
        }
    }
    assert!(back == data);
    let [fetched, served, missed] = since(&recent, before);
    let pages = LEN.next_multiple_of(PAGE_SIZE) as u64;
    assert_eq!(fetched, pages, "each block once");
    assert_eq!(served, 0, "nothing was there before");
    assert!(missed >= LEN as u64, "{missed}");
    // What it has fetched stays for the next one.
    drop(first);
    let before = recent.stats();
    assert!(world.read_all(1)[2 * MIB..] == data[2 * MIB..]);
    let [fetched, served, _] = since(&recent, before);
    assert!(fetched == 0 && served >= (LEN - 2 * MIB) as u64, "{served} from memory");
    recent.forget_all();
    let before = recent.stats();
    assert!(world.read_all(1) == data);
    assert_eq!(since(&recent, before)[..2], [0, 0], "nobody has begun a first read");
}

#[test]
fn when_the_memory_is_emptied_all_stores_have_first_reads_again() {
    let (world, recent) = world(MEMORY);
    let config = StoreConfig { recent: Some(Arc::clone(&recent)), first_read_min: LEN as u64, ..small_config() };
    let other = World::open(disk::SimDisk::new(2), config).unwrap();
    other.put(1, &bytes(1, LEN));
    for _ in 0..3 {
        recent.forget_all();
        for world in [&world, &other] {
            let first = reader(world, 1);
            assert!(first.begin_first_read(0));
            let before = recent.stats();
            first.fetch_ahead(0);
            assert_eq!(since(&recent, before)[0], Reader::FETCH_BYTES);
            drop(first);
            assert!(!reader(world, 1).begin_first_read(0), "it was read before");
        }
    }
}

#[test]
fn pages_with_checksums_come_from_a_first_read_too() {
    let (world, recent) = world(MEMORY);
    let [mut plain, mut framed] = [Vec::new(), Vec::new()];
    reader(&world, 1).read_pages(100, LEN as u32, &mut plain).unwrap();
    let (first, before) = (reader(&world, 1), recent.stats());
    assert!(first.begin_first_read(0));
    first.read_pages(100, LEN as u32, &mut framed).unwrap();
    assert!(plain == framed && since(&recent, before)[0] >= LEN as u64);
}

#[test]
fn it_is_for_long_replicas_without_a_writer_that_were_not_read_so_before() {
    let (world, _recent) = world(MEMORY);
    assert!(reader(&world, 1).begin_first_read(0));
    assert!(!reader(&world, 1).begin_first_read(0), "it was read before");
    world.put(4, &bytes(4, LEN - 1));
    assert!(!reader(&world, 4).begin_first_read(0), "it is too short");
    let writer = world.store.reopen(replica(2)).unwrap();
    let second = reader(&world, 2);
    assert!(!second.begin_first_read(0), "it has a writer");
    writer.complete().unwrap();
    assert!(second.begin_first_read(0) && second.begin_first_read(0), "it is on");
}

#[test]
fn all_first_reads_together_have_a_part_of_the_memory() {
    let (world, recent) = world(MEMORY);
    let [one, two, three] = [1, 2, 3].map(|object| reader(&world, object));
    assert!(one.begin_first_read(0) && two.begin_first_read(0) && !three.begin_first_read(0));
    one.end_first_read();
    one.fetch_ahead(0);
    assert_eq!(recent.stats().fetched_bytes, 0, "it has ended");
    world.put(4, &bytes(4, LEN));
    let four = reader(&world, 4);
    assert!(four.begin_first_read(0), "there is room again");
    let (small, _) = self::world(120 << 20);
    assert!(!reader(&small, 1).begin_first_read(0), "there is too little memory");
}

#[test]
fn a_read_elsewhere_takes_no_block() {
    let (world, recent) = world(MEMORY);
    let long = bytes(9, 40 * MIB);
    world.put(9, &long);
    recent.forget_all();
    let first = reader(&world, 9);
    assert!(first.begin_first_read(0));
    let mut back = [0; 100];
    assert_eq!(first.read(39 * MIB as u64, &mut back).unwrap(), 100);
    assert!(recent.stats().fetched_bytes == 0 && back == long[39 * MIB..][..100]);
    assert_eq!(first.read(MIB as u64, &mut back).unwrap(), 100);
    assert!(recent.stats().fetched_bytes == Reader::FETCH_BYTES && back == long[MIB..][..100]);
}

#[test]
fn a_damaged_page_is_not_shown() {
    let (world, recent) = world(MEMORY);
    let path = world.store.inner.objects.path(replica(1));
    assert!(world.disk.rot(&path, 5 * MIB as u64));
    let first = reader(&world, 1);
    assert!(first.begin_first_read(0));
    let mut back = vec![0; LEN];
    let read = first.read(0, &mut back);
    assert!(matches!(read, Err(StoreError::Checksum { .. })), "{read:?}");
    assert!(recent.stats().fetched_bytes >= 3 * Reader::FETCH_BYTES);
    // What is around it can be read.
    let before = &mut back[..5 * MIB / PAGE_SIZE * PAGE_SIZE];
    assert_eq!(first.read(0, before).unwrap(), before.len());
    assert!(*before == bytes(1, LEN)[..before.len()]);
}

#[test]
fn what_first_reads_have_fetched_gives_way_to_what_is_written() {
    let (world, recent) = world(MEMORY);
    let read = |object| {
        let first = reader(&world, object);
        assert!(first.begin_first_read(0));
        assert_eq!(first.read(0, &mut vec![0; LEN]).unwrap(), LEN);
        first
    };
    let is_here = |object: u64, len: usize| {
        let before = recent.stats();
        assert_eq!(reader(&world, object).read(0, &mut vec![0; len]).unwrap(), len);
        since(&recent, before)[2] == 0
    };
    drop(read(1));
    let goes_on = read(2);
    world.put(5, &bytes(5, LEN));
    assert!(is_here(1, LEN) && is_here(2, LEN) && is_here(5, LEN), "there is memory for all");
    // 128 blocks: all that is written takes those of the first read that has ended, and none of the other.
    let written: Vec<u64> = (10..33).collect();
    written.iter().for_each(|object| world.put(*object, &bytes(5, LEN)));
    assert!(!is_here(1, LEN) && is_here(2, LEN) && is_here(5, LEN) && is_here(32, LEN));
    drop(goes_on);
    world.put(40, &bytes(5, LEN));
    assert!(!is_here(2, LEN) && is_here(5, LEN) && is_here(40, LEN));
    assert!(recent.stats().bytes <= MEMORY);
}

#[test]
fn what_it_has_fetched_is_there_when_it_is_read_however_little_memory_is_ready() {
    let (world, recent) = world_with(RecentPages::new(MEMORY, FreshMemory::Prepared));
    world.put(9, &bytes(9, 60 * MIB));
    // A node that has just started has no memory yet.
    let recent = {
        recent.forget_all();
        Arc::new(RecentPages::new(MEMORY, FreshMemory::Prepared))
    };
    let config = StoreConfig { recent: Some(Arc::clone(&recent)), first_read_min: LEN as u64, ..small_config() };
    let world = World::open(world.disk.kill(), config).unwrap();
    let first = reader(&world, 9);
    assert!(first.begin_first_read(0));
    let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while recent.stats().fetched_bytes == 0 {
        first.fetch_ahead(0);
        assert!(std::time::Instant::now() < until, "{:?}", recent.stats());
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let (mut back, step) = (vec![0; 60 * MIB], Reader::FETCH_BYTES as usize);
    for at in (0..60 * MIB).step_by(step) {
        (1..9).for_each(|ahead| first.fetch_ahead((at + ahead * step) as u64));
        assert_eq!(first.read(at as u64, &mut back[at..at + step]).unwrap(), step);
    }
    assert!(back == bytes(9, 60 * MIB));
    let fetched = recent.stats().fetched_bytes;
    // Each byte came from the file once: by a fetch, or by a read.
    let from_files = recent.stats().missed_bytes;
    assert!(from_files <= 60 * MIB as u64, "{from_files}");
    assert!(fetched <= 60 * MIB as u64, "nothing was fetched twice: {fetched}");
}

#[test]
fn what_was_written_is_not_read_over() {
    let (world, recent) = world(MEMORY);
    // A few pages are in memory, and the disk has lost one of them.
    let writer = world.store.reopen(replica(1)).unwrap();
    writer.write(MIB as u64, &[7; 3 * PAGE_SIZE]).unwrap();
    let completed = writer.complete().unwrap();
    world.journal.sync_to(completed.seq).unwrap();
    let first = reader(&world, 1);
    assert!(world.disk.rot(&world.store.inner.objects.path(replica(1)), MIB as u64));
    assert!(first.begin_first_read(0));
    first.fetch_ahead(0);
    let mut back = [0; 3 * PAGE_SIZE];
    let read = first.read(MIB as u64, &mut back);
    assert!(read.is_ok() && back == [7; 3 * PAGE_SIZE], "{read:?}");
    assert_eq!(recent.stats().fetched_bytes, 0);
}

/// The version of a file's content, which all of its pages have.
fn version(page: &[u8]) -> u8 {
    assert!(page.iter().all(|byte| *byte == page[0]), "a page of two versions");
    page[0]
}

#[test]
fn beside_changes_no_outdated_page_is_read() {
    const PAGES: usize = 900;
    let (world, _recent) = world(MEMORY);
    let content = |version| vec![version; PAGES * PAGE_SIZE];
    let inner = &world.store.inner;
    world.put(9, &content(1));
    let newest = AtomicU8::new(1);
    let is_over = AtomicBool::new(false);
    let read = |reader: &Reader, page: usize, pages: usize| {
        let oldest = newest.load(Ordering::SeqCst);
        let mut back = vec![0; pages * PAGE_SIZE];
        let got = reader.read((page * PAGE_SIZE) as u64, &mut back).unwrap();
        for page in back[..got].chunks(PAGE_SIZE) {
            assert!(version(page) >= oldest, "{} after {oldest}", page[0]);
        }
    };
    std::thread::scope(|scope| {
        for part in 0..2 {
            let (world, read, is_over) = (&world, &read, &is_over);
            scope.spawn(move || {
                while !is_over.load(Ordering::SeqCst) {
                    *inner.read_before.lock() = ReadBefore::default();
                    let first = reader(world, 9);
                    // A replica with a writer has none, and neither have two readers at once.
                    let _ = first.begin_first_read(0);
                    for block in 0..2 {
                        first.fetch_ahead(block * Reader::FETCH_BYTES);
                    }
                    (part * 7..PAGES).step_by(131).for_each(|page| read(&first, page, 60));
                }
            });
        }
        // Whatever happens, the readers end.
        let changed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for version in 2..12 {
                let writer = world.store.reopen(replica(9)).unwrap();
                for (at, part) in (0..).step_by(32 << 10).zip(content(version).chunks(32 << 10)) {
                    writer.write(at, part).unwrap();
                }
                let completed = writer.complete().unwrap();
                world.journal.sync_to(completed.seq).unwrap();
                newest.store(version, Ordering::SeqCst);
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
        }));
        is_over.store(true, Ordering::SeqCst);
        changed.unwrap();
    });
    assert_eq!(version(&world.read_all(9)), 11);
}
