//! The folder that is exported to. A file gets its name when it is whole and on the disk, and no name is ever taken from another.

use std::fs::{self, File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{CWD, Mode, OFlags, RenameFlags, XattrFlags};
use rustix::io::Errno;

/// What a file or folder has besides its bytes or entries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct About {
    /// Permission bits.
    pub mode: u32,
    /// When it was changed.
    pub time: SystemTime,
    /// User and group as numbers, where these are wanted.
    pub owner: Option<(u32, u32)>,
    /// Extended attributes, by the names that the namespace has for them: those of clients begin with `user.` there as well.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// An extended attribute that a file system did not take, and why.
#[derive(Debug)]
pub struct Refused {
    /// Its name.
    pub name: Vec<u8>,
    /// What the system said.
    pub error: io::Error,
}

impl About {
    /// Gives it to `file`. Owner first: a change of it may take permission bits away.
    fn give(&self, file: &File, mode: u32) -> io::Result<Vec<Refused>> {
        if let Some((user, group)) = self.owner {
            std::os::unix::fs::fchown(file, Some(user), Some(group))?;
        }
        let mut refused = Vec::new();
        for (name, value) in &self.xattrs {
            if let Err(error) = set_xattr(file, name, value) {
                refused.push(Refused { name: name.clone(), error });
            }
        }
        file.set_permissions(Permissions::from_mode(mode))?;
        file.set_modified(self.time)?;
        Ok(refused)
    }
}

fn set_xattr(file: &File, name: &[u8], value: &[u8]) -> io::Result<()> {
    // What the node itself has noted of a file has a prefix of its own; nobody but the system may use others than this one.
    let prefix: &[u8] = if name.starts_with(USER) { b"" } else { USER };
    Ok(rustix::fs::fsetxattr(file, [prefix, name].concat(), value, XattrFlags::empty())?)
}

/// What the names of attributes begin with that anybody may set.
const USER: &[u8] = b"user.";
/// For files in the making, and what else an export needs; gone when it is done.
pub const WORK: &str = ".weir-export";

/// The folder.
pub struct Out {
    root: PathBuf,
}

/// A file in the making.
pub struct Part {
    path: PathBuf,
    /// Its bytes.
    pub file: File,
}

impl Out {
    /// Opens the folder, which is made if it is not there.
    pub fn open(root: &Path) -> io::Result<Self> {
        make_folder(root)?;
        let out = Self { root: root.to_owned() };
        // What an interrupted export was at.
        match fs::remove_dir_all(out.work()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        fs::DirBuilder::new().mode(0o700).create(out.work())?;
        Ok(out)
    }

    /// A folder for what is needed besides.
    pub fn work(&self) -> PathBuf {
        self.root.join(WORK)
    }

    /// Removes it.
    pub fn close(&self) -> io::Result<()> {
        fs::remove_dir_all(self.work())?;
        File::open(&self.root)?.sync_all()
    }

    /// What is at `below`, if anything; symbolic links not followed.
    pub fn look(&self, below: &Path) -> io::Result<Option<Metadata>> {
        match fs::symlink_metadata(self.root.join(below)) {
            Ok(there) => Ok(Some(there)),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Opens what is at `below` for reading.
    pub fn read(&self, below: &Path) -> io::Result<File> {
        File::open(self.root.join(below))
    }

    /// Makes the folders above `below`. Nothing is followed out of the target: what is there and no folder is an error.
    pub fn make_above(&self, below: &Path) -> io::Result<()> {
        let mut folder = self.root.clone();
        for part in below.parent().into_iter().flat_map(Path::components) {
            folder.push(part);
            make_folder(&folder)?;
        }
        Ok(())
    }

    /// Makes the folder `below`.
    pub fn make_dir(&self, below: &Path) -> io::Result<()> {
        self.make_above(below)?;
        make_folder(&self.root.join(below))
    }

    /// Gives a folder what it has besides, once everything is in it. Gives the attributes that were not taken.
    pub fn finish_dir(&self, below: &Path, about: &About) -> io::Result<Vec<Refused>> {
        let folder = File::open(self.root.join(below))?;
        folder.sync_all()?;
        // Its owner may always go in: an export that is begun again has to.
        about.give(&folder, about.mode & 0o777 | 0o700)
    }

    /// Begins a file.
    pub fn begin(&self) -> io::Result<Part> {
        let path = self.work().join("part");
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        Ok(Part { file: File::create_new(&path)?, path })
    }

    /// Ends a file: on the disk, with what it has besides, and then with its name. Gives the attributes that were not taken.
    ///
    /// # Errors
    /// `AlreadyExists` where the name is taken.
    pub fn finish(&self, part: &Part, below: &Path, about: &About) -> io::Result<Vec<Refused>> {
        let refused = about.give(&part.file, about.mode & 0o777)?;
        part.file.sync_all()?;
        self.make_above(below)?;
        rename_new(&part.path, &self.root.join(below))?;
        Ok(refused)
    }

    /// Gives a file that is there what it has besides its bytes and its time. Gives the attributes that were not taken.
    pub fn finish_again(&self, below: &Path, about: &About) -> io::Result<Vec<Refused>> {
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

    /// Makes a symbolic link.
    pub fn symlink(&self, target: &Path, below: &Path) -> io::Result<()> {
        self.make_above(below)?;
        std::os::unix::fs::symlink(target, self.root.join(below))
    }

    /// Where a symbolic link leads.
    pub fn read_link(&self, below: &Path) -> io::Result<PathBuf> {
        fs::read_link(self.root.join(below))
    }

    /// Another name for a file.
    pub fn hard_link(&self, first: &Path, below: &Path) -> io::Result<()> {
        self.make_above(below)?;
        fs::hard_link(self.root.join(first), self.root.join(below))
    }
}

fn make_folder(path: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o755).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            // Not through a symbolic link, except for the target itself, which the caller named.
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

/// Renames, unless the name is taken.
fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // A file system without it: two names for a moment.
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
    fn no_name_is_taken_and_no_link_is_followed() {
        let temp = tempfile::tempdir().unwrap();
        let out = Out::open(&temp.path().join("out")).unwrap();
        let put = |below: &str, text: &str| {
            let mut part = out.begin().unwrap();
            part.file.write_all(text.as_bytes()).unwrap();
            let about = About { mode: 0o640, time: SystemTime::UNIX_EPOCH, owner: None, xattrs: Vec::new() };
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
