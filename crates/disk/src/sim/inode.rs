//! A simulated file: its durable state, the state that the program sees, and the changes between them.

use std::collections::BTreeSet;

use rand::Rng;
use rand::RngCore;

use super::faults::{CrashFaults, CrashReport};
use super::image::{Image, PAGE, SECTOR};

/// An unsynced change of a file.
#[derive(Clone)]
pub(super) enum Change {
    Write { offset: u64, bytes: Vec<u8> },
    SetLen(u64),
}

#[derive(Clone, Default)]
pub(super) struct FileNode {
    /// The state that survives a power failure.
    pub(super) durable: Image,
    /// The state that the program sees.
    pub(super) current: Image,
    /// The changes from the durable to the current state, in order.
    pub(super) changes: Vec<Change>,
    /// Pages that are reserved but not written.
    pub(super) reserved: BTreeSet<u64>,
    /// A sync failed: the page cache that the program sees may differ from the device.
    pub(super) diverged: bool,
    /// Pages that the device cannot read until they are rewritten.
    pub(super) unreadable: BTreeSet<u64>,
    /// Number of open handles.
    pub(super) opens: u64,
    /// Number of names.
    pub(super) links: u64,
}

impl FileNode {
    /// Pages that the file occupies on the disk.
    pub(super) fn pages(&self) -> u64 {
        self.current.page_count() + self.reserved.len() as u64
    }

    /// The state that a read past the page cache sees.
    pub(super) fn device_view(&self) -> Image {
        let mut image = self.durable.clone();
        for change in &self.changes {
            apply(&mut image, change);
        }
        image
    }

    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        let change = Change::Write { offset, bytes: bytes.to_vec() };
        apply(&mut self.current, &change);
        self.changes.push(change);
        let last = (offset + bytes.len() as u64).div_ceil(PAGE);
        if !self.reserved.is_empty() {
            for page in offset / PAGE..last {
                self.reserved.remove(&page);
            }
        }
    }

    pub(super) fn sync(&mut self) {
        for change in std::mem::take(&mut self.changes) {
            apply(&mut self.durable, &change);
        }
    }

    /// Fails a sync: some changes reach the device, and the kernel forgets that the others do not.
    pub(super) fn fail_sync(&mut self, rng: &mut dyn RngCore) {
        let faults = CrashFaults { kept: 1, lost: 1, torn: 1, zeroed: 0, metadata_kept: 50 };
        self.durable = self.after_crash(rng, faults, &mut CrashReport::default());
        self.changes.clear();
        self.diverged = true;
    }

    /// A possible state of the bytes after a power failure.
    pub(super) fn after_crash(&self, rng: &mut dyn RngCore, faults: CrashFaults, report: &mut CrashReport) -> Image {
        let mut found = self.durable.clone();
        let mut seen = self.durable.clone();
        let mut lost_before = false;
        for change in &self.changes {
            apply(&mut seen, change);
            match change {
                Change::SetLen(len) => {
                    if *len == found.len() {
                        continue;
                    }
                    if chance(rng, faults.metadata_kept) {
                        found.set_len(*len);
                    } else {
                        report.lengths_lost += 1;
                    }
                }
                Change::Write { offset, bytes } if !bytes.is_empty() => {
                    let fate = self.draw_and_apply_outcome(
                        rng,
                        faults,
                        *offset,
                        bytes.len() as u64,
                        &seen,
                        &mut found,
                        report,
                    );
                    match fate {
                        WriteOutcome::Kept => {
                            report.kept += 1;
                            if lost_before {
                                report.reordered += 1;
                            }
                        }
                        WriteOutcome::Torn => {
                            report.torn += 1;
                            lost_before = true;
                        }
                        WriteOutcome::Zeroed => {
                            report.zeroed += 1;
                            lost_before = true;
                        }
                        WriteOutcome::Lost => {
                            report.lost += 1;
                            lost_before = true;
                        }
                    }
                }
                Change::Write { .. } => {}
            }
        }
        found
    }

    #[allow(clippy::too_many_arguments)] // one step of the loop above
    fn draw_and_apply_outcome(
        &self,
        rng: &mut dyn RngCore,
        faults: CrashFaults,
        offset: u64,
        len: u64,
        seen: &Image,
        found: &mut Image,
        report: &mut CrashReport,
    ) -> WriteOutcome {
        let end = offset + len;
        let sectors = offset / SECTOR..end.div_ceil(SECTOR);
        let mut fate = draw(rng, faults);
        if fate == WriteOutcome::Lost {
            return fate;
        }
        if end > found.len() {
            if chance(rng, faults.metadata_kept) {
                found.extend(end);
            } else {
                report.lengths_lost += 1;
                if offset >= found.len() {
                    return WriteOutcome::Lost;
                }
            }
        }
        // A device writes one sector atomically: it cannot tear.
        if fate == WriteOutcome::Torn && sectors.end - sectors.start < 2 {
            fate = if rng.random_bool(0.5) { WriteOutcome::Kept } else { WriteOutcome::Lost };
        }
        match fate {
            WriteOutcome::Lost => {}
            WriteOutcome::Kept => sectors.for_each(|s| found.take_sector(seen, s)),
            WriteOutcome::Torn => {
                let middle = rng.random_range(sectors.start + 1..sectors.end);
                let scattered = rng.random_bool(0.5);
                for s in sectors {
                    let there = if scattered { rng.random_bool(0.5) } else { s < middle };
                    if there {
                        found.take_sector(seen, s);
                    }
                }
            }
            WriteOutcome::Zeroed => {
                let mut hit = false;
                for s in sectors {
                    if !self.durable.sector_has_content(s) && seen.sector_has_content(s) {
                        found.zero_sector(s);
                        hit = true;
                    }
                }
                if !hit {
                    return WriteOutcome::Lost;
                }
            }
        }
        fate
    }
}

fn apply(image: &mut Image, change: &Change) {
    match change {
        Change::Write { offset, bytes } => {
            image.put(*offset, bytes);
            image.extend(offset + bytes.len() as u64);
        }
        Change::SetLen(len) => {
            image.set_len(*len);
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum WriteOutcome {
    Kept,
    Lost,
    Torn,
    Zeroed,
}

fn draw(rng: &mut dyn RngCore, faults: CrashFaults) -> WriteOutcome {
    let total = faults.kept + faults.lost + faults.torn + faults.zeroed;
    if total == 0 {
        return WriteOutcome::Lost;
    }
    let at = rng.random_range(0..total);
    if at < faults.kept {
        WriteOutcome::Kept
    } else if at < faults.kept + faults.lost {
        WriteOutcome::Lost
    } else if at < faults.kept + faults.lost + faults.torn {
        WriteOutcome::Torn
    } else {
        WriteOutcome::Zeroed
    }
}

pub(super) fn chance(rng: &mut dyn RngCore, percent: u32) -> bool {
    rng.random_range(0..100) < percent
}
