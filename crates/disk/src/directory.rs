//! [`Directory`]: an open directory. It stays the same directory, whatever its path names later.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::{Mode, OFlags};

use crate::{DiskError, DiskOp};

/// An open directory. A path can name another directory later, because a disk was mounted over it or somebody moved
/// it. The open directory does not change: everything that is resolved below it stays on the disk that was there when
/// it was opened.
#[derive(Debug)]
pub struct Directory {
    handle: File,
    shown: PathBuf,
    /// See [`Directory::keep`]: the longest names first.
    kept: OnceLock<Vec<(String, Directory)>>,
}

/// What the path of a [`Directory`] names now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Named {
    /// The directory that was opened.
    Same,
    /// Another directory or file.
    Another,
    /// Nothing.
    Nothing,
}

impl Directory {
    /// Opens the directory `path`, which must exist.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn open(path: &Path) -> Result<Self, DiskError> {
        Self::open_shown(path, path)
    }

    /// Opens the existing directory `part` of this one. Its path for people is below this directory's.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn below(&self, part: &str) -> Result<Self, DiskError> {
        Self::open_shown(&self.held().join(part), &self.shown.join(part))
    }

    /// Opens the directory `part` of this one, and makes it and its parents if needed. Their names are not durable yet.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn make_below(&self, part: &str) -> Result<Self, DiskError> {
        std::fs::create_dir_all(self.held().join(part)).map_err(|source| DiskError {
            op: DiskOp::CreateDir,
            path: self.shown.join(part).display().to_string(),
            source,
        })?;
        self.below(part)
    }

    fn open_shown(path: &Path, shown: &Path) -> Result<Self, DiskError> {
        let handle = rustix::fs::open(path, OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        let handle = handle.map_err(|errno| DiskError {
            op: DiskOp::Open,
            path: shown.display().to_string(),
            source: io::Error::from(errno),
        })?;
        Ok(Self { handle: File::from(handle), shown: shown.to_owned(), kept: OnceLock::new() })
    }

    /// Opens those of the directories `parts` that exist, and keeps to them: from now on [`Directory::resolve`] leads to
    /// the directories that they are now. Nobody may rename or remove them any more. Only the first call counts.
    pub fn keep(&self, parts: &[&str]) {
        self.kept.get_or_init(|| {
            let open = |part: &&str| Some(((*part).to_owned(), self.below(part).ok()?));
            let mut kept: Vec<_> = parts.iter().filter_map(open).collect();
            kept.sort_by_key(|(part, _)| std::cmp::Reverse(part.len()));
            kept
        });
    }

    /// The directories that [`Directory::keep`] has opened, each before those in it.
    pub fn kept(&self) -> impl Iterator<Item = &Directory> {
        self.kept.get().into_iter().flatten().rev().map(|(_, directory)| directory)
    }

    /// The open directory that leads to `path`, which is relative to this one, and the rest of the path. The rest is
    /// never empty.
    #[must_use]
    pub fn resolve<'a>(&'a self, path: &'a str) -> (&'a Directory, &'a str) {
        for (part, directory) in self.kept.get().into_iter().flatten() {
            match path.strip_prefix(part.as_str()) {
                Some("") => return (directory, "."),
                Some(rest) if rest.starts_with('/') && rest.len() > 1 => return (directory, &rest[1..]),
                _ => {}
            }
        }
        (self, if path.is_empty() { "." } else { path })
    }

    /// The path as it was given, for people.
    #[must_use]
    pub fn shown(&self) -> &Path {
        &self.shown
    }

    /// A path to the open directory, for code that takes paths. It is valid in this process while this value lives:
    /// drop whatever uses it first.
    #[must_use]
    pub fn held(&self) -> PathBuf {
        Path::new("/proc/self/fd").join(self.handle.as_raw_fd().to_string())
    }

    /// `text` with the path for people in place of [`Directory::held`].
    #[must_use]
    pub fn in_words(&self, text: &str) -> String {
        let held = self.held();
        let mut words = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find(&*held.to_string_lossy()) {
            let (before, after) = rest.split_at(at);
            let after = &after[held.as_os_str().len()..];
            // `/proc/self/fd/1` is also the beginning of `/proc/self/fd/12`.
            let is_it = !after.starts_with(|c: char| c.is_ascii_digit());
            words.push_str(before);
            words.push_str(&if is_it { self.shown.to_string_lossy() } else { held.to_string_lossy() });
            rest = after;
        }
        words + rest
    }

    /// What its path names now: compares device and inode with those of the open directory.
    ///
    /// # Errors
    /// The path or the open directory cannot be examined, so the answer is unknown.
    pub fn named(&self) -> io::Result<Named> {
        let now = match std::fs::metadata(&self.shown) {
            Ok(now) => now,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(Named::Nothing);
            }
            Err(error) => return Err(error),
        };
        let held = self.handle.metadata()?;
        let is_same = (now.dev(), now.ino()) == (held.dev(), held.ino());
        Ok(if is_same { Named::Same } else { Named::Another })
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_open_directory_stays_when_its_path_names_another() {
        let temp = tempfile::tempdir().unwrap();
        let (path, moved) = (temp.path().join("data"), temp.path().join("moved"));
        std::fs::create_dir(&path).unwrap();
        let directory = Directory::open(&path).unwrap();
        let part = directory.make_below("a/b").unwrap();
        assert_eq!((directory.named().unwrap(), part.named().unwrap()), (Named::Same, Named::Same));
        assert_eq!(part.shown(), path.join("a/b"));

        std::fs::rename(&path, &moved).unwrap();
        assert_eq!((directory.named().unwrap(), part.named().unwrap()), (Named::Nothing, Named::Nothing));
        std::fs::create_dir_all(path.join("a/b")).unwrap();
        assert_eq!((directory.named().unwrap(), part.named().unwrap()), (Named::Another, Named::Another));
        std::fs::write(directory.held().join("file"), "x").unwrap();
        std::fs::write(part.held().join("file"), "y").unwrap();
        assert!(moved.join("file").exists() && moved.join("a/b/file").exists());
        assert!(!path.join("file").exists() && !path.join("a/b/file").exists());

        std::fs::remove_dir_all(&path).unwrap();
        std::fs::write(&path, "a file").unwrap();
        assert_eq!((directory.named().unwrap(), part.named().unwrap()), (Named::Another, Named::Nothing));
        std::fs::remove_file(&path).unwrap();
        std::fs::rename(&moved, &path).unwrap();
        assert_eq!((directory.named().unwrap(), part.named().unwrap()), (Named::Same, Named::Same));
    }

    #[test]
    fn a_path_leads_through_the_longest_directory_that_is_kept() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(temp.path().join("a/b")).unwrap();
        let directory = Directory::open(temp.path()).unwrap();
        let at = |path: &str| {
            let (from, rest) = directory.resolve(path);
            (from.shown().strip_prefix(temp.path()).unwrap().display().to_string(), rest.to_owned())
        };
        let is = |from: &str, rest: &str| (from.to_owned(), rest.to_owned());
        assert_eq!((at(""), at("a/b/c")), (is("", "."), is("", "a/b/c")));
        directory.keep(&["a", "missing", "a/b"]);
        directory.keep(&["later"]);
        let kept: Vec<_> = directory.kept().map(|kept| kept.shown().to_owned()).collect();
        assert_eq!(kept, [temp.path().join("a"), temp.path().join("a/b")]);
        assert_eq!((at(""), at("a"), at("a/"), at("a/b")), (is("", "."), is("a", "."), is("", "a/"), is("a/b", ".")));
        assert_eq!((at("a/c"), at("a/b/c/d"), at("ab/c")), (is("a", "c"), is("a/b", "c/d"), is("", "ab/c")));
        assert_eq!((at("missing/c"), at("later/c")), (is("", "missing/c"), is("", "later/c")));
    }

    #[test]
    fn messages_show_the_path_that_people_know() {
        let temp = tempfile::tempdir().unwrap();
        let directory = Directory::open(temp.path()).unwrap();
        let (held, shown) = (directory.held().display().to_string(), temp.path().display().to_string());
        let text = format!("cannot move {held}/a to {held}; {held}7/a is another");
        assert_eq!(directory.in_words(&text), format!("cannot move {shown}/a to {shown}; {held}7/a is another"));
        let missing = directory.below("no").unwrap_err().to_string();
        assert!(missing.contains(&format!("{shown}/no")), "{missing}");
    }
}
