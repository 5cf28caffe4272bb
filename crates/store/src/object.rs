//! The files of a large replica: the plain file with its bytes, and the sidecar with its pages' checksums.

use std::collections::HashSet;
use std::io::IoSliceMut;
use std::ops::Range;
use std::sync::Arc;

use disk::{Access, Disk, DiskError, DiskFile, OpenOptions};
use parking_lot::Mutex;
use types::{Crc32c, ErrorCode, PAGE_SIZE, PrincipalId, ReplicaId};

use crate::known_sums::{KnownSums, SumsRoom};
use crate::recent::{ReplicaPages, StorePages};
use crate::sidecar::{Header, SUMS_AT, sum_offset};
use crate::sums::{PAGE, PAGE_SUM_BYTES, PageSum};
use crate::writer::index;
use crate::{PlantedBug, StoreConfig, StoreError};

/// The paths of large replicas, and the directories known to be durable.
pub(crate) struct Objects {
    disk: Arc<dyn Disk>,
    root: String,
    direct: bool,
    /// Directories whose own names were synced since the store was opened.
    known: Mutex<HashSet<String>>,
    sums_room: Arc<SumsRoom>,
    recent: Option<StorePages>,
}

/// The open files of one large replica.
pub(crate) struct ObjectFiles {
    /// For access through the page cache.
    pub(crate) data: Arc<dyn DiskFile>,
    /// For access past it, if the file system supports that (opened for the first write).
    direct: Mutex<Option<Arc<dyn DiskFile>>>,
    pub(crate) side: Arc<dyn DiskFile>,
    folder: String,
    path: String,
    /// Whether the names are known to be durable.
    named: Mutex<bool>,
    pub(crate) known: KnownSums,
    /// Its recently written pages in memory.
    pub(crate) recent: Option<ReplicaPages>,
}

impl Objects {
    pub(crate) fn new(disk: Arc<dyn Disk>, dir: &str, config: &StoreConfig) -> Self {
        let root = if dir.is_empty() { "objects".to_owned() } else { format!("{dir}/objects") };
        Self {
            disk,
            root,
            direct: config.direct,
            known: Mutex::default(),
            sums_room: SumsRoom::new(config.known_sums_bytes_max),
            recent: StorePages::of(config.recent.as_ref(), config.has(PlantedBug::BelieveRecent)),
        }
    }

    pub(crate) fn root(&self) -> &str {
        &self.root
    }

    /// The directory; 256 consecutive objects share one.
    fn folder(&self, replica: ReplicaId) -> (String, String) {
        let [.., high, low, _] = replica.object.0.to_be_bytes();
        let above = format!("{}/{high:02x}", self.root);
        let folder = format!("{above}/{low:02x}");
        (above, folder)
    }

    pub(crate) fn path(&self, replica: ReplicaId) -> String {
        format!("{}/{replica}", self.folder(replica).1)
    }

    /// Opens existing files for writing; `None` if there is no file.
    pub(crate) fn open(&self, replica: ReplicaId, access: Access) -> Result<Option<ObjectFiles>, StoreError> {
        let (_, folder) = self.folder(replica);
        let path = self.path(replica);
        let open = |path: &str| match self.disk.open(path, OpenOptions { access, direct: false }) {
            Ok(file) => Ok(Some(file)),
            Err(e) if e.code() == ErrorCode::NotFound => Ok(None),
            Err(e) => Err(StoreError::from(e)),
        };
        let Some(data) = open(&path)? else { return Ok(None) };
        let Some(side) = open(&format!("{path}.crc"))? else { return Ok(None) };
        Ok(Some(self.files(replica, (data, side), folder, path)))
    }

    fn files(
        &self,
        replica: ReplicaId,
        (data, side): (Arc<dyn DiskFile>, Arc<dyn DiskFile>),
        folder: String,
        path: String,
    ) -> ObjectFiles {
        let known = KnownSums::new(&self.sums_room);
        let recent = self.recent.as_ref().map(|recent| recent.of_replica(replica));
        ObjectFiles { data, direct: Mutex::new(None), side, folder, path, named: Mutex::new(false), known, recent }
    }

