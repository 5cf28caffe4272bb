//! Opening a store: compares the index and the journal with the disk.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use disk::{Access, Disk, DiskFile};
use journal::{Journal, Seq};
use kv::{Batch, ScanOrder};
use parking_lot::Mutex;
use types::{Crc32c, PAGE_SIZE, ReplicaId};

use crate::buffers::{BUFFER, Buffers};
use crate::config::PlantedBug;
use crate::floor::Floor;
use crate::journal_record::{Beginning, JournalRecord};
use crate::journal_references::{JournalReferences, Removal};
use crate::object::{ObjectFiles, Objects};
use crate::ranges::Ranges;
use crate::record::{SEEN_KEY, SEGMENTS_END, SeenObjects, SegmentStat, segment_of_key};
use crate::replay::Replayed;
use crate::replica::{OpenReplica, State};
use crate::segments::SegmentFiles;
use crate::store::{Inner, Memory, RecordIndex, Store};
use crate::sums::{PAGE, PageSum};
use crate::write_state::WriteState;
use crate::writer::index;
use crate::{StoreConfig, StoreError, StoreRecovery};

pub(crate) fn inner(
    disk: Arc<dyn Disk>,
    dir: &str,
    journal: Arc<Journal>,
    index: Arc<dyn RecordIndex>,
    mut config: StoreConfig,
) -> Arc<Inner> {
    config.small_max = config.small_max.min(crate::record::SMALL_LIMIT);
    Arc::new(Inner {
        objects: Objects::new(Arc::clone(&disk), dir, &config),
        segments: SegmentFiles::new(Arc::clone(&disk), dir),
        buffers: Buffers::new(config.buffers_max),
        floor: Floor::new(&config),
        disk,
        journal,
        index,
        config,
        table: Mutex::default(),
        seen: Mutex::new(Memory { seen: SeenObjects::default(), changed: false }),
        records: Mutex::default(),
        holds: Mutex::new(JournalReferences::default()),
        read_before: Mutex::default(),
        rollbacks: Mutex::new(()),
        removals: Mutex::new(()),
    })
}

pub(crate) fn open(
    disk: Arc<dyn Disk>,
    dir: &str,
    journal: Arc<Journal>,
    index: Arc<dyn RecordIndex>,
    config: StoreConfig,
) -> Result<(Arc<Store>, StoreRecovery), StoreError> {
    for folder in ["objects", "segments"] {
        disk.create_dir_all(&if dir.is_empty() { folder.to_owned() } else { format!("{dir}/{folder}") })?;
    }
    disk.sync_dir(dir)?;
    if !dir.is_empty() {
        disk.sync_dir(dir.rsplit_once('/').map_or("", |(above, _)| above))?;
    }
    let inner = inner(disk, dir, journal, index, config);
    let mut recovery = StoreRecovery::default();
    inner.load_index()?;
    inner.floor.look(&*inner.disk)?;

    let replay = inner.replay(None)?;
    let mut revived = Vec::new();
    {
        let mut memory = inner.seen.lock();
        for (object, incarnation) in &replay.seen {
            if !memory.seen.has(*object) || memory.seen.incarnation < *incarnation {
                memory.seen.add(*object, *incarnation);
                memory.changed = true;
            }
        }
    }
    {
        let mut holds = inner.holds.lock();
        for (seq, replica, len) in &replay.unsettled {
            holds.add_unsettled(*seq, *replica, *len);
        }
        for (replica, gone) in &replay.gone {
            holds.remove(*replica, Removal { gone: *gone, after: *gone });
        }
        recovery.unsettled = holds.unsettled() as u64;
    }
    for (replica, replayed) in replay.write_states {
        inner.holds.lock().begin(replica, Seq(replayed.first.0.saturating_sub(1)));
        let (state, dropped) = inner.revive(replica, replayed)?;
        recovery.bytes_dropped += dropped;
        recovery.being_written.push(replica);
        let open = Arc::new(OpenReplica::new(replica, state));
        // From here on the journal describes what was found.
        inner.snapshot_paused(&open, &mut open.lock())?;
        inner.table.lock().insert(replica, Arc::clone(&open));
        revived.push(open);
    }
    inner.journal.sync_to(inner.journal.appended())?;
    for open in revived {
        if let Some(write_state) = &mut open.lock().write_state {
            write_state.durable_prefix = write_state.written.prefix();
        }
    }
    inner.clear_orphan_segments(&mut recovery)?;
    if inner.config.find_orphans {
        inner.clear_orphan_objects(&mut recovery)?;
    }
    Ok((Arc::new(Store { inner }), recovery))
}

