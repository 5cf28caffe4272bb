//! The encryption of credentials, `bf32` in the protocol: Blowfish in the mode CFB with 64 bits, that begins with zeros, over the
//! data and their CRC32 (`XrdCryptoLite_bf32.cc`).

use blowfish::Blowfish;

/// Length of the checksum.
const CHECKSUM_LEN: usize = 4;
/// Length of a block.
const BLOCK_LEN: usize = 8;

/// The cipher with a key.
struct Cipher(Blowfish);

impl Cipher {
    /// For a key of any length. Blowfish uses the first 72 bytes, and repeats shorter keys up to there.
    fn new(key: &[u8]) -> Self {
        // The usual way to make one refuses keys beyond 56 bytes, and `xrdsssadmin` makes them up to 128. This is the same
        // schedule.
        let mut blowfish = Blowfish::bc_init_state();
        blowfish.bc_expand_key(key);
        Self(blowfish)
    }

    /// The bytes that the block after `block` is combined with.
    fn stream(&self, block: [u8; BLOCK_LEN]) -> [u8; BLOCK_LEN] {
        let both = u64::from_be_bytes(block);
        let [left, right] = self.0.bc_encrypt([high_half(both), low_half(both)]);
        (u64::from(left) << 32 | u64::from(right)).to_be_bytes()
    }
}

#[allow(clippy::cast_possible_truncation)] // the other half is shifted away
fn high_half(both: u64) -> u32 {
    (both >> 32) as u32
}

#[allow(clippy::cast_possible_truncation)] // the half that is meant
fn low_half(both: u64) -> u32 {
    both as u32
}

fn checksum(data: &[u8]) -> [u8; CHECKSUM_LEN] {
    low_half(crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, data)).to_be_bytes()
}

/// Encrypts `data` and their checksum.
pub(crate) fn seal(key: &[u8], data: &[u8]) -> Vec<u8> {
    let cipher = Cipher::new(key);
    let mut bytes = [data, &checksum(data)].concat();
    let mut before = [0; BLOCK_LEN];
    for block in bytes.chunks_mut(BLOCK_LEN) {
        let stream = cipher.stream(before);
        block.iter_mut().zip(stream).for_each(|(byte, mask)| *byte ^= mask);
        // A shorter block is the last one.
        before[..block.len()].copy_from_slice(block);
    }
    bytes
}

/// Decrypts what [`seal`] has encrypted; `None`: the checksum is wrong, so it was another key.
pub(crate) fn open(key: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
    let cipher = Cipher::new(key);
    let mut bytes = sealed.to_vec();
    let mut before = [0; BLOCK_LEN];
    for (block, encrypted) in bytes.chunks_mut(BLOCK_LEN).zip(sealed.chunks(BLOCK_LEN)) {
        let stream = cipher.stream(before);
        block.iter_mut().zip(stream).for_each(|(byte, mask)| *byte ^= mask);
        before[..encrypted.len()].copy_from_slice(encrypted);
    }
    let data_len = bytes.len().checked_sub(CHECKSUM_LEN)?;
    let sum: Vec<u8> = bytes.split_off(data_len);
    (checksum(&bytes) == *sum).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    }

    /// Single blocks, from the vectors that Blowfish's author has published.
    #[test]
    fn the_cipher_is_blowfish() {
        for (key, clear, encrypted) in [
            ("0000000000000000", "0000000000000000", "4ef997456198dd78"),
            ("0123456789abcdef", "1111111111111111", "61f9c3802281b096"),
            ("f0e1d2c3b4a5968778695a4b3c2d1e0f0011223344556677", "fedcba9876543210", "05044b62fa52d080"),
        ] {
            let block: [u8; 8] = bytes(clear).try_into().unwrap();
            assert_eq!(Cipher::new(&bytes(key)).stream(block).to_vec(), bytes(encrypted), "{key}");
        }
    }

    /// What OpenSSL makes of a text and its CRC32 (`EVP_bf_cfb64`, with zeros as the beginning).
    #[test]
    fn the_mode_is_that_of_openssl() {
        let key = bytes("0123456789abcdeff0e1d2c3b4a5968778695a4b3c2d1e0f0011223344556677");
        let sealed = seal(&key, b"7654321 Now is the time for");
        assert_eq!(sealed, bytes("7cfb4f41d6275ee35db7c0d574052a0c752a355dbf04051269766f3b492d6b"));
    }

    /// Who can change the checksum as well must hit all of its 32 bits, unless it is in the block that was changed. Then it is
    /// known how it changes: this is what the protocol cannot notice.
    #[test]
    fn a_changed_block_is_noticed_with_its_checksum_repaired_unless_it_is_the_last() {
        let (key, data) = (bytes("0123456789abcdeff0e1d2c3b4a59687"), [7; 28]);
        let sealed = seal(&key, &data);
        for at in 0..data.len() {
            let mut other = data;
            other[at] ^= 0x10;
            let mut changed = sealed.clone();
            changed[at] ^= 0x10;
            let sums = checksum(&data).into_iter().zip(checksum(&other));
            changed[data.len()..].iter_mut().zip(sums).for_each(|(byte, (was, is))| *byte ^= was ^ is);
            assert_eq!(open(&key, &changed), (at >= 24).then(|| other.to_vec()), "{at}");
        }
    }

    #[test]
    fn another_key_or_a_changed_byte_is_noticed() {
        let key = bytes("0123456789abcdeff0e1d2c3b4a59687");
        let data = b"7654321 Now is the time for ".to_vec();
        let sealed = seal(&key, &data);
        assert_eq!(open(&key, &sealed).unwrap(), data);
        assert_eq!(open(&bytes("0123456789abcdeff0e1d2c3b4a59688"), &sealed), None);
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 0x10;
            assert_eq!(open(&key, &changed), None, "{at}");
        }
        for end in 0..sealed.len() {
            assert_eq!(open(&key, &sealed[..end]), None, "{end}");
        }
    }

    #[test]
    fn keys_count_up_to_72_bytes() {
        let key: Vec<u8> = (0..128).collect();
        let sealed = seal(&key, b"data");
        assert_eq!(open(&key[..72], &sealed).unwrap(), b"data");
        assert_eq!(open(&key[..71], &sealed), None);
    }

    proptest! {
        #[test]
        fn what_was_sealed_opens(key in prop::collection::vec(any::<u8>(), 1..128), data in prop::collection::vec(any::<u8>(), 0..100)) {
            prop_assert_eq!(open(&key, &seal(&key, &data)).unwrap(), data);
        }

        #[test]
        fn outside_bytes_do_not_panic(key in prop::collection::vec(any::<u8>(), 1..128), data in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = open(&key, &data);
        }
    }
}