    /// Whether a file of a finished replica (complete or interrupted) exists.
    pub(crate) fn ended(&self, replica: ReplicaId) -> Result<bool, StoreError> {
        let files = self.open(replica, Access::Read)?;
        let header = files.as_ref().map(ObjectFiles::newest_header).transpose()?.flatten();
        Ok(header.is_some_and(|header| header.ended.is_some()))
    }

    /// The highest generation in the files of a replica; 0 if there is none.
    pub(crate) fn last_generation(&self, replica: ReplicaId) -> Result<u64, StoreError> {
        let files = self.open(replica, Access::Read)?;
        let header = files.as_ref().map(ObjectFiles::newest_header).transpose()?.flatten();
        Ok(header.map_or(0, |header| header.generation))
    }

    /// Creates the files of a replica. Empties remains of an earlier attempt, but never touches the file of a finished
    /// replica.
    pub(crate) fn create(&self, header: &Header) -> Result<ObjectFiles, StoreError> {
        if self.ended(header.replica)? {
            return Err(StoreError::FileThere { replica: header.replica, path: self.path(header.replica) });
        }
        let (above, folder) = self.folder(header.replica);
        if !self.known.lock().contains(&folder) {
            self.disk.create_dir_all(&folder)?;
            // From the top down, once for each run of the store: a name is only durable in a durable directory.
            for dir in [&self.root, &above] {
                self.disk.sync_dir(dir)?;
            }
            self.disk.sync_dir(self.root.rsplit_once('/').map_or("", |(parent, _)| parent))?;
            self.known.lock().insert(folder.clone());
        }
        let path = self.path(header.replica);
        let make = |path: &str| -> Result<Arc<dyn DiskFile>, StoreError> {
            let open = |access| self.disk.open(path, OpenOptions { access, direct: false });
            match open(Access::CreateNew) {
                Err(e) if e.code() == ErrorCode::Exists => {
                    let file = open(Access::ReadWrite)?;
                    file.set_len(0)?;
                    Ok(file)
                }
                other => Ok(other?),
            }
        };
        let side = make(&format!("{path}.crc"))?;
        let data = make(&path)?;
        side.write_at(&header.encode(), header.offset())?;
        let files = self.files(header.replica, (data, side), folder, path);
        files.forget_recent();
        Ok(files)
    }

    /// The handle for writes of whole pages.
    pub(crate) fn direct(&self, files: &ObjectFiles) -> Result<Arc<dyn DiskFile>, StoreError> {
        let mut direct = files.direct.lock();
        if let Some(file) = &*direct {
            return Ok(Arc::clone(file));
        }
        let file = if self.direct {
            self.disk.open(&files.path, OpenOptions { access: Access::ReadWrite, direct: true })?
        } else {
            Arc::clone(&files.data)
        };
        *direct = Some(Arc::clone(&file));
        Ok(file)
    }

    /// Makes bytes, checksums and names durable.
    pub(crate) fn sync(&self, files: &ObjectFiles) -> Result<(), DiskError> {
        files.data.sync_data()?;
        files.side.sync_data()?;
        let mut named = files.named.lock();
        if !*named {
            self.disk.sync_dir(&files.folder)?;
            *named = true;
        }
        Ok(())
    }

