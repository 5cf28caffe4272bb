//! The key of a cluster (`cluster/authority`) beside the backups of its manager. Without it a restored manager could admit no node. It is copied
//! byte by byte; only the owner of the copy may read it.

use std::fs::{DirBuilder, File};
use std::io::{self, Read as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use foundation::DataDir;
use types::Crc32c;

use super::target::{Target, TargetError};
use super::whole_file;

/// Its name beside the backups.
const FILE: &str = "cluster-authority";
/// Its folder in a manager's data directory.
const FOLDER: &str = "cluster";
/// Its path in a manager's data directory.
const ORIGINAL: &str = "cluster/authority";
/// A longer file is not one.
const BYTES_MAX: u64 = 64 << 10;

/// What a restore has done with the key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PutBack {
    /// The directory has it.
    IsThere,
    /// It was lost, and comes from the backup.
    Restored,
    /// The directory has another one, which stays.
    Differs,
}

/// Copies the key of the manager in `data` beside its backups.
///
/// # Errors
///
/// It cannot be read or written, or is damaged: then an earlier copy stays.
pub fn save(data: &Path, target: &Target) -> Result<(), TargetError> {
    let original = data.join(ORIGINAL);
    let bytes = read(&original)?.ok_or_else(|| missing(original))?;
    let folder = target.folder().held();
    if read(&folder.join(FILE)).is_ok_and(|saved| saved.as_ref() == Some(&bytes)) {
        return Ok(());
    }
    write(&folder, FILE, &bytes)
}

/// Whether the key is beside the backups.
pub fn is_saved(target: &Target) -> bool {
    target.folder().held().join(FILE).exists()
}

/// Puts the key into the data directory of a manager, unless it has one.
///
/// # Errors
///
/// It is in neither place, is damaged, or cannot be read or written.
pub fn put_back(target: &Target, data: &DataDir) -> Result<PutBack, TargetError> {
    let saved = target.folder().held().join(FILE);
    let saved = read(&saved)?.ok_or_else(|| missing(target.folder().shown().join(FILE)));
    match (read(&data.held().join(ORIGINAL))?, saved) {
        (Some(there), Ok(saved)) if there != saved => Ok(PutBack::Differs),
        (Some(_), _) => Ok(PutBack::IsThere),
        (None, Err(error)) => Err(error),
        (None, Ok(bytes)) => {
            let folder = data.held().join(FOLDER);
            DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(io_at("make", &folder))?;
            write(&folder, "authority", &bytes)?;
            File::open(data.held()).and_then(|folder| folder.sync_all()).map_err(io_at("sync", &data.path))?;
            Ok(PutBack::Restored)
        }
    }
}

fn missing(path: PathBuf) -> TargetError {
    TargetError::NoAuthority { path }
}

/// The bytes of the key at `path`. `None`: there is none.
fn read(path: &Path) -> Result<Option<Vec<u8>>, TargetError> {
    let mut bytes = Vec::new();
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file.and_then(|file| file.take(BYTES_MAX).read_to_end(&mut bytes)).map_err(io_at("read", path))?,
    };
    if !is_sound(&bytes) {
        return Err(TargetError::Damaged { file: path.display().to_string() });
    }
    Ok(Some(bytes))
}

/// Its last line is the checksum of the lines before.
fn is_sound(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let Some((before, sum)) = text.rsplit_once("crc32c ") else { return false };
    before.ends_with('\n') && sum.trim_end() == format!("{:08x}", Crc32c::of(before.as_bytes()).0)
}

/// Writes a secret file completely or not at all.
fn write(folder: &Path, name: &str, bytes: &[u8]) -> Result<(), TargetError> {
    whole_file::write(folder, name, 0o600, None, bytes).map_err(io_at("write", &folder.join(name)))
}

fn io_at(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> TargetError + use<> {
    let path = path.to_owned();
    move |source| TargetError::Io { what, path, source }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use foundation::datadir::Format;
    use foundation::{DirRole, IfNew};
    use types::Timestamp;

    use super::*;

    fn key(text: &str) -> Vec<u8> {
        format!("{text}\ncrc32c {:08x}\n", Crc32c::of(format!("{text}\n").as_bytes()).0).into_bytes()
    }

    #[test]
    fn key_goes_beside_the_backups_and_back_and_nobody_else_may_read_it() {
        let temp = tempfile::tempdir().unwrap();
        let (data, lost) = (temp.path().join("manager"), temp.path().join("lost"));
        let open = |path: &Path| DataDir::open_as(path, DirRole::Manager, None, IfNew::Make, Timestamp(5)).unwrap();
        let owner: Format = open(&data).format.clone();
        let target = Target::open(&temp.path().join("target"), Some(&owner)).unwrap();
        assert!(matches!(save(&data, &target), Err(TargetError::NoAuthority { .. })));
        assert!(matches!(put_back(&target, &open(&lost)), Err(TargetError::NoAuthority { .. })));
        fs::create_dir(data.join(FOLDER)).unwrap();
        for text in ["weir authority 1", "weir authority 2"] {
            fs::write(data.join(ORIGINAL), key(text)).unwrap();
            save(&data, &target).unwrap();
            save(&data, &target).unwrap();
        }
        // A damaged one does not replace the copy.
        fs::write(data.join(ORIGINAL), "weir authority 3\ncrc32c 00000000\n").unwrap();
        assert!(matches!(save(&data, &target), Err(TargetError::Damaged { .. })));
        assert_eq!(put_back(&target, &open(&lost)).unwrap(), PutBack::Restored);
        assert_eq!(put_back(&target, &open(&lost)).unwrap(), PutBack::IsThere);
        let restored = lost.join(ORIGINAL);
        assert_eq!(fs::read(&restored).unwrap(), key("weir authority 2"));
        for path in [restored.clone(), temp.path().join("target").join(FILE)] {
            assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
        }
        fs::write(&restored, key("another")).unwrap();
        assert_eq!(put_back(&target, &open(&lost)).unwrap(), PutBack::Differs);
        assert_eq!(fs::read(&restored).unwrap(), key("another"));
    }
}
