//! Marks: files that say that a repair of the whole directory is under way. A repair writes its mark before its first change. No node starts until
//! the mark is gone or says that the repair is finished. The crate `maintenance` makes the repairs.

use disk::{Access, Disk, DiskError, OpenOptions};
use journal::{Beginning, Seq};
use types::Crc32c;

use crate::error::OpenError;
use crate::layout::STORE_DIR;

/// The mark of a new journal in place of a lost one.
pub const JOURNAL_RESET: &str = "store/JOURNAL-RESET";
/// The mark of a store's index that is being rebuilt from the files of objects.
pub const REBUILDING: &str = "store/REBUILDING";
/// The mark of a restore of the namespace.
pub const RESTORING: &str = "RESTORING";
const TEXT_MAX: usize = 256;

/// Whether a rebuild of the store's index was begun and not finished.
///
/// # Errors
///
/// Errors of the disk.
pub fn is_rebuilding(disk: &dyn Disk) -> Result<bool, DiskError> {
    Ok(disk.len_of(REBUILDING)?.is_some())
}

/// Whether a restore of the namespace was begun and not finished.
///
/// # Errors
///
/// Errors of the disk.
pub fn is_restoring(disk: &dyn Disk) -> Result<bool, DiskError> {
    Ok(disk.len_of(RESTORING)?.is_some())
}

/// The mark of a new journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JournalReset {
    /// How the new journal begins.
    pub beginning: Beginning,
    /// Whether every part follows the new journal. Until then the node does not start.
    pub finished: bool,
}

impl JournalReset {
    fn to_text(self) -> String {
        let Beginning { first, segment, incarnation } = self.beginning;
        let finished = u8::from(self.finished);
        let text = format!("first {first}\nsegment {segment}\nincarnation {incarnation}\nfinished {finished}\n");
        let crc = Crc32c::of(text.as_bytes()).0;
        format!("{text}crc32c {crc:08x}\n")
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let mut number = |field: &str| lines.next()?.strip_prefix(field)?.trim().parse::<u64>().ok();
        let first = Seq(number("first ")?);
        let beginning = Beginning { first, segment: number("segment ")?, incarnation: number("incarnation ")? };
        let mark = Self { beginning, finished: number("finished ")? == 1 };
        (mark.to_text() == text).then_some(mark)
    }

    /// Reads the mark. `None`: no new journal was ever begun in place of a lost one.
    ///
    /// # Errors
    ///
    /// Errors of the disk, and [`OpenError::JournalResetMark`] if the mark cannot be decoded.
    pub fn read(disk: &dyn Disk) -> Result<Option<Self>, OpenError> {
        if disk.len_of(JOURNAL_RESET)?.is_none() {
            return Ok(None);
        }
        let mut bytes = [0; TEXT_MAX];
        let got =
            disk.open(JOURNAL_RESET, OpenOptions { access: Access::Read, direct: false })?.read_at(&mut bytes, 0)?;
        let text = String::from_utf8_lossy(&bytes[..got]);
        Self::parse(&text)
            .map(Some)
            .ok_or_else(|| OpenError::JournalResetMark { text: text.escape_debug().to_string() })
    }

    /// Writes the mark. It is durable when this returns.
    ///
    /// # Errors
    ///
    /// Errors of the disk.
    pub fn write(self, disk: &dyn Disk) -> Result<(), DiskError> {
        disk.create_dir_all(STORE_DIR)?;
        disk.sync_dir("")?;
        disk::replace_file(disk, JOURNAL_RESET, self.to_text().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test may fail this way

    use super::*;

    #[test]
    fn mark_reads_back_and_damaged_ones_are_refused() {
        let temp = tempfile::tempdir().unwrap();
        let disk = disk::RealDisk::open(temp.path()).unwrap();
        assert_eq!(JournalReset::read(&disk).unwrap(), None);
        let beginning = Beginning { first: Seq(1 << 21), segment: 7, incarnation: u64::MAX };
        for finished in [false, true] {
            let mark = JournalReset { beginning, finished };
            mark.write(&disk).unwrap();
            assert_eq!(JournalReset::read(&disk).unwrap(), Some(mark));
        }
        let text = JournalReset { beginning, finished: true }.to_text();
        assert_eq!(text, "first 2097152\nsegment 7\nincarnation 18446744073709551615\nfinished 1\ncrc32c 30b6bf4a\n");
        for end in 0..text.len() {
            assert_eq!(JournalReset::parse(&text[..end]), None);
        }
        std::fs::write(temp.path().join(JOURNAL_RESET), text.replace("finished 1", "finished 0")).unwrap();
        assert!(matches!(JournalReset::read(&disk), Err(OpenError::JournalResetMark { .. })));
    }
}
