//! TLS to the database.

use std::fs;
use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::address::Encryption;
use crate::{DatabaseAddress, DatabaseError};

/// Makes encrypted connections to `address`, if it wants such. Trusts the certificates that it names, or the system's authorities.
pub(crate) fn connector(address: &DatabaseAddress) -> Result<MakeRustlsConnect, DatabaseError> {
    let mut trusted = RootCertStore::empty();
    match &address.root_certificates {
        _ if address.encryption == Encryption::Off => {} // nobody is asked for a certificate
        Some(path) => {
            let failed = |reason: String| {
                let shown = path.display();
                DatabaseError::Failed(format!("cannot use the certificates in {shown} (`sslrootcert`): {reason}"))
            };
            let pem = fs::read(path).map_err(|error| failed(error.to_string()))?;
            for certificate in CertificateDer::pem_slice_iter(&pem) {
                let certificate = certificate.map_err(|error| failed(error.to_string()))?;
                trusted.add(certificate).map_err(|error| failed(error.to_string()))?;
            }
            if trusted.is_empty() {
                return Err(failed("the file has none".into()));
            }
        }
        None => {
            // Certificates that cannot be read are skipped: the server's authority may be among the others.
            for certificate in rustls_native_certs::load_native_certs().certs {
                let _ = trusted.add(certificate);
            }
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| DatabaseError::Failed(format!("cannot set up TLS: {error}")))?
        .with_root_certificates(trusted)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}
