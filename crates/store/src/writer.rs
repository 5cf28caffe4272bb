//! Writing a new replica, or updating one.

use std::sync::Arc;

use types::{PrincipalId, ReplicaId};

use crate::config::{PlantedBug, REPLICA_LEN_MAX};
use crate::journal_record::{BYTES_HEADER, JournalRecord, Subject};
use crate::object::ObjectFiles;
use crate::plan::{Part, plan};
use crate::replica::{Locked, OpenReplica};
use crate::store::Inner;
use crate::sums::{PAGE, PageSum, pages_of};
use crate::{CheckpointSize, Completed, StoreError};

/// Longest write in one step.
const STEP: usize = 8 << 20;
/// Memory limit in bytes of a file that was announced as small.
const SMALL: u64 = 64 << 10;
/// Memory limit of a large file, or one of unknown size: 64 pages of 4 KiB and the positions of 4,096 ranges.
const LARGE: u64 = 6 * SMALL;

/// Upper bound of the memory in bytes for an open write; `expected_len` is the announced length.
#[must_use]
pub fn writer_memory(expected_len: Option<u64>) -> u64 {
    if expected_len.is_some_and(|len| len <= SMALL) { SMALL } else { LARGE }
}

/// A replica open for writing. Several threads may write to it at once.
pub struct Writer {
    inner: Arc<Inner>,
    replica: Arc<OpenReplica>,
    generation: u64,
}

#[allow(clippy::len_without_is_empty)] // a file's length, not a collection's
impl Writer {
    pub(crate) fn new(inner: Arc<Inner>, replica: Arc<OpenReplica>, generation: u64) -> Self {
        Self { inner, replica, generation }
    }

    /// The replica's id.
    #[must_use]
    pub fn replica(&self) -> ReplicaId {
        self.replica.id
    }

    /// Sets whose share of the memory for recently written pages its pages count towards.
    pub fn set_user(&self, user: PrincipalId) {
        let mut state = self.replica.lock();
        state.user = user;
        if let Some(files) = &state.files {
            files.set_user(user);
        }
    }

    fn subject(&self) -> Subject {
        Subject { replica: self.replica.id, generation: self.generation }
    }

    /// Writes all of `data`. On return the kernel has the bytes and the record of their range. Data at an address and
    /// offset that are multiples of 4096 goes to the disk without another copy.
    ///
    /// # Errors
    /// After an error (no space, a disk error) earlier writes stand; of this one, nothing or a part is recorded.
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<(), StoreError> {
        self.write_known(offset, data, None, AckPoint::Kernel)
    }

    /// [`Writer::write`] for a caller that acknowledges nothing before the replica is complete or synced. The journal's
    /// records may still be in memory on return, and be lost with the process. Many small files thus share a write to
    /// the journal, just as they share a sync.
    ///
    /// # Errors
    /// Those of [`Writer::write`].
    pub fn write_ahead(&self, offset: u64, data: &[u8]) -> Result<(), StoreError> {
        self.write_known(offset, data, None, AckPoint::Logged)
    }

    /// [`Writer::write`] for a caller that already has the checksums. `sums` has those of every page that `data`
    /// touches, in order, over the part that `data` covers. Completely covered pages are not summed again.
    ///
    /// # Errors
    /// Those of [`Writer::write`].
    pub fn write_summed(&self, offset: u64, data: &[u8], sums: &[PageSum]) -> Result<(), StoreError> {
        let pages = index(pages_of(offset.saturating_add(data.len() as u64)) - offset / PAGE);
        debug_assert!(data.is_empty() || sums.len() == pages, "{} sums of {pages} pages", sums.len());
        self.write_known(offset, data, Some(sums).filter(|sums| sums.len() == pages), AckPoint::Kernel)
    }

    fn write_known(&self, offset: u64, data: &[u8], sums: Option<&[PageSum]>, ack: AckPoint) -> Result<(), StoreError> {
        let len = data.len() as u64;
        if offset.checked_add(len).is_none_or(|end| end > REPLICA_LEN_MAX) {
            return Err(StoreError::TooLarge { offset, len, max: REPLICA_LEN_MAX });
        }
        // In steps, to bound the memory of one write.
        let mut at = offset;
        let mut rest = data;
        while !rest.is_empty() {
            let (step, after) = rest.split_at(rest.len().min(STEP - index(at % PAGE)));
            let first = index(at / PAGE - offset / PAGE);
            self.write_step(at, step, sums.map(|sums| &sums[first..]), ack)?;
            at += step.len() as u64;
            rest = after;
        }
        Ok(())
    }

