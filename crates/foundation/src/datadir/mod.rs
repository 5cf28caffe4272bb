//! The data directory: whose it is, which version, and who holds it. Everything in here happens before the first byte
//! of the journal is read; what is refused is left exactly as it was.

mod format_file;
mod lock;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use types::{ClusterId, Incarnation, StoreId, Timestamp};

pub use format_file::{DirRole, FORMAT_VERSION, Format, FormatError, KNOWN_COMPATIBLE, KNOWN_INCOMPATIBLE};
pub use lock::{Lock, LockError};

use console::Exit;

/// The name of the file that makes a directory weir's.
pub const FORMAT_FILE: &str = "FORMAT";
const FORMAT_FILE_NEW: &str = "FORMAT.new";
const LOCK_FILE: &str = "lock";

/// Names that an empty directory may hold: what a first start that was cut off leaves behind, and what every fresh
/// ext4 has.
const NAMES_OF_NOTHING: [&str; 3] = [LOCK_FILE, FORMAT_FILE_NEW, "lost+found"];

/// What else is in one.
const PARTS: [&str; 8] =
    ["journal", "namespace", "store", "ballast", "control", "control.new", "RESTORING", "RESTORING.new"];

/// Why a data directory was refused.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// No `--data` and no `data` in the configuration.
    #[error("no data directory given; say --data DIR, or `data = \"DIR\"` in the configuration file")]
    NotGiven,
    /// There is none, and none may be made.
    #[error(
        "{path} is not a weir data directory yet, and this command does not make one; if it should be there, is its disk mounted?"
    )]
    Missing {
        /// The directory.
        path: PathBuf,
    },
    /// The folder that it would be made in is not there.
    #[error("cannot make {path}: the folder above it does not exist; make it, or correct --data")]
    NoParent {
        /// The directory.
        path: PathBuf,
    },
    /// It holds something, and none of it is weir's.
    #[error(
        "{path} is not empty and has no FORMAT file, so it is not weir's (it holds `{found}`); nothing was touched. Give an empty or a new directory"
    )]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// The first name in it.
        found: String,
    },
    /// Its FORMAT file says no.
    #[error("{path}/FORMAT: {source}")]
    Format {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: FormatError,
    },
    /// Somebody holds it.
    #[error("{path}: {source}")]
    Locked {
        /// The directory.
        path: PathBuf,
        /// Who.
        source: LockError,
    },
    /// Another node's than the backup.
    #[error(
        "{path} is another node's (cluster {cluster:032x}, store {store}) than the backup; nothing was touched. Give the data directory that the backup was made of, or a new one"
    )]
    OtherNode {
        /// The directory.
        path: PathBuf,
        /// Whose it is.
        cluster: u128,
        /// Whose it is.
        store: StoreId,
    },
    /// It is something else than what it was given as.
    #[error("{path} is {is}, and not {wanted}; nothing was touched. {hint}")]
    OtherRole {
        /// The directory.
        path: PathBuf,
        /// What it is.
        is: DirRole,
        /// What it was given as.
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
        /// Whose it is.
        is: ClusterId,
        /// Whose the node is.
        ours: ClusterId,
    },
    /// The system said no.
    #[error("cannot {what} {path}: {source}")]
    Io {
        /// What was attempted.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl DataDirError {
    /// The code that the run ends with.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self {
            Self::NotGiven => Exit::Usage,
            Self::Locked { source: LockError::Held { .. }, .. } => Exit::InUse,
            _ => Exit::DataDirectory,
        }
    }
}

/// What to do where there is no data directory yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IfNew {
    /// Make one.
    Make,
    /// Refuse.
    Refuse,
}

/// An accepted and locked data directory. The lock goes with this value.
#[derive(Debug)]
pub struct DataDir {
    /// Where.
    pub path: PathBuf,
    /// What its FORMAT file says.
    pub format: Format,
    /// Whether it was made just now.
    pub fresh: bool,
    _lock: Lock,
}

impl DataDir {
    /// Accepts, or makes, the data directory of a single node at `path`, and locks it. `now` is when it is made, should it be.
    pub fn open(path: &Path, if_new: IfNew, now: Timestamp) -> Result<Self, DataDirError> {
        Self::open_as(path, DirRole::Single, None, if_new, now)
    }

