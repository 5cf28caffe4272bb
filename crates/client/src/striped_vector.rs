//! Vector reads of a striped file (`kXR_readv`): each unit's server gets the requests for its own bytes, and all
//! servers are asked before the first answer is awaited.

use parking_lot::Mutex;
use types::Stripe;

use crate::striped::at_once;
use crate::vector::{Parts, VectorRead, place_of};
use crate::{ClientError, Reader, RemoteFile, RoundTrips, Span, StripedReader};

/// A read of fewer bytes takes the answers one after the other in the calling thread: they wait in the buffers of the
/// connections meanwhile, and starting threads would take longer.
const THREADS_MIN: usize = 1 << 20;

/// The requests under way at one unit's server.
struct UnitRead<'a> {
    reader: Reader<Vec<u8>>,
    read: VectorRead<'a>,
}

impl StripedReader {
    /// Reads all `spans`, one behind the other, into the front of `into`, which must be long enough. Spans may
    /// overlap, and may be empty. Each unit's server gets vector requests for its own bytes, as
    /// [`crate::RemoteFile::read_spans`] makes them, and all units are read at the same time. A unit whose server is lost
    /// is opened again, at another server if there is one.
    ///
    /// Returns the number of requests to all servers together. Those to different servers count as under way together.
    ///
    /// # Errors
    /// A unit's server refuses, for example because a span ends behind the end of the file. A connection fails and
    /// cannot be restored. [`ClientError::Unexpected`]: an answer has other segments than requested.
    /// [`ClientError::Shorter`]: `into` is too short, or a span ends behind the longest possible file. After an error,
    /// `into` may have some of the bytes.
    pub fn read_spans(&self, spans: &[Span], into: &mut [u8]) -> Result<RoundTrips, ClientError> {
        let into = place_of(spans, into, &self.at.url)?;
        let wanted = into.len();
        // In the order of the units, as all callers lock several of them.
        let parts = (0..).zip(split(self.at.stripe, spans, into)).filter(|(_, parts)| !parts.is_empty());
        let mut units: Vec<_> =
            parts.map(|(unit, parts)| (unit, self.units[usize::from(unit)].lock(), parts)).collect();
        let mut under_way = Vec::with_capacity(units.len());
        for (unit, guard, parts) in &mut units {
            self.reader(*unit, guard)?;
            let mut reader = guard.reader.take().ok_or_else(|| self.is_read_otherwise())?;
            let read = self.file_of(&mut reader)?.begin_to_read(std::mem::take(parts));
            under_way.push(Mutex::new(Some(UnitRead { reader, read })));
        }
        let finish = |index: u8| {
            let read = under_way[usize::from(index)].lock().take();
            let UnitRead { mut reader, read } = read.ok_or_else(|| self.is_read_otherwise())?;
            let trips = read.finish(self.file_of(&mut reader)?)?;
            Ok((reader, trips))
        };
        let count = u8::try_from(under_way.len()).unwrap_or(u8::MAX);
        // After the first error, no other answer is waited for: each server may be silent for its whole time. Answers may
        // still come over these connections, so they end, and their units are opened again when needed.
        let finished: Vec<(Reader<Vec<u8>>, RoundTrips)> = if count > 1 && wanted >= THREADS_MIN {
            at_once(0..count, finish)?
        } else {
            (0..count).map(finish).collect::<Result<_, ClientError>>()?
        };
        let mut all = RoundTrips::default();
        for ((_, guard, _), (reader, trips)) in units.iter_mut().zip(finished) {
            guard.reader = Some(reader);
            all.requests += trips.requests;
            all.in_turn = all.in_turn.max(trips.in_turn);
        }
        Ok(all)
    }

    fn file_of<'a>(&self, reader: &'a mut Reader<Vec<u8>>) -> Result<&'a mut RemoteFile, ClientError> {
        reader.file_mut().ok_or_else(|| self.is_read_otherwise())
    }

    fn is_read_otherwise(&self) -> ClientError {
        let what = format!("a unit of {} is being read otherwise", self.at.url);
        ClientError::Unexpected { server: self.at.url.server.clone(), what }
    }
}

