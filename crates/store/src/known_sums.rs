//! CRCs of a large replica's pages in memory, for random reads. Short reads fill this table; long reads take many CRCs
//! at a time from the sidecar.
//!
//! All readers of a replica share one table. The tables of a store share a limit. A table without more room stays as it
//! is, and its readers use the sidecar for other pages. No result depends on a correct table: a page that does not
//! match is compared again with the sidecar.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use types::Crc32c;

use crate::StoreError;
use crate::object::ObjectFiles;
use crate::sums::pages_of;
use crate::writer::index;

/// Pages whose CRCs are read and stored together.
const BLOCK_PAGES: usize = 256;
/// The share of the room that an empty table may take at most (one part in this many).
const TABLE_SHARE: usize = 8;

/// Bytes that all tables of a store may still take.
pub(crate) struct SumsRoom {
    bytes: usize,
    left: AtomicUsize,
}

impl SumsRoom {
    pub(crate) fn new(bytes: usize) -> Arc<Self> {
        Arc::new(Self { bytes, left: AtomicUsize::new(bytes) })
    }

    fn take(&self, bytes: usize) -> bool {
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes)).is_ok()
    }

    fn give_back(&self, bytes: usize) {
        self.left.fetch_add(bytes, Ordering::Relaxed);
    }
}

type Block = Box<[Crc32c]>;

/// The known CRCs of one state of a replica.
pub(crate) struct Table {
    version: u64,
    blocks: Box<[OnceLock<Block>]>,
    room: Arc<SumsRoom>,
    /// Bytes that it has taken from `room`.
    taken: AtomicUsize,
}

impl Drop for Table {
    fn drop(&mut self) {
        self.room.give_back(*self.taken.get_mut());
    }
}

impl Table {
    fn new(version: u64, len: u64, room: &Arc<SumsRoom>) -> Option<Arc<Self>> {
        let blocks = usize::try_from(pages_of(len)).ok()?.div_ceil(BLOCK_PAGES);
        let bytes = blocks.checked_mul(size_of::<OnceLock<Block>>())?;
        if bytes > room.bytes / TABLE_SHARE || !room.take(bytes) {
            return None;
        }
        let blocks = std::iter::repeat_with(OnceLock::new).take(blocks).collect();
        Some(Arc::new(Self { version, blocks, room: Arc::clone(room), taken: AtomicUsize::new(bytes) }))
    }

    /// Puts the CRCs of the pages from `first` on into `into`. Returns false if some are unknown and there is no room
    /// for them.
    pub(crate) fn look_up(&self, files: &ObjectFiles, first: u64, into: &mut [Crc32c]) -> Result<bool, StoreError> {
        let mut done = 0;
        while done < into.len() {
            let page = index(first) + done;
            let (number, at) = (page / BLOCK_PAGES, page % BLOCK_PAGES);
            let Some(slot) = self.blocks.get(number) else { return Ok(false) };
            let block = match slot.get() {
                Some(block) => block,
                None => match self.read(files, number)? {
                    Some(read) => slot.get_or_init(|| read),
                    None => return Ok(false),
                },
            };
            let step = (into.len() - done).min(BLOCK_PAGES - at);
            into[done..done + step].copy_from_slice(&block[at..at + step]);
            done += step;
        }
        Ok(true)
    }

    /// If two threads read the same block at once, the second keeps its room until the table is dropped.
    fn read(&self, files: &ObjectFiles, number: usize) -> Result<Option<Block>, StoreError> {
        let bytes = BLOCK_PAGES * size_of::<Crc32c>();
        if !self.room.take(bytes) {
            return Ok(None);
        }
        let mut block = vec![Crc32c::EMPTY; BLOCK_PAGES];
        files.crcs((number * BLOCK_PAGES) as u64, &mut block).inspect_err(|_| self.room.give_back(bytes))?;
        self.taken.fetch_add(bytes, Ordering::Relaxed);
        Ok(Some(block.into()))
    }
}

/// The table of a replica's files, if there is one.
pub(crate) struct KnownSums {
    room: Arc<SumsRoom>,
    table: Mutex<Option<Arc<Table>>>,
}

impl KnownSums {
    pub(crate) fn new(room: &Arc<SumsRoom>) -> Self {
        Self { room: Arc::clone(room), table: Mutex::default() }
    }