impl Inner {
    /// Loads segments and seen objects from the index. An empty index beside existing files was lost.
    fn load_index(&self) -> Result<(), StoreError> {
        let mut trouble = Ok(());
        let mut segments = BTreeMap::new();
        let snapshot = self.index.snapshot();
        snapshot.scan(b"s", SEGMENTS_END, ScanOrder::Ascending, &mut |key, value| match (
            segment_of_key(key),
            SegmentStat::decode(value),
        ) {
            (Some(number), Ok(stat)) => {
                segments.insert(number, stat);
                ControlFlow::Continue(())
            }
            (None, _) => {
                trouble = Err(StoreError::damaged("a segment's key in the index"));
                ControlFlow::Break(())
            }
            (_, Err(e)) => {
                trouble = Err(e);
                ControlFlow::Break(())
            }
        })?;
        trouble?;
        let seen = snapshot.get(SEEN_KEY)?.map(|bytes| SeenObjects::decode(&bytes)).transpose()?;
        drop(snapshot);
        let files = self.disk.list(self.segments.root())?;
        let Some(seen) = seen else {
            if !files.is_empty() || !self.disk.list(self.objects.root())?.is_empty() {
                return Err(StoreError::IndexLost);
            }
            // The mark that this index belongs to a store.
            let mut batch = Batch::new();
            batch.put(SEEN_KEY, &SeenObjects::default().encode());
            let seq = self.index.append(&batch, true)?;
            return Ok(self.journal.sync_to(seq)?);
        };
        self.seen.lock().seen = seen;
        *self.records.lock() = segments;
        Ok(())
    }

    /// Restores an open write so that it can continue. Unsynced data counts only where journal and disk agree. Also
    /// returns the number of dropped bytes.
    fn revive(&self, replica: ReplicaId, mut replayed: Replayed) -> Result<(State, u64), StoreError> {
        // The writer is gone, and nobody else could have ended the checkpoint.
        let rolled_back = replayed.roll_back(self)?;
        let Replayed { mut write_state, unsynced, cut, .. } = replayed;
        let record = self.record(replica)?;
        let files = self.objects.open(replica, Access::ReadWrite)?.map(Arc::new);
        write_state.leftovers = true;
        let before = write_state.written.clone();
        match &files {
            None => {
                // The file's name was not durable yet, so nothing in the file was.
                for (first, end) in write_state.in_file.as_slice().to_vec() {
                    drop_pages(&mut write_state, first, end);
                }
            }
            Some(files) => self.compare_unsynced(files, &mut write_state, &unsynced)?,
        }
        let size = |ranges: &Ranges| ranges.as_slice().iter().map(|(start, end)| end - start).sum::<u64>();
        let dropped = size(&before) - size(&write_state.written);
        if dropped > 0 && !self.config.has(PlantedBug::ForgetLoss) {
            // Before the journal records the rest as complete.
            self.journal.count_loss()?;
        }
        if dropped > 0 && write_state.birth.beginning != Beginning::Update {
            write_state.len = write_state.written.end();
        }
        let mut state = State { record, files, write_state: Some(write_state), ..State::default() };
        if let Some(len) = cut {
            self.cut_file(replica, &mut state, len)?;
            if let Some(write_state) = &mut state.write_state {
                write_state.last = self.log(write_state.subject(replica), &JournalRecord::Cut)?.seq;
            }
        }
        if let Some(write_state) = state.write_state.as_mut().filter(|_| rolled_back) {
            write_state.last = self
                .append_urgent_record(write_state.subject(replica), &JournalRecord::CheckpointEnded { kept: false })?
                .seq;
        }
        // The journal is durable, so older contents may be overwritten. The held pages may not fit into one record.
        if state
            .write_state
            .as_ref()
            .is_some_and(|write_state| write_state.large && write_state.held.len() > self.config.held_pages_max)
        {
            self.flush_pages(replica, &mut state, None)?;
        }
        Ok((state, dropped))
    }

