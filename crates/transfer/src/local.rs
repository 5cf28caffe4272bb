//! Reads and writes local files, past the page cache where that costs less.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use client::Chunk;
use disk::AlignedBuf;
use rustix::fs::{FsWord, OFlags};
use rustix::io::ReadWriteFlags;
use types::Timestamp;

use crate::error::TransferError;
use crate::times;

/// Smaller files go through the page cache, because opening them twice would cost more than it saves.
const DIRECT_MIN: u64 = 32 << 20;
/// What direct I/O aligns to.
const ALIGNMENT: u64 = disk::ALIGNMENT as u64;
/// Offsets of a file to probe for presence in the page cache.
const PROBES: u64 = 16;

/// File systems that buffer bytes here and send them elsewhere at a close. The numbers are those of statfs(2) for NFS, FUSE, CIFS (three),
/// 9P, AFS (two), Ceph, Lustre, GPFS, BeeGFS, OrangeFS.
const TELL_AT_CLOSE: [FsWord; 13] = [
    0x6969,
    0x6573_5546,
    0x517B,
    0xFF53_4D42,
    0xFE53_4D42,
    0x0102_1997,
    0x5346_414F,
    0x6B41_4653,
    0x00C3_6400,
    0x0BD0_0BD3,
    0x4750_4653,
    0x1983_0326,
    0x2003_0528,
];

/// Whether to bypass the page cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direct {
    /// Where it pays: for large files, and for reading only if they are not in the page cache yet.
    Auto,
    /// For all files that are large enough to be worth it.
    Always,
    /// Never.
    Never,
}

fn flag(flags: OFlags) -> i32 {
    i32::try_from(flags.bits()).unwrap_or(0)
}

/// A local file, read sequentially from some offset.
#[derive(Debug)]
pub struct LocalSource {
    path: PathBuf,
    file: File,
    direct: bool,
    offset: u64,
    end: u64,
    mtime: Timestamp,
}

impl LocalSource {
    /// Opens `path` for reading from `from` on.
    pub fn open(path: &Path, from: u64, direct: Direct) -> Result<Self, TransferError> {
        let file = File::open(path).map_err(TransferError::local("open", path))?;
        let metadata = file.metadata().map_err(TransferError::local("stat", path))?;
        if metadata.is_dir() {
            return Err(TransferError::IsDirectory { path: path.display().to_string() });
        }
        if !metadata.is_file() {
            return Err(TransferError::NotAFile { path: path.display().to_string() });
        }
        let len = metadata.len();
        let pays = match direct {
            Direct::Never => false,
            Direct::Always => len >= DIRECT_MIN,
            Direct::Auto => len >= DIRECT_MIN && !is_cached(&file, len),
        };
        let reopened =
            pays.then(|| OpenOptions::new().read(true).custom_flags(flag(OFlags::DIRECT)).open(path).ok()).flatten();
        let direct = reopened.is_some() && from.is_multiple_of(ALIGNMENT);
        let file = reopened.filter(|_| direct).unwrap_or(file);
        if !direct {
            let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Sequential);
        }
        Ok(Self { path: path.to_owned(), file, direct, offset: from, end: len, mtime: times::of_local(&metadata) })
    }

    /// Its modification time at the open.
    #[must_use]
    pub fn mtime(&self) -> Timestamp {
        self.mtime
    }

    /// Its length at the open.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.end
    }

    /// Whether all of it was read.
    #[must_use]
    pub fn is_at_end(&self) -> bool {
        self.offset >= self.end
    }

    /// Reads the next part; `None` at the end.
    pub fn read_next(&mut self, mut buffer: AlignedBuf) -> Result<Option<Chunk<AlignedBuf>>, TransferError> {
        let offset = self.offset;
        if offset >= self.end {
            return Ok(None);
        }
        let want = usize::try_from(self.end - offset).unwrap_or(usize::MAX).min(buffer.len());
        let mut got = 0;
        while got < want {
            // Direct reads take whole blocks; bytes behind the end are dropped.
            let to = if self.direct { buffer.len() } else { want };
            match self.file.read_at(&mut buffer[got..to], offset + got as u64) {
                Ok(0) => break,
                Ok(len) => got += len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if self.direct && error.kind() == io::ErrorKind::InvalidInput => {
                    self.file = File::open(&self.path).map_err(TransferError::local("open", &self.path))?;
                    self.direct = false;
                }
                Err(error) => return Err(TransferError::local("read", &self.path)(error)),
            }
            if self.direct && !(got as u64).is_multiple_of(ALIGNMENT) {
                break; // the end of the file
            }
        }
        let len = got.min(want);
        if len < want {
            let (expected, found) = (self.end, offset + len as u64);
            return Err(TransferError::Changed { from: self.path.display().to_string(), expected, found });
        }
        self.offset += len as u64;
        Ok(Some(Chunk { offset, len, buffer }))
    }
}

