//! The authorities that a client trusts.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, ServerName, UnixTime};
use rustls::{ClientConfig, RootCertStore};

use crate::authority_files::{Kind, certificates, read_bounded, read_directory, revocation_list};
use crate::error::Distrusted;
use crate::{TrustError, provider};

/// Where grid sites keep the certificates of authorities and their revocation lists.
pub const GRID_AUTHORITIES: &str = "/etc/grid-security/certificates";

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
    verifier: Arc<WebPkiServerVerifier>,
    unusable_authorities: usize,
    problems: Arc<[String]>,
}

struct Found {
    roots: RootCertStore,
    lists: Vec<CertificateRevocationListDer<'static>>,
    unusable_authorities: usize,
    problems: Vec<String>,
}

impl Trust {
    /// Reads the authorities.
    ///
    /// A certificate that its authority has revoked is refused. An authority without a revocation list can revoke none. A
    /// list that has ended still counts. An authority with a list that is malformed, or of
    /// which nobody can tell what it revokes, is not trusted. A list of a kind that TLS does not know here, such as one of
    /// version 1 or without the time of the next one, is not used.
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
        let mut found =
            Found { roots: RootCertStore::empty(), lists: Vec::new(), unusable_authorities: 0, problems: Vec::new() };
        for source in sources {
            found.add_source(source)?;
        }
        found.finish()
    }

    /// How many files of authorities do not count because nobody can tell what these authorities have revoked.
    #[must_use]
    pub fn unusable_authorities(&self) -> usize {
        self.unusable_authorities
    }

    /// What was left out, for the log.
    #[must_use]
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// The configuration for a connection.
    #[must_use]
    pub fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.config)
    }

    /// Checks the certificate of a server that has shown it outside TLS, as `gsi` does: it is in DER form, and must be from a
    /// trusted authority and for `host` at `now`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check_server(&self, certificate: &[u8], host: &str, now: SystemTime) -> Result<(), ServerError> {
        let name = ServerName::try_from(host).map_err(|_| ServerError::Host(host.to_owned()))?;
        let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let certificate = CertificateDer::from(certificate);
        self.verifier.verify_server_cert(&certificate, &[], &name, &[], UnixTime::since_unix_epoch(now))?;
        Ok(())
    }
}

/// Why a server's certificate is not good.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The name of the server cannot be in a certificate.
    #[error("`{0}` is not the name or the address of a host")]
    Host(String),
    /// The certificate is not good.
    #[error(transparent)]
    Certificate(#[from] rustls::Error),
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
            TrustSource::Directory(path) if self.unusable_authorities > 0 => {
                let (unusable_authorities, problems) = (self.unusable_authorities, std::mem::take(&mut self.problems));
                Err(TrustError::Distrusted(Arc::new(Distrusted { path: path.clone(), unusable_authorities, problems })))
            }
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
        for certificate in certificates(pem) {
            self.add(certificate);
        }
    }

    fn add_directory(&mut self, directory: &Path) -> Result<(), TrustError> {
        let files = read_directory(directory, &[Kind::Certificates, Kind::RevocationList])?;
        let (lists, authorities): (Vec<_>, Vec<_>) =
            files.into_iter().partition(|file| file.kind == Kind::RevocationList);
        let mut unusable = Vec::new();
        for file in lists {
            let list = revocation_list(&file.bytes);
            // One list that cannot be used must not take the others with it.
            match (webpki::OwnedCertRevocationList::from_der(&list), grid::problem_of_revocation_list(&list)) {
                (Ok(_), _) => self.lists.push(list),
                (Err(_), Some(why)) => unusable.push((file, why)),
                // It is sound, but of a kind that is not known here, such as one of version 1. Its authority has done nothing wrong.
                (Err(error), None) => {
                    let list = file.path.display();
                    self.problems.push(format!("the revocation list {list} is not used for TLS: {error:?}"));
                }
            }
        }
        for file in authorities {
            // Its authority may have revoked any certificate, so none of its certificates counts.
            match unusable.iter().find(|(list, _)| list.stems.iter().any(|stem| file.stems.contains(stem))) {
                Some((list, why)) => {
                    let (list, authority) = (list.path.display(), file.path.display());
                    self.unusable_authorities += 1;
                    self.problems.push(format!(
                        "the revocation list {list} cannot be used, so its authority {authority} is not trusted: {why}"
                    ));
                }
                None => self.add_certificates(&file.bytes),
            }
        }
        Ok(())
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
            .with_webpki_verifier(Arc::clone(&verifier))
            .with_no_client_auth();
        let (unusable_authorities, problems) = (self.unusable_authorities, self.problems.into());
        Ok(Trust { config: Arc::new(config), verifier, unusable_authorities, problems })
    }
}
