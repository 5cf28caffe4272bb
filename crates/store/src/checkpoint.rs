//! Checkpoints: changes of an open write that are kept or undone as one, even after a stop.
//!
//! A checkpoint records the state of the replica when it began: the length, the written ranges, the pages with data.
//! Before the first change of such a page, its whole contents go into the journal; pages without data need nothing. All
//! changes to the replica while the checkpoint is open belong to it. Its end is one record: *kept* when the changes are
//! durable, or *undone*.
//!
//! The order of the journal ensures the rest. No page of the file that a checkpoint may restore is overwritten before
//! the journal with its contents is durable; this is the rule for all pages that replace older contents. A journal that
//! ends inside a checkpoint is read as if the checkpoint were undone there.
//!
//! The saved pages stay in the journal. Memory has only their locations.

use std::collections::BTreeMap;

use journal::Location;
use types::{PAGE_SIZE, ReplicaId};

use crate::StoreError;
use crate::config::PlantedBug;
use crate::journal_record::JournalRecord;
use crate::ranges::Ranges;
use crate::replica::{OpenReplica, State};
use crate::store::Inner;
use crate::sums::{PAGE, pages_of};
use crate::write_state::{HeldPage, WriteState};
use crate::writer::index;

/// Saved pages in one record at most.
const UNDO_PAGES: u64 = 64;

/// The write state when a checkpoint began.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Base {
    pub(crate) len: u64,
    /// Written bytes.
    pub(crate) written: Ranges,
    /// Pages with written bytes.
    pub(crate) taken: Ranges,
}

/// An open checkpoint.
#[derive(Clone, Debug)]
pub(crate) struct Checkpoint {
    base: Base,
    /// Pages of `base.taken` whose contents are saved.
    saved: Ranges,
    /// The records with the saved pages.
    undo: Vec<Location>,
}

/// The size of a checkpoint in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CheckpointSize {
    /// Saved older contents, in whole pages of 4096.
    pub used: u64,
    /// The limit of `used`.
    pub max: u64,
}

impl Base {
    fn of(write_state: &WriteState) -> Self {
        let mut taken = write_state.in_file.clone();
        for page in write_state.held.keys() {
            taken.insert(*page, page + 1);
        }
        Self { len: write_state.len, written: write_state.written.clone(), taken }
    }
}

impl Checkpoint {
    pub(crate) fn new(base: Base) -> Self {
        Self { base, saved: Ranges::default(), undo: Vec::new() }
    }

    /// The bytes without a gap from the beginning that existed before the checkpoint.
    pub(crate) fn prefix(&self) -> u64 {
        self.base.written.prefix()
    }

    /// Notes that the record at `location` saves `count` pages from `first` on. The first record of a page counts.
    pub(crate) fn remember(&mut self, first: u64, count: u64, location: Location) {
        if !self.saved.contains(first, first + count) {
            self.saved.insert(first, first + count);
            self.undo.push(location);
        }
    }

    fn bytes(&self) -> u64 {
        self.saved.as_slice().iter().map(|(first, end)| (end - first) * PAGE).sum()
    }

    /// The pages from `first` to `end` that had data and are not saved yet, as runs.
    fn unsaved(&self, first: u64, end: u64) -> Vec<(u64, u64)> {
        let held = self.base.taken.as_slice().iter().map(|run| (run.0.max(first), run.1.min(end)));
        let mut unsaved = Ranges::default();
        held.filter(|run| run.0 < run.1).for_each(|run| unsaved.insert(run.0, run.1));
        for &(first, end) in self.saved.as_slice() {
            unsaved.remove(first, end);
        }
        unsaved.as_slice().to_vec()
    }
}

