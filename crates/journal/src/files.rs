//! Making segment files ahead.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use disk::{Access, AlignedBuf, Disk, DiskError, DiskFile, OpenOptions};

use crate::JournalError;

const CHUNK: usize = 1 << 20;
const CHUNK_U64: u64 = CHUNK as u64;

/// How fast a file is to be filled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pace {
    /// Somebody waits for it.
    Now,
    /// Leaving most of the disk's time to others.
    Gentle,
}

/// Makes a file of `bytes` zeros at `path`, durable in bytes and name. Leaves nothing behind if it fails.
///
/// # Errors
/// `NoSpace`, also when the file system has less than that free; `Disk`.
pub(crate) fn make(
    disk: &dyn Disk,
    dir: &str,
    path: &str,
    bytes: u64,
    direct: bool,
    pace: Pace,
) -> Result<Arc<dyn DiskFile>, JournalError> {
    // Asked first, so that a full disk is not filled to the last byte for a moment under everybody else.
    if disk.space()?.free < bytes {
        return Err(JournalError::NoSpace { wanted: bytes });
    }
    let options = OpenOptions { access: Access::CreateNew, direct };
    let file = match disk.open(path, options) {
        Err(e) if e.source.kind() == io::ErrorKind::AlreadyExists => {
            disk.remove(path)?;
            disk.open(path, options)
        }
        other => other,
    };
    let made = file.and_then(|file| {
        fill(&*file, bytes, pace)?;
        file.sync_data()?;
        disk.sync_dir(dir)?;
        Ok(file)
    });
    made.map_err(|e| {
        // The first failure is the one to report.
        let _ = disk.remove(path);
        no_space_or(e, bytes)
    })
}

/// Sorts out the full disk.
pub(crate) fn no_space_or(e: DiskError, wanted: u64) -> JournalError {
    match e.source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => JournalError::NoSpace { wanted },
        _ => JournalError::Disk(e),
    }
}

/// Writes zeros from the beginning of a file to `bytes`.
pub(crate) fn fill(file: &dyn DiskFile, bytes: u64, pace: Pace) -> Result<(), DiskError> {
    // Refuses at once where there is no room, and keeps the extents together.
    file.allocate(0, bytes)?;
    let zeros = AlignedBuf::new(CHUNK);
    let mut offset = 0;
    while offset < bytes {
        let n = usize::try_from((bytes - offset).min(CHUNK_U64)).unwrap_or(CHUNK);
        let began = Instant::now();
        file.write_at(&zeros[..n], offset)?;
        if pace == Pace::Gentle {
            std::thread::sleep((began.elapsed() * 2).min(Duration::from_millis(20)));
        }
        offset += n as u64;
    }
    Ok(())
}
