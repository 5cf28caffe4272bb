//! Rot, missing files, foreign bytes and newer versions. Opening fails with the offset if they hit durable records, and
//! cuts them if they hit unacknowledged ones. Also the repair.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::cast_possible_truncation,
    clippy::manual_is_multiple_of
)]

use std::sync::Arc;

use crate::support::{A, B, config_for, read_all};
use disk::{Access, CrashFaults, Disk, OpenOptions, SimDisk};
use journal::{Damage, Journal, JournalConfig, JournalError, Location, PlantedBug, Seq};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const HEADER: u64 = 48;

fn path(segment: u64) -> String {
    format!("log/{segment:016x}.wseg")
}

fn open(disk: &SimDisk, config: &JournalConfig) -> Result<Journal, JournalError> {
    Journal::open(Arc::new(disk.clone()), "log", config.clone()).map(|(journal, _)| journal)
}

/// Makes a journal of a few segments, all durable and marked. Returns the locations of its records; the first is record
/// 1.
fn build(disk: &SimDisk, config: &JournalConfig, rng: &mut SmallRng) -> Vec<Location> {
    let journal = open(disk, config).unwrap();
    let mut places = Vec::new();
    while journal.segments().len() < 4 {
        let payload = vec![rng.random::<u8>(); rng.random_range(0..1500)];
        places.push(journal.append(A, &[&payload]).unwrap().location);
        if rng.random_bool(0.2) {
            journal.sync_to(journal.appended()).unwrap();
        }
    }
    journal.mark_synced().unwrap();
    places
}

fn damage_of(result: Result<Journal, JournalError>) -> Result<Damage, String> {
    match result {
        Err(JournalError::Damaged(damage)) => Ok(*damage),
        Err(other) => Err(format!("refused for another reason: {other}")),
        Ok(journal) => Err(format!("it opened, and ends with {}", journal.appended())),
    }
}

/// Rot at a random byte of a random durable record. `Err` says what was wrong with the answer.
fn rot_one(seed: u64, planted: Option<PlantedBug>) -> Result<(), String> {
    let mut rng = SmallRng::seed_from_u64(seed);
    let config = config_for(seed, planted);
    let disk = SimDisk::new(seed);
    let places = build(&disk, &config, &mut rng);
    let victim = rng.random_range(0..places.len());
    let place = places[victim];
    let at = place.offset - HEADER + rng.random_range(0..HEADER + u64::from(place.len));
    assert!(disk.rot(&path(place.segment), at));
    let damage = damage_of(open(&disk, &config))?;
    let expected = (path(place.segment), place.offset - HEADER, Seq(victim as u64 + 1));
    let found = (damage.segment.clone(), damage.offset, damage.first_lost);
    if found != expected {
        return Err(format!("said {found:?}, was {expected:?}"));
    }
    if damage.last_known < Seq(places.len() as u64) {
        return Err(format!("record {} was durable, it knows of {}", places.len(), damage.last_known));
    }
    let words = damage.to_string();
    assert!(words.contains(&damage.segment) && words.contains(&damage.offset.to_string()), "{words}");
    Ok(())
}

#[test]
fn rot_in_durable_records_is_reported_with_its_offset() {
    for seed in 0..200 {
        rot_one(seed, None).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    }
}

#[test]
fn planted_forget_synced_to_is_found() {
    let found = (0..200).find_map(|seed| rot_one(seed, Some(PlantedBug::ForgetSyncedTo)).err());
    println!("found: {}", found.expect("a log without synced_to takes rot for a tail, and no test saw it"));
}

#[test]
fn planted_skip_crc_is_found_by_rot() {
    let found = (0..200).find_map(|seed| rot_one(seed, Some(PlantedBug::SkipCrc)).err());
    println!("found: {}", found.expect("unchecked rot, and no test saw it"));
}

