//! The real disk: system calls under one root folder.

use std::path::Path;
use std::sync::Arc;

use crate::{Disk, DiskError, DiskFile, Entry, OpenOptions, Space};

/// A folder on a local file system, by system calls.
#[derive(Debug)]
pub struct RealDisk {}

impl RealDisk {
    /// Opens the folder `root`, which must exist.
    pub fn open(root: &Path) -> Result<RealDisk, DiskError> {
        let _ = root;
        todo!()
    }
}

impl Disk for RealDisk {
    fn open(&self, _path: &str, _options: OpenOptions) -> Result<Arc<dyn DiskFile>, DiskError> {
        todo!()
    }
    fn remove(&self, _path: &str) -> Result<(), DiskError> {
        todo!()
    }
    fn rename(&self, _from: &str, _to: &str) -> Result<(), DiskError> {
        todo!()
    }
    fn create_dir_all(&self, _path: &str) -> Result<(), DiskError> {
        todo!()
    }
    fn sync_dir(&self, _path: &str) -> Result<(), DiskError> {
        todo!()
    }
    fn list(&self, _path: &str) -> Result<Vec<Entry>, DiskError> {
        todo!()
    }
    fn len_of(&self, _path: &str) -> Result<Option<u64>, DiskError> {
        todo!()
    }
    fn space(&self) -> Result<Space, DiskError> {
        todo!()
    }
}
