//! Gives what root has made to the user that the package's service runs as.

use std::fs;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::{MetadataExt as _, fchown};
use std::path::Path;

use disk::Directory;
use rustix::fs::{AtFlags, Dir, FileType, Gid, Mode, OFlags, Uid, chownat, fstat, openat};
use rustix::io::Errno;

/// The user of the package's service.
const USER: &str = "weir";
const PASSWD: &str = "/etc/passwd";
/// The most directories in one another. `weir init` makes a few.
const DEPTH_MAX: usize = 64;

/// A user and its group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Owner {
    uid: u32,
    gid: u32,
}

impl Owner {
    /// The user of the service, if root runs this command and the user exists. Anyone else owns what they make.
    pub(crate) fn of_service() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        fs::read_to_string(PASSWD).ok().and_then(|text| user_in(&text, USER))
    }

    /// The owner of `path`, if root runs this command.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let owner = fs::metadata(path).ok().map(|meta| Self::of_meta(&meta));
        owner.filter(|_| rustix::process::geteuid().is_root())
    }

    /// User and group, unless the user is root.
    pub(crate) fn other_than_root(self) -> Option<(u32, u32)> {
        (self.uid != 0).then_some((self.uid, self.gid))
    }

    /// The owner in `meta`.
    pub(super) fn of_meta(meta: &fs::Metadata) -> Self {
        Self { uid: meta.uid(), gid: meta.gid() }
    }

    /// Another user, if root runs this, and else the same one.
    #[cfg(test)]
    pub(super) fn for_tests() -> Self {
        use rustix::process::{getegid, geteuid};
        match geteuid().is_root() {
            true => Self { uid: 65_534, gid: 65_534 },
            false => Self { uid: geteuid().as_raw(), gid: getegid().as_raw() },
        }
    }

    /// Gives this user the open `file`.
    pub(super) fn give(self, file: &fs::File) -> io::Result<()> {
        fchown(file, Some(self.uid), Some(self.gid))
    }

    /// Takes the directory at `path` with everything in it, if root owns it. A symbolic link in it is not followed.
    pub(crate) fn take(self, path: &Path) -> io::Result<()> {
        if self.uid == 0 {
            return Ok(());
        }
        // Open, so that nobody can put another directory in its place meanwhile.
        let directory = Directory::open(path).map_err(|error| error.source)?;
        let held = directory.held();
        if fs::metadata(&held)?.uid() != 0 {
            return Ok(());
        }
        self.take_below(fs::File::open(&held)?.as_fd(), 0)?;
        // The last one: until then, nobody else can change anything in it, and a repeated command begins again.
        std::os::unix::fs::chown(&held, Some(self.uid), Some(self.gid))
    }

    /// Gives the directory at `path` to `owner`, if root owns it. If this command has just made what is in it (`fresh`), the directory's owner gets that:
    /// somebody may have made the empty directory for another user.
    pub(crate) fn hand_over(owner: Option<Self>, path: &Path, fresh: bool) -> io::Result<()> {
        owner.map_or(Ok(()), |owner| owner.take(path))?;
        if fresh { Self::give_content(path) } else { Ok(()) }
    }

    /// Gives everything in the directory at `path` to the directory's owner, if root runs this.
    fn give_content(path: &Path) -> io::Result<()> {
        let directory = Directory::open(path).map_err(|error| error.source)?;
        let held = directory.held();
        match Self::of(&held) {
            Some(owner) if owner.uid != 0 => owner.take_below(fs::File::open(&held)?.as_fd(), 0),
            _ => Ok(()),
        }
    }

    /// Gives what is in an open directory. Names are looked up in open directories only, and what they name is opened before it is examined: its owner may
    /// exchange everything meanwhile, and must not get anything from elsewhere.
    fn take_below(self, folder: BorrowedFd<'_>, depth: usize) -> io::Result<()> {
        if depth == DEPTH_MAX {
            return Err(Errno::LOOP.into());
        }
        for entry in Dir::read_from(folder)? {
            let entry = entry?;
            let name = entry.file_name();
            if [&b"."[..], b".."].contains(&name.to_bytes()) {
                continue;
            }
            let found = match openat(folder, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
                Err(Errno::NOENT) => continue,
                found => found?,
            };
            let stat = fstat(&found)?;
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                self.take_below(openat(&found, c".", flags, Mode::empty())?.as_fd(), depth + 1)?;
            } else if stat.st_nlink > 1 {
                // A file from elsewhere: the owner of the directory may have linked it here.
                continue;
            }
            let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
            chownat(&found, c"", Some(uid), Some(gid), AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Ok(())
    }
}

