//! How an open write ends: completed or interrupted.

use types::{PAGE_SIZE, ReplicaId};

use crate::config::PlantedBug;
use crate::journal_record::{BYTES_HEADER, Beginning, JournalRecord};
use crate::object::ObjectFiles;
use crate::ranges::Ranges;
use crate::record::{ByteLocation, Ended, ReplicaRecord};
use crate::replica::{Locked, OpenReplica, State};
use crate::sidecar::Header;
use crate::store::Inner;
use crate::sums::{PAGE, PageSum, RunningSum, pages_of};
use crate::write_state::WriteState;
use crate::writer::index;
use crate::{Completed, Kept, StoreError};

/// Pages examined in one step.
const STEP_PAGES: u64 = 8192;

impl Inner {
    pub(crate) fn complete(&self, replica: &OpenReplica, generation: u64) -> Result<Completed, StoreError> {
        let mut state = replica.lock();
        state.pause();
        let result = self.complete_paused(replica, &mut state, generation);
        result.map_err(|e| if e.is_no_space() { self.floor.no_space_after_all(&*self.disk) } else { e })
    }

    fn complete_paused(
        &self,
        replica: &OpenReplica,
        state: &mut Locked<'_>,
        generation: u64,
    ) -> Result<Completed, StoreError> {
        replica.sound_write_state(state, generation)?;
        self.roll_back_paused(replica.id, state)?;
        let len = replica.write_state(state, generation)?.len;
        self.end(replica, state, generation, Ended::Complete, len)
    }

    pub(crate) fn interrupt(&self, replica: &OpenReplica, may_have_failed: bool) -> Result<Kept, StoreError> {
        let mut state = replica.lock();
        state.pause();
        let failed = state.write_state.as_ref().and_then(|write_state| write_state.failed.clone());
        if let Some(reason) = failed.clone().filter(|_| !may_have_failed) {
            return Err(StoreError::Failed { replica: replica.id, reason });
        }
        let result = self.interrupt_write_state(replica, &mut state, failed.is_some());
        if let (Err(_), Some(reason), Some(write_state)) = (&result, failed, &mut state.write_state) {
            // Acknowledged bytes may be lost: the writer must not continue, whatever follows.
            write_state.failed.get_or_insert(reason);
        }
        result
    }

    fn interrupt_write_state(
        &self,
        replica: &OpenReplica,
        state: &mut Locked<'_>,
        failed: bool,
    ) -> Result<Kept, StoreError> {
        if failed {
            // The state of the disk is unknown: keep only data on which journal and disk agree, as after a power
            // failure.
            state.files = None;
            let (write_state, _) = self.reload(replica.id, state)?;
            state.write_state = Some(write_state);
        }
        self.roll_back_paused(replica.id, state)?;
        let Some(write_state) = &state.write_state else {
            return match &state.record {
                Some(ReplicaRecord { len, adler32, crc32c, .. }) if !state.removed => {
                    Ok(Kept { len: *len, adler32: *adler32, crc32c: *crc32c })
                }
                _ => Err(StoreError::NotFound { replica: replica.id }),
            };
        };
        let (ended, len) = match write_state.birth.beginning {
            Beginning::Update => (Ended::Complete, write_state.len),
            Beginning::New | Beginning::Resumed => {
                (Ended::Interrupted, write_state.written.prefix().min(write_state.len))
            }
        };
        let generation = write_state.birth.generation;
        let Completed { len, adler32, crc32c, .. } = self.end(replica, state, generation, ended, len)?;
        Ok(Kept { len, adler32, crc32c })
    }

    /// Ends an open write with `len` bytes. No write is running.
    fn end(
        &self,
        replica: &OpenReplica,
        state: &mut Locked<'_>,
        generation: u64,
        ended: Ended,
        len: u64,
    ) -> Result<Completed, StoreError> {
        let write_state = replica.write_state(state, generation)?;
        if let Some(reason) = &write_state.failed {
            return Err(StoreError::Failed { replica: replica.id, reason: reason.clone() });
        }
        let no_file = write_state.in_file == Ranges::default() && len <= self.config.small_max;
        let was_object = matches!(&state.record, Some(record) if record.place == ByteLocation::Object);
        let small = no_file && state.files.is_none() && !was_object;
        let record = if small {
            self.end_small(replica.id, state, ended, len)?
        } else {
            self.end_large(replica, state, generation, ended, len)?
        };
        let old = state.record.as_ref();
        let seq = self.replace_record(replica.id, old, Some(&record))?;
        let completed = Completed { len, adler32: record.adler32, crc32c: record.crc32c, seq };
        let mut holds = self.holds.lock();
        match record.place {
            ByteLocation::Journal { .. } => holds.end_unsettled(replica.id, len),
            _ => holds.end(replica.id, seq),
        }
        drop(holds);
        state.record = Some(record);
        state.write_state = None;
        state.content = None;
        state.version += 1;
        Ok(completed)
    }

