//! VOMS attributes: who may give them, to whom, and for how long.

use identity::{CLOCK_SKEW, DistinguishedName, Fqan, VOMS_ATTRIBUTES_MAX, shown};
use types::Timestamp;

use crate::attribute_certificate::{ATTRIBUTE_CERTIFICATES_MAX, AttributeCertificate, list};
use crate::certificate::Certificate;
use crate::path::{self, SignatureBudget};
use crate::signature;
use crate::trust::Trust;
use crate::voms_error::{VomsError, VomsProblem};

/// What the attribute certificates of a chain say.
pub(crate) struct Attributes {
    /// The attributes, the primary one first.
    pub fqans: Vec<Fqan>,
    /// When the first of the attribute certificates ends that count.
    pub not_after: Option<Timestamp>,
    /// Those that do not count.
    pub refused: Vec<VomsError>,
}

/// Reads and checks the attributes in the first of `proxies` that has some, the leaf first: a user who makes a proxy with other
/// attributes wants those alone. `user` is the user's own certificate.
pub(crate) fn attributes(
    proxies: &[&Certificate<'_>],
    user: &Certificate<'_>,
    trust: &Trust,
    now: Timestamp,
) -> Attributes {
    let mut attributes = Attributes { fqans: Vec::new(), not_after: None, refused: Vec::new() };
    let Some(extension) = proxies.iter().find_map(|proxy| proxy.extensions.voms) else { return attributes };
    let unnamed = |why| VomsError { organization: "an organization".into(), why };
    let Ok(certificates) = list(extension) else {
        attributes.refused.push(unnamed(VomsProblem::Malformed));
        return attributes;
    };
    if certificates.len() > ATTRIBUTE_CERTIFICATES_MAX {
        attributes.refused.push(unnamed(VomsProblem::TooManyCertificates));
        return attributes;
    }
    let mut budget = SignatureBudget::new();
    for bytes in certificates {
        let Ok(certificate) = AttributeCertificate::parse(bytes) else {
            attributes.refused.push(unnamed(VomsProblem::Malformed));
            continue;
        };
        match check(&certificate, user, trust, now, &mut budget) {
            Ok(fqans) if attributes.fqans.len() + fqans.len() > VOMS_ATTRIBUTES_MAX => {
                attributes.refuse(&certificate, VomsProblem::TooManyAttributes);
            }
            Ok(fqans) => {
                for fqan in fqans {
                    if !attributes.fqans.contains(&fqan) {
                        attributes.fqans.push(fqan);
                    }
                }
                let (_, ends) = certificate.times;
                attributes.not_after = Some(attributes.not_after.map_or(ends, |before| before.min(ends)));
            }
            Err(why) => attributes.refuse(&certificate, why),
        }
    }
    attributes
}

impl Attributes {
    fn refuse(&mut self, certificate: &AttributeCertificate<'_>, why: VomsProblem) {
        self.refused.push(VomsError { organization: shown(certificate.organization), why });
    }
}

fn check(
    certificate: &AttributeCertificate<'_>,
    user: &Certificate<'_>,
    trust: &Trust,
    now: Timestamp,
    budget: &mut SignatureBudget,
) -> Result<Vec<Fqan>, VomsProblem> {
    if !certificate.is_version_2 {
        return Err(VomsProblem::Version);
    }
    check_holder(certificate, user)?;
    let (from, to) = certificate.times;
    if from > now.plus(CLOCK_SKEW) {
        return Err(VomsProblem::NotYetValid { from: from.secs(), now: now.secs() });
    }
    if to <= now {
        return Err(VomsProblem::Expired { ended: to.secs(), now: now.secs() });
    }
    check_extensions(certificate, trust)?;
    check_signer(certificate, trust, now, budget)?;
    fqans(certificate)
}

/// RFC 5755 names the holder's certificate by its issuer and its number. Some programs of VOMS write the holder's own name
/// instead of the issuer's, and the libraries of VOMS take both.
fn check_holder(certificate: &AttributeCertificate<'_>, user: &Certificate<'_>) -> Result<(), VomsProblem> {
    let is_user = certificate.holder.as_ref().is_some_and(|holder| {
        let same_name = holder.name == user.issuer || holder.name == user.subject;
        same_name && holder.serial == user.serial() && !holder.has_unique_id && !user.has_issuer_unique_id()
    });
    if is_user { Ok(()) } else { Err(VomsProblem::Holder) }
}

fn check_extensions(certificate: &AttributeCertificate<'_>, trust: &Trust) -> Result<(), VomsProblem> {
    let extensions = &certificate.extensions;
    if let Some(unknown) = &extensions.unknown {
        return Err(VomsProblem::Critical(unknown.clone()));
    }
    // Without it, somebody may have revoked the attributes, and nobody here would know.
    if !extensions.has_no_revocation {
        return Err(VomsProblem::MissingExtension("noRevAvail"));
    }
    if !extensions.has_authority_key_id {
        return Err(VomsProblem::MissingExtension("authorityKeyIdentifier"));
    }
    let is_own = |target: &&str| trust.own_hosts().iter().any(|host| host.eq_ignore_ascii_case(target));
    match &extensions.targets {
        Some(targets) if !targets.iter().any(is_own) => Err(VomsProblem::Target),
        _ => Ok(()),
    }
}

fn check_signer(
    certificate: &AttributeCertificate<'_>,
    trust: &Trust,
    now: Timestamp,
    budget: &mut SignatureBudget,
) -> Result<(), VomsProblem> {
    if certificate.extensions.certificates.is_empty() {
        return Err(VomsProblem::NoSigner);
    }
    let chain = path::read_chain(&certificate.extensions.certificates)?;
    let signer = &chain[0];
    let file = || shown(&format!("{}/{}.lsc", certificate.organization, certificate.host));
    let allowed = trust.voms_servers().chains(certificate.organization, certificate.host);
    let allowed = allowed.ok_or_else(|| VomsProblem::UnknownServer(file()))?;
    let mut used = vec![false; chain.len()];
    used[0] = true;
    if signer.is_proxy() {
        return Err(VomsProblem::Issuer);
    }
    let verified = path::check(&chain, 0, &mut used, budget, trust, now)?;
    if !is_allowed(signer, &verified.issuers, allowed) {
        return Err(VomsProblem::OtherSigner { signer: signer.subject_for_message(), file: file() });
    }
    if signer.extensions.key_usage.as_ref().is_some_and(|usage| !usage.digital_signature()) {
        return Err(VomsProblem::SignerMustNotSign);
    }
    if certificate.issuer != signer.subject {
        return Err(VomsProblem::Issuer);
    }
    let Some(algorithm) = &certificate.algorithm else {
        return Err(VomsProblem::Signature("two places name different signature algorithms".into()));
    };
    budget.spend()?;
    signature::check(signer.key(), algorithm, certificate.signed, certificate.signature)
        .map_err(|why| VomsProblem::Signature(why.to_string()))
}

/// Whether the site has the names of the signer and of the authorities above it in the file of the server. These are the authorities
/// of the path that was verified: the signer can send any others with it.
fn is_allowed(signer: &Certificate<'_>, issuers: &[Certificate<'_>], allowed: &[Vec<DistinguishedName>]) -> bool {
    // The signer's subject, then the issuer of each certificate.
    let names: Result<Vec<DistinguishedName>, _> = std::iter::once(signer.distinguished_name())
        .chain(std::iter::once(signer).chain(issuers).map(Certificate::issuer_distinguished_name))
        .collect();
    names.is_ok_and(|names| allowed.iter().any(|allowed| names.starts_with(allowed)))
}

fn fqans(certificate: &AttributeCertificate<'_>) -> Result<Vec<Fqan>, VomsProblem> {
    if certificate.fqans.len() > VOMS_ATTRIBUTES_MAX {
        return Err(VomsProblem::TooManyAttributes);
    }
    let fqans = certificate.fqans.iter().map(|text| {
        let fqan = Fqan::parse(text)?;
        // A server gives attributes of its own organization only.
        let organization = fqan.group().as_str().split('/').nth(1);
        if organization == Some(certificate.organization) {
            Ok(fqan)
        } else {
            Err(VomsProblem::OtherOrganization(shown(text)))
        }
    });
    fqans.collect()
}
