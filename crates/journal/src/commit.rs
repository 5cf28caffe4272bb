//! Appending, writing, syncing: the group commit.
//!
//! Appends copy into a batch under the lock. The first thread that waits for a write leads it: it takes all batches and
//! writes each with one call, outside the lock. The other threads wait for it or lead the next write. Syncs are led in
//! the same way and do not hold up writes: while one thread runs fdatasync, others write the next batch.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use parking_lot::MutexGuard;
use types::Crc32c;

use crate::batch::Batch;
use crate::frame::{self, FLAG_CLEAN, FLAG_MARK, FrameHeader};
use crate::segment::PAGE_U64;
use crate::state::{Shared, State};
use crate::{Appended, JournalError, Location, PAYLOAD_MAX, Seq, StreamId};

/// Why the journal is poisoned after the thread that led a write or sync has died. The disk is not at fault.
pub const WRITER_DIED: &str = "the thread that wrote the journal has died by a panic";

/// Poisons the journal if the thread that leads a write or a sync panics. Nobody knows then which bytes have reached
/// the disk. The journal takes no more records, and the waiting threads get an error.
struct PoisonOnPanic<'a>(&'a Shared);

impl Drop for PoisonOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut state = self.0.state.lock();
            state.writing = false;
            state.syncing = false;
            state.poison(WRITER_DIED.to_owned());
            drop(state);
            self.0.wake_all();
        }
    }
}

/// A record to append.
pub(crate) struct Record<'p> {
    pub(crate) stream: StreamId,
    pub(crate) flags: u16,
    pub(crate) payload: &'p [&'p [u8]],
    pub(crate) urgent: bool,
}

impl Shared {
    pub(crate) fn append(&self, record: &Record<'_>) -> Result<Appended, JournalError> {
        let len: usize = record.payload.iter().map(|p| p.len()).sum();
        let max = PAYLOAD_MAX.min(self.payload_max());
        let too_large = || JournalError::TooLarge { len: len as u64, max: max as u64 };
        if len > max {
            return Err(too_large());
        }
        let len = u32::try_from(len).map_err(|_| too_large())?;
        let crc = crc_of(record.payload);
        loop {
            let mut state = self.state.lock();
            state.check()?;
            if state.pending_bytes() > self.config.pending_bytes_max as u64 {
                let upto = state.appended;
                drop(state);
                self.write_to(upto)?;
                continue;
            }
            if state.reserve_only && state.spares.len() >= SPARES_TO_LIFT {
                state.reserve_only = false;
            }
            let room = state.segments.back().is_some_and(|s| s.end + frame::frame_len(u64::from(len)) <= s.bytes);
            let refused = state.reserve_only && !record.urgent;
            if room && !refused {
                return Ok(self.place(&mut state, record, len, crc));
            }
            if Self::may_switch(&state, record.urgent) && !refused {
                self.switch(&mut state);
                continue;
            }
            drop(state);
            self.make_room(record.urgent)?;
        }
    }

    /// The longest payload that fits into an empty segment.
    fn payload_max(&self) -> usize {
        let room = self.config.segment_bytes - PAGE_U64 - frame::HEADER_LEN as u64;
        usize::try_from(room).unwrap_or(usize::MAX)
    }

    /// Appends a record to the current segment, where it fits.
    fn place(&self, state: &mut State, record: &Record<'_>, len: u32, payload_crc: Crc32c) -> Appended {
        let seq = state.appended + 1;
        let synced_to = self.config.synced_to(state.durable);
        let (Some(segment), Some(batch)) = (state.segments.back_mut(), state.pending.back_mut()) else {
            unreachable!("there is always a current segment with a batch")
        };
        let header = FrameHeader {
            len,
            payload_crc,
            seq,
            incarnation: segment.incarnation,
            synced_to,
            segment: frame::low_half(segment.number),
            stream: record.stream.0,
            version: frame::VERSION,
            flags: record.flags,
        };
        batch.push(&header.encode(), record.payload);
        let location = Location { segment: segment.number, offset: segment.end + frame::HEADER_LEN as u64, len };
        segment.end += frame::frame_len(u64::from(len));
        segment.last = seq;
        debug_assert_eq!(batch.end(), segment.end);
        state.appended = seq;
        state.stats.records += 1;
        state.stats.payload_bytes += u64::from(len);
        // A mark covers all earlier records only if it directly follows the sync.
        state.marked = (record.flags & FLAG_MARK != 0 && synced_to + 1 == seq).then_some(seq);
        Appended { seq: Seq(seq), location }
    }

    pub(crate) fn write_to(&self, seq: u64) -> Result<(), JournalError> {
        let mut state = self.state.lock();
        loop {
            if state.written >= seq {
                return Ok(());
            }
            state.check()?;
            if seq > state.appended {
                return Err(JournalError::NotAppended { asked: Seq(seq), appended: Seq(state.appended) });
            }
            if !state.writing {
                break;
            }
            self.wrote.wait(&mut state);
        }
        state.writing = true;
        let target = state.appended;
        let batches = take_batches(&mut state);
        drop(state);
        let _guard = PoisonOnPanic(self);

        let mut bytes = 0;
        let mut outcome = Ok(());
        for batch in &batches {
            match batch.write() {
                Ok(n) => bytes += n,
                Err(e) => {
                    outcome = Err(e);
                    break;
                }
            }
        }

        let mut state = self.state.lock();
        state.writing = false;
        let result = match outcome {
            Ok(()) => {
                state.written = target;
                state.stats.writes += batches.len() as u64;
                state.stats.bytes_written += bytes;
                for batch in &batches {
                    state.dirty.insert(batch.segment, batch.file().clone());
                }
                state.in_flight.clear();
                for batch in batches {
                    if let Some(buffer) = Arc::try_unwrap(batch).ok().and_then(Batch::into_buffer) {
                        state.recycled = Some(buffer);
                    }
                }
                Ok(())
            }
            Err(e) => Err(state.poison(format!("a write failed: {e}"))),
        };
        drop(state);
        if result.is_err() {
            self.note_failure();
            self.wake_all();
        }
        self.wrote.notify_all();
        result
    }