#[test]
fn rot_in_headers_and_missing_segments_are_damage() {
    for seed in 0..40 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let config = config_for(seed, None);
        let disk = SimDisk::new(seed);
        let places = build(&disk, &config, &mut rng);
        for segment in 1..=3 {
            let rotten = disk.kill();
            let at = if seed % 2 == 0 { rng.random_range(0..80) } else { rng.random_range(0..4096) };
            assert!(rotten.rot(&path(segment), at));
            let damage = damage_of(open(&rotten, &config)).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            assert!(damage.what.contains(&path(segment)), "{damage}");
            let missing = disk.kill();
            missing.remove(&path(segment)).unwrap();
            let outcome = open(&missing, &config);
            if segment > 1 {
                let damage = damage_of(outcome).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
                assert!(damage.what.contains("missing"), "{damage}");
            } else {
                // The oldest segment could have been trimmed: only a reader that needs it can tell.
                let journal = outcome.unwrap();
                let first = places.iter().position(|p| p.segment == 2).unwrap() as u64 + 1;
                assert_eq!(journal.oldest(), Seq(first));
                let needed = journal.replay(A, Seq::ZERO, &mut |_, _, _| panic!("shown with a gap before"));
                assert!(matches!(needed, Err(JournalError::Trimmed { oldest, .. }) if oldest == Seq(first)));
            }
        }
    }
}

#[test]
fn an_unacknowledged_rotten_tail_is_cut() {
    let mut cuts = 0;
    for seed in 0..100 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let config = config_for(seed, None);
        let disk = SimDisk::new(seed);
        let journal = open(&disk, &config).unwrap();
        for _ in 0..5 {
            journal.append(A, &[&[1; 100]]).unwrap();
        }
        journal.mark_synced().unwrap();
        let mark = journal.appended();
        let tail: Vec<Location> = (0..6).map(|_| journal.append(B, &[&[2; 200]]).unwrap().location).collect();
        journal.write_to(journal.appended()).unwrap();
        drop(journal);
        let victim = rng.random_range(0..tail.len());
        let at = tail[victim].offset - HEADER + rng.random_range(0..HEADER + 200);
        assert!(disk.rot(&path(tail[victim].segment), at));
        let (journal, opened) = Journal::open(Arc::new(disk.clone()), "log", config.clone()).unwrap();
        assert_eq!(opened.last, Seq(mark.0 + victim as u64), "seed {seed}");
        let cut = opened.cut.unwrap();
        assert_eq!((cut.segment, cut.offset), (path(1), tail[victim].offset - HEADER));
        // The saved bytes are the cut ones.
        let saved = cut.saved.unwrap();
        let mut bytes = vec![0; usize::try_from(disk.len_of(&saved).unwrap().unwrap()).unwrap()];
        let file = disk.open(&saved, OpenOptions { access: Access::Read, direct: false }).unwrap();
        file.read_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes[..8], b"WEIRTAIL");
        assert_eq!(bytes.len() as u64, 32 + cut.bytes);
        assert!(bytes[32..].windows(100).filter(|w| w.iter().all(|b| *b == 2)).count() > 0);
        // Appends continue from there.
        journal.append(A, &[b"new"]).unwrap();
        journal.mark_synced().unwrap();
        drop(journal);
        assert!(read_all(&open(&disk, &config).unwrap()).unwrap().iter().any(|r| r.2 == b"new"));
        cuts += 1;
    }
    assert_eq!(cuts, 100);
}

