//! Attribute certificates of VOMS as bytes (RFC 5755; "The VOMS Attribute Certificate Format", GFD-I.182).

use types::Timestamp;
use x509_parser::prelude::FromDer;
use x509_parser::x509::{AlgorithmIdentifier, X509Name};

use crate::certificate::{SERIAL_MAX, without_leading_zeros};
use crate::der::{self, Element, Malformed, Reader};
use crate::limits::{CERTIFICATE_BYTES_MAX, CHAIN_MAX};
use crate::name::{NameKey, dotted};

/// Most attribute certificates in one proxy: one for each organization.
pub(crate) const ATTRIBUTE_CERTIFICATES_MAX: usize = 16;

/// The attribute with the FQANs, 1.3.6.1.4.1.8005.100.100.4.
const FQANS: &[u8] = &[0x2b, 6, 1, 4, 1, 0xbe, 0x45, 0x64, 0x64, 4];
/// The extension with the signer's certificates, 1.3.6.1.4.1.8005.100.100.10.
const CERTIFICATES: &[u8] = &[0x2b, 6, 1, 4, 1, 0xbe, 0x45, 0x64, 0x64, 10];
const AUTHORITY_KEY_ID: &[u8] = &[0x55, 0x1d, 35];
const TARGETS: &[u8] = &[0x55, 0x1d, 55];
const NO_REVOCATION: &[u8] = &[0x55, 0x1d, 56];

const DIRECTORY_NAME: u8 = 0xa4;
const URI: u8 = 0x86;

/// An attribute certificate.
pub(crate) struct AttributeCertificate<'a> {
    /// What is signed.
    pub signed: &'a [u8],
    pub is_version_2: bool,
    /// Whom it is for; `None` if that is not said by a name and a serial number.
    pub holder: Option<Holder<'a>>,
    pub issuer: NameKey,
    /// The algorithm, if the places that name it agree.
    pub algorithm: Option<AlgorithmIdentifier<'a>>,
    pub signature: &'a [u8],
    pub times: (Timestamp, Timestamp),
    /// The virtual organization, and the host of its server.
    pub organization: &'a str,
    pub host: &'a str,
    /// The FQANs, as texts.
    pub fqans: Vec<&'a str>,
    pub extensions: Extensions<'a>,
}

/// A certificate by its issuer's name and its number.
pub(crate) struct Holder<'a> {
    pub name: NameKey,
    pub serial: &'a [u8],
    pub has_unique_id: bool,
}

#[derive(Default)]
pub(crate) struct Extensions<'a> {
    /// The certificates of the signer and of authorities above it.
    pub certificates: Vec<Vec<u8>>,
    pub has_no_revocation: bool,
    pub has_authority_key_id: bool,
    /// The services that it is for, if it is not for all.
    pub targets: Option<Vec<&'a str>>,
    /// A critical one that is not known.
    pub unknown: Option<String>,
}

/// The attribute certificates of a proxy, each by itself: `SEQUENCE { SEQUENCE OF AttributeCertificate }`.
pub(crate) fn list(extension: &[u8]) -> Result<Vec<&[u8]>, Malformed> {
    let mut outer = der::only(extension, der::SEQUENCE)?.inside();
    let mut list = outer.expect(der::SEQUENCE)?.inside();
    outer.end()?;
    let mut certificates = Vec::new();
    while !list.is_empty() {
        certificates.push(list.expect(der::SEQUENCE)?.raw);
    }
    Ok(certificates)
}

impl<'a> AttributeCertificate<'a> {
    /// Reads one.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut whole = der::only(bytes, der::SEQUENCE)?.inside();
        let signed = whole.expect(der::SEQUENCE)?;
        let outer_algorithm = whole.expect(der::SEQUENCE)?;
        let signature = der::bits(whole.expect(der::BIT_STRING)?.content)?;
        whole.end()?;

        let mut fields = signed.inside();
        let is_version_2 = fields.expect(der::INTEGER)?.content == [1];
        let holder = holder(fields.expect(der::SEQUENCE)?)?;
        // V2Form with a name and nothing else.
        let mut form = fields.expect(0xa0)?.inside();
        let issuer = one_directory_name(form.expect(der::SEQUENCE)?)?;
        form.end()?;
        let algorithm = fields.expect(der::SEQUENCE)?;
        let serial = fields.expect(der::INTEGER)?.content;
        if without_leading_zeros(serial).len() > SERIAL_MAX {
            return Err(Malformed);
        }
        let mut validity = fields.expect(der::SEQUENCE)?.inside();
        let times =
            (der::time(validity.expect(der::GENERALIZED_TIME)?)?, der::time(validity.expect(der::GENERALIZED_TIME)?)?);
        validity.end()?;
        let attributes = fields.expect(der::SEQUENCE)?;
        let (organization, host, fqans) = fqans(attributes.inside())?;
        fields.optional(der::BIT_STRING)?; // the issuer's unique identifier
        let extensions = fields.optional(der::SEQUENCE)?.map_or(Ok(Extensions::default()), extensions)?;
        fields.end()?;

        let algorithm = (algorithm.raw == outer_algorithm.raw).then_some(algorithm.raw);
        let algorithm = algorithm.map(AlgorithmIdentifier::from_der).transpose().map_err(|_| Malformed)?;
        Ok(Self {
            signed: signed.raw,
            is_version_2,
            holder,
            issuer,
            algorithm: algorithm.map(|(_, algorithm)| algorithm),
            signature,
            times,
            organization,
            host,
            fqans,
            extensions,
        })
    }
}

