//! Several threads at one piece, put into each other's way.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::{Duration, Instant};

use disk::DiskOp;
use parking_lot::Mutex;

use super::world::{World, bytes, piece, with};
use crate::{Planted, StoreError};

#[test]
fn a_sync_that_fails_beside_a_close_fails_the_close() {
    let world = World::new(1);
    let writer = world.create(1, Some(50_000));
    writer.write(0, &bytes(1, 50_000)).unwrap();
    let close = Arc::new(Mutex::new(None));
    let (slot, closer, disk) = (Arc::clone(&close), Arc::clone(&writer), world.disk.clone());
    world.disk.call_next(DiskOp::Sync, 1, move || {
        // The close comes while the keeper's sync is under way, and gets as far as it can.
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

/// A write whose page another thread wants to flush in the middle of it.
fn flushed_under_a_write(planted: Option<Planted>) -> (Result<(), StoreError>, bool) {
    let world = World::open(disk::SimDisk::new(1), with(planted)).unwrap();
    let writer = world.create(1, Some(100_000));
    let mut expected = vec![0; 100_000];
    let mut put = |at: usize, data: Vec<u8>| {
        expected[at..at + data.len()].copy_from_slice(&data);
        (at as u64, data)
    };
    // The files are there, and a part of page 1 is held.
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
    // The rest of page 1 to the log, then page 2 to the file: that is where the other one comes in.
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
fn a_page_that_a_write_counts_on_is_not_flushed() {
    let (wrote, right) = flushed_under_a_write(None);
    assert!(right, "{wrote:?}");
    let (wrote, right) = flushed_under_a_write(Some(Planted::FlushUnderWrite));
    assert!(!right && matches!(wrote, Err(StoreError::Damaged { .. })), "the planted bug was not found: {wrote:?}");
}

#[test]
fn a_piece_closed_while_somebody_looked_is_forgotten() {
    let world = World::new(1);
    for body in 1..=3 {
        world.put(body, &bytes(body, 20_000));
        let reader = world.store.open_read(piece(body)).unwrap();
        let looking = world.store.inner.table.lock().get(&piece(body)).cloned();
        drop(reader);
        drop(looking);
    }
    let living = world.create(4, None);
    assert_eq!(world.store.inner.table.lock().len(), 4);
    world.store.tick().unwrap();
    drop(living);
    assert_eq!(world.store.inner.table.lock().keys().copied().collect::<Vec<_>>(), [piece(4)]);
}

#[test]
fn an_idle_writer_holds_few_pages() {
    let world = World::new(1);
    world.put(1, &bytes(1, 200_000));
    let writer = world.store.reopen(piece(1)).unwrap();
    writer.write(0, &bytes(2, 50_000)).unwrap();
    let open = world.store.inner.table.lock().get(&piece(1)).cloned().unwrap();
    let held = open.state.lock().life.as_ref().unwrap().held.len();
    assert!(held <= 3, "{held} pages are held");
    writer.complete().unwrap();
    assert_eq!(world.read_all(1)[..50_000], bytes(2, 50_000));
}

#[test]
fn beginning_a_piece_writes_nothing() {
    let world = World::new(1);
    world.put(1, b"x");
    let before = world.disk.change_count();
    let writer = world.create(2, None);
    assert_eq!(world.disk.change_count(), before);
    writer.write(0, b"y").unwrap();
    let world = world.killed();
    let status = world.store.status(piece(2)).unwrap().unwrap();
    assert_eq!(status.len, 1);
}
