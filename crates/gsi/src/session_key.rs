//! The key of a session: what both sides of a handshake share. With it the client signs requests (`XrdSecProtocolgsi::Encrypt` and
//! `XrdSecProtect::Secure` in XRootD): a signature is the SHA-256 hash of what is signed, encrypted with the cipher of the handshake.
//!
//! The cipher has no authentication of its own, so this is weaker than a message authentication code. Whoever knows what was signed (all is in
//! the clear) can choose the first half of the hash by the random block in front, and knows how the blocks of all signatures that he has
//! seen decrypt. Of `n` signatures he can put together some `n * n` others, and the second half of the hash must be one of these. So each
//! message that he makes up fits one of them with a probability of `n * n` to two to the power of 128.

use ring::digest::{Context, SHA256};

use crate::cipher::KEY_BYTES_MAX;
use crate::{Cipher, NoRandom, Random};

/// The length of the hash in a signature.
pub const HASH_LEN: usize = 32;

/// The key of a session. It is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionKey {
    cipher: Cipher,
    secret: [u8; KEY_BYTES_MAX],
}

impl SessionKey {
    /// The key at the beginning of the shared secret.
    pub(crate) fn new(cipher: Cipher, shared: &[u8]) -> Self {
        Self { cipher, secret: crate::cipher::key(shared) }
    }

    /// Signs what `parts` are together.
    ///
    /// # Errors
    /// [`NoRandom`].
    pub fn sign(&self, parts: &[&[u8]], random: &mut dyn Random) -> Result<Vec<u8>, NoRandom> {
        self.cipher.encrypt(&self.secret, &hash(parts), random)
    }

    /// Whether `signature` is one of what `parts` are together.
    #[must_use]
    pub fn has_signed(&self, parts: &[&[u8]], signature: &[u8]) -> bool {
        let signed = self.cipher.decrypt(&self.secret, signature);
        let Some(signed) = signed.filter(|signed| signed.len() == HASH_LEN) else { return false };
        // All bytes are compared, so that the time does not say how many fit.
        signed.iter().zip(hash(parts)).fold(0, |differing, (one, other)| differing | (one ^ other)) == 0
    }
}

/// It tells no key.
impl std::fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SessionKey({})", self.cipher.name())
    }
}

/// The hash of what `parts` are together.
#[must_use]
pub fn hash(parts: &[&[u8]]) -> [u8; HASH_LEN] {
    let mut context = Context::new(&SHA256);
    parts.iter().for_each(|part| context.update(part));
    let mut hash = [0; HASH_LEN];
    hash.copy_from_slice(context.finish().as_ref());
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Counting(u8);

    impl Random for Counting {
        fn fill(&mut self, bytes: &mut [u8]) -> Result<(), NoRandom> {
            for byte in bytes {
                self.0 = self.0.wrapping_mul(37).wrapping_add(11);
                *byte = self.0;
            }
            Ok(())
        }
    }

    #[test]
    fn only_the_same_key_and_the_same_parts_fit() {
        for cipher in Cipher::ALL {
            let key = SessionKey::new(cipher, &[7; 384]);
            let signature = key.sign(&[b"head", b"payload"], &mut Counting(1)).unwrap();
            assert_eq!(signature.len(), 16 + 48);
            assert!(key.has_signed(&[b"head", b"payload"], &signature));
            assert!(key.has_signed(&[b"headpay", b"load"], &signature), "where a part ends does not count");
            assert!(!key.has_signed(&[b"head", b"Payload"], &signature));
            assert!(!SessionKey::new(cipher, &[8; 384]).has_signed(&[b"head", b"payload"], &signature));
            for place in 0..signature.len() {
                let mut forged = signature.clone();
                forged[place] ^= 1;
                assert!(!key.has_signed(&[b"head", b"payload"], &forged), "byte {place}");
                assert!(!key.has_signed(&[b"head", b"payload"], &signature[..place]), "{place} bytes");
            }
            // The bare hash is no signature.
            assert!(!key.has_signed(&[b"head"], &hash(&[b"head"])));
            assert_eq!(format!("{key:?}"), format!("SessionKey({})", cipher.name()));
        }
    }

    #[test]
    fn the_hash_is_that_of_fips_180() {
        let hex: String = hash(&[b"a", b"bc"]).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
