//! The journal without faults, on the simulated and on the real disk, with and without direct I/O.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::cast_possible_truncation,
    clippy::manual_is_multiple_of
)]

use std::ops::ControlFlow;
use std::sync::Arc;

use disk::{CrashFaults, Disk, DiskOp, RealDisk, SimDisk};
use journal::{Journal, JournalConfig, JournalError, Location, Prepare, Seq, StreamId};
use rand::SeedableRng;
use rand::rngs::SmallRng;

const A: StreamId = StreamId::NAMESPACE;
const B: StreamId = StreamId::STORE_INDEX;

fn config(direct: bool) -> JournalConfig {
    JournalConfig { direct, streams: vec![A, B], ..JournalConfig::small() }
}

fn everywhere(test: impl Fn(Arc<dyn Disk>, JournalConfig)) {
    for direct in [false, true] {
        test(Arc::new(SimDisk::new(1)), config(direct));
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        test(Arc::new(RealDisk::open(folder.path()).unwrap()), config(direct));
        let threaded = JournalConfig { prepare: Prepare::Background, ..config(direct) };
        test(Arc::new(SimDisk::new(1)), threaded);
    }
}

fn all(journal: &Journal, stream: StreamId, after: Seq) -> Vec<(Seq, Location, Vec<u8>)> {
    let mut found = Vec::new();
    journal
        .replay(stream, after, &mut |seq, location, payload| {
            found.push((seq, location, payload.to_vec()));
            ControlFlow::Continue(())
        })
        .unwrap();
    found
}

fn payload(i: u64) -> Vec<u8> {
    let len = usize::try_from((i * 7919) % 3000).unwrap();
    (0..len).map(|at| (at as u64 * 31 + i) as u8).collect()
}

#[test]
fn records_are_read_in_order_from_memory_from_files_and_after_reopening() {
    everywhere(|disk, config| {
        let (journal, opened) = Journal::open(Arc::clone(&disk), "log/j", config.clone()).unwrap();
        assert!(opened.created && opened.last == Seq::ZERO && opened.oldest == Seq(1));
        let mut places = Vec::new();
        for i in 1..=300u64 {
            let bytes = payload(i);
            let (first, second) = bytes.split_at(bytes.len() / 3);
            let stream = if i % 3 == 0 { B } else { A };
            let appended = journal.append(stream, &[first, second]).unwrap();
            assert_eq!(appended.seq, Seq(i));
            assert_eq!(journal.read(appended.location).unwrap(), bytes, "while it is only appended");
            places.push(appended.location);
            match i % 7 {
                0 => journal.write_to(appended.seq).unwrap(),
                3 => journal.sync_to(appended.seq).unwrap(),
                _ => {}
            }
            assert!(
                journal.appended() == Seq(i) && journal.written() <= Seq(i) && journal.durable() <= journal.written()
            );
        }
        journal.write_to(Seq(300)).unwrap();
        let check = |journal: &Journal| {
            for (i, location) in (1..).zip(&places) {
                assert_eq!(journal.read(*location).unwrap(), payload(i), "record {i}");
                let whole = payload(i);
                let skip = whole.len() / 2;
                let mut part = vec![0; whole.len() - skip];
                journal.read_into(*location, u32::try_from(skip).unwrap(), &mut part).unwrap();
                assert_eq!(part, whole[skip..]);
            }
            for (stream, wanted) in [(A, false), (B, true)] {
                let expected: Vec<_> = (1..=300u64)
                    .filter(|i| (i % 3 == 0) == wanted && *i > 100)
                    .map(|i| (Seq(i), places[usize::try_from(i).unwrap() - 1], payload(i)))
                    .collect();
                assert!(all(journal, stream, Seq(100)) == expected);
            }
            let mut seen = 0;
            journal
                .replay_many(&[A, B], Seq::ZERO, &mut |_, seq, _, _| {
                    seen += 1;
                    assert_eq!(seq, Seq(seen));
                    if seen == 200 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                })
                .unwrap();
            assert_eq!(seen, 200);
        };
        check(&journal);
        assert!(journal.segments().len() > 3, "it went over several segments");
        assert!(journal.retained_bytes() > 300 * 1500);
        journal.close().unwrap();
        assert!(matches!(journal.append(A, &[b"late"]), Err(JournalError::Poisoned { .. })));
        drop(journal);
        let (journal, opened) = Journal::open(disk, "log/j", config).unwrap();
        assert!(opened.clean && opened.cut.is_none() && !opened.created, "{opened:?}");
        assert_eq!((opened.last, opened.records, opened.oldest), (Seq(301), 301, Seq(1)), "and the mark");
        check(&journal);
        assert_eq!(journal.append(A, &[b"next"]).unwrap().seq, Seq(302));
    });
}