/// Whether the file seems to be in the page cache, after a few probes.
fn is_cached(file: &File, len: u64) -> bool {
    let mut byte = [0];
    let there = (0..PROBES).filter(|probe| {
        let mut into = [io::IoSliceMut::new(&mut byte)];
        let offset = len / PROBES * probe;
        rustix::io::preadv2(file, &mut into, offset, ReadWriteFlags::NOWAIT).is_ok_and(|got| got == 1)
    });
    there.count() as u64 == PROBES
}

/// The attributes of a source file that a copy keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeptAttributes {
    /// The modification time.
    pub mtime: Timestamp,
    /// The nine permission bits.
    pub mode: u16,
}

impl KeptAttributes {
    /// Sets them on a local file.
    pub fn put(self, file: &File) -> io::Result<()> {
        file.set_permissions(std::fs::Permissions::from_mode(u32::from(self.mode)))?;
        file.set_modified(times::to_system(self.mtime))
    }
}

/// A local file that is being written. It gets its name when it is whole.
#[derive(Debug)]
pub struct LocalSink {
    target: PathBuf,
    part: PathBuf,
    file: File,
    direct: Option<File>,
    force: bool,
    len: u64,
}

/// The name of the part file for the copy `name`.
#[must_use]
pub fn part_path(target: &Path) -> PathBuf {
    /// A name may have 255 bytes: this many, a dot before, a checksum and `.weir-part` behind.
    const KEPT: usize = 230;
    let name = target.file_name().unwrap_or_default();
    let mut part = OsString::from(".");
    if name.len() <= KEPT {
        part.push(name);
    } else {
        // The checksum distinguishes long names with the same beginning.
        let sum = types::Crc32c::of(name.as_bytes()).0;
        part.push(OsStr::from_bytes(&name.as_bytes()[..KEPT]));
        part.push(format!("-{sum:08x}"));
    }
    part.push(".weir-part");
    target.with_file_name(part)
}

