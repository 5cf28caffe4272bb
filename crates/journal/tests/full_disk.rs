//! On a full disk the journal refuses ordinary records while it still has room for deletions, and accepts them again
//! when there is space.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use disk::{Disk, DiskOp, SimDisk};
use journal::{Ballast, BallastConfig, Journal, JournalConfig, JournalError, Prepare, Seq, StreamId};

const A: StreamId = StreamId::NAMESPACE;
const SEGMENT: u64 = 64 << 10;

fn config(prepare: Prepare) -> JournalConfig {
    JournalConfig {
        streams: vec![A],
        ballast: Some(BallastConfig { path: "ballast".to_owned(), bytes: 2 * SEGMENT }),
        prepare,
        ..JournalConfig::small()
    }
}

fn fill(journal: &Journal) -> (u64, JournalError) {
    for n in 0..100_000 {
        if let Err(e) = journal.append(A, &[&[1; 1000]]) {
            return (n, e);
        }
    }
    panic!("it was never full");
}

#[test]
fn deletions_continue_when_ordinary_appends_fail() {
    for prepare in [Prepare::Inline, Prepare::Background] {
        let disk = SimDisk::new(0);
        let (journal, _) = Journal::open(Arc::new(disk.clone()), "j", config(prepare)).unwrap();
        journal.prepare().unwrap();
        assert!(journal.ensure_ballast().unwrap());
        disk.set_free(SEGMENT / 2);
        let (taken, refusal) = fill(&journal);
        assert!(matches!(refusal, JournalError::NoSpace { wanted: SEGMENT }), "{refusal}");
        // The appends used the current segment and one of the two spares.
        assert!((2 * 55..2 * 62).contains(&taken), "{taken}");
        let before = journal.appended();
        assert!(matches!(journal.append(A, &[&[1; 1000]]), Err(JournalError::NoSpace { .. })));
        assert_eq!(journal.appended(), before, "nothing was appended");
        // Deletions use the reserve, then the two segments of the ballast.
        let mut deletes = 0;
        let last = loop {
            match journal.append_urgent(A, &[&[2; 100]]) {
                Ok(appended) => {
                    journal.sync_to(appended.seq).unwrap();
                    deletes += 1;
                    assert!(deletes < 10_000);
                    if deletes == 100 {
                        assert!(journal.reserve_only());
                        assert!(matches!(journal.append(A, &[b"x"]), Err(JournalError::NoSpace { .. })));
                    }
                }
                Err(JournalError::NoSpace { .. }) => break journal.appended(),
                Err(e) => panic!("{e}"),
            }
        };
        assert!(deletes > 1200, "{deletes}");
        assert_eq!(disk.len_of("ballast").unwrap(), None, "the ballast was given back");
        assert_eq!(journal.poisoned(), None);
        assert!(!journal.ensure_ballast().unwrap(), "there is no room for it");
        // The deletions have freed space.
        disk.set_free(100 * SEGMENT);
        let next = journal.append(A, &[b"again"]).unwrap();
        assert_eq!(next.seq, last.next());
        journal.sync_to(next.seq).unwrap();
        assert!(!journal.reserve_only() && journal.ensure_ballast().unwrap());
        journal.close().unwrap();
        drop(journal);
        let (_, opened) = Journal::open(Arc::new(disk), "j", config(prepare)).unwrap();
        assert!(opened.clean && opened.last == next.seq.next());
    }
}

#[test]
fn trimming_frees_space_for_new_segments() {
    for prepare in [Prepare::Inline, Prepare::Background] {
        let disk = SimDisk::new(0);
        let (journal, _) = Journal::open(Arc::new(disk.clone()), "j", config(prepare)).unwrap();
        disk.set_free(4 * SEGMENT);
        fill(&journal);
        journal.sync_to(journal.appended()).unwrap();
        // A reader runs during the trim: the space becomes free when it ends.
        let mut first = true;
        let read = |_, _, _: &[u8]| {
            if std::mem::take(&mut first) {
                journal.set_trim(A, journal.appended()).unwrap();
            }
            ControlFlow::Continue(())
        };
        // The rest was removed while it read.
        assert!(matches!(journal.replay(A, Seq::ZERO, &mut { read }), Err(JournalError::Trimmed { .. })));
        journal.append(A, &[&[1; 1000]]).unwrap();
    }
}