/// A journal on a disk whose blocks still hold frames of an earlier one, exactly at the offset of the next frame.
fn stale_frames(seed: u64, planted: Option<PlantedBug>) -> Result<(), String> {
    let config = config_for(seed, planted);
    let other = JournalConfig { incarnation: Some(99_999), ..config.clone() };
    let (disk, old) = (SimDisk::new(1), SimDisk::new(2));
    let mut last = None;
    for (disk, config, payload) in [(&disk, &config, [1; 200]), (&old, &other, [9; 200])] {
        let journal = open(disk, config).map_err(|e| e.to_string())?;
        for _ in 0..10 {
            last = Some(journal.append(A, &[&payload]).map_err(|e| e.to_string())?.location);
        }
        journal.sync_to(Seq(10)).map_err(|e| e.to_string())?;
        if config.incarnation == other.incarnation {
            for _ in 0..5 {
                journal.append(A, &[&payload]).map_err(|e| e.to_string())?;
            }
            journal.sync_to(Seq(15)).map_err(|e| e.to_string())?;
        }
    }
    let end = last.unwrap().offset + 200;
    let mut bytes = vec![0; 5 * 248];
    let options = OpenOptions { access: Access::ReadWrite, direct: false };
    old.open(&path(1), options).unwrap().read_at(&mut bytes, end).unwrap();
    let file = disk.open(&path(1), options).unwrap();
    file.write_at(&bytes, end).unwrap();
    file.sync_data().unwrap();
    let (journal, opened) =
        Journal::open(Arc::new(disk.clone()), "log", config).map_err(|e| format!("opening failed: {e}"))?;
    if opened.last != Seq(10) || read_all(&journal)?.iter().any(|r| r.2.contains(&9)) {
        return Err(format!("records of another log were taken; it ends with {}", opened.last));
    }
    Ok(())
}

#[test]
fn frames_of_another_journal_never_count() {
    for seed in 0..4 {
        stale_frames(seed, None).unwrap();
    }
}

#[test]
fn planted_accept_stale_incarnation_is_found() {
    println!("found: {}", stale_frames(0, Some(PlantedBug::AcceptStaleIncarnation)).unwrap_err());
}

#[test]
fn newer_formats_are_refused_and_left_unchanged() {
    let config = config_for(0, None);
    let disk = SimDisk::new(0);
    let place = build(&disk, &config, &mut SmallRng::seed_from_u64(0))[3];
    let options = OpenOptions { access: Access::ReadWrite, direct: false };
    // A feature bit in a segment's header, and a version in a frame, each with its checksum.
    for (at, len, crc_at, crc_of, bit_at) in
        [(0u64, 4096usize, 4092usize, 0..4092usize, 17usize), (place.offset - HEADER, 48, 4, 8..48, 45)]
    {
        let newer = disk.kill();
        let file = newer.open(&path(1), options).unwrap();
        let mut bytes = vec![0; len];
        file.read_at(&mut bytes, at).unwrap();
        bytes[bit_at] ^= 2;
        let crc = types::Crc32c::of(&bytes[crc_of]).0;
        bytes[crc_at..crc_at + 4].copy_from_slice(&crc.to_le_bytes());
        file.write_at(&bytes, at).unwrap();
        file.sync_data().unwrap();
        let changes = newer.change_count();
        match open(&newer, &config) {
            Err(e @ JournalError::Unsupported { .. }) => {
                assert!(e.to_string().contains(&path(1)) && e.to_string().contains("newer"), "{e}");
            }
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("it opened"),
        }
        assert!(matches!(Journal::check(&newer, "log", &config), Err(JournalError::Unsupported { .. })));
        let syncs_alone = newer.change_count() - changes;
        assert!(syncs_alone <= 10, "only syncs before the refusal, not {syncs_alone} changes");
    }
}

