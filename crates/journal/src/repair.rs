//! Cutting a damaged journal on the operator's command. Everything from the damage on is saved first. The numbers of
//! lost records are not used again.
//!
//! A plan is written before anything changes. An interrupted repair can then continue, and nobody mistakes a half-cut
//! journal for one with an unsynced tail.

use disk::{Access, Disk, OpenOptions};
use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};

use crate::recover::{make_with_header, zero};
use crate::scan::{Scan, join, numbers, path_of, scan};
use crate::segment::{DecodedPage, NUMBER_MAX, PAGE, SegmentHeader, decode, file_name};
use crate::walk::read_around;
use crate::{Damage, JournalConfig, JournalError, Repaired, Seq};

/// The file that holds the plan.
pub(crate) const MARKER: &str = "repair.plan";
/// How many numbers to skip after the highest visible one: later records may have been destroyed without a trace.
const SKIPPED: u64 = 1 << 20;
/// A journal with higher numbers cannot be continued.
pub(crate) const NUMBERS_END: u64 = NUMBER_MAX - (1 << 40);

/// The steps of a repair; one line of text each.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Plan {
    /// The segment to cut; 0 if none is left.
    segment: u64,
    /// Where to cut it.
    offset: u64,
    /// The last record that stays.
    last: u64,
    /// The highest known record.
    highest: u64,
    /// The first record after the repair.
    next: u64,
    /// Number and incarnation of the segment in which the journal continues.
    new_segment: u64,
    incarnation: u64,
    segment_bytes: u64,
}

const FIELDS: [&str; 8] =
    ["segment", "offset", "last", "highest", "next", "new_segment", "incarnation", "segment_bytes"];

impl Plan {
    fn numbers(&self) -> [u64; 8] {
        [
            self.segment,
            self.offset,
            self.last,
            self.highest,
            self.next,
            self.new_segment,
            self.incarnation,
            self.segment_bytes,
        ]
    }

    fn to_text(&self) -> String {
        let mut text: String =
            FIELDS.iter().zip(self.numbers()).map(|(field, number)| format!("{field} {number}\n")).collect();
        let crc = types::Crc32c::of(text.as_bytes()).0;
        text.push_str(&format!("crc32c {crc}\n"));
        text
    }

    fn from_text(text: &str) -> Option<Plan> {
        let mut lines = text.lines();
        let mut number = |field: &str| lines.next()?.strip_prefix(field)?.trim().parse::<u64>().ok();
        let plan = Plan {
            segment: number(FIELDS[0])?,
            offset: number(FIELDS[1])?,
            last: number(FIELDS[2])?,
            highest: number(FIELDS[3])?,
            next: number(FIELDS[4])?,
            new_segment: number(FIELDS[5])?,
            incarnation: number(FIELDS[6])?,
            segment_bytes: number(FIELDS[7])?,
        };
        (plan.to_text() == text).then_some(plan)
    }
}

pub(crate) fn repair(disk: &dyn Disk, dir: &str, config: &JournalConfig) -> Result<Option<Repaired>, JournalError> {
    let plan = match read_plan(disk, dir)? {
        Some(plan) => plan,
        None => {
            let scan = scan(disk, dir, config)?;
            if scan.damage().is_none() {
                return Ok(None);
            }
            let plan = make_plan(&scan, config);
            if plan.next.max(plan.new_segment) > NUMBERS_END {
                return Err(JournalError::Config(
                    "what is left of the journal has numbers that no journal reaches; nothing was done",
                ));
            }
            write_file(disk, dir, &join(dir, MARKER), plan.to_text().as_bytes())?;
            plan
        }
    };
    carry_out(disk, dir, &plan).map(Some)
}

fn make_plan(scan: &Scan, config: &JournalConfig) -> Plan {
    let highest = scan.evidence.max(scan.highest).max(scan.last);
    let (segment, offset) = scan.segments.last().map_or((0, 0), |s| (s.header.segment, s.end));
    let behind = scan.rest.last().map_or(segment, |rest| rest.segment.max(segment));
    Plan {
        segment,
        offset,
        last: scan.last,
        highest,
        next: highest + 1 + SKIPPED,
        new_segment: if segment == 0 { behind + 1 } else { segment + 1 },
        incarnation: SmallRng::from_os_rng().next_u64(),
        segment_bytes: config.segment_bytes,
    }
}

fn read_plan(disk: &dyn Disk, dir: &str) -> Result<Option<Plan>, JournalError> {
    let path = join(dir, MARKER);
    let Some(len) = disk.len_of(&path)? else { return Ok(None) };
    let mut bytes = vec![0; usize::try_from(len.min(4096)).unwrap_or(0)];
    let n = disk.open(&path, OpenOptions { access: Access::Read, direct: false })?.read_at(&mut bytes, 0)?;
    bytes.truncate(n);
    let plan = String::from_utf8(bytes).ok().and_then(|text| Plan::from_text(&text));
    if plan.is_none() {
        if let Some(aside) = unfinished(disk, dir)? {
            return Err(JournalError::Damaged(Box::new(Damage {
                segment: path,
                offset: 0,
                what: format!("the plan of a repair that has begun to move segments to {aside} does not check"),
                first_lost: Seq(0),
                last_known: Seq(0),
                remedy: "Move the files in that folder back, remove the plan, and run the repair again.".to_owned(),
            })));
        }
        // The write of the plan was torn: nothing has changed yet.
        disk.remove(&path)?;
        disk.sync_dir(dir)?;
    }
    Ok(plan)
}

