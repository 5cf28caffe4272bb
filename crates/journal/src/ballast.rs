//! Space that the journal holds back, so that a full disk can still record deletions.

use std::sync::Arc;

use disk::Disk;

use crate::JournalError;
use crate::files::{Pace, make};

/// A file that only occupies space. When the disk is full, the journal gives it up and has room to record deletions.
pub struct Ballast {
    disk: Arc<dyn Disk>,
    path: String,
}

impl Ballast {
    /// Names the ballast file. `path` is relative to the disk's root. Touches nothing on the disk.
    #[must_use]
    pub fn new(disk: Arc<dyn Disk>, path: &str) -> Self {
        Self { disk, path: path.to_owned() }
    }

    /// Makes the file occupy `bytes` of real space. A file of another length is replaced.
    ///
    /// # Errors
    /// `NoSpace`: less than `bytes` are free. No ballast is left then.
    pub fn ensure(&self, bytes: u64) -> Result<(), JournalError> {
        if self.held()? == bytes {
            return Ok(());
        }
        self.release()?;
        let dir = self.path.rsplit_once('/').map_or("", |(dir, _)| dir);
        make(&*self.disk, dir, &self.path, bytes, true, &|| Pace::Now)?;
        Ok(())
    }

    /// Removes the file. Returns whether it existed.
    pub fn release(&self) -> Result<bool, JournalError> {
        if self.disk.len_of(&self.path)?.is_none() {
            return Ok(false);
        }
        self.disk.remove(&self.path)?;
        let dir = self.path.rsplit_once('/').map_or("", |(dir, _)| dir);
        self.disk.sync_dir(dir)?;
        Ok(true)
    }

    /// Bytes that the file occupies now.
    pub fn held(&self) -> Result<u64, JournalError> {
        Ok(self.disk.len_of(&self.path)?.unwrap_or(0))
    }
}
