//! Verified reading.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use disk::Access;
use types::{Crc32c, PAGE_SIZE, ReplicaId};

use crate::StoreError;
use crate::at_rest::AtRest;
use crate::config::PlantedBug;
use crate::first_read::FirstRead;
use crate::journal_record::Beginning;
use crate::known_sums::Table;
use crate::object::ObjectFiles;
use crate::pages::{FEW_PAGES, ReadRange, crcs, framed_len, known_crcs, read_framed, read_into};
use crate::record::ByteLocation;
use crate::replica::{OpenReplica, State};
use crate::store::Inner;
use crate::sums::{PAGE, pages_of};
use crate::write_state::WriteState;
use crate::writer::index;

/// Bytes of one read; keeps the vectors of pages short.
const STEP: usize = 2 << 20;

/// A replica open for reading. Several threads may use it.
pub struct Reader {
    pub(crate) inner: Arc<Inner>,
    pub(crate) replica: Arc<OpenReplica>,
    sees: ReadView,
    /// The number of its present start, and its length, when the reader was opened.
    opened: (u64, u64),
    /// Reads the disk even if recently written pages are in memory.
    pub(crate) from_disk: bool,
    /// Whether a read has waited for the disk since somebody asked.
    waits: Arc<AtomicBool>,
    /// See [`Reader::begin_first_read`].
    pub(crate) first_read: FirstRead,
}

/// Which bytes of a new, unfinished replica a reader sees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReadView {
    /// Its durable prefix: nothing that a power failure could undo.
    DurablePrefix,
    /// Everything acknowledged to its writer.
    AllWritten,
}

/// How to read a replica now.
pub(crate) enum View {
    /// A small one; all its bytes.
    Content(Arc<[u8]>),
    /// A large one without a writer.
    Still { files: Arc<ObjectFiles>, len: u64, version: u64 },
    /// One with an open write; `len` is the length that readers see.
    Moving { files: Option<Arc<ObjectFiles>>, len: u64 },
}

impl View {
    fn len(&self) -> u64 {
        match self {
            View::Content(content) => content.len() as u64,
            View::Still { len, .. } | View::Moving { len, .. } => *len,
        }
    }
}

#[allow(clippy::len_without_is_empty)] // a file's length, not a collection's
impl Reader {
    /// Reads a small replica's bytes at once, so that later changes do not affect this reader.
    pub(crate) fn open(inner: Arc<Inner>, replica: Arc<OpenReplica>, sees: ReadView) -> Result<Self, StoreError> {
        let (waits, first_read) = Default::default();
        let mut reader = Self { inner, replica, sees, opened: (0, 0), from_disk: false, waits, first_read };
        let opened = {
            let mut state = reader.replica.lock();
            if state.removed {
                return Err(StoreError::NotFound { replica: reader.replica.id });
            }
            let view = reader.view(&mut state)?;
            (reader.replica.starts(), view.len())
        };
        reader.opened = opened;
        Ok(reader)
    }

    /// The same, but it reads the disk alone.
    pub(crate) fn past_memory(mut self) -> Self {
        self.from_disk = true;
        self
    }

    /// Whether the replica was started over since this reader was opened ([`crate::Store::recreate`]). What it reads then, and what it has just read, may be parts of
    /// the new copy: the caller must ask after each read, and show nothing of it.
    #[must_use]
    pub fn is_started_over(&self) -> bool {
        self.replica.starts() != self.opened.0
    }

    /// Whether a read of a replica without a writer has waited for the disk since the last call, as far as the disk can
    /// tell.
    #[must_use]
    pub fn has_waited(&self) -> bool {
        self.waits.load(Ordering::Relaxed) && self.waits.swap(false, Ordering::Relaxed)
    }

    /// The replica's id.
    #[must_use]
    pub fn replica(&self) -> ReplicaId {
        self.replica.id
    }

