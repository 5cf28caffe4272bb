//! The work on an open write: files, flushing held pages, syncs, snapshots, truncation, new generations.

use std::collections::BTreeMap;
use std::sync::Arc;

use disk::Access;
use journal::Seq;
use types::{PAGE_SIZE, ReplicaId};

use crate::StoreError;
use crate::buffers::BUFFER;
use crate::config::PlantedBug;
use crate::journal_record::{Beginning, GenerationStart, JournalRecord};
use crate::object::ObjectFiles;
use crate::ranges::Ranges;
use crate::record::{ByteLocation, Ended};
use crate::replica::{Locked, OpenReplica, State};
use crate::sidecar::Header;
use crate::store::Inner;
use crate::sums::{PAGE, PageSum, pages_of};
use crate::write_state::{HeldPage, WriteState};
use crate::writer::index;

impl Inner {
    /// The open files of a large replica. Creates them if needed.
    pub(crate) fn files(&self, replica: ReplicaId, state: &mut State) -> Result<Arc<ObjectFiles>, StoreError> {
        if let Some(files) = &state.files {
            return Ok(Arc::clone(files));
        }
        let has_file = matches!(&state.record, Some(record) if record.place == ByteLocation::Object);
        let files = match &state.write_state {
            Some(write_state) if !has_file && write_state.in_file == Ranges::default() => {
                self.make_files(replica, write_state)?
            }
            _ => self
                .objects
                .open(replica, Access::ReadWrite)?
                .ok_or_else(|| StoreError::damaged(format!("the file of replica {replica} is missing")))?,
        };
        files.set_user(state.user);
        let files = Arc::new(files);
        state.files = Some(Arc::clone(&files));
        Ok(files)
    }

    /// Makes a replica's bytes, checksums and names durable. A failure must be recorded beyond a stop of the process:
    /// the kernel treats the unwritten bytes as written, and the next sync succeeds.
    pub(crate) fn sync_files(&self, files: &ObjectFiles) -> Result<(), disk::DiskError> {
        let synced = self.objects.sync(files);
        if synced.is_err() && !self.config.has(PlantedBug::ForgetFailure) {
            self.journal.note_failed_sync();
        }
        synced
    }

    /// Creates the files of a replica, with space for the announced length.
    pub(crate) fn make_files(&self, replica: ReplicaId, write_state: &WriteState) -> Result<ObjectFiles, StoreError> {
        let files = self.objects.create(&Header {
            replica,
            generation: write_state.birth.generation,
            ended: None,
            incarnation: write_state.birth.incarnation,
            len: 0,
            adler32: types::Adler32::EMPTY,
            crc32c: types::Crc32c::EMPTY,
            path_hint: write_state.birth.path_hint.clone(),
        })?;
        if let Some(len) = write_state.birth.expected_len {
            files.data.allocate(0, len)?;
        }
        Ok(files)
    }

    /// Writes held pages to the file if there are too many.
    pub(crate) fn make_room(&self, replica: ReplicaId, state: &mut State) -> Result<(), StoreError> {
        match &state.write_state {
            Some(write_state) if write_state.large && write_state.held.len() > self.config.held_pages_max => {
                self.flush(replica, state, None)
            }
            _ => Ok(()),
        }
    }

    /// Writes held pages to the file, except those that a running write depends on (none, while the replica is paused).
    /// Such a write has logged, or will log, part of a page, which goes over the held contents. Pages that replace
    /// older contents are written only after the journal is durable. `end` is the final length of the replica; the last
    /// page's checksums then cover only its bytes.
    pub(crate) fn flush(&self, replica: ReplicaId, state: &mut State, end: Option<u64>) -> Result<(), StoreError> {
        if let Some(write_state) = &state.write_state
            && write_state.held.values().any(|held| held.image)
            && !self.config.has(PlantedBug::OverwriteBeforeJournal)
        {
            self.journal.sync_to(write_state.last)?;
        }
        self.flush_pages(replica, state, end)
    }

    /// Like [`Inner::flush`], if the journal is known to be durable.
    pub(crate) fn flush_pages(
        &self,
        replica: ReplicaId,
        state: &mut State,
        end: Option<u64>,
    ) -> Result<(), StoreError> {
        let files = match &state.write_state {
            Some(write_state) if !write_state.held.is_empty() => self.files(replica, state)?,
            _ => return Ok(()),
        };
        let direct = self.objects.direct(&files)?;
        let counted_on = |page: u64| {
            let (start, end) = (page * PAGE, (page + 1) * PAGE);
            !self.config.has(PlantedBug::FlushUnderWrite) && state.in_flight.iter().any(|at| at.0 < end && start < at.1)
        };
        let Some(write_state) = &mut state.write_state else { return Ok(()) };
        // They stay held until they are in the file, whatever happens.
        let flushed: BTreeMap<u64, &HeldPage> =
            write_state.held.iter().filter(|(page, _)| !counted_on(**page)).map(|(page, held)| (*page, held)).collect();
        self.write_held(&files, &*direct, &flushed, end)?;
        let flushed: Vec<u64> = flushed.into_keys().collect();
        write_state.large = true;
        // The last page's checksums may now cover only part of it. It stays held until the open write has ended with
        // that length.
        let last = end.filter(|end| !end.is_multiple_of(PAGE)).map(|end| end / PAGE);
        for page in flushed {
            match write_state.held.get_mut(&page) {
                Some(held) if last == Some(page) => held.image = true,
                _ => {
                    write_state.held.remove(&page);
                    write_state.in_file.insert(page, page + 1);
                }
            }
        }
        Ok(())
    }

