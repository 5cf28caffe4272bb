//! The path from a certificate to a trusted authority (RFC 5280, section 6).

use types::Timestamp;

use crate::certificate::Certificate;
use crate::error::{GridError, Problem};
use crate::limits::{CERTIFICATE_BYTES_MAX, CHAIN_MAX, SIGNATURES_MAX};
use crate::name_constraints;
use crate::revocation::RevocationProblem;
use crate::signature;
use crate::trust::Trust;

/// Reads the certificates of a chain.
pub(crate) fn read_chain(chain: &[Vec<u8>]) -> Result<Vec<Certificate<'_>>, GridError> {
    if chain.is_empty() {
        return Err(GridError::Empty);
    }
    if chain.len() > CHAIN_MAX {
        return Err(GridError::TooMany(chain.len()));
    }
    let certificates = (1..).zip(chain).map(|(position, der)| {
        if der.len() > CERTIFICATE_BYTES_MAX {
            return Err(GridError::TooLong { position, len: der.len() });
        }
        Certificate::parse(der).map_err(|why| GridError::Unreadable { position, why })
    });
    certificates.collect()
}

/// How many more signatures may be checked.
pub(crate) struct SignatureBudget(u32);

impl SignatureBudget {
    pub fn new() -> Self {
        Self(SIGNATURES_MAX)
    }

    pub fn spend(&mut self) -> Result<(), GridError> {
        self.0 = self.0.checked_sub(1).ok_or(GridError::TooManySignatures)?;
        Ok(())
    }
}

/// The position in `chain` of the certificate that has signed the one at `position`. Each position is used once.
pub(crate) fn signer_in_chain(
    chain: &[Certificate<'_>],
    position: usize,
    used: &mut [bool],
    budget: &mut SignatureBudget,
) -> Result<usize, GridError> {
    let certificate = &chain[position];
    signer_of(certificate, chain, used, budget, Problem::UnknownIssuer(certificate.issuer_for_message()))
}

/// The same for any certificate. `why`: what is wrong if none has signed it.
fn signer_of(
    certificate: &Certificate<'_>,
    chain: &[Certificate<'_>],
    used: &mut [bool],
    budget: &mut SignatureBudget,
    mut why: Problem,
) -> Result<usize, GridError> {
    for (candidate, issuer) in chain.iter().enumerate() {
        if used[candidate] || issuer.subject != certificate.issuer {
            continue;
        }
        budget.spend()?;
        match certificate.check_signature(issuer) {
            Ok(()) => {
                used[candidate] = true;
                return Ok(candidate);
            }
            Err(problem) => why = problem,
        }
    }
    Err(certificate.refused(why))
}

/// Checks the certificate `chain[position]` of a user or a host: its times, its key, and the path from it to a trusted
/// authority. Further authorities of the path may be in the chain, in any order.
///
pub(crate) fn check<'a>(
    chain: &'a [Certificate<'a>],
    position: usize,
    used: &mut [bool],
    budget: &mut SignatureBudget,
    trust: &'a Trust,
    now: Timestamp,
) -> Result<Verified<'a>, GridError> {
    let path = find(chain, position, used, budget, trust)?;
    let end_entity = &chain[position];
    if end_entity.is_authority() {
        return Err(end_entity.refused(Problem::Authority));
    }
    check_one(end_entity, now)?;
    let mut ends = end_entity.not_after();
    // Authorities below the one that is looked at, not counting those that replace a key of their own (section 6.1.4, l).
    let mut below = 0;
    let mut certificate = end_entity;
    for (place, issuer) in path.iter().enumerate() {
        check_issuer(issuer, certificate, below).map_err(|(wrong, why)| wrong.refused(why))?;
        check_revocation(trust, certificate, issuer).map_err(|why| certificate.refused(why))?;
        check_policy(trust, certificate, issuer).map_err(|why| certificate.refused(why))?;
        check_one(&issuer.certificate, now)?;
        if let Some(constraints) = &issuer.certificate.extensions.name_constraints {
            let below_it = path[..place].iter().map(|issuer| &issuer.certificate);
            let below_it = below_it.filter(|authority| !authority.is_self_issued());
            for certificate in std::iter::once(end_entity).chain(below_it) {
                if let Some(name) = name_constraints::violated(constraints, certificate) {
                    let authority = issuer.certificate.subject_for_message();
                    return Err(certificate.refused(Problem::NameConstraints { name, authority }));
                }
            }
        }
        ends = ends.min(issuer.certificate.not_after());
        below += u32::from(!issuer.certificate.is_self_issued());
        certificate = &issuer.certificate;
    }
    Ok(Verified { ends, issuers: path.into_iter().map(|issuer| issuer.certificate).collect() })
}