    fn write_step(&self, offset: u64, data: &[u8], sums: Option<&[PageSum]>, ack: AckPoint) -> Result<(), StoreError> {
        let (inner, end) = (&*self.inner, offset + data.len() as u64);
        inner.floor.check(&*inner.disk, data.len() as u64)?;
        // Other writes to the same pages wait, so that the journal has them in the order in which they take effect.
        let pages = (offset - offset % PAGE, pages_of(end) * PAGE);
        let mut state = self.replica.lock();
        while state.paused || state.in_flight.iter().any(|other| other.0 < pages.1 && pages.0 < other.1) {
            state.wait();
        }
        let (parts, bases, files) = self.prepare(&mut state, offset, end)?;
        let mut done = Vec::with_capacity(parts.len());
        let result = state.while_writing(pages, || {
            parts.iter().try_for_each(|part| {
                let bytes = |start: u64, end: u64| &data[index(start - offset)..index(end - offset)];
                let done_part = match *part {
                    Part::Fresh { start, end } => {
                        let pages = index(start / PAGE - offset / PAGE)..index(end / PAGE - offset / PAGE);
                        self.write_fresh(files.as_deref(), start, bytes(start, end), sums.map(|sums| &sums[pages]))?
                    }
                    Part::Redo { start, end } => self.write_redo(&bases, start, bytes(start, end))?,
                };
                done.extend(done_part);
                Ok(())
            })
        });
        let write_state = self.replica.write_state(&mut state, self.generation)?;
        let mut last = write_state.last;
        for step in done {
            last = last.max(step.seq);
            let laid = match step.what {
                StepKind::InFile { first_page, count } => {
                    write_state.note_in_file(first_page, count);
                    Ok(())
                }
                StepKind::Laid { wrote, start, image } => {
                    let written = &data[index(start.saturating_sub(offset))..index(wrote.1 - offset)];
                    write_state.lay(wrote, start, image.as_deref().unwrap_or(written))
                }
            };
            write_state.dirty = true;
            write_state.whole = step.whole;
            if let Err(e) = laid {
                // Memory differs from the journal: none of it may be acknowledged.
                write_state.failed.get_or_insert(e.to_string());
                return Err(e);
            }
        }
        if result.is_err() {
            // Unacknowledged pages may have reached the file.
            write_state.leftovers = true;
        }
        write_state.last = last;
        let renew = write_state.redo_bytes > inner.config.redo_bytes_max;
        // At once, not with the next write, which may come late: an idle writer holds little.
        let result = result.and_then(|()| inner.make_room(self.replica.id, &mut state));
        drop(state);
        result
            .map_err(|e: StoreError| if e.is_no_space() { inner.floor.no_space_after_all(&*inner.disk) } else { e })?;
        if ack == AckPoint::Kernel {
            inner.journal.write_to(last)?;
        }
        if renew { inner.snapshot(&self.replica) } else { Ok(()) }
    }

    /// Decides how to write, makes room, and reads the pages that are overwritten in part.
    #[allow(clippy::type_complexity)] // used once
    fn prepare(
        &self,
        state: &mut Locked<'_>,
        offset: u64,
        end: u64,
    ) -> Result<(Vec<Part>, Vec<(u64, Vec<u8>)>, Option<Arc<ObjectFiles>>), StoreError> {
        let inner = &*self.inner;
        let replica = self.replica.id;
        let write_state = self.replica.write_state(state, self.generation)?;
        if let Some(reason) = &write_state.failed {
            return Err(StoreError::Failed { replica, reason: reason.clone() });
        }
        let limit = inner.config.ranges_max;
        if write_state.written.len_with(offset, end) > limit
            || write_state.in_file.len() > limit + inner.config.held_pages_max
        {
            return Err(StoreError::TooManyRanges { replica, limit });
        }
        write_state.large |= end > inner.config.small_max;
        inner.make_room(replica, state)?;
        inner.save_pages(replica, state, offset, end)?;
        let write_state = self.replica.write_state(state, self.generation)?;
        let parts = plan(offset, end, write_state.large, &|page| write_state.taken(page));
        let fresh = parts.iter().any(|part| matches!(part, Part::Fresh { .. }));
        // At most the first and the last page are touched in part.
        let mut bases: Vec<u64> = [offset, end]
            .into_iter()
            .filter(|border| !border.is_multiple_of(PAGE))
            .map(|border| border / PAGE)
            .filter(|page| write_state.in_file.contains(*page, page + 1))
            .collect();
        bases.dedup();
        let files = if fresh || !bases.is_empty() { Some(inner.files(replica, state)?) } else { None };
        let bases: Result<Vec<_>, StoreError> = match &files {
            Some(files) => bases.into_iter().map(|page| Ok((page, files.page(replica, page)?))).collect(),
            None => Ok(Vec::new()),
        };
        Ok((parts, bases?, files))
    }

