//! Signatures of bytes as they are, in blocks as long as the key (`EncryptPrivate` and `DecryptPublic` in `XrdCryptosslRSA.cc`):
//! PKCS #1 v1.5 with block type 1, and no digest. Whoever has the public key can recover the bytes.

use rsa::hazmat::rsa_encrypt;
use rsa::traits::PublicKeyParts as _;
use rsa::{BoxedUint, Pkcs1v15Sign, PrivateKey, PublicKey};

use crate::Random;
use crate::random::Generator;

/// What PKCS #1 needs of each block.
const OVERHEAD: usize = 11;
/// The longest signed text that is recovered. Stock peers sign about 1400 bytes.
const SIGNED_BYTES_MAX: usize = 16 << 10;

/// How many bytes go into a block.
pub(crate) fn block_len(key: &PublicKey) -> usize {
    key.size() - OVERHEAD
}

/// Signs `bytes`.
pub(crate) fn sign(key: &PrivateKey, bytes: &[u8], random: &mut dyn Random) -> Result<Vec<u8>, rsa::Error> {
    let mut signed = Vec::new();
    for block in bytes.chunks(block_len(key.as_public_key())) {
        // Random numbers hide from a clock what the computation does. The signature does not depend on them.
        let signature = key.sign_with_rng(&mut Generator(random), Pkcs1v15Sign::new_unprefixed(), block)?;
        signed.extend_from_slice(&signature);
    }
    Ok(signed)
}

/// The bytes that were signed; `None`: the signature is not one of this key.
///
/// Every block but the last one must be full, as [`sign`] and stock peers fill them. Otherwise somebody could put together a text
/// from short ones that were signed as random tags.
pub(crate) fn recover(key: &PublicKey, signed: &[u8]) -> Option<Vec<u8>> {
    if signed.is_empty() || signed.len() > SIGNED_BYTES_MAX || !signed.len().is_multiple_of(key.size()) {
        return None;
    }
    let mut bytes = Vec::new();
    let blocks = signed.len() / key.size();
    for (number, block) in (1..).zip(signed.chunks(key.size())) {
        let signature = BoxedUint::from_be_slice(block, key.n().bits_precision()).ok()?;
        if signature >= **key.n() {
            return None;
        }
        let padded = rsa_encrypt(key, &signature).ok()?.to_be_bytes();
        // The number may have been computed with more bytes than the key has.
        let (zeros, padded) = padded.split_at_checked(padded.len().checked_sub(key.size())?)?;
        if zeros.iter().any(|byte| *byte != 0) {
            return None;
        }
        let content = content(padded)?;
        if content.is_empty() || (number < blocks && content.len() != block_len(key)) {
            return None;
        }
        bytes.extend_from_slice(content);
    }
    Some(bytes)
}

/// What is in a block: 0, 1, at least eight times 255, 0, the content.
fn content(padded: &[u8]) -> Option<&[u8]> {
    let rest = padded.strip_prefix(&[0, 1])?;
    let filling = rest.iter().position(|byte| *byte != 0xff)?;
    if filling < OVERHEAD - 3 {
        return None;
    }
    rest[filling..].strip_prefix(&[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_strict() {
        let block = |filling: usize, rest: &[u8]| [&[0, 1][..], &vec![0xff; filling], rest].concat();
        assert_eq!(content(&block(8, b"\0text")), Some(&b"text"[..]));
        assert_eq!(content(&block(8, b"\0")), Some(&b""[..]));
        for wrong in [block(7, b"\0text"), block(8, b"text"), block(20, b""), b"\0\x02\xff\xff".to_vec(), Vec::new()] {
            assert_eq!(content(&wrong), None);
        }
    }
}
