//! Turns the findings of a scan into a journal that takes appends: cuts the unsynced tail, makes the first segment.

use std::io;

use disk::{Access, AlignedBuf, Disk, OpenOptions};
use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};

use crate::files::{Pace, make, no_space_or};
use crate::losses::Losses;
use crate::scan::{Remainder, Scan, ScannedSegment, join, numbers, path_of, scan};
use crate::segment::{PAGE_U64, SegmentHeader};
use crate::tail;
use crate::trim::remove_leftovers;
use crate::walk::read_around;
use crate::{Cut, Damage, JournalConfig, JournalError, Seq, repair};

/// Bytes of a cut tail that are saved at most.
const SAVED_BYTES_MAX: u64 = 16 << 20;
/// Saved tails that are kept at most.
const SAVED_FILES_MAX: usize = 16;
const CHUNK: usize = 1 << 20;

/// A journal that is complete and durable up to `last`, with nothing after it.
#[derive(Debug)]
pub(crate) struct Recovered {
    /// Never empty; appends continue in the last one.
    pub(crate) segments: Vec<ScannedSegment>,
    pub(crate) last: u64,
    pub(crate) records: u64,
    pub(crate) marked: bool,
    pub(crate) clean: bool,
    pub(crate) created: bool,
    pub(crate) cut: Option<Cut>,
    pub(crate) losses: Losses,
    /// Usable prepared segments.
    pub(crate) spares: Vec<u64>,
}

/// Reads everything and makes it durable.
pub(crate) fn recover(disk: &dyn Disk, dir: &str, config: &JournalConfig) -> Result<Recovered, JournalError> {
    make_dir(disk, dir)?;
    sync_all(disk, dir)?;
    refuse_if_repairing(disk, dir)?;
    remove_leftovers(disk, dir)?;
    let scan = scan(disk, dir, config)?;
    if let Some(damage) = scan.damage() {
        return Err(JournalError::Damaged(Box::new(damage)));
    }
    if scan.is_fresh() {
        return create(disk, dir, config, &scan);
    }
    let numbers_end = scan.segments.last().is_some_and(|s| s.header.segment.max(s.last) > repair::NUMBERS_END);
    if numbers_end {
        return Err(JournalError::Config("the journal has numbers that no journal reaches"));
    }
    let losses = Losses::settle(disk, dir, &scan)?;
    let (spares, others): (Vec<&Remainder>, Vec<&Remainder>) = scan.rest[1..].iter().partition(|rest| {
        rest.survey.nonzero.is_none() && rest.len == config.segment_bytes && scan.rest[0].segment < rest.segment
    });
    let spares = consecutive(scan.rest[0].segment, &spares);
    let cut = if config.cuts_tail() { cut_tail(disk, dir, &scan, &others)? } else { None };
    if config.cuts_tail() {
        for rest in &scan.rest[1..] {
            if !spares.contains(&rest.segment) {
                disk.remove(&rest.path)?;
            }
        }
        zero_behind(disk, &scan.rest[0])?;
    }
    if config.rewrites_tail() {
        tail::rewrite(disk, &scan)?;
    }
    disk.sync_dir(dir)?;
    Ok(Recovered {
        last: scan.last,
        records: scan.records,
        marked: scan.marked,
        clean: scan.clean && cut.is_none(),
        segments: scan.segments,
        created: false,
        cut,
        losses,
        spares,
    })
}

pub(crate) fn make_dir(disk: &dyn Disk, dir: &str) -> Result<(), JournalError> {
    if dir.is_empty() {
        return Ok(());
    }
    disk.create_dir_all(dir)?;
    let mut above = dir;
    while !above.is_empty() {
        above = above.rsplit_once('/').map_or("", |(above, _)| above);
        disk.sync_dir(above)?;
    }
    Ok(())
}

