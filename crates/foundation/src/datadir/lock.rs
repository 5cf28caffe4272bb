//! One process per data directory: an flock on `lock`, which also holds the pid of the holder for the error message.
//! The kernel lets go when the process ends, however it ends.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::path::Path;

/// Held as long as this value lives.
#[derive(Debug)]
pub struct Lock {
    file: File,
}

/// Why it could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Somebody has it.
    #[error("in use by {holder}; stop it first, or use another data directory")]
    Held {
        /// As far as the lock file tells.
        holder: String,
    },
    /// The system said no.
    #[error("cannot lock: {}{}", .0, what_helps(.0))]
    Io(io::Error),
}

impl Lock {
    /// Takes the lock at `path`, making the file if need be, or says at once who has it.
    pub fn take(path: &Path) -> Result<Self, LockError> {
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).map_err(LockError::Io)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(LockError::Held { holder: holder(&mut file) }),
            Err(TryLockError::Error(error)) => return Err(LockError::Io(error)),
        }
        // The pid is for people only; a full disk must not keep the node from starting.
        let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        Ok(Self { file })
    }
}

impl Drop for Lock {
    /// Lets go at once. Closing alone would not: a child that another thread is just starting has the descriptor too, until it runs its
    /// own program, and the lock is the open file's, not the process's.
    fn drop(&mut self) {
        // Closing lets go, at the latest.
        let _ = self.file.unlock();
    }
}

fn what_helps(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ReadOnlyFilesystem => "; under systemd its folder has to be among the unit's ReadWritePaths",
        _ => "",
    }
}

fn holder(file: &mut File) -> String {
    let mut text = String::new();
    let pid = match file.take(32).read_to_string(&mut text) {
        Ok(_) => text.trim().parse::<u32>().ok(),
        Err(_) => None,
    };
    match pid {
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
    fn a_descriptor_that_a_child_still_has_holds_nothing() {
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
