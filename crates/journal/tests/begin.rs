//! A journal that starts in the place of a lost one.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::ops::ControlFlow;
use std::sync::Arc;

use disk::{Access, CrashFaults, Disk, OpenOptions, SimDisk};
use journal::{Beginning, Journal, JournalConfig, JournalError, Seq, StreamId};
use rand::SeedableRng;
use rand::rngs::SmallRng;

const A: StreamId = StreamId::NAMESPACE;
const BEGINNING: Beginning = Beginning { first: Seq(1_000), segment: 7, incarnation: 42 };

fn config() -> JournalConfig {
    JournalConfig { streams: vec![A], must_exist: true, ..JournalConfig::small() }
}

fn numbers(journal: &Journal) -> Vec<u64> {
    let mut found = Vec::new();
    let mut visit = |seq: Seq, _, _: &[u8]| {
        found.push(seq.0);
        ControlFlow::Continue(())
    };
    journal.replay(A, Seq(999), &mut visit).unwrap();
    found
}

#[test]
fn a_new_journal_starts_with_the_given_numbers_and_works_normally() {
    let disk = SimDisk::new(1);
    Journal::begin(&disk, "log", &config(), &BEGINNING).unwrap();
    let opened = Journal::check(&disk, "log", &config()).unwrap();
    assert_eq!((opened.oldest, opened.last), (Seq(1_000), Seq(999)));
    let (journal, opened) = Journal::open(Arc::new(disk.clone()), "log", config()).unwrap();
    assert!(!opened.created && opened.last == Seq(999) && opened.oldest == Seq(1_000), "{opened:?}");
    assert_eq!(journal.incarnation(), 42);
    let mut expected = Vec::new();
    for n in 0..200_u8 {
        let appended = journal.append(A, &[&[n; 1_000]]).unwrap();
        assert!(appended.location.segment >= 7 && appended.seq >= Seq(1_000));
        expected.push(appended.seq.0);
    }
    journal.close().unwrap();
    drop(journal);
    // A second call changes nothing.
    Journal::begin(&disk, "log", &config(), &BEGINNING).unwrap();
    let (journal, opened) = Journal::open(Arc::new(disk.clone()), "log", config()).unwrap();
    assert!(opened.clean && numbers(&journal) == expected);
    // It does not start inside another journal or with impossible numbers.
    for other in [
        Beginning { incarnation: 43, ..BEGINNING },
        Beginning { segment: 6, ..BEGINNING },
        Beginning { first: Seq(0), ..BEGINNING },
        Beginning { segment: 0, ..BEGINNING },
        Beginning { first: Seq(1 << 62), ..BEGINNING },
    ] {
        let refused = Journal::begin(&disk, "log", &config(), &other);
        assert!(matches!(refused, Err(JournalError::Config(_))), "{other:?} {refused:?}");
    }
    assert!(numbers(&journal) == expected);
}

/// The machine crashes after each change in turn. The directory then holds no journal or a complete one, and another
/// call finishes the work.
#[test]
fn beginning_can_be_interrupted_anywhere() {
    let mut interrupted = 0;
    for seed in 0..20 {
        for after in 0.. {
            let disk = SimDisk::new(seed);
            disk.freeze_after(after);
            Journal::begin(&disk, "log", &config(), &BEGINNING).unwrap();
            let Some(frozen) = disk.frozen() else { break };
            interrupted += 1;
            let mut rng = SmallRng::seed_from_u64(seed ^ after);
            let disk = frozen.crash(&mut rng, CrashFaults::mixed()).0;
            Journal::begin(&disk, "log", &config(), &BEGINNING).unwrap();
            let disk = disk.crash(&mut rng, CrashFaults::mixed()).0;
            let (journal, opened) = Journal::open(Arc::new(disk.clone()), "log", config()).unwrap();
            assert_eq!((opened.oldest, opened.last), (Seq(1_000), Seq(999)), "seed {seed}, after {after}");
            let appended = journal.append(A, &[b"x"]).unwrap();
            journal.sync_to(appended.seq).unwrap();
            assert_eq!(numbers(&journal), [appended.seq.0]);
        }
    }
    assert!(interrupted > 100, "{interrupted}");
}

#[test]
fn an_unfinished_segment_file_is_replaced() {
    for bytes in [b"".as_slice(), &[0; 9_000], b"WEIRLOG\n torn"] {
        let disk = SimDisk::new(1);
        disk.create_dir_all("log").unwrap();
        let options = OpenOptions { access: Access::CreateNew, direct: false };
        disk.open("log/0000000000000007.wseg", options).unwrap().write_at(bytes, 0).unwrap();
        Journal::begin(&disk, "log", &config(), &BEGINNING).unwrap();
        let (_, opened) = Journal::open(Arc::new(disk), "log", config()).unwrap();
        assert_eq!(opened.last, Seq(999));
    }
}
