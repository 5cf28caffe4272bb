//! Which bytes of an open file will probably be read next.
//!
//! One rule covers strided reads, forwards and backwards, and vectors that repeat: the next request has the segments of the
//! last one, each moved as far as it has moved since the request before. The columns of an analysis move by different amounts,
//! which vary a little, so a segment may be found near its expected place. Then more is read around it next time.
//!
//! - Nothing is announced before [`CONFIRMATIONS`] requests were as expected. Then the bytes of the next request are announced;
//!   of the next ones up to [`DEPTH_MAX`], as each is read and if they are exactly as expected.
//! - A wrong expectation ends that. If something had been announced in vain, the next time takes twice as many confirmations.
//!   So a random reader costs no read of the disk.
//! - A request that neither waited for the disk nor was expected changes nothing: it costs nothing to read it again.
//! - Sequential reads are left to the kernel, which reads ahead by itself. To announce them as well changed nothing in
//!   measurements, even where the kernel reads no more than 128 KiB ahead.

use std::collections::VecDeque;
use std::ops::Range;

use types::PAGE_SIZE;

/// Requests that must be as expected before anything is announced.
const CONFIRMATIONS: u32 = 2;
/// The most of these, after wrong announcements.
const CONFIRMATIONS_MAX: u32 = 64;
/// After so many requests in a row that changed nothing, the reader does something else.
const IGNORED_MAX: u32 = 32;
/// The most requests that are announced ahead.
const DEPTH_MAX: usize = 16;
/// The most segments of a request that are remembered, and of announcements.
pub(super) const SEGMENTS_MAX: usize = 1024;
/// The most bytes of a file that are announced and not read yet.
pub(super) const BYTES_MAX: u64 = 8 << 20;

/// A part of the last request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Segment {
    start: u64,
    len: u64,
    /// How far it moves from one request to the next.
    shift: i64,
    /// How far from its expected place it was found lately.
    spread: u64,
}

/// What is known of the requests for one open file.
#[derive(Default, Debug)]
pub(super) struct Pattern {
    /// The last request that was looked at, in its own order.
    last: Vec<Segment>,
    /// Whether the segments' shifts are known.
    has_shifts: bool,
    /// How many requests were as expected, one after the other.
    confirmed: u32,
    /// How many confirmations are missing from [`CONFIRMATIONS`] because of wrong announcements.
    penalty: u32,
    /// How many requests to announce ahead.
    depth: usize,
    /// How many requests in a row changed nothing, while something was announced.
    ignored: u32,
    /// What was announced of the next requests, the next one first.
    announced: VecDeque<Announced>,
}

/// What was announced of one request.
#[derive(Debug)]
struct Announced {
    /// Disjoint and in ascending order.
    ranges: Vec<Range<u64>>,
    bytes: u64,
}

/// The consequences of a request.
#[derive(Default, PartialEq, Eq, Debug)]
pub(super) struct Noted {
    /// Announced bytes that the request has read.
    pub(super) used: u64,
    /// Announced bytes that count no longer, used or not.
    pub(super) released: u64,
    /// What to announce now: disjoint ranges, request by request.
    pub(super) next: Vec<Range<u64>>,
    /// The bytes of these.
    pub(super) bytes: u64,
}

impl Pattern {
    /// Whether it expects nothing that was announced.
    pub(super) fn is_idle(&self) -> bool {
        self.announced.is_empty()
    }

    /// Takes note of a request for some ranges of a file with `end` bytes. `waited`: it had to wait for the disk. At most
    /// `room` bytes are announced.
    pub(super) fn note(&mut self, request: &[Range<u64>], waited: bool, end: u64, room: u64) -> Noted {
        let mut noted = Noted::default();
        if (!waited && self.is_idle()) || request.len() > SEGMENTS_MAX {
            return noted;
        }
        let now: Vec<Segment> = request
            .iter()
            .map(|range| range.start..range.end.min(end))
            .filter(|range| range.start < range.end)
            .map(|range| Segment { start: range.start, len: range.end - range.start, shift: 0, spread: 0 })
            .collect();
        let asked =
            merged(now.iter().map(|segment| segment.start..segment.start.saturating_add(segment.len)).collect());
        if asked.is_empty() {
            return noted;
        }
        let is_expected = self.has_shifts && self.is_as_expected(&asked, end);
        if is_expected {
            self.confirmed = self.confirmed.saturating_add(1);
            if let Some(announced) = self.announced.pop_front() {
                noted.used = overlap(&announced.ranges, &asked);
                noted.released = announced.bytes;
                self.penalty /= 2;
                self.depth = (self.depth * 2).min(DEPTH_MAX);
            }
        } else if waited {
            let was_wrong = !self.is_idle();
            noted.used = self.announced.iter().map(|announced| overlap(&announced.ranges, &asked)).sum();
            noted.released = self.withdraw();
            if was_wrong {
                self.penalty = (CONFIRMATIONS + self.penalty * 2).min(CONFIRMATIONS_MAX);
            }
            (self.confirmed, self.depth) = (0, 1);
        } else {
            self.ignored += 1;
            if self.ignored >= IGNORED_MAX {
                noted.released = self.withdraw();
            }
            return noted;
        }
        self.ignored = 0;
        self.learn(now, is_expected);
        if self.confirmed >= CONFIRMATIONS.saturating_add(self.penalty) {
            self.announce(end, room, &mut noted);
        }
        noted
    }

    /// Forgets what was announced. Returns the number of its bytes.
    pub(super) fn withdraw(&mut self) -> u64 {
        self.announced.drain(..).map(|announced| announced.bytes).sum()
    }

