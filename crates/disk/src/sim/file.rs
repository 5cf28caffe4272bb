//! An open file of the simulated disk.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use rand::Rng;

use super::call_planned;
use super::image::{PAGE, SECTOR};
use super::names::NodeId;
use super::world::World;
use crate::{ALIGNMENT, Access, DiskError, DiskFile, DiskOp, OpenOptions};

pub(super) struct SimFile {
    world: Arc<Mutex<World>>,
    node: NodeId,
    path: String,
    options: OpenOptions,
}

impl SimFile {
    pub(super) fn new(world: Arc<Mutex<World>>, node: NodeId, path: &str, options: OpenOptions) -> Self {
        Self { world, node, path: path.to_owned(), options }
    }

    fn error(&self, op: DiskOp, kind: io::ErrorKind) -> DiskError {
        DiskError { op, path: self.path.clone(), source: io::Error::from(kind) }
    }

    fn eio(&self, op: DiskOp) -> DiskError {
        let source = io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error());
        DiskError { op, path: self.path.clone(), source }
    }

    fn begin(&self, world: &mut World, op: DiskOp) -> Result<(), DiskError> {
        match world.planned_failure(op, &self.path) {
            Some(kind) => Err(self.error(op, kind)),
            None => Ok(()),
        }
    }

    /// Checks the rules of O_DIRECT; the real disk returns EINVAL.
    fn check_alignment(&self, op: DiskOp, buf: &[u8], offset: u64) -> Result<(), DiskError> {
        let aligned = (buf.as_ptr() as usize).is_multiple_of(ALIGNMENT)
            && buf.len().is_multiple_of(ALIGNMENT)
            && offset.is_multiple_of(ALIGNMENT as u64);
        if self.options.direct && !aligned {
            return Err(self.error(op, io::ErrorKind::InvalidInput));
        }
        Ok(())
    }

    fn check_writable(&self, op: DiskOp) -> Result<(), DiskError> {
        if self.options.access == Access::Read {
            return Err(DiskError {
                op,
                path: self.path.clone(),
                source: io::Error::from_raw_os_error(rustix::io::Errno::BADF.raw_os_error()),
            });
        }
        Ok(())
    }

    fn read_locked(&self, world: &mut World, buf: &mut [u8], offset: u64) -> Result<usize, DiskError> {
        let file = world.file(DiskOp::Read, &self.path, self.node)?;
        let pages = offset / PAGE..(offset + buf.len() as u64).div_ceil(PAGE);
        if file.unreadable.range(pages).next().is_some() {
            return Err(self.eio(DiskOp::Read));
        }
        if self.options.direct && file.diverged {
            return Ok(file.device_view().read(offset, buf));
        }
        Ok(file.current.read(offset, buf))
    }
}

