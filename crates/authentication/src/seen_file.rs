//! A file with the time at which the newest credential of `sss` was made that the node has admitted (and another one for `krb5`): all that a node that starts
//! again must know of what it has seen. It is written at most once a second, and before the client is let in.
//!
//! It is not synced to the disk, so a crash of the machine loses it. Therefore it names the boot: after another one the node
//! believes nothing of it.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use sss::Before;
use types::Timestamp;

/// Where Linux says which boot this is (`random(4)`).
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// Longest text that is read.
const TEXT_MAX: u64 = 256;

/// The file.
pub(crate) struct SeenFile {
    path: PathBuf,
    /// `None`: nobody knows, so it is another one than before.
    boot: Option<String>,
}

fn text_of(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(TEXT_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

impl SeenFile {
    pub(crate) fn new(path: PathBuf) -> Self {
        let boot = text_of(Path::new(BOOT_ID)).ok().map(|text| text.trim().to_owned());
        Self { path, boot: boot.filter(|boot| boot.len() == 36) }
    }

    /// What is known of before. If the file is missing, the node has admitted nobody yet.
    pub(crate) fn read(&self) -> io::Result<Before> {
        let text = match text_of(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Before::None),
            text => text?,
        };
        let parts = text.strip_suffix('\n').and_then(|line| line.split_once(' '));
        let newest = parts.and_then(|(boot, secs)| Some((boot, Timestamp::from_secs(secs.parse().ok()?))));
        Ok(match newest {
            Some((boot, newest)) if Some(boot) == self.boot.as_deref() => Before::Until(newest),
            other => Before::Unknown(other.map(|(_, newest)| newest)),
        })
    }

    /// All texts have the same length, so one takes the place of another.
    pub(crate) fn write(&self, newest: Timestamp) -> io::Result<()> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&self.path)?;
        let boot = self.boot.as_deref().unwrap_or("-");
        file.write_all_at(format!("{boot:36} {:019}\n", newest.secs()).as_bytes(), 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_boot_is_believed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("seen");
        let of = |boot: &str| SeenFile { path: path.clone(), boot: Some(boot.to_owned()) };
        let (one, other) = ("0".repeat(36), "1".repeat(36));
        assert_eq!(of(&one).read().unwrap(), Before::None);
        for secs in [1_800_000_000, 7] {
            let newest = Timestamp::from_secs(secs);
            of(&one).write(newest).unwrap();
            assert_eq!(of(&one).read().unwrap(), Before::Until(newest));
            assert_eq!(of(&other).read().unwrap(), Before::Unknown(Some(newest)));
        }
        let unknown = SeenFile { path: path.clone(), boot: None };
        unknown.write(Timestamp::from_secs(9)).unwrap();
        assert!(matches!(unknown.read().unwrap(), Before::Unknown(_)));
        for damaged in ["", "x", &format!("{one} 12"), &format!("{one} x\n"), &"0".repeat(1000)] {
            std::fs::write(&path, damaged).unwrap();
            assert_eq!(of(&one).read().unwrap(), Before::Unknown(None), "{damaged}");
        }
        assert!(SeenFile::new(path).boot.is_some());
    }
}