    pub(crate) fn sync_to(&self, seq: u64) -> Result<(), JournalError> {
        loop {
            if self.durable.load(Ordering::Acquire) >= seq {
                return Ok(());
            }
            let state = self.state.lock();
            if state.durable >= seq {
                return Ok(());
            }
            state.check()?;
            if seq > state.appended {
                return Err(JournalError::NotAppended { asked: Seq(seq), appended: Seq(state.appended) });
            }
            if !state.syncing {
                return self.lead_sync(state);
            }
            // Threads that this round does not serve sleep until it ends. One of them leads the next.
            let served = state.syncing_to.is_none_or(|to| seq <= to);
            let event = self.end_of(if served { state.round } else { state.round + 1 });
            let seen = event.count();
            drop(state);
            event.wait(seen);
        }
    }

    /// Writes and syncs everything appended, for all waiting threads.
    fn lead_sync(&self, mut state: MutexGuard<'_, State>) -> Result<(), JournalError> {
        state.syncing = true;
        state.round += 1;
        let round = state.round;
        let upto = state.appended;
        drop(state);
        let _guard = PoisonOnPanic(self);

        let mut took = Duration::ZERO;
        let outcome = self.write_to(upto).and_then(|()| {
            let began = Instant::now();
            let synced = self.sync_written();
            took = began.elapsed();
            synced
        });

        let mut state = self.state.lock();
        state.syncing = false;
        state.syncing_to = None;
        if let Ok(target) = outcome {
            state.stats.syncs += 1;
            let records = target.saturating_sub(state.durable);
            state.stats.records_synced += records;
            state.stats.sync_records.add(records);
            state.stats.sync_micros.add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
            state.durable = state.durable.max(target);
            self.durable.store(state.durable, Ordering::Release);
        }
        drop(state);
        self.end_of(round + 1).notify_one();
        self.end_of(round).notify_all();
        // A failed write or sync has already poisoned the journal and woken everybody.
        outcome.map(drop)
    }

    /// Syncs everything written. Returns the last record that is durable now.
    fn sync_written(&self) -> Result<u64, JournalError> {
        let mut state = self.state.lock();
        let target = state.written;
        state.syncing_to = Some(target);
        let dirty = std::mem::take(&mut state.dirty);
        drop(state);
        if !self.config.syncs() {
            return Ok(target);
        }
        // Oldest first: a crash between two syncs leaves a durable prefix.
        for file in dirty.values() {
            if let Err(e) = file.sync_data() {
                let error = self.state.lock().poison(format!("a sync failed: {e}"));
                self.note_failure();
                self.wake_all();
                return Err(error);
            }
        }
        Ok(target)
    }

    /// Writes a mark saying that all earlier records are durable, and syncs it. Does nothing if the last record is such
    /// a mark.
    pub(crate) fn mark(&self, clean: bool) -> Result<(), JournalError> {
        let state = self.state.lock();
        state.check()?;
        let last = state.appended;
        let covered = state.marked == Some(last) || last == 0;
        drop(state);
        self.sync_to(last)?;
        if covered && !clean {
            return Ok(());
        }
        let flags = if clean { FLAG_MARK | FLAG_CLEAN } else { FLAG_MARK };
        match self.append(&Record { stream: StreamId::MARKS, flags, payload: &[], urgent: false }) {
            Ok(mark) => self.sync_to(mark.seq.0),
            // The mark is optional.
            Err(JournalError::NoSpace { .. }) => Ok(()),
            Err(e) => Err(e),
        }
    }
}

/// Ordinary appends resume once this many segments are ready.
const SPARES_TO_LIFT: usize = 1;

fn crc_of(payload: &[&[u8]]) -> Crc32c {
    if let [whole] = payload {
        return Crc32c::of(whole);
    }
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    payload.iter().for_each(|part| digest.update(part));
    // The low half holds a 32-bit CRC.
    Crc32c(u32::try_from(digest.finalize() & 0xffff_ffff).unwrap_or(0))
}

/// Takes all unwritten batches and leaves an empty one that continues where they end.
fn take_batches(state: &mut State) -> Vec<Arc<Batch>> {
    let mut taken = Vec::with_capacity(state.pending.len());
    let recycled = state.recycled.take();
    let next = state.pending.back().map(|last| last.successor(recycled));
    for mut batch in state.pending.drain(..) {
        if !batch.is_empty() {
            batch.finish();
            taken.push(Arc::new(batch));
        }
    }
    state.pending.extend(next);
    state.in_flight.clone_from(&taken);
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_in_parts_has_the_checksum_of_the_whole() {
        assert_eq!(crc_of(&[]), Crc32c::EMPTY);
        assert_eq!(crc_of(&[b"", b"12345", b"", b"6789"]), Crc32c::of(b"123456789"));
        assert_eq!(crc_of(&[b"123456789"]), Crc32c::of(b"123456789"));
    }
}
