//! Where the bytes of a striped file lie, and back. The file is divided into chunks. Chunk `n` is in unit `n mod
//! width`, after the unit's earlier chunks.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Adler32, Crc32c, ObjectId, Stripe, WriterKey, WriterToken};

/// The key in an open that asks for a unit of a striped file, by its number, instead of the file.
pub const UNIT_KEY: &str = "weir.unit";
/// The key beside it for the object, because the path may mean another one by now.
pub const UNIT_OF_KEY: &str = "weir.of";
/// The key instead of that for a client that writes the file; the value is that of [`show_writer`].
pub const UNIT_WRITER_KEY: &str = "weir.writer";

/// The key for the checksums of a whole striped file, from the client that wrote it.
pub const SUMS_KEY: &str = "weir.sums";

/// The key beside it for the CRC32C of each unit as it was sent; the value is that of [`show_unit_sums`]. The manager
/// makes no file of units with other checksums.
pub const UNIT_SUMS_KEY: &str = "weir.unit_sums";

/// The value for the CRC32Cs of units, in order.
#[must_use]
pub fn show_unit_sums(sums: &[Crc32c]) -> String {
    sums.iter().map(|sum| format!("{:08x}", sum.0)).collect::<Vec<_>>().join(".")
}

/// Parses the value of [`show_unit_sums`], up to the maximum stripe width.
#[must_use]
pub fn parse_unit_sums(text: &str) -> Option<Vec<Crc32c>> {
    let one = |part: &str| Some(Crc32c(u32::try_from(numbers(part, [8])?[0]).ok()?));
    let most = usize::from(crate::STRIPE_WIDTH_MAX);
    let sums: Option<Vec<_>> = text.split('.').take(most + 1).map(one).collect();
    sums.filter(|sums| sums.len() <= most)
}

/// The value for a file's length and checksums.
#[must_use]
pub fn show_sums(len: u64, adler32: Adler32, crc32c: Crc32c) -> String {
    format!("{len:016x}.{:08x}.{:08x}", adler32.0, crc32c.0)
}

/// Parses the value of [`show_sums`].
#[must_use]
pub fn parse_sums(text: &str) -> Option<(u64, Adler32, Crc32c)> {
    let [len, adler32, crc32c] = numbers(text, [16, 8, 8])?;
    Some((len, Adler32(u32::try_from(adler32).ok()?), Crc32c(u32::try_from(crc32c).ok()?)))
}

/// Parses hexadecimal numbers with the given numbers of digits, separated by points.
pub(crate) fn numbers<const N: usize>(text: &str, digits: [usize; N]) -> Option<[u64; N]> {
    let mut numbers = [0; N];
    let mut parts = text.split('.');
    for (number, digits) in numbers.iter_mut().zip(digits) {
        let is_right = |part: &&str| part.len() == digits && part.bytes().all(|one| one.is_ascii_hexdigit());
        *number = u64::from_str_radix(parts.next().filter(is_right)?, 16).ok()?;
    }
    parts.next().is_none().then_some(numbers)
}

/// A secret of an unfinished striped file. The manager gives it to each client that it lets write.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteSecret(pub u128);

impl fmt::Debug for WriteSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WriteSecret(not shown)")
    }
}

/// The open write of a striped file, with the proof that the client may write. The writer alone proves nothing: readers
/// see the object, and the rest can be guessed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StripedOpenWrite {
    /// The file's writer.
    pub writer: WriterToken,
    /// The proof.
    pub secret: WriteSecret,
}

/// The value for an open write.
#[must_use]
pub fn show_writer(writing: StripedOpenWrite) -> String {
    let StripedOpenWrite { writer, secret } = writing;
    let (high, low) = (secret.0 >> 64, secret.0 & u128::from(u64::MAX));
    format!("{:016x}.{:016x}.{:08x}.{high:016x}.{low:016x}", writer.key.0, writer.object.0, writer.epoch)
}

/// Parses the value of [`show_writer`].
#[must_use]
pub fn parse_writer(text: &str) -> Option<StripedOpenWrite> {
    let [key, object, epoch, high, low] = numbers(text, [16, 16, 8, 16, 16])?;
    let writer = WriterToken { key: WriterKey(key), object: ObjectId(object), epoch: u32::try_from(epoch).ok()? };
    Some(StripedOpenWrite { writer, secret: WriteSecret(u128::from(high) << 64 | u128::from(low)) })
}

/// Consecutive bytes of a striped file in one chunk, and thus also consecutive in a unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// The unit that holds them.
    pub unit: u8,
    /// Their offset in the unit.
    pub in_unit: u64,
    /// Their offset in the file.
    pub in_file: u64,
    /// Their number.
    pub len: u64,
}

impl Stripe {
    /// The unit that holds the byte at `offset` of the file, and its offset there.
    #[must_use]
    pub fn to_unit(self, offset: u64) -> (u8, u64) {
        let (width, chunk) = (u64::from(self.width()), self.chunk());
        let number = offset / chunk;
        // Less than the width, which is a u8.
        let unit = u8::try_from(number % width).unwrap_or(0);
        (unit, number / width * chunk + offset % chunk)
    }

