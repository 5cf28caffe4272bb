//! ReplicaMove small replicas: from the journal into segments, and from half-dead segments into the newest.
//!
//! The order makes both safe at any moment. The bytes go into the newest segment and are synced. One batch then lets
//! the records point there. When the batch is durable, the old copy may be removed. AckPoint then it stays valid.

use std::collections::BTreeSet;

use journal::Seq;
use kv::Batch;
use types::ReplicaId;

use crate::StoreError;
use crate::config::PlantedBug;
use crate::record::{ByteLocation, ReplicaRecord, SegmentStat, replica_key, segment_key};
use crate::segment::{FILE_HEADER, record_header, scan};
use crate::segments::ActiveSegment;
use crate::small::check;
use crate::store::Inner;
use crate::writer::index;

/// Settling steps in one tick; the rest waits for the next.
const STEPS: usize = 64;

/// Replicas in one step of compaction: one batch of the index surely holds them.
const STEP_PIECES: usize = 4096;

/// Why replicas are moved.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// From the journal.
    Settle,
    /// From a segment.
    Compact,
    /// The last ones from this segment.
    Empty(u64),
}

/// A replica to move: its present index record, and its bytes.
struct ReplicaMove {
    replica: ReplicaId,
    old: ReplicaRecord,
    path_hint: Vec<u8>,
    bytes: Vec<u8>,
}

impl ReplicaMove {
    /// A rough upper bound of its bytes in a segment.
    fn about(&self) -> usize {
        128 + self.path_hint.len() + 4 * self.old.page_crcs.len() + self.bytes.len()
    }
}

impl Inner {
    /// Moves small replicas from the journal into segments.
    pub(crate) fn settle(&self) -> Result<(), StoreError> {
        for _ in 0..STEPS {
            let keys = self.holds.lock().oldest_unsettled(self.config.settle_step_bytes);
            if keys.is_empty() {
                break;
            }
            self.settle_step(&keys)?;
        }
        Ok(())
    }

    fn settle_step(&self, keys: &[(Seq, ReplicaId)]) -> Result<(), StoreError> {
        let mut newest = self.segments.newest.lock();
        // The journal then knows every replica found in a segment, whatever happens.
        self.journal.sync_to(self.journal.appended())?;
        let mut moving = Vec::with_capacity(keys.len());
        let mut trouble = Ok(());
        // A replica that was updated before it was settled is listed twice.
        let replicas: BTreeSet<ReplicaId> = keys.iter().map(|(_, replica)| *replica).collect();
        for replica in &replicas {
            match self.record(*replica)? {
                Some(old) if matches!(old.place, ByteLocation::Journal { .. }) => {
                    let path_hint = old.path_hint.clone();
                    let (bytes, checked) = self.bytes_to_move(*replica, &old)?;
                    // Move bytes that do not match as they are; readers get an error. If they stayed, the journal could
                    // never be trimmed.
                    trouble = trouble.and(checked);
                    moving.push(ReplicaMove { replica: *replica, old, path_hint, bytes });
                }
                // Removed, or updated and settled since.
                _ => {}
            }
        }
        let (seq, _) = self.move_replicas(&mut newest, &moving, Purpose::Settle)?;
        let mut holds = self.holds.lock();
        for key in keys {
            holds.settled(*key, seq);
        }
        trouble
    }

    /// A small replica's bytes, and whether they match. Reads a second time after a mismatch, because a misread must
    /// not be kept.
    fn bytes_to_move(
        &self,
        replica: ReplicaId,
        record: &ReplicaRecord,
    ) -> Result<(Vec<u8>, Result<(), StoreError>), StoreError> {
        let first = self.small_bytes(record)?;
        if check(replica, record, &first).is_ok() {
            return Ok((first, Ok(())));
        }
        let again = self.small_bytes(record)?;
        let checked = check(replica, record, &again);
        Ok((again, checked))
    }

    /// Compacts one segment of which less than half is live.
    ///
    /// A segment is removed with all its contents, even those without a record. If the index may have lost records, no
    /// segment is removed.
    pub(crate) fn compact(&self) -> Result<(), StoreError> {
        if !self.config.clear_away {
            return Ok(());
        }
        let mut newest = self.segments.newest.lock();
        let half_dead = {
            let segments = self.records.lock();
            let mut old = segments.iter().filter(|(number, _)| **number != newest.number);
            old.find(|(number, stat)| stat.live * 2 < stat.end && !newest.refused.contains(number))
                .map(|(number, stat)| (*number, *stat))
        };
        let Some((number, stat)) = half_dead else { return Ok(()) };
        let seq = match self.empty_segment(&mut newest, number, stat) {
            Ok(seq) => seq,
            Err(e) => {
                // An unreadable segment must not block the others. After a lack of space, try it again later.
                if !e.is_no_space() {
                    newest.refused.insert(number);
                }
                return Err(e);
            }
        };
        if !self.config.has(PlantedBug::UnlinkBeforeRecord) {
            self.journal.sync_to(seq)?;
        }
        self.segments.remove(number)
    }

