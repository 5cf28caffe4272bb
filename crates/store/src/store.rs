//! The store: its table of open replicas, and its interface.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::ops::ControlFlow;
use std::sync::Arc;

use disk::Disk;
use journal::{Appended, Journal, Seq, StreamId};
use kv::{Batch, KvError, ScanOrder};
use parking_lot::Mutex;
use types::{Incarnation, ObjectId, ReplicaId};

use crate::buffers::Buffers;
use crate::config::PlantedBug;
use crate::first_read::ReadBefore;
use crate::floor::Floor;
use crate::journal_record::{Beginning, GenerationStart, JournalRecord, Subject};
use crate::journal_references::{JournalReferences, Removal};
use crate::object::Objects;
use crate::reader::ReadView;
use crate::record::{REPLICAS_END, ReplicaRecord, SeenObjects, SegmentStat, replica_key, replica_of_key, segment_key};
use crate::replica::OpenReplica;
use crate::segments::SegmentFiles;
use crate::sidecar::PATH_HINT_MAX;
use crate::write_state::WriteState;
use crate::{
    Kept, NewReplica, Reader, RecentStats, ReplicaStatus, Space, StoreConfig, StoreError, StoreRecovery, Verified,
    Writer,
};

/// The map of records that the store keeps: `kv::JournaledIndex` on the stream `STORE_INDEX`.
pub trait RecordIndex: Send + Sync {
    /// Appends a batch, visible to snapshots at once; not yet durable. `urgent`: it frees space, and may use the
    /// journal's reserve.
    fn append(&self, batch: &Batch, urgent: bool) -> Result<Seq, KvError>;
    /// A consistent view of everything appended.
    fn snapshot(&self) -> Box<dyn kv::Read + Send + '_>;
}

impl RecordIndex for kv::JournaledIndex {
    fn append(&self, batch: &Batch, urgent: bool) -> Result<Seq, KvError> {
        if urgent { self.append_urgent(batch) } else { self.append(batch) }
    }

    fn snapshot(&self) -> Box<dyn kv::Read + Send + '_> {
        kv::JournaledIndex::snapshot(self)
    }
}

/// The objects that the store has seen, and whether the index has this record.
pub(crate) struct Memory {
    pub(crate) seen: SeenObjects,
    pub(crate) changed: bool,
}

/// A map by replica. Its order depends only on the operations on it, so a simulation is repeatable. The store chooses
/// the keys, so nobody can make them collide.
pub(crate) type ReplicaMap<V> = HashMap<ReplicaId, V, BuildHasherDefault<DefaultHasher>>;

/// State that all parts of the store share.
///
/// Locks, in the order in which they may be taken: `table`, a replica's state, `rollbacks`, `seen`, `records`,
/// `removals`, `holds`.
pub(crate) struct Inner {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) index: Arc<dyn RecordIndex>,
    pub(crate) config: StoreConfig,
    pub(crate) objects: Objects,
    pub(crate) segments: SegmentFiles,
    pub(crate) buffers: Buffers,
    pub(crate) floor: Floor,
    /// Replicas with readers or an open write.
    pub(crate) table: Mutex<ReplicaMap<Arc<OpenReplica>>>,
    pub(crate) seen: Mutex<Memory>,
    /// Held while an index record is replaced, because the segments' numbers change with the records.
    pub(crate) records: Mutex<BTreeMap<u64, SegmentStat>>,
    pub(crate) holds: Mutex<JournalReferences>,
    pub(crate) read_before: Mutex<ReadBefore>,
    /// Held while a checkpoint is undone.
    pub(crate) rollbacks: Mutex<()>,
    /// Held while files of removed replicas are removed.
    pub(crate) removals: Mutex<()>,
}

/// Replicas of objects on one disk. Any thread may make any call.
pub struct Store {
    pub(crate) inner: Arc<Inner>,
}

