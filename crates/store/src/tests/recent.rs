//! Recently written pages in memory: readers get them without the disk, and never an outdated byte.

use std::collections::BTreeMap;
use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use types::{PAGE_SIZE, PrincipalId};

use super::world::{World, bytes, replica, small_config, with};
use crate::first_read::ReadBefore;
use crate::{FreshMemory, PlantedBug, RecentPages, RecentStats, Scrubbed, Scrubber, StoreConfig, Writer};

const MIB: usize = 1 << 20;
const LEN: usize = 3 * MIB + 5000;

fn world(recent: &Arc<RecentPages>) -> World {
    let config = StoreConfig { recent: Some(Arc::clone(recent)), ..small_config() };
    World::open(disk::SimDisk::new(1), config).unwrap()
}

fn path(world: &World, object: u64) -> String {
    world.store.inner.objects.path(replica(object))
}

/// Served from memory, and read from files, since `before`.
fn since(recent: &RecentPages, before: RecentStats) -> (u64, u64) {
    let now = recent.stats();
    (now.served_bytes - before.served_bytes, now.missed_bytes - before.missed_bytes)
}

#[test]
fn a_reader_after_the_writer_needs_no_disk() {
    let recent = Arc::new(RecentPages::new(16 << 20, FreshMemory::AtOnce));
    let world = world(&recent);
    let data = bytes(1, LEN);
    let writer = world.create(1, None);
    for (at, part) in (0..).step_by(70_000).zip(data.chunks(70_000)) {
        writer.write(at, part).unwrap();
    }
    writer.sync().unwrap();
    // A follower of what is still being written; its last page is not in the file yet.
    let follower = world.store.open_read(replica(1)).unwrap();
    let mut back = vec![0; LEN];
    let before = recent.stats();
    assert_eq!(follower.read(0, &mut back[..3 * MIB]).unwrap(), 3 * MIB);
    assert_eq!(back[..3 * MIB], data[..3 * MIB]);
    assert_eq!(since(&recent, before).1, 0, "nothing came from the disk");
    writer.complete().unwrap();
    // All of it, in several ways.
    let before = recent.stats();
    assert_eq!(world.read_all(1), data);
    let reader = world.store.open_read(replica(1)).unwrap();
    let mut framed = Vec::new();
    assert_eq!(reader.read_pages(0, LEN as u32, &mut framed).unwrap(), LEN);
    let at_rest = reader.at_rest().unwrap().unwrap();
    let mut room = vec![0; 9000 + crate::AtRest::MARGIN];
    for offset in [0, 2 * MIB - 100, LEN - 9000] {
        assert!(at_rest.read(offset as u64, 9000, &mut room, || panic!("it needs no disk")).unwrap());
        assert_eq!(room[..9000], data[offset..offset + 9000]);
    }
    let (served, missed) = since(&recent, before);
    assert!(served >= 2 * LEN as u64 && missed == 0, "{served} from memory, {missed} from the disk");
}

#[test]
fn what_only_the_disk_has_lost_is_read_from_memory_and_found_by_the_scrub() {
    let recent = Arc::new(RecentPages::new(16 << 20, FreshMemory::AtOnce));
    let world = world(&recent);
    world.put(1, &bytes(1, LEN));
    assert!(world.disk.rot(&path(&world, 1), 2 * MIB as u64));
    assert_eq!(world.read_all(1), bytes(1, LEN));
    assert!(world.store.scrub(replica(1), &mut Scrubber::default(), &mut |_| true).is_err());
    assert!(world.store.verify(replica(1), &mut |_| true).is_err());
    assert!(world.disk.rot(&path(&world, 1), 2 * MIB as u64));
    let scrubbed = world.store.scrub(replica(1), &mut Scrubber::default(), &mut |_| true).unwrap();
    assert_eq!(scrubbed, Scrubbed::Whole(LEN as u64));
    world.store.verify(replica(1), &mut |_| true).unwrap();
}

#[test]
fn an_outdated_page_is_recognized_and_forgotten() {
    let recent = Arc::new(RecentPages::new(16 << 20, FreshMemory::AtOnce));
    let world = world(&recent);
    world.put(1, &bytes(1, LEN));
    let files = world.store.inner.objects.open(replica(1), disk::Access::Read).unwrap().unwrap();
    files.keep_recent(MIB as u64, &bytes(7, PAGE_SIZE));
    assert_eq!(world.read_all(1), bytes(1, LEN));
    let before = recent.stats();
    assert_eq!(world.read_all(1), bytes(1, LEN));
    assert!(since(&recent, before).1 > 0, "the pages around it were forgotten");
    // The same for short reads.
    files.keep_recent(0, &bytes(7, PAGE_SIZE));
    let reader = world.store.open_read(replica(1)).unwrap();
    let at_rest = reader.at_rest().unwrap().unwrap();
    let mut room = vec![0; 100 + crate::AtRest::MARGIN];
    assert!(!at_rest.read(5, 100, &mut room, || ()).unwrap(), "the caller reads it again");
    let mut back = [0; 100];
    assert_eq!(reader.read(5, &mut back).unwrap(), 100);
    assert_eq!(back, bytes(1, LEN)[5..105]);
}

