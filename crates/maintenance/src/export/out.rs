//! The target folder of an export. A file gets its name only when it is complete and on the disk. The export never replaces an existing name.

use std::fs::{self, File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{CWD, Mode, OFlags, RenameFlags, XattrFlags};
use rustix::io::Errno;

/// The metadata of a file or folder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileMetadata {
    /// Permission bits.
    pub mode: u32,
    /// When it was changed.
    pub time: SystemTime,
    /// User and group as numbers, if requested.
    pub owner: Option<(u32, u32)>,
    /// Extended attributes, by their names in the namespace: those of clients begin with `user.` there too.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// An extended attribute that a file system rejected, and the cause.
#[derive(Debug)]
pub struct AttributeRefused {
    /// Its name.
    pub name: Vec<u8>,
    /// The operating system's error.
    pub error: io::Error,
}

impl FileMetadata {
    /// Applies the metadata to `file`. The owner comes first, because changing it may clear permission bits.
    fn give(&self, file: &File, mode: u32) -> io::Result<Vec<AttributeRefused>> {
        if let Some((user, group)) = self.owner {
            std::os::unix::fs::fchown(file, Some(user), Some(group))?;
        }
        let mut refused = Vec::new();
        for (name, value) in &self.xattrs {
            if let Err(error) = set_xattr(file, name, value) {
                refused.push(AttributeRefused { name: name.clone(), error });
            }
        }
        file.set_permissions(Permissions::from_mode(mode))?;
        file.set_modified(self.time)?;
        Ok(refused)
    }
}

fn set_xattr(file: &File, name: &[u8], value: &[u8]) -> io::Result<()> {
    // The node's own attributes have another prefix, which only the system may use.
    let prefix: &[u8] = if name.starts_with(USER) { b"" } else { USER };
    Ok(rustix::fs::fsetxattr(file, [prefix, name].concat(), value, XattrFlags::empty())?)
}

/// The prefix of attributes that any user may set.
const USER: &[u8] = b"user.";
/// The folder for unfinished files and other temporary files. It is removed at the end.
pub const WORK: &str = ".weir-export";

/// The target folder.
pub struct TargetFolder {
    root: PathBuf,
}

/// An unfinished file.
pub struct Part {
    path: PathBuf,
    /// Its bytes.
    pub file: File,
}

impl TargetFolder {
    /// Opens the folder, and creates it if necessary.
    pub fn open(root: &Path) -> io::Result<Self> {
        make_folder(root)?;
        let out = Self { root: root.to_owned() };
        // Removes the temporary files of an interrupted export.
        match fs::remove_dir_all(out.work()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        fs::DirBuilder::new().mode(0o700).create(out.work())?;
        Ok(out)
    }

    /// The path of the folder for temporary files.
    pub fn work(&self) -> PathBuf {
        self.root.join(WORK)
    }

    /// Removes the folder for temporary files.
    pub fn close(&self) -> io::Result<()> {
        fs::remove_dir_all(self.work())?;
        File::open(&self.root)?.sync_all()
    }

    /// The file at `below`, if any. Does not follow symbolic links.
    pub fn look(&self, below: &Path) -> io::Result<Option<Metadata>> {
        match fs::symlink_metadata(self.root.join(below)) {
            Ok(there) => Ok(Some(there)),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Opens the file at `below` for reading.
    pub fn read(&self, below: &Path) -> io::Result<File> {
        File::open(self.root.join(below))
    }

    /// Creates the folders above `below`. Follows no link out of the target: anything else than a folder on the way is an error.
    pub fn make_above(&self, below: &Path) -> io::Result<()> {
        let mut folder = self.root.clone();
        for part in below.parent().into_iter().flat_map(Path::components) {
            folder.push(part);
            make_folder(&folder)?;
        }
        Ok(())
    }

    /// Creates the folder `below`.
    pub fn make_dir(&self, below: &Path) -> io::Result<()> {
        self.make_above(below)?;
        make_folder(&self.root.join(below))
    }

    /// Applies the metadata of a folder after everything is in it. Returns the rejected attributes.
    pub fn finish_dir(&self, below: &Path, about: &FileMetadata) -> io::Result<Vec<AttributeRefused>> {
        let folder = File::open(self.root.join(below))?;
        folder.sync_all()?;
        // The owner keeps access, because a repeated export needs it.
        about.give(&folder, about.mode & 0o777 | 0o700)
    }

    /// Starts a file.
    pub fn begin(&self) -> io::Result<Part> {
        let path = self.work().join("part");
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        Ok(Part { file: File::create_new(&path)?, path })
    }

    /// Finishes a file: writes it to the disk with its metadata, then gives it its name. Returns the rejected attributes.
    ///
    /// # Errors
    ///
    /// `AlreadyExists` if the name is taken.
    pub fn finish(&self, part: &Part, below: &Path, about: &FileMetadata) -> io::Result<Vec<AttributeRefused>> {
        let refused = about.give(&part.file, about.mode & 0o777)?;
        part.file.sync_all()?;
        self.make_above(below)?;
        rename_new(&part.path, &self.root.join(below))?;
        Ok(refused)
    }

    /// Applies metadata, except the time, to an existing file. Returns the rejected attributes.
    pub fn finish_again(&self, below: &Path, about: &FileMetadata) -> io::Result<Vec<AttributeRefused>> {
        let has_mode = self.look(below)?.is_some_and(|there| there.permissions().mode() & 0o7777 == about.mode & 0o777);
        if has_mode && about.owner.is_none() && about.xattrs.is_empty() {
            return Ok(Vec::new());
        }
        let file = rustix::fs::openat(CWD, self.root.join(below), OFlags::RDONLY | OFlags::NOFOLLOW, Mode::empty())?;
        let file = File::from(file);
        let refused = about.give(&file, about.mode & 0o777)?;
        file.sync_all()?;
        Ok(refused)
    }

    /// Creates a symbolic link.
    pub fn symlink(&self, target: &Path, below: &Path) -> io::Result<()> {
        self.make_above(below)?;
        std::os::unix::fs::symlink(target, self.root.join(below))
    }

    /// The target of a symbolic link.
    pub fn read_link(&self, below: &Path) -> io::Result<PathBuf> {
        fs::read_link(self.root.join(below))
    }

    /// Creates a hard link.
    pub fn hard_link(&self, first: &Path, below: &Path) -> io::Result<()> {
        self.make_above(below)?;
        fs::hard_link(self.root.join(first), self.root.join(below))
    }
}

fn make_folder(path: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o755).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            // Refuses a symbolic link, except as the target itself, which the caller named.
            let there = fs::symlink_metadata(path)?;
            let is_folder = there.is_dir()
                || there.is_symlink()
                    && fs::metadata(path)?.is_dir()
                    && path.parent().is_none_or(|above| !above.join(WORK).exists());
            if is_folder {
                Ok(())
            } else {
                Err(io::Error::new(io::ErrorKind::NotADirectory, format!("{} is there and no folder", path.display())))
            }
        }
        made => made,
    }
}

/// Renames a file, unless the new name is taken.
fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // The file system cannot do that in one step, so the file has two names for a moment.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            fs::hard_link(from, to)?;
            fs::remove_file(from)
        }
        renamed => Ok(renamed?),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn export_replaces_no_name_and_follows_no_link() {
        let temp = tempfile::tempdir().unwrap();
        let out = TargetFolder::open(&temp.path().join("out")).unwrap();
        let put = |below: &str, text: &str| {
            let mut part = out.begin().unwrap();
            part.file.write_all(text.as_bytes()).unwrap();
            let about = FileMetadata { mode: 0o640, time: SystemTime::UNIX_EPOCH, owner: None, xattrs: Vec::new() };
            out.finish(&part, Path::new(below), &about)
        };
        put("a/b", "one").unwrap();
        assert_eq!(put("a/b", "two").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(temp.path().join("out/a/b")).unwrap(), "one");
        assert!(put("a/b/c", "below a file").is_err());
        fs::create_dir(temp.path().join("elsewhere")).unwrap();
        out.symlink(&temp.path().join("elsewhere"), Path::new("link")).unwrap();
        assert!(put("link/c", "through a link").is_err());
        assert_eq!(fs::read_dir(temp.path().join("elsewhere")).unwrap().count(), 0);
        let there = out.look(Path::new("a/b")).unwrap().unwrap();
        assert_eq!((there.permissions().mode() & 0o777, there.modified().unwrap()), (0o640, SystemTime::UNIX_EPOCH));
        out.close().unwrap();
        assert!(!temp.path().join("out").join(WORK).exists());
    }
}
