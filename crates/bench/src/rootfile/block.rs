//! Decompression of what ROOT compresses: blocks of up to 16 MiB, each with 9 bytes before it that name the algorithm.

use std::io::Read as _;

use xxhash_rust::xxh3::xxh3_64;
use xxhash_rust::xxh64::xxh64;

use super::{PART_MAX, Part, RootFileError};

/// Algorithm, method, compressed and uncompressed length.
const HEADER_LEN: usize = 9;
/// Before lz4's data stands a checksum.
const LZ4_SUM: usize = 8;
/// Memory for the dictionary of an xz block, in KiB; ROOT's blocks are smaller than 16 MiB.
const XZ_MEMORY_KIB: u32 = 256 << 10;

/// Decompresses parts, one after the other, with what the algorithms keep between.
#[derive(Default)]
pub struct Unpacker {
    zlib: Option<flate2::Decompress>,
    zstd: Option<zstd::bulk::Decompressor<'static>>,
}

impl std::fmt::Debug for Unpacker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unpacker").finish_non_exhaustive()
    }
}

impl Unpacker {
    /// Puts the uncompressed data of `part`, whose bytes are `record`, into `out`, in place of what was there. Lengths and the checksums that
    /// the format has are compared.
    ///
    /// # Errors
    /// [`RootFileError`]: an unknown algorithm, a wrong checksum, or other lengths than were said.
    pub fn unpack(&mut self, part: &Part, record: &[u8], out: &mut Vec<u8>) -> Result<(), RootFileError> {
        let wrong = |what: String| RootFileError::malformed(part.offset, what);
        out.clear();
        let (before, behind) = (index(part.before), index(part.behind));
        let data = record.len().checked_sub(behind).and_then(|end| record.get(before..end));
        let Some(data) = data.filter(|_| record.len() == index(part.bytes)) else {
            return Err(wrong(format!("{} bytes where {} belong", record.len(), part.bytes)));
        };
        if behind == 8 && record.get(record.len() - 8..) != Some(&xxh3_64(data).to_le_bytes()[..]) {
            return Err(RootFileError::Checksum { offset: part.offset, what: "a page" });
        }
        if part.uncompressed > PART_MAX {
            return Err(wrong(format!("{} bytes uncompressed; at most {PART_MAX}", part.uncompressed)));
        }
        let wanted = index(part.uncompressed);
        if data.len() == wanted {
            out.extend_from_slice(data);
            return Ok(());
        }
        let mut left = data;
        while out.len() < wanted {
            let header =
                left.get(..HEADER_LEN).ok_or_else(|| wrong("a compressed block without a header".to_owned()))?;
            let number = |at: usize| header.get(at..at + 3).unwrap_or_default().iter().rev();
            let number = |at: usize| number(at).fold(0, |sum, byte| sum << 8 | usize::from(*byte));
            let (packed, plain) = (number(3), number(6));
            let Some(block) = left.get(HEADER_LEN..HEADER_LEN + packed) else {
                return Err(wrong(format!("a block of {packed} bytes, where {} are left", left.len() - HEADER_LEN)));
            };
            if plain == 0 || plain > wanted - out.len() {
                return Err(wrong(format!(
                    "a block of {plain} bytes uncompressed, where {} are missing",
                    wanted - out.len()
                )));
            }
            let begin = out.len();
            out.resize(begin + plain, 0);
            let room = out.get_mut(begin..).unwrap_or_default();
            let done = self.block([header[0], header[1]], block, room, part.offset)?;
            if done != plain {
                return Err(wrong(format!("a block holds {done} bytes where {plain} were said")));
            }
            left = left.get(HEADER_LEN + packed..).unwrap_or_default();
        }
        if left.is_empty() { Ok(()) } else { Err(wrong(format!("{} bytes behind the last block", left.len()))) }
    }

    /// Bytes that the block holds; more than there is room for is an error.
    fn block(
        &mut self,
        algorithm: [u8; 2],
        block: &[u8],
        room: &mut [u8],
        offset: u64,
    ) -> Result<usize, RootFileError> {
        let wrong = |name: &str, why: String| RootFileError::malformed(offset, format!("a block of {name}: {why}"));
        match &algorithm {
            b"ZL" => {
                let zlib = self.zlib.get_or_insert_with(|| flate2::Decompress::new(true));
                zlib.reset(true);
                let ended = zlib.decompress(block, room, flate2::FlushDecompress::Finish);
                match ended {
                    Ok(flate2::Status::StreamEnd) => Ok(usize::try_from(zlib.total_out()).unwrap_or(0)),
                    Ok(_) => Err(wrong("zlib", "it does not end where it was said to".to_owned())),
                    Err(error) => Err(wrong("zlib", error.to_string())),
                }
            }
            b"ZS" => {
                if self.zstd.is_none() {
                    let made = zstd::bulk::Decompressor::new();
                    self.zstd = Some(made.map_err(|error| wrong("zstd", error.to_string()))?);
                }
                let Some(zstd) = &mut self.zstd else { return Ok(0) };
                zstd.decompress_to_buffer(block, room).map_err(|error| wrong("zstd", error.to_string()))
            }
            b"L4" => {
                let (sum, data) =
                    block.split_at_checked(LZ4_SUM).ok_or_else(|| wrong("lz4", "no checksum".to_owned()))?;
                if xxh64(data, 0).to_be_bytes() != *sum {
                    return Err(RootFileError::Checksum { offset, what: "a block of lz4" });
                }
                lz4_flex::block::decompress_into(data, room).map_err(|error| wrong("lz4", error.to_string()))
            }
            b"XZ" => {
                let mut reader = lzma_rust2::XzReader::new_mem_limit(block, false, XZ_MEMORY_KIB);
                let failed = |error: std::io::Error| wrong("xz", error.to_string());
                reader.read_exact(room).map_err(failed)?;
                // To its end: there its checksum is compared.
                match reader.read(&mut [0]).map_err(failed)? {
                    0 => Ok(room.len()),
                    _ => Err(wrong("xz", "it holds more than was said".to_owned())),
                }
            }
            b"CS" => Err(RootFileError::unsupported(format!(
                "at byte {offset}: compressed by ROOT's first algorithm (`CS`), which no program writes any more"
            ))),
            other => Err(wrong("an unknown algorithm", format!("`{}`", other.escape_ascii()))),
        }
    }
}