    pub(crate) fn view(&self, state: &mut State) -> Result<View, StoreError> {
        if let Some(write_state) = &state.write_state {
            let len = self.len_of(write_state);
            let in_file = write_state.in_file.end() > 0;
            let files = if in_file { Some(self.inner.files(self.replica.id, state)?) } else { None };
            return Ok(View::Moving { files, len });
        }
        let Some(record) = &state.record else { return Err(StoreError::NotFound { replica: self.replica.id }) };
        if record.place != ByteLocation::Object {
            return Ok(View::Content(self.inner.content(self.replica.id, state)?));
        }
        let (len, version) = (record.len, state.version);
        let files = match &state.files {
            Some(files) => Arc::clone(files),
            None => {
                let missing = || StoreError::damaged(format!("the file of replica {} is missing", self.replica.id));
                let files = self.inner.objects.open(self.replica.id, Access::ReadWrite)?.ok_or_else(missing)?;
                files.set_user(state.user);
                let files = Arc::new(files);
                state.files = Some(Arc::clone(&files));
                files
            }
        };
        Ok(View::Still { files, len, version })
    }

    fn len_of(&self, write_state: &WriteState) -> u64 {
        match (write_state.birth.beginning, self.sees) {
            (Beginning::Update, _) | (_, ReadView::AllWritten) => write_state.len,
            (Beginning::New | Beginning::Resumed, ReadView::DurablePrefix) => write_state.durable_prefix,
        }
    }

    /// The present length in bytes. Of a new, unfinished replica: its durable prefix. Of one that was started over: the length when this reader was opened.
    #[must_use]
    pub fn len(&self) -> u64 {
        let state = self.replica.lock();
        if self.replica.starts() != self.opened.0 {
            return self.opened.1;
        }
        match (&state.write_state, &state.record) {
            (Some(write_state), _) => self.len_of(write_state),
            (None, Some(record)) => record.len,
            (None, None) => 0,
        }
    }

    /// Whether nothing is at `offset` yet, and somebody writes the replica, so that this reader may see more later. `None`:
    /// a thread has locked it, perhaps for as long as a disk takes.
    #[must_use]
    pub fn is_awaited_at(&self, offset: u64) -> Option<bool> {
        let state = self.replica.try_lock()?;
        Some(match &state.write_state {
            Some(write_state) => {
                let goes_on = !state.removed && write_state.failed.is_none() && self.replica.starts() == self.opened.0;
                goes_on && self.len_of(write_state) <= offset
            }
            None => false,
        })
    }

    /// Reads at `offset`, verified. Returns the number of bytes; fewer than requested only at the end.
    ///
    /// # Errors
    /// [`StoreError::Checksum`]; `buf` then has no byte of the page.
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize, StoreError> {
        let mut done = 0;
        while done < buf.len() {
            let at = offset.saturating_add(done as u64);
            let view = self.view(&mut self.replica.lock())?;
            let left = view.len().saturating_sub(at);
            // Steps end at page boundaries.
            let step = index(left).min(buf.len() - done).min(STEP - index(at % PAGE));
            if step == 0 {
                break;
            }
            self.fetch_for(&view, at, step);
            let step = self.one_source(&view, at, step);
            let got = self.read_step(view, at, &mut buf[done..done + step])?;
            done += got;
            if got < step {
                break;
            }
        }
        Ok(done)
    }

    /// Shortens a step to the part that is in memory. If its first page is not there, the whole step comes from the disk.
    fn one_source(&self, view: &View, at: u64, step: usize) -> usize {
        let (View::Still { files, .. } | View::Moving { files: Some(files), .. }) = view else { return step };
        match files.recent.as_ref().filter(|_| !self.from_disk).map(|recent| recent.run(at, step)) {
            None | Some(0) => step,
            Some(run) => run,
        }
    }

