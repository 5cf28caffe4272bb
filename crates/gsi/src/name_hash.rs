//! The hash that names the file of an authority in a directory of authorities: `X509_NAME_hash` of OpenSSL (`crypto/x509/x_name.c`,
//! `x509_name_canon`). SHA-1 of the name in a canonical form, of which the first four bytes count, the lowest first.

use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use x509_parser::asn1_rs::{Any, FromDer as _, Tag};
use x509_parser::prelude::{X509Certificate, X509Name};

use crate::der::der;

/// The hash of the authority that has issued a certificate in DER form; `None`: it is not a certificate.
#[must_use]
pub fn issuer_hash(certificate: &[u8]) -> Option<String> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    hash(parsed.issuer())
}

fn hash(name: &X509Name<'_>) -> Option<String> {
    let mut canonical = Vec::new();
    for relative in name.iter_rdn() {
        let mut entries = Vec::new();
        for entry in relative.iter() {
            // The type, and then the value.
            let mut content = der(6, entry.attr_type().as_bytes());
            content.extend_from_slice(&value(entry.attr_value())?);
            entries.push(der(0x30, &content));
        }
        // A set is sorted by its bytes.
        entries.sort();
        canonical.extend_from_slice(&der(0x31, &entries.concat()));
    }
    let digest = digest(&SHA1_FOR_LEGACY_USE_ONLY, &canonical);
    let (first, _) = digest.as_ref().split_first_chunk()?;
    Some(format!("{:08x}", u32::from_le_bytes(*first)))
}

/// A text in lower case, with single blanks and none around it, as UTF-8; something else as it is.
fn value(value: &Any<'_>) -> Option<Vec<u8>> {
    let text = match value.tag() {
        Tag::Utf8String | Tag::PrintableString | Tag::Ia5String | Tag::VisibleString => value.data.to_vec(),
        Tag::T61String => value.data.iter().map(|byte| char::from(*byte)).collect::<String>().into_bytes(),
        Tag::BmpString => {
            let units = value.data.chunks(2).map(|pair| pair.iter().fold(0, |unit, byte| unit << 8 | u16::from(*byte)));
            String::from_utf16(&units.collect::<Vec<_>>()).ok()?.into_bytes()
        }
        tag => return Some(der(u8::try_from(tag.0).ok()?, value.data)),
    };
    let words = text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let text = words.collect::<Vec<_>>().join(&b' ').to_ascii_lowercase();
    Some(der(12, &text))
}
