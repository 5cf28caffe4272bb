//! The missing ranges of an open write. The client has sent these bytes, but a write failed or a page arrived
//! damaged, so the store does not have them. As long as one is left, the file differs from what the client wrote.

use std::collections::BTreeMap;

use types::ErrorCode;

/// Maximum number of separate ranges. Beyond it, ranges are merged with the bytes between them.
const RANGES_MAX: usize = 1024;

/// Ranges that were refused and not written since.
#[derive(Clone, Default)]
pub(crate) struct Missing {
    /// Start → end and the first reason. Ranges do not overlap.
    ranges: BTreeMap<u64, (u64, ErrorCode)>,
}

impl Missing {
    /// `start..end` was refused.
    pub(crate) fn refused(&mut self, start: u64, end: u64, why: ErrorCode) {
        if start >= end {
            return;
        }
        let (mut start, mut end, mut why) = (start, end, why);
        // Merge the ranges that it touches.
        while let Some((&from, &(to, reason))) =
            self.ranges.range(..=end).next_back().filter(|(_, (to, _))| *to >= start)
        {
            self.ranges.remove(&from);
            (start, end, why) = (start.min(from), end.max(to), reason);
        }
        self.ranges.insert(start, (end, why));
        if self.ranges.len() > RANGES_MAX
            && let Some((first, _)) = self.ranges.first_key_value()
            && let Some((_, (last, _))) = self.ranges.last_key_value()
        {
            let (first, last) = (*first, *last);
            self.ranges.clear();
            self.ranges.insert(first, (last, why));
        }
    }

    /// `start..end` has been written.
    pub(crate) fn written(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        while let Some((&from, &(to, why))) = self.ranges.range(..end).next_back().filter(|(_, (to, _))| *to > start) {
            self.ranges.remove(&from);
            if to > end {
                self.ranges.insert(end, (to, why));
            }
            if from < start {
                self.ranges.insert(from, (start, why));
            }
        }
    }

    /// The file was truncated: bytes behind `len` are no longer needed.
    pub(crate) fn cut(&mut self, len: u64) {
        self.written(len, u64::MAX);
    }

    /// The number of ranges.
    pub(crate) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// The first range, with the reason.
    pub(crate) fn first(&self) -> Option<(u64, u64, ErrorCode)> {
        self.ranges.first_key_value().map(|(&start, &(end, why))| (start, end, why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHY: ErrorCode = ErrorCode::NoSpace;

    fn of(missing: &Missing) -> Vec<(u64, u64)> {
        missing.ranges.iter().map(|(&start, &(end, _))| (start, end)).collect()
    }

    #[test]
    fn ranges_behave_like_a_set_of_bytes() {
        let mut state = 7u64;
        let mut random = |bound: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % bound
        };
        for _ in 0..200 {
            let mut missing = Missing::default();
            let mut model = [false; 64];
            for _ in 0..40 {
                let start = random(64);
                let end = start + random(65 - start);
                let refused = random(2) == 0;
                if refused {
                    missing.refused(start, end, WHY);
                } else {
                    missing.written(start, end);
                }
                (0u64..)
                    .zip(model.iter_mut())
                    .filter(|(at, _)| (start..end).contains(at))
                    .for_each(|(_, byte)| *byte = refused);
                let ranges = of(&missing);
                for (at, &byte) in (0u64..).zip(&model) {
                    let has = ranges.iter().any(|&(from, to)| (from..to).contains(&at));
                    assert_eq!(has, byte, "{at} in {ranges:?}");
                }
                assert!(ranges.windows(2).all(|pair| pair[0].1 < pair[1].0), "{ranges:?}");
            }
            missing.cut(10);
            assert!(of(&missing).iter().all(|&(_, to)| to <= 10));
        }
    }

    #[test]
    fn too_many_ranges_are_merged_and_none_is_lost() {
        let mut missing = Missing::default();
        for n in 0..5000 {
            missing.refused(n * 10, n * 10 + 1, WHY);
            assert!(missing.len() <= RANGES_MAX);
        }
        missing.written(0, 49_990);
        assert_eq!(missing.first(), Some((49_990, 49_991, WHY)));
        missing.written(49_990, 49_991);
        assert_eq!(missing.len(), 0);
    }
}