/// Syncs bytes that a killed process may have left in the page cache, and drops the cache. After a failed write-back
/// the cache may show bytes that the device does not have, and the kernel does not write them again.
fn sync_all(disk: &dyn Disk, dir: &str) -> Result<(), JournalError> {
    for number in numbers(disk, dir)? {
        let file = disk.open(&path_of(dir, number), OpenOptions { access: Access::ReadWrite, direct: false })?;
        file.sync_data()?;
        file.drop_cache(0, file.len()?);
    }
    Ok(disk.sync_dir(dir)?)
}

fn refuse_if_repairing(disk: &dyn Disk, dir: &str) -> Result<(), JournalError> {
    let marker = join(dir, repair::MARKER);
    if disk.len_of(&marker)?.is_none() {
        return Ok(());
    }
    Err(JournalError::Damaged(Box::new(Damage {
        segment: marker,
        offset: 0,
        what: "a repair of this journal was started and not finished".to_owned(),
        first_lost: Seq(0),
        last_known: Seq(0),
        remedy: "Run the repair of the journal again; it continues where it was interrupted.".to_owned(),
    })))
}

/// The members of `spares`, in order, that follow segment `last` without a gap.
fn consecutive(last: u64, spares: &[&Remainder]) -> Vec<u64> {
    spares
        .iter()
        .zip(last + 1..)
        .take_while(|(rest, number)| rest.segment == *number)
        .map(|(_, number)| number)
        .collect()
}

fn create(disk: &dyn Disk, dir: &str, config: &JournalConfig, scan: &Scan) -> Result<Recovered, JournalError> {
    if config.must_exist {
        return Err(JournalError::Missing { dir: dir.to_owned() });
    }
    let losses = Losses::settle(disk, dir, scan)?;
    for rest in &scan.rest {
        disk.remove(&rest.path)?;
    }
    disk.sync_dir(dir)?;
    let incarnation = config.incarnation.unwrap_or_else(|| SmallRng::from_os_rng().next_u64());
    let header = SegmentHeader {
        incarnation,
        segment: 1,
        first: 1,
        previous_last: 0,
        segment_bytes: config.segment_bytes,
        synced_to: 0,
    };
    let segment = make_with_header(disk, dir, header)?;
    Ok(Recovered {
        segments: vec![segment],
        last: 0,
        records: 0,
        marked: true,
        clean: false,
        created: true,
        cut: None,
        losses,
        spares: Vec::new(),
    })
}

/// Makes a segment with its header, durably.
pub(crate) fn make_with_header(
    disk: &dyn Disk,
    dir: &str,
    header: SegmentHeader,
) -> Result<ScannedSegment, JournalError> {
    let path = path_of(dir, header.segment);
    let file = make(disk, dir, &path, header.segment_bytes, false, &|| Pace::Now)?;
    let page = header.encode();
    file.write_at(&page, 0)?;
    file.sync_data()?;
    // Long writes bypass the cache.
    file.drop_cache(0, header.segment_bytes);
    Ok(ScannedSegment { path, header, last: header.first - 1, end: page.len() as u64 })
}

/// Saves bytes that no longer belong to the journal: those of `scan.rest[0]` and `others`.
fn cut_tail(disk: &dyn Disk, dir: &str, scan: &Scan, others: &[&Remainder]) -> Result<Option<Cut>, JournalError> {
    let parts: Vec<(&Remainder, u64, u64)> = std::iter::once(&scan.rest[0])
        .chain(others.iter().copied())
        .filter_map(|rest| rest.survey.nonzero.map(|(from, to)| (rest, from.max(rest.from), to)))
        .collect();
    let Some(first) = scan.rest.first().filter(|_| !parts.is_empty()) else { return Ok(None) };
    let name = join(dir, &format!("tail-{:016x}-{:08x}.cut", first.segment, first.from));
    let saved = match save(disk, dir, &name, &parts) {
        Ok(()) => Some(name),
        Err(e) => match no_space_or(e, SAVED_BYTES_MAX) {
            JournalError::NoSpace { .. } => {
                if disk.len_of(&name)?.is_some() {
                    disk.remove(&name)?;
                }
                None
            }
            other => return Err(other),
        },
    };
    Ok(Some(Cut {
        segment: first.path.clone(),
        offset: first.from,
        bytes: parts.iter().map(|(_, from, to)| to - from).sum(),
        saved,
    }))
}

