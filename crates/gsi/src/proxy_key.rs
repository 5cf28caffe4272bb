//! What a server makes for a delegated proxy: a key of its own, and the request (PKCS #10, RFC 2986) that the client signs. The form is
//! that of `XrdCryptosslX509CreateProxyReq` in `XrdCryptosslgsiAux.cc`: stock clients take the subject from the request, and refuse
//! one without extensions.

use rsa::PrivateKey;
use rsa::pkcs8::{EncodePrivateKey as _, EncodePublicKey as _};
use x509_parser::prelude::{FromDer as _, X509Certificate};
use zeroize::Zeroizing;

use crate::der::{OCTET_STRING, OID, PRINTABLE_STRING, SET, bits, der, integer, sequence};
use crate::random::Generator;
use crate::{HandshakeError, Random, SecretError, pem, proxy_info};

/// The bits of the key. `gsi` needs RSA, also where the proxy is shown later, and stock peers take no shorter one.
const KEY_BITS: usize = 2048;
/// `commonName`, 2.5.4.3.
const COMMON_NAME: &[u8] = &[0x55, 4, 3];
/// `extensionRequest` of PKCS #9, 1.2.840.113549.1.9.14.
const EXTENSION_REQUEST: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 14];
/// `sha256WithRSAEncryption`, 1.2.840.113549.1.1.11.
const SHA256_WITH_RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 11];
/// The head of a digest by SHA-256 in a signature (RFC 8017, section 9.2).
const SHA256_HEAD: [u8; 19] = [0x30, 0x31, 0x30, 0x0d, 6, 9, 0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 1, 5, 0, 4, 0x20];

/// A new key for one proxy.
pub struct ProxyKey {
    key: PrivateKey,
    /// `SubjectPublicKeyInfo`, in DER.
    public: Vec<u8>,
}

impl ProxyKey {
    /// Makes a key. That computes for some tenths of a second, so do not call it on a thread that others wait for.
    ///
    /// # Errors
    /// [`SecretError`].
    pub fn generate(random: &mut dyn Random) -> Result<Self, SecretError> {
        let wrong = |error: &dyn std::fmt::Display| SecretError::Sign(error.to_string());
        let key = PrivateKey::new(&mut Generator(random), KEY_BITS).map_err(|error| wrong(&error))?;
        Self::of(key)
    }

    /// Takes a key in PEM form, which was made elsewhere.
    ///
    /// # Errors
    /// [`SecretError`].
    pub fn from_pem(text: &[u8]) -> Result<Self, SecretError> {
        Self::of(crate::secret::private_key(text)?)
    }

    fn of(key: PrivateKey) -> Result<Self, SecretError> {
        let public = key.as_public_key().to_public_key_der();
        let public = public.map_err(|error| SecretError::Sign(error.to_string()))?.as_bytes().to_vec();
        Ok(Self { key, public })
    }

    /// The public part, as certificates have it (`SubjectPublicKeyInfo`, in DER).
    #[must_use]
    pub fn public(&self) -> &[u8] {
        &self.public
    }

    /// The request for a proxy of the certificate `issuer`, in PEM form. Its subject is that of the issuer and a random number.
    pub(crate) fn request(&self, issuer: &[u8], random: &mut dyn Random) -> Result<String, HandshakeError> {
        let (_, issuer) = X509Certificate::from_der(issuer).map_err(|_| HandshakeError::Key)?;
        let mut number = [0; 4];
        random.fill(&mut number)?;
        // Stock clients read it as a number with a sign.
        let number = (u32::from_be_bytes(number) & 0x7fff_ffff).max(1).to_string();
        let name = [der(OID, COMMON_NAME), der(PRINTABLE_STRING, number.as_bytes())];
        let part = der(SET, &sequence(&name));
        let subject = sequence(&[inside(issuer.subject().as_raw()), part]);
        let info = proxy_info::read(&issuer)?;
        let extensions = sequence(&[proxy_info::key_usage(), info.below().extension()]);
        let attribute = sequence(&[der(OID, EXTENSION_REQUEST), der(SET, &extensions)]);
        let content = sequence(&[integer(&[0]), subject, self.public.clone(), der(0xa0, &attribute)]);
        let request = signed(&self.key, content, random)?;
        Ok(pem::encode("CERTIFICATE REQUEST", &request))
    }

    /// The proxy in one text, as a file of a proxy has it: the certificate `proxy`, this key, and the certificates that have issued it.
    ///
    /// # Errors
    /// [`SecretError`].
    pub fn proxy_text(&self, proxy: &[u8], issuers: &[Vec<u8>]) -> Result<Zeroizing<String>, SecretError> {
        let key = self.key.to_pkcs8_der().map_err(|error| SecretError::Sign(error.to_string()))?;
        let key = Zeroizing::new(pem::encode("PRIVATE KEY", key.as_bytes()));
        let mut text = Zeroizing::new(String::new());
        // A text that grows would leave copies of the key behind.
        text.reserve(key.len() + 2 * (proxy.len() + issuers.iter().map(Vec::len).sum::<usize>()) + 4096);
        text.push_str(&pem::encode("CERTIFICATE", proxy));
        text.push_str(&key);
        for issuer in issuers {
            text.push_str(&pem::encode("CERTIFICATE", issuer));
        }
        Ok(text)
    }
}

/// Two keys are the same if their public parts are.
impl PartialEq for ProxyKey {
    fn eq(&self, other: &Self) -> bool {
        self.public == other.public
    }
}

impl Eq for ProxyKey {}

/// It tells no key.
impl std::fmt::Debug for ProxyKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ProxyKey(..)")
    }
}

/// The content of an element of DER.
fn inside(element: &[u8]) -> Vec<u8> {
    x509_parser::asn1_rs::Any::from_der(element).map(|(_, any)| any.data.to_vec()).unwrap_or_default()
}

/// `content` with its signature by RSA with SHA-256, as certificates and requests have it.
pub(crate) fn signed(key: &PrivateKey, content: Vec<u8>, random: &mut dyn Random) -> Result<Vec<u8>, HandshakeError> {
    let digest = ring::digest::digest(&ring::digest::SHA256, &content);
    let message = [&SHA256_HEAD[..], digest.as_ref()].concat();
    let scheme = rsa::Pkcs1v15Sign::new_unprefixed();
    let signature = key.sign_with_rng(&mut Generator(random), scheme, &message);
    let signature = signature.map_err(|error| HandshakeError::Sign(error.to_string()))?;
    Ok(sequence(&[content, signature_algorithm(), bits(&signature)]))
}

/// How [`signed`] signs.
pub(crate) fn signature_algorithm() -> Vec<u8> {
    sequence(&[der(OID, SHA256_WITH_RSA), der(5, &[])])
}

/// An extension that nobody may ignore.
pub(crate) fn critical(oid: &[u8], value: &[u8]) -> Vec<u8> {
    sequence(&[der(OID, oid), der(crate::der::BOOLEAN, &[0xff]), der(OCTET_STRING, value)])
}
