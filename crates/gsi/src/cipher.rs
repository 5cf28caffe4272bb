//! Encryption of the inner frame (`XrdCryptosslCipher`): AES in CBC mode with the padding of PKCS #7. The key is the beginning of the
//! shared secret. The first block is random and goes in front of the ciphertext, as since version 10400.

use cbc::cipher::block_padding::Pkcs7;
use cbc::cipher::{BlockModeDecrypt, BlockModeEncrypt, KeyIvInit};

use crate::{NoRandom, Random};

/// The longest key, in bytes.
pub(crate) const KEY_BYTES_MAX: usize = 32;
/// The length of the random block.
const IV_LEN: usize = 16;

/// A cipher.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cipher {
    /// AES with 256 bits.
    Aes256,
    /// AES with 128 bits.
    Aes128,
}

impl Cipher {
    /// All of them, the best one first.
    pub const ALL: [Self; 2] = [Self::Aes256, Self::Aes128];

    /// The name, as OpenSSL has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Aes256 => "aes-256-cbc",
            Self::Aes128 => "aes-128-cbc",
        }
    }

    /// The list of all, as a server offers it.
    pub(crate) fn list() -> String {
        Self::ALL.map(Self::name).join(":")
    }

    /// The first one in a server's list that is known here.
    pub(crate) fn first_of(list: &[u8]) -> Option<Self> {
        list.split(|byte| *byte == b':').find_map(Self::named)
    }

    /// The client's choice, with the length of the random block: `aes-256-cbc#16`.
    pub(crate) fn chosen(choice: &[u8]) -> Option<Self> {
        let name = choice.strip_suffix(b"#16").unwrap_or(choice);
        Self::named(name)
    }

    fn named(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|cipher| cipher.name().as_bytes() == name)
    }

    /// Encrypts `plain`. The result begins with the random block.
    pub(crate) fn encrypt(self, secret: &[u8], plain: &[u8], random: &mut dyn Random) -> Result<Vec<u8>, NoRandom> {
        let mut iv = [0; IV_LEN];
        random.fill(&mut iv)?;
        let sealed =
            match self {
                Self::Aes256 => cbc::Encryptor::<aes::Aes256>::new(&key(secret).into(), &iv.into())
                    .encrypt_padded_vec::<Pkcs7>(plain),
                Self::Aes128 => cbc::Encryptor::<aes::Aes128>::new(&key(secret).into(), &iv.into())
                    .encrypt_padded_vec::<Pkcs7>(plain),
            };
        Ok([&iv[..], &sealed].concat())
    }

    /// Decrypts what begins with its random block. `None`: the padding is wrong.
    pub(crate) fn decrypt(self, secret: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        let (iv, sealed) = sealed.split_first_chunk::<IV_LEN>()?;
        let iv = (*iv).into();
        match self {
            Self::Aes256 => {
                cbc::Decryptor::<aes::Aes256>::new(&key(secret).into(), &iv).decrypt_padded_vec::<Pkcs7>(sealed).ok()
            }
            Self::Aes128 => {
                cbc::Decryptor::<aes::Aes128>::new(&key(secret).into(), &iv).decrypt_padded_vec::<Pkcs7>(sealed).ok()
            }
        }
    }
}

/// The first bytes of the secret. It is always longer; a shorter one would be filled up with zeros.
pub(crate) fn key<const LEN: usize>(secret: &[u8]) -> [u8; LEN] {
    let mut key = [0; LEN];
    let len = secret.len().min(LEN);
    key[..len].copy_from_slice(&secret[..len]);
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Zeros;

    impl Random for Zeros {
        fn fill(&mut self, bytes: &mut [u8]) -> Result<(), NoRandom> {
            bytes.fill(7);
            Ok(())
        }
    }

    #[test]
    fn what_is_encrypted_can_be_decrypted_with_the_same_key_only() {
        let secret: Vec<u8> = (0..=255).collect();
        for cipher in Cipher::ALL {
            for plain in [&b""[..], b"a", &[b'x'; 16], &[b'y'; 1000]] {
                let sealed = cipher.encrypt(&secret, plain, &mut Zeros).unwrap();
                assert_eq!(sealed[..16], [7; 16]);
                assert_eq!(cipher.decrypt(&secret, &sealed).unwrap(), plain);
                assert_ne!(cipher.decrypt(&[1; 256], &sealed).as_deref(), Some(plain));
                for end in 0..sealed.len() {
                    assert_ne!(cipher.decrypt(&secret, &sealed[..end]).as_deref(), Some(plain));
                }
            }
        }
    }

    #[test]
    fn clients_choose_from_the_list() {
        assert_eq!(Cipher::list(), "aes-256-cbc:aes-128-cbc");
        assert_eq!(Cipher::first_of(b"bf-cbc:aes-128-cbc:aes-256-cbc"), Some(Cipher::Aes128));
        assert_eq!(Cipher::first_of(b"bf-cbc:des-ede3-cbc"), None);
        assert_eq!(Cipher::chosen(b"aes-256-cbc#16"), Some(Cipher::Aes256));
        assert_eq!(Cipher::chosen(b"aes-128-cbc"), Some(Cipher::Aes128));
        for wrong in [&b"aes-128-cbc#8"[..], b"aes", b"", b"aes-256-cbc:aes-128-cbc", b"bf-cbc#16"] {
            assert_eq!(Cipher::chosen(wrong), None);
        }
    }
}
