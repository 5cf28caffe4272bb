//! Learns from the ranges that a reader has asked for which ones it will probably ask for next.
//!
//! Programs that read tables, such as uproot, ask for the same columns of one group of rows after the other. Their
//! ranges advance with gaps that repeat after a period, nearly: compressed columns differ in size. So this predicts
//! windows that are wider than the ranges by what the gaps have varied, and stops where that would read too much.
//!
//! It only computes. A wrong prediction costs a read that nobody needed, never a wrong byte.

use std::collections::VecDeque;

use crate::Span;

/// The ranges that are remembered.
const SEEN_MAX: usize = 512;
/// How many calls later a range may come than one behind it, because several reads are under way at a time.
const LATE_MAX: u64 = 2;
/// The longest period, in ranges.
const PERIOD_MAX: usize = 128;
/// The periods from which gaps are averaged, and in which a range's longest length is looked for.
const PERIODS: usize = 64;
const PERIODS_OF_LEN: usize = 4;
/// A window may be this many times as long as its range.
const WIDER_MAX: u64 = 4;
/// A window may be this long, however short its range is.
const NARROW: u64 = 4 << 10;

/// Where a range will probably be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// What to read to have it almost surely.
    pub whole: Span,
    /// What is enough to have it probably, if that was read before.
    pub likely: Span,
}

/// The ranges of one file that a reader has asked for.
#[derive(Clone, Debug, Default)]
pub struct Pattern {
    seen: VecDeque<Span>,
    /// The call that each of them came with.
    calls: VecDeque<u64>,
    call: u64,
}

impl Pattern {
    /// Notes ranges that the reader asks for.
    pub fn asked(&mut self, spans: &[Span]) {
        self.call += 1;
        for span in spans.iter().filter(|span| span.len > 0) {
            let mut later = self.seen.iter().rev().take_while(|seen| seen.offset > span.offset).count();
            let oldest = self.calls.iter().rev().take(later).min().copied().unwrap_or(self.call);
            if oldest + LATE_MAX < self.call {
                // It has gone back, so that what is behind says nothing any more.
                self.seen.truncate(self.seen.len() - later);
                self.calls.truncate(self.seen.len());
                later = 0;
            }
            let place = self.seen.len() - later;
            if place > 0 && self.seen.get(place - 1).is_some_and(|seen| seen.offset == span.offset) {
                continue;
            }
            self.seen.insert(place, *span);
            self.calls.insert(place, self.call);
            if self.seen.len() > SEEN_MAX {
                self.seen.pop_front();
                self.calls.pop_front();
            }
        }
    }

    /// Returns windows in which the next ranges will probably be, at most `count`, in a file of `size` bytes. Empty: the
    /// ranges have not advanced regularly.
    #[must_use]
    pub fn next(&self, count: usize, size: u64) -> Vec<Window> {
        let gaps: Vec<u64> =
            self.seen.iter().zip(self.seen.iter().skip(1)).map(|(one, next)| next.offset - one.offset).collect();
        let Some(period) = (1..=PERIOD_MAX).find(|period| self.repeats(&gaps, *period)) else { return Vec::new() };
        let variance = variance(&gaps, period);
        let Some(last) = self.seen.back() else { return Vec::new() };
        let mut windows = Vec::new();
        let mut offset = last.offset;
        for ahead in 0..count {
            let phase = gaps.len() - period + ahead % period;
            offset = offset.saturating_add(mean(&gaps, phase, period));
            // The range behind a gap has the gap's index plus one.
            let len = self.longest(phase + 1, period);
            // The sum varies as its gaps do, and as the means that are added up do.
            let (count, known) = ((ahead + 1) as f64, gaps.len().min(PERIODS * period) as f64);
            let deviation = (variance * (count + count * count / known)).sqrt().ceil();
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // not negative; saturates
            let deviation = deviation as u64;
            let longer = if deviation > 0 { len / 16 } else { 0 };
            let wider_by = |margin: u64, longer: u64| {
                let begin = offset.saturating_sub(margin).min(size);
                let end = offset.saturating_add(len + longer + margin).min(size);
                Span { offset: begin, len: usize::try_from(end - begin).unwrap_or(usize::MAX) }
            };
            let window = Window { whole: wider_by(3 * deviation, longer), likely: wider_by(2 * deviation, 0) };
            let is_too_wide = window.whole.len as u64 > (len * WIDER_MAX).max(NARROW);
            if window.likely.len == 0 || is_too_wide {
                break;
            }
            windows.push(window);
        }
        windows
    }

    /// Whether the last gaps and lengths are about those of one period before.
    fn repeats(&self, gaps: &[u64], period: usize) -> bool {
        // With short periods, a few equal gaps may be chance.
        let compared = period.max(3);
        if gaps.len() < compared + period {
            return false;
        }
        (gaps.len() - compared..gaps.len()).all(|index| {
            let (now, before) = (gaps[index], gaps[index - period]);
            let len = |index: usize| self.seen.get(index + 1).map_or(0, |span| span.len);
            is_near(now, before) && len(index) <= len(index - period) * 2 && len(index - period) <= len(index) * 2
        })
    }

