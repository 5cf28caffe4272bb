//! Sets of numbers as sorted, disjoint, non-touching half-open ranges: written bytes, pages in a file, objects seen.

/// A set of half-open ranges.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Ranges(Vec<(u64, u64)>);

impl Ranges {
    /// The range `0..end`.
    pub(crate) fn up_to(end: u64) -> Self {
        let mut ranges = Self::default();
        ranges.insert(0, end);
        ranges
    }

    /// Makes a set of decoded ranges; `None` if they are not sorted, disjoint and separate.
    pub(crate) fn checked(parts: Vec<(u64, u64)>) -> Option<Self> {
        let separate = parts.windows(2).all(|pair| matches!(pair, [a, b] if a.1 < b.0));
        (separate && parts.iter().all(|(start, end)| start < end)).then_some(Self(parts))
    }

    pub(crate) fn as_slice(&self) -> &[(u64, u64)] {
        &self.0
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The ranges that touch or overlap `start..end`, as indexes.
    fn touching(&self, start: u64, end: u64) -> (usize, usize) {
        (self.0.partition_point(|range| range.1 < start), self.0.partition_point(|range| range.0 <= end))
    }

    pub(crate) fn insert(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let (from, to) = self.touching(start, end);
        let merged = self.0[from..to].iter().fold((start, end), |all, range| (all.0.min(range.0), all.1.max(range.1)));
        self.0.splice(from..to, [merged]);
    }

    pub(crate) fn remove(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let from = self.0.partition_point(|range| range.1 <= start);
        let to = self.0.partition_point(|range| range.0 < end);
        if from >= to {
            return;
        }
        let mut rest = Vec::with_capacity(2);
        let (first, last) = (self.0[from], self.0[to - 1]);
        if first.0 < start {
            rest.push((first.0, start));
        }
        if last.1 > end {
            rest.push((end, last.1));
        }
        self.0.splice(from..to, rest);
    }

    /// The number of ranges after inserting `start..end`.
    pub(crate) fn len_with(&self, start: u64, end: u64) -> usize {
        let (from, to) = self.touching(start, end);
        self.0.len() - (to - from) + 1
    }

    pub(crate) fn contains(&self, start: u64, end: u64) -> bool {
        let at = self.0.partition_point(|range| range.1 <= start);
        start >= end || self.0.get(at).is_some_and(|range| range.0 <= start && end <= range.1)
    }

    /// The end of the range that begins at 0; 0 if there is none.
    pub(crate) fn prefix(&self) -> u64 {
        self.0.first().map_or(0, |range| if range.0 == 0 { range.1 } else { 0 })
    }

    pub(crate) fn end(&self) -> u64 {
        self.0.last().map_or(0, |range| range.1)
    }

    /// The gaps below `end`.
    pub(crate) fn gaps(&self, end: u64) -> Vec<(u64, u64)> {
        let mut gaps = Vec::new();
        let mut at = 0;
        for &(start, stop) in &self.0 {
            if at < start.min(end) {
                gaps.push((at, start.min(end)));
            }
            at = stop;
        }
        if at < end {
            gaps.push((at, end));
        }
        gaps
    }
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation)] // small numbers
mod tests {
    use rand::{Rng, SeedableRng, rngs::SmallRng};

    use super::*;

    #[test]
    fn behaves_like_a_set_of_numbers() {
        for seed in 0..200 {
            let mut rng = SmallRng::seed_from_u64(seed);
            let (mut ranges, mut model) = (Ranges::default(), [false; 64]);
            for _ in 0..40 {
                let (a, b) = (rng.random_range(0..64u64), rng.random_range(0..64u64));
                let (start, end) = (a.min(b), a.max(b));
                let add = rng.random_bool(0.6);
                let expected = if start < end { Some(ranges.len_with(start, end)) } else { None };
                if add {
                    ranges.insert(start, end)
                } else {
                    ranges.remove(start, end)
                }
                model[start as usize..end as usize].fill(add);
                if let (true, Some(expected)) = (add, expected) {
                    assert_eq!(ranges.len(), expected, "seed {seed}");
                }
                assert!(Ranges::checked(ranges.as_slice().to_vec()).is_some(), "seed {seed}: {ranges:?}");
                let inside = |at: u64| ranges.as_slice().iter().any(|r| r.0 <= at && at < r.1);
                assert!((0..64).all(|at| inside(at) == model[at as usize]), "seed {seed}: {ranges:?}");
                let wanted = &model[start as usize..end as usize];
                assert_eq!(ranges.contains(start, end), wanted.iter().all(|x| *x), "seed {seed}");
                assert_eq!(ranges.prefix(), model.iter().position(|x| !x).unwrap_or(64) as u64);
                let gaps: u64 = ranges.gaps(40).iter().map(|(s, e)| e - s).sum();
                assert_eq!(gaps, model[..40].iter().filter(|x| !**x).count() as u64);
            }
        }
    }
}
