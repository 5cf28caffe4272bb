//! A simulated file: what is on the platter, what the program sees, and what lies between.

use std::collections::BTreeSet;

use rand::Rng;
use rand::RngCore;

use super::faults::{CrashFaults, CrashReport};
use super::image::{Image, PAGE, SECTOR};

/// Something done to a file and not synced.
#[derive(Clone)]
pub(super) enum Change {
    Write { offset: u64, bytes: Vec<u8> },
    SetLen(u64),
}

#[derive(Clone, Default)]
pub(super) struct FileNode {
    /// What a power failure cannot take.
    pub(super) durable: Image,
    /// What the program sees.
    pub(super) current: Image,
    /// What leads from the one to the other, in order.
    pub(super) changes: Vec<Change>,
    /// Pages reserved and not written.
    pub(super) reserved: BTreeSet<u64>,
    /// A sync failed: what the program sees through the page cache need not be what the device has.
    pub(super) diverged: bool,
    /// Pages that the device cannot read any more, until they are written anew.
    pub(super) unreadable: BTreeSet<u64>,
    /// Open handles.
    pub(super) opens: u64,
    /// Names.
    pub(super) links: u64,
}

impl FileNode {
    /// Pages that it takes on the disk.
    pub(super) fn pages(&self) -> u64 {
        self.current.page_count() + self.reserved.len() as u64
    }

    /// What a read past the page cache sees.
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

    /// A sync failed: some of it has reached the device, and the kernel has forgotten that the rest has not.
    pub(super) fn fail_sync(&mut self, rng: &mut dyn RngCore) {
        let faults = CrashFaults { kept: 1, lost: 1, torn: 1, zeroed: 0, metadata_kept: 50 };
        self.durable = self.after_crash(rng, faults, &mut CrashReport::default());
        self.changes.clear();
        self.diverged = true;
    }

    /// The bytes as they may be found after a power failure.
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
                    let fate = self.fate_of_write(rng, faults, *offset, bytes.len() as u64, &seen, &mut found, report);
                    match fate {
                        Fate::Kept => {
                            report.kept += 1;
                            if lost_before {
                                report.reordered += 1;
                            }
                        }
                        Fate::Torn => {
                            report.torn += 1;
                            lost_before = true;
                        }
                        Fate::Zeroed => {
                            report.zeroed += 1;
                            lost_before = true;
                        }
                        Fate::Lost => {
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

    #[allow(clippy::too_many_arguments)] // one step of the loop above, split off for its length
    fn fate_of_write(
        &self,
        rng: &mut dyn RngCore,
        faults: CrashFaults,
        offset: u64,
        len: u64,
        seen: &Image,
        found: &mut Image,
        report: &mut CrashReport,
    ) -> Fate {
        let end = offset + len;
        let sectors = offset / SECTOR..end.div_ceil(SECTOR);
        let mut fate = draw(rng, faults);
        if fate == Fate::Lost {
            return fate;
        }
        if end > found.len() {
            if chance(rng, faults.metadata_kept) {
                found.extend(end);
            } else {
                report.lengths_lost += 1;
                if offset >= found.len() {
                    return Fate::Lost;
                }
            }
        }
        // One sector is written as one: it cannot be torn.
        if fate == Fate::Torn && sectors.end - sectors.start < 2 {
            fate = if rng.random_bool(0.5) { Fate::Kept } else { Fate::Lost };
        }
        match fate {
            Fate::Lost => {}
            Fate::Kept => sectors.for_each(|s| found.take_sector(seen, s)),
            Fate::Torn => {
                let middle = rng.random_range(sectors.start + 1..sectors.end);
                let scattered = rng.random_bool(0.5);
                for s in sectors {
                    let there = if scattered { rng.random_bool(0.5) } else { s < middle };
                    if there {
                        found.take_sector(seen, s);
                    }
                }
            }
            Fate::Zeroed => {
                let mut hit = false;
                for s in sectors {
                    if !self.durable.sector_has_content(s) && seen.sector_has_content(s) {
                        found.zero_sector(s);
                        hit = true;
                    }
                }
                if !hit {
                    return Fate::Lost;
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
enum Fate {
    Kept,
    Lost,
    Torn,
    Zeroed,
}

fn draw(rng: &mut dyn RngCore, faults: CrashFaults) -> Fate {
    let total = faults.kept + faults.lost + faults.torn + faults.zeroed;
    if total == 0 {
        return Fate::Lost;
    }
    let at = rng.random_range(0..total);
    if at < faults.kept {
        Fate::Kept
    } else if at < faults.kept + faults.lost {
        Fate::Lost
    } else if at < faults.kept + faults.lost + faults.torn {
        Fate::Torn
    } else {
        Fate::Zeroed
    }
}

pub(super) fn chance(rng: &mut dyn RngCore, percent: u32) -> bool {
    rng.random_range(0..100) < percent
}
