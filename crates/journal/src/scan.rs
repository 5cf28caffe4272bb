//! The state of the disk: reads and checks all segments, and surveys everything after the end of the journal. Changes
//! nothing.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use disk::{Access, Disk, DiskFile, OpenOptions};

use crate::frame::{FLAG_CLEAN, FLAG_MARK, FrameHeader};
use crate::segment::{self, DecodedPage, PAGE, SegmentHeader};
use crate::walk::{Expected, Survey, WalkEnd, Window, survey, walk};
use crate::{Damage, JournalConfig, JournalError, Seq};

/// Threads that read during opening.
const READERS: usize = 3;

/// A segment that is valid at least up to `end`.
#[derive(Clone, Debug)]
pub(crate) struct ScannedSegment {
    pub(crate) path: String,
    pub(crate) header: SegmentHeader,
    /// Its last record; `header.first - 1` if it has none.
    pub(crate) last: u64,
    /// The first byte after that record.
    pub(crate) end: u64,
}

/// A file, or the rest of one, after the end of the journal.
#[derive(Clone, Debug)]
pub(crate) struct Remainder {
    pub(crate) segment: u64,
    pub(crate) path: String,
    /// Offset in the file at which the rest begins.
    pub(crate) from: u64,
    pub(crate) len: u64,
    pub(crate) survey: Survey,
}

/// The findings of a scan.
#[derive(Clone, Debug)]
pub(crate) struct Scan {
    pub(crate) segments: Vec<ScannedSegment>,
    pub(crate) records: u64,
    /// The last record of the journal; 0 if there is none.
    pub(crate) last: u64,
    /// The last record is a mark that covers all earlier ones.
    pub(crate) marked: bool,
    /// That mark was written at a clean stop.
    pub(crate) clean: bool,
    /// Why the journal ends here.
    pub(crate) why: String,
    /// The last record that the journal itself calls durable.
    pub(crate) synced_to: u64,
    /// Files after the end: first the rest of the last valid segment, if there is one, then later files.
    pub(crate) rest: Vec<Remainder>,
    /// The highest record that intact data after the end calls durable.
    pub(crate) evidence: u64,
    /// The highest record seen after the end.
    pub(crate) highest: u64,
    /// Some bytes after the end are unreadable, so their contents are unknown.
    pub(crate) unreadable: bool,
}

/// The path of segment `number`.
pub(crate) fn path_of(dir: &str, number: u64) -> String {
    join(dir, &segment::file_name(number))
}

pub(crate) fn join(dir: &str, name: &str) -> String {
    if dir.is_empty() { name.to_owned() } else { format!("{dir}/{name}") }
}

