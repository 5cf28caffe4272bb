//! What a user presents: a proxy file, or a certificate and a key.

use base64::Engine as _;
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::{PemObject, SectionKind};
use types::Timestamp;

use crate::certificate::Certificate;
use crate::der::{self, Malformed};
use crate::limits::{CERTIFICATE_BYTES_MAX, CHAIN_MAX};

/// The longest text with certificates and a key, in bytes.
pub const PEM_BYTES_MAX: usize = 1 << 20;

/// Why certificates or a key cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PemError {
    /// Too long.
    #[error("the text is {0} bytes long; {PEM_BYTES_MAX} is the limit")]
    TooLong(usize),
    /// A certificate is too long.
    #[error("a certificate has {0} bytes; {CERTIFICATE_BYTES_MAX} is the limit")]
    LongCertificate(usize),
    /// Not PEM.
    #[error("the text is not in PEM form: a section has no end, or is not base64")]
    Form,
    /// No certificate.
    #[error("there is no certificate in PEM form (-----BEGIN CERTIFICATE-----)")]
    NoCertificate,
    /// Too many certificates.
    #[error("there are more than {CHAIN_MAX} certificates")]
    TooMany,
    /// No key.
    #[error("there is no private key in PEM form (-----BEGIN PRIVATE KEY-----)")]
    NoKey,
    /// A key under a passphrase.
    #[error("the private key needs a passphrase: make a proxy, which needs none (`voms-proxy-init -rfc`)")]
    EncryptedKey,
    /// The key cannot be read.
    #[error("the private key is malformed")]
    Key,
    /// The key is another one's.
    #[error("the private key is not that of the first certificate, {0}")]
    OtherKey(String),
    /// A certificate cannot be read.
    #[error("certificate {position} cannot be read: {why}")]
    Unreadable {
        /// Its position; the first one is 1.
        position: usize,
        /// What is wrong.
        why: crate::Unreadable,
    },
}

/// The certificates in a text in PEM form, in order. Other sections are skipped.
///
/// # Errors
///
/// [`PemError`].
pub fn certificates_from_pem(text: &[u8]) -> Result<Vec<Vec<u8>>, PemError> {
    let mut certificates = Vec::new();
    for section in sections(text)? {
        if let (SectionKind::Certificate, der) = section? {
            if der.len() > CERTIFICATE_BYTES_MAX {
                return Err(PemError::LongCertificate(der.len()));
            }
            if certificates.len() == CHAIN_MAX {
                return Err(PemError::TooMany);
            }
            certificates.push(der);
        }
    }
    if certificates.is_empty() { Err(PemError::NoCertificate) } else { Ok(certificates) }
}

type Section = (SectionKind, Vec<u8>);

fn sections(text: &[u8]) -> Result<impl Iterator<Item = Result<Section, PemError>> + '_, PemError> {
    if text.len() > PEM_BYTES_MAX {
        return Err(PemError::TooLong(text.len()));
    }
    Ok(Section::pem_slice_iter(text).map(|section| section.map_err(|_| PemError::Form)))
}

/// Certificates, the user's or a proxy's first, and the key of that one.
pub struct UserCredential {
    chain: Vec<Vec<u8>>,
    key: PrivateKeyDer<'static>,
    not_after: Timestamp,
}

impl UserCredential {
    /// Reads a proxy file: the proxy, its key, and the certificates between it and an authority. The key may stand anywhere.
    ///
    /// # Errors
    ///
    /// [`PemError`].
    pub fn from_pem(text: &[u8]) -> Result<Self, PemError> {
        Self::from_files(text, text)
    }

    /// Reads a file of certificates, the user's first, and one of its key.
    ///
    /// # Errors
    ///
    /// [`PemError`].
    pub fn from_files(certificates: &[u8], key: &[u8]) -> Result<Self, PemError> {
        // Of both, the key's passphrase is the easier one to help with; its head is not base64 either.
        let key = private_key(key)?;
        let chain = certificates_from_pem(certificates)?;
        let mut not_after = None;
        for (position, der) in (1..).zip(&chain) {
            let certificate = Certificate::parse(der).map_err(|why| PemError::Unreadable { position, why })?;
            if position == 1 && !belongs(&key, &certificate).map_err(|Malformed| PemError::Key)? {
                return Err(PemError::OtherKey(certificate.subject_for_message()));
            }
            let ends = certificate.not_after();
            not_after = Some(not_after.map_or(ends, |before: Timestamp| before.min(ends)));
        }
        Ok(Self { chain, key, not_after: not_after.ok_or(PemError::NoCertificate)? })
    }

