//! The opening after a failed write or sync reports a possible loss once, and does not treat bytes of the page cache as
//! durable. A kill alone is no loss.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::cast_possible_truncation
)]

use std::io::ErrorKind;
use std::sync::Arc;

use crate::support::{A, config_for, read_all};
use disk::{Access, CrashFaults, Disk, DiskOp, OpenOptions, SimDisk};
use journal::{Journal, JournalConfig, JournalError, Loss, Opened, Seq};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use types::BootId;

const BOOT: BootId = BootId(77);

fn config() -> JournalConfig {
    config_for(2, None)
}

fn open(disk: &SimDisk) -> (Journal, Opened) {
    Journal::open(Arc::new(disk.clone()), "log", config()).unwrap()
}

/// Appends a record and writes it to the kernel, without a sync.
fn write(journal: &Journal, payload: &[u8]) -> Seq {
    let seq = journal.append(A, &[payload]).unwrap().seq;
    journal.write_to(seq).unwrap();
    seq
}

/// A journal with a durable record and one that is only written, after a failed sync.
fn failed(disk: &SimDisk) -> (BootId, Seq) {
    let (journal, opened) = open(disk);
    assert_eq!(opened.lost, None);
    let durable = write(&journal, b"durable");
    journal.sync_to(durable).unwrap();
    let written = write(&journal, &[7; 9000]);
    disk.fail_next(DiskOp::Sync, 1, ErrorKind::Other);
    assert!(!journal.is_in_doubt());
    assert!(matches!(journal.sync_to(written), Err(JournalError::Poisoned { .. })));
    assert!(journal.is_in_doubt() && journal.has_failed());
    (journal.boot(BOOT), durable)
}

#[test]
fn a_kill_is_no_loss() {
    let disk = SimDisk::new(0);
    let (journal, _) = open(&disk);
    let boot = journal.boot(BOOT);
    for _ in 0..3 {
        let disk = disk.kill();
        let (journal, opened) = open(&disk);
        assert_eq!((opened.lost, journal.boot(BOOT)), (None, boot));
        write(&journal, b"more");
    }
    assert_ne!(journal.boot(BootId(78)), boot, "a boot of the machine is one");
}

#[test]
fn the_next_opening_reports_a_failed_sync_once() {
    for seed in 0..20 {
        let disk = SimDisk::new(seed);
        let (before, durable) = failed(&disk);
        let disk = disk.kill();
        let checked = Journal::check(&disk, "log", &config()).unwrap();
        assert_eq!(checked.lost, Some(Loss::Failed));
        let (journal, opened) = open(&disk);
        assert_eq!(opened.lost, Some(Loss::Failed));
        assert!(opened.last >= durable && journal.is_in_doubt() && !journal.has_failed());
        let after = journal.boot(BOOT);
        assert_ne!(after, before);
        drop(journal);
        let (journal, opened) = open(&disk.kill());
        assert_eq!((opened.lost, journal.boot(BOOT)), (None, after), "it is told once");
    }
}

#[test]
fn a_failed_journal_write_and_a_failed_sync_of_another_file_are_reported_too() {
    let disk = SimDisk::new(1);
    let (journal, _) = open(&disk);
    let boot = journal.boot(BOOT);
    disk.fail_next(DiskOp::Write, 1, ErrorKind::Other);
    let seq = journal.append(A, &[b"x"]).unwrap().seq;
    assert!(journal.write_to(seq).is_err());
    let disk = disk.kill();
    let (journal, opened) = open(&disk);
    assert_eq!(opened.lost, Some(Loss::Failed));
    let second = journal.boot(BOOT);
    assert_ne!(second, boot);
    journal.note_failed_sync();
    // The journal continues, and its clean stop does not clear the failure.
    write(&journal, b"goes on");
    journal.close().unwrap();
    let (journal, opened) = open(&disk.kill());
    assert_eq!((opened.clean, opened.lost), (true, Some(Loss::Failed)));
    let third = journal.boot(BOOT);
    assert!(third != second && third != boot);
    journal.count_loss().unwrap();
    let fourth = journal.boot(BOOT);
    assert!(![boot, second, third].contains(&fourth));
}

#[test]
fn a_counted_loss_survives_a_kill() {
    let disk = SimDisk::new(1);
    let (journal, _) = open(&disk);
    journal.count_loss().unwrap();
    let boot = journal.boot(BOOT);
    assert_eq!(open(&disk.kill()).0.boot(BOOT), boot);
    journal.note_failed_sync();
    journal.count_loss().unwrap();
    let later = open(&disk.kill()).0;
    assert_eq!(later.losses(), 3, "one was counted, one more, and one had failed");
}

