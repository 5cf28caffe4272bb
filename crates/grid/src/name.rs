//! The names of subjects and issuers.

use identity::{DISTINGUISHED_NAME_MAX, DistinguishedName, shown};
use x509_parser::asn1_rs::{Any, Tag};
use x509_parser::x509::X509Name;

/// The object identifier of `CN`, 2.5.4.3.
const COMMON_NAME: &[u8] = &[0x55, 4, 3];

/// What two names are compared by: object identifiers, and values without what RFC 5280, section 7.1, says to ignore: kind
/// of string, case, and blanks. Case is ignored in ASCII only, as OpenSSL does.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct NameKey(Vec<Vec<(Vec<u8>, Vec<u8>)>>);

impl NameKey {
    pub fn new(name: &X509Name<'_>) -> Self {
        let parts = name.iter_rdn().map(|part| {
            let mut attributes: Vec<_> = part
                .iter()
                .map(|attribute| (attribute.attr_type().as_bytes().to_vec(), value_key(attribute.attr_value())))
                .collect();
            attributes.sort();
            attributes
        });
        Self(parts.collect())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this name is `prefix`, or begins with it.
    pub fn begins_with(&self, prefix: &Self) -> bool {
        self.0.starts_with(&prefix.0)
    }

    /// Whether this is `issuer` with one more part, which is a single CN.
    pub fn is_proxy_of(&self, issuer: &Self) -> bool {
        match self.0.split_last() {
            Some((last, rest)) => rest == issuer.0 && matches!(&last[..], [(oid, _)] if oid == COMMON_NAME),
            None => false,
        }
    }

    /// The last part if that is a single CN.
    pub fn last_common_name(&self) -> Option<&[u8]> {
        match self.0.last().map(Vec::as_slice) {
            Some([(oid, value)]) if oid == COMMON_NAME => Some(value.get(1..).unwrap_or_default()),
            _ => None,
        }
    }
}

fn value_key(value: &Any<'_>) -> Vec<u8> {
    match text(value) {
        Some(text) => {
            // The first byte keeps texts and other values apart.
            let mut key = vec![1];
            let words = text.split(|c: char| c.is_ascii_whitespace()).filter(|word| !word.is_empty());
            for (position, word) in words.enumerate() {
                if position > 0 {
                    key.push(b' ');
                }
                key.extend(word.bytes().map(|byte| byte.to_ascii_lowercase()));
            }
            key
        }
        None => [&[0, u8::try_from(value.tag().0).unwrap_or(u8::MAX)], value.data].concat(),
    }
}

/// The text of a value.
fn text(value: &Any<'_>) -> Option<String> {
    let bytes = value.data;
    match value.tag() {
        Tag::Utf8String => String::from_utf8(bytes.to_vec()).ok(),
        // Whether bytes above 127 in a TeletexString are Latin 1 or T.61, nobody knows.
        Tag::PrintableString | Tag::Ia5String | Tag::NumericString | Tag::VisibleString | Tag::T61String => {
            Some(bytes).filter(|bytes| bytes.is_ascii()).and_then(|bytes| String::from_utf8(bytes.to_vec()).ok())
        }
        Tag::BmpString if bytes.len().is_multiple_of(2) => {
            let units = bytes.chunks_exact(2).map(|unit| u16::from_be_bytes([unit[0], unit[1]]));
            char::decode_utf16(units).collect::<Result<_, _>>().ok()
        }
        Tag::UniversalString if bytes.len().is_multiple_of(4) => {
            let units = bytes.chunks_exact(4).map(|unit| u32::from_be_bytes([unit[0], unit[1], unit[2], unit[3]]));
            units.map(char::from_u32).collect()
        }
        _ => None,
    }
}

/// Why a name has no one-line form.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum NameProblem {
    #[error("it is empty")]
    Empty,
    #[error("its attribute {0} is not a text")]
    NoText(String),
    #[error("its attribute {0} contains `/…=`, which looks like the beginning of another attribute")]
    Ambiguous(String),
    #[error("{0}")]
    Form(String),
}

/// The name in one line, as OpenSSL writes it and as rules have it.
pub(crate) fn one_line(name: &X509Name<'_>) -> Result<DistinguishedName, NameProblem> {
    let mut line = String::new();
    for attribute in name.iter_attributes() {
        let label = label(attribute.attr_type().as_bytes());
        let value = text(attribute.attr_value()).ok_or_else(|| NameProblem::NoText(label.clone()))?;
        if looks_like_two(&value) {
            return Err(NameProblem::Ambiguous(label));
        }
        line.push('/');
        line.push_str(&label);
        line.push('=');
        line.push_str(&value);
        if line.len() > DISTINGUISHED_NAME_MAX {
            break; // refused below
        }
    }
    if line.is_empty() {
        return Err(NameProblem::Empty);
    }
    DistinguishedName::parse(&line).map_err(|error| NameProblem::Form(error.to_string()))
}

/// The name as a message may show it.
pub(crate) fn for_message(name: &X509Name<'_>) -> String {
    let mut line = String::new();
    for attribute in name.iter_attributes().take(32) {
        let value = text(attribute.attr_value()).unwrap_or_else(|| "?".into());
        line.push_str(&format!("/{}={value}", label(attribute.attr_type().as_bytes())));
    }
    // Long names differ in what stands at their end.
    const MESSAGE_MAX: usize = 110;
    match line.char_indices().rev().nth(MESSAGE_MAX) {
        _ if line.is_empty() => "without subject".into(),
        Some((start, _)) => format!("…{}", shown(&line[start..])),
        None => shown(&line),
    }
}

/// Whether `value` has a slash that begins something like an attribute, `/CN=`. In one line it would look like two attributes.
fn looks_like_two(value: &str) -> bool {
    value.split('/').skip(1).any(|part| {
        part.split_once('=').is_some_and(|(attribute, _)| {
            attribute.starts_with(|c: char| c.is_ascii_alphanumeric())
                && attribute.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte))
        })
    })
}

/// The short names that OpenSSL has for attributes; others have their numbers.
fn label(oid: &[u8]) -> String {
    let name = match oid {
        [0x55, 4, number] => match number {
            3 => "CN",
            4 => "SN",
            5 => "serialNumber",
            6 => "C",
            7 => "L",
            8 => "ST",
            9 => "street",
            10 => "O",
            11 => "OU",
            12 => "title",
            13 => "description",
            17 => "postalCode",
            41 => "name",
            42 => "GN",
            43 => "initials",
            44 => "generationQualifier",
            46 => "dnQualifier",
            65 => "pseudonym",
            97 => "organizationIdentifier",
            _ => "",
        },
        [0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1] => "UID",
        [0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25] => "DC",
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1] => "emailAddress",
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 2] => "unstructuredName",
        _ => "",
    };
    if name.is_empty() { dotted(oid) } else { name.into() }
}

/// An object identifier in its usual form.
pub(crate) fn dotted(oid: &[u8]) -> String {
    x509_parser::oid_registry::Oid::new(oid.into()).to_id_string()
}
