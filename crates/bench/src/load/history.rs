//! What had been done second by second, in bounded memory whatever the length of the run.

use super::Reading;

/// Most entries: one a second for six hours, then one for each two seconds, and so on.
pub const HISTORY_MAX: usize = 6 * 3600;

/// What had been done at the end of each second, and then of each two, four... whenever there are too many entries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct History {
    entries: Vec<Reading>,
    /// Most of them: an even number.
    max: usize,
    /// Seconds between two entries.
    each_s: u32,
    /// Seconds since the last entry.
    since: u32,
}

impl History {
    /// Of at most `max` entries, and one for the end.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self { entries: Vec::new(), max: max.max(2).next_multiple_of(2), each_s: 1, since: 0 }
    }

    /// Adds what has been done at the end of the next second.
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

    /// Keeps every second entry.
    fn coarsen(&mut self) {
        let odd = self.entries.len() % 2 == 1;
        if odd {
            self.since += self.each_s;
        }
        self.entries = self.entries.chunks_exact(2).map(|pair| pair[1]).collect();
        self.each_s = self.each_s.saturating_mul(2);
    }

    /// Seconds between two entries.
    #[must_use]
    pub fn each_s(&self) -> u32 {
        self.each_s
    }

    /// All entries, with that of the end, `done`, as the last.
    #[must_use]
    pub fn ended(mut self, done: Reading) -> Vec<Reading> {
        self.entries.push(done);
        self.entries
    }

    /// What several did together; each with what it had done at its end. Entries are as far apart as the coarsest of them has them.
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
        // Who has ended has done what it had at its end.
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
    fn entries_are_exact_however_far_apart_they_are() {
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
    fn sums_are_of_the_same_moments() {
        // One has so much behind it that its entries are two seconds apart; the other ended early.
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
