//! Tracks which of a flow's datagrams have arrived, by their numbers.

/// How far back a repeated datagram is recognised, in numbers.
const WINDOW: u64 = 1 << 16;

/// Counts datagrams that are numbered from 0.
#[derive(Debug)]
pub(super) struct Sequences {
    /// One bit for each of the last [`WINDOW`] numbers below `next`: it has arrived.
    came: Vec<u64>,
    /// The highest number so far, plus one.
    next: u64,
    received: u64,
    reordered: u64,
    duplicates: u64,
}

impl Sequences {
    pub(super) fn new() -> Self {
        let words = usize::try_from(WINDOW / 64).unwrap_or(1);
        Self { came: vec![0; words], next: 0, received: 0, reordered: 0, duplicates: 0 }
    }

    /// Counts the datagram with this number. If it is too old to tell whether it arrived before, it counts as the
    /// first one.
    pub(super) fn add(&mut self, number: u64) {
        if number >= self.next {
            // The numbers in between have not arrived yet. Bits older than the window need no clearing.
            let from = self.next.max(number.saturating_sub(WINDOW - 1));
            (from..=number).for_each(|between| self.mark(between, false));
            self.next = number.saturating_add(1);
            self.received += 1;
            self.mark(number, true);
        } else if self.next - number <= WINDOW && self.is_marked(number) {
            self.duplicates += 1;
        } else {
            self.received += 1;
            self.reordered += 1;
            if self.next - number <= WINDOW {
                self.mark(number, true);
            }
        }
    }

    /// Returns the number of datagrams, without duplicates.
    pub(super) fn received(&self) -> u64 {
        self.received
    }

    /// Returns how many of them arrived after a higher number.
    pub(super) fn reordered(&self) -> u64 {
        self.reordered
    }

    /// Returns the number of duplicates.
    pub(super) fn duplicates(&self) -> u64 {
        self.duplicates
    }

    fn place(number: u64) -> (usize, u64) {
        let at = number % WINDOW;
        (usize::try_from(at / 64).unwrap_or(0), 1 << (at % 64))
    }

    fn mark(&mut self, number: u64, came: bool) {
        let (word, bit) = Self::place(number);
        if let Some(word) = self.came.get_mut(word) {
            *word = if came { *word | bit } else { *word & !bit };
        }
    }

    fn is_marked(&self, number: u64) -> bool {
        let (word, bit) = Self::place(number);
        self.came.get(word).is_some_and(|word| word & bit != 0)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn counted(numbers: impl IntoIterator<Item = u64>) -> (u64, u64, u64) {
        let mut sequences = Sequences::new();
        numbers.into_iter().for_each(|number| sequences.add(number));
        (sequences.received(), sequences.reordered(), sequences.duplicates())
    }

    #[test]
    fn order_loss_and_duplicates_are_counted_separately() {
        assert_eq!(counted(0..100_000), (100_000, 0, 0));
        assert_eq!(counted([0, 1, 5, 6]), (4, 0, 0));
        assert_eq!(counted([0, 2, 1, 3]), (4, 1, 0));
        assert_eq!(counted([0, 1, 1, 0, 2, 1]), (3, 0, 3));
        assert_eq!(counted([5, 3, 3, 5, 4]), (3, 2, 2));
    }

    #[test]
    fn a_leap_forgets_older_numbers() {
        // The same bit of the window now stands for another number.
        assert_eq!(counted([0, 1, WINDOW, WINDOW + 1]), (4, 0, 0));
        assert_eq!(counted([0, 10 * WINDOW, 10 * WINDOW - 1, 10 * WINDOW - 1]), (3, 1, 1));
        assert_eq!(counted([u64::MAX, 7, u64::MAX - 1, u64::MAX - 1]), (3, 2, 1));
    }

    proptest! {
        #[test]
        fn within_the_window_it_counts_as_a_set_would(numbers in prop::collection::vec(0..3000_u64, 0..500)) {
            let (mut seen, mut highest) = (BTreeSet::new(), None);
            let mut right = (0, 0, 0);
            for number in &numbers {
                if !seen.insert(*number) {
                    right.2 += 1;
                } else {
                    right.0 += 1;
                    right.1 += u64::from(highest > Some(*number));
                }
                highest = highest.max(Some(*number));
            }
            prop_assert_eq!(counted(numbers), right);
        }
    }
}
