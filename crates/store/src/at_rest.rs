//! Many short reads of one state of a large replica. They share one lookup.

use std::io::IoSliceMut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use types::{Crc32c, PAGE_SIZE, ReplicaId};

use crate::StoreError;
use crate::known_sums::Table;
use crate::object::ObjectFiles;
use crate::pages::{FEW_PAGES, ReadRange, known_crcs};
use crate::recent::LentPages;
use crate::sums::{PAGE, pages_of};
use crate::writer::index;

/// A large replica without a writer, from [`crate::Reader::at_rest`].
pub struct AtRest {
    pub(crate) replica: ReplicaId,
    pub(crate) files: Arc<ObjectFiles>,
    pub(crate) table: Option<Arc<Table>>,
    pub(crate) len: u64,
    pub(crate) check: bool,
    /// See [`crate::Reader::has_waited`].
    pub(crate) waits: Arc<AtomicBool>,
}

/// Verified bytes of a replica, lent from memory by [`AtRest::lend`]. They stay as they are while this exists, and so does their memory, 2 MiB for each
/// part: do not wait for a client with them.
pub struct Lent(LentPages);

impl Lent {
    /// The bytes, in a few parts.
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        self.0.parts()
    }
}

#[allow(clippy::len_without_is_empty)] // a file's length, not a collection's
impl AtRest {
    /// Longest read.
    pub const READ_MAX: usize = (FEW_PAGES - 1) * PAGE_SIZE;
    /// Extra bytes that [`AtRest::read`] needs in its buffer, for the rest of the first and the last page.
    pub const MARGIN: usize = 2 * PAGE_SIZE;

    /// The replica's length, in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Lends `len` bytes at `offset` out of the memory for recently written pages, verified. `None` if they are not all there or do not match:
    /// [`AtRest::read`] or [`crate::Reader::read`] has them then.
    ///
    /// # Errors
    /// Errors of the disk, from which checksums may have to be read.
    pub fn lend(&self, offset: u64, len: usize) -> Result<Option<Lent>, StoreError> {
        let is_asked = len > 0 && self.has(offset, len);
        let Some(recent) = self.files.recent.as_ref().filter(|_| is_asked) else { return Ok(None) };
        let range = self.range(offset, len);
        let (first, whole) = self.whole_pages(range);
        let Some(mut pages) = recent.lend(first, whole) else { return Ok(None) };
        let table = self.table.as_deref().filter(|_| range.pages() <= FEW_PAGES);
        let crcs = known_crcs(&self.files, range, table)?;
        if !self.matches(pages.parts().flat_map(|part| part.chunks(PAGE_SIZE)), &crcs) {
            return Ok(None);
        }
        recent.count_lent(whole);
        pages.cut(index(offset - first), len);
        Ok(Some(Lent(pages)))
    }

    /// Whether the range lies inside the replica.
    fn has(&self, offset: u64, len: usize) -> bool {
        offset.checked_add(len as u64).is_some_and(|end| end <= self.len)
    }

    /// Whether all pages equal what was written.
    fn matches<'a>(&self, pages: impl Iterator<Item = &'a [u8]>, crcs: &[Crc32c]) -> bool {
        !self.check || pages.zip(crcs).all(|(page, crc)| Crc32c::of(page) == *crc)
    }

    fn range(&self, offset: u64, len: usize) -> ReadRange<'_> {
        let (replica, end, check) = (self.replica, self.len, self.check);
        ReadRange { replica, offset, len, end, check, from_disk: false, is_first_read: false, waits: None }
    }

    /// The beginning of a range's first page, and the bytes from there to the end of its last one.
    fn whole_pages(&self, range: ReadRange<'_>) -> (u64, usize) {
        let first = range.first_page() * PAGE;
        (first, index((first + (range.pages() * PAGE_SIZE) as u64).min(self.len) - first))
    }

    /// Reads `len` bytes at `offset`, which must lie inside the replica, and puts them at the beginning of `room`,
    /// verified. `room` must have `len` plus [`AtRest::MARGIN`] bytes. Calls `before_disk` if it is about to wait for
    /// the disk. Returns false if the range is too long or fails verification, perhaps because of a new writer;
    /// [`crate::Reader::read`] gives the answer then. The contents of `room` are useless in that case.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn read(
        &self,
        offset: u64,
        len: usize,
        room: &mut [u8],
        before_disk: impl FnOnce(),
    ) -> Result<bool, StoreError> {
        if len == 0 || len > Self::READ_MAX || !self.has(offset, len) || room.len() < len + Self::MARGIN {
            return Ok(len == 0);
        }
        let range = self.range(offset, len);
        // Read whole pages in one call: their checksums need no parts, and moving the requested bytes costs less than a
        // list of parts.
        let (first, whole) = self.whole_pages(range);
        let recent = self.files.recent.as_ref();
        let is_recent =
            recent.is_some_and(|recent| recent.fill(&mut [IoSliceMut::new(&mut room[..whole])], first, false));
        if !is_recent && !self.files.read_padded_cached(&mut room[..whole], first)? {
            before_disk();
            if self.files.fetch_padded(&mut room[..whole], first)? {
                self.waits.store(true, Ordering::Relaxed);
            }
        }
        let crcs = known_crcs(&self.files, range, self.table.as_deref())?;
        if !self.matches(room[..whole].chunks(PAGE_SIZE), &crcs) {
            return Ok(false);
        }
        let begin = index(offset - first);
        room.copy_within(begin..begin + len, 0);
        Ok(true)
    }

    /// Has the kernel begin to read these ranges of bytes, unless they are in the memory for recently written pages.
    /// Later reads of them wait less: the disk works on many at once, and in the order that suits it.
    pub fn will_read(&self, ranges: impl Iterator<Item = (u64, usize)>) {
        let recent = self.files.recent.as_ref();
        let is_recent = |&(offset, len): &(u64, usize)| recent.is_some_and(|recent| recent.run(offset, len) == len);
        let pages = |(offset, len): (u64, usize)| {
            let end = offset.saturating_add(len as u64).min(self.len);
            offset / PAGE..pages_of(end)
        };
        let mut pages: Vec<_> =
            ranges.filter(|range| !is_recent(range)).map(pages).filter(|pages| !pages.is_empty()).collect();
        pages.sort_unstable_by_key(|pages| pages.start);
        self.files.will_read(&pages);
    }
}
