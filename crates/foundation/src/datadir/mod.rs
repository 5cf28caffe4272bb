//! The data directory: its owner, its version, and the process that holds it. All checks run before the first byte of the journal is read. A refused
//! directory is left exactly as it was.

mod format_file;
mod lock;
mod watch;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use disk::{Directory, DiskError};
use types::{ClusterId, StoreId, Timestamp};

pub use format_file::{DirRole, FORMAT_VERSION, Format, FormatError, KNOWN_COMPATIBLE, KNOWN_INCOMPATIBLE};
pub use lock::{Lock, LockError};
pub(crate) use watch::PARTS as KEPT_PARTS;
pub use watch::{DirWatch, Displaced};

use console::Exit;

/// The file that marks a directory as weir's.
pub const FORMAT_FILE: &str = "FORMAT";
const FORMAT_FILE_NEW: &str = "FORMAT.new";
const LOCK_FILE: &str = "lock";

/// Names that an empty directory may hold: the remains of an interrupted first start, and a folder that every fresh ext4 has.
const NAMES_OF_NOTHING: [&str; 3] = [LOCK_FILE, FORMAT_FILE_NEW, "lost+found"];

/// The other names in a data directory.
const PARTS: [&str; 16] = [
    "journal",
    "namespace",
    "store",
    "cluster",
    "node",
    "ballast",
    "control",
    "control.new",
    "last-backup",
    "last-backup.tmp",
    "RESTORING",
    "RESTORING.new",
    "JOURNAL",
    "JOURNAL.new",
    "DATABASE",
    "DATABASE.new",
];

/// Why a data directory was refused.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// No `--data` and no `data` in the configuration.
    #[error("no data directory given; say --data DIR, or `data = \"DIR\"` in the configuration file")]
    NotGiven,
    /// The directory does not exist, and this command may not create it.
    #[error(
        "{path} is not a weir data directory yet, and this command does not make one; if it should be there, is its disk mounted?"
    )]
    Missing {
        /// The directory.
        path: PathBuf,
    },
    /// Its parent folder does not exist.
    #[error("cannot make {path}: the folder above it does not exist; make it, or correct --data")]
    NoParent {
        /// The directory.
        path: PathBuf,
    },
    /// It is not empty, and nothing in it belongs to weir.
    #[error(
        "{path} is not empty and has no FORMAT file, so it is not weir's (it holds `{found}`); nothing was touched. Give an empty or a new directory"
    )]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// The first name in it.
        found: String,
    },
    /// Its FORMAT file was refused.
    #[error("{path}/FORMAT: {source}")]
    Format {
        /// The directory.
        path: PathBuf,
        /// The cause.
        source: FormatError,
    },
    /// Another process holds it.
    #[error("{path}: {source}")]
    Locked {
        /// The directory.
        path: PathBuf,
        /// The holder.
        source: LockError,
    },
    /// The directory belongs to another node than the backup.
    #[error(
        "{path} is another node's (cluster {cluster:032x}, store {store}) than the backup; nothing was touched. Give the data directory that the backup was made of, or a new one"
    )]
    OtherNode {
        /// The directory.
        path: PathBuf,
        /// The cluster of the directory.
        cluster: u128,
        /// The store of the directory.
        store: StoreId,
    },
    /// The directory has another role than expected.
    #[error("{path} is {is}, and not {wanted}; nothing was touched. {hint}")]
    OtherRole {
        /// The directory.
        path: PathBuf,
        /// Its role.
        is: DirRole,
        /// The expected role.
        wanted: DirRole,
        /// What would help.
        hint: &'static str,
    },
    /// It belongs to another cluster.
    #[error(
        "{path} belongs to cluster {is}, and this node to cluster {ours}; nothing was touched. Give it a directory of its own cluster, or an empty one"
    )]
    OtherCluster {
        /// The directory.
        path: PathBuf,
        /// The cluster of the directory.
        is: ClusterId,
        /// The cluster of this node.
        ours: ClusterId,
    },
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

impl DataDirError {
    /// The exit code of the command.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self {
            Self::NotGiven => Exit::Usage,
            Self::Locked { source: LockError::Held { .. }, .. } => Exit::InUse,
            _ => Exit::DataDirectory,
        }
    }
}

/// What to do if no data directory exists yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IfNew {
    /// Create one.
    Make,
    /// Refuse.
    Refuse,
}