impl WriteState {
    /// Restores the state at the start of the checkpoint from the `saved` pages of the journal.
    pub(crate) fn roll_back(&mut self, saved: BTreeMap<u64, Box<[u8]>>) {
        let Some(Checkpoint { base, .. }) = self.checkpoint.take() else { return };
        self.held.retain(|page, _| base.taken.contains(*page, page + 1));
        for (first, end) in base.taken.gaps(u64::MAX) {
            self.in_file.remove(first, end);
        }
        for (page, bytes) in saved {
            self.in_file.remove(page, page + 1);
            // The file has other contents there now. They are overwritten only when the journal is durable.
            self.held.insert(page, HeldPage { bytes, image: true });
        }
        self.len = base.len;
        self.durable_prefix = self.durable_prefix.min(base.written.prefix());
        self.written = base.written;
        self.whole = None;
        self.leftovers = true;
        self.cuts += 1;
        self.dirty = true;
    }
}

impl Inner {
    /// Begins a checkpoint.
    pub(crate) fn begin_checkpoint(&self, replica: &OpenReplica, generation: u64) -> Result<(), StoreError> {
        let mut state = replica.lock();
        state.pause();
        let write_state = replica.sound_write_state(&mut state, generation)?;
        if write_state.checkpoint.is_some() {
            return Err(StoreError::CheckpointOpen { replica: replica.id });
        }
        let base = Base::of(write_state);
        let record = JournalRecord::CheckpointBegun(base.clone());
        write_state.last = self.log(write_state.subject(replica.id), &record)?.seq;
        write_state.checkpoint = Some(Checkpoint::new(base));
        Ok(self.journal.write_to(write_state.last)?)
    }

    /// Keeps the changes of the checkpoint. They are durable on return.
    pub(crate) fn commit_checkpoint(&self, replica: &OpenReplica, generation: u64) -> Result<(), StoreError> {
        let mut state = replica.lock();
        state.pause();
        let files = state.files.clone();
        if replica.sound_write_state(&mut state, generation)?.checkpoint.is_none() {
            return Err(StoreError::NoCheckpoint { replica: replica.id });
        }
        // Sync the bytes in the file first: after the record there is no way back.
        let synced = match &files {
            Some(files) if !self.config.has(PlantedBug::CommitBeforeSync) => state.unlocked(|| self.sync_files(files)),
            _ => Ok(()),
        };
        let write_state = replica.write_state(&mut state, generation)?;
        if let Err(e) = synced {
            write_state.failed = Some(e.to_string());
            return Err(e.into());
        }
        write_state.last = self
            .append_urgent_record(write_state.subject(replica.id), &JournalRecord::CheckpointEnded { kept: true })?
            .seq;
        write_state.checkpoint = None;
        self.journal.sync_to(write_state.last)?;
        write_state.durable_prefix = write_state.durable_prefix.max(write_state.written.prefix());
        Ok(())
    }

    /// Undoes the changes of the checkpoint, if one is open. Returns whether one was.
    pub(crate) fn roll_back(&self, replica: &OpenReplica, generation: u64) -> Result<bool, StoreError> {
        let mut state = replica.lock();
        state.pause();
        replica.sound_write_state(&mut state, generation)?;
        if !self.roll_back_paused(replica.id, &mut state)? {
            return Ok(false);
        }
        self.journal.write_to(replica.write_state(&mut state, generation)?.last)?;
        Ok(true)
    }

    /// Like [`Inner::roll_back`], for a paused replica.
    pub(crate) fn roll_back_paused(&self, replica: ReplicaId, state: &mut State) -> Result<bool, StoreError> {
        let Some(write_state) = &mut state.write_state else { return Ok(false) };
        let Some(checkpoint) = &write_state.checkpoint else { return Ok(false) };
        // One at a time: all saved pages are in memory until they are in the file.
        let _alone = self.rollbacks.lock();
        let saved = self.saved_pages(checkpoint)?;
        write_state.last = self
            .append_urgent_record(write_state.subject(replica), &JournalRecord::CheckpointEnded { kept: false })?
            .seq;
        write_state.roll_back(saved);
        // The checkpoint is undone. Pages that cannot go to the file now stay held; the next caller that needs the room
        // gets the error.
        let _ = self.make_room(replica, state);
        Ok(true)
    }

