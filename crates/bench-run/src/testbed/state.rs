//! The record of a testbed. It is written before anything is made, so that `down` always finds everything.

use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::plan::System;
use super::process::Recorded;

const STATE: &str = "testbed.json";
const LOCK: &str = "testbed.lock";
const NEW: &str = "testbed.json.new";
/// Longest state file that is read.
const STATE_MAX: u64 = 1 << 20;

/// A peer, or the part of one that was made.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Made {
    /// Its name.
    pub peer: String,
    /// Its folder.
    pub folder: PathBuf,
    /// Its network namespace.
    pub namespace: String,
    /// This machine's end of the cable to it.
    pub link: String,
    /// The servers' address.
    pub address: String,
    /// Mount points, in order of mounting.
    pub mounts: Vec<PathBuf>,
    /// Servers and clients, in order of starting.
    pub processes: Vec<Recorded>,
    /// The systems for a campaign; empty until the peer is up.
    pub systems: Vec<System>,
}

/// A testbed's folder, locked by this process.
#[derive(Debug)]
pub struct State {
    folder: PathBuf,
    _lock: File,
    /// Its peers.
    pub peers: Vec<Made>,
}

impl Made {
    /// Whether the record could come from a testbed in `folder`. `down` trusts it when it ends, unmounts and removes.
    fn belongs_to(&self, folder: &Path) -> bool {
        let is_simple = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        let is_below = |path: &PathBuf| {
            path.starts_with(&self.folder) && path.components().all(|part| part != std::path::Component::ParentDir)
        };
        is_simple(&self.peer)
            && !self.peer.is_empty()
            && self.folder == folder.join(&self.peer)
            && self.namespace.starts_with(super::network::NAMESPACE)
            && self.link.starts_with(super::network::LINK)
            && is_simple(&self.namespace)
            && is_simple(&self.link)
            && self.mounts.iter().all(is_below)
            && self.processes.iter().all(|process| process.pid > 1)
    }
}