/// An accepted and locked data directory. Dropping this value releases the lock.
///
/// It is open: everything below [`DataDir::directory`] stays on the disk that was there, whatever `path` names later.
#[derive(Debug)]
pub struct DataDir {
    /// The path as it was given, for people. Code uses [`DataDir::held`].
    pub path: PathBuf,
    /// The values in its FORMAT file.
    pub format: Format,
    /// Whether it was created just now.
    pub fresh: bool,
    directory: Arc<Directory>,
    made_folder: bool,
    _lock: Lock,
}

impl DataDir {
    /// Accepts or creates the data directory of a single node at `path`, and locks it. `now` is its time of creation, if it is new.
    pub fn open(path: &Path, if_new: IfNew, now: Timestamp) -> Result<Self, DataDirError> {
        Self::open_as(path, DirRole::Single, None, if_new, now)
    }

    /// Accepts or creates the directory at `path` as a `role`, and locks it. With a `cluster`, an existing directory must belong to that cluster, and
    /// a new one is created for it.
    pub fn open_as(
        path: &Path,
        role: DirRole,
        cluster: Option<ClusterId>,
        if_new: IfNew,
        now: Timestamp,
    ) -> Result<Self, DataDirError> {
        let checked = |found: Option<Format>| {
            found.iter().try_for_each(|format| check(path, format, role, cluster))?;
            Ok(found)
        };
        let found: Option<Format> = checked(look(path, path)?)?;
        if found.is_none() && if_new == IfNew::Refuse {
            return Err(DataDirError::Missing { path: path.to_owned() });
        }
        let made_folder = found.is_none() && make_folder(path)?;
        let (directory, lock) = open_locked(path)?;
        // Looks again under the lock, because two first starts may run at the same time. From here on the directory
        // stays the same one, even if a disk is mounted over it.
        let (format, fresh) = match checked(look(&directory.held(), path)?)? {
            Some(format) => (format, false),
            None if if_new == IfNew::Refuse => return Err(DataDirError::Missing { path: path.to_owned() }),
            None => (write_first(&directory, role, cluster, now)?, true),
        };
        Ok(Self { path: path.to_owned(), format, fresh, directory, made_folder, _lock: lock })
    }

    /// Accepts and locks the data directory at `path` for a restore of the node whose FORMAT file had the values in `lost`: its own directory, one
    /// that has lost this file, or a new one.
    pub fn for_restore(path: &Path, lost: Format) -> Result<Self, DataDirError> {
        let found = match look(path, path) {
            Err(DataDirError::Foreign { .. }) if holds_parts_alone(path, lost.role)? => None,
            found => found?,
        };
        found.iter().try_for_each(|format| check(path, format, lost.role, None))?;
        let ours = |format: &Format| (format.cluster, format.store) == (lost.cluster, lost.store);
        if let Some(other) = found.as_ref().filter(|format| !ours(format)) {
            return Err(DataDirError::OtherNode { path: path.to_owned(), cluster: other.cluster, store: other.store });
        }
        let made_folder = found.is_none() && make_folder(path)?;
        let (directory, lock) = open_locked(path)?;
        let fresh = found.is_none();
        let format = match found {
            Some(format) => format,
            None => {
                write_format(&directory, &lost)?;
                lost
            }
        };
        Ok(Self { path: path.to_owned(), format, fresh, directory, made_folder, _lock: lock })
    }

    /// The open directory.
    #[must_use]
    pub fn directory(&self) -> &Arc<Directory> {
        &self.directory
    }

    /// A path to the open directory, for code that takes paths: [`Directory::held`].
    #[must_use]
    pub fn held(&self) -> PathBuf {
        self.directory.held()
    }

    /// Watches whether its path still names this directory, and whether the paths of its parts still name them.
    #[must_use]
    pub fn watch(&self) -> DirWatch {
        DirWatch::of(Arc::clone(&self.directory))
    }

    /// Removes what [`DataDir::open_as`] has just made, so that a start that failed leaves nothing. Does nothing if the
    /// directory was there before, or holds more by now.
    pub fn abandon(self) {
        if !self.fresh {
            return;
        }
        let ours = |name: &std::ffi::OsStr| [FORMAT_FILE, LOCK_FILE].iter().any(|own| name == *own);
        let held = self.held();
        let is_bare = fs::read_dir(&held).and_then(|names| {
            names.map(|name| name.map(|name| ours(&name.file_name()))).collect::<Result<Vec<_>, _>>()
        });
        let is_bare = is_bare.is_ok_and(|names| names.into_iter().all(|ours| ours));
        if !is_bare {
            return;
        }
        // Best effort: the next start accepts what is left.
        let _ = fs::remove_file(held.join(FORMAT_FILE)).and_then(|()| fs::remove_file(held.join(LOCK_FILE)));
        if self.made_folder && self.directory.named().is_ok_and(|named| named == disk::Named::Same) {
            let _ = fs::remove_dir(&self.path);
        }
    }