#[test]
fn repair_keeps_records_before_the_damage_and_lists_the_lost_ones() {
    let mut interrupted = 0;
    for seed in 0..150 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let config = config_for(seed, None);
        let mut disk = SimDisk::new(seed);
        let places = build(&disk, &config, &mut rng);
        let before = read_all(&open(&disk, &config).unwrap()).unwrap();
        // The header of the first segment, a whole later segment, or a record.
        let good = match seed % 5 {
            0 => {
                assert!(disk.rot(&path(1), 40));
                0
            }
            1 => {
                disk.remove(&path(3)).unwrap();
                places.iter().filter(|p| p.segment < 3).count()
            }
            _ => {
                let victim = rng.random_range(0..places.len());
                let place = places[victim];
                assert!(disk.rot(&path(place.segment), place.offset - HEADER + 20));
                victim
            }
        };
        let damage = damage_of(open(&disk, &config)).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        // The machine may crash during the repair. Opening fails until the repair is complete.
        for _ in 0..3 {
            let victim = disk.kill();
            victim.freeze_after(rng.random_range(1..12));
            Journal::repair(&victim, "log", &config).unwrap();
            let Some(frozen) = victim.frozen() else { break };
            disk = frozen.crash(&mut rng, CrashFaults::mixed()).0;
            interrupted += 1;
            match Journal::open(Arc::new(disk.kill()), "log", config.clone()) {
                Err(JournalError::Damaged(_)) => {}
                Err(other) => panic!("seed {seed}: {other}"),
                Ok((_, opened)) => assert!(
                    opened.last >= damage.last_known,
                    "seed {seed}: opened with {opened:?}, and numbers up to {} were used",
                    damage.last_known
                ),
            }
        }
        if let Some(repaired) = Journal::repair(&disk, "log", &config).unwrap() {
            assert_eq!(repaired.last, Seq(good as u64), "seed {seed}");
            assert_eq!(repaired.lost.0, Seq(good as u64 + 1));
            assert!(repaired.lost.1 >= Seq(places.len() as u64), "seed {seed}: {repaired:?}");
            assert!(!repaired.saved.is_empty());
        }
        assert_eq!(Journal::repair(&disk, "log", &config).unwrap(), None, "seed {seed}: once is enough");
        let (journal, opened) = Journal::open(Arc::new(disk.clone()), "log", config.clone()).unwrap();
        assert!(opened.cut.is_none(), "seed {seed}: {opened:?}");
        let kept: Vec<_> = read_all(&journal).unwrap().into_iter().filter(|r| r.0 <= good as u64).collect();
        assert!(kept[..] == before[..good], "seed {seed}");
        let new = journal.append(A, &[b"after the repair"]).unwrap().seq;
        assert!(new > damage.last_known, "seed {seed}: {new} was used before");
        journal.close().unwrap();
        drop(journal);
        let (journal, opened) = Journal::open(Arc::new(disk.clone()), "log", config).unwrap();
        assert!(opened.clean);
        assert!(read_all(&journal).unwrap().iter().any(|r| r.0 == new.0 && r.2 == b"after the repair"));
    }
    assert!(interrupted > 50, "{interrupted}");
}

#[test]
fn random_bytes_never_cause_a_panic() {
    for seed in 0..300 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let config = config_for(seed, None);
        let disk = SimDisk::new(seed);
        build(&disk, &config, &mut rng);
        for _ in 0..rng.random_range(1..5) {
            let file = path(rng.random_range(1..=4));
            let handle = disk.open(&file, OpenOptions { access: Access::ReadWrite, direct: false }).unwrap();
            let len = handle.len().unwrap();
            let mut bytes = vec![0u8; rng.random_range(1..2000)];
            rng.fill(&mut bytes[..]);
            match rng.random_range(0..3) {
                0 => handle.set_len(rng.random_range(0..len)).unwrap(),
                _ => handle.write_at(&bytes, rng.random_range(0..len)).unwrap(),
            }
        }
        // An error and an opened prefix are both fine; a panic is not.
        drop(open(&disk.kill(), &config));
        drop(Journal::check(&disk, "log", &config));
        Journal::repair(&disk, "log", &config).unwrap();
        assert!(open(&disk, &config).is_ok(), "seed {seed}");
    }
}