fn holder(holder: Element<'_>) -> Result<Option<Holder<'_>>, Malformed> {
    let mut fields = holder.inside();
    // entityName and objectDigestInfo would bind it to something else than a certificate.
    let Some(base) = fields.optional(0xa0)?.filter(|_| fields.is_empty()) else { return Ok(None) };
    let mut base = base.inside();
    let name = one_directory_name(base.expect(der::SEQUENCE)?)?;
    let serial = without_leading_zeros(base.expect(der::INTEGER)?.content);
    let has_unique_id = base.optional(der::BIT_STRING)?.is_some();
    base.end()?;
    Ok(Some(Holder { name, serial, has_unique_id }))
}

/// GeneralNames with one name, which is a directory's.
fn one_directory_name(names: Element<'_>) -> Result<NameKey, Malformed> {
    let mut names = names.inside();
    let name = names.expect(DIRECTORY_NAME)?;
    names.end()?;
    match X509Name::from_der(der::only(name.content, der::SEQUENCE)?.raw) {
        Ok(([], name)) => Ok(NameKey::new(&name)),
        _ => Err(Malformed),
    }
}

/// The one attribute with FQANs: `IetfAttrSyntax { policyAuthority, values }`. The policy authority is `VO://HOST:PORT`.
fn fqans(mut attributes: Reader<'_>) -> Result<(&str, &str, Vec<&str>), Malformed> {
    let mut found = None;
    while !attributes.is_empty() {
        let mut attribute = attributes.expect(der::SEQUENCE)?.inside();
        let oid = attribute.expect(der::OID)?.content;
        let mut values = attribute.expect(der::SET)?.inside();
        attribute.end()?;
        if oid != FQANS {
            continue;
        }
        let mut syntax = values.expect(der::SEQUENCE)?.inside();
        values.end()?;
        let mut names = syntax.expect(0xa0)?.inside();
        let authority = text(names.expect(URI)?.content)?;
        names.end()?;
        let mut values = syntax.expect(der::SEQUENCE)?.inside();
        syntax.end()?;
        let mut fqans = Vec::new();
        while !values.is_empty() {
            fqans.push(text(values.expect(der::OCTET_STRING)?.content)?);
        }
        let (organization, address) = authority.split_once("://").ok_or(Malformed)?;
        let host = address.split_once(':').map_or(address, |(host, _)| host);
        if found.replace((organization, host, fqans)).is_some() {
            return Err(Malformed);
        }
    }
    found.ok_or(Malformed)
}

fn text(bytes: &[u8]) -> Result<&str, Malformed> {
    std::str::from_utf8(bytes).ok().filter(|text| text.is_ascii()).ok_or(Malformed)
}

fn extensions(list: Element<'_>) -> Result<Extensions<'_>, Malformed> {
    let mut found = Extensions::default();
    let mut list = list.inside();
    let mut seen: Vec<&[u8]> = Vec::new();
    while !list.is_empty() {
        let mut extension = list.expect(der::SEQUENCE)?.inside();
        let oid = extension.expect(der::OID)?.content;
        let critical = extension.optional(der::BOOLEAN)?.map_or(Ok(false), |flag| der::boolean(flag.content))?;
        let value = extension.expect(der::OCTET_STRING)?.content;
        extension.end()?;
        if seen.contains(&oid) || seen.len() == CHAIN_MAX {
            return Err(Malformed);
        }
        seen.push(oid);
        match oid {
            CERTIFICATES => found.certificates = certificates(value)?,
            NO_REVOCATION => found.has_no_revocation = true,
            AUTHORITY_KEY_ID => found.has_authority_key_id = true,
            TARGETS => found.targets = Some(targets(value)?),
            _ if critical => found.unknown = Some(dotted(oid)),
            _ => {}
        }
    }
    Ok(found)
}

/// `SEQUENCE { SEQUENCE OF Certificate }`.
fn certificates(value: &[u8]) -> Result<Vec<Vec<u8>>, Malformed> {
    let list = list(value)?;
    let is_long = |certificate: &&[u8]| certificate.len() > CERTIFICATE_BYTES_MAX;
    if list.len() > CHAIN_MAX || list.iter().any(is_long) {
        return Err(Malformed);
    }
    Ok(list.into_iter().map(<[u8]>::to_vec).collect())
}

/// The services among the targets (RFC 5755, section 4.3.2): `SEQUENCE OF SEQUENCE OF [0] GeneralName`. VOMS leaves the outer
/// sequence out. Its services are the names of hosts.
fn targets(value: &[u8]) -> Result<Vec<&str>, Malformed> {
    let mut found = Vec::new();
    let mut outer = der::only(value, der::SEQUENCE)?.inside();
    while !outer.is_empty() {
        let element = outer.next()?;
        let mut list = match element.tag {
            der::SEQUENCE => element.inside(),
            _ => Reader::new(element.raw),
        };
        while !list.is_empty() {
            let target = list.next()?;
            if target.tag == 0xa0 {
                let name = target.inside().next()?;
                if name.tag == URI {
                    found.push(text(name.content)?);
                }
            }
        }
    }
    Ok(found)
}
