//! Removing large files without delaying other work.

use std::time::Duration;

use crate::{Access, Disk, DiskError, OpenOptions};

/// How to free a large file's space.
///
/// A file system mounted with `discard` reports all freed blocks to the disk at the next commit of its own journal, and
/// every sync waits for that: 80 ms for 256 MB on the virtual disk where this was measured. A file is therefore
/// truncated in parts, each synced, with pauses in between.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Removal {
    /// Bytes to truncate at a time.
    pub part: u64,
    /// The pause after each truncation.
    pub rest: Duration,
}

impl Default for Removal {
    fn default() -> Self {
        Self { part: 8 << 20, rest: Duration::from_millis(10) }
    }
}

impl Removal {
    /// Removes the file `path`, which must have no readers. A crash leaves a shorter file of that name, so the name
    /// must say that the file is useless. Durable after `sync_dir`.
    ///
    /// # Errors
    /// Errors of the disk. The file still exists then, perhaps shorter.
    pub fn remove(&self, disk: &dyn Disk, path: &str) -> Result<(), DiskError> {
        let part = self.part.max(1);
        let mut len = disk.len_of(path)?.unwrap_or(0);
        if len > part {
            let file = disk.open(path, OpenOptions { access: Access::ReadWrite, direct: false })?;
            while len > part {
                len -= part;
                file.set_len(len)?;
                file.sync_data()?;
                std::thread::sleep(self.rest);
            }
        }
        disk.remove(path)
    }
}

#[cfg(all(test, feature = "simulated"))]
mod tests {
    use super::*;
    use crate::SimDisk;

    #[test]
    fn a_file_is_removed_in_parts() {
        let disk = SimDisk::new(0);
        let removal = Removal { part: 4096, rest: Duration::ZERO };
        for len in [0, 1, 4096, 4097, 20_000] {
            let file = disk.open("a", OpenOptions { access: Access::CreateNew, direct: false }).unwrap();
            file.set_len(len).unwrap();
            let before = disk.data_sync_count();
            removal.remove(&disk, "a").unwrap();
            assert_eq!(
                (disk.len_of("a").unwrap(), disk.data_sync_count() - before),
                (None, len.saturating_sub(1) / 4096),
                "{len}"
            );
        }
        assert!(removal.remove(&disk, "a").is_err(), "it is not there");
    }
}
