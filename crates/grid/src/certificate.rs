//! A certificate, with the extensions that decide something.

use identity::{CLOCK_SKEW, DistinguishedName};
use types::Timestamp;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::{ExtendedKeyUsage, GeneralName, KeyUsage, NameConstraints, ParsedExtension};
use x509_parser::prelude::FromDer;
use x509_parser::x509::{AlgorithmIdentifier, SubjectPublicKeyInfo, X509Name, X509Version};

use crate::der::{self, Malformed};
use crate::error::{GridError, Problem, Unreadable};
use crate::name::{NameKey, dotted, for_message, one_line};
use crate::proxy::{ProxyInfo, ProxyInfoProblem};
use crate::signature::{self, SignatureProblem};

/// The longest serial number (RFC 5280, section 4.1.2.2).
pub(crate) const SERIAL_MAX: usize = 20;

/// The VOMS attribute certificates in a proxy.
const VOMS_ATTRIBUTES: &[u8] = &[0x2b, 6, 1, 4, 1, 0xbe, 0x45, 0x64, 0x64, 5];
/// The proxies of the Globus Toolkit 3, from a draft of RFC 3820: 1.3.6.1.4.1.3536.1.222.
const DRAFT_PROXY_INFO: &[u8] = &[0x2b, 6, 1, 4, 1, 0x9b, 0x50, 1, 0x81, 0x5e];
const CERTIFICATE_POLICIES: &[u8] = &[0x55, 0x1d, 0x20];

/// How a signature is checked.
type Check = fn(&SubjectPublicKeyInfo<'_>, &AlgorithmIdentifier<'_>, &[u8], &[u8]) -> Result<(), SignatureProblem>;

/// One certificate.
#[derive(Clone)]
pub(crate) struct Certificate<'a> {
    x509: X509Certificate<'a>,
    pub subject: NameKey,
    pub issuer: NameKey,
    pub extensions: Extensions<'a>,
}

/// The extensions that decide something.
#[derive(Clone, Default)]
pub(crate) struct Extensions<'a> {
    /// Whether it is an authority; `None` if it does not say.
    pub authority: Option<bool>,
    /// How many authorities may be below this one.
    pub path_length: Option<u32>,
    pub key_usage: Option<KeyUsage>,
    pub extended_key_usage: Option<ExtendedKeyUsage<'a>>,
    pub alternative_names: Vec<GeneralName<'a>>,
    /// Whether it has subjectAltName or issuerAltName.
    pub has_alternative_names: bool,
    pub name_constraints: Option<NameConstraints<'a>>,
    pub proxy: Option<Result<ProxyInfo, ProxyInfoProblem>>,
    pub is_draft_proxy: bool,
    /// The VOMS attribute certificates, in DER.
    pub voms: Option<&'a [u8]>,
    pub key_id: Option<&'a [u8]>,
}

impl<'a> Certificate<'a> {
    pub fn parse(der: &'a [u8]) -> Result<Self, Unreadable> {
        let (rest, x509) = X509Certificate::from_der(der).map_err(|_| Unreadable::NotX509)?;
        if !rest.is_empty() {
            return Err(Unreadable::Behind(rest.len()));
        }
        if !has_one_algorithm(der).map_err(|Malformed| Unreadable::NotX509)? {
            return Err(Unreadable::TwoAlgorithms);
        }
        if without_leading_zeros(x509.raw_serial()).len() > SERIAL_MAX {
            return Err(Unreadable::Serial);
        }
        if x509.version() != X509Version::V3 && !x509.extensions().is_empty() {
            return Err(Unreadable::Version);
        }
        let extensions = extensions(&x509)?;
        let subject = NameKey::new(x509.subject());
        let issuer = NameKey::new(x509.issuer());
        Ok(Self { x509, subject, issuer, extensions })
    }

