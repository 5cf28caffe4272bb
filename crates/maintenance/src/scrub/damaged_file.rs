//! The damaged replicas of a disk server's store: a small file beside the objects, so that a restart does not forget them.

use std::collections::BTreeSet;

use disk::{Access, Disk, DiskError, OpenOptions};
use types::{Crc32c, ReplicaId};

use super::position::parse_replica;

/// The file.
pub const FILE: &str = "store/DAMAGED";
/// Longest file: the 4096 damaged replicas and twice as many suspects that a disk server remembers at most, with the longest numbers, are fewer bytes.
const TEXT_MAX: usize = 512 << 10;

fn to_text(replicas: &BTreeSet<ReplicaId>) -> String {
    let mut text: String = replicas.iter().map(|replica| format!("damaged {replica}\n")).collect();
    let crc = Crc32c::of(text.as_bytes()).0;
    text += &format!("crc32c {crc:08x}\n");
    text
}

fn parse(text: &str) -> Option<BTreeSet<ReplicaId>> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("damaged "));
    let replicas = lines.map(parse_replica).collect::<Option<BTreeSet<_>>>()?;
    (to_text(&replicas) == text).then_some(replicas)
}

/// Reads the file. If it cannot be decoded, nothing is known of earlier damage; the scrub finds it again.
///
/// # Errors
/// Errors of the disk.
pub fn read(disk: &dyn Disk) -> Result<BTreeSet<ReplicaId>, DiskError> {
    let Some(len) = disk.len_of(FILE)? else { return Ok(BTreeSet::new()) };
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(TEXT_MAX).min(TEXT_MAX)];
    let got = disk.open(FILE, OpenOptions { access: Access::Read, direct: false })?.read_at(&mut bytes, 0)?;
    Ok(parse(&String::from_utf8_lossy(&bytes[..got])).unwrap_or_else(|| {
        tracing::warn!("{FILE} does not read as it was written; the scrub finds the damage again");
        BTreeSet::new()
    }))
}

/// Replaces the file. It is durable when this returns.
///
/// # Errors
/// Errors of the disk.
pub fn write(disk: &dyn Disk, replicas: &BTreeSet<ReplicaId>) -> Result<(), DiskError> {
    disk::replace_file(disk, FILE, to_text(replicas).as_bytes())
}

#[cfg(test)]
mod tests {
    use types::{ObjectId, ReplicaIndex};

    use super::*;

    #[test]
    fn list_reads_back_and_damaged_ones_are_ignored() {
        let temp = tempfile::tempdir().unwrap();
        let disk = disk::RealDisk::open(temp.path()).unwrap();
        disk.create_dir_all("store").unwrap();
        assert_eq!(read(&disk).unwrap(), BTreeSet::new());
        let replica = |object| ReplicaId { object: ObjectId(object), index: ReplicaIndex(u16::MAX) };
        // As many as a disk server remembers, with the longest numbers.
        let most: BTreeSet<ReplicaId> = (0..3 * 4096).map(|number| replica(u64::MAX - number)).collect();
        for replicas in [BTreeSet::new(), [replica(1), replica(0xabc)].into(), most] {
            write(&disk, &replicas).unwrap();
            assert_eq!(read(&disk).unwrap(), replicas);
        }
        let text = to_text(&[replica(1), replica(2)].into());
        for end in 0..text.len() {
            assert_eq!(parse(&text[..end]), None, "{end}");
        }
        assert_eq!(parse(&text.replace("damaged 0000000000000001", "damaged 0000000000000003")), None);
    }
}
