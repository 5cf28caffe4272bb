//! Whether, and how often, unsynced bytes may have been lost. The name of one file in the journal's directory records
//! it.
//!
//! After a failed sync the kernel treats the bytes as written. The next sync succeeds and proves nothing. After a kill,
//! nothing in the journal would show that its end is missing. The failure is therefore recorded at once: a rename,
//! which needs no space, turns `sound-N` into `failed-N`. The next opening renames it to `sound-N+1`. Code that trusts
//! unsynced bytes asks for N ([`crate::Journal::boot`]).
//!
//! A mark that exists while the journal is open, and that a clean stop removes, would not depend on a failing disk. But
//! it could not tell a kill from a failed sync, and a kill must do no harm.
//!
//! If the rename fails too, the next opening relies on its own findings: another failed sync, a gap in the records, or
//! objects that do not match their checksums. One case stays undetected: the end of the journal has become zeros, the
//! disk refused the rename (or lost it in a remount), and the disk works again in the same boot. Another one: the kernel
//! fails to write the last short records back by itself, the process is killed before its next sync, and the kernel
//! forgets the file and its error before the next opening.

use std::io;

use disk::{Access, Disk, DiskError, OpenOptions};

use crate::interface::Loss;
use crate::scan::{Scan, join};

const SOUND: &str = "sound-";
const FAILED: &str = "failed-";

/// The name of the loss file: the number of losses, and whether a failure has followed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct LossFile {
    count: u64,
    failed: bool,
}

impl LossFile {
    fn name(self) -> String {
        format!("{}{}", if self.failed { FAILED } else { SOUND }, self.count)
    }

    fn of_name(name: &str) -> Option<Self> {
        let (digits, failed) = match (name.strip_prefix(SOUND), name.strip_prefix(FAILED)) {
            (Some(digits), _) => (digits, false),
            (None, digits) => (digits?, true),
        };
        let file = Self { count: digits.parse().ok()?, failed };
        (file.name() == name).then_some(file)
    }

    /// If several files exist, which weir never does itself, the least trusting one counts.
    fn find(disk: &dyn Disk, dir: &str) -> Result<Option<Self>, DiskError> {
        Ok(disk.list(dir)?.iter().filter_map(|entry| Self::of_name(&entry.name)).max())
    }

    /// Gives the file this name, durably.
    fn write(self, before: Option<Self>, disk: &dyn Disk, dir: &str) -> Result<(), DiskError> {
        let path = join(dir, &self.name());
        match before {
            Some(before) if before == self => {}
            Some(before) => disk.rename(&join(dir, &before.name()), &path)?,
            None => drop(disk.open(&path, OpenOptions { access: Access::CreateNew, direct: false })?),
        }
        disk.sync_dir(dir)
    }
}

/// The loss state of an open journal.
#[derive(Debug)]
pub(crate) struct Losses {
    file: LossFile,
    /// The loss that the opening found.
    pub(crate) found: Option<Loss>,
    /// A write or a sync has failed since the opening, whether or not the disk could record it.
    pub(crate) has_failed: bool,
}

/// The number of losses after an opening with these findings, and the loss that it found.
fn judge(file: Option<LossFile>, scan: &Scan) -> (u64, Option<Loss>) {
    // Records are written in order: the death of a process never leaves a gap.
    let gap = (scan.highest > scan.last + 1).then_some(Loss::Gap);
    match file {
        None if scan.is_fresh() => (0, None),
        // An older weir wrote the journal, or somebody started or copied it by hand.
        None => (1, Some(Loss::Unknown)),
        Some(LossFile { count, failed: true }) => (count.saturating_add(1), Some(Loss::Failed)),
        Some(LossFile { count, failed: false }) => (count.saturating_add(u64::from(gap.is_some())), gap),
    }
}

/// The loss that an opening would find.
pub(crate) fn look(disk: &dyn Disk, dir: &str, scan: &Scan) -> Result<Option<Loss>, DiskError> {
    Ok(judge(LossFile::find(disk, dir)?, scan).1)
}

/// Records that an opening could not sync: unwritten bytes may be lost, and the kernel would not tell the next attempt.
pub(crate) fn opening_failed(disk: &dyn Disk, dir: &str) {
    if let Ok(file) = LossFile::find(disk, dir) {
        let failed = LossFile { count: file.map_or(0, |file| file.count), failed: true };
        let _ = failed.write(file, disk, dir);
    }
}

impl Losses {
    /// Counts the loss that this opening found, durably. Call it before you change anything on the disk.
    pub(crate) fn settle(disk: &dyn Disk, dir: &str, scan: &Scan) -> Result<Self, DiskError> {
        let before = LossFile::find(disk, dir)?;
        let (count, found) = judge(before, scan);
        let file = LossFile { count, failed: false };
        file.write(before, disk, dir)?;
        Ok(Self { file, found, has_failed: false })
    }

    pub(crate) fn count(&self) -> u64 {
        self.file.count
    }

    /// Records a failed write or sync. The disk may refuse this too; the next failure tries again.
    pub(crate) fn fail(&mut self, disk: &dyn Disk, dir: &str) {
        self.has_failed = true;
        if self.file.failed {
            return;
        }
        let failed = LossFile { failed: true, ..self.file };
        match failed.write(Some(self.file), disk, dir) {
            Ok(()) => self.file = failed,
            // The new name is not durable, but it lasts for this boot, and that is enough.
            Err(e) if e.op == disk::DiskOp::SyncDir => self.file = failed,
            Err(_) => {}
        }
    }

    /// Counts one more loss; durable on return.
    pub(crate) fn add(&mut self, disk: &dyn Disk, dir: &str) -> Result<(), DiskError> {
        let more = LossFile { count: self.file.count.saturating_add(1), ..self.file };
        match more.write(Some(self.file), disk, dir) {
            // An earlier attempt renamed the file and could not sync the directory.
            Err(e) if e.source.kind() == io::ErrorKind::NotFound => disk.sync_dir(dir)?,
            other => other?,
        }
        self.file = more;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for file in [LossFile { count: 0, failed: false }, LossFile { count: u64::MAX, failed: true }] {
            assert_eq!(LossFile::of_name(&file.name()), Some(file));
        }
        for name in ["sound-", "sound-01", "failed-+1", "failed-18446744073709551616", "sound", "tail-1.cut"] {
            assert_eq!(LossFile::of_name(name), None, "{name}");
        }
    }
}
