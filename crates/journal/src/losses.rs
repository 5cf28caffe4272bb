//! Whether, and how often, something that was written and not synced may have been lost: a file in the log's folder whose name says it.
//!
//! After a failed sync the kernel takes the bytes for written. The next sync works and proves nothing, and after a kill nothing in the
//! log would say that its end is missing. So the failure is written down at once: `sound-N` becomes `failed-N`, by a rename, which needs no
//! space. The next opening makes `sound-N+1` of it, and whoever trusts bytes that were not synced asks for N ([`crate::Journal::boot`]).
//!
//! A mark that stands while the log is open, and goes at a clean stop, would not depend on a failing disk; but it could not tell a kill
//! from a failed sync, and a kill must do no harm. Where the rename fails as well, what the next opening finds by itself is left: a sync that
//! fails again, a record that is missing before later ones, contents that do not match their sums. What is then missed is an end of the log that
//! has become zeros, on a disk that refused a rename (or forgot it, mounted anew) and works again in the same boot.

use std::io;

use disk::{Access, Disk, DiskError, OpenOptions};

use crate::scan::{Scan, join};
use crate::words::Loss;

const SOUND: &str = "sound-";
const FAILED: &str = "failed-";

/// What the name of the file says.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Told {
    count: u64,
    failed: bool,
}

impl Told {
    fn name(self) -> String {
        format!("{}{}", if self.failed { FAILED } else { SOUND }, self.count)
    }

    fn of_name(name: &str) -> Option<Self> {
        let (digits, failed) = match (name.strip_prefix(SOUND), name.strip_prefix(FAILED)) {
            (Some(digits), _) => (digits, false),
            (None, digits) => (digits?, true),
        };
        let told = Self { count: digits.parse().ok()?, failed };
        (told.name() == name).then_some(told)
    }

    /// Of several, which only somebody else can have put there, the one that trusts least.
    fn find(disk: &dyn Disk, dir: &str) -> Result<Option<Self>, DiskError> {
        Ok(disk.list(dir)?.iter().filter_map(|entry| Self::of_name(&entry.name)).max())
    }

    /// Makes this the name of the file, durably.
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

/// What is known of an open log.
#[derive(Debug)]
pub(crate) struct Losses {
    told: Told,
    /// What the opening found.
    pub(crate) found: Option<Loss>,
    /// A write or a sync has failed since, whether or not that could be written down.
    pub(crate) has_failed: bool,
}

/// How often something was lost, as of an opening that finds this; and what it found.
fn judge(told: Option<Told>, scan: &Scan) -> (u64, Option<Loss>) {
    // Records are written one after the other: no stop of the process alone leaves a later one without an earlier one.
    let gap = (scan.highest > scan.last + 1).then_some(Loss::Gap);
    match told {
        None if scan.is_fresh() => (0, None),
        // An older weir's log, or one that was begun or put there by hand.
        None => (1, Some(Loss::Unknown)),
        Some(Told { count, failed: true }) => (count.saturating_add(1), Some(Loss::Failed)),
        Some(Told { count, failed: false }) => (count.saturating_add(u64::from(gap.is_some())), gap),
    }
}

/// What an opening would find.
pub(crate) fn look(disk: &dyn Disk, dir: &str, scan: &Scan) -> Result<Option<Loss>, DiskError> {
    Ok(judge(Told::find(disk, dir)?, scan).1)
}

/// An opening could not sync: what the kernel has not written may be gone, and the next try would not be told.
pub(crate) fn opening_failed(disk: &dyn Disk, dir: &str) {
    if let Ok(told) = Told::find(disk, dir) {
        let failed = Told { count: told.map_or(0, |told| told.count), failed: true };
        let _ = failed.write(told, disk, dir);
    }
}

impl Losses {
    /// Counts what this opening finds, durably. To be done before anything of what was found is changed.
    pub(crate) fn settle(disk: &dyn Disk, dir: &str, scan: &Scan) -> Result<Self, DiskError> {
        let before = Told::find(disk, dir)?;
        let (count, found) = judge(before, scan);
        let told = Told { count, failed: false };
        told.write(before, disk, dir)?;
        Ok(Self { told, found, has_failed: false })
    }

    pub(crate) fn count(&self) -> u64 {
        self.told.count
    }

    /// A write or a sync has failed. As the disk fails, this may; it is then tried again when it is said again.
    pub(crate) fn fail(&mut self, disk: &dyn Disk, dir: &str) {
        self.has_failed = true;
        if self.told.failed {
            return;
        }
        let failed = Told { failed: true, ..self.told };
        match failed.write(Some(self.told), disk, dir) {
            Ok(()) => self.told = failed,
            // It has its new name, which is not durable: in this boot that is enough.
            Err(e) if e.op == disk::DiskOp::SyncDir => self.told = failed,
            Err(_) => {}
        }
    }

    /// One more loss; durable when it returns.
    pub(crate) fn add(&mut self, disk: &dyn Disk, dir: &str) -> Result<(), DiskError> {
        let more = Told { count: self.told.count.saturating_add(1), ..self.told };
        match more.write(Some(self.told), disk, dir) {
            // An earlier try has renamed it and could not sync the folder.
            Err(e) if e.source.kind() == io::ErrorKind::NotFound => disk.sync_dir(dir)?,
            other => other?,
        }
        self.told = more;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for told in [Told { count: 0, failed: false }, Told { count: u64::MAX, failed: true }] {
            assert_eq!(Told::of_name(&told.name()), Some(told));
        }
        for name in ["sound-", "sound-01", "failed-+1", "failed-18446744073709551616", "sound", "tail-1.cut"] {
            assert_eq!(Told::of_name(name), None, "{name}");
        }
    }
}