/// Divides spans among the units. The bytes of all spans go into `into`, which is exactly long enough, one behind the
/// other.
fn split<'a>(stripe: Stripe, spans: &[Span], into: &'a mut [u8]) -> Vec<Parts<'a>> {
    let mut units: Vec<Parts<'a>> = (0..stripe.width()).map(|_| Parts::default()).collect();
    let mut left = into;
    for span in spans {
        for run in stripe.runs(span.offset, span.len as u64) {
            let len = usize::try_from(run.len).unwrap_or(usize::MAX).min(left.len());
            let (room, later) = left.split_at_mut(len);
            left = later;
            // The chunks of a long span follow one another in a unit.
            units[usize::from(run.unit)].add(run.in_unit, room, true);
        }
    }
    units
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test may fail this way

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::SEGMENT_MAX;

    const KIB: u64 = 1 << 10;

    /// The byte of a file at each offset.
    fn byte(offset: u64) -> u8 {
        u8::try_from(offset.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56).unwrap()
    }

    fn byte_of(stripe: Stripe, unit: u8, offset: u64) -> u8 {
        byte(stripe.to_file(unit, offset).unwrap())
    }

    #[test]
    fn each_unit_gets_its_bytes_in_few_segments() {
        let (stripe, chunk) = (Stripe::new(2, 64 * KIB).unwrap(), 64 * KIB);
        let len = usize::try_from(4 * chunk).unwrap();
        let mut into = vec![0; len + 10];
        let spans = [Span { offset: 10, len }, Span { offset: 3 * chunk, len: 0 }, Span { offset: 5, len: 10 }];
        let shapes: Vec<_> = split(stripe, &spans, &mut into).iter().map(Parts::shape).collect();
        let unit = usize::try_from(2 * chunk).unwrap();
        // The last ten bytes of the first span are in the first unit's third chunk.
        assert_eq!(shapes, [vec![(10, unit, 3), (5, 10, 1)], vec![(0, unit, 2)]]);
        // Three segments, which end where no chunk does.
        let len = usize::try_from(100 * chunk).unwrap();
        let mut into = vec![0; len];
        let shapes: Vec<_> = split(stripe, &[Span { offset: 0, len }], &mut into).iter().map(Parts::shape).collect();
        let max = SEGMENT_MAX;
        let of_each = vec![(0, max, 32), (max as u64, len / 2 - max, 19)];
        assert_eq!(shapes, [of_each.clone(), of_each]);
        assert!(split(stripe, &[], &mut []).iter().all(Parts::is_empty));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn each_span_gets_its_bytes(
            (width, chunk) in (2..=9_u64, 16..=19_u32),
            end in 0..4_000_000_u64,
            asked in vec((0.0..1.0, prop_oneof![Just(0), 0..100_usize, 0..700_000_usize], any::<bool>()), 0..12),
        ) {
            let stripe = Stripe::new(width, 1 << chunk).unwrap();
            let span = |(at, len, is_last): (f64, usize, bool)| {
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
                let offset = (at * end as f64) as u64;
                let len = len.min(usize::try_from(end - offset).unwrap());
                // Some end where the file does.
                if is_last { Span { offset: end - len as u64, len } } else { Span { offset, len } }
            };
            let spans: Vec<Span> = asked.into_iter().map(span).collect();
            let expected: Vec<u8> = spans.iter().flat_map(|span| (span.offset..span.end()).map(byte)).collect();
            let mut found = vec![0; expected.len()];
            let mut read = 0;
            for (unit, parts) in (0..).zip(split(stripe, &spans, &mut found)) {
                for (offset, len, _) in parts.shape() {
                    prop_assert!(len > 0 && len <= SEGMENT_MAX);
                    prop_assert!(offset + len as u64 <= stripe.unit_len(unit, end), "behind the end of unit {unit}");
                    read += len;
                }
                parts.fill(|offset, len| {
                    (offset..offset + len as u64).map(|offset| byte_of(stripe, unit, offset)).collect()
                });
            }
            prop_assert_eq!(read, expected.len());
            prop_assert!(found == expected, "{:?}", spans);
        }
    }
}