impl Inner {
    /// Appends a record to the stream of open writes.
    pub(crate) fn log(&self, subject: Subject, record: &JournalRecord<'_>) -> Result<Appended, StoreError> {
        // These records free space, or allow trimming.
        if matches!(record, JournalRecord::Gone | JournalRecord::Cut) {
            return self.append_urgent_record(subject, record);
        }
        let (head, tail) = record.encode(subject);
        Ok(self.journal.append(StreamId::STORE_DATA, &[&head, tail])?)
    }

    /// Like [`Inner::log`], with the journal's reserve, for records that a full disk must not block.
    pub(crate) fn append_urgent_record(
        &self,
        subject: Subject,
        record: &JournalRecord<'_>,
    ) -> Result<Appended, StoreError> {
        let (head, tail) = record.encode(subject);
        Ok(self.journal.append_urgent(StreamId::STORE_DATA, &[&head, tail])?)
    }

    /// A replica's record in the index.
    pub(crate) fn record(&self, replica: ReplicaId) -> Result<Option<ReplicaRecord>, StoreError> {
        let bytes = self.index.snapshot().get(&replica_key(replica))?;
        bytes.map(|bytes| ReplicaRecord::decode(&bytes)).transpose()
    }

    /// Replaces a replica's record, and updates the live bytes of segments.
    pub(crate) fn replace_record(
        &self,
        replica: ReplicaId,
        old: Option<&ReplicaRecord>,
        new: Option<&ReplicaRecord>,
    ) -> Result<Seq, StoreError> {
        let mut segments = self.records.lock();
        // Only under the lock is it certain what was settled or moved meanwhile.
        let old = if old.is_some() { self.record(replica)? } else { None };
        let mut batch = Batch::new();
        match new {
            Some(record) => batch.put(&replica_key(replica), &record.encode()),
            None => batch.delete(&replica_key(replica)),
        }
        let mut changed = None;
        if let Some(old) = &old
            && let crate::record::ByteLocation::Segment { segment, .. } = old.place
            && let Some(stat) = segments.get(&segment)
        {
            let stat = SegmentStat { live: stat.live.saturating_sub(old.bytes_in_segment()), ..*stat };
            batch.put(&segment_key(segment), &stat.encode());
            changed = Some((segment, stat));
        }
        let seq = self.index.append(&batch, new.is_none())?;
        if let Some((segment, stat)) = changed {
            segments.insert(segment, stat);
        }
        Ok(seq)
    }

    /// The open replica, or one opened from its index record; `None` if it does not exist.
    pub(crate) fn find(&self, replica: ReplicaId) -> Result<Option<Arc<OpenReplica>>, StoreError> {
        let mut table = self.table.lock();
        if let Some(open) = table.get(&replica) {
            return Ok(Some(Arc::clone(open)));
        }
        let Some(record) = self.record(replica)? else { return Ok(None) };
        let open = Arc::new(OpenReplica::ended(replica, record));
        table.insert(replica, Arc::clone(&open));
        Ok(Some(open))
    }

    pub(crate) fn check_incarnation(&self, given: Incarnation) -> Result<(), StoreError> {
        let seen = self.seen.lock().seen.incarnation;
        if given < seen { Err(StoreError::StaleIncarnation { given, seen }) } else { Ok(()) }
    }

    /// Called when a reader or writer is dropped: closes a replica without other users.
    pub(crate) fn release(&self, replica: &Arc<OpenReplica>) {
        let mut table = self.table.lock();
        let ours = table.get(&replica.id).is_some_and(|open| Arc::ptr_eq(open, replica));
        // One reference is the table's and one the caller's.
        if ours && Arc::strong_count(replica) <= 2 && replica.lock().write_state.is_none() {
            table.remove(&replica.id);
        }
    }

    /// All replicas in the table.
    pub(crate) fn open_replicas(&self) -> Vec<ReplicaId> {
        self.table.lock().keys().copied().collect()
    }

