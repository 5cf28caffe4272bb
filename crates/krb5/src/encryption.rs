//! Encryption types: AES in CBC mode with ciphertext stealing, and a MAC. RFC 3962 has them with SHA-1, and RFC 8009 with SHA-2.
//!
//! A server only decrypts. Each use of a key has a number, from which the keys of its cipher and of its MAC are derived.

use aes::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use aes::{Aes128, Aes256};
use ring::hmac;

use crate::fold::fold;

/// The length of a block of AES.
const BLOCK: usize = 16;
/// The random bytes before each text.
const CONFOUNDER: usize = BLOCK;
/// The longest key.
const KEY_BYTES_MAX: usize = 32;

/// What a key is used for (RFC 4120, section 7.5.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Usage {
    /// The secret part of a ticket.
    Ticket = 2,
    /// The authenticator of a `KRB_AP_REQ`.
    Authenticator = 11,
}

/// An encryption type that is known here.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum EncryptionType {
    /// `aes128-cts-hmac-sha1-96`
    Aes128Sha1,
    /// `aes256-cts-hmac-sha1-96`
    Aes256Sha1,
    /// `aes128-cts-hmac-sha256-128`
    Aes128Sha256,
    /// `aes256-cts-hmac-sha384-192`
    Aes256Sha384,
}

impl EncryptionType {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Aes128Sha1, Self::Aes256Sha1, Self::Aes128Sha256, Self::Aes256Sha384];

    /// Its number in the protocol.
    #[must_use]
    pub fn number(self) -> i32 {
        match self {
            Self::Aes128Sha1 => 17,
            Self::Aes256Sha1 => 18,
            Self::Aes128Sha256 => 19,
            Self::Aes256Sha384 => 20,
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Aes128Sha1 => "aes128-cts-hmac-sha1-96",
            Self::Aes256Sha1 => "aes256-cts-hmac-sha1-96",
            Self::Aes128Sha256 => "aes128-cts-hmac-sha256-128",
            Self::Aes256Sha384 => "aes256-cts-hmac-sha384-192",
        }
    }

    /// The type with this number. `None`: it is not known here.
    #[must_use]
    pub fn of_number(number: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.number() == number)
    }

    fn key_len(self) -> usize {
        match self {
            Self::Aes128Sha1 | Self::Aes128Sha256 => 16,
            Self::Aes256Sha1 | Self::Aes256Sha384 => 32,
        }
    }

    fn mac_len(self) -> usize {
        match self {
            Self::Aes128Sha1 | Self::Aes256Sha1 => 12,
            Self::Aes128Sha256 => 16,
            Self::Aes256Sha384 => 24,
        }
    }

    fn algorithm(self) -> hmac::Algorithm {
        match self {
            Self::Aes128Sha1 | Self::Aes256Sha1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
            Self::Aes128Sha256 => hmac::HMAC_SHA256,
            Self::Aes256Sha384 => hmac::HMAC_SHA384,
        }
    }

    /// Whether the MAC is over the ciphertext. With SHA-1 it is over the text.
    fn is_mac_of_ciphertext(self) -> bool {
        matches!(self, Self::Aes128Sha256 | Self::Aes256Sha384)
    }
}

/// A key. It is never shown.
#[derive(Clone)]
pub(crate) struct Key {
    pub(crate) kind: EncryptionType,
    bytes: Vec<u8>,
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Key({})", self.kind.name())
    }
}

impl Key {
    /// A key for an encryption type. `None`: it has another length.
    pub(crate) fn new(kind: EncryptionType, bytes: &[u8]) -> Option<Self> {
        (bytes.len() == kind.key_len()).then(|| Self { kind, bytes: bytes.to_vec() })
    }

    /// The text in `sealed`. `None`: another key has encrypted it, for another use, or it was changed.
    pub(crate) fn open(&self, usage: Usage, sealed: &[u8]) -> Option<Vec<u8>> {
        let end = sealed.len().checked_sub(self.kind.mac_len())?;
        let (ciphertext, mac) = sealed.split_at(end);
        if ciphertext.len() < CONFOUNDER {
            return None;
        }
        let cipher = Cipher::new(&self.derived(usage, Part::Cipher));
        let check = hmac::Key::new(self.kind.algorithm(), &self.derived(usage, Part::Mac));
        if self.kind.is_mac_of_ciphertext() {
            // The first block of the cipher is zeros, and is covered too.
            let signed = [&[0; BLOCK][..], ciphertext].concat();
            is_equal(mac, hmac::sign(&check, &signed).as_ref()).then_some(())?;
            return Some(cipher.decrypt(ciphertext).split_off(CONFOUNDER));
        }
        let mut text = cipher.decrypt(ciphertext);
        is_equal(mac, hmac::sign(&check, &text).as_ref()).then_some(())?;
        Some(text.split_off(CONFOUNDER))
    }

