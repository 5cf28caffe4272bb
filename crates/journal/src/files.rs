//! Making segment files in advance.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use disk::{Access, AlignedBuf, Disk, DiskError, DiskFile, DiskOp, OpenOptions};

use crate::JournalError;

const CHUNK: usize = 1 << 20;
const CHUNK_U64: u64 = CHUNK as u64;
const REST_MAX: Duration = Duration::from_millis(20);

/// How fast to fill a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pace {
    /// A thread waits for the file.
    Now,
    /// Leave most of the disk's time to others.
    Gentle,
    /// Stop: the journal is being closed.
    Stop,
}

/// Makes a file of `bytes` zeros at `path`; its bytes and its name are durable on return. Leaves no file behind on
/// failure. Asks `pace` again between steps.
///
/// # Errors
/// `NoSpace`, also if less than `bytes` are free on the file system; `Disk`.
pub(crate) fn make(
    disk: &dyn Disk,
    dir: &str,
    path: &str,
    bytes: u64,
    direct: bool,
    pace: &dyn Fn() -> Pace,
) -> Result<Arc<dyn DiskFile>, JournalError> {
    // Check first: otherwise the attempt would fill the disk for a moment, and other writers would fail.
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
        fill(&*file, path, bytes, pace)?;
        file.sync_data()?;
        disk.sync_dir(dir)?;
        Ok(file)
    });
    made.map_err(|e| {
        // Report the first failure.
        let _ = disk.remove(path);
        no_space_or(e, bytes)
    })
}

/// Turns a full disk into `NoSpace`.
pub(crate) fn no_space_or(e: DiskError, wanted: u64) -> JournalError {
    match e.source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => JournalError::NoSpace { wanted },
        _ => JournalError::Disk(e),
    }
}

/// Fills a file with zeros, from its beginning to `bytes`.
fn fill(file: &dyn DiskFile, path: &str, bytes: u64, pace: &dyn Fn() -> Pace) -> Result<(), DiskError> {
    // Fails at once without enough space, and keeps the extents together.
    file.allocate(0, bytes)?;
    let zeros = AlignedBuf::new(CHUNK);
    let mut offset = 0;
    while offset < bytes {
        let n = usize::try_from((bytes - offset).min(CHUNK_U64)).unwrap_or(CHUNK);
        let began = Instant::now();
        file.write_at(&zeros[..n], offset)?;
        match pace() {
            Pace::Now => {}
            Pace::Gentle => std::thread::sleep((began.elapsed() * 2).min(REST_MAX)),
            Pace::Stop => {
                let source = io::Error::from(io::ErrorKind::Interrupted);
                return Err(DiskError { op: DiskOp::Create, path: path.to_owned(), source });
            }
        }
        offset += n as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use disk::SimDisk;

    use super::*;

    #[test]
    fn a_file_is_complete_or_absent() {
        let disk = SimDisk::new(0);
        make(&disk, "", "a", 3 << 20, true, &|| Pace::Gentle).unwrap();
        assert_eq!(disk.len_of("a").unwrap(), Some(3 << 20));
        let calls = std::cell::Cell::new(0);
        let stop = || {
            calls.set(calls.get() + 1);
            if calls.get() == 2 { Pace::Stop } else { Pace::Now }
        };
        assert!(matches!(make(&disk, "", "b", 3 << 20, true, &stop), Err(JournalError::Disk(_))));
        assert_eq!((calls.get(), disk.len_of("b").unwrap()), (2, None));
        disk.set_free(1 << 20);
        assert!(matches!(make(&disk, "", "c", 3 << 20, true, &stop), Err(JournalError::NoSpace { wanted: 3_145_728 })));
    }
}
