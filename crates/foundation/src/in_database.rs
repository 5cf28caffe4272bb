//! The mark of a manager's data directory whose namespace is in a database: a small file that names the database, without a password. With it nobody
//! takes what the directory still has for the namespace.

use disk::{Access, Disk, DiskError, OpenOptions};
use types::{ClusterId, Crc32c};

use crate::error::OpenError;

/// The file.
pub const FILE: &str = "IN-DATABASE";
const TEXT_MAX: usize = 4096;

/// The values in the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InDatabase {
    /// The cluster whose namespace it is.
    pub cluster: ClusterId,
    /// The address of the database, without a password.
    pub database: String,
}

impl InDatabase {
    /// Reads the file. `None`: the namespace is not in a database.
    ///
    /// # Errors
    ///
    /// Errors of the disk, and [`OpenError::InDatabaseMark`] if the file cannot be decoded.
    pub fn read(disk: &dyn Disk) -> Result<Option<Self>, OpenError> {
        if disk.len_of(FILE)?.is_none() {
            return Ok(None);
        }
        let mut bytes = [0; TEXT_MAX];
        let got = disk.open(FILE, OpenOptions { access: Access::Read, direct: false })?.read_at(&mut bytes, 0)?;
        let text = String::from_utf8_lossy(&bytes[..got]);
        Self::parse(&text).map(Some).ok_or_else(|| OpenError::InDatabaseMark { text: text.escape_debug().to_string() })
    }

    /// Writes the file. It is durable when this returns.
    ///
    /// # Errors
    ///
    /// Errors of the disk.
    pub fn write(&self, disk: &dyn Disk) -> Result<(), DiskError> {
        disk::replace_file(disk, FILE, self.to_text().as_bytes())
    }

    /// Removes the file: the namespace is in the directory again. That is durable when this returns.
    ///
    /// # Errors
    ///
    /// Errors of the disk.
    pub fn clear(disk: &dyn Disk) -> Result<(), DiskError> {
        if disk.len_of(FILE)?.is_some() {
            disk.remove(FILE)?;
        }
        disk.sync_dir("")
    }

    fn to_text(&self) -> String {
        let text = format!("cluster {}\ndatabase {}\n", self.cluster, self.database);
        format!("{text}crc32c {:08x}\n", Crc32c::of(text.as_bytes()).0)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let cluster = u128::from_str_radix(lines.next()?.strip_prefix("cluster ")?, 16).ok().map(ClusterId)?;
        let database = lines.next()?.strip_prefix("database ")?.to_owned();
        let mark = Self { cluster, database };
        (mark.to_text() == text).then_some(mark)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mark_reads_back_and_damaged_ones_are_refused() {
        let temp = tempfile::tempdir().unwrap();
        let disk = disk::RealDisk::open(temp.path()).unwrap();
        assert_eq!(InDatabase::read(&disk).unwrap(), None);
        let mark = InDatabase { cluster: ClusterId(0xabc), database: "postgres://weir@db1/weir".into() };
        mark.write(&disk).unwrap();
        assert_eq!(InDatabase::read(&disk).unwrap(), Some(mark.clone()));
        let text = mark.to_text();
        assert!(
            text.starts_with("cluster 00000000000000000000000000000abc\ndatabase postgres://weir@db1/weir\ncrc32c ")
        );
        for end in 0..text.len() {
            assert_eq!(InDatabase::parse(&text[..end]), None, "{end}");
        }
        std::fs::write(temp.path().join(FILE), text.replace("db1", "db2")).unwrap();
        assert!(matches!(InDatabase::read(&disk), Err(OpenError::InDatabaseMark { .. })));
        for _ in 0..2 {
            InDatabase::clear(&disk).unwrap();
            assert_eq!(InDatabase::read(&disk).unwrap(), None);
        }
    }
}
