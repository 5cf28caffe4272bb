//! Proxies that users delegate to this service.

use types::Timestamp;

use crate::error::{GridError, Problem};
use crate::path;
use crate::trust::Trust;
use crate::user::{First, GridUser, user_of};

/// Verifies the proxy `proxy` that the user of the chain `presented` has signed for a service whose new key has the public part `key`
/// (SubjectPublicKeyInfo, in DER). It must be signed with the key that the user has shown to have: that of the first certificate
/// presented. All rules for chains hold for both together, so that it is limited if that one is, within the lengths that the chain
/// allows, and lasts no longer.
///
/// Returns the user, until when the proxy lasts.
///
/// # Errors
///
/// [`GridError`]: which rule refuses which certificate.
pub fn verify_delegated(
    proxy: &[u8],
    presented: &[Vec<u8>],
    key: &[u8],
    trust: &Trust,
    now: Timestamp,
) -> Result<GridUser, GridError> {
    let chain: Vec<Vec<u8>> = std::iter::once(proxy.to_vec()).chain(presented.iter().cloned()).collect();
    let certificates = path::read_chain(&chain)?;
    let [new, issuer, ..] = certificates.as_slice() else { return Err(GridError::Empty) };
    if !new.is_proxy() {
        return Err(new.refused(Problem::NoProxy));
    }
    if new.key().raw != key {
        return Err(new.refused(Problem::ProxyKey));
    }
    if new.issuer != issuer.subject {
        return Err(new.refused(Problem::ProxyIssuer(issuer.subject_for_message())));
    }
    // XRootD before 5.6 signs with SHA-1. The key is new, so nobody can have prepared another certificate with the same digest.
    new.check_new_signature(issuer).map_err(|why| new.refused(why))?;
    user_of(&certificates, First::Checked, trust, now)
}
