//! Who a user is.

use identity::{DistinguishedName, Fqan};
use types::Timestamp;

use crate::certificate::Certificate;
use crate::error::{GridError, Problem};
use crate::host;
use crate::path::{self, SignatureBudget};
use crate::proxy;
use crate::trust::Trust;
use crate::voms;
use crate::voms_error::VomsError;

/// A user, as a chain of certificates proves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GridUser {
    /// The subject of the user's own certificate, without what proxies have added.
    pub subject: DistinguishedName,
    /// The VOMS attributes, the primary one first.
    pub fqans: Vec<Fqan>,
    /// Whether a proxy of the chain is limited: services that start jobs refuse it, and storage accepts it.
    pub limited: bool,
    /// How many proxies the chain has. With more than one, whoever has the last one is perhaps somebody to whom the user has delegated it.
    pub proxies: usize,
    /// When the first certificate of the chain ends, or the VOMS attributes do.
    pub not_after: Timestamp,
    /// The key of the first certificate (SubjectPublicKeyInfo, in DER). The user must still prove to have its private key.
    pub leaf_public_key: Vec<u8>,
    /// Why VOMS attributes do not count that the user has sent, for the log.
    pub refused_attributes: Vec<VomsError>,
}

/// Verifies the chain of a user: one or more proxies or none, the user's own certificate, perhaps authorities. The first one
/// is that whose private key the user has; the others may be in any order.
///
/// A certificate with names or addresses of hosts as alternative names is not one of a user. A stock server of `gsi` signs with its key
/// whatever a stranger sends it as a random tag. So a signature with the key of a host does not show that the host is there.
///
/// # Errors
///
/// [`GridError`]: which rule refuses which certificate. VOMS attributes that do not count are no error.
pub fn verify_user(chain: &[Vec<u8>], trust: &Trust, now: Timestamp) -> Result<GridUser, GridError> {
    user_of(&path::read_chain(chain)?, First::Unchecked, trust, now)
}

/// What is known of the first certificate of a chain.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum First {
    /// Nothing.
    Unchecked,
    /// It is a proxy, which the second one has signed.
    Checked,
}

/// The same, after the certificates were read.
pub(crate) fn user_of(
    chain: &[Certificate<'_>],
    first: First,
    trust: &Trust,
    now: Timestamp,
) -> Result<GridUser, GridError> {
    let mut budget = SignatureBudget::new();
    let mut used = vec![false; chain.len()];
    used[0] = true;
    let mut proxies: Vec<&Certificate<'_>> = Vec::new();
    let mut position = 0;
    while chain[position].is_proxy() {
        proxies.push(&chain[position]);
        if position == 0 && first == First::Checked {
            (position, used[1]) = (1, true);
        } else {
            position = path::signer_in_chain(chain, position, &mut used, &mut budget)?;
        }
    }
    let user = &chain[position];
    for certificate in proxies.iter().chain([&user]) {
        if let Some(why) = proxy::legacy(certificate) {
            return Err(certificate.refused(why));
        }
    }
    let limited = proxy::check(&proxies, user)?;
    let mut not_after = path::check(chain, position, &mut used, &mut budget, trust, now)?.ends;
    for certificate in &proxies {
        path::check_one(certificate, now)?;
        not_after = not_after.min(certificate.not_after());
    }
    for certificate in proxies.iter().chain([&user]) {
        check_use(certificate).map_err(|why| certificate.refused(why))?;
    }
    if let Some(host) = host::alternative_host(user) {
        return Err(user.refused(Problem::HostCertificate(host)));
    }
    let subject = user.distinguished_name().map_err(|why| user.refused(why))?;
    let leaf_public_key = chain[0].key().raw.to_vec();
    let attributes = voms::attributes(&proxies, user, trust, now);
    not_after = attributes.not_after.map_or(not_after, |ends| ends.min(not_after));
    let (fqans, refused_attributes) = (attributes.fqans, attributes.refused);
    let proxies = proxies.len();
    Ok(GridUser { subject, fqans, limited, proxies, not_after, leaf_public_key, refused_attributes })
}

/// Whether the certificate may be used to prove who somebody is. That holds for each proxy as well (RFC 3820, section 3.6).
fn check_use(certificate: &Certificate<'_>) -> Result<(), Problem> {
    let extensions = &certificate.extensions;
    if extensions.key_usage.as_ref().is_some_and(|usage| !usage.digital_signature()) {
        return Err(Problem::MustNotSign);
    }
    if extensions.extended_key_usage.as_ref().is_some_and(|usage| !usage.any && !usage.client_auth) {
        return Err(Problem::Purpose("clients"));
    }
    Ok(())
}