    /// The key of the cipher or of the MAC, for one use.
    fn derived(&self, usage: Usage, part: Part) -> Vec<u8> {
        let mut label = [0; 5];
        label[..4].copy_from_slice(&(usage as u32).to_be_bytes());
        label[4] = part as u8;
        if self.kind.is_mac_of_ciphertext() {
            self.derived_by_hmac(&label, part)
        } else {
            self.derived_by_cipher(&label)
        }
    }

    /// `DK` of RFC 3961, section 5.1: the folded label is encrypted again and again.
    fn derived_by_cipher(&self, label: &[u8]) -> Vec<u8> {
        let cipher = Cipher::new(&self.bytes);
        let mut block = fold(label);
        let mut key = Vec::with_capacity(KEY_BYTES_MAX);
        while key.len() < self.kind.key_len() {
            block = cipher.encrypt_block(block);
            key.extend_from_slice(&block);
        }
        key
    }

    /// `KDF-HMAC-SHA2` of RFC 8009, section 3.
    fn derived_by_hmac(&self, label: &[u8], part: Part) -> Vec<u8> {
        let len = if part == Part::Mac { self.kind.mac_len() } else { self.kind.key_len() };
        let bits = u32::try_from(8 * len).unwrap_or(u32::MAX);
        let counted = [&1_u32.to_be_bytes()[..], label, &[0], &bits.to_be_bytes()].concat();
        let key = hmac::Key::new(self.kind.algorithm(), &self.bytes);
        let derived = hmac::sign(&key, &counted);
        derived.as_ref().iter().copied().take(len).collect()
    }
}

/// What a derived key is for: the last byte of its label.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Cipher = 0xaa,
    Mac = 0x55,
}

/// Whether `mac` is the beginning of `whole`. All bytes are compared, so that the time does not say how many fit.
fn is_equal(mac: &[u8], whole: &[u8]) -> bool {
    mac.len() <= whole.len() && mac.iter().zip(whole).fold(0, |differing, (one, other)| differing | (one ^ other)) == 0
}

/// AES with a key.
enum Cipher {
    Short(Box<Aes128>),
    Long(Box<Aes256>),
}

type Block = [u8; BLOCK];

impl Cipher {
    /// A key of 16 or 32 bytes.
    fn new(key: &[u8]) -> Self {
        match <[u8; 16]>::try_from(key) {
            Ok(short) => Self::Short(Box::new(Aes128::new(&short.into()))),
            Err(_) => {
                let mut long = [0; KEY_BYTES_MAX];
                let len = key.len().min(long.len());
                long[..len].copy_from_slice(&key[..len]);
                Self::Long(Box::new(Aes256::new(&long.into())))
            }
        }
    }

    fn encrypt_block(&self, block: Block) -> Block {
        let mut block = block.into();
        match self {
            Self::Short(cipher) => cipher.encrypt_block(&mut block),
            Self::Long(cipher) => cipher.encrypt_block(&mut block),
        }
        block.into()
    }

    fn decrypt_block(&self, block: Block) -> Block {
        let mut block = block.into();
        match self {
            Self::Short(cipher) => cipher.decrypt_block(&mut block),
            Self::Long(cipher) => cipher.decrypt_block(&mut block),
        }
        block.into()
    }

    /// Decrypts CBC with ciphertext stealing (RFC 3962, section 5): the last two blocks have changed places, and the last one is cut. A
    /// text of one block is plain CBC. `sealed` has a block at least.
    fn decrypt(&self, sealed: &[u8]) -> Vec<u8> {
        let mut text = Vec::with_capacity(sealed.len());
        let mut before: Block = [0; BLOCK];
        let (whole, last) = match sealed.len() {
            len if len <= BLOCK => (sealed, &[][..]),
            // The last part has at least one byte.
            len => sealed.split_at((len - 1) / BLOCK * BLOCK),
        };
        let (blocks, _) = whole.as_chunks::<BLOCK>();
        let (plain, stolen) =
            if last.is_empty() { (blocks, None) } else { (&blocks[..blocks.len() - 1], blocks.last()) };
        for block in plain {
            text.extend_from_slice(&xor(self.decrypt_block(*block), before));
            before = *block;
        }
        if let Some(stolen) = stolen {
            let inner = self.decrypt_block(*stolen);
            // The end of the block before it was not sent: it is here.
            let mut filled = inner;
            filled[..last.len()].copy_from_slice(last);
            text.extend_from_slice(&xor(self.decrypt_block(filled), before));
            text.extend(inner.iter().zip(last).map(|(one, other)| one ^ other));
        }
        text
    }
}

fn xor(one: Block, other: Block) -> Block {
    std::array::from_fn(|at| one[at] ^ other[at])
}

/// What a KDC and a client do.
#[cfg(test)]
pub(crate) mod sealing {
    use super::*;