    /// The offset in the file of the byte at `offset` of `unit`. `None` if there is no such unit, or no file is that
    /// long.
    #[must_use]
    pub fn to_file(self, unit: u8, offset: u64) -> Option<u64> {
        let (width, chunk) = (u64::from(self.width()), self.chunk());
        if u64::from(unit) >= width {
            return None;
        }
        let number = (offset / chunk).checked_mul(width)?.checked_add(u64::from(unit))?;
        number.checked_mul(chunk)?.checked_add(offset % chunk)
    }

    /// The length of `unit` in a file of `len` bytes.
    #[must_use]
    pub fn unit_len(self, unit: u8, len: u64) -> u64 {
        let (width, chunk) = (u64::from(self.width()), self.chunk());
        let (rounds, rest) = (len / chunk / width, len / chunk % width);
        let last = match u64::from(unit) {
            unit if unit < rest => chunk,
            unit if unit == rest => len % chunk,
            _ => 0,
        };
        rounds * chunk + last
    }

    /// How many units have bytes of a file of `len` bytes; these are the first ones.
    #[must_use]
    pub fn units_in(self, len: u64) -> u8 {
        u8::try_from(len.div_ceil(self.chunk())).unwrap_or(u8::MAX).min(self.width())
    }

    /// The runs of the `len` bytes at `offset`, in order. Omits bytes beyond the longest possible file.
    pub fn runs(self, offset: u64, len: u64) -> impl Iterator<Item = Run> {
        let end = offset.saturating_add(len);
        let mut at = offset;
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let (unit, in_unit) = self.to_unit(at);
            let len = (self.chunk() - at % self.chunk()).min(end - at);
            let run = Run { unit, in_unit, in_file: at, len };
            at += len;
            Some(run)
        })
    }

    /// The number of bytes without a gap from the beginning of a file. `units` has the length of each unit; omitted
    /// units are empty.
    #[must_use]
    pub fn whole_prefix(self, units: &[u64]) -> u64 {
        let len_of = |unit: u8| units.get(usize::from(unit)).copied().unwrap_or(0);
        (0..self.width()).map(|unit| self.to_file(unit, len_of(unit)).unwrap_or(u64::MAX)).min().unwrap_or(0)
    }

    /// The end of the last byte of a file whose units have these lengths.
    #[must_use]
    pub fn end_of(self, units: &[u64]) -> u64 {
        let last = |(unit, len): (u8, &u64)| self.to_file(unit, len.checked_sub(1)?);
        (0..self.width()).zip(units).filter_map(last).max().map_or(0, |last| last.saturating_add(1))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::layout::{STRIPE_CHUNK_MAX, STRIPE_CHUNK_MIN, STRIPE_WIDTH_MAX, STRIPE_WIDTH_MIN};

    const KIB: u64 = 1 << 10;

    fn stripes() -> impl Strategy<Value = Stripe> {
        let chunks = STRIPE_CHUNK_MIN.trailing_zeros()..=STRIPE_CHUNK_MAX.trailing_zeros();
        (STRIPE_WIDTH_MIN..=STRIPE_WIDTH_MAX, chunks)
            .prop_map(|(width, chunk)| Stripe::new(u64::from(width), 1 << chunk).unwrap())
    }

    /// Lengths of real files, and those near which numbers overflow.
    fn lengths() -> impl Strategy<Value = u64> {
        prop_oneof![0..1u64 << 40, any::<u64>(), (u64::MAX - (1 << 40))..=u64::MAX]
    }

    #[test]
    fn chunks_rotate_over_the_units() {
        let stripe = Stripe::new(3, 64 * KIB).unwrap();
        let chunk = 64 * KIB;
        for (offset, there) in [
            (0, (0, 0)),
            (chunk - 1, (0, chunk - 1)),
            (chunk, (1, 0)),
            (2 * chunk + 5, (2, 5)),
            (3 * chunk, (0, chunk)),
            (7 * chunk + 9, (1, 2 * chunk + 9)),
        ] {
            assert_eq!(stripe.to_unit(offset), there, "byte {offset}");
            assert_eq!(stripe.to_file(there.0, there.1), Some(offset), "byte {offset}");
        }
        let runs: Vec<_> = stripe.runs(2 * chunk + 10, chunk + 1).collect();
        let first = Run { unit: 2, in_unit: 10, in_file: 2 * chunk + 10, len: chunk - 10 };
        assert_eq!(runs, [first, Run { unit: 0, in_unit: chunk, in_file: 3 * chunk, len: 11 }]);
        assert_eq!([0, 1, 2].map(|unit| stripe.unit_len(unit, 4 * chunk + 7)), [2 * chunk, chunk + 7, chunk]);
    }

    #[test]
    fn the_shortest_unit_limits_the_whole_prefix_and_the_longest_the_end() {
        let stripe = Stripe::new(2, 64 * KIB).unwrap();
        let chunk = 64 * KIB;
        assert_eq!((stripe.whole_prefix(&[0, 0]), stripe.end_of(&[0, 0])), (0, 0));
        assert_eq!((stripe.whole_prefix(&[chunk, 0]), stripe.end_of(&[chunk, 0])), (chunk, chunk));
        assert_eq!((stripe.whole_prefix(&[0, 5]), stripe.end_of(&[0, 5])), (0, chunk + 5));
        // Unit 0 has begun its second chunk; unit 1 has not filled its first.
        let units = [chunk + 3, chunk - 1];
        assert_eq!((stripe.whole_prefix(&units), stripe.end_of(&units)), (2 * chunk - 1, 2 * chunk + 3));
        assert_eq!(stripe.whole_prefix(&[chunk]), chunk, "a unit that is not given has nothing");
    }

    #[test]
    fn impossible_offsets_have_no_position() {
        let stripe = Stripe::new(2, 64 * KIB).unwrap();
        assert_eq!(stripe.to_file(2, 0), None);
        assert_eq!(stripe.to_file(1, u64::MAX), None);
        assert_eq!(stripe.runs(u64::MAX - 1, 100).map(|run| run.len).sum::<u64>(), 1);
    }

    #[test]
    fn a_writer_round_trips() {
        let writer = WriterToken { key: WriterKey(u64::MAX), object: ObjectId(0x12), epoch: 7 };
        let writing = StripedOpenWrite { writer, secret: WriteSecret(0xab << 64 | 5) };
        let text = show_writer(writing);
        assert_eq!(text, "ffffffffffffffff.0000000000000012.00000007.00000000000000ab.0000000000000005");
        assert_eq!(parse_writer(&text), Some(writing));
        assert!(!format!("{writing:?}").contains("171"), "it is not shown");
        let short = &text[1..];
        let sums = (77, Adler32(5), Crc32c(u32::MAX));
        assert_eq!(parse_sums(&show_sums(sums.0, sums.1, sums.2)), Some(sums));
        assert_eq!(parse_sums(&text), None);
        let units = vec![Crc32c(0), Crc32c(u32::MAX), Crc32c(0x1f)];
        assert_eq!(show_unit_sums(&units), "00000000.ffffffff.0000001f");
        assert_eq!(parse_unit_sums(&show_unit_sums(&units)), Some(units));
        assert_eq!(parse_unit_sums(&show_unit_sums(&[Crc32c(1); 65])), None);
        assert_eq!((parse_unit_sums(""), parse_unit_sums("0000000")), (None, None));
        for wrong in ["", "1.2.3", short, &format!("{text}.1"), &text.replace('1', "+"), &text.replace("07", "é")] {
            assert_eq!(parse_writer(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn each_byte_maps_to_one_unit_and_back(stripe in stripes(), offset in lengths()) {
            let (unit, in_unit) = stripe.to_unit(offset);
            prop_assert!(unit < stripe.width());
            prop_assert_eq!(stripe.to_file(unit, in_unit), Some(offset));
            // Its unit ends after the byte as soon as the file does, and not before.
            prop_assert_eq!(stripe.unit_len(unit, offset), in_unit);
            if offset < u64::MAX {
                prop_assert_eq!(stripe.unit_len(unit, offset + 1), in_unit + 1);
            }
        }

        #[test]
        fn runs_cover_a_range_once_and_in_order(stripe in stripes(), offset in 0..1u64 << 60, len in 0..1u64 << 24) {
            let mut at = offset;
            for run in stripe.runs(offset, len) {
                prop_assert_eq!(run.in_file, at);
                prop_assert!(run.len > 0 && run.len <= stripe.chunk());
                prop_assert_eq!(stripe.to_unit(at), (run.unit, run.in_unit));
                // The last byte is in the same chunk.
                prop_assert_eq!(stripe.to_unit(at + run.len - 1), (run.unit, run.in_unit + run.len - 1));
                at += run.len;
            }
            prop_assert_eq!(at, offset + len);
        }

        #[test]
        fn the_units_of_a_whole_file_give_its_length(stripe in stripes(), len in lengths()) {
            let units: Vec<u64> = (0..stripe.width()).map(|unit| stripe.unit_len(unit, len)).collect();
            prop_assert_eq!(units.iter().map(|&unit| u128::from(unit)).sum::<u128>(), u128::from(len));
            prop_assert_eq!(stripe.whole_prefix(&units), len);
            prop_assert_eq!(stripe.end_of(&units), len);
        }

        #[test]
        fn a_unit_with_one_byte_less_is_detected(stripe in stripes(), len in 1..1u64 << 40, which in any::<prop::sample::Index>()) {
            let mut units: Vec<u64> = (0..stripe.width()).map(|unit| stripe.unit_len(unit, len)).collect();
            let which = which.index(units.len());
            if units[which] > 0 {
                units[which] -= 1;
                let lost = stripe.to_file(u8::try_from(which).unwrap(), units[which]).unwrap();
                prop_assert_eq!(stripe.whole_prefix(&units), lost);
                prop_assert!(stripe.end_of(&units) >= lost);
            }
        }
    }
}
