//! One process per data directory: an flock on the file `lock`. The file also holds the pid of its holder, for the error message. The kernel releases
//! the lock when the process ends, however it ends.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;

/// A lock that is held while this value lives.
#[derive(Debug)]
pub struct Lock {
    file: File,
}

/// Why the lock could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process holds it.
    #[error("in use by {holder}; stop it first, or use another data directory")]
    Held {
        /// The pid of the holder, if the lock file tells it.
        holder: String,
    },
    /// The operating system returned an error.
    #[error("cannot lock: {}{}", .0, what_helps(.0))]
    Io(io::Error),
}

impl Lock {
    /// Takes the lock at `path`, and creates the file if necessary. Does not wait: if another process holds the lock, it returns [`LockError::Held`].
    pub fn take(path: &Path) -> Result<Self, LockError> {
        // Root may run a command on a directory of another user, who could have put a link to another file here.
        let no_link = OFlags::NOFOLLOW.bits().cast_signed();
        let mut how = OpenOptions::new();
        how.read(true).write(true).create(true).truncate(false).custom_flags(no_link);
        let mut file = how.open(path).map_err(LockError::Io)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(LockError::Held { holder: holder(&mut file) }),
            Err(TryLockError::Error(error)) => return Err(LockError::Io(error)),
        }
        // The pid is only for people. A full disk must not keep the node from starting.
        let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        Ok(Self { file })
    }
}

impl Drop for Lock {
    /// Releases the lock at once. Closing the file is not enough. A child that another thread is starting also has the descriptor until it runs its
    /// own program. The lock belongs to the open file, not to the process.
    fn drop(&mut self) {
        // Closing releases the lock at the latest.
        let _ = self.file.unlock();
    }
}

fn what_helps(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ReadOnlyFilesystem => "; under systemd its folder has to be among the unit's ReadWritePaths",
        _ => "",
    }
}

/// The pid in a lock file: that of the process which holds or held it.
pub(super) fn pid_in(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

fn holder(file: &mut File) -> String {
    match pid_in(file) {
        Some(pid) => match std::fs::read_to_string(format!("/proc/{pid}/comm")) {
            Ok(name) => format!("process {pid} ({})", name.trim()),
            Err(_) => format!("process {pid}"),
        },
        None => "another process".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptor_in_a_starting_child_does_not_keep_the_lock() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("lock");
        let lock = Lock::take(&path).unwrap();
        let inherited = lock.file.try_clone().unwrap();
        assert!(matches!(Lock::take(&path), Err(LockError::Held { .. })));
        drop(lock);
        Lock::take(&path).unwrap();
        drop(inherited);
    }
}