    fn write_held(
        &self,
        files: &ObjectFiles,
        direct: &dyn disk::DiskFile,
        held: &BTreeMap<u64, &HeldPage>,
        end: Option<u64>,
    ) -> Result<(), StoreError> {
        let mut buffer = self.buffers.take();
        for (first, pages) in runs(held) {
            let mut sums = Vec::with_capacity(pages.len());
            for ((number, held), into) in (first..).zip(&pages).zip(buffer.chunks_mut(PAGE_SIZE)) {
                into.copy_from_slice(&held.bytes);
                let covered = end.map_or(PAGE, |end| end.saturating_sub(number * PAGE).min(PAGE));
                sums.push(PageSum::of(&into[..index(covered)]));
            }
            let bytes = &buffer[..pages.len() * PAGE_SIZE];
            direct.write_at(bytes, first * PAGE)?;
            files.write_sums(first, &sums)?;
            files.keep_recent(first * PAGE, bytes);
        }
        Ok(())
    }

    /// Makes all acknowledged changes durable. Returns the durable prefix.
    pub(crate) fn sync(&self, replica: &OpenReplica, generation: u64) -> Result<u64, StoreError> {
        let mut state = replica.lock();
        // The kernel reports a failure once for an open file. The thread that gets it must note it before any other
        // relies on a sync.
        while state.syncing || state.paused {
            state.wait();
        }
        let files = state.files.clone();
        let write_state = replica.write_state(&mut state, generation)?;
        if let Some(reason) = &write_state.failed {
            return Err(StoreError::Failed { replica: replica.id, reason: reason.clone() });
        }
        if !write_state.dirty {
            return Ok(write_state.durable_prefix);
        }
        // All records of this generation in the journal were appended after their bytes went into the file.
        let (prefix, last, cuts) = (write_state.permanent_prefix(), write_state.last, write_state.cuts);
        let before = self.journal.appended().next();
        write_state.dirty = false;
        let (synced, logged) = state.while_syncing(|| {
            let synced = match &files {
                Some(files) if !self.config.has(PlantedBug::AcknowledgeBeforeSync) => self.sync_files(files),
                _ => Ok(()),
            };
            let logged = if synced.is_ok() { self.journal.sync_to(last) } else { Ok(()) };
            (synced, logged)
        });
        let write_state = replica.write_state(&mut state, generation)?;
        if let Err(e) = synced {
            write_state.dirty = true;
            write_state.failed = Some(e.to_string());
            return Err(e.into());
        }
        if let Err(e) = logged {
            write_state.dirty = true;
            return Err(e.into());
        }
        let prefix = if write_state.cuts == cuts { prefix } else { prefix.min(write_state.permanent_prefix()) };
        write_state.durable_prefix = write_state.durable_prefix.max(prefix);
        if files.is_some() {
            write_state.last =
                self.log(write_state.subject(replica.id), &JournalRecord::Synced { before: before.0 })?.seq;
        }
        Ok(write_state.durable_prefix)
    }

    /// Writes the whole state of an open write again, so that older journal records can be trimmed.
    pub(crate) fn snapshot(&self, replica: &OpenReplica) -> Result<(), StoreError> {
        let mut state = replica.lock();
        state.pause();
        self.snapshot_paused(replica, &mut state)
    }