#[test]
fn a_thread_makes_spare_segments_and_retries() {
    let disk = SimDisk::new(0);
    let (journal, _) = Journal::open(Arc::new(disk.clone()), "j", config(Prepare::Background)).unwrap();
    let until = |what: &str, done: &dyn Fn() -> bool| {
        let began = Instant::now();
        while !done() {
            assert!(began.elapsed() < Duration::from_secs(20), "{what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    until("two segments ahead", &|| journal.stats().segments_made == 2);
    disk.set_free(0);
    let switched = journal.segments().len() + 1;
    while journal.segments().len() < switched {
        journal.append(A, &[&[1; 1000]]).unwrap();
    }
    assert_eq!(journal.stats().segments_made, 2);
    disk.set_free(100 * SEGMENT);
    until("the thread tries again by itself", &|| journal.stats().segments_made == 3);
}

#[test]
fn a_panic_while_making_a_segment_is_counted_and_the_attempt_repeated() {
    for prepare in [Prepare::Inline, Prepare::Background] {
        let disk = SimDisk::new(0);
        disk.call_next(DiskOp::Create, 3, || panic!("told so"));
        let (journal, _) = Journal::open(Arc::new(disk.clone()), "j", config(prepare)).unwrap();
        let began = Instant::now();
        while journal.segments().len() < 5 || journal.stats().panics == 0 {
            match journal.append(A, &[&[1; 1000]]) {
                Ok(_) | Err(JournalError::NoSegment { .. }) => {}
                Err(e) => panic!("{e}"),
            }
            assert!(began.elapsed() < Duration::from_secs(20), "{:?}", journal.stats());
        }
        assert_eq!((journal.stats().panics, journal.poisoned()), (1, None));
    }
}

#[test]
fn other_failures_to_make_a_segment_do_not_poison_the_journal() {
    let disk = SimDisk::new(0);
    let (journal, _) = Journal::open(Arc::new(disk.clone()), "j", config(Prepare::Inline)).unwrap();
    let mut refusals = 0;
    for _ in 0..100 {
        disk.fail_next(DiskOp::Create, 1, std::io::ErrorKind::PermissionDenied);
        match journal.append(A, &[&[1; 1000]]) {
            Ok(_) => {}
            Err(JournalError::NoSegment { .. }) => refusals += 1,
            Err(e) => panic!("{e}"),
        }
    }
    assert!(refusals > 10);
    assert_eq!(journal.poisoned(), None);
    journal.prepare().unwrap_err();
    while journal.prepare().is_err() {}
    journal.append(A, &[&[1; 1000]]).unwrap();
}

#[test]
fn ballast_occupies_real_space_and_frees_it() {
    let disk = SimDisk::new(0);
    disk.set_free(1 << 20);
    let ballast = Ballast::new(Arc::new(disk.clone()), "b");
    ballast.ensure(256 << 10).unwrap();
    ballast.ensure(256 << 10).unwrap();
    assert_eq!((ballast.held().unwrap(), disk.space().unwrap().free), (256 << 10, 768 << 10));
    ballast.ensure(512 << 10).unwrap();
    assert_eq!(disk.space().unwrap().free, 512 << 10);
    assert!(matches!(ballast.ensure(2 << 20), Err(JournalError::NoSpace { .. })));
    assert_eq!(disk.space().unwrap().free, 1 << 20, "none is left behind");
    assert!(!ballast.release().unwrap());
    ballast.ensure(4096).unwrap();
    assert!(ballast.release().unwrap());
    assert_eq!(ballast.held().unwrap(), 0);
}

#[test]
fn syncs_are_counted() {
    let disk = SimDisk::new(0);
    let (journal, _) = Journal::open(Arc::new(disk.clone()), "j", config(Prepare::Inline)).unwrap();
    journal.prepare().unwrap();
    let count = |what: &dyn Fn()| {
        let before = disk.sync_count();
        what();
        disk.sync_count() - before
    };
    let append = || journal.append(A, &[&[1; 300]]).unwrap().seq;
    assert_eq!(count(&|| journal.write_to(append()).unwrap()), 0);
    assert_eq!(count(&|| journal.sync_to(append()).unwrap()), 1);
    assert_eq!(count(&|| journal.sync_to(journal.appended()).unwrap()), 0, "it is durable already");
    let batch = count(&|| {
        let seqs: Vec<Seq> = (0..50).map(|_| append()).collect();
        seqs.iter().for_each(|seq| journal.sync_to(*seq).unwrap());
    });
    assert_eq!(batch, 1, "fifty records, one sync");
    let crossing = count(&|| {
        let before = journal.segments().len();
        while journal.segments().len() == before {
            append();
        }
        journal.sync_to(journal.appended()).unwrap();
    });
    assert_eq!(crossing, 2, "one for each of the two segments");
    append();
    assert_eq!(count(&|| journal.close().unwrap()), 2, "the records, then the mark");
}