    /// Replaces the FORMAT file.
    pub fn replace_format(&mut self, format: Format) -> Result<(), DataDirError> {
        write_format(&self.directory, &format)?;
        self.format = format;
        Ok(())
    }
}

/// The values in the FORMAT file of the data directory at `path`. `None` if it is empty or does not exist. Changes nothing.
pub fn format_of(path: &Path) -> Result<Option<Format>, DataDirError> {
    look(path, path)
}

/// The process that holds the data directory at `path`, or has held it last, by the lock file's own words.
pub fn holder_of(path: &Path) -> Option<u32> {
    fs::File::open(path.join(LOCK_FILE)).ok().and_then(|mut file| lock::pid_in(&mut file))
}

/// Opens and locks the directory at `path`.
fn open_locked(path: &Path) -> Result<(Arc<Directory>, Lock), DataDirError> {
    let io = |error: DiskError| DataDirError::Io { what: "open", path: path.to_owned(), source: error.source };
    let directory = Arc::new(Directory::open(path).map_err(io)?);
    let lock = Lock::take(&directory.held().join(LOCK_FILE));
    let lock = lock.map_err(|source| DataDirError::Locked { path: path.to_owned(), source })?;
    Ok((directory, lock))
}

/// Whether the directory at `path`, which has no FORMAT file, has what the directory of a `role` must not lose, and every name in it is one of weir's.
fn holds_parts_alone(path: &Path, role: DirRole) -> Result<bool, DataDirError> {
    let io = |source| DataDirError::Io { what: "list", path: path.to_owned(), source };
    let vital = if role == DirRole::Manager { "cluster" } else { "store" };
    let mut contents = false;
    for name in fs::read_dir(path).map_err(io)? {
        let name = name.map_err(io)?.file_name().to_string_lossy().into_owned();
        let aside = ["journal-lost-", "journal-moved-", "namespace-lost-", "namespace-moved-", "namespace."]
            .iter()
            .any(|prefix| name.starts_with(prefix));
        if !aside && !NAMES_OF_NOTHING.contains(&name.as_str()) && !PARTS.contains(&name.as_str()) {
            return Ok(false);
        }
        contents |= name == vital;
    }
    Ok(contents)
}

/// Checks that the directory at `path` is a `role` and belongs to `cluster`.
fn check(path: &Path, format: &Format, role: DirRole, cluster: Option<ClusterId>) -> Result<(), DataDirError> {
    if format.role != role {
        let hint = match (format.role, role) {
            (DirRole::Single, _) => {
                "A single node cannot become part of a cluster yet; give an empty directory, and copy the files over"
            }
            (DirRole::Manager, DirRole::Single) => {
                "Start its node with --role manager; only `weir backup` and `weir restore` work on it beside"
            }
            (DirRole::Manager, _) => "Start its node with --role manager",
            (DirRole::Disk, DirRole::Single) => "Start its node with --role disk; other commands do not work on it yet",
            (DirRole::Disk, _) => "Start its node with --role disk",
            (DirRole::Store, _) => "Name it as `dir` of a [[store]] of its disk server",
        };
        return Err(DataDirError::OtherRole { path: path.to_owned(), is: format.role, wanted: role, hint });
    }
    match cluster {
        Some(ours) if ours.0 != format.cluster => {
            Err(DataDirError::OtherCluster { path: path.to_owned(), is: ClusterId(format.cluster), ours })
        }
        _ => Ok(()),
    }
}

/// The format of the data directory `at`, which people know as `path`. `None` if it is empty or does not exist. Changes nothing.
fn look(at: &Path, path: &Path) -> Result<Option<Format>, DataDirError> {
    let io = |what| move |source| DataDirError::Io { what, path: path.to_owned(), source };
    let names = match fs::read_dir(at) {
        Ok(names) => names,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io("list")(error)),
    };
    let mut foreign: Option<String> = None;
    for name in names {
        let name = name.map_err(io("list"))?.file_name().to_string_lossy().into_owned();
        if name == FORMAT_FILE {
            return match format_file::read(&at.join(FORMAT_FILE)) {
                Ok(format) => Ok(Some(format)),
                Err(source) => Err(DataDirError::Format { path: path.to_owned(), source }),
            };
        }
        if !NAMES_OF_NOTHING.contains(&name.as_str()) && foreign.as_ref().is_none_or(|first| name < *first) {
            foreign = Some(name);
        }
    }
    match foreign {
        None => Ok(None),
        Some(found) => Err(DataDirError::Foreign { path: path.to_owned(), found }),
    }
}

