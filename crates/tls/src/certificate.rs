//! The certificate that a server shows to its clients.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use rustls::ServerConfig;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use types::Timestamp;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::{CertificateError, provider};

/// The longest file of certificates or a key.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// How often the files are looked at, at most.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// A certificate that ends within this time is told of in the log.
const ENDS_SOON: Duration = Duration::from_secs(14 * 24 * 3600);
/// How often it is told of.
const TELL_EVERY: Duration = Duration::from_secs(24 * 3600);

/// Where a server's certificate and its key are, in PEM form.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CertificateFiles {
    /// The certificate, then those of the authorities between it and one that clients trust.
    pub certificate: PathBuf,
    /// The key. Only its owner may have access to it.
    pub key: PathBuf,
}

/// A server's certificate, which is read again when its files change. If they cannot be used then, the log says so, and the
/// server goes on with what it has.
#[derive(Debug)]
pub struct ServerCertificate {
    files: CertificateFiles,
    shown: Arc<Shown>,
    looked: Mutex<Looked>,
    config: Arc<ServerConfig>,
}

/// What clients are shown.
#[derive(Debug)]
struct Shown(RwLock<Current>);

#[derive(Debug)]
struct Current {
    key: Arc<CertifiedKey>,
    ends: Timestamp,
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read().key))
    }
}

/// What distinguishes the versions of a file: inode, length, and when it was changed (seconds, nanoseconds).
type Version = (u64, u64, i64, i64);

#[derive(Debug)]
struct Looked {
    at: Timestamp,
    versions: [Option<Version>; 2],
    told: Option<Timestamp>,
    /// Why the new files were not used, as the log says.
    failed: Option<String>,
}

impl ServerCertificate {
    /// Reads the files at `now`.
    ///
    /// # Errors
    /// They cannot be read, or do not belong together.
    pub fn load(files: CertificateFiles, now: Timestamp) -> Result<Arc<Self>, CertificateError> {
        let versions = versions(&files);
        let shown = Arc::new(Shown(RwLock::new(read(&files)?)));
        let config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
            .map_err(|source| unusable(&files, source))?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&shown) as _);
        let looked = Mutex::new(Looked { at: now, versions, told: None, failed: None });
        let certificate = Arc::new(Self { files, shown, looked, config: Arc::new(config) });
        certificate.tell_of_its_end(now);
        Ok(certificate)
    }

    /// The configuration for a new connection at `now`. If the files have changed, it is that of their new version.
    #[must_use]
    pub fn config(&self, now: Timestamp) -> Arc<ServerConfig> {
        self.look(now);
        Arc::clone(&self.config)
    }

    /// When the certificate ends that is shown at `now`.
    #[must_use]
    pub fn ends(&self, now: Timestamp) -> Timestamp {
        self.look(now);
        self.shown.0.read().ends
    }

    /// Reads the files again if they have changed, at most once in [`LOOK_EVERY`].
    fn look(&self, now: Timestamp) {
        let versions = {
            let mut looked = self.looked.lock();
            if is_within(looked.at, now, LOOK_EVERY) {
                return;
            }
            looked.at = now;
            let versions = versions(&self.files);
            let is_new = versions != looked.versions;
            looked.versions = versions;
            is_new.then_some(versions)
        };
        if versions.is_some() {
            match read(&self.files) {
                Ok(current) => {
                    tracing::info!(ends = %current.ends, "the certificate for clients was replaced, and is in use");
                    *self.shown.0.write() = current;
                    let mut looked = self.looked.lock();
                    (looked.told, looked.failed) = (None, None);
                }
                Err(error) => {
                    let error = error.to_string();
                    let mut looked = self.looked.lock();
                    // What was wrong may be mended without a trace in the files, such as a file's owner.
                    looked.versions = [None; 2];
                    if looked.failed.as_ref() != Some(&error) {
                        tracing::error!(error, "the new certificate is not used; the one before stays in use");
                        looked.failed = Some(error);
                    }
                }
            }
        }
        self.tell_of_its_end(now);
    }

    fn tell_of_its_end(&self, now: Timestamp) {
        let ends = self.shown.0.read().ends;
        let mut looked = self.looked.lock();
        let told_lately = looked.told.is_some_and(|told| is_within(told, now, TELL_EVERY));
        if ends > now.plus(ENDS_SOON) || told_lately {
            return;
        }
        looked.told = Some(now);
        let file = self.files.certificate.display();
        if ends > now {
            let days = (ends.secs() - now.secs()) / 86400;
            tracing::warn!(%file, %ends, "the certificate for clients ends in {days} days: replace it");
        } else {
            tracing::error!(%file, %ends, "the certificate for clients has ended: clients refuse it");
        }
    }
}

/// Whether `now` is at most `time` after `then`. It is not if the clock was set back.
fn is_within(then: Timestamp, now: Timestamp, time: Duration) -> bool {
    then <= now && now < then.plus(time)
}

fn versions(files: &CertificateFiles) -> [Option<Version>; 2] {
    [&files.certificate, &files.key].map(|path| {
        let about = std::fs::metadata(path).ok()?;
        Some((about.ino(), about.len(), about.mtime(), about.mtime_nsec()))
    })
}

fn read(files: &CertificateFiles) -> Result<Current, CertificateError> {
    let (bytes, _) = contents("certificate", &files.certificate)?;
    let chain = CertificateDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|error| unreadable("certificate", &files.certificate, &error))?;
    let path = &files.certificate;
    let first = chain.first().ok_or_else(|| CertificateError::Missing { what: "certificate", path: path.clone() })?;
    let not_x509 = |problem: String| CertificateError::NotX509 { path: path.clone(), problem };
    let (_, parsed) = X509Certificate::from_der(first).map_err(|error| not_x509(error.to_string()))?;
    let ends = Timestamp::from_secs(parsed.validity().not_after.timestamp());
    let (bytes, mode) = contents("key", &files.key)?;
    if mode & 0o077 != 0 {
        return Err(CertificateError::OpenToOthers { path: files.key.clone(), mode });
    }
    let key = match PrivateKeyDer::from_pem_slice(&bytes) {
        Ok(key) => key,
        Err(rustls::pki_types::pem::Error::NoItemsFound) => {
            return Err(CertificateError::Missing { what: "key", path: files.key.clone() });
        }
        Err(error) => return Err(unreadable("key", &files.key, &error)),
    };
    let key = any_supported_type(&key).map_err(|source| unusable(files, source))?;
    let key = CertifiedKey::new(chain, key);
    key.keys_match().map_err(|source| unusable(files, source))?;
    Ok(Current { key: Arc::new(key), ends })
}

fn unusable(files: &CertificateFiles, source: rustls::Error) -> CertificateError {
    CertificateError::Unusable { certificate: files.certificate.clone(), key: files.key.clone(), source }
}

fn unreadable(what: &'static str, path: &Path, problem: &dyn std::fmt::Display) -> CertificateError {
    CertificateError::Unreadable { what, path: path.to_owned(), problem: problem.to_string() }
}

/// A file's bytes, and its permission bits.
fn contents(what: &'static str, path: &Path) -> Result<(Vec<u8>, u32), CertificateError> {
    let failed = |error: std::io::Error| unreadable(what, path, &error);
    let file = File::open(path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.mode() & 0o7777;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(unreadable(what, path, &format_args!("it is longer than {} KiB", FILE_BYTES_MAX >> 10)));
    }
    Ok((bytes, mode))
}