/// The directory of a repair that has not yet made the segment in which the journal continues. Its name contains the
/// number of that segment's first record.
fn unfinished(disk: &dyn Disk, dir: &str) -> Result<Option<String>, JournalError> {
    let mut reached = 0;
    for number in numbers(disk, dir)? {
        if let DecodedPage::Header(header) = header_of(disk, dir, number)? {
            reached = reached.max(header.first);
        }
    }
    let next_of = |name: &str| name.strip_prefix("damaged-")?.rsplit('-').next()?.parse::<u64>().ok();
    let entries = disk.list(dir)?;
    let begun = entries.iter().find(|e| e.is_dir && next_of(&e.name).is_some_and(|next| next > reached));
    Ok(begun.map(|e| join(dir, &e.name)))
}

fn header_of(disk: &dyn Disk, dir: &str, number: u64) -> Result<DecodedPage, JournalError> {
    let mut page = vec![0; PAGE];
    let file = disk.open(&path_of(dir, number), OpenOptions { access: Access::Read, direct: false })?;
    let n = read_around(&*file, &mut page, 0, &mut None)?;
    Ok(decode(&page[..n]))
}

fn write_file(disk: &dyn Disk, dir: &str, path: &str, bytes: &[u8]) -> Result<(), JournalError> {
    let out = disk.open(path, OpenOptions { access: Access::CreateNew, direct: false })?;
    out.write_at(bytes, 0)?;
    out.sync_data()?;
    Ok(disk.sync_dir(dir)?)
}

fn carry_out(disk: &dyn Disk, dir: &str, plan: &Plan) -> Result<Repaired, JournalError> {
    let aside = join(dir, &format!("damaged-{:016x}-{:08x}-{}", plan.segment, plan.offset, plan.next));
    disk.create_dir_all(&aside)?;
    disk.sync_dir(dir)?;
    // Move later segments away. An earlier attempt may have stopped anywhere, so each step looks at the disk.
    for number in numbers(disk, dir)? {
        let is_new = number == plan.new_segment && new_segment_exists(disk, dir, plan)?;
        if number > plan.segment && !is_new {
            disk.rename(&path_of(dir, number), &join(&aside, &file_name(number)))?;
        }
    }
    if plan.segment > 0 {
        copy(disk, &path_of(dir, plan.segment), &aside, &file_name(plan.segment))?;
    }
    disk.sync_dir(&aside)?;
    disk.sync_dir(dir)?;
    if plan.segment > 0 {
        let path = path_of(dir, plan.segment);
        let len = disk.len_of(&path)?.unwrap_or(0);
        zero(disk, &path, plan.offset, len)?;
    }
    if !new_segment_exists(disk, dir, plan)? {
        make_with_header(
            disk,
            dir,
            SegmentHeader {
                incarnation: plan.incarnation,
                segment: plan.new_segment,
                first: plan.next,
                previous_last: plan.last,
                segment_bytes: plan.segment_bytes,
                synced_to: plan.last,
            },
        )?;
    }
    disk.remove(&join(dir, MARKER))?;
    disk.sync_dir(dir)?;
    let saved = disk.list(&aside)?.into_iter().map(|e| join(&aside, &e.name)).collect();
    Ok(Repaired { last: Seq(plan.last), lost: (Seq(plan.last + 1), Seq(plan.highest.max(plan.last + 1))), saved })
}

/// Whether this repair has already made the segment in which the journal continues.
fn new_segment_exists(disk: &dyn Disk, dir: &str, plan: &Plan) -> Result<bool, JournalError> {
    if disk.len_of(&path_of(dir, plan.new_segment))?.is_none() {
        return Ok(false);
    }
    let page = header_of(disk, dir, plan.new_segment)?;
    Ok(matches!(page, DecodedPage::Header(h) if h.incarnation == plan.incarnation))
}

/// Copies a file, durably, unless a complete copy exists. Unreadable bytes become `ff`.
fn copy(disk: &dyn Disk, from: &str, aside: &str, name: &str) -> Result<(), JournalError> {
    let to = join(aside, name);
    if disk.len_of(&to)?.is_some() {
        return Ok(());
    }
    let half = join(aside, "copying");
    if disk.len_of(&half)?.is_some() {
        disk.remove(&half)?;
    }
    let source = disk.open(from, OpenOptions { access: Access::Read, direct: false })?;
    let out = disk.open(&half, OpenOptions { access: Access::CreateNew, direct: false })?;
    let mut buf = vec![0; 1 << 20];
    let mut at = 0;
    loop {
        let n = read_around(&*source, &mut buf, at, &mut None)?;
        if n == 0 {
            break;
        }
        out.write_at(&buf[..n], at)?;
        at += n as u64;
    }
    out.sync_data()?;
    disk.rename(&half, &to)?;
    Ok(disk.sync_dir(aside)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_plan_is_not_read_back() {
        let plan = Plan {
            segment: 3,
            offset: 4096,
            last: 17,
            highest: 40,
            next: 100,
            new_segment: 4,
            incarnation: u64::MAX,
            segment_bytes: 65_536,
        };
        let text = plan.to_text();
        assert_eq!(Plan::from_text(&text), Some(plan));
        for len in 0..text.len() {
            assert_eq!(Plan::from_text(&text[..len]), None);
        }
        assert_eq!(Plan::from_text(&text.replace("17", "18")), None);
    }
}
