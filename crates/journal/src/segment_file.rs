//! An open segment file, which short writes reach through the page cache and long ones past it.

use std::sync::Arc;

use disk::{Access, Disk, DiskError, DiskFile, OpenOptions};

/// Writes of at most so many bytes go through the page cache. A client that creates a small file and waits for each
/// answer makes three such writes and one sync. Medians on ext4 on a virtual disk: all three direct, with the sync,
/// 236 us; through the page cache 125 us, because only the sync waits for the disk. A single short write with its sync
/// takes 118 us direct and 121 us through the cache. Long writes are cheaper without the copy.
const CACHED_MAX: usize = 16 << 10;

/// An open segment file. Only one thread writes it at a time.
///
/// Direct and cached writes to the same page are safe in this order: the kernel writes a page back and drops it from the
/// cache before a direct write to it. It may only fail to if another thread dirties the page meanwhile.
#[derive(Clone)]
pub(crate) struct SegmentFile {
    cached: Arc<dyn DiskFile>,
    /// The same file past the page cache. `None` if all writes go through it.
    direct: Option<Arc<dyn DiskFile>>,
}

impl SegmentFile {
    /// Opens a segment for writing.
    pub(crate) fn open(disk: &dyn Disk, path: &str, direct: bool) -> Result<SegmentFile, DiskError> {
        let open = |direct| disk.open(path, OpenOptions { access: Access::ReadWrite, direct });
        Ok(SegmentFile { cached: open(false)?, direct: direct.then(|| open(true)).transpose()? })
    }

    /// Writes whole pages from an aligned buffer.
    pub(crate) fn write_at(&self, pages: &[u8], offset: u64) -> Result<(), DiskError> {
        match &self.direct {
            Some(direct) if pages.len() > CACHED_MAX => direct.write_at(pages, offset),
            _ => self.cached.write_at(pages, offset),
        }
    }

    /// Makes everything written by either way durable.
    pub(crate) fn sync_data(&self) -> Result<(), DiskError> {
        self.cached.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use disk::{ALIGNMENT, AlignedBuf, CrashFaults, RealDisk, SimDisk};
    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    use super::*;

    const PAGES: usize = 64;

    /// Writes as the journal does, each beginning in the page where the last one ended: short ones, long ones, both in
    /// turns. Returns the file's bytes.
    fn write_all(disk: &dyn Disk) -> Vec<u8> {
        let zeros = AlignedBuf::new(PAGES * ALIGNMENT);
        disk.open("s", OpenOptions { access: Access::CreateNew, direct: false }).unwrap().write_at(&zeros, 0).unwrap();
        let file = SegmentFile::open(disk, "s", true).unwrap();
        let mut model = vec![0; PAGES * ALIGNMENT];
        let (mut end, mut turn) = (0, 0);
        while end + 40_000 < model.len() {
            turn += 1;
            let len = [300, 30_000, 9_000, 4_096, 20_000, 1, 16_384][turn % 7];
            let fill = u8::try_from(turn).unwrap();
            model[end..end + len].fill(fill);
            let from = end - end % ALIGNMENT;
            end += len;
            let to = end.next_multiple_of(ALIGNMENT);
            let mut pages = AlignedBuf::new(to - from);
            pages.copy_from_slice(&model[from..to]);
            file.write_at(&pages, from as u64).unwrap();
        }
        file.sync_data().unwrap();
        model
    }

    fn read_all(disk: &dyn Disk, direct: bool) -> Vec<u8> {
        let mut bytes = AlignedBuf::new(PAGES * ALIGNMENT);
        let file = disk.open("s", OpenOptions { access: Access::Read, direct }).unwrap();
        assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
        bytes.to_vec()
    }

    #[test]
    fn a_read_sees_short_and_long_writes() {
        let folder = tempfile::tempdir().unwrap();
        let disk = RealDisk::open(folder.path()).unwrap();
        let written = write_all(&disk);
        assert!(read_all(&disk, false) == written);
        assert!(read_all(&disk, true) == written, "what is on the disk");
    }

    #[test]
    fn one_sync_covers_short_and_long_writes() {
        for seed in 0..20 {
            let disk = SimDisk::new(seed);
            let written = write_all(&disk);
            disk.sync_dir("").unwrap();
            let (disk, _) = disk.crash(&mut SmallRng::seed_from_u64(seed), CrashFaults::all_lost());
            assert!(read_all(&disk, false) == written, "seed {seed}");
        }
    }

    #[test]
    fn only_long_writes_pass_the_cache() {
        // The folder for temporary files may be in memory, where nothing passes the cache.
        let program = std::env::current_exe().unwrap();
        let folder = tempfile::tempdir_in(program.parent().unwrap()).unwrap();
        let disk = RealDisk::open(folder.path()).unwrap();
        write_all(&disk);
        let file = SegmentFile::open(&disk, "s", true).unwrap();
        let reader = disk.open("s", OpenOptions { access: Access::Read, direct: false }).unwrap();
        let mut pages = AlignedBuf::new(CACHED_MAX + ALIGNMENT);
        for (len, cached) in [(CACHED_MAX, true), (CACHED_MAX + ALIGNMENT, false)] {
            reader.drop_cache(0, (PAGES * ALIGNMENT) as u64);
            pages.fill(7);
            file.write_at(&pages[..len], 0).unwrap();
            assert_eq!(reader.read_cached_at(&mut [0; 1], 0).unwrap().is_some(), cached, "{len} bytes");
        }
    }
}