    /// Whole new pages: to the file, their checksums to the sidecar, then the record.
    fn write_fresh(
        &self,
        files: Option<&ObjectFiles>,
        start: u64,
        data: &[u8],
        sums: Option<&[PageSum]>,
    ) -> Result<Vec<LoggedStep>, StoreError> {
        let inner = &*self.inner;
        let files = files.ok_or_else(|| StoreError::damaged("a replica without its file"))?;
        let direct = inner.objects.direct(files)?;
        let first_page = start / PAGE;
        let sums = crate::stream::write_pages(&*direct, &inner.buffers, start, data, sums)?;
        files.write_sums(first_page, &sums)?;
        files.keep_recent(start, data);
        let crcs = sums.iter().map(|sum| sum.crc32c.0).collect();
        let count = sums.len() as u64;
        let seq = if inner.config.has(PlantedBug::ForgetRange) {
            inner.journal.appended()
        } else {
            inner.log(self.subject(), &JournalRecord::InFile { first_page, crcs })?.seq
        };
        Ok(vec![LoggedStep { seq, whole: None, what: StepKind::InFile { first_page, count } }])
    }

    /// Anything else: the bytes go to the journal. If the file has older contents of a page, the whole resulting page
    /// goes there.
    fn write_redo(&self, bases: &[(u64, Vec<u8>)], start: u64, data: &[u8]) -> Result<Vec<LoggedStep>, StoreError> {
        let inner = &*self.inner;
        let mut done = Vec::new();
        let mut rest = data;
        let mut at = start;
        while !rest.is_empty() {
            let page = at / PAGE;
            let base = bases.iter().find(|(base, _)| *base == page);
            // Up to the next page that needs its base.
            let next = bases.iter().map(|(base, _)| *base).filter(|base| *base > page).min();
            let stop = match (base, next) {
                (Some(_), _) => (page + 1) * PAGE,
                (None, Some(next)) => next * PAGE,
                (None, None) => u64::MAX,
            };
            let (part, after) = rest.split_at(rest.len().min(index(stop - at)));
            let wrote = (at, at + part.len() as u64);
            let image = base.map(|(_, base)| {
                let mut image = base.clone();
                let within = index(at % PAGE);
                image[within..within + part.len()].copy_from_slice(part);
                image
            });
            let offset = if image.is_some() { page * PAGE } else { at };
            let bytes = image.as_deref().unwrap_or(part);
            let appended = inner.log(self.subject(), &JournalRecord::Bytes { wrote, offset, bytes })?;
            // If these are all bytes of the replica, completing it need not log them again.
            let whole = (offset == 0 && image.is_none()).then_some((appended.location, BYTES_HEADER));
            done.push(LoggedStep { seq: appended.seq, whole, what: StepKind::Laid { wrote, start: offset, image } });
            at = wrote.1;
            rest = after;
        }
        Ok(done)
    }

    /// Reads written bytes, durable or not; gaps read as zeros. Returns the number of bytes; fewer than requested only
    /// at the end.
    ///
    /// # Errors
    /// [`StoreError::Checksum`].
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize, StoreError> {
        let mut state = self.replica.lock();
        let len = self.replica.write_state(&mut state, self.generation)?.len;
        let wanted = index(len.saturating_sub(offset)).min(buf.len());
        let buf = &mut buf[..wanted];
        self.inner.read_write_state(self.replica.id, &mut state, offset, buf, false)?;
        Ok(wanted)
    }

