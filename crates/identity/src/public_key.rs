//! Public keys, and the verification of signatures with them.
//!
//! `ring` verifies, as for TLS. The library `jsonwebtoken` would bring a second cryptography (`rsa` and `p256`, or
//! AWS-LC in C) and decide about claims by its own rules; the format around a signature is three base64url texts.

use std::fmt;

use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384,
    RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512,
    RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm,
};

use crate::Algorithm;

/// Shortest RSA modulus, in bytes: 2048 bits (RFC 7518, section 3.3).
const MODULUS_MIN: usize = 256;
/// Longest RSA modulus, in bytes: 8192 bits. A longer one would make each verification slow.
const MODULUS_MAX: usize = 1024;
/// Longest RSA exponent, in bytes; the usual one, 65537, has three.
const EXPONENT_MAX: usize = 4;

/// A key that verifies signatures. Its kind decides which algorithms it can be used with.
#[derive(Clone, PartialEq, Eq)]
pub enum PublicKey {
    /// RSA.
    Rsa(RsaKey),
    /// A point on P-256, uncompressed.
    P256(Box<[u8; 65]>),
    /// A point on P-384, uncompressed.
    P384(Box<[u8; 97]>),
    /// Ed25519.
    Ed25519(Box<[u8; 32]>),
}

/// An RSA key of 2048 to 8192 bits.
#[derive(Clone, PartialEq, Eq)]
pub struct RsaKey {
    modulus: Box<[u8]>,
    exponent: Box<[u8]>,
}

/// Why a signature was not accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SignatureProblem {
    /// The algorithm needs another kind of key.
    WrongKind,
    /// The signature is not one of this key over these bytes.
    Wrong,
}

impl PublicKey {
    /// An RSA key from big-endian numbers; `None` if it has too few or too many bits or no proper exponent.
    #[must_use]
    pub fn rsa(modulus: &[u8], exponent: &[u8]) -> Option<Self> {
        let modulus = without_leading_zeros(modulus);
        let exponent = without_leading_zeros(exponent);
        let top_bit = modulus.first().is_some_and(|&byte| byte & 0x80 != 0);
        let bits_enough = modulus.len() > MODULUS_MIN || (modulus.len() == MODULUS_MIN && top_bit);
        let odd = |number: &[u8]| number.last().is_some_and(|&byte| byte & 1 == 1);
        let usable = bits_enough
            && modulus.len() <= MODULUS_MAX
            && exponent.len() <= EXPONENT_MAX
            && exponent != [1]
            && odd(exponent)
            && odd(modulus);
        usable.then(|| Self::Rsa(RsaKey { modulus: modulus.into(), exponent: exponent.into() }))
    }

    /// A point on P-256 from its coordinates. They have 32 bytes each (RFC 7518, section 6.2.1.2), but some issuers write
    /// numbers without their leading zeros, or with more.
    #[must_use]
    pub fn p256(x: &[u8], y: &[u8]) -> Option<Self> {
        point(x, y).map(Self::P256)
    }

    /// A point on P-384 from its coordinates. They have 48 bytes each; what is said of P-256 holds here, too.
    #[must_use]
    pub fn p384(x: &[u8], y: &[u8]) -> Option<Self> {
        point(x, y).map(Self::P384)
    }

    /// An Ed25519 key, of exactly 32 bytes.
    #[must_use]
    pub fn ed25519(x: &[u8]) -> Option<Self> {
        Some(Self::Ed25519(Box::new(x.try_into().ok()?)))
    }

    /// The kind of key, for messages.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Rsa(_) => "an RSA key",
            Self::P256(_) => "a P-256 key",
            Self::P384(_) => "a P-384 key",
            Self::Ed25519(_) => "an Ed25519 key",
        }
    }

    /// Whether signatures by `algorithm` can be verified with this key.
    #[must_use]
    pub fn fits(&self, algorithm: Algorithm) -> bool {
        match self {
            Self::Rsa(_) => rsa_parameters(algorithm).is_some(),
            Self::P256(_) => algorithm == Algorithm::Es256,
            Self::P384(_) => algorithm == Algorithm::Es384,
            Self::Ed25519(_) => algorithm == Algorithm::EdDsa,
        }
    }

    /// Checks `signature` over `message`.
    pub(crate) fn verify(
        &self,
        algorithm: Algorithm,
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), SignatureProblem> {
        if !self.fits(algorithm) {
            return Err(SignatureProblem::WrongKind);
        }
        let simple = |by: &'static dyn VerificationAlgorithm, key: &[u8]| {
            UnparsedPublicKey::new(by, key).verify(message, signature)
        };
        let verified = match self {
            Self::Rsa(RsaKey { modulus, exponent }) => {
                let parameters = rsa_parameters(algorithm).ok_or(SignatureProblem::WrongKind)?;
                RsaPublicKeyComponents { n: modulus, e: exponent }.verify(parameters, message, signature)
            }
            Self::P256(key) => simple(&ECDSA_P256_SHA256_FIXED, key.as_slice()),
            Self::P384(key) => simple(&ECDSA_P384_SHA384_FIXED, key.as_slice()),
            Self::Ed25519(key) => simple(&ED25519, key.as_slice()),
        };
        verified.map_err(|_| SignatureProblem::Wrong)
    }
}