    /// The certificates in DER, that of the key first.
    #[must_use]
    pub fn chain(&self) -> &[Vec<u8>] {
        &self.chain
    }

    /// The private key.
    #[must_use]
    pub fn key(&self) -> &PrivateKeyDer<'static> {
        &self.key
    }

    /// When the first of the certificates ends.
    #[must_use]
    pub fn not_after(&self) -> Timestamp {
        self.not_after
    }

    /// The certificates in PEM form, as they are sent.
    #[must_use]
    pub fn chain_pem(&self) -> String {
        use std::fmt::Write as _;
        let mut pem = String::new();
        for der in &self.chain {
            pem.push_str("-----BEGIN CERTIFICATE-----\n");
            for line in base64::engine::general_purpose::STANDARD.encode(der).as_bytes().chunks(64) {
                let _ = writeln!(pem, "{}", String::from_utf8_lossy(line));
            }
            pem.push_str("-----END CERTIFICATE-----\n");
        }
        pem
    }
}

/// Keys are never shown.
impl std::fmt::Debug for UserCredential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UserCredential").field("certificates", &self.chain.len()).finish_non_exhaustive()
    }
}

fn private_key(text: &[u8]) -> Result<PrivateKeyDer<'static>, PemError> {
    let has = |marker: &[u8]| text.windows(marker.len()).any(|window| window == marker);
    if text.len() <= PEM_BYTES_MAX && (has(b"-----BEGIN ENCRYPTED PRIVATE KEY-----") || has(b"Proc-Type: 4,ENCRYPTED"))
    {
        return Err(PemError::EncryptedKey);
    }
    for section in sections(text)? {
        match section? {
            (SectionKind::PrivateKey, der) => return Ok(PrivateKeyDer::Pkcs8(der.into())),
            (SectionKind::RsaPrivateKey, der) => return Ok(PrivateKeyDer::Pkcs1(der.into())),
            (SectionKind::EcPrivateKey, der) => return Ok(PrivateKeyDer::Sec1(der.into())),
            _ => {}
        }
    }
    Err(PemError::NoKey)
}

/// Whether the key is that of the certificate, as far as its public part stands in it.
fn belongs(key: &PrivateKeyDer<'_>, certificate: &Certificate<'_>) -> Result<bool, Malformed> {
    let public = &certificate.key().subject_public_key.data;
    match key {
        PrivateKeyDer::Pkcs1(key) => is_rsa(key.secret_pkcs1_der(), public),
        PrivateKeyDer::Sec1(key) => is_ec(key.secret_sec1_der(), public),
        PrivateKeyDer::Pkcs8(key) => {
            // RFC 5958, section 2.
            let mut fields = der::only(key.secret_pkcs8_der(), der::SEQUENCE)?.inside();
            fields.expect(der::INTEGER)?;
            let algorithm = fields.expect(der::SEQUENCE)?.inside().expect(der::OID)?.content;
            let inner = fields.expect(der::OCTET_STRING)?.content;
            if algorithm != certificate.key().algorithm.algorithm.as_bytes() {
                return Ok(false);
            }
            match algorithm {
                crate::signature::RSA => is_rsa(inner, public),
                crate::signature::EC => is_ec(inner, public),
                _ => Ok(true),
            }
        }
        _ => Err(Malformed),
    }
}

/// `RSAPrivateKey` and `RSAPublicKey` (RFC 8017, appendix A.1) have modulus and exponent in common.
fn is_rsa(private: &[u8], public: &[u8]) -> Result<bool, Malformed> {
    let mut private = der::only(private, der::SEQUENCE)?.inside();
    private.expect(der::INTEGER)?;
    let Ok(public) = der::only(public, der::SEQUENCE) else { return Ok(false) };
    let mut public = public.inside();
    for _ in 0..2 {
        if private.expect(der::INTEGER)?.content != public.expect(der::INTEGER)?.content {
            return Ok(false);
        }
    }
    Ok(true)
}

/// `ECPrivateKey` (RFC 5915, section 3) may have the public key.
fn is_ec(private: &[u8], public: &[u8]) -> Result<bool, Malformed> {
    let mut private = der::only(private, der::SEQUENCE)?.inside();
    private.expect(der::INTEGER)?;
    private.expect(der::OCTET_STRING)?;
    private.optional(0xa0)?;
    match private.optional(0xa1)? {
        Some(point) => Ok(der::bits(der::only(point.content, der::BIT_STRING)?.content)? == public),
        None => Ok(true),
    }
}
