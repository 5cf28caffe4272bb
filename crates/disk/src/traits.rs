//! The two traits that the other crates use.

use std::sync::Arc;

use crate::DiskError;

/// How to open a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// For reading; the file must exist.
    Read,
    /// For reading and writing; the file must exist.
    ReadWrite,
    /// Creates the file for reading and writing; it must not exist. Its name is durable after `sync_dir` of its
    /// directory.
    CreateNew,
}

/// Options of [`Disk::open`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenOptions {
    /// The kind of access.
    pub access: Access,
    /// Bypass the page cache (`O_DIRECT`): buffers, offsets and lengths must be multiples of 4096. If the file system
    /// refuses direct I/O, the file opens without it; [`DiskFile::is_direct`] tells.
    pub direct: bool,
}

/// Sizes of the file system, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Space {
    /// Total bytes.
    pub total: u64,
    /// Bytes that weir can use.
    pub free: u64,
}

/// The result of [`DiskFile::fetch_vectored_at`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fetched {
    /// The number of bytes.
    pub bytes: usize,
    /// Whether the read waited for the disk.
    pub waited: bool,
}

/// One name in a directory.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Entry {
    /// The name without its directory.
    pub name: String,
    /// Whether it is a directory.
    pub is_dir: bool,
}

/// A directory on a local file system.
pub trait Disk: Send + Sync {
    /// Opens or creates a file.
    fn open(&self, path: &str, options: OpenOptions) -> Result<Arc<dyn DiskFile>, DiskError>;
    /// Removes a name; open files keep the bytes readable. Durable after `sync_dir`.
    fn remove(&self, path: &str) -> Result<(), DiskError>;
    /// Renames, replacing an existing file. Durable after `sync_dir` of both directories.
    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError>;
    /// Creates a directory and its parents; no error if it exists. Durable after `sync_dir` of the parent.
    fn create_dir_all(&self, path: &str) -> Result<(), DiskError>;
    /// Makes the names in a directory durable (`""` is the root).
    fn sync_dir(&self, path: &str) -> Result<(), DiskError>;
    /// The names in a directory, sorted.
    fn list(&self, path: &str) -> Result<Vec<Entry>, DiskError>;
    /// A file's length in bytes; `None` if the file does not exist.
    fn len_of(&self, path: &str) -> Result<Option<u64>, DiskError>;
    /// Sizes of the file system.
    fn space(&self) -> Result<Space, DiskError>;
}

#[allow(clippy::len_without_is_empty)] // a length that can fail has no use for is_empty
/// An open file. All calls are positional; several threads may use one file.
pub trait DiskFile: Send + Sync {
    /// Reads up to `buf.len()` bytes at `offset`; fewer only at the end of the file. Returns the number of bytes.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize, DiskError>;
    /// Fills `bufs` in order from `offset` (preadv); fewer bytes only at the end of the file. Returns the number of
    /// bytes.
    fn read_vectored_at(&self, bufs: &mut [std::io::IoSliceMut<'_>], offset: u64) -> Result<usize, DiskError>;
    /// Reads like [`DiskFile::read_vectored_at`], and tells whether the read waited for the disk. A disk that cannot tell
    /// says that it did not.
    fn fetch_vectored_at(&self, bufs: &mut [std::io::IoSliceMut<'_>], offset: u64) -> Result<Fetched, DiskError> {
        Ok(Fetched { bytes: self.read_vectored_at(bufs, offset)?, waited: false })
    }
    /// Reads like [`DiskFile::read_at`] if the bytes are cached; `None` if that may need the disk. A disk that cannot
    /// tell says `None`.
    fn read_cached_at(&self, buf: &mut [u8], offset: u64) -> Result<Option<usize>, DiskError> {
        let _ = (buf, offset);
        Ok(None)
    }
    /// Tells the kernel to begin to read the range into its cache, without waiting for it (best effort). The range should
    /// be at most some MiB long.
    fn will_read(&self, offset: u64, len: u64) {
        let _ = (offset, len);
    }
    /// Writes all of `buf` at `offset`. On return the kernel has the bytes: they survive SIGKILL, but a power failure
    /// can undo them until a sync.
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<(), DiskError>;
    /// Makes all completed writes and the length durable (fdatasync). After a failure their state is unknown: the
    /// caller must not retry as if it had worked.
    fn sync_data(&self) -> Result<(), DiskError>;
    /// The length in bytes.
    fn len(&self) -> Result<u64, DiskError>;
    /// The first offset from `offset` on that may hold a nonzero byte: all bytes before it are zeros. `None` if there
    /// are only zeros up to the end, or `offset` lies after it. A file system that knows its holes answers without
    /// reading them.
    fn next_data(&self, offset: u64) -> Result<Option<u64>, DiskError> {
        Ok((offset < self.len()?).then_some(offset))
    }
    /// Truncates, or extends with zeros, to `len` bytes.
    fn set_len(&self, len: u64) -> Result<(), DiskError>;
    /// Reserves space for `offset..offset + len` without changing the length (fallocate KEEP_SIZE). Does nothing if the
    /// file system cannot.
    fn allocate(&self, offset: u64, len: u64) -> Result<(), DiskError>;
    /// Whether reads and writes bypass the page cache.
    fn is_direct(&self) -> bool;
    /// Tells the kernel that the cached pages of the range are not needed (best effort).
    fn drop_cache(&self, offset: u64, len: u64);
}
