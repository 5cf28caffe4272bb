//! Building the index anew from segments and sidecars, if it and its checkpoints are gone.
//!
//! Finds every complete or interrupted replica that a segment or a sidecar speaks of, beside what the log still says of the index. A
//! replica whose removal the log still has stays away; one that was removed earlier, and whose bytes were not cleaned up yet, comes
//! back: the namespace knows whether it wants it. Pieces whose bytes are only in the log come back as replicas in the making when the
//! store is opened. Pieces without a byte have no place but the index: [`Store::restore_empty`] is for those that the namespace names.

use std::collections::{BTreeMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use disk::{Access, Disk};
use journal::Journal;
use kv::{Batch, ScanOrder};
use types::{Adler32, Crc32c, Incarnation, ObjectId, ReplicaId};

use crate::record::{Ended, Place, REPLICAS_END, ReplicaRecord, SEEN_KEY, Seen, SegmentStat, replica_key, segment_key};
use crate::segment::{FILE_HEADER, check_file_header, find_record, read_record};
use crate::small::check;
use crate::store::{Inner, RecordIndex, Store};
use crate::{StoreConfig, StoreError};

/// Bytes of records that are put into the index in one batch.
const BATCH_BYTES: usize = 1 << 20;

/// What a rebuilt index holds.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Rebuilt {
    /// Small replicas in it: found in segments, or known by the log.
    pub small: u64,
    /// Large replicas in it, with files of their own.
    pub large: u64,
    /// Files, and parts of files, that cannot be read, with the reason.
    pub unreadable: Vec<String>,
}

struct Rebuilding {
    inner: Arc<Inner>,
    /// Records on their way into the index.
    batch: BTreeMap<ReplicaId, ReplicaRecord>,
    batch_bytes: usize,
    segments: BTreeMap<u64, SegmentStat>,
    /// The log still has their removal.
    gone: HashSet<ReplicaId>,
    seen: Seen,
    highest: ObjectId,
}

impl Store {
    /// Whether files of replicas are there, and the index does not know that there is a store: it was lost.
    ///
    /// # Errors
    /// When the disk or the index refuses.
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

    /// Fills an index that was lost, and holds at most what the log still says. The store must not be open.
    ///
    /// # Errors
    /// When the disk, the log or the index refuses. What was put into the index by then is right, but not all.
    pub fn rebuild_index(
        disk: Arc<dyn Disk>,
        dir: &str,
        journal: Arc<Journal>,
        index: Arc<dyn RecordIndex>,
    ) -> Result<Rebuilt, StoreError> {
        let inner = crate::recover::inner(disk, dir, journal, index, StoreConfig::default());
        let replay = inner.replay(None)?;
        let seen = inner.index.snapshot().get(SEEN_KEY)?.map(|bytes| Seen::decode(&bytes)).transpose()?;
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

    /// Makes a replica a complete one without bytes, of which only the index can have known. `over`: also where a content of it was found,
    /// which must be an older one. Appended, not synced. Says whether it was not one already.
    ///
    /// # Errors
    /// When the log or the index refuses.
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
            place: Place::Empty,
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
        // Even what cannot be read is not written over.
        self.segments.entry(number).or_default().end = len;
        let mut header = vec![0; 64];
        if let Err(e) =
            file.read_at(&mut header, 0).map_err(StoreError::from).and_then(|got| check_file_header(&header[..got]))
        {
            rebuilt.unreadable.push(format!("the header of {path}: {e}"));
        }
        let (mut at, mut gap) = (FILE_HEADER, None);
        // Behind a gap a record is found by its looks: it may be what somebody has stored.
        let mut doubtful = false;
        while at < len {
            let found =
                read_record(&*file, at).ok().filter(|found| at + u64::from(found.header) + found.record.len <= len);
            let taken = match found {
                None => None,
                Some(found) => {
                    let next = at + u64::from(found.header) + found.record.len;
                    let place = Place::Segment { segment: number, offset: at, header: found.header };
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

    /// Takes a record for the index, unless there is a newer one. `doubtful`: it never stands in for another.
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

    /// Puts the records on their way into the index.
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

    /// Whether the bytes of a small replica match. Of two copies of one generation, the later was on its way into a segment when
    /// the power failed, perhaps: its header can be there and its bytes not.
    fn checks(&self, replica: ReplicaId, record: &ReplicaRecord) -> bool {
        match record.place {
            Place::Segment { .. } | Place::Log { .. } => {
                self.inner.small_bytes(record).is_ok_and(|bytes| check(replica, record, &bytes).is_ok())
            }
            Place::Empty | Place::Object => true,
        }
    }

    fn finish(mut self, rebuilt: &mut Rebuilt) -> Result<(), StoreError> {
        self.put()?;
        // What lives in each segment, by the index as it is now: also by what the log said of it.
        let mut trouble = Ok(());
        self.inner.index.snapshot().scan(b"p", REPLICAS_END, ScanOrder::Ascending, &mut |_, value| {
            match ReplicaRecord::decode(value) {
                Ok(record) => {
                    if let Place::Segment { segment, .. } = record.place {
                        self.segments.entry(segment).or_default().live += record.bytes_in_segment();
                    }
                    match record.place {
                        Place::Object => rebuilt.large += 1,
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
        // Whatever was below the highest number may have been used.
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
