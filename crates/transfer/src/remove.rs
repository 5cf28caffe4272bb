//! `weir rm`: removes what it can, reports the rest, and goes on.

use std::fmt;
use std::os::fd::OwnedFd;
use std::path::Path;

use client::ClientError;
use console::Exit;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, openat, statat, unlinkat};
use rustix::io::Errno;

use crate::error::TransferError;
use crate::place::CopyPath;
use crate::tree::{Kind, Tree};

/// Deepest directory that is followed; a deeper one is probably a loop.
const DEPTH_MAX: usize = 256;

/// How to remove.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Removal {
    /// Also directories, with everything in them.
    pub recursive: bool,
    /// A missing name is no error.
    pub force: bool,
    /// Say what would be removed, and remove nothing.
    pub dry_run: bool,
}

/// What a removal reports.
#[derive(Debug)]
pub enum RemovalEvent<'a> {
    /// This name is gone, or would be.
    Removed(&'a str),
    /// This could not be removed.
    Failed(&'a TransferError),
}

/// Removes `places`. `say` gets each name that is gone, and each error.
pub fn remove(tree: &mut Tree, places: &[CopyPath], how: Removal, say: &mut dyn FnMut(RemovalEvent<'_>)) {
    let mut run = Run { tree, how, say };
    for at in places {
        run.remove(at);
    }
}

struct Run<'a> {
    tree: &'a mut Tree,
    how: Removal,
    say: &'a mut dyn FnMut(RemovalEvent<'_>),
}

