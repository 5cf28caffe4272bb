//! The certificate of a server, and its key.

use rsa::pkcs1::DecodeRsaPrivateKey as _;
use rsa::pkcs8::{DecodePrivateKey as _, DecodePublicKey as _};
use rsa::{PrivateKey, PublicKey};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::agreement::{Group, SecretExponent};
use crate::{HandshakeError, Random, SecretError, VERSION, issuer_hash, pem, rsa_blocks};

/// What a server shows to its clients, and how it signs.
pub struct ServerSecret {
    pub(crate) group: Group,
    /// The certificate in PEM form. Stock clients take exactly one.
    pub(crate) certificate: String,
    /// The public key as certificates have it.
    pub(crate) public: Vec<u8>,
    key: PrivateKey,
    authority: String,
    /// The signature of the first blocks of each public part: they are always the same, and signatures without randomness too.
    beginning: Beginning,
}

struct Beginning {
    len: usize,
    signed: Vec<u8>,
}

impl ServerSecret {
    /// Reads a certificate and its key, both in PEM form. They may be in one text.
    ///
    /// # Errors
    /// [`SecretError`].
    pub fn new(certificate: &[u8], key: &[u8], random: &mut dyn Random) -> Result<Self, SecretError> {
        let certificate = pem::certificates(certificate).into_iter().next().ok_or(SecretError::NoCertificate)?;
        let key = private_key(key)?;
        if !belongs(&key, &certificate)? {
            return Err(SecretError::Mismatch);
        }
        let (public, _) = public_key(&certificate).ok_or(SecretError::Certificate)?;
        let authority = issuer_hash(&certificate).ok_or(SecretError::Certificate)?;
        let unusable = |error: &dyn std::fmt::Display| SecretError::Sign(error.to_string());
        let group = Group::ffdhe3072().map_err(|error| unusable(&error))?;
        let text = group.beginning();
        let block = rsa_blocks::block_len(key.as_public_key());
        let len = text.len() / block * block;
        let signed = rsa_blocks::sign(&key, &text.as_bytes()[..len], random).map_err(|error| unusable(&error))?;
        let certificate = pem::encode("CERTIFICATE", &certificate);
        Ok(Self { group, certificate, public, key, authority, beginning: Beginning { len, signed } })
    }

    /// What the answer to a login says about this mechanism, behind `&P=gsi,`: the version, the cryptographic module, and the hash
    /// of the authority that has issued the certificate.
    #[must_use]
    pub fn parameters(&self) -> String {
        format!("v:{VERSION},c:ssl,ca:{}.0", self.authority)
    }

    /// The signed public part of `secret`.
    pub(crate) fn sign_public(
        &self,
        secret: &SecretExponent,
        random: &mut dyn Random,
    ) -> Result<Vec<u8>, HandshakeError> {
        let mut signed = self.beginning.signed.clone();
        signed.extend(self.sign(&secret.text.as_bytes()[self.beginning.len..], random)?);
        Ok(signed)
    }

    pub(crate) fn sign(&self, bytes: &[u8], random: &mut dyn Random) -> Result<Vec<u8>, HandshakeError> {
        rsa_blocks::sign(&self.key, bytes, random).map_err(|error| HandshakeError::Sign(error.to_string()))
    }
}

/// It tells no key.
impl std::fmt::Debug for ServerSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerSecret").field("authority", &self.authority).finish_non_exhaustive()
    }
}

/// The key in a text in PEM form.
pub(crate) fn private_key(text: &[u8]) -> Result<PrivateKey, SecretError> {
    let is_key = |block: &pem::Block| block.label.ends_with("PRIVATE KEY");
    let block = pem::blocks(text).into_iter().find(is_key).ok_or(SecretError::NoKey)?;
    match block.label.as_str() {
        "RSA PRIVATE KEY" => PrivateKey::from_pkcs1_der(&block.der).map_err(|error| not_rsa(&error)),
        "PRIVATE KEY" => PrivateKey::from_pkcs8_der(&block.der).map_err(|error| not_rsa(&error)),
        // One that is encrypted, or of another kind.
        label => Err(SecretError::NotRsa(format!("this is `{}`", label.chars().take(40).collect::<String>()))),
    }
}

fn not_rsa(error: &dyn std::fmt::Display) -> SecretError {
    SecretError::NotRsa(error.to_string())
}

/// Whether `key` is that of the certificate.
pub(crate) fn belongs(key: &PrivateKey, certificate: &[u8]) -> Result<bool, SecretError> {
    let (_, public) = public_key(certificate).ok_or(SecretError::Certificate)?;
    Ok(public == *key.as_public_key())
}

/// The public key of a certificate: its bytes, and the key. `None`: it is no certificate, or its key is not one of RSA.
pub(crate) fn public_key(certificate: &[u8]) -> Option<(Vec<u8>, PublicKey)> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let der = parsed.public_key().raw.to_vec();
    let key = PublicKey::from_public_key_der(&der).ok()?;
    Some((der, key))
}