    /// The saved pages from the journal.
    pub(crate) fn saved_pages(&self, checkpoint: &Checkpoint) -> Result<BTreeMap<u64, Box<[u8]>>, StoreError> {
        let mut pages = BTreeMap::new();
        for location in &checkpoint.undo {
            let payload = self.journal.read(*location)?;
            let (_, JournalRecord::Undo { first_page, bytes }) = JournalRecord::decode(&payload)? else {
                return Err(StoreError::damaged("another record lies where a checkpoint's pages should be"));
            };
            pages.extend((first_page..).zip(bytes.chunks(PAGE_SIZE).map(Box::from)));
        }
        Ok(pages)
    }

    /// If a checkpoint is open, saves the pages that a change of the bytes from `start` to `end` will change.
    pub(crate) fn save_pages(
        &self,
        replica: ReplicaId,
        state: &mut State,
        start: u64,
        end: u64,
    ) -> Result<(), StoreError> {
        let checkpoint = state.write_state.as_ref().and_then(|write_state| write_state.checkpoint.as_ref());
        let Some(checkpoint) = checkpoint.filter(|_| start < end && !self.config.has(PlantedBug::ForgetUndo)) else {
            return Ok(());
        };
        let runs = checkpoint.unsaved(start / PAGE, pages_of(end));
        let more: u64 = runs.iter().map(|(first, end)| (end - first) * PAGE).sum();
        let limit = self.config.checkpoint_bytes_max;
        if checkpoint.bytes() + more > limit {
            return Err(StoreError::CheckpointFull { replica, limit });
        }
        for (mut first, end) in runs {
            while first < end {
                let count = (end - first).min(UNDO_PAGES);
                let mut bytes = vec![0; index(count * PAGE)];
                self.read_write_state(replica, state, first * PAGE, &mut bytes, false)?;
                let Some(write_state) = &mut state.write_state else { return Err(StoreError::NotFound { replica }) };
                let record = JournalRecord::Undo { first_page: first, bytes: &bytes };
                let appended = self.log(write_state.subject(replica), &record)?;
                write_state.last = appended.seq;
                if let Some(checkpoint) = &mut write_state.checkpoint {
                    checkpoint.remember(first, count, appended.location);
                }
                first += count;
            }
        }
        Ok(())
    }

    /// Writes an open checkpoint to the journal again, so that older records can be trimmed.
    pub(crate) fn renew_checkpoint(&self, replica: ReplicaId, write_state: &mut WriteState) -> Result<(), StoreError> {
        let subject = write_state.subject(replica);
        let Some(checkpoint) = &mut write_state.checkpoint else { return Ok(()) };
        let mut last = self.log(subject, &JournalRecord::CheckpointBegun(checkpoint.base.clone()))?.seq;
        let mut undo = Vec::with_capacity(checkpoint.undo.len());
        for location in &checkpoint.undo {
            let payload = self.journal.read(*location)?;
            let appended = self.journal.append(journal::StreamId::STORE_DATA, &[&payload])?;
            last = appended.seq;
            undo.push(appended.location);
        }
        checkpoint.undo = undo;
        write_state.last = last;
        Ok(())
    }

    /// The size of the open checkpoint; `None` if none is open.
    pub(crate) fn checkpoint_size(
        &self,
        replica: &OpenReplica,
        generation: u64,
    ) -> Result<Option<CheckpointSize>, StoreError> {
        let mut state = replica.lock();
        let write_state = replica.write_state(&mut state, generation)?;
        let size = |checkpoint: &Checkpoint| CheckpointSize {
            used: checkpoint.bytes(),
            max: self.config.checkpoint_bytes_max,
        };
        Ok(write_state.checkpoint.as_ref().map(size))
    }
}