    /// Accepts, or makes, the directory at `path` as a `role`, and locks it. With a `cluster` it has to be of that, and is made for it.
    pub fn open_as(
        path: &Path,
        role: DirRole,
        cluster: Option<ClusterId>,
        if_new: IfNew,
        now: Timestamp,
    ) -> Result<Self, DataDirError> {
        let look = || {
            let found = look(path)?;
            found.iter().try_for_each(|format| check(path, format, role, cluster))?;
            Ok(found)
        };
        let format: Option<Format> = look()?;
        if format.is_none() && if_new == IfNew::Refuse {
            return Err(DataDirError::Missing { path: path.to_owned() });
        }
        if format.is_none() {
            make_folder(path)?;
        }
        let lock = Lock::take(&path.join(LOCK_FILE))
            .map_err(|source| DataDirError::Locked { path: path.to_owned(), source })?;
        // Once more under the lock: two first starts may have come at the same time.
        let (format, fresh) = match look()? {
            Some(format) => (format, false),
            None => (write_first(path, role, cluster, now)?, true),
        };
        Ok(Self { path: path.to_owned(), format, fresh, _lock: lock })
    }

    /// Accepts and locks the data directory at `path` for a restore: that of this store, one whose FORMAT is lost, or a new one.
    pub fn for_restore(path: &Path, cluster: u128, store: StoreId, created: Timestamp) -> Result<Self, DataDirError> {
        let found = match look(path) {
            Err(DataDirError::Foreign { .. }) if holds_parts_alone(path)? => None,
            found => found?,
        };
        found.iter().try_for_each(|format| check(path, format, DirRole::Single, None))?;
        let ours = |format: &Format| (format.cluster, format.store) == (cluster, store);
        if let Some(other) = found.as_ref().filter(|format| !ours(format)) {
            return Err(DataDirError::OtherNode { path: path.to_owned(), cluster: other.cluster, store: other.store });
        }
        if found.is_none() {
            make_folder(path)?;
        }
        let lock = Lock::take(&path.join(LOCK_FILE))
            .map_err(|source| DataDirError::Locked { path: path.to_owned(), source })?;
        let fresh = found.is_none();
        let format = match found {
            Some(format) => format,
            None => {
                let role = DirRole::Single;
                let incarnation = Incarnation(1);
                let format = Format { incompatible: 0, compatible: 0, cluster, store, incarnation, created, role };
                write_format(path, &format)?;
                format
            }
        };
        Ok(Self { path: path.to_owned(), format, fresh, _lock: lock })
    }

    /// Writes FORMAT anew.
    pub fn replace_format(&mut self, format: Format) -> Result<(), DataDirError> {
        write_format(&self.path, &format)?;
        self.format = format;
        Ok(())
    }
}

/// What the FORMAT file of the data directory at `path` says; `None` where there is nothing at all. Touches nothing.
pub fn format_of(path: &Path) -> Result<Option<Format>, DataDirError> {
    look(path)
}

/// Whether everything in the directory at `path` has a name that weir gives, and there are contents: all but FORMAT.
fn holds_parts_alone(path: &Path) -> Result<bool, DataDirError> {
    let io = |source| DataDirError::Io { what: "list", path: path.to_owned(), source };
    let mut contents = false;
    for name in fs::read_dir(path).map_err(io)? {
        let name = name.map_err(io)?.file_name().to_string_lossy().into_owned();
        let aside = ["journal-lost-", "namespace-lost-", "namespace."].iter().any(|prefix| name.starts_with(prefix));
        if !aside && !NAMES_OF_NOTHING.contains(&name.as_str()) && !PARTS.contains(&name.as_str()) {
            return Ok(false);
        }
        contents |= name == "store";
    }
    Ok(contents)
}

