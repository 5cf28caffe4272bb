//! The folder of backups.
//!
//! ```text
//! WEIR-BACKUP             the owner: cluster and store
//! cluster-authority       of a manager: the key of its cluster, secret
//! 00000001-full.ckpt      a checkpoint file: everything as of a record
//! 00000001.backup         its manifest: record, time, length and checksum
//! 00000002-delta.ckpt     the changes since
//! 00000002.backup
//! ```
//!
//! A backup counts from the moment when its `.backup` file has its name. Its keys were synced and read back before. All other files remain from
//! interruptions, and the next backup removes them.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use console::Exit;
use disk::{Access, Directory, Disk, DiskError, Named, OpenOptions, RealDisk};
use foundation::datadir::{Format, Lock, LockError};
use journal::Seq;
use kv::{BackupHead, KvError};
use types::{ErrorCode, StoreId, Timestamp};

use super::manifest::{BackupSource, Kind, Manifest};
use super::whole_file;

/// The file that marks a folder of backups.
const MARK: &str = "WEIR-BACKUP";
const LOCK: &str = "lock";
const TEXT_MAX: usize = 4096;

/// Why a folder of backups, or one of its files, was refused.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// It holds something else.
    #[error(
        "{path} is not empty and has no {MARK} file, so it is no folder of backups (it holds `{found}`); nothing was touched"
    )]
    Foreign {
        /// The folder.
        path: PathBuf,
        /// The first name in it.
        found: String,
    },
    /// It does not exist.
    #[error("{path} is no folder of backups; is its disk mounted?")]
    Missing {
        /// The folder.
        path: PathBuf,
    },
    /// It belongs to another node.
    #[error(
        "{path} holds backups of another node (cluster {cluster:032x}, store {store}); give a folder of its own to each. Nothing was touched"
    )]
    OtherNode {
        /// The folder.
        path: PathBuf,
        /// The cluster of the backups' owner.
        cluster: u128,
        /// The store of the backups' owner.
        store: StoreId,
    },
    /// A newer version of weir wrote it.
    #[error("{file} is of format {found}, which this weir {} does not know; use the newer weir that wrote it. Nothing was touched", env!("CARGO_PKG_VERSION"))]
    Newer {
        /// The file.
        file: String,
        /// Its version, or the unknown feature bits.
        found: u64,
    },
    /// An earlier version of weir wrote it. There is no conversion.
    #[error("{file} is of format {found}, of an earlier weir, and this one ({}) does not read it; restore it with the weir that wrote it. Nothing was touched", env!("CARGO_PKG_VERSION"))]
    Older {
        /// The file.
        file: String,
        /// Its version.
        found: u64,
    },
    /// It cannot be decoded as it was written.
    #[error("{file} does not read as it was written")]
    Damaged {
        /// The file.
        file: String,
    },
    /// The requested backup does not exist.
    #[error("there is no backup {0}")]
    NoSuch(String),
    /// The key of a manager's cluster is missing.
    #[error(
        "there is no {path}, the key of the cluster: without it a manager can admit no node and renew no certificate; put it back from the place where you keep it"
    )]
    NoAuthority {
        /// Where it should be.
        path: PathBuf,
    },
    /// The received bytes differ from the announced ones.
    #[error("the backup broke off, or came damaged: {0}")]
    BrokeOff(String),
    /// The path of the folder names another folder by now.
    #[error(
        "{path} is not the folder that the backup was written to: a disk was mounted over it or unmounted, or it was moved; mount it and run the backup again"
    )]
    Displaced {
        /// The path.
        path: PathBuf,
    },
    /// A newer version of weir made it.
    #[error("{0}")]
    Unsupported(String),
    /// Another process is using it.
    #[error("{path}: {source}")]
    Locked {
        /// The folder.
        path: PathBuf,
        /// The process.
        source: LockError,
    },
    /// The disk returned an error.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The operating system returned an error.
    #[error("cannot {what} {path}: {source}")]
    Io {
        /// The attempted operation.
        what: &'static str,
        /// The path.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
}

impl TargetError {
    /// The exit code of the command.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self {
            Self::Foreign { .. }
            | Self::Missing { .. }
            | Self::OtherNode { .. }
            | Self::Newer { .. }
            | Self::Older { .. }
            | Self::Unsupported(_) => Exit::DataDirectory,
            Self::Locked { source: LockError::Held { .. }, .. } => Exit::InUse,
            Self::Damaged { .. } => Exit::Damaged,
            _ => Exit::Failed,
        }
    }
}

