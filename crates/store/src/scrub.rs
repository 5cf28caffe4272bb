//! Scrub: reads a replica past the page cache during normal operation, and compares it with its checksums.
//!
//! No lock is held while the disk is read. A mismatch counts only if no write began or ended meanwhile, the replica was
//! not moved or removed, and a second read does not match either. Pages in the page cache stay there.

use std::sync::Arc;

use disk::{Access, AlignedBuf, DiskFile, OpenOptions};
use types::{PAGE_SIZE, ReplicaId};

use crate::record::{ByteLocation, Ended, ReplicaRecord, SMALL_LIMIT};
use crate::replica::OpenReplica;
use crate::segment::parse_record;
use crate::small::check;
use crate::store::{Inner, Store};
use crate::sums::{PAGE, PageSum, RunningSum, pages_of};
use crate::writer::index;
use crate::{StoreError, verify};

/// Bytes of a large replica read in one step.
const STEP: usize = 1 << 20;
/// Room for the largest small replica with its header, and for the partial pages before and after it.
const BUFFER: usize = STEP + (128 << 10);
const _: () = assert!(SMALL_LIMIT <= STEP as u64);
/// How often to repeat the scrub of a replica that changed meanwhile.
const TRIES: usize = 5;

/// The result of scrubbing one replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scrubbed {
    /// All pages and the whole replica match. The number of bytes.
    Whole(u64),
    /// It has an open write, or kept changing, moving or being removed: try another time.
    Busy,
    /// The caller stopped the scrub.
    Stopped,
}

/// Memory and the open segment, kept between replicas.
pub struct Scrubber {
    buffer: AlignedBuf,
    segment: Option<(u64, Arc<dyn DiskFile>)>,
}

impl Default for Scrubber {
    fn default() -> Self {
        Self { buffer: AlignedBuf::new(BUFFER), segment: None }
    }
}

/// How far a large replica has been compared. Valid as long as its version does not change.
struct Progress {
    version: u64,
    sum: RunningSum,
}