/// Refuses a file that other users could have put there, or could change: root follows its contents.
fn is_ours(found: &Metadata, path: &Path) -> io::Result<()> {
    if found.is_symlink() || found.uid() != rustix::process::geteuid().as_raw() || found.mode() & 0o022 != 0 {
        let text = format!(
            "{}: a link, or somebody else's, or others may write to it; take a --dir in a folder of your own",
            path.display()
        );
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    Ok(())
}

impl State {
    /// Opens the state; with `make` it makes the folder. `None`: there is no testbed.
    ///
    /// # Errors
    /// From the file system; an invalid state; another process that holds it.
    pub fn open(folder: &Path, make: bool) -> io::Result<Option<Self>> {
        if make {
            if let Some(parent) = folder.parent() {
                std::fs::create_dir_all(parent)?;
            }
            match DirBuilder::new().mode(0o755).create(folder) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        } else if !folder.join(STATE).exists() && !folder.join(LOCK).exists() {
            return Ok(None);
        }
        is_ours(&std::fs::symlink_metadata(folder)?, folder)?;
        let lock = OpenOptions::new().create(true).append(true).mode(0o644).open(folder.join(LOCK))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| io::Error::other("another `weir bench testbed` works on it just now"))?;
        let path = folder.join(STATE);
        let peers: Vec<Made> = match std::fs::symlink_metadata(&path) {
            Ok(found) if found.len() > STATE_MAX => {
                return Err(io::Error::other(format!("{} is too long", path.display())));
            }
            Ok(found) => {
                is_ours(&found, &path)?;
                serde_json::from_slice(&std::fs::read(&path)?)
                    .map_err(|error| io::Error::other(format!("{}: {error}", path.display())))?
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        if let Some(foreign) = peers.iter().find(|made| !made.belongs_to(folder)) {
            let text =
                format!("{}: what it says of `{}` is nothing that a testbed here makes", path.display(), foreign.peer);
            return Err(io::Error::other(text));
        }
        Ok(Some(Self { folder: folder.to_owned(), _lock: lock, peers }))
    }

    /// Writes the state durably, so that it survives a crash of this process or of the machine.
    ///
    /// # Errors
    /// From the file system.
    pub fn save(&self) -> io::Result<()> {
        let (path, new) = (self.folder.join(STATE), self.folder.join(NEW));
        let mut file = File::create(&new)?;
        file.write_all(&serde_json::to_vec_pretty(&self.peers).map_err(io::Error::other)?)?;
        file.sync_all()?;
        std::fs::rename(new, path)?;
        File::open(&self.folder)?.sync_all()
    }

    /// Records a peer's state in place of its earlier one, and saves.
    ///
    /// # Errors
    /// From the file system.
    pub fn put(&mut self, made: &Made) -> io::Result<()> {
        match self.peers.iter_mut().find(|known| known.peer == made.peer) {
            Some(known) => *known = made.clone(),
            None => self.peers.push(made.clone()),
        }
        self.save()
    }

    /// Removes a peer from the record. After the last one it removes the state and the lock, and also the folder if it is empty.
    ///
    /// # Errors
    /// From the file system.
    pub fn forget(&mut self, peer: &str) -> io::Result<()> {
        self.peers.retain(|made| made.peer != peer);
        if !self.peers.is_empty() {
            return self.save();
        }
        for name in [STATE, NEW, LOCK] {
            match std::fs::remove_file(self.folder.join(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        // The folder may hold other files.
        let _ = std::fs::remove_dir(&self.folder);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_record_is_found_again_and_forgotten() {
        let temp = tempfile::tempdir().unwrap();
        let folder = temp.path().join("tb");
        assert!(State::open(&folder, false).unwrap().is_none());
        let mut state = State::open(&folder, true).unwrap().unwrap();
        let mut made = made(&folder);
        state.put(&made).unwrap();
        made.mounts.push(folder.join("xrootd/x"));
        state.put(&made).unwrap();
        assert!(State::open(&folder, true).unwrap_err().to_string().contains("just now"));
        drop(state);
        let mut state = State::open(&folder, false).unwrap().unwrap();
        assert_eq!((state.peers.len(), state.peers[0].mounts.len()), (1, 1));
        state.forget("xrootd").unwrap();
        assert!(!folder.exists());
    }

    fn made(folder: &Path) -> Made {
        Made {
            peer: "xrootd".to_owned(),
            folder: folder.join("xrootd"),
            namespace: format!("{}1-2", crate::testbed::network::NAMESPACE),
            link: format!("{}1-2", crate::testbed::network::LINK),
            ..Made::default()
        }
    }

    #[test]
    fn root_removes_only_what_a_testbed_made() {
        let temp = tempfile::tempdir().unwrap();
        let good = made(temp.path());
        let pid = Recorded { name: "x".to_owned(), pid: 1, began: 0 };
        let wrong = [
            Made { folder: "/home".into(), ..good.clone() },
            Made { peer: "..".to_owned(), folder: temp.path().join(".."), ..good.clone() },
            Made { peer: String::new(), folder: temp.path().join(""), ..good.clone() },
            Made { namespace: "../../etc/x".to_owned(), ..good.clone() },
            Made { link: "eth0".to_owned(), ..good.clone() },
            Made { mounts: vec!["/".into()], ..good.clone() },
            Made { mounts: vec![temp.path().join("xrootd/../../..")], ..good.clone() },
            Made { processes: vec![pid], ..good.clone() },
        ];
        for made in wrong {
            std::fs::write(temp.path().join(STATE), serde_json::to_vec(&[&made]).unwrap()).unwrap();
            assert!(State::open(temp.path(), false).unwrap_err().to_string().contains("nothing that"), "{made:?}");
        }
        std::fs::write(temp.path().join(STATE), serde_json::to_vec(&[&good]).unwrap()).unwrap();
        assert!(State::open(temp.path(), false).unwrap().is_some());
        // Nor files that others could write, or a link that they made.
        for open in [temp.path().join(STATE), temp.path().to_owned()] {
            std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
            assert!(State::open(temp.path(), false).unwrap_err().to_string().contains("others may write"), "{open:?}");
            std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        let link = temp.path().join("link");
        std::os::unix::fs::symlink(temp.path(), &link).unwrap();
        assert!(State::open(&link, true).unwrap_err().to_string().contains("a link"));
    }

    #[test]
    fn an_invalid_state_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::write(temp.path().join(STATE), "[{\"peer\": 3}]").unwrap();
        assert!(State::open(temp.path(), false).unwrap_err().to_string().contains(STATE));
    }
}