fn rsa_parameters(algorithm: Algorithm) -> Option<&'static RsaParameters> {
    match algorithm {
        Algorithm::Rs256 => Some(&RSA_PKCS1_2048_8192_SHA256),
        Algorithm::Rs384 => Some(&RSA_PKCS1_2048_8192_SHA384),
        Algorithm::Rs512 => Some(&RSA_PKCS1_2048_8192_SHA512),
        Algorithm::Ps256 => Some(&RSA_PSS_2048_8192_SHA256),
        Algorithm::Ps384 => Some(&RSA_PSS_2048_8192_SHA384),
        Algorithm::Ps512 => Some(&RSA_PSS_2048_8192_SHA512),
        Algorithm::Es256 | Algorithm::Es384 | Algorithm::EdDsa => None,
    }
}

fn without_leading_zeros(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|&&byte| byte == 0).count();
    &number[zeros..]
}

/// The uncompressed form of a point whose coordinates have `(N - 1) / 2` bytes. Whether it is on the curve is checked with
/// each signature.
fn point<const N: usize>(x: &[u8], y: &[u8]) -> Option<Box<[u8; N]>> {
    /// Most leading zeros that may be missing. Fewer than one coordinate in 2^32 has more, and one of a shorter curve lacks more.
    const MISSING_MAX: usize = 4;
    let half = (N - 1) / 2;
    let mut key = Box::new([0; N]);
    key[0] = 4;
    for (number, end) in [(x, 1 + half), (y, N)] {
        let digits = without_leading_zeros(number);
        if digits.len() > half || number.len() + MISSING_MAX < half {
            return None;
        }
        key[end - digits.len()..end].copy_from_slice(digits);
    }
    Some(key)
}

/// Public keys are long; the kind is enough.
impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weak_and_malformed_keys_are_refused() {
        let modulus = |len: usize, first: u8| {
            let mut modulus = vec![0xff; len];
            modulus[0] = first;
            modulus
        };
        let e = [1, 0, 1];
        assert!(PublicKey::rsa(&modulus(256, 0x80), &e).is_some());
        assert!(PublicKey::rsa(&modulus(257, 0), &e).is_some(), "a leading zero adds nothing");
        assert!(PublicKey::rsa(&modulus(256, 0x7f), &e).is_none(), "2047 bits");
        assert!(PublicKey::rsa(&modulus(128, 0x80), &e).is_none());
        assert!(PublicKey::rsa(&modulus(1024, 0x80), &e).is_some());
        assert!(PublicKey::rsa(&modulus(1025, 0x80), &e).is_none());
        for wrong in [&[][..], &[0], &[1], &[2], &[1, 0, 0, 0, 1]] {
            assert!(PublicKey::rsa(&modulus(256, 0x80), wrong).is_none(), "{wrong:?}");
        }
        assert!(PublicKey::p256(&[1; 32], &[1; 32]).is_some());
        assert!(PublicKey::p256(&[1; 33], &[1; 32]).is_none());
        assert!(PublicKey::p256(&[1; 27], &[1; 32]).is_none());
        assert!(PublicKey::p256(&[1; 32], &[]).is_none());
        assert!(PublicKey::p256(&[1; 48], &[1; 48]).is_none());
        assert!(PublicKey::p384(&[1; 48], &[1; 48]).is_some());
        assert!(PublicKey::p384(&[1; 32], &[1; 32]).is_none());
        let mut zeros = [0; 32];
        zeros[3..].fill(7);
        let same = PublicKey::p256(&zeros, &[1; 32]);
        let point = [&[4], &zeros[..], &[1; 32]].concat();
        assert!(same == Some(PublicKey::P256(Box::new(point.try_into().unwrap()))));
        assert!(same == PublicKey::p256(&zeros[3..], &[1; 32]), "a number may lack its leading zeros");
        assert!(same == PublicKey::p256(&[&[0; 2], &zeros[..]].concat(), &[1; 32]), "or have more");
        assert!(PublicKey::p256(&[1; 32], &zeros) == PublicKey::p256(&[1; 32], &zeros[3..]));
        assert!(PublicKey::p256(&[1; 32], &zeros) != PublicKey::p256(&[1; 32], &[7; 32]));
        assert!(PublicKey::ed25519(&[1; 32]).is_some());
        assert!(PublicKey::ed25519(&[1; 57]).is_none(), "an Ed448 key");
    }
}
