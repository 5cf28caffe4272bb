//! The real disk with an observer that hears of each call before it is made.

use std::io::IoSliceMut;
use std::sync::Arc;

use disk::{Disk, DiskError, DiskFile, DiskOp, Entry, OpenOptions, Space};

/// Hears of a call, on the thread that makes it.
pub type Watch = Arc<dyn Fn(DiskOp) + Send + Sync>;

/// The observed disk.
pub struct Watched {
    /// The disk that does the work.
    pub inner: Arc<dyn Disk>,
    /// The observer.
    pub watch: Watch,
}

struct WatchedFile {
    inner: Arc<dyn DiskFile>,
    watch: Watch,
}

impl Disk for Watched {
    fn open(&self, path: &str, options: OpenOptions) -> Result<Arc<dyn DiskFile>, DiskError> {
        (self.watch)(DiskOp::Open);
        let inner = self.inner.open(path, options)?;
        Ok(Arc::new(WatchedFile { inner, watch: Arc::clone(&self.watch) }))
    }
    fn remove(&self, path: &str) -> Result<(), DiskError> {
        (self.watch)(DiskOp::Remove);
        self.inner.remove(path)
    }
    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        (self.watch)(DiskOp::Rename);
        self.inner.rename(from, to)
    }
    fn create_dir_all(&self, path: &str) -> Result<(), DiskError> {
        (self.watch)(DiskOp::CreateDir);
        self.inner.create_dir_all(path)
    }
    fn sync_dir(&self, path: &str) -> Result<(), DiskError> {
        (self.watch)(DiskOp::SyncDir);
        self.inner.sync_dir(path)
    }
    fn list(&self, path: &str) -> Result<Vec<Entry>, DiskError> {
        (self.watch)(DiskOp::List);
        self.inner.list(path)
    }
    fn len_of(&self, path: &str) -> Result<Option<u64>, DiskError> {
        self.inner.len_of(path)
    }
    fn space(&self) -> Result<Space, DiskError> {
        (self.watch)(DiskOp::Space);
        self.inner.space()
    }
}

impl DiskFile for WatchedFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize, DiskError> {
        (self.watch)(DiskOp::Read);
        self.inner.read_at(buf, offset)
    }
    fn read_vectored_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize, DiskError> {
        (self.watch)(DiskOp::Read);
        self.inner.read_vectored_at(bufs, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<(), DiskError> {
        (self.watch)(DiskOp::Write);
        self.inner.write_at(buf, offset)
    }
    fn sync_data(&self) -> Result<(), DiskError> {
        (self.watch)(DiskOp::Sync);
        self.inner.sync_data()
    }
    fn len(&self) -> Result<u64, DiskError> {
        self.inner.len()
    }
    fn next_data(&self, offset: u64) -> Result<Option<u64>, DiskError> {
        self.inner.next_data(offset)
    }
    fn set_len(&self, len: u64) -> Result<(), DiskError> {
        (self.watch)(DiskOp::SetLen);
        self.inner.set_len(len)
    }
    fn allocate(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        (self.watch)(DiskOp::Allocate);
        self.inner.allocate(offset, len)
    }
    fn is_direct(&self) -> bool {
        self.inner.is_direct()
    }
    fn drop_cache(&self, offset: u64, len: u64) {
        self.inner.drop_cache(offset, len);
    }
}