/// The user `name` in the text of `/etc/passwd`.
fn user_in(text: &str, name: &str) -> Option<Owner> {
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        if fields.next() != Some(name) {
            return None;
        }
        let mut number = |skip| fields.nth(skip).and_then(|field| field.parse().ok());
        Some(Owner { uid: number(1)?, gid: number(0)? })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_content_is_given_to_the_owner_of_the_directory() {
        let temp = tempfile::tempdir().unwrap();
        let (dir, elsewhere) = (temp.path().join("dir"), temp.path().join("elsewhere"));
        fs::create_dir_all(dir.join("node")).unwrap();
        let owner = Owner::for_tests();
        std::os::unix::fs::chown(&dir, Some(owner.uid), Some(owner.gid)).unwrap();
        fs::write(&elsewhere, "of somebody else").unwrap();
        fs::write(dir.join("node/identity"), "new").unwrap();
        fs::hard_link(&elsewhere, dir.join("linked")).unwrap();
        std::os::unix::fs::symlink(&elsewhere, dir.join("node/link")).unwrap();
        std::os::unix::fs::symlink(temp.path(), dir.join("node/directory")).unwrap();
        let before = Owner::of_meta(&fs::metadata(&elsewhere).unwrap());
        Owner::give_content(&dir).unwrap();
        for made in ["node", "node/identity", "node/link", "node/directory"] {
            assert_eq!(Owner::of_meta(&fs::symlink_metadata(dir.join(made)).unwrap()), owner, "{made}");
        }
        assert_eq!(Owner::of_meta(&fs::metadata(&elsewhere).unwrap()), before);
    }

    /// As the one who owns the directory would try to get a file of root.
    #[test]
    fn what_is_exchanged_meanwhile_is_not_followed() {
        use std::sync::atomic::{AtomicBool, Ordering};
        let temp = tempfile::tempdir().unwrap();
        let (dir, elsewhere) = (temp.path().join("dir"), temp.path().join("elsewhere"));
        fs::create_dir_all(dir.join("node")).unwrap();
        fs::create_dir(&elsewhere).unwrap();
        fs::write(elsewhere.join("identity"), "of somebody else").unwrap();
        let owner = Owner::for_tests();
        std::os::unix::fs::chown(&dir, Some(owner.uid), Some(owner.gid)).unwrap();
        let before = Owner::of_meta(&fs::metadata(elsewhere.join("identity")).unwrap());
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (node, aside) = (dir.join("node"), dir.join("aside"));
                while !ended.load(Ordering::Relaxed) {
                    fs::rename(&node, &aside).unwrap();
                    std::os::unix::fs::symlink(&elsewhere, &node).unwrap();
                    fs::remove_file(&node).unwrap();
                    fs::rename(&aside, &node).unwrap();
                }
            });
            for _ in 0..3000 {
                Owner::give_content(&dir).unwrap();
            }
            ended.store(true, Ordering::Relaxed);
        });
        assert_eq!(Owner::of_meta(&fs::metadata(elsewhere.join("identity")).unwrap()), before);
    }

    #[test]
    fn a_user_is_found_by_its_whole_name() {
        let text = "root:x:0:0:root:/root:/bin/sh\nweird:x:5:6::/:/bin/false\nweir:x:998:997:weir:/var/lib/weir:/x\n";
        assert_eq!(user_in(text, "weir"), Some(Owner { uid: 998, gid: 997 }));
        assert_eq!(user_in(text, "root"), Some(Owner { uid: 0, gid: 0 }));
        assert_eq!(user_in(text, "wei"), None);
        assert_eq!(user_in("weir:x:a:b\nweir\n", "weir"), None);
    }
}
