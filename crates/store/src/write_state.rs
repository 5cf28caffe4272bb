//! The state of one open write in memory. Replay of the journal takes the same steps, so that it restores the same
//! state after a stop.

use std::collections::BTreeMap;

use journal::{Location, Seq};
use types::PAGE_SIZE;

use crate::StoreError;
use crate::checkpoint::Checkpoint;
use crate::journal_record::{GenerationStart, Snapshot};
use crate::ranges::Ranges;
use crate::sums::{PAGE, pages_of};

/// A page that is not (only) in the file. Unwritten bytes are zero.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct HeldPage {
    pub(crate) bytes: Box<[u8]>,
    /// The file has older contents of this page: the journal must be durable before they are overwritten.
    pub(crate) image: bool,
}

/// The state of an open write.
#[derive(Clone, Debug)]
pub(crate) struct WriteState {
    pub(crate) birth: GenerationStart,
    pub(crate) len: u64,
    /// Whether the replica has, or gets, its own file.
    pub(crate) large: bool,
    /// Written bytes.
    pub(crate) written: Ranges,
    /// Pages whose newest contents are in the file; never also held.
    pub(crate) in_file: Ranges,
    /// Pages whose newest contents are here and in the journal.
    pub(crate) held: BTreeMap<u64, HeldPage>,
    /// Bytes from 0 on that survive a power failure.
    pub(crate) durable_prefix: u64,
    /// The last record of this generation.
    pub(crate) last: Seq,
    /// Whether there are acknowledged, unsynced changes.
    pub(crate) dirty: bool,
    /// The file may have leftovers in unwritten ranges: check gaps before they count as zeros.
    pub(crate) leftovers: bool,
    /// All bytes lie in one part of the journal (location, skip); forgotten at the next change.
    pub(crate) whole: Option<(Location, u32)>,
    /// Rises whenever written bytes are removed, so that a running sync does not claim them.
    pub(crate) cuts: u64,
    /// Bytes that went through the journal since the last snapshot. Recovery would have to hold them in memory.
    pub(crate) redo_bytes: u64,
    /// Changes that can still be undone as one.
    pub(crate) checkpoint: Option<Checkpoint>,
    /// The first failed sync.
    pub(crate) failed: Option<String>,
}

impl WriteState {
    pub(crate) fn new(birth: GenerationStart, small_max: u64) -> Self {
        let large = birth.expected_len.is_some_and(|len| len > small_max);
        Self {
            birth,
            len: 0,
            large,
            written: Ranges::default(),
            in_file: Ranges::default(),
            held: BTreeMap::new(),
            durable_prefix: 0,
            last: Seq::ZERO,
            dirty: false,
            leftovers: false,
            whole: None,
            cuts: 0,
            redo_bytes: 0,
            checkpoint: None,
            failed: None,
        }
    }

    pub(crate) fn from_snapshot(snapshot: Snapshot, small_max: u64) -> Self {
        let mut write_state = Self::new(snapshot.birth, small_max);
        write_state.len = snapshot.len;
        write_state.large |= snapshot.large;
        write_state.written = snapshot.written;
        write_state.in_file = snapshot.in_file;
        for (page, image, bytes) in snapshot.held {
            write_state.held.insert(page, HeldPage { bytes: bytes.into_boxed_slice(), image });
        }
        write_state
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let held = self.held.iter().map(|(page, held)| (*page, held.image, held.bytes.to_vec())).collect();
        Snapshot {
            birth: self.birth.clone(),
            len: self.len,
            large: self.large,
            written: self.written.clone(),
            in_file: self.in_file.clone(),
            held,
        }
    }

    /// Bytes without a gap from the beginning that only a truncation can remove, and no rollback of a checkpoint.
    pub(crate) fn permanent_prefix(&self) -> u64 {
        let prefix = self.written.prefix();
        self.checkpoint.as_ref().map_or(prefix, |checkpoint| prefix.min(checkpoint.prefix()))
    }

    /// Whether this page was written before.
    pub(crate) fn taken(&self, page: u64) -> bool {
        self.held.contains_key(&page) || self.in_file.contains(page, page + 1)
    }

    /// Lays bytes over the held pages.
    ///
    /// # Errors
    /// If the newest contents of a page are in the file, the bytes must cover it completely: its rest would become
    /// zeros. Nothing changes then.
    pub(crate) fn lay(&mut self, wrote: (u64, u64), offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let end = offset + bytes.len() as u64;
        let mut parts = [offset, end].into_iter().filter(|at| !at.is_multiple_of(PAGE)).map(|at| at / PAGE);
        if let Some(page) = parts.find(|page| self.in_file.contains(*page, page + 1)) {
            return Err(StoreError::damaged(format!(
                "a part of page {page} was logged while the page lies in the file"
            )));
        }
        self.redo_bytes += bytes.len() as u64;
        let mut at = offset;
        let mut rest = bytes;
        while !rest.is_empty() {
            let page = at / PAGE;
            let within = usize::try_from(at % PAGE).unwrap_or(0);
            let (part, after) = rest.split_at(rest.len().min(PAGE_SIZE - within));
            let image = self.in_file.contains(page, page + 1);
            let held = self
                .held
                .entry(page)
                .or_insert_with(|| HeldPage { bytes: vec![0; PAGE_SIZE].into_boxed_slice(), image });
            held.bytes[within..within + part.len()].copy_from_slice(part);
            if image {
                self.in_file.remove(page, page + 1);
            }
            at += part.len() as u64;
            rest = after;
        }
        self.written.insert(wrote.0, wrote.1);
        if wrote.0 < wrote.1 {
            self.len = self.len.max(wrote.1);
        }
        Ok(())
    }

    /// Notes that whole pages are in the file.
    pub(crate) fn note_in_file(&mut self, first_page: u64, count: u64) {
        self.large = true;
        // A page is held here only after a write that was logged in part and then failed.
        self.held.retain(|page, _| *page < first_page || *page >= first_page + count);
        self.in_file.insert(first_page, first_page + count);
        let (start, end) = (first_page * PAGE, (first_page + count) * PAGE);
        self.written.insert(start, end);
        self.len = self.len.max(end);
    }

    /// Sets the length. If it lies inside a page, that page must be held.
    pub(crate) fn set_len(&mut self, len: u64) {
        if len < self.len {
            self.written.remove(len, u64::MAX);
            self.in_file.remove(pages_of(len), u64::MAX);
            self.held.split_off(&pages_of(len));
            let within = usize::try_from(len % PAGE).unwrap_or(0);
            if let (true, Some(held)) = (within > 0, self.held.get_mut(&(len / PAGE))) {
                held.bytes[within..].fill(0);
            }
            self.durable_prefix = self.durable_prefix.min(len);
            self.leftovers = true;
            self.cuts += 1;
        }
        self.len = len;
    }

    /// Copies the held bytes from `offset` on over `buf`.
    pub(crate) fn copy_held(&self, offset: u64, buf: &mut [u8]) {
        let end = offset + buf.len() as u64;
        for (page, held) in self.held.range(offset / PAGE..pages_of(end)) {
            let start = page * PAGE;
            let (from, to) = (offset.max(start), end.min(start + PAGE));
            if let (Ok(into), Ok(within), Ok(len)) =
                (usize::try_from(from - offset), usize::try_from(from - start), usize::try_from(to - from))
            {
                buf[into..into + len].copy_from_slice(&held.bytes[within..within + len]);
            }
        }
    }
}