    /// Truncates, or extends with zeros, to `len` bytes. A truncation is durable on return.
    ///
    /// # Errors
    /// Errors of the journal and the disk.
    pub fn truncate(&self, len: u64) -> Result<(), StoreError> {
        if len > REPLICA_LEN_MAX {
            return Err(StoreError::TooLarge { offset: 0, len, max: REPLICA_LEN_MAX });
        }
        self.inner.truncate(&self.replica, self.generation, len)
    }

    /// The replica is about to be started over: its readers show nothing more.
    pub(crate) fn forget_readers(&self) {
        self.replica.start_over();
    }

    /// Makes all acknowledged changes durable. Returns the durable prefix in bytes.
    ///
    /// # Errors
    /// [`StoreError::Failed`] from then on if the disk could not sync.
    pub fn sync(&self) -> Result<u64, StoreError> {
        self.inner.sync(&self.replica, self.generation)
    }

    /// The end of the highest written byte, or the length set by a truncation.
    #[must_use]
    pub fn len(&self) -> u64 {
        let state = self.replica.lock();
        match (&state.write_state, &state.record) {
            (Some(write_state), _) => write_state.len,
            (None, Some(record)) => record.len,
            (None, None) => 0,
        }
    }

    /// Bytes without a gap from the beginning that survive a power failure.
    #[must_use]
    pub fn durable_prefix(&self) -> u64 {
        let state = self.replica.lock();
        match (&state.write_state, &state.record) {
            (Some(write_state), _) => write_state.durable_prefix,
            (None, Some(record)) => record.len,
            (None, None) => 0,
        }
    }

    /// Whether there are gaps below [`Writer::len`].
    #[must_use]
    pub fn gaps(&self) -> bool {
        self.replica
            .lock()
            .write_state
            .as_ref()
            .is_some_and(|write_state| write_state.written.prefix() < write_state.len)
    }

    /// Begins a checkpoint: all later changes can be undone as one. A stop of the process or of the machine undoes
    /// them, and so does the end of the open write.
    ///
    /// # Errors
    /// [`StoreError::CheckpointOpen`].
    pub fn begin_checkpoint(&self) -> Result<(), StoreError> {
        self.inner.begin_checkpoint(&self.replica, self.generation)
    }

    /// Keeps the changes of the checkpoint; they are durable on return. After an error other than
    /// [`StoreError::NoCheckpoint`] it is unknown whether they are kept.
    ///
    /// # Errors
    /// [`StoreError::NoCheckpoint`]; [`StoreError::Failed`] from then on if the disk could not sync.
    pub fn commit_checkpoint(&self) -> Result<(), StoreError> {
        self.inner.commit_checkpoint(&self.replica, self.generation)
    }

    /// Undoes the changes of an open checkpoint. Returns whether one was open.
    ///
    /// # Errors
    /// The journal cannot be read or written; the checkpoint stays open.
    pub fn roll_back(&self) -> Result<bool, StoreError> {
        self.inner.roll_back(&self.replica, self.generation)
    }

    /// The size of the open checkpoint; `None` if none is open.
    ///
    /// # Errors
    /// [`StoreError::Closed`].
    pub fn checkpoint(&self) -> Result<Option<CheckpointSize>, StoreError> {
        self.inner.checkpoint_size(&self.replica, self.generation)
    }

    /// Makes the data durable and appends the record. The replica is complete when the journal is synced up to `seq`.
    /// Gaps read as zeros from then on and count as zeros in the checksums.
    ///
    /// # Errors
    /// Without a record the replica stays open for writing, and the call can be repeated.
    pub fn complete(&self) -> Result<Completed, StoreError> {
        self.inner.complete(&self.replica, self.generation)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.inner.release(&self.replica);
    }
}

/// How far a write's record must be on return.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AckPoint {
    /// Appended, in memory.
    Logged,
    /// In the kernel.
    Kernel,
}

/// A logged step of a write that memory does not have yet.
struct LoggedStep {
    seq: journal::Seq,
    /// Where the bytes lie, if they begin the replica.
    whole: Option<(journal::Location, u32)>,
    what: StepKind,
}

enum StepKind {
    InFile { first_page: u64, count: u64 },
    Laid { wrote: (u64, u64), start: u64, image: Option<Vec<u8>> },
}

/// A distance inside a buffer. Buffers are shorter than the address space.
pub(crate) fn index(distance: u64) -> usize {
    usize::try_from(distance).unwrap_or(usize::MAX)
}