#[test]
fn a_stop_without_a_mark_differs_from_a_clean_one() {
    everywhere(|disk, config| {
        let (journal, _) = Journal::open(Arc::clone(&disk), "j", config.clone()).unwrap();
        let seq = journal.append(A, &[b"x"]).unwrap().seq;
        journal.sync_to(seq).unwrap();
        drop(journal);
        let (journal, opened) = Journal::open(Arc::clone(&disk), "j", config.clone()).unwrap();
        assert!(!opened.clean && opened.cut.is_none() && opened.last == Seq(1));
        assert_eq!(journal.appended(), Seq(2), "opening left a mark that says what was durable");
        journal.mark_synced().unwrap();
        assert_eq!(journal.appended(), Seq(2), "one mark is enough");
        journal.append(A, &[b"y"]).unwrap();
        journal.mark_synced().unwrap();
        assert_eq!((journal.appended(), journal.durable()), (Seq(4), Seq(4)));
    });
}

#[test]
fn segments_are_removed_when_every_stream_allows_it() {
    everywhere(|disk, config| {
        let (journal, _) = Journal::open(Arc::clone(&disk), "j", config.clone()).unwrap();
        let mut last = Seq::ZERO;
        while journal.segments().len() < 5 {
            last = journal.append(A, &[&[7; 5000]]).unwrap().seq;
        }
        journal.sync_to(last).unwrap();
        let second = journal.segments()[1];
        journal.set_trim(A, Seq(u64::MAX)).unwrap();
        assert_eq!(journal.oldest(), Seq(1), "the other stream has not said anything");
        journal.set_trim(B, second.last).unwrap();
        assert_eq!(journal.oldest(), second.first, "the record below the mark's segment is still needed");
        journal.set_trim(B, second.last.next()).unwrap();
        journal.set_trim(B, Seq(1)).unwrap();
        assert_eq!(journal.oldest(), second.last.next());
        assert!(matches!(
            journal.replay(A, Seq::ZERO, &mut |_, _, _| ControlFlow::Continue(())),
            Err(JournalError::Trimmed { .. })
        ));
        assert_eq!(all(&journal, A, second.last).len() as u64, last.0 - second.last.0);
        let gone = Location { segment: second.segment, offset: 4096 + 48, len: 5000 };
        assert!(matches!(journal.read(gone), Err(JournalError::NotThere { .. })));
        journal.set_trim(B, Seq(u64::MAX)).unwrap();
        assert_eq!(journal.segments().len(), 1, "never the current one");
        drop(journal);
        let (journal, opened) = Journal::open(disk, "j", config).unwrap();
        assert_eq!(opened.last, last);
        assert_eq!(all(&journal, A, opened.oldest).len() as u64, last.0 - opened.oldest.0);
    });
}