    pub fn subject_name(&self) -> &X509Name<'a> {
        &self.x509.tbs_certificate.subject
    }

    pub fn issuer_name(&self) -> &X509Name<'a> {
        &self.x509.tbs_certificate.issuer
    }

    pub fn subject_for_message(&self) -> String {
        for_message(self.subject_name())
    }

    pub fn issuer_for_message(&self) -> String {
        for_message(self.issuer_name())
    }

    /// The subject as rules have it.
    pub fn distinguished_name(&self) -> Result<DistinguishedName, Problem> {
        one_line(self.subject_name()).map_err(|why| Problem::Subject(why.to_string()))
    }

    /// The issuer's subject as rules have it.
    pub fn issuer_distinguished_name(&self) -> Result<DistinguishedName, Problem> {
        one_line(self.issuer_name()).map_err(|why| Problem::Subject(why.to_string()))
    }

    /// The refusal of this certificate.
    pub fn refused(&self, why: Problem) -> GridError {
        GridError::Certificate { subject: self.subject_for_message(), why }
    }

    /// The serial number without leading zeros.
    pub fn serial(&self) -> &'a [u8] {
        without_leading_zeros(self.x509.raw_serial())
    }

    pub fn key(&self) -> &SubjectPublicKeyInfo<'a> {
        &self.x509.tbs_certificate.subject_pki
    }

    pub fn has_issuer_unique_id(&self) -> bool {
        self.x509.tbs_certificate.issuer_uid.is_some()
    }

    pub fn is_proxy(&self) -> bool {
        self.extensions.proxy.is_some()
    }

    /// Whether this may be the certificate of an authority. Those of version 1 cannot say so.
    pub fn is_authority(&self) -> bool {
        self.extensions.authority == Some(true)
    }

    pub fn is_self_issued(&self) -> bool {
        self.subject == self.issuer
    }

    pub fn not_after(&self) -> Timestamp {
        Timestamp::from_secs(self.x509.validity().not_after.timestamp())
    }

    /// The times, as for tokens: a clock may be a little wrong where that cannot do harm, at the beginning.
    pub fn check_times(&self, now: Timestamp) -> Result<(), Problem> {
        let from = Timestamp::from_secs(self.x509.validity().not_before.timestamp());
        if from > now.plus(CLOCK_SKEW) {
            return Err(Problem::not_yet_valid(from, now));
        }
        if self.not_after() <= now {
            return Err(Problem::expired(self.not_after(), now));
        }
        Ok(())
    }

    /// Whether `issuer`'s key has signed this.
    pub fn check_signature(&self, issuer: &Certificate<'_>) -> Result<(), Problem> {
        self.check_signature_by(issuer, signature::check)
    }

    /// The same for a certificate with a key that was made just now, and that nobody knew before ([`signature::check_new`]).
    pub fn check_new_signature(&self, issuer: &Certificate<'_>) -> Result<(), Problem> {
        self.check_signature_by(issuer, signature::check_new)
    }

    fn check_signature_by(&self, issuer: &Certificate<'_>, check: Check) -> Result<(), Problem> {
        let x509 = &self.x509;
        if x509.signature_value.unused_bits != 0 {
            return Err(Problem::Signature(issuer.subject_for_message()));
        }
        let message = x509.tbs_certificate.as_ref();
        check(issuer.key(), &x509.signature_algorithm, message, &x509.signature_value.data)
            .map_err(|why| why.of_certificate(&issuer.subject_for_message()))
    }
}

pub(crate) fn without_leading_zeros(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|&&byte| byte == 0).count();
    &number[zeros..]
}

/// Whether the certificate names one signature algorithm, byte by byte, in its signed part and outside of it.
fn has_one_algorithm(der: &[u8]) -> Result<bool, Malformed> {
    let mut parts = der::only(der, der::SEQUENCE)?.inside();
    let mut signed = parts.expect(der::SEQUENCE)?.inside();
    signed.optional(0xa0)?; // the version
    signed.expect(der::INTEGER)?; // the serial number
    let inner = signed.expect(der::SEQUENCE)?;
    let outer = parts.expect(der::SEQUENCE)?;
    parts.expect(der::BIT_STRING)?;
    parts.end()?;
    Ok(inner.raw == outer.raw)
}

fn extensions<'a>(x509: &X509Certificate<'a>) -> Result<Extensions<'a>, Unreadable> {
    let mut found = Extensions::default();
    let mut seen: Vec<&[u8]> = Vec::new();
    for extension in x509.extensions() {
        let oid = extension.oid.as_bytes();
        if seen.contains(&oid) {
            return Err(Unreadable::Twice(dotted(oid)));
        }
        seen.push(oid);
        let malformed = || Unreadable::Extension(dotted(oid));
        match extension.parsed_extension() {
            ParsedExtension::BasicConstraints(constraints) => {
                found.authority = Some(constraints.ca);
                found.path_length = constraints.path_len_constraint;
            }
            ParsedExtension::KeyUsage(usage) => found.key_usage = Some(*usage),
            ParsedExtension::ExtendedKeyUsage(usage) => found.extended_key_usage = Some(usage.clone()),
            ParsedExtension::SubjectAlternativeName(names) => {
                found.has_alternative_names = true;
                found.alternative_names.clone_from(&names.general_names);
            }
            ParsedExtension::IssuerAlternativeName(_) => found.has_alternative_names = true,
            ParsedExtension::NameConstraints(constraints) => found.name_constraints = Some(constraints.clone()),
            ParsedExtension::SubjectKeyIdentifier(id) => found.key_id = Some(id.0),
            // Which policies an authority follows when it issues decides nothing here.
            ParsedExtension::CertificatePolicies(_) => {}
            ParsedExtension::AuthorityKeyIdentifier(_) if !extension.critical => {}
            ParsedExtension::ParseError { .. } if extension.critical || is_known(oid) => return Err(malformed()),
            _ if oid == ProxyInfo::EXTENSION => {
                let critical = extension.critical;
                found.proxy = Some(ProxyInfo::parse(extension.value, critical));
            }
            _ if oid == DRAFT_PROXY_INFO => found.is_draft_proxy = true,
            _ if oid == VOMS_ATTRIBUTES && !extension.critical => found.voms = Some(extension.value),
            _ if extension.critical => return Err(Unreadable::Critical(dotted(oid))),
            _ => {}
        }
    }
    Ok(found)
}

/// Whether the extension decides something when it can be read.
fn is_known(oid: &[u8]) -> bool {
    // subjectKeyIdentifier, keyUsage, both alternative names, basicConstraints, nameConstraints, extKeyUsage.
    let decides = matches!(oid, [0x55, 0x1d, 14 | 15 | 17 | 18 | 19 | 30 | 37]);
    decides && oid != CERTIFICATE_POLICIES
}
