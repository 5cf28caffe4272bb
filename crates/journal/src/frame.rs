//! A record on disk: 48 bytes of header, the payload, zeros up to a multiple of 8. All numbers little-endian.
//!
//! | bytes | what |
//! | --- | --- |
//! | 0..4 | `57 4a 52 46` ("WJRF") |
//! | 4..8 | CRC32C of bytes 8..48 |
//! | 8..12 | length of the payload |
//! | 12..16 | CRC32C of the payload |
//! | 16..24 | sequence number |
//! | 24..32 | incarnation of the journal |
//! | 32..40 | `synced_to`: the last durable record at the time of the append |
//! | 40..44 | low half of the segment's number |
//! | 44 | stream |
//! | 45 | frame version |
//! | 46..48 | flags; a reader must stop at an unknown one in the high byte |

use types::Crc32c;

use crate::segment::NUMBER_MAX;

pub(crate) const HEADER_LEN: usize = 48;
pub(crate) const VERSION: u8 = 1;
/// The record is a mark that the journal wrote for itself.
pub(crate) const FLAG_MARK: u16 = 1;
/// The mark was written at a clean stop.
pub(crate) const FLAG_CLEAN: u16 = 2;
const FLAGS_INCOMPATIBLE: u16 = 0xff00;
const MAGIC: [u8; 4] = *b"WJRF";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FrameHeader {
    pub(crate) len: u32,
    pub(crate) payload_crc: Crc32c,
    pub(crate) seq: u64,
    pub(crate) incarnation: u64,
    pub(crate) synced_to: u64,
    pub(crate) segment: u32,
    pub(crate) stream: u8,
    pub(crate) version: u8,
    pub(crate) flags: u16,
}

/// The result of decoding a header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Decoded {
    Zeros,
    Frame(FrameHeader),
    Bad(&'static str),
}

/// The low half of a segment's number, as stored in frames.
pub(crate) fn low_half(segment: u64) -> u32 {
    u32::try_from(segment & 0xffff_ffff).unwrap_or(0)
}

/// Bytes of a frame with this payload.
pub(crate) fn frame_len(payload: u64) -> u64 {
    (HEADER_LEN as u64 + payload).next_multiple_of(8)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
}

impl FrameHeader {
    pub(crate) fn encode(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[0..4].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&self.len.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.payload_crc.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.seq.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.incarnation.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.synced_to.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.segment.to_le_bytes());
        bytes[44] = self.stream;
        bytes[45] = self.version;
        bytes[46..48].copy_from_slice(&self.flags.to_le_bytes());
        let crc = Crc32c::of(&bytes[8..]);
        bytes[4..8].copy_from_slice(&crc.0.to_le_bytes());
        bytes
    }

    /// Why this version of weir must not read on; `None` if it may.
    pub(crate) fn unsupported(&self) -> Option<String> {
        if self.version != VERSION {
            return Some(format!("record {} has version {}, this one knows {VERSION}", self.seq, self.version));
        }
        let unknown = self.flags & FLAGS_INCOMPATIBLE;
        (unknown != 0).then(|| format!("record {} has the unknown feature bits {unknown:#06x}", self.seq))
    }
}

/// Reads the header in the first 48 bytes of `bytes`.
pub(crate) fn decode(bytes: &[u8], check: bool) -> Decoded {
    let Some(bytes) = bytes.get(..HEADER_LEN) else { return Decoded::Zeros };
    if bytes[..4] != MAGIC {
        let zeros = bytes.iter().all(|b| *b == 0);
        return if zeros { Decoded::Zeros } else { Decoded::Bad("no record begins here") };
    }
    if check && Crc32c::of(&bytes[8..]).0 != u32_at(bytes, 4) {
        return Decoded::Bad("the record's header does not match its checksum");
    }
    if u64_at(bytes, 16) > NUMBER_MAX || u64_at(bytes, 32) > NUMBER_MAX {
        return Decoded::Bad("the record's header gives an impossible number");
    }
    Decoded::Frame(FrameHeader {
        len: u32_at(bytes, 8),
        payload_crc: Crc32c(u32_at(bytes, 12)),
        seq: u64_at(bytes, 16),
        incarnation: u64_at(bytes, 24),
        synced_to: u64_at(bytes, 32),
        segment: u32_at(bytes, 40),
        stream: bytes[44],
        version: bytes[45],
        flags: u16::from_le_bytes([bytes[46], bytes[47]]),
    })
}

/// The offsets in `bytes` (multiples of 8) at which a complete frame header stands.
pub(crate) fn find_headers(bytes: &[u8]) -> impl Iterator<Item = (usize, FrameHeader)> + '_ {
    (0..bytes.len().saturating_sub(HEADER_LEN - 1)).step_by(8).filter_map(|at| {
        if bytes[at..at + 4] != MAGIC {
            return None;
        }
        match decode(&bytes[at..], true) {
            Decoded::Frame(header) => Some((at, header)),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> FrameHeader {
        FrameHeader {
            len: 5,
            payload_crc: Crc32c::of(b"hello"),
            seq: 0x0102_0304_0506_0708,
            incarnation: 0xa1a2_a3a4_a5a6_a7a8,
            synced_to: 0x0102_0304_0506_0700,
            segment: 9,
            stream: 3,
            version: VERSION,
            flags: FLAG_MARK,
        }
    }

    #[test]
    fn the_bytes_are_pinned() {
        let hex: String = example().encode().iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(
            hex,
            "574a5246c51db0c0050000004cbb719a0807060504030201a8a7a6a5a4a3a2a1000706050403020109000000\
             03010100"
        );
    }

    #[test]
    fn every_flipped_bit_is_seen() {
        let bytes = example().encode();
        assert_eq!(decode(&bytes, true), Decoded::Frame(example()));
        for bit in 0..HEADER_LEN * 8 {
            let mut bytes = bytes;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(decode(&bytes, true), Decoded::Bad(_)), "bit {bit}");
        }
        assert_eq!(decode(&[0; 48], true), Decoded::Zeros);
        assert_eq!(decode(&[0; 47], true), Decoded::Zeros);
    }

    #[test]
    fn newer_frames_are_refused_with_a_reason() {
        assert_eq!(example().unsupported(), None);
        assert!(FrameHeader { version: 2, ..example() }.unsupported().is_some_and(|w| w.contains("version 2")));
        assert!(FrameHeader { flags: 0x0100, ..example() }.unsupported().is_some_and(|w| w.contains("0x0100")));
        assert_eq!(FrameHeader { flags: 0x0080, ..example() }.unsupported(), None);
    }
}