    /// Reads the bytes that `view` promises. Returns fewer only if the replica was truncated meanwhile.
    fn read_step(&self, view: View, at: u64, buf: &mut [u8]) -> Result<usize, StoreError> {
        match view {
            View::Content(content) => {
                buf.copy_from_slice(&content[index(at)..][..buf.len()]);
                Ok(buf.len())
            }
            View::Still { files, len, version } => {
                let stretch = self.stretch(at, buf.len(), len);
                let sums = known_crcs(&files, stretch, table_for(&files, stretch, version).as_deref())?;
                match read_into(&files, stretch, &sums, buf) {
                    Err(StoreError::Checksum { .. }) => {
                        let got = self.read_locked(at, buf)?;
                        files.known.forget();
                        Ok(got)
                    }
                    other => other.map(|()| buf.len()),
                }
            }
            View::Moving { files, .. } => {
                let all_in_file = {
                    let state = self.replica.lock();
                    let last = pages_of(at + buf.len() as u64);
                    state.write_state.as_ref().is_some_and(|write_state| write_state.in_file.contains(at / PAGE, last))
                };
                let Some(files) = files.filter(|_| all_in_file) else { return self.read_locked(at, buf) };
                // What is being written is not read ahead.
                let stretch = ReadRange { waits: None, ..self.stretch(at, buf.len(), u64::MAX) };
                let sums = crcs(&files, stretch)?;
                match read_into(&files, stretch, &sums, buf) {
                    Err(StoreError::Checksum { .. }) => self.read_locked(at, buf),
                    other => other.map(|()| buf.len()),
                }
            }
        }
    }

    /// Reads again while nothing can change: a mismatch may come from a concurrent overwrite.
    fn read_locked(&self, at: u64, buf: &mut [u8]) -> Result<usize, StoreError> {
        let mut state = self.replica.lock();
        let view = self.view(&mut state)?;
        let left = index(view.len().saturating_sub(at)).min(buf.len());
        let buf = &mut buf[..left];
        match view {
            View::Moving { .. } => self.inner.read_write_state(self.replica.id, &mut state, at, buf, self.from_disk)?,
            View::Content(content) if left > 0 => buf.copy_from_slice(&content[index(at)..][..left]),
            View::Still { files, len, .. } if left > 0 => {
                let stretch = self.stretch(at, left, len);
                let sums = crcs(&files, stretch)?;
                read_into(&files, stretch, &sums, buf)?;
            }
            View::Content(_) | View::Still { .. } => {}
        }
        Ok(left)
    }

    /// The number of whole zero pages from `offset` on that need no read, because they are empty and must be.
    ///
    /// # Errors
    /// Those of [`Reader::read`].
    pub(crate) fn empty_pages(&self, offset: u64) -> Result<u64, StoreError> {
        match self.view(&mut self.replica.lock())? {
            View::Still { files, len, .. } => files.empty_pages(offset, len),
            _ => Ok(0),
        }
    }

    /// Prepares many short reads of a large replica without a writer; `None` for others.
    ///
    /// # Errors
    /// The replica cannot be opened.
    pub fn at_rest(&self) -> Result<Option<AtRest>, StoreError> {
        let View::Still { files, len, version } = self.view(&mut self.replica.lock())? else { return Ok(None) };
        let table = files.known.table(version, len);
        let check = !self.inner.config.has(PlantedBug::SkipCrc);
        let waits = Arc::clone(&self.waits);
        Ok(Some(AtRest { replica: self.replica.id, files, table, len, check, waits }))
    }

