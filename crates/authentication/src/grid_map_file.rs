//! The grid-mapfile, which is read again when it has changed.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use identity::{GRID_MAP_BYTES_MAX, GridMap, GridMapError};
use parking_lot::Mutex;

/// How often the file is looked at, at most.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Why a grid-mapfile cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum GridMapFileError {
    /// It cannot be read.
    #[error("cannot read the grid-mapfile {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Its content is wrong.
    #[error("cannot use the grid-mapfile {}: {source}", path.display())]
    Wrong {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: GridMapError,
    },
}

/// What distinguishes the versions of a file: inode, length, and when it was changed (seconds, nanoseconds).
type Version = (u64, u64, i64, i64);

struct Seen {
    map: Arc<GridMap>,
    /// `None`: the file was not there.
    version: Option<Version>,
    looked: Duration,
}

/// The file and its content.
pub(crate) struct GridMapFile {
    path: PathBuf,
    seen: Mutex<Seen>,
}

fn version(path: &Path) -> Option<Version> {
    let about = std::fs::metadata(path).ok()?;
    Some((about.ino(), about.len(), about.mtime(), about.mtime_nsec()))
}

fn read(path: &Path) -> Result<GridMap, GridMapFileError> {
    let unreadable = |source| GridMapFileError::Unreadable { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    // One byte more shows that the file is too long.
    file.take(GRID_MAP_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    GridMap::parse(&bytes).map_err(|source| GridMapFileError::Wrong { path: path.to_owned(), source })
}

impl GridMapFile {
    /// Reads the file at `now`, a time of the steady clock.
    pub(crate) fn open(path: &Path, now: Duration) -> Result<Self, GridMapFileError> {
        // The version is that of before the read: a change during it shows later.
        let version = version(path);
        let seen = Seen { map: Arc::new(read(path)?), version, looked: now };
        Ok(Self { path: path.to_owned(), seen: Mutex::new(seen) })
    }

    /// The content at `now`. If a new version of the file cannot be used, the log says so, and that of before stays.
    pub(crate) fn get(&self, now: Duration) -> Arc<GridMap> {
        let mut seen = self.seen.lock();
        if now.saturating_sub(seen.looked) >= LOOK_EVERY {
            seen.looked = now;
            let version = version(&self.path);
            if version != seen.version {
                seen.version = version;
                match read(&self.path) {
                    Ok(map) => {
                        tracing::info!(file = %self.path.display(), subjects = map.len(), "the grid-mapfile was read again");
                        seen.map = Arc::new(map);
                    }
                    Err(error) => {
                        tracing::error!(%error, "the new grid-mapfile is not used; that of before stays in use")
                    }
                }
            }
        }
        Arc::clone(&seen.map)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use identity::DistinguishedName;

    use super::*;

    #[test]
    fn a_changed_file_is_read_again_at_most_once_a_second() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("grid-mapfile");
        let ana = DistinguishedName::parse("/CN=Ana").unwrap();
        let at = Duration::from_millis;
        let error = |path: &Path| GridMapFile::open(path, at(0)).err().unwrap().to_string();
        assert!(error(&path).contains("cannot read the grid-mapfile"));
        fs::write(&path, "/CN=Ana").unwrap();
        assert!(error(&path).contains("line 1"), "{}", error(&path));
        fs::write(&path, "/CN=Ana ana").unwrap();
        let file = GridMapFile::open(&path, at(0)).unwrap();
        let account = |now| file.get(now).get(&ana).map(|entry| entry.account.to_string());
        fs::write(&path, "/CN=Ana another").unwrap();
        assert_eq!(account(at(999)).unwrap(), "ana");
        assert_eq!(account(at(1000)).unwrap(), "another");
        fs::write(&path, "/CN=Ana").unwrap();
        assert_eq!(account(at(2000)).unwrap(), "another", "a bad file changes nothing");
        fs::remove_file(&path).unwrap();
        assert_eq!(account(at(3000)).unwrap(), "another");
        fs::write(&path, "").unwrap();
        assert_eq!(account(at(4000)), None);
    }
}
