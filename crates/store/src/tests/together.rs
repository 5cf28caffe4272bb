//! Several threads that interfere at one replica.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::{Duration, Instant};

use disk::DiskOp;
use parking_lot::Mutex;

use super::world::{World, bytes, replica, with};
use crate::{PlantedBug, StoreError};

#[test]
fn a_concurrent_failed_sync_fails_the_close() {
    let world = World::new(1);
    let writer = world.create(1, Some(50_000));
    writer.write(0, &bytes(1, 50_000)).unwrap();
    let close = Arc::new(Mutex::new(None));
    let (slot, closer, disk) = (Arc::clone(&close), Arc::clone(&writer), world.disk.clone());
    world.disk.call_next(DiskOp::Sync, 1, move || {
        // The close comes during the keeper's sync, and gets as far as it can.
        let closing = std::thread::spawn(move || closer.complete().map(|_| ()));
        let until = Instant::now() + Duration::from_millis(300);
        while !closing.is_finished() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        disk.fail_next(DiskOp::Sync, 1, ErrorKind::Other);
        *slot.lock() = Some(closing);
    });
    assert!(world.store.tick().is_err());
    let closed = close.lock().take().unwrap().join().unwrap();
    assert!(matches!(closed, Err(StoreError::Failed { .. })), "{closed:?}");
}

/// Another thread wants to flush a page in the middle of a write to it.
fn flushed_under_a_write(planted: Option<PlantedBug>) -> (Result<(), StoreError>, bool) {
    let world = World::open(disk::SimDisk::new(1), with(planted)).unwrap();
    let writer = world.create(1, Some(100_000));
    let mut expected = vec![0; 100_000];
    let mut put = |at: usize, data: Vec<u8>| {
        expected[at..at + data.len()].copy_from_slice(&data);
        (at as u64, data)
    };
    // The files exist, and part of page 1 is held.
    for (at, data) in [put(20 * 4096, bytes(1, 4096)), put(4096 + 100, bytes(2, 100))] {
        writer.write(at, &data).unwrap();
    }
    let others: Vec<_> = (10..15).map(|page| put(page * 4096 + 5, bytes(3, 10))).collect();
    let other = Arc::clone(&writer);
    world.disk.call_next(DiskOp::Write, 1, move || {
        for (at, data) in others {
            other.write(at, &data).unwrap();
        }
    });
    // The rest of page 1 goes to the journal, then page 2 to the file; the other thread acts there.
    let (at, data) = put(4096 + 1000, bytes(4, 2 * 4096 - 1000));
    let wrote = writer.write(at, &data);
    let right = wrote.is_ok() && {
        writer.complete().unwrap();
        let mut back = world.read_all(1);
        back.resize(100_000, 0);
        back == expected
    };
    (wrote, right)
}

#[test]
fn a_page_that_a_write_depends_on_is_not_flushed() {
    let (wrote, right) = flushed_under_a_write(None);
    assert!(right, "{wrote:?}");
    let (wrote, right) = flushed_under_a_write(Some(PlantedBug::FlushUnderWrite));
    assert!(!right && matches!(wrote, Err(StoreError::Damaged { .. })), "the planted bug was not found: {wrote:?}");
}

/// Runs `dies` while the disk panics in the next call of `op`, and returns the result of `then`. Nothing may hang.
fn after_a_panic<T: Send + 'static>(
    world: &World,
    op: DiskOp,
    dies: impl FnOnce(),
    then: impl FnOnce() -> T + Send + 'static,
) -> T {
    world.disk.call_next(op, 1, || std::panic::panic_any("the disk panics"));
    let died = std::panic::catch_unwind(std::panic::AssertUnwindSafe(dies));
    assert_eq!(died.unwrap_err().downcast_ref(), Some(&"the disk panics"));
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || tell.send(then()));
    told.recv_timeout(Duration::from_secs(20)).expect("it waits for what died")
}

#[test]
fn a_panic_in_a_sync_blocks_no_thread() {
    let world = World::new(1);
    let writer = world.create(1, Some(50_000));
    writer.write(0, &bytes(1, 30_000)).unwrap();
    let durable = writer.sync().unwrap();
    writer.write(30_000, &bytes(1, 20_000)).unwrap();
    let (syncing, closing) = (Arc::clone(&writer), Arc::clone(&writer));
    let refused = after_a_panic(
        &world,
        DiskOp::Sync,
        || drop(syncing.sync()),
        move || (closing.complete().map(|_| ()), closing.sync(), closing.write(0, b"x")),
    );
    for refused in [refused.0, refused.1.map(|_| ()), refused.2] {
        let Err(StoreError::Failed { reason, .. }) = refused else { panic!("{refused:?}") };
        assert!(reason.contains("died"), "{reason}");
    }
    // Bytes that were durable before are kept.
    assert!(world.store.interrupt(replica(1)).unwrap().len >= durable);
    let kept = world.read_all(1);
    assert_eq!(kept, [bytes(1, 30_000), bytes(1, 20_000)].concat()[..kept.len()]);
}

