//! The authorities that a client trusts.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use rustls::{ClientConfig, RootCertStore};

use crate::{TrustError, provider};

/// Where grid sites keep the certificates of authorities and their revocation lists.
pub const GRID_AUTHORITIES: &str = "/etc/grid-security/certificates";
/// A directory of authorities has at most so many files. (The grid's has about 600.)
const FILES_MAX: usize = 20_000;
/// The longest of these files. (Revocation lists of large authorities have some MB.)
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Where the authorities come from.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum TrustSource {
    /// Those of the system, and those of the grid if there are any ([`GRID_AUTHORITIES`]).
    #[default]
    System,
    /// A file with certificates in PEM form.
    File(PathBuf),
    /// A directory as OpenSSL and grid software use it: certificates in files `HASH.N`, revocation lists in
    /// `HASH.rN`.
    Directory(PathBuf),
}

/// The authorities that a client trusts. Clones share them.
#[derive(Clone, Debug)]
pub struct Trust {
    config: Arc<ClientConfig>,
}

struct Found {
    roots: RootCertStore,
    lists: Vec<CertificateRevocationListDer<'static>>,
}

impl Trust {
    /// Reads the authorities.
    ///
    /// A certificate that its authority has revoked is refused. An authority without a revocation list can revoke none. A
    /// list that has ended still counts.
    ///
    /// # Errors
    /// There are none, or they cannot be read.
    pub fn load(source: &TrustSource) -> Result<Self, TrustError> {
        Self::load_all(std::slice::from_ref(source))
    }

    /// Reads the authorities of several places. Each of them must have some.
    ///
    /// # Errors
    /// There are none, or they cannot be read.
    pub fn load_all(sources: &[TrustSource]) -> Result<Self, TrustError> {
        let mut found = Found { roots: RootCertStore::empty(), lists: Vec::new() };
        for source in sources {
            found.add_source(source)?;
        }
        found.finish()
    }

    /// The configuration for a connection.
    #[must_use]
    pub fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.config)
    }
}

impl Found {
    fn add_source(&mut self, source: &TrustSource) -> Result<(), TrustError> {
        let before = self.roots.len();
        match source {
            TrustSource::System => {
                for certificate in rustls_native_certs::load_native_certs().certs {
                    self.add(certificate);
                }
                let grid = Path::new(GRID_AUTHORITIES);
                if grid.is_dir() {
                    self.add_directory(grid)?;
                }
            }
            TrustSource::File(path) => {
                let bytes = read_bounded(path);
                let bytes = bytes.map_err(|source| TrustError::Unreadable { path: path.clone(), source })?;
                self.add_certificates(&bytes);
            }
            TrustSource::Directory(path) => self.add_directory(path)?,
        }
        match source {
            _ if self.roots.len() > before => Ok(()),
            TrustSource::System => Err(TrustError::NoneInSystem),
            TrustSource::File(path) | TrustSource::Directory(path) => Err(TrustError::Empty { path: path.clone() }),
        }
    }

    fn add(&mut self, certificate: CertificateDer<'static>) {
        // Some authorities have certificates that no verifier of today takes. They can sign nothing here then.
        if let Err(error) = self.roots.add(certificate) {
            tracing::debug!(%error, "a certificate of an authority is not used");
        }
    }

    fn add_certificates(&mut self, pem: &[u8]) {
        for certificate in CertificateDer::pem_slice_iter(pem).map_while(Result::ok) {
            self.add(certificate);
        }
    }

    fn add_directory(&mut self, directory: &Path) -> Result<(), TrustError> {
        let unreadable = |source| TrustError::Unreadable { path: directory.to_owned(), source };
        // Old and new hashes, and names, are links to one file.
        let mut seen = std::collections::HashSet::new();
        for (number, entry) in fs::read_dir(directory).map_err(unreadable)?.enumerate() {
            if number == FILES_MAX {
                // What is left out may be a revocation list.
                return Err(TrustError::TooMany { path: directory.to_owned() });
            }
            let entry = entry.map_err(unreadable)?;
            let name = entry.file_name();
            let Some((_, ending)) = name.to_str().and_then(|name| name.rsplit_once('.')) else { continue };
            let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            let is_list = ending.strip_prefix('r').is_some_and(is_number);
            if !is_list && !is_number(ending) {
                continue;
            }
            // A link to a file that is gone is no authority, and does not make others unusable.
            let Ok(file) = entry.path().canonicalize() else { continue };
            if !seen.insert(file.clone()) {
                continue;
            }
            match read_bounded(&file) {
                Ok(bytes) if is_list => self.add_list(&file, &bytes),
                Ok(bytes) => self.add_certificates(&bytes),
                Err(error) => tracing::warn!(file = %file.display(), %error, "an authority's file cannot be read"),
            }
        }
        Ok(())
    }

    fn add_list(&mut self, file: &Path, bytes: &[u8]) {
        let list = match CertificateRevocationListDer::from_pem_slice(bytes) {
            Ok(list) => list,
            // Lists are also kept in DER.
            Err(_) => CertificateRevocationListDer::from(bytes.to_vec()),
        };
        // One list that cannot be used must not take the others with it.
        match webpki::OwnedCertRevocationList::from_der(&list) {
            Ok(_) => self.lists.push(list),
            Err(error) => tracing::warn!(file = %file.display(), ?error, "a revocation list cannot be used"),
        }
    }

    fn finish(self) -> Result<Trust, TrustError> {
        let unusable = |error: &dyn std::fmt::Display| TrustError::Unusable(error.to_string());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(self.roots), provider())
            .with_crls(self.lists)
            .allow_unknown_revocation_status()
            .build()
            .map_err(|error| unusable(&error))?;
        let config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
            .map_err(|error| unusable(&error))?
            .with_webpki_verifier(verifier)
            .with_no_client_auth();
        Ok(Trust { config: Arc::new(config) })
    }
}

fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    if fs::metadata(path)?.len() > FILE_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is too long"));
    }
    fs::read(path)
}