/// The numbers of the segment files in `dir`, in order.
pub(crate) fn numbers(disk: &dyn Disk, dir: &str) -> Result<Vec<u64>, JournalError> {
    let mut numbers: Vec<u64> =
        disk.list(dir)?.iter().filter(|e| !e.is_dir).filter_map(|e| segment::number_of(&e.name)).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// Reads past the page cache: after a failed write-back the cache may show bytes that the device does not have.
fn open_for_scan(disk: &dyn Disk, path: &str) -> Result<Arc<dyn DiskFile>, JournalError> {
    Ok(disk.open(path, OpenOptions { access: Access::Read, direct: true })?)
}

/// The contents of one segment file, taken alone.
struct Examined {
    page: DecodedPage,
    /// Its frames, if the header is usable.
    walked: Option<Result<Walked, JournalError>>,
    /// The unreadable parts of the file.
    unreadable: Option<String>,
}

struct Walked {
    end: WalkEnd,
    records: u64,
    last_frame: Option<FrameHeader>,
}

fn examine(disk: &dyn Disk, path: &str, number: u64, config: &JournalConfig) -> Result<Examined, JournalError> {
    let file = open_for_scan(disk, path)?;
    let len = file.len()?;
    let mut window = Window::around(file, len);
    let page = segment::decode(window.get(0, PAGE)?);
    let unreadable = window.unreadable().map(ToString::to_string);
    let DecodedPage::Header(header) = &page else { return Ok(Examined { page, walked: None, unreadable }) };
    let expected = Expected {
        path,
        segment: number,
        segment_bytes: header.segment_bytes,
        incarnation: header.incarnation,
        first: header.first,
        check_crc: config.checks_crc(),
        check_origin: config.checks_origin(),
    };
    let mut records = 0;
    let mut last_frame = None;
    let walked = walk(&mut window, expected, &mut |frame, _, _| {
        records += 1;
        last_frame = Some(*frame);
        ControlFlow::Continue(())
    });
    let unreadable = window.unreadable().map(ToString::to_string);
    Ok(Examined { page, walked: Some(walked.map(|end| Walked { end, records, last_frame })), unreadable })
}

/// Examines all segments, several at a time: one thread alone would leave the disk idle while it computes checksums.
fn examine_all(
    disk: &dyn Disk,
    dir: &str,
    numbers: &[u64],
    config: &JournalConfig,
) -> Vec<Result<Examined, JournalError>> {
    let one = |number: &u64| examine(disk, &path_of(dir, *number), *number, config);
    if numbers.len() <= 2 {
        return numbers.iter().map(one).collect();
    }
    let next = AtomicUsize::new(0);
    let mut found: Vec<(usize, Result<Examined, JournalError>)> = std::thread::scope(|scope| {
        let work = || {
            let mut mine = Vec::new();
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(number) = numbers.get(index) else { return mine };
                mine.push((index, one(number)));
            }
        };
        let threads: Vec<_> = (0..READERS).map(|_| scope.spawn(work)).collect();
        // A missing result would look like a lost segment, so propagate the panic.
        threads.into_iter().flat_map(|t| t.join().unwrap_or_else(|e| std::panic::resume_unwind(e))).collect()
    });
    found.sort_by_key(|(index, _)| *index);
    found.into_iter().map(|(_, examined)| examined).collect()
}

/// Reads and checks everything in `dir`.
///
/// # Errors
/// `Unsupported`: a newer weir wrote it. `Disk`. Damage is no error here: see [`Scan::damage`].
pub(crate) fn scan(disk: &dyn Disk, dir: &str, config: &JournalConfig) -> Result<Scan, JournalError> {
    let numbers = numbers(disk, dir)?;
    let mut scan = Scan {
        segments: Vec::new(),
        records: 0,
        last: 0,
        marked: false,
        clean: false,
        why: String::new(),
        synced_to: 0,
        rest: Vec::new(),
        evidence: 0,
        highest: 0,
        unreadable: false,
    };
    for (number, examined) in numbers.iter().zip(examine_all(disk, dir, &numbers, config)) {
        if !scan.follow(*number, path_of(dir, *number), examined?)? {
            break;
        }
    }
    if let Some(last) = scan.segments.last().cloned() {
        scan.survey_rest(disk, last.header.segment, &last.path, last.end)?;
    }
    // The last accepted segment may be bad from some offset on. It was surveyed above.
    for number in &numbers[scan.segments.len()..] {
        scan.survey_rest(disk, *number, &path_of(dir, *number), 0)?;
    }
    Ok(scan)
}