#[test]
fn a_panic_in_a_write_blocks_no_thread_and_leaves_no_page() {
    let world = World::new(1);
    let writer = world.create(1, Some(100_000));
    writer.write(0, &bytes(1, 40_000)).unwrap();
    let held = bytes(2, 100);
    writer.write(12 * 4096, &held).unwrap();
    writer.sync().unwrap();
    let (writing, closing) = (Arc::clone(&writer), Arc::clone(&writer));
    let refused = after_a_panic(
        &world,
        DiskOp::Write,
        || drop(writing.write(14 * 4096, &bytes(3, 4 * 4096))),
        move || (closing.write(15 * 4096, b"x"), closing.complete().map(|_| ())),
    );
    assert!(matches!(refused.0, Err(StoreError::Failed { .. })), "{refused:?}");
    assert!(matches!(refused.1, Err(StoreError::Failed { .. })), "{refused:?}");
    let mut back = vec![0; held.len()];
    writer.read(12 * 4096, &mut back).unwrap();
    assert_eq!(back, held);
    assert_eq!(world.store.interrupt(replica(1)).unwrap().len, 40_000);
    assert_eq!(world.read_all(1), bytes(1, 40_000));
}

#[test]
fn a_panic_in_a_flush_loses_no_page() {
    let world = World::new(1);
    let writer = world.create(1, Some(100_000));
    let pages: Vec<_> = (0..3).map(|page| (page * 4096, bytes(page, 4000))).collect();
    for (at, data) in &pages {
        writer.write(*at, data).unwrap();
    }
    writer.sync().unwrap();
    let (closing, reading) = (Arc::clone(&writer), Arc::clone(&writer));
    let closed =
        after_a_panic(&world, DiskOp::Write, || drop(closing.complete()), move || reading.complete().map(|_| ()));
    assert!(matches!(closed, Err(StoreError::Failed { .. })), "{closed:?}");
    for (at, data) in &pages {
        let mut back = vec![0; data.len()];
        writer.read(*at, &mut back).unwrap();
        assert_eq!(back, *data);
    }
}

#[test]
fn a_panic_in_a_close_blocks_no_thread() {
    let world = World::new(1);
    let writer = world.create(1, Some(50_000));
    writer.write(0, &bytes(1, 50_000)).unwrap();
    let (closing, again, store) = (Arc::clone(&writer), Arc::clone(&writer), Arc::clone(&world.store));
    let (refused, kept) = after_a_panic(
        &world,
        DiskOp::Sync,
        || drop(closing.complete()),
        move || (again.write(0, b"x"), store.interrupt(replica(1))),
    );
    assert!(matches!(refused, Err(StoreError::Failed { .. })), "{refused:?}");
    let kept = kept.unwrap();
    assert_eq!(world.read_all(1), bytes(1, 50_000)[..kept.len as usize]);
}

#[test]
fn a_replica_closed_during_a_status_request_is_forgotten() {
    let world = World::new(1);
    for object in 1..=3 {
        world.put(object, &bytes(object, 20_000));
        let reader = world.store.open_read(replica(object)).unwrap();
        let looking = world.store.inner.table.lock().get(&replica(object)).cloned();
        drop(reader);
        drop(looking);
    }
    let living = world.create(4, None);
    assert_eq!(world.store.inner.table.lock().len(), 4);
    world.store.tick().unwrap();
    drop(living);
    assert_eq!(world.store.inner.table.lock().keys().copied().collect::<Vec<_>>(), [replica(4)]);
}

#[test]
fn an_idle_writer_holds_few_pages() {
    let world = World::new(1);
    world.put(1, &bytes(1, 200_000));
    let writer = world.store.reopen(replica(1)).unwrap();
    writer.write(0, &bytes(2, 50_000)).unwrap();
    let open = world.store.inner.table.lock().get(&replica(1)).cloned().unwrap();
    let held = open.lock().write_state.as_ref().unwrap().held.len();
    assert!(held <= 3, "{held} pages are held");
    writer.complete().unwrap();
    assert_eq!(world.read_all(1)[..50_000], bytes(2, 50_000));
}

#[test]
fn creating_a_replica_writes_nothing() {
    let world = World::new(1);
    world.put(1, b"x");
    let before = world.disk.change_count();
    let writer = world.create(2, None);
    assert_eq!(world.disk.change_count(), before);
    writer.write(0, b"y").unwrap();
    let world = world.killed();
    let status = world.store.status(replica(2)).unwrap().unwrap();
    assert_eq!(status.len, 1);
}
