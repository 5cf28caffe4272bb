//! A user of the journal that remembers all promises, and a disk that crashes. Each seed gives one story.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    dead_code,
    clippy::print_stdout,
    clippy::cast_possible_truncation,
    clippy::manual_is_multiple_of
)]

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::sync::Arc;

use disk::{CrashFaults, CrashReport, DiskOp, SimDisk};
use journal::{BallastConfig, Journal, JournalConfig, JournalError, PlantedBug, Seq, StreamId};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

pub const A: StreamId = StreamId::NAMESPACE;
pub const B: StreamId = StreamId::STORE_INDEX;
const PLENTY: u64 = 1 << 40;

/// How often all stories reached each case. A test that asserts these counts knows that it tested something.
#[derive(Default, Debug)]
pub struct Hits {
    pub faults: CrashReport,
    pub crashes: u64,
    pub kills: u64,
    pub crashes_in_recovery: u64,
    pub cut_tails: u64,
    pub poisoned_by_write: u64,
    pub poisoned_by_sync: u64,
    pub refused_for_space: u64,
    pub urgent_when_full: u64,
    pub trimmed: u64,
    pub segments_crossed: u64,
    pub acknowledged: u64,
    pub unacknowledged_survived: u64,
    pub unacknowledged_lost: u64,
    /// Bytes in the kernel were lost without a power failure, and the journal reported that as possible.
    pub losses_told: u64,
}

/// The promises of the journal.
#[derive(Default, Clone)]
struct Promises {
    records: BTreeMap<u64, (StreamId, Vec<u8>)>,
    /// The highest number for which a `sync_to` returned.
    synced: u64,
    /// The highest number for which a `write_to` returned.
    written: u64,
    /// Nothing from this number on may be trimmed.
    needed_from: u64,
    /// A write or a sync of the journal has failed.
    failed: bool,
}

pub struct Story {
    rng: SmallRng,
    config: JournalConfig,
    promises: Promises,
    disk: SimDisk,
    counter: u64,
    /// The number of losses reported by the last opening.
    losses: u64,
    /// The power has failed since.
    power_lost: bool,
}

pub fn config_for(seed: u64, planted: Option<PlantedBug>) -> JournalConfig {
    JournalConfig {
        segment_bytes: if seed % 4 < 2 { 16 << 10 } else { 64 << 10 },
        direct: seed % 2 == 0,
        streams: vec![A, B],
        incarnation: Some(seed + 1),
        ballast: Some(BallastConfig { path: "ballast".to_owned(), bytes: 64 << 10 }),
        planted,
        ..JournalConfig::small()
    }
}

impl Story {
    pub fn new(seed: u64, planted: Option<PlantedBug>) -> Self {
        let disk = SimDisk::new(seed);
        if seed % 3 == 0 {
            disk.refuse_direct();
        }
        Self {
            rng: SmallRng::seed_from_u64(seed),
            config: config_for(seed, planted),
            promises: Promises { needed_from: 1, ..Promises::default() },
            disk,
            counter: 0,
            losses: 0,
            power_lost: false,
        }
    }

    /// Several runs on one disk, each ended by a crash or a kill. An error says which promise was broken.
    pub fn run(&mut self, hits: &mut Hits) -> Result<(), String> {
        for _ in 0..4 {
            let journal = self.open_and_check(hits)?;
            if self.rng.random_bool(0.8) {
                self.disk.freeze_after(self.rng.random_range(1..40));
            }
            let (stopped, promises) = self.live(&journal, hits)?;
            drop(journal);
            self.promises = promises;
            if self.rng.random_bool(0.8) {
                hits.crashes += 1;
                self.crash(&stopped, hits);
            } else {
                hits.kills += 1;
                self.disk = stopped;
            }
        }
        self.open_and_check(hits).map(drop)
    }

    /// The machine loses power: records that were only written are no longer promised.
    fn crash(&mut self, disk: &SimDisk, hits: &mut Hits) {
        let faults = match self.rng.random_range(0..10) {
            0 => CrashFaults::all_lost(),
            1 => CrashFaults { kept: 20, lost: 1, torn: 1, zeroed: 1, metadata_kept: 95 },
            _ => CrashFaults::mixed(),
        };
        let (after, report) = disk.crash(&mut self.rng, faults);
        hits.faults.add(&report);
        self.promises.written = self.promises.synced;
        self.power_lost = true;
        self.disk = after;
    }

