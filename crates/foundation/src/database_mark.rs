//! The mark of a manager's directory whose namespace is in a database: a small file beside `FORMAT`. No command takes such a directory for one with an
//! empty namespace, and the manager does not start on it without its database.

use std::fmt::Write as _;
use std::io::ErrorKind;
use std::path::Path;

use disk::{Access, Disk, DiskError, OpenOptions};
use namespace::Progress;
use types::{ClusterId, Crc32c, Incarnation, SessionId};

use crate::error::OpenError;

/// The file.
pub const FILE: &str = "DATABASE";
const FIRST: &str = "# the namespace of this manager is in a database\n";
const TEXT_MAX: usize = 8192;

/// The values in the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DatabaseMark {
    /// The cluster whose namespace it is.
    pub cluster: ClusterId,
    /// The address of the database without a password, as of the last start. It only helps people: a database may move.
    pub address: String,
    /// How far the namespace had come at the last start. A database that is behind that has lost changes, or is another copy.
    pub progress: Progress,
}

impl DatabaseMark {
    /// Reads the mark. `None`: the namespace is not in a database.
    ///
    /// # Errors
    ///
    /// Errors of the disk, and [`OpenError::DatabaseMark`] if the mark cannot be decoded.
    pub fn read(disk: &dyn Disk) -> Result<Option<Self>, OpenError> {
        let Some(len) = disk.len_of(FILE)? else { return Ok(None) };
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX).min(TEXT_MAX)];
        let got = disk.open(FILE, OpenOptions { access: Access::Read, direct: false })?.read_at(&mut bytes, 0)?;
        bytes.truncate(got);
        Self::of_bytes(&bytes).map(Some)
    }

    /// Reads the mark in the directory at `path`, which need not be open. `None`: there is no mark, or no such directory.
    ///
    /// # Errors
    ///
    /// [`OpenError::DatabaseMark`] if there is one that cannot be read or decoded.
    pub fn in_directory(path: &Path) -> Result<Option<Self>, OpenError> {
        match std::fs::read(path.join(FILE)) {
            Ok(bytes) => Self::of_bytes(&bytes).map(Some),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
            Err(error) => Err(OpenError::DatabaseMark { text: error.to_string() }),
        }
    }

    /// Writes the mark. It is durable when this returns.
    ///
    /// # Errors
    ///
    /// Errors of the disk.
    pub fn write(&self, disk: &dyn Disk) -> Result<(), DiskError> {
        disk::replace_file(disk, FILE, self.to_text().as_bytes())
    }

    /// Removes the mark, if there is one: from now on the namespace is in the directory. That is durable when this returns.
    ///
    /// # Errors
    ///
    /// Errors of the disk.
    pub fn remove(disk: &dyn Disk) -> Result<(), DiskError> {
        if disk.len_of(FILE)?.is_some() {
            disk.remove(FILE)?;
            disk.sync_dir("")?;
        }
        Ok(())
    }

    fn of_bytes(bytes: &[u8]) -> Result<Self, OpenError> {
        let text = String::from_utf8_lossy(bytes);
        Self::parse(&text).ok_or_else(|| OpenError::DatabaseMark { text: text.escape_debug().to_string() })
    }

    fn to_text(&self) -> String {
        let Progress { incarnation, session } = self.progress;
        let (cluster, address) = (self.cluster.0, self.address.escape_default());
        let mut text =
            format!("{FIRST}cluster {cluster:032x}\naddress {address}\nincarnation {incarnation}\nsession {session}\n");
        let crc = Crc32c::of(text.as_bytes()).0;
        let _ = writeln!(text, "crc32c {crc:08x}"); // a string takes everything
        text
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.strip_prefix(FIRST)?.lines();
        let cluster = u128::from_str_radix(lines.next()?.strip_prefix("cluster ")?, 16).ok()?;
        let address = lines.next()?.strip_prefix("address ")?.to_owned();
        let incarnation = Incarnation(number(lines.next()?, "incarnation ")?);
        let session = SessionId(number(lines.next()?, "session ")?);
        let crc = lines.next()?.strip_prefix("crc32c ")?;
        let before = text.strip_suffix(&format!("crc32c {crc}\n"))?;
        let is_whole = u32::from_str_radix(crc, 16) == Ok(Crc32c::of(before.as_bytes()).0) && crc.len() == 8;
        let progress = Progress { incarnation, session };
        is_whole.then_some(Self { cluster: ClusterId(cluster), address, progress })
    }
}

/// The number in `line` after `name`, if it is written as [`DatabaseMark::to_text`] writes it.
fn number(line: &str, name: &str) -> Option<u64> {
    let text = line.strip_prefix(name)?;
    text.parse().ok().filter(|number: &u64| number.to_string() == text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test may fail this way

    use super::*;

    #[test]
    fn mark_reads_back_and_damaged_ones_are_refused() {
        let temp = tempfile::tempdir().unwrap();
        let disk = disk::RealDisk::open(temp.path()).unwrap();
        assert_eq!(DatabaseMark::read(&disk).unwrap(), None);
        let progress = Progress { incarnation: Incarnation(3), session: SessionId(17) };
        let address = "postgres://weir@db1:5432/weir".to_owned();
        let mark = DatabaseMark { cluster: ClusterId(0xab), address, progress };
        mark.write(&disk).unwrap();
        assert_eq!(DatabaseMark::read(&disk).unwrap(), Some(mark.clone()));
        assert_eq!(DatabaseMark::in_directory(temp.path()).unwrap(), Some(mark.clone()));
        let text = std::fs::read_to_string(temp.path().join(FILE)).unwrap();
        assert!(
            text.ends_with("\naddress postgres://weir@db1:5432/weir\nincarnation 3\nsession 17\ncrc32c 3bec89f2\n"),
            "as in formats.md: {text}"
        );
        for end in 0..text.len() {
            assert_eq!(DatabaseMark::parse(&text[..end]), None, "cut at {end}");
        }
        std::fs::write(temp.path().join(FILE), text.replace("db1", "db2")).unwrap();
        assert!(matches!(DatabaseMark::read(&disk), Err(OpenError::DatabaseMark { .. })));
        assert!(matches!(DatabaseMark::in_directory(temp.path()), Err(OpenError::DatabaseMark { .. })));
        // A number that is not written as it should be, although the checksum is right.
        for other in ["session +17", "session 017", "session ", "session -1", "sessions 17"] {
            let before = text.replace("session 17", other);
            let before = before.strip_suffix("crc32c 3bec89f2\n").unwrap();
            let crc = Crc32c::of(before.as_bytes()).0;
            assert_eq!(DatabaseMark::parse(&format!("{before}crc32c {crc:08x}\n")), None, "{other}");
        }
        DatabaseMark::remove(&disk).unwrap();
        DatabaseMark::remove(&disk).unwrap();
        assert_eq!(DatabaseMark::read(&disk).unwrap(), None);
    }
}