impl LocalSink {
    /// Begins the file `target` of `len` bytes, if that is known. With `resume` the part of an earlier copy stays; [`LocalSink::len`]
    /// returns its length.
    pub fn create(
        target: &Path,
        len: Option<u64>,
        mode: u16,
        force: bool,
        resume: bool,
        direct: Direct,
    ) -> Result<Self, TransferError> {
        match target.symlink_metadata() {
            Ok(found) if found.is_dir() => {
                return Err(TransferError::IsDirectory { path: target.display().to_string() });
            }
            Ok(_) if !force => return Err(TransferError::Exists { path: target.display().to_string() }),
            _ => {}
        }
        let part = part_path(target);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(u32::from(mode) | 0o600);
        let file =
            options.custom_flags(flag(OFlags::NOFOLLOW)).open(&part).map_err(TransferError::local("make", &part))?;
        // Two copies to one target would write into each other's part, so change nothing before the lock is held.
        let other = || {
            let source = io::Error::other("another copy to this target is under way");
            TransferError::Local { what: "write", path: part.display().to_string(), source }
        };
        match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(other()),
            // Some file systems have no locks.
            Err(error) => tracing::debug!(%error, "cannot lock {}", part.display()),
        }
        let here = file.metadata().map_err(TransferError::local("stat", &part))?;
        // The previous holder of the lock may have renamed it to the target since.
        if part.symlink_metadata().map_or(true, |there| (there.dev(), there.ino()) != (here.dev(), here.ino())) {
            return Err(other());
        }
        if !resume {
            file.set_len(0).map_err(TransferError::local("cut", &part))?;
        }
        let pays = match direct {
            Direct::Never => false,
            Direct::Auto | Direct::Always => len.is_some_and(|len| len >= DIRECT_MIN),
        };
        let direct =
            pays.then(|| OpenOptions::new().write(true).custom_flags(flag(OFlags::DIRECT)).open(&part).ok()).flatten();
        // An earlier copy may have written its parts in another order, so only the bytes before the first hole count.
        let hole = rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(0)).unwrap_or(0);
        let have = file.metadata().map_err(TransferError::local("stat", &part))?.len().min(hole);
        Ok(Self { target: target.to_owned(), part, file, direct, force, len: have })
    }

    /// Its length.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Cuts off everything behind `len`.
    pub fn cut(&mut self, len: u64) -> Result<(), TransferError> {
        self.file.set_len(len).map_err(TransferError::local("cut", &self.part))?;
        self.len = len;
        Ok(())
    }

    /// Reads bytes of an earlier copy.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), TransferError> {
        self.file.read_exact_at(into, offset).map_err(TransferError::local("read", &self.part))
    }

    /// Writes a part.
    pub fn put(&mut self, chunk: &mut Chunk<AlignedBuf>) -> Result<(), TransferError> {
        let end = chunk.offset + chunk.len as u64;
        let aligned = chunk.offset.is_multiple_of(ALIGNMENT);
        let padded = chunk.len.next_multiple_of(disk::ALIGNMENT);
        if let Some(direct) = self.direct.as_ref().filter(|_| aligned && padded <= chunk.buffer.len()) {
            chunk.buffer[chunk.len..padded].fill(0);
            match direct.write_all_at(&chunk.buffer[..padded], chunk.offset) {
                Ok(()) => {
                    self.len = self.len.max(end);
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => self.direct = None,
                Err(error) => return Err(TransferError::local("write", &self.part)(error)),
            }
        }
        self.file
            .write_all_at(&chunk.buffer[..chunk.len], chunk.offset)
            .map_err(TransferError::local("write", &self.part))?;
        self.len = self.len.max(end);
        Ok(())
    }

    /// Renames it to the target, with `sync` after making it durable. If that fails, removes it unless `keep_part`.
    pub fn finish(
        self,
        len: u64,
        kept: Option<KeptAttributes>,
        sync: bool,
        keep_part: bool,
    ) -> Result<(), TransferError> {
        let named = self.name(len, kept, sync);
        if named.is_err() && !keep_part {
            self.remove();
        }
        named
    }

    fn name(&self, len: u64, kept: Option<KeptAttributes>, sync: bool) -> Result<(), TransferError> {
        self.file.set_len(len).map_err(TransferError::local("cut", &self.part))?;
        if let Some(kept) = kept {
            kept.put(&self.file).map_err(TransferError::local("set the time and mode of", &self.part))?;
        }
        if sync || tells_at_close(&self.file) {
            self.file.sync_all().map_err(TransferError::local("sync", &self.part))?;
        }
        put_in_place(&self.part, &self.target, self.force)?;
        if sync && let Some(folder) = self.target.parent() {
            let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
            File::open(folder).and_then(|dir| dir.sync_all()).map_err(TransferError::local("sync", folder))?;
        }
        Ok(())
    }

    /// Removes the part file.
    pub fn remove(self) {
        let _ = std::fs::remove_file(&self.part);
    }
}

/// Whether the file system may report a write error only at close, as network file systems do. Dropping a file hides the result of its
/// close, so such a file is synced first.
fn tells_at_close(file: &File) -> bool {
    rustix::fs::fstatfs(file).is_ok_and(|found| TELL_AT_CLOSE.contains(&found.f_type))
}

/// Renames; replaces an existing target only with `force`.
fn put_in_place(part: &Path, target: &Path, force: bool) -> Result<(), TransferError> {
    let flags = if force { rustix::fs::RenameFlags::empty() } else { rustix::fs::RenameFlags::NOREPLACE };
    match rustix::fs::renameat_with(rustix::fs::CWD, part, rustix::fs::CWD, target, flags) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::EXIST) => Err(TransferError::Exists { path: target.display().to_string() }),
        // Some file systems know no flags for rename.
        Err(rustix::io::Errno::INVAL) if !force => std::fs::hard_link(part, target)
            .and_then(|()| std::fs::remove_file(part))
            .map_err(TransferError::local("name", target)),
        Err(error) => Err(TransferError::local("name", target)(error.into())),
    }
}

