//! The simulated disk: a small file system in memory that remembers unsynced changes.
//!
//! It assumes this of real disks: a sector of 512 bytes is written completely or not at all; an overwrite shows old or
//! new sectors; a part of a file that was never durable may show zeros; a rename is atomic; changes of one name keep
//! their order. It assumes no order between writes, between files, between names, or between names and bytes.

mod faults;
mod file;
mod image;
mod inode;
mod names;
mod world;

use std::sync::Arc;

use parking_lot::Mutex;
use rand::RngCore;

pub use faults::{CrashFaults, CrashReport};
use world::World;

use crate::{Disk, DiskError, DiskFile, DiskOp, Entry, OpenOptions, Space};

/// A disk in memory. Clones are the same disk.
#[derive(Clone)]
pub struct SimDisk {
    world: Arc<Mutex<World>>,
}

impl SimDisk {
    /// An empty disk with plenty of space. `seed` decides the effects of a failed write or sync.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self::around(World::new(seed))
    }

    fn around(world: World) -> Self {
        Self { world: Arc::new(Mutex::new(world)) }
    }

    /// A possible state of the disk after a power failure now. This disk does not change: one moment gives many images.
    pub fn crash(&self, rng: &mut dyn RngCore, faults: CrashFaults) -> (SimDisk, CrashReport) {
        let mut report = CrashReport::default();
        let world = self.world.lock().after_crash(rng, faults, &mut report);
        (Self::around(world), report)
    }

    /// The disk after SIGKILL now: all completed writes exist, still unsynced.
    #[must_use]
    pub fn kill(&self) -> SimDisk {
        Self::around(self.world.lock().after_kill())
    }

    /// Makes the `nth` next call (1: the very next) of `op` fail with an error of this kind. A failed write may reach
    /// the disk in part. After a failed sync each unsynced write of the file is lost or kept, and the next sync
    /// succeeds.
    pub fn fail_next(&self, op: DiskOp, nth: u64, kind: std::io::ErrorKind) {
        self.fail_next_under(op, "", nth, kind);
    }

    /// Like [`SimDisk::fail_next`], but counts only calls whose path begins with `under`.
    pub fn fail_next_under(&self, op: DiskOp, under: &str, nth: u64, kind: std::io::ErrorKind) {
        self.world.lock().fail_next(op, under, nth, kind);
    }

    /// Runs `call` at the beginning of the `nth` next call (1: the very next) of `op`; no lock is held meanwhile. A
    /// test can thus act or panic in the middle of another call. Works for reads, writes, syncs (of files and
    /// directories) and the making of files.
    pub fn call_next(&self, op: DiskOp, nth: u64, call: impl FnOnce() + Send + 'static) {
        self.world.lock().call_next(op, nth, Box::new(call));
    }

    /// Makes the page (4096 bytes) at `offset` unreadable: reads return EIO until the whole page is rewritten. Returns
    /// false if there is no such file.
    pub fn make_unreadable(&self, path: &str, offset: u64) -> bool {
        self.world.lock().make_unreadable(path, offset)
    }

    /// Sets the free bytes. Writes and allocations beyond them fail with `StorageFull`.
    pub fn set_free(&self, bytes: u64) {
        self.world.lock().free = bytes;
    }

    /// From now on, files open without direct I/O, as on file systems that lack it, and data stays in the page cache.
    /// After a failed sync, reads may differ from the device.
    pub fn refuse_direct(&self) {
        self.world.lock().refuses_direct = true;
    }

    /// Flips one bit of the byte at `offset`, in the durable and in the current state. Returns false if there is no
    /// such byte.
    pub fn rot(&self, path: &str, offset: u64) -> bool {
        self.world.lock().rot(path, offset)
    }

    /// Number of syncs of files and directories, including failed ones.
    #[must_use]
    pub fn sync_count(&self) -> u64 {
        let world = self.world.lock();
        world.data_syncs + world.dir_syncs
    }

    /// Number of syncs of files, including failed ones.
    #[must_use]
    pub fn data_sync_count(&self) -> u64 {
        self.world.lock().data_syncs
    }

    /// Number of calls that changed something (writes, syncs, names, lengths).
    #[must_use]
    pub fn change_count(&self) -> u64 {
        self.world.lock().changes
    }

    /// Copies the disk right after `changes` more changing calls (0: now), while everything continues; see
    /// [`SimDisk::frozen`]. A test can thus place a crash in the middle of another call.
    pub fn freeze_after(&self, changes: u64) {
        self.world.lock().freeze_after(changes);
    }

    /// The copy that [`SimDisk::freeze_after`] made, once it exists; crash or kill it.
    #[must_use]
    pub fn frozen(&self) -> Option<SimDisk> {
        self.world.lock().frozen.take().map(|world| Self::around(*world))
    }
}

fn call_planned(world: &Mutex<World>, op: DiskOp) {
    let call = world.lock().planned_call(op);
    if let Some(call) = call {
        call();
    }
}

impl Disk for SimDisk {
    fn open(&self, path: &str, options: OpenOptions) -> Result<Arc<dyn DiskFile>, DiskError> {
        if options.access == crate::Access::CreateNew {
            call_planned(&self.world, DiskOp::Create);
        }
        let mut world = self.world.lock();
        let options = OpenOptions { direct: options.direct && !world.refuses_direct, ..options };
        let node = world.open(path, options)?;
        drop(world);
        Ok(Arc::new(file::SimFile::new(Arc::clone(&self.world), node, path, options)))
    }
    fn remove(&self, path: &str) -> Result<(), DiskError> {
        self.world.lock().remove(path)
    }
    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        self.world.lock().rename(from, to)
    }
    fn create_dir_all(&self, path: &str) -> Result<(), DiskError> {
        self.world.lock().create_dir_all(path)
    }
    fn sync_dir(&self, path: &str) -> Result<(), DiskError> {
        call_planned(&self.world, DiskOp::SyncDir);
        self.world.lock().sync_dir(path)
    }
    fn list(&self, path: &str) -> Result<Vec<Entry>, DiskError> {
        self.world.lock().list(path)
    }
    fn len_of(&self, path: &str) -> Result<Option<u64>, DiskError> {
        self.world.lock().len_of(path)
    }
    fn space(&self) -> Result<Space, DiskError> {
        self.world.lock().space()
    }
}
