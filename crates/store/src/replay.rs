//! Reads the journal's stream of open writes.

use std::collections::{BTreeMap, HashSet};

use journal::{Location, Seq, StreamId};
use types::{Incarnation, ObjectId, ReplicaId};

use crate::StoreError;
use crate::checkpoint::Checkpoint;
use crate::journal_record::{BYTES_HEADER, JournalRecord};
use crate::record::{ByteLocation, ReplicaRecord};
use crate::store::{Inner, ReplicaMap};
use crate::sums::{PAGE, pages_of};
use crate::write_state::WriteState;

/// An open write, as the journal describes it.
pub(crate) struct Replayed {
    pub(crate) write_state: WriteState,
    pub(crate) first: Seq,
    /// Pages in the file that were not synced since: (journal position, checksum).
    pub(crate) unsynced: BTreeMap<u64, (u64, u32)>,
    /// A truncation that may not have happened.
    pub(crate) cut: Option<u64>,
}

/// All contents of the stream.
#[derive(Default)]
pub(crate) struct Replay {
    pub(crate) write_states: BTreeMap<ReplicaId, Replayed>,
    /// Small replicas whose bytes lie in the journal.
    pub(crate) unsettled: Vec<(Seq, ReplicaId, u64)>,
    /// Removed replicas without an index record: their files may still exist. With the record of the removal.
    pub(crate) gone: ReplicaMap<Seq>,
    /// Used numbers.
    pub(crate) seen: Vec<(ObjectId, Incarnation)>,
    /// Index records, so that each is looked up once.
    records: ReplicaMap<Option<ReplicaRecord>>,
    settled: HashSet<ReplicaId>,
}

impl Inner {
    /// Reads the stream, or the records of one replica.
    pub(crate) fn replay(&self, only: Option<ReplicaId>) -> Result<Replay, StoreError> {
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
        only: Option<ReplicaId>,
    ) -> Result<(), StoreError> {
        let (subject, record) = JournalRecord::decode(payload)?;
        let (replica, generation) = (subject.replica, subject.generation);
        if only.is_some_and(|only| only != replica) {
            return Ok(());
        }
        if let JournalRecord::Born(birth) | JournalRecord::Snapshot(crate::journal_record::Snapshot { birth, .. }) =
            &record
        {
            self.seen.push((replica.object, birth.incarnation));
        }
        let known = match self.records.get(&replica) {
            Some(known) => known,
            None => self.records.entry(replica).or_insert(inner.record(replica)?),
        };
        if let Some(known) = known {
            if let ByteLocation::Journal { location: place, .. } = known.place
                && place == location
                && self.settled.insert(replica)
            {
                self.unsettled.push((seq, replica, known.len));
            }
            if known.generation >= generation {
                return Ok(());
            }
        }
        let small_max = inner.config.small_max;
        match record {
            JournalRecord::Born(birth) => {
                let write_state = WriteState::new(birth, small_max);
                self.begin(replica, seq, write_state);
            }
            JournalRecord::Snapshot(snapshot) => {
                let write_state = WriteState::from_snapshot(snapshot, small_max);
                self.begin(replica, seq, write_state);
            }
            // The index still has the record, so the removal did not happen: its second half is not in the journal.
            JournalRecord::Gone if known.is_some() => {}
            JournalRecord::Gone => {
                self.gone.insert(replica, seq);
                self.seen.push((replica.object, Incarnation(0)));
                if self.write_states.get(&replica).is_some_and(|there| there.write_state.birth.generation <= generation)
                {
                    self.write_states.remove(&replica);
                }
            }
            other => {
                // Records without a beginning belong to a removed replica.
                if let Some(there) = self.write_states.get_mut(&replica)
                    && there.write_state.birth.generation == generation
                {
                    there.step(inner, replica, seq, location, other)?;
                }
            }
        }
        Ok(())
    }

    fn begin(&mut self, replica: ReplicaId, first: Seq, mut write_state: WriteState) {
        write_state.last = first;
        // Removed, and started over: the files belong to the new generation.
        self.gone.remove(&replica);
        // A snapshot written inside a checkpoint says nothing about it.
        if let Some(there) = self.write_states.remove(&replica)
            && there.write_state.birth.generation == write_state.birth.generation
        {
            write_state.checkpoint = there.write_state.checkpoint;
        }
        self.write_states.insert(replica, Replayed { write_state, first, unsynced: BTreeMap::new(), cut: None });
    }
}

impl Replayed {
    fn step(
        &mut self,
        inner: &Inner,
        replica: ReplicaId,
        seq: Seq,
        location: Location,
        record: JournalRecord<'_>,
    ) -> Result<(), StoreError> {
        let write_state = &mut self.write_state;
        write_state.last = seq;
        match record {
            JournalRecord::Bytes { wrote, offset, bytes } => {
                for page in offset / PAGE..pages_of(offset + bytes.len() as u64) {
                    self.unsynced.remove(&page);
                }
                write_state
                    .lay(wrote, offset, bytes)
                    .map_err(|e| StoreError::damaged(format!("replica {replica}: {e}")))?;
                write_state.large |= write_state.len > inner.config.small_max;
                write_state.whole = (offset == 0 && wrote.1 > 0).then_some((location, BYTES_HEADER));
            }
            JournalRecord::InFile { first_page, crcs } => {
                write_state.note_in_file(first_page, crcs.len() as u64);
                for (page, crc) in (first_page..).zip(crcs) {
                    self.unsynced.insert(page, (seq.0, crc));
                }
                write_state.whole = None;
            }
            JournalRecord::Truncate { len } => {
                if len < write_state.len {
                    self.cut = Some(len).filter(|_| write_state.checkpoint.is_none());
                    self.unsynced.split_off(&pages_of(len));
                }
                write_state.set_len(len);
                write_state.large |= len > inner.config.small_max;
                write_state.whole = None;
            }
            JournalRecord::Cut => self.cut = None,
            JournalRecord::Synced { before } => self.unsynced.retain(|_, (seq, _)| *seq >= before),
            JournalRecord::CheckpointBegun(base) => {
                write_state.checkpoint.get_or_insert_with(|| Checkpoint::new(base));
            }
            JournalRecord::Undo { first_page, bytes } => {
                if let Some(checkpoint) = &mut write_state.checkpoint {
                    checkpoint.remember(first_page, bytes.len() as u64 / PAGE, location);
                }
            }
            JournalRecord::CheckpointEnded { kept: true } => write_state.checkpoint = None,
            JournalRecord::CheckpointEnded { kept: false } => {
                self.roll_back(inner)?;
            }
            JournalRecord::Born(_) | JournalRecord::Snapshot(_) | JournalRecord::Gone => {}
        }
        Ok(())
    }

    /// Undoes an open checkpoint. Returns whether there was one.
    pub(crate) fn roll_back(&mut self, inner: &Inner) -> Result<bool, StoreError> {
        let Some(checkpoint) = &self.write_state.checkpoint else { return Ok(false) };
        let saved = inner.saved_pages(checkpoint)?;
        self.write_state.roll_back(saved);
        let in_file = &self.write_state.in_file;
        self.unsynced.retain(|page, _| in_file.contains(*page, page + 1));
        Ok(true)
    }
}