    /// The table of the replica's state `version`, in which it has `len` bytes. `None` if there is no room for one.
    pub(crate) fn table(&self, version: u64, len: u64) -> Option<Arc<Table>> {
        let mut table = self.table.lock();
        if table.as_ref().is_none_or(|table| table.version != version) {
            *table = None; // frees its room for the next one
            *table = Table::new(version, len, &self.room);
        }
        table.clone()
    }

    /// Drops the table after it turned out to be wrong.
    pub(crate) fn forget(&self) {
        *self.table.lock() = None;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use disk::SimDisk;
    use types::{Incarnation, ObjectId, ReplicaId};

    use super::*;
    use crate::StoreConfig;
    use crate::object::Objects;
    use crate::sidecar::Header;
    use crate::sums::PageSum;

    fn files(room: usize, blocks: u8) -> ObjectFiles {
        let disk: Arc<dyn disk::Disk> = Arc::new(SimDisk::new(1));
        let header = Header {
            replica: ReplicaId::first(ObjectId(1)),
            generation: 1,
            ended: None,
            incarnation: Incarnation(1),
            len: 0,
            adler32: types::Adler32::EMPTY,
            crc32c: Crc32c::EMPTY,
            path_hint: Vec::new(),
        };
        let config = StoreConfig { direct: false, known_sums_bytes_max: room, ..StoreConfig::default() };
        let files = Objects::new(disk, "store", &config).create(&header).unwrap();
        for block in 0..blocks {
            let sums: Vec<PageSum> = (0..BLOCK_PAGES).map(|page| sum(block, page)).collect();
            files.write_sums(u64::from(block) * BLOCK_PAGES as u64, &sums).unwrap();
        }
        files
    }

    fn sum(block: u8, page: usize) -> PageSum {
        PageSum::of(&[block, page.to_le_bytes()[0]])
    }

    #[test]
    fn the_table_agrees_with_the_sidecar_across_blocks() {
        let files = files(1 << 20, 3);
        let table = files.known.table(7, 3 << 20).unwrap();
        let mut found = [Crc32c::EMPTY; 4];
        assert!(table.look_up(&files, BLOCK_PAGES as u64 - 2, &mut found).unwrap());
        let expected = [(0, BLOCK_PAGES - 2), (0, BLOCK_PAGES - 1), (1, 0), (1, 1)];
        assert_eq!(found, expected.map(|(block, page)| sum(block, page).crc32c()));
        // The sidecar changes: the table keeps its contents until the version rises or the table is dropped.
        files.write_sums(0, &[sum(9, 9)]).unwrap();
        let first = |version| {
            let mut found = [Crc32c::EMPTY];
            assert!(files.known.table(version, 3 << 20).unwrap().look_up(&files, 0, &mut found).unwrap());
            found[0]
        };
        assert_eq!((first(7), first(8)), (sum(0, 0).crc32c(), sum(9, 9).crc32c()));
        files.write_sums(0, &[sum(1, 1)]).unwrap();
        assert_eq!(first(8), sum(9, 9).crc32c());
        files.known.forget();
        assert_eq!(first(8), sum(1, 1).crc32c());
    }

    #[test]
    fn tables_respect_the_limit_and_free_their_room() {
        let block = BLOCK_PAGES * size_of::<Crc32c>();
        let table_bytes = 3 * size_of::<OnceLock<Block>>();
        let files = files(table_bytes + 2 * block, 3);
        let look = |block: usize| {
            let table = files.known.table(1, 3 << 20).unwrap();
            table.look_up(&files, (block * BLOCK_PAGES) as u64, &mut [Crc32c::EMPTY]).unwrap()
        };
        assert_eq!([look(0), look(2), look(1), look(0)], [true, true, false, true]);
        files.known.forget();
        assert_eq!([look(1), look(0), look(2)], [true, true, false]);
        // A table that would take most of the room is not made. A lookup after the end of a table finds nothing.
        assert!(files.known.table(2, 1 << 40).is_none());
        let table = files.known.table(3, 1 << 20).unwrap();
        assert!(!table.look_up(&files, BLOCK_PAGES as u64, &mut [Crc32c::EMPTY]).unwrap());
    }
}