impl Store {
    /// Reads a finished replica from the disk and compares every page, and the whole. Calls `pace` with the bytes of
    /// each step, after the step and without a lock. `pace` may wait, and stops the scrub by returning false.
    ///
    /// # Errors
    /// An error about this replica ([`StoreError::is_about_replica`]): the disk does not have it as it was written. With
    /// any other error the replica could not be examined.
    pub fn scrub(
        &self,
        replica: ReplicaId,
        scrubber: &mut Scrubber,
        pace: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Scrubbed, StoreError> {
        let Some(open) = self.inner.find(replica)? else { return Ok(Scrubbed::Busy) };
        let result = self.inner.scrub(&open, scrubber, pace);
        self.inner.release(&open);
        result
    }
}

impl Inner {
    fn scrub(
        &self,
        open: &Arc<OpenReplica>,
        scrubber: &mut Scrubber,
        pace: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Scrubbed, StoreError> {
        let mut progress = Progress { version: 0, sum: RunningSum::EMPTY };
        let mut seen: Option<(u64, ReplicaRecord)> = None;
        for _ in 0..TRIES {
            let Some((version, record)) = self.at_rest(open)? else { return Ok(Scrubbed::Busy) };
            if progress.version != version {
                progress = Progress { version, sum: RunningSum::EMPTY };
            }
            let error = match self.scrub_record(open.id, &record, scrubber, &mut progress, pace) {
                Ok(scrubbed) => return Ok(scrubbed),
                Err(error) => error,
            };
            scrubber.segment = None;
            if !error.is_about_replica() {
                return Err(error);
            }
            let now = Some((version, record));
            if self.at_rest(open)? != now {
                continue;
            }
            if seen == now {
                return Err(error);
            }
            seen = now;
        }
        Ok(Scrubbed::Busy)
    }

    /// The record of a replica without an open write, and its version.
    fn at_rest(&self, open: &OpenReplica) -> Result<Option<(u64, ReplicaRecord)>, StoreError> {
        let state = open.lock();
        if state.removed || state.write_state.is_some() {
            return Ok(None);
        }
        // The index knows whether it was settled or moved meanwhile.
        Ok(self.record(open.id)?.map(|record| (state.version, record)))
    }

    fn scrub_record(
        &self,
        replica: ReplicaId,
        record: &ReplicaRecord,
        scrubber: &mut Scrubber,
        progress: &mut Progress,
        pace: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Scrubbed, StoreError> {
        match record.place {
            ByteLocation::Empty => {}
            // It was written recently, and will be settled soon.
            ByteLocation::Journal { .. } => check(replica, record, &self.small_bytes(record)?)?,
            ByteLocation::Segment { segment, offset, header } => {
                let read = self.scrub_segment(replica, record, (segment, offset, header), scrubber)?;
                if !pace(read) {
                    return Ok(Scrubbed::Stopped);
                }
            }
            ByteLocation::Object => return self.scrub_object(replica, record, scrubber, progress, pace),
        }
        Ok(Scrubbed::Whole(record.len))
    }

    /// Compares a small replica and the header before it. Returns the bytes read.
    fn scrub_segment(
        &self,
        replica: ReplicaId,
        record: &ReplicaRecord,
        (segment, offset, header): (u64, u64, u32),
        scrubber: &mut Scrubber,
    ) -> Result<u64, StoreError> {
        let file = match &scrubber.segment {
            Some((number, file)) if *number == segment => Arc::clone(file),
            _ => {
                let options = OpenOptions { access: Access::Read, direct: self.config.direct };
                let file = self.disk.open(&self.segments.path(segment), options)?;
                scrubber.segment = Some((segment, Arc::clone(&file)));
                file
            }
        };
        let start = offset / PAGE * PAGE;
        let before = index(offset - start);
        let end = before + header as usize + index(record.len);
        let bytes = scrubber.buffer.get_mut(..end.next_multiple_of(PAGE_SIZE));
        let bytes =
            bytes.ok_or_else(|| StoreError::damaged(format!("the length of replica {replica} in the index")))?;
        let got = file.read_at(bytes, start)?;
        if !file.is_direct() {
            file.drop_cache(start, bytes.len() as u64);
        }
        let found = bytes[..got]
            .get(before..end)
            .ok_or_else(|| StoreError::damaged(format!("segment {segment:016x} ends in replica {replica}")))?;
        let (head, content) = found.split_at(header as usize);
        // Without its header an export or a rebuild would not find it.
        let described = parse_record(head)?;
        if described.replica != replica || described.record.len != record.len {
            return Err(StoreError::damaged(format!(
                "the header of replica {replica} in segment {segment:016x} is another's"
            )));
        }
        check(replica, record, content)?;
        Ok(bytes.len() as u64)
    }

    fn scrub_object(
        &self,
        replica: ReplicaId,
        record: &ReplicaRecord,
        scrubber: &mut Scrubber,
        progress: &mut Progress,
        pace: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Scrubbed, StoreError> {
        let missing = || StoreError::damaged(format!("the file of replica {replica} is missing"));
        let files = self.objects.open(replica, Access::Read)?.ok_or_else(missing)?;
        // Without it an export or a rebuild could not identify the file.
        if !files.newest_header()?.is_some_and(|header| header.replica == replica && header.ended.is_some()) {
            return Err(StoreError::damaged(format!("the sidecar's header of replica {replica}")));
        }
        let data = match self.config.direct {
            true => self.disk.open(&self.objects.path(replica), OpenOptions { access: Access::Read, direct: true })?,
            false => Arc::clone(&files.data),
        };
        while progress.sum.len < record.len {
            progress.sum.push_zero_pages(files.empty_pages(progress.sum.len, record.len)?);
            let at = progress.sum.len;
            let len = index(record.len - at).min(STEP);
            let bytes = &mut scrubber.buffer[..len.next_multiple_of(PAGE_SIZE)];
            let got = data.read_at(bytes, at)?;
            bytes[got..].fill(0);
            if !data.is_direct() {
                data.drop_cache(at, bytes.len() as u64);
            }
            let sums = files.sums(at / PAGE, index(pages_of(len as u64)))?;
            let mut sum = progress.sum;
            for ((page, bytes), expected) in (at / PAGE..).zip(bytes[..len].chunks(PAGE_SIZE)).zip(sums) {
                let found = PageSum::of(bytes);
                if found.crc32c != expected.crc32c {
                    return Err(StoreError::Checksum { replica, page });
                }
                sum.push(found, bytes.len() as u64);
            }
            progress.sum = sum;
            if !pace(len as u64) {
                return Ok(Scrubbed::Stopped);
            }
        }
        let sum = &progress.sum;
        if record.ended == Ended::Complete && (record.adler32, record.crc32c) != (sum.adler32, sum.crc32c) {
            return Err(verify::whole_mismatch(replica));
        }
        Ok(Scrubbed::Whole(record.len))
    }
}
