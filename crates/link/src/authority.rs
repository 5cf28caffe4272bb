//! The cluster's own certificate authority. It is made once, with the cluster, and signs the certificates of all nodes.
//! No other authority counts.
//!
//! Keys are Ed25519: small, fast, and without parameters to get wrong. [`crate::NodeName`] describes the contents of a
//! certificate.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ED25519, PublicKeyData, SanType, SerialNumber, SignatureAlgorithm,
};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use types::{ClusterId, Timestamp};

use crate::admin::AdminName;
use crate::random::{self, RandomError};
use crate::secret_file::{Existing, FileError, SecretFile};
use crate::{NodeName, keys};

/// Default validity of a node's certificate. The node renews it when a third of that time is left.
pub const VALIDITY: Duration = Duration::from_secs(90 * 86_400);
/// The authority's certificate outlives any cluster.
const AUTHORITY_VALIDITY: Duration = Duration::from_secs(40 * 365 * 86_400);
/// Certificates are valid from a little earlier, because the clocks of a cluster differ.
const CLOCKS_DIFFER: Duration = Duration::from_secs(3600);
/// The file in the authority's directory.
const FILE: &str = "authority";
const KIND: SecretFile = SecretFile {
    first_line: "weir authority 1",
    hint: "put back the file of a backup: without it no node can join and no certificate be renewed",
};

/// The SHA-256 of the authority's certificate. It is not secret: tokens carry it, and people can compare it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    /// The fingerprint of a certificate.
    #[must_use]
    pub fn of(certificate: &CertificateDer<'_>) -> Self {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(ring::digest::digest(&ring::digest::SHA256, certificate).as_ref());
        Self(bytes)
    }
}

impl std::str::FromStr for Fingerprint {
    type Err = String;

