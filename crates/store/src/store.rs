//! The store: its table of open replicas, and what is asked of it.

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
use crate::config::Planted;
use crate::floor::Floor;
use crate::holds::{Holds, Removal};
use crate::log_record::{Beginning, Birth, LogRecord, Subject};
use crate::object::Objects;
use crate::reader::ReadView;
use crate::record::{REPLICAS_END, ReplicaRecord, Seen, SegmentStat, replica_key, replica_of_key, segment_key};
use crate::replica::OpenReplica;
use crate::segments::SegmentFiles;
use crate::sidecar::PATH_HINT_MAX;
use crate::write_state::WriteState;
use crate::{NewReplica, Reader, ReplicaStatus, Space, StoreConfig, StoreError, StoreRecovery, Verified, Writer};

/// The map of records that the store keeps: `kv::LoggedIndex` on the stream `STORE_INDEX`.
pub trait RecordIndex: Send + Sync {
    /// Takes a batch into the log's order, visible to snapshots at once; not yet durable. `urgent`: it frees space, and may use
    /// the log's reserve.
    fn append(&self, batch: &Batch, urgent: bool) -> Result<Seq, KvError>;
    /// A consistent view of everything appended.
    fn snapshot(&self) -> Box<dyn kv::Read + Send + '_>;
}

impl RecordIndex for kv::LoggedIndex {
    fn append(&self, batch: &Batch, urgent: bool) -> Result<Seq, KvError> {
        if urgent { self.append_urgent(batch) } else { self.append(batch) }
    }

    fn snapshot(&self) -> Box<dyn kv::Read + Send + '_> {
        kv::LoggedIndex::snapshot(self)
    }
}

/// What the store remembers of objects, and whether the index knows it.
pub(crate) struct Memory {
    pub(crate) seen: Seen,
    pub(crate) changed: bool,
}

/// A map by replica. Its order follows from what was done with it alone, so that a simulation happens again as it was; the keys are our own numbers, which
/// nobody chooses to collide.
pub(crate) type ReplicaMap<V> = HashMap<ReplicaId, V, BuildHasherDefault<DefaultHasher>>;

/// Everything that the parts of the store share.
///
/// Locks, in the order in which they may be taken: `table`, a replica's state, `rollbacks`, `seen`, `records`, `removals`, `holds`.
pub(crate) struct Inner {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) index: Arc<dyn RecordIndex>,
    pub(crate) config: StoreConfig,
    pub(crate) objects: Objects,
    pub(crate) segments: SegmentFiles,
    pub(crate) buffers: Buffers,
    pub(crate) floor: Floor,
    /// Pieces that somebody has open, or that are being written.
    pub(crate) table: Mutex<ReplicaMap<Arc<OpenReplica>>>,
    pub(crate) seen: Mutex<Memory>,
    /// Held while a record of the index is replaced; the segments' numbers go with the records.
    pub(crate) records: Mutex<BTreeMap<u64, SegmentStat>>,
    pub(crate) holds: Mutex<Holds>,
    /// Held while a checkpoint is undone.
    pub(crate) rollbacks: Mutex<()>,
    /// Held while files of removed replicas are removed.
    pub(crate) removals: Mutex<()>,
}

/// Pieces of objects on one disk. All calls may come from any thread.
pub struct Store {
    pub(crate) inner: Arc<Inner>,
}

impl Inner {
    /// Appends a record to the stream of replicas being written.
    pub(crate) fn log(&self, subject: Subject, record: &LogRecord<'_>) -> Result<Appended, StoreError> {
        // These free space, or end what holds the log.
        if matches!(record, LogRecord::Gone | LogRecord::Cut) {
            return self.log_urgent(subject, record);
        }
        let (head, tail) = record.encode(subject);
        Ok(self.journal.append(StreamId::STORE_DATA, &[&head, tail])?)
    }

    /// The same, with the log's reserve: where a full disk must not be in the way.
    pub(crate) fn log_urgent(&self, subject: Subject, record: &LogRecord<'_>) -> Result<Appended, StoreError> {
        let (head, tail) = record.encode(subject);
        Ok(self.journal.append_urgent(StreamId::STORE_DATA, &[&head, tail])?)
    }

