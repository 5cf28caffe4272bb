//! Space held back, so that a full disk can still take deletes.

use std::sync::Arc;

use disk::Disk;

use crate::JournalError;
use crate::files::{Pace, make};

/// A file that only takes up space. When the disk is full it is given back, and there is room for the log of deletes.
pub struct Ballast {
    disk: Arc<dyn Disk>,
    path: String,
}

impl Ballast {
    /// The ballast in the file `path`. Does nothing yet.
    #[must_use]
    pub fn new(disk: Arc<dyn Disk>, path: &str) -> Self {
        Self { disk, path: path.to_owned() }
    }

    /// Makes the file hold `bytes` of real space (made anew if its length differs).
    ///
    /// # Errors
    /// `NoSpace`: there is less than that free; there is no ballast then.
    pub fn ensure(&self, bytes: u64) -> Result<(), JournalError> {
        if self.held()? == bytes {
            return Ok(());
        }
        self.release()?;
        let dir = self.path.rsplit_once('/').map_or("", |(dir, _)| dir);
        make(&*self.disk, dir, &self.path, bytes, true, &|| Pace::Now)?;
        Ok(())
    }

    /// Gives the space back. True: there was some.
    pub fn release(&self) -> Result<bool, JournalError> {
        if self.disk.len_of(&self.path)?.is_none() {
            return Ok(false);
        }
        self.disk.remove(&self.path)?;
        let dir = self.path.rsplit_once('/').map_or("", |(dir, _)| dir);
        self.disk.sync_dir(dir)?;
        Ok(true)
    }

    /// Bytes held now.
    pub fn held(&self) -> Result<u64, JournalError> {
        Ok(self.disk.len_of(&self.path)?.unwrap_or(0))
    }
}