/// Whether the directory at `path` is a `role`, and of `cluster`.
fn check(path: &Path, format: &Format, role: DirRole, cluster: Option<ClusterId>) -> Result<(), DataDirError> {
    if format.role != role {
        let hint = match (format.role, role) {
            (DirRole::Single, _) => {
                "A single node cannot become part of a cluster yet; give an empty directory, and copy the files over"
            }
            (DirRole::Manager, DirRole::Single) => {
                "Start its node with --role manager; other commands do not work on it yet"
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

/// The format of the data directory at `path`; `None` where there is nothing at all. Touches nothing.
fn look(path: &Path) -> Result<Option<Format>, DataDirError> {
    let io = |what| move |source| DataDirError::Io { what, path: path.to_owned(), source };
    let names = match fs::read_dir(path) {
        Ok(names) => names,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io("list")(error)),
    };
    let mut foreign: Option<String> = None;
    for name in names {
        let name = name.map_err(io("list"))?.file_name().to_string_lossy().into_owned();
        if name == FORMAT_FILE {
            return match format_file::read(&path.join(FORMAT_FILE)) {
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

fn make_folder(path: &Path) -> Result<(), DataDirError> {
    use std::os::unix::fs::DirBuilderExt as _;
    let io = |what| move |source| DataDirError::Io { what, path: path.to_owned(), source };
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(DataDirError::NoParent { path: path.to_owned() });
        }
        Err(error) => return Err(io("make")(error)),
    }
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    sync_folder(parent).map_err(io("sync the folder above"))
}

/// Writes FORMAT in full, or not at all: under another name first, synced, renamed, and the folder synced.
fn write_first(path: &Path, role: DirRole, cluster: Option<ClusterId>, now: Timestamp) -> Result<Format, DataDirError> {
    let io = |what| move |source| DataDirError::Io { what, path: path.to_owned(), source };
    let fresh = Format::fresh_as(role, now).map_err(io("take random numbers for"))?;
    let format = Format { cluster: cluster.map_or(fresh.cluster, |cluster| cluster.0), ..fresh };
    write_format(path, &format)?;
    Ok(format)
}

fn write_format(path: &Path, format: &Format) -> Result<(), DataDirError> {
    use std::io::Write as _;
    let io = |what| move |source| DataDirError::Io { what, path: path.to_owned(), source };
    let new = path.join(FORMAT_FILE_NEW);
    let mut file = fs::File::create(&new).map_err(io("write FORMAT in"))?;
    file.write_all(format.to_text().as_bytes()).map_err(io("write FORMAT in"))?;
    file.sync_all().map_err(io("sync FORMAT in"))?;
    fs::rename(&new, path.join(FORMAT_FILE)).map_err(io("name FORMAT in"))?;
    sync_folder(path).map_err(io("sync"))
}

fn sync_folder(path: &Path) -> io::Result<()> {
    fs::File::open(path)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_700_000_000_000_000_000);

    fn open(path: &Path) -> Result<DataDir, DataDirError> {
        DataDir::open(path, IfNew::Make, NOW)
    }

    #[test]
    fn made_once_and_found_again() {
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
    fn a_first_start_that_was_cut_off_begins_again() {
        let temp = tempfile::tempdir().unwrap();
        fs::write(temp.path().join(FORMAT_FILE_NEW), "form").unwrap();
        fs::write(temp.path().join(LOCK_FILE), "").unwrap();
        fs::create_dir(temp.path().join("lost+found")).unwrap();
        assert!(open(temp.path()).unwrap().fresh);
        assert!(!temp.path().join(FORMAT_FILE_NEW).exists());
    }

    #[test]
    fn a_directory_is_taken_for_what_it_is_alone() {
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
    fn a_store_is_of_its_cluster_alone() {
        let temp = tempfile::tempdir().unwrap();
        let open = |cluster| DataDir::open_as(temp.path(), DirRole::Store, Some(ClusterId(cluster)), IfNew::Make, NOW);
        assert_eq!(open(5).unwrap().format.cluster, 5);
        open(5).unwrap();
        let error = open(6).unwrap_err();
        assert!(matches!(error, DataDirError::OtherCluster { is: ClusterId(5), ours: ClusterId(6), .. }), "{error}");
    }

    #[test]
    fn a_foreign_directory_is_left_alone() {
        let temp = tempfile::tempdir().unwrap();
        fs::write(temp.path().join("thesis.tex"), "x").unwrap();
        let error = open(temp.path()).unwrap_err();
        assert!(matches!(&error, DataDirError::Foreign { found, .. } if found == "thesis.tex"), "{error}");
        assert_eq!(error.exit(), Exit::DataDirectory);
        let names: Vec<_> = fs::read_dir(temp.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["thesis.tex"]);
    }

    #[test]
    fn nothing_is_made_when_that_was_not_wanted() {
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
    fn the_second_one_is_told_who_holds_it() {
        let temp = tempfile::tempdir().unwrap();
        let first = open(temp.path()).unwrap();
        let error = open(temp.path()).unwrap_err();
        assert_eq!(error.exit(), Exit::InUse);
        assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
        drop(first);
        open(temp.path()).unwrap();
    }

    #[test]
    fn a_format_that_is_not_ours_is_refused_untouched() {
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