/// Makes the folder at `path`. Returns whether it was not there.
fn make_folder(path: &Path) -> Result<bool, DataDirError> {
    use std::os::unix::fs::DirBuilderExt as _;
    let io = |what| move |source| DataDirError::Io { what, path: path.to_owned(), source };
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(DataDirError::NoParent { path: path.to_owned() });
        }
        Err(error) => return Err(io("make")(error)),
    }
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    sync_folder(parent).map_err(io("sync the folder above"))?;
    Ok(true)
}

/// Writes the FORMAT file completely or not at all. Writes it under another name, syncs and renames it, then syncs the folder.
fn write_first(
    directory: &Directory,
    role: DirRole,
    cluster: Option<ClusterId>,
    now: Timestamp,
) -> Result<Format, DataDirError> {
    let io = |what| move |source| DataDirError::Io { what, path: directory.shown().to_owned(), source };
    let fresh = Format::fresh_as(role, now).map_err(io("take random numbers for"))?;
    let format = Format { cluster: cluster.map_or(fresh.cluster, |cluster| cluster.0), ..fresh };
    write_format(directory, &format)?;
    Ok(format)
}

fn write_format(directory: &Directory, format: &Format) -> Result<(), DataDirError> {
    use std::io::Write as _;
    let io = |what| move |source| DataDirError::Io { what, path: directory.shown().to_owned(), source };
    let path = directory.held();
    let new = path.join(FORMAT_FILE_NEW);
    // A leftover of an interrupted start; or a link to another file, which a command of root must not write to.
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io("write FORMAT in")(error)),
        _ => {}
    }
    let mut file = fs::File::create_new(&new).map_err(io("write FORMAT in"))?;
    file.write_all(format.to_text().as_bytes()).map_err(io("write FORMAT in"))?;
    file.sync_all().map_err(io("sync FORMAT in"))?;
    fs::rename(&new, path.join(FORMAT_FILE)).map_err(io("name FORMAT in"))?;
    sync_folder(&path).map_err(io("sync"))
}

fn sync_folder(path: &Path) -> io::Result<()> {
    fs::File::open(path)?.sync_all()
}

#[cfg(test)]
mod tests {
    use types::Incarnation;

    use super::*;

    const NOW: Timestamp = Timestamp(1_700_000_000_000_000_000);

    fn open(path: &Path) -> Result<DataDir, DataDirError> {
        DataDir::open(path, IfNew::Make, NOW)
    }

    #[test]
    fn links_in_place_of_its_files_are_not_written_through() {
        let temp = tempfile::tempdir().unwrap();
        let (dir, other) = (temp.path().join("dir"), temp.path().join("other"));
        fs::create_dir(&dir).unwrap();
        fs::write(&other, "of somebody else").unwrap();
        std::os::unix::fs::symlink(&other, dir.join(FORMAT_FILE_NEW)).unwrap();
        drop(open(&dir).unwrap());
        fs::remove_file(dir.join(LOCK_FILE)).unwrap();
        std::os::unix::fs::symlink(&other, dir.join(LOCK_FILE)).unwrap();
        assert!(open(&dir).is_err());
        assert_eq!(fs::read_to_string(&other).unwrap(), "of somebody else");
    }

