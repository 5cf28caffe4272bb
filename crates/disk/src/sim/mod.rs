//! The simulated disk.

use std::sync::Arc;

use rand::RngCore;

use crate::{Disk, DiskError, DiskFile, DiskOp, Entry, OpenOptions, Space};

/// How a crash treats what was not synced: weights of the fates of one unsynced write, and chances of others.
/// The fates are drawn per write and per name, in any order.
#[derive(Clone, Copy, Debug)]
pub struct CrashFaults {
    /// Weight: the write is there as it was made.
    pub kept: u32,
    /// Weight: it never happened.
    pub lost: u32,
    /// Weight: some of its 512-byte sectors are there.
    pub torn: u32,
    /// Weight: its length is there, its bytes are zeros (only where nothing durable was before: that is what a
    /// journaling file system shows; sectors with durable bytes keep the old ones).
    pub zeroed: u32,
    /// Chance in percent that an unsynced change of a length or of a name is there.
    pub metadata_kept: u32,
}

impl CrashFaults {
    /// Everything can happen.
    #[must_use]
    pub fn mixed() -> Self {
        Self { kept: 4, lost: 3, torn: 2, zeroed: 1, metadata_kept: 50 }
    }
    /// All that was not synced is gone.
    #[must_use]
    pub fn all_lost() -> Self {
        Self { kept: 0, lost: 1, torn: 0, zeroed: 0, metadata_kept: 0 }
    }
}

/// Which faults really hit in a crash: counts of writes or of names whose state after the crash differs from what the
/// program saw.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct CrashReport {
    /// Unsynced writes that are there.
    pub kept: u64,
    /// Unsynced writes that are gone.
    pub lost: u64,
    /// Unsynced writes that are there in part.
    pub torn: u64,
    /// Unsynced writes that read as zeros.
    pub zeroed: u64,
    /// Writes that are there while an earlier one of the same file is not.
    pub reordered: u64,
    /// Unsynced lengths that are gone.
    pub lengths_lost: u64,
    /// Unsynced names (made, removed, renamed) that are there.
    pub names_kept: u64,
    /// Unsynced names (made, removed, renamed) that are undone.
    pub names_lost: u64,
}

impl CrashReport {
    /// Adds another crash's counts.
    pub fn add(&mut self, other: &CrashReport) {
        self.kept += other.kept;
        self.lost += other.lost;
        self.torn += other.torn;
        self.zeroed += other.zeroed;
        self.reordered += other.reordered;
        self.lengths_lost += other.lengths_lost;
        self.names_kept += other.names_kept;
        self.names_lost += other.names_lost;
    }
}

/// A disk in memory. Clones are the same disk.
#[derive(Clone)]
pub struct SimDisk {}

impl SimDisk {
    /// An empty disk with plenty of space. `seed` decides what a failed write or sync leaves behind.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let _ = seed;
        todo!()
    }
    /// The disk as it may be found after a power failure now. This one stays as it is: one moment gives many images.
    pub fn crash(&self, rng: &mut dyn RngCore, faults: CrashFaults) -> (SimDisk, CrashReport) {
        let _ = (rng, faults);
        todo!()
    }
    /// The disk as it is after SIGKILL now: all completed writes are there, and still not synced.
    #[must_use]
    pub fn kill(&self) -> SimDisk {
        todo!()
    }
    /// The `nth` next call (1: the very next) of `op` fails with `errno`'s error. A failed write may have reached the
    /// disk in part; after a failed sync each unsynced write of the file is lost or kept, and the next sync succeeds.
    pub fn fail_next(&self, op: DiskOp, nth: u64, errno: std::io::ErrorKind) {
        let _ = (op, nth, errno);
        todo!()
    }
    /// Sets the free bytes; writes and allocations beyond that fail with `StorageFull`.
    pub fn set_free(&self, bytes: u64) {
        let _ = bytes;
        todo!()
    }
    /// Flips one bit of the byte at `offset`, in what is durable and in what is read. False if there is no such byte.
    pub fn rot(&self, path: &str, offset: u64) -> bool {
        let _ = (path, offset);
        todo!()
    }
    /// Syncs of files and of folders so far, failed ones included.
    #[must_use]
    pub fn sync_count(&self) -> u64 {
        todo!()
    }
    /// Syncs of files alone so far, failed ones included.
    #[must_use]
    pub fn data_sync_count(&self) -> u64 {
        todo!()
    }
}

impl Disk for SimDisk {
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
