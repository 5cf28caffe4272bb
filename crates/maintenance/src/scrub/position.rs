//! The position of the scrub: a small file beside the objects, so that a restart does not begin again.

use disk::{Access, Disk, DiskError, OpenOptions};
use types::{Crc32c, ObjectId, ReplicaId, ReplicaIndex};

/// The file.
pub const FILE: &str = "store/SCRUB";
const TEXT_MAX: usize = 1024;

/// The counts of a pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Tally {
    /// When it began, in seconds since 1970.
    pub began: u64,
    /// When it ended; 0: it has not ended.
    pub ended: u64,
    /// Objects that were read and are intact.
    pub whole: u64,
    /// Objects with an open write, which were left out.
    pub busy: u64,
    /// Damaged objects.
    pub damaged: u64,
    /// Bytes read.
    pub bytes: u64,
}

/// The values in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Position {
    /// The number of the pass, from 1; 0: there was none.
    pub pass: u64,
    /// The present pass, and the last object that it has checked.
    pub current: Option<(Tally, Option<ReplicaId>)>,
    /// The last pass that ended.
    pub last: Option<Tally>,
}

impl Tally {
    fn to_text(self) -> String {
        let Self { began, ended, whole, busy, damaged, bytes } = self;
        format!("{began} {ended} {whole} {busy} {damaged} {bytes}")
    }

    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split(' ').map(|word| word.parse::<u64>().ok());
        let mut next = || numbers.next().flatten();
        let tally =
            Self { began: next()?, ended: next()?, whole: next()?, busy: next()?, damaged: next()?, bytes: next()? };
        numbers.next().is_none().then_some(tally)
    }
}

pub(super) fn parse_replica(text: &str) -> Option<ReplicaId> {
    let (object, index) = text.split_once('.')?;
    Some(ReplicaId {
        object: ObjectId(u64::from_str_radix(object, 16).ok()?),
        index: ReplicaIndex(index.parse().ok()?),
    })
}

impl Position {
    fn to_text(self) -> String {
        let mut text = format!("pass {}\n", self.pass);
        if let Some((tally, after)) = self.current {
            text += &format!("current {}\n", tally.to_text());
            if let Some(after) = after {
                text += &format!("after {after}\n");
            }
        }
        if let Some(last) = self.last {
            text += &format!("last {}\n", last.to_text());
        }
        let crc = Crc32c::of(text.as_bytes()).0;
        format!("{text}crc32c {crc:08x}\n")
    }

    fn parse(text: &str) -> Option<Self> {
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let after = field("after").map(|text| parse_replica(text).ok_or(())).transpose().ok()?;
        let tally = |name: &str| field(name).map(|text| Tally::parse(text).ok_or(())).transpose().ok();
        let position = Self {
            pass: field("pass")?.parse().ok()?,
            current: tally("current")?.map(|tally| (tally, after)),
            last: tally("last")?,
        };
        (position.to_text() == text).then_some(position)
    }

    /// Reads the file. If it is missing or cannot be decoded, the pass begins again.
    pub fn read(disk: &dyn Disk) -> Result<Self, DiskError> {
        if disk.len_of(FILE)?.is_none() {
            return Ok(Self::default());
        }
        let mut bytes = [0; TEXT_MAX];
        let got = disk.open(FILE, OpenOptions { access: Access::Read, direct: false })?.read_at(&mut bytes, 0)?;
        let text = String::from_utf8_lossy(&bytes[..got]);
        Ok(Self::parse(&text).unwrap_or_else(|| {
            tracing::warn!("{FILE} does not read as it was written; the scrub begins again");
            Self::default()
        }))
    }

    /// Replaces the file. It is durable when this returns.
    pub fn write(&self, disk: &dyn Disk) -> Result<(), DiskError> {
        disk::replace_file(disk, FILE, self.to_text().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn position_reads_back_and_damaged_ones_are_ignored() {
        let temp = tempfile::tempdir().unwrap();
        let disk = disk::RealDisk::open(temp.path()).unwrap();
        disk.create_dir_all("store").unwrap();
        let tally = Tally { began: 1, ended: 0, whole: 2, busy: 3, damaged: u64::MAX, bytes: 4 };
        let replica = ReplicaId { object: ObjectId(0xabc), index: ReplicaIndex(7) };
        for position in [
            Position::default(),
            Position { pass: 1, current: Some((tally, None)), last: None },
            Position { pass: 2, current: Some((tally, Some(replica))), last: Some(Tally { ended: 9, ..tally }) },
        ] {
            position.write(&disk).unwrap();
            assert_eq!(Position::read(&disk).unwrap(), position);
            let text = position.to_text();
            for end in 0..text.len() {
                assert_eq!(Position::parse(&text[..end]), None, "{end}");
            }
        }
        std::fs::write(temp.path().join(FILE), "pass 2\n").unwrap();
        assert_eq!(Position::read(&disk).unwrap(), Position::default());
    }
}