/// Writes a small file as a whole, first under a temporary name.
pub fn write_small(
    target: &Path,
    data: &[u8],
    mode: u16,
    kept: Option<KeptAttributes>,
    force: bool,
    sync: bool,
) -> Result<(), TransferError> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    // In a container each run may have the same process id, and an earlier run may have left a part.
    let part =
        target.with_file_name(format!(".{}-{number}-{:08x}.weir-part", std::process::id(), rand::random::<u32>()));
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(u32::from(mode) | 0o600);
    let mut file = options.open(&part).map_err(TransferError::local("make", &part))?;
    let written = file
        .write_all(data)
        .and_then(|()| kept.map_or(Ok(()), |kept| kept.put(&file)))
        .map_err(TransferError::local("write", &part))
        .and_then(|()| match sync || tells_at_close(&file) {
            true => file.sync_all().map_err(TransferError::local("sync", &part)),
            false => Ok(()),
        })
        .and_then(|()| put_in_place(&part, target, force));
    written.inspect_err(|_| {
        let _ = std::fs::remove_file(&part);
    })
}

/// Reads a small file as a whole; its length must not have changed since it was found.
pub fn read_small(path: &Path, expected: u64) -> Result<(Vec<u8>, u16), TransferError> {
    let file = File::open(path).map_err(TransferError::local("open", path))?;
    let mode = file.metadata().map(|found| found.mode()).map_err(TransferError::local("stat", path))?;
    let mut data = Vec::with_capacity(usize::try_from(expected).unwrap_or(0) + 1);
    file.take(expected + 1).read_to_end(&mut data).map_err(TransferError::local("read", path))?;
    if data.len() as u64 != expected {
        let (from, found) = (path.display().to_string(), data.len() as u64);
        return Err(TransferError::Changed { from, expected, found });
    }
    Ok((data, permission_bits(mode)))
}

/// The nine permission bits.
#[must_use]
pub fn permission_bits(mode: u32) -> u16 {
    u16::try_from(mode & 0o777).unwrap_or(0o644)
}

/// The permission bits of a local file.
pub fn mode_of(path: &Path) -> Result<u16, TransferError> {
    let metadata = path.metadata().map_err(TransferError::local("stat", path))?;
    Ok(permission_bits(metadata.permissions().mode()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test may fail this way

    use super::*;

    #[test]
    fn each_name_has_its_own_part_file() {
        let part = |name: String| part_path(Path::new("d").join(name).as_path());
        assert_eq!(part("f".to_owned()), Path::new("d/.f.weir-part"));
        let long = "é".repeat(127);
        let (a, b) = (part(format!("{long}a")), part(format!("{long}b")));
        assert_ne!(a, b);
        assert!(a.file_name().unwrap().len() <= 255 && a.to_string_lossy().ends_with(".weir-part"));
    }

    #[test]
    fn local_files_are_not_synced_and_network_file_systems_are_known() {
        let here = tempfile::tempfile().unwrap();
        let kind = rustix::fs::fstatfs(&here).unwrap().f_type;
        assert_eq!(tells_at_close(&here), TELL_AT_CLOSE.contains(&kind));
        assert!(TELL_AT_CLOSE.contains(&rustix::fs::NFS_SUPER_MAGIC), "as the system calls it");
        let devices = File::open("/dev/null").unwrap();
        assert!(!tells_at_close(&devices));
    }

    #[test]
    fn old_part_files_are_no_obstacle() {
        let temp = tempfile::tempdir().unwrap();
        for number in 0..100 {
            std::fs::write(temp.path().join(format!(".{}-{number}.weir-part", std::process::id())), "").unwrap();
        }
        let target = temp.path().join("file");
        write_small(&target, b"12345", 0o644, None, false, false).unwrap();
        assert_eq!(std::fs::read(&target).unwrap(), b"12345");
        assert_eq!(std::fs::read_dir(temp.path()).unwrap().count(), 101, "its own part is gone");
    }
}
