//! Proxy certificates (RFC 3820).

use crate::certificate::Certificate;
use crate::der::{self, Malformed};
use crate::error::{GridError, Problem};
use crate::name::dotted;

/// RFC 3820, section 3.8.2: the policy language of proxies that have no rights of their issuer, 1.3.6.1.5.5.7.21.2.
const INDEPENDENT: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 21, 2];

/// What a proxy certificate says about itself, in the extension `proxyCertInfo` (RFC 3820, section 3.8).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProxyInfo {
    /// How many proxies may be below this one.
    pub path_length: Option<u32>,
    language: Vec<u8>,
    has_policy: bool,
}

/// Why that cannot be known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProxyInfoProblem {
    /// The extension is not critical, as it must be.
    NotCritical,
    /// Its value is malformed.
    Malformed,
}

impl ProxyInfo {
    /// The extension: 1.3.6.1.5.5.7.1.14, as the content of an `OBJECT IDENTIFIER`.
    pub const EXTENSION: &'static [u8] = &[0x2b, 6, 1, 5, 5, 7, 1, 14];
    /// The policy language of proxies with all rights of their issuer, 1.3.6.1.5.5.7.21.1.
    pub const INHERIT_ALL: &'static [u8] = &[0x2b, 6, 1, 5, 5, 7, 21, 1];
    /// The Globus Toolkit's language for proxies that must not start jobs, 1.3.6.1.4.1.3536.1.1.1.9.
    pub const LIMITED: &'static [u8] = &[0x2b, 6, 1, 4, 1, 0x9b, 0x50, 1, 1, 1, 9];

    /// Reads the value of the extension:
    /// `SEQUENCE { pCPathLenConstraint INTEGER OPTIONAL, SEQUENCE { OBJECT IDENTIFIER, OCTET STRING OPTIONAL } }`.
    ///
    /// # Errors
    /// Why it says nothing.
    pub fn parse(value: &[u8], critical: bool) -> Result<Self, ProxyInfoProblem> {
        if !critical {
            return Err(ProxyInfoProblem::NotCritical);
        }
        Self::read(value).map_err(|Malformed| ProxyInfoProblem::Malformed)
    }

    fn read(value: &[u8]) -> Result<Self, Malformed> {
        let mut info = der::only(value, der::SEQUENCE)?.inside();
        let path_length = info.optional(der::INTEGER)?.map(|number| der::small_number(number.content)).transpose()?;
        let mut policy = info.expect(der::SEQUENCE)?.inside();
        info.end()?;
        let language = policy.expect(der::OID)?.content.to_vec();
        let has_policy = policy.optional(der::OCTET_STRING)?.is_some();
        policy.end()?;
        Ok(Self { path_length, language, has_policy })
    }

    /// Whether the proxy has all rights of its issuer.
    #[must_use]
    pub fn has_all_rights(&self) -> bool {
        self.language == Self::INHERIT_ALL && !self.has_policy
    }

    /// Whether this proxy is limited.
    fn is_limited(&self) -> Result<bool, Problem> {
        let limited = match &self.language[..] {
            Self::INHERIT_ALL => false,
            Self::LIMITED => true,
            INDEPENDENT => return Err(Problem::ProxyIndependent),
            other => return Err(Problem::ProxyPolicy(dotted(other))),
        };
        if self.has_policy { Err(Problem::ProxyPolicyText) } else { Ok(limited) }
    }
}

/// Checks the proxies of a chain, the leaf first, whose user has the certificate `user`. Returns whether one of them is
/// limited: what a limited proxy signs is limited, too.
///
/// Signatures and times are checked elsewhere.
pub(crate) fn check(proxies: &[&Certificate<'_>], user: &Certificate<'_>) -> Result<bool, GridError> {
    let mut limited = false;
    for (below, proxy) in (0_u32..).zip(proxies) {
        let issuer = proxies.get(below as usize + 1).copied().unwrap_or(user);
        limited |= check_one(proxy, issuer, below).map_err(|why| proxy.refused(why))?;
    }
    Ok(limited)
}

fn check_one(proxy: &Certificate<'_>, issuer: &Certificate<'_>, below: u32) -> Result<bool, Problem> {
    let extensions = &proxy.extensions;
    let info = match &extensions.proxy {
        Some(Ok(info)) => info,
        Some(Err(ProxyInfoProblem::NotCritical)) => return Err(Problem::ProxyNotCritical),
        Some(Err(ProxyInfoProblem::Malformed)) | None => return Err(Problem::ProxyInfo),
    };
    if !proxy.subject.is_proxy_of(&issuer.subject) {
        return Err(Problem::ProxySubject(issuer.subject_for_message()));
    }
    if extensions.authority == Some(true) {
        return Err(Problem::ProxyAuthority);
    }
    if extensions.has_alternative_names {
        return Err(Problem::ProxyAlternativeNames);
    }
    if extensions.key_usage.as_ref().is_some_and(|usage| usage.key_cert_sign() || usage.non_repudiation()) {
        return Err(Problem::ProxyKeyUsage);
    }
    if let Some(allowed) = info.path_length.filter(|&allowed| below > allowed) {
        return Err(Problem::ProxyPathLength { below, allowed });
    }
    info.is_limited()
}

/// Whether `certificate` is a proxy of a kind from before RFC 3820. Stock XRootD 5.5 refuses those of the Globus Toolkit 2, too:
/// nothing in them but a name keeps them apart from certificates of users.
pub(crate) fn legacy(certificate: &Certificate<'_>) -> Option<Problem> {
    if certificate.extensions.is_draft_proxy {
        return Some(Problem::LegacyProxy("of the Globus Toolkit 3"));
    }
    let named = matches!(certificate.subject.last_common_name(), Some(b"proxy" | b"limited proxy"));
    let is_legacy = named && !certificate.is_proxy() && certificate.subject.is_proxy_of(&certificate.issuer);
    is_legacy.then_some(Problem::LegacyProxy("of the Globus Toolkit 2"))
}
