//! Several threads, and a disk whose syncs take as long as the test wants.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::IoSliceMut;
use std::sync::Arc;
use std::time::{Duration, Instant};

use disk::{Disk, DiskError, DiskFile, DiskOp, Entry, OpenOptions, SimDisk, Space};
use journal::{Journal, JournalConfig, JournalError, Seq, StreamId};
use parking_lot::{Condvar, Mutex};

const A: StreamId = StreamId::NAMESPACE;

/// Syncs wait while the gate is shut.
#[derive(Default)]
struct Gate {
    shut: Mutex<bool>,
    changed: Condvar,
    waiting: Mutex<u32>,
}

impl Gate {
    fn set(&self, shut: bool) {
        *self.shut.lock() = shut;
        self.changed.notify_all();
    }

    fn pass(&self) {
        let mut shut = self.shut.lock();
        if *shut {
            *self.waiting.lock() += 1;
        }
        while *shut {
            self.changed.wait(&mut shut);
        }
    }
}

struct SlowDisk(SimDisk, Arc<Gate>);
struct SlowFile(Arc<dyn DiskFile>, Arc<Gate>);

impl Disk for SlowDisk {
    fn open(&self, path: &str, options: OpenOptions) -> Result<Arc<dyn DiskFile>, DiskError> {
        Ok(Arc::new(SlowFile(self.0.open(path, options)?, Arc::clone(&self.1))))
    }
    fn remove(&self, path: &str) -> Result<(), DiskError> {
        self.0.remove(path)
    }
    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        self.0.rename(from, to)
    }
    fn create_dir_all(&self, path: &str) -> Result<(), DiskError> {
        self.0.create_dir_all(path)
    }
    fn sync_dir(&self, path: &str) -> Result<(), DiskError> {
        self.0.sync_dir(path)
    }
    fn list(&self, path: &str) -> Result<Vec<Entry>, DiskError> {
        self.0.list(path)
    }
    fn len_of(&self, path: &str) -> Result<Option<u64>, DiskError> {
        self.0.len_of(path)
    }
    fn space(&self) -> Result<Space, DiskError> {
        self.0.space()
    }
}

impl DiskFile for SlowFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize, DiskError> {
        self.0.read_at(buf, offset)
    }
    fn read_vectored_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize, DiskError> {
        self.0.read_vectored_at(bufs, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<(), DiskError> {
        self.0.write_at(buf, offset)
    }
    fn sync_data(&self) -> Result<(), DiskError> {
        self.1.pass();
        self.0.sync_data()
    }
    fn len(&self) -> Result<u64, DiskError> {
        self.0.len()
    }
    fn set_len(&self, len: u64) -> Result<(), DiskError> {
        self.0.set_len(len)
    }
    fn allocate(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        self.0.allocate(offset, len)
    }
    fn is_direct(&self) -> bool {
        self.0.is_direct()
    }
    fn drop_cache(&self, offset: u64, len: u64) {
        self.0.drop_cache(offset, len);
    }
}

fn slow() -> (SimDisk, Arc<Gate>, Journal) {
    let disk = SimDisk::new(0);
    let gate = Arc::new(Gate::default());
    let slow = SlowDisk(disk.clone(), Arc::clone(&gate));
    let config = JournalConfig { segment_bytes: 1 << 20, ..JournalConfig::small() };
    let (journal, _) = Journal::open(Arc::new(slow), "j", config).unwrap();
    (disk, gate, journal)
}

fn until(what: &str, done: impl Fn() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn writes_continue_during_a_sync_and_one_sync_serves_all_waiters() {
    let (disk, gate, journal) = slow();
    gate.set(true);
    std::thread::scope(|scope| {
        let first = journal.append(A, &[b"first"]).unwrap();
        let waiter = scope.spawn({
            let journal = &journal;
            move || journal.sync_to(first.seq)
        });
        until("somebody syncs", || *gate.waiting.lock() == 1);
        // The sync hangs. Appends, writes and reads continue.
        let mut last = first;
        for i in 0..100u8 {
            last = journal.append(A, &[&[i; 300]]).unwrap();
            journal.write_to(last.seq).unwrap();
            assert_eq!(journal.read(last.location).unwrap(), [i; 300]);
        }
        assert_eq!((journal.written(), journal.durable()), (last.seq, Seq::ZERO));
        let others: Vec<_> = (2..=101)
            .map(|n| {
                scope.spawn({
                    let journal = &journal;
                    move || journal.sync_to(Seq(n))
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(50));
        assert!(!waiter.is_finished() && others.iter().all(|o| !o.is_finished()), "nobody is told too early");
        let before = disk.data_sync_count();
        gate.set(false);
        waiter.join().unwrap().unwrap();
        others.into_iter().for_each(|o| o.join().unwrap().unwrap());
        assert_eq!(journal.durable(), last.seq);
        assert_eq!(disk.data_sync_count() - before, 2, "the one that hung, and one for the hundred others");
    });
}

#[test]
fn all_waiting_threads_get_the_error_of_a_failed_sync() {
    let (disk, gate, journal) = slow();
    for _ in 0..10 {
        journal.append(A, &[b"x"]).unwrap();
    }
    gate.set(true);
    disk.fail_next(DiskOp::Sync, 1, std::io::ErrorKind::Other);
    std::thread::scope(|scope| {
        let waiters: Vec<_> = (1..=10)
            .map(|n| {
                scope.spawn({
                    let journal = &journal;
                    move || journal.sync_to(Seq(n))
                })
            })
            .collect();
        until("somebody syncs", || *gate.waiting.lock() == 1);
        gate.set(false);
        for waiter in waiters {
            assert!(matches!(waiter.join().unwrap(), Err(JournalError::Poisoned { .. })));
        }
    });
    assert!(journal.poisoned().unwrap().contains("sync"));
    assert_eq!(journal.durable(), Seq::ZERO);
    assert!(matches!(journal.close(), Err(JournalError::Poisoned { .. })));
    assert_eq!(disk.data_sync_count(), 3, "making the segment synced twice; the failed sync was not tried again");
}

#[test]
fn all_waiting_threads_get_the_error_of_a_failed_write() {
    let (disk, _gate, journal) = slow();
    journal.append(A, &[b"x"]).unwrap();
    disk.fail_next(DiskOp::Write, 1, std::io::ErrorKind::Other);
    assert!(matches!(journal.write_to(Seq(1)), Err(JournalError::Poisoned { reason }) if reason.contains("write")));
    assert!(matches!(journal.sync_to(Seq(1)), Err(JournalError::Poisoned { .. })));
    assert!(matches!(journal.append(A, &[b"y"]), Err(JournalError::Poisoned { .. })));
    assert!(matches!(journal.append_urgent(A, &[b"y"]), Err(JournalError::Poisoned { .. })));
    assert!(matches!(journal.prepare(), Err(JournalError::Poisoned { .. })));
}