    /// Removes a replica's files. Returns the directory to sync, if any file existed.
    pub(crate) fn remove(&self, replica: ReplicaId) -> Result<Option<String>, StoreError> {
        if let Some(recent) = &self.recent {
            recent.of_replica(replica).forget();
        }
        let path = self.path(replica);
        let mut found = false;
        // The sidecar first: bytes without one are known to belong to nothing.
        for path in [format!("{path}.crc"), path] {
            match self.disk.remove(&path) {
                Ok(()) => found = true,
                Err(e) if e.code() == ErrorCode::NotFound => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(found.then(|| self.folder(replica).1))
    }
}

impl ObjectFiles {
    /// Whole pages have been written at `start`.
    pub(crate) fn keep_recent(&self, start: u64, data: &[u8]) {
        if let Some(recent) = &self.recent {
            recent.put(start, data);
        }
    }

    /// Whose the recently written pages from now on are.
    pub(crate) fn set_user(&self, user: PrincipalId) {
        if let Some(recent) = &self.recent {
            recent.set_user(user);
        }
    }

    /// These pages in memory differ from the file.
    pub(crate) fn forget_recent_pages(&self, first: u64, count: u64) {
        if let Some(recent) = &self.recent {
            recent.forget_pages(first, count);
        }
    }

    /// Pages in memory may differ from the file.
    pub(crate) fn forget_recent(&self) {
        if let Some(recent) = &self.recent {
            recent.forget();
        }
    }

    /// The checksums of `count` pages from `first` on; those of zero pages after the end of the sidecar.
    pub(crate) fn sums(&self, first: u64, count: usize) -> Result<Vec<PageSum>, StoreError> {
        let mut bytes = vec![0; count * index(PAGE_SUM_BYTES)];
        self.side.read_at(&mut bytes, sum_offset(first))?;
        let chunks = bytes.as_chunks::<8>().0;
        Ok(chunks.iter().map(|chunk| PageSum::decode(*chunk)).collect())
    }

    /// The CRCs of the pages from `first` on, as many as fit into `into`; those of zero pages after the end of the
    /// sidecar.
    pub(crate) fn crcs(&self, first: u64, into: &mut [Crc32c]) -> Result<(), StoreError> {
        const STEP: usize = 512;
        let mut bytes = [0; 8 * STEP];
        for (part, at) in into.chunks_mut(STEP).zip((first..).step_by(STEP)) {
            let bytes = &mut bytes[..8 * part.len()];
            let got = self.side.read_at(bytes, sum_offset(at))?;
            bytes[got..].fill(0);
            for (crc, sum) in part.iter_mut().zip(bytes.as_chunks::<8>().0) {
                *crc = PageSum::decode(*sum).crc32c;
            }
        }
        Ok(())
    }

    pub(crate) fn write_sums(&self, first: u64, sums: &[PageSum]) -> Result<(), StoreError> {
        let bytes: Vec<u8> = sums.iter().flat_map(|sum| sum.encode()).collect();
        Ok(self.side.write_at(&bytes, sum_offset(first))?)
    }

    pub(crate) fn write_header(&self, header: &Header) -> Result<(), StoreError> {
        Ok(self.side.write_at(&header.encode(), header.offset())?)
    }

    pub(crate) fn newest_header(&self) -> Result<Option<Header>, StoreError> {
        let mut bytes = vec![0; index(SUMS_AT)];
        let got = self.side.read_at(&mut bytes, 0)?;
        bytes.truncate(got);
        Header::newest(&bytes)
    }

    /// The first page from `page` on whose checksums may differ from a zero page's; `None` if there is none.
    pub(crate) fn next_sums(&self, page: u64) -> Result<Option<u64>, StoreError> {
        let found = self.side.next_data(sum_offset(page))?;
        Ok(found.map(|at| (at.saturating_sub(SUMS_AT) / PAGE_SUM_BYTES).max(page)))
    }

    /// The first page from `page` on that may have nonzero bytes or the checksums of such; `None` if there is none.
    pub(crate) fn next_page(&self, page: u64) -> Result<Option<u64>, StoreError> {
        let bytes = self.data.next_data(page * PAGE)?.map(|at| (at / PAGE).max(page));
        Ok(match (bytes, self.next_sums(page)?) {
            (Some(bytes), Some(sums)) => Some(bytes.min(sums)),
            (found, None) | (None, found) => found,
        })
    }

    /// The number of whole pages from byte `offset` on that are empty and must be, in a file of `len` bytes without a
    /// writer; 0 in the middle of a page. A terabyte of holes takes no longer than one page.
    pub(crate) fn empty_pages(&self, offset: u64, len: u64) -> Result<u64, StoreError> {
        if !offset.is_multiple_of(PAGE) || offset >= len {
            return Ok(0);
        }
        let (page, end) = (offset / PAGE, len / PAGE);
        Ok(self.next_page(page)?.unwrap_or(end).min(end).saturating_sub(page))
    }

    /// Fills `buf` from the file; zeros after its end. Checks nothing.
    pub(crate) fn read_padded(&self, buf: &mut [u8], offset: u64) -> Result<(), StoreError> {
        let got = self.data.read_at(buf, offset)?;
        buf[got..].fill(0);
        Ok(())
    }

    /// The same. Returns whether it had to wait for the disk, as far as the disk can tell.
    pub(crate) fn fetch_padded(&self, buf: &mut [u8], offset: u64) -> Result<bool, StoreError> {
        let fetched = self.data.fetch_vectored_at(&mut [IoSliceMut::new(buf)], offset)?;
        buf[fetched.bytes..].fill(0);
        Ok(fetched.waited)
    }

    /// The same if the bytes are in the page cache. Returns `false` if not: `buf` is useless then.
    pub(crate) fn read_padded_cached(&self, buf: &mut [u8], offset: u64) -> Result<bool, StoreError> {
        let Some(got) = self.data.read_cached_at(buf, offset)? else { return Ok(false) };
        buf[got..].fill(0);
        Ok(true)
    }

    /// Has the kernel begin to read these pages and their checksums. They are in ascending order.
    pub(crate) fn will_read(&self, pages: &[Range<u64>]) {
        for range in near(pages, DATA_GAP_PAGES) {
            self.data.will_read(range.start * PAGE, (range.end - range.start) * PAGE);
        }
        for range in near(pages, SUMS_GAP_PAGES) {
            self.side.will_read(sum_offset(range.start), sum_offset(range.end) - sum_offset(range.start));
        }
    }

    /// One whole page, checked.
    pub(crate) fn page(&self, replica: ReplicaId, page: u64) -> Result<Vec<u8>, StoreError> {
        let mut bytes = vec![0; PAGE_SIZE];
        self.read_padded(&mut bytes, page * PAGE)?;
        match self.sums(page, 1)?.first() {
            Some(sum) if sum.crc32c == types::Crc32c::of(&bytes) => Ok(bytes),
            _ => Err(StoreError::Checksum { replica, page }),
        }
    }
}

/// Pages of 32 KiB between two ranges are read with them: one longer request of a disk costs less than two.
const DATA_GAP_PAGES: u64 = 8;
/// The same for the checksums of pages, of which 16 KiB belong to these.
const SUMS_GAP_PAGES: u64 = 2048;

/// Puts ranges together that are at most `gap` apart. They are in ascending order.
fn near(ranges: &[Range<u64>], gap: u64) -> impl Iterator<Item = Range<u64>> {
    ranges
        .chunk_by(move |one, next| next.start <= one.end.saturating_add(gap))
        .filter_map(|chunk| Some(chunk.first()?.start..chunk.iter().map(|range| range.end).max()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_ranges_are_read_together() {
        let together = |ranges: &[Range<u64>], gap| near(ranges, gap).collect::<Vec<_>>();
        assert_eq!(together(&[], 8), []);
        assert_eq!(together(&[0..3, 3..5, 13..14, 23..24], 8), [0..14, 23..24]);
        // Ranges inside others, and the same one twice.
        assert_eq!(together(&[0..100, 5..6, 5..6, 14..15, 200..201], 8), [0..100, 200..201]);
        assert_eq!(together(&[0..1, u64::MAX - 1..u64::MAX], 8), [0..1, u64::MAX - 1..u64::MAX]);
    }
}