#[test]
fn trimming_leaves_a_durable_first_segment() {
    let sim = SimDisk::new(1);
    let config = config(false);
    let (journal, _) = Journal::open(Arc::new(sim.clone()), "j", config.clone()).unwrap();
    // The second segment is begun, and none of it is on the disk.
    loop {
        journal.append(A, &[&[7; 5000]]).unwrap();
        if journal.segments().len() == 2 {
            break;
        }
        journal.sync_to(journal.appended()).unwrap();
    }
    let durable = journal.durable();
    assert_eq!(journal.segments()[0].last, durable);
    journal.set_trim(A, durable.next()).unwrap();
    journal.set_trim(B, durable.next()).unwrap();
    let (after, _) = sim.crash(&mut SmallRng::seed_from_u64(1), CrashFaults::all_lost());
    let (_, opened) = Journal::open(Arc::new(after), "j", config).unwrap();
    assert_eq!(opened.last, durable, "the numbers are not used again");
    journal.sync_to(journal.appended()).unwrap();
    journal.set_trim(A, durable.next()).unwrap();
    assert_eq!(journal.segments().len(), 1, "it goes when something behind it is durable");
}

#[test]
fn a_failed_trim_continues_at_the_next_call() {
    let sim = SimDisk::new(1);
    let (journal, _) = Journal::open(Arc::new(sim.clone()), "j", config(false)).unwrap();
    while journal.segments().len() < 4 {
        journal.append(A, &[&[7; 5000]]).unwrap();
    }
    journal.sync_to(journal.appended()).unwrap();
    journal.set_trim(A, Seq(u64::MAX)).unwrap();
    sim.fail_next(DiskOp::SyncDir, 1, std::io::ErrorKind::Other);
    assert!(journal.set_trim(B, Seq(u64::MAX)).is_err());
    journal.set_trim(B, Seq(u64::MAX)).unwrap();
    assert_eq!(journal.segments().len(), 1);
}

/// The number of names that trimmed segments leave in the journal's directory until they are removed.
fn leftover_names(disk: &SimDisk) -> usize {
    disk.list("j").unwrap().iter().filter(|entry| entry.name.starts_with("trimmed-")).count()
}

#[test]
fn a_replay_reads_segments_that_are_trimmed_meanwhile() {
    let sim = SimDisk::new(1);
    let (journal, _) = Journal::open(Arc::new(sim.clone()), "j", config(false)).unwrap();
    while journal.segments().len() < 3 {
        journal.append(A, &[&[7; 5000]]).unwrap();
    }
    let (first, last) = (journal.segments()[0], journal.appended());
    journal.sync_to(last).unwrap();
    let mut seen = 0;
    let read = |seq: Seq, _: Location, payload: &[u8]| {
        if seq == Seq(1) {
            journal.set_trim(A, first.last.next()).unwrap();
            journal.set_trim(B, first.last.next()).unwrap();
        }
        assert_eq!(payload, [7; 5000]);
        seen += 1;
        ControlFlow::Continue(())
    };
    journal.replay(A, Seq::ZERO, &mut { read }).unwrap();
    assert_eq!((seen, journal.oldest(), leftover_names(&sim)), (last.0, first.last.next(), 1));
    journal.set_trim(A, first.last.next()).unwrap();
    assert_eq!(leftover_names(&sim), 0, "once nobody reads it");
}

#[test]
fn the_next_opening_removes_leftovers_of_trimmed_segments() {
    let sim = SimDisk::new(1);
    let (journal, _) = Journal::open(Arc::new(sim.clone()), "j", config(false)).unwrap();
    while journal.segments().len() < 3 {
        journal.append(A, &[&[7; 5000]]).unwrap();
    }
    journal.sync_to(journal.appended()).unwrap();
    journal.set_trim(A, Seq(u64::MAX)).unwrap();
    // The first removal fails while it truncates the file; the second segment is removed.
    sim.fail_next(DiskOp::Sync, 2, std::io::ErrorKind::Other);
    journal.set_trim(B, Seq(u64::MAX)).unwrap();
    assert_eq!((journal.segments().len(), journal.stats().removals_failed, leftover_names(&sim)), (1, 1, 1));
    let last = journal.appended();
    drop(journal);
    let (_, opened) = Journal::open(Arc::new(sim.clone()), "j", config(false)).unwrap();
    assert_eq!((opened.last, leftover_names(&sim)), (last, 0));
}