    /// Reads the form of `Display`: 64 hexadecimal digits.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            "a fingerprint has 64 hexadecimal digits; `weir admin authority` on the manager's machine prints it"
                .to_owned()
        };
        if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let mut bytes = [0; 32];
        for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
            let digits = std::str::from_utf8(digits).map_err(|_| wrong())?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| wrong())?;
        }
        Ok(Self(bytes))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The authority cannot be made, read, or used.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// A problem with its file.
    #[error("the cluster's certificate authority: {0}")]
    File(#[from] FileError),
    /// The kernel has no randomness.
    #[error("the cluster's certificate authority: {0}")]
    Random(#[from] RandomError),
    /// A certificate could not be made.
    #[error("cannot make a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// The request is malformed, or the sender does not have the private key.
    #[error("the certificate request is refused: {0}")]
    Request(&'static str),
}

/// Signs certificates. Its key leaves memory only for its file.
pub struct Authority {
    cluster: ClusterId,
    certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Authority(of cluster {}, {})", self.cluster, self.fingerprint())
    }
}

impl Authority {
    /// Makes the authority of `cluster` and stores it in the directory `folder`.
    ///
    /// # Errors
    /// An authority already exists there, or the file cannot be made.
    pub fn create(folder: &Path, cluster: ClusterId, now: Timestamp) -> Result<Self, AuthorityError> {
        let key = KeyPair::generate_for(&PKCS_ED25519)?;
        let mut params = params(cluster);
        limit(&mut params, now, AUTHORITY_VALIDITY)?;
        let certificate = params.self_signed(&key)?.der().clone();
        let lines = [
            ("cluster", cluster.to_string()),
            ("key", STANDARD.encode(key.serialized_der())),
            ("certificate", STANDARD.encode(&certificate)),
        ];
        KIND.write(&file(folder), &lines, Existing::Keep)?;
        Ok(Self { cluster, certificate, issuer: Issuer::new(params, key) })
    }

    /// Reads the authority in the directory `folder`.
    ///
    /// # Errors
    /// The file is missing, damaged, or readable by others.
    pub fn open(folder: &Path) -> Result<Self, AuthorityError> {
        let path = file(folder);
        let [cluster, key, certificate] = KIND.read(&path, ["cluster", "key", "certificate"])?;
        let damaged = |why| KIND.damaged(&path, why);
        let number = u128::from_str_radix(&cluster, 16).map_err(|_| damaged("its cluster is no number"))?;
        let key = STANDARD.decode(key).map_err(|_| damaged("its key is not base64"))?;
        let certificate = STANDARD.decode(certificate).map_err(|_| damaged("its certificate is not base64"))?;
        let key = KeyPair::from_pkcs8_der_and_sign_algo(&PrivatePkcs8KeyDer::from(key), &PKCS_ED25519);
        let key = key.map_err(|_| damaged("its key is none"))?;
        let cluster = ClusterId(number);
        let issuer = Issuer::new(params(cluster), key);
        Ok(Self { cluster, certificate: certificate.into(), issuer })
    }

    /// The authority's cluster.
    #[must_use]
    pub fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// Its own certificate, which every node has.
    #[must_use]
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// The fingerprint of its certificate.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.certificate)
    }

    /// Issues a certificate for `name` (which must be of this cluster) and the holder of the private part of `key`. It
    /// is valid until `validity` after `now`.
    ///
    /// # Errors
    /// [`AuthorityError`].
    pub(crate) fn issue(
        &self,
        name: &NodeName,
        key: &[u8; 32],
        now: Timestamp,
        validity: Duration,
    ) -> Result<Issued, AuthorityError> {
        if name.cluster != self.cluster {
            return Err(AuthorityError::Request("it is for another cluster"));
        }
        let uses = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = self.sign(&format!("weir node {}", name.node), name, uses, key, now, validity)?;
        Ok(Issued {
            name: *name,
            certificate,
            authority: self.certificate.clone(),
            expires: Timestamp::from_secs(now.plus(validity).secs()),
        })
    }

    /// Issues a certificate for the administrator `subject` (of this cluster) and the holder of the private part of
    /// `key`. It allows use by clients only.
    ///
    /// # Errors
    /// [`AuthorityError`].
    pub(crate) fn issue_admin(
        &self,
        subject: &AdminName,
        key: &[u8; 32],
        now: Timestamp,
        validity: Duration,
    ) -> Result<IssuedAdmin, AuthorityError> {
        if subject.cluster != self.cluster {
            return Err(AuthorityError::Request("it is for another cluster"));
        }
        let uses = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let common = format!("weir administrator {}", subject.id);
        let certificate = self.sign(&common, subject, uses, key, now, validity)?;
        Ok(IssuedAdmin {
            subject: *subject,
            certificate,
            authority: self.certificate.clone(),
            expires: Timestamp::from_secs(now.plus(validity).secs()),
        })
    }

    fn sign(
        &self,
        common: &str,
        uri: &dyn fmt::Display,
        uses: Vec<ExtendedKeyUsagePurpose>,
        key: &[u8; 32],
        now: Timestamp,
        validity: Duration,
    ) -> Result<CertificateDer<'static>, AuthorityError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = called(common);
        params.subject_alt_names = vec![SanType::URI(Ia5String::try_from(uri.to_string())?)];
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = uses;
        limit(&mut params, now, validity)?;
        Ok(params.signed_by(&PublicKey(*key), &self.issuer)?.der().clone())
    }

    /// Issues a new certificate for the administrator `subject`. `request` is that of
    /// [`crate::NewKey::admin_renewal`], from a connection on which the administrator has shown the present one. Pass
    /// the result to [`crate::admin::AdminIdentity::renewed`].
    ///
    /// # Errors
    /// [`AuthorityError`].
    pub fn renew_admin(
        &self,
        subject: &AdminName,
        request: &str,
        now: Timestamp,
        validity: Duration,
    ) -> Result<String, AuthorityError> {
        let key = keys::check_admin_renewal(subject, request).map_err(AuthorityError::Request)?;
        let issued = self.issue_admin(subject, &key, now, validity)?;
        let bytes = crate::message::encode(&issued.to_message());
        bytes.map(|bytes| STANDARD.encode(bytes)).map_err(|_| AuthorityError::Request("the answer cannot be written"))
    }

    /// Issues a new certificate for the node `name`. `request` holds the bytes of [`crate::NewKey::renewal`], from a
    /// connection on which the node has shown its present certificate. Pass the result to [`crate::Identity::renewed`].
    ///
    /// # Errors
    /// [`AuthorityError`].
    pub fn renew(
        &self,
        name: &NodeName,
        request: &[u8],
        now: Timestamp,
        validity: Duration,
    ) -> Result<Vec<u8>, AuthorityError> {
        let key = keys::check_renewal(name, request).map_err(AuthorityError::Request)?;
        self.issue(name, &key, now, validity)?.to_bytes()
    }
}

