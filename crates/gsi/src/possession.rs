//! How the holder of a certificate shows on a connection of TLS 1.3 that it has the key, without the rounds of the handshake.
//!
//! What is signed is a value that both ends of one connection know and nobody else has: the keying material that TLS exports
//! (RFC 8446, section 7.5). So a signature is of no use on another connection, whoever is on the other end of it.
//!
//! It is a signature of RSA with PSS (RFC 8017, section 8.1), and with the name of this use before what is signed. Old peers of `gsi`
//! sign what a stranger sends them without a digest: a signature of the older kind, PKCS #1 v1.5, could be had from them.

use rsa::PublicKey;
use sha2::Sha256;

use crate::random::Generator;
use crate::secret::public_key;
use crate::{ClientSecret, HandshakeError, Random};

/// How long the value of a connection is.
pub const BINDING_LEN: usize = 32;
/// What is signed before the value.
const CONTEXT: &[u8] = b"weir 2026 the holder of a certificate on this connection\0";

fn text(binding: &[u8; BINDING_LEN]) -> Vec<u8> {
    [CONTEXT, binding].concat()
}

impl ClientSecret {
    /// The certificates, in DER form. The key is that of the first one.
    #[must_use]
    pub fn certificates(&self) -> &[Vec<u8>] {
        &self.chain
    }

    /// Shows on the connection with this value that the client has the key of its first certificate.
    ///
    /// # Errors
    /// [`HandshakeError::Sign`].
    pub fn show_possession(
        &self,
        binding: &[u8; BINDING_LEN],
        random: &mut dyn Random,
    ) -> Result<Vec<u8>, HandshakeError> {
        let signed = self.key.pss_sign_with_rng::<Sha256, _>(&mut Generator(random), &text(binding));
        signed.map_err(|error| HandshakeError::Sign(error.to_string()))
    }
}

/// Checks that a peer has the key of `certificate` (in DER form): `signature` is what [`ClientSecret::show_possession`] gives on the
/// connection with this value.
///
/// # Errors
/// [`HandshakeError::Key`] and [`HandshakeError::Possession`].
pub fn check_possession(
    certificate: &[u8],
    binding: &[u8; BINDING_LEN],
    signature: &[u8],
) -> Result<(), HandshakeError> {
    let (_, key): (_, PublicKey) = public_key(certificate).ok_or(HandshakeError::Key)?;
    key.pss_verify::<Sha256>(&text(binding), signature).map_err(|_| HandshakeError::Possession)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pem;
    use crate::test_random::Numbers;

    const USER: &[u8] = include_bytes!("../tests/data/user.pem");
    const OTHER: &[u8] = include_bytes!("../tests/data/other.pem");

    #[test]
    fn a_signature_is_for_one_key_and_one_connection() {
        let ana = ClientSecret::new(USER, include_bytes!("../tests/data/user.key")).unwrap();
        let ben = pem::certificates(OTHER).remove(0);
        let (here, there) = ([1; BINDING_LEN], [2; BINDING_LEN]);
        let random = &mut Numbers(1);
        let signature = ana.show_possession(&here, random).unwrap();
        let own = &ana.certificates()[0];
        assert_eq!(check_possession(own, &here, &signature), Ok(()));
        assert_eq!(check_possession(own, &there, &signature), Err(HandshakeError::Possession));
        assert_eq!(check_possession(&ben, &here, &signature), Err(HandshakeError::Possession));
        assert_eq!(check_possession(b"no certificate", &here, &signature), Err(HandshakeError::Key));
        for wrong in [&b""[..], &signature[1..], &[&signature[..], &[0]].concat(), &[0xff; 256], &[0; 256]] {
            assert_eq!(check_possession(own, &here, wrong), Err(HandshakeError::Possession));
        }
        // What a peer of `gsi` signs without a digest does not count.
        let raw = crate::rsa_blocks::sign(&ana.key, &text(&here), random).unwrap();
        assert_eq!(check_possession(own, &here, &raw), Err(HandshakeError::Possession));
    }
}