fn index(n: u32) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use proptest::prelude::*;

    use super::*;

    fn part(bytes: usize, uncompressed: usize) -> Part {
        let (bytes, uncompressed) = (u32::try_from(bytes).unwrap(), u32::try_from(uncompressed).unwrap());
        Part { offset: 0, bytes, before: 0, behind: 0, uncompressed, first_entry: 0, entries: 0 }
    }

    fn block(algorithm: &[u8; 3], packed: &[u8], plain: usize) -> Vec<u8> {
        let number = |n: usize| n.to_le_bytes()[..3].to_vec();
        [algorithm.to_vec(), number(packed.len()), number(plain), packed.to_vec()].concat()
    }

    fn zlib(plain: &[u8]) -> Vec<u8> {
        let mut packer = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::new(1));
        packer.write_all(plain).unwrap();
        block(b"ZL\x08", &packer.finish().unwrap(), plain.len())
    }

    fn all(plain: &[u8]) -> [Vec<u8>; 3] {
        let zstd = zstd::bulk::compress(plain, 1).unwrap();
        let lz4 = lz4_flex::block::compress(plain);
        let lz4 = [&xxh64(&lz4, 0).to_be_bytes()[..], &lz4].concat();
        [zlib(plain), block(b"ZS\x01", &zstd, plain.len()), block(b"L4\x01", &lz4, plain.len())]
    }

    #[test]
    fn each_algorithm_gives_back_what_was_packed() {
        let plain: Vec<u8> = (0..100_000_u32).map(|n| (n / 7 % 251) as u8).collect();
        let mut unpacker = Unpacker::default();
        let mut out = vec![1; 3];
        for packed in all(&plain) {
            unpacker.unpack(&part(packed.len(), plain.len()), &packed, &mut out).unwrap();
            assert!(out == plain);
            let two = [packed.clone(), zlib(b"and a block of another")].concat();
            unpacker.unpack(&part(two.len(), plain.len() + 22), &two, &mut out).unwrap();
            assert!(out.ends_with(b"another") && out.len() == plain.len() + 22);
        }
        unpacker.unpack(&part(3, 3), b"raw", &mut out).unwrap();
        assert_eq!(out, b"raw");
    }

    #[test]
    fn other_lengths_than_were_said_are_refused() {
        let plain = vec![7; 1000];
        let mut unpacker = Unpacker::default();
        for packed in all(&plain) {
            for wanted in [999, 1001, 2000] {
                unpacker.unpack(&part(packed.len(), wanted), &packed, &mut Vec::new()).unwrap_err();
            }
            let mut more = packed.clone();
            more.push(0);
            unpacker.unpack(&part(more.len(), 1000), &more, &mut Vec::new()).unwrap_err();
            let mut other = packed.clone();
            other[6] ^= 1;
            unpacker.unpack(&part(other.len(), 1000), &other, &mut Vec::new()).unwrap_err();
        }
        let old = block(b"CS\x08", b"1234", 1000);
        let said = unpacker.unpack(&part(old.len(), 1000), &old, &mut Vec::new()).unwrap_err().to_string();
        assert!(said.contains("`CS`"), "{said}");
        let page = Part { behind: 8, ..part(11, 3) };
        let sum = xxh3_64(b"raw").to_le_bytes();
        let mut out = Vec::new();
        unpacker.unpack(&page, &[&b"raw"[..], &sum].concat(), &mut out).unwrap();
        unpacker.unpack(&page, &[&b"rew"[..], &sum].concat(), &mut out).unwrap_err();
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic_or_give_a_wrong_length(
            which in 0..4_usize,
            wanted in 0..5000_usize,
            noise in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let algorithm = [b"ZL\x08", b"ZS\x01", b"L4\x01", b"XZ\x00"][which];
            let packed = block(algorithm, &noise, wanted);
            let mut out = Vec::new();
            if Unpacker::default().unpack(&part(packed.len(), wanted), &packed, &mut out).is_ok() {
                prop_assert_eq!(out.len(), wanted);
            }
        }
    }
}