    /// A replica's record in the index.
    pub(crate) fn record(&self, replica: ReplicaId) -> Result<Option<ReplicaRecord>, StoreError> {
        let bytes = self.index.snapshot().get(&replica_key(replica))?;
        bytes.map(|bytes| ReplicaRecord::decode(&bytes)).transpose()
    }

    /// Replaces a replica's record, and keeps count of what is live in segments.
    pub(crate) fn replace_record(
        &self,
        replica: ReplicaId,
        old: Option<&ReplicaRecord>,
        new: Option<&ReplicaRecord>,
    ) -> Result<Seq, StoreError> {
        let mut segments = self.records.lock();
        // What settled or moved meanwhile is only known under the lock.
        let old = if old.is_some() { self.record(replica)? } else { None };
        let mut batch = Batch::new();
        match new {
            Some(record) => batch.put(&replica_key(replica), &record.encode()),
            None => batch.delete(&replica_key(replica)),
        }
        let mut changed = None;
        if let Some(old) = &old
            && let crate::record::Place::Segment { segment, .. } = old.place
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

    /// The open replica, or the one that the index knows, opened. `None`: there is none.
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

    /// Called when a reader or writer goes: forgets a replica that nobody has open.
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

    /// Forgets replicas that nobody has open. [`Inner::release`] leaves one standing when two go at once, or somebody just looks.
    pub(crate) fn forget_closed(&self) {
        // With no reference but the table's, and the table locked, nobody else can be at the state.
        self.table.lock().retain(|_, open| Arc::strong_count(open) > 1 || open.lock().write_state.is_some());
    }
}

impl Store {
    /// Opens the store in the folder `dir` of `disk`, or makes one. `journal` and `index` are open (recovered) already.
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: &str,
        journal: Arc<Journal>,
        index: Arc<dyn RecordIndex>,
        config: StoreConfig,
    ) -> Result<(Arc<Store>, StoreRecovery), StoreError> {
        crate::recover::open(disk, dir, journal, index, config)
    }

    /// Begins a replica. Its object's number must never have been used on this store. Waits for no disk write: the beginning is in the
    /// log's order, and goes to the kernel with the first bytes or with whatever else is written to the log. Until then a stop of
    /// the process forgets it, as if it had not been asked for.
    pub fn create(&self, replica: ReplicaId, new: NewReplica<'_>) -> Result<Arc<Writer>, StoreError> {
        let inner = &self.inner;
        inner.floor.check(&*inner.disk, 0)?;
        // Before anything is known of it: a later removal would else take that file along.
        if inner.objects.ended(replica)? {
            return Err(StoreError::FileThere { replica, path: inner.objects.path(replica) });
        }
        // Of a cluster's numbers a store sees some, in any order, and those that it does not see are gaps. Whether a number from long ago was used is
        // not known any more; then it begins as one that was.
        if inner.seen.lock().seen.has_forgotten(replica.object) && self.status(replica)?.is_none() {
            return self.begin_anew(replica, new);
        }
        self.begin(replica, new, 1, false)
    }

