//! Decides how ranges of one file become few reads: it merges near ranges, reads overlapping bytes once, and divides
//! large amounts among connections. It only computes; `RemoteFile::read_spans` reads.

use std::ops::Range;

use crate::Span;

/// The reads for a set of requested ranges. The bytes of all reads stand one behind the other in one buffer.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ReadPlan {
    reads: Vec<Span>,
    places: Vec<usize>,
    len: usize,
}

/// The reads of one connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Share {
    /// The ranges that it reads, in order.
    pub spans: Vec<Span>,
    /// The part of the buffer for their bytes.
    pub buffer: Range<usize>,
}

impl ReadPlan {
    /// Plans the reads for `asked`, in any order. Two ranges with at most `gap` bytes between them become one read.
    #[must_use]
    pub fn new(asked: &[Span], gap: usize) -> Self {
        let mut order: Vec<usize> = (0..asked.len()).filter(|index| asked[*index].len > 0).collect();
        order.sort_unstable_by_key(|index| asked[*index].offset);
        let mut plan = Self { reads: Vec::new(), places: vec![0; asked.len()], len: 0 };
        // Where the bytes of the last read begin in the buffer.
        let mut begin = 0;
        for index in order {
            let span = asked[index];
            match plan.reads.last_mut() {
                Some(last) if span.offset <= last.end().saturating_add(gap as u64) => {
                    let end = last.end().max(span.end());
                    last.len = usize::try_from(end - last.offset).unwrap_or(usize::MAX);
                }
                _ => {
                    begin = plan.len;
                    plan.reads.push(span);
                }
            }
            let last = plan.reads[plan.reads.len() - 1];
            plan.len = begin + last.len;
            plan.places[index] = begin + usize::try_from(span.offset - last.offset).unwrap_or(usize::MAX);
        }
        plan
    }

    /// Returns the reads, by their offsets.
    #[must_use]
    pub fn reads(&self) -> &[Span] {
        &self.reads
    }

    /// Returns where the bytes of each requested range begin in the buffer.
    #[must_use]
    pub fn places(&self) -> &[usize] {
        &self.places
    }

    /// Returns the length of the buffer.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing must be read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Divides the reads among at most `connections`, with at least `bytes_min` for each but the only one.
    #[must_use]
    pub fn shares(&self, connections: usize, bytes_min: usize) -> Vec<Share> {
        let count = (self.len / bytes_min.max(1)).clamp(1, connections.max(1));
        let most = self.len.div_ceil(count);
        let mut shares: Vec<Share> = Vec::with_capacity(count);
        for read in &self.reads {
            let mut rest = *read;
            while rest.len > 0 {
                let room = shares.last().map_or(0, |share| most - share.buffer.len());
                if room == 0 {
                    let begin = shares.last().map_or(0, |share| share.buffer.end);
                    shares.push(Share { spans: Vec::new(), buffer: begin..begin });
                    continue;
                }
                let take = rest.len.min(room);
                if let Some(share) = shares.last_mut() {
                    share.spans.push(Span { offset: rest.offset, len: take });
                    share.buffer.end += take;
                }
                rest = Span { offset: rest.offset + take as u64, len: rest.len - take };
            }
        }
        shares
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(ranges: &[(u64, usize)]) -> Vec<Span> {
        ranges.iter().map(|(offset, len)| Span { offset: *offset, len: *len }).collect()
    }

    /// The byte of a file at each offset.
    fn byte(offset: u64) -> u8 {
        u8::try_from(offset.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56).unwrap_or_default()
    }

    fn read(plan: &ReadPlan, connections: usize, bytes_min: usize) -> Vec<u8> {
        let mut buffer = vec![0; plan.len()];
        for share in plan.shares(connections, bytes_min) {
            let bytes: Vec<u8> = share.spans.iter().flat_map(|span| (span.offset..span.end()).map(byte)).collect();
            buffer[share.buffer].copy_from_slice(&bytes);
        }
        buffer
    }

    #[test]
    fn near_ranges_become_one_read() {
        let plan = ReadPlan::new(&spans(&[(100, 10), (0, 20), (25, 5), (200, 0)]), 5);
        assert_eq!(plan.reads(), spans(&[(0, 30), (100, 10)]));
        assert_eq!((plan.places(), plan.len()), (&[30, 0, 25, 0][..], 40));
        assert!(ReadPlan::new(&spans(&[(7, 0)]), 5).is_empty());
        assert!(ReadPlan::new(&[], 0).shares(4, 1).is_empty());
    }

    #[test]
    fn each_range_gets_its_bytes_however_they_are_divided() {
        let mut seed = 1_u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        for _ in 0..300 {
            let count = random(20);
            let asked: Vec<Span> = (0..count)
                .map(|_| Span { offset: random(2000), len: usize::try_from(random(90)).unwrap_or_default() })
                .collect();
            let plan = ReadPlan::new(&asked, usize::try_from(random(40)).unwrap_or_default());
            assert!(plan.reads().windows(2).all(|pair| pair[0].end() < pair[1].offset), "{asked:?}");
            for (connections, bytes_min) in [(1, 1), (3, 1), (4, 100)] {
                let shares = plan.shares(connections, bytes_min);
                assert!(shares.len() <= connections && shares.iter().all(|share| !share.spans.is_empty()));
                let buffer = read(&plan, connections, bytes_min);
                for (span, place) in asked.iter().zip(plan.places()) {
                    let expected: Vec<u8> = (span.offset..span.end()).map(byte).collect();
                    assert_eq!(buffer[*place..*place + span.len], expected, "{span:?} of {asked:?}");
                }
            }
        }
    }
}