    /// Compares written, unsynced pages with the journal's checksums, past the page cache. If that is impossible, or
    /// after a failed sync, rewrites the matching pages: the kernel may not know that the device lacks them.
    fn compare_unsynced(
        &self,
        files: &ObjectFiles,
        write_state: &mut WriteState,
        unsynced: &BTreeMap<u64, (u64, u32)>,
    ) -> Result<(), StoreError> {
        let direct = self.objects.direct(files)?;
        let rewrites =
            (!direct.is_direct() || self.journal.is_in_doubt()) && !self.config.has(PlantedBug::BelieveCache);
        let mut buffer = self.buffers.take();
        let mut pages = unsynced.iter().filter(|(page, _)| !write_state.held.contains_key(page)).peekable();
        let mut bad = Vec::new();
        while let Some(&(first, _)) = pages.peek() {
            let first = *first;
            let mut expected = Vec::new();
            while let Some((_, (_, crc))) = pages
                .next_if(|(page, _)| **page == first + expected.len() as u64 && expected.len() < BUFFER / PAGE_SIZE)
            {
                expected.push(*crc);
            }
            let bytes = &mut buffer[..expected.len() * PAGE_SIZE];
            let got = direct.read_at(bytes, first * PAGE)?;
            bytes[got..].fill(0);
            let bad_before = bad.len();
            for ((page, bytes), crc) in (first..).zip(bytes.chunks(PAGE_SIZE)).zip(expected) {
                let sum = PageSum::of(bytes);
                if sum.crc32c == Crc32c(crc) || self.config.has(PlantedBug::BelieveRanges) {
                    files.write_sums(page, &[sum])?;
                } else {
                    bad.push(page);
                }
            }
            if rewrites {
                let bad = &bad[bad_before..];
                rewrite_pages(&*direct, first, bytes, bad)?;
            }
        }
        for page in bad {
            drop_pages(write_state, page, page + 1);
        }
        Ok(())
    }

    /// Reads an open write from the journal again, compares it with the disk, and writes its state again.
    pub(crate) fn reload(&self, replica: ReplicaId, state: &mut State) -> Result<(WriteState, u64), StoreError> {
        let replayed = self.replay(Some(replica))?.write_states.remove(&replica);
        let replayed =
            replayed.ok_or_else(|| StoreError::damaged(format!("the journal has lost replica {replica}")))?;
        let (revived, dropped) = self.revive(replica, replayed)?;
        state.files = revived.files;
        let mut write_state = revived.write_state.ok_or(StoreError::NotFound { replica })?;
        if let Some(files) = &state.files {
            self.sync_files(files)?;
        }
        write_state.last = self
            .append_urgent_record(write_state.subject(replica), &JournalRecord::Snapshot(write_state.snapshot()))?
            .seq;
        self.holds.lock().advance(replica, write_state.last, write_state.last);
        write_state.whole = None;
        write_state.dirty = true;
        Ok((write_state, dropped))
    }
}

/// Writes the pages in `bytes` back, from `first` on, except for the bad ones.
fn rewrite_pages(file: &dyn DiskFile, first: u64, bytes: &[u8], bad: &[u64]) -> Result<(), StoreError> {
    let mut next = first;
    let end = first + (bytes.len() / PAGE_SIZE) as u64;
    for stop in bad.iter().copied().chain([end]) {
        if next < stop {
            let (from, to) = (index((next - first) * PAGE), index((stop - first) * PAGE));
            file.write_at(&bytes[from..to], next * PAGE)?;
        }
        next = stop + 1;
    }
    Ok(())
}

fn drop_pages(write_state: &mut WriteState, first: u64, end: u64) {
    write_state.in_file.remove(first, end);
    write_state.written.remove(first * PAGE, end.saturating_mul(PAGE));
}