fn file(folder: &Path) -> PathBuf {
    folder.join(FILE)
}

fn params(cluster: ClusterId) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = called(&format!("weir cluster {cluster}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params
}

fn called(name: &str) -> DistinguishedName {
    let mut distinguished_name = DistinguishedName::new();
    distinguished_name.push(DnType::CommonName, name);
    distinguished_name
}

fn limit(params: &mut CertificateParams, now: Timestamp, validity: Duration) -> Result<(), RandomError> {
    let back = i64::try_from(CLOCKS_DIFFER.as_secs()).unwrap_or(0);
    params.not_before = date(now.secs().saturating_sub(back));
    params.not_after = date(now.plus(validity).secs());
    params.serial_number = Some(serial()?);
    Ok(())
}

fn serial() -> Result<SerialNumber, RandomError> {
    let mut bytes: [u8; 16] = random::bytes()?;
    // A positive number of this length.
    bytes[0] = bytes[0] & 0x7f | 0x40;
    Ok(SerialNumber::from_slice(&bytes))
}

/// Converts seconds since 1970; every [`Timestamp`] is a valid date.
fn date(secs: i64) -> time::OffsetDateTime {
    time::OffsetDateTime::from_unix_timestamp(secs).unwrap_or(time::OffsetDateTime::UNIX_EPOCH)
}

/// A certificate with everything that a node needs beside it.
#[derive(Clone, Debug)]
pub(crate) struct Issued {
    pub(crate) name: NodeName,
    pub(crate) certificate: CertificateDer<'static>,
    pub(crate) authority: CertificateDer<'static>,
    pub(crate) expires: Timestamp,
}

#[derive(serde::Serialize, serde::Deserialize)]
pub(crate) struct IssuedBytes {
    name: String,
    certificate: Vec<u8>,
    authority: Vec<u8>,
    expires: i64,
}

impl Issued {
    pub(crate) fn to_message(&self) -> IssuedBytes {
        IssuedBytes {
            name: self.name.to_string(),
            certificate: self.certificate.to_vec(),
            authority: self.authority.to_vec(),
            expires: self.expires.0,
        }
    }

    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>, AuthorityError> {
        crate::message::encode(&self.to_message()).map_err(|_| AuthorityError::Request("the answer cannot be written"))
    }

    pub(crate) fn from_message(message: IssuedBytes) -> Option<Self> {
        Some(Self {
            name: NodeName::from_text(&message.name)?,
            certificate: message.certificate.into(),
            authority: message.authority.into(),
            expires: Timestamp(message.expires),
        })
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Self::from_message(crate::message::decode(bytes).ok()?)
    }
}

/// A certificate with everything that an administrator needs beside it. Its message has the form of a node's.
#[derive(Clone, Debug)]
pub(crate) struct IssuedAdmin {
    pub(crate) subject: AdminName,
    pub(crate) certificate: CertificateDer<'static>,
    pub(crate) authority: CertificateDer<'static>,
    pub(crate) expires: Timestamp,
}

impl IssuedAdmin {
    pub(crate) fn to_message(&self) -> IssuedBytes {
        IssuedBytes {
            name: self.subject.to_string(),
            certificate: self.certificate.to_vec(),
            authority: self.authority.to_vec(),
            expires: self.expires.0,
        }
    }

    pub(crate) fn from_message(message: IssuedBytes) -> Option<Self> {
        Some(Self {
            subject: AdminName::from_text(&message.name)?,
            certificate: message.certificate.into(),
            authority: message.authority.into(),
            expires: Timestamp(message.expires),
        })
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Self::from_message(crate::message::decode(bytes).ok()?)
    }
}

/// The public key of a node or administrator. The authority never sees the private part.
struct PublicKey([u8; 32]);

impl PublicKeyData for PublicKey {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ED25519
    }
}
