//! The work done second by second, in bounded memory whatever the length of the run.

use super::Reading;

/// The most entries: one for each second of six hours, then one for each two seconds, and so on.
pub const HISTORY_MAX: usize = 6 * 3600;

/// The work done at the end of each second. With too many entries, they become two seconds apart, then four, and so
/// on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct History {
    entries: Vec<Reading>,
    /// The largest number of entries, which is even.
    max: usize,
    /// The seconds between two entries.
    each_s: u32,
    /// The seconds since the last entry.
    since: u32,
}

impl History {
    /// A history of at most `max` entries, and one for the end.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self { entries: Vec::new(), max: max.max(2).next_multiple_of(2), each_s: 1, since: 0 }
    }

    /// Adds the work done at the end of the next second.
    pub fn push(&mut self, done: Reading) {
        self.since += 1;
        if self.since < self.each_s {
            return;
        }
        self.since = 0;
        self.entries.push(done);
        if self.entries.len() >= self.max {
            self.coarsen();
        }
    }

    /// Drops every other entry.
    fn coarsen(&mut self) {
        let odd = self.entries.len() % 2 == 1;
        if odd {
            self.since += self.each_s;
        }
        self.entries = self.entries.chunks_exact(2).map(|pair| pair[1]).collect();
        self.each_s = self.each_s.saturating_mul(2);
    }

    /// Returns the seconds between two entries.
    #[must_use]
    pub fn each_s(&self) -> u32 {
        self.each_s
    }

    /// Returns all entries. The last one is the end, `done`.
    #[must_use]
    pub fn ended(mut self, done: Reading) -> Vec<Reading> {
        self.entries.push(done);
        self.entries
    }

    /// Sums several histories, each with its work at the end. The entries are as far apart as in the coarsest
    /// history.
    #[must_use]
    pub fn together(all: Vec<(Self, Reading)>) -> (Vec<Reading>, u32) {
        let each_s = all.iter().map(|(history, _)| history.each_s).max().unwrap_or(1);
        let mut all = all;
        for (history, _) in &mut all {
            while history.each_s < each_s {
                history.coarsen();
            }
        }
        let entries = all.iter().map(|(history, _)| history.entries.len()).max().unwrap_or(0);
        // A worker that has ended keeps its last total.
        let at = |place: usize| all.iter().map(|(history, end)| *history.entries.get(place).unwrap_or(end)).sum();
        let mut sums: Vec<Reading> = (0..entries).map(at).collect();
        sums.push(all.iter().map(|(_, end)| *end).sum());
        (sums, each_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(bytes: u64) -> Reading {
        Reading { operations: 1, bytes, failures: 0 }
    }

    fn of(max: usize, seconds: u64, rate: u64) -> History {
        let mut history = History::new(max);
        (1..=seconds).for_each(|second| history.push(done(second * rate)));
        history
    }

    #[test]
    fn entries_are_exact_at_any_distance() {
        for (max, seconds) in [(2, 1), (2, 7), (4, 4), (8, 1000), (10, 999), (100, 99), (HISTORY_MAX, 7 * 86_400)] {
            let history = of(max, seconds, 3);
            let each = u64::from(history.each_s());
            let entries = history.ended(done(3 * seconds + 1));
            let (last, whole) = entries.split_last().unwrap();
            assert_eq!(*last, done(3 * seconds + 1));
            assert!(whole.len() <= max, "{max} {seconds}: {}", whole.len());
            assert_eq!(whole.len() as u64, seconds / each, "{max} {seconds}");
            for (number, entry) in (1..).zip(whole) {
                assert_eq!(entry.bytes, 3 * each * number);
            }
        }
    }

    #[test]
    fn sums_combine_the_same_moments() {
        // One has so many entries that they are two seconds apart. The other ended early.
        let all = vec![(of(8, 9, 10), done(95)), (of(8, 5, 100), done(500))];
        assert_eq!((all[0].0.each_s(), all[1].0.each_s()), (2, 1));
        let (sums, each_s) = History::together(all);
        assert_eq!(each_s, 2);
        let bytes: Vec<u64> = sums.iter().map(|sum| sum.bytes).collect();
        // After 2, 4, 6 and 8 seconds, and at the end.
        assert_eq!(bytes, [220, 440, 560, 580, 595]);
        assert_eq!(History::together(vec![]), (vec![Reading::default()], 1));
    }
}