    #[test]
    fn directory_is_made_once_and_found_again() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("data");
        let made = open(&path).unwrap();
        assert!(made.fresh);
        let format = made.format.clone();
        drop(made);
        let found = open(&path).unwrap();
        assert!(!found.fresh);
        assert_eq!(found.format, format);
    }

    #[test]
    fn interrupted_first_start_begins_again() {
        let temp = tempfile::tempdir().unwrap();
        fs::write(temp.path().join(FORMAT_FILE_NEW), "form").unwrap();
        fs::write(temp.path().join(LOCK_FILE), "").unwrap();
        fs::create_dir(temp.path().join("lost+found")).unwrap();
        assert!(open(temp.path()).unwrap().fresh);
        assert!(!temp.path().join(FORMAT_FILE_NEW).exists());
    }

    #[test]
    fn directory_is_accepted_only_in_its_own_role() {
        let temp = tempfile::tempdir().unwrap();
        let roles = [DirRole::Single, DirRole::Manager, DirRole::Disk, DirRole::Store];
        for is in roles {
            let path = temp.path().join(format!("{is:?}"));
            drop(DataDir::open_as(&path, is, None, IfNew::Make, NOW).unwrap());
            for wanted in roles {
                match DataDir::open_as(&path, wanted, None, IfNew::Make, NOW) {
                    Ok(found) => assert!(is == wanted && !found.fresh),
                    Err(error) => {
                        assert!(is != wanted && error.to_string().contains("nothing was touched"), "{error}");
                        assert_eq!(error.exit(), Exit::DataDirectory);
                    }
                }
            }
        }
    }

    #[test]
    fn store_is_accepted_only_in_its_own_cluster() {
        let temp = tempfile::tempdir().unwrap();
        let open = |cluster| DataDir::open_as(temp.path(), DirRole::Store, Some(ClusterId(cluster)), IfNew::Make, NOW);
        assert_eq!(open(5).unwrap().format.cluster, 5);
        open(5).unwrap();
        let error = open(6).unwrap_err();
        assert!(matches!(error, DataDirError::OtherCluster { is: ClusterId(5), ours: ClusterId(6), .. }), "{error}");
    }

    #[test]
    fn foreign_directory_is_left_alone() {
        let temp = tempfile::tempdir().unwrap();
        fs::write(temp.path().join("thesis.tex"), "x").unwrap();
        let error = open(temp.path()).unwrap_err();
        assert!(matches!(&error, DataDirError::Foreign { found, .. } if found == "thesis.tex"), "{error}");
        assert_eq!(error.exit(), Exit::DataDirectory);
        let names: Vec<_> = fs::read_dir(temp.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["thesis.tex"]);
    }

    #[test]
    fn no_directory_is_made_unless_requested() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("data");
        assert!(matches!(DataDir::open(&path, IfNew::Refuse, NOW), Err(DataDirError::Missing { .. })));
        assert!(!path.exists());
        assert!(matches!(open(&path.join("deeper")), Err(DataDirError::NoParent { .. })));
        assert!(!path.exists());
        fs::write(&path, "a file").unwrap();
        assert!(matches!(open(&path), Err(DataDirError::Io { .. })));
    }

    #[test]
    fn abandoned_start_leaves_nothing() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("data");
        open(&path).unwrap().abandon();
        assert!(!path.exists());
        // A folder that was there stays.
        fs::create_dir(&path).unwrap();
        open(&path).unwrap().abandon();
        assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
        // What has more in it by now stays, and so does a directory of an earlier start.
        let made = open(&path).unwrap();
        fs::create_dir(made.held().join("journal")).unwrap();
        made.abandon();
        fs::remove_dir(path.join("journal")).unwrap();
        let found = open(&path).unwrap();
        assert!(!found.fresh);
        found.abandon();
        assert!(path.join(FORMAT_FILE).exists());
    }

    #[test]
    fn directory_that_was_opened_is_used_whatever_its_path_names() {
        let temp = tempfile::tempdir().unwrap();
        let (path, moved) = (temp.path().join("data"), temp.path().join("moved"));
        let mut data = open(&path).unwrap();
        fs::rename(&path, &moved).unwrap();
        let other = open(&path).unwrap().format;
        let changed = Format { incarnation: Incarnation(7), ..data.format.clone() };
        data.replace_format(changed.clone()).unwrap();
        assert_eq!((format_of(&moved).unwrap(), format_of(&path).unwrap()), (Some(changed), Some(other)));
        data.abandon();
        assert!(path.exists());
    }

    #[test]
    fn second_process_learns_who_holds_the_lock() {
        let temp = tempfile::tempdir().unwrap();
        let first = open(temp.path()).unwrap();
        let error = open(temp.path()).unwrap_err();
        assert_eq!(error.exit(), Exit::InUse);
        assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
        drop(first);
        open(temp.path()).unwrap();
    }

    #[test]
    fn unknown_format_is_refused_and_left_untouched() {
        let temp = tempfile::tempdir().unwrap();
        drop(open(temp.path()).unwrap());
        let file = temp.path().join(FORMAT_FILE);
        let text = fs::read_to_string(&file).unwrap();
        let refused = |version: u32| {
            let text = text.replace("format = 2\n", &format!("format = {version}\n"));
            fs::write(&file, &text).unwrap();
            let error = open(temp.path()).unwrap_err();
            assert_eq!(fs::read_to_string(&file).unwrap(), text);
            error
        };
        let newer = refused(3);
        assert!(matches!(newer, DataDirError::Format { source: FormatError::Newer { found: 3 }, .. }), "{newer}");
        let older = refused(1);
        assert!(matches!(older, DataDirError::Format { source: FormatError::Older { found: 1 }, .. }), "{older}");
    }
}
