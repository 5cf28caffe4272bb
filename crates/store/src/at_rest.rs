//! Many short reads of one state of a large replica: what they share is looked up once.

use std::sync::Arc;

use types::{Crc32c, PAGE_SIZE, ReplicaId};

use crate::StoreError;
use crate::known_sums::Table;
use crate::object::ObjectFiles;
use crate::pages::{FEW_PAGES, Stretch, known_crcs};
use crate::sums::PAGE;
use crate::writer::index;

/// A large replica that nobody was writing to when [`crate::Reader::at_rest`] gave this.
pub struct AtRest {
    pub(crate) replica: ReplicaId,
    pub(crate) files: Arc<ObjectFiles>,
    pub(crate) table: Option<Arc<Table>>,
    pub(crate) len: u64,
    pub(crate) check: bool,
}

#[allow(clippy::len_without_is_empty)] // a file's length, not a collection's
impl AtRest {
    /// Longest read.
    pub const READ_MAX: usize = (FEW_PAGES - 1) * PAGE_SIZE;
    /// Bytes that [`AtRest::read`] needs behind what it reads: those of the first and the last page that were not asked for.
    pub const MARGIN: usize = 2 * PAGE_SIZE;

    /// The replica's length, in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Reads `len` bytes at `offset`, which must lie within the replica, and leaves them at the beginning of `room`, verified. `room` is of
    /// `len` and [`AtRest::MARGIN`] bytes. `false`: they are not what the checksums say, perhaps because somebody writes to the replica by
    /// now, or too many; [`crate::Reader::read`] tells. `room` holds nothing to be used then.
    ///
    /// # Errors
    /// Of the disk.
    pub fn read(&self, offset: u64, len: usize, room: &mut [u8]) -> Result<bool, StoreError> {
        let within = offset.checked_add(len as u64).is_some_and(|end| end <= self.len);
        if len == 0 || len > Self::READ_MAX || !within || room.len() < len + Self::MARGIN {
            return Ok(len == 0);
        }
        let stretch = Stretch { replica: self.replica, offset, len, end: self.len, check: self.check };
        let crcs = known_crcs(&self.files, stretch, self.table.as_deref())?;
        // Whole pages in one go: their sums need no parts, and to move what was asked for to its place costs less than a list of parts does.
        let first = stretch.first_page() * PAGE;
        let whole = index((first + (stretch.pages() * PAGE_SIZE) as u64).min(self.len) - first);
        self.files.read_padded(&mut room[..whole], first)?;
        let matches = room[..whole].chunks(PAGE_SIZE).zip(&*crcs).all(|(page, crc)| Crc32c::of(page) == *crc);
        if !matches && self.check {
            return Ok(false);
        }
        let begin = index(offset - first);
        room.copy_within(begin..begin + len, 0);
        Ok(true)
    }
}
