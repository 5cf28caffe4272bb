//! Where the bytes of a striped file lie, and back: the file is cut into chunks, and chunk `n` is in unit `n mod width`, behind the chunks that
//! this unit has before it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Adler32, Crc32c, ObjectId, Stripe, WriterKey, WriterToken};

/// The word of an open that asks for a unit of a striped file, by its number, instead of the file.
pub const UNIT_KEY: &str = "weir.unit";
/// The word beside it that says of which content: the path may stand for another one by now.
pub const UNIT_OF_KEY: &str = "weir.of";
/// The word instead of that one for whoever writes the file: its writer, as [`show_writer`] has it.
pub const UNIT_WRITER_KEY: &str = "weir.writer";

/// The word with which whoever has written a striped file says what checksums the whole has.
pub const SUMS_KEY: &str = "weir.sums";

/// The word beside it with the CRC32C of each unit as it was sent, as [`show_unit_sums`] has them: no file is made of units that are something else.
pub const UNIT_SUMS_KEY: &str = "weir.unit_sums";

/// CRC32Cs of units, in their order, as they are in a word of an address.
#[must_use]
pub fn show_unit_sums(sums: &[Crc32c]) -> String {
    sums.iter().map(|sum| format!("{:08x}", sum.0)).collect::<Vec<_>>().join(".")
}

/// What [`show_unit_sums`] has made, of as many as the widest stripe has.
#[must_use]
pub fn parse_unit_sums(text: &str) -> Option<Vec<Crc32c>> {
    let one = |part: &str| Some(Crc32c(u32::try_from(numbers(part, [8])?[0]).ok()?));
    let most = usize::from(crate::STRIPE_WIDTH_MAX);
    let sums: Option<Vec<_>> = text.split('.').take(most + 1).map(one).collect();
    sums.filter(|sums| sums.len() <= most)
}

/// A file's length and checksums as they are in a word of an address.
#[must_use]
pub fn show_sums(len: u64, adler32: Adler32, crc32c: Crc32c) -> String {
    format!("{len:016x}.{:08x}.{:08x}", adler32.0, crc32c.0)
}

/// What [`show_sums`] has made.
#[must_use]
pub fn parse_sums(text: &str) -> Option<(u64, Adler32, Crc32c)> {
    let [len, adler32, crc32c] = numbers(text, [16, 8, 8])?;
    Some((len, Adler32(u32::try_from(adler32).ok()?), Crc32c(u32::try_from(crc32c).ok()?)))
}

/// Hexadecimal numbers of so many digits each, with points between.
pub(crate) fn numbers<const N: usize>(text: &str, digits: [usize; N]) -> Option<[u64; N]> {
    let mut numbers = [0; N];
    let mut parts = text.split('.');
    for (number, digits) in numbers.iter_mut().zip(digits) {
        let is_right = |part: &&str| part.len() == digits && part.bytes().all(|one| one.is_ascii_hexdigit());
        *number = u64::from_str_radix(parts.next().filter(is_right)?, 16).ok()?;
    }
    parts.next().is_none().then_some(numbers)
}

/// What nobody can guess of a striped file in the making: the manager gives it to whoever it lets write.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteSecret(pub u128);

impl fmt::Debug for WriteSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WriteSecret(not shown)")
    }
}

/// The writing of a striped file, for who may do it. A writer alone says nothing: readers are shown the object, and the rest can be guessed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StripedOpenWrite {
    /// The file's writer.
    pub writer: WriterToken,
    /// That it was let in.
    pub secret: WriteSecret,
}

/// A writing as it is in a word of an address.
#[must_use]
pub fn show_writer(writing: StripedOpenWrite) -> String {
    let StripedOpenWrite { writer, secret } = writing;
    let (high, low) = (secret.0 >> 64, secret.0 & u128::from(u64::MAX));
    format!("{:016x}.{:016x}.{:08x}.{high:016x}.{low:016x}", writer.key.0, writer.object.0, writer.epoch)
}

/// What [`show_writer`] has made.
#[must_use]
pub fn parse_writer(text: &str) -> Option<StripedOpenWrite> {
    let [key, object, epoch, high, low] = numbers(text, [16, 16, 8, 16, 16])?;
    let writer = WriterToken { key: WriterKey(key), object: ObjectId(object), epoch: u32::try_from(epoch).ok()? };
    Some(StripedOpenWrite { writer, secret: WriteSecret(u128::from(high) << 64 | u128::from(low)) })
}

/// Neighbouring bytes of a striped file that lie in one chunk, so also side by side in a unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// Which unit has them.
    pub unit: u8,
    /// Where they begin in the unit.
    pub in_unit: u64,
    /// Where they begin in the file.
    pub in_file: u64,
    /// How many they are.
    pub len: u64,
}

