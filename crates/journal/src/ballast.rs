//! Space held back, so that a full disk can still take deletes.

use std::sync::Arc;

use disk::Disk;

use crate::JournalError;

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

    /// Makes the file hold `bytes` of real space (made anew if its length differs). `NoSpace` leaves none behind.
    pub fn ensure(&self, bytes: u64) -> Result<(), JournalError> {
        let _ = (&self.disk, &self.path, bytes);
        todo!()
    }

    /// Gives the space back. True: there was some.
    pub fn release(&self) -> Result<bool, JournalError> {
        todo!()
    }

    /// Bytes held now.
    pub fn held(&self) -> Result<u64, JournalError> {
        todo!()
    }
}
