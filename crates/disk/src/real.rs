//! The real disk: system calls below one root directory.

use std::fs::File;
use std::io;
use std::num::NonZero;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{Advice, AtFlags, FallocateFlags, Mode, OFlags, SeekFrom};
use rustix::io::{Errno, ReadWriteFlags};

use crate::{Access, Directory, Disk, DiskError, DiskFile, DiskOp, Entry, Fetched, OpenOptions, Space};

/// A directory on a local file system, used through system calls. Paths are resolved below the open directory and the
/// parts that it keeps ([`Directory::keep`]), even if these were renamed or a disk was mounted over them meanwhile.
#[derive(Debug)]
pub struct RealDisk {
    root: Arc<Directory>,
}

fn failed(op: DiskOp, path: &str, errno: Errno) -> DiskError {
    DiskError { op, path: path.to_owned(), source: io::Error::from(errno) }
}

/// Bytes of one announcement to the kernel, which every disk takes as one request.
const WILL_READ_STEP: u64 = 128 << 10;

/// The most buffers of one call; a call with more would fail.
const IOV_MAX: usize = 1024;

impl RealDisk {
    /// Opens the directory `root`, which must exist.
    pub fn open(root: &Path) -> Result<RealDisk, DiskError> {
        Ok(Self::on(Arc::new(Directory::open(root)?)))
    }

    /// The disk in the open directory `root`.
    #[must_use]
    pub fn on(root: Arc<Directory>) -> RealDisk {
        Self { root }
    }

    /// The open directory.
    #[must_use]
    pub fn root(&self) -> &Arc<Directory> {
        &self.root
    }

    fn openat(&self, op: DiskOp, path: &str, flags: OFlags) -> Result<File, Errno> {
        let mode = if op == DiskOp::Create { Mode::from_raw_mode(0o640) } else { Mode::empty() };
        let (from, rest) = self.root.resolve(path);
        rustix::io::retry_on_intr(|| rustix::fs::openat(from, rest, flags | OFlags::CLOEXEC, mode)).map(File::from)
    }

    fn open_dir(&self, op: DiskOp, path: &str) -> Result<File, DiskError> {
        self.openat(op, path, OFlags::DIRECTORY | OFlags::RDONLY).map_err(|e| failed(op, path, e))
    }
}

impl Disk for RealDisk {
    fn open(&self, path: &str, options: OpenOptions) -> Result<Arc<dyn DiskFile>, DiskError> {
        let (op, flags) = match options.access {
            Access::Read => (DiskOp::Open, OFlags::RDONLY),
            Access::ReadWrite => (DiskOp::Open, OFlags::RDWR),
            Access::CreateNew => (DiskOp::Create, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL),
        };
        let mut direct = options.direct;
        let file = if direct {
            match self.openat(op, path, flags | OFlags::DIRECT) {
                // The file system has no direct I/O (tmpfs before Linux 6.6, some network ones). The failed call may
                // still have made the file, and EXCL would then reject our own file.
                Err(Errno::INVAL) => {
                    direct = false;
                    let made = flags.contains(OFlags::CREATE) && self.openat(op, path, OFlags::RDWR).is_ok();
                    let flags = if made { OFlags::RDWR } else { flags };
                    self.openat(op, path, flags)
                }
                other => other,
            }
        } else {
            self.openat(op, path, flags)
        };
        let file = file.map_err(|e| failed(op, path, e))?;
        if file.metadata().map_err(|source| DiskError { op, path: path.to_owned(), source })?.is_dir() {
            return Err(failed(op, path, Errno::ISDIR));
        }
        Ok(Arc::new(RealFile { file, path: path.to_owned(), direct }))
    }

    fn remove(&self, path: &str) -> Result<(), DiskError> {
        let (from, rest) = self.root.resolve(path);
        rustix::fs::unlinkat(from, rest, AtFlags::empty()).map_err(|e| failed(DiskOp::Remove, path, e))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        let ((old, old_rest), (new, new_rest)) = (self.root.resolve(from), self.root.resolve(to));
        rustix::fs::renameat(old, old_rest, new, new_rest).map_err(|e| failed(DiskOp::Rename, from, e))
    }

    fn create_dir_all(&self, path: &str) -> Result<(), DiskError> {
        let mut end = 0;
        for part in path.split('/') {
            end += part.len();
            if !part.is_empty() {
                let so_far = &path[..end];
                let (from, rest) = self.root.resolve(so_far);
                match rustix::fs::mkdirat(from, rest, Mode::from_raw_mode(0o750)) {
                    Ok(()) => {}
                    Err(Errno::EXIST) => drop(self.open_dir(DiskOp::CreateDir, so_far)?),
                    Err(e) => return Err(failed(DiskOp::CreateDir, path, e)),
                }
            }
            end += 1;
        }
        Ok(())
    }

