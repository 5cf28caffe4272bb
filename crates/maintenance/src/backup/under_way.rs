//! The mark of a restore that is under way, with facts for the next attempt. An interrupted restore has written to the journal after the end of the
//! namespace's history, and may have trimmed earlier records. The next attempt must not take the new records for history, and must not require the
//! trimmed ones.

use disk::{Access, Disk, DiskError, OpenOptions};
use foundation::marks::RESTORING as FILE;
use journal::Seq;
use types::{Crc32c, Timestamp};

use super::manifest::Manifest;
use super::restore::CatchUp;

const TEXT_MAX: usize = 512;

/// The values in the mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RestoreMark {
    /// The incarnation of the journal that the attempts found; 0: they found none.
    pub log: u64,
    /// The last record of the journal when the first attempt began.
    pub end: Seq,
    /// Whether `end` is certain. Otherwise an earlier attempt that left no mark may have written to the journal.
    pub certain: bool,
    /// An attempt has continued with a state older than the end of the journal. Records after `end` may belong to that state.
    pub branched: bool,
    /// The complete backup that already stands in the namespace's place.
    pub placed: Option<RestoredBackup>,
}

/// A backup that has been put in the namespace's place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RestoredBackup {
    /// The backup.
    pub backup: BackupId,
    /// The incarnation of the journal at that time; 0: there was none.
    pub beside: u64,
    /// How far the journal has brought it forward.
    pub way: CatchUp,
}

/// Identifies a backup. Its number is not enough, because every folder counts from 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BackupId {
    number: u64,
    upto: u64,
    log: u64,
    taken: Timestamp,
    sum: u32,
}

impl BackupId {
    /// The backup of `manifest`.
    #[must_use]
    pub fn of(manifest: &Manifest) -> Self {
        let Manifest { number, upto, log, taken, sum, .. } = *manifest;
        Self { number, upto, log, taken, sum }
    }
}

impl RestoreMark {
    /// For a mark that cannot be decoded: the journal is unknown, and anything may have happened.
    const UNKNOWN: Self = Self { log: 0, end: Seq::ZERO, certain: false, branched: true, placed: None };

    /// For a first attempt, beside a journal of the incarnation `log` that ends at `end`.
    #[must_use]
    pub fn first(log: u64, end: Seq) -> Self {
        Self { log, end, certain: true, branched: false, placed: None }
    }

    /// For an attempt beside a journal of the incarnation `log` that now ends at `end`. `before` is the mark of the earlier attempts.
    #[must_use]
    pub fn beside(before: Option<Self>, log: u64, end: Seq) -> Self {
        match before {
            None => Self::first(log, end),
            Some(mark) if mark.log == log => mark,
            // The earlier attempts found no journal, so they have written to none.
            Some(mark) if mark.log == 0 && mark.certain => Self { placed: mark.placed, ..Self::first(log, end) },
            Some(mark) => Self { log, end, certain: false, branched: true, placed: mark.placed },
        }
    }

    /// Reads the mark. `None`: no restore is under way.
    ///
    /// # Errors
    ///
    /// Errors of the disk.
    pub fn read(disk: &dyn Disk) -> Result<Option<Self>, DiskError> {
        if disk.len_of(FILE)?.is_none() {
            return Ok(None);
        }
        let mut bytes = [0; TEXT_MAX];
        let got = disk.open(FILE, OpenOptions { access: Access::Read, direct: false })?.read_at(&mut bytes, 0)?;
        Ok(Some(Self::parse(&String::from_utf8_lossy(&bytes[..got])).unwrap_or(Self::UNKNOWN)))
    }

    /// Writes the mark. It is durable when this returns.
    ///
    /// # Errors
    ///
    /// Errors of the disk.
    pub fn write(self, disk: &dyn Disk) -> Result<(), DiskError> {
        disk::replace_file(disk, FILE, self.to_text().as_bytes())
    }

    fn to_text(self) -> String {
        let Self { log, end, certain, branched, placed } = self;
        let (certain, branched) = (u8::from(certain), u8::from(branched));
        let placed = placed.map_or_else(|| "nothing".to_owned(), RestoredBackup::to_text);
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
            placed => Some(RestoredBackup::parse(placed)?),
        };
        let mark = Self { log, end, certain, branched, placed };
        (mark.to_text() == text).then_some(mark)
    }
}

impl RestoredBackup {
    fn to_text(self) -> String {
        let Self { backup: BackupId { number, upto, log, taken, sum }, beside, way } = self;
        let way = match way {
            CatchUp::ToTheEnd => "end".to_owned(),
            CatchUp::AsOfTheBackup => "alone".to_owned(),
            CatchUp::ToTheRecord(record) => record.to_string(),
        };
        format!("{number} upto {upto} log {log} taken {} sum {sum} beside {beside} followed {way}", taken.0)
    }