/// What is lent of a range; `None` if it must be read.
fn lent(at_rest: &crate::AtRest, offset: usize, len: usize) -> Option<Vec<u8>> {
    let lent = at_rest.lend(offset as u64, len).unwrap()?;
    assert!(lent.parts().all(|part| !part.is_empty()));
    Some(lent.parts().collect::<Vec<_>>().concat())
}

#[test]
fn ranges_are_lent_as_written_or_not_at_all() {
    let recent = Arc::new(RecentPages::new(16 << 20, FreshMemory::AtOnce));
    let world = world(&recent);
    let data = bytes(1, LEN);
    world.put(1, &data);
    let at_rest = world.store.open_read(replica(1)).unwrap().at_rest().unwrap().unwrap();
    let before = recent.stats();
    // Inside a page, over the border of two blocks, over three of them, at the end.
    for offset in [0, 1, 4095, 4096, 8191, 2 * MIB - 4097, 2 * MIB - 1, 2 * MIB, LEN - 4097, LEN - 1] {
        for len in [1, 2, 4096, 8192, 65_000, 3 * MIB].into_iter().filter(|len| offset + len <= LEN) {
            assert_eq!(lent(&at_rest, offset, len).as_deref(), Some(&data[offset..offset + len]), "{len} at {offset}");
        }
    }
    assert!(since(&recent, before).0 > 0 && since(&recent, before).1 == 0);
    assert_eq!((lent(&at_rest, LEN - 10, 11), lent(&at_rest, usize::MAX, 1), lent(&at_rest, 0, 0)), (None, None, None));
    // A page that is out of date, beside the requested bytes.
    let files = world.store.inner.objects.open(replica(1), disk::Access::Read).unwrap().unwrap();
    files.keep_recent(MIB as u64, &bytes(7, PAGE_SIZE));
    assert_eq!(lent(&at_rest, MIB + PAGE_SIZE - 1, 2), None);
    assert_eq!(lent(&at_rest, MIB + PAGE_SIZE, 2).as_deref(), Some(&data[MIB + PAGE_SIZE..][..2]));
    // Pages that are not there.
    files.forget_recent_pages(0, 1);
    assert_eq!(lent(&at_rest, 10, 10), None);
    files.forget_recent();
    assert_eq!(lent(&at_rest, 3 * MIB, 10), None);
}

#[test]
fn a_page_beside_lent_ones_is_mended_without_waiting_for_them() {
    let recent = Arc::new(RecentPages::new(16 << 20, FreshMemory::AtOnce));
    let world = world(&recent);
    let data = bytes(1, LEN);
    world.put(1, &data);
    let files = world.store.inner.objects.open(replica(1), disk::Access::Read).unwrap().unwrap();
    files.keep_recent(PAGE_SIZE as u64, &bytes(7, PAGE_SIZE));
    let reader = world.store.open_read(replica(1)).unwrap();
    let at_rest = reader.at_rest().unwrap().unwrap();
    let held = at_rest.lend(0, PAGE_SIZE).unwrap().unwrap();
    // The same thread finds that the next page is out of date, forgets it, and writes to the same block.
    let mut back = vec![0; PAGE_SIZE];
    assert_eq!(reader.read(PAGE_SIZE as u64, &mut back).unwrap(), PAGE_SIZE);
    assert_eq!(back, data[PAGE_SIZE..2 * PAGE_SIZE]);
    files.keep_recent(0, &bytes(8, PAGE_SIZE));
    assert_eq!(held.parts().collect::<Vec<_>>().concat(), data[..PAGE_SIZE]);
    assert_eq!(lent(&at_rest, 0, 10), None);
}

#[test]
fn only_the_comparison_keeps_an_outdated_page_from_being_lent() {
    let recent = Arc::new(RecentPages::new(16 << 20, FreshMemory::AtOnce));
    let careless = StoreConfig { recent: Some(Arc::clone(&recent)), ..with(Some(PlantedBug::SkipCrc)) };
    let world = World::open(disk::SimDisk::new(1), careless).unwrap();
    world.put(1, &bytes(1, LEN));
    let files = world.store.inner.objects.open(replica(1), disk::Access::Read).unwrap().unwrap();
    files.keep_recent(MIB as u64, &bytes(7, PAGE_SIZE));
    let at_rest = world.store.open_read(replica(1)).unwrap().at_rest().unwrap().unwrap();
    assert_eq!(lent(&at_rest, MIB, PAGE_SIZE), Some(bytes(7, PAGE_SIZE)));
}

