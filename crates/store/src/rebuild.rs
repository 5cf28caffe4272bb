//! Rebuilding the index from segments and sidecars after the index and its checkpoints are lost.
//!
//! Finds every complete or interrupted replica in segments and sidecars, besides the index records that the journal
//! still has. A replica whose removal is still in the journal stays removed. One that was removed earlier, but whose
//! bytes still exist, reappears: the namespace knows whether it needs it. Replicas whose bytes are only in the journal
//! become open writes when the store is opened. Empty replicas exist only in the index: use [`Store::restore_empty`]
//! for those that the namespace names.

use std::collections::{BTreeMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use disk::{Access, Disk};
use journal::Journal;
use kv::{Batch, ScanOrder};
use types::{Adler32, Crc32c, Incarnation, ObjectId, ReplicaId};

use crate::record::{
    ByteLocation, Ended, REPLICAS_END, ReplicaRecord, SEEN_KEY, SeenObjects, SegmentStat, replica_key, segment_key,
};
use crate::segment::{FILE_HEADER, check_file_header, find_record, read_record};
use crate::small::check;
use crate::store::{Inner, RecordIndex, Store};
use crate::{StoreConfig, StoreError};

/// Bytes of records in one batch of the index.
const BATCH_BYTES: usize = 1 << 20;

/// The contents of a rebuilt index.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Rebuilt {
    /// Small replicas, found in segments or in the journal.
    pub small: u64,
    /// Large replicas, with their own files.
    pub large: u64,
    /// Unreadable files and parts of files, with the reason.
    pub unreadable: Vec<String>,
}

struct Rebuilding {
    inner: Arc<Inner>,
    /// Records that wait for the next batch.
    batch: BTreeMap<ReplicaId, ReplicaRecord>,
    batch_bytes: usize,
    segments: BTreeMap<u64, SegmentStat>,
    /// Replicas whose removal is still in the journal.
    gone: HashSet<ReplicaId>,
    seen: SeenObjects,
    highest: ObjectId,
}