    /// Like [`Inner::snapshot`], for a paused replica.
    pub(crate) fn snapshot_paused(&self, replica: &OpenReplica, state: &mut Locked<'_>) -> Result<(), StoreError> {
        self.make_room(replica.id, state)?;
        let files = state.files.clone();
        let removed = state.removed;
        let Some(write_state) =
            state.write_state.as_mut().filter(|write_state| !removed && write_state.failed.is_none())
        else {
            return Ok(());
        };
        if let Some(files) = files
            && let Err(e) = self.sync_files(&files)
        {
            write_state.failed = Some(e.to_string());
            return Err(e.into());
        }
        // It allows trimming, and a store on a full disk must open.
        let record = JournalRecord::Snapshot(write_state.snapshot());
        let snapshot = self.append_urgent_record(write_state.subject(replica.id), &record)?.seq;
        write_state.last = snapshot;
        write_state.redo_bytes = 0;
        // Older journal records may be trimmed, and with them the location of the bytes.
        write_state.whole = None;
        if write_state.checkpoint.is_some() {
            // The checkpoint continues. Its saved pages lie in older journal records, which stay unless there are too
            // many.
            if self.holds.lock().of(replica.id).is_some_and(|first| first >= self.renew_before()) {
                return Ok(());
            }
            self.renew_checkpoint(replica.id, write_state)?;
        }
        self.holds.lock().advance(replica.id, snapshot, write_state.last);
        Ok(())
    }

    /// Syncs all writers with unsynced changes, and renews those that hold too much of the journal.
    pub(crate) fn sync_writers(&self) -> Result<(), StoreError> {
        let mut result = Ok(());
        let mut keep_first = |step: Result<(), StoreError>| {
            if result.is_ok() {
                result = step;
            }
        };
        let cutoff = self.renew_before();
        for id in self.open_replicas() {
            // One at a time, so that replicas closed meanwhile are not kept open.
            let Some(replica) = self.table.lock().get(&id).cloned() else { continue };
            let generation = {
                let state = replica.lock();
                let living =
                    state.write_state.as_ref().filter(|write_state| !state.removed && write_state.failed.is_none());
                living.map(|write_state| write_state.birth.generation)
            };
            let Some(generation) = generation else { continue };
            match self.sync(&replica, generation) {
                // It ended meanwhile.
                Err(StoreError::Closed { .. }) => {}
                other => keep_first(other.map(|_| ())),
            }
            if self.holds.lock().of(replica.id).is_some_and(|first| first < cutoff) {
                keep_first(self.snapshot(&replica));
            }
        }
        self.forget_closed();
        result
    }

    /// Open writes that need records before this one must be written again.
    fn renew_before(&self) -> Seq {
        let mut bytes = 0;
        for segment in self.journal.segments().iter().rev() {
            bytes += segment.bytes;
            if bytes > self.config.snapshot_after_bytes {
                return segment.first;
            }
        }
        Seq::ZERO
    }

    /// Truncates or extends a replica.
    pub(crate) fn truncate(&self, replica: &OpenReplica, generation: u64, len: u64) -> Result<(), StoreError> {
        let mut state = replica.lock();
        state.pause();
        self.truncate_paused(replica, &mut state, generation, len)
    }

    fn truncate_paused(
        &self,
        replica: &OpenReplica,
        state: &mut Locked<'_>,
        generation: u64,
        len: u64,
    ) -> Result<(), StoreError> {
        let write_state = replica.write_state(state, generation)?;
        if let Some(reason) = &write_state.failed {
            return Err(StoreError::Failed { replica: replica.id, reason: reason.clone() });
        }
        let (cuts, old_len) = (len < write_state.len, write_state.len);
        if cuts {
            self.save_pages(replica.id, state, len, old_len)?;
            self.hold_page(replica.id, state, len)?;
        }
        let write_state = replica.write_state(state, generation)?;
        write_state.last = self.log(write_state.subject(replica.id), &JournalRecord::Truncate { len })?.seq;
        write_state.set_len(len);
        write_state.large |= len > self.config.small_max;
        write_state.dirty = true;
        write_state.whole = None;
        let last = write_state.last;
        if !cuts {
            return Ok(self.journal.write_to(last)?);
        }
        // Truncate the file only when the journal surely says so, and write nothing new before that. Under a checkpoint
        // do not truncate: its space must still exist if the truncation is undone on a full disk.
        let undoable = write_state.checkpoint.is_some();
        let cut = match self.journal.sync_to(last) {
            Ok(()) if undoable => return Ok(()),
            Ok(()) => self.cut_file(replica.id, state, len),
            Err(e) => Err(e.into()),
        };
        let write_state = replica.write_state(state, generation)?;
        if let Err(e) = cut {
            write_state.failed.get_or_insert(e.to_string());
            return Err(e);
        }
        write_state.last = self.log(write_state.subject(replica.id), &JournalRecord::Cut)?.seq;
        Ok(self.journal.write_to(write_state.last)?)
    }

    /// Truncates the file, if there is one, to the pages that `len` touches.
    pub(crate) fn cut_file(&self, replica: ReplicaId, state: &mut State, len: u64) -> Result<(), StoreError> {
        let has_file = state.files.is_some()
            || state.write_state.as_ref().is_some_and(|write_state| write_state.in_file != Ranges::default());
        if !has_file && !matches!(&state.record, Some(record) if record.place == ByteLocation::Object) {
            return Ok(());
        }
        let files = self.files(replica, state)?;
        let end = pages_of(len) * PAGE;
        if files.data.len()? > end {
            files.data.set_len(end)?;
            files.forget_recent();
        }
        Ok(self.sync_files(&files)?)
    }

