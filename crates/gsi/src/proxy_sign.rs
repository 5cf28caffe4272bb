//! How a client signs a proxy for a server (`XrdCryptosslX509SignProxyReq` in `XrdCryptosslgsiAux.cc`): the key is the server's, all
//! else is decided here.

use rsa::pkcs8::DecodePublicKey as _;
use rsa::traits::PublicKeyParts as _;
use rsa::{PrivateKey, PublicKey};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::{ASN1Time, FromDer as _, X509Certificate, X509Name};

use crate::der::{GENERALIZED_TIME, UTC_TIME, der, integer, sequence};
use crate::proxy_key::{signature_algorithm, signed};
use crate::{HandshakeError, Random, pem, proxy_info};

/// How long a proxy lasts that is signed here, at most: one that was made for a copy need not last for days.
const LIFE_SECS_MAX: i64 = 24 * 3600;
/// The server's clock may be so much behind.
const SKEW_SECS: i64 = 300;
/// The longest request. One for a key of 8192 bits has some 2 KiB.
const REQUEST_BYTES_MAX: usize = 16 << 10;
/// The shortest key for which a proxy is signed.
const KEY_BYTES_MIN: usize = 256;
/// `commonName`, 2.5.4.3.
const COMMON_NAME: &[u8] = &[0x55, 4, 3];

/// Signs what `request` (in PEM form) asks for with `key`, which is that of the first certificate of `chain`. `now` is in seconds since
/// 1970. Returns the proxy in PEM form.
///
/// Subject, times, limits and extensions follow from the issuer alone. Of the request, only the key and the number in the subject
/// count.
pub(crate) fn sign(
    key: &PrivateKey,
    chain: &[Vec<u8>],
    request: &[u8],
    now: i64,
    random: &mut dyn Random,
) -> Result<String, HandshakeError> {
    let malformed = HandshakeError::Malformed(crate::BucketType::REQUEST);
    if request.len() > REQUEST_BYTES_MAX {
        return Err(malformed);
    }
    let blocks = pem::blocks(request);
    let [block] = blocks.as_slice() else { return Err(malformed) };
    if !matches!(block.label.as_str(), "CERTIFICATE REQUEST" | "NEW CERTIFICATE REQUEST") {
        return Err(malformed);
    }
    let (_, request) = X509CertificationRequest::from_der(&block.der).map_err(|_| malformed.clone())?;
    let wanted = &request.certification_request_info;
    let parsed = |der| X509Certificate::from_der(der).map(|(_, certificate)| certificate);
    let first = chain.first().ok_or(HandshakeError::Certificates(0))?;
    let issuer = parsed(first).map_err(|_| HandshakeError::Key)?;
    // The subject must be that of the issuer and one more part.
    let own = issuer.subject().as_raw();
    let parts = wanted.subject.iter_rdn().count();
    let is_below = parts == issuer.subject().iter_rdn().count() + 1
        && content(wanted.subject.as_raw())
            .is_some_and(|subject| content(own).is_some_and(|own| subject.starts_with(own)));
    let Some(number) = number_of(&wanted.subject).filter(|_| is_below) else {
        return Err(HandshakeError::CannotDelegate("the server asks for a proxy with another subject"));
    };
    let public = PublicKey::from_public_key_der(wanted.subject_pki.raw)
        .map_err(|_| HandshakeError::CannotDelegate("the server asks for a proxy with a key that is not one of RSA"))?;
    if public.size() < KEY_BYTES_MIN {
        return Err(HandshakeError::CannotDelegate("the server asks for a proxy with a key of fewer than 2048 bits"));
    }
    let mut info = proxy_info::read(&issuer)?;
    let mut ends = now.saturating_add(LIFE_SECS_MAX);
    for (below, certificate) in (0u32..).zip(chain) {
        let certificate = parsed(certificate).map_err(|_| HandshakeError::Key)?;
        ends = ends.min(certificate.validity().not_after.timestamp());
        // So many proxies are below this one already.
        let left = proxy_info::read(&certificate)?.path_length.map(|length| length.saturating_sub(below));
        info.path_length = info.path_length.into_iter().chain(left).min();
    }
    if info.path_length == Some(0) {
        return Err(HandshakeError::CannotDelegate("its proxy allows no further proxy (pCPathLenConstraint)"));
    }
    if ends <= now {
        return Err(HandshakeError::CannotDelegate("its certificate has ended"));
    }
    let begins = now.saturating_sub(SKEW_SECS).max(issuer.validity().not_before.timestamp());
    let extensions = sequence(&[proxy_info::key_usage(), info.below().extension()]);
    let content = sequence(&[
        der(0xa0, &integer(&[2])),
        integer(&number.to_be_bytes()),
        signature_algorithm(),
        own.to_vec(),
        sequence(&[time(begins)?, time(ends)?]),
        wanted.subject.as_raw().to_vec(),
        wanted.subject_pki.raw.to_vec(),
        der(0xa3, &extensions),
    ]);
    Ok(pem::encode("CERTIFICATE", &signed(key, content, random)?))
}

/// The number in the last part of the subject of a request, which is a single CN. Stock servers write one of 32 bits as if it had a sign.
fn number_of(subject: &X509Name<'_>) -> Option<u32> {
    let last = subject.iter_rdn().last()?;
    let mut names = last.iter();
    let (name, None) = (names.next()?, names.next()) else { return None };
    let number = name.as_str().ok().filter(|_| name.attr_type().as_bytes() == COMMON_NAME)?.parse::<i64>().ok()?;
    u32::try_from(number).or_else(|_| i32::try_from(number).map(i32::cast_unsigned)).ok()
}

/// What is in an element of DER.
fn content(element: &[u8]) -> Option<&[u8]> {
    x509_parser::asn1_rs::Any::from_der(element).ok().map(|(_, any)| any.data)
}

/// A time as certificates have it (RFC 5280, section 4.1.2.5).
fn time(secs: i64) -> Result<Vec<u8>, HandshakeError> {
    let far = || HandshakeError::CannotDelegate("the time is out of range");
    let time = ASN1Time::from_timestamp(secs).map_err(|_| far())?.to_datetime();
    let year = time.year();
    let rest = format!(
        "{:02}{:02}{:02}{:02}{:02}Z",
        u8::from(time.month()),
        time.day(),
        time.hour(),
        time.minute(),
        time.second()
    );
    match year {
        1950..=2049 => Ok(der(UTC_TIME, format!("{:02}{rest}", year % 100).as_bytes())),
        0..=9999 => Ok(der(GENERALIZED_TIME, format!("{year:04}{rest}").as_bytes())),
        _ => Err(far()),
    }
}