    impl Key {
        /// Encrypts `text`, with random bytes that are always the same.
        pub(crate) fn seal(&self, usage: Usage, text: &[u8]) -> Vec<u8> {
            let text = [&[7; CONFOUNDER][..], text].concat();
            let ciphertext = encrypt(&Cipher::new(&self.derived(usage, Part::Cipher)), &text);
            let check = hmac::Key::new(self.kind.algorithm(), &self.derived(usage, Part::Mac));
            let mac = if self.kind.is_mac_of_ciphertext() {
                hmac::sign(&check, &[&[0; BLOCK][..], &ciphertext].concat())
            } else {
                hmac::sign(&check, &text)
            };
            [&ciphertext, &mac.as_ref()[..self.kind.mac_len()]].concat()
        }
    }

    /// CBC with zeros behind the text; then the last two blocks change places, and what is too long is cut.
    fn encrypt(cipher: &Cipher, text: &[u8]) -> Vec<u8> {
        let mut before = [0; BLOCK];
        let mut blocks: Vec<Block> = Vec::new();
        for part in text.chunks(BLOCK) {
            let mut block = [0; BLOCK];
            block[..part.len()].copy_from_slice(part);
            before = cipher.encrypt_block(xor(block, before));
            blocks.push(before);
        }
        if let [.., one, other] = blocks.as_mut_slice() {
            std::mem::swap(one, other);
        }
        let mut sealed = blocks.concat();
        sealed.truncate(text.len());
        sealed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        (0..hex.len()).step_by(2).map(digit).collect()
    }

    #[test]
    fn texts_of_other_programs_are_decrypted() {
        use EncryptionType::{Aes128Sha1, Aes128Sha256, Aes256Sha1, Aes256Sha384};
        // From the tests of MIT Kerberos (`t_decrypt.c`) for the usage 2, and from RFC 8009, appendix A.
        for (kind, key, text, sealed) in [
            (
                Aes128Sha1,
                "9062430C8CDA3388922E6D6A509F5B7A",
                &b"9 bytesss"[..],
                "68FB9679601F45C78857B2BF820FD6E53ECA8D42FD4B1D7024A09205ABB7CD2EC26C355D2F",
            ),
            (
                Aes256Sha1,
                "B1AE4CD8462AFF1677053CC9279AAC30B796FB81CE21474DD3DDBCFEA4EC76D7",
                b"9 bytesss",
                "09957AA25FCAF88F7B39E4406E633012D5FEA21853F6478DA7065CAEF41FD454A40824EEC5",
            ),
            (
                Aes128Sha256,
                "3705D96080C17728A0E800EAB6E0D23C",
                b"",
                "EF85FB890BB8472F4DAB20394DCA781DAD877EDA39D50C870C0D5A0A8E48C718",
            ),
            (
                Aes128Sha256,
                "3705D96080C17728A0E800EAB6E0D23C",
                &[0, 1, 2, 3, 4, 5],
                "84D7F30754ED987BAB0BF3506BEB09CFB55402CEF7E6877CE99E247E52D16ED4421DFDF8976C",
            ),
            (
                Aes256Sha384,
                "6D404D37FAF79F9DF0D33568D320669800EB4836472EA8A026D16B7182460C52",
                b"",
                "41F53FA5BFE7026D91FAF9BE959195A058707273A96A40F0A01960621AC612748B9BBFBE7EB4CE3C",
            ),
        ] {
            let key = Key::new(kind, &bytes(key)).unwrap();
            assert_eq!(key.open(Usage::Ticket, &bytes(sealed)).as_deref(), Some(text), "{kind:?}");
            assert_eq!(key.open(Usage::Authenticator, &bytes(sealed)), None, "{kind:?}");
        }
    }

    #[test]
    fn only_the_same_key_opens_what_nobody_has_changed() {
        for kind in EncryptionType::ALL {
            assert_eq!(EncryptionType::of_number(kind.number()), Some(kind));
            let key = Key::new(kind, &vec![3; kind.key_len()]).unwrap();
            let other = Key::new(kind, &vec![4; kind.key_len()]).unwrap();
            for len in [0, 1, 15, 16, 17, 31, 32, 33, 100] {
                let text: Vec<u8> = (0..len).collect();
                let sealed = key.seal(Usage::Ticket, &text);
                assert_eq!(key.open(Usage::Ticket, &sealed), Some(text), "{kind:?} {len}");
                assert_eq!(other.open(Usage::Ticket, &sealed), None);
                assert_eq!(key.open(Usage::Authenticator, &sealed), None);
                for at in 0..sealed.len() {
                    let mut changed = sealed.clone();
                    changed[at] ^= 0x10;
                    assert_eq!(key.open(Usage::Ticket, &changed), None, "{kind:?} {len} {at}");
                    assert_eq!(key.open(Usage::Ticket, &sealed[..at]), None, "{kind:?} {len} {at}");
                }
            }
            assert!(Key::new(kind, &[0; 24]).is_none());
            assert_eq!(format!("{key:?}"), format!("Key({})", kind.name()));
        }
        // Single DES, triple DES, RC4.
        for number in [1, 3, 16, 23, 0, -1] {
            assert_eq!(EncryptionType::of_number(number), None);
        }
    }
}