    /// Moves the live replicas of a segment in steps, because a batch of the index is limited.
    fn empty_segment(&self, newest: &mut ActiveSegment, number: u64, stat: SegmentStat) -> Result<Seq, StoreError> {
        let mut moving = Vec::new();
        let mut bytes_moving = 0;
        if stat.live > 0 {
            let file = self.segments.open(number)?;
            scan(&*file, FILE_HEADER, stat.end, &mut |offset, found| {
                let place = ByteLocation::Segment { segment: number, offset, header: found.header };
                let Some(old) = self.record(found.replica)?.filter(|record| record.place == place) else {
                    return Ok(());
                };
                let (bytes, checked) = self.bytes_to_move(found.replica, &old)?;
                if checked.is_err() {
                    // It stays, and the segment with it.
                    return Ok(());
                }
                bytes_moving += old.bytes_in_segment();
                moving.push(ReplicaMove { replica: found.replica, old, path_hint: found.record.path_hint, bytes });
                if bytes_moving >= self.config.settle_step_bytes || moving.len() >= STEP_PIECES {
                    self.move_replicas(newest, &moving, Purpose::Compact)?;
                    moving.clear();
                    bytes_moving = 0;
                }
                Ok(())
            })?;
        }
        let (seq, emptied) = self.move_replicas(newest, &moving, Purpose::Empty(number))?;
        if !emptied {
            let what = format!("segment {number:016x} has objects that cannot be read; it is left as it is");
            return Err(StoreError::damaged(what));
        }
        Ok(seq)
    }

    /// Appends replicas to the newest segment and lets their records point there. The second value tells whether the
    /// source segment's record was removed, because nothing in it is live.
    fn move_replicas(
        &self,
        newest: &mut ActiveSegment,
        moving: &[ReplicaMove],
        purpose: Purpose,
    ) -> Result<(Seq, bool), StoreError> {
        let mut placed = Vec::with_capacity(moving.len());
        let mut at = 0;
        while at < moving.len() {
            let file = self.segments.file_to_append_to(newest, self.config.segment_bytes)?;
            let (start, mut end) = (newest.end, newest.end);
            let rest: usize = moving[at..].iter().map(ReplicaMove::about).sum();
            let mut out = Vec::with_capacity(rest.min(index(self.config.segment_bytes)));
            while let Some(replica) = moving.get(at)
                && end < self.config.segment_bytes
            {
                let header = record_header(replica.replica, &replica.old, &replica.path_hint);
                let place = ByteLocation::Segment {
                    segment: newest.number,
                    offset: end,
                    header: u32::try_from(header.len()).unwrap_or(u32::MAX),
                };
                out.extend_from_slice(&header);
                out.extend_from_slice(&replica.bytes);
                end = start + out.len() as u64;
                placed.push((replica, ReplicaRecord { place, path_hint: Vec::new(), ..replica.old.clone() }, end));
                at += 1;
            }
            file.write_at(&out, start)?;
            if !self.config.has(PlantedBug::SettleBeforeSegmentSync) {
                file.sync_data()?;
            }
            newest.end = end;
        }
        self.switch_records(&placed, purpose)
    }

    fn switch_records(
        &self,
        placed: &[(&ReplicaMove, ReplicaRecord, u64)],
        purpose: Purpose,
    ) -> Result<(Seq, bool), StoreError> {
        let emptied = match purpose {
            Purpose::Empty(number) => Some(number),
            Purpose::Settle | Purpose::Compact => None,
        };
        let mut segments = self.records.lock();
        let mut changed = segments.clone();
        let mut batch = Batch::new();
        for (moving, new, end) in placed {
            if let ByteLocation::Segment { segment, .. } = new.place {
                let stat = changed.entry(segment).or_default();
                stat.end = stat.end.max(*end);
                // A replica that was removed or replaced meanwhile stays so; its bytes in the segment are dead from the
                // start.
                if self.record(moving.replica)?.as_ref() == Some(&moving.old) {
                    stat.live += new.bytes_in_segment();
                    batch.put(&replica_key(moving.replica), &new.encode());
                    if let ByteLocation::Segment { segment: from, .. } = moving.old.place
                        && let Some(from) = changed.get_mut(&from)
                    {
                        from.live = from.live.saturating_sub(moving.old.bytes_in_segment());
                    }
                }
            }
        }
        let empty = emptied.is_some_and(|number| changed.get(&number).is_none_or(|stat| stat.live == 0));
        if let (Some(number), true) = (emptied, empty) {
            changed.remove(&number);
        }
        for (number, stat) in &changed {
            if segments.get(number) != Some(stat) {
                batch.put(&segment_key(*number), &stat.encode());
            }
        }
        if let (Some(number), true) = (emptied, empty) {
            batch.delete(&segment_key(number));
        }
        let seq = if batch.is_empty() {
            self.journal.appended()
        } else {
            self.index.append(&batch, purpose != Purpose::Settle)?
        };
        *segments = changed;
        drop(segments);
        // Tell the open replicas their new location.
        for (moving, new, _) in placed {
            let open = self.table.lock().get(&moving.replica).cloned();
            if let Some(open) = open {
                let mut state = open.lock();
                if state.record.as_ref() == Some(&moving.old) {
                    state.record = Some(new.clone());
                }
            }
        }
        Ok((seq, empty))
    }
}