    fn stretch(&self, offset: u64, len: usize, end: u64) -> ReadRange<'_> {
        let check = !self.inner.config.has(PlantedBug::SkipCrc);
        let (from_disk, waits) = (self.from_disk, Some(&*self.waits));
        let is_first_read = self.is_first_read();
        ReadRange { replica: self.replica.id, offset, len, end, check, from_disk, is_first_read, waits }
    }

    /// Appends to `out`, for each page, its CRC32C (4 bytes, big-endian) and then its bytes, in the format of XRootD's
    /// pgread. The first page is short if `offset` is not a multiple of 4096. The last one may be short because of
    /// `len` or the end of the replica. The CRC covers the bytes that follow. Returns the number of data bytes. An
    /// error leaves `out` unchanged.
    ///
    /// # Errors
    /// [`StoreError::Checksum`].
    pub fn read_pages(&self, offset: u64, len: u32, out: &mut Vec<u8>) -> Result<usize, StoreError> {
        let before = out.len();
        let wanted = self.len().saturating_sub(offset).min(u64::from(len));
        let total = framed_len(offset, index(wanted));
        out.resize(before + total, 0);
        let result = self.read_pages_into(offset, index(wanted), &mut out[before..]);
        match &result {
            Ok(got) => out.truncate(before + framed_len(offset, *got)),
            Err(_) => out.truncate(before),
        }
        result
    }

    /// [`Reader::read_pages`] into a buffer of the caller, which has room for `len` bytes and 4 more for each page.
    /// After an error the contents of the buffer are useless.
    ///
    /// # Errors
    /// [`StoreError::Checksum`].
    pub fn read_pages_into(&self, offset: u64, len: usize, out: &mut [u8]) -> Result<usize, StoreError> {
        let mut done = 0;
        let mut rest = out;
        while done < len {
            let at = offset.saturating_add(done as u64);
            let view = self.view(&mut self.replica.lock())?;
            let step = index(view.len().saturating_sub(at)).min(len - done).min(STEP - index(at % PAGE));
            if step == 0 {
                break;
            }
            self.fetch_for(&view, at, step);
            let step = self.one_source(&view, at, step);
            let (frames, next) = std::mem::take(&mut rest).split_at_mut(framed_len(at, step));
            let got = self.read_pages_step(view, at, step, frames)?;
            rest = next;
            done += got;
            if got < step {
                break;
            }
        }
        Ok(done)
    }

    fn read_pages_step(&self, view: View, at: u64, len: usize, out: &mut [u8]) -> Result<usize, StoreError> {
        if let View::Still { files, len: end, version } = &view {
            let stretch = self.stretch(at, len, *end);
            let sums = known_crcs(files, stretch, table_for(files, stretch, *version).as_deref())?;
            match read_framed(files, stretch, &sums, out) {
                Err(StoreError::Checksum { .. }) => {}
                other => return other.map(|()| len),
            }
        }
        let mut bytes = vec![0; len];
        let got = self.read_step(view, at, &mut bytes)?;
        bytes.truncate(got);
        let mut rest = out;
        let mut bytes = bytes.as_slice();
        let mut first = PAGE_SIZE - index(at % PAGE);
        while !bytes.is_empty() {
            let (part, next) = bytes.split_at(bytes.len().min(first));
            let (frame, after) = std::mem::take(&mut rest).split_at_mut(4 + part.len());
            frame[..4].copy_from_slice(&Crc32c::of(part).0.to_be_bytes());
            frame[4..].copy_from_slice(part);
            (rest, bytes, first) = (after, next, PAGE_SIZE);
        }
        Ok(got)
    }
}

/// The table of known checksums, only for a short read.
fn table_for(files: &ObjectFiles, stretch: ReadRange, version: u64) -> Option<Arc<Table>> {
    if stretch.pages() <= FEW_PAGES { files.known.table(version, stretch.end) } else { None }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.inner.release(&self.replica);
    }
}

impl Inner {
    /// Reads an open write: verified pages of the file, with held pages over them, and zeros elsewhere.
    pub(crate) fn read_write_state(
        &self,
        replica: ReplicaId,
        state: &mut State,
        offset: u64,
        buf: &mut [u8],
        from_disk: bool,
    ) -> Result<(), StoreError> {
        buf.fill(0);
        let end = offset + buf.len() as u64;
        let Some(write_state) = &state.write_state else { return Err(StoreError::NotFound { replica }) };
        let pages: Vec<(u64, u64)> = write_state
            .in_file
            .as_slice()
            .iter()
            .map(|(first, last)| ((first * PAGE).max(offset), (last * PAGE).min(end)))
            .filter(|(start, stop)| start < stop)
            .collect();
        if !pages.is_empty() {
            let files = self.files(replica, state)?;
            for (start, stop) in pages {
                let mut at = start;
                while at < stop {
                    let step = (stop - at).min(STEP as u64 - at % PAGE);
                    let check = !self.config.has(PlantedBug::SkipCrc);
                    let (len, end, waits) = (index(step), u64::MAX, None);
                    let stretch =
                        ReadRange { replica, offset: at, len, end, check, from_disk, is_first_read: false, waits };
                    let sums = crcs(&files, stretch)?;
                    read_into(&files, stretch, &sums, &mut buf[index(at - offset)..index(at + step - offset)])?;
                    at += step;
                }
            }
        }
        if let Some(write_state) = &state.write_state {
            write_state.copy_held(offset, buf);
        }
        Ok(())
    }
}