    /// Closes replicas without users. [`Inner::release`] leaves one open if two users drop it at once, or during a
    /// status request.
    pub(crate) fn forget_closed(&self) {
        // If only the locked table has a reference, no other thread can use the state.
        self.table.lock().retain(|_, open| Arc::strong_count(open) > 1 || open.lock().write_state.is_some());
    }
}

impl Store {
    /// Opens the store in the directory `dir` of `disk`, or makes one. `journal` and `index` must already be open
    /// (recovered).
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: &str,
        journal: Arc<Journal>,
        index: Arc<dyn RecordIndex>,
        config: StoreConfig,
    ) -> Result<(Arc<Store>, StoreRecovery), StoreError> {
        crate::recover::open(disk, dir, journal, index, config)
    }

    /// Creates a replica. Its object's number must never have been used on this store. Waits for no disk write: the
    /// first record is in the journal's memory, and goes to the kernel with the first bytes or with any other write of
    /// the journal. A stop of the process before that forgets the replica.
    pub fn create(&self, replica: ReplicaId, new: NewReplica<'_>) -> Result<Arc<Writer>, StoreError> {
        let inner = &self.inner;
        inner.floor.check(&*inner.disk, 0)?;
        // Before the replica is known: otherwise a later removal would remove that file.
        if inner.objects.ended(replica)? {
            return Err(StoreError::FileThere { replica, path: inner.objects.path(replica) });
        }
        // A store sees some of a cluster's numbers, in any order; the others are gaps. Of a number from a dropped gap,
        // the store does not know whether it was used. It treats the number as used.
        if inner.seen.lock().seen.has_forgotten(replica.object) && self.status(replica)?.is_none() {
            return self.recreate(replica, new);
        }
        self.begin(replica, new, 1, false)
    }

    /// Appends the first record of an unknown replica, with the given `generation`.
    pub(crate) fn begin(
        &self,
        replica: ReplicaId,
        new: NewReplica<'_>,
        generation: u64,
        is_recreated: bool,
    ) -> Result<Arc<Writer>, StoreError> {
        let inner = &self.inner;
        let birth = GenerationStart {
            generation,
            beginning: Beginning::New,
            incarnation: new.incarnation,
            expected_len: new.expected_len,
            path_hint: new.path_hint[..new.path_hint.len().min(PATH_HINT_MAX)].to_vec(),
        };
        let subject = Subject { replica, generation };
        inner.check_incarnation(new.incarnation)?;
        let appended = {
            let mut memory = inner.seen.lock();
            let is_used =
                !is_recreated && memory.seen.has(replica.object) && !inner.config.has(PlantedBug::ReuseObject);
            if replica.object == ObjectId(0) || is_used {
                return Err(StoreError::ObjectUsed { object: replica.object });
            }
            inner.holds.lock().begin(replica, inner.journal.appended());
            let appended = match inner.log(subject, &JournalRecord::Born(birth.clone())) {
                Ok(appended) => appended,
                Err(e) => {
                    inner.holds.lock().end(replica, Seq::ZERO);
                    return Err(e);
                }
            };
            memory.seen.add(replica.object, new.incarnation);
            memory.changed = true;
            appended
        };
        let mut write_state = WriteState::new(birth, inner.config.small_max);
        write_state.last = appended.seq;
        write_state.dirty = true;
        let open = Arc::new(OpenReplica::living(replica, None, write_state));
        inner.table.lock().insert(replica, Arc::clone(&open));
        Ok(Arc::new(Writer::new(Arc::clone(inner), open, generation)))
    }

    /// Opens an existing replica for writing. Shares the writer of an open write, resumes an interrupted replica, or
    /// begins an update in place of a complete one (marked durably before this returns).
    pub fn reopen(&self, replica: ReplicaId) -> Result<Arc<Writer>, StoreError> {
        let inner = &self.inner;
        let open = inner.find(replica)?.ok_or(StoreError::NotFound { replica })?;
        let generation = inner.begin_generation(&open)?;
        Ok(Arc::new(Writer::new(Arc::clone(inner), open, generation)))
    }

    /// Opens for reading: a complete replica, an interrupted one (its kept bytes), or an unfinished one (its growing
    /// durable prefix).
    pub fn open_read(&self, replica: ReplicaId) -> Result<Arc<Reader>, StoreError> {
        let open = self.inner.find(replica)?.ok_or(StoreError::NotFound { replica })?;
        Ok(Arc::new(Reader::open(Arc::clone(&self.inner), open, ReadView::DurablePrefix)?))
    }

    /// Like [`Store::open_read`], for the writer of the replica: an unfinished one shows all written bytes, and zeros
    /// in the gaps.
    pub fn open_read_of_writer(&self, replica: ReplicaId) -> Result<Arc<Reader>, StoreError> {
        let open = self.inner.find(replica)?.ok_or(StoreError::NotFound { replica })?;
        Ok(Arc::new(Reader::open(Arc::clone(&self.inner), open, ReadView::AllWritten)?))
    }

    /// Forgets the recently written pages, and those of the other stores that share the memory.
    pub fn forget_recent(&self) {
        if let Some(recent) = &self.inner.config.recent {
            recent.forget_all();
        }
    }

    /// The memory for recently written pages, which other stores may share. `None`: there is none.
    #[must_use]
    pub fn recent(&self) -> Option<RecentStats> {
        self.inner.config.recent.as_ref().map(|recent| recent.stats())
    }

    /// The status of a replica; `None` if it does not exist.
    pub fn status(&self, replica: ReplicaId) -> Result<Option<ReplicaStatus>, StoreError> {
        let open = self.inner.table.lock().get(&replica).cloned();
        match open {
            Some(open) => Ok(open.status()),
            None => Ok(self.inner.record(replica)?.map(|record| record.status())),
        }
    }

    /// Whether a replica of `object` was ever begun here, as far as journal and index know. False if a stop of the
    /// process forgot it (see [`Store::create`]). Also true if its number lies in a dropped gap.
    pub fn has_begun(&self, object: ObjectId) -> bool {
        self.inner.seen.lock().seen.has(object)
    }

    /// Ends an open write without completing it. Keeps all bytes without a gap from the beginning,
    /// made durable (after a failed sync: those that were durable before). Appended, not synced. An update in place
    /// ends as complete with the written changes.
    pub fn interrupt(&self, replica: ReplicaId) -> Result<Kept, StoreError> {
        self.interrupt_open(replica, true)
    }

    /// The same, but after a failed sync [`StoreError::Failed`]: bytes that were written may be lost, and another store may have them.
    pub fn interrupt_sound(&self, replica: ReplicaId) -> Result<Kept, StoreError> {
        self.interrupt_open(replica, false)
    }

    fn interrupt_open(&self, replica: ReplicaId, may_have_failed: bool) -> Result<Kept, StoreError> {
        let open = self.inner.find(replica)?.ok_or(StoreError::NotFound { replica })?;
        let kept = self.inner.interrupt(&open, may_have_failed);
        self.inner.release(&open);
        kept
    }

    /// Removes a replica in any state. Open readers continue; writers get an error. Appended, not synced; the files are
    /// removed when the record is durable. No error if the replica does not exist.
    pub fn delete(&self, replica: ReplicaId) -> Result<(), StoreError> {
        let inner = &self.inner;
        let Some(open) = inner.find(replica)? else { return Ok(()) };
        let mut state = open.lock();
        if state.removed {
            return Ok(());
        }
        let record_generation = state.record.as_ref().map_or(0, |record| record.generation);
        let generation =
            state.write_state.as_ref().map_or(record_generation, |write_state| write_state.birth.generation);
        // First the mark in the stream of open writes, so that replay never mistakes the removed replica's records for
        // an open write.
        let gone = inner.log(Subject { replica, generation }, &JournalRecord::Gone)?.seq;
        let mut after = gone;
        if let Some(record) = &state.record {
            after = inner.replace_record(replica, Some(record), None)?;
        }
        state.removed = true;
        state.notify();
        drop(state);
        {
            let mut holds = inner.holds.lock();
            holds.end(replica, after);
            holds.remove(replica, Removal { gone, after });
        }
        let mut table = inner.table.lock();
        if table.get(&replica).is_some_and(|there| Arc::ptr_eq(there, &open)) {
            table.remove(&replica);
        }
        drop(table);
        if inner.config.has(PlantedBug::UnlinkBeforeRecord) {
            inner.remove_files(Seq(u64::MAX))?;
        }
        Ok(())
    }

    /// Reads all bytes and compares them. `progress` gets the bytes read so far. If it returns false, the call fails
    /// with [`StoreError::Stopped`], because the result for the whole is unknown.
    pub fn verify(&self, replica: ReplicaId, progress: &mut dyn FnMut(u64) -> bool) -> Result<Verified, StoreError> {
        let open = self.inner.find(replica)?.ok_or(StoreError::NotFound { replica })?;
        let reader = Reader::open(Arc::clone(&self.inner), open, ReadView::DurablePrefix)?.past_memory();
        crate::verify::verify(&reader, self.status(replica)?, progress)
    }

    /// Replicas in order after `after`, at most `limit`.
    pub fn replicas(
        &self,
        after: Option<ReplicaId>,
        limit: usize,
    ) -> Result<Vec<(ReplicaId, ReplicaStatus)>, StoreError> {
        let start = after.map_or(vec![b'p'], |replica| [replica_key(replica).as_slice(), &[0]].concat());
        let mut found: BTreeMap<ReplicaId, ReplicaStatus> = BTreeMap::new();
        let mut trouble = None;
        self.inner.index.snapshot().scan(&start, REPLICAS_END, ScanOrder::Ascending, &mut |key, value| {
            let decoded = replica_of_key(key)
                .ok_or_else(|| StoreError::damaged("a key in the index"))
                .and_then(|replica| Ok((replica, ReplicaRecord::decode(value)?.status())));
            match decoded {
                Ok((replica, status)) => {
                    found.insert(replica, status);
                }
                Err(e) => trouble = Some(e),
            }
            if found.len() >= limit || trouble.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        if let Some(e) = trouble {
            return Err(e);
        }
        for id in self.inner.open_replicas().into_iter().filter(|id| after.is_none_or(|after| after < *id)) {
            let open = self.inner.table.lock().get(&id).cloned();
            if let Some(status) = open.and_then(|open| open.status()) {
                found.insert(id, status);
            }
        }
        Ok(found.into_iter().take(limit).collect())
    }

    /// Periodic work, once a second: syncs open writers, settles small replicas, compacts segments, removes files of
    /// deleted replicas, moves the trim mark, and checks the free space. Does all of it and then returns the first
    /// error.
    pub fn tick(&self) -> Result<(), StoreError> {
        let inner = &self.inner;
        let steps = [
            inner.sync_writers(),
            inner.settle(),
            inner.compact(),
            inner.trim(),
            inner.floor.look(&*inner.disk).map(|_| ()),
        ];
        steps.into_iter().collect()
    }

    /// Makes all records so far durable.
    ///
    /// # Errors
    /// The journal cannot be synced.
    pub fn sync_journal(&self) -> Result<(), StoreError> {
        self.sync_journal_to(self.inner.journal.appended())
    }

    /// Makes the record at `seq` and all earlier ones durable. Callers that wait at the same time share a sync.
    ///
    /// # Errors
    /// The journal cannot be synced.
    pub fn sync_journal_to(&self, seq: Seq) -> Result<(), StoreError> {
        Ok(self.inner.journal.sync_to(seq)?)
    }

    /// Sizes of the file system, and whether new data is refused.
    pub fn space(&self) -> Result<Space, StoreError> {
        self.inner.floor.look(&*self.inner.disk)
    }
}