#[test]
fn the_next_opening_reports_an_opening_that_could_not_sync() {
    let mut told = 0;
    for nth in 1..10 {
        let disk = SimDisk::new(nth);
        let (journal, _) = open(&disk);
        let boot = journal.boot(BOOT);
        write(&journal, b"in the kernel");
        let disk = disk.kill();
        disk.fail_next(DiskOp::Sync, nth, ErrorKind::Other);
        match Journal::open(Arc::new(disk.clone()), "log", config()) {
            Err(JournalError::Disk(e)) => assert_eq!(e.op, DiskOp::Sync),
            Err(JournalError::Poisoned { .. }) => {}
            Err(other) => panic!("{other}"),
            Ok(_) => break,
        }
        let (journal, opened) = open(&disk.kill());
        assert_eq!(opened.lost, Some(Loss::Failed), "sync {nth}");
        assert_ne!(journal.boot(BOOT), boot);
        told = nth;
    }
    assert_eq!(told, 3, "what the kernel had, what is written again, the mark");
}

#[test]
fn records_only_in_the_page_cache_are_rewritten_before_they_count() {
    let mut believed = 0;
    for seed in 0..40 {
        let disk = SimDisk::new(seed);
        disk.refuse_direct();
        let (_, durable) = failed(&disk);
        let disk = disk.kill();
        let (journal, opened) = open(&disk);
        assert_eq!(journal.durable(), journal.appended());
        let shown = read_all(&journal).unwrap();
        believed += u64::from(opened.last > durable);
        let (later, _) = disk.crash(&mut SmallRng::seed_from_u64(seed), CrashFaults::all_lost());
        let found = read_all(&open(&later).0).unwrap();
        assert_eq!(found[..shown.len()], shown[..], "seed {seed}");
    }
    assert!(believed > 0);
}

#[test]
fn a_gap_without_a_failure_mark_is_a_loss() {
    let mut gaps = 0;
    for seed in 0..60 {
        let disk = SimDisk::new(seed);
        let (journal, _) = open(&disk);
        let boot = journal.boot(BOOT);
        let last = (0..4).map(|n| write(&journal, &[n; 3000])).max().unwrap();
        disk.fail_next(DiskOp::Rename, 1, ErrorKind::Other);
        disk.fail_next(DiskOp::Sync, 1, ErrorKind::Other);
        assert!(journal.sync_to(last).is_err());
        let (journal, opened) = open(&disk.kill());
        match opened.lost {
            Some(Loss::Gap) => {
                assert!(opened.cut.is_some() && journal.boot(BOOT) != boot);
                gaps += 1;
            }
            None => assert_eq!(journal.boot(BOOT), boot),
            other => panic!("{other:?}"),
        }
    }
    assert!(gaps > 10, "{gaps}");
}

#[test]
fn a_failure_mark_that_could_not_be_made_is_retried() {
    let disk = SimDisk::new(0);
    let (journal, _) = open(&disk);
    let seq = write(&journal, b"x");
    disk.fail_next(DiskOp::Rename, 1, ErrorKind::Other);
    disk.fail_next(DiskOp::Sync, 1, ErrorKind::Other);
    assert!(journal.sync_to(seq).is_err());
    assert_eq!(Journal::check(&disk.kill(), "log", &config()).unwrap().lost, None);
    drop(journal);
    assert_eq!(open(&disk.kill()).1.lost, Some(Loss::Failed));
}

#[test]
fn a_journal_without_a_loss_file_is_not_trusted_and_a_repaired_one_has_a_new_boot_generation() {
    let disk = SimDisk::new(0);
    let (journal, opened) = open(&disk);
    assert_eq!((journal.losses(), opened.lost), (0, None));
    let place = journal.append(A, &[b"rots"]).unwrap().location;
    journal.mark_synced().unwrap();
    let boot = journal.boot(BOOT);
    drop(journal);

    let older = disk.kill();
    older.remove("log/sound-0").unwrap();
    let (journal, opened) = open(&older);
    assert_eq!(opened.lost, Some(Loss::Unknown));
    assert_ne!(journal.boot(BOOT), boot);
    assert_eq!(open(&older.kill()).1.lost, None);

    assert!(disk.rot("log/0000000000000001.wseg", place.offset));
    Journal::repair(&disk, "log", &config()).unwrap().unwrap();
    let (journal, _) = open(&disk);
    assert_ne!(journal.boot(BOOT), boot);
}

#[test]
fn among_several_loss_files_the_least_trusting_counts() {
    let disk = SimDisk::new(0);
    drop(open(&disk));
    for name in ["failed-4", "sound-3", "failed-x"] {
        disk.open(&format!("log/{name}"), OpenOptions { access: Access::CreateNew, direct: false }).unwrap();
    }
    let (journal, opened) = open(&disk.kill());
    assert_eq!((journal.losses(), opened.lost), (5, Some(Loss::Failed)));
}