#[test]
fn unreadable_sectors_are_damage_with_an_offset_and_can_be_repaired() {
    let (mut damaged, mut spared) = (0, 0);
    for seed in 0..60 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let config = config_for(seed, None);
        let disk = SimDisk::new(seed);
        let places = build(&disk, &config, &mut rng);
        let before = read_all(&open(&disk, &config).unwrap()).unwrap();
        let file = path(rng.random_range(1..=6));
        let Some(len) = disk.len_of(&file).unwrap() else { continue };
        let at = rng.random_range(0..len / 4096) * 4096;
        assert!(disk.make_unreadable(&file, at));
        match Journal::check(&disk, "log", &config) {
            Err(JournalError::Damaged(damage)) => {
                assert!(damage.segment == file || damage.what.contains(&file), "seed {seed}: {file} {at}: {damage}");
                assert!(damage.what.contains("cannot be read") || damage.offset <= at, "seed {seed}: {damage}");
                assert!(open(&disk, &config).is_err());
                let repaired = Journal::repair(&disk, "log", &config).unwrap().expect("it was damaged");
                assert!(repaired.last.0 <= places.len() as u64 + 1);
                let kept = read_all(&open(&disk, &config).unwrap()).unwrap();
                let same = kept.iter().take_while(|record| record.0 <= repaired.last.0).zip(&before);
                assert!(same.into_iter().all(|(kept, before)| kept == before), "seed {seed}");
                damaged += 1;
            }
            Err(e) => panic!("seed {seed}: {e}"),
            Ok(_) => {
                // A prepared segment: it was empty.
                assert!(at > 0 && file > path(4), "seed {seed}: {file} {at}");
                assert_eq!(read_all(&open(&disk, &config).unwrap()).unwrap(), before);
                spared += 1;
            }
        }
    }
    println!("damaged {damaged}, made ahead {spared}");
    assert!(damaged > 20 && spared > 3);
}

#[test]
fn a_dead_device_is_not_a_damaged_journal() {
    let config = JournalConfig { segment_bytes: 2 << 20, ballast: None, ..config_for(0, None) };
    let disk = SimDisk::new(0);
    drop(open(&disk, &config).unwrap());
    (0..512).for_each(|page| assert!(disk.make_unreadable(&path(1), page * 4096)));
    assert!(matches!(Journal::check(&disk, "log", &config), Err(JournalError::Disk(_))));
    assert!(matches!(Journal::repair(&disk, "log", &config), Err(JournalError::Disk(_))));
}

#[test]
fn forged_numbers_never_cause_a_panic() {
    let config = config_for(0, None);
    let disk = SimDisk::new(0);
    let places = build(&disk, &config, &mut SmallRng::seed_from_u64(0));
    let options = OpenOptions { access: Access::ReadWrite, direct: false };
    let forge =
        |segment: u64, at: u64, len: usize, crc_at: usize, crc_of: std::ops::Range<usize>, field: usize, value: u64| {
            let forged = disk.kill();
            let file = forged.open(&path(segment), options).unwrap();
            let mut bytes = vec![0; len];
            file.read_at(&mut bytes, at).unwrap();
            bytes[field..field + 8].copy_from_slice(&value.to_le_bytes());
            let crc = types::Crc32c::of(&bytes[crc_of]).0;
            bytes[crc_at..crc_at + 4].copy_from_slice(&crc.to_le_bytes());
            file.write_at(&bytes, at).unwrap();
            file.sync_data().unwrap();
            drop(open(&forged.kill(), &config));
            drop(Journal::check(&forged, "log", &config));
            if Journal::repair(&forged, "log", &config).is_ok()
                && let Ok(journal) = open(&forged, &config)
            {
                journal.append(A, &[b"after"]).unwrap();
                journal.mark_synced().unwrap();
            }
        };
    for value in [0, 1, (1 << 62) - 1, 1 << 62, (1 << 62) + 1, i64::MAX as u64, u64::MAX - 1, u64::MAX] {
        for segment in [1, 4] {
            for field in [40, 48, 56, 64, 72] {
                forge(segment, 0, 4096, 4092, 0..4092, field, value);
            }
        }
        for place in [places[0], places[places.len() - 1]] {
            for field in [16, 32] {
                forge(place.segment, place.offset - HEADER, 48, 4, 8..48, field, value);
            }
        }
    }
}

