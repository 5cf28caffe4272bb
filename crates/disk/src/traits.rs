//! The two traits that everything above is written against.

use std::sync::Arc;

use crate::DiskError;

/// How a file is to be opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Must exist; for reading.
    Read,
    /// Must exist; for reading and writing.
    ReadWrite,
    /// Must not exist; made, then open for reading and writing. Its name is durable after `sync_dir` of its folder.
    CreateNew,
}

/// Options of [`Disk::open`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenOptions {
    /// What it is opened for.
    pub access: Access,
    /// Past the page cache (`O_DIRECT`): buffers, offsets and lengths must then be multiples of 4096. Where the file
    /// system refuses direct I/O the file is opened without it; [`DiskFile::is_direct`] tells.
    pub direct: bool,
}

/// Sizes of the file system, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Space {
    /// In all.
    pub total: u64,
    /// Free for us.
    pub free: u64,
}

/// One name in a folder.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Entry {
    /// The name alone.
    pub name: String,
    /// Whether it is a folder.
    pub is_dir: bool,
}

/// A folder on a local file system.
pub trait Disk: Send + Sync {
    /// Opens or makes a file.
    fn open(&self, path: &str, options: OpenOptions) -> Result<Arc<dyn DiskFile>, DiskError>;
    /// Takes a name away; the bytes stay readable through open files. Durable after `sync_dir`.
    fn remove(&self, path: &str) -> Result<(), DiskError>;
    /// Renames, replacing what is there. Durable after `sync_dir` of both folders.
    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError>;
    /// Makes a folder and those above it; no error if it is there. Durable after `sync_dir` of the one above.
    fn create_dir_all(&self, path: &str) -> Result<(), DiskError>;
    /// Makes the names in a folder durable (`""` is the root).
    fn sync_dir(&self, path: &str) -> Result<(), DiskError>;
    /// The names in a folder, sorted.
    fn list(&self, path: &str) -> Result<Vec<Entry>, DiskError>;
    /// A file's length in bytes, or `None` where there is no such file.
    fn len_of(&self, path: &str) -> Result<Option<u64>, DiskError>;
    /// Sizes of the file system.
    fn space(&self) -> Result<Space, DiskError>;
}

#[allow(clippy::len_without_is_empty)] // a length that can fail has no use for is_empty
/// An open file. All calls are positional; several threads may use one.
pub trait DiskFile: Send + Sync {
    /// Reads up to `buf.len()` bytes at `offset`; fewer only at the end of the file. Returns how many.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize, DiskError>;
    /// Fills `bufs` one after the other from `offset` (preadv); fewer bytes only at the end of the file.
    fn read_vectored_at(&self, bufs: &mut [std::io::IoSliceMut<'_>], offset: u64) -> Result<usize, DiskError>;
    /// Writes all of `buf` at `offset`. When it returns, the bytes are in the kernel: SIGKILL cannot undo it, a
    /// power failure can until a sync.
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<(), DiskError>;
    /// Makes all completed writes and the length durable (fdatasync). After a failure nothing is known about them:
    /// the caller must not retry as if it had worked.
    fn sync_data(&self) -> Result<(), DiskError>;
    /// The length in bytes.
    fn len(&self) -> Result<u64, DiskError>;
    /// Where behind `offset` (or at it) something else than zeros may be: all bytes from `offset` up to there are zeros. `None`: there
    /// are only zeros up to the end, or `offset` lies behind it. A file system that knows its holes answers without reading them.
    fn next_data(&self, offset: u64) -> Result<Option<u64>, DiskError> {
        Ok((offset < self.len()?).then_some(offset))
    }
    /// Cuts or extends (with zeros).
    fn set_len(&self, len: u64) -> Result<(), DiskError>;
    /// Reserves space for `offset..offset + len` without changing the length (fallocate KEEP_SIZE). Where the file
    /// system cannot, does nothing.
    fn allocate(&self, offset: u64, len: u64) -> Result<(), DiskError>;
    /// Whether reads and writes go past the page cache.
    fn is_direct(&self) -> bool;
    /// Tells the kernel that the cached pages of the range will not be needed (best effort).
    fn drop_cache(&self, offset: u64, len: u64);
}