    /// If `len` lies inside a page of the file: holds that page, with its whole present contents in the journal.
    pub(crate) fn hold_page(&self, replica: ReplicaId, state: &mut State, len: u64) -> Result<(), StoreError> {
        let page = len / PAGE;
        let in_file =
            state.write_state.as_ref().is_some_and(|write_state| write_state.in_file.contains(page, page + 1));
        if len.is_multiple_of(PAGE) || !in_file {
            return Ok(());
        }
        let bytes = self.files(replica, state)?.page(replica, page)?;
        let Some(write_state) = &mut state.write_state else { return Ok(()) };
        let nothing = (page * PAGE, page * PAGE);
        let record = JournalRecord::Bytes { wrote: nothing, offset: page * PAGE, bytes: &bytes };
        write_state.last = self.log(write_state.subject(replica), &record)?.seq;
        write_state.lay(nothing, page * PAGE, &bytes)?;
        write_state.whole = None;
        Ok(())
    }

    /// Begins a new generation of a finished replica, or continues the open one. Returns the generation. Durable on
    /// return.
    pub(crate) fn begin_generation(&self, replica: &Arc<OpenReplica>) -> Result<u64, StoreError> {
        let mut state = replica.lock();
        if state.removed {
            return Err(StoreError::NotFound { replica: replica.id });
        }
        if let Some(write_state) = &state.write_state {
            return Ok(write_state.birth.generation);
        }
        self.floor.check(&*self.disk, 0)?;
        let record = state.record.clone().ok_or(StoreError::NotFound { replica: replica.id })?;
        let birth = GenerationStart {
            generation: record.generation + 1,
            beginning: if record.ended == Ended::Complete { Beginning::Update } else { Beginning::Resumed },
            incarnation: record.incarnation,
            expected_len: None,
            path_hint: self.path_hint(replica.id, &mut state, &record)?,
        };
        let mut write_state = WriteState::new(birth, self.config.small_max);
        write_state.len = record.len;
        write_state.written = Ranges::up_to(record.len);
        write_state.durable_prefix = record.len;
        if record.place == ByteLocation::Object {
            // Take a partly full last page out of the file, so that an append never overwrites existing bytes.
            let whole = record.len / PAGE;
            write_state.large = true;
            write_state.in_file = Ranges::up_to(whole);
            write_state.leftovers = true;
            let rest = record.len % PAGE;
            if rest > 0 {
                let files = self.files(replica.id, &mut state)?;
                let mut bytes = vec![0; PAGE_SIZE];
                files.read_padded(&mut bytes, whole * PAGE)?;
                bytes[index(rest)..].fill(0);
                let found = types::Crc32c::of(&bytes[..index(rest)]);
                if files.sums(whole, 1)?.first().map(|sum| sum.crc32c) != Some(found) {
                    return Err(StoreError::Checksum { replica: replica.id, page: whole });
                }
                write_state.held.insert(whole, HeldPage { bytes: bytes.into_boxed_slice(), image: true });
            }
        } else {
            let content = self.content(replica.id, &mut state)?;
            for (page, bytes) in (0..).zip(content.chunks(PAGE_SIZE)) {
                let mut held = vec![0; PAGE_SIZE];
                held[..bytes.len()].copy_from_slice(bytes);
                write_state.held.insert(page, HeldPage { bytes: held.into_boxed_slice(), image: false });
            }
        }
        self.holds.lock().begin(replica.id, self.journal.appended());
        let logged = self
            .log(write_state.subject(replica.id), &JournalRecord::Snapshot(write_state.snapshot()))
            .map(|appended| appended.seq);
        let logged = logged.and_then(|seq| Ok(self.journal.sync_to(seq).map(|()| seq)?));
        write_state.last = match logged {
            Ok(seq) => seq,
            Err(e) => {
                self.holds.lock().end(replica.id, self.journal.appended());
                return Err(e);
            }
        };
        let generation = write_state.birth.generation;
        state.write_state = Some(write_state);
        state.content = None;
        state.version += 1;
        Ok(generation)
    }
}

/// Held pages as consecutive runs, none longer than a buffer.
fn runs<'a>(held: &BTreeMap<u64, &'a HeldPage>) -> Vec<(u64, Vec<&'a HeldPage>)> {
    let mut runs: Vec<(u64, Vec<&HeldPage>)> = Vec::new();
    for (page, held) in held {
        match runs.last_mut() {
            Some((first, run)) if *first + run.len() as u64 == *page && run.len() < BUFFER / PAGE_SIZE => {
                run.push(held)
            }
            _ => runs.push((*page, vec![held])),
        }
    }
    runs
}