#[test]
fn a_rotten_repair_plan_is_not_mistaken_for_an_unstarted_repair() {
    let mut refused = 0;
    for changes in 1..30 {
        let config = config_for(1, None);
        let disk = SimDisk::new(1);
        let places = build(&disk, &config, &mut SmallRng::seed_from_u64(1));
        let victim = places[places.len() / 2];
        assert!(disk.rot(&path(victim.segment), victim.offset));
        let interrupted = disk.kill();
        interrupted.freeze_after(changes);
        Journal::repair(&interrupted, "log", &config).unwrap();
        let Some(frozen) = interrupted.frozen() else { break };
        let plan = "log/repair.plan";
        if frozen.len_of(plan).unwrap().is_none_or(|len| len == 0) {
            continue;
        }
        assert!(frozen.rot(plan, 10));
        let moved = frozen.list("log").unwrap().iter().any(|e| e.name.starts_with("damaged-"));
        match Journal::repair(&frozen, "log", &config) {
            Err(JournalError::Damaged(damage)) => {
                assert!(moved && damage.what.contains("damaged-"), "{damage}");
                refused += 1;
            }
            // The repair has changed nothing yet, or everything.
            other => drop(other.unwrap()),
        }
        if let Ok(journal) = open(&frozen, &config) {
            assert!(journal.appended() >= Seq(places.len() as u64), "numbers are used again: {}", journal.appended());
        }
    }
    assert!(refused > 2);
}

/// A journal with one durable record and a broken tail after it.
fn with_broken_tail(disk: &SimDisk, config: &JournalConfig) {
    let journal = open(disk, config).unwrap();
    journal.append(A, &[b"kept"]).unwrap();
    journal.mark_synced().unwrap();
    let torn = journal.append(A, &[&[7; 500]]).unwrap();
    journal.append(A, &[&[8; 500]]).unwrap();
    journal.write_to(journal.appended()).unwrap();
    assert!(disk.rot(&path(torn.location.segment), torn.location.offset + 100));
}

#[test]
fn a_check_changes_nothing_and_predicts_the_opening() {
    for seed in 0..4 {
        let config = config_for(seed, None);
        let disk = SimDisk::new(seed);
        assert!(matches!(Journal::check(&disk.kill(), "", &config), Err(JournalError::Missing { .. })));
        with_broken_tail(&disk, &config);
        let before = disk.change_count();
        let checked = Journal::check(&disk, "log", &config).unwrap();
        assert_eq!(disk.change_count(), before);
        let (_, opened) = Journal::open(Arc::new(disk.clone()), "log", config.clone()).unwrap();
        let (would, did) = (checked.cut.clone().unwrap(), opened.cut.clone().unwrap());
        assert_eq!((would.segment, would.offset, would.bytes), (did.segment, did.offset, did.bytes));
        assert_eq!((checked.last, checked.records, checked.clean), (opened.last, opened.records, opened.clean));
        assert!(Journal::check(&disk, "log", &config).unwrap().cut.is_none());
    }
}

#[test]
fn saved_tails_are_bounded_and_a_full_disk_saves_none() {
    let config = config_for(2, None);
    let disk = SimDisk::new(0);
    let tails = |disk: &SimDisk| disk.list("log").unwrap().iter().filter(|e| e.name.starts_with("tail-")).count();
    for round in 0..40 {
        with_broken_tail(&disk, &config);
        assert!(tails(&disk) <= 16, "round {round}");
    }
    assert_eq!(tails(&disk), 16);
    let disk = SimDisk::new(0);
    with_broken_tail(&disk, &config);
    disk.set_free(0);
    let (_, opened) = Journal::open(Arc::new(disk.clone()), "log", config.clone()).unwrap();
    let cut = opened.cut.unwrap();
    assert!(cut.saved.is_none() && cut.bytes > 1000 && tails(&disk) == 0, "{cut:?}");
    assert!(Journal::check(&disk, "log", &config).unwrap().cut.is_none(), "it was cut all the same");
}