/// A path that was checked.
pub(crate) struct Verified<'a> {
    /// When the first certificate of the path ends.
    pub ends: Timestamp,
    /// The authorities, up to the trusted one that has signed itself.
    pub issuers: Vec<Certificate<'a>>,
}

/// An authority of a path.
struct Issuer<'a> {
    certificate: Certificate<'a>,
    /// Its number if it is a trusted one.
    number: Option<usize>,
}

/// Finds the authorities from the issuer of `chain[position]` to one that has signed itself and is trusted. A directory of
/// authorities also has intermediate ones, whose own path is followed: they may be revoked.
fn find<'a>(
    chain: &'a [Certificate<'a>],
    position: usize,
    used: &mut [bool],
    budget: &mut SignatureBudget,
    trust: &'a Trust,
) -> Result<Vec<Issuer<'a>>, GridError> {
    let mut path: Vec<Issuer<'a>> = Vec::new();
    loop {
        let certificate = path.last().map_or(&chain[position], |issuer| &issuer.certificate);
        if path.last().is_some_and(|issuer| issuer.number.is_some() && issuer.certificate.is_self_issued()) {
            return Ok(path);
        }
        if path.len() == CHAIN_MAX {
            return Err(GridError::TooMany(path.len() + 1));
        }
        let issuer = find_issuer(certificate, chain, used, budget, trust, &path)?;
        path.push(issuer);
    }
}

fn find_issuer<'a>(
    certificate: &Certificate<'_>,
    chain: &'a [Certificate<'a>],
    used: &mut [bool],
    budget: &mut SignatureBudget,
    trust: &'a Trust,
    path: &[Issuer<'a>],
) -> Result<Issuer<'a>, GridError> {
    let mut why = Problem::UnknownIssuer(certificate.issuer_for_message());
    // Trusted authorities come first: they end the path.
    let mut trusted: Vec<_> = trust.named(&certificate.issuer).collect();
    trusted.sort_by_key(|(_, authority)| !authority.is_self_issued());
    for (number, issuer) in trusted {
        if path.iter().any(|other| other.number == Some(number)) {
            continue;
        }
        budget.spend()?;
        match certificate.check_signature(&issuer) {
            Ok(()) => return Ok(Issuer { certificate: issuer, number: Some(number) }),
            Err(problem) => why = problem,
        }
    }
    let signer = signer_of(certificate, chain, used, budget, why)?;
    Ok(Issuer { certificate: chain[signer].clone(), number: None })
}

/// What every certificate of a path must be.
pub(crate) fn check_one(certificate: &Certificate<'_>, now: Timestamp) -> Result<(), GridError> {
    certificate.check_times(now).map_err(|why| certificate.refused(why))?;
    signature::check_key(certificate.key()).map_err(|why| certificate.refused(why.into()))
}

/// Whether `issuer` may have issued `certificate` with `below` authorities between it and the user or host. The refusal is of
/// one of both.
fn check_issuer<'c, 'a>(
    issuer: &'c Issuer<'a>,
    certificate: &'c Certificate<'a>,
    below: u32,
) -> Result<(), (&'c Certificate<'a>, Problem)> {
    let authority = &issuer.certificate;
    let extensions = &authority.extensions;
    // A trusted authority of version 1 cannot say that it is one; `Trust` refuses one that says it is none.
    let is_authority = authority.is_authority() || (issuer.number.is_some() && authority.is_self_issued());
    if !is_authority {
        return Err((certificate, Problem::IssuerIsNoAuthority(authority.subject_for_message())));
    }
    if extensions.key_usage.as_ref().is_some_and(|usage| !usage.key_cert_sign()) {
        return Err((certificate, Problem::IssuerMustNotSign(authority.subject_for_message())));
    }
    match extensions.path_length {
        Some(allowed) if below > allowed => Err((authority, Problem::PathLength { below, allowed })),
        _ => Ok(()),
    }
}

fn check_revocation(trust: &Trust, certificate: &Certificate<'_>, issuer: &Issuer<'_>) -> Result<(), Problem> {
    trust.check_revocation(certificate, &issuer.certificate).map_err(|why| match why {
        RevocationProblem::Revoked => Problem::Revoked,
        RevocationProblem::Unusable(why) => Problem::UnusableRevocationList(why),
    })
}

fn check_policy(trust: &Trust, certificate: &Certificate<'_>, issuer: &Issuer<'_>) -> Result<(), Problem> {
    let authority = || issuer.certificate.subject_for_message();
    match trust.policy_allows(certificate, &issuer.certificate, issuer.number) {
        Some(true) => Ok(()),
        Some(false) => Err(Problem::SigningPolicy(authority())),
        None => Err(Problem::UnusableSigningPolicy(authority())),
    }
}