    fn sync_dir(&self, path: &str) -> Result<(), DiskError> {
        let dir = self.open_dir(DiskOp::SyncDir, path)?;
        rustix::fs::fsync(&dir).map_err(|e| failed(DiskOp::SyncDir, path, e))
    }

    fn list(&self, path: &str) -> Result<Vec<Entry>, DiskError> {
        let failed = |e| failed(DiskOp::List, path, e);
        let dir = self.open_dir(DiskOp::List, path)?;
        let mut entries = Vec::new();
        for entry in rustix::fs::Dir::read_from(&dir).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name == "." || name == ".." {
                continue;
            }
            let is_dir = match entry.file_type() {
                rustix::fs::FileType::Unknown => {
                    let stat =
                        rustix::fs::statat(&dir, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
                    rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir()
                }
                known => known.is_dir(),
            };
            entries.push(Entry { name, is_dir });
        }
        entries.sort();
        Ok(entries)
    }

    fn len_of(&self, path: &str) -> Result<Option<u64>, DiskError> {
        let (from, rest) = self.root.resolve(path);
        match rustix::fs::statat(from, rest, AtFlags::empty()) {
            Ok(stat) if rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir() => {
                Err(failed(DiskOp::Open, path, Errno::ISDIR))
            }
            Ok(stat) => Ok(Some(u64::try_from(stat.st_size).unwrap_or(0))),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(failed(DiskOp::Open, path, e)),
        }
    }

    fn space(&self) -> Result<Space, DiskError> {
        let stat = rustix::fs::fstatvfs(&self.root).map_err(|e| failed(DiskOp::Space, "", e))?;
        Ok(Space { total: stat.f_blocks * stat.f_frsize, free: stat.f_bavail * stat.f_frsize })
    }
}

struct RealFile {
    file: File,
    path: String,
    direct: bool,
}

impl RealFile {
    fn failed(&self, op: DiskOp, errno: Errno) -> DiskError {
        failed(op, &self.path, errno)
    }

    /// Reads what is missing after the first `done` bytes of `bufs`. The caller's slices stay as they are.
    fn read_rest(&self, bufs: &mut [io::IoSliceMut<'_>], mut done: usize, offset: u64) -> Result<usize, DiskError> {
        let mut own: Vec<io::IoSliceMut<'_>> = bufs.iter_mut().map(|buf| io::IoSliceMut::new(buf)).collect();
        let mut rest = own.as_mut_slice();
        io::IoSliceMut::advance_slices(&mut rest, done);
        while !rest.is_empty() {
            let now = rest.len().min(IOV_MAX);
            match rustix::io::preadv(&self.file, &mut rest[..now], offset + done as u64) {
                Ok(0) if rest[..now].iter().all(|b| b.is_empty()) => rest = &mut rest[now..],
                Ok(0) => break,
                Ok(n) => {
                    done += n;
                    io::IoSliceMut::advance_slices(&mut rest, n);
                    if self.direct && !n.is_multiple_of(crate::ALIGNMENT) {
                        break;
                    }
                }
                Err(Errno::INTR) => {}
                Err(e) => return Err(self.failed(DiskOp::Read, e)),
            }
        }
        Ok(done)
    }
}

impl DiskFile for RealFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize, DiskError> {
        let mut done = 0;
        while done < buf.len() {
            match rustix::io::pread(&self.file, &mut buf[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(n) => {
                    done += n;
                    // A direct read that ends at an unaligned offset has reached the end of the file. Another read from
                    // there would fail because of its alignment.
                    if self.direct && !n.is_multiple_of(crate::ALIGNMENT) {
                        break;
                    }
                }
                Err(Errno::INTR) => {}
                Err(e) => return Err(self.failed(DiskOp::Read, e)),
            }
        }
        Ok(done)
    }

    fn read_cached_at(&self, buf: &mut [u8], offset: u64) -> Result<Option<usize>, DiskError> {
        if self.direct {
            return Ok(None);
        }
        let mut done = 0;
        while done < buf.len() {
            let mut rest = [io::IoSliceMut::new(&mut buf[done..])];
            match rustix::io::preadv2(&self.file, &mut rest, offset + done as u64, ReadWriteFlags::NOWAIT) {
                // Some kernels say so before the end as well (preadv2(2), BUGS).
                Ok(0) if offset + (done as u64) < self.len()? => return Ok(None),
                Ok(0) => break,
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                // Not cached, or the file system cannot tell.
                Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS) => return Ok(None),
                Err(e) => return Err(self.failed(DiskOp::Read, e)),
            }
        }
        Ok(Some(done))
    }

