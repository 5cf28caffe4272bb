//! The folder of a control socket.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// Calls `what` with a short path to `name` in `folder`: the path of a socket has at most 107 bytes (unix(7)).
pub(crate) fn within<T>(folder: &Path, name: &OsStr, what: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    what(&SocketFolder(File::open(folder)?).at(name))
}

/// An open folder. What is later at its path makes no difference.
pub(crate) struct SocketFolder(File);

impl SocketFolder {
    /// The folder of the socket `path`, and the name of the socket there. Nobody but root and this user can put something else in the way to it.
    ///
    /// # Errors
    /// Others can. Or there is no such folder, or the path does not end in a name.
    pub(crate) fn of_all_users(path: &Path) -> io::Result<(Self, OsString)> {
        let wrong = |why: &'static str| io::Error::new(io::ErrorKind::InvalidInput, why);
        let path = std::path::absolute(path)?;
        let name = path.file_name().ok_or_else(|| wrong("the path does not end in a name"))?.to_owned();
        let written = path.parent().ok_or_else(|| wrong("it is in no folder"))?;
        // Where links lead, and the folders that the links are in.
        let real = written.canonicalize()?;
        for above in real.ancestors().skip(1).chain(written.ancestors().skip(1)) {
            check_above(above, &fs::metadata(above)?)?;
        }
        let folder = File::open(&real)?;
        check_own(&folder.metadata()?)?;
        Ok((Self(folder), name))
    }

    /// A short path to `name` in it.
    pub(crate) fn at(&self, name: &OsStr) -> PathBuf {
        Path::new("/proc/self/fd").join(self.0.as_raw_fd().to_string()).join(name)
    }
}

fn denied(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

fn is_ours(folder: &Metadata) -> bool {
    folder.uid() == 0 || folder.uid() == rustix::process::geteuid().as_raw()
}

fn may_others_write(folder: &Metadata) -> bool {
    folder.mode() & 0o022 != 0
}

/// Refuses a folder in which somebody else could replace the socket.
fn check_own(folder: &Metadata) -> io::Result<()> {
    if is_ours(folder) && !may_others_write(folder) {
        return Ok(());
    }
    Err(denied("others than root and the user that weir runs as may write into its folder".into()))
}

/// Refuses a folder in which somebody else could replace the one with the socket. With the sticky bit, as `/tmp` has it, nobody can.
fn check_above(path: &Path, folder: &Metadata) -> io::Result<()> {
    const STICKY: u32 = 0o1000;
    if is_ours(folder) && (!may_others_write(folder) || folder.mode() & STICKY != 0) {
        return Ok(());
    }
    let path = path.display();
    Err(denied(format!(
        "others than root and the user that weir runs as may write into {path}, which is above its folder"
    )))
}

/// Removes a socket at which nobody listens. Anything else at the path stays.
pub(crate) fn forget_unused(path: &Path) -> io::Result<()> {
    let there = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    if !there.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "something that is no socket has this name"));
    }
    if UnixStream::connect(path).is_ok() {
        return Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens there"));
    }
    fs::remove_file(path)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn set(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn nobody_else_may_be_able_to_replace_the_folder_or_one_above_it() {
        let temp = tempfile::tempdir().unwrap();
        let above = temp.path().join("above");
        let folder = above.join("run");
        fs::create_dir_all(&folder).unwrap();
        let socket = folder.join("socket");
        let why =
            |path: &Path| SocketFolder::of_all_users(path).err().map(|error| error.to_string()).unwrap_or_default();
        for (mode_above, mode, part) in [
            (0o755, 0o755, ""),
            (0o1777, 0o755, ""),
            (0o755, 0o777, "into its folder"),
            (0o755, 0o775, "into its folder"),
            (0o755, 0o1777, "into its folder"),
            (0o777, 0o755, "above, which is above its folder"),
            (0o775, 0o755, "above, which is above its folder"),
        ] {
            set(&above, mode_above);
            set(&folder, mode);
            let why = why(&socket);
            assert!(why.contains(part) && why.is_empty() == part.is_empty(), "{mode_above:o} {mode:o}: {why}");
        }
        // A link that others could lead elsewhere.
        set(&above, 0o755);
        set(&folder, 0o755);
        let open = temp.path().join("open");
        fs::create_dir(&open).unwrap();
        std::os::unix::fs::symlink(&folder, open.join("link")).unwrap();
        assert_eq!(why(&open.join("link/socket")), "");
        set(&open, 0o777);
        assert!(why(&open.join("link/socket")).contains("open, which is above its folder"));
        // And one from a folder where nobody else writes to one where others do.
        std::os::unix::fs::symlink(&open, above.join("link")).unwrap();
        assert!(why(&above.join("link/socket")).contains("into its folder"));
    }

    #[test]
    fn what_comes_to_the_path_later_makes_no_difference() {
        let temp = tempfile::tempdir().unwrap();
        let folder = temp.path().join("run");
        fs::create_dir(&folder).unwrap();
        let (held, name) = SocketFolder::of_all_users(&folder.join("socket")).unwrap();
        fs::rename(&folder, temp.path().join("moved")).unwrap();
        fs::create_dir(&folder).unwrap();
        fs::write(held.at(&name), "here").unwrap();
        assert!(temp.path().join("moved/socket").exists() && !folder.join("socket").exists());
    }
}