    /// Whether the request reads about what it was expected to: of its bytes three quarters at the expected places, or half
    /// a segment's length away, and not much less than was expected.
    fn is_as_expected(&self, asked: &[Range<u64>], end: u64) -> bool {
        let exact = self.expected(1, end, |_| 0);
        let near = self.expected(1, end, |segment| segment.len / 2);
        let found = overlap(&near, asked);
        let is_most_of = |bytes: u64| found.saturating_mul(4) >= bytes.saturating_mul(3);
        is_most_of(total(asked)) && is_most_of(total(&exact))
    }

    /// Where the segments are expected in the request after `steps` requests, each with `margin` on both sides.
    fn expected(&self, steps: usize, end: u64, margin: impl Fn(&Segment) -> u64) -> Vec<Range<u64>> {
        let moved = |segment: &Segment| {
            let far = i64::try_from(steps).ok()?.checked_mul(segment.shift)?;
            let start = segment.start.checked_add_signed(far)?;
            let margin = margin(segment);
            let stop = start.checked_add(segment.len)?.saturating_add(margin).min(end);
            let start = start.saturating_sub(margin);
            (start < stop).then_some(start..stop)
        };
        merged(self.last.iter().filter_map(moved).collect())
    }

    /// Makes `now` the last request, and learns how far its segments have moved.
    fn learn(&mut self, mut now: Vec<Segment>, is_expected: bool) {
        let has_same_count = now.len() == self.last.len();
        // Of another number of segments: they all move as the first one did, and nobody knows how exactly.
        let common = now.first().zip(self.last.first()).and_then(|(now, last)| difference(now.start, last.start));
        for (number, segment) in now.iter_mut().enumerate() {
            let before = self.last.get(number).filter(|_| has_same_count);
            let Some(before) = before else {
                (segment.shift, segment.spread) = (common.unwrap_or(0), segment.len);
                continue;
            };
            let shift = difference(segment.start, before.start).unwrap_or(0);
            if is_expected {
                let error = shift.abs_diff(before.shift).max(segment.len.abs_diff(before.len));
                segment.spread = error.max(before.spread - before.spread.div_ceil(8));
                let is_close = shift.abs_diff(before.shift) < PAGE_SIZE as u64;
                segment.shift = if is_close { shift } else { i64::midpoint(before.shift, shift) };
            } else {
                segment.shift = shift;
            }
        }
        self.has_shifts = !self.last.is_empty();
        self.last = now;
    }

    /// Chooses what to announce next.
    fn announce(&mut self, end: u64, room: u64, noted: &mut Noted) {
        if self.is_sequential() {
            return;
        }
        let is_exact = self.last.iter().all(|segment| segment.spread == 0);
        let depth = if is_exact { self.depth } else { 1 };
        let (mut bytes, mut segments) = (0_u64, 0_usize);
        for announced in &self.announced {
            bytes = bytes.saturating_add(announced.bytes);
            segments = segments.saturating_add(announced.ranges.len());
        }
        // Twice the error that was seen of the segment, or that of all if it is larger; but never more than twice the segment
        // in all.
        let spreads = self.last.iter().map(|segment| u128::from(segment.spread)).sum::<u128>();
        let usual = u64::try_from(spreads / self.last.len().max(1) as u128).unwrap_or(u64::MAX);
        let mut room = room.min(BYTES_MAX.saturating_sub(bytes));
        for steps in self.announced.len() + 1..=depth {
            let margin = |segment: &Segment| segment.spread.max(usual).saturating_mul(2).min(segment.len / 2);
            let mut ranges = self.expected(steps, end, margin);
            if steps == 1 {
                cut(&mut ranges, room);
            }
            let bytes = total(&ranges);
            segments = segments.saturating_add(ranges.len());
            if bytes == 0 || bytes > room || (steps > 1 && segments > SEGMENTS_MAX) {
                return;
            }
            room -= bytes;
            noted.bytes += bytes;
            noted.next.extend_from_slice(&ranges);
            self.announced.push_back(Announced { ranges, bytes });
        }
    }

    /// Whether the reader goes through the file without gaps, or does not move at all.
    fn is_sequential(&self) -> bool {
        match self.last.as_slice() {
            [only] => only.shift == 0 || u64::try_from(only.shift) == Ok(only.len),
            all => all.iter().all(|segment| segment.shift == 0),
        }
    }
}

fn difference(to: u64, from: u64) -> Option<i64> {
    i64::try_from(i128::from(to) - i128::from(from)).ok()
}

/// Sorts ranges, and puts those together that touch.
fn merged(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged.shrink_to_fit();
    merged
}

/// The bytes of disjoint ranges.
fn total(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|range| range.end - range.start).sum()
}

/// The bytes that both have. Each is in ascending order and disjoint.
fn overlap(one: &[Range<u64>], other: &[Range<u64>]) -> u64 {
    let (mut one, mut other) = (one.iter().peekable(), other.iter().peekable());
    let mut bytes = 0;
    while let (Some(a), Some(b)) = (one.peek(), other.peek()) {
        bytes += a.end.min(b.end).saturating_sub(a.start.max(b.start));
        if a.end <= b.end {
            one.next();
        } else {
            other.next();
        }
    }
    bytes
}

/// Keeps the first `room` bytes.
fn cut(ranges: &mut Vec<Range<u64>>, mut room: u64) {
    ranges.retain_mut(|range| {
        range.end = range.end.min(range.start.saturating_add(room));
        room -= range.end - range.start;
        range.start < range.end
    });
}

#[cfg(test)]
mod tests;