    fn will_read(&self, offset: u64, len: u64) {
        if self.direct {
            return;
        }
        // The kernel reads no more of each call than the disk takes as one request.
        let mut at = offset;
        let end = offset.saturating_add(len);
        while at < end {
            let step = WILL_READ_STEP.min(end - at);
            let _ = rustix::fs::fadvise(&self.file, at, NonZero::new(step), Advice::WillNeed);
            at += step;
        }
    }

    fn read_vectored_at(&self, bufs: &mut [io::IoSliceMut<'_>], offset: u64) -> Result<usize, DiskError> {
        let wanted: usize = bufs.iter().map(|buf| buf.len()).sum();
        let first = bufs.len().min(IOV_MAX);
        let done = match rustix::io::preadv(&self.file, &mut bufs[..first], offset) {
            Ok(n) => n,
            Err(Errno::INTR) => 0,
            Err(e) => return Err(self.failed(DiskOp::Read, e)),
        };
        if done == wanted || (self.direct && !done.is_multiple_of(crate::ALIGNMENT)) {
            return Ok(done);
        }
        self.read_rest(bufs, done, offset)
    }

    fn fetch_vectored_at(&self, bufs: &mut [io::IoSliceMut<'_>], offset: u64) -> Result<Fetched, DiskError> {
        if self.direct || bufs.len() > IOV_MAX {
            return Ok(Fetched { bytes: self.read_vectored_at(bufs, offset)?, waited: false });
        }
        let wanted: usize = bufs.iter().map(|buf| buf.len()).sum();
        // This call also begins to read what is not cached, so that the next one waits no longer than it would alone.
        let cached = match rustix::io::preadv2(&self.file, bufs, offset, ReadWriteFlags::NOWAIT) {
            Ok(n) => n,
            Err(Errno::AGAIN) => 0,
            // The file system cannot tell, or a signal came.
            Err(_) => return Ok(Fetched { bytes: self.read_vectored_at(bufs, offset)?, waited: false }),
        };
        if cached == wanted {
            return Ok(Fetched { bytes: cached, waited: false });
        }
        let bytes = self.read_rest(bufs, cached, offset)?;
        Ok(Fetched { bytes, waited: bytes > cached })
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<(), DiskError> {
        let mut done = 0;
        while done < buf.len() {
            match rustix::io::pwrite(&self.file, &buf[done..], offset + done as u64) {
                Ok(0) => return Err(self.failed(DiskOp::Write, Errno::IO)),
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                Err(e) => return Err(self.failed(DiskOp::Write, e)),
            }
        }
        Ok(())
    }

    fn sync_data(&self) -> Result<(), DiskError> {
        // Not retried after EINTR: it is unspecified what a second call says about the pages of the first.
        rustix::fs::fdatasync(&self.file).map_err(|e| self.failed(DiskOp::Sync, e))
    }

    fn len(&self) -> Result<u64, DiskError> {
        let stat = rustix::fs::fstat(&self.file).map_err(|e| self.failed(DiskOp::Open, e))?;
        Ok(u64::try_from(stat.st_size).unwrap_or(0))
    }

    fn next_data(&self, offset: u64) -> Result<Option<u64>, DiskError> {
        // This moves the file's own position, which no code uses.
        match rustix::fs::seek(&self.file, SeekFrom::Data(offset)) {
            Ok(at) => Ok(Some(at)),
            Err(Errno::NXIO) => Ok(None),
            // The file system does not report holes.
            Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => Ok((offset < self.len()?).then_some(offset)),
            Err(e) => Err(self.failed(DiskOp::Read, e)),
        }
    }

    fn set_len(&self, len: u64) -> Result<(), DiskError> {
        rustix::io::retry_on_intr(|| rustix::fs::ftruncate(&self.file, len)).map_err(|e| self.failed(DiskOp::SetLen, e))
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        if len == 0 {
            return Ok(());
        }
        match rustix::io::retry_on_intr(|| rustix::fs::fallocate(&self.file, FallocateFlags::KEEP_SIZE, offset, len)) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            Err(e) => Err(self.failed(DiskOp::Allocate, e)),
        }
    }

    fn is_direct(&self) -> bool {
        self.direct
    }

    fn drop_cache(&self, offset: u64, len: u64) {
        // Best effort: nothing depends on it.
        let _ = rustix::fs::fadvise(&self.file, offset, NonZero::new(len), Advice::DontNeed);
    }
}
