//! The mark of a restore that is under way, and what it keeps for the next attempt: an interrupted restore has written to the log behind
//! what it restored from, and has perhaps let go what nobody seemed to need any more. The next one must not take the one for the
//! namespace's history, nor miss the other.

use disk::{Access, Disk, DiskError, OpenOptions};
use journal::Seq;
use types::Crc32c;

use super::restore::Way;

/// The mark.
pub const FILE: &str = "RESTORING";
const TEXT_MAX: usize = 512;

/// What the mark says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnderWay {
    /// The incarnation of the log as the first attempt found it; 0: it found none.
    pub log: u64,
    /// The last record that it had then.
    pub end: Seq,
    /// An attempt has gone on with an older state than the log's end: what the log has behind `end` may be of that.
    pub branched: bool,
    /// What stands in the place of the namespace already, whole.
    pub placed: Option<Placed>,
}

/// A backup that has been put in the place of the namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placed {
    /// Its number.
    pub backup: u64,
    /// How far it was followed by the log.
    pub way: Way,
}

impl UnderWay {
    /// Of a mark that does not read: nothing is known of a log, and anything may have been done.
    const UNKNOWN: Self = Self { log: 0, end: Seq::ZERO, branched: true, placed: None };

    /// Reads the mark; `None`: no restore is under way.
    ///
    /// # Errors
    /// Of the disk.
    pub fn read(disk: &dyn Disk) -> Result<Option<Self>, DiskError> {
        if disk.len_of(FILE)?.is_none() {
            return Ok(None);
        }
        let mut bytes = [0; TEXT_MAX];
        let got = disk.open(FILE, OpenOptions { access: Access::Read, direct: false })?.read_at(&mut bytes, 0)?;
        Ok(Some(Self::parse(&String::from_utf8_lossy(&bytes[..got])).unwrap_or(Self::UNKNOWN)))
    }

    /// Writes the mark; durable when it returns.
    ///
    /// # Errors
    /// Of the disk.
    pub fn write(self, disk: &dyn Disk) -> Result<(), DiskError> {
        disk::replace_file(disk, FILE, self.to_text().as_bytes())
    }

    fn to_text(self) -> String {
        let placed = match self.placed {
            None => "nothing".to_owned(),
            Some(Placed { backup, way: Way::ToTheEnd }) => format!("{backup} end"),
            Some(Placed { backup, way: Way::AsOfTheBackup }) => format!("{backup} alone"),
            Some(Placed { backup, way: Way::ToTheRecord(record) }) => format!("{backup} {record}"),
        };
        let Self { log, end, branched, .. } = self;
        let text = format!("log {log}\nend {end}\nbranched {}\nplaced {placed}\n", u8::from(branched));
        let crc = Crc32c::of(text.as_bytes()).0;
        format!("{text}crc32c {crc:08x}\n")
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let mut field = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
        let (log, end) = (field("log")?.parse().ok()?, Seq(field("end")?.parse().ok()?));
        let branched = field("branched")? == "1";
        let placed = match field("placed")? {
            "nothing" => None,
            placed => {
                let (backup, way) = placed.split_once(' ')?;
                let way = match way {
                    "end" => Way::ToTheEnd,
                    "alone" => Way::AsOfTheBackup,
                    record => Way::ToTheRecord(Seq(record.parse().ok()?)),
                };
                Some(Placed { backup: backup.parse().ok()?, way })
            }
        };
        let mark = Self { log, end, branched, placed };
        (mark.to_text() == text).then_some(mark)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_what_does_not_read_says_nothing() {
        let temp = tempfile::tempdir().unwrap();
        let disk = disk::RealDisk::open(temp.path()).unwrap();
        assert_eq!(UnderWay::read(&disk).unwrap(), None);
        let ways = [Way::ToTheEnd, Way::AsOfTheBackup, Way::ToTheRecord(Seq(77))].map(|way| Placed { backup: 3, way });
        for placed in ways.map(Some).into_iter().chain([None]) {
            let mark = UnderWay { log: u64::MAX, end: Seq(99), branched: placed.is_none(), placed };
            mark.write(&disk).unwrap();
            assert_eq!(UnderWay::read(&disk).unwrap(), Some(mark));
            let text = mark.to_text();
            for end in 0..text.len() {
                assert_eq!(UnderWay::parse(&text[..end]), None);
            }
        }
        for text in ["", "log 1\nend 2\nbranched 0\nplaced nothing\ncrc32c 00000000\n"] {
            std::fs::write(temp.path().join(FILE), text).unwrap();
            assert_eq!(UnderWay::read(&disk).unwrap(), Some(UnderWay::UNKNOWN));
        }
    }
}
