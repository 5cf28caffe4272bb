//! The log's stream of pieces being written, read back into lives.

use std::collections::{BTreeMap, HashSet};

use journal::{Location, Seq, StreamId};
use types::{BodyId, Incarnation, PieceId};

use crate::StoreError;
use crate::checkpoint::Checkpoint;
use crate::life::Life;
use crate::log_record::{BYTES_HEADER, LogRecord};
use crate::record::{PieceRecord, Place};
use crate::store::{Inner, PieceMap};
use crate::sums::{PAGE, pages_of};

/// A life as the log tells it.
pub(crate) struct Replayed {
    pub(crate) life: Life,
    pub(crate) first: Seq,
    /// Pages said to be in the file that were not synced since: (log position, checksum).
    pub(crate) unsynced: BTreeMap<u64, (u64, u32)>,
    /// A cut that may not have been made.
    pub(crate) cut: Option<u64>,
}

/// Everything that the log tells.
#[derive(Default)]
pub(crate) struct Replay {
    pub(crate) lives: BTreeMap<PieceId, Replayed>,
    /// Small pieces whose bytes lie in the log.
    pub(crate) unsettled: Vec<(Seq, PieceId, u64)>,
    /// Removed pieces without a record: their files may still be there. With the record that says so.
    pub(crate) gone: PieceMap<Seq>,
    /// Numbers that were used.
    pub(crate) seen: Vec<(BodyId, Incarnation)>,
    /// What the index says, so that it is asked once.
    records: PieceMap<Option<PieceRecord>>,
    settled: HashSet<PieceId>,
}

impl Inner {
    /// Reads the stream, or the records of one piece.
    pub(crate) fn replay(&self, only: Option<PieceId>) -> Result<Replay, StoreError> {
        let mut replay = Replay::default();
        let mut trouble = Ok(());
        let after = Seq(self.journal.oldest().0.saturating_sub(1));
        self.journal.replay(StreamId::STORE_DATA, after, &mut |seq, location, payload| {
            trouble = replay.record(self, seq, location, payload, only);
            if trouble.is_ok() { std::ops::ControlFlow::Continue(()) } else { std::ops::ControlFlow::Break(()) }
        })?;
        trouble?;
        Ok(replay)
    }
}

impl Replay {
    fn record(
        &mut self,
        inner: &Inner,
        seq: Seq,
        location: Location,
        payload: &[u8],
        only: Option<PieceId>,
    ) -> Result<(), StoreError> {
        let (subject, record) = LogRecord::decode(payload)?;
        let (piece, generation) = (subject.piece, subject.generation);
        if only.is_some_and(|only| only != piece) {
            return Ok(());
        }
        if let LogRecord::Born(birth) | LogRecord::Snapshot(crate::log_record::Snapshot { birth, .. }) = &record {
            self.seen.push((piece.body, birth.incarnation));
        }
        let known = match self.records.get(&piece) {
            Some(known) => known,
            None => self.records.entry(piece).or_insert(inner.record(piece)?),
        };
        if let Some(known) = known {
            if let Place::Log { location: place, .. } = known.place
                && place == location
                && self.settled.insert(piece)
            {
                self.unsettled.push((seq, piece, known.len));
            }
            if known.generation >= generation {
                return Ok(());
            }
        }
        let small_max = inner.config.small_max;
        match record {
            LogRecord::Born(birth) => {
                let life = Life::new(birth, small_max);
                self.begin(piece, seq, life);
            }
            LogRecord::Snapshot(snapshot) => {
                let life = Life::from_snapshot(snapshot, small_max);
                self.begin(piece, seq, life);
            }
            // With a record still there the removal did not happen: its second half, taking the record away, is not in the log.
            LogRecord::Gone if known.is_some() => {}
            LogRecord::Gone => {
                self.gone.insert(piece, seq);
                self.seen.push((piece.body, Incarnation(0)));
                if self.lives.get(&piece).is_some_and(|there| there.life.birth.generation <= generation) {
                    self.lives.remove(&piece);
                }
            }
            other => {
                // Records of a life whose beginning is not there belong to a removed piece.
                if let Some(there) = self.lives.get_mut(&piece)
                    && there.life.birth.generation == generation
                {
                    there.step(inner, piece, seq, location, other)?;
                }
            }
        }
        Ok(())
    }

    fn begin(&mut self, piece: PieceId, first: Seq, mut life: Life) {
        life.last = first;
        // Removed, and begun anew: the files are the new life's.
        self.gone.remove(&piece);
        // A state that was written anew within a checkpoint says nothing of it.
        if let Some(there) = self.lives.remove(&piece)
            && there.life.birth.generation == life.birth.generation
        {
            life.checkpoint = there.life.checkpoint;
        }
        self.lives.insert(piece, Replayed { life, first, unsynced: BTreeMap::new(), cut: None });
    }
}

impl Replayed {
    fn step(
        &mut self,
        inner: &Inner,
        piece: PieceId,
        seq: Seq,
        location: Location,
        record: LogRecord<'_>,
    ) -> Result<(), StoreError> {
        let life = &mut self.life;
        life.last = seq;
        match record {
            LogRecord::Bytes { wrote, offset, bytes } => {
                for page in offset / PAGE..pages_of(offset + bytes.len() as u64) {
                    self.unsynced.remove(&page);
                }
                life.lay(wrote, offset, bytes).map_err(|e| StoreError::damaged(format!("piece {piece}: {e}")))?;
                life.large |= life.len > inner.config.small_max;
                life.whole = (offset == 0 && wrote.1 > 0).then_some((location, BYTES_HEADER));
            }
            LogRecord::InFile { first_page, crcs } => {
                life.came_into_file(first_page, crcs.len() as u64);
                for (page, crc) in (first_page..).zip(crcs) {
                    self.unsynced.insert(page, (seq.0, crc));
                }
                life.whole = None;
            }
            LogRecord::Truncate { len } => {
                if len < life.len {
                    self.cut = Some(len).filter(|_| life.checkpoint.is_none());
                    self.unsynced.split_off(&pages_of(len));
                }
                life.set_len(len);
                life.large |= len > inner.config.small_max;
                life.whole = None;
            }
            LogRecord::Cut => self.cut = None,
            LogRecord::Synced { before } => self.unsynced.retain(|_, (seq, _)| *seq >= before),
            LogRecord::CheckpointBegun(base) => {
                life.checkpoint.get_or_insert_with(|| Checkpoint::new(base));
            }
            LogRecord::Undo { first_page, bytes } => {
                if let Some(checkpoint) = &mut life.checkpoint {
                    checkpoint.remember(first_page, bytes.len() as u64 / PAGE, location);
                }
            }
            LogRecord::CheckpointEnded { kept: true } => life.checkpoint = None,
            LogRecord::CheckpointEnded { kept: false } => {
                self.roll_back(inner)?;
            }
            LogRecord::Born(_) | LogRecord::Snapshot(_) | LogRecord::Gone => {}
        }
        Ok(())
    }

    /// Undoes a checkpoint that is open. Says whether one was.
    pub(crate) fn roll_back(&mut self, inner: &Inner) -> Result<bool, StoreError> {
        let Some(checkpoint) = &self.life.checkpoint else { return Ok(false) };
        let saved = inner.saved_pages(checkpoint)?;
        self.life.roll_back(saved);
        let in_file = &self.life.in_file;
        self.unsynced.retain(|page, _| in_file.contains(*page, page + 1));
        Ok(true)
    }
}