    fn parse(text: &str) -> Option<Self> {
        let (number, rest) = text.split_once(' ')?;
        let mut words = rest.split(' ');
        let mut field = |name: &str| words.next().filter(|word| *word == name).and_then(|_| words.next());
        let backup = BackupId {
            number: number.parse().ok()?,
            upto: field("upto")?.parse().ok()?,
            log: field("log")?.parse().ok()?,
            taken: Timestamp(field("taken")?.parse().ok()?),
            sum: field("sum")?.parse().ok()?,
        };
        let beside = field("beside")?.parse().ok()?;
        let way = match field("followed")? {
            "end" => CatchUp::ToTheEnd,
            "alone" => CatchUp::AsOfTheBackup,
            record => CatchUp::ToTheRecord(Seq(record.parse().ok()?)),
        };
        Some(Self { backup, beside, way })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(way: CatchUp) -> RestoredBackup {
        let taken = Timestamp(1_795_219_171_417_482_420);
        RestoredBackup {
            backup: BackupId { number: 3, upto: 70, log: u64::MAX, taken, sum: u32::MAX },
            beside: u64::MAX,
            way,
        }
    }

    #[test]
    fn mark_reads_back_and_a_damaged_one_says_nothing() {
        let temp = tempfile::tempdir().unwrap();
        let disk = disk::RealDisk::open(temp.path()).unwrap();
        assert_eq!(RestoreMark::read(&disk).unwrap(), None);
        let ways = [CatchUp::ToTheEnd, CatchUp::AsOfTheBackup, CatchUp::ToTheRecord(Seq(u64::MAX))].map(placed);
        for placed in ways.map(Some).into_iter().chain([None]) {
            for (certain, branched) in [(true, false), (true, true), (false, true)] {
                let mark = RestoreMark { log: u64::MAX, end: Seq(u64::MAX), certain, branched, placed };
                mark.write(&disk).unwrap();
                assert_eq!(RestoreMark::read(&disk).unwrap(), Some(mark));
                let text = mark.to_text();
                for end in 0..text.len() {
                    assert_eq!(RestoreMark::parse(&text[..end]), None);
                }
            }
        }
        // The last text is of an earlier version, which recorded only the number of the backup.
        let before = "log 1\nend 2\nbranched 0\nplaced 3 end\n";
        let before = format!("{before}crc32c {:08x}\n", Crc32c::of(before.as_bytes()).0);
        for text in ["", "log 1\nend 2\ncertain 1\nbranched 0\nplaced nothing\ncrc32c 00000000\n", &before] {
            std::fs::write(temp.path().join(FILE), text).unwrap();
            assert_eq!(RestoreMark::read(&disk).unwrap(), Some(RestoreMark::UNKNOWN));
        }
    }

    /// The bytes on disk, pinned. A change here is a change of the format.
    #[test]
    fn mark_bytes_are_pinned() {
        let mark =
            RestoreMark { placed: Some(placed(CatchUp::ToTheRecord(Seq(77)))), ..RestoreMark::first(5, Seq(99)) };
        assert_eq!(
            mark.to_text(),
            "log 5\nend 99\ncertain 1\nbranched 0\nplaced 3 upto 70 log 18446744073709551615 taken 1795219171417482420 \
             sum 4294967295 beside 18446744073709551615 followed 77\ncrc32c a90543e2\n"
        );
    }

    #[test]
    fn backups_of_one_number_from_two_folders_differ() {
        let kind = super::super::manifest::Kind::Full;
        let (number, after, bytes, entries) = (3, 0, 1, 1);
        let manifest = Manifest { number, kind, after, upto: 70, log: 5, taken: Timestamp(9), bytes, entries, sum: 1 };
        let other = [
            Manifest { upto: 71, ..manifest.clone() },
            Manifest { log: 6, ..manifest.clone() },
            Manifest { taken: Timestamp(10), ..manifest.clone() },
            Manifest { sum: 2, ..manifest.clone() },
        ];
        assert_eq!(BackupId::of(&manifest), BackupId::of(&manifest.clone()));
        assert!(other.iter().all(|other| BackupId::of(other) != BackupId::of(&manifest)));
    }

    #[test]
    fn end_of_history_is_known_only_for_the_same_journal() {
        let beside = |before| RestoreMark::beside(Some(before), 5, Seq(120));
        assert_eq!(RestoreMark::beside(None, 5, Seq(120)), RestoreMark::first(5, Seq(120)));
        // The attempts have written after record 100.
        let same = RestoreMark {
            branched: true,
            placed: Some(placed(CatchUp::AsOfTheBackup)),
            ..RestoreMark::first(5, Seq(100))
        };
        assert_eq!(beside(same), same);
        // The attempts found no journal. The present one was mounted or put back.
        let none = RestoreMark { log: 0, ..same };
        assert_eq!(beside(none), RestoreMark { placed: none.placed, ..RestoreMark::first(5, Seq(120)) });
        // The attempts may have written to this journal before they found the other one.
        for before in
            [RestoreMark { log: 6, ..same }, RestoreMark { log: 6, branched: false, ..same }, RestoreMark::UNKNOWN]
        {
            let mark = beside(before);
            assert!(!mark.certain && mark.branched && (mark.log, mark.end) == (5, Seq(120)), "{before:?}");
            assert_eq!(beside(mark), mark, "and this is not forgotten");
        }
    }
}