#[test]
fn changes_in_place_and_truncations_are_seen() {
    let recent = Arc::new(RecentPages::new(16 << 20, FreshMemory::AtOnce));
    let world = world(&recent);
    let mut data = bytes(1, LEN);
    world.put(1, &data);
    let writer = world.store.reopen(replica(1)).unwrap();
    for (at, len) in [(100, 50), (MIB, 2 * PAGE_SIZE), (2 * MIB - 10, 20)] {
        data[at..at + len].copy_from_slice(&bytes(9, len));
        writer.write(at as u64, &bytes(9, len)).unwrap();
        assert_eq!(world.read_all(1), data);
    }
    writer.truncate(MIB as u64 + 100).unwrap();
    writer.truncate(LEN as u64).unwrap();
    data[MIB + 100..].fill(0);
    assert_eq!(world.read_all(1), data);
    let completed = writer.complete().unwrap();
    world.journal.sync_to(completed.seq).unwrap();
    assert_eq!(world.read_all(1), data);
    world.store.delete(replica(1)).unwrap();
    for _ in 0..20 {
        world.store.tick().unwrap();
    }
    world.put(2, &bytes(2, LEN));
    assert_eq!(world.read_all(2), bytes(2, LEN));
}

#[test]
fn stores_share_the_memory_and_not_the_pages() {
    let recent = Arc::new(RecentPages::new(16 << 20, FreshMemory::AtOnce));
    let (one, two) = (world(&recent), world(&recent));
    one.put(1, &bytes(1, LEN));
    two.put(1, &bytes(2, LEN));
    let before = recent.stats();
    assert_eq!((one.read_all(1), two.read_all(1)), (bytes(1, LEN), bytes(2, LEN)));
    assert_eq!(since(&recent, before).1, 0);
    assert_eq!(recent.stats().bytes, 8 << 20);
}

/// A replica of a random run, with the bytes that it must have.
struct Replica {
    content: Vec<u8>,
    writer: Option<Arc<Writer>>,
    /// The bytes at the beginning of the open checkpoint.
    before: Option<Vec<u8>>,
}

