//! The two checksums that weir keeps: CRC32C (Castagnoli) for each page and file, and adler32 for each file, which
//! common transfer tools in physics use. Both can be combined from parts without reading the bytes again.

/// Bytes in a page, the unit of checksums at rest and in XRootD's pgread and pgwrite.
pub const PAGE_SIZE: usize = 4096;

/// A CRC32C as XRootD, iSCSI and SSE4.2 define it (reflected, initial and final value all ones).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default, serde::Serialize, serde::Deserialize)]
pub struct Crc32c(pub u32);

impl Crc32c {
    /// The checksum of no bytes.
    pub const EMPTY: Crc32c = Crc32c(0);

    /// The checksum of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(low_half(crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes)))
    }

    /// The checksum after appending `bytes` to the bytes of `self`.
    #[must_use]
    pub fn extend(self, bytes: &[u8]) -> Self {
        let mut digest = crc_fast::Digest::new_with_init_state(crc_fast::CrcAlgorithm::Crc32Iscsi, u64::from(!self.0));
        digest.update(bytes);
        Self(low_half(digest.finalize()))
    }

    /// The checksum of two concatenated parts, from the checksum of each and the length of the second.
    #[must_use]
    pub fn combine(self, second: Crc32c, second_len: u64) -> Self {
        // Each following byte multiplies the earlier ones by x^8.
        let mut shifted = self.0;
        let (mut left, mut power) = (second_len, 3);
        while left > 0 {
            if left & 1 == 1 {
                shifted = multiply(X_TO_TWO_TO[power % X_TO_TWO_TO.len()], shifted);
            }
            left >>= 1;
            power += 1;
        }
        Self(shifted ^ second.0)
    }
}

/// The polynomial of CRC32C, reflected: the highest bit is the coefficient of x^0.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// The product of two polynomials modulo [`POLYNOMIAL`].
const fn multiply(a: u32, b: u32) -> u32 {
    let (mut product, mut b, mut bit) = (0, b, 1 << 31);
    while bit != 0 {
        // Branches would be mispredicted half of the time.
        product ^= b & (((a & bit) != 0) as u32).wrapping_neg();
        b = (b >> 1) ^ (POLYNOMIAL & (b & 1).wrapping_neg());
        bit >>= 1;
    }
    product
}

/// x^(2^n) at index n. x^(2^31) is x again (modulo a polynomial of 32 bits with the factor x + 1), so indexes repeat
/// after 31.
const X_TO_TWO_TO: [u32; 31] = {
    let mut powers = [1 << 30; 31];
    let mut n = 1;
    while n < powers.len() {
        powers[n] = multiply(powers[n - 1], powers[n - 1]);
        n += 1;
    }
    powers
};

#[allow(clippy::cast_possible_truncation)] // the low half holds a 32-bit CRC
fn low_half(wide: u64) -> u32 {
    wide as u32
}

/// An adler32 (RFC 1950).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, serde::Serialize, serde::Deserialize)]
pub struct Adler32(pub u32);

const ADLER_MOD: u64 = 65_521;

impl Adler32 {
    /// The checksum of no bytes.
    pub const EMPTY: Adler32 = Adler32(1);

    /// The checksum of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(simd_adler32::adler32(&bytes))
    }

    /// The checksum of two concatenated parts, from the checksum of each and the length of the second.
    #[must_use]
    pub fn combine(self, second: Adler32, second_len: u64) -> Self {
        let (a1, b1) = (u64::from(self.0 & 0xffff), u64::from(self.0 >> 16));
        let (a2, b2) = (u64::from(second.0 & 0xffff), u64::from(second.0 >> 16));
        // a starts at 1 in both parts. b2 was computed as if the second part's a had started at 1 instead of a1.
        let a = (a1 + a2 + ADLER_MOD - 1) % ADLER_MOD;
        let b = (b1 + b2 + (second_len % ADLER_MOD) * ((a1 + ADLER_MOD - 1) % ADLER_MOD)) % ADLER_MOD;
        Self(u32::try_from((b << 16) | a).unwrap_or(u32::MAX))
    }
}

impl Default for Adler32 {
    fn default() -> Self {
        Self::EMPTY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        // RFC 3720 B.4 (32 bytes of zeros, of ones) and the classic check string.
        assert_eq!(Crc32c::of(&[0; 32]), Crc32c(0x8a91_36aa));
        assert_eq!(Crc32c::of(&[0xff; 32]), Crc32c(0x62a8_ab43));
        assert_eq!(Crc32c::of(b"123456789"), Crc32c(0xe306_9283));
        assert_eq!(Adler32::of(b"Wikipedia"), Adler32(0x11e6_0398));
        assert_eq!((Crc32c::of(b""), Adler32::of(b"")), (Crc32c::EMPTY, Adler32::EMPTY));
    }

    #[test]
    fn parts_combine_to_the_whole() {
        let bytes: Vec<u8> = (0..300_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13).to_le_bytes()[0]).collect();
        for cut in [0, 1, 7, 4096, 65_521, 65_522, 131_042, 299_999, 300_000] {
            let (first, second) = bytes.split_at(cut);
            let len = second.len() as u64;
            assert_eq!(Crc32c::of(first).combine(Crc32c::of(second), len), Crc32c::of(&bytes), "cut at {cut}");
            assert_eq!(Crc32c::of(first).extend(second), Crc32c::of(&bytes), "cut at {cut}");
            assert_eq!(Adler32::of(first).combine(Adler32::of(second), len), Adler32::of(&bytes), "cut at {cut}");
        }
        for (first, len) in [(0, 0), (1, 1), (0xdead_beef, 1 << 31), (7, (1 << 45) + 12_345), (0x8000_0000, u64::MAX)] {
            let algorithm = crc_fast::CrcAlgorithm::Crc32Iscsi;
            let peers = crc_fast::checksum_combine(algorithm, u64::from(first), 0x1234_5678, len);
            assert_eq!(Crc32c(first).combine(Crc32c(0x1234_5678), len), Crc32c(low_half(peers)), "{first} {len}");
        }
        let zeros = vec![0u8; 200_000];
        assert_eq!(Adler32::of(&zeros).combine(Adler32::of(&zeros), 200_000), Adler32::of(&vec![0u8; 400_000]));
    }
}
