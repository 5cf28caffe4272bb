//! The free-space floor: new data is refused before the file system is really full.

use std::sync::atomic::{AtomicU64, Ordering};

use disk::Disk;

use crate::{Space, StoreConfig, StoreError};

/// Bytes that may be written between two checks of the file system.
const LOOK_AFTER: u64 = 64 << 20;

/// The known free space, so that not every write asks the file system.
pub(crate) struct Floor {
    configured: Option<u64>,
    floor: AtomicU64,
    free: AtomicU64,
    /// Bytes written since the last check.
    since: AtomicU64,
}

impl Floor {
    pub(crate) fn new(config: &StoreConfig) -> Self {
        let (floor, free, since) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(u64::MAX / 2));
        Self { configured: config.floor, floor, free, since }
    }

    /// Asks the file system.
    pub(crate) fn look(&self, disk: &dyn Disk) -> Result<Space, StoreError> {
        let space = disk.space()?;
        let floor = self.configured.unwrap_or_else(|| (space.total / 20).min(1 << 30));
        self.floor.store(floor, Ordering::Relaxed);
        self.free.store(space.free, Ordering::Relaxed);
        self.since.store(0, Ordering::Relaxed);
        Ok(Space { total: space.total, free: space.free, floor, floor_reached: space.free < floor })
    }

    /// Fails if `len` more bytes would go below the floor.
    pub(crate) fn check(&self, disk: &dyn Disk, len: u64) -> Result<(), StoreError> {
        let left = |len: u64| {
            let used = self.since.load(Ordering::Relaxed).saturating_add(len);
            self.free.load(Ordering::Relaxed).saturating_sub(used) >= self.floor.load(Ordering::Relaxed)
        };
        if self.since.load(Ordering::Relaxed) >= LOOK_AFTER || !left(len) {
            self.look(disk)?;
            if !left(len) {
                return Err(self.no_space());
            }
        }
        self.since.fetch_add(len, Ordering::Relaxed);
        Ok(())
    }

    /// The error after the file system itself had no space, although it had enough at the last check.
    pub(crate) fn no_space_after_all(&self, disk: &dyn Disk) -> StoreError {
        // Without an answer, the numbers are those of the last check.
        let _ = self.look(disk);
        self.no_space()
    }

    /// The error, with numbers.
    fn no_space(&self) -> StoreError {
        StoreError::NoSpace { free: self.free.load(Ordering::Relaxed), floor: self.floor.load(Ordering::Relaxed) }
    }
}