    /// Opens the journal. The machine may crash during that, more than once.
    fn open_and_check(&mut self, hits: &mut Hits) -> Result<Journal, String> {
        let open = |disk: &SimDisk, config: &JournalConfig| {
            Journal::open(Arc::new(disk.clone()), "log", config.clone()).map_err(|e| format!("opening failed: {e}"))
        };
        while self.rng.random_bool(0.4) {
            self.disk.freeze_after(self.rng.random_range(1..12));
            open(&self.disk, &self.config)?;
            if let Some(frozen) = self.disk.frozen() {
                hits.crashes_in_recovery += 1;
                self.crash(&frozen, hits);
            }
        }
        let (journal, opened) = open(&self.disk, &self.config)?;
        if opened.cut.is_some() {
            hits.cut_tails += 1;
        }
        let found = read_all(&journal)?;
        self.check(&found, opened.last.0, journal.losses(), hits)?;
        // Visible records must be durable: a crash right now must not lose them.
        let (later, _) = self.disk.crash(&mut self.rng, CrashFaults::all_lost());
        let (again, _) = open(&later, &self.config)?;
        let found_again = read_all(&again)?;
        if !found_again.iter().take(found.len()).eq(found.iter()) {
            return Err("records that were shown after opening were lost by a crash right after".to_owned());
        }
        Ok(journal)
    }

    /// Compares the records with the promises, and continues from the records.
    fn check(
        &mut self,
        found: &[(u64, StreamId, Vec<u8>)],
        last: u64,
        losses: u64,
        hits: &mut Hits,
    ) -> Result<(), String> {
        let told = losses > self.losses;
        if told && !self.promises.failed && !self.power_lost {
            return Err("nothing had failed, and the log says that something may be lost".to_owned());
        }
        (self.losses, self.power_lost) = (losses, false);
        let promises = &mut self.promises;
        if last < promises.synced {
            return Err(format!("record {} was acknowledged, the log ends with {last}", promises.synced));
        }
        if last < promises.written && told {
            hits.losses_told += 1;
        } else if last < promises.written {
            return Err(format!("record {} was in the kernel, the log ends with {last}", promises.written));
        }
        let first = found.first().map_or(last + 1, |r| r.0);
        if first > promises.needed_from.max(1) {
            return Err(format!("records from {} on are needed, the log begins with {first}", promises.needed_from));
        }
        for (expected, (seq, stream, payload)) in (first..).zip(found) {
            if *seq != expected {
                return Err(format!("record {seq} stands where {expected} should"));
            }
            match promises.records.get(seq) {
                Some((s, p)) if s == stream && p == payload => {}
                // An interrupted earlier opening found a shorter journal, and left its mark there.
                Some(_) if *stream == StreamId::MARKS && payload.is_empty() && *seq > promises.synced => {
                    promises.records.split_off(seq);
                }
                Some(_) => return Err(format!("record {seq} is another than what was appended")),
                None if *stream == StreamId::MARKS && payload.is_empty() => {}
                None => return Err(format!("record {seq} was never appended")),
            }
        }
        if (found.len() as u64) < last + 1 - first {
            return Err(format!(
                "the log says that it ends with {last}, but shows {} records from {first} on",
                found.len()
            ));
        }
        let lost = promises.records.split_off(&(last + 1));
        hits.unacknowledged_lost += lost.len() as u64;
        hits.unacknowledged_survived += promises.records.range(promises.synced + 1..).count() as u64;
        // Opening has made all visible records durable.
        promises.synced = last;
        promises.written = last;
        promises.failed = false;
        Ok(())
    }

    /// Uses the journal until the disk freezes, a call fails, or the run is long enough. Returns the disk at that
    /// moment and the promises made by then.
    fn live(&mut self, journal: &Journal, hits: &mut Hits) -> Result<(SimDisk, Promises), String> {
        let before = journal.segments().len();
        for _ in 0..self.rng.random_range(1..120) {
            let (synced, written) = (self.promises.synced, self.promises.written);
            let outcome = self.step(journal, hits);
            if let Some(frozen) = self.disk.frozen() {
                // The results of this step do not count: the crash came before the answer.
                let failed = matches!(outcome, Err(JournalError::Poisoned { .. }));
                // The failure is not recorded yet either.
                let written = if failed { synced } else { written };
                return Ok((frozen, Promises { synced, written, failed, ..self.promises.clone() }));
            }
            match outcome {
                Ok(()) => {}
                Err(JournalError::Poisoned { reason }) => {
                    self.promises.failed = true;
                    if reason.contains("write") {
                        hits.poisoned_by_write += 1;
                    } else {
                        hits.poisoned_by_sync += 1;
                    }
                    let mut refused = vec![journal.append(A, &[b"x"]).map(drop), journal.mark_synced()];
                    // Earlier records stay durable, and the journal may say so.
                    if journal.appended() > journal.durable() {
                        refused.push(journal.sync_to(journal.durable().next()));
                    }
                    if refused.iter().any(|r| !matches!(r, Err(JournalError::Poisoned { .. }))) {
                        return Err(format!("a poisoned log goes on: {refused:?}"));
                    }
                    break;
                }
                Err(JournalError::NoSpace { .. }) => {
                    hits.refused_for_space += 1;
                    self.when_full(journal, hits)?;
                }
                Err(e) => return Err(format!("unexpected: {e}")),
            }
        }
        hits.segments_crossed += journal.segments().len().saturating_sub(before) as u64;
        Ok((self.disk.kill(), self.promises.clone()))
    }

