//! Reads a keytab from a file. Only its owner may have access, as at the stock programs (`getKeyTab` in `XrdSecsssKT.cc`).

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::{KEYTAB_BYTES_MAX, Keytab, KeytabError};

/// Access that others than the owner have.
const OTHERS: u32 = 0o077;
/// The group may read.
const GROUP_READS: u32 = 0o040;

/// Why a file cannot be used. No message shows its content.
#[derive(Debug, thiserror::Error)]
pub enum KeytabFileError {
    /// The system does not let it be read.
    #[error("cannot read the keytab {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// It is no file.
    #[error("cannot use the keytab {}: it is not a file", .0.display())]
    NoFile(PathBuf),
    /// It belongs to another user.
    #[error("cannot use the keytab {}: it belongs to the user number {owner}, who knows its secrets; it must belong to this one ({user}) or to root", path.display())]
    Owner {
        /// The file.
        path: PathBuf,
        /// Who it belongs to.
        owner: u32,
        /// Who runs this program.
        user: u32,
    },
    /// Others have access.
    #[error("cannot use the keytab {}: others than its owner have access to it (mode {mode:04o}): chmod 600 it", path.display())]
    Mode {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// Its content is wrong.
    #[error("cannot use the keytab {}: {source}", path.display())]
    Wrong {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: KeytabError,
    },
}

/// Reads the keytab at `path`. Like the stock programs it takes one that the group may read only if its name ends with `.grp`.
///
/// # Errors
/// [`KeytabFileError`].
pub fn read_keytab(path: &Path) -> Result<Keytab, KeytabFileError> {
    let bytes = read_secret_file(path, KEYTAB_BYTES_MAX)?;
    Keytab::parse(&bytes).map_err(|source| KeytabFileError::Wrong { path: path.to_owned(), source })
}

/// Reads the file with secrets at `path`, under the same rules for access: at most `bytes_max`, and one byte more if it is longer.
///
/// # Errors
/// [`KeytabFileError`], but for [`KeytabFileError::Wrong`].
pub fn read_secret_file(path: &Path, bytes_max: usize) -> Result<Vec<u8>, KeytabFileError> {
    let unreadable = |source: io::Error| KeytabFileError::Unreadable { path: path.to_owned(), source };
    // A pipe must not be waited for.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).map_err(|error| unreadable(error.into()))?);
    // Of the open file: the name may lead to another one by now.
    let about = file.metadata().map_err(unreadable)?;
    if !about.is_file() {
        return Err(KeytabFileError::NoFile(path.to_owned()));
    }
    let user = rustix::process::geteuid().as_raw();
    if about.uid() != user && about.uid() != 0 {
        return Err(KeytabFileError::Owner { path: path.to_owned(), owner: about.uid(), user });
    }
    let is_for_group = path.extension().is_some_and(|end| end == "grp");
    let allowed = if is_for_group { GROUP_READS } else { 0 };
    if about.mode() & OTHERS & !allowed != 0 {
        return Err(KeytabFileError::Mode { path: path.to_owned(), mode: about.mode() & 0o7777 });
    }
    let mut bytes = Vec::new();
    // One byte more shows that the file is too long.
    file.take((bytes_max as u64).saturating_add(1)).read_to_end(&mut bytes).map_err(unreadable)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn only_the_owner_may_have_access() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, mode: u32| {
            let path = folder.path().join(name);
            fs::write(&path, "0 N:1 k:00112233445566778899aabbccddeeff").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            read_keytab(&path).map(|keytab| keytab.iter().count()).map_err(|error| error.to_string())
        };
        for (name, mode, is_used) in [
            ("a", 0o600, true),
            ("a", 0o400, true),
            ("a", 0o640, false),
            ("a", 0o604, false),
            ("a", 0o620, false),
            ("a", 0o610, false),
            ("b.grp", 0o640, true),
            ("b.grp", 0o660, false),
            ("b.grp", 0o644, false),
            ("b.grpx", 0o640, false),
        ] {
            match write(name, mode) {
                Ok(count) => assert!(is_used && count == 1, "{name} {mode:o}"),
                Err(why) => {
                    assert!(!is_used && why.contains("chmod 600") && why.contains(&format!("{mode:04o}")), "{why}")
                }
            }
        }
        assert!(read_keytab(folder.path()).unwrap_err().to_string().contains("not a file"));
        assert!(read_keytab(&folder.path().join("none")).unwrap_err().to_string().contains("cannot read"));
        let path = folder.path().join("a");
        fs::write(&path, "nonsense secret").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let why = read_keytab(&path).unwrap_err().to_string();
        assert!(why.contains("line 1") && !why.contains("secret"), "{why}");
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(12345), None).unwrap();
            assert!(read_keytab(&path).unwrap_err().to_string().contains("12345"));
        }
    }
}