    /// The first record of a replica of which nothing is known, in the life `generation`.
    pub(crate) fn begin(
        &self,
        replica: ReplicaId,
        new: NewReplica<'_>,
        generation: u64,
        is_anew: bool,
    ) -> Result<Arc<Writer>, StoreError> {
        let inner = &self.inner;
        let birth = Birth {
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
            let is_used = !is_anew && memory.seen.has(replica.object) && !inner.config.has(Planted::ReuseObject);
            if replica.object == ObjectId(0) || is_used {
                return Err(StoreError::ObjectUsed { object: replica.object });
            }
            inner.holds.lock().begin(replica, inner.journal.appended());
            let appended = match inner.log(subject, &LogRecord::Born(birth.clone())) {
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

    /// Goes on with a replica in the making (the writer that is there is shared), resumes an interrupted one, or begins an update
    /// in place of a complete one (durably marked before this returns).
    pub fn reopen(&self, replica: ReplicaId) -> Result<Arc<Writer>, StoreError> {
        let inner = &self.inner;
        let open = inner.find(replica)?.ok_or(StoreError::NotFound { replica })?;
        let generation = inner.begin_again(&open)?;
        Ok(Arc::new(Writer::new(Arc::clone(inner), open, generation)))
    }

    /// Opens for reading: a complete replica, an interrupted one (what was kept), or one in the making (its durable prefix, as it
    /// grows).
    pub fn open_read(&self, replica: ReplicaId) -> Result<Arc<Reader>, StoreError> {
        let open = self.inner.find(replica)?.ok_or(StoreError::NotFound { replica })?;
        Ok(Arc::new(Reader::open(Arc::clone(&self.inner), open, ReadView::WhatIsDurable)?))
    }

    /// As [`Store::open_read`], for who writes the replica: of one in the making everything that was written, and zeros where nothing was yet.
    pub fn open_read_of_writer(&self, replica: ReplicaId) -> Result<Arc<Reader>, StoreError> {
        let open = self.inner.find(replica)?.ok_or(StoreError::NotFound { replica })?;
        Ok(Arc::new(Reader::open(Arc::clone(&self.inner), open, ReadView::AllThatIsWritten)?))
    }

    /// What is known of a replica; `None`: nothing.
    pub fn status(&self, replica: ReplicaId) -> Result<Option<ReplicaStatus>, StoreError> {
        let open = self.inner.table.lock().get(&replica).cloned();
        match open {
            Some(open) => Ok(open.status()),
            None => Ok(self.inner.record(replica)?.map(|record| record.status())),
        }
    }

    /// Whether a replica of `object` was ever begun here, as far as the log and the index tell: not if it was forgotten with a stop of the process
    /// (see [`Store::create`]), and also where numbers were skipped so often and so long ago that the gaps are remembered no more.
    pub fn has_begun(&self, object: ObjectId) -> bool {
        self.inner.seen.lock().seen.has(object)
    }

    /// Ends a replica in the making without completing it. Returns the length that is kept: everything without a gap from the
    /// beginning, made durable (after a failed sync: what was durable before). Appended, not synced. An update in place is ended
    /// as complete with what was written.
    pub fn interrupt(&self, replica: ReplicaId) -> Result<u64, StoreError> {
        let open = self.inner.find(replica)?.ok_or(StoreError::NotFound { replica })?;
        let kept = self.inner.interrupt(&open);
        self.inner.release(&open);
        kept
    }

    /// Removes a replica in any state. Open readers go on; writers are refused. Appended, not synced; the files go when the record
    /// is durable. No error where there is none.
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
        // First the mark in the stream of lives, so that replay never takes the records of a removed replica for one in the making.
        let gone = inner.log(Subject { replica, generation }, &LogRecord::Gone)?.seq;
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
        if inner.config.has(Planted::UnlinkBeforeRecord) {
            inner.remove_files(Seq(u64::MAX))?;
        }
        Ok(())
    }

    /// Reads everything and compares; `progress` gets the bytes read so far and may say stop by returning false: then that is the error
    /// ([`StoreError::Stopped`]), since nothing is known of the whole.
    pub fn verify(&self, replica: ReplicaId, progress: &mut dyn FnMut(u64) -> bool) -> Result<Verified, StoreError> {
        crate::verify::verify(&*self.open_read(replica)?, self.status(replica)?, progress)
    }

    /// Pieces in order after `after`, at most `limit`.
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

    /// The once-a-second work: syncs open writers, settles small replicas out of the log, compacts segments, removes files of deleted
    /// replicas, moves the trim mark, looks at the free space. Does all of it and then returns the first error.
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

    /// All that was recorded so far is durable when this returns.
    ///
    /// # Errors
    /// When the log cannot be synced.
    pub fn sync_log(&self) -> Result<(), StoreError> {
        self.sync_log_to(self.inner.journal.appended())
    }

    /// The record at `seq`, and all before it, are durable when this returns. Those who wait at one time share a sync.
    ///
    /// # Errors
    /// When the log cannot be synced.
    pub fn sync_log_to(&self, seq: Seq) -> Result<(), StoreError> {
        Ok(self.inner.journal.sync_to(seq)?)
    }

    /// Sizes of the file system and whether new data is refused.
    pub fn space(&self) -> Result<Space, StoreError> {
        self.inner.floor.look(&*self.inner.disk)
    }
}
