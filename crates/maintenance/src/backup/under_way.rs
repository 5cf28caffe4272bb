//! The mark of a restore that is under way, and what it keeps for the next attempt: an interrupted restore has written to the log behind
//! what it restored from, and has perhaps let go what nobody seemed to need any more. The next one must not take the one for the
//! namespace's history, nor miss the other.

use disk::{Access, Disk, DiskError, OpenOptions};
use foundation::marks::RESTORING as FILE;
use journal::Seq;
use types::{Crc32c, Timestamp};

use super::manifest::Manifest;
use super::restore::Way;

const TEXT_MAX: usize = 512;

/// What the mark says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnderWay {
    /// The incarnation of the log that the attempts have found; 0: they have found none.
    pub log: u64,
    /// The last record that it had when the first of them came.
    pub end: Seq,
    /// Whether that is so for certain. Otherwise an attempt that left no word of it may have written to the log before.
    pub certain: bool,
    /// An attempt has gone on with an older state than the log's end: what the log has behind `end` may be of that.
    pub branched: bool,
    /// What stands in the place of the namespace already, whole.
    pub placed: Option<Placed>,
}

/// A backup that has been put in the place of the namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placed {
    /// Which.
    pub backup: Which,
    /// The incarnation of the log beside which it was put there; 0: there was none.
    pub beside: u64,
    /// How far it was followed by the log.
    pub way: Way,
}

/// Which backup it is: every folder of them counts from 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Which {
    number: u64,
    upto: u64,
    log: u64,
    taken: Timestamp,
    sum: u32,
}

impl Which {
    /// The one that `manifest` tells of.
    #[must_use]
    pub fn of(manifest: &Manifest) -> Self {
        let Manifest { number, upto, log, taken, sum, .. } = *manifest;
        Self { number, upto, log, taken, sum }
    }
}

impl UnderWay {
    /// Of a mark that does not read: nothing is known of a log, and anything may have been done.
    const UNKNOWN: Self = Self { log: 0, end: Seq::ZERO, certain: false, branched: true, placed: None };

    /// Of a first attempt, which finds a log of the incarnation `log` that ends with `end`.
    #[must_use]
    pub fn first(log: u64, end: Seq) -> Self {
        Self { log, end, certain: true, branched: false, placed: None }
    }

    /// What is known beside a log of the incarnation `log` that ends with `end` now, after attempts that have left `before`.
    #[must_use]
    pub fn beside(before: Option<Self>, log: u64, end: Seq) -> Self {
        match before {
            None => Self::first(log, end),
            Some(mark) if mark.log == log => mark,
            // They have found no log, and so have written to none.
            Some(mark) if mark.log == 0 && mark.certain => Self { placed: mark.placed, ..Self::first(log, end) },
            Some(mark) => Self { log, end, certain: false, branched: true, placed: mark.placed },
        }
    }

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
        let Self { log, end, certain, branched, placed } = self;
        let (certain, branched) = (u8::from(certain), u8::from(branched));
        let placed = placed.map_or_else(|| "nothing".to_owned(), Placed::to_text);
        let text = format!("log {log}\nend {end}\ncertain {certain}\nbranched {branched}\nplaced {placed}\n");
        let crc = Crc32c::of(text.as_bytes()).0;
        format!("{text}crc32c {crc:08x}\n")
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let mut field = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
        let (log, end) = (field("log")?.parse().ok()?, Seq(field("end")?.parse().ok()?));
        let (certain, branched) = (field("certain")? == "1", field("branched")? == "1");
        let placed = match field("placed")? {
            "nothing" => None,
            placed => Some(Placed::parse(placed)?),
        };
        let mark = Self { log, end, certain, branched, placed };
        (mark.to_text() == text).then_some(mark)
    }
}

impl Placed {
    fn to_text(self) -> String {
        let Self { backup: Which { number, upto, log, taken, sum }, beside, way } = self;
        let way = match way {
            Way::ToTheEnd => "end".to_owned(),
            Way::AsOfTheBackup => "alone".to_owned(),
            Way::ToTheRecord(record) => record.to_string(),
        };
        format!("{number} upto {upto} log {log} taken {} sum {sum} beside {beside} followed {way}", taken.0)
    }