impl Run<'_> {
    /// Reports whether `at` was removed. Returns whether it was.
    fn went(&mut self, at: &dyn fmt::Display, done: Result<(), TransferError>) -> bool {
        match &done {
            Ok(()) => (self.say)(RemovalEvent::Removed(&at.to_string())),
            Err(error) if self.how.force && error.exit() == Exit::NotFound => {}
            Err(error) => (self.say)(RemovalEvent::Failed(error)),
        }
        done.is_ok()
    }

    /// Removes one name at a server, or only looks whether it is there.
    fn remove_one(&mut self, at: &CopyPath, directory: bool) -> Result<(), TransferError> {
        if !self.how.dry_run {
            return self.tree.remove(at, directory);
        }
        let info = self.tree.info(at)?;
        // As a server would refuse it.
        if info.kind == Kind::Directory && !directory {
            return Err(TransferError::RemovesDirectory { path: at.to_string() });
        }
        Ok(())
    }

    /// Removes a name without following links. If the name can be removed by itself, does not look below it. Returns whether it is gone.
    fn remove(&mut self, at: &CopyPath) -> bool {
        if let Err(error) = may_go(at) {
            return self.went(at, Err(error));
        }
        if let CopyPath::Local(path) = at {
            // A slash at the end would follow a link.
            let path: std::path::PathBuf = path.components().collect();
            return self.local(&path);
        }
        let is_directory = |tree: &mut Tree| tree.info(at).is_ok_and(|info| info.kind == Kind::Directory);
        if !self.how.recursive && is_directory(self.tree) {
            return self.went(at, Err(TransferError::RemovesDirectory { path: at.to_string() }));
        }
        match self.remove_one(at, false) {
            Err(error) if self.how.recursive && may_be_directory(&error) && is_directory(self.tree) => {
                self.directory(at, 0)
            }
            done => self.went(at, done),
        }
    }

    /// Removes a directory at a server, and everything below it.
    fn directory(&mut self, at: &CopyPath, depth: usize) -> bool {
        let mut entries = Vec::new();
        let listed = self.tree.list(at, false, &mut |entry| {
            entries.push((entry.name, entry.info.kind));
            Ok(())
        });
        let mut all = listed.is_ok() || self.went(at, listed);
        for (name, kind) in entries {
            let place = at.join(&name);
            // An entry listed as a directory may be a link to one; the link itself is removed.
            all &= match self.remove_one(&place, false) {
                Err(error) if kind == Kind::Directory && depth < DEPTH_MAX && may_be_directory(&error) => {
                    self.directory(&place, depth + 1)
                }
                done => self.went(&place, done),
            };
        }
        // It is known already why the directory is not empty then.
        all && {
            let done = self.remove_one(at, true);
            self.went(at, done)
        }
    }

    fn local(&mut self, path: &Path) -> bool {
        let failed = |error: Errno| TransferError::local("remove", path)(error.into());
        match self.unlink(CWD, path, AtFlags::empty()) {
            Ok(()) => self.went(&path.display(), Ok(())),
            Err(Errno::ISDIR | Errno::PERM) if path.symlink_metadata().is_ok_and(|found| found.is_dir()) => {
                if !self.how.recursive {
                    let error = TransferError::RemovesDirectory { path: path.display().to_string() };
                    return self.went(&path.display(), Err(error));
                }
                let opened = openat(CWD, path, DIRECTORY, Mode::empty()).map_err(failed);
                let below = opened.map(|directory| self.below(&directory, path, 0));
                match below {
                    Ok(all) => {
                        all && {
                            let done = self.unlink(CWD, path, AtFlags::REMOVEDIR).map_err(failed);
                            self.went(&path.display(), done)
                        }
                    }
                    Err(error) => self.went(&path.display(), Err(error)),
                }
            }
            Err(error) => self.went(&path.display(), Err(failed(error))),
        }
    }

    /// Removes a local name, or only looks whether that may succeed.
    fn unlink(&self, at: impl std::os::fd::AsFd, name: impl rustix::path::Arg, flags: AtFlags) -> Result<(), Errno> {
        if !self.how.dry_run {
            return unlinkat(at, name, flags);
        }
        let found = statat(at, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let is_directory = FileType::from_raw_mode(found.st_mode) == FileType::Directory;
        if is_directory && flags.is_empty() { Err(Errno::ISDIR) } else { Ok(()) }
    }

    /// Removes the contents of an open directory. It uses the descriptor, so that nobody can put a link in the way meanwhile.
    fn below(&mut self, directory: &OwnedFd, path: &Path, depth: usize) -> bool {
        let names = Dir::read_from(directory).and_then(|dir| {
            dir.map(|entry| entry.map(|entry| entry.file_name().to_owned())).collect::<Result<Vec<_>, _>>()
        });
        let names = match names {
            Ok(names) => names,
            Err(error) => return self.went(&path.display(), Err(TransferError::local("list", path)(error.into()))),
        };
        let mut all = true;
        for name in names.iter().filter(|name| !matches!(name.to_bytes(), b"." | b"..")) {
            let at = path.join(std::ffi::OsStr::new(&*name.to_string_lossy()));
            let failed = |error: Errno| Err(TransferError::local("remove", &at)(error.into()));
            let done = match self.unlink(directory, name, AtFlags::empty()) {
                Err(first @ (Errno::ISDIR | Errno::PERM)) => match openat(directory, name, DIRECTORY, Mode::empty()) {
                    Ok(_) if depth >= DEPTH_MAX => failed(Errno::LOOP),
                    Ok(below) if self.below(&below, &at, depth + 1) => {
                        self.unlink(directory, name, AtFlags::REMOVEDIR).or_else(failed)
                    }
                    Ok(_) => {
                        all = false;
                        continue;
                    }
                    Err(Errno::NOTDIR | Errno::LOOP) => failed(first),
                    Err(error) => failed(error),
                },
                // Another process was quicker.
                Ok(()) | Err(Errno::NOENT) => Ok(()),
                Err(error) => failed(error),
            };
            all &= self.went(&at.display(), done);
        }
        all
    }
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Refuses what nobody means to remove: the root, the targets of `.` and `..` (`.*` matches them in some shells), and the working directory
/// with its parents.
fn may_go(at: &CopyPath) -> Result<(), TransferError> {
    let text = match at {
        CopyPath::Local(path) => path.as_os_str().as_encoded_bytes(),
        CopyPath::Remote(url) => url.path.as_bytes(),
        CopyPath::Standard => return Ok(()),
    };
    // Uses the original text, because splitting a path drops a `.` at its end.
    let last = text.rsplit(|byte| *byte == b'/').find(|name| !name.is_empty());
    match last {
        None => return Err(TransferError::Root { path: at.to_string() }),
        Some(b"." | b"..") => return Err(TransferError::Dots { path: at.to_string() }),
        Some(_) => {}
    }
    if let CopyPath::Local(path) = at
        && let Some(name) = path.file_name()
    {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // Does not follow a link in the last name, because the link itself is removed. If it cannot be found, there is nothing to protect.
        if let (Ok(parent), Ok(here)) = (parent.canonicalize(), std::env::current_dir())
            && here.starts_with(parent.join(name))
        {
            return Err(TransferError::Around { path: at.to_string() });
        }
    }
    Ok(())
}

/// Whether the server answered, so that the name may be a directory. There is no point in asking an unreachable
/// server for the contents.
fn may_be_directory(error: &TransferError) -> bool {
    matches!(error, TransferError::Client(ClientError::Refused { .. }) | TransferError::RemovesDirectory { .. })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test may fail this way

    use super::*;

    #[test]
    fn the_root_and_the_working_directory_are_refused() {
        let may = |text: &str| may_go(&CopyPath::parse(text).unwrap());
        for text in ["/", "//", "root://h//", "root://h///"] {
            assert!(matches!(may(text), Err(TransferError::Root { .. })), "{text}");
        }
        for text in [".", "..", "./", "/..", "/../", "a/..", "a/../../..//", "a/.", "root://h//a/..", "root://h//."] {
            assert!(matches!(may(text), Err(TransferError::Dots { .. })), "{text}");
        }
        let here = std::env::current_dir().unwrap();
        for around in here.ancestors().filter(|path| path.parent().is_some()) {
            let around = around.display();
            for text in [format!("{around}"), format!("{around}/"), format!("/tmp/../{around}")] {
                assert!(matches!(may(&text), Err(TransferError::Around { .. })), "{text}");
            }
        }
        for text in ["a", "./a", "../a/", ".a", "..a", "/nowhere", "/nowhere/a", "root://h//a", "root://h//.a/"] {
            may(text).unwrap();
        }
        // A link to a parent is only a link.
        let temp = tempfile::tempdir().unwrap();
        let link = temp.path().join("link");
        std::os::unix::fs::symlink(&here, &link).unwrap();
        may(link.to_str().unwrap()).unwrap();
    }
}