impl Store {
    /// Whether the index was lost: files of replicas exist, but the index does not know of a store.
    ///
    /// # Errors
    /// Errors of the disk and the index.
    pub fn index_is_lost(disk: &dyn Disk, dir: &str, index: &dyn RecordIndex) -> Result<bool, StoreError> {
        if index.snapshot().get(SEEN_KEY)?.is_some() {
            return Ok(false);
        }
        for folder in ["objects", "segments"] {
            let folder = if dir.is_empty() { folder.to_owned() } else { format!("{dir}/{folder}") };
            if !disk.list(&folder)?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Fills a lost index, which has at most the records still in the journal. The store must not be open.
    ///
    /// # Errors
    /// Errors of the disk, the journal and the index. The records already in the index are correct, but incomplete.
    pub fn rebuild_index(
        disk: Arc<dyn Disk>,
        dir: &str,
        journal: Arc<Journal>,
        index: Arc<dyn RecordIndex>,
    ) -> Result<Rebuilt, StoreError> {
        let inner = crate::recover::inner(disk, dir, journal, index, StoreConfig::default());
        let replay = inner.replay(None)?;
        let seen = inner.index.snapshot().get(SEEN_KEY)?.map(|bytes| SeenObjects::decode(&bytes)).transpose()?;
        let mut rebuilding = Rebuilding {
            inner,
            batch: BTreeMap::new(),
            batch_bytes: 0,
            segments: BTreeMap::new(),
            gone: replay.gone.into_keys().collect(),
            seen: seen.unwrap_or_default(),
            highest: ObjectId(0),
        };
        for (object, incarnation) in replay.seen {
            rebuilding.seen.add(object, incarnation);
        }
        let mut rebuilt = Rebuilt::default();
        rebuilding.segments(&mut rebuilt)?;
        rebuilding.objects(&mut rebuilt)?;
        rebuilding.finish(&mut rebuilt)?;
        Ok(rebuilt)
    }

    /// Makes a replica complete and empty, which only the index can have known. `over`: replaces found bytes too, which
    /// must be of an older generation. Appended, not synced. Returns false if the replica already was complete and
    /// empty.
    ///
    /// # Errors
    /// Errors of the journal and the index.
    pub fn restore_empty(&self, replica: ReplicaId, incarnation: Incarnation, over: bool) -> Result<bool, StoreError> {
        let there = self.inner.record(replica)?;
        if there.as_ref().is_some_and(|there| there.len == 0 || !over) || self.inner.table.lock().contains_key(&replica)
        {
            return Ok(false);
        }
        let record = ReplicaRecord {
            ended: Ended::Complete,
            generation: there.as_ref().map_or(1, |there| there.generation.saturating_add(1)),
            incarnation: there.as_ref().map_or(incarnation, |there| there.incarnation),
            len: 0,
            adler32: Adler32::EMPTY,
            crc32c: Crc32c::EMPTY,
            place: ByteLocation::Empty,
            page_crcs: Vec::new(),
            path_hint: Vec::new(),
        };
        self.inner.replace_record(replica, there.as_ref(), Some(&record))?;
        Ok(true)
    }
}

impl Rebuilding {
    fn segments(&mut self, rebuilt: &mut Rebuilt) -> Result<(), StoreError> {
        let inner = Arc::clone(&self.inner);
        for entry in inner.disk.list(inner.segments.root())? {
            let Ok(number) = u64::from_str_radix(&entry.name, 16) else { continue };
            let path = inner.segments.path(number);
            if let Err(e) = self.segment(number, &path, rebuilt) {
                if !matches!(e, StoreError::Disk(_)) {
                    return Err(e);
                }
                rebuilt.unreadable.push(format!("{path}: {e}"));
            }
        }
        Ok(())
    }

    fn segment(&mut self, number: u64, path: &str, rebuilt: &mut Rebuilt) -> Result<(), StoreError> {
        let file = self.inner.segments.open(number)?;
        let len = file.len()?;
        // Even unreadable bytes must not be overwritten.
        self.segments.entry(number).or_default().end = len;
        let mut header = vec![0; 64];
        if let Err(e) =
            file.read_at(&mut header, 0).map_err(StoreError::from).and_then(|got| check_file_header(&header[..got]))
        {
            rebuilt.unreadable.push(format!("the header of {path}: {e}"));
        }
        let (mut at, mut gap) = (FILE_HEADER, None);
        // After a gap a record is recognised only by its form: it may be part of a user's file.
        let mut doubtful = false;
        while at < len {
            let found =
                read_record(&*file, at).ok().filter(|found| at + u64::from(found.header) + found.record.len <= len);
            let taken = match found {
                None => None,
                Some(found) => {
                    let next = at + u64::from(found.header) + found.record.len;
                    let place = ByteLocation::Segment { segment: number, offset: at, header: found.header };
                    let record = ReplicaRecord { place, ..found.record };
                    let right = !doubtful || self.checks(found.replica, &record);
                    if right {
                        self.take(found.replica, record, doubtful)?;
                    }
                    right.then_some(next)
                }
            };
            if let Some(next) = taken {
                if let Some(start) = gap.take() {
                    rebuilt.unreadable.push(format!("{path} from byte {start} to byte {at}"));
                }
                at = next;
            } else {
                gap.get_or_insert(at);
                doubtful = true;
                at = find_record(&*file, at + 1, len).unwrap_or(len);
            }
        }
        if let Some(start) = gap {
            rebuilt.unreadable.push(format!("{path} from byte {start} to its end"));
        }
        Ok(())
    }

    fn objects(&mut self, rebuilt: &mut Rebuilt) -> Result<(), StoreError> {
        let inner = Arc::clone(&self.inner);
        inner.visit_objects(&mut |path, replica, side| {
            if side {
                return Ok(());
            }
            let header = match inner.objects.open(replica, Access::Read) {
                Ok(files) => files.map(|files| files.newest_header()).transpose(),
                Err(e) => Err(e),
            };
            match header {
                Ok(Some(Some(header))) if header.replica == replica => {
                    if let Some(record) = header.record() {
                        self.take(replica, record, false)?;
                    }
                }
                Ok(_) => rebuilt.unreadable.push(format!("{path}: no sidecar that speaks of it")),
                Err(e) => rebuilt.unreadable.push(format!("{path}: {e}")),
            }
            Ok(())
        })
    }

    /// Takes a record for the index unless it has a newer one. A `doubtful` record never replaces another.
    fn take(&mut self, replica: ReplicaId, record: ReplicaRecord, doubtful: bool) -> Result<(), StoreError> {
        if self.gone.contains(&replica) {
            return Ok(());
        }
        let there = match self.batch.get(&replica) {
            Some(there) => Some(there.clone()),
            None => self.inner.record(replica)?,
        };
        if let Some(there) = &there
            && (doubtful
                || there.generation > record.generation
                || there.generation == record.generation
                    && self.checks(replica, there)
                    && !self.checks(replica, &record))
        {
            return Ok(());
        }
        self.highest = self.highest.max(replica.object);
        self.seen.incarnation = self.seen.incarnation.max(record.incarnation);
        self.batch_bytes += 128 + 4 * record.page_crcs.len();
        self.batch.insert(replica, ReplicaRecord { path_hint: Vec::new(), ..record });
        if self.batch_bytes >= BATCH_BYTES {
            self.put()?;
        }
        Ok(())
    }

    /// Puts the waiting records into the index.
    fn put(&mut self) -> Result<(), StoreError> {
        self.batch_bytes = 0;
        let mut batch = Batch::new();
        for (replica, record) in std::mem::take(&mut self.batch) {
            batch.put(&replica_key(replica), &record.encode());
        }
        if !batch.is_empty() {
            self.inner.index.append(&batch, false)?;
        }
        Ok(())
    }

    /// Whether the bytes of a small replica match. Of two copies of one generation, the later one may have been on its
    /// way into a segment when the power failed: its header can be there without its bytes.
    fn checks(&self, replica: ReplicaId, record: &ReplicaRecord) -> bool {
        match record.place {
            ByteLocation::Segment { .. } | ByteLocation::Journal { .. } => {
                self.inner.small_bytes(record).is_ok_and(|bytes| check(replica, record, &bytes).is_ok())
            }
            ByteLocation::Empty | ByteLocation::Object => true,
        }
    }

    fn finish(mut self, rebuilt: &mut Rebuilt) -> Result<(), StoreError> {
        self.put()?;
        // The live bytes of each segment, by the present index, which includes the journal's records.
        let mut trouble = Ok(());
        self.inner.index.snapshot().scan(b"p", REPLICAS_END, ScanOrder::Ascending, &mut |_, value| {
            match ReplicaRecord::decode(value) {
                Ok(record) => {
                    if let ByteLocation::Segment { segment, .. } = record.place {
                        self.segments.entry(segment).or_default().live += record.bytes_in_segment();
                    }
                    match record.place {
                        ByteLocation::Object => rebuilt.large += 1,
                        _ => rebuilt.small += 1,
                    }
                    ControlFlow::Continue(())
                }
                Err(e) => {
                    trouble = Err(e);
                    ControlFlow::Break(())
                }
            }
        })?;
        trouble?;
        // Any number below the highest may have been used.
        self.seen.objects.insert(0, self.highest.0.saturating_add(1));
        let mut batch = Batch::new();
        batch.put(SEEN_KEY, &self.seen.encode());
        for (number, stat) in &self.segments {
            batch.put(&segment_key(*number), &stat.encode());
        }
        let seq = self.inner.index.append(&batch, false)?;
        Ok(self.inner.journal.sync_to(seq)?)
    }
}