    fn parse(text: &str) -> Option<Self> {
        let (number, rest) = text.split_once(' ')?;
        let mut words = rest.split(' ');
        let mut field = |name: &str| words.next().filter(|word| *word == name).and_then(|_| words.next());
        let backup = Which {
            number: number.parse().ok()?,
            upto: field("upto")?.parse().ok()?,
            log: field("log")?.parse().ok()?,
            taken: Timestamp(field("taken")?.parse().ok()?),
            sum: field("sum")?.parse().ok()?,
        };
        let beside = field("beside")?.parse().ok()?;
        let way = match field("followed")? {
            "end" => Way::ToTheEnd,
            "alone" => Way::AsOfTheBackup,
            record => Way::ToTheRecord(Seq(record.parse().ok()?)),
        };
        Some(Self { backup, beside, way })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(way: Way) -> Placed {
        let taken = Timestamp(1_795_219_171_417_482_420);
        Placed { backup: Which { number: 3, upto: 70, log: u64::MAX, taken, sum: u32::MAX }, beside: u64::MAX, way }
    }

    #[test]
    fn what_is_written_is_read_and_what_does_not_read_says_nothing() {
        let temp = tempfile::tempdir().unwrap();
        let disk = disk::RealDisk::open(temp.path()).unwrap();
        assert_eq!(UnderWay::read(&disk).unwrap(), None);
        let ways = [Way::ToTheEnd, Way::AsOfTheBackup, Way::ToTheRecord(Seq(u64::MAX))].map(placed);
        for placed in ways.map(Some).into_iter().chain([None]) {
            for (certain, branched) in [(true, false), (true, true), (false, true)] {
                let mark = UnderWay { log: u64::MAX, end: Seq(u64::MAX), certain, branched, placed };
                mark.write(&disk).unwrap();
                assert_eq!(UnderWay::read(&disk).unwrap(), Some(mark));
                let text = mark.to_text();
                for end in 0..text.len() {
                    assert_eq!(UnderWay::parse(&text[..end]), None);
                }
            }
        }
        // The last one is of a version before: nothing was known of the backup but its number.
        let before = "log 1\nend 2\nbranched 0\nplaced 3 end\n";
        let before = format!("{before}crc32c {:08x}\n", Crc32c::of(before.as_bytes()).0);
        for text in ["", "log 1\nend 2\ncertain 1\nbranched 0\nplaced nothing\ncrc32c 00000000\n", &before] {
            std::fs::write(temp.path().join(FILE), text).unwrap();
            assert_eq!(UnderWay::read(&disk).unwrap(), Some(UnderWay::UNKNOWN));
        }
    }

    /// The bytes on disk, pinned: a change here is a change of format.
    #[test]
    fn pinned() {
        let mark = UnderWay { placed: Some(placed(Way::ToTheRecord(Seq(77)))), ..UnderWay::first(5, Seq(99)) };
        assert_eq!(
            mark.to_text(),
            "log 5\nend 99\ncertain 1\nbranched 0\nplaced 3 upto 70 log 18446744073709551615 taken 1795219171417482420 \
             sum 4294967295 beside 18446744073709551615 followed 77\ncrc32c a90543e2\n"
        );
    }

    #[test]
    fn two_backups_of_one_number_are_two() {
        let kind = super::super::manifest::Kind::Full;
        let (number, after, bytes, entries) = (3, 0, 1, 1);
        let manifest = Manifest { number, kind, after, upto: 70, log: 5, taken: Timestamp(9), bytes, entries, sum: 1 };
        let other = [
            Manifest { upto: 71, ..manifest.clone() },
            Manifest { log: 6, ..manifest.clone() },
            Manifest { taken: Timestamp(10), ..manifest.clone() },
            Manifest { sum: 2, ..manifest.clone() },
        ];
        assert_eq!(Which::of(&manifest), Which::of(&manifest.clone()));
        assert!(other.iter().all(|other| Which::of(other) != Which::of(&manifest)));
    }

    #[test]
    fn where_the_log_ended_is_known_of_the_log_that_it_was_found_of() {
        let beside = |before| UnderWay::beside(Some(before), 5, Seq(120));
        assert_eq!(UnderWay::beside(None, 5, Seq(120)), UnderWay::first(5, Seq(120)));
        // The attempts have written behind record 100.
        let same =
            UnderWay { branched: true, placed: Some(placed(Way::AsOfTheBackup)), ..UnderWay::first(5, Seq(100)) };
        assert_eq!(beside(same), same);
        // They found none: what is there now was mounted, or put back.
        let none = UnderWay { log: 0, ..same };
        assert_eq!(beside(none), UnderWay { placed: none.placed, ..UnderWay::first(5, Seq(120)) });
        // They may have written to this one, or not, before they found the other.
        for before in [UnderWay { log: 6, ..same }, UnderWay { log: 6, branched: false, ..same }, UnderWay::UNKNOWN] {
            let mark = beside(before);
            assert!(!mark.certain && mark.branched && (mark.log, mark.end) == (5, Seq(120)), "{before:?}");
            assert_eq!(beside(mark), mark, "and this is not forgotten");
        }
    }
}