/// Writes the parts into a file. Each part has `WEIRTAIL`, the segment's number, the offset and the length (8 bytes
/// each, little-endian), then its bytes.
fn save(disk: &dyn Disk, dir: &str, name: &str, parts: &[(&Remainder, u64, u64)]) -> Result<(), disk::DiskError> {
    let mut older: Vec<String> = disk
        .list(dir)?
        .into_iter()
        .map(|e| e.name)
        .filter(|n| n.starts_with("tail-") && n.ends_with(".cut") && join(dir, n) != name)
        .collect();
    older.sort();
    for old in older.iter().rev().skip(SAVED_FILES_MAX - 1) {
        disk.remove(&join(dir, old))?;
    }
    let options = OpenOptions { access: Access::CreateNew, direct: false };
    let out = match disk.open(name, options) {
        // An earlier, interrupted recovery saved the same bytes.
        Err(e) if e.source.kind() == io::ErrorKind::AlreadyExists => {
            disk.remove(name)?;
            disk.open(name, options)?
        }
        other => other?,
    };
    let mut at = 0;
    let mut left = SAVED_BYTES_MAX;
    let mut buf = vec![0; CHUNK];
    for (rest, from, to) in parts {
        let len = (to - from).min(left);
        let mut head = b"WEIRTAIL".to_vec();
        head.extend([rest.segment, *from, len].iter().flat_map(|n| n.to_le_bytes()));
        out.write_at(&head, at)?;
        at += head.len() as u64;
        left -= len;
        let file = disk.open(&rest.path, OpenOptions { access: Access::Read, direct: false })?;
        let mut done = 0;
        while done < len {
            let n = usize::try_from((len - done).min(CHUNK as u64)).unwrap_or(CHUNK);
            let got = read_around(&*file, &mut buf[..n], from + done, &mut None)?;
            buf[got..n].fill(0);
            out.write_at(&buf[..n], at)?;
            at += n as u64;
            done += n as u64;
        }
    }
    out.sync_data()?;
    disk.sync_dir(dir)
}

/// Overwrites the rest of the last segment with zeros and restores its length, durably.
fn zero_behind(disk: &dyn Disk, rest: &Remainder) -> Result<(), JournalError> {
    if let Some((_, to)) = rest.survey.nonzero {
        zero(disk, &rest.path, rest.from, to)?;
    }
    Ok(())
}

/// Overwrites a range of a file with zeros, durably.
pub(crate) fn zero(disk: &dyn Disk, path: &str, from: u64, to: u64) -> Result<(), JournalError> {
    let file = disk.open(path, OpenOptions { access: Access::ReadWrite, direct: false })?;
    let zeros = AlignedBuf::new(CHUNK);
    let mut at = from;
    while at < to {
        // Write whole pages except for the first: writing part of an unreadable page would fail.
        let n = usize::try_from((to - at).min(CHUNK as u64 - at % PAGE_U64)).unwrap_or(CHUNK);
        file.write_at(&zeros[..n], at)?;
        at += n as u64;
    }
    file.sync_data()?;
    // The scan, and long writes, bypass the cache.
    file.drop_cache(0, to);
    Ok(())
}

/// Restores the full length of a segment file that is too short.
pub(crate) fn complete_len(disk: &dyn Disk, segment: &ScannedSegment) -> Result<(), JournalError> {
    let wanted = segment.header.segment_bytes;
    if disk.len_of(&segment.path)?.is_some_and(|len| len < wanted) {
        let file = disk.open(&segment.path, OpenOptions { access: Access::ReadWrite, direct: false })?;
        file.set_len(wanted).and_then(|()| file.sync_data()).map_err(|e| no_space_or(e, wanted))?;
    }
    Ok(())
}
