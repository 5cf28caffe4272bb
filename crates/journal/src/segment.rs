//! A segment file: its name and the page at its beginning. All numbers are little-endian.
//!
//! | bytes | what |
//! | --- | --- |
//! | 0..8 | `WEIRLOG\n` |
//! | 8..12 | format version |
//! | 12..16 | zero |
//! | 16..24 | feature bits that a reader must know |
//! | 24..32 | feature bits that a reader may ignore |
//! | 32..40 | incarnation of the journal |
//! | 40..48 | the segment's number |
//! | 48..56 | sequence number of its first record |
//! | 56..64 | sequence number of the previous segment's last record |
//! | 64..72 | size of the segment file in bytes |
//! | 72..80 | `synced_to`: the last durable record when this page was made |
//! | 80..4092 | zero |
//! | 4092..4096 | CRC32C of bytes 0..4092; keeps its position in every later version |

use types::Crc32c;

pub(crate) const PAGE: usize = 4096;
pub(crate) const PAGE_U64: u64 = PAGE as u64;
pub(crate) const FORMAT_VERSION: u32 = 1;
/// No journal gets this far: weir never writes a larger record or segment number, whatever the checksum says. The limit
/// leaves room for safe arithmetic with smaller numbers.
pub(crate) const NUMBER_MAX: u64 = 1 << 62;
const SEGMENT_BYTES_MAX: u64 = 1 << 40;
const MAGIC: [u8; 8] = *b"WEIRLOG\n";
const SUFFIX: &str = ".wseg";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SegmentHeader {
    pub(crate) incarnation: u64,
    pub(crate) segment: u64,
    pub(crate) first: u64,
    pub(crate) previous_last: u64,
    pub(crate) segment_bytes: u64,
    pub(crate) synced_to: u64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum DecodedPage {
    /// Never written.
    Zeros,
    Header(SegmentHeader),
    Bad(&'static str),
    /// Intact, but from an unknown version or with unknown features.
    Unsupported(String),
}

/// The name of the file of a segment.
pub(crate) fn file_name(segment: u64) -> String {
    format!("{segment:016x}{SUFFIX}")
}

/// The segment's number, if `name` is that of a segment file.
pub(crate) fn number_of(name: &str) -> Option<u64> {
    let hex = name.strip_suffix(SUFFIX)?;
    let number = u64::from_str_radix(hex, 16).ok()?;
    (file_name(number) == name && number > 0 && number <= NUMBER_MAX).then_some(number)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> [u8; PAGE] {
        let mut page = [0; PAGE];
        page[0..8].copy_from_slice(&MAGIC);
        page[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        let fields =
            [self.incarnation, self.segment, self.first, self.previous_last, self.segment_bytes, self.synced_to];
        for (i, field) in fields.into_iter().enumerate() {
            page[32 + 8 * i..40 + 8 * i].copy_from_slice(&field.to_le_bytes());
        }
        seal(&mut page);
        page
    }
}

fn seal(page: &mut [u8; PAGE]) {
    let crc = Crc32c::of(&page[..PAGE - 4]);
    page[PAGE - 4..].copy_from_slice(&crc.0.to_le_bytes());
}

pub(crate) fn decode(page: &[u8]) -> DecodedPage {
    let Some(page) = page.get(..PAGE) else { return DecodedPage::Bad("it is too short for its header") };
    if page.iter().all(|b| *b == 0) {
        return DecodedPage::Zeros;
    }
    if page[..8] != MAGIC {
        return DecodedPage::Bad("its header is not that of a journal segment");
    }
    if Crc32c::of(&page[..PAGE - 4]).0 != u32_at(page, PAGE - 4) {
        return DecodedPage::Bad("its header does not match its checksum");
    }
    let version = u32_at(page, 8);
    if version != FORMAT_VERSION {
        return DecodedPage::Unsupported(format!("it has format {version}, this one knows {FORMAT_VERSION}"));
    }
    let unknown = u64_at(page, 16);
    if unknown != 0 {
        return DecodedPage::Unsupported(format!("it has the unknown feature bits {unknown:#x}"));
    }
    let header = SegmentHeader {
        incarnation: u64_at(page, 32),
        segment: u64_at(page, 40),
        first: u64_at(page, 48),
        previous_last: u64_at(page, 56),
        segment_bytes: u64_at(page, 64),
        synced_to: u64_at(page, 72),
    };
    let numbers = [header.segment, header.first, header.previous_last, header.synced_to];
    if header.first == 0 || numbers.into_iter().any(|number| number > NUMBER_MAX) {
        return DecodedPage::Bad("its header gives an impossible number");
    }
    if header.segment_bytes > SEGMENT_BYTES_MAX
        || header.segment_bytes < 2 * PAGE_U64
        || !header.segment_bytes.is_multiple_of(PAGE_U64)
    {
        return DecodedPage::Bad("its header gives an impossible size");
    }
    DecodedPage::Header(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> SegmentHeader {
        SegmentHeader {
            incarnation: 0x1111_2222_3333_4444,
            segment: 7,
            first: 100,
            previous_last: 99,
            segment_bytes: 1 << 26,
            synced_to: 98,
        }
    }

    #[test]
    fn the_bytes_are_pinned() {
        let page = example().encode();
        let hex: String = page[..80].iter().chain(&page[PAGE - 4..]).map(|b| format!("{b:02x}")).collect();
        // Another program computed the same checksum.
        assert_eq!(
            hex,
            "574549524c4f470a01000000000000000000000000000000000000000000000044443333222211110700000000000000\
             640000000000000063000000000000000000000400000000620000000000000001476542"
        );
        assert!(page[80..PAGE - 4].iter().all(|b| *b == 0));
        assert_eq!(decode(&page), DecodedPage::Header(example()));
    }

    #[test]
    fn damaged_and_newer_pages_are_distinguished() {
        let page = example().encode();
        for at in [0, 9, 40, 79, 2000, PAGE - 1] {
            let mut page = page;
            page[at] ^= 4;
            assert!(matches!(decode(&page), DecodedPage::Bad(_)), "byte {at}");
        }
        let mut newer = page;
        newer[8] = 2;
        seal(&mut newer);
        assert!(matches!(decode(&newer), DecodedPage::Unsupported(what) if what.contains("format 2")));
        let mut featured = page;
        featured[16] = 8;
        seal(&mut featured);
        assert!(matches!(decode(&featured), DecodedPage::Unsupported(what) if what.contains("0x8")));
        let mut compatible = page;
        compatible[24] = 8;
        seal(&mut compatible);
        assert_eq!(decode(&compatible), DecodedPage::Header(example()));
        assert_eq!(decode(&[0; PAGE]), DecodedPage::Zeros);
    }

    #[test]
    fn only_our_names_are_segments() {
        assert_eq!(number_of(&file_name(0xabc)), Some(0xabc));
        for name in ["abc.wseg", "0000000000000ABC.wseg", "0000000000000000.wseg", "0000000000000abc", "tail"] {
            assert_eq!(number_of(name), None, "{name}");
        }
    }
}