/// Random changes of a few replicas, and a comparison with all bytes after each. Returns the bytes that came from memory, how often some were
/// lent, and how often a first read began, or the first difference.
fn random_run(seed: u64, planted: Option<PlantedBug>) -> Result<(u64, usize, u64), String> {
    const MOST: usize = 200_000;
    let mut rng = SmallRng::seed_from_u64(seed);
    // With little memory there is no first read.
    let blocks = if rng.random_bool(0.5) { rng.random_range(1..4) } else { 80 };
    let recent = Arc::new(RecentPages::new(blocks * (2 << 20), FreshMemory::AtOnce));
    let config = || StoreConfig { recent: Some(Arc::clone(&recent)), first_read_min: 1, ..with(planted) };
    let mut first_reader = None;
    let mut world = World::open(disk::SimDisk::new(seed), config()).unwrap();
    let (mut replicas, mut next, mut lends, mut first_reads) = (BTreeMap::<u64, Replica>::new(), 1, 0, 0);
    for turn in 0..120 {
        let picked = replicas.keys().copied().nth(rng.random_range(0..4));
        let kind = rng.random_range(0..24);
        match (picked, kind) {
            (None, _) => {
                let writer = Some(world.create(next, None));
                replicas.insert(next, Replica { content: Vec::new(), writer, before: None });
                next += 1;
            }
            (Some(object), 0) => {
                replicas.remove(&object);
                world.store.delete(replica(object)).unwrap();
                world.journal.sync_to(world.journal.appended()).unwrap();
                world.store.tick().unwrap();
            }
            // A stop of the process: what is there is complete, or written again.
            (Some(_), 1) => {
                for object in replicas.iter().filter(|(_, it)| it.writer.is_some()).map(|(object, _)| *object) {
                    world.store.delete(replica(object)).unwrap();
                }
                replicas.retain(|_, it| it.writer.is_none());
                first_reader = None;
                world.journal.sync_to(world.journal.appended()).unwrap();
                world = World::open(world.disk.kill(), config()).unwrap();
            }
            (Some(_), 2) => world.store.tick().unwrap(),
            (Some(object), _) => {
                let it = replicas.get_mut(&object).unwrap();
                let Some(writer) = it.writer.clone() else {
                    it.writer = Some(world.store.reopen(replica(object)).unwrap());
                    continue;
                };
                let at = rng.random_range(0..MOST);
                match kind {
                    3 | 4 if it.before.is_none() => {
                        let completed = writer.complete().unwrap();
                        world.journal.sync_to(completed.seq).unwrap();
                        it.writer = None;
                    }
                    5 => drop(writer.sync().unwrap()),
                    6..9 => {
                        let len = if rng.random_bool(0.5) { at } else { it.content.len() / 2 };
                        it.content.resize(len, 0);
                        if writer.truncate(len as u64).is_err() {
                            // The checkpoint has no room for what is cut off.
                            replicas.remove(&object);
                            world.store.delete(replica(object)).unwrap();
                        }
                    }
                    9 if it.before.is_none() => {
                        if writer.begin_checkpoint().is_ok() {
                            it.before = Some(it.content.clone());
                        }
                    }
                    10 if it.before.is_some() => {
                        writer.commit_checkpoint().unwrap();
                        it.before = None;
                    }
                    11 if it.before.is_some() => {
                        writer.roll_back().unwrap();
                        it.content = it.before.take().unwrap();
                    }
                    _ => {
                        let at = if rng.random_bool(0.6) { at / PAGE_SIZE * PAGE_SIZE } else { at };
                        let len = rng.random_range(1..60_000);
                        let data = bytes(seed + turn, len);
                        if writer.write(at as u64, &data).is_ok() {
                            it.content.resize(it.content.len().max(at + len), 0);
                            it.content[at..at + len].copy_from_slice(&data);
                        } else {
                            // Too many ranges, or too much in a checkpoint.
                            replicas.remove(&object);
                            world.store.delete(replica(object)).unwrap();
                        }
                    }
                }
            }
        }
        if let Some(object) = picked.filter(|_| rng.random_bool(0.3)) {
            *world.store.inner.read_before.lock() = ReadBefore::default();
            first_reader = world.store.open_read(replica(object)).ok();
            if first_reader.as_ref().is_some_and(|reader| reader.begin_first_read(0)) {
                first_reads += 1;
                recent.forget_all();
            }
        }
        // It fetches the block if it is not there, whoever has changed the replica meanwhile.
        first_reader.iter().for_each(|reader| reader.fetch_ahead(0));
        for (object, it) in &replicas {
            let reader = match it.writer {
                Some(_) => world.store.open_read_of_writer(replica(*object)).unwrap(),
                None => world.store.open_read(replica(*object)).unwrap(),
            };
            let mut back = vec![0; it.content.len()];
            let got = reader.read(0, &mut back).map_err(|error| format!("turn {turn}: {error}"))?;
            if got != back.len() || back != it.content {
                return Err(format!("turn {turn}, object {object}: {got} bytes, which differ"));
            }
            let Some(at_rest) = reader.at_rest().unwrap() else { continue };
            for _ in 0..if it.content.is_empty() { 0 } else { 5 } {
                let at = rng.random_range(0..it.content.len());
                let len = rng.random_range(1..=it.content.len() - at);
                let found = lent(&at_rest, at, len);
                lends += usize::from(found.is_some());
                if found.is_some_and(|found| found != it.content[at..at + len]) {
                    return Err(format!("turn {turn}, object {object}: what was lent at {at} differs"));
                }
            }
        }
    }
    Ok((recent.stats().served_bytes, lends, first_reads))
}

#[test]
fn no_reader_gets_an_outdated_byte() {
    let runs = (0..60).map(|seed| random_run(seed, None).unwrap_or_else(|why| panic!("seed {seed}: {why}")));
    let add = |sum: (u64, usize, u64), run: (u64, usize, u64)| (sum.0 + run.0, sum.1 + run.1, sum.2 + run.2);
    let (served, lends, first_reads) = runs.fold((0, 0, 0), add);
    assert!(served > 1 << 20 && lends > 100, "{served} bytes, {lends} lends");
    assert!(first_reads > 20, "{first_reads} first reads");
}

#[test]
fn believing_the_memory_is_found() {
    assert!((0..400).any(|seed| random_run(seed, Some(PlantedBug::BelieveRecent)).is_err()));
}

#[test]
fn one_user_does_not_drive_out_the_pages_of_another() {
    let recent = Arc::new(RecentPages::new(16 << 20, FreshMemory::AtOnce));
    let world = world(&recent);
    let put = |object, user| {
        let writer = world.create(object, None);
        writer.set_user(PrincipalId(user));
        writer.write(0, &bytes(object, LEN)).unwrap();
        writer.complete().unwrap();
    };
    put(1, 1);
    // Five times two blocks: more than the memory has, and less than would make the first file forgotten.
    (2..7).for_each(|object| put(object, 2));
    let before = recent.stats();
    assert_eq!(world.read_all(1), bytes(1, LEN));
    assert_eq!(since(&recent, before).1, 0, "nothing came from the disk");
    // The same, but all of one user.
    put(7, 3);
    (8..13).for_each(|object| put(object, 3));
    let before = recent.stats();
    assert_eq!(world.read_all(7), bytes(7, LEN));
    assert!(since(&recent, before).1 > 0);
}