impl DiskFile for SimFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize, DiskError> {
        self.check_alignment(DiskOp::Read, buf, offset)?;
        call_planned(&self.world, DiskOp::Read);
        let world = &mut *self.world.lock();
        self.begin(world, DiskOp::Read)?;
        self.read_locked(world, buf, offset)
    }

    fn read_vectored_at(&self, bufs: &mut [io::IoSliceMut<'_>], offset: u64) -> Result<usize, DiskError> {
        for buf in bufs.iter() {
            self.check_alignment(DiskOp::Read, buf, offset)?;
        }
        call_planned(&self.world, DiskOp::Read);
        let world = &mut *self.world.lock();
        self.begin(world, DiskOp::Read)?;
        let mut done = 0;
        for buf in bufs {
            let n = self.read_locked(world, buf, offset + done as u64)?;
            done += n;
            if n < buf.len() {
                break;
            }
        }
        Ok(done)
    }

    fn next_data(&self, offset: u64) -> Result<Option<u64>, DiskError> {
        let world = &mut *self.world.lock();
        let file = world.file(DiskOp::Read, &self.path, self.node)?;
        // Unreadable pages may hold data, and so may pages that the device has not yet received.
        let unreadable = file.unreadable.range(offset / PAGE..).next().map(|page| (page * PAGE).max(offset));
        let device = if file.diverged { file.device_view().next_data(offset) } else { None };
        Ok([file.current.next_data(offset), unreadable, device].into_iter().flatten().min())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<(), DiskError> {
        self.check_writable(DiskOp::Write)?;
        self.check_alignment(DiskOp::Write, buf, offset)?;
        call_planned(&self.world, DiskOp::Write);
        let world = &mut *self.world.lock();
        if let Err(failure) = self.begin(world, DiskOp::Write) {
            // Some whole sectors from its start may be written.
            let sectors = (buf.len() as u64).div_ceil(SECTOR);
            let part = usize::try_from(world.rng.random_range(0..=sectors) * SECTOR).unwrap_or(0).min(buf.len());
            if part > 0 {
                world.file(DiskOp::Write, &self.path, self.node)?.write(offset, &buf[..part]);
                world.changed();
            }
            return Err(failure);
        }
        let free = world.free / PAGE;
        let file = world.file(DiskOp::Write, &self.path, self.node)?;
        let end = offset + buf.len() as u64;
        let in_part = |page: &u64| offset > page * PAGE || end < (page + 1) * PAGE;
        if file.unreadable.range(offset / PAGE..end.div_ceil(PAGE)).any(in_part) {
            return Err(self.eio(DiskOp::Write)); // the rest of the page must be read first
        }
        file.unreadable.retain(|page| !(offset / PAGE..end.div_ceil(PAGE)).contains(page));
        let mut taken = 0;
        let mut fits = buf.len();
        for page in offset / PAGE..end.div_ceil(PAGE) {
            if !file.current.has_page(page) && !file.reserved.contains(&page) {
                if taken == free {
                    fits = usize::try_from((page * PAGE).saturating_sub(offset)).unwrap_or(0);
                    break;
                }
                taken += 1;
            }
        }
        if fits > 0 {
            file.write(offset, &buf[..fits]);
        }
        world.free -= taken * PAGE;
        world.changed();
        if fits < buf.len() {
            return Err(self.error(DiskOp::Write, io::ErrorKind::StorageFull));
        }
        Ok(())
    }

    fn sync_data(&self) -> Result<(), DiskError> {
        call_planned(&self.world, DiskOp::Sync);
        let world = &mut *self.world.lock();
        world.data_syncs += 1;
        if let Err(failure) = self.begin(world, DiskOp::Sync) {
            let mut rng = world.rng.clone();
            world.file(DiskOp::Sync, &self.path, self.node)?.fail_sync(&mut rng);
            world.rng = rng;
            world.changed();
            return Err(failure);
        }
        world.file(DiskOp::Sync, &self.path, self.node)?.sync();
        world.changed();
        Ok(())
    }

    fn len(&self) -> Result<u64, DiskError> {
        Ok(self.world.lock().file(DiskOp::Open, &self.path, self.node)?.current.len())
    }

    fn set_len(&self, len: u64) -> Result<(), DiskError> {
        self.check_writable(DiskOp::SetLen)?;
        let world = &mut *self.world.lock();
        self.begin(world, DiskOp::SetLen)?;
        let file = world.file(DiskOp::SetLen, &self.path, self.node)?;
        let before = file.pages();
        file.current.set_len(len);
        file.reserved.split_off(&len.div_ceil(PAGE));
        file.changes.push(super::inode::Change::SetLen(len));
        let given_back = before - file.pages();
        world.free += given_back * PAGE;
        world.changed();
        Ok(())
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        self.check_writable(DiskOp::Allocate)?;
        let world = &mut *self.world.lock();
        self.begin(world, DiskOp::Allocate)?;
        let free = world.free / PAGE;
        let file = world.file(DiskOp::Allocate, &self.path, self.node)?;
        let new: Vec<u64> = (offset / PAGE..(offset + len).div_ceil(PAGE))
            .filter(|page| !file.current.has_page(*page) && !file.reserved.contains(page))
            .collect();
        let taken = new.len() as u64;
        if taken > free {
            return Err(self.error(DiskOp::Allocate, io::ErrorKind::StorageFull));
        }
        file.reserved.extend(new);
        world.free -= taken * PAGE;
        world.changed();
        Ok(())
    }

    fn is_direct(&self) -> bool {
        self.options.direct
    }

    fn drop_cache(&self, _offset: u64, _len: u64) {
        let world = &mut *self.world.lock();
        if !world.refuses_direct
            && let Ok(file) = world.file(DiskOp::Read, &self.path, self.node)
            && file.diverged
        {
            file.current = file.device_view();
            file.diverged = false;
        }
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        self.world.lock().close(self.node);
    }
}