impl Stripe {
    /// The unit that has the byte at `offset` of the file, and where in it.
    #[must_use]
    pub fn to_unit(self, offset: u64) -> (u8, u64) {
        let (width, chunk) = (u64::from(self.width()), self.chunk());
        let number = offset / chunk;
        // Less than the width, which is a u8.
        let unit = u8::try_from(number % width).unwrap_or(0);
        (unit, number / width * chunk + offset % chunk)
    }

    /// Where in the file the byte at `offset` of `unit` is; `None`: no file is so long, or there is no such unit.
    #[must_use]
    pub fn to_file(self, unit: u8, offset: u64) -> Option<u64> {
        let (width, chunk) = (u64::from(self.width()), self.chunk());
        if u64::from(unit) >= width {
            return None;
        }
        let number = (offset / chunk).checked_mul(width)?.checked_add(u64::from(unit))?;
        number.checked_mul(chunk)?.checked_add(offset % chunk)
    }

    /// How long `unit` is in a file of `len` bytes.
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

    /// How many units have something of a file of `len` bytes: the first ones.
    #[must_use]
    pub fn units_in(self, len: u64) -> u8 {
        u8::try_from(len.div_ceil(self.chunk())).unwrap_or(u8::MAX).min(self.width())
    }

    /// The runs of the `len` bytes at `offset`, in their order. What reaches past the longest possible file is left out.
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

    /// How many bytes from its beginning on a file has, of which the units have so many each (one length a unit, those that are not given have none).
    #[must_use]
    pub fn whole_prefix(self, units: &[u64]) -> u64 {
        let len_of = |unit: u8| units.get(usize::from(unit)).copied().unwrap_or(0);
        (0..self.width()).map(|unit| self.to_file(unit, len_of(unit)).unwrap_or(u64::MAX)).min().unwrap_or(0)
    }

    /// Where the last byte of a file ends, of which the units have so many each.
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

    /// Such as files have, and those about which numbers overflow.
    fn lengths() -> impl Strategy<Value = u64> {
        prop_oneof![0..1u64 << 40, any::<u64>(), (u64::MAX - (1 << 40))..=u64::MAX]
    }

    #[test]
    fn chunks_go_round_the_units() {
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
    fn a_unit_that_lags_ends_what_is_whole_and_one_that_is_ahead_ends_the_file() {
        let stripe = Stripe::new(2, 64 * KIB).unwrap();
        let chunk = 64 * KIB;
        assert_eq!((stripe.whole_prefix(&[0, 0]), stripe.end_of(&[0, 0])), (0, 0));
        assert_eq!((stripe.whole_prefix(&[chunk, 0]), stripe.end_of(&[chunk, 0])), (chunk, chunk));
        assert_eq!((stripe.whole_prefix(&[0, 5]), stripe.end_of(&[0, 5])), (0, chunk + 5));
        // Unit 0 has begun its second chunk, unit 1 has not filled its first.
        let units = [chunk + 3, chunk - 1];
        assert_eq!((stripe.whole_prefix(&units), stripe.end_of(&units)), (2 * chunk - 1, 2 * chunk + 3));
        assert_eq!(stripe.whole_prefix(&[chunk]), chunk, "a unit that is not given has nothing");
    }

    #[test]
    fn what_no_file_has_is_nowhere() {
        let stripe = Stripe::new(2, 64 * KIB).unwrap();
        assert_eq!(stripe.to_file(2, 0), None);
        assert_eq!(stripe.to_file(1, u64::MAX), None);
        assert_eq!(stripe.runs(u64::MAX - 1, 100).map(|run| run.len).sum::<u64>(), 1);
    }

    #[test]
    fn a_writer_reads_back_from_its_word() {
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
        fn each_byte_is_in_one_place_and_comes_back(stripe in stripes(), offset in lengths()) {
            let (unit, in_unit) = stripe.to_unit(offset);
            prop_assert!(unit < stripe.width());
            prop_assert_eq!(stripe.to_file(unit, in_unit), Some(offset));
            // Its unit ends behind it as soon as the file does, and not before.
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
        fn the_units_of_a_whole_file_say_how_long_it_is(stripe in stripes(), len in lengths()) {
            let units: Vec<u64> = (0..stripe.width()).map(|unit| stripe.unit_len(unit, len)).collect();
            prop_assert_eq!(units.iter().map(|&unit| u128::from(unit)).sum::<u128>(), u128::from(len));
            prop_assert_eq!(stripe.whole_prefix(&units), len);
            prop_assert_eq!(stripe.end_of(&units), len);
        }

        #[test]
        fn one_byte_less_in_a_unit_is_seen(stripe in stripes(), len in 1..1u64 << 40, which in any::<prop::sample::Index>()) {
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