    /// Returns the longest of the last ranges at this place of the period.
    fn longest(&self, index: usize, period: usize) -> u64 {
        let same = (0..PERIODS_OF_LEN).filter_map(|back| self.seen.get(index.checked_sub(back * period)?));
        same.map(|span| span.len as u64).max().unwrap_or(0)
    }
}

/// Whether two gaps are about the same.
fn is_near(one: u64, other: u64) -> bool {
    one.abs_diff(other) <= one.min(other) / 4
}

/// Returns the mean of the last gaps at this place of the period. Leaves out those that are quite different from the
/// last one: something else was in the file there.
fn mean(gaps: &[u64], index: usize, period: usize) -> u64 {
    let last = gaps.get(index).copied().unwrap_or(0);
    let same = (0..PERIODS).filter_map(|back| gaps.get(index.checked_sub(back * period)?));
    let near = same.filter(|gap| is_near(**gap, last));
    let (sum, count) = near.fold((0_u64, 0_u64), |(sum, count), gap| (sum.saturating_add(*gap), count + 1));
    sum / count.max(1)
}

/// Returns the variance of a gap, in square bytes, from the differences of gaps one period apart.
fn variance(gaps: &[u64], period: usize) -> f64 {
    let first = gaps.len().saturating_sub(PERIODS * period).max(period);
    let pairs = (first..gaps.len()).map(|index| (gaps[index], gaps[index - period]));
    let near = pairs.filter(|(one, other)| is_near(*one, *other));
    let differences = near.map(|(one, other)| one.abs_diff(other) as f64);
    let (sum, count) = differences.fold((0.0, 0.0), |(sum, count), by| (sum + by * by / 2.0, count + 1.0));
    if count > 0.0 { sum / count } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 1 << 40;

    fn span(offset: u64, len: usize) -> Span {
        Span { offset, len }
    }

    fn next(pattern: &Pattern, count: usize, size: u64) -> Vec<Span> {
        pattern.next(count, size).into_iter().map(|window| window.whole).collect()
    }

    /// Whether each of `asked` lies in one of the windows.
    fn holds(windows: &[Span], asked: &[Span]) -> bool {
        asked.iter().all(|span| windows.iter().any(|window| window.offset <= span.offset && span.end() <= window.end()))
    }

    #[test]
    fn a_sequential_reader_is_predicted_exactly() {
        let mut pattern = Pattern::default();
        for number in 0..8 {
            pattern.asked(&[span(number * 1000, 1000)]);
        }
        assert_eq!(next(&pattern, 3, SIZE), [span(8000, 1000), span(9000, 1000), span(10_000, 1000)]);
        assert_eq!(next(&pattern, 3, 9500), [span(8000, 1000), span(9000, 500)]);
    }

    #[test]
    fn columns_of_varying_size_are_in_their_windows() {
        let mut seed = 7_u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        let mut pattern = Pattern::default();
        let (mut at, mut found, mut total) = (500, 0, 0);
        for _ in 0..40 {
            let mut group = Vec::new();
            for column in 0..60_u64 {
                let len = 10_000 + column * 100 + random(200);
                if [3, 4, 20, 47].contains(&column) {
                    group.push(span(at, usize::try_from(len).unwrap_or_default()));
                }
                at += len;
            }
            let windows = next(&pattern, 8, SIZE);
            if !windows.is_empty() {
                total += 1;
                found += usize::from(holds(&windows, &group));
                let (read, asked) = (windows.iter().map(|one| one.len), group.iter().map(|one| one.len));
                assert!(read.sum::<usize>() < 2 * 2 * asked.sum::<usize>());
            }
            // The parts of a group arrive in any order.
            pattern.asked(&group[2..]);
            pattern.asked(&group[..2]);
        }
        assert!(total > 30 && found * 10 >= total * 9, "{found} of {total}");
    }

    #[test]
    fn what_is_not_regular_is_not_predicted() {
        let mut pattern = Pattern::default();
        for offset in [5, 900, 1000, 7000, 7001, 9000, 20_000, 21_000, 50_000] {
            pattern.asked(&[span(offset, 10)]);
        }
        assert!(pattern.next(5, SIZE).is_empty());
        // A reader that goes back begins again.
        for _ in 0..3 {
            pattern.asked(&[span(60_000, 10)]);
        }
        pattern.asked(&[span(1, 10), span(3, 0)]);
        assert_eq!((pattern.seen.len(), pattern.calls.len()), (1, 1));
        pattern.asked(&[span(1, 10), span(3, 0)]);
        assert_eq!(pattern.seen.len(), 1);
        assert!(Pattern::default().next(5, SIZE).is_empty());
    }
}
