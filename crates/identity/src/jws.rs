//! The compact form of JSON Web Signatures (RFC 7515, section 7.1): three base64url texts joined by dots.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};

use crate::shown::shown;
use crate::token::TOKEN_BYTES_MAX;
use crate::{Algorithm, KEY_ID_MAX, TokenError};

/// A JSON object: a token's header or its claims.
pub(crate) type Object = Map<String, Value>;

/// A parsed token whose signature nobody has checked.
pub(crate) struct Jws<'a> {
    pub(crate) algorithm: Algorithm,
    pub(crate) key_id: Box<str>,
    pub(crate) claims: Object,
    pub(crate) signature: Vec<u8>,
    /// What the signature is over.
    pub(crate) signed: &'a [u8],
}

impl<'a> Jws<'a> {
    /// Splits and decodes `text`. Of the header only `alg`, `kid`, `typ` and `crit` are read. `jwk`, `jku`, `x5c` and `x5u`
    /// are ignored: a token must not choose its own key.
    pub(crate) fn parse(text: &'a [u8]) -> Result<Self, TokenError> {
        if text.len() > TOKEN_BYTES_MAX {
            return Err(TokenError::TooLong(text.len()));
        }
        let parts: Vec<&[u8]> = text.split(|&byte| byte == b'.').collect();
        let [header, payload, signature] = parts[..] else {
            return Err(TokenError::Parts(parts.len()));
        };
        let signed = &text[..header.len() + 1 + payload.len()];
        let header = object(header, "header")?;
        let claims = object(payload, "payload")?;
        let signature = decode(signature, "signature")?;
        let algorithm = algorithm(&header)?;
        if let Some(extensions) = header.get("crit") {
            return Err(TokenError::CriticalHeader(shown(&extensions.to_string())));
        }
        check_type(&header)?;
        let key_id = match header.get("kid") {
            Some(Value::String(id)) if !id.is_empty() && id.len() <= KEY_ID_MAX => id.as_str().into(),
            None => return Err(TokenError::NoKeyId),
            Some(_) => return Err(TokenError::BadKeyId),
        };
        Ok(Self { algorithm, key_id, claims, signature, signed })
    }
}

fn decode(text: &[u8], part: &'static str) -> Result<Vec<u8>, TokenError> {
    URL_SAFE_NO_PAD.decode(text).map_err(|_| TokenError::Base64(part))
}

fn object(text: &[u8], part: &'static str) -> Result<Object, TokenError> {
    let json = decode(text, part)?;
    serde_json::from_slice(&json).map_err(|why| TokenError::Json { part, why: shown(&why.to_string()) })
}

fn algorithm(header: &Object) -> Result<Algorithm, TokenError> {
    let Some(Value::String(name)) = header.get("alg") else { return Err(TokenError::NoAlgorithm) };
    if let Some(algorithm) = Algorithm::parse(name) {
        return Ok(algorithm);
    }
    if name.eq_ignore_ascii_case("none") {
        return Err(TokenError::Unsigned);
    }
    if matches!(name.as_str(), "HS256" | "HS384" | "HS512") {
        return Err(TokenError::Symmetric(shown(name)));
    }
    Err(TokenError::UnknownAlgorithm(shown(name)))
}

/// Refuses what the issuer has signed for another purpose, such as a logout token (RFC 8725, section 3.11). `JWT` and
/// `at+jwt` (RFC 9068) are access tokens, and most issuers of either profile leave the type out.
fn check_type(header: &Object) -> Result<(), TokenError> {
    let Some(value) = header.get("typ") else { return Ok(()) };
    let Value::String(name) = value else { return Err(TokenError::WrongType(shown(&value.to_string()))) };
    let lower = name.to_ascii_lowercase();
    match lower.strip_prefix("application/").unwrap_or(&lower) {
        "jwt" | "at+jwt" => Ok(()),
        _ => Err(TokenError::WrongType(shown(name))),
    }
}
