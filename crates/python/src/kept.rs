//! Bytes of an open file that were read before they were asked for.
//!
//! They belong to one open of the file and go with it. They are few, and none is older than the time that a file stays
//! open without a read.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::{Pattern, ReadPlan, Span, Window};

use crate::open_file::Piece;

/// The ranges that are read ahead at first, and at most.
const RANGES: usize = 128;
const RANGES_MAX: usize = 512;
/// The most bytes of one read ahead.
const READ_MAX: usize = 1 << 20;

/// Two windows with at most this many bytes between them are read as one.
const GAP: usize = 2 << 10;
/// In all, so many times the bytes that were asked for are read ahead, and some more.
const TIMES_MAX: u64 = 4;
const FREE: u64 = 4 << 20;

/// Calls that may be under way together.
const CALLS: usize = 8;

/// What is known about a range.
pub enum Found {
    Here(Piece),
    /// A thread is reading it.
    Coming(u64),
    Missing,
}

/// The bytes that are kept.
#[derive(Default)]
pub struct Kept {
    pattern: Pattern,
    reads: VecDeque<Read>,
    bytes: usize,
    last: u64,
    /// How many ranges are read ahead; 0 before the first time.
    ranges: usize,
    under_way: usize,
    /// Bytes that were asked for, and that were read ahead, in all.
    asked: u64,
    ahead: u64,
    /// Where the last calls began.
    begun: VecDeque<u64>,
}

struct Read {
    number: u64,
    at: Instant,
    /// By their offsets; none overlaps another.
    spans: Vec<Span>,
    /// Where the bytes of each span begin in the buffer.
    begins: Vec<usize>,
    len: usize,
    /// It was read ahead.
    ahead: bool,
    /// `None`: it is under way.
    buffer: Option<Arc<Vec<u8>>>,
}

impl Read {
    /// Returns where the bytes of a range begin in the buffer, if it has all of them.
    fn place(&self, span: Span) -> Option<usize> {
        let index = self.spans.partition_point(|kept| kept.offset <= span.offset).checked_sub(1)?;
        let (kept, begin) = (self.spans.get(index)?, self.begins.get(index)?);
        let within = usize::try_from(span.offset - kept.offset).ok()?;
        (span.end() <= kept.end()).then_some(begin + within)
    }
}

impl Kept {
    /// Looks for a range.
    pub fn find(&mut self, span: Span, now: Instant, age_max: Duration) -> Found {
        while self.reads.front().is_some_and(|read| read.buffer.is_some() && now.duration_since(read.at) > age_max) {
            self.drop_oldest();
        }
        let mut coming = Found::Missing;
        for read in self.reads.iter().rev() {
            let Some(begin) = read.place(span) else { continue };
            match &read.buffer {
                // A read that was added earlier may still be under way, so that this one stays.
                Some(_) if now.duration_since(read.at) > age_max => {}
                Some(buffer) => return Found::Here(Piece::new(Arc::clone(buffer), begin, span.len)),
                None => coming = Found::Coming(read.number),
            }
        }
        coming
    }

    /// Returns what became of a read that was under way.
    pub fn find_in(&self, number: u64, span: Span) -> Found {
        let Some(read) = self.reads.iter().find(|read| read.number == number) else { return Found::Missing };
        let Some(buffer) = &read.buffer else { return Found::Coming(number) };
        match read.place(span) {
            Some(begin) => Found::Here(Piece::new(Arc::clone(buffer), begin, span.len)),
            None => Found::Missing,
        }
    }

    /// Notes ranges that are asked for. Returns what should be read ahead now, each read with its number.
    pub fn asked(&mut self, spans: &[Span], late: bool, size: u64, limits: Limits) -> Vec<(u64, ReadPlan)> {
        self.pattern.asked(spans);
        self.asked += spans.iter().map(|span| span.len as u64).sum::<u64>();
        self.ranges = if late { (self.ranges * 2).min(RANGES_MAX) } else { self.ranges.max(RANGES) };
        self.drop_passed(spans);
        if self.under_way >= limits.reads {
            return Vec::new();
        }
        let windows = self.pattern.next(self.ranges, size);
        let is_kept = |window: &Window| self.reads.iter().any(|read| read.place(window.likely).is_some());
        // Few large reads are better than many small ones.
        if windows.iter().take_while(|window| is_kept(window)).count() * 2 > windows.len() {
            return Vec::new();
        }
        let wanted = windows.into_iter().filter(|window| !is_kept(window)).map(|window| window.whole);
        let mut wanted = wanted.collect::<VecDeque<Span>>();
        let most = READ_MAX.min(limits.bytes / 8);
        let mut reads = Vec::new();
        while self.under_way < limits.reads && !wanted.is_empty() {
            let (mut part, mut len) = (Vec::new(), 0);
            while let Some(window) = wanted.front()
                && (len + window.len <= most || len == 0 && window.len <= limits.bytes / 8)
            {
                len += window.len;
                part.extend(wanted.pop_front());
            }
            let plan = ReadPlan::new(&part, GAP);
            if plan.is_empty() || self.ahead + plan.len() as u64 > self.asked * TIMES_MAX + FREE {
                break;
            }
            self.ahead += plan.len() as u64;
            self.under_way += 1;
            reads.push((self.add(plan.reads().to_vec(), None, limits.bytes, true), plan));
        }
        reads
    }

    /// A read ahead has ended.
    pub fn came(&mut self, number: u64, buffer: Option<Vec<u8>>) {
        self.under_way -= 1;
        let Some(place) = self.reads.iter().position(|read| read.number == number) else { return };
        match buffer {
            Some(buffer) => {
                self.reads[place].buffer = Some(Arc::new(buffer));
                self.reads[place].at = Instant::now();
            }
            None => {
                if let Some(read) = self.reads.remove(place) {
                    self.bytes -= read.len;
                }
            }
        }
    }

    /// Keeps bytes that were read.
    pub fn keep(&mut self, span: Span, buffer: Arc<Vec<u8>>, bytes_max: usize) {
        self.add(vec![span], Some(buffer), bytes_max, false);
    }

    fn add(&mut self, spans: Vec<Span>, buffer: Option<Arc<Vec<u8>>>, bytes_max: usize, ahead: bool) -> u64 {
        let (mut begins, mut len) = (Vec::with_capacity(spans.len()), 0);
        for span in &spans {
            begins.push(len);
            len += span.len;
        }
        self.bytes += len;
        self.last += 1;
        self.reads.push_back(Read { number: self.last, at: Instant::now(), spans, begins, len, ahead, buffer });
        while self.bytes > bytes_max && self.reads.len() > 1 {
            self.drop_oldest();
        }
        self.last
    }

    /// Drops what was read ahead and is behind the reader now. Several calls are under way at a time, in any order.
    fn drop_passed(&mut self, spans: &[Span]) {
        self.begun.extend(spans.iter().map(|span| span.offset).min());
        while self.begun.len() > CALLS {
            self.begun.pop_front();
        }
        let lowest = self.begun.iter().min().copied().unwrap_or(0);
        let mut dropped = 0;
        self.reads.retain(|read| {
            let passed =
                read.ahead && read.buffer.is_some() && read.spans.last().is_none_or(|last| last.end() <= lowest);
            dropped += if passed { read.len } else { 0 };
            !passed
        });
        self.bytes -= dropped;
    }

    fn drop_oldest(&mut self) {
        if let Some(read) = self.reads.pop_front() {
            self.bytes -= read.len;
        }
    }
}

/// How much is read ahead.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Reads under way.
    pub reads: usize,
    /// Bytes that are kept.
    pub bytes: usize,
}