    fn payload(&mut self) -> Vec<u8> {
        self.counter += 1;
        // Few sizes, so that leftover frames of a cut tail can stand exactly where new frames end.
        let len = [0, 16, 200, 200, 200, 1000, 3000][self.rng.random_range(0..7)];
        (0..len).map(|i| (self.counter as usize * 131 + i) as u8).collect()
    }

    fn append(&mut self, journal: &Journal, urgent: bool) -> Result<u64, JournalError> {
        let payload = self.payload();
        let stream = if self.rng.random_bool(0.5) { A } else { B };
        let cut = self.rng.random_range(0..=payload.len());
        let parts = [&payload[..cut], &payload[cut..]];
        let appended = if urgent { journal.append_urgent(stream, &parts) } else { journal.append(stream, &parts) }?;
        self.promises.records.insert(appended.seq.0, (stream, payload));
        Ok(appended.seq.0)
    }

    fn step(&mut self, journal: &Journal, hits: &mut Hits) -> Result<(), JournalError> {
        match self.rng.random_range(0..100) {
            0..55 => self.append(journal, false).map(drop),
            55..67 => {
                let seq = self.rng.random_range(0..=journal.appended().0);
                journal.write_to(Seq(seq))?;
                self.promises.written = self.promises.written.max(seq);
                Ok(())
            }
            67..87 => {
                let seq = self.rng.random_range(0..=journal.appended().0);
                journal.sync_to(Seq(seq))?;
                hits.acknowledged += 1;
                self.promises.synced = self.promises.synced.max(seq);
                self.promises.written = self.promises.written.max(seq);
                Ok(())
            }
            87..89 => journal.mark_synced(),
            89..93 => {
                let below = self.rng.random_range(0..=self.promises.synced);
                // The promise precedes the call: a crash may interrupt it.
                self.promises.needed_from = self.promises.needed_from.max(below);
                let before = journal.stats().segments_trimmed;
                journal.set_trim(A, Seq(below))?;
                journal.set_trim(B, Seq(self.promises.needed_from))?;
                hits.trimmed += journal.stats().segments_trimmed - before;
                Ok(())
            }
            93..95 => {
                let op = if self.rng.random_bool(0.5) { DiskOp::Write } else { DiskOp::Sync };
                if self.rng.random_bool(0.3) {
                    // The failure hits the next operation, which may be the making of a segment.
                    self.disk.fail_next(op, self.rng.random_range(1..4), ErrorKind::Other);
                }
                match self.append(journal, false) {
                    Err(JournalError::NoSegment { .. }) => Ok(()),
                    other => other.map(drop),
                }
            }
            95..97 => {
                self.disk.set_free(if self.rng.random_bool(0.5) { 8192 } else { PLENTY });
                Ok(())
            }
            _ => match journal.prepare() {
                Err(JournalError::NoSegment { .. } | JournalError::NoSpace { .. }) => Ok(()),
                other => other,
            },
        }
        .or_else(|e| if matches!(e, JournalError::NoSegment { .. }) { Ok(()) } else { Err(e) })
    }

    /// Ordinary records fail. An urgent one may still succeed, and all succeed when there is space again.
    fn when_full(&mut self, journal: &Journal, hits: &mut Hits) -> Result<(), String> {
        if self.append(journal, true).is_ok() {
            hits.urgent_when_full += 1;
        }
        self.disk.set_free(PLENTY);
        match self.append(journal, false) {
            Ok(_) | Err(JournalError::Poisoned { .. } | JournalError::NoSegment { .. }) => Ok(()),
            Err(e) => Err(format!("there is space again, but: {e}")),
        }
    }
}

/// All visible records, including marks.
pub fn read_all(journal: &Journal) -> Result<Vec<(u64, StreamId, Vec<u8>)>, String> {
    let mut found = Vec::new();
    let mut unreadable = None;
    let after = Seq(journal.oldest().0 - 1);
    journal
        .replay_many(&[StreamId::MARKS, A, B], after, &mut |stream, seq, location, payload| {
            if journal.read(location).ok().as_deref() != Some(payload) {
                unreadable = Some(seq);
            }
            found.push((seq.0, stream, payload.to_vec()));
            ControlFlow::Continue(())
        })
        .map_err(|e| format!("replay failed: {e}"))?;
    match unreadable {
        Some(seq) => Err(format!("record {seq} is replayed, but not read at its place")),
        None => Ok(found),
    }
}
