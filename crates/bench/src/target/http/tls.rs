//! TLS: the certificate authorities that prove a server's identity. They are those of the system (or of
//! `SSL_CERT_FILE` and `SSL_CERT_DIR`), and those of `X509_CERT_DIR`, which grid sites use.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

/// The most files of a directory of authorities that are read.
const FILES_MAX: usize = 10_000;

/// Returns the TLS settings that all connections of a target share.
///
/// # Errors
/// The text says why there are no authorities.
pub(super) fn settings() -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    let system = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(system.certs);
    let mut why = system.errors.first().map(ToString::to_string);
    if let Some(folder) = std::env::var_os("X509_CERT_DIR") {
        match of_folder(Path::new(&folder)) {
            Ok(certificates) => drop(roots.add_parsable_certificates(certificates)),
            Err(error) => why = Some(format!("{}: {error}", Path::new(&folder).display())),
        }
    }
    if roots.is_empty() {
        return Err(why.unwrap_or_else(|| "none was found".to_owned()));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
}

/// Returns all certificates in the files of a directory. Other files, such as revocation lists and policies, are
/// skipped.
fn of_folder(folder: &Path) -> std::io::Result<Vec<CertificateDer<'static>>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)?.take(FILES_MAX) {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "pem" || end == "0" || end == "crt")
            && let Ok(certificates) = CertificateDer::pem_file_iter(&path)
        {
            found.extend(certificates.filter_map(Result::ok));
        }
    }
    Ok(found)
}