    /// All bytes of a small replica are held and in the journal.
    fn end_small(
        &self,
        replica: ReplicaId,
        state: &mut State,
        ended: Ended,
        len: u64,
    ) -> Result<ReplicaRecord, StoreError> {
        let Some(write_state) = &mut state.write_state else { return Err(StoreError::NotFound { replica }) };
        let mut content = vec![0; index(len)];
        write_state.copy_held(0, &mut content);
        let place = match write_state.whole {
            _ if len == 0 => ByteLocation::Empty,
            Some((location, skip)) if u64::from(location.len - skip) == len => ByteLocation::Journal { location, skip },
            _ => {
                let record = JournalRecord::Bytes { wrote: (0, 0), offset: 0, bytes: &content };
                let appended = self.log(write_state.subject(replica), &record)?;
                write_state.last = appended.seq;
                ByteLocation::Journal { location: appended.location, skip: BYTES_HEADER }
            }
        };
        let sum = RunningSum::of(&content);
        Ok(ReplicaRecord {
            page_crcs: content.chunks(PAGE_SIZE).map(|page| types::Crc32c::of(page).0).collect(),
            path_hint: write_state.birth.path_hint.clone(),
            ..record_of(write_state, ended, sum, place)
        })
    }

    fn end_large(
        &self,
        replica: &OpenReplica,
        state: &mut Locked<'_>,
        generation: u64,
        ended: Ended,
        len: u64,
    ) -> Result<ReplicaRecord, StoreError> {
        self.hold_page(replica.id, state, len)?;
        self.flush(replica.id, state, Some(len))?;
        let files = self.files(replica.id, state)?;
        let write_state = replica.write_state(state, generation)?;
        if write_state.leftovers {
            self.clear_gaps(&files, write_state, len)?;
        }
        let (last, rest) = (len / PAGE, len % PAGE);
        if rest > 0 && !write_state.taken(last) {
            files.write_sums(last, &[PageSum::of(&vec![0; index(rest)])])?;
        }
        let sum = whole_sum(&files, &write_state.in_file, len)?;
        // Leave the bytes after the end of an interrupted replica: its record is not durable yet, and the journal may
        // still need them.
        let before = files.data.len()?;
        if ended == Ended::Complete || before < len {
            files.data.set_len(len)?;
            if before > pages_of(len) * PAGE {
                files.forget_recent();
            }
        }
        let record = record_of(write_state, ended, sum, ByteLocation::Object);
        files.write_header(&Header {
            replica: replica.id,
            generation,
            ended: Some(ended),
            incarnation: record.incarnation,
            len,
            adler32: record.adler32,
            crc32c: record.crc32c,
            path_hint: write_state.birth.path_hint.clone(),
        })?;
        if !self.config.has(PlantedBug::AcknowledgeBeforeSync) {
            let synced = state.unlocked(|| self.sync_files(&files));
            let write_state = replica.write_state(state, generation)?;
            if let Err(e) = synced {
                write_state.failed = Some(e.to_string());
                return Err(e.into());
            }
        }
        Ok(record)
    }

    /// Writes zeros into gaps where the file has leftovers of failed or dropped writes.
    fn clear_gaps(&self, files: &ObjectFiles, write_state: &WriteState, len: u64) -> Result<(), StoreError> {
        let mut taken = write_state.in_file.clone();
        for page in write_state.held.keys() {
            taken.insert(*page, page + 1);
        }
        let direct = self.objects.direct(files)?;
        let mut found = vec![0; PAGE_SIZE * 256];
        for (first, end) in taken.gaps(pages_of(len)) {
            let mut next = first;
            // Skip holes of both files: there may be far more of them than of anything else.
            while let Some(start) = files.next_page(next)?.filter(|start| *start < end) {
                let pages = (end - start).min(256);
                next = start + pages;
                let found = &mut found[..index(pages * PAGE)];
                files.read_padded(found, start * PAGE)?;
                if found.iter().any(|byte| *byte != 0) {
                    let mut buffer = self.buffers.take();
                    let zeros = &mut buffer[..found.len()];
                    zeros.fill(0);
                    direct.write_at(zeros, start * PAGE)?;
                    files.forget_recent();
                }
                files.write_sums(start, &vec![PageSum::zero_page(); index(pages)])?;
            }
        }
        Ok(())
    }
}

fn record_of(write_state: &WriteState, ended: Ended, sum: RunningSum, place: ByteLocation) -> ReplicaRecord {
    ReplicaRecord {
        ended,
        generation: write_state.birth.generation,
        incarnation: write_state.birth.incarnation,
        len: sum.len,
        adler32: sum.adler32,
        crc32c: sum.crc32c,
        place,
        page_crcs: Vec::new(),
        path_hint: Vec::new(),
    }
}

/// The checksums of a large replica, computed from those of its pages. Gaps are zeros.
fn whole_sum(files: &ObjectFiles, in_file: &Ranges, len: u64) -> Result<RunningSum, StoreError> {
    let (full, rest) = (len / PAGE, len % PAGE);
    let mut sum = RunningSum::EMPTY;
    let mut at = 0;
    for &(start, end) in in_file.as_slice() {
        let end = end.min(full);
        if start >= end {
            break;
        }
        sum.push_zero_pages(start - at);
        let mut next = start;
        while next < end {
            // Never-written zero pages cost nothing, however many there are.
            let there = files.next_sums(next)?.map_or(end, |there| there.min(end));
            sum.push_zero_pages(there - next);
            next = there;
            let count = (end - next).min(STEP_PAGES);
            for page in files.sums(next, index(count))? {
                sum.push(page, PAGE);
            }
            next += count;
        }
        at = end;
    }
    sum.push_zero_pages(full - at);
    if rest > 0
        && let Some(last) = files.sums(full, 1)?.first()
    {
        sum.push(*last, rest);
    }
    Ok(sum)
}