#[test]
fn impossible_requests_are_refused() {
    everywhere(|disk, config| {
        let (journal, _) = Journal::open(Arc::clone(&disk), "j", config.clone()).unwrap();
        let max = usize::try_from(config.segment_bytes).unwrap() - 4096 - 48;
        assert!(matches!(journal.append(A, &[&vec![0; max + 1]]), Err(JournalError::TooLarge { .. })));
        let largest = journal.append(A, &[&vec![9; max]]).unwrap();
        journal.sync_to(largest.seq).unwrap();
        assert_eq!(journal.read(largest.location).unwrap(), vec![9; max]);
        assert!(matches!(journal.sync_to(Seq(2)), Err(JournalError::NotAppended { .. })));
        assert!(matches!(journal.write_to(Seq(2)), Err(JournalError::NotAppended { .. })));
        let location = largest.location;
        for wrong in [
            Location { offset: location.offset + 8, ..location },
            Location { len: location.len - 1, ..location },
            Location { segment: 99, ..location },
            Location { offset: 0, ..location },
            Location { len: u32::MAX, ..location },
        ] {
            assert!(matches!(journal.read(wrong), Err(JournalError::NotThere { .. })), "{wrong:?}");
        }
        assert!(journal.read_into(location, location.len, &mut [0]).is_err());
        drop(journal);
        let bad = JournalConfig { segment_bytes: 100, ..config.clone() };
        assert!(matches!(Journal::open(Arc::clone(&disk), "j", bad), Err(JournalError::Config(_))));
        let elsewhere = JournalConfig { must_exist: true, ..config };
        assert!(matches!(Journal::open(disk, "other", elsewhere), Err(JournalError::Missing { .. })));
    });
}

#[test]
fn segments_of_another_size_stay_readable() {
    everywhere(|disk, config| {
        let mut last = Seq::ZERO;
        for kib in [64, 32, 128] {
            let config = JournalConfig { segment_bytes: kib << 10, ..config.clone() };
            let (journal, _) = Journal::open(Arc::clone(&disk), "j", config).unwrap();
            for _ in 0..100 {
                last = journal.append(A, &[&[1; 1000]]).unwrap().seq;
            }
            journal.sync_to(last).unwrap();
        }
        let (journal, opened) = Journal::open(disk, "j", config).unwrap();
        assert_eq!(opened.last, last);
        assert_eq!(all(&journal, A, Seq::ZERO).len(), 300);
    });
}

#[test]
fn many_threads_share_syncs_without_losing_records() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::open(folder.path()).unwrap());
    let config = JournalConfig {
        segment_bytes: 1 << 20,
        prepare: Prepare::Background,
        pending_bytes_max: 20_000,
        ..config(true)
    };
    let (journal, _) = Journal::open(Arc::clone(&disk), "j", config.clone()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..16u8 {
            let journal = &journal;
            scope.spawn(move || {
                for i in 0..400u32 {
                    let bytes = [&[thread][..], &i.to_le_bytes(), &[thread; 300]].concat();
                    let appended = journal.append(A, &[&bytes]).unwrap();
                    if i % 3 == 0 {
                        journal.write_to(appended.seq).unwrap();
                        assert!(journal.written() >= appended.seq);
                    } else if i % 3 == 1 {
                        journal.sync_to(appended.seq).unwrap();
                        assert!(journal.durable() >= appended.seq);
                    }
                    assert_eq!(journal.read(appended.location).unwrap(), bytes);
                }
            });
        }
    });
    let stats = journal.stats();
    assert!(stats.syncs < 16 * 134, "{stats:?}");
    journal.close().unwrap();
    drop(journal);
    let (journal, _) = Journal::open(disk, "j", config).unwrap();
    let mut next = [0u32; 16];
    for (_, _, bytes) in all(&journal, A, Seq::ZERO) {
        let thread = usize::from(bytes[0]);
        assert_eq!(bytes[1..5], next[thread].to_le_bytes());
        next[thread] += 1;
    }
    assert_eq!(next, [400; 16]);
}