/// A folder of backups, locked while this value lives.
pub struct Target {
    path: PathBuf,
    disk: RealDisk,
    whose: BackupSource,
    /// The backups, in order of their numbers.
    backups: Vec<Manifest>,
    /// Manifests that cannot be decoded.
    damaged: Vec<String>,
    _lock: Lock,
}

impl Target {
    /// Opens the folder. With `owner`, the node whose backups it will hold, it is created if necessary.
    pub fn open(path: &Path, owner: Option<&Format>) -> Result<Self, TargetError> {
        let io = |what| move |source| TargetError::Io { what, path: path.to_owned(), source };
        match fs::create_dir(path) {
            _ if owner.is_none() && !path.join(MARK).exists() => {
                return Err(TargetError::Missing { path: path.to_owned() });
            }
            Ok(()) => {
                File::open(above(path)).and_then(|folder| folder.sync_all()).map_err(io("sync the folder above"))?
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(io("make")(error)),
        }
        let disk = RealDisk::open(path)?;
        let names: Vec<String> = disk.list("")?.into_iter().map(|entry| entry.name).collect();
        let of_nothing = |name: &String| name == LOCK || name == "lost+found" || *name == format!("{MARK}.tmp");
        let fresh = !names.iter().any(|name| name == MARK);
        if fresh && let Some(found) = names.iter().find(|name| !of_nothing(name)) {
            return Err(TargetError::Foreign { path: path.to_owned(), found: found.clone() });
        }
        let lock = Lock::take(&disk.root().held().join(LOCK))
            .map_err(|source| TargetError::Locked { path: path.to_owned(), source })?;
        if fresh && let Some(owner) = owner {
            put(disk.root(), MARK, &BackupSource::of(owner).to_text())?;
        }
        let whose = BackupSource::parse(&text_of(&disk, MARK)?, MARK)?;
        if owner
            .is_some_and(|owner| (owner.role, owner.cluster, owner.store) != (whose.role, whose.cluster, whose.store))
        {
            return Err(TargetError::OtherNode { path: path.to_owned(), cluster: whose.cluster, store: whose.store });
        }
        let mut target =
            Self { path: path.to_owned(), disk, whose, backups: Vec::new(), damaged: Vec::new(), _lock: lock };
        for name in names.iter().filter(|name| name.ends_with(".backup")) {
            match text_of(&target.disk, name).and_then(|text| Manifest::parse(&text, name)) {
                Ok(manifest) if Manifest::name(manifest.number) == *name => target.backups.push(manifest),
                Ok(_) | Err(TargetError::Damaged { .. }) => target.damaged.push(name.clone()),
                Err(error) => return Err(error),
            }
        }
        target.backups.sort_by_key(|manifest| manifest.number);
        Ok(target)
    }

    /// The owner of the backups.
    #[must_use]
    pub fn whose(&self) -> BackupSource {
        self.whose
    }

    /// The folder.
    #[must_use]
    pub fn folder(&self) -> &Directory {
        self.disk.root()
    }

    /// The disk with the backup files.
    #[must_use]
    pub fn disk(&self) -> &dyn Disk {
        &self.disk
    }

    /// All valid backups, in order.
    #[must_use]
    pub fn backups(&self) -> &[Manifest] {
        &self.backups
    }

    /// The manifests that cannot be decoded.
    #[must_use]
    pub fn damaged(&self) -> &[String] {
        &self.damaged
    }

    /// The full backup and the later ones that lead to `last`.
    pub fn chain(&self, last: &Manifest) -> Result<Vec<Manifest>, TargetError> {
        let mut chain = vec![last.clone()];
        let mut first = last;
        while first.kind == Kind::Delta {
            let before =
                self.backups.iter().rev().find(|before| {
                    before.number < first.number && before.upto == first.after && before.log == first.log
                });
            first = before.ok_or_else(|| TargetError::NoSuch(format!("before {} that leads to it", first.number)))?;
            chain.push(first.clone());
        }
        chain.reverse();
        Ok(chain)
    }

    /// Where the next delta may start: at the last backup. `None` if part of its chain is missing, or if the deltas are so large that a full one is
    /// better.
    #[must_use]
    pub fn continues_at(&self) -> Option<(Seq, u64)> {
        let last = self.backups.last()?;
        let chain = self.chain(last).ok()?;
        let there = |manifest: &Manifest| self.disk.len_of(&manifest.file()).ok().flatten() == Some(manifest.bytes);
        let full = chain.first().map_or(0, |full| full.bytes);
        let rest: u64 = chain.iter().skip(1).map(|delta| delta.bytes).sum();
        (chain.iter().all(there) && rest <= full).then_some((Seq(last.upto), last.log))
    }

    /// Reads a backup through and compares it with its manifest.
    pub fn verify(&self, manifest: &Manifest) -> Result<(), TargetError> {
        let file = manifest.file();
        let damaged = |what: String| TargetError::Damaged {
            file: format!("backup {} ({what})", self.path.join(&file).display()),
        };
        let (head, totals) = kv::read_backup(&self.disk, &file).map_err(|error| match error {
            KvError::Unsupported(what) => TargetError::Unsupported(what),
            error => damaged(error.to_string()),
        })?;
        let found = (
            head.after.map_or(0, |seq| seq.0),
            head.upto.0,
            head.incarnation,
            totals.entries,
            totals.bytes,
            totals.crc32c,
        );
        let said = (manifest.after, manifest.upto, manifest.log, manifest.entries, manifest.bytes, manifest.sum);
        if found == said { Ok(()) } else { Err(damaged("it is not the one that was written".into())) }
    }

    /// Stores a backup. `content` writes its bytes.
    pub fn add(
        &mut self,
        head: BackupHead,
        taken: Timestamp,
        content: &mut dyn FnMut(&mut File) -> io::Result<()>,
    ) -> Result<Manifest, TargetError> {
        self.remove_leftovers()?;
        let highest = self.backups.iter().map(|manifest| manifest.number);
        let highest = highest.chain(self.damaged.iter().filter_map(|name| number_of(name))).max().unwrap_or(0);
        let kind = if head.after.is_some() { Kind::Delta } else { Kind::Full };
        let mut manifest = Manifest {
            number: highest + 1,
            kind,
            after: head.after.map_or(0, |seq| seq.0),
            upto: head.upto.0,
            log: head.incarnation,
            taken,
            bytes: 0,
            entries: 0,
            sum: 0,
        };
        let new = format!("{}.tmp", manifest.file());
        let (path, held) = (self.path.join(&new), self.disk.root().held().join(&new));
        let io = |what| {
            let path = path.clone();
            move |source| TargetError::Io { what, path, source }
        };
        let mut file = File::create_new(&held).map_err(io("make"))?;
        content(&mut file).and_then(|()| file.flush()).map_err(io("write"))?;
        file.sync_all().map_err(io("sync"))?;
        drop(file);
        // Reads from the disk, not from the cache.
        self.disk.open(&new, OpenOptions { access: Access::Read, direct: false })?.drop_cache(0, u64::MAX >> 1);
        let (found, totals) =
            kv::read_backup(&self.disk, &new).map_err(|error| TargetError::BrokeOff(error.to_string()))?;
        if found != head {
            return Err(TargetError::BrokeOff(format!(
                "it is of record {}, and {} was announced",
                found.upto.0, head.upto.0
            )));
        }
        (manifest.bytes, manifest.entries, manifest.sum) = (totals.bytes, totals.entries, totals.crc32c);
        self.disk.rename(&new, &manifest.file())?;
        self.disk.sync_dir("")?;
        put(self.disk.root(), &Manifest::name(manifest.number), &manifest.to_text())?;
        self.backups.push(manifest.clone());
        // A backup in a folder that nobody finds any more is none.
        match self.disk.root().named() {
            Ok(Named::Another | Named::Nothing) => Err(TargetError::Displaced { path: self.path.clone() }),
            _ => Ok(manifest),
        }
    }

    /// Removes all but the newest `fulls` full backups and the backups that follow them. Returns how many it removed.
    pub fn keep(&mut self, fulls: u32) -> Result<usize, TargetError> {
        let full = |manifest: &&Manifest| manifest.kind == Kind::Full;
        let Some(first) = self.backups.iter().rev().filter(full).nth(fulls.max(1) as usize - 1) else { return Ok(0) };
        let first = first.number;
        let (old, kept): (Vec<_>, Vec<_>) = self.backups.drain(..).partition(|manifest| manifest.number < first);
        self.backups = kept;
        // Starts with the last, so that every remaining backup leads back to a full one.
        for manifest in old.iter().rev() {
            self.disk.remove(&Manifest::name(manifest.number))?;
            self.disk.sync_dir("")?;
            self.disk.remove(&manifest.file())?;
        }
        Ok(old.len())
    }

    /// Removes the files of interrupted backups.
    fn remove_leftovers(&self) -> Result<(), TargetError> {
        for entry in self.disk.list("")? {
            let counts = self.backups.iter().any(|manifest| manifest.file() == entry.name)
                || number_of(&entry.name).is_some_and(|number| self.damaged.contains(&Manifest::name(number)));
            if entry.name.ends_with(".tmp") || entry.name.ends_with(".ckpt") && !counts {
                self.disk.remove(&entry.name)?;
            }
        }
        Ok(())
    }
}

fn number_of(name: &str) -> Option<u64> {
    name.get(..8)?.parse().ok()
}

fn above(path: &Path) -> &Path {
    path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn text_of(disk: &dyn Disk, name: &str) -> Result<String, TargetError> {
    let mut bytes = vec![0; TEXT_MAX];
    let file = match disk.open(name, OpenOptions { access: Access::Read, direct: false }) {
        Err(error) if error.code() == ErrorCode::NotFound => {
            return Err(TargetError::Damaged { file: name.to_owned() });
        }
        file => file?,
    };
    let got = file.read_at(&mut bytes, 0)?;
    bytes.truncate(got);
    String::from_utf8(bytes).map_err(|_| TargetError::Damaged { file: name.to_owned() })
}

/// Writes a file completely or not at all.
fn put(home: &Directory, name: &str, text: &str) -> Result<(), TargetError> {
    let written = whole_file::write(&home.held(), name, 0o666, None, text.as_bytes());
    written.map_err(|source| TargetError::Io { what: "write", path: home.shown().join(name), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backup_stays_in_the_folder_that_was_opened_and_says_if_its_path_names_another() {
        let temp = tempfile::tempdir().unwrap();
        let (path, moved) = (temp.path().join("target"), temp.path().join("moved"));
        let now = Timestamp(5);
        let data = foundation::DataDir::open(&temp.path().join("data"), foundation::IfNew::Make, now).unwrap();
        let settings = foundation::Settings {
            segment_bytes: 1 << 20,
            ballast: 0,
            overlay: 1 << 20,
            cache: 1 << 20,
            floor: None,
            uploads_kept: std::time::Duration::ZERO,
            recent: None,
        };
        let opened = foundation::Foundation::open(&data, &settings, foundation::Purpose::Check, now).unwrap();
        let owner = data.format.clone();
        let mut backup = Some(opened.names.index.backup(None).unwrap());
        let head = backup.as_ref().unwrap().head();
        let mut target = Target::open(&path, Some(&owner)).unwrap();
        let added = target.add(head, now, &mut |file| {
            fs::rename(&path, &moved)?;
            fs::create_dir(&path)?;
            backup.take().unwrap().write_to(file).map_err(|error| io::Error::other(error.to_string()))
        });
        assert!(matches!(added, Err(TargetError::Displaced { .. })), "{added:?}");
        assert_eq!(fs::read_dir(&path).unwrap().count(), 0, "nothing was written there");
        drop(target);
        assert_eq!(Target::open(&moved, Some(&owner)).unwrap().backups().len(), 1);
    }

    #[test]
    fn interrupted_backup_does_not_count_and_leaves_nothing_behind() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("target");
        let owner = Format::fresh(Timestamp(5)).unwrap();
        let head = BackupHead { after: None, upto: Seq(7), incarnation: 9 };
        for content in [&b""[..], b"weirckpt and then the node died", &[0; 200]] {
            let mut target = Target::open(&path, Some(&owner)).unwrap();
            let added = target.add(head, Timestamp(1), &mut |file| file.write_all(content));
            assert!(matches!(added, Err(TargetError::BrokeOff(_))), "{added:?}");
            let broken =
                target.add(head, Timestamp(1), &mut |_| Err(io::Error::other("the node closed the connection")));
            assert!(matches!(broken, Err(TargetError::Io { .. })), "{broken:?}");
            assert!(target.backups().is_empty() && target.continues_at().is_none());
        }
        let target = Target::open(&path, Some(&owner)).unwrap();
        assert!(target.backups().is_empty());
        target.remove_leftovers().unwrap();
        let names: Vec<String> = target.disk.list("").unwrap().into_iter().map(|entry| entry.name).collect();
        assert_eq!(names, [MARK, LOCK]);
    }
}