impl Scan {
    /// Accepts one more segment if it follows the accepted ones. Returns false if the journal ends before it or in it.
    fn follow(&mut self, number: u64, path: String, examined: Examined) -> Result<bool, JournalError> {
        let before = self.segments.last();
        if let Some(before) = before
            && number != before.header.segment + 1
        {
            self.add_why(&format!("segment {} is missing", segment::file_name(before.header.segment + 1)));
            return Ok(false);
        }
        let header = match examined.page {
            DecodedPage::Header(header) => header,
            DecodedPage::Unsupported(what) => return Err(JournalError::Unsupported { file: path, what }),
            DecodedPage::Zeros => {
                self.add_why(&format!("{path} was never started, or its header is gone"));
                return Ok(false);
            }
            DecodedPage::Bad(what) => {
                let what = examined.unreadable.as_deref().unwrap_or(what);
                self.add_why(&format!("{path} cannot be used: {what}"));
                return Ok(false);
            }
        };
        if header.segment != number {
            self.add_why(&format!("{path} says that it is segment {}", segment::file_name(header.segment)));
            return Ok(false);
        }
        if let Some(before) = before {
            let follows = header.previous_last == before.last
                && if header.incarnation == before.header.incarnation {
                    header.first == before.last + 1
                } else {
                    header.first > before.last
                };
            if !follows {
                self.add_why(&format!(
                    "{path} follows record {}, but the segment before it ends with record {}",
                    header.previous_last, before.last
                ));
                // The intact header says what was durable: the survey below uses it as evidence.
                return Ok(false);
            }
        }
        let Some(walked) = examined.walked else { return Ok(false) };
        let Walked { end, records, last_frame } = walked?;
        self.records += records;
        self.last = end.last;
        self.synced_to = self.synced_to.max(header.synced_to);
        if let Some(frame) = last_frame {
            self.synced_to = self.synced_to.max(frame.synced_to);
            self.marked = frame.flags & FLAG_MARK != 0 && frame.synced_to + 1 == frame.seq;
            self.clean = self.marked && frame.flags & FLAG_CLEAN != 0;
        }
        self.segments.push(ScannedSegment { path, header, last: end.last, end: end.offset });
        self.why.clear();
        if let Some(bad) = end.bad {
            self.why = examined.unreadable.unwrap_or(bad);
            return Ok(false);
        }
        // The reason, if nothing follows.
        self.why = "zeros stand where a record should".to_owned();
        Ok(true)
    }

    fn add_why(&mut self, what: &str) {
        if !self.why.is_empty() {
            self.why.push_str("; ");
        }
        self.why.push_str(what);
    }

    /// Surveys a file after the end of the journal.
    fn survey_rest(&mut self, disk: &dyn Disk, number: u64, path: &str, from: u64) -> Result<(), JournalError> {
        let mut incarnation = self.segments.last().map(|s| s.header.incarnation);
        let file = open_for_scan(disk, path)?;
        let len = file.len()?;
        let mut window = Window::around(file, len);
        if from == 0
            && let DecodedPage::Header(header) = segment::decode(window.get(0, PAGE)?)
            && header.segment == number
        {
            self.evidence = self.evidence.max(header.synced_to);
            incarnation = Some(header.incarnation);
        }
        let survey = survey(&mut window, from, number, incarnation)?;
        self.evidence = self.evidence.max(survey.synced_to);
        self.highest = self.highest.max(survey.highest);
        // The contents of unreadable pages are unknown, except in a file that was never used: the header of a used file
        // is durable before any of its records is acknowledged.
        let begun = from > 0 || window.get(0, PAGE)?.iter().any(|b| *b != 0);
        self.unreadable |= begun && window.unreadable().is_some();
        self.rest.push(Remainder { segment: number, path: path.to_owned(), from, len, survey });
        Ok(())
    }

    /// Whether there is no journal yet. Remains of an interrupted creation do not count.
    pub(crate) fn is_fresh(&self) -> bool {
        self.segments.is_empty() && self.damage().is_none()
    }

    /// The damage, if invalid bytes were once durable.
    pub(crate) fn damage(&self) -> Option<Damage> {
        let (path, offset, lost) = match (self.segments.last(), self.rest.first()) {
            (Some(last), _) => (last.path.clone(), last.end, self.evidence > self.last || self.unreadable),
            // The first segment's header is durable before any record; the header of an only retained segment always
            // is.
            (None, Some(first)) => {
                let lost = self.highest > 0 || self.evidence > 0 || first.segment > 1 || self.unreadable;
                (first.path.clone(), 0, lost)
            }
            (None, None) => return None,
        };
        lost.then(|| Damage {
            segment: path,
            offset,
            what: self.why.clone(),
            first_lost: Seq(self.last + 1),
            last_known: Seq(self.evidence.max(self.highest)),
            remedy: "Bring the file back from a copy, or let the repair of the journal cut it here: it saves \
                     everything from this point on aside and says which records are lost."
                .to_owned(),
        })
    }
}
